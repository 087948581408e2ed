"""What the fixture `launch` is: a kernel's PTX on a GPU or on the model, with arrays as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.testing.bits import host_array
from hwkernels.device import toolchain
from hwkernels.device.driver import device_available, device_info
from hwkernels.device.errors import CudaError
from hwkernels.device.kernel_launch import Address, KernelLaunch, Map
from hwkernels.device.worker import GpuWorker, WorkerError
from tcsim.launchers.elements import Array
from tcsim.ptx import Kernel, Memory, Run, parse
from tcsim.ptx.launch.geometry import arch_of
from tcsim.ptx.launch.parameters import LaunchError, image_of
from tcsim.tma.map import TensorMap

DEVICES = ("auto", "gpu", "model")
EXECUTOR = "hwkernels.device.kernel_launch:open_executor"


class LaunchFailure(AssertionError):
    """A kernel that did not run to its end, or did something that is an error."""


@dataclass(frozen=True, eq=False)
class Launched:
    """A launch that ran to its end.

    arrays: the parameters that are arrays, in order, as the kernel left them. where: on what it ran. run: what the model says of it; None of a GPU.
    """

    arrays: tuple[Array, ...]
    where: str
    run: Run | None = None

    def __getitem__(self, number: int) -> Array:
        return self.arrays[number]


class Launcher:
    """Launches kernels, for one test session; closing it ends the process of the GPU."""

    def __init__(self, device: str = "auto", arch: str | None = None) -> None:
        self.device, self.arch = device, arch
        self._worker: GpuWorker | None = None
        self.gpu = device_info() if device != "model" and device_available()[0] else None
        if device == "gpu" and self.gpu is None:
            raise LaunchError(f"--tcsim-device gpu: {device_available()[1]}")

    def close(self) -> None:
        """End the process of the GPU."""
        if self._worker is not None:
            self._worker.close()

    def launch(
        self, ptx: str | bytes, kernel: str | None, params: Sequence[Any], grid: Any, block: Any, cluster: Any, dynamic_smem: int, options: dict[str, Any]
    ) -> Launched:  # fmt: skip
        """Launch a kernel; `options` are those of the model's `Kernel.launch`."""
        own, shape, arrays = prepared(ptx, kernel, params, grid, block, cluster, dynamic_smem)
        if self.gpu is not None and (self.device == "gpu" or _runs(own.target, self.gpu.arch)):
            return self._on_gpu(ptx, own, params, arrays, shape)
        return self._on_model(own, params, arrays, shape, options)

    def _on_model(
        self, kernel: Kernel, params: Sequence[Any], arrays: list[Array], shape: dict[str, Any], options: dict[str, Any]
    ) -> Launched:
        run, after = run_on_model(kernel, params, arrays, {"arch": self.arch, **shape, **options})
        where = f"tcsim, the model of {run.arch}"
        wrong = [own for own in run.hazards if own.severity == "error"]
        if not run.completed or wrong:
            said = "\n".join(f"  {own}" for own in run.hazards)
            raise LaunchFailure(
                f"{kernel.name} on {where}: {'it did not end' if not run.completed else 'hazards'}\n{said}"
            )
        return Launched(after, where, run)

    def _on_gpu(
        self, ptx: str | bytes, kernel: Kernel, params: Sequence[Any], arrays: list[Array], shape: dict[str, Any]
    ) -> Launched:
        assert self.gpu is not None
        if self._worker is None:
            self._worker = GpuWorker(executor=EXECUTOR)
        number, sent, checked = 0, list[Any](), list[Any]()
        for value in params:
            if _array_of(value) is None:
                sent.append(value)
                checked.append(value)
                continue
            pair = isinstance(value, tuple)
            sent.append(Map(value[0].encode(0), number) if pair else Address(number))
            checked.append((value[0], 0) if pair else 0)
            number += 1
        image = image_of(kernel.function, checked)  # raises LaunchError for parameters that do not fit
        given = tuple(
            own if isinstance(own, (Address, Map)) else data
            for own, data in zip(sent, _split(kernel, image), strict=True)
        )
        where = f"{self.gpu.name} ({self.gpu.arch}), driver {self.gpu.driver_version}"
        launch = KernelLaunch(
            _assembled(ptx, kernel.target, self.gpu.arch), kernel.name, given, tuple(_bytes(own) for own in arrays), shape["grid"], shape["block"],
            shape["cluster"], shape["dynamic_smem"],
        )  # fmt: skip
        try:
            after = self._worker.run(launch)
        except (CudaError, WorkerError) as error:
            raise LaunchFailure(f"{kernel.name} on {where}: {error}") from None
        return Launched(tuple(_like(data, own) for data, own in zip(after, arrays, strict=True)), where)


def prepared(
    ptx: str | bytes, kernel: str | None, params: Sequence[Any], grid: Any, block: Any, cluster: Any, dynamic_smem: int
) -> tuple[Kernel, dict[str, Any], list[Array]]:
    """The kernel, the launch's shape, and the parameters that are arrays."""
    shape = {"grid": _dim3(grid), "block": _dim3(block), "cluster": _dim3(cluster), "dynamic_smem": dynamic_smem}
    return (
        parse(ptx).kernel(kernel),
        shape,
        [host_array(_array_of(own)) for own in params if _array_of(own) is not None],
    )


def run_on_model(
    kernel: Kernel, params: Sequence[Any], arrays: Sequence[Array], options: dict[str, Any]
) -> tuple[Run, tuple[Array, ...]]:
    """A launch on the model, with copies of the arrays, and what it leaves in them."""
    memory = Memory()
    addresses = [memory.allocate(_bytes(own)) for own in arrays]
    places = iter(addresses)
    values: list[Any] = []
    for value in params:
        array = _array_of(value)
        values.append(
            value if array is None else (value[0], next(places)) if isinstance(value, tuple) else next(places)
        )
    run = kernel.launch(memory, values, **options)
    return run, tuple(_like(memory.read(at, own.nbytes), own) for at, own in zip(addresses, arrays, strict=True))


def _array_of(value: Any) -> Any:
    """The array of a parameter that is one, or a (TensorMap, array) pair; None of a number or bytes."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], TensorMap):
        value = value[1]
    scalar = isinstance(value, (np.generic, bytes, int, float)) or getattr(value, "shape", None) == ()
    return None if scalar or not hasattr(value, "shape") else value


def _split(kernel: Kernel, image: bytes) -> list[bytes]:
    """The bytes of each parameter, from those of all."""
    found, at = [], 0
    for own in kernel.params:
        at = -(-at // own.align) * own.align
        found.append(image[at : at + own.size])
        at += own.size
    return found


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def _like(data: Array, array: Array) -> Array:
    return np.ascontiguousarray(data).view(array.dtype).reshape(array.shape)


def _dim3(value: Any) -> tuple[int, int, int]:
    x, y, z = (*((value,) if isinstance(value, (int, np.integer)) else value), 1, 1)[:3]
    return x, y, z


def _runs(target: str, arch: str) -> bool:
    """Whether a GPU runs the PTX of a target."""
    try:
        return arch_of(target, arch) == arch
    except LaunchError:
        return False


def _assembled(ptx: str | bytes, target: str, arch: str) -> bytes:
    """A cubin if ptxas is there, else PTX for the driver to compile."""
    text = ptx.decode().rstrip("\0") if isinstance(ptx, bytes) else ptx
    try:
        return toolchain.assemble(text, arch + ("a" if target.endswith("a") else ""), allow_notes=True).cubin
    except toolchain.ToolchainError:
        return text.encode() + b"\0"
