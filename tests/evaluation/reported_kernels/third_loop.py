"""Mistakes of the loop along K: steps, pipelines, split-K, stream-K and accumulators."""

from __future__ import annotations

import numpy as np

from tests.evaluation.reported_kernels.case import Array, Problem, Random, Run, draw, wrong
from tests.evaluation.reported_kernels.third_words import (
    COLUMN,
    FACTOR,
    FIRST,
    LOST,
    OTHER,
    ROW,
    TILE,
    TWICE,
    A,
    B,
    C,
    K,
)


def along(p: Problem, *ranges: tuple[int, int]) -> Array:
    """The product over ranges of K, one after another."""
    k = np.concatenate([np.arange(lo, hi) for lo, hi in ranges])
    return p.how(p.a[..., k], p.b[..., k, :], p.c)


@wrong(
    "loop", "tile-ai/tilelang-ascend#1341", K, TWICE, r"\b{lo}\b|stale|previous|preceding|before|last|tail", half=(K,)
)
def rest_of_the_last_tile_keeps_the_tile_before(random: Random) -> Run:
    """The last tile of K is half full, and its other half still has what the tile before left there in A and B: k {lo} to {hi} are counted twice."""
    p = draw(random, "f16, bf16, wgmma, e4m3", (32, 64), (16, 32), (96, 160))
    k = p.shape[2]
    return p.ran(along(p, (0, k), (k - 64, k - 32)), lo=k - 64, hi=k - 33)


@wrong("loop", "ml-explore/mlx#4015", K, LOST, rf"\b32\b|half|{COLUMN}", half=(LOST, K))
def tail_of_k_masked_by_the_column(random: Random) -> Run:
    """The guard of the tail of K compares the column with what remains of K: the last {rest} elements of K are missing for the columns from 32 on of every 64."""
    p = draw(random, "f16, tf32, wmma", (32, 64), (64, 128), (96, 160))
    d = p.product()
    columns = np.arange(p.shape[1]) % 64 >= 32
    d[:, columns] = p.part(0, p.shape[2] - 32)[:, columns]
    return p.ran(d, rest=32)


@wrong("loop", "ml-explore/mlx#3854", K, TWICE, r"\b16\b|\b32\b|next|first|overlap", half=(K,))
def splits_shorter_than_the_tile(random: Random) -> Run:
    """Each split has 16 elements of K, and its kernel reads a tile of 32: it counts those of the next split also, so that all k from 16 on are counted twice."""
    p = draw(random, "nvf4", (16, 32), (16, 32), (64, 128))
    k, blocks = np.arange(16, p.shape[2]), np.arange(1, p.shape[2] // 16)
    scales = {"scale_a": p.extras["scale_a"][:, blocks], "scale_b": p.extras["scale_b"][blocks]}
    d = p.product() + p.product(a=p.a[:, k], b=p.b[k], **scales)
    return p.ran(d)


@wrong("loop", "tile-ai/tilelang#3072", K, TWICE, r"first|\b0 (to|-)|k ?[0=]|step 0|\b{hi}\b|prologue", half=(K,))
def short_loop_replays_the_prologue(random: Random) -> Run:
    """The loop is shorter than the pipeline, and the epilogue replays a step of the prologue: k 0 to {hi} are counted twice."""
    p = draw(random, "f16, bf16, tcgen05, wgmma s8", (64, 128), (16, 32), 64)
    return p.ran(along(p, (0, 32), (0, 64)), hi=31)


@wrong("loop", "kokkos/kokkos-kernels#147", K, LOST, r"\b{m}\b|\bm\b|rows|{last}", half=(LOST, K))
def loop_over_k_ends_at_m(random: Random) -> Run:
    """A is transposed, and its other extent is taken for K: the loop ends at M, {m}, and k {m} to {last} are missing."""
    p = draw(random, "f64, f16, s8", (16, 32, 64), (16, 32), (96, 128))
    m, _, k = p.shape
    return p.ran(along(p, (0, m)), m=m, last=k - 1)


@wrong(
    "loop",
    "tenstorrent/tt-llk#873",
    rf"{TILE}|{ROW}",
    r"twice|two times|doubl|(factor|times|by) (of )?2|\b2(\.0)? ?(x|times)|x ?2\b",
    r"\b32\b|half|\b4\b",
    half=(ROW,),
)
def later_tiles_accumulated_twice(random: Random) -> Run:
    """Tiles of 8 rows whose index is 4 or more accumulate twice: the output's rows from 32 on are exactly doubled."""
    p = draw(random, "bf16, tf32, f16", 64, 32, (32, 64))
    d = p.product()
    d[32:] *= 2
    return p.ran(d)


@wrong(
    "loop",
    "microsoft/onnxruntime#29599",
    r"f16|half|16.bit|round|precision|bits",
    r"partial|block|32|\bsums?\b|step|accumulat|intermediate",
    half=(r"f16|half|round|precision",),
    rounds=True,
)
def sums_of_blocks_in_f16(random: Random) -> Run:
    """The sum of every block of 32 of K is an f16, a partial sum rounded before it is added in f32."""
    p = draw(random, "f16, wmma", (32, 64), (16, 32), (128, 192))
    parts = [p.part(lo, lo + 32).astype(np.float16).astype(np.float32) for lo in range(0, p.shape[2], 32)]
    return p.ran(sum(parts[1:], parts[0]))


@wrong(
    "loop", "textbook", K, rf"{TWICE}|{OTHER}", r"first|\b0\b|prologue", r"\b(31|32|63)\b|second|next|both", half=(K,)
)
def prologue_loads_the_first_tile_into_both_buffers(random: Random) -> Run:
    """The prologue fills both buffers with the first tile: k 0 to 31 are counted twice, and k 32 to 63 are missing."""
    p = draw(random, "f16, tf32, e5m2, sparse s8", (32, 64), (16, 32), (128, 192))
    if not p.how.sparse:
        return p.ran(along(p, (0, 32), (0, 32), (64, p.shape[2])))
    kept = np.r_[0:32, 0:32, 64 : p.a.shape[1]]
    wide = np.r_[0:64, 0:64, 128 : p.b.shape[0]]
    metadata = p.extras["metadata"][:, kept]
    return p.ran(p.product(a=p.a[:, kept], b=p.b[wide], metadata=metadata))


@wrong(
    "loop",
    "textbook",
    B,
    r"\b{step}\b|tile|step|stage|block|iteration",
    r"lag|behind|\blate|earlier|delay|before|previous|preceding|following|next|shift|moved|stale|off by|- ?{step}",
    half=(B,),
)
def b_lags_one_tile_behind(random: Random) -> Run:
    """The buffer's index is advanced for A alone: each tile of A, {step} of K, meets the tile of B before its own, and the first tile its own."""
    p = draw(random, "f16, wgmma, wgmma e4m3, tcgen05 e4m3", (64, 128), (16, 32), (128, 192))
    return p.ran(p.product(b=np.concatenate([p.b[:32], p.b[:-32]])), step=32)


@wrong("loop", "textbook", K, LOST, r"first|\b0 (to|-)|k ?[0=<]|step 0|\b{step}\b", half=(LOST, K))
def accumulators_cleared_by_the_second_step(random: Random) -> Run:
    """The second step of the loop has scale-d = 0 instead of the first: what the first {step} of K gave is lost."""
    p = draw(random, "wgmma, wgmma tf32, tcgen05, tcgen05 bf16", (64, 128), (16, 32), (64, 128))
    step = 8 if p.how.a == "tf32" else 16
    return p.ran(along(p, (step, p.shape[2])), step=step)


@wrong("loop", "textbook", K, rf"{TWICE}|{LOST}|overlap", r"\b32\b|\b{lo}\b|split|second half", half=(K,))
def splits_start_a_tile_apart(random: Random) -> Run:
    """The second split starts one tile after the first, at k = 32, and not at {half}: k 32 to {top} are counted twice, and k from {lo} on are missing."""
    p = draw(random, "f16, wgmma bf16, s8, e5m2", (32, 64), (16, 32), (128, 192))
    half = p.shape[2] // 2
    return p.ran(along(p, (0, half), (32, 32 + half)), half=half, top=half - 1, lo=half + 32)


@wrong("loop", "textbook", C, rf"\b{{splits}}\b|each|every|{FACTOR}|{TWICE}", half=(C,))
def c_added_by_every_split(random: Random) -> Run:
    """Each of the {splits} splits of K adds C: it is counted {splits} times."""
    p = draw(random, "f16, bf16, f64, wgmma", (32, 64), (16, 32), (128, 192), c=True)
    splits = int(random.choice([2, 4]))
    step = p.shape[2] // splits
    parts = [p.part(i * step, i * step + step, p.c) for i in range(splits)]
    return p.ran(sum(parts[1:], parts[0]), splits=splits)


@wrong("loop", "textbook", LOST, K, rf"\b{{row}}\b|{TILE}|{ROW}", half=(LOST,))
def one_tile_is_not_fixed_up(random: Random) -> Run:
    """Stream-K gives one tile to two CTAs, and the second does not add what the first left: rows {row} to {end} miss k 0 to {last}."""
    p = draw(random, "f16, bf16, tcgen05", (64, 128), (16, 32), (96, 160))
    row = 32 * int(random.integers(p.shape[0] // 32))
    d = p.product()
    d[row : row + 32] = p.part(64, p.shape[2])[row : row + 32]
    return p.ran(d, row=row, end=row + 31, last=63)


@wrong("loop", "textbook", ROW, rf"{OTHER}|first", r"\b63\b|\b64\b|partial|\bk\b|workspace", half=(ROW,))
def partial_sum_of_the_tile_before(random: Random) -> Run:
    """The slot in stream-K's workspace is one too low: rows from 32 on add the partial sum over k 0 to 63 of the tile before, which is that of rows 32 less."""
    p = draw(random, "f16, bf16, e4m3", (64, 128), (16, 32), (96, 160))
    first, d = p.part(0, 64), p.part(64, p.shape[2])
    return p.ran(d + np.concatenate([first[:32], first[:-32]]))


@wrong("loop", "textbook", K, LOST, r"\b32\b|half|halves|second|upper|mod", half=(LOST, K))
def second_slice_of_k_is_not_reduced(random: Random) -> Run:
    """Warps share the tiles of 64 along K, and only the first group's sum is stored: k mod 64 from 32 on is missing."""
    p = draw(random, "f16, wmma, mx, mxf4", (32, 64), (16, 32), (128, 192))
    a = p.a.copy()
    a[:, np.arange(a.shape[1]) % 64 >= 32] = 0
    return p.ran(p.product(a=a))


@wrong(
    "loop",
    "textbook",
    rf"{TWICE}|times|cumul|prefix|not (cleared|reset|zeroed)|running",
    rf"{K}|block|partial|step|accumulator",
    r"first|more than once|cumul|prefix|\b{n}\b|running|clear|reset|zeroed|earlier",
    half=(K,),
)
def promoted_sum_is_not_cleared(random: Random) -> Run:
    """The tensor core's sum is added to registers after every 64 of K and not cleared: of {n} blocks along K the first is counted {n} times, the next once less."""
    p = draw(random, "wgmma e4m3, tcgen05 e4m3", (64, 128), (16, 32), (128, 192))
    k = p.shape[2]
    parts = [p.part(0, hi) for hi in range(64, k + 1, 64)]
    return p.ran(sum(parts[1:], parts[0]), n=k // 64)


@wrong("loop", "textbook", A, r"\b16\b|step|fragment|even|odd", rf"stale|before|{OTHER}", half=(A,))
def fragment_of_a_reused(random: Random) -> Run:
    """The index of A's register buffer stays: odd steps of 16 of K multiply the fragment of A that the step before loaded."""
    p = draw(random, "f16, bf16, wmma", (32, 64), (16, 32), (64, 128))
    k = np.arange(p.shape[2])
    return p.ran(p.product(a=p.a[:, k // 32 * 32 + k % 16]))


@wrong(
    "loop",
    "textbook",
    B,
    rf"{FIRST}|every|same|again|repeat",
    r"advance|every (step|tile|block|k)|each (step|tile|block)|all (steps|k|tiles|blocks)|\bmod\b|%|repeat|never|always",
    half=(B,),
)
def pointer_of_b_never_advanced(random: Random) -> Run:
    """The pointer to B is not advanced: every step of {step} along K multiplies the same first tile of B, k 0 to {last}."""
    p = draw(random, "f16, tf32, f64, s8", (32, 64), (16, 32), (64, 128))
    step = 32
    return p.ran(p.product(b=np.tile(p.b[:step], (p.shape[2] // step, 1))), step=step, last=step - 1)


@wrong("loop", "textbook", K, LOST, r"\b{lo}\b|last|tail|end|remain", half=(LOST, K))
def quotient_of_the_splits_rounded_down(random: Random) -> Run:
    """Each of three splits gets K / 3 rounded down to tiles of 32: the remainder, k {lo} to {hi}, is missing."""
    p = draw(random, "f16, wgmma, tcgen05 e4m3, wgmma s8", (64, 128), (16, 32), (128, 160, 224))
    k = p.shape[2]
    lo = k // 3 // 32 * 96
    return p.ran(along(p, (0, lo)), lo=lo, hi=k - 1)
