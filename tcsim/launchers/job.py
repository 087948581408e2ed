"""A launch as plain data, and what came of running it: from a launch file or a recorded launch to a verdict."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError
from tcsim.launchers.comparison import Comparison, compare
from tcsim.launchers.elements import Array, Bytes, Elements
from tcsim.launchers.launched import watched
from tcsim.ptx import Hazard, Kernel, Limits, Memory, Module, Run, parse
from tcsim.ptx.launch.grid import Progress
from tcsim.tma.map import TensorMap

Dim3 = tuple[int, int, int]
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True)
class Pointer:
    """A parameter that is the address of an array, or of a byte in it."""

    array: str
    offset: int = 0


@dataclass(frozen=True)
class MapOf:
    """A parameter that is a tensor map of an array."""

    tensor_map: TensorMap
    array: str
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Region:
    """An array in global memory."""

    name: str
    elements: Elements
    shape: tuple[int, ...]
    before: Bytes
    address: int | None = None  # None: one is chosen
    expected: Bytes | None = None  # None: not compared
    ulp: int | None = None  # how far off an element may be; None: no bit


@dataclass(frozen=True, eq=False)
class Job:
    """A launch: what to run, on what, and what is expected of it."""

    ptx: bytes
    params: tuple[Any, ...]  # Pointer, MapOf, or what `Kernel.launch` takes
    regions: tuple[Region, ...]
    kernel: str | None = None  # None: the only one
    before_kernel: str = ""  # launched first with the same arguments; the other one depends on it
    grid: Dim3 = (1, 1, 1)
    block: Dim3 = (1, 1, 1)
    cluster: Dim3 = (1, 1, 1)
    dynamic_smem: int = 0
    arch: str | None = None
    schedule: str | int = "late"
    limits: Limits = field(default_factory=Limits)
    output: str | None = None  # what printf must write; None: not compared
    notes: tuple[str, ...] = ()  # what a recording lacks
    cooperative: bool = False
    origins: bool = False  # elements are followed through registers: `Kernel.launch`
    races: bool = False  # races in global memory are looked for: `Kernel.launch`
    check: bool | str = True  # hazards are looked for: `Kernel.launch`
    counters: bool = False  # accesses are counted: `Kernel.launch`
    product: str = ""  # what is computed, "d = a @ b.T": `tcsim.launchers.product`; empty: as the kernel says


@dataclass(frozen=True, eq=False)
class Execution:
    """A launch that ran."""

    job: Job
    target: str  # of the PTX
    run: Run
    after: Mapping[str, Bytes]
    addresses: Mapping[str, int]
    comparisons: tuple[Comparison, ...]
    seconds: float

    @property
    def printed(self) -> bool | None:
        """Whether printf wrote what is expected; None if nothing is."""
        return None if self.job.output is None else self.run.output == self.job.output

    @property
    def equal(self) -> bool | None:
        """Whether memory and output are as expected; None if nothing is."""
        verdicts = [own.equal for own in self.comparisons] + ([] if self.printed is None else [self.printed])
        return all(verdicts) if verdicts else None

    @property
    def passed(self) -> bool:
        """Whether it ran to its end, is as expected if anything is, and no hazard is an error."""
        return self.run.completed and self.equal is not False and not self.run.errors

    def changed(self, region: Region) -> int:
        """How many bytes of an array are not what they were before."""
        return int((self.after[region.name] != region.before).sum())

    def array(self, region: Region) -> Array:
        """An array after the launch: of NumPy's type where it has one, else codes."""
        own = region.elements
        return own.to_codes(self.after[region.name]).view(own.natural).reshape(region.shape)

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        job, run = self.job, self.run
        return {
            "kernel": run.kernel, "target": self.target, "arch": run.arch, "grid": list(job.grid), "block": list(job.block), "cluster": list(job.cluster),
            "dynamic_smem": job.dynamic_smem, "schedule": job.schedule, "completed": run.completed,
            "instructions": run.instructions, "seconds": self.seconds, "hazards": [own.as_dict() for own in run.hazards],
            "inexact": dict(run.inexact), "output": run.output, "output_equal": self.printed,
            "arrays": [
                {"name": own.name, "address": self.addresses[own.name], "format": own.elements.name, "shape": list(own.shape),
                 "bytes": len(own.before), "changed": self.changed(own)}
                for own in job.regions
            ],
            "comparisons": [own.as_dict() for own in self.comparisons],
            "equal": self.equal, "passed": self.passed, "notes": list(job.notes),
            **watched(run),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Prepared:
    """A launch whose memory is laid out: what `Kernel.launch` and `Kernel.session` take."""

    module: Module
    kernel: Kernel
    memory: Memory
    params: list[Any]
    addresses: dict[str, int]  # of arrays, by name
    before: Run | None  # of the launch that this one depends on; if it did not complete, nothing else can run
    options: dict[str, Any]  # the other arguments


def prepared(job: Job, progress: Progress | None = None) -> Prepared:
    """Lay out memory and run what comes before; raises as `execute` does."""
    module = parse(job.ptx, job.limits)
    memory, addresses = Memory(), dict[str, int]()
    for region in sorted(job.regions, key=lambda own: own.address is None):  # what has its address comes first
        addresses[region.name] = _placed(memory, region)
    params = _params(job.params, addresses)
    options: dict[str, Any] = {
        "grid": job.grid, "block": job.block, "cluster": job.cluster, "dynamic_smem": job.dynamic_smem, "arch": job.arch,
        "schedule": job.schedule, "limits": job.limits, "cooperative": job.cooperative,
    }  # fmt: skip
    run = (
        module.kernel(job.before_kernel).launch(memory, params, **options, progress=progress)
        if job.before_kernel
        else None
    )
    return Prepared(module, module.kernel(job.kernel), memory, params, addresses, run, {**options, "after": run})


def execute(job: Job, progress: Progress | None = None) -> Execution:
    """Run a launch on the CPU. `progress`: as `Kernel.launch` takes it.

    Raises PtxError for PTX that is not known, LaunchError for a launch that cannot be, OperandError for memory that cannot be
    mapped. What the kernel does wrong is in `Execution.run`.
    """
    start = time.perf_counter()
    own = prepared(job, progress)
    module, memory, addresses = own.module, own.memory, own.addresses
    run = own.before
    if run is None or run.completed:
        run = own.kernel.launch(
            memory, own.params, **own.options, progress=progress, check=job.check, origins=job.origins, races=job.races,
            counters=job.counters,
        )  # fmt: skip
    arrays = [(own.name, addresses[own.name], len(own.before)) for own in job.regions]
    run.hazards[:] = [with_array(hazard, arrays) for hazard in run.hazards]
    after = {own.name: memory.read(addresses[own.name], len(own.before)) for own in job.regions}
    compared = tuple(
        compare(own.name, own.elements, own.shape, after[own.name], own.expected, own.ulp)
        for own in job.regions
        if own.expected is not None
    )
    return Execution(
        job, module.kernel(run.kernel).target, run, after, addresses, compared, time.perf_counter() - start
    )


def with_array(own: Hazard, arrays: Sequence[tuple[str, int, int]]) -> Hazard:
    """A hazard that says which array an address is in, or, of an access to nothing, which one lies before it; arrays: names, addresses, sizes.

    >>> with_array(Hazard("GMEM_UNMAPPED", "4 bytes at 0x210: nothing is mapped there"), [("x", 0x200, 16)]).message
    '4 bytes at 0x210 (x + 16; x has 16 bytes): nothing is mapped there'
    """

    def said(found: re.Match[str]) -> str:
        address = int(found[0], 16)
        before = [one for one in arrays if one[1] <= address]
        name, start, size = max(before, key=lambda one: one[1], default=("", 0, 0))
        if not name or (address - start >= size and own.name != "GMEM_UNMAPPED"):
            return found[0]
        beyond = f"; {name} has {size} bytes" if own.name == "GMEM_UNMAPPED" else ""
        return f"{found[0]} ({name} + {address - start}{beyond})"

    return replace(own, message=_ADDRESS.sub(said, own.message, count=1)) if own.name.startswith("GMEM_") else own


def _placed(memory: Memory, region: Region) -> int:
    if region.address is None:
        return memory.allocate(region.before)
    try:
        memory.map(region.address, region.before)
    except OperandError as error:
        raise OperandError(f"array {region.name}: {error}") from None
    return region.address


def _params(params: Sequence[Any], addresses: Mapping[str, int]) -> list[Any]:
    found: list[Any] = []
    for own in params:
        if isinstance(own, Pointer):
            found.append(np.uint64(addresses[own.array] + own.offset))
        elif isinstance(own, MapOf):
            found.append((own.tensor_map, addresses[own.array] + own.offset))
        else:
            found.append(own)
    return found
