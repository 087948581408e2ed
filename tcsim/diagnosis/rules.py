"""Every known rule of a problem: how each operand, its metadata and its scale factors may be read, and how often each k may be taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tcsim.diagnosis.maps import (
    ADVANCE,
    LATE,
    Ints,
    Rule,
    depth_rules,
    k_from,
    line_rules,
    lines_from,
    memory_rules,
    within,
)
from tcsim.diagnosis.pipelines import Count, counts, sequence_rules
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.shared_maps import shared_rules, tile_rules
from tcsim.numbers.formats import Format

_SIZES = (2, 4, 8, 16, 32, 64, 128, 256)
_SHIFTS = (1, 2, 4, -1, -2, -4)


def part_rules(part: str, count: int, others: int, depth: int, step: int) -> Iterator[Rule]:
    """Metadata or scale factors of other lines or of other blocks of K; depth and step count elements of theirs."""
    name = "scale_{x}" if part == "scale" else part
    line = "{line}" if part == "scale" else "row"
    block = "block" if part == "scale" else "K block"
    advice = f"look at the addresses that the {'scale factors' if part == 'scale' else part} of {{x}} come from"
    for rule in (*index_rules(count), *line_rules(count, others), *_interleaved(count)):
        if rule.rank < 3:
            yield replace(rule, mistake=f"{name} of another {line}", advice=advice, part=part)
    if part == "metadata":
        said = "it is ignored, or never loaded: the kept elements count as the first ones of each group, positions 0 and 1 of four"
        yield Rule("metadata not read", said, advice, lambda r, k, o: (r * 0 - 1, k), 1, part=part)
    k = np.arange(depth)
    for rule in (
        *index_rules(depth, True),
        *depth_rules(depth, step),
        *sequence_rules(depth, step),
        *_halves(depth, step),
    ):
        at = rule.where(k * 0, k, k * 0)[1]
        beyond = (at < 0) & ("none at" not in rule.detail)
        first, kind, detail = int(beyond.argmax()), f"of another {block}", rule.detail
        if (
            beyond.any() and beyond[first:].all() and (at == k)[~beyond].all()
        ):  # where the others would be does not show
            kind = "missing in a part of K"
            detail = f"{block}s {first}-{depth - 1} of {depth}, the last, are not read: behind the end, as with {rule.detail}"
        elif beyond.any():
            detail = f"{rule.detail}; from {first} on it is not read: behind the end"
        rank = max(rule.rank, 2)  # a wrong index into a table is the less plain explanation
        yield replace(rule, mistake=f"{name} {kind}", detail=detail, advice=advice, part=part, rank=rank)
    for rule in memory_rules(count, depth, others, 4, step):
        if "coordinates" not in rule.mistake:
            yield replace(rule, mistake=rule.mistake.replace("{x}", name), advice=advice, part=part)


def data_rules(count: int, depth: int, others: int, chunk: int, step: int) -> Iterator[Rule]:
    """Elements from other places, whose scale factors or metadata lie in memory of their own and are right."""
    advances = (
        rule for rule in depth_rules(depth, step) if rule.mistake == ADVANCE or (rule.mistake == LATE and rule.rank < 3)
    )
    listed = (*advances, *memory_rules(count, depth, others, chunk, step), *shared_rules(count, depth, chunk, step))
    yield from (replace(rule, part="data") for rule in listed)
    for rule in line_rules(count, others):
        yield replace(rule, detail=f"{rule.detail}; metadata or scale factors are right", part="data", lines_only=False)


def index_rules(count: int, along_k: bool = False) -> Iterator[Rule]:
    """Tables of `count` lines, or blocks of K, whose index is off, or counted for blocks of another size."""
    own = np.arange(count)

    def rule(said: str, source: Ints) -> Rule:
        source = np.where((source >= 0) & (source < count), source, -1)
        return Rule("", said, "", partial(k_from if along_k else lines_from, source), 2, lines_only=not along_k)

    for by in (by for by in _SHIFTS if abs(by) < count):
        way, end = ("early", "end") if by > 0 else ("late", "start")
        said = f"i takes that of i {'+' if by > 0 else '-'} {abs(by)}, off by {abs(by)} ({way}), and none at the {end}"
        yield rule(said, own + by)
        end = ("the last takes the first", "the first takes the last")[by < 0]
        yield rule(f"{said.partition(', and')[0]}: {end}", (own + by) % count)
    for size in (size for size in _SIZES if size < count):
        yield rule(f"one is used for {size}: i takes number i / {size}", own // size)
        yield rule(f"one is taken for 1 / {size}: i takes number {size} i", own * size)
        large = f"as if each were {'twice' if size == 2 else f'{size} times'} as large" + " along K" * along_k
        yield rule(f"always the first of every {size}, {large}", own // size * size)
        yield rule(f"always the last of every {size}", own // size * size + size - 1)
        said = f"groups of {size} begin 1 after another, not {size}: number {size} m + j is taken from m + j"
        yield rule(said, own // size + own % size)
    yield rule("always the first, as of a stride of 0", own * 0)


def _interleaved(count: int) -> Iterator[Rule]:
    """Tables of p x q that are read as q x p."""
    own = np.arange(count)
    for size in _SIZES:
        for part in _SIZES:
            if part < size <= count and size > 4:
                number, inner = size // part, own % size
                said = f"in every block of {size} in another order: i is taken from {number} (i % {part}) + i / {part}, interleaved or not"
                source = own - inner + inner % part * number + inner // part
                yield Rule("", said, "", partial(lines_from, np.where(source < count, source, -1)), 2, lines_only=True)


def _halves(depth: int, step: int) -> Iterator[Rule]:
    """Parts of what one instruction takes in each other's place."""
    own, size = np.arange(-(-depth // step) * step), step // 2
    while size > 0:
        said = f"in each {2 * size} along K the two halves are exchanged: look at the selector"
        yield Rule("", said, "", partial(k_from, own ^ size), 2)
        for again, source in (("second half is the first", own & ~size), ("first half is the second", own | size)):
            said = f"in each {2 * size} along K the {again} again: look at the selector, and at which lanes pass it"
            yield Rule("", said, "", partial(k_from, source), 3)
        size //= 2
    said = "in each four along K they are in reverse order: the bytes of a word"
    yield Rule("", said, "", lambda r, k, o: (r, k ^ 3), 2)


_PACKED = "{x}: elements packed in another order"
_PACKING = "look at what packs elements into words: the first belongs into the low bits"
_UNPACKED = "look at what unpacks {x}: the low and the high half of each byte or word"


def k_bits(kept: int, put: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """Every k with some bits cleared and some set."""
    return r, k & kept | put


ROWS: tuple[Rule, ...] = (
    Rule(_PACKED, "the two elements of each pair along K are exchanged", _PACKING, lambda r, k, o: (r, k ^ 1), 8),
    Rule(_PACKED, "each four elements along K are in reverse order", _PACKING, lambda r, k, o: (r, k ^ 3), 8),
    Rule(
        _PACKED, "the two halves of each four elements along K are exchanged", _PACKING, lambda r, k, o: (r, k ^ 2), 8
    ),
    *(
        Rule(_PACKED, f"the {own} of each pair along K is taken for both", _UNPACKED, partial(k_bits, *bits), 3)
        for own, bits in (("first", (~1, 0)), ("second", (~0, 1)))
    ),
    Rule(_PACKED, "each eight elements along K are in reverse order", _PACKING, lambda r, k, o: (r, k ^ 7), 8),
)
"""Rules that are the same for every size. They come after the same said of registers."""


def _in_tiles(count: int, depth: int, chunk: int, described: bool) -> Iterator[Rule]:
    yield from tile_rules(count, depth, chunk, described)
    yield from ROWS


def nibble_rules(count: int, depth: int) -> Iterator[Rule]:
    """Two elements of 4 bits in a byte that are neighbours along K, taken for neighbours along M or N, or the other way round."""
    advice = "look at which two elements of {x} share a byte: neighbours along K, or along M or N"
    for k_first in (True, False):
        how = "lines of K one after another" if k_first else "lines along M or N one after another"
        for held, read, along in (("K", "M or N", True), ("M or N", "K", False)):
            said = (
                f"a byte holds two neighbours along {held} and is read as if they were neighbours along {read} ({how})"
            )
            where = partial(_other_nibble, count, depth, k_first, along)
            yield Rule(_PACKED, said, advice, where, 4)


def _other_nibble(count: int, depth: int, k_first: bool, along: bool, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """The element of the byte and nibble that are read. along: two neighbours along K are held, two along the lines read."""
    row, at = (r // 2, k) if along else (r, k // 2)  # of the bytes as they are read
    nibble, (rows, wide) = (r % 2, (count // 2, depth)) if along else (k % 2, (count, depth // 2))
    place = row * wide + at if k_first else at * rows + row
    rows, wide = (count, depth // 2) if along else (count // 2, depth)  # as they are held
    row, at = (place // wide, place % wide) if k_first else (place % rows, place // rows)
    return (row, 2 * at + nibble) if along else (2 * row + nibble, at)


def rules_of(problem: Problem) -> dict[str, tuple[Rule, ...]]:
    """Of operand a and of b, the commonest first."""
    machine, sizes, depth = problem.machine, problem.sizes, problem.length
    step, padded = machine.shape[2], problem.b.shape[1]
    instruction = machine.instruction.mnemonic, machine.instruction.arch.name, str(machine.descriptor)
    key = (ROWS, instruction, sizes, depth, padded, problem.scales is None, problem.positions is None)
    if key in _MADE:
        return _MADE[key]
    described = machine.descriptor is not None or hasattr(machine.instruction, "fetch")
    found = {}
    for name, count, others in (("a", *sizes), ("b", *sizes[::-1])):
        chunk = 128 // stored_bits(machine.formats[name], step)
        more: list[Rule] = []
        nibbles = [*nibble_rules(count, depth)] if stored_bits(machine.formats[name], step) == 4 else []
        sparse = problem.positions is not None and problem.scales is None and name == "a"
        width, own_step = (machine.width(depth), machine.kept) if sparse else (depth, step)
        if sparse:
            more += part_rules("metadata", count, others, width, own_step)
        if (
            sparse or problem.scales is not None
        ):  # those, and factors, which are read off as tables, lie in memory of their own
            more += data_rules(count, width, others, chunk, own_step)
            tiles = (*_in_tiles(count, width, chunk, described), *nibbles)
            more += [replace(rule, part="data") for rule in tiles]
            more += sequence_rules(width, own_step, "data")
        if sparse:
            chunk *= step // machine.kept
        found[name] = (
            *line_rules(count, others),
            *depth_rules(depth, step, chunk),
            *sequence_rules(depth, step),
            *more,
            *(within(rule, depth, padded) for rule in memory_rules(count, depth, others, chunk, step)),
            *shared_rules(count, depth, chunk, step),
            *(() if problem.scales is not None else (*_in_tiles(count, depth, chunk, described), *nibbles)),
        )
    if len(_MADE) == _KEPT:
        del _MADE[next(iter(_MADE))]
    _MADE[key] = found
    return found


_KEPT = 8
_MADE: dict[Any, dict[str, tuple[Rule, ...]]] = {}
"""The rules of the last problems, which every pass of the search asks for."""


def counts_of(problem: Problem) -> tuple[Count, ...]:
    """How K may be miscounted."""
    return _counts(problem.b.shape[1], problem.machine.shape[2], problem.length)


@lru_cache(_KEPT)
def _counts(padded: int, step: int, depth: int) -> tuple[Count, ...]:
    return tuple(counts(padded, step, depth))


def stored_bits(format: Format, step: int) -> int:
    """Bits of an element in memory; fp4 is packed where an instruction takes 64 of K."""
    packed = format.bits == 4 and (format.kind != "float" or step >= 64)
    return 4 if packed else format.container_bits
