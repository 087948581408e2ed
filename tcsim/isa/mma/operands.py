"""Operands that mma.sync, mma.sp, wmma and wgmma share: element types, their combinations, fragments, register types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from types import MappingProxyType

from tcsim.isa.mma import fragments
from tcsim.layouts.layout import FragmentLayout
from tcsim.model.operand import Fragment, Operand, fragment
from tcsim.numbers.formats import FORMATS

Types = tuple[str, str, str, str]  # d, a, b, c

FP8 = ("e4m3", "e5m2")
F8F6F4 = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")

# how PTX declares the registers of an operand
REGISTER_TYPES = {"f32": ".f32", "s32": ".s32", "f64": ".f64"}

METADATA = Operand("metadata")
"""One register of each lane: where the kept elements of a sparse A belong."""


@cache
def selector(values: tuple[int, ...]) -> Operand:
    """Which lanes hold the metadata: an immediate."""
    return Operand("selector", kind="immediate", values=values, per="warp")


def pairs(d: str, kinds: tuple[str, ...]) -> tuple[Types, ...]:
    """Every combination of types of A and B, with C of D's type."""
    return tuple((d, a, b, d) for a, b in product(kinds, repeat=2))


def new_pairs(d: str) -> tuple[Types, ...]:
    """The combinations of `.kind::f8f6f4` that have fp6 or fp4 in them."""
    return tuple(t for t in pairs(d, F8F6F4) if not (t[1] in FP8 and t[2] in FP8))


def element_bits(format: str) -> int:
    """Bits that one element takes in a multiplicand register: fp6 and fp4 take a byte in these families."""
    bits = FORMATS[format].bits
    return FORMATS[format].container_bits if FORMATS[format].kind == "float" else bits


def declared(types: Types, tables: Mapping[str, FragmentLayout]) -> MappingProxyType[str, Fragment]:
    """The operands d, a, b, c with their layouts, and their registers as PTX declares them."""
    return MappingProxyType(
        {
            name: fragment(name, FORMATS[format], tables[name], REGISTER_TYPES.get(format, ".b32"))
            for name, format in zip("dabc", types, strict=True)
        }
    )


def warp_operands(
    shape: tuple[int, int, int], types: Types, kept: int | None = None, bits: int | None = None
) -> MappingProxyType[str, Fragment]:
    """The operands of a warp's multiplication.

    `kept`: elements of a row of A, if A is compressed. `bits`: of an element of A or B in a register, if not the usual.
    """
    m, n, k = shape
    d, a, b, c = types
    return declared(
        types,
        {
            "d": fragments.accumulator(m, n, FORMATS[d].bits),
            "a": fragments.operand_a(m, k if kept is None else kept, bits or element_bits(a)),
            "b": fragments.operand_b(n, k, bits or element_bits(b)),
            "c": fragments.accumulator(m, n, FORMATS[c].bits),
        },
    )
