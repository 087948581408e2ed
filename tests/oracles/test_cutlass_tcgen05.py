"""tcgen05's descriptors, TMEM layouts and shared-memory tiles against CUTLASS's CuTe DSL."""

from __future__ import annotations

import ast
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcsim.descriptors.forms import FORMS
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.kinds import KINDS
from tcsim.descriptors.matrix import Major, MatrixDescriptor
from tcsim.memory.tmem_layout import GROUPS, TmemLayout, a_layout, accumulator_layout, metadata_layout, scale_layout
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.layouts import Ints, evaluate

PROJECT = "nvidia-cutlass-dsl"
SCRIPT = "ask_cutlass_tcgen05.py"
TYPES = {
    "tf32": ("tf32", "tf32", "f32"), "f16": ("f16", "f16", "f32"), "f8f6f4": ("e4m3", "e4m3", "f32"),
    "i8": ("s8", "s8", "s32"), "mxf8f6f4": ("e4m3", "e4m3", "f32"), "mxf4": ("e2m1", "e2m1", "f32"),
    "mxf4nvf4": ("e2m1", "e2m1", "f32"),
}  # fmt: skip

COMPILED_AS = {"mxf4": "mxf4nvf4"}  # the DSL writes kind::mxf4 as kind::mxf4nvf4 with .block32, whose bits are the same


def job(ask_for: str, kind: str, m: int, n: int, cta_group: int = 1, **rest: Any) -> Question:
    """One question about an instruction."""
    k = rest.pop("k", KINDS[kind].depths[0].k)
    given = {"ask": ask_for, "kind": kind, "shape": [m, n, k], "cta_group": cta_group, "types": TYPES[kind]}
    return Question(given | rest)


def modes(text: str, path: tuple[int, ...]) -> Ints:
    """The (rows, columns) of one mode of a layout text, followed by its path: two submodes."""
    shape, stride = (ast.literal_eval(part) for part in text.split(":"))
    for step in path:
        shape, stride = shape[step], stride[step]
    return evaluate(f"{shape}:{stride}".replace(" ", ""))


def address(layout: TmemLayout, copy: int = 0, rows: int = 0) -> Ints:
    """TMEM addresses of the first CTA's elements, counted in elements as CuTe counts them."""
    row, column = np.indices((rows or layout.rows_of_cta, layout.columns))
    _, lane, place, slot = layout.where(row, column, copy)
    found: Ints = (lane * 65536 + place) * layout.slots + slot
    return found


def same(what: str, theirs: Ints, ours: Ints) -> int:
    inputs = dict(zip(("row", "column"), np.indices(ours.shape), strict=True))
    return compare(Answers(PROJECT, what, inputs, theirs, ours))


def test_accumulators(tmp_path: Path) -> None:
    """Every M, N and CTA group that the DSL has (it has no .ws)."""
    cases = [
        (m, n, cta_group)
        for cta_group, m in ((1, 64), (1, 128), (2, 128), (2, 256))
        for n in range(8 * cta_group, 257, 8 * cta_group)
    ]
    answers = ask(PROJECT, SCRIPT, [job("accumulator", "f16", *case) for case in cases], tmp_path)
    compared = 0
    for (m, n, cta_group), said in zip(cases, answers, strict=True):
        layout = accumulator_layout(m, n, cta_group)
        compared += same(f"D {m}x{n} {cta_group}", modes(str(said["text"]), (0,)), address(layout))
        shape, stride = (ast.literal_eval(part)[0] for part in str(said["text"]).split(":"))
        assert str(layout) == f"{(*shape, 1)}:{(*stride, 0)}".replace(" ", "")  # and a mode for copies
    assert len(cases) == 96
    assert compared == sum(m // cta_group * n for m, n, cta_group in cases)


@pytest.mark.parametrize("kind", ["tf32", "f16", "f8f6f4", "i8"])
def test_a_from_tensor_memory(kind: str, tmp_path: Path) -> None:
    """All copies: where CUTLASS duplicates A for a data path of two banks, its rows are those of both."""
    cases = [(64, 1), (128, 1), (128, 2), (256, 2)]
    questions = [job("a", kind, m, 64, cta_group, a_in_tmem=True) for m, cta_group in cases]
    compared = 0
    for (m, cta_group), said in zip(cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        layout = a_layout(m, KINDS[kind].depths[0].k, TYPES[kind][0], cta_group, kind=kind)
        ours = np.concatenate([address(layout, copy) for copy in range(layout.copies)])
        compared += same(f"A {kind} {m} {cta_group}", modes(str(said["text"]), (0,)), ours)
    assert compared == sum((64 if m == 64 else 128) * KINDS[kind].depths[0].k for m, _ in cases)


def test_scale_factors(tmp_path: Path) -> None:
    """Both sides, every block size; the DSL lays out 128 rows where an instruction has fewer."""
    cases = [
        (kind, block, m, n, cta_group)
        for kind, block in (("mxf8f6f4", 32), ("mxf4", 32), ("mxf4nvf4", 16))
        for m, cta_group in ((128, 1), (256, 2), (128, 2))
        for n in (64, 128, 256)
        if (n, m, cta_group) != (64, 128, 2)  # 32 rows in a half, for which the DSL makes 64
    ]
    questions = [
        job("scales", kind, m, n, cta_group, block=block, scale="ue4m3" if kind == "mxf4nvf4" else "ue8m0")
        for kind, block, m, n, cta_group in cases
    ]
    compared = 0
    for (kind, block, m, n, cta_group), said in zip(cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        vectors = KINDS[kind].depths[0].k // block
        for side, rows in (("a", m), ("b", n)):
            layout = scale_layout(side, rows, vectors, cta_group=cta_group, m=m)  # type: ignore[arg-type]
            theirs = modes(str(said[side]), (0,))[:, ::block]  # the elements of a block share a factor
            per_copy = len(theirs) // layout.copies
            for copy in range(layout.copies):
                ours = address(layout, copy)
                compared += same(f"SF{side} {kind} {m}x{n} {cta_group}", theirs[copy * per_copy :][: len(ours)], ours)
    assert len(cases) == 24
    assert compared > 40_000


def test_metadata(tmp_path: Path) -> None:
    """M = 128, in bits: one bit for each element of K of 8 and 16 bits."""
    cases = [("f16", "f16", 32), ("f16", "bf16", 32), ("i8", "s8", 64), ("f8f6f4", "e5m2", 64)]
    questions = [Question({"ask": "metadata", "type": type_, "k": k}) for _, type_, k in cases]
    compared = 0
    for (kind, type_, k), said in zip(cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        layout = metadata_layout(kind, 128, k)
        theirs = modes(str(said["text"]), (0,))[:, :: GROUPS[kind]]
        compared += same(f"E {type_}", theirs, address(layout) * 4)
    assert compared == 128 * (8 + 8 + 16 + 16)


def test_shared_memory_tiles(tmp_path: Path) -> None:
    """The atoms of every swizzle and major tiled to a whole operand: the bytes before the swizzle, and the swizzle."""
    names = {"NONE": "INTER", "32B": "SW32", "64B": "SW64", "128B": "SW128", "128B_ATOM_32B": "SW128_32B"}
    elements = [("f16", "f16", 16), ("tf32", "tf32", 32), ("e4m3", "f8f6f4", 8), ("e2m1", "mxf4", 4)]
    cases: list[tuple[str, str, int, Major, str, tuple[int, int]]] = []
    for (type_, kind, bits), swizzle in itertools.product(elements, FORMS["sm_100"].modes):
        if swizzle != "128B_ATOM_32B":
            cases.append((type_, kind, bits, "K", swizzle, (128, 4096 // bits)))
        if bits >= 8 and (swizzle == "128B_ATOM_32B") == (bits == 32):
            cases.append((type_, kind, bits, "MN", swizzle, (256, 64)))
    questions = [
        Question({"ask": "tile", "type": type_, "atom": f"{major}_{names[swizzle]}", "tile": size})
        for type_, _, _, major, swizzle, size in cases
    ]
    compared = 0
    for (type_, kind, _, major, swizzle, size), said in zip(
        cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True
    ):
        ours = MatrixDescriptor.for_tile(*size, type_, major, swizzle, arch="sm_100", kind=kind)
        pattern, _, layout = str(said["text"]).split(" o ")
        assert pattern == str(ours.swizzle).replace("Swizzle", "S")
        row, column = np.indices(size)
        compared += same(f"tile {type_} {major} {swizzle}", modes(layout, ()), ours.layout(row + size[0] * column))
    assert len(cases) == 16 + 9
    assert compared > 25 * 128 * 64


def instructions() -> list[tuple[InstructionDescriptor, int, list[str]]]:
    """Descriptors, their CTA groups, and majors of A and B. The DSL always saturates integers."""
    cases = []
    for kind, (a_formats, d_formats) in {
        "tf32": (("tf32",), ("f32",)), "f16": (("f16", "bf16"), ("f32", "f16")),
        "f8f6f4": (("e4m3", "e5m2"), ("f32", "f16")), "i8": (("s8", "u8"), ("s32",)), "mxf8f6f4": (("e4m3", "e5m2"), ("f32",)),
        "mxf4": (("e2m1",), ("f32",)), "mxf4nvf4": (("e2m1",), ("f32",)),
    }.items():  # fmt: skip
        row = KINDS[kind]
        can_turn = bool(row.transposable)
        for a, d, turn_a, turn_b in itertools.product(a_formats, d_formats, (False, can_turn), (False, can_turn)):
            if (a, d) == ("bf16", "f16") or (not can_turn and (turn_a, turn_b) != (False, False)):
                continue
            negate = turn_a and row.negate
            for m, n, cta_group in (
                ((128, 64, 1), (256, 96, 2)) if row.block_scaled else ((64, 32, 1), (128, 256, 1), (256, 96, 2))
            ):
                if kind == "tf32" and n == 96:  # 48 columns a CTA fill no whole atoms
                    n = 128
                scale = next(iter(row.scale_formats), "")
                one = InstructionDescriptor(
                    kind, m, n, d_format=d, a_format=a, transpose_a=turn_a, transpose_b=turn_b, negate_a=negate,
                    scale_format=scale, saturate=row.saturate,
                )  # fmt: skip
                cases.append((one, cta_group, ["MN" if turn_a else "K", "MN" if turn_b else "K"]))
    return cases


def test_descriptors(tmp_path: Path) -> None:
    """The instruction descriptors and matrix descriptors that the DSL compiles into PTX."""
    cases = instructions()
    questions = [
        Question({
            "ask": "descriptors", "kind": one.kind, "shape": [one.m, one.n, one.k], "cta_group": cta_group, "majors": majors,
            "types": [one.a_format, one.b_format, one.d_format], "scale": one.scale_format,
            "negate": [one.negate_a, one.negate_b],
        })
        for one, cta_group, majors in cases
    ]  # fmt: skip
    compared = {"instruction": 0, "matrix": 0}
    for (one, cta_group, majors), said in zip(cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        assert "refused" not in said, (one, str(said["refused"]))
        spelled = replace(one, kind=COMPILED_AS.get(one.kind, one.kind))
        spelled.check_mnemonic(str(said["mnemonic"]))
        assert spelled.encode() == one.encode()
        ours = np.array([[one.encode()]])
        theirs = np.array([[int(said["instruction"])]])
        compared["instruction"] += same(f"{said['mnemonic']} {one}", theirs, ours)
        for side, major in zip("ab", majors, strict=True):
            word = int(str(said[side]))
            theirs_tile = MatrixDescriptor.decode(word & ~0x3FFF, arch="sm_100a")
            rows = (one.m if side == "a" else one.n) // cta_group
            tile = MatrixDescriptor.for_tile(
                rows,
                2 * one.k,
                one.a_format,
                major,
                theirs_tile.swizzle,
                arch="sm_100",
                kind=one.kind,  # type: ignore[arg-type]
            )
            wanted = tile.descriptor
            assert theirs_tile.stride_byte_offset == wanted.stride_byte_offset, (one, side)
            if (major == "MN" and rows > tile.swizzle.span * 8 // tile.bits) or wanted.swizzle == "NONE":
                assert theirs_tile.leading_byte_offset == wanted.leading_byte_offset, (one, side)
            compared["matrix"] += 1
    assert compared == {"instruction": len(cases), "matrix": 2 * len(cases)}
    assert len(cases) > 70
