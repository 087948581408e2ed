"""Every known rule of a problem: how each operand may be read, and how often each k may be taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tcsim.diagnosis.counts import Count, counts
from tcsim.diagnosis.maps import Rule, depth_rules, line_rules, memory_rules, within
from tcsim.diagnosis.parts import data_rules, part_rules
from tcsim.diagnosis.pipelines import sequence_rules
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.shared_maps import shared_rules
from tcsim.diagnosis.tile_maps import tile_rules
from tcsim.numbers.formats import Format

_PACKED = "{x}: elements packed in another order"
_PACKING = "look at what packs elements into words: the first belongs into the low bits"
ROWS: tuple[Rule, ...] = (
    Rule(_PACKED, "the two elements of each pair along K are exchanged", _PACKING, lambda r, k, o: (r, k ^ 1), 8),
    Rule(_PACKED, "each four elements along K are in reverse order", _PACKING, lambda r, k, o: (r, k ^ 3), 8),
    Rule(
        _PACKED, "the two halves of each four elements along K are exchanged", _PACKING, lambda r, k, o: (r, k ^ 2), 8
    ),
    Rule(_PACKED, "each eight elements along K are in reverse order", _PACKING, lambda r, k, o: (r, k ^ 7), 8),
)
"""Rules that are the same for every size. They come after the same said of registers."""


def _in_tiles(count: int, depth: int, chunk: int, described: bool) -> Iterator[Rule]:
    yield from tile_rules(count, depth, chunk, described)
    yield from ROWS


def rules_of(problem: Problem) -> dict[str, tuple[Rule, ...]]:
    """Of operand a and of b, the commonest first."""
    machine = problem.machine
    step, padded = machine.shape[2], problem.b.shape[1]
    depth = problem.length
    sizes = problem.sizes
    described = machine.descriptor is not None or hasattr(machine.instruction, "fetch")
    found = {}
    for name, count, others in (("a", *sizes), ("b", *sizes[::-1])):
        chunk = 128 // stored_bits(machine.formats[name], step)
        more: list[Rule] = []
        parts = []  # (what lies in memory of its own, elements of it along K, of a step)
        if problem.scales is not None:
            parts.append(("scale", -(-depth // machine.block), machine.blocks, depth, step))
        sparse = problem.positions is not None and problem.scales is None and name == "a"
        if sparse:
            parts.append(("metadata", machine.width(depth), machine.kept, machine.width(depth), machine.kept))
        for part, along, each, width, own_step in parts:
            more += part_rules(part, count, others, along, each)
            more += data_rules(count, width, others, chunk, own_step)
            more += [replace(rule, part="data") for rule in _in_tiles(count, width, chunk, described)]
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
            *(() if problem.scales is not None else _in_tiles(count, depth, chunk, described)),
        )
    return found


def counts_of(problem: Problem) -> tuple[Count, ...]:
    """How K may be miscounted."""
    padded = problem.b.shape[1]
    return tuple(counts(padded, problem.machine.shape[2], problem.length))


def stored_bits(format: Format, step: int) -> int:
    """Bits of an element in memory; fp4 is packed where an instruction takes 64 of K."""
    packed = format.bits == 4 and (format.kind != "float" or step >= 64)
    return 4 if packed else format.container_bits
