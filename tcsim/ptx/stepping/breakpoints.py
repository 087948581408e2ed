"""Where a stepped launch stops: lines, hazards, phases of mbarriers, conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tcsim.core.errors import listing, shortened
from tcsim.memory.mbarrier_bits import counts
from tcsim.model.statement import Location
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.stepping.stopped import Stopped

Shape = tuple[int, int, int]


class Breakpoint:
    """Something that stops a launch before an instruction."""

    def holds(self, session: Stopped, block: Block, site: Site, mask: Array) -> bool:
        """Whether it stops before an instruction that some threads of a block are about to execute."""
        raise NotImplementedError

    def started(self, session: Stopped) -> None:
        """The launch is about to go on."""


@dataclass(frozen=True)
class Line(Breakpoint):
    """A line of the PTX text, for a block or warp if they are given."""

    line: int
    block: Shape | None = None
    warp: int | None = None

    def holds(self, session: Stopped, block: Block, site: Site, mask: Array) -> bool:
        """Whether threads that are meant come to the line."""
        return site.item.line == self.line and _meant(self, block, mask)

    def __str__(self) -> str:
        return f"line {self.line}" + _whose(self)


@dataclass(frozen=True)
class Source(Breakpoint):
    """A line of the source that PTX was compiled from: "file.cu:12", or the number alone for any file. It stops where threads enter it.

    What was inlined at the line counts, and the file may have folders or none.
    """

    place: str
    block: Shape | None = None
    warp: int | None = None

    def holds(self, session: Stopped, block: Block, site: Site, mask: Array) -> bool:
        """Whether threads that are meant come to the line."""
        source = site.item.source
        return source is not None and self.names(source) and _meant(self, block, mask)

    def names(self, source: Location) -> bool:
        """Whether it is a line of the source, or one where what is inlined there was called."""
        file, _, line = self.place.rpartition(":")
        return any(str(own.line) == line and same_file(own.file, file) for own in source.chain)

    def missing(self, sources: Iterable[Location]) -> str:
        """Why it can never stop: no instruction is of that line; empty if one is."""
        every = list(sources)
        if any(map(self.names, every)):
            return ""
        if not every:
            return "the PTX has no .loc; valid: what is compiled with -lineinfo, or a line of the PTX"
        file, _, line = self.place.rpartition(":")
        places = {(own.file, own.line) for source in every for own in source.chain}
        lines = sorted({own for name, own in places if same_file(name, file)})
        if not lines:
            return f"no instruction is of {shortened(file)}; valid: {listing(sorted({name for name, _ in places}))}"
        wanted = int(line) if line.isascii() and line.isdigit() and len(line) < 10 else 0
        near = sorted(sorted(lines, key=lambda own: abs(own - wanted))[:6])
        return f"no instruction is of line {shortened(line)}; nearest: {', '.join(map(str, near))}"

    def __str__(self) -> str:
        return f"source line {self.place}" + _whose(self)


@dataclass(frozen=True)
class OnHazard(Breakpoint):
    """The first hazard since the launch went on; any, or one of a name. A fault ends the launch in any case."""

    name: str | None = None

    def holds(self, session: Stopped, block: Block, site: Site, mask: Array) -> bool:
        """Whether there is one more."""
        return any(self.name in (None, hazard.name) for hazard in session.new_hazards)

    def __str__(self) -> str:
        return f"hazard {self.name or 'of any name'}"


@dataclass
class Phase(Breakpoint):
    """An mbarrier of the first block that has it: its phase under way changes, or becomes the one that is given (0 or 1)."""

    address: int
    phase: int | None = None
    block: Shape | None = None

    def __post_init__(self) -> None:
        self._last: dict[int, int] = {}

    def holds(self, session: Stopped, block: Block, site: Site, mask: Array) -> bool:
        """Whether the phase has changed since the launch went on."""
        for own in session.blocks:
            if (self.block is not None and own.index != self.block) or self.address not in own.mbarriers.live:
                continue
            now = _phase(own, self.address)
            before = self._last.setdefault(own.number, now)
            self._last[own.number] = now
            if now != before and self.phase in (None, now):
                return True
        return False

    def started(self, session: Stopped) -> None:
        """Remember the phases."""
        live = (own for own in session.blocks if self.address in own.mbarriers.live)
        self._last = {own.number: _phase(own, self.address) for own in live}

    def __str__(self) -> str:
        return f"mbarrier {self.address:#x}" + ("" if self.phase is None else f" in phase {self.phase}")


@dataclass(frozen=True)
class When(Breakpoint):
    """A condition: a function of the session, which may look at registers and memory. It is asked before every instruction."""

    condition: Callable[[Any], Any]
    name: str = "condition"

    def holds(self, session: Stopped, block: Block, site: Site, mask: Array) -> bool:
        """Whether the condition holds."""
        return bool(self.condition(session))

    def __str__(self) -> str:
        return self.name


def same_file(own: str, given: str) -> bool:
    """Whether a name of a file means one of the PTX: as many folders as both have are the same.

    >>> same_file("/src/gemm.cu", "gemm.cu"), same_file("gemm.cu", "./src/gemm.cu"), same_file("a/gemm.cu", "b/gemm.cu")
    (True, True, False)
    """
    if not given:
        return True
    one, other = (PurePosixPath(name).parts[::-1] for name in (own, given))
    return all(x == y for x, y in zip(one, other, strict=False))


def _phase(block: Block, address: int) -> int:
    return counts(block.mbarriers.word(block.rank << 24 | address), block.arch)["phase"]


def _meant(own: Any, block: Block, mask: Array) -> bool:
    if own.block is not None and tuple(own.block) != block.index:
        return False
    return bool(mask.any() if own.warp is None else mask[own.warp * LANES : (own.warp + 1) * LANES].any())


def _whose(own: Any) -> str:
    found = "" if own.block is None else f", block {','.join(map(str, own.block))}"
    return found + ("" if own.warp is None else f", warp {own.warp}")
