"""What a tcgen05.mma spelling says: its kind, its modifiers, and the operands it can be written with.

Source: PTX ISA, sections tcgen05.mma, tcgen05.mma.sp, tcgen05.mma.ws and tcgen05.mma.ws.sp.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True)
class Kind:
    """One `.kind` of tcgen05.mma: which elements it multiplies and which machine instruction does it."""

    name: str  # "f16", as after `.kind::`
    opcode: str  # SASS: UTCHMMA for 16 and 32 bits, UTCQMMA for 8 and fewer, UTCOMMA for packed 4, UTCIMMA for integers
    formats: tuple[str, ...]  # element formats of A and B; one instruction may mix those of f8f6f4, mxf8f6f4 and i8
    element_bits: int  # of A in Tensor Memory and of B in shared memory: fp6 and fp4 of f8f6f4 kinds take a byte
    results: tuple[str, ...]  # formats of D
    scales: tuple[str, ...] = ()  # formats of the scale factors
    blocks: tuple[int, ...] = ()  # elements of the dense K that share a scale factor
    negates: bool = True  # takes the negate bits of the instruction descriptor
    transposes: bool = True  # takes the transpose bits

    @property
    def k(self) -> int:
        """K of one dense instruction: 32 bytes."""
        return 256 // self.element_bits

    @property
    def scaled(self) -> bool:
        """Takes scale factors."""
        return bool(self.scales)


_SMALL = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")

KINDS: MappingProxyType[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Kind("f16", "UTCHMMA", ("f16", "bf16"), 16, ("f16", "f32")),
            Kind("tf32", "UTCHMMA", ("tf32",), 32, ("f32",)),
            Kind("f8f6f4", "UTCQMMA", _SMALL, 8, ("f16", "f32")),
            Kind("i8", "UTCIMMA", ("u8", "s8"), 8, ("s32",), negates=False),
            # sm_107: sign and magnitude of 11 bits in 16
            Kind("ti16", "UTCHMMA", ("s1z4m11",), 16, ("s32",), transposes=False),
            Kind("mxf8f6f4", "UTCQMMA", _SMALL, 8, ("f32",), ("ue8m0",), (32,)),
            Kind("mxf4", "UTCOMMA", ("e2m1",), 4, ("f32",), ("ue8m0",), (32,), transposes=False),
            Kind("mxf4nvf4", "UTCOMMA", ("e2m1",), 4, ("f32",), ("ue8m0", "ue4m3"), (16, 32), transposes=False),
        )
    }
)


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
        """K of one instruction whose descriptor asks for no other: twice the dense one for a sparse A."""
        return self.kind.k * (2 if self.sparse else 1)

    @property
    def block(self) -> int | None:
        """Elements of the dense K that share a scale factor; None if there are no scale factors."""
        if not self.kind.scaled:
            return None
        if self.vector in (".scale_vec::4X", ".block16"):
            return 16
        return 32

    @property
    def unmodelled(self) -> str:
        """Why the instruction is not computed, or nothing."""
        if self.lookup:
            return ".decompress::lut::b is not modelled: no source says how the table lies in Tensor Memory"
        if self.kind.name == "ti16":
            return "kind::ti16 is not modelled: no hardware that has it, sm_107, was ever compared with anything"
        return ""

    def form(self, a: str, *, lanes: bool = False, scale: bool = False, mask: bool = False) -> OperandForm | None:
        """The operand form with these operands, or None if the spelling has none."""
        wanted = (a, lanes, scale, mask)
        return next((form for form in self.forms if (form.a, form.lanes, form.scale, form.mask) == wanted), None)
