"""Mistakes with fragments: registers, lanes or the elements inside a register in another order than the layout's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, permutations

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.operands import changed, operand, stored
from tcsim.diagnosis.problem import Attempt, Codes, Problem
from tcsim.model.operand import Fragment

Registers = npt.NDArray[np.uint32]
Permutation = npt.NDArray[np.intp]


def attempts(problem: Problem) -> Iterator[Attempt]:
    """Every operand that registers hold, each of the permutations below."""
    for name, given in problem.machine.instruction.operands.items():
        for mistake, detail, forward, backward in (*_permutations(given), *(() if name == "d" else _repeated(given))):
            advice = f"compare with instruction.operands[{name!r}].layout: where an element of {name} belongs"
            change = backward if name == "d" else forward
            both = name if name in ("a", "b") else ""
            made = partial(_permuted, problem, given, change)
            yield Attempt(f"{name} {mistake}", detail, advice, made, both, (mistake, detail))


_Change = Callable[[Registers], Registers]


def _permutations(given: Fragment) -> Iterator[tuple[str, str, _Change, _Change]]:
    """(mistake, detail, the change that makes it, the change that undoes it)."""
    if given.layout.element_bits <= 16:
        turn = partial(_rotated, bits=16)
        yield "register halves swapped", "bits 15:0 of each register with bits 31:16", turn, turn
    if given.layout.element_bits <= 8:
        yield "register bytes reversed", "byte 0 with 3, 1 with 2", _reversed_bytes, _reversed_bytes
    if given.layout.element_bits == 4:
        yield "register nibbles swapped", "in each byte", _swapped_nibbles, _swapped_nibbles
    words = 2 if given.layout.element_bits == 64 else 1
    for detail, order in _distinct(_register_orders(given.registers // words)):
        whole = (order[:, None] * words + np.arange(words)).reshape(-1)
        forward, backward = (partial(np.take, indices=x, axis=-1) for x in (whole, np.argsort(whole)))
        yield "registers permuted", detail, forward, backward
    for detail, order in _distinct(_lane_orders(given.lanes)):
        forward, backward = (partial(np.take, indices=x, axis=-2) for x in (order, np.argsort(order)))
        yield "lanes permuted", detail, forward, backward


def _repeated(given: Fragment) -> Iterator[tuple[str, str, _Change, _Change]]:
    """One register in the place of another: what the other holds is read nowhere."""
    words = 2 if given.layout.element_bits == 64 else 1
    count = given.registers // words
    for place, taken in permutations(range(count), 2) if count <= 8 else ():
        order = np.arange(count)
        order[place] = taken
        whole = (order[:, None] * words + np.arange(words)).reshape(-1)
        change = partial(np.take, indices=whole, axis=-1)
        yield "register used twice", f"register {taken} where {place} belongs", change, change


def _distinct(orders: Iterator[tuple[str, Permutation]]) -> Iterator[tuple[str, Permutation]]:
    """Each permutation once, under its first description; never the identity."""
    seen: set[tuple[int, ...]] = set()
    for detail, order in orders:
        key = tuple(order.tolist())
        if key not in seen and key != tuple(range(len(order))):
            seen.add(key)
            yield detail, order


def _register_orders(count: int) -> Iterator[tuple[str, Permutation]]:
    own = np.arange(count)
    if count <= 8:
        for first, second in combinations(range(count), 2):
            order = own.copy()
            order[[first, second]] = second, first
            yield f"register {first} with {second}", order
    for bit in range(count.bit_length()):
        if count % (2 << bit) == 0 and count > 2:
            yield f"register i with i ^ {1 << bit}", own ^ (1 << bit)
    if count > 2:
        yield "register i with the i-th from the end", own[::-1]
        if count % 2 == 0:
            yield "even ones first, then the odd ones", np.concatenate([own[::2], own[1::2]])
            yield "the two halves interleaved", own.reshape(2, -1).T.reshape(-1)


def _lane_orders(count: int) -> Iterator[tuple[str, Permutation]]:
    own = np.arange(count)
    bit = 1
    while bit < count:
        yield f"lane i with i ^ {bit}", own ^ bit
        bit *= 2
    warp, lane = own // 32 * 32, own % 32
    yield "lane / 4 exchanged with lane % 4: column of quads first", warp + lane % 4 * 8 + lane // 4
    yield "lane % 8 exchanged with lane / 8: row of quads first", warp + lane % 8 * 4 + lane // 8
    yield "lane i with 31 - i", own ^ 31


def _rotated(registers: Registers, bits: int) -> Registers:
    return registers << np.uint32(bits) | registers >> np.uint32(32 - bits)


def _reversed_bytes(registers: Registers) -> Registers:
    return registers.byteswap()


def _swapped_nibbles(registers: Registers) -> Registers:
    low = np.uint32(0x0F0F0F0F)
    return (registers & low) << np.uint32(4) | (registers >> np.uint32(4)) & low


def _permuted(problem: Problem, given: Fragment, change: _Change) -> Problem | None:
    name = given.name
    codes = _moved(problem, given, operand(problem, name), change)
    if codes is None or name != "d" or problem.size is None:
        return None if codes is None else changed(problem, name, codes)
    return stored(problem, codes, _moved(problem, given, problem.inside().astype(codes.dtype), change))


def _moved(problem: Problem, given: Fragment, codes: Codes, change: _Change) -> Codes | None:
    """Codes with the registers that hold them changed."""
    multiply = problem.machine.instruction
    rows, columns = given.shape
    batch, tall, wide = codes.shape
    tiles = codes.reshape(batch, tall // rows, rows, wide // columns, columns).swapaxes(2, 3)
    flat = tiles.reshape(-1, rows, columns)
    matrices = given.layout.matrices
    if len(flat) % matrices:
        return None  # the matrices of a warp are not all known
    grouped = flat.reshape(-1, matrices, rows, columns) if matrices > 1 else flat
    registers = multiply.registers(given.name, grouped)
    moved = multiply.matrix(given.name, change(registers)).reshape(tiles.shape)
    result: Codes = moved.swapaxes(2, 3).reshape(codes.shape)
    return result
