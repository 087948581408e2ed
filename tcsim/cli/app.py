"""The command line itself: what every subcommand shares."""

from __future__ import annotations

from typing import Annotated

import typer

import tcsim
from tcsim.cli.group import Table

HELP = """The executable specification of NVIDIA tensor cores.

Where each element lives, what a descriptor reads, how a sum was rounded. Answers are also JSON (--json) and pages (--html FILE).
"""


app = typer.Typer(
    cls=Table, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tcsim {tcsim.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """The options of `tcsim` itself."""
