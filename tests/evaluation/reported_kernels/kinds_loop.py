"""Mistakes of the loop over K, its stages and accumulators, and of slices of K."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.evaluation.reported_kernels.case import Array, Problem, Random, Run, accumulator, draw, wrong
from tests.evaluation.second_wrong_kernels.words import BLOCK, KTILE, LAST, MISSING, SPLIT, STALE, TWICE, A, B, value

DENSE = "f16, bf16, tf32, e4m3, wgmma, wgmma bf16, tcgen05, tcgen05 e4m3"
SHORT = "f16, bf16, wgmma, tcgen05"
LEFT = r"stale|previous|again|twice|remain|\bold\b|left|earlier|zero.?fill|not cleared|mask"


def tiles(k: int, depth: int = 32) -> Array:
    """The elements of K of each tile."""
    return np.arange(k).reshape(-1, depth)


def added(p: Problem, ranges: list[tuple[int, int]]) -> Array:
    """The float32 sum of partial products, in this order."""
    total = p.part(*ranges[0])
    for lo, hi in ranges[1:]:
        total = total + p.part(lo, hi)
    return total


@wrong("loop", "tile-ai/tilelang#2505", B, STALE + r"|\bstages?\b", half=(B,))
def b_waits_for_the_wrong_group(random: Random) -> Run:
    """The wait counts one group too few for B: iteration i finds in its slot what was copied {stages} tiles before, first zeros."""
    p = draw(random, DENSE, (32, 64), (16, 32), (160, 192))
    stages = int(random.choice([2, 3]))
    k = p.shape[2]
    b = np.zeros_like(p.b)
    b[32 * stages :] = p.b[: k - 32 * stages]
    return p.ran(p.how(p.a, b), stages=stages)


@wrong(
    "loop", "tile-ai/tilelang#2668", A, r"next|ahead|overwrit|later|following|one tile|too early|\+ ?1|k 32", half=(A,)
)
def slot_of_a_overwritten_before_it_is_read(random: Random) -> Run:
    """The copy of the next tile of A is moved ahead of the read of this one: iteration i multiplies tile i + 1 of A, the last its own."""
    p = draw(random, DENSE, (32, 64), (16, 32), (96, 128))
    at = tiles(p.shape[2])
    return p.ran(p.how(p.a[:, at[np.minimum(np.arange(len(at)) + 1, len(at) - 1)].ravel()], p.b))


@wrong(
    "loop",
    "HazyResearch/ThunderKittens#141",
    r"accumul|\bc\b|\bd\b|output|tile|block",
    r"stale|previous|not (?:cleared|zeroed|reset|initiali)|carr(?:y|ied)|earlier|left|prior|add(?:s|ed)|start",
    half=(r"accumul",),
)
def accumulators_of_the_previous_tile(random: Random) -> Run:
    """The accumulators are not zeroed between the 32 x 32 output tiles of a persistent block: each tile adds to the one before."""
    p = draw(random, SHORT, 64, 64, (64, 96))
    out, held = np.zeros((64, 64), np.float32), None
    for i in (0, 32):
        for j in (0, 32):
            held = p.how(p.a[i : i + 32], p.b[:, j : j + 32], held if held is None else accumulator(p.how, held))
            out[i : i + 32, j : j + 32] = held
    return p.ran(out)


@wrong("loop", "textbook", KTILE, LEFT, half=(KTILE,))
def last_tile_keeps_what_was_there(random: Random) -> Run:
    """K = {k} ends inside a tile of 32, in one buffer that is not cleared: the rest of the last tile is that of the tile before, in A and B."""
    p = draw(random, "f16, bf16, wgmma", (32, 64), (16, 32), (72, 80))
    k = p.shape[2]
    reach = np.arange(96)
    reach = np.where(reach < k, reach, reach - 32)
    return p.ran(p.how(p.a[:, reach], p.b[reach]), k=k)


@wrong(
    "loop",
    "textbook",
    KTILE,
    TWICE + r"|\b2\b|again",
    LAST + "|" + MISSING + r"|k \d+-\d+",
    half=(KTILE,),
    equal=(KTILE, r"behind|late|previous|shifted|moved|one tile"),
)
def first_tile_twice_and_the_last_never(random: Random) -> Run:
    """The prologue does not advance the pointers: K tile 0 is multiplied twice and the last one never."""
    p = draw(random, DENSE, (32, 64), (16, 32), (96, 128))
    k = p.shape[2]
    at = np.concatenate([np.arange(32), np.arange(k - 32)])
    return p.ran(p.how(p.a[:, at], p.b[at]))


@wrong("loop", "textbook", KTILE, MISSING + r"|zero|\bonly\b", LAST + "|" + value("from"), half=(KTILE,))
def odd_last_tile_dropped(random: Random) -> Run:
    """The loop is unrolled by two and has no epilogue: with an odd count the last K tile, from {from}, is missing."""
    p = draw(random, DENSE, (32, 64), (16, 32), (96, 160))
    k = p.shape[2]
    return p.ran(p.part(0, k - 32), **{"from": k - 32})


@wrong(
    "split",
    "modular/modular#7165",
    SPLIT + r"|slices?|parts? of k",
    r"bf16|round|output (?:type|precision|format)|narrow|16 bits",
    half=(SPLIT, "bf16"),
    rounds=True,
)
def partials_rounded_to_the_output(random: Random) -> Run:
    """The 4 slices of K are rounded to bf16 in the workspace, then added and rounded again."""
    p = draw(random, "bf16, wgmma bf16, tcgen05 bf16", (32, 64), (16, 32), (128, 256))
    each = p.shape[2] // 4
    total = sum(p.part(each * i, each * i + each).astype(ml_dtypes.bfloat16).astype(np.float32) for i in range(4))
    return p.ran(np.asarray(total).astype(ml_dtypes.bfloat16))


@wrong("split", "NVIDIA/cutlass#3538", KTILE, MISSING + r"|\bonly\b|alone|first|rest", half=(KTILE, SPLIT))
def only_the_first_slice(random: Random) -> Run:
    """The {slices} partial products are written behind each other from D on, and the reduction reads elsewhere: D has K 0-{to} alone."""
    p = draw(random, DENSE, (32, 64), (16, 32), (128, 192))
    slices = int(random.choice([2, 4]))
    each = p.shape[2] // slices
    return p.ran(p.part(0, each), slices=slices, to=each - 1)


@wrong(
    "split",
    "ROCm/composable_kernel#2697",
    r"\b3\b|three|thrice|2 more|twice more",
    r"accumul|scale|factor|times|add|clear|multipl|alpha|stale|previous",
    half=(r"times|factor|scale|multipl",),
)
def workspace_never_cleared(random: Random) -> Run:
    """The split-K workspace is not cleared between launches: after the third the output is three times the product."""
    p = draw(random, SHORT, (32, 64), (16, 32), (64, 128))
    half = p.shape[2] // 2
    return p.ran(added(p, [(0, half), (half, 2 * half)] * 3))


@wrong("split", "textbook", KTILE, MISSING + r"|\bonly\b|alone|zero|not add", BLOCK, half=(KTILE, MISSING))
def peer_of_one_tile_not_added(random: Random) -> Run:
    """Stream-K cuts one 32 x 32 tile (rows {row}-{last}) in two, and its owner does not add the peer's part, K {k} and on."""
    p = draw(random, SHORT, 64, (32, 64), (128, 160))
    row, k = int(random.choice([0, 32])), 64
    out = p.product()
    out[row : row + 32, :32] = p.part(0, k)[row : row + 32, :32]
    return p.ran(out, row=row, last=row + 31, k=k)


@wrong("split", "textbook", KTILE, TWICE + r"|\b2\b|again|overlap", half=(KTILE, TWICE))
def slices_overlap(random: Random) -> Run:
    """K = {k} is cut into 3 slices of 64 and the last one begins at {from} to end in time: K {from}-{to} is added twice."""
    p = draw(random, SHORT, (32, 64), (16, 32), (160, 176))
    k = p.shape[2]
    return p.ran(added(p, [(0, 64), (64, 128), (k - 64, k)]), k=k, to=127, **{"from": k - 64})


@wrong(
    "loop",
    "textbook",
    r"accumul|partial|promot|sum|\bk\b",
    r"again|cumulat|twice|times|not (?:reset|cleared|zeroed)|without|repeat|more than once|stale|previous",
    half=(KTILE, "accumul"),
)
def promoted_without_clearing(random: Random) -> Run:
    """Every 64 of K the accumulators are added to the sum in registers and not cleared: earlier parts of K are added again."""
    p = draw(random, "wgmma e4m3, e4m3, tcgen05 e4m3", (32, 64), (16, 32), (192, 256))
    held, total = None, np.zeros(1, np.float32)
    for lo in range(0, p.shape[2], 64):
        held = p.part(lo, lo + 64, held if held is None else accumulator(p.how, held))
        total = total + held
    return p.ran(total)
