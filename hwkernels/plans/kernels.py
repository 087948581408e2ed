"""`python -m hwkernels.plans.kernels OUT.npz`: torch's products by kernels that are not nvjet's, beside the orders of `tcsim.plans.kernels`.

Of random shapes: what cuBLASLt's heuristic answers, and digests of every output of two products. It needs what `hwkernels.plans record` needs.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tcsim
from hwkernels.plans.cases import Case
from tcsim.core.files import replacing
from tcsim.plans.kernels import order_of

Array = npt.NDArray[Any]
OPS = {"mm": "linear", "addmm": "addmm", "bmm": "bmm"}
TYPES: dict[str, Any] = {"f32": np.float32, "tf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
_DROPPED = {"bf16": 16, "f16": 13, "f32": 0, "tf32": 0}
_FORMATS = ("bf16", "f16", "f32", "tf32")
_LAYOUTS = ("TN", "NN", "NT", "TT")
_MOST = 2e7
"""Multiplications of a product, at most."""


def operand(shape: tuple[int, ...], seed: int, format: str) -> Array:
    """f32 numbers of eight binades, exact in the format: a hash of the place and the seed."""
    x = np.arange(np.prod(shape), dtype=np.int64) + seed * 0x51ED27 & 0x7FFFFFFF
    for factor, shift in ((0x9E3779B1, 15), (0x85EBCA77, 13), (0xC2B2AE3D, 16)):
        x = x * factor & 0xFFFFFFFF
        x ^= x >> shift
    low = _DROPPED[format]
    codes = (x & 0x80000000) | (120 + (x >> 28 & 7) << 23) | ((x & 0x7FFFFF) >> low << low)
    return codes.astype(np.uint32).view(np.float32).reshape(shape)


def operands(case: Case, cancelling: bool) -> tuple[Array, Array, Array]:
    """x (batch, M, K), w (batch, N, K), bias (N,). Cancelling: half of K repeats the other half with x negated, so that the output is the error."""
    text = ",".join(map(str, case[:8]))
    seed = int.from_bytes(hashlib.sha256(f"k4|{text}".encode()).digest()[:3], "big")
    x, w = (operand((case.batch, rows, case.k), seed + i, case.format) for i, rows in enumerate((case.m, case.n)))
    if cancelling:
        places = np.random.default_rng(seed).permutation(case.k)
        one, other, rest = np.split(places, [case.k // 2, case.k // 2 * 2])
        x[:, :, other], w[:, :, other] = -x[:, :, one], w[:, :, one]
        x[:, :, rest] *= np.float32(2.0**-6 if case.format == "f16" else 2.0**-12)
    return x, w, operand((case.n,), seed + 2, case.format)


def digest(y: Array) -> int:
    """Eight bytes of the hash of an output."""
    codes = np.ascontiguousarray(y).reshape(-1).view(np.int16)
    return int.from_bytes(hashlib.sha256(codes.tobytes()).digest()[:8], "big")


def predicted(case: Case, kernel: str, cuts: int, reduction: int) -> list[int] | None:
    """The digests by tcsim; None where the order is not known."""
    call, format, out, layout, m, n, k, batch, _ = case
    asked = {
        "m": m,
        "n": n,
        "k": k,
        "batch": batch,
        "format": format,
        "out": out,
        "layout": layout,
        "bias": call == "addmm",
    }
    plan = tcsim.plan(OPS[call], **asked, gpu="sm_90")  # type: ignore[arg-type]
    order = order_of(kernel, cuts, reduction, plan.kind, m, n, k, batch)
    if order is None:
        return None
    found = []
    for cancelling in (False, True):
        x, w, bias = operands(case, cancelling)
        x, w = x.astype(TYPES[format]), w.swapaxes(-1, -2).astype(TYPES[format])
        if call != "bmm":
            x, w = x[0], w[0]
        given = bias.astype(TYPES[out]) if call == "addmm" else None
        found.append(digest(tcsim.plans.product(replace(plan, order=order), x, w, bias=given)))
    return found


def drawn(rng: np.random.Generator) -> Case:
    """A random product of at most _MOST multiplications."""
    call, format, layout = (str(rng.choice(x)) for x in (tuple(OPS), _FORMATS, _LAYOUTS))
    batch = int(rng.integers(2, 33)) if call == "bmm" else 1
    while True:
        m, n, k = (int(2 ** rng.uniform(0, high)) for high in (9, 12, 13))
        if batch * m * n * k <= _MOST:
            return Case(call, format, "f32" if format == "tf32" else format, layout, m, n, k, batch)


def observed(case: Case, buffers: Any) -> list[int]:
    """The digests of torch's outputs."""
    import torch

    from hwkernels.plans.calls import TYPES as TORCH
    from hwkernels.plans.calls import call, settings

    settings(case)
    found = []
    for cancelling in (False, True):
        x, w, bias = (torch.from_numpy(each).cuda().to(TORCH[case.format]) for each in operands(case, cancelling))
        x = x if case.layout[1] == "N" else x.transpose(-1, -2).contiguous().transpose(-1, -2)
        w = w.transpose(-1, -2) if case.layout[0] == "T" else w.transpose(-1, -2).contiguous()
        if case.op != "bmm":
            x, w = x[0], w[0]
        y = torch.empty((*x.shape[:-1], case.n), dtype=TORCH[case.out], device="cuda")
        call(case, x, w, y, buffers, bias.to(TORCH[case.out]))()
        found.append(digest(y.view(torch.int16).cpu().numpy()))
    return found


def main() -> int:
    """Run the command."""
    from hwkernels.plans.ask import LARGE, SMALL, decision, through_lt
    from hwkernels.plans.calls import Buffers
    from hwkernels.plans.heuristic import Heuristic

    parser = argparse.ArgumentParser(prog="python -m hwkernels.plans.kernels", description=__doc__)
    parser.add_argument("out", type=Path, help="What to write, as tests/data/plans/kernels_h200.npz.")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    buffers, lt, gemm = Buffers(0.25), Heuristic(SMALL, 256), Heuristic(LARGE, 16)
    rng, stop = np.random.default_rng(options.seed), time.monotonic() + options.seconds
    kinds: dict[str, int] = {}
    answers, digests, unknown, wrong = [], [], 0, 0
    while time.monotonic() < stop:
        case = drawn(rng)
        asked = lt if through_lt(case.op) else gemm
        try:
            _, layouts, result = asked.ask(case, buffers.one.data_ptr())
        except RuntimeError:
            continue  # cuBLASLt does not take it
        about = asked.about(result)
        asked.free(layouts)
        answer = decision(about, case.format)
        if answer.split:
            continue  # nvjet
        told = predicted(case, answer.kernel, answer.cuts, answer.reduction)
        unknown += told is None
        if told is None:
            continue
        seen = observed(case, buffers)
        if seen != told:
            wrong += 1
            print("differs:", case, about)
        number = kinds.setdefault(" ".join(case[:4]), len(kinds))
        chosen = [about[name] for name in ("id", "stages", "custom")]
        answers.append([number, *case[4:8], *chosen, answer.cuts, answer.reduction])
        digests.append(seen)
    with replacing(options.out) as file:
        np.savez_compressed(
            file, kinds=list(kinds), answers=np.array(answers, np.int32), digests=np.array(digests, np.uint64)
        )
    print(f"{len(answers)} products, {wrong} differ; {unknown} more of an order that is not known")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
