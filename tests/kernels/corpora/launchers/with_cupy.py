"""Three kernels through CuPy: a RawKernel, one of a RawModule, and an instance of a template."""

from __future__ import annotations

import cupy
import numpy as np
from sources import NORM, REVERSE, SAXPY


def main() -> None:
    """Launch."""
    rng = np.random.default_rng(2)
    to, source = (cupy.asarray(rng.integers(0, 1 << 32, 512, np.uint32)) for _ in range(2))
    cupy.RawKernel(REVERSE, "reverse")((4,), (128,), (to, source), shared_mem=512)
    to, source = (cupy.asarray(rng.normal(size=256).astype(np.float32)) for _ in range(2))
    cupy.RawModule(code=NORM).get_function("row_norm")((4,), (64,), (to, source, 0.5))
    y, x = (cupy.asarray(rng.normal(size=(10, 100)).astype(np.float32)) for _ in range(2))
    template = cupy.RawModule(code=SAXPY, options=("-std=c++17",), name_expressions=["saxpy<float>"])
    template.get_function("saxpy<float>")((8,), (128,), (y, x, np.float32(1.7), np.int32(1000)))
    cupy.cuda.runtime.deviceSynchronize()


if __name__ == "__main__":
    main()
