"""Rows of cvt: every spelling that the assembler accepts of the conversions that feed or follow tensor cores.

Sources: PTX ISA, sections cvt and cvt.pack (grammar, operands); ptxas 12.9 and 13.5 (which targets accept which
spelling, and which register types the operands may have).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from types import MappingProxyType

from tcsim.core.targets import since, suffixed_since
from tcsim.isa.cvt.registers import Packed, registers_of
from tcsim.model.form import Form
from tcsim.model.operand import Role
from tcsim.model.row import Row
from tcsim.numbers.conversion import Conversion, conversion_format
from tcsim.numbers.rounding import Rounding

NAME = "cvt"


# --- types ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Type:
    """A PTX type of cvt: what a register of this type holds."""

    format: str  # of one element
    elements: int  # in one register
    field_bits: int  # from one element to the next
    register: str  # how PTX declares it


_FP8 = ("e4m3", "e5m2")
_FP6 = ("e2m3", "e3m2")
_NARROW = (*_FP8, *_FP6, "e2m1")

_TYPES: dict[str, _Type] = {
    "f16": _Type("f16", 1, 16, ".b16"),
    "bf16": _Type("bf16", 1, 16, ".b16"),
    "tf32": _Type("tf32", 1, 32, ".b32"),
    "f32": _Type("f32", 1, 32, ".f32"),
    "f64": _Type("f64", 1, 64, ".f64"),
    "f16x2": _Type("f16", 2, 16, ".b32"),
    "bf16x2": _Type("bf16", 2, 16, ".b32"),
    **{f"{name}x2": _Type(name, 2, 8, ".b16") for name in (*_FP8, *_FP6, "ue8m0", "ue5m3", "s2f6")},
    **{f"{name}x4": _Type(name, 4, 8, ".b32") for name in (*_FP8, *_FP6)},
    "e2m1x2": _Type("e2m1", 2, 4, ".b8"),
    "e2m1x4": _Type("e2m1", 4, 4, ".b16"),
    # a register of at least 16 bits whose low 8 bits are read; written with the sign or zeros above them
    "s8": _Type("s8", 1, 16, ".b16"),
    "u8": _Type("u8", 1, 16, ".b16"),
    "s16": _Type("s16", 1, 16, ".b16"),
    "u16": _Type("u16", 1, 16, ".b16"),
    "s32": _Type("s32", 1, 32, ".b32"),
}

_SCALES = {"n1": _Type("ue8m0", 1, 8, ".b8"), "n2": _Type("ue8m0", 2, 8, ".b16")}


# --- groups ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Rows that differ only in the listed choices, which stand in the mnemonic in this order."""

    modifiers: tuple[tuple[str, ...], ...]  # choices of each modifier; "" for its absence
    destinations: tuple[str, ...]  # destination types
    sources: tuple[str, ...]  # source types
    targets: tuple[str, ...]
    ptx_version: str
    arithmetic: str = "packed converter"  # which instruction of the machine converts: a key of the lowering table
    source_registers: tuple[str, ...] = ("",)  # PTX types that the source register may have; empty: the usual one


_RN, _RZ, _RS = (".rn",), (".rz",), (".rs",)
_NEAR = (".rn", ".rz")
_DIRECTED = (".rm", ".rp")
_INTEGER = (".rni", ".rzi", ".rmi", ".rpi")
_SAT = (".satfinite",)
_SAT_OR_NOT = ("", ".satfinite")
_RELU = (".relu",)
_RELU_OR_NOT = ("", ".relu")
_PZO = (".pzo",)
_PZO_OR_NOT = ("", ".pzo")
_N1 = (".scaled::n1::ue8m0",)
_N1_OR_NOT = ("", *_N1)
_N2_OR_NOT = ("", ".scaled::n2::ue8m0")

_X2 = tuple(f"{name}x2" for name in _NARROW)
_FP8X2 = tuple(f"{name}x2" for name in _FP8)
_FP6_FP4 = tuple(name for name in _X2 if name not in _FP8X2)
_HALVES = ("f16x2", "bf16x2")
_F32 = ("f32",)

_ARCH_SPECIFIC = tuple(name for name in suffixed_since("sm_100") if name.endswith("a"))
_STOCHASTIC = ("sm_100a", "sm_103a", "sm_107a")
_RUBIN = ("sm_107f", "sm_107a")
_FROM_100 = suffixed_since("sm_100")

_GROUPS = (
    # f32 to the 16-bit formats and tf32
    _Group((_NEAR,), ("f16",), _F32, since("sm_70"), "6.0"),
    _Group((_NEAR, _SAT), ("f16",), _F32, since("sm_70"), "8.1"),
    _Group((_NEAR, _RELU), ("f16",), _F32, since("sm_80"), "7.0"),
    _Group((_NEAR, _RELU, _SAT), ("f16",), _F32, since("sm_80"), "8.1"),
    _Group((_NEAR, _RELU_OR_NOT), ("bf16", *_HALVES), _F32, since("sm_80"), "7.0"),
    _Group((_NEAR, _RELU_OR_NOT, _SAT), ("bf16", *_HALVES), _F32, since("sm_80"), "8.1"),
    _Group((_DIRECTED,), ("f16",), _F32, since("sm_70"), "6.0", "float to float"),
    _Group((_DIRECTED,), ("bf16",), _F32, since("sm_80"), "7.0", "float to float"),
    _Group((_NEAR, _RELU_OR_NOT), ("tf32",), _F32, since("sm_90"), "7.8"),
    _Group((_NEAR, _SAT, _RELU_OR_NOT), ("tf32",), _F32, since("sm_100"), "8.6"),
    _Group(((".rna",),), ("tf32",), _F32, since("sm_80"), "7.0", "ties away"),
    _Group(((".rna",), _SAT), ("tf32",), _F32, since("sm_80"), "8.1", "ties away"),
    _Group((_NEAR, _RELU_OR_NOT, _SAT_OR_NOT, _PZO), ("f16", "bf16", *_HALVES), _F32, _RUBIN, "9.4"),
    _Group((_NEAR, _SAT_OR_NOT, _RELU_OR_NOT, _PZO), ("tf32",), _F32, _RUBIN, "9.4"),
    _Group((_RS, _RELU_OR_NOT, _SAT_OR_NOT), _HALVES, _F32, _STOCHASTIC, "8.7"),
    _Group((_RS, _RELU_OR_NOT, _SAT), tuple(f"{name}x4" for name in _NARROW), _F32, _STOCHASTIC, "8.7"),
    # to fp8, fp6 and fp4
    _Group((_RN, _SAT, _RELU_OR_NOT), _FP8X2, ("f32", "f16x2"), since("sm_89"), "7.8"),
    _Group((_RN, _SAT, _RELU_OR_NOT), _FP8X2, ("bf16x2",), _FROM_100, "9.1"),
    _Group((_RN, _SAT, _RELU_OR_NOT), _FP6_FP4, _F32, _FROM_100, "8.6"),
    _Group((_RN, _SAT, _RELU_OR_NOT), _FP6_FP4, _HALVES, _FROM_100, "9.1"),
    _Group((_RN, _SAT, _RELU_OR_NOT, _N1), _X2, ("f32", *_HALVES), _RUBIN, "9.4"),
    _Group((_RN, _SAT, _RELU_OR_NOT, _PZO, _N1_OR_NOT), _X2, ("f32", *_HALVES), _RUBIN, "9.4"),
    _Group((_RZ, _SAT, _RELU_OR_NOT, _PZO_OR_NOT, _N1_OR_NOT), _X2, ("f32", *_HALVES), _RUBIN, "9.4"),
    # from fp8, fp6 and fp4
    _Group((_RN, _RELU_OR_NOT), ("f16x2",), _FP8X2, since("sm_89"), "7.8"),
    _Group((_RN, _RELU_OR_NOT), ("f16x2",), _FP6_FP4, _FROM_100, "8.6"),
    _Group((_RN, _SAT_OR_NOT, _RELU_OR_NOT, _N2_OR_NOT), ("bf16x2",), _X2, _FROM_100, "9.2"),
    # scale formats and fixed point
    _Group(((".rz", ".rp"), _SAT_OR_NOT), ("ue8m0x2",), ("f32", "bf16x2"), _FROM_100, "8.6"),
    _Group((_RN,), ("bf16x2",), ("ue8m0x2",), _FROM_100, "8.6"),
    _Group(((*_NEAR, ".rp"), _SAT_OR_NOT), ("ue5m3x2",), ("f32", *_HALVES), _RUBIN, "9.4"),
    _Group((_NEAR, _SAT_OR_NOT, _N1), ("ue5m3x2",), ("f32", *_HALVES), _RUBIN, "9.4"),
    _Group((_RN,), ("f16x2",), ("ue5m3x2",), _RUBIN, "9.4"),
    _Group((_RN, _SAT_OR_NOT, _N2_OR_NOT), ("bf16x2",), ("ue5m3x2",), _RUBIN, "9.4"),
    _Group((_RN, _SAT, _RELU_OR_NOT, _N2_OR_NOT), ("s2f6x2",), ("f32", "bf16x2"), _ARCH_SPECIFIC, "9.1"),
    _Group((_RZ, _SAT, _RELU_OR_NOT, _N2_OR_NOT), ("s2f6x2",), ("f32", "bf16x2"), ("sm_107a",), "9.4"),
    _Group((_RN, _SAT_OR_NOT, _RELU_OR_NOT, _N2_OR_NOT), ("bf16x2",), ("s2f6x2",), _ARCH_SPECIFIC, "9.1"),
    # between the wider formats
    _Group((), ("f32",), ("f16",), since("sm_70"), "6.0", "f16 to f32"),
    _Group((), ("f32",), ("bf16",), since("sm_80"), "7.1", "bf16 to f32"),
    _Group((_RN,), ("bf16",), ("f16",), since("sm_90"), "7.8", "float to float"),
    _Group((("", ".rn"),), ("f16",), ("bf16",), since("sm_90"), "7.8", "float to float"),
    _Group((_RN,), ("f16",), ("f64",), since("sm_70"), "6.0", "float to float"),
    _Group((_RN,), ("bf16",), ("f64",), since("sm_90"), "7.8", "float to float"),
    _Group((), ("f64",), ("bf16",), since("sm_90"), "7.8", "float to float"),
    # from integers
    _Group((_RN,), ("f16",), ("s8",), since("sm_70"), "6.0", "integer to float", (".b8",)),
    _Group((_RN,), ("f16",), ("u8",), since("sm_70"), "6.0", "integer to float", (".b16", ".b8")),
    _Group((_RN,), ("f16",), ("s16", "s32"), since("sm_70"), "6.0", "integer to float"),
    _Group((_RN,), ("bf16",), ("s8", "u8"), since("sm_90"), "7.8", "integer to float", (".b8",)),
    _Group((_RN,), ("bf16",), ("u16", "s16", "s32"), since("sm_90"), "7.8", "integer to float"),
    _Group((_RN,), _F32, ("s8", "s32"), since("sm_70"), "6.0", "integer to float"),
    _Group((_RN,), _F32, ("u8",), since("sm_70"), "6.0", "integer to float", (".b8",)),
    # to integers
    _Group((_INTEGER, ("", ".sat")), ("s8", "u8"), ("f16", "f32"), since("sm_70"), "6.0", "float to integer"),
    _Group(((".rni",),), ("s32",), _F32, since("sm_70"), "6.0", "float to integer"),
    _Group(((".rzi",),), ("s32",), ("bf16",), since("sm_90"), "7.8", "float to integer"),
)  # fmt: skip

# cvt.pack: the format of the two fields, the targets; fields of less than 16 bits leave room for a third operand
_PACKS = (
    *((name, since("sm_72")) for name in ("u16", "s16", "u8", "s8")),
    *((name, since("sm_75")) for name in ("u4", "s4", "u2", "s2")),
)

_ROUNDINGS: dict[str, Rounding] = {
    ".rn": "rne", ".rz": "rz", ".rm": "rm", ".rp": "rp", ".rna": "rna", ".rs": "rz",
    ".rni": "rne", ".rzi": "rz", ".rmi": "rm", ".rpi": "rp",
}  # fmt: skip

_RANDOM_WORD = Packed("rbits", format=conversion_format("u32"))


def _bits(*runs: tuple[int, int]) -> tuple[int, ...]:
    """Bit positions of runs given as (first, last), in order."""
    return tuple(
        bit
        for first, last in runs
        for bit in range(first, last + (-1 if first > last else 1), -1 if first > last else 1)
    )


_BYTE_FIELDS = (_bits((16, 31)), _bits((31, 16)), _bits((0, 15)), _bits((15, 0)))

_RANDOM: dict[str, tuple[tuple[int, ...], ...]] = {
    "f16x2": (_bits((28, 16)), _bits((12, 0))),
    "bf16x2": (_bits((31, 16)), _bits((15, 0))),
    **{f"{name}x4": _BYTE_FIELDS for name in (*_FP8, *_FP6)},
    "e2m1x4": (_bits((8, 15), (24, 31)), _bits((31, 24), (15, 8)), _bits((0, 7), (16, 23)), _bits((23, 16), (7, 0))),
}
"""Which bits of rbits round each source, most significant first (docs/conversions.md, Random bits)."""


@dataclass(frozen=True, kw_only=True)
class CvtRow(Row):
    """A row of cvt. Its registers are not fragments: each thread converts by itself."""

    conversion: Conversion  # of each element, as the spelling asks for it; what a NaN becomes, the lowering says
    random: tuple[tuple[int, ...], ...] = ()  # bits of rbits for each source, most significant first

    @cached_property
    def registers(self) -> MappingProxyType[str, Packed]:
        """The registers of the plainest form by name, in PTX's order, the result first."""
        return registers_of(self.forms[0])

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The names of the registers that hold values to convert."""
        return tuple(
            name
            for name, register in self.registers.items()
            if register.role == "source" and register.format == self.conversion.source
        )


def _register(name: str, type: _Type, role: Role = "source", declared: str = "") -> Packed:
    declared = declared or type.register
    bits = min(type.field_bits, int(declared[2:]))
    return Packed(
        name, role, type=declared, format=conversion_format(type.format), elements=type.elements, field_bits=bits
    )


def _sources(count: int, type: _Type, declared: str) -> list[Packed]:
    """The sources, under the manual's names; four are one vector."""
    if count < 4:
        return [_register(name, type, declared=declared) for name in "ab"[:count]]
    return [replace(_register("abef", type), kind="vector", count=4, parts=("a", "b", "e", "f"))]


def _row(group: _Group, modifiers: tuple[str, ...], destination: str, source: str) -> CvtRow:
    to, of = _TYPES[destination], _TYPES[source]
    rounding = modifiers[0] if modifiers else ""
    scaled = next((item.split("::")[1] for item in modifiers if item.startswith(".scaled")), "")
    widening = of.field_bits < to.field_bits
    last = [_RANDOM_WORD] * (rounding == ".rs") + ([_register("scale", _SCALES[scaled])] if scaled else [])
    forms = tuple(
        Form(
            (_register("d", to, "destination"), *_sources(to.elements // of.elements, of, declared), *last),
            group.targets,
            group.ptx_version,
            "thread",
            name="" if declared == group.source_registers[0] else declared.removeprefix("."),
        )
        for declared in group.source_registers
    )
    conversion = Conversion(
        source=conversion_format(of.format),
        target=conversion_format(to.format),
        rounding=_ROUNDINGS.get(rounding, "rne"),
        saturate=".satfinite" in modifiers,
        relu=".relu" in modifiers,
        positive_zero=".pzo" in modifiers,
        scale="" if not scaled else "multiply" if widening else "divide",
        flush_source=scaled == "n1",
        random_bits=0 if rounding != ".rs" else 13 if to.format == "f16" else 16,
    )
    return CvtRow(
        f"cvt{''.join(modifiers)}.{destination}.{source}",
        NAME,
        arithmetic=group.arithmetic,
        forms=forms,
        conversion=conversion,
        random=_RANDOM[destination] if rounding == ".rs" else (),
    )


def _pack_row(format: str, targets: tuple[str, ...]) -> CvtRow:
    field, word = conversion_format(format), conversion_format("s32")
    operands = [
        Packed("d", "destination", format=field, elements=2, field_bits=field.bits),
        *(Packed(name, format=word) for name in "ab"),
        *([Packed("c", format=conversion_format("u32"))] if field.bits < 16 else []),
    ]
    return CvtRow(
        f"cvt.pack.sat.{format}.s32{'.b32' if len(operands) == 4 else ''}",
        NAME,
        arithmetic="integers packed",
        forms=(Form(tuple(operands), targets, "6.5", "thread"),),
        conversion=Conversion(word, field, "rz", saturate=True),
    )


def rows() -> tuple[CvtRow, ...]:
    """Every cvt spelling."""
    return tuple(_rows())


def _rows() -> Iterator[CvtRow]:
    for group in _GROUPS:
        for destination, source, modifiers in product(group.destinations, group.sources, product(*group.modifiers)):
            yield _row(group, modifiers, destination, source)
    for format, targets in _PACKS:
        yield _pack_row(format, targets)
