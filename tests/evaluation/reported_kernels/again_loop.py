"""Mistakes of the loop over K, of its pipeline, of splits of K, and of what a block of threads is given to do."""

from __future__ import annotations

import numpy as np

from tests.evaluation.reported_kernels.again_words import BATCH, COLUMN, FIRST, LOST, ROW, SCALE, TWICE, A, B, C, K
from tests.evaluation.reported_kernels.case import Array, Problem, Random, Run, accumulator, draw, wrong

DENSE = "f16, bf16, tf32, e4m3, wgmma, wgmma bf16, tcgen05, tcgen05 e4m3"
LAST = r"\b{first}\b|\b{last}\b|\blast\b|tail|final"


def summed(p: Problem, ranges: list[tuple[int, int]], start: Array | None = None) -> Array:
    """The products of ranges of K, one after another in the same accumulators."""
    at = np.concatenate([np.arange(lo, hi) for lo, hi in ranges])
    return p.how(p.a[..., at], p.b[..., at, :], start)


@wrong("loop", "vllm-project/vllm#9212", K, LOST, r"\b{first}\b|\b{last}\b|\b{before}\b", half=(K,))
def scales_beyond_the_bounds_of_the_map(random: Random) -> Run:
    """The tensor map of the group scales has too few groups: those beyond are 0, and K from {first} to {last} is not added."""
    p = draw(random, "f16, bf16, wgmma, wgmma bf16", (32, 64), (32, 64), (128, 256))
    k = p.shape[2]
    return p.ran(summed(p, [(0, k // 2)]), first=k // 2, last=k - 1, before=k // 2 - 1)


@wrong("loop", "iree-org/iree#13451", K, LOST, r"\b{first}\b|\b{last}\b|\b{block}\b", half=(K,))
def last_whole_tile_before_the_tail_skipped(random: Random) -> Run:
    """K is not a multiple of 32: the last whole tile before the tail, K {first} to {last} (tile {block}), is skipped."""
    p = draw(random, DENSE, (32, 64), (16, 32), (92, 124, 156))
    k = p.shape[2]
    first = k // 32 * 32 - 32
    ranges = [(0, first), (first + 32, k)]
    return p.ran(summed(p, ranges), first=first, last=first + 31, block=first // 32)


@wrong(
    "loop",
    "ml-explore/mlx#3887",
    K,
    r"next row|following row|row \w+ ?\+ ?1|past|beyond|over the end|runs? on|too far|tail",
    half=(K,),
)
def tail_of_k_loaded_as_a_whole_tile(random: Random) -> Run:
    """The last tile of K is loaded without its bound: beyond the end of K it reads the first elements of the next row of A and of the next column of B."""
    p = draw(random, "f16, bf16, e4m3, tf32", (32, 64), (32, 64), (96, 160))
    more = 64 - p.shape[2] % 64
    beyond_a, beyond_b = np.zeros_like(p.a[:, :more]), np.zeros_like(p.b[:more])
    beyond_a[:-1], beyond_b[:, :-1] = p.a[1:, :more], p.b[:more, 1:]
    return p.ran(p.how(np.hstack([p.a, beyond_a]), np.vstack([p.b, beyond_b])), more=more)


@wrong(
    "loop",
    "tile-ai/tilelang#2142",
    K,
    rf"{LOST}|\bhalf\b|every|alternat|odd|even",
    r"\b16\b|\b{tile}\b|\bhalf\b|second",
    half=(K,),
)
def only_the_first_fragment_of_a_tile_multiplied(random: Random) -> Run:
    """The product of fragments does not loop over K: of every 32 along K only the first 16 are multiplied."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), (64, 128))
    at = np.arange(p.shape[2]).reshape(-1, 32)[:, :16].ravel()
    return p.ran(p.how(p.a[:, at], p.b[at]), tile=32)


@wrong(
    "loop",
    "PacktPublishing/Learn-CUDA-Programming#14",
    K,
    rf"{LOST}|advanc|step|strid|too (far|large|big)",
    r"\b(15|16)\b",
    half=(K,),
)
def tile_index_multiplied_by_the_tile(random: Random) -> Run:
    """The K index, which advances by the tile already, is multiplied by the tile: only K 0 to {last} is in range, the rest reads zeros."""
    p = draw(random, "f16, tf32, wmma", (32, 48), (32, 48), (48, 64))
    return p.ran(summed(p, [(0, 16)]), last=15, first=16)


@wrong("loop", "ROCm/rocm-libraries#7669", K, rf"{TWICE}|one (more|too many)|extra|too many", LAST, half=(K,))
def extra_multiply_at_the_tail(random: Random) -> Run:
    """The branch for an even number of tiles multiplies once more: K {first} to {last} is added twice."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128))
    k = p.shape[2]
    return p.ran(summed(p, [(0, k), (k - 32, k)]), first=k - 32, last=k - 1)


@wrong(
    "loop",
    "flagos-ai/FlagTree#1180",
    ROW,
    r"64|\b{first_row}\b|half|warpgroup",
    K,
    r"\b{first}\b|\b{next}\b|\b{last}\b|tile|block|stage",
    half=(r"rows? 64|64-127|64 to 127",),
)
def second_warpgroup_reads_an_overwritten_stage(random: Random) -> Run:
    """No barrier after the wait: rows {first_row} to 127 multiply K {next} to {last} in place of K {first} and on, so those are counted twice there."""
    p = draw(random, "wgmma, wgmma bf16", 128, (32, 64), (128, 192))
    tile = int(random.integers(0, p.shape[2] // 32 - 1)) * 32
    at = np.arange(p.shape[2])
    at[tile : tile + 32] += 32
    observed = p.product()
    observed[64:] = p.how(p.a[64:, at], p.b[at])
    return p.ran(observed, first_row=64, first=tile, next=tile + 32, last=tile + 63)


@wrong("loop", "deepseek-ai/DeepGEMM#343", BATCH, K, LAST, r"next|following|other|\+ ?1|later", half=(BATCH,))
def tensor_map_changed_while_it_is_read(random: Random) -> Run:
    """The tensor maps are changed for the next group while loads read them: the last 32 of K, {first} to {last}, of each matrix of the batch are those of the next one."""
    p = draw(random, "wgmma, wgmma bf16", (32, 64), 32, (64, 96), batch=3)
    k = p.shape[2]
    a, b = p.a.copy(), p.b.copy()
    a[:-1, :, k - 32 :], b[:-1, k - 32 :] = p.a[1:, :, k - 32 :], p.b[1:, k - 32 :]
    return p.ran(p.how(a, b), first=k - 32, last=k - 1)


@wrong(
    "launch",
    "pytorch/helion#3530",
    ROW,
    COLUMN,
    r"\b64\b|tile",
    r"0-63|0 to 63|first|tile|other|-64|- 64|mod",
    half=(ROW,),
)
def cluster_peers_decode_different_tiles(random: Random) -> Run:
    """Two blocks of a cluster share A by multicast but decode different tiles: in rows {first} to 127 of columns {column} and on, A is read from rows 0 to 63 in place of its own tile."""
    p = draw(random, "tcgen05, tcgen05 bf16, wgmma", 128, 64, (64, 128))
    observed = p.product()
    observed[64:, 32:] = observed[:64, 32:]
    return p.ran(observed, first=64, column=32)


@wrong(
    "launch",
    "tenstorrent/tt-metal#57362",
    ROW,
    r"\b{first}\b|\b{last}\b",
    r"first|0-|\b0 to|\b0\b|same|repeat|mod|again|instead",
    half=(ROW,),
)
def start_tile_of_the_second_block_is_zero(random: Random) -> Run:
    """The start of A is computed for the first block alone: rows {first} to {last} are computed from rows 0 and on of A, so they repeat those."""
    p = draw(random, DENSE, 64, (32, 64), (64, 128))
    return p.ran(np.vstack([p.product()[:32]] * 2), first=32, last=63)


@wrong("split", "ROCm/composable_kernel#3387", K, TWICE, r"\b{first}\b|\b{last}\b|\blast\b|tail|slice", half=(K,))
def surplus_slice_repeats_the_last(random: Random) -> Run:
    """There are more slices than work: the surplus one adds the last slice again, so K {first} to {last} is counted twice."""
    p = draw(random, DENSE, (32, 64), (16, 32), (192, 256))
    k = p.shape[2]
    return p.ran(summed(p, [(0, k)]) + p.part(k - 64, k), first=k - 64, last=k - 1)


@wrong(
    "split",
    "ROCm/rocm-libraries#11962",
    ROW,
    K,
    r"\b{half}\b|slice|split|part|range",
    r"16|first|repeat|same|mod|again|instead",
    half=(ROW,),
)
def partial_sums_store_the_first_batch_again(random: Random) -> Run:
    """The second slice of K, {half} and on, stores the accumulators of its first 16 rows for all rows: row r adds the partial sum of row r mod 16."""
    p = draw(random, DENSE, (32, 64), (16, 32), (128, 192))
    half = p.shape[2] // 2
    rows = np.arange(p.shape[0]) % 16
    return p.ran(p.part(0, half) + p.part(half, p.shape[2])[rows], half=half)


@wrong("split", "facebookexperimental/triton#3401", ROW, K, LOST, r"\b{last_row}\b|\b{rows}\b|\b0\b|first", half=(ROW,))
def workspace_sized_by_rows_not_by_tiles(random: Random) -> Run:
    """The workspace of a slice has M rows, not whole tiles: the padding of the first slice overwrites rows 0 to {last_row} of the second with zeros, so K {half} and on is missing in those {rows} rows."""
    p = draw(random, DENSE, (40, 48, 56), (32, 64), (128, 192))
    rows, half = 64 - p.shape[0], p.shape[2] // 2
    second = p.part(half, p.shape[2])
    second[:rows] = 0
    return p.ran(p.part(0, half) + second, rows=rows, last_row=rows - 1, half=half)


@wrong("split", "ROCm/tritonBLAS#67", C, LOST, r"\b{first}\b|\b{last}\b|tile|rows?|columns?", half=(C,))
def bias_missing_where_partial_sums_meet(random: Random) -> Run:
    """Stream-K: the tiles that several blocks share, rows {first} to {last}, do not get the bias: C is not added there."""
    p = draw(random, "f16, bf16, wgmma bf16, tcgen05", (64, 128), (32, 64), (64, 128))
    m, n, _ = p.shape
    bias = np.broadcast_to(random.normal(0, 4, n), (m, n))
    observed = (made := Problem(p.how, p.a, p.b, accumulator(p.how, bias))).product()
    observed[m // 2 :] = p.product()[m // 2 :]
    return made.ran(observed, first=m // 2, last=m - 1)


@wrong(
    "split",
    "textbook",
    C,
    r"\b{times}\b|each|every|several|per (slice|split)",
    r"times|factor|multipl|add|count|scal|start|begin",
    half=(C,),
)
def every_slice_adds_c(random: Random) -> Run:
    """Each of {slices} slices of K begins from C: it is added {times} times."""
    p = draw(random, DENSE, (32, 64), (16, 32), (128, 192), c=True)
    k, slices = p.shape[2], int(random.choice([2, 4]))
    each = [p.part(k // slices * i, k // slices * (i + 1), p.c) for i in range(slices)]
    observed = each[0]
    for part in each[1:]:
        observed = observed + part
    return p.ran(observed, slices=slices, times=slices)


@wrong(
    "split",
    "textbook",
    r"round|convert|narrow|written|store|precision|accumul",
    r"{format}|half|16.?bit",
    half=(r"slice|split|partial",),
    rounds=True,
)
def partial_sums_rounded_before_they_are_added(random: Random) -> Run:
    """The partial sums of slices of K are rounded to {format} before they are added."""
    p = draw(random, "f16, wgmma, tcgen05", (32, 64), (16, 32), (128, 256))
    half = p.shape[2] // 2
    parts = [p.part(0, half), p.part(half, p.shape[2])]
    return p.ran(sum(part.astype(np.float16).astype(np.float32) for part in parts), format="f16")


@wrong(
    "loop",
    "textbook",
    rf"{A}|{B}",
    K,
    r"previous|before|behind|late|stale|earlier|ahead|one (tile|stage|block)|shift|-\b{tile}\b|- \b{tile}\b|advance",
    half=(A,),
)
def a_is_one_stage_behind(random: Random) -> Run:
    """The consumer reads A one stage behind: K tile t of B meets tile t - 1 of A ({tile} of K earlier), and the first meets zeros."""
    p = draw(random, DENSE, (32, 64), (16, 32), (96, 128))
    a = np.zeros_like(p.a)
    a[:, 32:] = p.a[:, :-32]
    return p.ran(p.how(a, p.b), tile=32)


@wrong(
    "loop",
    "textbook",
    K,
    r"\b{first}\b|\b{tile}\b|\bfirst\b|\b0\b|\b1\b",
    rf"{TWICE}|instead|place|stale|not (taken|advanc)|reads|read from|taken from|holds",
    half=(K,),
)
def first_tile_used_twice(random: Random) -> Run:
    """The wait for the second tile returns at once: K 0 to 31 is multiplied again in place of K {first} to 63, in both operands ({tile} of K a tile)."""
    p = draw(random, DENSE, (32, 64), (16, 32), (96, 128, 160))
    return p.ran(summed(p, [(0, 32), (0, 32), (64, p.shape[2])]), first=32, tile=32)


@wrong(
    "loop",
    "textbook",
    A,
    K,
    r"odd|even|every (other|second)|alternat|\b{tile}\b|second|stage",
    rf"{TWICE}|before|previous|not (advanc|load|taken)|stale|same|instead|in place|reads|read from|taken from|holds",
    half=(A, K),
)
def a_not_advanced_in_odd_tiles(random: Random) -> Run:
    """A is not loaded again in odd tiles: every second tile of {tile} of K reads the tile of A before it."""
    p = draw(random, DENSE, (32, 64), (16, 32), (128, 192))
    at = np.arange(p.shape[2])
    return p.ran(p.how(p.a[:, np.where(at // 32 % 2 == 1, at - 32, at)], p.b), tile=32)


@wrong(
    "loop",
    "textbook",
    ROW,
    r"\b{first}\b|\b{last}\b",
    r"accumul|previous|also|plus|\+|add|sum|reset|clear|left",
    half=(ROW,),
)
def accumulators_kept_from_the_tile_before(random: Random) -> Run:
    """A persistent block does not clear its accumulators: rows {first} to {last} also hold the sums of rows 0 to 63, the tile before."""
    p = draw(random, DENSE, 128, (32, 64), (64, 96))
    observed = p.product()
    start = np.ascontiguousarray(observed[:64]).view(np.uint32)
    observed[64:] = p.how(p.a[64:], p.b, start)
    return p.ran(observed, first=64, last=127)


@wrong("launch", "textbook", B, BATCH, rf"{FIRST}|not advanc|stride|all|every", half=(BATCH,))
def b_is_the_first_of_the_batch(random: Random) -> Run:
    """The batch stride of B is 0: every matrix of the batch is multiplied with the first B."""
    p = draw(random, DENSE + ", s8", (32, 64), (16, 32), (64, 96), batch=3)
    return p.ran(p.how(p.a, np.broadcast_to(p.b[:1], p.b.shape)))


@wrong(
    "launch",
    "ggml-org/llama.cpp#15038",
    B,
    BATCH,
    r"strid|advanc|offset|address|pitch|shift|from row|rows? (later|further|on)|one row",
    half=(B, BATCH),
)
def batch_stride_of_b_is_that_of_a_row(random: Random) -> Run:
    """B's batch stride is that of the dimension below, one row: matrix i of the batch reads B from row i of K of the first matrix on."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), (64, 96), batch=3)
    n, k = p.shape[1], p.shape[2]
    flat = p.b.ravel()
    b = np.stack([flat[i * n : i * n + k * n].reshape(k, n) for i in range(len(p.b))])
    return p.ran(p.how(p.a, b))


@wrong("scales", "NVIDIA/TransformerEngine#1128", SCALE, BATCH, rf"{FIRST}|all|every", half=(SCALE,))
def every_group_has_the_first_groups_scale(random: Random) -> Run:
    """Grouped product: the scales of B of the first group are used for every matrix of the batch."""
    p = draw(random, "mx", (32, 64), (16, 32), (64, 128))
    parts = [p, *(draw(random, "mx", *p.shape) for _ in range(2))]
    whole = Problem(p.how, *(np.stack([getattr(each, name) for each in parts]) for name in "ab"),
                    extras={name: np.stack([each.extras[name] for each in parts]) for name in p.extras})  # fmt: skip
    first = whole.extras["scale_b"][:1]
    return whole.ran(whole.product(scale_b=np.broadcast_to(first, whole.extras["scale_b"].shape)))
