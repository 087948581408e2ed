"""Probes assembled and checked once per target, and the GPU that runs them."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.suite.recordings import Origin
from hwkernels.device import plan
from hwkernels.device.driver import DeviceInfo, device_info
from hwkernels.device.sass import SassError
from hwkernels.device.toolchain import AssembleError, ToolchainError, find_toolchains, targets_of, toolchain_for
from hwkernels.device.worker import GpuWorker
from hwkernels.probes import probe
from hwkernels.probes.probe import Probe
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.core.versions import number
from tcsim.model.instruction import Instruction

TIMEOUT_S = 20.0
WHOLE_TIMEOUT_S = 60.0  # with the compilation of the kernel
MODULE_ROWS = 32
NEEDS = "needs an assembler"
_OWN_VERSION = re.compile(r"Unsupported \.version \S+; current version is '([\d.]+)'")  # of ptxas


class Unassembled(RuntimeError):
    """A probe could not be made: the assembler refused the PTX, or its machine code is not as claimed."""


class NoAssembler(Unassembled):
    """A probe could not be made because there is no assembler here that knows the target or the PTX version."""


class NewerAssembler(NoAssembler):
    """The assembler here is too old for a probe. The message says what it needs and what is here, and names no row."""


def newer_assembler(instruction: Instruction, target: str, error: RuntimeError) -> str:
    """What a probe needs that the newest assembler for its target does not have, or nothing if that is not the trouble."""
    found = find_toolchains()
    if isinstance(error, AssembleError) and (known := _OWN_VERSION.search(error.log)):
        needed = probe.ptx_version([instruction.row], target)
        return f"{NEEDS} of PTX ISA {needed}; ptxas {toolchain_for(target).version} here has {known[1]}"
    if isinstance(error, AssembleError) and not error.notes:  # the version is known, the instruction is not
        checked, here = ARCHS[TARGETS[target].arch].source.rpartition("ptxas ")[2], toolchain_for(target).version
        if checked and number(here) < number(checked):
            return f"{NEEDS} like ptxas {checked}, with which its targets were checked; ptxas {here} here refuses it"
    if isinstance(error, ToolchainError) and found and not any(target in targets_of(item) for item in found):
        return f"{NEEDS} for {target}; here: {', '.join(f'ptxas {item.version}' for item in found)}"
    return ""


class Workshop:
    """Makes the probes of a set of instructions: modules of up to `MODULE_ROWS` of a family for a target, in parallel."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._instructions = instructions
        self._built: dict[tuple[str, str], dict[str, Probe | RuntimeError]] = {}

    def probe(self, instruction: Instruction, target: str) -> Probe:
        """The probe of an instruction for one of its targets.

        Raises NoAssembler if there is no assembler or disassembler that knows it, Unassembled if it refuses the PTX.
        """
        key = (instruction.row.family, target)
        if key not in self._built:
            self._built[key] = self._build(*key)
        made = self._built[key][instruction.mnemonic]
        if isinstance(made, RuntimeError):
            if needed := newer_assembler(instruction, target, made):
                raise NewerAssembler(needed) from made
            unread = isinstance(made, SassError) and "no installed nvdisasm reads" in str(made)  # sm_70 and sm_72
            kind = NoAssembler if unread or isinstance(made, ToolchainError) else Unassembled
            raise kind(f"{instruction.mnemonic} for {target}: {made}") from made
        return made

    def _build(self, family: str, target: str) -> dict[str, Probe | RuntimeError]:
        wanted = [i for i in self._instructions if i.row.family == family and target in i.row.targets]
        parts = [wanted[start : start + MODULE_ROWS] for start in range(0, len(wanted), MODULE_ROWS)]
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            made = list(pool.map(lambda part: probe.build(part, target), parts))
        return {name: item for part in made for name, item in part.items()}


class Hardware:
    """One GPU."""

    def __init__(self, info: DeviceInfo | None = None) -> None:
        self.info = info or device_info()

    @cached_property
    def _worker(self) -> GpuWorker:
        return GpuWorker(self.info.ordinal)

    @property
    def text(self) -> str:
        """The GPU and its driver."""
        return f"{self.info.name}, driver {self.info.driver_version}"

    def run(self, made: Probe, inputs: dict[str, npt.NDArray[Any]], repeat: int = 1) -> list[npt.NDArray[np.uint32]]:
        """The result of each repetition.

        Raises Unassembled if the machine code is not what the registry claims; Hang, ContextLost.
        """
        if made.complaint:
            raise Unassembled(f"machine code of {made.instruction.mnemonic} is not as claimed: {made.complaint}")
        return self._worker.run(made.launch(inputs, repeat), TIMEOUT_S)

    @cached_property
    def _whole_worker(self) -> GpuWorker:
        return GpuWorker(self.info.ordinal, plan.EXECUTOR)

    def run_whole(self, job: plan.WholeCall) -> list[npt.NDArray[Any]]:
        """The result of each repetition of a whole GEMM or conversion, from a process of its own.

        Raises Hang, ContextLost, ExecutorError.
        """
        return self._whole_worker.run(job, WHOLE_TIMEOUT_S)

    def origin(self, made: Probe) -> Origin:
        """What a recording says of where it was made."""
        return Origin(
            gpu=self.info.name,
            driver=self.info.driver_version,
            assembler=made.assembler,
            target=made.target,
            ptx_sha256=probe.ptx_sha256(made.instruction.row, made.target),
            code_sha256=made.code_sha256,
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        )

    def close(self) -> None:
        """End the worker."""
        for name in ("_worker", "_whole_worker"):
            if name in self.__dict__:
                self.__dict__[name].close()
