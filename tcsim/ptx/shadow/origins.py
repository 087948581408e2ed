"""Where in global memory the words of shared memory were copied from: what tells a wrong matrix descriptor without any expected result.

The elements of a tile that is read through a descriptor have origins: the places that cp.async, a bulk copy or TMA copied them from. In
a right tile these are the rows and columns of a matrix: the same distance from each row to the next, and neighbours in a row. If they are
not, and would be with another LBO, SBO or swizzle, that field is wrong. What threads stored has no origin, and nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.core.errors import TcsimError
from tcsim.descriptors.forms import CORE_BYTES, CORE_ROWS, form_of
from tcsim.descriptors.tile_bytes import TileBytes
from tcsim.model.effects import Access
from tcsim.ptx.convergence import row_of
from tcsim.ptx.shadow.places import parts
from tcsim.ptx.threads import Array

if TYPE_CHECKING:
    from tcsim.ptx.compiled import Compiled
    from tcsim.ptx.pending import Flight
    from tcsim.ptx.shadow.checker import Checker

_WORD = 4
_STRIDES = {"stride_byte_offset": "SBO", "leading_byte_offset": "LBO"}
_MOST_STRIDES = 64  # that are tried
_MOST_LOOKS = 8  # at different descriptors, in one cluster


def reads_tiles(program: Compiled) -> bool:
    """Whether a program multiplies tiles of shared memory."""
    opcodes = {item.opcode for lines in program.lines for item in lines if item is not None}
    return any(getattr(row_of(opcode), "family", "") in ("wgmma", "tcgen05.mma") for opcode in opcodes)


@dataclass
class Numbered:
    """Memory in which each byte is one byte of its own number, from 1 on: what a copy does to it says where each byte goes."""

    plane: int  # which byte of the number

    def read(self, access: Access) -> Array:
        """The bytes of an access; those that do not count are 0."""
        shape = (*access.address.shape, access.size)
        found = ((np.arange(int(np.prod(shape))).reshape(shape) + 1) >> 8 * self.plane).astype(np.uint8)
        return found if access.mask is None else np.where(access.mask, found, np.uint8(0))


class Origins:
    """The origins of the words of shared memory of a cluster."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.active = reads_tiles(checker.cluster.blocks[0].program)
        self._from: dict[int, Array] = {}  # by rank: 1 + the global address of each word; 0: not known
        self._who: dict[int, Array] = {}  # who had written the word then, as `Words` has it
        self._orders: dict[Any, Array] = {}  # of copies that are alike: for each byte written, which byte read it is
        self._done: set[tuple[int, int, int]] = set()  # instructions, ranks and descriptors that have been looked at
        self._looks = 0

    def _kept(self, rank: int) -> tuple[Array, Array]:
        if rank not in self._from:
            count = -(-self.checker.cluster.blocks[rank].shared_bytes // _WORD)
            self._from[rank], self._who[rank] = np.zeros(count, np.int64), np.zeros(count, np.int32)
        return self._from[rank], self._who[rank]

    def copied(self, flight: Flight, line: int) -> None:
        """Work copies global memory to shared memory."""
        pending = flight.pending
        if not self.active or len(pending.reads) != 1 or len(pending.writes) != 1:
            return
        (source,), (target,) = pending.reads, pending.writes
        if source.space not in ("global", "generic") or source.tile is not None or target.size % _WORD:
            return
        order = self._order(flight, source, target, line)
        read = (source.address.reshape(-1, 1) + np.arange(source.size)).reshape(-1)
        for rank, offsets, size, _, _ in parts(flight.block, flight.bound, target, flight.threads, flight.asked):
            if len(offsets) * size != len(order):
                continue
            places = (offsets[:, None] + np.arange(0, size, _WORD)).reshape(-1)
            first = order[::_WORD]
            origin, who = self._kept(rank)
            origin[places // _WORD] = np.where(first > 0, read[np.minimum(first, len(read)) - 1] + 1, 0)
            words = self.checker.words("shared", rank)
            who[places // _WORD] = words.who[places // words.unit]

    def _order(self, flight: Flight, source: Access, target: Access, line: int) -> Array:
        key = (
            line, source.size, target.size, target.address.tobytes(), (source.address - source.address.min()).tobytes(),
            None if source.mask is None else np.asarray(source.mask).tobytes(),
        )  # fmt: skip
        found = self._orders.get(key)
        if found is None:
            planes = 1 + (source.address.size * source.size).bit_length() // 8
            found = np.zeros(0, np.int64)
            for plane in range(planes):
                memory: Any = Numbered(plane)
                (write,) = flight.pending.finish(flight.pending.fetch(memory)).writes
                data = np.asarray(write.data, np.int64)
                data = data.reshape(-1, data.shape[-2] * data.shape[-1])[0]
                found = data if plane == 0 else found + (data << 8 * plane)
            self._orders[key] = found
        return found

    # --- tiles

    def read(self, flight: Flight, access: Access, line: int) -> None:
        """Work reads tiles through matrix descriptors."""
        tile = access.tile
        if not self.active or tile is None:
            return
        runs = tile.address.shape[-1]
        addresses = access.address.reshape(-1, runs)
        ranks = np.broadcast_to(access.cta if access.cta is not None else flight.block.rank, access.address.shape)
        descriptors = np.broadcast_to(np.asarray(tile.descriptor, np.uint64).reshape(-1), len(addresses))
        for address, rank, descriptor in zip(
            addresses, ranks.reshape(-1, runs)[:, 0].tolist(), descriptors.tolist(), strict=True
        ):
            if (line, rank, descriptor) in self._done or tile.lines <= CORE_ROWS:
                continue
            found = self._origins(rank, address)
            if not found[0]:
                continue
            self._done.add((line, rank, descriptor))
            if not _in_order(tile, found) and self._looks < _MOST_LOOKS:
                self._looks += 1
                self._report(flight, tile, descriptor, rank, found, line)

    def _origins(self, rank: int, address: Array) -> Array:
        origin, who = self._kept(rank)
        words = self.checker.words("shared", rank)
        at = address & 0xFFFFFF
        if (at // _WORD >= len(origin)).any():
            return np.zeros(len(at), np.int64)
        found: Array = np.where(who[at // _WORD] == words.who[at // words.unit], origin[at // _WORD], 0)
        return found

    def _strides(self, tile: TileBytes, rank: int, found: Array) -> list[int]:
        """How far behind the first element those lie that have to be at the beginning of other core matrices."""
        origin, _ = self._kept(rank)
        lines = found.reshape(tile.lines, -1)
        rows = lines[0, 0] + (lines[1, 0] - lines[0, 0]) * np.arange(CORE_ROWS, tile.lines, CORE_ROWS)
        columns = lines[0, 0] + tile.size * np.arange(1, lines.shape[1])
        first = np.flatnonzero(origin == lines[0, 0])[:1] * _WORD
        steps = np.flatnonzero(np.isin(origin, np.concatenate([rows, columns]))) * _WORD - first
        return np.unique(steps[(steps > 0) & (steps % CORE_BYTES == 0)]).tolist()[:_MOST_STRIDES]

    def _report(self, flight: Flight, tile: TileBytes, descriptor: int, rank: int, found: Array, line: int) -> None:
        for rule, said, other in _others(tile, descriptor, self._strides(tile, rank, found)):
            right = self._origins(rank, other.address)
            if not _in_order(tile, right):
                continue
            place = int(np.argmax(found != right))
            row, run = divmod(place, len(found) // tile.lines)
            text = (
                f"{self.checker.findings.opcode(line)} reads a tile through the descriptor {descriptor:#x}: row {row}, byte {run * tile.size} of it "
                f"was copied from {_place(tile, right, int(found[place]))}; {said} every element would be in its place"
            )
            thread = int(flight.threads[0])
            self.checker.findings.report(
                rule, text, line, 0, self.checker.index(flight.block), thread, descriptor=descriptor
            )
            return


def _others(tile: TileBytes, descriptor: int, strides: list[int]) -> Iterator[tuple[str, str, TileBytes]]:
    """The tile through descriptors that differ in one field, with the rule and the words for it."""
    _, form = form_of(tile.arch)
    for name, short in _STRIDES.items():
        field = form.field(name)
        now = field.take(descriptor)
        for value in strides:
            if value != now and value <= field.most:
                yield from _under(
                    tile,
                    "DESC_LBO_SBO",
                    f"with {short} {value} instead of {now}",
                    descriptor & ~field.mask | field.put(value),
                )
    field = form.field("swizzle")
    for mode, number in form.modes.items():
        if number != field.take(descriptor):
            yield from _under(
                tile, "DESC_SWIZZLE_MODE", f"with the swizzle {mode}", descriptor & ~field.mask | field.put(number)
            )


def _under(tile: TileBytes, rule: str, said: str, descriptor: int) -> Iterator[tuple[str, str, TileBytes]]:
    try:
        yield rule, said, tile.under(descriptor)
    except TcsimError:  # no such tile
        return


def _in_order(tile: TileBytes, found: Array) -> bool:
    """Whether all origins are known, and those of rows and columns of a matrix, whose rows do not overlap."""
    lines = found.reshape(tile.lines, -1)
    if not lines.all():
        return False
    steps = np.diff(lines[:, 0])
    apart = (steps == steps[:1]).all() and (np.abs(steps[:1]) >= lines.shape[1] * tile.size).all()
    return bool(apart and (np.diff(lines, axis=1) == tile.size).all())


def _place(tile: TileBytes, right: Array, origin: int) -> str:
    """Where an origin stands in the tile that would be right."""
    at = np.flatnonzero(right == origin)
    if not origin or not len(at):
        return "somewhere else"
    row, run = divmod(int(at[0]), len(right) // tile.lines)
    return f"what is row {row}, byte {run * tile.size}"
