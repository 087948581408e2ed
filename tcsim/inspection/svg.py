"""Pictures of tables in SVG: a grid of labelled, coloured cells. Readable on light and dark ground, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tcsim.core.texts import markup

CELL_HEIGHT = 22
_CHARACTER = 7.2  # width of one in the 12-pixel monospaced font
_PADDING = 10
_LEFT_MARGIN, _TOP_MARGIN = 8, 54


class Cell(NamedTuple):
    """One cell of a grid."""

    row: int
    column: int
    text: str
    colour: int  # cells of one number look alike


def colour(number: int) -> str:
    """A pale colour; neighbours of 32 numbers can be told apart.

    >>> colour(0), colour(5)
    ('hsl(0,65%,80%)', 'hsl(225,65%,72%)')
    """
    return f"hsl({number * 45 % 360},65%,{80 - number // 4 % 4 * 8}%)"


def grid(title: str, cells: Sequence[Cell], rows: Sequence[str], columns: Sequence[str]) -> str:
    """The picture: `rows` and `columns` are the labels at the left and at the top."""
    left = _LEFT_MARGIN + round(max((len(label) for label in rows), default=0) * _CHARACTER) + _PADDING
    longest = max([len(cell.text) for cell in cells] + [len(label) for label in columns])
    width = round(longest * _CHARACTER) + _PADDING
    whole = max(left + width * len(columns), round(len(title) * _CHARACTER)) + _PADDING
    height = _TOP_MARGIN + CELL_HEIGHT * len(rows) + _PADDING
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {height}" width="{whole}" height="{height}" role="img">',
        f"<title>{markup(title, quote=False)}</title>",
        "<style>text{font:12px monospace;fill:#222}.o{fill:#777}rect{stroke:#fff}"
        "@media(prefers-color-scheme:dark){.o{fill:#bbb}rect{stroke:#111}}</style>",
        f'<text class="o" x="{_LEFT_MARGIN}" y="20">{markup(title, quote=False)}</text>',
    ]
    for place, label in enumerate(columns):
        x = left + width * place + width / 2
        lines.append(
            f'<text class="o" x="{x:g}" y="{_TOP_MARGIN - 8}" text-anchor="middle">{markup(label, quote=False)}</text>'
        )
    for place, label in enumerate(rows):
        y = _TOP_MARGIN + CELL_HEIGHT * place + 15
        lines.append(f'<text class="o" x="{left - 6}" y="{y}" text-anchor="end">{markup(label, quote=False)}</text>')
    for cell in cells:
        x, y = left + width * cell.column, _TOP_MARGIN + CELL_HEIGHT * cell.row
        lines.append(f'<rect x="{x}" y="{y}" width="{width}" height="{CELL_HEIGHT}" fill="{colour(cell.colour)}"/>')
        lines.append(
            f'<text x="{x + width / 2:g}" y="{y + 15}" text-anchor="middle">{markup(cell.text, quote=False)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])
