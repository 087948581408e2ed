"""mmasim: bit-accurate models of mma.sync, wgmma and tcgen05. Run by tests/oracles/asking.py.

Importing mmasim compiles a file, with ninja and a C++ compiler, into TORCH_EXTENSIONS_DIR.
"""

from __future__ import annotations

import numpy as np
import torch
from answering import Arrays, Job, main
from mmasim import nv_ptx
from mmasim.nv_ptx import isa_mma, isa_tcgen05mma, isa_wgmma
from mmasim.nv_ptx.isa_common import nv_torch_dtype

KNOWN = {
    "MMA": isa_mma.mma_shape_and_type,
    "MMABlockScale": isa_mma.mma_block_scale_shape_and_type,
    "WGMMA": isa_wgmma.wgmma_shape_and_type,
    "TCGen05MMA": isa_tcgen05mma.tcgen05mma_shape_and_type,
    "TCGen05MMABlockScale": isa_tcgen05mma.tcgen05mma_block_scale_shape_and_type,
}


def packed(codes: np.ndarray) -> torch.Tensor:
    """fp4 codes as mmasim takes them for the kinds that pack them: two along K in a byte."""
    return torch.from_numpy((codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8))


def scaled(job: Job, given: Arrays) -> torch.Tensor:
    """The results (count, M, N) of a block-scaled instruction: scale_a (count, M, blocks), scale_b (count, blocks, N)."""
    names, model = job["formats"], nv_ptx.MMABlockScale(job["arch"], job["name"])
    b = given["b"].transpose(0, 2, 1)
    if model.packing == 2:
        rows, columns = packed(given["a"]), packed(b)
    else:
        rows, columns = tensor(given["a"], names["a"]), tensor(b, names["b"])
    scale_a = tensor(given["scale_a"], names["scale"])
    scale_b = tensor(given["scale_b"].transpose(0, 2, 1), names["scale"])
    m, n = given["c"].shape[1:]
    # each result by itself
    rows, scale_a = (x[:, :, None, :].expand(-1, -1, n, -1) for x in (rows, scale_a))
    columns, scale_b = (x[:, None, :, :].expand(-1, m, -1, -1) for x in (columns, scale_b))
    return model.dpa(rows, columns, tensor(given["c"], names["c"]), scale_a, scale_b)


def tensor(codes: np.ndarray, name: str) -> torch.Tensor:
    """Codes as mmasim takes them: fp4 in bits 5:2 of a byte."""
    dtype = nv_torch_dtype[name]
    raw = torch.from_numpy(np.ascontiguousarray(codes).view(f"i{codes.itemsize}").copy())
    if dtype == torch.uint8:
        return raw.view(torch.uint8) << (2 if name == "e2m1" else 0)
    return raw.view(dtype)


def answer(job: Job, given: Arrays) -> Arrays:
    """What there is, or the results (count, M, N) of operands a (count, M, K), b (count, K, N), c (count, M, N).

    Block scaling: scale_a (count, M, blocks), scale_b (count, blocks, N), in the format `formats["scale"]`.
    """
    if job["do"] == "list":
        rows = [
            (model, arch, name) for model, archs in KNOWN.items() for arch, names in archs.items() for name in names
        ]
        return {"known": np.array(rows)}
    if job["model"] == "MMABlockScale":
        return {"d": scaled(job, given).contiguous().view(torch.uint8).numpy().view("u4")}
    model = getattr(nv_ptx, job["model"])(job["arch"], job["name"])
    n, m = given["b"].shape[2], given["a"].shape[1]
    if job.get("packed"):
        a, b = packed(given["a"]), packed(given["b"].swapaxes(1, 2))
    else:
        a, b = tensor(given["a"], job["formats"]["a"]), tensor(given["b"], job["formats"]["b"]).mT
    c = tensor(given["c"], job["formats"]["c"])
    # each result by itself: its row of A and its column of B, with their scales
    rows = [a[:, :, None, :].expand(-1, -1, n, -1), b[:, None, :, :].expand(-1, m, -1, -1), c]
    scales = []
    if "scale_a" in given:
        alpha, beta = scales = [tensor(given[name], job["formats"]["scale"]) for name in ("scale_a", "scale_b")]
        rows += [alpha[:, :, None, :].expand(-1, -1, n, -1), beta.mT[:, None, :, :].expand(-1, m, -1, -1)]
    d = model.dpa(*rows)
    if job["do"] == "check the whole":  # that this is what mmasim does with whole matrices
        whole = torch.stack([model(*operands) for operands in zip(a, b.mT, c, *scales, strict=True)])
        assert torch.equal(whole.view(torch.uint8), d.view(torch.uint8))
    return {"d": d.contiguous().view(torch.uint8).numpy().view(f"u{d.element_size()}")}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main("mmasim", answer)
