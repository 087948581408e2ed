"""Mistakes of the epilogue, the store, tile order, batches and groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import tcsim
from tests.evaluation.reported_kernels.case import Random, Run, accumulator, coded, draw, wrong
from tests.evaluation.reported_kernels.third_memory import blockwise
from tests.evaluation.reported_kernels.third_words import (
    BATCH,
    COLUMN,
    FACTOR,
    FIRST,
    LOST,
    MIXED,
    OTHER,
    PITCH,
    ROW,
    SWAPPED,
    TILE,
    B,
    C,
    D,
)

HALF16 = r"\bf16|half.precision|fp16|float16|65504|\binf|overflow|range"


@wrong("output", "ROCm/aiter#2567", LOST, ROW, r"\b32\b|\b48\b|\b47\b|tail|last|remain", half=(LOST, ROW))
def rows_beyond_whole_passes_not_stored(random: Random) -> Run:
    """The number of passes over a tile of 48 rows is rounded down: rows 32 to 47 of each tile are not stored, zero."""
    p = draw(random, "bf16, f16", (48, 96), (16, 32), (64, 128))
    d = p.product()
    d[np.arange(p.shape[0]) % 48 >= 32] = 0
    return p.ran(d)


@wrong("output", "intel/intel-xpu-backend-for-triton#1657", TILE, rf"{SWAPPED}|transpos|column.major", half=(D,))
def repetitions_stored_in_the_wrong_order(random: Random) -> Run:
    """Of each 2 x 2 cluster of output blocks of 16 x 16, the loops over the blocks are in the wrong order: the upper right and the lower left block are exchanged."""
    p = draw(random, "bf16, f16, tf32", (32, 64), (32, 64), 64)
    d = blockwise(p.product(), 32, 32)
    d[:, 16:, :, :16], d[:, :16, :, 16:] = d[:, :16, :, 16:].copy(), d[:, 16:, :, :16].copy()
    return p.ran(d.reshape(p.shape[:2]))


@wrong("output", "ggml-org/llama.cpp#2480", LOST, COLUMN, r"\b6[34]\b|last|beyond|tail", half=(LOST, COLUMN))
def columns_rounded_down_to_64(random: Random) -> Run:
    """The number of columns is rounded down to a multiple of 64: the columns from 64 on are not computed, zero."""
    p = draw(random, "f16, s8, tf32", (32, 64), (80, 96, 112), 64)
    d = p.product()
    d[:, 64:] = 0
    return p.ran(d)


@wrong("output", "hw-native-sys/pto-isa#253", COLUMN, ROW, rf"{LOST}|{OTHER}|{PITCH}", half=(COLUMN,))
def accumulator_window_with_its_own_stride(random: Random) -> Run:
    """The accumulator is stored in bands of 16 columns, at the stride of its window of 32 rows, not of all 64: columns 0 to 15 are right; in columns 16 to 31 rows 0 to 31 hold the output of rows 32 to 63, and rows 32 to 63 are zero."""
    p = draw(random, "f16, bf16, s8", 64, 32, (64, 128))
    d = p.product()
    d[:32, 16:], d[32:, 16:] = d[32:, 16:].copy(), 0
    return p.ran(d)


@wrong(
    "output",
    "ROCm/hip-ep#207",
    LOST,
    rf"{TILE}|{ROW}",
    rf"{COLUMN}|\(2, ?2\)|tile 8\b|corner",
    r"\b32\b|\b47\b|\b2\b|last|third|corner",
    half=(LOST,),
)
def tile_order_is_no_bijection(random: Random) -> Run:
    """With three tiles of columns the order of tiles in groups of two computes one twice and another never: the tile of rows 32 to 47 and columns 32 to 47 is not written, zero."""
    p = draw(random, "f16, bf16, wmma", 64, 48, (64, 128))
    d = p.product()
    d[32:48, 32:48] = 0
    return p.ran(d)


@wrong("output", "NVIDIA/MatX#547", C, LOST, half=(C,))
def c_not_copied_in(random: Random) -> Run:
    """Beta is not 0, and C is not copied to where the library reads it: C is missing from the output."""
    p = draw(random, "f16, tf32, f64, wgmma", (32, 64), (16, 32), 64, c=True)
    return p.ran(p.product(c=None))


@wrong("output", "unslothai/unsloth-zoo#887", C, ROW, rf"{MIXED}|{OTHER}", half=(C,))
def addend_in_the_order_of_experts(random: Random) -> Run:
    """The output is in the order of tokens, and C, which is added to it, in the order of experts: the rows of C are permuted."""
    p = draw(random, "f16, bf16, wgmma bf16", (32, 64), (16, 32), 64, c=True)
    assert p.c is not None
    order = np.argsort(random.integers(0, 4, p.shape[0]), kind="stable")
    return p.ran(p.product(c=p.c[order]))


@wrong(
    "output",
    "sgl-project/sgl-kernel-npu#676",
    r"factor|multipl|times|scal|alpha|twice|divid",
    r"\b{alpha}\b|\b{inverse}\b|\bhalf\b|quarter|doubl|constant|uniform",
    rf"{D}|product|every",
    half=(FACTOR,),
)
def scaling_applied_twice(random: Random) -> Run:
    """The scaling {alpha} is in A already, and the kernel multiplies by it again: every output is {alpha} times what it should be."""
    p = draw(random, "bf16, f16, tf32", (32, 64), (16, 32), 64)
    alpha = float(random.choice([0.125, 0.25, 4.0, 16.0]))
    return p.ran((p.product() * np.float32(alpha)).astype(np.float32), alpha=alpha, inverse=1 / alpha)


@wrong("output", "ROCm/composable_kernel#1545", BATCH, LOST, r"\b{group}\b", half=(BATCH,))
def group_skipped(random: Random) -> Run:
    """A check for an empty group overflows, and group {group} of the batch is skipped: its output is zero."""
    p = draw(random, "f16, bf16, e4m3", (16, 32), (16, 32), 64, batch=4)
    group = int(random.integers(4))
    d = p.product()
    d[group] = 0
    return p.ran(d, group=group)


@wrong("output", "tile-ai/TileOPs#1952", LOST, rf"{ROW}|tile", BATCH, r"\b[78]\b|first|boundary", half=(LOST,))
def tile_across_two_groups_computes_the_first(random: Random) -> Run:
    """Tiles of 16 rows run over all groups of 24, and a tile across a boundary computes its first group only: the first 8 rows of every second matrix of the batch are missing, zero."""
    p = draw(random, "f16, bf16", 24, (16, 32), 64, batch=4)
    d = p.product()
    d[1::2, :8] = 0
    return p.ran(d)


@wrong("output", "HazyResearch/HipKittens#22", BATCH, LOST, r"\b[67]\b|last", half=(BATCH,))
def heads_mapped_by_the_wrong_group_size(random: Random) -> Run:
    """Blocks are mapped to heads by (i mod 2) 2 + i / 2, where 4 is the stride: some are computed twice, and matrices 6 and 7 of the batch never, zero."""
    p = draw(random, "bf16, f16", 16, (16, 32), 32, batch=8)
    d = p.product()
    d[6:] = 0
    return p.ran(d)


@wrong("output", "PSAL-POSTECH/ONNXim#34", B, BATCH, rf"{FIRST}|all|every|broadcast", half=(B,))
def all_heads_use_the_first_b(random: Random) -> Run:
    """The index of the group is divided once more: all matrices of the batch are multiplied by the B of batch 0."""
    p = draw(random, "f16, bf16, tf32", (16, 32), (16, 32), 64, batch=3)
    return p.ran(p.product(b=np.repeat(p.b[:1], 3, axis=0)))


@wrong(
    "output",
    "textbook",
    C,
    r"transpos|axis|(per|by|the) row|row for column|rows? instead|swap|rows?.*columns?|columns?.*rows?",
    half=(C,),
)
def bias_along_the_wrong_axis(random: Random) -> Run:
    """The bias, one for each column, is read by the row: row m has C of column m in all of its columns, transposed."""
    p = draw(random, "f16, bf16, wgmma", 64, 64, 64)
    bias = accumulator(p.how, random.standard_normal(64) * 8)
    return replace(p, c=np.tile(bias, (64, 1))).ran(p.product(c=np.tile(bias[:, None], (1, 64))))


@wrong("output", "textbook", HALF16, half=(r"round|precision",))
def output_passes_through_f16(random: Random) -> Run:
    """The output is stored as f16 on the way: values above 65504 overflow to infinity."""
    p = draw(random, "bf16, wgmma bf16, tcgen05 bf16", (64, 128), (16, 32), 64)
    p = replace(p, a=coded(tcsim.decode(p.a, "bf16").astype(float) * 4096, "bf16"))
    with np.errstate(over="ignore"):
        return p.ran(p.product().astype(np.float16).astype(np.float32))


@wrong(
    "output",
    "textbook",
    r"register|fragment|\(g|\b8\b",
    rf"{SWAPPED}|{OTHER}",
    rf"{ROW}|{COLUMN}|register|{D}",
    half=(ROW,),
)
def registers_of_the_accumulator_exchanged(random: Random) -> Run:
    """The second and the third register of the accumulator are exchanged in the store: outputs (g, 2 t + 1) and (g + 8, 2 t) of every 16 x 8 block are swapped."""
    p = draw(random, "f16, bf16, tf32, s8", (32, 64), (16, 32), 64)
    d = blockwise(p.product(), 16, 8)
    d[:, :8, :, 1::2], d[:, 8:, :, ::2] = d[:, 8:, :, ::2].copy(), d[:, :8, :, 1::2].copy()
    return p.ran(d.reshape(p.shape[:2]))


@wrong("output", "textbook", TILE, rf"{SWAPPED}|transpos|\b[ij], ?[ij]\b|column.major", half=(TILE,))
def tiles_stored_with_block_indices_exchanged(random: Random) -> Run:
    """The store exchanges blockIdx.x and blockIdx.y: the 32 x 32 tile (i, j) of the output lies at (j, i), the inside of tiles is right."""
    p = draw(random, "wmma, f16, tf32", 64, 64, 64)
    return p.ran(blockwise(p.product(), 32, 32).transpose(2, 1, 0, 3).reshape(64, 64))


@wrong("output", "textbook", C, r"subtract|minus|negat|sign|- ?1\b|- ?c\b|opposite", half=(C,))
def c_subtracted(random: Random) -> Run:
    """The sign of beta is wrong: C is subtracted from the product, not added."""
    p = draw(random, "f16, f64, bf16, wgmma", (32, 64), (16, 32), 64, c=True)
    assert p.c is not None
    top = p.c.dtype.type(1 << (p.c.dtype.itemsize * 8 - 1))
    return p.ran(p.product(c=p.c ^ top))


@wrong("output", "textbook", C, rf"{OTHER}|local|index|{FIRST}", r"\b32\b|tile|period|mod", half=(C,))
def bias_indexed_inside_the_tile(random: Random) -> Run:
    """The bias is indexed inside the tile of 32 columns: column n adds C of column n mod 32."""
    p = draw(random, "bf16, tcgen05, wgmma", (64, 128), (64, 128), 64)
    bias = accumulator(p.how, random.standard_normal(p.shape[1]) * 8)
    rows = (p.shape[0], 1)
    return replace(p, c=np.tile(bias, rows)).ran(p.product(c=np.tile(bias[np.arange(p.shape[1]) % 32], rows)))


@wrong(
    "output",
    "textbook",
    COLUMN,
    rf"{OTHER}|{FIRST}|duplicat|cop(y|ies)",
    r"\b{half}\b|half|halves|second|last",
    half=(COLUMN,),
)
def both_warpgroups_load_the_same_columns(random: Random) -> Run:
    """The second warpgroup's tcgen05.ld lacks the offset of columns: the output's last {half} columns are the same as the first {half}."""
    p = draw(random, "tcgen05, tcgen05 bf16, tcgen05 e4m3", 128, (32, 64), 64)
    half = p.shape[1] // 2
    return p.ran(np.tile(p.product()[:, :half], (1, 2)), half=half)


@wrong("output", "textbook", C, rf"{BATCH}", rf"{FIRST}|all|every|stride|{OTHER}", half=(C,))
def batch_stride_of_c_is_zero(random: Random) -> Run:
    """The batch stride of C is 0: every matrix of the batch adds the C of batch 0."""
    p = draw(random, "f16, bf16, f64", (16, 32), (16, 32), 64, c=True, batch=3)
    assert p.c is not None
    return p.ran(p.product(c=np.repeat(p.c[:1], 3, axis=0)))


@wrong("output", "textbook", B, rf"{BATCH}|head", rf"{OTHER}|{SWAPPED}|modulo|head", half=(B,))
def heads_share_b_by_the_remainder(random: Random) -> Run:
    """Two heads share a B, and head h takes h mod 2 instead of h / 2: matrices 1 and 2 of the batch have each other's B."""
    p = draw(random, "f16, bf16", (16, 32), (16, 32), 64, batch=4)
    p = replace(p, b=p.b[[0, 0, 1, 1]])
    return p.ran(p.product(b=p.b[[0, 2, 1, 3]]))


@wrong("output", "textbook", B, rf"{PITCH}|{OTHER}", rf"{BATCH}|m ?\*? ?k|\b{{stride}}\b", half=(B,))
def batch_stride_of_a_for_b(random: Random) -> Run:
    """The batch stride of B is that of A, {stride} elements, and is too short: the second and the third matrix of the batch begin inside the B before."""
    p = draw(random, "f16, bf16, tf32", 16, 32, 64, batch=3)
    m, n, k = p.shape
    read = p.b.reshape(-1)[np.arange(3)[:, None] * m * k + np.arange(k * n)]
    return p.ran(p.product(b=read.reshape(3, k, n)), stride=m * k)


@wrong("output", "textbook", B, rf"next|\+ ?1|following|later|{OTHER}", rf"{BATCH}", half=(B,))
def experts_by_the_inclusive_sum(random: Random) -> Run:
    """The expert is found by the inclusive sum of the sizes: each matrix of the batch meets the B of the next, the last its own."""
    p = draw(random, "f16, bf16, e4m3", (16, 32), (16, 32), 64, batch=4)
    return p.ran(p.product(b=p.b[[1, 2, 3, 3]]))
