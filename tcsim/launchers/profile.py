"""What a launch costs, line by line: counters, the bound on its time, advice; and two such answers side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from tcsim.core.array_files import open_file
from tcsim.core.errors import OperandError, shortened
from tcsim.core.texts import LARGEST, parsed_json
from tcsim.inspection.counters_view import SHOWN, bound_line, costliest
from tcsim.inspection.counters_view import facts as facts_of
from tcsim.inspection.report import Facts, Lines, Mark, Report, Table, table
from tcsim.inspection.three_lines import at, three_lines
from tcsim.launchers.check import Quotes
from tcsim.launchers.launched import extents
from tcsim.layouts.banks import BANKS, INACTIVE, WARP_LANES, WORD_BYTES
from tcsim.ptx import Run
from tcsim.ptx.counters import rules
from tcsim.ptx.counters.assembled import assembled
from tcsim.ptx.counters.counters import Counters
from tcsim.ptx.counters.machine import SINGLE, Machine, machine

SCHEMA = 1
"""Of `Profile.as_dict`: raised when a key goes or changes its meaning."""
_KNOWN = {"exact": "exact", "approximate": "about"}
ASSEMBLERS = "tcsim.machine"
"""The entry points that assemble PTX (`hwkernels.device.lined`)."""


@dataclass(frozen=True, eq=False)
class Profile:
    """A launch that was counted."""

    file: str
    run: Run
    grid: Sequence[int]
    block: Sequence[int]
    machine: Machine | None = None  # its machine code, executed
    takes: str = ""  # what ptxas says of it

    def assembled(self) -> Profile:
        """The same with the machine code that ptxas makes of it. Raises OperandError where no package brings an assembler, and what that raises."""
        from importlib.metadata import entry_points  # 15 ms, where it is asked for

        found = list(entry_points(group=ASSEMBLERS))
        if not found:
            raise OperandError("profile: --machine needs an assembler; valid: pip install 'tcsim[assemble]'")
        made = found[0].load()(self.run.text, self.run.kernel, self.run.arch)
        return self.executed(
            made.listing, made.registers, f"{made.registers} registers, {made.spilled} bytes spilled ({made.assembler})"
        )

    def executed(self, listing: str, registers: int, takes: str = "") -> Profile:
        """The same with machine code: a listing that `nvdisasm -gp -c` prints, and the registers of a thread."""
        counters = self.counters
        done = {line: own[rules.INSTRUCTIONS] for line, _, own in counters.by_line() if rules.INSTRUCTIONS in own}
        counts = dict.fromkeys(counters.lines, 0) | done
        acted = {line: counters.tally.acted.get(line, 0) for line, guarded in counters.lines.items() if guarded}
        warps = prod(self.grid) * -(-prod(self.block) // WARP_LANES)
        single = {line for line, item in counters.tally.items.items() if item.opcode.startswith(SINGLE)}
        found = machine(
            listing, self.run.kernel, counts, warps, acted, counters.tally.parted, single, counters.undecided.keys()
        )
        tally, estimated = assembled(counters.tally, found.instructions)
        shape = replace(counters.shape, registers=registers)
        known = replace(counters, tally=tally, estimated=estimated, shape=shape)
        return replace(self, run=replace(self.run, counters=known), machine=found, takes=takes)

    @property
    def counters(self) -> Counters:
        """Of the run. Raises OperandError for one that did not count."""
        if self.run.counters is None:
            raise OperandError(f"profile: {self.run.kernel} ran without counters=True")
        return self.run.counters

    @cached_property
    def text(self) -> list[str]:
        """The lines of the PTX."""
        return self.run.text.splitlines()

    def line(self, number: int) -> str:
        """A line of the PTX."""
        return self.text[number - 1].strip() if 0 < number <= len(self.text) else ""

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "schema": SCHEMA, "file": self.file, "kernel": self.run.kernel, "grid": list(self.grid), "block": list(self.block),
            "completed": self.run.completed, **self.counters.as_dict(), "machine": None if self.machine is None else self.machine.as_dict(),
        }  # fmt: skip

    @property
    def time(self) -> str:
        """The bound in a line."""
        return bound_line(self.counters)

    def report(self, verbose: bool = True) -> Report:
        """What a reader is shown: what costs more than it must, and which lines cost most; verbose: the banks and every counter, too."""
        counters = self.counters
        facts = [
            ("launch", f"grid {extents(self.grid)}, block {extents(self.block)}"),
            *facts_of(counters),
        ]
        if not self.run.completed:
            facts.insert(0, ("completed", f"no: {self.run.cause}"))
        parts: list[Any] = [Facts(tuple(facts))]
        parts += self._advice()
        parts.append(costliest(counters, self._quoted))
        parts += self._banks() if verbose else []
        if self.machine is not None:
            facts = [("executed", f"{self.machine.executed:,} by warps"), ("takes", self.takes)]
            mix = table(
                ("opcode", "executed"),
                [(name, f"{count:,}") for name, count in list(self.machine.mix.items())[:SHOWN]],
                right=(1,),
            )
            parts += [Facts(tuple(facts), "Machine instructions"), mix]
        if not verbose:
            return Report(f"{self.run.kernel} on {self.run.arch}", tuple(parts))
        rows = [(name, f"{value:,}", _KNOWN[counters.exactness(name)]) for name, value in counters.items()]
        parts.append(table(("counter", "value", "known"), rows, "Counters", right=(1,), whole=(0, 1, 2)))
        for title, reasons in (("Not known", counters.unknown), ("Perhaps more on a GPU", counters.doubts)):
            said = tuple(f"{name}: {', '.join(own)}" for name, own in reasons.items())
            parts += [Lines(said, f"{title}, because of", wrap=True)] * bool(said)
        return Report(f"{self.run.kernel} on {self.run.arch}", tuple(parts))

    def _advice(self) -> list[Lines]:
        """Three lines for each cause; what is said of several instructions of one line of the source is said once."""
        found: dict[tuple[str, str, str], list[int]] = {}
        for own in self.counters.advice:
            found.setdefault((own.source or str(own.line), own.reason, own.change), []).append(own.line)
        head = "Where it costs more than it must, the worst first"
        return [
            Lines(
                three_lines(
                    reason + f", in each of {len(lines)} instructions" * (len(lines) > 1), self._place(lines), change
                ),
                "" if place else head,
            )
            for place, ((_, reason, change), lines) in enumerate(list(found.items())[:SHOWN])
        ]

    def _place(self, lines: Sequence[int]) -> str:
        """Where advice for instructions of one line of the source belongs."""
        if not lines[0]:
            return "the launch"
        item = self.counters.tally.items[lines[0]]
        source = item.source.places[-1] if item.source else None
        own = self._quotes.place(self.run.text, lines[0], source)
        where = at(lines[0], source, own.source_text, own.text)
        return (
            where.replace(f"(PTX line {lines[0]})", f"(PTX lines {', '.join(map(str, sorted(lines)))})")
            if lines[1:]
            else where
        )

    @cached_property
    def _quotes(self) -> Quotes:
        return Quotes(self.file)

    def _quoted(self, line: int, source: str) -> str:
        """The line of the source, else that of the PTX."""
        own = self._quotes.place(self.run.text, line, source or None)
        return own.source_text or own.text

    def _banks(self) -> list[Table]:
        """Of the worst shared access: which lanes meet in which bank."""
        for own in self.counters.advice:
            operation, width, sides = self.counters.tally.samples.get(own.line, ("", 0, ()))
            if "conflict" in own.reason and sides:
                rows = sides[-1][0]
                lanes: dict[int, list[int]] = {}
                for lane, address in enumerate(rows.tolist()):
                    for word in range(max(1, width // WORD_BYTES)) if address != INACTIVE else ():
                        lanes.setdefault((address // WORD_BYTES + word) % BANKS, []).append(lane)
                cells = [
                    (bank, len(found), _runs(found))
                    for bank, found in sorted(lanes.items(), key=lambda item: (-len(item[1]), item[0]))[:8]
                ]
                title = f"Banks of an access of line {own.line} ({operation}, {width} bytes a lane)"
                marks = tuple((Mark(f"bank{bank}"), Mark(), Mark()) for bank, _, _ in cells)
                return [table(("bank", "words", "lanes"), cells, title, right=(0, 1), marks=marks)]
        return []


def _runs(lanes: Sequence[int]) -> str:
    """Lanes as one reads them.

    >>> _runs([0, 1, 2, 8, 16])
    '0-2, 8, 16'
    """
    found: list[list[int]] = []
    for lane in sorted(set(lanes)):
        if found and lane == found[-1][1] + 1:
            found[-1][1] = lane
        else:
            found.append([lane, lane])
    return ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in found)


def compared(now: Mapping[str, Any], path: str) -> Report:
    """Counters and bound beside those of an answer that was written with --json. Raises OperandError for a file that is none."""
    try:
        with open_file(path) as file:
            before = parsed_json(file.read(LARGEST + 1), path, LARGEST)
        old, new = before["counters"], now["counters"]
        if before["schema"] != SCHEMA:
            raise OperandError(f"profile: {path!r} has schema {shortened(before['schema'])}; valid: {SCHEMA}")
        bounds = [own["bound"]["cycles"] if own["bound"] else 0.0 for own in (before, now)]
        rows = [("bound, cycles", f"{bounds[0]:,.0f}", f"{bounds[1]:,.0f}", _change(*bounds))] if any(bounds) else []
        for name in sorted(old.keys() | new.keys()):
            one, two = old.get(name, 0), new.get(name, 0)
            if one != two:
                rows.append((name, f"{one:,}", f"{two:,}", _change(one, two)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, OperandError):
            raise
        raise OperandError(
            f"profile: {path!r} is not an answer of tcsim profile --json: {shortened(str(error))}"
        ) from None
    return Report(
        f"{now['kernel']}: before and after",
        (table(("counter", "before", "after", "change"), rows, right=(1, 2, 3), whole=(1, 2, 3)),),
    )


def _change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.0f} %" if before else "new"
