"""The launches of attention.py, and what NumPy says of them in double precision: attention forward and backward."""

from __future__ import annotations

import math

import numpy as np

from tests.kernels.corpora.case import DTYPES, Array, Close, Inputs, Launch, Pointer
from tests.kernels.corpora.triton.launches import BOTH, EVERY, NONE, TYPES, call, jit, wide, zeros


def _attention(q: Array, k: Array, v: Array, scale: float, causal: bool) -> tuple[Array, Array]:
    scores = wide(q) @ wide(k).transpose(0, 2, 1) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - top)
    total = e.sum(axis=-1, keepdims=True)
    return e / total @ wide(v), (top + np.log(total))[..., 0] / math.log(2)


def _forward(kind: str, causal: bool, targets: tuple[str, ...]) -> None:
    signature = "".join(f"{name}:*{TYPES[kind]} " for name in ("q", "k", "v", "out")) + "lse:*fp32 scale:fp32"
    constants = {"N": 128, "D": 32, "BLOCK_M": 64, "BLOCK_N": 32, "CAUSAL": causal}
    dtype = DTYPES[kind]

    def make(inputs: Inputs) -> Launch:
        q, k, v = (inputs.normal((1, 128, 32), dtype) for _ in range(3))
        scale = float(np.float32(32**-0.5))
        out, lse = _attention(q, k, v, scale, causal)
        return call(
            {"q": q, "k": k, "v": v},
            {
                "out": Close(out, dtype, 2e-2, 2e-2 if kind == "bf16" else 3e-3),
                "lse": Close(lse, np.float32, 1e-3, 1e-3),
            },
            np.float32(scale),
            grid=2,
        )

    jit("attention", "forward", signature, constants, targets, f"attention_{kind}{'_causal' * causal}", "*")(make)


_forward("f16", False, EVERY)
_forward("bf16", True, EVERY)


@jit("attention", "backward", "q:*fp16 k:*fp16 v:*fp16 dout:*fp16 lse:*fp32 delta:*fp32 dq:*fp16 dk:*fp16 dv:*fp16 scale:fp32",
     {"N": 64, "D": 32, "BLOCK": 32}, BOTH, "attention_backward", "*")  # fmt: skip
def attention_backward(inputs: Inputs) -> Launch:
    q, k, v, dout = (inputs.normal((1, 64, 32), np.float16) for _ in range(4))
    scale = float(np.float32(32**-0.5))
    out, lse = _attention(q, k, v, scale, False)
    lse, delta = lse.astype(np.float32), (out * wide(dout)).sum(axis=-1).astype(np.float32)
    p = np.exp2(wide(q) @ wide(k).transpose(0, 2, 1) * scale / math.log(2) - lse[..., None])
    ds = p * (wide(dout) @ wide(v).transpose(0, 2, 1) - delta[..., None])
    gradients = {
        "dq": ds @ wide(k) * scale,
        "dk": ds.transpose(0, 2, 1) @ wide(q) * scale,
        "dv": p.transpose(0, 2, 1) @ wide(dout),
    }
    return Launch(
        {"q": q, "k": k, "v": v, "dout": dout, "lse": lse, "delta": delta} | {name: zeros((1, 64, 32), np.float16) for name in gradients},
        (*map(Pointer, ("q", "k", "v", "dout", "lse", "delta", "dq", "dk", "dv")), np.float32(scale), NONE, NONE),
        {name: Close(values, np.float16, 2e-2, 5e-3) for name, values in gradients.items()},
    )  # fmt: skip
