"""`tcsim explain`: which instruction, order of summation and epilogue give the bits of a library's product."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.files import read_arrays, write_arrays
from tcsim.cli.output import emit
from tcsim.core.errors import OperandError, listing
from tcsim.explanation import explain as search
from tcsim.explanation.probes import DTYPES, PROBES
from tcsim.explanation.report import Explanation
from tcsim.inspection.report import Lines, Report
from tcsim.numbers.formats import FORMATS

NAMES = ("a", "b", "observed", "c", "scale_a", "scale_b")


def explain(
    files: Annotated[
        list[str],
        typer.Argument(
            help="a, b, observed and perhaps c: .npz or .pt with these names, or one array each: a=FILE.",
            metavar="FILE...",
        ),
    ],
    formats: Annotated[
        str | None,
        typer.Option("--formats", help="Of a, b and observed where files hold codes: bf16,bf16,bf16.", metavar="A,B,D"),
    ] = None,
    alpha: Annotated[float, typer.Option(help="The factor of the product.")] = 1.0,
    beta: Annotated[float, typer.Option(help="The factor of c.")] = 1.0,
    arch: options.Arch = None,
    settle: Annotated[
        str | None,
        typer.Option("--settle", help="Write operands a and b that tell the orders apart: .npz.", metavar="FILE"),
    ] = None,
    probe: Annotated[str, typer.Option(help=f"Which operands --settle makes: {listing(PROBES)}.")] = "cancelling",
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Find the instruction, the order of summation and the epilogue behind a library's product."""
    arrays = _read(files)
    missing = [name for name in ("a", "b", "observed") if name not in arrays]
    if missing:
        raise OperandError(f"explain: no {listing(missing)}; valid: a, b and observed, in one file or as name=FILE")
    if formats is not None:
        arrays |= _as_formats(arrays, formats)
    a, b, observed = (arrays.pop(name) for name in ("a", "b", "observed"))
    found = search(a, b, observed, arch=arch or "sm_90", alpha=alpha, beta=beta, **arrays)
    if settle is not None:
        left, right = found.settle(probe)
        write_arrays(settle, {"a": left, "b": right})
    emit("explain", found.as_dict, lambda: _report(found), json=json, html=html)
    if found.verdict == "not explained":
        raise typer.Exit(1)


def _read(files: list[str]) -> dict[str, Any]:
    """The arrays of all files by name."""
    arrays: dict[str, Any] = {}
    for given in files:
        name, equals, path = given.partition("=")
        if equals and name in NAMES:
            held = read_arrays(path, "explain")
            if len(held) != 1:
                raise OperandError(f"explain: {path!r} holds {listing(held) or 'nothing'}; valid: one array")
            arrays[name] = next(iter(held.values()))
            continue
        held = read_arrays(given, "explain")
        names = [Path(given).stem] if list(held) == ["x"] else list(held)
        if unknown := [name for name in names if name not in NAMES]:
            raise OperandError(f"explain: {given!r} holds {listing(unknown)}; valid: {listing(NAMES)}")
        arrays |= dict(zip(names, held.values(), strict=True))
    return arrays


def _as_formats(arrays: dict[str, Any], formats: str) -> dict[str, Any]:
    """Arrays of codes as the formats that were named."""
    named = formats.split(",")
    valid = {name: dtype for name, dtype in DTYPES.items() if name in FORMATS}
    if len(named) != 3 or any(name not in valid for name in named):
        raise OperandError(f"explain: --formats {formats}; valid: three of {listing(valid)}, as bf16,bf16,f32")
    found = {}
    for name, format in zip(("a", "b", "observed"), named, strict=True):
        array = arrays[name]
        if array.dtype.itemsize * 8 != FORMATS[format].container_bits:
            raise OperandError(f"explain: {name} is {array.dtype}, which does not hold {format}")
        found[name] = array.view(valid[format])
    return found


def _report(found: Explanation) -> Report:
    return Report("", (Lines(tuple(found.lines()), style="good" if found.verdict == "explained" else "", wrap=True),))
