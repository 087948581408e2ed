"""Three kernels through cuda.core: from CUDA C++ as machine code and as PTX, and with a cluster."""

from __future__ import annotations

import numpy as np
from cuda import core
from sources import NORM, REVERSE, SAXPY

from hwkernels.device.driver import call


def array(values: np.ndarray) -> int:
    """Values in device memory."""
    address = int(call("cuMemAlloc", values.nbytes))
    call("cuMemcpyHtoD", address, values.ctypes.data, values.nbytes)
    return address


def main() -> None:
    """Launch."""
    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    options = core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    rng = np.random.default_rng(1)

    def compiled(source: str, kind: str, *names: str) -> core.ObjectCode:
        return core.Program(source, "c++", options=options).compile(kind, name_expressions=names)

    y, x = (array(rng.normal(size=1000).astype(np.float32)) for _ in range(2))
    kernel = compiled(SAXPY, "cubin", "saxpy<float>").get_kernel("saxpy<float>")
    core.launch(stream, core.LaunchConfig(grid=8, block=128), kernel, y, x, np.float32(1.7), np.int32(1000))
    to, source = (array(rng.integers(0, 1 << 32, 512, np.uint32)) for _ in range(2))
    kernel = compiled(REVERSE, "ptx").get_kernel("reverse")
    core.launch(stream, core.LaunchConfig(grid=4, block=128, shmem_size=512), kernel, to, source)
    to, source = (array(rng.normal(size=256).astype(np.float32)) for _ in range(2))
    kernel = compiled(NORM, "ptx").get_kernel("row_norm")
    core.launch(stream, core.LaunchConfig(grid=2, cluster=2, block=64), kernel, to, source, 0.5)
    stream.sync()


if __name__ == "__main__":
    main()
