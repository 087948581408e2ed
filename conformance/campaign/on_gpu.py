"""A campaign's part on a GPU, in the process that `GpuWorker` watches: generate, run the instruction, compute, compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.campaign.subject import Subject
from conformance.campaign.tasks import WORDS, Question, Task
from hwkernels.device.array_protocols import ForeignArray
from hwkernels.device.device_arrays import DeviceArray
from hwkernels.device.driver import call
from hwkernels.device.nvrtc import compile_cubin
from hwkernels.device.stream_launch import StreamLaunch, arch_number, load_function, multiprocessors
from hwkernels.device.toolchain import assemble
from hwkernels.engine import run
from hwkernels.engine.source import KERNELS
from hwkernels.probes import body_of
from hwkernels.probes.probe import kernel_name, ptx_version

HERE = Path(__file__).parent
_THREADS = 256
_MOST_OUTPUTS = 1 << 23  # of one round of launches: bounds the memory


class GpuSide:
    """What a subject needs on a GPU: kernels, and buffers for some samples."""

    def __init__(self, subject: Subject, target: str) -> None:
        self.subject, self.most = subject, max(1, _MOST_OUTPUTS // subject.outputs)
        headers = subject.headers() | {
            name: (folder / name).read_text(encoding="utf-8")
            for folder, name in ((HERE, "stimulus.cuh"), (KERNELS, "engine_numbers.cuh"))
        }
        cubin = compile_cubin(
            (HERE / "campaign.cu").read_text(encoding="utf-8"),
            target,
            name="campaign.cu",
            headers=headers,
            strict=False,
        )
        names = ["a", "b", "c", *(["columns"] if subject.work.sparse else []), "words", "compare"]
        self.functions = {name: load_function(cubin.cubin, f"campaign_{name}") for name in names}
        plan = subject.plan(self.most)
        self.probe_function = _probe(subject, plan.variant, target)
        self.plan = plan
        self.tables = [_uploaded(one.table) for one in subject.inputs]
        self.constants = [_uploaded(one.constant) for one in subject.inputs]
        self.inputs = [DeviceArray((max(4, array.nbytes),), np.uint8) for array in plan.inputs]
        self.hardware = DeviceArray(plan.output[0], plan.output[1])
        self.places = _uploaded(subject.places)
        (m, n, k), work = subject.shape, subject.work
        shapes = {"a": (m, work.kept), "b": (k, n), "c": (m, n)}
        types = {name: item.dtype for name, item in zip("abc", work.formats, strict=True)}
        if work.sparse:
            shapes["columns"], types["columns"] = (m, work.kept), np.dtype(np.int32)
        self.codes = {name: DeviceArray((self.most, *shape), types[name]) for name, shape in shapes.items()}
        self.engine = DeviceArray((self.most, m, n), work.result.dtype)

    def compared(self, task: Task) -> list[npt.NDArray[np.uint64]]:
        """What the comparison leaves of the whole task and of its part."""
        whole, part = (DeviceArray((WORDS,), np.uint64) for _ in range(2))
        whole.fill(0)
        part.fill(0)
        for first in range(task.first, task.first + task.samples, self.most):
            samples = min(self.most, task.first + task.samples - first)
            self._round(task, first, samples, whole)
            if first == task.first:
                self._compare(first, min(samples, task.part), part)
        call("cuCtxSynchronize")
        return [whole.get(), part.get()]

    def _round(self, task: Task, first: int, samples: int, found: DeviceArray) -> None:
        span = [np.uint64(first), np.uint64(samples), np.uint64(task.seed)]
        for name, array in self.codes.items():
            self._launch(name, [np.uint64(array.address), *span])
        for one, table, constant, buffer in zip(
            self.subject.inputs, self.tables, self.constants, self.inputs, strict=True
        ):
            numbers = [np.uint64(len(one.constant)), np.uint64(one.bits)]
            addresses = [np.uint64(item.address) for item in (buffer, table, constant)]
            if len(one.constant):
                self._launch("words", [*addresses, *numbers, *span])
        plan = self.plan
        addresses = [np.uint64(item.address) for item in (*self.inputs, self.hardware)]
        StreamLaunch(self.probe_function, [*addresses, *plan.scalars], plan.grid, plan.block, plan.shared_bytes)()  # type: ignore[list-item]
        strides = {name: (*_strides(array.shape),) for name, array in self.codes.items()}
        arrays = {
            name: ForeignArray(array.dtype, (samples, *array.shape[1:]), strides[name], array.address)
            for name, array in self.codes.items()
        }
        problem = run.problem_of(self.subject.work, run.Operands(arrays))
        problem.d = self.engine.address
        run.exact(self.subject.work, problem, 0)
        self._compare(first, samples, found)

    def _compare(self, first: int, samples: int, found: DeviceArray) -> None:
        stride = self.hardware.bytes // self.most // self.subject.work.result.dtype.itemsize
        addresses = [np.uint64(item.address) for item in (found, self.hardware, self.engine, self.places)]
        self._launch("compare", [*addresses, np.uint64(stride), np.uint64(first), np.uint64(samples)])

    def _launch(self, name: str, parameters: list[Any]) -> None:
        StreamLaunch(self.functions[name], parameters, (16 * multiprocessors(), 1, 1), (_THREADS, 1, 1))()


def _uploaded(values: npt.NDArray[Any]) -> DeviceArray:
    array = DeviceArray((max(1, values.size),), values.dtype)
    if values.size:
        array.set(np.ascontiguousarray(values))
    return array


def _strides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    return shape[1] * shape[2], shape[2], 1


def open_executor(ordinal: int) -> Callable[[Task | Question], list[npt.NDArray[Any]]]:
    """Open a GPU for the life of this process, and return what does a task on it: the executor of a `GpuWorker`.

    Raises DriverUnavailable or CudaError.
    """
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal)))
    sides: dict[Subject, GpuSide] = {}

    def execute(task: Task | Question) -> list[npt.NDArray[Any]]:
        target = f"sm_{arch_number(ordinal)}" + ("a" if arch_number(ordinal) >= 90 else "")
        if isinstance(task, Question):
            return [_answer(task, target)]
        if task.subject not in sides:
            sides.clear()  # the buffers of one subject at a time
            sides[task.subject] = GpuSide(task.subject, target)
        return list(sides[task.subject].compared(task))

    return execute


def _probe(subject: Subject, variant: str, target: str) -> Any:
    """The one kernel of a row's probe that is needed, loaded."""
    row = subject.instruction.row
    name = kernel_name(row, variant)
    head = f".version {ptx_version([row], target)}\n.target {target}\n.address_size 64\n"
    return load_function(assemble(head + body_of(row).kernel_on(row, name, variant, target), target).cubin, name)


def _answer(question: Question, target: str) -> npt.NDArray[Any]:
    """Codes (samples, M, N)."""
    subject = question.subject
    plan = subject.plan_of(question.arrays)
    function = _probe(subject, plan.variant, target)
    buffers = [_uploaded(array.reshape(-1)) for array in plan.inputs]
    out = DeviceArray(*plan.output)
    addresses = [np.uint64(item.address) for item in (*buffers, out)]
    StreamLaunch(function, [*addresses, *plan.scalars], plan.grid, plan.block, plan.shared_bytes)()  # type: ignore[list-item]
    call("cuCtxSynchronize")
    units = out.get().reshape(len(question.arrays["a"]), -1).view(subject.work.result.dtype)
    return units[:, subject.places].reshape(-1, *subject.shape[:2])
