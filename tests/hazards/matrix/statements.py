"""The statements of a kernel's text: where each instruction stands, what its operands are, and the text with one of them changed.

A change keeps every line where it was, so that the hazards of a mutant and of the original have the same line numbers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tcsim.model.statement import registers_in
from tcsim.ptx.text.syntax import Function, Instruction

_ENDS = re.compile(r"(bra|brx|ret|exit|trap|call)\b")
"""What ends a basic block."""


@dataclass(frozen=True)
class Statement:
    """An instruction in the text."""

    index: int  # in the function's body
    item: Instruction
    start: int  # in the text, its predicate included
    end: int  # behind its semicolon


class Text:
    """A module's text and the statements of one of its functions."""

    def __init__(self, text: str, function: Function) -> None:
        self.text, self.function = text, function
        lines = [0]
        for match in re.finditer("\n", text):
            lines.append(match.end())
        self._lines = lines
        self.statements = [self._statement(index, item) for index, item in enumerate(function.body)]
        self._targets = set(function.labels.values())

    def _statement(self, index: int, item: Instruction) -> Statement:
        at = self._lines[item.line - 1] + item.column - 1
        before = max(self.text.rfind(mark, 0, at) for mark in ";{}\n:") + 1
        start = before + len(self.text[before:]) - len(self.text[before:].lstrip())
        return Statement(index, item, min(start, at), self.text.index(";", at) + 1)

    def line_of(self, at: int) -> int:
        """The line, from 1, of a place in the text."""
        return bisect_right(self._lines, at)

    def source(self, own: Statement) -> str:
        """What a statement says, in one line."""
        return " ".join(self.text[own.start : own.end].split())

    def changed(self, own: Statement, text: str) -> str:
        """The module with another text for a statement."""
        kept = "\n" * self.text[own.start : own.end].count("\n")
        return self.text[: own.start] + text + kept + self.text[own.end :]

    def moved(self, own: Statement, behind: Statement | None = None, before: Statement | None = None) -> str:
        """The module with a statement in another place."""
        said = self.text[own.start : own.end]
        if behind is not None:
            return self.text[: own.start] + self.text[own.end : behind.end] + " " + said + self.text[behind.end :]
        assert before is not None
        return self.text[: before.start] + said + " " + self.text[before.start : own.start] + self.text[own.end :]

    def parts(self, own: Statement) -> tuple[str, list[str]]:
        """A statement without its operands, and these."""
        found = re.match(r"(@!?\S+\s+)?\S+", self.text[own.start : own.end])
        assert found is not None
        return found[0], list(_operands(self.text[own.start + found.end() : own.end - 1]))

    def around(self, own: Statement, step: int) -> Iterator[Statement]:
        """The statements behind (1) or before (-1) one in its basic block, as far as what it reads is not written there."""
        needed = {name for operand in own.item.operands for name in registers_in(operand)}
        needed |= {own.item.predicate.name} if own.item.predicate is not None else set()
        at = own.index
        while 0 <= at + step < len(self.statements):
            if (at + (step > 0)) in self._targets:
                return
            at += step
            found = self.statements[at]
            written = set(registers_in(found.item.operands[0])) if found.item.operands else set()
            if _ENDS.match(found.item.opcode) or not written.isdisjoint(needed):
                return
            yield found


def _operands(text: str) -> Iterator[str]:
    """Operands between commas, with what stands in brackets whole."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()
