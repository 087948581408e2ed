"""`tcsim diagnose`: which mistake turns the inputs of a file into an observed result, or what is wrong with a launch."""

from __future__ import annotations

import sys
from inspect import signature
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.exec import changed, job_of
from tcsim.cli.files import read_arrays
from tcsim.cli.output import emit, page_of
from tcsim.core.errors import OperandError, listing
from tcsim.diagnosis import diagnose as search
from tcsim.diagnosis.question import KNOWN
from tcsim.inspection.diagnosis_view import diagnosis_report
from tcsim.inspection.problems import result_names, tensor_memory
from tcsim.inspection.report import Lines, Report
from tcsim.launchers.diagnosed import diagnose_launch, given, of_gpu
from tcsim.launchers.progress import bar

STATUS = {
    "correct": 0, "explained": 1, "mended": 1, "named": 1, "ambiguous": 2, "partly explained": 2, "not explained": 2,
    "not compared": 2,
}  # fmt: skip
"""The exit status of each verdict."""


def diagnose(
    mnemonic: Annotated[
        list[str],
        typer.Argument(
            help="The PTX spelling, or words that identify one instruction; or a kernel: CUDA C++, PTX, a recorded launch.",
            metavar="INSTRUCTION|FILE",
            autocompletion=options.complete_mnemonic,
        ),
    ],
    file: Annotated[
        str | None,
        typer.Option(
            "--inputs", "-i", help=".npz (or .pt) with a, b, c ... by name, and perhaps observed.", metavar="FILE"
        ),
    ] = None,
    launch: options.LaunchFile = None,
    observed: Annotated[
        str | None, typer.Option("--observed", help="The result: .npy, .pt, or .npz with one array; for a launch, what a GPU returned.", metavar="FILE")
    ] = None,
    arch: options.Arch = None,
    verbose: options.Verbose = False,
    idesc: options.Idesc = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Find the mistake behind a wrong result.

    Give an instruction and its --inputs, or a kernel and its --launch. For a kernel it says the cause, the place, and a mend that was
    tried and is right. A result that nothing explains is drawn: where it is wrong, and what it looks like. A page always has the drawing.

    Exit status: 0 if the result is right, also in another order of summation, 1 if what is wrong is explained, 2 if it is not
    (several explanations, a part, or none) and for wrong use.
    """
    if launch is not None or (file is None and mnemonic[0].endswith(".npz")):
        if file is not None or len(mnemonic) > 1 or idesc is not None:
            raise OperandError(
                "diagnose: --launch takes one kernel; valid beside it: --observed, --arch, --verbose, --html, --json"
            )
        _of_launch(mnemonic[0], launch, observed, arch, verbose, html, json)
        return
    if file is None:
        raise OperandError(
            "diagnose: nothing to diagnose; valid: --inputs FILE for an instruction, --launch FILE for a kernel"
        )
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
        lambda: diagnosis_report(title, found, mapped=not found.explanations),
        json=json,
        html=html,
        page=lambda: page_of(diagnosis_report(title, found, mapped=True)),
    )
    if status := STATUS[found.verdict]:
        raise typer.Exit(status)


def _of_launch(
    file: str, launch: str | None, observed: str | None, arch: str | None, verbose: bool, html: str | None, json: bool
) -> None:  # fmt: skip
    """What is wrong with a launch."""
    job, gpu = changed(job_of(file, launch, "diagnose", arch), arch, None), dict[str, Any]()
    if launch is None:  # a recorded launch: what is expected is what a GPU gave
        job, gpu = of_gpu(job)
    if observed is not None:
        gpu = given(job, read_arrays(observed, "diagnose"), f"diagnose: {observed!r}")
    with bar(job.kernel or file, sys.stderr) as progress:
        found = diagnose_launch(job, file, gpu, progress)
    emit(
        "diagnose",
        lambda: {"file": file, **found.as_dict()},
        lambda: Report("", (Lines(tuple(found.lines(verbose))),)),
        json=json,
        html=html,
    )
    if status := STATUS[found.verdict]:
        raise typer.Exit(status)
