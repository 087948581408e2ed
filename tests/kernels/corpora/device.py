"""One launch of a case on a GPU: buffers, parameters, both cubins, two repetitions of each."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwkernels.device.driver import DEFAULT_SHARED_LIMIT, call, driver_module
from hwkernels.device.errors import CudaError
from hwkernels.device.tensor_map import driver_encode
from tests.kernels.corpora import place
from tests.kernels.corpora.case import Array, Launch, Map
from tests.kernels.corpora.cases import CASES
from tests.kernels.corpora.pack import Compiled


@dataclass(frozen=True)
class Job:
    """A case for a target, assembled."""

    name: str
    target: str
    compiled: Compiled
    cubin: bytes
    unfused: bytes  # assembled with --fmad=false


@dataclass
class Answer:
    """What is recorded of a launch, and what is odd about it: "" if it is as the case expects."""

    fields: dict[str, Any]
    bytes: int
    complaint: str = ""


def serve(pipe: Any, jobs: list[Job]) -> None:
    """Answer jobs one after the other; the process of a worker. It ends after an error that the context does not survive."""
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0)))
    for job in jobs:
        try:
            pipe.send(answered(job))
        except CudaError as error:
            pipe.send(f"{'lost: ' if error.sticky else 'refused: '}{error}")
            if error.sticky:
                return
        except Exception as error:  # a fault of the case: the next one is asked
            pipe.send(f"refused: {type(error).__name__}: {error}")


def answered(job: Job) -> Answer:
    """Launch a case twice as assembled and once without contraction."""
    case = CASES[job.name]
    launch = case.launch()
    entry = place.entry_of(job.compiled, case.entry)
    addresses = {name: int(call("cuMemAlloc", max(1, array.nbytes))) for name, array in launch.buffers.items()}
    try:
        before = place.images(launch, addresses)
        params = place.parameters(launch, addresses)
        for number, item in enumerate(launch.params):
            if isinstance(item, Map):
                params[number] = driver_encode(item.map, addresses[item.buffer] + item.offset)
        runs, outputs = [], []
        for cubin in (job.cubin, job.cubin, job.unfused):
            for name, data in before.items():
                call("cuMemcpyHtoD", addresses[name], data.ctypes.data, data.nbytes)
            outputs.append(
                launched(cubin, [name for name in (launch.before, entry) if name], launch, job.compiled, params)
            )
            after = {}
            for name, data in before.items():
                after[name] = np.empty_like(data)
                call("cuMemcpyDtoH", after[name].ctypes.data, addresses[name], data.nbytes)
            runs.append(after)
    finally:
        for address in addresses.values():
            call("cuMemFree", address)
    block, shared = place.block_of(job.compiled, launch), place.shared_of(job.compiled, launch)
    fields: dict[str, Any] = {
        "ptx": np.frombuffer(job.compiled.ptx.encode(), np.uint8), "entry": entry, "before_entry": launch.before or "", "case": job.name,
        "target": job.target, "grid": launch.grid, "block": block, "cluster": launch.cluster, "smem": shared,
        "made_by": job.compiled.made_by, "output": outputs[0],
        "repeatable": all(_same(runs[0][name], runs[1][name]) for name in before if name not in launch.scratch),
    }  # fmt: skip
    fields |= {f"param{number}": np.frombuffer(data, np.uint8) for number, data in enumerate(params)}
    for number, (name, data) in enumerate(before.items()):
        fields |= {f"buf{number}_name": name, f"buf{number}_address": addresses[name], f"buf{number}_before": data}
        if not _same(data, runs[0][name]):
            fields[f"buf{number}_after"] = runs[0][name]
        if not _same(runs[0][name], runs[2][name]):
            fields[f"buf{number}_after_fmad_off"] = runs[2][name]
    return Answer(fields, sum(map(len, before.values())), complaint(launch, before, runs, outputs))


def complaint(launch: Launch, before: dict[str, Array], runs: list[dict[str, Array]], outputs: list[str]) -> str:
    """What differs from what the case says: buffers, repetitions, what was printed."""
    found = [f"{name}: {count} wrong" for name, own in launch.expected.items() if (count := own.wrong(runs[0][name]))]
    found += [f"{name} differs the second time" for name in before if not _same(runs[0][name], runs[1][name])]
    found += [f"{name} depends on --fmad" for name in before if not _same(runs[0][name], runs[2][name])]
    if launch.output is not None and launch.output != outputs[0]:
        found.append(f"printed {outputs[0]!r}")
    return ", ".join(found)


def _same(a: Array, b: Array) -> bool:
    return bool((a == b).all())


def launched(cubin: bytes, entries: list[str], launch: Launch, compiled: Compiled, params: list[bytes]) -> str:
    """Launch entries one after the other, each but the first with programmatic dependence; what they printed."""
    module = call("cuModuleLoadData", cubin)
    try:
        values = [np.frombuffer(data, np.uint8).copy() for data in params]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        stream = call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        with tempfile.TemporaryFile() as printed:
            saved = os.dup(1)
            os.dup2(printed.fileno(), 1)
            try:
                for number, entry in enumerate(entries):
                    function = call("cuModuleGetFunction", module, entry.encode())
                    config = configuration(function, launch, compiled, dependent=number > 0)
                    config.hStream = stream
                    call("cuLaunchKernelEx", config, function, int(pointers.ctypes.data), 0)
                call("cuStreamSynchronize", stream)
                call("cuCtxSynchronize")
                ctypes.CDLL(None).fflush(None)  # what the driver printed may wait in libc's buffer
            finally:
                os.dup2(saved, 1)
                os.close(saved)
            printed.seek(0)
            text = printed.read().decode(errors="replace")
        call("cuStreamDestroy", stream)
        return text
    finally:
        with contextlib.suppress(CudaError):  # the context may be lost; the launch's error is raised
            call("cuModuleUnload", module)


def configuration(function: Any, launch: Launch, compiled: Compiled, dependent: bool) -> Any:
    """The CUlaunchConfig of a launch."""
    driver, shared = driver_module(), place.shared_of(compiled, launch)
    limits = driver.CUfunction_attribute
    static = call("cuFuncGetAttribute", limits.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
    if shared + static > DEFAULT_SHARED_LIMIT:
        call("cuFuncSetAttribute", function, limits.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
    config, attributes = driver.CUlaunchConfig(), []
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = place.block_of(compiled, launch)
    config.sharedMemBytes = shared
    if launch.cluster != (1, 1, 1):
        own = driver.CUlaunchAttribute()
        own.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        own.value.clusterDim.x, own.value.clusterDim.y, own.value.clusterDim.z = launch.cluster
        attributes.append(own)
    if dependent:
        own = driver.CUlaunchAttribute()
        own.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        own.value.programmaticStreamSerializationAllowed = 1
        attributes.append(own)
    if attributes:
        config.attrs = attributes
    config.numAttrs = len(attributes)
    return config
