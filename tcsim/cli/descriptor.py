"""`tcsim descriptor`: shared-memory matrix descriptors."""

from __future__ import annotations

from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.group import Subcommands
from tcsim.cli.output import emit
from tcsim.descriptors.checks import TileCheck
from tcsim.descriptors.matrix import CanonicalTile, MatrixDescriptor, form_of
from tcsim.inspection.descriptor_fields import check_dict, descriptor_dict, fields_of, tile_dict
from tcsim.inspection.report import Facts, Lines, Report, table

app = typer.Typer(cls=Subcommands, help="Matrix descriptors: decode, encode, tile, check.", no_args_is_help=True)

_Arch = Annotated[
    str,
    typer.Option(
        "--arch",
        "-a",
        help="Whose form.",
        metavar="ARCH",
        autocompletion=options.complete_arch,
        callback=options.arch_named,
    ),
]
_Kind = Annotated[
    str, typer.Option("--kind", help="tcgen05 kind, which fp4 and fp6 need.", autocompletion=options.complete_kind)
]
_Rows = Annotated[int, typer.Option("--rows", help="Rows of the tile: along M for A, along N for B.")]
_K = Annotated[int, typer.Option("--k", help="Elements along K.")]
_Format = Annotated[
    str, typer.Option("--type", "-t", help="Number format of an element.", autocompletion=options.complete_format)
]
_Major = Annotated[str, typer.Option("--major", help="K or MN.")]
_Start = Annotated[str, typer.Option("--start", help="Shared address of the first byte.")]


@app.command()
def decode(value: options.Number, arch: _Arch = "sm_90", html: options.Html = None, json: options.Json = False) -> None:
    """Take a 64-bit descriptor apart."""
    _emit(MatrixDescriptor.decode(options.integer_of(value, "descriptor"), arch=arch), "decode", json, html)


@app.command()
def encode(
    start: _Start = "0",
    lbo: Annotated[str, typer.Option("--lbo", help="Leading byte offset, in bytes.")] = "0",
    sbo: Annotated[str, typer.Option("--sbo", help="Stride byte offset, in bytes.")] = "0",
    base_offset: Annotated[int, typer.Option("--base-offset", help="Phase of the swizzle pattern.")] = 0,
    swizzle: options.Swizzle = "NONE",
    leading_mode: Annotated[int, typer.Option("--leading-mode", help="1: LBO is an address (sm_100).")] = 0,
    k_half: Annotated[int, typer.Option("--k-half", help="1: the upper half of lookup indices (sm_107).")] = 0,
    arch: _Arch = "sm_90",
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Make a descriptor of its fields, all offsets in bytes."""
    form, _ = form_of(arch)
    made = MatrixDescriptor(
        options.integer_of(start, "--start"),
        options.integer_of(lbo, "--lbo"),
        options.integer_of(sbo, "--sbo"),
        base_offset,
        swizzle.upper(),
        leading_mode,
        k_half,
        form,
    )
    _emit(made, "encode", json, html)


@app.command()
def tile(
    rows: _Rows,
    k: _K,
    type: _Format,
    major: _Major = "K",
    swizzle: options.Swizzle = "128B",
    start: _Start = "0",
    order: Annotated[
        str, typer.Option("--order", help="Along which atoms lie next to each other: K or MN. Default: as TMA writes.")
    ] = "",
    kind: _Kind = "",
    step: Annotated[int, typer.Option("--step", help="K of one instruction; 0: what 32 bytes hold.")] = 0,
    arch: _Arch = "sm_90",
    form: options.Format = options.TextFormat.text,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Say how a tile must lie for wgmma or tcgen05.mma, and which descriptors read it."""
    made = MatrixDescriptor.for_tile(
        rows, k, type, major.upper(), swizzle.upper(), options.integer_of(start, "--start"), arch, kind, step, order.upper()  # type: ignore[arg-type]
    )  # fmt: skip
    emit(
        "descriptor tile", lambda: tile_dict(made), lambda: _tile(made), form=form.value, json=json, html=html,
        page=lambda: _tile_page(made),
    )  # fmt: skip


@app.command()
def check(
    value: options.Number,
    rows: _Rows,
    k: _K,
    type: _Format,
    major: _Major = "K",
    memory: Annotated[int, typer.Option("--memory", help="Bytes of shared memory.")] = 227 * 1024,
    kind: _Kind = "",
    arch: _Arch = "sm_90",
    form: options.Format = options.TextFormat.text,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Say what is wrong with reading a tile through a descriptor. Exit status 1 if something is."""
    given = MatrixDescriptor.decode(options.integer_of(value, "descriptor"), arch=arch)
    found = given.check(rows, k, type, major.upper(), memory, kind)  # type: ignore[arg-type]
    data = {**check_dict(found), "descriptor": descriptor_dict(given)}

    def page() -> str:
        from tcsim.inspection.html_page import descriptor_page  # pages import much that other answers do without

        return descriptor_page(given, rows, k, type, major.upper(), kind)  # type: ignore[arg-type]

    emit(
        "descriptor check", lambda: data, lambda: _check(given, found), form=form.value, json=json, html=html, page=page
    )
    if not found.ok:
        raise typer.Exit(1)


def _tile_page(made: CanonicalTile) -> str:
    from tcsim.inspection.html_page import tile_page  # as above

    return tile_page(made)


def _emit(descriptor: MatrixDescriptor, subcommand: str, json: bool, html: str | None) -> None:

    data = descriptor_dict(descriptor)
    emit(f"descriptor {subcommand}", lambda: data, lambda: _fields(descriptor), json=json, html=html)


def _fields(descriptor: MatrixDescriptor) -> Report:

    rows = [(f"{own.high}:{own.low}", own.name, own.value, own.meaning) for own in fields_of(descriptor)]
    title = f"{descriptor.encode():#018x}: matrix descriptor of {descriptor.arch}; offsets in bytes"
    return Report(title, (table(("bits", "field", "value", "meaning"), rows),))


def _tile(made: CanonicalTile) -> Report:

    own = made.descriptor
    facts = (
        ("layout", f"{made.swizzle} of {made.layout}, in elements"),
        ("bytes", str(made.bytes)),
        ("LBO", f"{own.leading_byte_offset} bytes"),
        ("SBO", f"{own.stride_byte_offset} bytes"),
        ("K of one instruction", f"{made.step} elements"),
    )
    steps = enumerate(zip(made.advances, made.descriptors, strict=True))
    rows = [(n, advance, f"{descriptor.encode():#018x}") for n, (advance, descriptor) in steps]
    chip = f" on {own.arch}" if own.arch != "sm_90" else ""
    title = f"{made.rows} x {made.k} {made.format.name}, {made.major}-major, swizzle {own.swizzle}{chip}"
    return Report(title, (Facts(facts), table(("K step", "bytes added", "descriptor"), rows, right=(0, 1))))


def _check(given: MatrixDescriptor, found: TileCheck) -> Report:

    verdict = "every element has a place of its own inside memory" if found.ok else "wrong"
    notes = tuple(f"- {message}" for message in found.messages)
    reads = f"reads bytes {found.first:#x} to {found.last:#x}"
    parts = [Lines((f"{verdict}; {reads}",), style="good" if found.ok else "bad", wrap=True)]
    return Report(f"{given.encode():#018x}", (*parts, *((Lines(notes, wrap=True),) if notes else ())))
