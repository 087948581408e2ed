"""Planted mistakes with metadata of a sparse A, and with wgmma's tiles in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import tcsim
from tests.support.planted import Planted, Random, codes

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
    """Each row r with r + 8, in groups of 16."""
    return np.stack([positions[row ^ 8] for row in range(len(positions))])


def _selector(random: Random, ins: Any) -> Planted | None:
    """The right words with another selector."""
    if len(ins.sparsity.selectors) < 2 or "b" not in ins.operands:
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
    _sparse_matrix("metadata of another K block", _groups_swapped),
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
                flip = {"trans_b": trans ^ trans_wrong} if ins.row.majors else {}
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
    return (tile.descriptors, 1) if ins.row.majors else None


def _no_advance(random: Random, ins: Any, tile: Any) -> Any:
    return [tile.descriptors[0]] * len(tile.descriptors), 0


def _off_phase(random: Random, ins: Any) -> Planted | None:
    """B's tile as if its buffer started at 0, in a buffer that does not start at a multiple of the swizzle's period."""
    a, b, c = _tile_codes(random, ins, 2)
    swizzle = str(random.choice(["32B", "64B", "128B"]))
    try:
        tile = tcsim.MatrixDescriptor.for_tile(b.shape[0], b.shape[1], ins.formats["b"], "K", swizzle)
    except tcsim.TcsimError:
        return None
    off = int(random.integers(1, 8)) * tile.swizzle.span
    smem = random.integers(0, 256, 1 << 18, dtype=np.uint8)
    smem[off : off + tile.bytes] = tile.image(b)
    start = 1 << 17
    tile_a = tcsim.MatrixDescriptor.for_tile(64, a.shape[1], ins.formats["a"], "K", "128B", start_address=start)
    smem[start : start + tile_a.bytes] = tile_a.image(a)
    out = ins.registers("c", c)
    for mine, other in zip(tile_a.descriptors, tile.descriptors, strict=True):
        moved = replace(other, start_address=other.start_address + off)
        out = ins.execute(smem, mine.encode(), moved.encode(), out)
    given = {"a": a, "b": np.ascontiguousarray(b.T), "c": c, "observed": ins.matrix("d", out)}
    return Planted(ins, given, "b: start off the swizzle's period")


MEMORY = (
    _off_phase,
    _smem("b: LBO and SBO swapped", _exchange),
    _smem("b: LBO and SBO swapped", _exchange, "MN"),
    _smem("b: swizzle wrong", _other_swizzle),
    _smem("b: swizzle wrong", _other_swizzle, "MN"),
    _smem("b: major flipped", _flip),
    _smem("b: major flipped", _flip, "MN"),
    _smem("b: K advance wrong", _no_advance),
)
