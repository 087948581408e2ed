"""`tcsim map`: whole tables of a fragment."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.output import emit, save, write
from tcsim.inspection import fragment_map
from tcsim.inspection.places import operand_of


def map_fragment(
    mnemonic: options.Mnemonic,
    operand: options.Operand = None,
    by: Annotated[options.MapBy, typer.Option("--by", help="What a line of the table is.")] = options.MapBy.lane,
    form: Annotated[options.MapFormat, typer.Option("--format", help="How to write it.")] = options.MapFormat.text,
    arch: options.Arch = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Show a whole fragment, by lane or by element."""
    instruction = options.instruction_of(mnemonic, arch)
    found = fragment_map.map_of(instruction, operand_of(instruction, operand))

    def page() -> str:
        from tcsim.inspection.html_page import instruction_page  # it describes all families: tables do without

        return instruction_page(instruction)

    drawn = {options.MapFormat.csv: fragment_map.as_csv, options.MapFormat.svg: fragment_map.as_svg}.get(form)
    if drawn is not None and not json:
        if html is not None:
            save(html, page())
        write(drawn(found, by.value))
    else:
        report = partial(fragment_map.tables, found, by.value)
        emit("map", found.as_dict, report, form=form.value, json=json, html=html, page=page)
