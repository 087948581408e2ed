"""What a reader is shown, before any markup: titles, facts, lines and tables. Renderers make text and Markdown of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Style = Literal["", "title", "heading", "head", "good", "bad"]
WIDTH = 80
"""Columns of text that every table fits in, unless one cell that cannot be cut is wider."""


class Mark(NamedTuple):
    """What a part of a page is: pointing at it lights all of its own key and, less so, those that have a key of `links`."""

    keys: str = ""  # its own, then those of groups that it belongs to, separated by spaces
    says: str = ""  # what the page then says
    links: str = ""


@dataclass(frozen=True)
class Facts:
    """Names and what is said of them, a line each."""

    pairs: tuple[tuple[str, str], ...]
    title: str = ""
    marks: tuple[Mark, ...] = ()  # one for each pair, if any


@dataclass(frozen=True)
class Lines:
    """Text that is shown as it is; `wrap` breaks lines that are too long."""

    lines: tuple[str, ...]
    title: str = ""
    style: Style = ""
    wrap: bool = False
    marks: tuple[Mark, ...] = ()  # one for each line, if any


@dataclass(frozen=True)
class Picture:
    """Squares with a letter each. A page draws one of the `boards` at a time; elsewhere it is lines of text."""

    lines: tuple[str, ...]
    boards: tuple[dict[str, Any], ...]  # what assets/report.js draws
    title: str = ""


@dataclass(frozen=True)
class Drawing:
    """What only a page draws; elsewhere it is lines of text."""

    html: str  # made here: nothing in it is another's, unless escaped
    lines: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells. A `grid`, whose columns are alike, puts those that fit side by side and the others below."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    right: tuple[int, ...] = ()  # columns that are right-aligned
    grid: bool = False
    whole: tuple[int, ...] = ()  # columns whose cells are never broken: lines may be too long instead
    marks: tuple[tuple[Mark, ...], ...] = ()  # one for each cell, if any


@dataclass(frozen=True)
class Report:
    """A title and what stands below it."""

    title: str
    parts: tuple[Facts | Lines | Picture | Drawing | Table, ...]


class Line(NamedTuple):
    """One line of text and how it may be coloured."""

    text: str
    style: Style = ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", **options: Any) -> Table:
    """A table whose cells are made text."""
    cells = tuple(tuple(str(cell) for cell in row) for row in rows)
    return Table(tuple(head), cells, title, **options)


# --- text


def text_lines(report: Report, width: int = WIDTH) -> Iterator[Line]:
    """The report as lines of at most `width` columns.

    >>> [line.text for line in text_lines(Report("t", (table("ab", [(1, "x y")], right=(0,)),)), 5)]
    ['t', '', 'a  b', '1  x', '   y']
    """
    if report.title:
        for text in _fold(report.title, width):
            yield Line(text, "title")
    for place, part in enumerate(report.parts):
        if report.title or place:
            yield Line("")
        if part.title:
            yield Line(part.title, "heading")
        if isinstance(part, Facts):
            yield from _facts(part, width)
        elif isinstance(part, (Picture, Drawing)):
            yield from map(Line, part.lines)
        elif isinstance(part, Lines):
            yield from (
                Line(text, part.style) for line in part.lines for text in (_fold(line, width) if part.wrap else [line])
            )
        elif part.grid:
            yield from _grid(part, width)
        else:
            yield from _rows(part, width)


def _facts(part: Facts, width: int) -> Iterator[Line]:
    left = max((len(name) for name, _ in part.pairs), default=0)
    for name, value in part.pairs:
        for place, text in enumerate(_fold(value, max(20, width - left - 2))):
            yield Line(f"{name if not place else '':<{left}}  {text}".rstrip())


def _widths(part: Table) -> list[int]:
    return [max(len(row[i]) for row in (part.head, *part.rows)) for i in range(len(part.head))]


def _rows(part: Table, width: int) -> Iterator[Line]:
    widths = _widths(part)
    floor = [widths[i] if i in part.whole else len(head) for i, head in enumerate(part.head)]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        slack = [own - least for own, least in zip(widths, floor, strict=True)]
        if max(slack) <= 0:
            break
        widest = max((i for i, room in enumerate(slack) if room > 0), key=lambda i: widths[i])
        widths[widest] -= 1
    for number, row in enumerate((part.head, *part.rows)):
        folded = [_fold(cell, own) for cell, own in zip(row, widths, strict=True)]
        for line in range(max(map(len, folded))):
            cells = [cell[line] if line < len(cell) else "" for cell in folded]
            aligned = (
                f"{cell:>{own}}" if i in part.right else f"{cell:<{own}}"
                for i, (cell, own) in enumerate(zip(cells, widths, strict=True))
            )
            yield Line("  ".join(aligned).rstrip(), "head" if not number else "")


def _grid(part: Table, width: int) -> Iterator[Line]:
    widths = _widths(part)
    start, first = 1, True
    while start < len(widths) or first:
        stop, used = start, widths[0]
        while stop < len(widths) and (stop == start or used + 2 + widths[stop] <= width):
            used += 2 + widths[stop]
            stop += 1
        if not first:
            yield Line("")
        for number, row in enumerate((part.head, *part.rows)):
            chosen = [(row[0], widths[0]), *((row[i], widths[i]) for i in range(start, stop))]
            cells = (f"{cell:>{own}}" if not i else f"{cell:<{own}}" for i, (cell, own) in enumerate(chosen))
            yield Line("  ".join(cells).rstrip(), "head" if not number else "")
        start, first = stop, False


_BREAKS = " ,.;:/"


def _fold(text: str, width: int) -> list[str]:
    """Break a cell at spaces, else after punctuation, else anywhere."""
    width = max(1, width)
    lines = []
    while len(text) > width:
        cut = text.rfind(" ", 0, width + 1)
        if cut <= 0:
            cut = max(text.rfind(mark, 0, width) for mark in _BREAKS) + 1 or width
        lines.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*lines, text]


# --- Markdown


def markdown_lines(report: Report) -> Iterator[str]:
    """The report in Markdown."""
    if report.title:
        yield from (f"# {_escaped(report.title)}", "")
    for part in report.parts:
        if part.title:
            yield from (f"## {_escaped(part.title)}", "")
        if isinstance(part, (Lines, Picture, Drawing)):
            yield from ("```text", *part.lines, "```")
        else:
            head, rows = (part.head, part.rows) if isinstance(part, Table) else (("", ""), part.pairs)
            right = part.right if isinstance(part, Table) else ()
            yield "| " + " | ".join(map(_escaped, head)) + " |"
            yield "| " + " | ".join("---:" if i in right else "---" for i in range(len(head))) + " |"
            yield from ("| " + " | ".join(map(_escaped, row)) + " |" for row in rows)
        yield ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
