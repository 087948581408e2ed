"""Every launch of the corpora with the arrays that it leaves: those that a GPU answered, and the cases that no GPU of ours runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from tcsim.launchers.job import prepared
from tcsim.launchers.recording import Recording
from tcsim.ptx import Kernel, Limits, Memory, Run, parse
from tests.evaluation.golden.kind import Schedule
from tests.kernels.corpora import pack, place
from tests.kernels.corpora.case import Case
from tests.kernels.corpora.cases import CASES
from tests.kernels.corpora.check import arch_of
from tests.kernels.corpora.replay import ARCH, launches

ALONE = Limits(processes=1)


@dataclass(frozen=True, eq=False)
class Launch:
    """A launch that is laid out in memory."""

    kernel: Kernel
    memory: Memory
    params: list[Any]
    options: dict[str, Any]  # the other arguments of `Kernel.launch`
    arrays: dict[str, tuple[int, int]]  # address and bytes

    @property
    def arch(self) -> str:
        """What it runs on."""
        return str(self.options["arch"])

    def run(self, **more: Any) -> Run:
        """Launch it."""
        return self.kernel.launch(self.memory, self.params, **self.options, **more)

    def left(self) -> dict[str, bytes]:
        """The bytes of its arrays."""
        return {name: self.memory.read(address, size).tobytes() for name, (address, size) in self.arrays.items()}


Maker = Callable[[Schedule], Launch]


def _recorded(own: Recording, schedule: Schedule) -> Launch:
    job = own.job(ARCH, schedule, ALONE)
    made = prepared(job)
    arrays = {region.name: (made.addresses[region.name], len(region.before)) for region in job.regions}
    return Launch(made.kernel, made.memory, made.params, made.options, arrays)


def _unmeasured(case: Case, target: str, schedule: Schedule) -> Launch:
    compiled, launch, memory = _compiled()[pack.key_of(case.source.key, target)], case.launch(), Memory()
    addresses = {name: memory.allocate(max(1, array.nbytes)) for name, array in launch.buffers.items()}
    before = place.images(launch, addresses)
    for name, data in before.items():
        memory.write(addresses[name], data)
    params = place.parameters(launch, addresses)
    options = {
        "grid": launch.grid, "block": place.block_of(compiled, launch), "cluster": launch.cluster,
        "dynamic_smem": place.shared_of(compiled, launch), "arch": arch_of(target), "schedule": schedule, "limits": ALONE,
    }  # fmt: skip
    module = parse(compiled.ptx)
    first = module.kernel(launch.before).launch(memory, params, **options) if launch.before else None
    arrays = {name: (addresses[name], len(data)) for name, data in before.items()}
    return Launch(
        module.kernel(place.entry_of(compiled, case.entry)), memory, params, {**options, "after": first}, arrays
    )


@cache
def _compiled() -> dict[str, pack.Compiled]:
    return pack.read(pack.UNMEASURED)


@cache
def makers() -> dict[str, Maker]:
    """How each launch is laid out, by name."""
    found: dict[str, Maker] = {name: partial(_recorded, own) for name, own in launches()}
    for name, case in CASES.items():
        for target in case.targets:
            if pack.key_of(case.source.key, target) in _compiled():
                found[f"unmeasured {name} {target}"] = partial(_unmeasured, case, target)
    return found


def each() -> Iterator[tuple[str, Maker]]:
    """All of them in order."""
    yield from makers().items()
