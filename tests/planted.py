"""Planted mistakes: what a kernel with one bug computes, made with the instructions themselves and no help from tcsim.diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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


# --- sparse multiplies, on matrices and on registers


def _sparse(random: Random, ins: Any, count: int) -> tuple[Any, Any, Any, Any]:
    """a kept (M, count * K / 2), positions alike, b and c."""
    m, n, k = ins.shape
    kept = ins.operands["a"].shape[1]
    a = codes(random, (m, count * kept), ins.formats["a"])
    words = random.choice(np.array(ins.sparsity.valid, np.uint8), (count, m, ins.sparsity.groups))
    positions = np.concatenate(list(ins.sparsity.positions_of(words)), axis=-1)
    return a, positions, codes(random, (count * k, n), ins.formats["b"]), codes(random, (m, n), ins.formats["c"])


def _sparse_run(ins: Any, a: Any, positions: Any, b: Any, c: Any) -> Any:
    k, kept = ins.shape[2], ins.operands["a"].shape[1]
    for block in range(b.shape[0] // k):
        own = slice(block * kept, block * kept + kept)
        c = ins.matmul(a[:, own], b[block * k : block * k + k], c, metadata=positions[:, own])
    return c


def _sparse_matrix(mistake: str, wrong: Callable[[Any, Any], Any]) -> Any:
    def plant(random: Random, ins: Any) -> Planted | None:
        if ins.formats["c"] is not ins.operands["d"].format:
            return None
        a, positions, b, c = _sparse(random, ins, 2)
        changed = wrong(ins, positions)
        if changed is None:
            return None
        given = {"a": a, "b": b, "c": c, "metadata": positions}
        return Planted(ins, {**given, "observed": _sparse_run(ins, a, changed, b, c)}, mistake)

    return plant


def _groups_swapped(ins: Any, positions: Any) -> Any:
    per = ins.sparsity.kept // ins.sparsity.groups
    if positions.shape[1] % (2 * per):
        return None
    out = positions.copy()
    for start in range(0, positions.shape[1], 2 * per):
        out[:, start : start + per] = positions[:, start + per : start + 2 * per]
        out[:, start + per : start + 2 * per] = positions[:, start : start + per]
    return out


def _rows_exchanged(ins: Any, positions: Any) -> Any:
    return np.concatenate([positions[8:], positions[:8]])


def _selector(random: Random, ins: Any) -> Planted | None:
    """The right words with another selector."""
    if len(ins.sparsity.selectors) < 2:
        return None
    matrices = [_sparse(random, ins, 1) for _ in range(2)]
    a, _, b, c = (np.stack(x) for x in zip(*matrices, strict=True))
    given = {x: ins.registers(x, y) for x, y in (("a", a), ("b", b), ("c", c))}
    right, wrong = (int(x) for x in random.choice(ins.sparsity.selectors, 2, replace=False))
    words = sum(
        np.stack([ins.encode_metadata(_sparse(random, ins, 1)[1], selector=s) for _ in range(2)])
        for s in ins.sparsity.selectors
    )
    observed = ins.execute(**given, metadata=words, selector=wrong)
    return Planted(
        ins, {**given, "metadata": words, "selector": right, "observed": observed}, "metadata selector wrong"
    )


SPARSE = (
    _sparse_matrix("metadata groups swapped", _groups_swapped),
    _sparse_matrix("metadata of another row", _rows_exchanged),
    _selector,
)


# --- wgmma: tiles in shared memory


def _tile_codes(random: Random, ins: Any, count: int) -> tuple[Any, Any, Any]:
    m, n, k = ins.shape
    a, b = codes(random, (m, count * k), ins.formats["a"]), codes(random, (n, count * k), ins.formats["b"])
    return a, b, codes(random, (m, n), ins.formats["c"])


def _smem(mistake: str, change: Callable[[Random, Any, Any], Any], major: str = "K") -> Any:
    """B's descriptors changed; the tile itself lies as it should, among other data."""

    def plant(random: Random, ins: Any) -> Planted | None:
        a, b, c = _tile_codes(random, ins, 2)
        swizzle = str(random.choice(["NONE", "32B", "64B", "128B"]))
        try:
            tile = tcsim.MatrixDescriptor.for_tile(b.shape[0], b.shape[1], ins.formats["b"], major, swizzle)  # type: ignore[arg-type]
            tile_a = tcsim.MatrixDescriptor.for_tile(
                64, a.shape[1], ins.formats["a"], "K", "128B", start_address=1 << 17
            )
        except tcsim.TcsimError:
            return None
        smem = random.integers(0, 256, 1 << 18, dtype=np.uint8)
        smem[: tile.bytes] = tile.image(b)
        smem[1 << 17 : (1 << 17) + tile_a.bytes] = tile_a.image(a)
        trans = int(major == "MN")
        changed = change(random, ins, tile)
        if changed is None:
            return None
        descriptors, trans_wrong = changed
        out = ins.registers("c", c)
        for mine, other in zip(tile_a.descriptors, descriptors, strict=True):
            try:
                flip = {"trans_b": trans ^ trans_wrong} if ins.facts.majors else {}
                out = ins.execute(smem, mine.encode(), other.encode(), out, **flip)
            except tcsim.TcsimError:
                return None  # reads outside shared memory
        return Planted(ins, {"a": a, "b": np.ascontiguousarray(b.T), "c": c, "observed": ins.matrix("d", out)}, mistake)

    return plant


def _exchange(random: Random, ins: Any, tile: Any) -> Any:
    out = [
        replace(d, leading_byte_offset=d.stride_byte_offset, stride_byte_offset=d.leading_byte_offset)
        for d in tile.descriptors
    ]
    same = tile.descriptor.leading_byte_offset == tile.descriptor.stride_byte_offset
    return None if same or (tile.swizzle.bits and tile.major == "K" and tile.rows == 8) else (out, 0)


def _other_swizzle(random: Random, ins: Any, tile: Any) -> Any:
    own = tile.descriptor.swizzle
    other = str(random.choice([x for x in ("NONE", "32B", "64B", "128B") if x != own]))
    return [replace(d, swizzle=other) for d in tile.descriptors], 0


def _flip(random: Random, ins: Any, tile: Any) -> Any:
    return (tile.descriptors, 1) if ins.facts.majors else None


def _no_advance(random: Random, ins: Any, tile: Any) -> Any:
    return [tile.descriptors[0]] * len(tile.descriptors), 0


MEMORY = (
    _smem("b: LBO and SBO swapped", _exchange),
    _smem("b: LBO and SBO swapped", _exchange, "MN"),
    _smem("b: swizzle wrong", _other_swizzle),
    _smem("b: swizzle wrong", _other_swizzle, "MN"),
    _smem("b: major flipped", _flip),
    _smem("b: major flipped", _flip, "MN"),
    _smem("b: K advance wrong", _no_advance),
)


# --- moves and conversions


def _move(mistake: str, change: Callable[[Random, Any, dict[str, Any]], Any]) -> Any:
    """Arguments of the right call, and the result of the wrong one."""

    def plant(random: Random, ins: Any) -> Planted | None:
        given = _arguments(random, ins)
        try:
            right = ins.execute(**given)
            observed = change(random, ins, given)
        except tcsim.TcsimError:
            return None
        if observed is None or observed.shape != right.shape or np.array_equal(observed, right):
            return None
        return Planted(ins, {**given, "observed": observed}, mistake)

    return plant


def _arguments(random: Random, ins: Any) -> dict[str, Any]:
    family = ins.row.family
    smem = random.integers(0, 256, 1 << 13, dtype=np.uint8)
    if family in ("ldmatrix", "stmatrix"):
        address = random.permutation(256)[:32] * 32
        if family == "ldmatrix":
            return {"smem": smem, "address": address}
        registers = random.integers(0, 1 << 32, (32, ins.operands["registers"].registers), dtype=np.uint32)
        return {"smem": smem, "address": address, "registers": registers}
    if family == "movmatrix":
        return {"a": random.integers(0, 1 << 32, (32, 1), dtype=np.uint32)}
    if family.startswith("wmma"):
        memory = random.integers(0, 256, 1 << 14, dtype=np.uint8)
        given = {"memory": memory, "address": 0, "stride": 64}
        if family == "wmma.store":
            operand = next(iter(ins.operands.values()))
            given["registers"] = random.integers(0, 1 << 32, (32, operand.registers), dtype=np.uint32)
        return given
    return {  # cvt
        name: (
            random.integers(0, 1 << 62, 512, dtype=np.uint64)
            & np.uint64(~register.padding & (2 ** (8 * register.dtype.itemsize) - 1))
        ).astype(register.dtype)
        if register.format.name != "f32"
        else random.standard_normal(512).astype(np.float32) * 4
        for name, register in ins.registers.items()
        if name != "d"
    }


def _other_row(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    """The first instruction of the family, in random order, that takes the arguments and gives something else."""
    right = ins.execute(**given)
    rows = [row for row in tcsim_rows(ins) if row.mnemonic != ins.mnemonic]
    for place in random.permutation(len(rows)):
        try:
            got = tcsim.instruction(rows[place].mnemonic, arch=ins.arch.name).execute(**given)
        except tcsim.TcsimError:
            continue
        if got.shape == right.shape and got.dtype == right.dtype and not np.array_equal(got, right):
            return got
    return None


def tcsim_rows(ins: Any) -> list[Any]:
    """The rows of an instruction's family on its arch."""
    from tcsim.registry import on_arch

    return list(on_arch(ins.arch.name, ins.row.family))


def _addresses_exchanged(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    if "address" not in given or np.ndim(given["address"]) == 0:
        return None
    address = list(given["address"])
    wrong = address[:8] + address[16:24] + address[8:16] + address[24:]
    return ins.execute(**{**given, "address": np.array(wrong)})


def _stride_in_bytes(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    if "stride" not in given:
        return None
    size = next(iter(ins.operands.values())).format.container_bits // 8
    return ins.execute(**{**given, "stride": given["stride"] * size}) if size > 1 else None


def _exchanged(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    if not {"a", "b"} <= given.keys():
        return None
    return ins.execute(**{**given, "a": given["b"], "b": given["a"]})


def _lanes(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    right = ins.execute(**given)
    if right.ndim < 2 or right.shape[-2] != 32:
        return None
    return np.stack([right[..., lane ^ 4, :] for lane in range(32)], axis=-2)


MOVES = (
    _move("another instruction", _other_row),
    _move("row addresses wrong", _addresses_exchanged),
    _move("stride wrong", _stride_in_bytes),
    _move("operands exchanged", _exchanged),
    _move("d: lanes permuted", _lanes),
)
