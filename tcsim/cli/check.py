"""`tcsim check`: what is wrong in a launch, or in the launches of a script, with both lines, the rule and the fix."""

from __future__ import annotations

import json as encoder
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.exec import arch_of_script, changed, job_of, watched, when
from tcsim.cli.output import emit, page_of, plain, save
from tcsim.core.errors import OperandError, shortened
from tcsim.launchers.check import Check, Shown, page
from tcsim.launchers.check import check as check_job
from tcsim.launchers.check_report import report
from tcsim.launchers.job import Job
from tcsim.launchers.progress import bar
from tcsim.launchers.script import check_script
from tcsim.launchers.witnesses import ORDERS, SCHEDULES


def check(
    file: options.Launched,
    arguments: options.Arguments = None,
    launch: options.LaunchFile = None,
    arch: options.Chip = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option("--schedule", help="late, early, a seed, or late:LINE, early:LINE; may be repeated. Default: late and early; for a script late.", metavar="WHEN"),
    ] = None,
    sarif: Annotated[
        str | None, typer.Option("--sarif", help="Write a SARIF 2.1.0 log, for code review.", metavar="FILE")
    ] = None,
    timeline: Annotated[
        str | None, typer.Option("--timeline", help="Write a page that shows what one block did, with hazards marked.", metavar="FILE")
    ] = None,
    block: Annotated[
        str | None, typer.Option("--block", help="Which block the timeline shows. Default: that of the first hazard, else 0,0,0.", metavar="X,Y,Z")
    ] = None,
    orders: Annotated[
        int, typer.Option("--orders", help="Orders of completion to try for a witness of each error, at most; 0: none.", min=0)
    ] = ORDERS,
    races: Annotated[
        bool, typer.Option("--races", help="Also look for races in global memory, between all blocks of a launch. Slower.")
    ] = False,
    sample: options.Sample = False,
    every: options.Every = False,
    verbose: options.Verbose = False,
    html: options.Html = None,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Name what is wrong in a kernel: missing fences, waits and barriers, races, faults and deadlocks. No GPU is needed.

    It takes what `tcsim exec` takes, and runs it under each schedule. A finding is three lines: cause, place, mend. Findings on the
    same line of the source are shown once.

    Exit status: 0 if no error was found, 1 if one was, 2 for wrong use.
    """
    schedules = tuple(dict.fromkeys(map(when, schedule))) if schedule else ()
    if block is not None and timeline is None:
        raise OperandError(f"check: --block {shortened(block)} without --timeline; valid: with it")
    if sample and races:
        raise OperandError("check: --sample with --races; valid: one of them, races are between all blocks")
    if file.endswith(".py"):
        found = _script(
            file,
            arguments or [],
            launch,
            arch,
            schedules or ("late",),
            orders=orders,
            timeline=timeline is not None,
            races=races,
            check=watched(sample),
        )
        shown = found.shown
    elif arguments:
        raise OperandError(f"check: {file!r} with {shortened(arguments)}; valid only with a script, .py")
    else:
        job = replace(changed(job_of(file, launch, "check", arch), arch, None), races=races, check=watched(sample))
        with bar(job.kernel or Path(file).stem, sys.stderr) as progress:
            found = check_job(job, file, schedules or SCHEDULES, progress, orders)
        shown = _shown(found, job)
    if timeline is not None:
        if shown is None:
            raise OperandError(
                f"check: {file!r} with --timeline launched nothing; valid: a script that launches kernels"
            )
        at = shown.block if block is None else [options.integer_of(own, "--block") for own in block.split(",")]
        save(timeline, page(replace(shown, block=at)))
    if sarif is not None:
        save(sarif, encoder.dumps(plain(found.sarif()), indent=1) + "\n")
    emit(
        "check", found.as_dict, lambda: report(found, every, verbose), json=json, html=html,
        page=lambda: page_of(report(found, every, verbose=True)),
    )  # fmt: skip
    if not found.passed:
        raise typer.Exit(1)


def _script(
    file: str, arguments: list[str], launch: str | None, arch: str | None, schedules: tuple[str | int, ...], **kept: Any
) -> Check:  # fmt: skip
    """Check a script; what it prints goes to standard error. kept: options of `check_script`."""
    arch = arch_of_script(file, arch, "check", {"--launch": launch})
    with redirect_stdout(sys.stderr):
        return check_script(file, arguments, arch, schedules, **kept)


def _shown(found: Check, job: Job) -> Shown:
    """A launch under the schedule of the first hazard that names a block, and that block."""
    first = next((own for own in found.findings if own.hazard.block is not None), None)
    if first is None or first.hazard.block is None:
        return Shown(replace(job, schedule=found.schedules[0]))
    return Shown(replace(job, schedule=first.schedules[0]), first.hazard.block)
