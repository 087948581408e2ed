"""tcgen05.cp and tcgen05.shift: from shared memory to Tensor Memory, and Tensor Memory moved down by a row.

Sources: PTX ISA, section Tensor Memory Data Movement Instructions; ptxas 13.5.37 (targets, versions, SASS). The
manual leaves three things open, which are inferred:
- Which half of the data each warp of a pair receives: see `ROW_MAPS`.
- Where the four rows of `.4x256b` go. ptxas and the manual's list of ordered pairs (shift before cp.4x256b) make it the copy
  that refills the row which a shift leaves over in each warp's 32 lanes.
- Which way is down in tcgen05.shift. A convolution whose next tap needs the next pixel moves row i + 1 to row i, and only
  then is the last row the one that "except the last" excepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import require_inside
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.core.versions import PTX_MANUAL
from tcsim.descriptors.addresses import check_descriptors
from tcsim.descriptors.forms import form_of
from tcsim.descriptors.matrix import descriptor_values
from tcsim.descriptors.tile_bytes import TileBytes, tile_bytes
from tcsim.isa.tcgen05.cells import Bytes, TensorMemoryView, cell_bytes, columns_of, ranks_of, read
from tcsim.isa.tcgen05.shared_matrices import shared_bytes
from tcsim.isa.tcgen05.targets import ARCH_TARGETS, FAMILY_TARGETS, known
from tcsim.memory.shared import ROW_FORMATS, unpack_rows
from tcsim.memory.tensor_memory import (
    LaneAccessError,
    TensorMemory,
    TensorMemoryError,
    require_tensor_memory,
    tmem_lane_column,
)
from tcsim.model.effects import Access, Array, Effects, Outcome, Pending, View, Write
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand
from tcsim.model.row import Row
from tcsim.numbers.formats import FORMATS

CHUNK_BYTES = 16  # 16 elements that `.b8x16` decompresses, with their padding
COLUMN_ALIGNMENT = 4
SHIFT_ROWS, SHIFT_COLUMNS = 32, 8


ROW_MAPS: MappingProxyType[str, Callable[[], npt.NDArray[np.int64]]] = MappingProxyType(
    {
        "": lambda: np.arange(128)[:, None],
        ".warpx4": lambda: np.arange(32)[:, None] + 32 * np.arange(4),
        ".warpx2::02_13": lambda: (np.arange(32) + 32 * np.arange(2)[:, None]).reshape(64, 1) + 64 * np.arange(2),
        ".warpx2::01_23": lambda: (np.arange(32) + 64 * np.arange(2)[:, None]).reshape(64, 1) + 32 * np.arange(2),
        ".4x256b": lambda: 32 * np.arange(4)[:, None],
    }
)
"""By multicast (or the shape .4x256b): the lanes that each row of the source goes to, counted from the address.

`.warpx2::02_13`: rows 0-31 go to warps 0 and 2, rows 32-63 to warps 1 and 3; `::01_23` likewise. The manual's sentence
leaves it open; the comments of CUTLASS's copy_sm100 (data_row[0:31] -> DP[0:63]) and a probe by others on a GB200 say so.
`.4x256b`: one row to the first lane of each warp's 32, as others found on a GB200."""


@dataclass(frozen=True)
class Tile:
    """What one spelling of the shape, with its multicast, copies."""

    name: str  # "64x128b"
    rows: int  # of the source
    row_bytes: int  # of a row, 4 to a column
    opcode: str  # what SASS calls it
    evidence: Evidence
    multicast: str = ""  # a key of ROW_MAPS; ".4x256b" cannot be spelled


@dataclass(frozen=True, kw_only=True)
class PairRow(Row):
    """A spelling that one CTA or a pair executes."""

    cta_group: int  # 2: both CTAs of a pair work, each on its own memories


@dataclass(frozen=True, kw_only=True)
class CopyRow(PairRow):
    """What a spelling of tcgen05.cp copies."""

    tile: Tile
    source: str  # name of the rows' format in shared memory: "b8", "b6x16_p32" or "b4x16_p64"


def expand(chunks: npt.NDArray[np.uint8], source: str) -> npt.NDArray[np.uint8]:
    """16 bytes of shared memory to the 16 bytes that go to Tensor Memory: uint8 (..., 16) to (..., 16).

    fp6 codes lie in bits 5:0 of their byte, fp4 codes in bits 5:2, as `kind::f8f6f4` reads them; the rest is zero.

    >>> expand(np.array([0x21, 0x43] + [0] * 14, np.uint8), "b4x16_p64")[:4].tolist()  # codes 1, 2, 3, 4
    [4, 8, 12, 16]
    """
    codes = np.asarray(unpack_rows(chunks, ROW_FORMATS[source]), np.uint8)
    return codes << np.uint8(2) if source == "b4x16_p64" else codes


def source_tile(descriptors: npt.NDArray[np.uint64], rows: int, row_bytes: int, arch: str, call: str) -> TileBytes:
    """The K-major tile of rows x bytes that tcgen05 descriptors (...) name.

    The address rule is that of tcgen05.mma: without swizzle, and with the swizzles of 32, 64 and 128 bytes in 16-byte atoms.

    Raises OperandError for a descriptor that decodes to another layout, or whose meaning is not published.
    """
    _, form = form_of(arch)
    check_descriptors(descriptors, arch, call)
    if (form.field("leading_mode").take_array(descriptors) != 0).any():
        raise OperandError(f"{call}: leading_mode=1 (LBO is an address) is for operands of tcgen05.mma; valid: 0")
    try:
        return tile_bytes(descriptors, rows, row_bytes, FORMATS["u8"], "K", arch)
    except OperandError as error:
        raise OperandError(f"{call}: {error}") from None


@dataclass(frozen=True, eq=False, repr=False)
class CopyToTensorMemory(Instruction):
    """tcgen05.cp: a tile of shared memory to Tensor Memory, decompressed and multicast on the way."""

    reads_tiles = True
    row: CopyRow

    def lanes(self, address: int) -> npt.NDArray[np.int64]:
        """The lanes (rows, copies) that each row of the source goes to.

        Raises LaneAccessError for a lane of the address from which the rows do not fit, TensorMemoryError for a column that
        is not a multiple of 4.
        """
        call = f"{self!r}.execute"
        lane, column = tmem_lane_column(address)
        lanes = ROW_MAPS[self.row.tile.multicast]()
        if lane + int(lanes.max()) >= TensorMemory.LANES:
            last = TensorMemory.LANES - 1 - int(lanes.max())
            raise LaneAccessError(f"{call}: the address has lane {lane}; valid for this shape: 0 to {last}")
        if column % COLUMN_ALIGNMENT:
            raise TensorMemoryError(
                f"{call}: the address has column {column}; valid: multiples of {COLUMN_ALIGNMENT} (a GB200 answers another with "
                "'misaligned address')"
            )
        return lanes + lane

    def execute(self, tmem: TensorMemory, address: int, smem: Any, descriptor: Any, *, cta: int = 0) -> TensorMemory:
        """Copy: the new Tensor Memory. smem uint8 (..., bytes), for a CTA pair (..., 2, bytes); its index is the shared address.

        `descriptor` is a 64-bit matrix descriptor of a K-major tile of bytes: an int, or uint64 (...). Leading dimensions
        broadcast. With `.cta_group::2` each CTA copies from its own shared memory to its own Tensor Memory, at the same
        addresses.

        Raises OperandError for another dtype or shape or a descriptor that is not understood, AddressError for bytes outside
        smem, and TensorMemoryError, LaneAccessError, UnallocatedError or AllocationError for where it should go.

        >>> copy = tcsim.instruction("tcgen05.cp.cta_group::1.32x128b.warpx4", arch="sm_100")
        >>> descriptor = tcsim.MatrixDescriptor(leading_byte_offset=128, stride_byte_offset=128, arch="sm_100").encode()
        >>> smem = np.arange(128, dtype=np.uint32).view(np.uint8)  # 32 rows of 16 bytes
        >>> tmem = copy.execute(tcsim.TensorMemory.allocated(), 8, smem, descriptor)
        >>> tmem.read([0, 33, 127], 8)  # rows 0, 1 and 31 of the source
        array([  0,   4, 124], dtype=uint32)
        """
        call, group = f"{self!r}.execute", self.row.cta_group
        require_tensor_memory(tmem, call)
        memory, descriptors = shared_bytes(smem, group, call), np.asarray(descriptor_values(descriptor))
        if descriptors.dtype.kind not in "iu":
            raise OperandError(f"{call}: descriptor is {descriptors.dtype}; valid: an int or uint64 (...)")
        work, tile = self._copied(address, descriptors.astype(np.uint64), 0, call)
        require_inside(tile.address, tile.size, memory.shape[-1], "a run of the tile", call)
        new = tmem.copy(broadcast([tmem.batch, memory.shape[:-group], descriptors.shape], call))
        new.use_cta_group(group, call)
        view = TensorMemoryView(new, columns_of(self.arch), memory, cta)
        view.apply((work.finish(work.fetch(view)),), f"{call}: write")
        return new

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The tile is read when the work of each thread is fetched, and written when it is finished."""
        call = f"{self!r}.effects"
        threads = zip(operands["address"].tolist(), operands["descriptor"].astype(np.uint64), strict=True)
        works = [self._copied(own, named, view.rank, call)[0] for own, named in threads]
        return Effects(pending=tuple(replace(work, threads=np.array([i])) for i, work in enumerate(works)))

    def _copied(
        self, address: int, descriptors: npt.NDArray[np.uint64], rank: int, call: str
    ) -> tuple[Pending, TileBytes]:
        """The work of one instruction, and the tile that it copies."""
        group, tile = self.row.cta_group, self.row.tile
        ranks = ranks_of(group, rank)
        lanes, (_, column) = self.lanes(address), tmem_lane_column(address)
        source = source_tile(np.asarray(descriptors), tile.rows, tile.row_bytes, self.arch.name, call)
        each = cell_bytes(lanes.reshape(-1), np.asarray(column), tile.row_bytes // 4, columns_of(self.arch), call)
        origin = Access("shared", source.address, source.size, proxy="async", cta=ranks)
        place = Access("tmem", each, tile.row_bytes, proxy="async")
        if ranks.ndim:
            both = np.concatenate([source.address] * group, axis=-1)
            origin = replace(origin, address=both, cta=np.repeat(ranks, source.address.shape[-1]))
            place = replace(place, address=np.tile(each, group), cta=np.repeat(ranks, len(each)))

        def finish(data: Bytes) -> Outcome:
            batch = data.shape[:-2]
            chunks = data.reshape(*batch, data.shape[-2] * data.shape[-1] // CHUNK_BYTES, CHUNK_BYTES)
            rows = expand(chunks, self.row.source).reshape(*batch, group, tile.rows, 1, tile.row_bytes)
            copied = np.broadcast_to(rows, (*batch, group, *lanes.shape, tile.row_bytes))
            return Outcome(writes=(Write(place, copied.reshape(*batch, group * lanes.size, tile.row_bytes)),))

        return Pending((origin,), (place,), lambda view: view.read(origin), finish, "tcgen05"), source


@dataclass(frozen=True, eq=False, repr=False)
class ShiftTensorMemory(Instruction):
    """tcgen05.shift: 32 rows of 32 bytes, all but the last replaced by the row below them."""

    row: PairRow

    def execute(self, tmem: TensorMemory, address: int, *, cta: int = 0) -> TensorMemory:
        """Shift: the new Tensor Memory, in which lane i of the 32 holds what lane i + 1 held; lane 31 stays.

        The manual says "downwards, except the last, by one row"; that this is toward lane 0 is inferred (see
        `tcsim.isa.tcgen05.cp`). With `.cta_group::2` both CTAs shift at the same address.

        Raises LaneAccessError for a lane that is not a multiple of 32, UnallocatedError, UnwrittenError, AllocationError.

        >>> tmem = tcsim.TensorMemory.allocated()
        >>> tmem.write(np.arange(32)[:, None], np.arange(8), np.arange(256, dtype=np.uint32).reshape(32, 8))
        >>> shifted = tcsim.instruction("tcgen05.shift.cta_group::1.down", arch="sm_100").execute(tmem, 0)
        >>> shifted.read([0, 30, 31], 0).tolist()
        [8, 248, 248]
        """
        call, group = f"{self!r}.execute", self.row.cta_group
        require_tensor_memory(tmem, call)
        work = self._shifted(address, 0, call)
        new = tmem.copy()
        new.use_cta_group(group, call)
        view = TensorMemoryView(new, columns_of(self.arch), cta=cta)
        view.apply((work.finish(work.fetch(view)),), f"{call}: write")
        return new

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The rows are read when the work of each thread is fetched, and written when it is finished."""
        call = f"{self!r}.effects"
        works = [self._shifted(address, view.rank, call) for address in operands["address"].tolist()]
        return Effects(pending=tuple(replace(work, threads=np.array([i])) for i, work in enumerate(works)))

    def _shifted(self, address: int, rank: int, call: str) -> Pending:
        """The work of one instruction."""
        lane, column = tmem_lane_column(address)
        if lane % SHIFT_ROWS:
            raise LaneAccessError(f"{call}: the address has lane {lane}; valid: multiples of {SHIFT_ROWS}")
        rows = lane + np.arange(SHIFT_ROWS)
        cells = cell_bytes(rows, np.asarray(column), SHIFT_COLUMNS, columns_of(self.arch), call)
        ranks = ranks_of(self.row.cta_group, rank)
        cta = np.repeat(ranks, SHIFT_ROWS - 1) if ranks.ndim else None
        below = Access("tmem", np.tile(cells[1:], ranks.size), 4 * SHIFT_COLUMNS, proxy="async", cta=cta)
        above = replace(below, address=np.tile(cells[:-1], ranks.size))
        return Pending(
            (below,),
            (above,),
            lambda view: read(view, (below,), call)[0],
            lambda data: Outcome(writes=(Write(above, data),)),
            "tcgen05",
        )


COPY, SHIFT = "tcgen05.cp", "tcgen05.shift"


_MANUAL = Evidence("literature", f"{PTX_MANUAL}, section tcgen05.cp; CUTLASS, copy_sm100")
_PAIRS = Evidence(
    "literature", f"{PTX_MANUAL}, section tcgen05.cp; CUTLASS, copy_sm100, comments of the UTCCP operations"
)
_REFRESH = Evidence(
    "inferred", "probes by others on a GB200: lanes 32 apart, as a branch of Triton found; the manual is silent"
)
_DECOMPRESSED = Evidence(
    "inferred", "containers of fp6 and fp4 operands: bits 5:0 and 5:2; the manual shows them in figures only"
)
_SHIFTED = Evidence("inferred", "the section's words: the direction is not said, see tcsim/isa/tcgen05/cp.py")

TILES = (
    Tile("128x256b", 128, 32, "", _MANUAL),
    Tile("4x256b", 4, 32, ".4dp256bit", _REFRESH, ".4x256b"),
    Tile("128x128b", 128, 16, ".128dp128bit", _MANUAL),
    Tile("64x128b", 64, 16, ".2x64dp128bit_lw02_lw13", _PAIRS, ".warpx2::02_13"),
    Tile("64x128b", 64, 16, ".2x64dp128bit_lw01_lw23", _PAIRS, ".warpx2::01_23"),
    Tile("32x128b", 32, 16, ".4x32dp128bit", _MANUAL, ".warpx4"),
)
SOURCES = {
    "b8": ("", ""),
    "b6x16_p32": (".b8x16.b6x16_p32", ".U6x16P32"),
    "b4x16_p64": (".b8x16.b4x16_p64", ".U4x16P64"),
}
"""By the format of a row: the end of the mnemonic, and what SASS calls it."""

_COPY = (
    Operand("address", "destination", "address", space="tensor", proxy="async"),
    Operand("descriptor", type=".b64"),
)
_SHIFT = Operand("address", "both", "address", space="tensor", proxy="async")


def _copies() -> Iterator[CopyRow]:
    for group, tile, (source, (end, _)) in product((1, 2), TILES, SOURCES.items()):
        word = tile.multicast if tile.multicast != f".{tile.name}" else ""
        yield CopyRow(
            f"{COPY}.cta_group::{group}.{tile.name}{word}{end}",
            COPY,
            (tile.rows, tile.row_bytes, 0),  # rows and bytes: nothing is multiplied
            arithmetic=source,
            modifiers=MappingProxyType(
                {"cta_group": f".cta_group::{group}", "shape": f".{tile.name}", "multicast": word, "format": end}
            ),
            forms=(Form(_COPY, FAMILY_TARGETS, "8.6", "thread"),),
            cta_group=group,
            tile=tile,
            source=source,
        )


def copy_rows() -> tuple[CopyRow, ...]:
    """tcgen05.cp."""
    return tuple(_copies())


def copy_lowering(row: CopyRow, arch: Arch) -> Lowering:
    """One machine instruction."""
    pair = ".2CTA" if row.cta_group == 2 else ""
    return Lowering("native", (), ((f"UTCCP.T.S{pair}{row.tile.opcode}{SOURCES[row.source][1]}", 1),))


def copy_evidence(row: CopyRow, arch: Arch) -> Evidence:
    """The manual and CUTLASS where they say it; no GPU was asked."""
    own = row.tile.evidence
    return known(arch, _DECOMPRESSED if row.source != "b8" and own.level == "literature" else own)


def shift_rows() -> tuple[PairRow, ...]:
    """tcgen05.shift."""
    return tuple(
        PairRow(
            f"{SHIFT}.cta_group::{group}.down", SHIFT, (SHIFT_ROWS, SHIFT_COLUMNS, 0), arithmetic="down",
            modifiers=MappingProxyType({"cta_group": f".cta_group::{group}"}),
            forms=(Form((_SHIFT,), ARCH_TARGETS, "8.6", "thread"),), cta_group=group,
        )
        for group in (1, 2)
    )  # fmt: skip


def shift_lowering(row: PairRow, arch: Arch) -> Lowering:
    """One machine instruction."""
    return Lowering("native", (), ((f"UTCSHIFT{'.2CTA' if row.cta_group == 2 else ''}.DOWN", 1),))


def shift_evidence(row: PairRow, arch: Arch) -> Evidence:
    """Inferred."""
    return _SHIFTED


COPY_FAMILY = Family(COPY, copy_rows, copy_lowering, copy_evidence, CopyToTensorMemory)
SHIFT_FAMILY = Family(SHIFT, shift_rows, shift_lowering, shift_evidence, ShiftTensorMemory)
