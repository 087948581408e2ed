"""`tcsim mbarrier`: the 64 bits of a barrier in shared memory."""

from __future__ import annotations

from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.group import Subcommands
from tcsim.cli.output import emit
from tcsim.inspection.report import Lines, Report, table
from tcsim.memory.mbarrier_object import BarrierObject, decode_barrier

app = typer.Typer(cls=Subcommands, help="Barriers in shared memory: decode.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Barriers in shared memory."""


@app.command()
def decode(
    value: options.Number,
    arch: Annotated[
        str, typer.Option("--arch", "-a", help="Whose form.", metavar="ARCH", autocompletion=options.complete_arch)
    ] = "sm_90",
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Take a 64-bit mbarrier object apart, as far as its bits are known."""
    found = decode_barrier(options.integer_of(value, "mbarrier"), arch)
    emit("mbarrier decode", found.as_dict, lambda: _report(found), json=json, html=html)


def _report(found: BarrierObject) -> Report:

    numbers = found.numbers
    rows = [
        (f"{own.low + own.bits - 1}:{own.low}", own.name, numbers[own.name], str(own.evidence)) for own in found.fields
    ]
    note = f"bits {found.unknown:#018x} are set and belong to no field that is known"
    parts = [table(("bits", "field", "number", "evidence"), rows, right=(2,))]
    notes = (Lines((note,), wrap=True),) if found.unknown else ()
    return Report(f"{found.value:#018x}: mbarrier of {found.arch}", (*parts, *notes))
