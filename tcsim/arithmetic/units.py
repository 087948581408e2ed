"""The fused dot-add units of the tensor cores: the one table of their constants, for all families and archs.

Sources: docs/numerics.md, sections 1, 2 and 4, and docs/sparsity.md, which say how each constant is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import DotAdd, ScaledDotAdd
from tcsim.core.rules import in_force
from tcsim.core.targets import Arch


@dataclass(frozen=True)
class Unit:
    """The dot-add unit of some classes of inputs, from an arch on until a later row of the same class.

    A class is what a row's `arithmetic` says, or a kind of tcgen05.mma.
    """

    inputs: tuple[str, ...]
    first: int  # number of the earliest arch that has it
    length: int | None  # L: products in one step; None: all that the instruction has
    fraction_bits: int  # F
    floor_f32: int  # floor of the largest exponent, f32 result
    floor_f16: int | None = None  # the same, f16 result; None: there is no f16 result
    f32_output: Literal["f32", "e8m13"] = "f32"  # what an f32 result really keeps
    scaled: bool = False  # products are scaled by blocks
    group: int = 0  # products that are summed before they are scaled; 0: each is scaled by itself

    def datapath(self, output: str, addend_shift: int = 0) -> Datapath:
        """The unit as it writes an f16 or an f32 result; the addend counts 2**-addend_shift times."""
        if output == "f16" and self.floor_f16 is not None:
            return Datapath(self.fraction_bits, self.floor_f16, "f16", "rne", addend_shift=addend_shift)
        return Datapath(self.fraction_bits, self.floor_f32, self.f32_output, "rz", addend_shift=addend_shift)

    def steps(self, products: int, output: str, addend_shift: int = 0) -> tuple[DotAdd, ...]:
        """Dot-adds over ascending k: each step's rounded result is the addend of the next one.

        >>> [(step.k, step.addend, step.result) for step in UNITS[0].steps(8, "f32")]
        [((0, 1, 2, 3), 'c', 'acc'), ((4, 5, 6, 7), 'acc', 'd')]
        """
        length, path = self.length or products, self.datapath(output, addend_shift)
        found: list[DotAdd] = []
        for start in range(0, products, length):
            end = start + length
            k, ends = tuple(range(start, end)), ("acc" if start else "c", "d" if end == products else "acc")
            step = (
                ScaledDotAdd(k, ends[0], path, ends[1], self.group)
                if self.scaled
                else DotAdd(k, ends[0], path, ends[1])
            )
            found.append(step)
        return tuple(found)


UNITS = (
    # Volta's unit; with an f32 result no product of f16 can reach its floor, so -131 is the rule's value, unobservable.
    # From sm_80 on no tensor core runs m8n8k4 of f16.
    Unit(("quad_pair",), 70, 4, 23, -131, -19),
    Unit(("half",), 75, 8, 24, -132, -20),
    Unit(("tf32",), 80, 4, 24, -132, -19),
    # 16 products, the sum cut to 14 significant bits; the smallest fp8 product lies above the floor: unobservable
    Unit(("fp8",), 89, 16, 13, -133, -21, "e8m13"),
    # wgmma's own fp8 unit: all 32 products in one step, the sum cut to 14 significant bits
    Unit(("fp8_wgmma",), 90, None, 13, -133, -21, "e8m13"),
    Unit(("half", "f16", "tf32"), 90, None, 25, -133, -21),
    Unit(("fp8", "f6f4", "f8f6f4"), 100, None, 25, -133, -21),
    Unit(("mxf8f6f4",), 100, None, 25, -133, scaled=True),
    Unit(("mxf4", "mxf4nvf4"), 100, None, 35, -139, scaled=True, group=16),
)


def unit_for(inputs: str, arch: Arch) -> Unit:
    """The unit of a class of inputs on an arch, or the one of its relative.

    >>> from tcsim.core.targets import ARCHS
    >>> unit_for("fp8", ARCHS["sm_89"]).fraction_bits, unit_for("fp8", ARCHS["sm_120"]).fraction_bits
    (13, 25)
    """
    return in_force((unit for unit in UNITS if inputs in unit.inputs), arch)
