"""What tcgen05.mma computes: the dot-add unit of each kind, and the steps of one instruction.

Sources: docs/numerics.md, sections 1, 2 and 4 (MMA-Sim, arXiv 2511.10909, for sm_100); PTX ISA, tcgen05.mma (scale-input-d,
saturation of kind::i8).
"""

from __future__ import annotations

from dataclasses import dataclass

from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import DotAdd, IntegerDot, ScaledDotAdd, Step


@dataclass(frozen=True)
class Unit:
    """The dot-add unit of some kinds; all products of an instruction in one step."""

    kinds: tuple[str, ...]
    fraction_bits: int  # F
    floor_f32: int  # floor of the largest exponent, f32 result
    floor_f16: int = 0  # the same, f16 result, where there is one
    group: int = 0  # products that are summed before they are scaled; 0: each is scaled by itself


UNITS = (
    Unit(("f16", "tf32", "f8f6f4"), 25, -133, -21),
    Unit(("mxf8f6f4",), 25, -133),
    Unit(("mxf4", "mxf4nvf4"), 35, -139, group=16),
)


def unit_of(kind: str) -> Unit:
    """The row of `UNITS` for a floating-point kind."""
    return next(unit for unit in UNITS if kind in unit.kinds)


def steps_of(
    kind: str, d_format: str, products: int, *, scaled: bool = False, saturate: bool = False, scale_d: int = 0
) -> tuple[Step, ...]:
    """The steps of one instruction of so many products an output: kept ones, of a sparse A.

    `scale_d`: the addend counts 2**-scale_d times.
    """
    if d_format == "s32":
        return (IntegerDot("c", saturate, "d"),)
    unit = unit_of(kind)
    if d_format == "f16":
        path = Datapath(unit.fraction_bits, unit.floor_f16, "f16", "rne", addend_shift=scale_d)
    else:
        path = Datapath(unit.fraction_bits, unit.floor_f32, "f32", "rz", addend_shift=scale_d)
    k = tuple(range(products))
    return (ScaledDotAdd(k, "c", path, "d", unit.group) if scaled else DotAdd(k, "c", path, "d"),)
