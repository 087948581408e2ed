"""Which assemblers this machine has, what each accepts, and what one of them makes of a PTX text.

Nothing here needs a GPU. An assembly that ptxas repaired on its own (a serialised wgmma pipeline, an ignored
setmaxnreg, a register spill) is an error by default: the machine code would no longer be the kernel that was written.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tcsim.core import versions
from tcsim.core.targets import TARGETS

INSTALL_HINT = "pip install 'tcsim[assemble]'"
PTXAS_TIMEOUT_S = 300.0
COMPLAINT_LIMIT = 12  # PTX lines quoted in one error
COMPLAINT_WIDTH = 160  # characters of each: a wgmma names up to 256 registers

# ptxas advisories about code that it changed: 'setmaxnreg' ignored (C7504, C7507 and C7508 seen), and wgmma serialised
# or given a wait that the PTX lacks (C7509 .. C7520). The numbers move between releases, so all of C75xx is taken.
_ADVISORY = re.compile(r"\(C75\d\d\)")
_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_LINE = re.compile(r"\bline (\d+)")


class ToolchainError(RuntimeError):
    """No installed assembler or disassembler can do what was asked."""


class AssembleError(RuntimeError):
    """ptxas refused a PTX text, or changed it.

    `log` is all that ptxas said, `target` what it assembled for, `notes` the advisories that were not allowed (empty
    when ptxas failed outright), `lines` the PTX lines it names as (number, text).
    """

    def __init__(
        self, summary: str, log: str, target: str, notes: tuple[str, ...] = (), lines: tuple[tuple[int, str], ...] = ()
    ) -> None:
        super().__init__(summary, log, target, notes, lines)
        self.summary, self.log, self.target, self.notes, self.lines = summary, log, target, notes, lines

    def __str__(self) -> str:
        quoted = "".join(
            f"\n  {number:5d} | {text[:COMPLAINT_WIDTH]}{' ...' if len(text) > COMPLAINT_WIDTH else ''}"
            for number, text in self.lines[:COMPLAINT_LIMIT]
        )
        more = len(self.lines) - COMPLAINT_LIMIT
        tail = f"\n        ({more} more lines named in the log)" if more > 0 else ""
        return f"{self.summary}\n{self.log.strip()}{quoted}{tail}"


@dataclass(frozen=True)
class Toolchain:
    """One ptxas, the nvdisasm that goes with it, and where they came from."""

    ptxas: Path
    nvdisasm: Path | None  # beside ptxas if there is one, else the first found anywhere
    version: str  # of ptxas, "13.5.37"
    source: str  # the place searched: "wheel nvidia/cu13", "$CUDA_HOME", "PATH", ...

    def __str__(self) -> str:
        return f"ptxas {self.version} ({self.source})"


@dataclass(frozen=True)
class Assembly:
    """What ptxas made of one PTX text for one target."""

    cubin: bytes = field(repr=False)
    log: str = field(repr=False)
    notes: tuple[str, ...]  # empty unless allow_notes let some pass
    toolchain: Toolchain
    target: str
    flags: tuple[str, ...]
    ptx_sha256: str
    cubin_sha256: str


class Job(NamedTuple):
    """The arguments of one `assemble`, for `assemble_many`."""

    ptx: str
    target: str
    toolchain: Toolchain | None = None
    flags: tuple[str, ...] = ()
    allow_notes: bool = False


def ptx_version_for(target: str) -> str:
    """The lowest `.version` that `target` needs, "8.0" for "sm_90a".

    Raises ToolchainError for an unknown target. Source: tcsim.core.targets, by experiment with ptxas.
    """
    try:
        return TARGETS[target].ptx_version
    except KeyError:
        raise ToolchainError(f"no PTX version is known for target {target!r}; known: {' '.join(TARGETS)}") from None


def places() -> Iterator[tuple[str, Path]]:
    """The directories that may hold ptxas, in order of preference, as (source, directory)."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for directory in sorted(Path(root).glob("*/bin"), reverse=True):  # cu13 (CUDA 13), cuda_nvcc (CUDA 12)
            yield f"wheel nvidia/{directory.parent.name}", directory
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield f"${variable}", Path(os.environ[variable], "bin")
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        if entry:
            yield "PATH", Path(entry)
    yield "/usr/local/cuda", Path("/usr/local/cuda/bin")


def executables(name: str) -> Iterator[tuple[str, Path]]:
    """Every distinct executable called `name` in `places()`, as (source, path)."""
    seen: set[Path] = set()
    for source, directory in places():
        path = shutil.which(name, path=str(directory))
        if path and (resolved := Path(path).resolve()) not in seen:
            seen.add(resolved)
            yield source, Path(path)


@cache
def find_toolchains() -> tuple[Toolchain, ...]:
    """Every working ptxas of this machine, newest first; empty if there is none.

    Looks at the wheels that the running interpreter can see, $CUDA_HOME, $CUDA_PATH, PATH and /usr/local/cuda. A file
    that does not answer `--version` is passed over. Cached: `find_toolchains.cache_clear()` after an installation.
    """
    found = []
    any_nvdisasm = next((path for _, path in executables("nvdisasm")), None)
    for source, ptxas in executables("ptxas"):
        try:
            answer = subprocess.run([ptxas, "--version"], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        version = re.search(r"\bV(\d+(?:\.\d+)+)", answer.stdout)
        if version:
            beside = shutil.which("nvdisasm", path=str(ptxas.parent))
            found.append(Toolchain(ptxas, Path(beside) if beside else any_nvdisasm, version[1], source))
    return tuple(sorted(found, key=lambda toolchain: versions.number(toolchain.version), reverse=True))


@cache
def targets_of(toolchain: Toolchain) -> tuple[str, ...]:
    """The real targets ("sm_..") that this ptxas lists among the values of --gpu-name, in its order. Cached."""
    text = subprocess.run([toolchain.ptxas, "--help"], capture_output=True, text=True, timeout=60).stdout
    option = re.search(r"^--gpu-name\b.*?(?=^--|\Z)", text, re.MULTILINE | re.DOTALL)
    return tuple(dict.fromkeys(re.findall(r"'(sm_\d+[af]?)'", option[0]))) if option else ()


def _inventory() -> str:
    """What was found, for an error text."""
    found = find_toolchains()
    if not found:
        sources = ", ".join(dict.fromkeys(source for source, _ in places()))
        return f"no ptxas was found (looked at the wheels of this interpreter, $CUDA_HOME, $CUDA_PATH, {sources})"
    targets = dict.fromkeys(target for toolchain in found for target in targets_of(toolchain))
    return f"found {', '.join(map(str, found))}, which take {' '.join(targets)}"


def toolchain_for(target: str) -> Toolchain:
    """The newest installed toolchain whose ptxas lists `target`.

    Raises ToolchainError that says what was found. sm_70 and sm_72 need CUDA 12, sm_107 needs CUDA 13.5.
    """
    for toolchain in find_toolchains():
        if target in targets_of(toolchain):
            return toolchain
    raise ToolchainError(f"no assembler for target {target!r}: {_inventory()}; {INSTALL_HINT} brings CUDA 12 and 13")


def notes_in(log: str) -> tuple[str, ...]:
    """The lines of a `ptxas -v` log that say the code is not what was written: advisories C75xx and register spills.

    A missing wgmma.fence is not among them: ptxas 13.5 adds it without a word.
    """
    notes, function = [], "?"
    for line in log.splitlines():
        if header := _FUNCTION.search(line):
            function = header[1]
        elif _ADVISORY.search(line):
            notes.append(line.strip())
        elif (spill := _SPILL.search(line)) and (int(spill[1]) or int(spill[2])):
            notes.append(f"register spill in {function}: {spill[0]}")
    return tuple(notes)


def _lines_named(ptx: str, text: Iterable[str]) -> tuple[tuple[int, str], ...]:
    """The PTX lines whose numbers occur in `text`, each once, as (number, line)."""
    source = ptx.splitlines()
    numbers = dict.fromkeys(int(match) for line in text for match in _LINE.findall(line))
    return tuple((number, source[number - 1]) for number in numbers if 1 <= number <= len(source))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def assemble(
    ptx: str,
    target: str,
    toolchain: Toolchain | None = None,
    flags: Sequence[str] = (),
    *,
    allow_notes: bool = False,
) -> Assembly:
    """Run `ptxas -v --gpu-name target` on `ptx` and return the cubin with everything needed to say where it came from.

    The same text, target, flags and assembler give the same bytes: the temporary names do not reach the cubin.
    Raises ToolchainError if no assembler takes the target, AssembleError if ptxas fails or (without `allow_notes`) if
    it changed the code (`notes_in`). Source: the ptxas log.
    """
    if toolchain is None:
        toolchain = toolchain_for(target)
    elif target not in targets_of(toolchain):
        raise ToolchainError(f"{toolchain} has no target {target!r}; it has {' '.join(targets_of(toolchain))}")
    with tempfile.TemporaryDirectory(prefix="hwkernels-") as directory:
        source, output = Path(directory, "kernel.ptx"), Path(directory, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        command = [str(toolchain.ptxas), "-v", "--gpu-name", target, *flags, "-o", output.name, source.name]
        try:
            answer = subprocess.run(
                command, cwd=directory, capture_output=True, text=True, errors="replace", timeout=PTXAS_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            summary = f"{toolchain} gave no answer for {target} in {error.timeout:.0f} s"
            raise AssembleError(summary, "", target) from None
        log = answer.stdout + answer.stderr
        if answer.returncode or not output.is_file():
            complaints = [line for line in log.splitlines() if not line.startswith("ptxas info")]
            summary = f"{toolchain} does not assemble this PTX for {target} (exit status {answer.returncode})"
            raise AssembleError(summary, log, target, lines=_lines_named(ptx, complaints))
        cubin = output.read_bytes()
    notes = notes_in(log)
    if notes and not allow_notes:
        summary = f"{toolchain} changed this kernel for {target} (allow_notes=True accepts that): {'; '.join(notes)}"
        raise AssembleError(summary, log, target, notes, _lines_named(ptx, notes))
    return Assembly(cubin, log, notes, toolchain, target, tuple(flags), _sha256(ptx.encode("utf-8")), _sha256(cubin))


def assemble_many(
    jobs: Iterable[Job | tuple[str, str]], workers: int | None = None
) -> list[Assembly | AssembleError | ToolchainError]:
    """Assemble several texts at once, `workers` at a time (default: one per processor).

    A job is a `Job` or its first fields, `(ptx, target)`. The result has one entry per job, in order: the Assembly, or
    the AssembleError or ToolchainError that this job raised. Any other exception is a fault of the call and is raised.
    """

    def attempt(job: Job) -> Assembly | AssembleError | ToolchainError:
        try:
            return assemble(job.ptx, job.target, job.toolchain, job.flags, allow_notes=job.allow_notes)
        except (AssembleError, ToolchainError) as error:
            return error

    with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1) as pool:
        return list(pool.map(attempt, [job if isinstance(job, Job) else Job(*job) for job in jobs]))
