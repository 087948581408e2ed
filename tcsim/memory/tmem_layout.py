"""Where tcgen05.mma's matrices lie in Tensor Memory: accumulators, A, scale factors, sparse metadata.

Sources: PTX ISA, sections Data Path Layout Organization, Packing formats, Scale Factor A ID and B ID, Sparsity selector;
CUTLASS 4 (cute/atom/mma_traits_sm100_frag.hpp), whose layouts are these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from tcsim.core.errors import OperandError, listing
from tcsim.core.evidence import Evidence
from tcsim.descriptors.kinds import KINDS
from tcsim.layouts.layout import IntTuple, Layout
from tcsim.memory.tmem_matrix import DRAWN, LANE, LANES, LOOKUP, MANUAL, WORD_BITS, TmemLayout
from tcsim.numbers.formats import format as find_format

__all__ = [
    "DATA_PATHS",
    "DataPath",
    "TmemLayout",
    "a_layout",
    "accumulator_layout",
    "data_path",
    "lookup_layout",
    "metadata_layout",
    "scale_layout",
]


@dataclass(frozen=True)
class DataPath:
    """How the lanes of one CTA share its rows and columns."""

    name: str  # letter of the PTX ISA
    lanes: tuple[tuple[int, int], ...]  # of a row: (count, lanes that one step means), fastest first
    banks: int = 1  # runs of columns that lie in lanes of their own
    lane_bases: tuple[int, ...] = (0,)

    @property
    def bank_lanes(self) -> int:
        """Lanes from one bank to the next."""
        return LANES // self.banks


_FULL = ((128, 1),)
_HALF = ((16, 1), (4, 32))  # half of the lanes of each warp
DATA_PATHS: Mapping[tuple[int, int, bool, bool], DataPath] = MappingProxyType(
    {
        # M of both CTAs, cta_group, .ws, sparse
        (256, 2, False, False): DataPath("A", _FULL),
        (256, 2, False, True): DataPath("A", _FULL),
        (128, 2, False, False): DataPath("B", ((64, 1),), 2),
        (128, 2, False, True): DataPath("C", _HALF, lane_bases=(0, 16)),
        (128, 1, False, False): DataPath("D", _FULL),
        (128, 1, False, True): DataPath("D", _FULL),
        (128, 1, True, False): DataPath("D", _FULL),
        (128, 1, True, True): DataPath("D", _FULL),
        (64, 1, True, False): DataPath("E", ((64, 1),), 2),
        (64, 1, True, True): DataPath("E", ((64, 1),), 2),
        (64, 1, False, False): DataPath("F", _HALF, lane_bases=(0, 16)),
        (64, 1, False, True): DataPath("F", _HALF, lane_bases=(0, 16)),
        (32, 1, True, False): DataPath("G", ((32, 1),), 4),
        (32, 1, True, True): DataPath("G", ((32, 1),), 4),
    }
)
"""PTX ISA, table of Data Path Layout Organization."""


def data_path(m: int, cta_group: int = 1, *, ws: bool = False, sparse: bool = False) -> DataPath:
    """The data path of an instruction.

    Raises OperandError for an M that the form does not have.

    >>> data_path(128, 2).name, data_path(128, 2, sparse=True).name
    ('B', 'C')
    """
    key = (m, cta_group, bool(ws), bool(sparse))
    if key not in DATA_PATHS:
        valid = sorted({one[0] for one in DATA_PATHS if one[1:3] == key[1:3]})
        form = f"cta_group::{cta_group}{' .ws' if ws else ''}"
        raise OperandError(f"M = {m} with {form} has no data path; valid: {listing(valid) or 'no such form'}")
    return DATA_PATHS[key]


def accumulator_layout(m: int, n: int, cta_group: int = 1, *, ws: bool = False, sparse: bool = False) -> TmemLayout:
    """Where D (m x n) lies: one element in the low bits of each word, an f16 D too.

    Raises OperandError for a shape that does not exist.

    >>> print(accumulator_layout(128, 64, 2))
    (64,(32,2),1):(65536,(1,4194304),0)
    >>> accumulator_layout(128, 64, 2).where(70, 40)
    (1, 70, 8, 0)
    """
    path = data_path(m, cta_group, ws=ws, sparse=sparse)
    if not 8 <= n <= 256 or n % (8 * cta_group):
        raise OperandError(f"N = {n}: valid are multiples of {8 * cta_group} from {8 * cta_group} to 256")
    banks = path.banks
    columns: IntTuple = (n // banks, banks) if banks > 1 else n
    strides: IntTuple = (1, path.bank_lanes * LANE) if banks > 1 else 1
    return _build(
        f"D, layout {path.name}", m, n, WORD_BITS, (columns, strides), path, cta_group, copies=(1, 0),
        lane_bases=path.lane_bases,
    )  # fmt: skip


CONTAINER_BITS: Mapping[str, int] = MappingProxyType({"e3m2": 8, "e2m3": 8, "e2m1": 8})
"""Bits of a word of TMEM that an element of A takes, where it is not the format's own width. e2m1 is padded in kind::f8f6f4
and kind::mxf8f6f4 only. (PTX ISA, Packing formats.)"""

CONTAINER_SHIFT: Mapping[str, int] = MappingProxyType({"e2m1": 2})
"""The bit of its 8-bit container at which a code begins; 0 for the others."""


def a_layout(
    m: int, k: int, format: str, cta_group: int = 1, *, kind: str = "", ws: bool = False, sparse: bool = False
) -> TmemLayout:
    """Where A lies if it comes from TMEM: m rows of k elements, k/2 if it is sparse; K-major, low slots first.

    Data paths whose columns of D lie in banks (layouts B, E, G) need A once in each bank's lanes: `copies`. Bank i multiplies
    its own copy. `kind` is needed for e2m1, which kinds pad differently.

    Raises OperandError for a shape or format that does not exist.

    >>> print(a_layout(128, 16, "f16"))
    (128,16,1):(131072,1,0)
    >>> a_layout(64, 32, "e4m3", ws=True).where(3, 5, copy=1)  # the bank of the upper columns of D
    (0, 67, 1, 1)
    """
    path = data_path(m, cta_group, ws=ws, sparse=sparse)
    bits = _a_bits(format, kind)
    stored = k // 2 if sparse else k
    if stored < WORD_BITS // bits or stored * bits % WORD_BITS:
        raise OperandError(f"K = {k}: a row of A must fill whole words of {WORD_BITS // bits} {format}")
    slots = WORD_BITS // bits
    copies = (path.banks, path.bank_lanes * LANE * slots if path.banks > 1 else 0)
    return _build(
        f"A, layout {path.name}", m, stored, bits, (stored, 1), path, cta_group, copies=copies,
        lane_bases=path.lane_bases,
    )  # fmt: skip


def _a_bits(format: str, kind: str) -> int:
    if format == "e2m1":
        if kind in ("mxf4", "mxf4nvf4"):
            return 4
        if kind not in ("f8f6f4", "mxf8f6f4"):
            raise OperandError(
                f"kind={kind!r}: e2m1 takes 8 bits in kind::f8f6f4 and kind::mxf8f6f4, 4 in kind::mxf4 and kind::mxf4nvf4: "
                "which kind?"
            )
    if format == "s1z4m11":
        return 16
    row = find_format(format)
    return CONTAINER_BITS.get(row.name, row.container_bits)


def _build(
    name: str, rows: int, columns: int, bits: int, mode: tuple[IntTuple, IntTuple], path: DataPath, ctas: int,
    copies: tuple[int, int], lane_bases: tuple[int, ...], evidence: Evidence = MANUAL,
) -> TmemLayout:  # fmt: skip
    unit = LANE * (WORD_BITS // bits)
    counts = tuple(count for count, _ in path.lanes)
    steps = tuple(step * unit for _, step in path.lanes)
    row: tuple[IntTuple, IntTuple] = (counts, steps) if len(counts) > 1 else (counts[0], steps[0])
    place = Layout((row[0], mode[0], copies[0]), (row[1], mode[1], copies[1]))
    return TmemLayout(name, rows, columns, bits, place, copies[0], ctas, lane_bases=lane_bases, evidence=evidence)


def scale_layout(
    side: Literal["a", "b"],
    rows: int,
    vectors: int,
    *,
    scale_id: int = 0,
    cta_group: int = 1,
    m: int = 0,
    lanes: int = 32,
) -> TmemLayout:
    """Where the scale factors of A (rows = M) or of B (rows = N) lie: `vectors` bytes a row, counted along K.

    The bytes of a row follow one another from byte `scale_id` of a word; four fill a word, the next four lie in the columns
    after those of all rows. 32 rows take the 32 lanes of a warp, the next 32 the next column; every warp has a copy.
    cta_group::2: each CTA has the factors of its own rows of A, and those of all of B; with m = 128 (layout B) each half of
    B's rows lies in the two warps that multiply it. `lanes` = 128 is sm_107's other layout of A's factors.

    Raises OperandError for rows, vectors or an id that do not exist.

    >>> sfa = scale_layout("a", 128, 4)
    >>> print(sfa)
    ((32,4),(4,1),4):((262144,4),(1,16),8388608)
    >>> sfa.where(33, 2, copy=1)  # CTA, lane, column, byte
    (0, 33, 1, 2)
    """
    call = f"scale_layout({side!r}, rows={rows}, vectors={vectors}, scale_id={scale_id}, cta_group={cta_group}, m={m})"
    if side not in ("a", "b"):
        raise OperandError(f"{call}: no such side; valid: a, b")
    if cta_group not in (1, 2):
        raise OperandError(f"{call}: no such cta_group; valid: 1, 2")
    if vectors not in (1, 2, 3, 4, 6, 8) or scale_id not in range(4):
        raise OperandError(f"{call}: valid are 1, 2, 3, 4, 6 or 8 vectors from byte 0 to 3")
    if not 8 <= rows <= 256 or rows % 8:
        raise OperandError(f"{call}: valid are rows in multiples of 8 from 8 to 256")
    if lanes not in (32, LANES) or (lanes == LANES and side == "b"):
        raise OperandError(f"{call}: lanes={lanes}; valid: 32, and 128 for A on sm_107")
    whole = side == "b" and cta_group == 2  # each CTA has all rows
    mine = rows if side == "b" else rows // cta_group
    halves = 2 if whole and m == 128 else 1
    run = mine // halves
    unit = LANE * (WORD_BITS // 8)
    words = -(-(scale_id + vectors) // 4)
    blocks = -(-run // 128)  # of 128 rows, which take 4 columns, or 1 if they lie in 128 lanes
    row = ((lanes, -(-run // lanes)), (unit, 4)) if run > lanes else (run, unit)
    mode: tuple[IntTuple, IntTuple] = row if halves == 1 else ((row[0], 2), (row[1], 64 * unit))
    copies = LANES // lanes // halves
    step = 32 * unit if copies > 1 else 0
    place = Layout((mode[0], (4, words), copies), (mode[1], (1, blocks * (LANES // lanes) * 4), step))
    return TmemLayout(
        f"scale factors of {side.upper()}", rows, vectors, 8, place, copies, cta_group, whole, scale_id, run,
        evidence=MANUAL if words == 1 and lanes == 32 else DRAWN,
    )  # fmt: skip


GROUPS: Mapping[str, int] = MappingProxyType(
    {"tf32": 2, "f16": 4, "ti16": 4, "f8f6f4": 4, "i8": 4, "mxf8f6f4": 4, "mxf4": 8, "mxf4nvf4": 8}
)
"""Elements of a sparse A, zeros included, that 4 bits of metadata describe (PTX ISA, Sparse Matrices)."""

_PAIRED = ("f16", "tf32", "ti16")  # kinds whose words hold rows r and r + 8


def metadata_layout(
    kind: str, m: int, k: int, cta_group: int = 1, *, ws: bool = False, selector: int = 0, unpaired: bool = False
) -> TmemLayout:
    """Where the metadata of a sparse A lies: m rows of 4-bit codes, each for `GROUPS[kind]` elements of K.

    8-bit and 4-bit kinds: lane = row, eight codes a word in the order of K, two columns. f16, tf32 and ti16: rows r and r + 8
    share the words of lanes r % 8 (first four codes, low half for r) and r % 8 + 8 (the other four); the codes of an instruction
    fill one column, and `selector` says which of the two at the metadata's address, which must be even.
    In layouts E and G each bank of lanes has a copy. `unpaired`: sm_107's codes of 4-bit kinds, each for 4 elements, as those of
    8-bit kinds are. Of a longer K more columns are read in the same order, six of the longest: inferred.

    Raises OperandError for a kind, shape or selector that does not exist.

    >>> print(metadata_layout("f8f6f4", 128, 64))
    (128,16,1):(524288,1,0)
    >>> metadata_layout("f16", 128, 32, selector=1).where(8, 5)  # CTA, lane, column, nibble
    (0, 8, 1, 5)
    """
    if kind not in GROUPS:
        raise OperandError(f"no kind::{kind}; valid: {listing(GROUPS)}")
    path = data_path(m, cta_group, ws=ws, sparse=True)
    group = 4 if unpaired else GROUPS[kind]
    codes = k // group
    depths = [depth.k for depth in KINDS[kind].depths if depth.sparse]
    if k not in depths:
        raise OperandError(f"kind::{kind}: sparse K = {k}; valid: {listing(depths)}")
    if selector not in ((0, 1) if kind in _PAIRED else (0,)):
        raise OperandError(f"kind::{kind}: selector={selector}; valid: {'0, 1' if kind in _PAIRED else '0'}")
    unit = LANE * (WORD_BITS // 4)
    copies = (path.banks, path.bank_lanes * unit if path.banks > 1 else 0)
    name = f"metadata of A, layout {path.name}"
    if kind not in _PAIRED:
        evidence = MANUAL if codes == 16 else DRAWN
        return _build(name, m, codes, 4, (codes, 1), path, cta_group, copies, path.lane_bases, evidence)
    rows = m // cta_group
    row_step = unit * (32 if path.lanes == _HALF else 16)
    place = Layout(((8, 2, rows // 16), (4, 2, 2), copies[0]), ((unit, 4, row_step), (1, 8 * unit, 8), copies[1]))
    return TmemLayout(name, m, codes, 4, place, copies[0], cta_group, first=8 * selector, lane_bases=path.lane_bases)


LOOKUP_COLUMNS = 8
"""Columns of B that share a lookup table."""
LOOKUP_ENTRIES = 8
"""Numbers in a lookup table: what three bits tell apart."""


def lookup_layout(n: int, cta_group: int = 1) -> TmemLayout:
    """Where the lookup tables of .decompress::lut::b lie: a row for each 8 columns of B, of eight bytes, entry 0 first.

    A row takes one lane and the two columns at the address, which must be even. Each CTA has those of its own columns of B. Every
    warp has a copy, as tcgen05.cp .32x128b.warpx4 writes them: inferred, the PTX ISA draws one.

    Raises OperandError for an N that does not exist.

    >>> lookup_layout(64).where(3, 6)  # CTA, lane, column, byte
    (0, 3, 1, 2)
    """
    if not 8 <= n <= 256 or n % (LOOKUP_COLUMNS * cta_group):
        raise OperandError(f"N = {n}: valid are multiples of {LOOKUP_COLUMNS * cta_group} up to 256")
    rows = n // LOOKUP_COLUMNS
    unit = LANE * (WORD_BITS // 8)
    place = Layout((rows // cta_group, LOOKUP_ENTRIES, 4), (unit, 1, 32 * unit))
    return TmemLayout("lookup tables of B", rows, LOOKUP_ENTRIES, 8, place, 4, cta_group, evidence=LOOKUP)
