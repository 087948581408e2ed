"""The engine `gpu` of `tcsim`: found through the entry point group `tcsim.engines`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from hwkernels.device.driver import device_available
from hwkernels.device.errors import CudaError, DriverUnavailable
from hwkernels.device.stream_launch import make_current
from hwkernels.device.toolchain import AssembleError, ToolchainError
from hwkernels.engine.run import Operands, multiply, on_device, order_of, uploaded
from hwkernels.engine.source import UnsupportedError, instruction_text
from tcsim.engines.contract import Codes, Engine, EngineError, Matrices, Work


class GpuEngine(Engine):
    """The integer datapath of every arch on any GPU since sm_80."""

    name = "gpu"
    least = 1 << 26
    start = 1 << 30  # opening a GPU and compiling two kernels takes some seconds

    def missing(self) -> str:
        """A GPU, or cuda-python."""
        return _missing()

    def takes(self, work: Work) -> str:
        """Floating-point instructions; not the integer ones."""
        try:
            instruction_text(work)
        except UnsupportedError as error:
            return str(error)
        return ""

    def multiply(self, work: Work, matrices: Matrices, order: Sequence[int]) -> Codes:
        """As the contract says; operands are copied to the GPU and the result back."""
        names = ("a", "b", "c", "scale_a", "scale_b", "columns")
        given = {name: getattr(matrices, name) for name in names}
        try:
            make_current()
            arrays = {name: uploaded(array, name) for name, array in given.items() if array is not None}
            operands = Operands(arrays, order_of(order, matrices.instructions(work)))
            return multiply(work, operands).get()
        except (CudaError, DriverUnavailable, ToolchainError, AssembleError, UnsupportedError) as error:
            raise EngineError(f"the engine gpu: {error}") from error

    def on_device(self, work: Work, **arrays: Any) -> Any:
        """By `hwkernels.engine.run.on_device`."""
        try:
            return on_device(work, **arrays)
        except (CudaError, DriverUnavailable, ToolchainError, AssembleError, UnsupportedError) as error:
            raise EngineError(f"the engine gpu: {error}") from error


@cache
def _missing() -> str:
    available, why = device_available()
    return "" if available else why


ENGINE = GpuEngine()
