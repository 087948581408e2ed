"""Where the bytes of shared memory came from, and whether a matrix descriptor reads them as the matrix that they were.

Every copy from global memory leaves, for each 16 bytes that it writes, the address in global memory that they had: that says which logical
element they are, whatever swizzle or layout they lie in. A tile that a descriptor reads is told wrong only if both hold:

- its elements are not rows and columns of anything: the way from one element of a row to the next is not the same in each row, an
  element is there twice, or rows of a tensor are read from different columns; rows and columns in any order, gathered or strided, are right;
- with another value of one field (or of two that belong together) it would be a matrix: each row further by one step, its elements side by side.

So it needs no expected result. What threads stored has no origin, and is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.core.errors import OperandError
from tcsim.descriptors.forms import form_of
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.descriptors.tile_bytes import TileBytes
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES
from tcsim.model.effects import Access
from tcsim.ptx.threads import Array

if TYPE_CHECKING:
    from tcsim.ptx.pending import Flight
    from tcsim.ptx.performer import Performer
    from tcsim.ptx.shadow.checker import Checker

UNIT = 16
"""Bytes that have one origin: no swizzle parts them."""
_MARK = np.uint64(0x9E3779B97F4A7C15)
FILL = -1
"""The origin of bytes that a copy filled in, beyond the tensor."""
_MOST_TRIES = 2
"""Tiles of one operand of an instruction that are not a matrix, for each of which another descriptor is looked for."""
_STEPS = (128, 256, 512, 1024, 2048)
"""Values of LBO and SBO that are tried besides those that the place of other elements suggests."""


@dataclass(frozen=True)
class Mend:
    """A descriptor with which the tile is a matrix."""

    rule: str
    said: str  # "SBO 1024 instead of 64"
    origins: Array
    step: int  # bytes from one line of it to the next


class Origins:
    """The origins in the shared memories of a cluster, by rank of the block: an address for each 16 bytes, FILL, or 0: not known."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.at: dict[int, Array] = {}
        self.by: dict[int, Array] = {}  # the instruction that copied them
        self.pitch: dict[int, Array] = {}  # bytes from a row of the tensor to the next, where the copy had rows
        self.lines: dict[int, int] = {}  # by flight: the instruction that issued it
        self.tried: dict[tuple[int, str], int] = {}  # by instruction and operand

    # --- what is written

    def stored(self, space: str, kind: str, rank: int, offsets: Array, size: int) -> None:
        """Threads access a memory."""
        if kind != "read" and space == "shared":
            self.forget(rank, offsets, size)

    def forget(self, rank: int, offsets: Array, size: int) -> None:
        """Something else is written: what threads store has no origin."""
        at = self.at.get(rank)
        if at is not None:
            touched = offsets[:, None] // UNIT + np.arange((size + 2 * UNIT - 2) // UNIT)
            at[touched[(touched * UNIT < offsets[:, None] + size) & (touched < len(at))]] = 0

    def issued(self, flight: Flight, line: int) -> None:
        """Work begins."""
        self.lines[id(flight)] = line

    def landing(self, flight: Flight) -> None:
        """Work has read, and is about to write: a copy leaves the origins of its bytes, other work none."""
        self._read(flight)
        pending, line = flight.pending, self.lines.pop(id(flight), 0)
        if not any(own.space in ("shared", "generic") for own in pending.writes):
            return
        outcome, pitch = None, 0
        source = [own for own in pending.reads if own.space in ("global", "generic")]
        if len(source) == 1 and len(pending.reads) == 1 and isinstance(flight.data, np.ndarray):
            address, _ = flight.block.places(source[0])
            numbered, pitch = _numbered(address, flight.data), _pitch(address)
            outcome = pending.finish(numbered) if numbered is not None else None
        elif not pending.reads and isinstance(flight.data, np.ndarray):  # a box that lies beyond its tensor
            outcome = pending.finish(flight.data)
        if outcome is None or any(own.combine is not None for own in outcome.writes):
            for access in pending.writes:
                self._put(flight.block, access, None, line, 0)
            return
        for write in outcome.writes:
            shape = (*np.broadcast_shapes(write.at.address.shape, write.data.shape[:-1]), write.at.size)
            self._put(
                flight.block, write.at, np.broadcast_to(write.data, shape).reshape(-1, write.at.size), line, pitch
            )

    def _put(self, block: Performer, access: Access, data: Array | None, line: int, pitch: int) -> None:
        """The origins that numbered bytes say, where an access puts them."""
        if access.space not in ("shared", "generic"):
            return
        for at in block.copies(access):
            address, _ = block.places(at)
            ranks, offsets = address >> 24 & 0xFF, address & 0xFFFFFF
            for rank in np.unique(ranks).tolist():
                if rank >= len(self.checker.cluster.blocks):
                    continue
                own = ranks == rank
                if data is None or access.size % UNIT or (offsets[own] % UNIT).any():
                    self.forget(rank, offsets[own], access.size)
                    continue
                if rank not in self.at:
                    count = -(-self.checker.cluster.blocks[rank].shared_bytes // UNIT)
                    self.at[rank], self.pitch[rank] = np.zeros(count, np.int64), np.zeros(count, np.int64)
                    self.by[rank] = np.zeros(count, np.int32)
                units = (offsets[own][:, None] // UNIT + np.arange(access.size // UNIT)).reshape(-1)
                words = (
                    np.ascontiguousarray(data[own] if len(data) == len(own) else data).view(np.uint64).reshape(-1, 2)
                )
                if len(words) != len(units):
                    self.forget(rank, offsets[own], access.size)
                    continue
                inside = units < len(self.at[rank])
                marked = words[:, 0] ^ _MARK == words[:, 1]
                self.at[rank][units[inside]] = np.where(marked, words[:, 0].astype(np.int64), FILL)[inside]
                self.by[rank][units[inside]], self.pitch[rank][units[inside]] = line, pitch

    # --- what is read

    def _read(self, flight: Flight) -> None:
        """Look at the tiles that work has read."""
        rank = flight.block.rank
        at = self.at.get(rank)
        if at is None:
            return
        for access in flight.pending.reads:
            name, tile = access.operand, access.tile
            if tile is None or not name:
                continue
            addresses = tile.address.reshape(-1, tile.address.shape[-1])
            for own, descriptor in zip(
                addresses, np.asarray(tile.descriptor, np.uint64).reshape(-1).tolist(), strict=True
            ):
                found = _origins(at, own, tile)
                if found is not None:
                    pitch = int(self.pitch[rank][own[0] // UNIT])
                    if not _is_matrix(found, pitch):
                        self._wrong(flight, name, tile, descriptor, found, pitch)

    def _wrong(self, flight: Flight, name: str, tile: TileBytes, descriptor: int, found: Array, pitch: int) -> None:
        line = self.lines.get(id(flight), 0)
        tries = self.tried.get((line, name), 0)
        self.tried[line, name] = tries + 1
        if tries >= _MOST_TRIES:
            return
        block, rank = flight.block, flight.block.rank
        mend = _mend(self.at[rank], tile, descriptor, found, pitch)
        if mend is None:
            return
        place = int(np.argmax(mend.origins != found))
        at_line, run = divmod(place, found.shape[1])
        wanted, (row, k) = name.upper(), _element(tile, at_line, run, 0)
        read = int(found.flat[place])
        from_what = "bytes that no copy wrote"
        if read > 0:
            away, rest = divmod(read - int(mend.origins.flat[0]), mend.step)
            other = _element(tile, away, 0, rest)
            from_what = f"the bytes that were written as {wanted}[{other[0]}, {other[1]}]"
        opcode = self.checker.findings.opcode(line)
        said = f"{opcode} reads {wanted}[{row}, {k}] from {from_what}: with {mend.said} every element would be the one that was written"
        unit = int(tile.address.reshape(-1, found.size)[0, place]) // UNIT
        by = int(self.by[rank][unit]) if unit < len(self.by[rank]) and read > 0 else 0
        self.checker.findings.report(
            mend.rule, said, line, by, self.checker.index(block), int(flight.threads[0]), operand=name, element=[row, k],
            descriptor=hex(descriptor), mend=mend.said,
        )  # fmt: skip


def _numbered(address: Array, data: Array) -> Array | None:
    """The bytes that were read, with the address of each 16 in their place; None where they are fewer."""
    size = data.shape[-1] if data.ndim else 0
    if data.dtype != np.uint8 or not size or size % UNIT or data.size != len(address) * size:
        return None
    found = np.empty((len(address), size // UNIT, 2), np.uint64)
    found[..., 0] = address.astype(np.uint64)[:, None] + np.arange(0, size, UNIT, dtype=np.uint64)
    found[..., 1] = found[..., 0] ^ _MARK
    return found.view(np.uint8).reshape(data.shape)


def _origins(at: Array, address: Array, tile: TileBytes) -> Array | None:
    """The origins (lines, runs of a line) of a tile's runs, 0 where they are not known; None if none is, or some lie outside memory."""
    units = address // UNIT
    if int(units.max()) >= len(at) or tile.size > UNIT:
        return None
    found = at[units]
    if not (found > 0).any():
        return None
    lines = tile.rows if tile.major == "K" else tile.k
    return np.where(found > 0, found + address % UNIT, found).reshape(lines, -1)


def _pitch(address: Array) -> int:
    """The bytes from one row to the next, of accesses that are rows of a tensor; 0 if they are not."""
    steps: Array = np.diff(address.astype(np.int64))
    if not len(steps):
        return 0
    pitch = int(abs(steps).min())
    regular = pitch > UNIT and not (steps % pitch).any() and 2 * int((steps == pitch).sum()) >= len(steps)
    return pitch if regular else 0


def _is_matrix(found: Array, pitch: int) -> bool:
    """Whether the elements are rows and columns of something, in any order, each once; what lies beyond the tensor may be anything."""
    if not found.all():
        return False
    known = found > 0
    if not known.all():
        lines, runs = known.any(1), known.any(0)
        if not known[lines][:, runs].all():
            return True
        found = found[lines][:, runs]
    straight = bool(((found - found[:, :1]) == (found[:1] - found[0, 0])).all())
    columns = not pitch or bool((found[:, 0] % pitch == found[0, 0] % pitch).all())
    return straight and columns and len(np.unique(found)) == found.size


def _step(found: Array, size: int, pitch: int) -> int:
    """The bytes from one line to the next, of a matrix whose lines are whole and follow one another; 0 if it is none."""
    if not (found > 0).all():
        return 0
    step = int(found[1, 0] - found[0, 0]) if len(found) > 1 else 0
    lines, runs = found.shape
    whole = found[0, 0] + np.arange(lines)[:, None] * step + np.arange(runs) * size
    right = abs(step) >= runs * size and (not pitch or step % pitch == 0) and bool((found == whole).all())
    return step if right else 0


def _mend(at: Array, tile: TileBytes, descriptor: int, found: Array, pitch: int) -> Mend | None:
    """The first descriptor, of those that differ in little, with which the tile is a matrix that begins at the same element."""
    try:
        own = MatrixDescriptor.decode(descriptor, arch=tile.arch)
    except OperandError:
        return None
    for rule, changed in _candidates(at, tile, own, found, pitch):
        try:
            other = tile.under(changed.encode())
        except OperandError:
            continue
        origins = _origins(at, other.address, other) if other.size == tile.size else None
        if origins is None or origins.shape != found.shape or origins.flat[0] != found.flat[0]:
            continue
        step = _step(origins, tile.size, pitch)
        if step:
            return Mend(rule, _difference(own, changed), origins, step)
    return None


def _candidates(
    at: Array, tile: TileBytes, own: MatrixDescriptor, found: Array, pitch: int
) -> Iterator[tuple[str, MatrixDescriptor]]:
    """Descriptors that differ in little, the likeliest first."""
    leading, stride = own.leading_byte_offset, own.stride_byte_offset
    for factor in (16, 1 / 16):
        for name, value in (("stride_byte_offset", stride), ("leading_byte_offset", leading)):
            yield "DESC_LBO_SBO", _changed(own, **{name: int(value * factor)})
        yield (
            "DESC_LBO_SBO",
            _changed(own, stride_byte_offset=int(stride * factor), leading_byte_offset=int(leading * factor)),
        )
    yield "DESC_LBO_SBO", _changed(own, leading_byte_offset=stride, stride_byte_offset=leading)
    first, line = int(found.flat[0]), pitch or int(found[1, 0] - found[0, 0])
    wanted = [first + step for step in (16, 32, 64, 128, 4 * line, 8 * line)]
    places = np.flatnonzero(np.isin(at, wanted)) * UNIT - own.start_address
    values = list(dict.fromkeys((*_STEPS, *(int(place) for place in places[places > 0]))))
    for value in values:
        yield "DESC_LBO_SBO", _changed(own, stride_byte_offset=value)
        yield "DESC_LBO_SBO", _changed(own, leading_byte_offset=value)
    modes = [mode for mode in form_of(tile.arch)[1].modes if mode != own.swizzle]
    for mode in modes:
        yield "DESC_SWIZZLE_MODE", _changed(own, swizzle=mode)
    for mode in modes:
        span = DESCRIPTOR_SWIZZLES[mode].span
        yield "DESC_SWIZZLE_MODE", _changed(own, swizzle=mode, stride_byte_offset=8 * span)
    for value in values:
        for other in values:
            yield "DESC_LBO_SBO", _changed(own, leading_byte_offset=value, stride_byte_offset=other)
    for mode in modes:
        for value in values:
            yield "DESC_SWIZZLE_MODE", _changed(own, swizzle=mode, stride_byte_offset=value)
            yield "DESC_SWIZZLE_MODE", _changed(own, swizzle=mode, leading_byte_offset=value)


def _changed(own: MatrixDescriptor, **fields: Any) -> MatrixDescriptor:
    return replace(own, **fields)


_NAMES = {"leading_byte_offset": "LBO", "stride_byte_offset": "SBO", "swizzle": "swizzle"}


def _difference(own: MatrixDescriptor, changed: MatrixDescriptor) -> str:
    """What is different, in words: "SBO 1024 instead of 64"."""
    said = [
        f"{word} {getattr(changed, name)} instead of {getattr(own, name)}"
        for name, word in _NAMES.items()
        if getattr(changed, name) != getattr(own, name)
    ]
    return " and ".join(said)


def _element(tile: TileBytes, line: int, run: int, byte: int) -> tuple[int, int]:
    """Row and column of the element that begins at a byte behind the beginning of a run of a line."""
    bits = tile.format.bits if tile.format.bits < 8 else tile.format.container_bits
    along = (run * tile.size + byte) * 8 // bits
    return (line, along) if tile.major == "K" else (along, line)
