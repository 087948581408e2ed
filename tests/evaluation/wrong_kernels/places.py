"""Kinds of mistakes with places: blocks, warps, the K loop, stages, pitches, shared memory. In A, in B, or in both at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.evaluation.wrong_kernels.cases import Kind, Plant, Scene
from tests.evaluation.wrong_kernels.kernel import A, B, Side

Change = Callable[[Scene, str, Side], "Side | None"]

LINES = {"a": "a: rows of another block", "b": "b: columns of another block"}
STORED = "d: stored at another place"
ADVANCE = "{x}: K advance wrong"
MISMATCH = "K blocks of {x} mismatched"
PITCH = "{x}: pitch wrong"
SHARED_PITCH = "{x}: pitch in shared memory wrong"
POINTER = "{x}: pointer off"
SWIZZLE = "{x}: swizzle wrong"
TRANSPOSED = "{x} transposed"
MATRICES = "{x}: 8 x 8 matrices exchanged"
COUNTED = frozenset({"K block missing", "K block repeated", "K blocks miscounted"})


def _both(names: list[str]) -> str:
    return " + ".join(names)


def _kinds(
    name: str,
    change: Change,
    *answers: str,
    both: frozenset[str] = frozenset(),
    sides: tuple[str, ...] = ("a", "b", "ab"),
) -> tuple[Kind, ...]:
    """The kind in A, in B and in both: `answers` are names with {x}, the first for the rows or columns themselves."""

    def named(x: str) -> list[str]:
        return [LINES[x] if answer == "lines" else answer.format(x=x) for answer in answers]

    def make(sides: str) -> Callable[[Scene], Plant | None]:
        def plant(scene: Scene) -> Plant | None:
            changed = {x: change(scene, x, A if x == "a" else B) for x in sides}
            if any(side is None for side in changed.values()):
                return None
            if len(sides) == 1:
                right = set(named(sides))
            else:
                right = {_both([one, two]) for one in named("a") for two in named("b")} | both
            if "lines" in answers and not scene.operands.c.any():
                right.add(STORED)  # the same thing if c is zero
            half = frozenset(named("a") + named("b")) if len(sides) == 2 else frozenset()
            return Plant(scene.kernel(**changed), frozenset(right), half)

        return plant

    return tuple(Kind(f"{name}: {' and '.join(own)}", make(own)) for own in sides)


def _lines(scene: Scene, x: str) -> int:
    return scene.shape[0] if x == "a" else scene.shape[1]


def _inner(scene: Scene) -> int:
    """K steps of a tile."""
    return scene.tile.bk // scene.machine.shape[2]


def _count(scene: Scene) -> int:
    return scene.shape[2] // scene.tile.bk


def _k(scene: Scene, x: str) -> int:
    """The length of a stored row."""
    return scene.operands.a.shape[1] if x == "a" else scene.operands.b.shape[0]


def _depth(scene: Scene, x: str) -> int:
    """K of a tile, as stored."""
    return scene.tile.bk * _k(scene, x) // scene.shape[2]


def _flat(scene: Scene, x: str, address: Callable[[Any, Any], Any]) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Memory read at an address of its own: which row and k really lie there."""
    width, lines = _k(scene, x), _lines(scene, x)

    def where(row: Any, k: Any) -> tuple[Any, Any]:
        place = address(row, k)
        outside = (place < 0) | (place >= width * lines)
        return np.where(outside, -1, place // width), place % width

    return where


def _block_ignored(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, block=lambda y, u: y * 0)


def _block_swapped(scene: Scene, x: str, side: Side) -> Side | None:
    other = (B if x == "a" else A).block
    return replace(side, block=other)


def _step_half(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, step=scene.tile.side(x)[0] // 2)


def _block_off(scene: Scene, x: str, side: Side) -> Side | None:
    count = _lines(scene, x) // scene.tile.side(x)[0]
    return replace(side, block=lambda y, u: (side.block(y, u) + 1) % count)


def _warp_ignored(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, warp=lambda i, j: i * 0)


def _warp_exchanged(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, warp=lambda i, j: side.warp(i, j) ^ 1)


def _warp_other(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, warp=(B if x == "a" else A).warp)


def _warp_step(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, warp_step=8)


def _rows_swapped(scene: Scene, x: str, side: Side) -> Side | None:
    bit = scene.pick(1, 2, 4, 8)
    return replace(side, fragment=lambda r: r ^ bit)


def _stale(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, stage=lambda tile: max(tile - 1, 0))


def _early(scene: Scene, x: str, side: Side) -> Side | None:
    last = _count(scene) - 1
    return replace(side, stage=lambda tile: min(tile + 1, last))


def _stages_exchanged(scene: Scene, x: str, side: Side) -> Side | None:
    return None if _count(scene) % 2 else replace(side, stage=lambda tile: tile ^ 1)


def _stage_stuck(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, stage=lambda tile: 0)


def _one_stage_stale(scene: Scene, x: str, side: Side) -> Side | None:
    late = scene.pick(*range(2, _count(scene)))
    return replace(side, stage=lambda tile: tile - 2 if tile == late else tile)


def _inner_ignored(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, inner=lambda step: 0) if _inner(scene) > 1 else None


def _inner_half(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, inner=lambda step: step / 2) if _inner(scene) > 1 else None


def _pitch(scene: Scene, x: str, side: Side) -> Side | None:
    width = _k(scene, x)
    wrong = scene.pick(width + 8, width - 8, _depth(scene, x), width // 2)
    return replace(side, memory=_flat(scene, x, lambda r, k: r * wrong + k))


def _pointer(scene: Scene, x: str, side: Side) -> Side | None:
    off = scene.pick(8, 16, 1, _k(scene, x), 4)
    return replace(side, memory=_flat(scene, x, lambda r, k: r * _k(scene, x) + k + off))


def _transposed(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, memory=_flat(scene, x, lambda r, k: k * _lines(scene, x) + r))


def _tile_transposed(scene: Scene, x: str, side: Side) -> Side | None:
    """Each 8 x 8 block: .trans left out or too many."""
    if scene.machine.formats[x].container_bits != 16:
        return None
    return replace(side, shared=lambda r, k: (r // 8 * 8 + k % 8, k // 8 * 8 + r % 8))


def _tma_swapped(scene: Scene, x: str, side: Side) -> Side | None:
    """Coordinates of the box in the wrong order: tile (row, k) comes from (k, row)."""
    rows, depth = scene.tile.side(x)[0], _depth(scene, x)

    def where(row: Any, k: Any) -> tuple[Any, Any]:
        return k // depth * depth + row % rows, row // rows * rows + k % depth

    return replace(side, memory=where)


def _chunk(scene: Scene, x: str) -> int:
    return 128 // scene.machine.formats[x].container_bits


def _swizzled(scene: Scene, x: str, pattern: Callable[[Any, int], Any]) -> Callable[[Any, Any], tuple[Any, Any]] | None:
    """Chunks of 16 bytes XORed by a pattern of the row: the tile is read otherwise than it was written."""
    chunk, depth = _chunk(scene, x), _depth(scene, x)
    span = depth // chunk
    if span < 2 or span & (span - 1):
        return None
    most = min(span, 8)
    return lambda r, k: (r, (k // chunk ^ pattern(r, most)) * chunk + k % chunk)


def _swizzle(scene: Scene, x: str, side: Side) -> Side | None:
    shared = _swizzled(scene, x, lambda r, most: r // (8 // most) % most)
    return None if shared is None else replace(side, shared=shared)


def _phase(scene: Scene, x: str, side: Side) -> Side | None:
    shared = _swizzled(scene, x, lambda r, most: (r // (8 // most) % most) ^ ((r // (8 // most) + 1) % most))
    return None if shared is None else replace(side, shared=shared)


def _other_swizzle(scene: Scene, x: str, side: Side) -> Side | None:
    def pattern(r: Any, most: int) -> Any:
        return (r // (8 // most) % most) ^ (r // (16 // most) % (most // 2))

    shared = _swizzled(scene, x, pattern) if _depth(scene, x) // _chunk(scene, x) >= 4 else None
    return None if shared is None else replace(side, shared=shared)


def _shared_pitch(scene: Scene, x: str, side: Side) -> Side | None:
    """Written with padding, read without it, or the other way round."""
    depth, pad, rows = _depth(scene, x), _chunk(scene, x), scene.tile.side(x)[0]
    written, read = scene.pick((depth + pad, depth), (depth, depth + pad))

    def where(r: Any, k: Any) -> tuple[Any, Any]:
        place = r * read + k
        row, column = place // written, place % written
        return np.where((row < rows) & (column < depth), row, -1), np.minimum(column, depth - 1)

    return replace(side, shared=where)


def _matrices(scene: Scene, x: str, side: Side) -> Side | None:
    """ldmatrix.x4: the second and third of the four 8-row matrices exchanged."""
    chunk = _chunk(scene, x)
    if _depth(scene, x) % (2 * chunk):
        return None

    def where(r: Any, k: Any) -> tuple[Any, Any]:
        high, right = r // 8 % 2, k // chunk % 2
        return r + 8 * (right - high), k + chunk * (high - right)

    return replace(side, shared=where)


def _in_one_block(change: Change) -> Change:
    """The same mistake in one block of the output alone."""

    def only(scene: Scene, x: str, side: Side) -> Side | None:
        made = change(scene, x, side)
        return None if made is None else replace(made, only=lambda y, u, tile: (y == 1) & (u == 0))

    return only


def _one_block_only(scene: Scene, x: str, side: Side) -> Side | None:
    return replace(side, stage=lambda tile: max(tile - 1, 0), only=lambda y, u, tile: (y == 1) & (u == 0))


def _apart(
    name: str, first: tuple[Change, tuple[str, ...]], second: tuple[Change, tuple[str, ...]], ragged: bool = False
) -> tuple[Kind, ...]:
    """One mistake in A and another in B, and the other way round."""

    def make(x: str) -> Callable[[Scene], Plant | None]:
        def plant(scene: Scene) -> Plant | None:
            y = "b" if x == "a" else "a"
            own = first[0](scene, x, A if x == "a" else B)
            other = second[0](scene, y, A if y == "a" else B)
            if own is None or other is None:
                return None
            ones, twos = ([_named(name, at) for name in names] for names, at in ((first[1], x), (second[1], y)))
            right = frozenset(_both([one, two]) for one in ones for two in twos)
            return Plant(scene.kernel(**{x: own, y: other}), right, frozenset(ones + twos))

        return plant

    return tuple(Kind(name.format(x=x, y=y), make(x), ragged=ragged) for x, y in ("ab", "ba"))


def _named(answer: str, x: str) -> str:
    return LINES[x] if answer == "lines" else answer.format(x=x)


LATE = (_stale, (MISMATCH,))
EXCHANGED = (_warp_exchanged, ("lines",))
TWO = (
    *_apart("warps of {x} exchanged, stage of {y} late", EXCHANGED, LATE),
    *_apart("swizzle of {x} on one side, stage of {y} late", (_swizzle, (SWIZZLE,)), LATE),
    *_apart("pitch of {x}, warps of {y} exchanged", (_pitch, (PITCH,)), EXCHANGED),
    *_apart("pointer of {x}, swizzle's phase of {y}", (_pointer, (POINTER,)), (_phase, (SWIZZLE,))),
    *_apart("{x} transposed, block index of {y} ignored", (_transposed, (TRANSPOSED,)), (_block_ignored, ("lines",))),
    *_apart("{x} without advance inside a tile, stage of {y} late", (_inner_ignored, (ADVANCE, MISMATCH)), LATE),
)

PLACES = (
    *_kinds("block index ignored", _block_ignored, "lines"),
    *_kinds("the other block index", _block_swapped, "lines"),
    *_kinds("half the tile from block to block", _step_half, "lines"),
    *_kinds("one block too far, round the end", _block_off, "lines"),
    *_kinds("warp index ignored", _warp_ignored, "lines"),
    *_kinds("warps exchanged", _warp_exchanged, "lines"),
    *_kinds("the other warp index", _warp_other, "lines"),
    *_kinds("8 rows from warp to warp", _warp_step, "lines"),
    *_kinds("rows of a fragment exchanged", _rows_swapped, "lines"),
    *_kinds("stage late", _stale, MISMATCH, both=COUNTED),
    *_kinds("stage early", _early, MISMATCH, both=COUNTED),
    *_kinds("stages exchanged", _stages_exchanged, MISMATCH, sides=("a", "b")),
    *_kinds("stage index ignored", _stage_stuck, ADVANCE, MISMATCH, both=COUNTED),
    *_kinds("one stage stale", _one_stage_stale, MISMATCH, both=COUNTED),
    *_kinds("no advance inside a tile", _inner_ignored, ADVANCE, MISMATCH, both=COUNTED),
    *_kinds("half the advance inside a tile", _inner_half, ADVANCE, MISMATCH, both=COUNTED),
    *_kinds("pitch", _pitch, PITCH),
    *_kinds("pointer", _pointer, POINTER),
    *_kinds("transposed", _transposed, TRANSPOSED),
    *_kinds("8 x 8 blocks transposed", _tile_transposed, TRANSPOSED),
    *_kinds("TMA coordinates exchanged", _tma_swapped, "{x}: tile coordinates exchanged"),
    *_kinds("swizzle on one side", _swizzle, SWIZZLE),
    *_kinds("swizzle's phase", _phase, SWIZZLE),
    *_kinds("another swizzle", _other_swizzle, SWIZZLE),
    *_kinds("pitch in shared memory", _shared_pitch, SHARED_PITCH),
    *_kinds("matrices of ldmatrix exchanged", _matrices, MATRICES),
    *_kinds("warps exchanged in one block", _in_one_block(_warp_exchanged), "lines", sides=("a", "b")),
    *_kinds("swizzle on one side in one block", _in_one_block(_swizzle), SWIZZLE, sides=("a", "b")),
    *_kinds("pointer in one block", _in_one_block(_pointer), POINTER, sides=("a", "b")),
    *_kinds("8 x 8 blocks transposed in one block", _in_one_block(_tile_transposed), TRANSPOSED, sides=("a", "b")),
    *_kinds(
        "no advance inside a tile in one block", _in_one_block(_inner_ignored), ADVANCE, MISMATCH, sides=("a", "b")
    ),
    *_kinds("stage late in one block", _one_block_only, MISMATCH, both=COUNTED),
    *(
        replace(kind, name=f"{kind.name}, ragged", families=("mma.sync", "wgmma", "tcgen05"), ragged=True)
        for kind in (
            *_kinds("block index ignored", _block_ignored, "lines"),
            *_kinds("stage late", _stale, MISMATCH, both=COUNTED),
            *_kinds("swizzle on one side", _swizzle, SWIZZLE, sides=("a", "b")),
        )
    ),
    *TWO,
)
