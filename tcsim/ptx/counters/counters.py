"""The counters of a run: a mapping by Nsight Compute's names, by line, by source line and by block, and what follows from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.display import Shown
from tcsim.core.errors import OperandError, listing, nearest
from tcsim.model.statement import Symbol
from tcsim.ptx.compile.calls import PROVIDED
from tcsim.ptx.compile.ordinary import ordinary
from tcsim.ptx.counters import rules
from tcsim.ptx.counters.advice import Advice, Shape, advise
from tcsim.ptx.counters.bound import Bound, bound_of, cost
from tcsim.ptx.counters.counting import kinds
from tcsim.ptx.counters.occupancy import Occupancy, occupancy
from tcsim.ptx.counters.rules import OPERATIONS
from tcsim.ptx.counters.tally import Tally
from tcsim.ptx.counters.undecided import undecided
from tcsim.ptx.text.syntax import Function, Instruction

_COLD = ("lts__",)
"""Beginnings of counters that caches lower: what the rules give is what a cold cache is asked for, and at the most."""
_EVERY = frozenset(rules.UNSURE).union(*({rule.counter for rule in own.rules} for own in OPERATIONS.values()))
ORDER = "order of threads"
"""Why a counter is doubted that lines of `undecided` raise."""


def _sum(values: Mapping[str, float], *names: str) -> float:
    return sum(values.get(name, 0) for name in names)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclass(eq=False)
class Counters(Shown, Mapping[str, int]):
    """What a GPU's counters would say of a launch.

    A counter that an access changes in a way that no rule gives is missing (`unknown`). Names that begin with `ptx__` are ours: what PTX executes.

    >>> from tcsim.ptx import Memory, parse
    >>> text = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() { .reg .b32 %r<3>; .shared .b32 s[64]; mov.u32 %r1, %tid.x; "
    >>> text += "\\nmad.lo.u32 %r2, %r1, 8, 1024;\\nst.shared.u32 [%r2], %r1; ret; }"
    >>> counters = parse(text).kernel().launch(Memory(), [], block=(32, 1, 1), dynamic_smem=0, counters=True).counters
    >>> name = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
    >>> counters[name], counters.exactness(name), counters.by_line()[0][0]
    (2, 'exact', 6)
    """

    tally: Tally
    arch: str
    shape: Shape
    lines: Mapping[int, bool] = field(
        default_factory=dict
    )  # of the PTX that have an instruction: whether with a predicate
    functions: tuple[Function, ...] = ()  # of its program
    estimated: Mapping[str, Set[str]] = field(
        default_factory=dict
    )  # counters that machine code makes an estimate, and why

    @cached_property
    def unknown(self) -> Mapping[str, tuple[str, ...]]:
        """Counters that are missing, and the kinds of access that are why."""
        found = defaultdict(set)
        for own in self.tally.operations.values():
            for name in own:
                for counter in OPERATIONS[name].unknown:
                    found[counter].add(name)
        return {counter: tuple(sorted(own)) for counter, own in sorted(found.items())}

    @cached_property
    def undecided(self) -> dict[int, Instruction]:
        """Instructions that are executed as often as the order of threads decides, by line (`tcsim.ptx.counters.undecided`)."""
        return undecided(self.functions)

    @cached_property
    def doubts(self) -> Mapping[str, tuple[str, ...]]:
        """Counters that a GPU may count more of, or that are an estimate, and why: kinds of access, and what else."""
        found = defaultdict(set)
        for operations in self.tally.operations.values():
            for operation in operations:
                for counter in OPERATIONS[operation].more:
                    found[counter].add(operation)
        for item in self.undecided.values():
            for operation in kinds(item):
                for rule in OPERATIONS[operation].rules:
                    found[rule.counter].add(ORDER)
        for counter, reasons in self.estimated.items():
            found[counter] |= reasons
        bodies = (item for function in self.functions for item in function.body if item.line in self.tally.lines)
        calls = (item for item in bodies if ordinary(item.opcode).control == "call")
        driver = {own.name for item in calls for own in item.operands if isinstance(own, Symbol)} & PROVIDED.keys()
        for counter in _EVERY if driver else ():
            found[counter] |= driver
        return {counter: tuple(sorted(own)) for counter, own in sorted(found.items()) if counter not in self.unknown}

    @cached_property
    def _totals(self) -> dict[str, int]:
        total: defaultdict[str, int] = defaultdict(int)
        for own in self.tally.lines.values():
            for counter, value in own.items():
                total[counter] += value
        return {counter: value for counter, value in sorted(total.items()) if counter not in self.unknown}

    def __getitem__(self, name: str) -> int:
        return self._totals[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._totals)

    def __len__(self) -> int:
        return len(self._totals)

    def exactness(self, name: str) -> str:
        """How well a counter is known: "exact" if the rules of all accesses that it counts are, else "approximate".

        Raises OperandError for a counter that the run does not have.
        """
        if name not in self._totals:
            raise OperandError(
                f"counters: no {name!r}; nearest: {listing(nearest(name, self._totals)) or 'there is none'}"
            )
        if name.startswith(_COLD):
            return "approximate"
        doubted = name in self.doubts or name in rules.UNSURE
        return "exact" if self.arch == "sm_90" and self.rule_status(name) == "exact" and not doubted else "approximate"

    def rule_status(self, name: str) -> str:
        """The same of the rules alone: of a kernel that does nothing else, and finds nothing in a cache."""
        every = {OPERATIONS[operation] for own in self.tally.operations.values() for operation in own}
        states = {rule.status for own in every for rule in own.rules if rule.counter == name}
        return "exact" if states <= {"exact"} else "approximate"

    @property
    def occupancy(self) -> Occupancy | None:
        """How many blocks a multiprocessor holds, as far as the PTX says how many registers a thread has; None for an arch that is not known."""
        return occupancy(self.arch, self.shape.threads, self.shape.registers, self.shape.shared)

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """What would cost less, the costliest first (`tcsim.ptx.counters.advice`)."""
        return advise(self.tally, self.arch, self.shape)

    def of_block(self, name: str) -> npt.NDArray[np.int64]:
        """A counter of each block of the grid, x fastest."""
        found = self.tally.by_block.get(name)
        return np.zeros(self.tally.blocks, np.int64) if found is None else found

    def by_line(self) -> list[tuple[int, str, dict[str, int]]]:
        """(line of the PTX, source line or "", counters) of each line that did something, the costliest first."""
        rows = []
        for line, own in self.tally.lines.items():
            source = self.tally.items[line].source
            rows.append((line, source.places[-1] if source else "", dict(own)))
        return sorted(rows, key=lambda row: (-cost(row[2], self.arch), row[0]))

    def by_source(self) -> list[tuple[tuple[str, ...], dict[str, int]]]:
        """(source line with the call sites that it was inlined at, counters), the costliest first; lines without .loc are left out."""
        found: defaultdict[tuple[str, ...], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for line, own in self.tally.lines.items():
            source = self.tally.items[line].source
            for counter, value in own.items() if source else ():
                found[source.places if source else ()][counter] += value
        return sorted(
            ((place, dict(own)) for place, own in found.items()), key=lambda row: (-cost(row[1], self.arch), row[0])
        )

    @cached_property
    def bound(self) -> Bound | None:
        """The least time that a GPU's units need for what was counted; None where the arch was not measured."""
        return bound_of(self._totals, self.tally.by_block, self.tally.blocks, self.arch)

    @property
    def derived(self) -> dict[str, float]:
        """What people ask for; what has nothing to divide by is left out."""
        own = self._totals
        loads, stores = (
            (own.get(f"{rules.REQUESTS}{kind}.sum", 0), own.get(f"{rules.SECTORS}{kind}.sum", 0))
            for kind in ("ld", "st")
        )
        moved = 32 * (
            loads[1] + stores[1] + _sum(own, f"{rules.SECTORS}red.sum", f"{rules.SECTORS}atom.sum", *rules.COPY_SECTORS)
        )
        moved += _sum(own, rules.TMA_BYTES, rules.STORED_BYTES)
        found = {
            "shared: ways of conflict": _ratio(own.get(rules.SHARED_WAVES, 0), own.get(rules.IDEAL, 0)),
            "global load: sectors per request": _ratio(loads[1], loads[0]),
            "global store: sectors per request": _ratio(stores[1], stores[0]),
            "L1 and L2: bytes": moved or None,
            "tensor: operations": own.get(rules.FLOPS),
            "tensor: operations per byte": _ratio(own.get(rules.FLOPS, 0), moved) if own.get(rules.FLOPS) else None,
            "lanes per instruction": _ratio(own.get(rules.THREADS, 0), own.get(rules.INSTRUCTIONS, 0)),
        }
        return {name: value for name, value in found.items() if value is not None}

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "arch": self.arch,
            "counters": dict(self._totals),
            "exactness": {name: self.exactness(name) for name in self._totals},
            "unknown": {name: list(own) for name, own in self.unknown.items()},
            "doubts": {name: list(own) for name, own in self.doubts.items()},
            "derived": self.derived,
            "lines": [{"line": line, "source": source, "counters": own} for line, source, own in self.by_line()],
            "advice": [own.as_dict() for own in self.advice],
            "occupancy": None if self.occupancy is None else vars(self.occupancy),
            "bound": None if self.bound is None else self.bound.as_dict(),
        }
