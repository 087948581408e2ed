"""What tcgen05.mma computes: the steps of one instruction.

Sources: docs/numerics.md, sections 1, 2 and 4 (MMA-Sim, arXiv 2511.10909, for sm_100); PTX ISA, tcgen05.mma (scale-input-d,
saturation of kind::i8).
"""

from __future__ import annotations

from tcsim.arithmetic.steps import IntegerDot, Step
from tcsim.arithmetic.units import unit_for
from tcsim.core.targets import Arch


def steps_of(
    kind: str, d_format: str, products: int, arch: Arch, *, saturate: bool = False, scale_d: int = 0
) -> tuple[Step, ...]:
    """The steps of one instruction with that many products for each output: kept ones, of a sparse A.

    `scale_d`: the addend counts 2**-scale_d times.
    """
    if d_format == "s32":
        return (IntegerDot("c", saturate, "d"),)
    return unit_for(kind, arch).steps(products, d_format, scale_d)
