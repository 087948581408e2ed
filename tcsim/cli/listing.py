"""`tcsim list`: which instructions there are."""

from __future__ import annotations

from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.inspection import listing
from tcsim.inspection.listing import Entry, FamilyEntry, arch_ranges
from tcsim.inspection.report import Lines, Report, table
from tcsim.search import search


def list_instructions(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Words in any order: of a mnemonic, SASS, a CuTe atom, a chip; the likeliest comes first.",
            metavar="[WORDS]...",
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            "--arch",
            "-a",
            help="Only on this arch, target or product.",
            autocompletion=options.complete_arch,
            callback=options.arch_named,
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option("--family", "-f", help="Only this family.", autocompletion=options.complete_family),
    ] = None,
    type: Annotated[
        str | None,
        typer.Option(
            "--type", "-t", help="Only with an operand of this number format.", autocompletion=options.complete_type
        ),
    ] = None,
    families: Annotated[bool, typer.Option("--families", help="List the families instead.")] = False,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """List instructions, by arch, family, type and words; exit status 1 if there is none.

    Those that differ in N alone share a line; JSON has each.
    """
    if families:
        found = listing.families(arch)
        data = {"families": [entry.as_dict() for entry in found]}
        emit("list", lambda: data, lambda: _families(found), json=json, html=html)
        return
    text = " ".join(words or ())
    entries = listing.entries(arch, family, type, text)
    if not entries and text:
        raise options.no_match(search(text, arch))
    emit(
        "list",
        lambda: {"count": len(entries), "instructions": [entry.as_dict() for entry in entries]},
        lambda: _entries(entries, arch),
        json=json,
        html=html,
    )


def _entries(entries: tuple[Entry, ...], arch: str | None) -> Report:
    """Shapes that differ in N alone share a line."""
    if not entries:
        return Report("", (Lines(("no such instruction; tcsim list --families shows what there is",)),))
    rows = [(*(entry.evidence.values() if arch is not None else entry.archs[:1]), entry.mnemonic) for entry in entries]
    found = listing.by_n(rows)
    head = ("since" if arch is None else "evidence", "mnemonic") + ("N",) * any(len(row) > 2 for row in found)
    return Report("", (table(head, [(*row, "")[: len(head)] for row in found], whole=(0, 1, 2)),))


def _families(found: tuple[FamilyEntry, ...]) -> Report:

    rows = [(entry.family, entry.instructions, arch_ranges(entry.archs)) for entry in found]
    return Report("", (table(("family", "instructions", "archs"), rows, right=(1,)),))
