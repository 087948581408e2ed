"""`tcsim quantize`: an array of a file to codes of a narrow format, and what that costs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.files import read_arrays, write_arrays
from tcsim.cli.output import emit
from tcsim.core.errors import OperandError, listing
from tcsim.inspection.quantization import Quantization, quantization
from tcsim.inspection.report import Facts, Report


class Blocks(StrEnum):
    """Scale factors of blocks."""

    none = "none"
    mx = "mx"
    nvfp4 = "nvfp4"


def quantize(
    file: Annotated[str, typer.Argument(help=".npy, or .npz.", metavar="FILE")],
    type: Annotated[
        str, typer.Option("--type", "-t", help="Number format of the codes.", autocompletion=options.complete_format)
    ],
    name: Annotated[str | None, typer.Option("--name", help="Which array of an .npz file.")] = None,
    rounding: Annotated[
        str,
        typer.Option(
            "--rounding", help="rne, rz, rm, rp, rna, or rs: stochastic.", autocompletion=options.complete_rounding
        ),
    ] = "rne",
    saturate: Annotated[bool, typer.Option(help="Clamp numbers that are out of range.")] = True,
    blocks: Annotated[Blocks, typer.Option("--blocks", help="Scale factors of blocks.")] = Blocks.none,
    axis: Annotated[int, typer.Option("--axis", help="Along which blocks lie.")] = -1,
    scale: Annotated[
        str | None,
        typer.Option("--scale", help="MX: floor, rceil, ceil, even; NVFP4: e4m3, ue5m3. [default: the first]"),
    ] = None,
    square: Annotated[bool, typer.Option("--square", help="NVFP4 blocks of 16 x 16, for weights.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the random bits of --rounding rs.", min=0)] = None,
    output: Annotated[
        str | None, typer.Option("--output", help="Write codes and scale factors to this .npz.", metavar="FILE")
    ] = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Quantise an array of a file, and say what is lost."""
    arrays = read_arrays(file, "quantize")
    if not arrays:
        raise OperandError(f"quantize: {file!r} holds no arrays")
    if name is None and len(arrays) != 1:
        raise OperandError(f"quantize: {file!r} holds several arrays; --name one of {listing(arrays)}")
    chosen = name if name is not None else next(iter(arrays))
    if chosen not in arrays:
        raise OperandError(f"quantize: {file!r} has no array {chosen!r}; valid: {listing(arrays)}")
    asked: dict[str, Any] = {"rounding": rounding, "blocks": blocks.value, "scale": scale}
    found = quantization(arrays[chosen], type, saturate=saturate, axis=axis, square=square, seed=seed, **asked)
    if output is not None:
        write_arrays(output, found.arrays)
    data = {"file": file, "array": chosen, "output": output, **found.as_dict()}
    emit("quantize", lambda: data, lambda: _report(file, chosen, found), json=json, html=html)


def _report(file: str, name: str, found: Quantization) -> Report:

    share = f" of {found.count}"
    facts = [
        ("format", found.format + (f", {found.blocks} blocks" if found.scales is not None else "")),
        ("exact", f"{found.exact}{share}"),
        ("became zero", f"{found.to_zero}{share}"),
        ("not finite", f"{found.not_finite}{share}"),
        ("largest error", f"{found.largest_error:.6g}"),
        ("rms error", f"{found.rms_error:.6g}"),
        ("largest relative error", f"{found.largest_relative_error:.6g}"),
    ]
    if found.scales is None:
        facts.insert(3, ("out of range", f"{found.beyond}{share}"))
    if found.tensor_scale is not None:
        facts.append(("tensor scale", f"{found.tensor_scale:.9g}"))
    return Report(f"{file}: {name} {tuple(found.codes.shape)}", (Facts(tuple(facts)),))
