"""A report as one HTML page: the same facts, lines and tables as on a terminal, tinted where a grid shows places."""

from __future__ import annotations

import re
from html import escape

from tcsim.inspection.page_file import filled
from tcsim.inspection.report import Facts, Lines, Report, Table


def report_page(report: Report) -> str:
    """The page of a report.

    >>> report_page(Report("t", (Facts((("name", "<b>"),)),)))[:15]
    '<!doctype html>'
    """
    return filled({"title": report.title, "html": report_html(report)}, ("page", "report"), "report")


def report_html(report: Report, title: bool = False) -> str:
    """A report as HTML alone, as notebooks show it.

    >>> report_html(Report("t", (Facts((("name", "<b>"),)),)))
    '<table class="facts"><tr><th scope="row">name</th><td>&lt;b&gt;</td></tr></table>'
    """
    head = f"<p><strong>{escape(report.title)}</strong></p>" if title and report.title else ""
    return head + "".join(
        (f"<h2>{escape(part.title)}</h2>" if part.title else "") + _part(part) for part in report.parts
    )


def _part(part: Facts | Lines | Table) -> str:
    if isinstance(part, Facts):
        lines = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in part.pairs
        )
        return f'<table class="facts">{lines}</table>'
    if isinstance(part, Lines):
        kind = f"lines {part.style}" + " wrap" * part.wrap
        return f'<pre class="{kind.strip()}">{escape(chr(10).join(part.lines))}</pre>'
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in part.head)
    rows = "".join(
        f"<tr>{''.join(_cell(part, place, text) for place, text in enumerate(row))}</tr>" for row in part.rows
    )
    kind = "cells" if part.grid else "rows"
    return f'<div class="board"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(part: Table, place: int, text: str) -> str:
    right = ' class="right"' if place in part.right else ""
    if part.grid and place:
        number = re.match(r"0x[0-9a-f]+|\d+", text)
        if number:  # an address: which of the 8 groups of four banks; banks themselves: their group
            value = int(number[0], 0)
            tint = value // 16 % 8 if number[0].startswith("0x") else value // 4 % 8
            return f'<td class="c" style="--h:{tint * 45}">{escape(text)}</td>'
    return f"<td{right}>{escape(text)}</td>"
