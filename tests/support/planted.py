"""Planted mistakes: what a kernel with one bug computes, made with the instructions themselves and no help from tcsim.diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tcsim

Random = np.random.Generator


@dataclass(frozen=True)
class Planted:
    """Arguments of `tcsim.diagnose`, and the mistake behind them."""

    instruction: Any
    arguments: dict[str, Any]
    mistake: str


def codes(random: Random, shape: tuple[int, ...], format: Any) -> Any:
    """Random normal floats, small integers for tf32 and wide formats alike; any code of an integer format."""
    if format.kind == "float":
        return tcsim.encode(random.standard_normal(shape) * (1 if format.bits > 8 else 2), format.name)
    low, high = (-(1 << (format.bits - 1)), 1 << (format.bits - 1)) if format.signed else (0, 1 << format.bits)
    if format.bits == 32:
        low, high = -1000, 1000
    return tcsim.encode(random.integers(low, high, shape), format.name)


def _operands(random: Random, ins: Any, times: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    m, n, k = (size * by for size, by in zip(ins.shape, times, strict=True))
    a, b, c = (codes(random, s, ins.formats[x]) for x, s in zip("abc", ((m, k), (k, n), (m, n)), strict=True))
    return a, b, c


def run(ins: Any, a: Any, b: Any, c: Any, order: Any = None) -> Any:
    """The K loop, one instruction's matmul after another, tile by tile."""
    m, n, k = ins.shape
    out = np.empty(c.shape, ins.operands["d"].format.dtype)
    for top in range(0, a.shape[0], m):
        for left in range(0, b.shape[1], n):
            total = c[top : top + m, left : left + n]
            for block in range(a.shape[1] // k) if order is None else order:
                inner = slice(block * k, block * k + k)
                total = ins.matmul(a[top : top + m, inner], b[inner, left : left + n], total)
            out[top : top + m, left : left + n] = total
    return out


# --- mistakes of dense multiplies, on matrices: (random, instruction) -> Planted


def _matrix(times: tuple[int, int, int], mistake: str, wrong: Callable[[Random, Any, Any, Any, Any], Any]) -> Any:
    def plant(random: Random, ins: Any) -> Planted | None:
        if ins.formats["c"] is not ins.operands["d"].format and (times[2] > 1 or mistake == "stale accumulator"):
            return None  # the result is no accumulator
        a, b, c = _operands(random, ins, times)
        observed = wrong(random, ins, a, b, c)
        if observed is None:
            return None
        return Planted(ins, {"a": a, "b": b, "c": c, "observed": observed}, mistake)

    return plant


def _transposed_a(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    rows, columns = a.shape
    memory = a.reshape(-1)  # row-major
    wrong = np.array([[memory[j * rows + i] for j in range(columns)] for i in range(rows)], a.dtype)
    return run(ins, wrong, b, c)


def _transposed_b(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    rows, columns = b.shape
    memory = b.reshape(-1)
    wrong = np.array([[memory[j * rows + i] for j in range(columns)] for i in range(rows)], b.dtype)
    return run(ins, a, wrong, c)


def _stored_transposed(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    right = run(ins, a, b, c)
    return np.ascontiguousarray(right.T).reshape(right.shape)


def _no_c(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    return run(ins, a, b, np.zeros_like(c))


def _twice(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    return run(ins, a, b, run(ins, a, b, c))


def _missing(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    count = a.shape[1] // ins.shape[2]
    gone = int(random.integers(count))
    return run(ins, a, b, c, [i for i in range(count) if i != gone])


def _repeated(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    count = a.shape[1] // ins.shape[2]
    again = int(random.integers(count))
    return run(ins, a, b, c, sorted([*range(count), again]))


def _restarted(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    count = a.shape[1] // ins.shape[2]
    return run(ins, a, b, np.zeros_like(c), [count - 1])


def _stuck(name: str) -> Any:
    def wrong(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
        k, count = ins.shape[2], a.shape[1] // ins.shape[2]
        if name == "a":
            return run(ins, np.tile(a[:, :k], (1, count)), b, c)
        return run(ins, a, np.tile(b[:k], (count, 1)), c)

    return wrong


def _half_advance(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    k, count = ins.shape[2], a.shape[1] // ins.shape[2]
    parts = [b[i * k // 2 : i * k // 2 + k] for i in range(count)]
    return run(ins, a, np.concatenate(parts), c)


def _stages(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    k = ins.shape[2]
    parts = [a[:, i * k : i * k + k] for i in (1, 0, 3, 2)]
    return run(ins, np.concatenate(parts, 1), b, c)


def _negated(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    format = ins.formats["a"]
    if format.kind != "float":
        return None
    return run(ins, tcsim.encode(-tcsim.decode(a, format.name), format.name), b, c)


def _half_accumulator(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    if ins.formats["c"].name != "f32":
        return None
    k, total = ins.shape[2], tcsim.decode(c, "f32").astype(np.float16)
    for block in range(a.shape[1] // k):
        inner = slice(block * k, block * k + k)
        out = run(ins, a[:, inner], b[inner], total.astype(np.float32).view(np.uint32))
        total = out.view(np.float32).astype(np.float16)
    return total.astype(np.float32).view(np.uint32)


def _other_arch(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    for arch in ("sm_80", "sm_89", "sm_100", "sm_120"):
        try:
            other = tcsim.instruction(ins.mnemonic, arch=arch)
        except tcsim.TcsimError:
            continue
        observed = run(other, a, b, c)
        if (observed != run(ins, a, b, c)).any():
            return observed
    return None


_SWAPS = {"f16": "bf16", "bf16": "f16", "e4m3": "e5m2", "e5m2": "e4m3", "s8": "u8", "u8": "s8"}


def _other_format(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    parts = ins.mnemonic.split(".")
    places = [i for i, part in enumerate(parts) if part in _SWAPS]
    if not places or ins.formats["a"].name not in _SWAPS:
        return None
    for chosen in (places[-2:], places[-1:], places[-2:-1]):
        other = ".".join(_SWAPS[p] if i in chosen else p for i, p in enumerate(parts))
        try:
            found = tcsim.instruction(other, arch=ins.arch.name)
        except tcsim.TcsimError:
            continue
        if found.formats["c"] is ins.formats["c"] and found.operands["d"].format is ins.operands["d"].format:
            return run(found, a, b, c)
    return None


def _warps_exchanged_blocks(random: Random, ins: Any, a: Any, b: Any, c: Any) -> Any:
    rows, columns = a.shape
    if rows % 8 or columns % 8 or rows == columns == 8:
        return None
    wrong = a.copy()
    for i in range(0, rows, 8):
        for j in range(0, columns, 8):
            wrong[i : i + 8, j : j + 8] = a[i : i + 8, j : j + 8].T
    return run(ins, wrong, b, c)


MATRIX = (
    _matrix((1, 1, 1), "a transposed", _transposed_a),
    _matrix((2, 1, 2), "a transposed", _transposed_a),
    _matrix((1, 2, 2), "b transposed", _transposed_b),
    _matrix((2, 1, 2), "d transposed", _stored_transposed),
    _matrix((1, 1, 2), "accumulator ignored", _no_c),
    _matrix((1, 1, 2), "stale accumulator", _twice),
    _matrix((1, 2, 4), "K block missing", _missing),
    _matrix((1, 1, 4), "K block repeated", _repeated),
    _matrix((1, 1, 3), "accumulator restarted", _restarted),
    _matrix((1, 1, 4), "a: K advance wrong", _stuck("a")),
    _matrix((1, 1, 4), "b: K advance wrong", _stuck("b")),
    _matrix((1, 1, 4), "b: K advance wrong", _half_advance),
    _matrix((1, 1, 4), "K blocks of a mismatched", _stages),
    _matrix((1, 1, 1), "a negated", _negated),
    _matrix((2, 2, 4), "accumulator in f16", _half_accumulator),
    _matrix((2, 2, 4), "rounding of another arch", _other_arch),
    _matrix((1, 1, 2), "another instruction", _other_format),
    _matrix((1, 1, 2), "a transposed", _warps_exchanged_blocks),
)


# --- mistakes of dense multiplies, on registers


def _registers(mistake: str, name: str, wrong: Callable[[Random, Any], Any]) -> Any:
    def plant(random: Random, ins: Any) -> Planted | None:
        matrices = 4
        shapes = {x: ins.operands[x].shape for x in "abc"}
        count = matrices * ins.matrices
        whole = {x: codes(random, (count, *shapes[x]), ins.formats[x]) for x in "abc"}
        if ins.matrices > 1:
            whole = {x: y.reshape(matrices, ins.matrices, *y.shape[1:]) for x, y in whole.items()}
        given = {x: ins.registers(x, y) for x, y in whole.items()}
        target = ins.execute(**given) if name == "d" else given[name]
        changed = wrong(random, target)
        if changed is None or np.array_equal(changed, target):
            return None
        observed = changed if name == "d" else ins.execute(**{**given, name: changed})
        if np.array_equal(observed, ins.execute(**given)):
            return None  # wmma: a copy that nothing reads
        return Planted(ins, {**given, "observed": observed}, mistake)

    return plant


def _swap_halves(random: Random, registers: Any) -> Any:
    return (registers >> 16) | ((registers & 0xFFFF) << 16)


def _swap_two(random: Random, registers: Any) -> Any:
    count = registers.shape[-1]
    if count < 2 or count > 8:
        return None
    first, second = random.choice(count, 2, replace=False)
    out = registers.copy()
    out[..., first], out[..., second] = registers[..., second], registers[..., first]
    return out


def _reverse_registers(random: Random, registers: Any) -> Any:
    return None if registers.shape[-1] < 2 else registers[..., ::-1].copy()


def _lane_xor(random: Random, registers: Any) -> Any:
    bit = 1 << int(random.integers(5))
    return np.stack([registers[..., lane ^ bit, :] for lane in range(32)], axis=-2)


def _lane_columns(random: Random, registers: Any) -> Any:
    return np.stack([registers[..., lane % 4 * 8 + lane // 4, :] for lane in range(32)], axis=-2)


def _narrow(name: str, wrong: Callable[[Random, Any], Any], mistake: str) -> Any:
    """Only where a register holds several elements."""
    plant = _registers(f"{name} {mistake}", name, wrong)
    return lambda random, ins: plant(random, ins) if ins.operands[name].layout.element_bits <= 16 else None


def _single(name: str, wrong: Callable[[Random, Any], Any], mistake: str) -> Any:
    """Not where an element takes two registers: exchanging those makes other elements."""
    plant = _registers(f"{name} {mistake}", name, wrong)
    return lambda random, ins: plant(random, ins) if ins.operands[name].layout.element_bits <= 32 else None


REGISTERS = (
    _narrow("a", _swap_halves, "register halves swapped"),
    _narrow("b", _swap_halves, "register halves swapped"),
    _single("a", _swap_two, "registers permuted"),
    _single("b", _swap_two, "registers permuted"),
    _single("d", _swap_two, "registers permuted"),
    _single("d", _reverse_registers, "registers permuted"),
    _single("a", _lane_xor, "lanes permuted"),
    _single("b", _lane_columns, "lanes permuted"),
    _single("d", _lane_xor, "lanes permuted"),
)
