"""`tcsim swizzle`: where the chunks of a swizzled tile land, and which banks they meet."""

from __future__ import annotations

from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.inspection.report import Lines, Report
from tcsim.inspection.swizzle_view import find_swizzle, swizzle_report, swizzle_view


def swizzle(
    mode: Annotated[
        str,
        typer.Argument(
            help="NONE, 32B, 64B, 128B, or bits,base,shift.", metavar="MODE", autocompletion=options.complete_swizzle
        ),
    ],
    address: Annotated[str | None, typer.Option("--address", help="Swizzle this byte address only.")] = None,
    start: Annotated[str, typer.Option("--start", help="Shared address of the first row.")] = "0",
    pitch: Annotated[int | None, typer.Option("--pitch", help="Bytes from row to row; default: the span.")] = None,
    rows: Annotated[int, typer.Option("--rows", help="Rows to show.")] = 8,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Show where a swizzle puts 16-byte chunks, and banks."""
    if address is not None:
        name, found = find_swizzle(mode)
        given = options.integer_of(address, "--address")
        lands = found(given)
        data = {"name": name, "address": given, "swizzled": lands}
        emit(
            "swizzle", lambda: data, lambda: Report("", (Lines((f"{given:#x} -> {lands:#x}",)),)), json=json, html=html
        )
        return
    view = swizzle_view(mode, options.integer_of(start, "--start"), pitch, rows)
    emit("swizzle", view.as_dict, lambda: swizzle_report(view), json=json, html=html)
