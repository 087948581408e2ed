"""Kernels of Triton that `real_sizes.py` times: each as a function that launches it, and the tensor that it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def attention(Q, K, V, Out, scale, N, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """softmax(Q K^T) V of one head, 128 queries a program."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    head = tl.program_id(1) * N * D
    d = tl.arange(0, D)
    q = tl.load(Q + head + rows[:, None] * D + d[None, :])
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(K + head + keys[None, :] * D + d[:, None])
        v = tl.load(V + head + keys[:, None] * D + d[None, :])
        x = tl.dot(q, k) * scale
        now = tl.maximum(most, tl.max(x, 1))
        p = tl.exp2(x - now[:, None])
        less = tl.exp2(most - now)
        total = total * less + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), v, acc * less[:, None])
        most = now
    tl.store(Out + head + rows[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


@triton.jit
def matmul(A, B, C, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product of square matrices."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, N, BK):
        a = tl.load(A + m[:, None] * N + start + k[None, :])
        b = tl.load(B + (start + k[:, None]) * N + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(C + m[:, None] * N + n[None, :], acc.to(tl.float16))


@triton.jit
def layer_norm(X, Y, W, B, N, eps, SIZE: tl.constexpr):
    """One row a program."""
    row, columns = tl.program_id(0), tl.arange(0, SIZE)
    there = columns < N
    x = tl.load(X + row * N + columns, there, 0.0)
    mean = tl.sum(x, 0) / N
    apart = tl.where(there, x - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart, 0) / N + eps)
    y = apart * scale * tl.load(W + columns, there, 0.0) + tl.load(B + columns, there, 0.0)
    tl.store(Y + row * N + columns, y, there)


@triton.jit
def softmax(X, Y, N, SIZE: tl.constexpr):
    """One row a program."""
    row, columns = tl.program_id(0), tl.arange(0, SIZE)
    x = tl.load(X + row * N + columns, columns < N, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(Y + row * N + columns, e / tl.sum(e, 0), columns < N)


@triton.jit
def vector_add(X, Y, Z, N, SIZE: tl.constexpr):
    """1,024 elements a program."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(Z + at, tl.load(X + at, at < N) + tl.load(Y + at, at < N), at < N)


Made = tuple[Callable[[], object], torch.Tensor]


def _attention(tokens: int) -> Made:
    q, k, v = (torch.randn(1, tokens, 64, dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    grid: Any = (tokens // 128, 1)
    return lambda: attention[grid](q, k, v, out, 0.125 * 1.44269504, tokens, BM=128, BN=64, D=64), out


def _matmul() -> Made:
    a, b = (torch.randn(512, 512, dtype=torch.float16) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: matmul[(8, 8)](a, b, out, 512, BM=64, BN=64, BK=32), out


def _layer_norm() -> Made:
    x, w, b = torch.randn(1151, 1024), torch.randn(1024), torch.randn(1024)
    out = torch.empty_like(x)
    return lambda: layer_norm[(1151,)](x, out, w, b, 1024, 1e-5, SIZE=1024), out


def _softmax() -> Made:
    x = torch.randn(1823, 781)
    out = torch.empty_like(x)
    return lambda: softmax[(1823,)](x, out, 781, SIZE=1024), out


def _vector_add() -> Made:
    x, y = torch.randn(98432), torch.randn(98432)
    out = torch.empty_like(x)
    return lambda: vector_add[(triton.cdiv(98432, 1024),)](x, y, out, 98432, SIZE=1024), out


KERNELS: dict[str, Callable[[], Made]] = {
    "attention, 4096 tokens x 1 head x 64": lambda: _attention(4096),
    "attention, 1024 tokens x 1 head x 64": lambda: _attention(1024),
    "matmul 512 x 512 x 512": _matmul,
    "layer norm 1151 x 1024": _layer_norm,
    "softmax 1823 x 781": _softmax,
    "vector add 98,432": _vector_add,
}
"""What is launched, on data of a fixed seed."""
