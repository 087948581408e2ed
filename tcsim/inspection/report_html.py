"""A report as one HTML page: the same facts, lines and tables as on a terminal, tinted where a grid shows places."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tcsim.core.texts import markup
from tcsim.inspection.page_file import filled
from tcsim.inspection.report import Drawing, Facts, Lines, Mark, Picture, Report, Table


def report_page(report: Report) -> str:
    """The page of a report.

    >>> report_page(Report("t", (Facts((("name", "<b>"),)),)))[:15]
    '<!doctype html>'
    """
    boards = [part.boards for part in report.parts if isinstance(part, Picture)]
    return filled(
        {"title": report.title, "html": report_html(report), "pictures": boards}, ("page", "report"), "report"
    )


def report_html(report: Report) -> str:
    """The parts of a report as HTML; the script of the page draws pictures.

    >>> report_html(Report("t", (Facts((("name", "<b>"),)),)))
    '<table class="facts"><tr><th scope="row">name</th><td>&lt;b&gt;</td></tr></table>'
    """
    return "".join((f"<h2>{markup(part.title)}</h2>" if part.title else "") + _part(part) for part in report.parts)


def _part(part: Facts | Lines | Picture | Drawing | Table) -> str:
    if isinstance(part, Facts):
        lines = "".join(
            f'<tr{_marked(part.marks, place)}><th scope="row">{markup(name)}</th><td>{markup(text)}</td></tr>'
            for place, (name, text) in enumerate(part.pairs)
        )
        return f'<table class="facts">{lines}</table>'
    if isinstance(part, Picture):
        return f'<div class="picture"><pre class="lines">{markup(chr(10).join(part.lines))}</pre></div>'
    if isinstance(part, Drawing):
        return f'<div class="drawing">{part.html}</div>'
    if isinstance(part, Lines):
        kind = f"lines {part.style}" + " wrap" * part.wrap
        lines = markup(chr(10).join(part.lines))
        if part.marks:
            lines = "".join(
                f"<span{_marked(part.marks, place)}>{markup(line)}\n</span>" for place, line in enumerate(part.lines)
            )
        return f'<pre class="{kind.strip()}">{lines}</pre>'
    head = "".join(f'<th scope="col">{markup(text)}</th>' for text in part.head)
    rows = "".join(
        f"<tr>{''.join(_cell(part, line, place, text) for place, text in enumerate(row))}</tr>"
        for line, row in enumerate(part.rows)
    )
    kind = "cells" if part.grid else "rows"
    return f'<div class="board"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(part: Table, line: int, place: int, text: str) -> str:
    right = ' class="right"' if place in part.right else ""
    marked = _marked(part.marks[line], place) if part.marks else ""
    if part.grid and place:
        number = re.match(r"0x[0-9a-f]+|\d+", text)
        if number:  # an address: which of the 8 groups of four banks; banks themselves: their group
            value = int(number[0], 0)
            tint = value // 16 % 8 if number[0].startswith("0x") else value // 4 % 8
            return f'<td class="c" style="--h:{tint * 45}"{marked}>{markup(text)}</td>'
    return f"<td{right}{marked}>{markup(text)}</td>"


def _marked(marks: Sequence[Mark], place: int) -> str:
    """The attributes by which the page links an element."""
    if not marks or marks[place] == Mark():
        return ""
    own = marks[place]
    links = f' data-l="{markup(own.links)}"' if own.links else ""
    return f' tabindex="-1" data-k="{markup(own.keys)}" data-s="{markup(own.says)}"{links}'
