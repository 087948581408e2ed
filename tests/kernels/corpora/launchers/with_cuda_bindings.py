"""Three kernels of the corpora through cuda.bindings: a cluster, tensor maps, a softmax; a parameter list of each kind."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver

from hwkernels.device.driver import place_address
from tests.kernels.corpora import recording


def call(name: str, *arguments: Any) -> Any:
    """A function of the driver, looked up when it is called."""
    code, *values = getattr(driver, name)(*arguments)
    assert code == driver.CUresult.CUDA_SUCCESS, (name, code)
    return values[0] if values else None


def placed(fields: dict[str, Any]) -> list[np.ndarray]:
    """The parameters of a recorded launch with its buffers at new addresses."""
    count = sum(name.startswith("param") for name in fields)
    values = [fields[f"param{number}"].copy() for number in range(count)]
    for number in range(sum(name.endswith("_address") for name in fields)):
        before, old = np.ascontiguousarray(fields[f"buf{number}_before"]), int(fields[f"buf{number}_address"])
        new = int(call("cuMemAlloc", len(before)))
        call("cuMemcpyHtoD", new, before.ctypes.data, len(before))
        for place, value in enumerate(values):
            if len(value) == 8 and int(value.view("<u8")[0]) == old:
                values[place] = np.frombuffer(new.to_bytes(8, "little"), np.uint8).copy()
            if len(value) == 128 and int(value[:8].view("<u8")[0]) == old:
                values[place] = np.frombuffer(place_address(value.tobytes(), new), np.uint8).copy()
    return values


def main() -> None:
    """Launch."""
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0)))
    recordings = recording.read()
    for name in ("cuda_dsmem_sum_sm_90a", "cuda_tensor_2d_sm_90a", "cuda_softmax_sm_90a"):
        fields = recordings[name]
        function = call(
            "cuModuleGetFunction", call("cuModuleLoadData", fields["ptx"].tobytes() + b"\0"), fields["entry"].encode()
        )
        values = placed(fields)
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        grid, block = fields["grid"], fields["block"]
        if name == "cuda_softmax_sm_90a":  # values and types
            given = tuple(int.from_bytes(value.tobytes(), "little") for value in values)
            types = tuple(ctypes.c_void_p if len(value) == 8 else ctypes.c_uint32 for value in values)
            call("cuLaunchKernel", function, *grid, *block, fields["smem"], 0, (given, types), 0)
        elif name == "cuda_tensor_2d_sm_90a":  # an address
            call("cuLaunchKernel", function, *grid, *block, fields["smem"], 0, int(pointers.ctypes.data), 0)
        else:
            config = driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = grid
            config.blockDimX, config.blockDimY, config.blockDimZ = block
            config.sharedMemBytes, config.numAttrs = fields["smem"], 0
            call("cuLaunchKernelEx", config, function, int(pointers.ctypes.data), 0)
        call("cuCtxSynchronize")


if __name__ == "__main__":
    main()
