"""The subcommands put together."""

from __future__ import annotations

from typing import Annotated

import typer

from tcsim.cli import (
    compare,
    descriptor,
    diagnose,
    idesc,
    inputs,
    listing,
    maps,
    mbarrier,
    number,
    quantize,
    run,
    show,
    swizzle,
    tensormap,
    trace,
    what,
    where,
)
from tcsim.cli.group import Subcommands

HELP = """The executable specification of NVIDIA tensor cores.

Where each element lives, what a descriptor reads, how a sum was rounded. Every subcommand takes --json.
"""


app = typer.Typer(
    cls=Subcommands, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        from tcsim import __version__

        typer.echo(f"tcsim {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """The options of `tcsim` itself."""


app.command("list")(listing.list_instructions)
app.command("show")(show.show)
app.command("where")(where.where)
app.command("what")(what.what)
app.command("map")(maps.map_fragment)
app.command("inputs")(inputs.inputs)
app.add_typer(descriptor.app, name="descriptor")
app.add_typer(idesc.app, name="idesc")
app.add_typer(tensormap.app, name="tensormap")
app.command("swizzle")(swizzle.swizzle)
app.add_typer(mbarrier.app, name="mbarrier")
app.command("number", context_settings={"ignore_unknown_options": True})(number.number)
app.command("quantize")(quantize.quantize)
app.command("run")(run.run)
app.command("trace")(trace.trace)
app.command("compare")(compare.compare)
app.command("diagnose")(diagnose.diagnose)
