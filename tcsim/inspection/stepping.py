"""The commands of a stepper: a line of text to a session of `tcsim.ptx`, answered in lines of at most 80 columns and as plain data."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from tcsim.core.errors import OperandError, TcsimError, listing, nearest, shortened
from tcsim.descriptors.forms import Major
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.inspection.three_lines import lines_of
from tcsim.ptx import Hazard, OnHazard, Phase, Session
from tcsim.ptx.stepping.breakpoints import Line, When
from tcsim.ptx.stepping.state import Shown, Where
from tcsim.ptx.stepping.text import cut
from tcsim.ptx.stepping.why import Why

LONGEST = 1000
"""Letters of a command."""
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a command says."""

    command: str
    lines: tuple[str, ...]
    data: Any
    failed: bool = False  # whether the command was refused

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {"command": self.command, "failed": self.failed, "answer": self.data}


@dataclass(eq=False)
class Console:
    """A session and the commands that it takes."""

    session: Session
    why: Why | None = None  # the last answer of `why`
    ended: bool = field(default=False)  # whether `quit` was said

    def answer(self, line: str) -> Answer:
        """Do what a line says; wrong use is an answer too."""
        text = line.partition("#")[0].strip()[:LONGEST]
        words = text.split()
        if not words:
            return Answer("", (), None)
        name = _ALIASES.get(words[0], words[0])
        if name not in COMMANDS:
            close = listing(nearest(name, COMMANDS, 2))
            return _refused(text, f"no command {shortened(words[0])}; nearest: {close}; help lists all")
        try:
            lines, data = COMMANDS[name].function(self, words[1:])
        except TcsimError as error:
            return _refused(text, str(error))
        return Answer(text, tuple(cut(own) for own in lines), data)

    # --- going on

    def step(self, words: Sequence[str]) -> Said:
        """step [COUNT] [warp W]."""
        warp = _option(words, "warp")
        count = _numbers(_without(words, "warp"), 0, 1)
        return self._stood(self.session.step(warp, count=count[0] if count else 1))

    def source(self, words: Sequence[str]) -> Said:
        """Step to another line of the source."""
        return self._stood(self.session.step_source())

    def run(self, words: Sequence[str]) -> Said:
        """run [WHERE]: on to a breakpoint, a place, or the end."""
        return self._stood(self.session.run(_place(words) if words else None))

    def back(self, words: Sequence[str]) -> Said:
        """back [COUNT]."""
        count = _numbers(words, 0, 1)
        return self._stood(self.session.back(count[0] if count else 1))

    def go(self, words: Sequence[str]) -> Said:
        """goto POSITION."""
        return self._stood(self.session.go_to(_numbers(words, 1, 1)[0]))

    def restart(self, words: Sequence[str]) -> Said:
        """Begin again."""
        return self._stood(self.session.restart())

    def _stood(self, where: Where) -> Said:
        lines = where.lines()
        said = lines[:10] + ([f"   ... {len(where.threads)} places in all: where"] if len(lines) > 10 else [])
        return said + _last(self.session.hazards), where.as_dict()

    # --- breakpoints

    def breakpoint(self, words: Sequence[str]) -> Said:
        """break [WHERE]: list breakpoints, or make one."""
        if not words:
            found = {number: str(own) for number, own in self.session.breakpoints.items()}
            return [f"{number}  {text}" for number, text in found.items()] or ["no breakpoints"], found
        number = self.session.break_at(_place(words))
        never, said = self.session.never(number), f"breakpoint {number}: {self.session.breakpoints[number]}"
        return [said, *([f"   it never stops: {never}"] if never else [])], {"number": number, "never": never}

    def delete(self, words: Sequence[str]) -> Said:
        """delete NUMBER."""
        (number,) = _numbers(words, 1, 1)
        self.session.remove(number)
        return [f"breakpoint {number} is gone"], {"number": number}

    # --- looking

    def where(self, words: Sequence[str]) -> Said:
        """Where every thread stands."""
        return _shown(self.session.where())

    def listing(self, words: Sequence[str]) -> Said:
        """list [LINES]: the PTX around the next instruction."""
        around = _numbers(words, 0, 1)
        lines = self.session.listing(around[0] if around else 5)
        return lines or ["the launch has ended"], lines

    def register(self, words: Sequence[str]) -> Said:
        """reg NAME [warp W] [as TYPE]."""
        warp, type = _option(words, "warp"), _word(words, "as")
        (name,) = _exactly(_without(words, "warp", "as"), 1, "reg NAME [warp W] [as TYPE]")
        return _shown(self.session.registers(name, warp, type))

    def fragment(self, words: Sequence[str]) -> Said:
        """fragment LINE OPERAND [warp W] [as FORMAT]."""
        warp, format = _option(words, "warp"), _word(words, "as")
        line, operand = _exactly(_without(words, "warp", "as"), 2, "fragment LINE OPERAND [warp W] [as FORMAT]")
        return _shown(self.session.fragment(_number(line), operand, warp, format=format))

    def shared(self, words: Sequence[str]) -> Said:
        """shared [ADDRESS [SIZE]] [swizzle S]."""
        swizzle = _word(words, "swizzle") or "NONE"
        numbers = _numbers(_without(words, "swizzle"), 0, 2)
        address = numbers[0] if numbers else 1024
        size = numbers[1] if len(numbers) > 1 else 256
        return _shown(self.session.shared(address, size, swizzle=swizzle))

    def tile(self, words: Sequence[str]) -> Said:
        """tile ADDRESS ROWS COLUMNS FORMAT [pitch BYTES] [swizzle S], or tile descriptor VALUE ROWS K FORMAT [mn]."""
        swizzle, pitch = _word(words, "swizzle") or "NONE", _option(words, "pitch")
        rest = _without(words, "swizzle", "pitch")
        if rest[:1] == ["descriptor"]:
            major: Major = "MN" if rest[-1].lower() == "mn" else "K"
            given = rest[1:-1] if major == "MN" else rest[1:]
            value, rows, columns, format = _exactly(given, 4, "tile descriptor VALUE ROWS K FORMAT [mn]")
            arch = self.session.launch.arch
            descriptor = MatrixDescriptor.decode(_number(value), arch=arch)
            own = self.session.shared(
                tile=descriptor, rows=_number(rows), columns=_number(columns), format=format, major=major
            )
            return _shown(own)
        address, rows, columns, format = _exactly(rest, 4, "tile ADDRESS ROWS COLUMNS FORMAT [pitch BYTES] [swizzle S]")
        return _shown(
            self.session.shared(
                _number(address),
                rows=_number(rows),
                columns=_number(columns),
                format=format,
                swizzle=swizzle,
                pitch=pitch,
            )
        )

    def mbarriers(self, words: Sequence[str]) -> Said:
        """The mbarriers."""
        return _several(self.session.mbarriers(), "no mbarriers")

    def groups(self, words: Sequence[str]) -> Said:
        """The work in flight."""
        return _several(self.session.groups(), "nothing is in flight")

    def tmem(self, words: Sequence[str]) -> Said:
        """tmem [FIRST LAST] [as FORMAT]: columns of Tensor Memory."""
        format = _word(words, "as") or "f32"
        numbers = _numbers(_without(words, "as"), 0, 2)
        columns = (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 8)
        return _shown(self.session.tmem(columns, format=format))

    def memory(self, words: Sequence[str]) -> Said:
        """memory [NAME]: the arrays in global memory, or one of them."""
        if not words:
            named = list(self.session.arrays.values())
            formats = [own.format.name if own.format else f"b{8 * own.size}" for own in named]
            lines = [
                f"{own.name:12} {own.start:#x}  {' x '.join(map(str, own.shape))} {format}"
                for own, format in zip(named, formats, strict=True)
            ]
            data = [
                {"name": own.name, "address": own.start, "shape": list(own.shape), "format": format}
                for own, format in zip(named, formats, strict=True)
            ]
            return lines or ["no array has a name"], data
        (name,) = _exactly(words, 1, "memory NAME")
        return _shown(self.session.global_matrix(name))

    def hazards(self, words: Sequence[str]) -> Said:
        """What was wrong so far."""
        found = self.session.hazards
        lines = [line for own in found for line in wrap(str(own), 80, subsequent_indent="   ")]
        return lines or ["no hazards"], [own.as_dict() for own in found]

    # --- why

    def ask(self, words: Sequence[str]) -> Said:
        """why ELEMENT, why ADDRESS, or why LINE REGISTER LANE."""
        text = " ".join(words)
        if "[" in text:
            self.why = self.session.why(text)
        elif len(words) == 3:
            self.why = self.session.why(_number(words[0]), words[1], _number(words[2]))
        else:
            self.why = self.session.why(_numbers(words, 1, 1)[0])
        return self.why.lines(), self.why.as_dict()

    def expand(self, words: Sequence[str]) -> Said:
        """expand PATH: a part of the last tree."""
        if self.why is None:
            raise OperandError("expand: nothing was asked; valid: after why")
        (path,) = _exactly(words, 1, "expand PATH")
        part = self.why.expand(path)
        return part.lines(), part.as_dict()

    # --- the console

    def help(self, words: Sequence[str]) -> Said:
        """The commands."""
        return [f"{own.usage:34}{own.help}" for own in COMMANDS.values()], {
            name: own.usage for name, own in COMMANDS.items()
        }

    def quit(self, words: Sequence[str]) -> Said:
        """End."""
        self.ended = True
        self.session.close()
        return [], None


Said = tuple[Sequence[str], Any]


@dataclass(frozen=True)
class Command:
    """A command of the console."""

    usage: str
    help: str
    function: Callable[[Console, Sequence[str]], Said]


COMMANDS = {
    "step": Command("step [N] [warp W]", "N instructions, of a warp or of anyone (s)", Console.step),
    "source": Command("source", "on to another line of the source (n)", Console.source),
    "run": Command("run [WHERE]", "on to a breakpoint, a place or the end (c)", Console.run),
    "back": Command("back [N]", "N instructions back (b)", Console.back),
    "goto": Command("goto N", "where N instructions had begun", Console.go),
    "restart": Command("restart", "before the first instruction", Console.restart),
    "break": Command("break [WHERE]", "a breakpoint; the list without", Console.breakpoint),
    "delete": Command("delete NUMBER", "without this breakpoint", Console.delete),
    "where": Command("where", "threads, and what they wait for (w)", Console.where),
    "list": Command("list [N]", "PTX, N lines around (l)", Console.listing),
    "reg": Command("reg NAME [warp W] [as TYPE]", "a register of a warp (r)", Console.register),
    "fragment": Command("fragment LINE OPERAND [warp W]", "a matrix of an instruction (f)", Console.fragment),
    "shared": Command("shared [ADDRESS [SIZE]]", "bytes; swizzle 128B: before it", Console.shared),
    "tile": Command("tile ADDRESS ROWS COLUMNS FORMAT", "with pitch BYTES, swizzle 128B", Console.tile),
    "mbarriers": Command("mbarriers", "phases, arrivals, bytes (m)", Console.mbarriers),
    "groups": Command("groups", "copies and products in flight (g)", Console.groups),
    "tmem": Command("tmem [FIRST LAST] [as FORMAT]", "columns of Tensor Memory", Console.tmem),
    "memory": Command("memory [NAME]", "arrays in global memory", Console.memory),
    "hazards": Command("hazards", "what was wrong so far", Console.hazards),
    "why": Command("why ELEMENT", "what made c[0, 1], an address, or LINE REG LANE", Console.ask),
    "expand": Command("expand PATH", "a part of that tree (x)", Console.expand),
    "help": Command("help", "these lines", Console.help),
    "quit": Command("quit", "the end (q)", Console.quit),
}
"""By name, in the order in which they are listed."""
_WHERE = "WHERE: a line, file:line, hazard [NAME], mbarrier ADDRESS, if REG LANE == VALUE"
_ALIASES = {
    "s": "step", "n": "source", "c": "run", "b": "back", "w": "where", "l": "list", "r": "reg", "f": "fragment", "m": "mbarriers",
    "g": "groups", "x": "expand", "?": "help", "q": "quit", "continue": "run",
}  # fmt: skip


# --- words


def _last(found: Sequence[Hazard]) -> list[str]:
    """The last hazard, of a deadlock the reason where that is known: cause, place and mend; `hazards` has all."""
    same = (
        [own for own in found if own.line == found[-1].line] if found and found[-1].name == "DEADLOCK" else found[-1:]
    )
    return [line for text in lines_of(same[0]) for line in wrap(text, 80, subsequent_indent=" " * 7)] if same else []


def _refused(command: str, message: str) -> Answer:
    return Answer(command, tuple(wrap(message, 80)), message, True)


def _shown(found: Shown) -> Said:
    return found.lines(), found.as_dict()


def _several(found: Sequence[Shown], none: str) -> Said:
    return [line for own in found for line in own.lines()] or [none], [own.as_dict() for own in found]


def _number(word: str) -> int:
    try:
        return int(word[:40], 0)
    except ValueError:
        raise OperandError(f"{shortened(word)}; valid: an integer, decimal or 0x...") from None


def _numbers(words: Sequence[str], least: int, most: int) -> list[int]:
    if not least <= len(words) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise OperandError(f"{len(words)} numbers; valid: {count}")
    return [_number(word) for word in words]


def _exactly(words: Sequence[str], count: int, usage: str) -> list[str]:
    if len(words) != count:
        raise OperandError(f"{shortened(' '.join(words))}; valid: {usage}")
    return list(words)


def _word(words: Sequence[str], name: str) -> str | None:
    """The word behind a name, or None."""
    own = list(words)
    if name not in own:
        return None
    place = own.index(name) + 1
    if place == len(own):
        raise OperandError(f"nothing stands behind {name}; valid: {name} and a value")
    return own[place]


def _option(words: Sequence[str], name: str) -> int | None:
    found = _word(words, name)
    return None if found is None else _number(found)


def _without(words: Sequence[str], *names: str) -> list[str]:
    """The words that are neither a name nor the one behind it."""
    found, skip = [], False
    for word in words:
        if not skip and word not in names:
            found.append(word)
        skip = word in names and not skip
    return found


def _place(words: Sequence[str]) -> Any:
    """What `Session.break_at` and `run` take."""
    own, warp = _without(words, "warp"), _option(words, "warp")
    if own[:1] == ["hazard"] and len(own) <= 2:
        return OnHazard(own[1] if len(own) > 1 else None)
    if own[:1] == ["mbarrier"] and len(own) in (2, 3):
        return Phase(_number(own[1]), _number(own[2]) if len(own) > 2 else None)
    if own[:1] == ["if"]:
        return _condition(own[1:])
    if len(own) == 1 and re.fullmatch(r"[0-9]+", own[0]):
        return Line(int(own[0]), None, warp)
    if len(own) == 1 and ":" in own[0]:
        return own[0]
    raise OperandError(
        f"{shortened(' '.join(words))}; valid: a line, file:line, hazard [NAME], mbarrier ADDRESS [PHASE], if REG LANE == VALUE"
    )


def _condition(words: Sequence[str]) -> When:
    name, lane, comparison, value = _exactly(words, 4, "if REG LANE == VALUE")
    if comparison not in _COMPARISONS:
        raise OperandError(f"{shortened(comparison)}; valid: {listing(_COMPARISONS)}")
    thread, holds = _number(lane), _COMPARISONS[comparison]
    try:
        wanted: float = float(value) if re.search(r"[.eE]", value) and not value.startswith("0x") else _number(value)
    except ValueError:
        raise OperandError(f"{shortened(value)}; valid: a number") from None

    def condition(session: Session) -> bool:
        own = session.registers(name, thread // 32)
        return holds(own.values[thread % 32], wanted)

    return When(condition, f"{name} of thread {thread} {comparison} {value}")
