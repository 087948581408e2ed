"""Attention in Triton: forward with an online softmax, and both gradients."""

import triton
import triton.language as tl


@triton.jit
def forward(
    q,
    k,
    v,
    out,
    lse,
    scale,
    N: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """A head a program along axis 1, a block of queries along axis 0."""
    block, head = tl.program_id(0), tl.program_id(1)
    rows, inner = block * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    queries = tl.load(q + head * N * D + rows[:, None] * D + inner[None, :])
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    sums = tl.zeros((BLOCK_M, D), tl.float32)
    end = (block + 1) * BLOCK_M if CAUSAL else N
    for start in range(0, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        keys = tl.load(k + head * N * D + columns[:, None] * D + inner[None, :])
        scores = tl.dot(queries, keys.T) * (scale * 1.4426950408889634)
        if CAUSAL:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -1.0e6)
        new = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - new[:, None])
        old = tl.exp2(top - new)
        total = total * old + tl.sum(p, 1)
        values = tl.load(v + head * N * D + columns[:, None] * D + inner[None, :])
        sums = tl.dot(p.to(values.dtype), values, sums * old[:, None])
        top = new
    tl.store(out + head * N * D + rows[:, None] * D + inner[None, :], (sums / total[:, None]).to(out.dtype.element_ty))
    tl.store(lse + head * N + rows, top + tl.log2(total))


@triton.jit
def backward(q, k, v, dout, lse, delta, dq, dk, dv, scale, N: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """One program a head: dk and dv of each block of keys, then dq of each block of queries."""
    head, inner = tl.program_id(0), tl.arange(0, D)
    base = head * N * D
    log2e: tl.constexpr = 1.4426950408889634
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        keys = tl.load(k + base + columns[:, None] * D + inner[None, :])
        values = tl.load(v + base + columns[:, None] * D + inner[None, :])
        gradient_k = tl.zeros((BLOCK, D), tl.float32)
        gradient_v = tl.zeros((BLOCK, D), tl.float32)
        for first in range(0, N, BLOCK):
            rows = first + tl.arange(0, BLOCK)
            queries = tl.load(q + base + rows[:, None] * D + inner[None, :])
            outer = tl.load(dout + base + rows[:, None] * D + inner[None, :])
            p = tl.exp2(tl.dot(keys, queries.T) * (scale * log2e) - tl.load(lse + head * N + rows)[None, :])
            gradient_v += tl.dot(p.to(tl.float16), outer)
            ds = p * (tl.dot(values, outer.T) - tl.load(delta + head * N + rows)[None, :])
            gradient_k += tl.dot(ds.to(tl.float16), queries)
        tl.store(dk + base + columns[:, None] * D + inner[None, :], (gradient_k * scale).to(tl.float16))
        tl.store(dv + base + columns[:, None] * D + inner[None, :], gradient_v.to(tl.float16))
    for first in range(0, N, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        queries = tl.load(q + base + rows[:, None] * D + inner[None, :])
        outer = tl.load(dout + base + rows[:, None] * D + inner[None, :])
        gradient_q = tl.zeros((BLOCK, D), tl.float32)
        for start in range(0, N, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            keys = tl.load(k + base + columns[:, None] * D + inner[None, :])
            values = tl.load(v + base + columns[:, None] * D + inner[None, :])
            p = tl.exp2(tl.dot(queries, keys.T) * (scale * log2e) - tl.load(lse + head * N + rows)[:, None])
            ds = p * (tl.dot(outer, values.T) - tl.load(delta + head * N + rows)[:, None])
            gradient_q += tl.dot(ds.to(tl.float16), keys)
        tl.store(dq + base + rows[:, None] * D + inner[None, :], (gradient_q * scale).to(tl.float16))
