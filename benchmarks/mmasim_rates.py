"""How fast mmasim computes dot products, on one thread: run by `benchmarks/engines.py --mmasim PYTHON` in an environment that has it.

The argument is JSON: rows of an architecture's name, an instruction's name, its M, N and K and the formats of a, b and c. For each row the answer has
products per second, the best of some calls: the batched `dpa` for 256 instructions at once, its fastest way.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from mmasim import nv_ptx
from mmasim.nv_ptx.isa_common import nv_torch_dtype

BATCH, CALLS = 256, 5


def rate(architecture: str, name: str, shape: tuple[int, int, int], formats: tuple[str, str, str]) -> float:
    """Products per second of processor time of one instruction."""
    m, n, k = shape
    batch = max(1, BATCH * 2048 // (m * n * k))
    model = getattr(nv_ptx, "WGMMA" if m == 64 else "MMA")(architecture, name)
    a, b, c = (
        torch.randn(batch, *size).to(nv_torch_dtype[format]) if nv_torch_dtype[format] != torch.uint8
        else torch.randint(0, 64, (batch, *size), dtype=torch.uint8)
        for size, format in zip(((m, k), (n, k), (m, n)), formats, strict=True)
    )  # fmt: skip
    rows, columns = a[:, :, None, :].expand(-1, -1, n, -1), b[:, None, :, :].expand(-1, m, -1, -1)
    spent = []
    for _ in range(CALLS):
        start = time.process_time()
        model.dpa(rows, columns, c)
        spent.append(time.process_time() - start)
    return batch * m * n * k / min(spent)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([rate(*row) for row in json.loads(sys.argv[1])]))
