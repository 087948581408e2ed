"""What a tcgen05.mma spelling says: its kind, its modifiers, and the operands it can be written with.

Source: PTX ISA, sections tcgen05.mma, tcgen05.mma.sp, tcgen05.mma.ws and tcgen05.mma.ws.sp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tcsim.descriptors.kinds import LOOKUP_K, Kind


@dataclass(frozen=True)
class OperandForm:
    """One way to write the operands of a spelling, and the targets that take it."""

    a: Literal["desc", "tmem"]  # where A is: shared memory through a descriptor, or Tensor Memory
    targets: tuple[str, ...]
    lanes: bool = False  # with disable-output-lane
    scale: bool = False  # with scale-input-d
    mask: bool = False  # with zero-column-mask-desc
    documented: bool = True  # listed by the PTX manual's grammar

    @property
    def name(self) -> str:
        """The form in one word: "desc", "tmem_lanes_scale"."""
        return "_".join([self.a, *(word for word in ("lanes", "scale", "mask") if getattr(self, word))])


@dataclass(frozen=True)
class MultiplyForm:
    """What a tcgen05.mma spelling says beyond its name: the `facts` of its registry row."""

    kind: Kind
    cta_group: int  # 1, or 2 for a pair of CTAs
    sparse: bool  # .sp: A is structured sparse, its metadata in Tensor Memory
    weight_stationary: bool  # .ws
    vector: str  # how the scale vector is spelled: "", ".block32", ".scale_vec::4X"
    ashift: bool  # .ashift: the rows of A one up
    collectors: tuple[str, ...]  # ".collector::a::fill"; no effect on values
    lookup: bool  # .decompress::lut::b: B through a lookup table
    forms: tuple[OperandForm, ...]

    @property
    def k(self) -> int:
        """The smallest K of one instruction, zeros of a sparse A included; some descriptors ask for more."""
        return next(
            depth.k
            for depth in self.kind.depths
            if depth.sparse == self.sparse and (not self.lookup or depth.k == LOOKUP_K)
        )

    @property
    def block(self) -> int:
        """Elements (of a sparse A, kept ones) that share a scale factor; 0 if there are no scale factors."""
        if not self.kind.block_scaled:
            return 0
        return 16 if self.vector in (".scale_vec::4X", ".block16") else 32

    def form(self, a: str, *, lanes: bool = False, scale: bool = False, mask: bool = False) -> OperandForm | None:
        """The operand form with these operands, or None if the spelling has none."""
        wanted = (a, lanes, scale, mask)
        return next((form for form in self.forms if (form.a, form.lanes, form.scale, form.mask) == wanted), None)
