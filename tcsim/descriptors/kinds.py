"""The kinds of tcgen05.mma as data: element formats, shapes, K, and the bits of the 32-bit instruction descriptor.

Sources, named where they differ:
- PTX ISA 9.0 to 9.3, sections Instruction descriptor, Matrix Shape, Transpose and Negate operations, Block Scaling;
- CUTLASS 4 (cute/arch/mma_sm100_desc.hpp and mma_sm100_umma.hpp), whose bit-fields are the same;
- PTX ISA, tables 51 to 53, for sm_107, which two public programs restate alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tcsim.core.targets import Arch, accepting
from tcsim.descriptors.bit_field import Field

TENSOR_ARCHS = ("sm_100", "sm_103", "sm_107", "sm_110")
"""The archs whose tcgen05 the manual and the assembler describe; another one has that of its relative."""

LOOKUP_K = 64
"""K of an instruction that reads B through a lookup table."""
LOOKUP_FORMAT = "e4m3"
"""The format of the table's numbers, which the descriptor gives B."""


def tensor_arch(arch: Arch | str) -> str:
    """The one of `TENSOR_ARCHS` whose tables hold on an arch: the arch itself, else its relative; empty without tcgen05.

    >>> tensor_arch("sm_107"), tensor_arch("sm_90")
    ('sm_107', '')
    """
    chip = accepting(arch)[0] if isinstance(arch, str) else arch
    return next((name for name in (chip.name, chip.relative) if name in TENSOR_ARCHS), "")


def _map(**codes: int) -> Mapping[str, int]:
    return MappingProxyType(codes)


@dataclass(frozen=True)
class Depth:
    """One K that an instruction can have."""

    k: int  # elements of a row of A, zeros of a sparse A included
    sparse: bool
    code: int  # value of the descriptor's field or fields for K
    archs: tuple[str, ...] = TENSOR_ARCHS
    formats: frozenset[str] = frozenset()  # of A and B, if not all of the kind's


def _depths(dense: int, archs: tuple[str, ...] = TENSOR_ARCHS) -> tuple[Depth, ...]:
    return Depth(dense, False, 0, archs), Depth(2 * dense, True, 0, archs)


@dataclass(frozen=True)
class Kind:
    """One `.kind::` of tcgen05.mma."""

    name: str
    table: str  # which of the three bit tables: "plain", "mxf8f6f4" or "mxf4"
    d_formats: Mapping[str, int]  # name -> code
    ab_formats: Mapping[str, int]  # name -> code, the same for A and B
    depths: tuple[Depth, ...]
    negate: bool  # A and B can be negated
    transposable: frozenset[str]  # formats that A and B can have when they are MN-major
    saturate: bool = False
    ws: bool = True  # has weight-stationary forms
    selectors: tuple[int, ...] = (0,)  # values of the sparsity selector
    unpaired: tuple[str, ...] = ()  # archs whose 4-bit elements are kept one by one, not in pairs
    scale_formats: Mapping[str, int] = field(default_factory=_map)  # of block-scaled kinds
    vectors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    # how the size of a scale vector may be spelled (not at all, if the kind says it) -> elements that one factor covers
    archs: tuple[str, ...] = TENSOR_ARCHS
    note: str = ""  # why something is refused that one might expect

    @property
    def block_scaled(self) -> bool:
        """A and B have scale factors in TMEM."""
        return bool(self.vectors)

    def depths_on(self, arch: Arch | str, sparse: bool | None = None) -> list[Depth]:
        """Each K that a dense or sparse instruction (None: either) can have on an arch."""
        own = tensor_arch(arch)
        return [depth for depth in self.depths if sparse in (None, depth.sparse) and own in depth.archs]

    def unpaired_on(self, arch: Arch | str) -> bool:
        """Whether a sparse A keeps its 4-bit elements one by one on an arch, not in pairs."""
        return tensor_arch(arch) in self.unpaired

    def scale_formats_on(self, arch: Arch | str) -> Mapping[str, int]:
        """The scale formats, and their codes, that the kind has on an arch."""
        known = {name for names in scale_vectors(self.name, arch).values() for name in names}
        return {name: code for name, code in self.scale_formats.items() if name in known}


def _vectors(spelling: str) -> Mapping[str, int]:
    """Of kinds whose scale factors all cover 32 elements."""
    return MappingProxyType({"": 32, spelling: 32, ".block32": 32})


_NARROW = _map(e4m3=0, e5m2=1, e2m3=3, e3m2=4, e2m1=5)
_FLOATS = _map(f16=0, f32=1)
_EIGHT_BITS = frozenset({"e4m3", "e5m2"})
_RUBIN = ("sm_107",)

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Kind(
                "f16", "plain", _FLOATS, _map(f16=0, bf16=1), _depths(16), True, frozenset({"f16", "bf16"}),
                selectors=(0, 1),  # a metadata word holds two instructions' worth (see tmem_layout.metadata_layout)
            ),
            Kind(
                "tf32", "plain", _map(f32=1), _map(tf32=2), _depths(8), True, frozenset({"tf32"}), selectors=(0, 1)
            ),
            Kind(
                "f8f6f4", "plain", _FLOATS, _NARROW, (*_depths(32), Depth(64, False, 1, _RUBIN, _EIGHT_BITS)), True, _EIGHT_BITS
            ),
            Kind(
                "i8", "plain", _map(s32=2), _map(u8=0, s8=1), _depths(32), False, frozenset({"u8", "s8"}),
                saturate=True, archs=("sm_100", "sm_110"),  # what ptxas 13.5 accepts
            ),
            Kind(
                "ti16", "plain", _map(s32=2), _map(s1z4m11=3), _depths(16, _RUBIN), True, frozenset(),
                selectors=(0, 1), archs=_RUBIN,
                note="the PTX ISA's table of the descriptor lists no transpose for ti16, its table of transposes does",
            ),
            Kind(
                "mxf8f6f4", "mxf8f6f4", _map(f32=1), _NARROW,
                (
                    *_depths(32), Depth(64, False, 1, _RUBIN, _EIGHT_BITS),  # how narrower ones are packed is not known
                    Depth(128, True, 1, _RUBIN, _EIGHT_BITS),
                ), True, _EIGHT_BITS,
                ws=False, scale_formats=_map(ue8m0=1), vectors=_vectors(".scale_vec::1X"),
            ),
            Kind(
                "mxf4", "mxf4", _map(f32=1), _map(e2m1=1),
                (
                    *_depths(64), Depth(96, False, 1, ("sm_103", "sm_107")),
                    Depth(128, False, 2, _RUBIN), Depth(192, True, 1, _RUBIN),
                ), True, frozenset(), ws=False, unpaired=_RUBIN, scale_formats=_map(ue8m0=1),
                vectors=_vectors(".scale_vec::2X"),
            ),
            Kind(
                "mxf4nvf4", "mxf4", _map(f32=1), _map(e2m1=1),
                (
                    *_depths(64), Depth(96, False, 1, ("sm_103", "sm_107")),
                    Depth(128, False, 2, _RUBIN), Depth(192, True, 1, _RUBIN),
                ), True, frozenset(), ws=False, unpaired=_RUBIN,
                scale_formats=_map(ue4m3=0, ue8m0=1, ue5m3=2),
                vectors=MappingProxyType(
                    {".scale_vec::2X": 32, ".scale_vec::4X": 16, ".block16": 16, ".block32": 32}
                ),
            ),
        )
    }
)  # fmt: skip
"""By the name after `.kind::`."""

_SCALE_VECTORS: Mapping[tuple[str, str], Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {
        ("mxf8f6f4", "sm_100"): {32: ("ue8m0",)},
        ("mxf4", "sm_100"): {32: ("ue8m0",)},
        ("mxf4nvf4", "sm_100"): {32: ("ue8m0",), 16: ("ue8m0", "ue4m3")},
        ("mxf4nvf4", "sm_107"): {32: ("ue8m0", "ue4m3", "ue5m3"), 16: ("ue8m0", "ue4m3", "ue5m3")},
    }
)
"""(kind, generation) -> elements that one factor covers -> the scale formats that may go with it (PTX ISA, Block Scaling); a
generation that is not here has those of sm_100."""


def scale_vectors(kind: str, arch: Arch | str) -> Mapping[int, tuple[str, ...]]:
    """Elements that one factor of a kind covers on an arch -> the scale formats that may go with it.

    >>> scale_vectors("mxf4nvf4", "sm_100")[16]
    ('ue8m0', 'ue4m3')
    """
    own = _SCALE_VECTORS.get((kind, generation(arch)))
    return own if own is not None else _SCALE_VECTORS.get((kind, "sm_100"), {})


SCALE_IDS: Mapping[tuple[str, int, bool], tuple[int, ...]] = MappingProxyType(
    {("mxf8f6f4", 32, False): (0, 1, 2, 3), ("mxf8f6f4", 64, True): (0, 1, 2, 3)}
    | {(kind, 64, False): (0, 2) for kind in ("mxf4", "mxf4nvf4")}
    | {(kind, 128, True): (0, 2) for kind in ("mxf4", "mxf4nvf4")}
    | {(kind, 96, False): (0, 1, 2, 3) for kind in ("mxf4", "mxf4nvf4")}
)
"""(kind, K, sparse) -> where in a word the scale factors may begin; 0 for the rest, which need whole words (sm_107)."""

MAX_SHIFTS = (0, 8, 16, 32)
"""Rows that a `.ws` instruction may shift B by while it reuses it, by the code of the field `max_shift`."""

_A_FORMAT = Field("a_format", 7, 3, 1, "element format of A")
_B_FORMAT = Field("b_format", 10, 3, 1, "element format of B")
_COMMON = (
    Field("sparse", 2, 1, 1, "0: dense A; 1: structured sparse A with metadata in TMEM"),
    Field("negate_a", 13, 1, 1, "1: A is negated"),
    Field("negate_b", 14, 1, 1, "1: B is negated"),
    Field("transpose_a", 15, 1, 1, "0: A is K-major; 1: A is M-major"),
    Field("transpose_b", 16, 1, 1, "0: B is K-major; 1: B is N-major"),
    Field("n", 17, 6, 8, "N, columns of B and D, in steps of 8"),
)
_PLAIN = (
    *_COMMON, _A_FORMAT, _B_FORMAT,
    Field("sparsity_selector", 0, 2, 1, "which half of the metadata's columns is read, if sparse"),
    Field("saturate", 3, 1, 1, "1: integer sums saturate"),
    Field("d_format", 4, 2, 1, "element format of D"),
    Field("m", 24, 5, 16, "M, rows of A and D, in steps of 16"),
    Field("max_shift", 30, 2, 1, "most columns by which .ws may shift a B that it reuses"),
)  # fmt: skip
_SCALED = (
    *_COMMON, _A_FORMAT,
    Field("scale_b_id", 4, 2, 1, "byte of the TMEM words at which B's scale factors begin"),
    Field("m", 27, 2, 128, "M, rows of A and D, in steps of 128"),
    Field("scale_a_id", 29, 2, 1, "byte of the TMEM words at which A's scale factors begin"),
)  # fmt: skip
_SCALE_FORMAT = Field("scale_format", 23, 1, 1, "format of both scale factors")
_LANES = Field("scale_a_lanes", 26, 1, 1, "0: A's scale factors lie in 32 lanes; 1: in 128")
_B_FOUR_BITS = Field("b_format", 10, 2, 1, "element format of B")
_K = Field("k", 31, 1, 1, "K of one instruction")

TABLES: Mapping[tuple[str, str], tuple[Field, ...]] = MappingProxyType(
    {
        ("plain", "sm_100"): _PLAIN,
        ("plain", "sm_107"): (*_PLAIN, Field("k", 29, 1, 1, "K of one instruction (f8f6f4 only)")),
        ("mxf8f6f4", "sm_100"): (*_SCALED, _B_FORMAT, _SCALE_FORMAT),
        ("mxf8f6f4", "sm_107"): (*_SCALED, _B_FORMAT, _SCALE_FORMAT, _LANES, _K),
        ("mxf4", "sm_100"): (*_SCALED, _B_FOUR_BITS, _SCALE_FORMAT, _K),
        ("mxf4", "sm_107"): (
            *_SCALED, _B_FOUR_BITS, _LANES, _K,
            Field("k_high", 3, 1, 2, "high bit of the code of K"),
            Field("sparsity_version", 12, 1, 1, "1 on sm_107: 2:4 sparsity; 0 elsewhere: 4:8 in pairs"),
            Field("scale_format", 23, 2, 1, "format of both scale factors"),
        ),
    }
)  # fmt: skip
"""(table, generation) -> its fields; every other bit is reserved and must be 0."""


def generation(arch: Arch | str) -> str:
    """Whose bits and scale formats an arch has: sm_107 has its own, the others those of sm_100."""
    own = tensor_arch(arch)
    return own if ("plain", own) in TABLES else "sm_100"


def fields_of(kind: Kind, arch: Arch | str) -> tuple[Field, ...]:
    """The fields of a kind's descriptor on an arch, lowest bit first."""
    return tuple(sorted(TABLES[kind.table, generation(arch)], key=lambda one: one.low))


def _steps(step: int) -> tuple[int, ...]:
    return tuple(range(step, 257, step))


@dataclass(frozen=True)
class Shapes:
    """Which N go with which M."""

    kinds: tuple[str, ...]
    cta_group: int
    ws: bool
    m: tuple[int, ...]
    n: tuple[int, ...]
    rule: str  # N in words
    sparse: bool | None = None  # None: either
    a_in_tmem: bool | None = None  # None: wherever A is


_FLOAT_KINDS = ("f16", "tf32", "f8f6f4", "ti16")
_SCALED_KINDS = ("mxf8f6f4", "mxf4", "mxf4nvf4")
_PLAIN_KINDS = (*_FLOAT_KINDS, "i8")

# With A in shared memory, N goes in steps of 8, and of 16 with cta_group::2: so the tables of PTX ISA 9.0 to 9.4 and CUTLASS's atoms
# for f16, tf32 and f8f6f4. With A in Tensor Memory CUTLASS's atoms ask for twice that beyond M = 64. PTX ISA asks for it of
# ti16 wherever A is; so do we of a sparse f8f6f4, of which CUTLASS's atoms say nothing.
_EIGHT, _SIXTEEN, _THIRTY_TWO = (f"a multiple of {step} from {step} to 256" for step in (8, 16, 32))
SHAPES: tuple[Shapes, ...] = (
    Shapes(_FLOAT_KINDS, 1, False, (64,), _steps(8), _EIGHT),
    Shapes(("f16", "tf32"), 1, False, (128,), _steps(8), _EIGHT, a_in_tmem=False),
    Shapes(("f8f6f4",), 1, False, (128,), _steps(8), _EIGHT, sparse=False, a_in_tmem=False),
    Shapes(_FLOAT_KINDS, 1, False, (128,), _steps(16), _SIXTEEN),
    Shapes(("f16", "tf32"), 2, False, (128, 256), _steps(16), _SIXTEEN, a_in_tmem=False),
    Shapes(("f8f6f4",), 2, False, (128, 256), _steps(16), _SIXTEEN, sparse=False, a_in_tmem=False),
    Shapes(_FLOAT_KINDS, 2, False, (128, 256), _steps(32), _THIRTY_TWO),
    Shapes(("i8",), 1, False, (64, 128), (8, 24, *_steps(16)), "8, 24 or a multiple of 16 from 16 to 256"),
    Shapes(("i8",), 2, False, (128, 256), _steps(32), "a multiple of 32 from 32 to 256"),
    Shapes(_PLAIN_KINDS, 1, True, (32, 64, 128), (64, 128, 256), "64, 128 or 256", sparse=False),
    Shapes(_PLAIN_KINDS, 1, True, (32, 64, 128), (64, 128), "64 or 128", sparse=True),
    Shapes(_SCALED_KINDS, 1, False, (128,), _steps(8), "a multiple of 8 from 8 to 256"),
    Shapes(_SCALED_KINDS, 2, False, (128, 256), _steps(16), "a multiple of 16 from 16 to 256", sparse=False),
    Shapes(_SCALED_KINDS, 2, False, (256,), _steps(16), "a multiple of 16 from 16 to 256", sparse=True),
)
"""PTX ISA, table Various combinations of .kind and shapes."""


def shapes_of(kind: str, cta_group: int, ws: bool, sparse: bool, a_in_tmem: bool | None = None) -> tuple[Shapes, ...]:
    """The rows of `SHAPES` for a form of the instruction, the widest first; empty if it does not exist.

    `a_in_tmem` is whether A is in Tensor Memory; None: either.
    """
    return tuple(
        row
        for row in SHAPES
        if kind in row.kinds
        and row.cta_group == cta_group
        and row.ws == ws
        and row.sparse in (None, sparse)
        and (row.a_in_tmem is None or a_in_tmem in (None, row.a_in_tmem))
    )
