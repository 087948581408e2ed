"""`tcsim map`: whole tables of a fragment."""

from __future__ import annotations

from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.output import emit, write
from tcsim.inspection import fragment_map
from tcsim.inspection.places import operand_of


def map_fragment(
    mnemonic: options.Mnemonic,
    operand: options.Operand = None,
    by: Annotated[options.MapBy, typer.Option("--by", help="What a line of the table is.")] = options.MapBy.lane,
    form: Annotated[options.MapFormat, typer.Option("--format", help="How to write it.")] = options.MapFormat.text,
    arch: options.Arch = None,
    json: options.Json = False,
) -> None:
    """Show a whole fragment, by lane or by element."""
    instruction = options.instruction_of(mnemonic, arch)
    found = fragment_map.map_of(instruction, operand_of(instruction, operand))
    if form is options.MapFormat.html and not json:
        from tcsim.inspection.html_page import instruction_page  # it describes all families: tables do without

        write(instruction_page(instruction))
    elif form is options.MapFormat.csv and not json:
        write(fragment_map.as_csv(found, by.value))
    elif form is options.MapFormat.svg and not json:
        write(fragment_map.as_svg(found, by.value))
    else:
        chosen = "json" if json else form.value
        emit("map", found.as_dict, lambda: fragment_map.tables(found, by.value), form=chosen)
