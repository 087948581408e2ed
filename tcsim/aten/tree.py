"""Runs one reduction over its threads, blocks and vectors, whatever is accumulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.blocks import Division

State = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True)
class Accumulation:
    """What a thread keeps: one or several arrays, all of one shape."""

    start: tuple[Any, ...]  # the scalars that a state begins with
    take: Callable[[State, npt.NDArray[np.float32]], State]  # a state and the next element
    join: Callable[[State, State], State]  # a state and another one's


def _where(mask: npt.NDArray[np.bool_], new: State, old: State) -> State:
    return tuple(np.where(mask, n, o) for n, o in zip(new, old, strict=True))


def _fresh(op: Accumulation, shape: tuple[int, ...]) -> State:
    return tuple(np.full(shape, s) for s in op.start)


def _taken(op: Accumulation, state: State, x: npt.NDArray[np.float32], valid: npt.NDArray[np.bool_]) -> State:
    return op.take(state, x) if valid.all() else _where(valid, op.take(state, x), state)


def _part(state: State, at: Any) -> State:
    return tuple(s[at] for s in state)


def halved(op: Accumulation, state: State) -> State:
    """The last axis (a power of two) in halves: the first with the second, until one is left."""
    while (n := state[0].shape[-1]) > 1:
        state = op.join(_part(state, np.s_[..., : n // 2]), _part(state, np.s_[..., n // 2 :]))
    return _part(state, np.s_[..., 0])


def _strided(op: Accumulation, x: npt.NDArray[np.float32], d: Division) -> State:
    """Thread t takes elements t, t + step, ...; the k-th goes to accumulator k modulo their number."""
    outputs, n = x.shape
    rounds = -(-n // (d.step * d.accumulators))
    valid = np.arange(rounds * d.accumulators * d.step).reshape(rounds, d.accumulators, d.step) < n
    padded = np.zeros((outputs, valid.size), np.float32)
    padded[:, :n] = x
    padded = padded.reshape(outputs, rounds, d.accumulators, d.step)
    state = _fresh(op, (outputs, d.accumulators, d.step))
    for r in range(rounds):
        state = _taken(op, state, padded[:, r], valid[r])
    return _left_to_right(op, state, d.accumulators)


def _left_to_right(op: Accumulation, state: State, count: int) -> State:
    total = _part(state, np.s_[:, 0])
    for i in range(1, count):
        total = op.join(total, _part(state, np.s_[:, i]))
    return total


def _vectorised(op: Accumulation, x: npt.NDArray[np.float32], d: Division, shift: int) -> State:
    """Thread t takes vectors t, t + step, ... from the first aligned element on; head and tail go to the first accumulators of the first threads."""
    outputs, n = x.shape
    v, step = d.vector, d.step
    head = min(v - shift, n) if shift else 0
    body = x[:, head:]
    vectors = body.shape[1] // v
    rounds = -(-vectors // step)
    state = _fresh(op, (outputs, v, step))
    if shift:
        # thread t takes element t - shift
        first = np.zeros((outputs, step), np.float32)
        first[:, shift : shift + head] = x[:, :head]
        valid = (np.arange(step) >= shift) & (np.arange(step) < shift + head)
        started = _taken(op, _part(state, np.s_[:, 0]), first, valid)
        for s, new in zip(state, started, strict=True):
            s[:, 0] = new
    padded = np.zeros((outputs, rounds * step, v), np.float32)
    padded[:, :vectors] = body[:, : vectors * v].reshape(outputs, vectors, v)
    padded = padded.reshape(outputs, rounds, step, v).swapaxes(2, 3)
    valid = np.arange(rounds * step).reshape(rounds, 1, step) < vectors
    for r in range(rounds):
        state = _taken(op, state, padded[:, r], valid[r])
    tail = body[:, vectors * v :]
    if tail.shape[1]:
        state = tuple(np.array(s) for s in state)
        last = _part(state, np.s_[:, 0, : tail.shape[1]])
        for s, new in zip(state, op.take(last, tail), strict=True):
            s[:, 0, : tail.shape[1]] = new
    return _left_to_right(op, state, v)


def _in_block(op: Accumulation, state: State, d: Division) -> State:
    """(..., blocks, height, width) to (..., blocks): x first, then y."""
    return halved(op, halved(op, state))


def reduced(
    op: Accumulation, x: npt.NDArray[np.float32], d: Division, shifts: npt.NDArray[np.int64] | None = None
) -> State:
    """The states of all outputs. x (outputs, inputs); shifts: of each output, elements from a boundary of its vectors to its first element."""
    outputs = x.shape[0]
    if d.vector and shifts is not None:
        whole: list[npt.NDArray[Any]] | None = None
        for shift in np.unique(shifts):
            rows = shifts == shift
            part = _vectorised(op, x[rows], d, int(shift))
            if whole is None:
                whole = [np.empty((outputs, d.step), s.dtype) for s in part]
            for s, new in zip(whole, part, strict=True):
                s[rows] = new
        state: State = tuple(whole or ())
    else:
        state = _strided(op, x, d)
    height, width = d.height if d.y_reduces else 1, d.width if d.x_reduces else 1
    state = _in_block(op, tuple(s.reshape(outputs, d.blocks, height, width) for s in state), d)
    if d.blocks == 1:
        return _part(state, np.s_[:, 0])
    threads = height * width
    rounds = -(-d.blocks // threads)
    last = _fresh(op, (outputs, threads))
    for r in range(rounds):
        some = _part(state, np.s_[:, r * threads : (r + 1) * threads])
        joined = op.join(_part(last, np.s_[:, : some[0].shape[1]]), some)
        last = tuple(np.concatenate([j, s[:, j.shape[1] :]], axis=1) for j, s in zip(joined, last, strict=True))
    # of the last block: y first, then x
    grid = tuple(s.reshape(outputs, height, width).swapaxes(1, 2) for s in last)
    return halved(op, halved(op, grid))
