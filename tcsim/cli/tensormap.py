"""`tcsim tensormap`: tensor maps of TMA, and the 128 bytes of a CUtensorMap."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.core.array_files import open_file
from tcsim.core.errors import OperandError, TcsimError, shortened
from tcsim.inspection.tensor_map_view import tensor_map_report
from tcsim.tma.map import TensorMap
from tcsim.tma.types import DATA_TYPES, find_mode

app = typer.Typer(help="Tensor maps of TMA: decode, encode, check.", no_args_is_help=True)

_Type = Annotated[
    str,
    typer.Option(
        "--type", "-t", help="The driver's data type, such as FLOAT16.", autocompletion=options.complete_tensor_type
    ),
]
_Dim = Annotated[str, typer.Option("--dim", help="Sizes in elements, innermost first: 256,128.")]
_Strides = Annotated[str, typer.Option("--strides", help="Bytes of each dimension but the innermost; default: packed.")]
_Box = Annotated[str, typer.Option("--box", help="Elements that a copy moves: 64,64.")]
_Steps = Annotated[
    str, typer.Option("--element-strides", help="The distance between elements that are copied; default 1.")
]
_Interleave = Annotated[str, typer.Option("--interleave", help="NONE, 16B or 32B.")]
_Swizzle = Annotated[str, typer.Option("--swizzle", help="NONE, 32B, 64B, 128B, ...")]
_Fill = Annotated[str, typer.Option("--fill", help="NONE, or NAN_REQUEST_ZERO_FMA.")]
_Promotion = Annotated[str, typer.Option("--l2", help="NONE, L2_64B, L2_128B or L2_256B.")]


@app.command()
def decode(
    data: Annotated[str, typer.Argument(help="64 or 128 bytes: hexadecimal digits, or a file.", metavar="BYTES")],
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Say what the bytes of a CUtensorMap mean. Exit status 1 if some bits do not follow from the map."""
    raw = _bytes_of(data)
    found, unexplained = TensorMap.decode(raw, strict=False), TensorMap.unexplained(raw)
    _emit(found, "decode", json, html, TensorMap.address_of(raw), raw, unexplained)
    if unexplained:
        raise typer.Exit(1)


@app.command()
def encode(
    type: _Type,
    dim: _Dim,
    box: _Box,
    address: Annotated[str, typer.Option("--address", help="Global address of the tensor.")] = "0",
    strides: _Strides = "",
    element_strides: _Steps = "",
    interleave: _Interleave = "NONE",
    swizzle: _Swizzle = "128B",
    fill: _Fill = "NONE",
    l2: _Promotion = "NONE",
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Make the 128 bytes of a tiled map."""
    made = _made(type, dim, box, strides, element_strides, interleave, swizzle, fill, l2)
    place = options.integer_of(address, "--address")
    _emit(made, "encode", json, html, place, made.encode(place))


@app.command()
def check(
    type: _Type,
    dim: _Dim,
    box: _Box,
    strides: _Strides = "",
    element_strides: _Steps = "",
    interleave: _Interleave = "NONE",
    swizzle: _Swizzle = "128B",
    fill: _Fill = "NONE",
    l2: _Promotion = "NONE",
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Say whether the driver would encode a tiled map, and what a copy moves."""
    _emit(_made(type, dim, box, strides, element_strides, interleave, swizzle, fill, l2), "check", json, html)


def _made(
    type: str, dim: str, box: str, strides: str, steps: str, interleave: str, swizzle: str, fill: str, l2: str
) -> TensorMap:

    name = type.upper()
    find_mode("data_type", name, DATA_TYPES)
    sizes = _numbers(dim, "--dim")
    if strides:
        pitches = _numbers(strides, "--strides")
    else:
        pitches, pitch = (), sizes[0] * DATA_TYPES[name].bits // 8
        for size in sizes[1:]:
            pitches, pitch = (*pitches, pitch), pitch * size
    return TensorMap(
        name, sizes, pitches, _numbers(box, "--box"), _numbers(steps, "--element-strides") if steps else (),
        interleave.upper(), swizzle.upper(), fill.upper(), l2.upper(),
    )  # fmt: skip


def _numbers(text: str, what: str) -> tuple[int, ...]:
    return tuple(options.integer_of(part.strip(), what) for part in text.split(","))


def _bytes_of(text: str) -> bytes:

    digits = "".join(text.replace("0x", "").replace(",", " ").split())
    try:
        return bytes.fromhex(digits)
    except ValueError:
        pass
    try:
        with open_file(text) as file:
            found = file.read(_LONGEST_FILE + 1)
    except FileNotFoundError:
        raise OperandError(f"{shortened(text)} is neither hexadecimal digits nor a file") from None
    if len(found) > _LONGEST_FILE:
        raise OperandError(f"{shortened(text)} has more than {_LONGEST_FILE} bytes; valid: 64 or 128 bytes")
    return found


_LONGEST_FILE = 1024


def _emit(
    found: TensorMap,
    subcommand: str,
    json: bool,
    html: str | None,
    address: int | None = None,
    raw: bytes = b"",
    unexplained: tuple[str, ...] = (),
) -> None:
    moved, why = _transaction_bytes(found)
    place = {} if address is None else {"global_address": f"{address:#x}"}
    data = {**place, **asdict(found), "loaded": found.loaded, "transaction_bytes": moved}
    emit(
        f"tensormap {subcommand}",
        lambda: data | ({"bytes": raw.hex()} if raw else {}) | _decoded(subcommand, unexplained),
        lambda: tensor_map_report(found, {**data, "transaction_bytes": why or moved}, raw, unexplained),
        json=json,
        html=html,
    )


def _decoded(subcommand: str, unexplained: tuple[str, ...]) -> dict[str, Any]:
    return {"unexplained": list(unexplained)} if subcommand == "decode" else {}


def _transaction_bytes(found: TensorMap) -> tuple[int | None, str]:
    """The bytes that an mbarrier must expect of a load, or why there is no such number."""
    try:
        return found.transaction_bytes, ""
    except TcsimError as error:
        return None, str(error)
