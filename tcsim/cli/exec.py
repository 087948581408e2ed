"""`tcsim exec`: a kernel's PTX, a recorded launch, or a script for Triton, on the CPU."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tcsim.cli import options
from tcsim.cli.output import emit, page_of
from tcsim.core.array_files import open_file
from tcsim.core.errors import OperandError, shortened
from tcsim.core.files import replacing
from tcsim.core.targets import arch_named
from tcsim.inspection.report import Facts, Lines, Report, table
from tcsim.launchers import cuda_source, launch_file, recording
from tcsim.launchers.check import checked
from tcsim.launchers.check_report import findings
from tcsim.launchers.job import Execution, Job, execute
from tcsim.launchers.progress import bar
from tcsim.launchers.script import imported, run_script
from tcsim.ptx import Limits

SCHEMA = 1
"""Of what --json writes: raised when a key goes or changes its meaning."""


def run(
    file: options.Launched,
    arguments: options.Arguments = None,
    launch: options.LaunchFile = None,
    arch: options.Chip = None,
    schedule: options.Schedule = None,
    output: Annotated[
        str | None, typer.Option("--output", help="Write the arrays that changed to this folder, as .npy.", metavar="FOLDER")
    ] = None,
    save: Annotated[
        str | None, typer.Option("--save", help="Write each launch of a script to this folder, as a recorded launch.", metavar="FOLDER")
    ] = None,
    sample: options.Sample = False,
    every: options.Every = False,
    verbose: options.Verbose = False,
    html: options.Html = None,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Run a kernel's PTX, a recorded launch, or a script for Triton, without a GPU.

    Memory is compared with what is expected. A script runs as `python` runs it; what it launches runs here.

    Exit status: 0 if it ran to its end and memory is as expected, 1 if not or if a hazard is an error, 2 for wrong use. A script has
    its own status, or 1 after such a hazard.
    """
    if file.endswith(".py"):
        arch = arch_of_script(file, arch, "exec", {"--launch": launch, "--output": output, "--html": html})
        raise typer.Exit(_script(file, arguments or [], arch, schedule, save, json, sample))
    if arguments or save is not None:
        what = "--save" if save is not None else shortened(arguments)
        raise OperandError(f"exec: {file!r} with {what}; valid only with a script, .py")
    job = replace(changed(job_of(file, launch, arch=arch), arch, schedule), check=watched(sample))
    with bar(job.kernel or Path(file).stem, sys.stderr) as progress:
        found = execute(job, progress)
    files = _written(found, output)
    data = {"schema": SCHEMA, "file": file, **found.as_dict(), "files": files}
    emit(
        "exec", lambda: data, lambda: _report(file, found, files, every, verbose), json=json, html=html,
        page=lambda: page_of(_report(file, found, files, every, verbose=True)),
    )  # fmt: skip
    if not found.passed:
        raise typer.Exit(1)


def _script(
    file: str, arguments: list[str], arch: str, schedule: str | None, save: str | None, json: bool, sample: bool
) -> int:
    """Run a script; its exit status. With --json what it prints goes to standard error."""
    with redirect_stdout(sys.stderr) if json else nullcontext():
        status, session = run_script(
            file, arguments, arch, schedule=when(schedule or "late"), save=save, check=watched(sample)
        )
    if json:
        launches = [own.as_dict() for own in session.launches]
        data = {"schema": SCHEMA, "file": file, "arch": session.arch, "status": status, "launches": launches}
        emit("exec", lambda: data, lambda: Report(file, ()), form="json")
    return int(status)


def arch_of_script(file: str, arch: str | None, call: str, others: Mapping[str, str | None]) -> str:
    """The arch that a script is compiled for. others: options that only kernels take. Raises OperandError, quoting the call."""
    for name, given in others.items():
        if given is not None:
            raise OperandError(f"{call}: {file!r} is a script; valid: no {name}")
    packages = opened(file, imported, call)
    if arch is None:
        model = (
            "; for a torch model use tcsim.torch.emulate instead (docs/torch.md)"
            if "torch" in packages and packages.isdisjoint(("triton", "cutlass"))
            else ""
        )
        raise OperandError(f"{call}: {file!r} needs --arch: what Triton or CuTe DSL compiles for, as sm_90{model}")
    return arch


def watched(sample: bool) -> str | bool:
    """What `Kernel.launch(check=)` gets."""
    return "sample" if sample else True


def when(schedule: str) -> str | int:
    """A schedule of the command line. Raises OperandError."""
    return schedule if schedule.partition(":")[0] in ("late", "early") else options.integer_of(schedule, "--schedule")


def ptx_of(file: str, arch: str | None, call: str) -> bytes:
    """The PTX of a file: its text, or of CUDA C++ what a compiler makes of it for an arch, else sm_90. Raises OperandError, quoting the call."""
    if opened(file, _is_cuda, call):
        return cuda_source.ptx_of(file, arch_named(arch or DEFAULT), call)
    opened(file, lambda path: _check_kind(path, call), call)
    with opened(file, open_file, call) as stream:
        ptx: bytes = stream.read(Limits().characters + 1)
    return ptx


def source_of(file: str, call: str) -> str:
    """The text of a file of CUDA C++, as far as PTX may be long; empty for another one. Raises OperandError, quoting the call."""
    if not opened(file, _is_cuda, call):
        return ""
    with opened(file, open_file, call) as stream:
        text: bytes = stream.read(Limits().characters)
    return text.decode("utf-8", "replace")


def job_of(file: str, launch: str | None, call: str = "exec", arch: str | None = None) -> Job:
    """The launch that a recorded launch, or PTX or CUDA C++ and a launch file, mean. arch: of the command line. Raises OperandError, quoting the call."""
    if not opened(file, _is_cuda, call):
        opened(file, lambda path: _check_kind(path, call), call)
    if file.endswith(".npz"):
        if launch is not None:
            raise OperandError(f"{call}: {file!r} is a recorded launch; valid: no --launch, which is for PTX")
        return opened(file, recording.read, call).job()
    if launch is None:
        raise OperandError(
            f"{call}: {file!r} needs --launch with a launch file, which `tcsim launch init {file}` begins; valid without: a "
            "recorded launch, .npz"
        )
    ptx = ptx_of(file, arch or opened(launch, launch_file.arch_of, call), call)
    return opened(launch, lambda path: launch_file.read(path, ptx), call)


DEFAULT = "sm_90"
"""The arch for which CUDA C++ is compiled where nothing says one."""
_MACHINE_CODE = (b"\x7fELF", b"\x50\xed\x55\xba")
_KINDS: tuple[tuple[Callable[[str, bytes], bool], str], ...] = (
    (lambda file, head: head.startswith(_MACHINE_CODE), "machine code: valid: PTX; `cuobjdump -ptx {file}` prints it if it is in there"),
    (lambda file, head: file.endswith(".toml"), "a launch file: valid: the kernel, with --launch {file}"),
    (
        lambda file, head: file.endswith(".py"),
        "a script: valid: a launch of it, as `tcsim exec {file} --arch sm_90 --save FOLDER` writes them: tcsim {call} FOLDER/NAME.npz",
    ),
)  # fmt: skip
"""Files that are neither PTX nor a recorded launch, by name and first bytes, and what is said of them."""
_HEAD = 4096
_VERSION = re.compile(rb"^\s*\.version\s", re.MULTILINE)
"""What every PTX module begins with."""


def _is_cuda(file: str) -> bool:
    """Whether a file is CUDA C++, by its name or first bytes; PTX may quote it in comments."""
    with open_file(file) as stream:
        head = stream.read(_HEAD)
    named = file.endswith((".cu", ".cuh"))
    return named or (b"__global__" in head and not file.endswith(".npz") and not _VERSION.search(head))


def _check_kind(file: str, call: str) -> None:
    """Raise OperandError for a file of another kind, FileNotFoundError if there is none."""
    with open_file(file) as stream:
        head = stream.read(_HEAD)
    for of_kind, said in _KINDS:
        if of_kind(file, head):
            raise OperandError(f"{call}: {file!r} is {said.format(file=file, call=call)}")


def opened(path: str, reader: Callable[[str], Any], call: str = "exec") -> Any:
    """What a reader makes of a file. Raises OperandError, quoting the call, if there is none."""
    try:
        return reader(path)
    except FileNotFoundError:
        near = sorted(own.name for own in Path(path).resolve().parent.glob(f"*{Path(path).suffix}"))[:8]
        raise OperandError(f"{call}: no file {path!r}" + (f"; here are {', '.join(near)}" if near else "")) from None


def changed(job: Job, arch: str | None, schedule: str | None) -> Job:
    """The launch with what the command line says of it."""
    if schedule is not None:
        job = replace(job, schedule=when(schedule))
    return replace(job, arch=arch) if arch is not None else job


def _written(found: Execution, output: str | None) -> dict[str, str]:
    """Write what changed; the files by array."""
    if output is None:
        return {}
    files = {}
    for region in found.job.regions:
        if not found.changed(region):
            continue
        path = Path(output) / f"{region.name}.npy"
        if path.parent != Path(output) or not region.name.isprintable():
            raise OperandError(
                f"exec: array {region.name!r} cannot be a file; valid: letters that can be seen, without /"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                np.save(file, found.array(region))
        except OSError as error:
            raise OperandError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
        files[region.name] = str(path)
    return files


def _report(file: str, found: Execution, files: dict[str, str], every: bool, verbose: bool) -> Report:
    job, run = found.job, found.run
    shape = f"grid {_dim3(job.grid)}, block {_dim3(job.block)}" + (
        f", cluster {_dim3(job.cluster)}" if job.cluster != (1, 1, 1) else ""
    )
    facts = [
        ("launch", f"{shape}, {job.dynamic_smem} dynamic shared bytes, schedule {job.schedule}"),
        ("completed", ("yes" if run.completed else "no") + f", {run.instructions} instructions"),
    ]
    facts += [("check", run.sampled)] if run.sampled else []
    facts.append(
        (
            "inexact",
            ", ".join(f"{name} x {count}" for name, count in run.inexact.items()) or "nothing: the hardware's bits",
        )
    )
    facts += [("not recorded", note) for note in job.notes]
    parts: list[Any] = [Facts(tuple(facts))]
    for cause in checked(job, file, [found]).causes:
        parts += findings(cause, every, verbose)
    if job.regions:
        parts.append(_arrays(found, files))
    if run.output:
        parts.append(Lines(tuple(run.output.splitlines()), "Printed"))
    if found.printed is False:
        parts.append(Lines(tuple((job.output or "").splitlines()), "Expected to be printed", "bad"))
    for own in found.comparisons:
        if own.unequal:
            parts.append(Lines(tuple(own.lines()), own.name, "" if own.equal else "bad", wrap=True))
    verdict = {None: "completed; nothing is expected", True: "as expected", False: "not as expected"}[found.equal]
    if not found.passed and found.equal is not False:
        verdict = "failed: " + (run.cause.name if run.cause else "it did not complete")
    parts.append(Lines((verdict,), "", "good" if found.passed else "bad"))
    return Report(f"{run.kernel} on {run.arch}", tuple(parts))


def _arrays(found: Execution, files: dict[str, str]) -> Any:
    compared = {own.name: own for own in found.comparisons}
    rows = []
    for own in found.job.regions:
        shape, comparison = " x ".join(map(str, own.shape)), compared.get(own.name)
        differing = "" if comparison is None else f"{comparison.differing} of {comparison.compared}"
        rows.append((own.name, own.elements.name, shape, found.changed(own), differing, files.get(own.name, "")))
    return table(("array", "format", "shape", "bytes changed", "differ", "file"), rows, right=(3, 4))


def _dim3(own: tuple[int, int, int]) -> str:
    return " x ".join(str(size) for size in own)
