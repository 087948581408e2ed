"""`tcsim picture`: a product as people draw it, as one HTML page."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.output import save, write
from tcsim.inspection.product_page import Tile, product_page


def picture(
    mnemonic: options.Mnemonic,
    k: Annotated[int, typer.Option("--k", help="K of the tile; default: four instructions behind descriptors.")] = 0,
    swizzle: options.Swizzle = "128B",
    major_a: Annotated[str, typer.Option("--major-a", help="K or MN.")] = "K",
    major_b: Annotated[str, typer.Option("--major-b", help="K or MN.")] = "K",
    idesc: options.Idesc = None,
    arch: options.Arch = None,
    html: Annotated[
        str, typer.Option("--html", help="Write the page to this file; -: to standard output.", metavar="FILE")
    ] = "-",
) -> None:
    """Draw a product: A left, B above, D in the corner, and where every element lies, as an HTML page."""
    instruction = options.instruction_of(mnemonic, arch)
    of_a: Any = major_a.upper()
    of_b: Any = major_b.upper()
    number = None if idesc is None else options.integer_of(idesc, "--idesc")
    drawn = product_page(instruction, Tile(k, swizzle.upper(), of_a, of_b, number))
    if html == "-":
        write(drawn)
    else:
        save(html, drawn)
