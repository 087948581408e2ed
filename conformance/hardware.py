"""Probes assembled and checked once per target, and the GPU that runs them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.recordings import Origin
from hwkernels import probe
from hwkernels.driver import DeviceInfo, device_info
from hwkernels.probe import Probe
from hwkernels.worker import GpuWorker
from tcsim.instruction import Instruction

TIMEOUT_S = 20.0


class Unassembled(RuntimeError):
    """A probe could not be made: no assembler here, or it refused the PTX, or its machine code is not as claimed."""


class Workshop:
    """Makes the probes of a set of instructions: one module for each target."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._instructions = instructions
        self._built: dict[str, dict[str, Probe | RuntimeError]] = {}

    def probe(self, instruction: Instruction, target: str) -> Probe:
        """The probe of an instruction for one of its targets.

        Raises Unassembled if there is no assembler or disassembler for the target, or it refuses the PTX.
        """
        if target not in self._built:
            self._built[target] = probe.build([i for i in self._instructions if target in i.row.targets], target)
        made = self._built[target][instruction.mnemonic]
        if isinstance(made, RuntimeError):
            raise Unassembled(f"{instruction.mnemonic} for {target}: {made}") from made
        return made


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
        self._worker.close()
