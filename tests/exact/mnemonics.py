"""Which mma.sync instruction a mnemonic names, and on which archs it exists."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from .numbers import Mode

FP8 = ("e4m3", "e5m2")
FP6_FP4 = ("e3m2", "e2m3", "e2m1")
INT8 = ("s8", "u8")
INT4 = ("s4", "u4")

# Compute capability -> the generation whose arithmetic it has, or is taken to have as the nearest relative (section 2).
GENERATION = {
    70: 70, 72: 70, 75: 75, 80: 80, 86: 80, 87: 80, 88: 80, 89: 89, 90: 90,
    100: 100, 103: 100, 107: 100, 110: 100, 120: 120, 121: 120,
}  # fmt: skip

# Input formats -> shape -> the first compute capability that has it.
SHAPES: tuple[tuple[tuple[str, ...], dict[str, int]], ...] = (
    (("f16",), {"m8n8k4": 70, "m16n8k8": 75, "m16n8k16": 80}),
    (("bf16",), {"m16n8k8": 80, "m16n8k16": 80}),
    (("tf32",), {"m16n8k4": 80, "m16n8k8": 80}),
    (FP8, {"m16n8k16": 89, "m16n8k32": 89}),
    (FP8 + FP6_FP4, {"m16n8k32": 120}),  # at least one operand is fp6 or fp4
    (("f64",), {"m8n8k4": 80, "m16n8k4": 90, "m16n8k8": 90, "m16n8k16": 90}),
    (INT8, {"m8n8k16": 75, "m16n8k16": 80, "m16n8k32": 80}),
    (INT4, {"m8n8k32": 75, "m16n8k32": 80, "m16n8k64": 80}),
    (("b1",), {"m8n8k128": 75, "m16n8k128": 80, "m16n8k256": 80}),
)
FIRST_KIND = 100  # first compute capability of .kind::f8f6f4
FIRST_BIT_AND = 80  # first compute capability of .and.popc

ROUNDINGS: dict[str, Mode] = {"rn": "rne", "rz": "rz", "rm": "rm", "rp": "rp"}

MNEMONIC = re.compile(
    r"mma\.sync\.aligned(?P<kind>\.kind::f8f6f4)?"
    r"\.(?P<shape>m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+))\.(?P<layouts>(?:row|col)\.(?:row|col))"
    r"(?:\.(?P<modifier>satfinite|rn|rz|rm|rp))?"
    r"\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)\.(?P<c>\w+)"
    r"(?:\.(?P<bit_operation>xor|and)\.popc)?"
)


@dataclass(frozen=True)
class Instruction:
    """One mma.sync instruction: D = A * B + C with A of M x K, B of K x N, C and D of M x N codes."""

    mnemonic: str
    shape: str
    m: int
    n: int
    k: int
    d: str  # the four formats
    a: str
    b: str
    c: str
    rounding: Mode  # of an f64 instruction; every other one has no choice
    saturate: bool  # .satfinite
    bit_operation: Literal["xor", "and"] | None  # of a b1 instruction
    first: int  # the first compute capability that has the instruction


@cache
def parse(mnemonic: str) -> Instruction:
    """The instruction that `mnemonic` names; ValueError if it names none that this model knows."""
    match = MNEMONIC.fullmatch(mnemonic)
    if match is None:
        raise ValueError(f"{mnemonic!r} is not spelled like an mma.sync instruction")
    shape, kind, modifier = match["shape"], match["kind"], match["modifier"]
    d, a, b, c = match["d"], match["a"], match["b"], match["c"]
    inputs, shapes = _shapes_of(mnemonic, a, b)

    def require(condition: bool, rule: str) -> None:
        if not condition:
            raise ValueError(f"{mnemonic!r}: {rule}")

    volta = inputs == ("f16",) and shape == "m8n8k4"
    require(shape in shapes, f"{a} with {b} has the shapes {', '.join(shapes)}")
    require((d, c) in _outputs_of(inputs, volta), f"{a} inputs do not go with C of {c} and D of {d}")
    require(volta or match["layouts"] == "row.col", "only the m8n8k4 f16 instruction has a layout other than row.col")
    require(modifier != "satfinite" or inputs in (INT8, INT4), "only int8 and int4 have .satfinite")
    require(modifier not in ROUNDINGS or inputs == ("f64",), "only f64 has a rounding modifier")
    require((match["bit_operation"] is not None) == (inputs == ("b1",)), "b1, and only b1, has .xor.popc or .and.popc")
    require(kind is None or set(inputs) >= set(FP8), "only fp8, fp6 and fp4 have .kind::f8f6f4")
    require(kind is not None or inputs != FP8 + FP6_FP4, "fp6 and fp4 need .kind::f8f6f4")

    first = shapes[shape]
    if kind:
        first = max(first, FIRST_KIND)
    bit_operation: Literal["xor", "and"] | None = None
    if match["bit_operation"] == "and":
        bit_operation, first = "and", max(first, FIRST_BIT_AND)
    elif match["bit_operation"] == "xor":
        bit_operation = "xor"
    return Instruction(
        mnemonic=mnemonic,
        shape=shape,
        m=int(match["m"]),
        n=int(match["n"]),
        k=int(match["k"]),
        d=d,
        a=a,
        b=b,
        c=c,
        rounding=ROUNDINGS.get(modifier, "rne"),
        saturate=modifier == "satfinite",
        bit_operation=bit_operation,
        first=first,
    )


@cache
def generation(instruction: Instruction, arch: str) -> int:
    """The generation whose arithmetic `arch` (or a target, as sm_90a) has; ValueError if it lacks `instruction`."""
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if match is None or int(match[1]) not in GENERATION:
        raise ValueError(f"no arch {arch!r}; there are {', '.join(f'sm_{number}' for number in GENERATION)}")
    if int(match[1]) < instruction.first:
        raise ValueError(f"{instruction.mnemonic} needs sm_{instruction.first} or later, not {arch}")
    return GENERATION[int(match[1])]


def _shapes_of(mnemonic: str, a: str, b: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """The first row of SHAPES that has both input formats."""
    for inputs, shapes in SHAPES:
        if a in inputs and b in inputs:
            return inputs, shapes
    raise ValueError(f"{mnemonic!r}: no instruction multiplies {a} by {b}")


def _outputs_of(inputs: tuple[str, ...], volta: bool) -> set[tuple[str, str]]:
    """The (D, C) formats that go with the input formats."""
    if volta:
        return {("f16", "f16"), ("f32", "f32"), ("f32", "f16")}
    if inputs in (("f16",), FP8, FP8 + FP6_FP4):
        return {("f16", "f16"), ("f32", "f32")}
    if inputs in (("bf16",), ("tf32",)):
        return {("f32", "f32")}
    return {("f64", "f64")} if inputs == ("f64",) else {("s32", "s32")}
