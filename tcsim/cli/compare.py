"""`tcsim compare`: where generations give other results, by how much, and the smallest example."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.files import read_arrays, write_arrays
from tcsim.cli.output import emit
from tcsim.core.errors import OperandError
from tcsim.inspection.comparison import Comparison, Difference, compare_archs
from tcsim.inspection.listing import arch_list
from tcsim.inspection.outputs import example_arrays
from tcsim.inspection.report import Facts, Report, table


def compare(
    mnemonic: options.Mnemonic,
    archs: Annotated[
        str,
        typer.Option(
            "--archs", help="Separated by commas.", metavar="ARCH,ARCH", autocompletion=options.complete_archs
        ),
    ],
    file: Annotated[
        str | None,
        typer.Option("--inputs", "-i", help=".npz with the call's arguments by name, as of run.", metavar="FILE"),
    ] = None,
    call: options.CallOption = None,
    idesc: options.Idesc = None,
    count: Annotated[int, typer.Option("--count", min=1, max=1_000_000, help="Random outputs.")] = 4096,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random outputs.")] = 1,
    save: Annotated[
        str | None, typer.Option("--save", help="Write the first example to this .npz, as inputs of trace and run.")
    ] = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Compare the results of archs, bit by bit."""
    inputs = None if file is None else options.with_idesc(read_arrays(file, "compare"), idesc)
    descriptor = options.integer_of(idesc, "--idesc") if idesc is not None and inputs is None else None
    found = compare_archs(
        options.mnemonic_of(mnemonic), arch_list(archs), count, seed, inputs, call.value if call else None, descriptor
    )
    if save is not None:
        _save(found, save)
    data = {**found.as_dict(), "saved": save}
    emit("compare", lambda: data, lambda: _report(found), json=json, html=html)


def _save(found: Comparison, path: str) -> None:

    example = next((item.example for item in found.differences if item.example is not None), None)
    if example is None:
        raise OperandError(f"compare: nothing differs, so there is no example to write to {path!r}")
    write_arrays(path, example_arrays(found.reference, example.codes))


def _report(found: Comparison) -> Report:

    inputs = "given inputs" if found.seed is None else f"random inputs, seed {found.seed}"
    rows = [
        (f"{own.first}, {own.second}", own.outputs, own.differing, *own.by_units.values())
        if own.by_units
        else (f"{own.first}, {own.second}", own.outputs, own.differing, "", "", "", "")
        for own in found.differences
    ]
    head = ("archs", "outputs", "differ", "by 1 code", "2-9", "10 and more", "NaN")
    facts = [("inputs", inputs), *((f"{arch} is", level) for arch, level in found.evidence.items())]
    if found.descriptor is not None:
        own = found.descriptor
        formats = f"{own.a_format} x {own.b_format} to {own.d_format}"
        facts.insert(1, ("idesc", f"{own.encode():#010x}: {own.m} x {own.n} x {own.k}, {formats}"))
    parts: list[Any] = [Facts(tuple(facts)), table(head, rows, right=(1, 2, 3, 4, 5, 6))]
    seen = set()
    for pair in found.differences:
        key = str(pair.example.as_dict()) if pair.example else ""
        if key and key not in seen:
            parts += _example(pair)
            seen.add(key)
    return Report(found.mnemonic, tuple(parts))


def _example(own: Difference) -> list[Any]:

    example = own.example
    if example is None:
        return []
    rows = [(f"k={x.k}", f"{x.a.hex} ({x.a.value!r})", f"{x.b.hex} ({x.b.value!r})") for x in example.products]
    place = f", from output {example.place}" if example.place is not None else ""
    title = f"Smallest example of {own.first} and {own.second}{place}"
    facts = [("c", f"{example.c.hex} ({example.c.value!r})")]
    facts += [(name, ", ".join(f"{x.hex} ({x.value!r})" for x in codes)) for name, codes in example.scales.items()]
    facts += [(arch, f"{result.hex} ({result.value!r})") for arch, result in example.results.items()]
    parts: list[Any] = [table(("", "a", "b"), rows, title)] if rows else []
    return [*parts, Facts(tuple(facts), "" if rows else f"{title}: c alone")]
