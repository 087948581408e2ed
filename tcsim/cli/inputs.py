"""`tcsim inputs`: which lanes and registers feed one output."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.inspection.feeds import Feed, Source, feed_of, range_text
from tcsim.inspection.report import Facts, Lines, Report, table


def inputs(
    mnemonic: options.Mnemonic,
    element: options.Element,
    matrix: options.Matrix = 0,
    selector: Annotated[int, typer.Option("--selector", help="Of a sparse instruction.")] = 0,
    arch: options.Arch = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Say which registers feed one output."""
    instruction = options.instruction_of(mnemonic, arch)
    row, column = options.element_of(element)
    found = feed_of(instruction, row, column, matrix, selector)
    data = {"mnemonic": instruction.mnemonic, "arch": instruction.arch.name, **found.as_dict()}
    emit("inputs", lambda: data, lambda: _report(instruction, found), json=json, html=html)


def _report(instruction: Any, feed: Feed) -> Report:

    facts = [("output", _text(feed.output))]
    if feed.addend is not None:
        facts.append(("addend", _text(feed.addend)))
    for name, lanes in feed.lanes.items():
        if name not in (feed.output.operand, feed.addend.operand if feed.addend else ""):
            facts.append((f"lanes of {name}", range_text(lanes)))
    parts: list[Any] = [Facts(tuple(facts))]
    if feed.others:
        parts.append(Lines(tuple(_text(source) for source in feed.others), "Comes from", wrap=True))
    if feed.products:
        rows = [(k, _text(a), "; or ".join(map(_text, b))) for k, a, b in feed.products]
        parts.append(table(("k", "a", "b"), rows, "Products", right=(0,)))
    output = feed.output
    title = f"{instruction.mnemonic} on {instruction.arch.name}: ({output.row}, {output.column})"
    return Report(title, tuple(parts))


def _text(source: Source) -> str:
    held = str(source.places[0]) if source.places else ""
    memory = f", or {source.memory}" if held and source.memory else source.memory
    return f"{source.operand}({source.row}, {source.column}): {held}{memory}"
