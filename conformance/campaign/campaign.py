"""A campaign of one instruction: spans of samples that the ledger does not have yet, one task after the other, each a line when it is done.

Whatever ends it (kill -9, a hung kernel, a lost context, a full disk), the lines that are there stay, and the next run goes on after them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from conformance.campaign import ledger
from conformance.campaign.ledger import Line
from conformance.campaign.on_cpu import CPU, compared
from conformance.campaign.subject import SHOWN, Subject, SubjectError
from conformance.campaign.tasks import Task
from hwkernels.device.worker import ContextLost, Hang
from tcsim import catalog
from tcsim.core.errors import TcsimError, shortened
from tcsim.core.targets import ARCHS

PART = 16
"""Samples of a span that have a digest of their own: few enough for NumPy in a second."""
SPAN = 1 << 28
"""Outputs of a span: less than some seconds on a GPU."""
TIMEOUT_S = 120.0  # of a span, whose first compiles three kernels
_TRIES = 2
_FAMILIES = ("mma.sync", "mma.sp", "wgmma", "wgmma.sp")
_WARPGROUP_N = 64


class Device(Protocol):
    """What does tasks: a `GpuWorker`, or something like it."""

    def run(self, launch: Any, timeout_s: float = 20.0) -> list[Any]:
        """What the task leaves. Raises Hang and ContextLost as `GpuWorker.run`."""
        ...


class CampaignError(RuntimeError):
    """A span that could not be compared; the ledger has all before it."""


@dataclass(frozen=True)
class Campaign:
    """What is asked for."""

    subject: Subject
    seed: int
    outputs: int  # at least
    path: Path  # of the ledger
    gpu: str  # its name
    span: int = SPAN

    @property
    def samples(self) -> int:
        """Of all."""
        return -(-self.outputs // self.subject.outputs)

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Of its lines."""
        return self.subject.mnemonic, self.subject.arch, self.seed, self.gpu

    def tasks(self) -> Iterator[Task]:
        """What the ledger lacks."""
        spans = max(1, self.span // self.subject.outputs)
        for first, samples in ledger.missing(ledger.read(self.path), self.key, self.samples, spans):
            yield Task(self.subject, self.seed, first, samples, min(samples, PART))

    def lines(self) -> list[Line]:
        """Its own lines, joined."""
        return ledger.merged(line for line in ledger.read(self.path) if line.key == self.key)


def run(campaign: Campaign, device: Device, progress: Callable[[Line], None] = lambda line: None) -> list[Line]:
    """Compare what is left, and return all lines of the campaign, joined.

    Raises CampaignError for a span that hangs or loses the context twice, LedgerError for a line that cannot be written.
    """
    ledger.repair(campaign.path)
    for task in campaign.tasks():
        line = done(task, device, campaign.gpu)
        ledger.append(campaign.path, line)
        progress(line)
    return campaign.lines()


def done(task: Task, device: Device, gpu: str) -> Line:
    """Do a task and say what came of it."""
    for attempt in range(1, _TRIES + 1):
        began = time.perf_counter()
        try:
            whole, part = device.run(task, TIMEOUT_S)
            break
        except (Hang, ContextLost) as error:
            if attempt == _TRIES:
                raise CampaignError(
                    f"{task.kernel}: {error}; {attempt} tries. What was compared before is in the ledger: run the same again to go on"
                ) from error
    outputs, mismatches, digest, seen = (int(word) for word in whole[:4])
    expected = task.samples * task.subject.outputs
    if outputs != expected:
        raise CampaignError(f"{task.kernel}: {outputs} outputs compared of {expected}")
    return Line(
        task.subject.mnemonic, task.subject.arch, task.seed, task.first, task.samples, outputs, mismatches,
        f"{digest:#018x}", task.part, f"{int(part[2]):#018x}", round(time.perf_counter() - began, 3), gpu,
        tuple(int(place) for place in whole[4 : 4 + min(seen, SHOWN)]),
    )  # fmt: skip


def complaints(lines: Sequence[Line]) -> list[str]:
    """What no campaign of the instructions gives, a sentence each, by the number of the line: all that needs no arithmetic."""
    if not lines:
        return ["the ledger has no lines"]
    found = [f"line {number}: {complaint}" for number, line in enumerate(lines, 1) if (complaint := _complaint(line))]
    for mnemonic, arch, seed, gpu in dict.fromkeys(line.key for line in lines):
        own = sorted((line.first, line.end) for line in lines if line.key == (mnemonic, arch, seed, gpu))
        found += [
            f"{mnemonic} on {arch}, seed {seed}, {gpu}: samples {end} to {first - 1} are missing"
            for end, first in zip((0, *(end for _, end in own)), (first for first, _ in own), strict=False)
            if end != first
        ]
    if all(line.gpu == CPU for line in lines):
        found.append("no GPU compared anything: all lines are a CPU's")
    return found


def _complaint(line: Line) -> str:
    """What is wrong in a line, or nothing."""
    try:
        subject = Subject(line.mnemonic, line.arch)
        outputs, name = subject.outputs, (subject.instruction.mnemonic, subject.instruction.arch.name)
    except (SubjectError, TcsimError) as error:
        return shortened(str(error), 300)[1:-1]
    if (line.mnemonic, line.arch) != name:  # samples would count once for each spelling
        return f"{shortened(line.mnemonic)} on {shortened(line.arch)} is {name[0]} on {name[1]}"
    if line.outputs != line.samples * outputs:
        return f"outputs is {line.outputs}; {line.samples} samples have {line.samples * outputs}"
    if line.mismatches > line.outputs:
        return f"mismatches is {line.mismatches}, of {line.outputs} outputs"
    if not line.part <= min(line.samples, PART):
        return f"part is {line.part}; valid: 1 to {min(line.samples, PART)}"
    within = all(line.first * outputs <= place < line.end * outputs for place in line.places)
    if len(set(line.places)) != min(line.mismatches, SHOWN) or len(line.places) != len(set(line.places)) or not within:
        return f"places are {shortened(list(line.places))}; valid: {min(line.mismatches, SHOWN)} outputs of its samples"
    return f"{line.mismatches} mismatches: hardware and model differ" if line.mismatches else ""


def verified(line: Line, whole: bool = False) -> bool:
    """Whether a CPU finds the digest of a line's part, or of all of it, without the GPU: the model in the place of the hardware."""
    subject = Subject(line.mnemonic, line.arch)
    samples = line.samples if whole else line.part
    found, _ = compared(Task(subject, line.seed, line.first, samples, samples))
    return f"{int(found[2]):#018x}" == (line.digest if whole else line.part_digest)


def subjects(arch: str) -> list[Subject]:
    """One instruction for each family and arithmetic of an arch that campaigns run; of wgmma that of N = 64."""
    found: dict[Any, Subject] = {}
    targets = {target.name for target in ARCHS[arch].targets}
    for mnemonic, row in catalog.rows().items():
        if row.family not in _FAMILIES or row.dropped or not targets & set(row.targets):
            continue
        if row.family.startswith("wgmma") and row.shape[1] != _WARPGROUP_N:
            continue
        subject = Subject(mnemonic, arch)
        try:
            found.setdefault((row.family, subject.instruction.work), subject)
        except (SubjectError, TcsimError):
            continue
    return list(found.values())


def table(lines: Iterable[Line]) -> str:
    """What GPUs answered, for a page: a row for each instruction."""
    rows = [
        "| instruction | outputs | mismatches | digest | seconds | outputs/s |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for line in ledger.merged(line for line in lines if line.gpu != CPU):
        rate = line.outputs / line.seconds if line.seconds else 0
        rows.append(
            f"| {line.mnemonic} | {line.outputs:,} | {line.mismatches} | `{line.digest}` | {line.seconds:.1f} | {rate:.2e} |"
        )
    return "\n".join(rows) + "\n"
