"""`tcsim idesc`: instruction descriptors of tcgen05.mma."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.descriptors.instruction import InstructionDescriptor, bit_rows
from tcsim.inspection.report import Report, table

app = typer.Typer(help="Instruction descriptors of tcgen05.mma: decode, encode, bits.", no_args_is_help=True)

_Kind = Annotated[
    str, typer.Option("--kind", help="Kind of the mnemonic, such as f16.", autocompletion=options.complete_kind)
]
_Arch = Annotated[
    str,
    typer.Option("--arch", "-a", help="Whose bits and limits.", metavar="ARCH", autocompletion=options.complete_arch),
]


@app.command()
def decode(
    value: options.Number, kind: _Kind, arch: _Arch = "sm_100", html: options.Html = None, json: options.Json = False
) -> None:
    """Take a 32-bit descriptor apart."""
    found = InstructionDescriptor.decode(options.integer_of(value, "instruction descriptor"), kind=kind, arch=arch)
    _emit(found, "decode", json, html)


@app.command()
def encode(
    kind: _Kind,
    m: Annotated[int, typer.Option("--m", help="Rows of D; of both CTAs for cta_group::2.")],
    n: Annotated[int, typer.Option("--n", help="Columns of D.")],
    d: Annotated[str, typer.Option("--d", help="Format of D; default f32, or the kind's only one.")] = "",
    a: Annotated[str, typer.Option("--a", help="Format of A; default the kind's only one.")] = "",
    b: Annotated[str, typer.Option("--b", help="Format of B; default that of A.")] = "",
    scale: Annotated[str, typer.Option("--scale", help="Format of the scale factors.")] = "",
    sparse: Annotated[bool, typer.Option("--sparse", help="Structured sparse A.")] = False,
    saturate: Annotated[bool, typer.Option("--saturate", help="Clamp the integers of D.")] = False,
    negate_a: Annotated[bool, typer.Option("--negate-a", help="Multiply -A.")] = False,
    negate_b: Annotated[bool, typer.Option("--negate-b", help="Multiply -B.")] = False,
    transpose_a: Annotated[bool, typer.Option("--transpose-a", help="A is M-major.")] = False,
    transpose_b: Annotated[bool, typer.Option("--transpose-b", help="B is N-major.")] = False,
    max_shift: Annotated[int, typer.Option("--max-shift", help="0, 8, 16 or 32 (.ws).")] = 0,
    scale_a_id: Annotated[int, typer.Option("--scale-a-id", help="First byte of A's scale factors.")] = 0,
    scale_b_id: Annotated[int, typer.Option("--scale-b-id", help="First byte of B's scale factors.")] = 0,
    k: Annotated[int, typer.Option("--k", help="K of one instruction; 0 is the kind's smallest.")] = 0,
    arch: _Arch = "sm_100",
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Make a descriptor of its fields."""
    made = InstructionDescriptor(
        kind=kind, m=m, n=n, d_format=d, a_format=a, b_format=b, sparse=sparse, saturate=saturate, negate_a=negate_a,
        negate_b=negate_b, transpose_a=transpose_a, transpose_b=transpose_b, max_shift=max_shift, scale_format=scale,
        scale_a_id=scale_a_id, scale_b_id=scale_b_id, k=k, arch=arch,
    )  # fmt: skip
    _emit(made, "encode", json, html)


@app.command()
def bits(kind: _Kind, arch: _Arch = "sm_100", html: options.Html = None, json: options.Json = False) -> None:
    """Say what the bits mean in a kind."""
    rows = bit_rows(kind, arch)
    title = f"instruction descriptor of kind::{kind} on {arch}"
    head = ("bits", "field", "values", "meaning")
    emit(
        "idesc bits",
        lambda: {"kind": kind, "arch": arch, "fields": [dict(zip(head, row, strict=True)) for row in rows]},
        lambda: Report(title, (table(head, rows),)),
        json=json,
        html=html,
    )


def _emit(found: InstructionDescriptor, subcommand: str, json: bool, html: str | None) -> None:

    emit(f"idesc {subcommand}", lambda: _data(found), lambda: _report(found), json=json, html=html)


def _data(found: InstructionDescriptor) -> dict[str, Any]:
    return {"value": found.encode(), "hex": f"{found.encode():#010x}", **asdict(found)}


def _report(found: InstructionDescriptor) -> Report:

    title = f"{found.encode():#010x}: instruction descriptor of kind::{found.kind} on {found.arch}, K = {found.k}"
    return Report(title, (table(("bits", "field", "value", "meaning"), found.rows()),))
