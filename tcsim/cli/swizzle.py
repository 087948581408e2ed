"""`tcsim swizzle`: where the chunks of a swizzled tile land, and which banks they meet."""

from __future__ import annotations

from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.inspection.report import Facts, Lines, Report, table
from tcsim.inspection.swizzle_view import SwizzleView, find_swizzle, swizzle_view


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
    json: options.Json = False,
) -> None:
    """Show where a swizzle puts 16-byte chunks, and banks."""
    form = "json" if json else "text"
    if address is not None:
        name, found = find_swizzle(mode)
        given = options.integer_of(address, "--address")
        lands = found(given)
        data = {"name": name, "address": given, "swizzled": lands}
        emit("swizzle", lambda: data, lambda: Report("", (Lines((f"{given:#x} -> {lands:#x}",)),)), form=form)
        return
    view = swizzle_view(mode, options.integer_of(start, "--start"), pitch, rows)
    emit("swizzle", view.as_dict, lambda: _report(view), form=form)


def _report(view: SwizzleView) -> Report:

    chunks = len(view.lands[0])
    head = ("row", *map(str, range(chunks)))
    address = [(row, *(f"{x:#x}" for x in lands)) for row, lands in enumerate(view.lands)]
    banks = [(row, *(f"{x}-{x + 3}" for x in own)) for row, own in enumerate(view.banks)]
    passes = [
        ("swizzled", *map(str, view.degrees)),
        ("plain", *map(str, view.plain_degrees)),
    ]
    facts = (
        ("span", f"{view.swizzle.span} bytes: a row of the pattern"),
        ("period", f"{view.swizzle.period} bytes: where the pattern repeats"),
        ("pitch", f"{view.pitch} bytes from row to row, from {view.start:#x} on"),
    )
    grid = table(head, address, "Address of each 16-byte chunk", grid=True)
    return Report(
        f"{view.name}: {view.swizzle}",
        (
            Facts(facts),
            grid,
            table(head, banks, "Banks of each chunk", grid=True),
            table(("", *map(str, range(chunks))), passes, "Passes to read 8 rows of a column; 1 is free of conflicts"),
        ),
    )
