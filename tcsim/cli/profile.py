"""`tcsim profile`: what a launch costs, line by line, in the GPU's counters."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.exec import arch_of_script, changed, job_of
from tcsim.cli.output import emit, page_of
from tcsim.core.errors import OperandError, shortened
from tcsim.inspection.report import Report
from tcsim.launchers.job import execute
from tcsim.launchers.profile import SCHEMA, Profile, compared
from tcsim.launchers.profile_page import page_report
from tcsim.launchers.progress import bar
from tcsim.launchers.script import run_script


def profile(
    file: options.Launched,
    arguments: options.Arguments = None,
    launch: options.LaunchFile = None,
    arch: options.Chip = None,
    compare: Annotated[
        str | None, typer.Option("--compare", help="Show only what changed since an answer that --json wrote.", metavar="FILE")
    ] = None,
    machine: Annotated[
        bool, typer.Option("--machine", help="Also assemble it: registers, and how often each machine instruction runs. Needs the extra assemble.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show every counter, and the banks of the worst access.")
    ] = False,
    html: options.Html = None,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Count what a kernel costs: bank conflicts, sectors, tensor cycles, a bound on its time, and why. No GPU is needed.

    It takes what `tcsim exec` takes. Every launch of a script is counted.

    Exit status: 0 if the launch ran to its end, 1 if not, 2 for wrong use.
    """
    if file.endswith(".py"):
        found = _script(file, arguments or [], launch, arch)
    elif arguments:
        raise OperandError(f"profile: {file!r} with {shortened(arguments)}; valid only with a script, .py")
    else:
        job = replace(changed(job_of(file, launch, "profile", arch), arch, None), check=False, counters=True)
        with bar(job.kernel or Path(file).stem, sys.stderr) as progress:
            done = execute(job, progress)
        found = [Profile(file, done.run, job.grid, job.block)]
    found = [own.assembled() for own in found] if machine else found
    if compare is not None and len(found) != 1:
        raise OperandError(f"profile: --compare with {len(found)} launches; valid: with one")
    data = (
        found[0].as_dict()
        if len(found) == 1
        else {"schema": SCHEMA, "file": file, "launches": [own.as_dict() for own in found]}
    )
    changes = [compared(data, compare)] if compare is not None else None
    emit(
        "profile", lambda: data, lambda: _joined(changes or [own.report(verbose) for own in found]), json=json, html=html,
        page=lambda: page_of(_joined(changes or [page_report(own) for own in found])),
    )  # fmt: skip
    if not all(own.run.completed for own in found):
        raise typer.Exit(1)


def _script(file: str, arguments: list[str], launch: str | None, arch: str | None) -> list[Profile]:
    arch = arch_of_script(file, arch, "profile", {"--launch": launch})
    with redirect_stdout(sys.stderr):
        _, session = run_script(file, arguments, arch, check=False, counters=True)
    return [Profile(file, own.run, own.grid, own.block) for own in session.launches]


def _joined(reports: list[Report]) -> Report:
    """Reports as one: the titles of all but the first stand above their parts."""
    first, *others = reports
    parts: list[Any] = [*first.parts]
    for own in others:
        parts += [replace(own.parts[0], title=own.title), *own.parts[1:]]
    return Report(first.title, tuple(parts))
