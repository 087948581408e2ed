"""`tcsim diagnose`: which mistake turns the inputs of a file into an observed result."""

from __future__ import annotations

from inspect import signature
from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.files import read_arrays
from tcsim.cli.output import emit
from tcsim.core.errors import OperandError, listing
from tcsim.diagnosis import diagnose as search
from tcsim.diagnosis.question import KNOWN
from tcsim.inspection.diagnosis_view import diagnosis_report
from tcsim.inspection.problems import result_names, tensor_memory

STATUS = {"correct": 0, "explained": 1, "ambiguous": 2, "partly explained": 2, "not explained": 2}
"""The exit status of each verdict."""


def diagnose(
    mnemonic: options.Mnemonic,
    file: Annotated[
        str,
        typer.Option(
            "--inputs", "-i", help=".npz (or .pt) with a, b, c ... by name, and perhaps observed.", metavar="FILE"
        ),
    ],
    observed: Annotated[
        str | None, typer.Option("--observed", help="The result: .npy, .pt, or .npz with one array.", metavar="FILE")
    ] = None,
    arch: options.Arch = None,
    idesc: options.Idesc = None,
    html: options.Html = False,
    json: options.Json = False,
) -> None:
    """Find the mistake behind a wrong result.

    What is not explained is drawn: where it is wrong, and what it looks like. --html draws it always.

    Exit status: 0 if the result is right, also in another order of summation, 1 if what is wrong is explained, 2 if it is not
    (several explanations, a part, or none) and for wrong use.
    """
    instruction = options.instruction_of(mnemonic, arch)
    read = read_arrays(file, "diagnose")
    names = {"observed", *KNOWN, *signature(instruction.execute).parameters}
    if unknown := [name for name in read if name not in names]:
        raise OperandError(f"diagnose: {file!r} holds {listing(unknown)}; valid: {listing(sorted(names))}")
    plain = {name: array.item() if array.ndim == 0 else array for name, array in read.items()}
    arrays = dict(options.with_idesc(plain, idesc))
    if observed is not None:
        results = read_arrays(observed, "diagnose")
        parts = result_names(instruction)
        if len(results) != 1 and set(results) != set(parts):
            valid = "one array" + (f", or {', '.join(parts)}" if len(parts) > 1 else "")
            raise OperandError(f"diagnose: {observed!r} holds {listing(results) or 'nothing'}; valid: {valid}")
        arrays["observed"] = (
            next(iter(results.values())) if len(results) == 1 else tuple(results[name] for name in parts)
        )
    if "observed" not in arrays:
        raise OperandError(
            "diagnose: no observed result; valid: --observed FILE, or an array named observed in --inputs"
        )
    if "tmem" in arrays:
        arrays["tmem"] = tensor_memory(arrays["tmem"], "diagnose")
    found = search(instruction, **arrays)
    head = {"mnemonic": instruction.mnemonic, "arch": instruction.arch.name}
    title = f"{instruction.mnemonic} on {instruction.arch.name}"
    emit(
        "diagnose",
        lambda: head | found.as_dict(),
        lambda: diagnosis_report(title, found, mapped=html or not found.explanations),
        form=options.form_of(json, html),
    )
    if status := STATUS[found.verdict]:
        raise typer.Exit(status)
