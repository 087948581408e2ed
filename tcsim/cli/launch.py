"""`tcsim launch init`: a launch file to begin with."""

from __future__ import annotations

from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.exec import ptx_of, source_of
from tcsim.cli.output import save, write
from tcsim.launchers.launch_template import template
from tcsim.ptx import parse

app = typer.Typer(
    no_args_is_help=True, help="Launch files: init, from the parameters of a kernel.", rich_markup_mode=None
)


@app.callback()
def launch() -> None:
    """Keep `init` a subcommand."""


@app.command()
def init(
    file: Annotated[str, typer.Argument(help="CUDA C++ or PTX.", metavar="FILE")],
    kernel: Annotated[str | None, typer.Option("--kernel", help="Which entry, if there are several.", metavar="NAME")] = None,
    arch: options.Chip = None,
    output: Annotated[str | None, typer.Option("--output", help="Write the launch file here.", metavar="FILE")] = None,
) -> None:  # fmt: skip
    """Write a launch file from a kernel's parameters: types are read; sizes and numbers are guesses to correct."""
    module = parse(ptx_of(file, arch, "launch init"))
    found = module.kernel(kernel) if kernel is not None else module.kernel()
    text = template(found, file, source_of(file, "launch init"))
    if output is None:
        write(text)
    else:
        save(output, text)
