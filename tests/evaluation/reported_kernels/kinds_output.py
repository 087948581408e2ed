"""Mistakes of the epilogue, of the store, and of the grid."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

import tcsim
from tests.evaluation.reported_kernels.case import Array, Random, Run, accumulator, draw, wrong
from tests.evaluation.second_wrong_kernels.words import (
    BLOCK,
    COLUMNS,
    MISSING,
    PITCH,
    ROWS,
    SWAPPED,
    TRANSPOSED,
    TWICE,
    ZERO,
    A,
    C,
    D,
    value,
)

DENSE = "f16, bf16, tf32, e4m3, s8, wgmma, wgmma bf16, wgmma s8, tcgen05, tcgen05 e4m3"
FLOAT = "f16, bf16, tf32, e4m3, wgmma, wgmma e4m3, tcgen05, tcgen05 bf16"


@wrong("store", "pytorch/FBGEMM#2919", D, TRANSPOSED, half=(D,))
def output_written_with_the_strides_of_the_input(random: Random) -> Run:
    """D is written with the strides of a column-major tensor into a row-major one: it is transposed."""
    p = draw(random, DENSE, 48, 48, (64, 96))
    return p.ran(p.product().T.copy())


@wrong("epilogue", "CNugteren/CLBlast#578", C, TWICE + r"|\b2\b|scale|factor|beta", half=(C,))
def beta_not_applied(random: Random) -> Run:
    """C is to be added with beta = 0.5 (the operand c has it already) and is added whole: twice."""
    p = draw(random, FLOAT, (32, 64), (16, 32), (64, 96), c=True)
    twice = p.c.view(np.float32) * 2  # type: ignore[union-attr]
    return p.ran(p.product(c=accumulator(p.how, twice)))


@wrong("epilogue", "NVIDIA/TensorRT-LLM#12190", C, MISSING + r"|zero", half=(C,))
def bias_multiplied_by_zero(random: Random) -> Run:
    """beta is 0 where there is a bias: C is not added."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 96))
    bias = (
        random.integers(-900, 900, (1, p.shape[1])) if p.how.d == "s32" else random.standard_normal((1, p.shape[1])) * 4
    )
    p = replace(p, c=accumulator(p.how, np.repeat(bias, len(p.a), axis=0)))
    return p.ran(p.product(c=None))


@wrong(
    "epilogue", "NVIDIA/cutlass#2716", r"f32|float|24 bits|single|mantissa|significand", half=(D, "round"), rounds=True
)
def integers_through_float(random: Random) -> Run:
    """The epilogue computes in float32: sums beyond 2^24 lose their last bits."""
    p = draw(random, "s8, wgmma s8", (32, 64), (16, 32), (64, 96))
    p = replace(p, c=random.integers(-(2**29), 2**29, (len(p.a), p.shape[1])).astype(np.int32).view(np.uint32))
    return p.ran(p.product().astype(np.float32).astype(np.int32))


@wrong(
    "epilogue",
    "ROCm/aiter#5549",
    COLUMNS,
    r"interleav|permut|shuffl|order|even|odd|every other|stride|pairs?|alternat|halves",
    half=(COLUMNS,),
)
def gate_and_up_interleaved(random: Random) -> Run:
    """B has gate and up columns in two halves, and they come out in turns: column 2 i is column i, 2 i + 1 is column {half} + i."""
    p = draw(random, FLOAT, (32, 64), (32, 64), (64, 96))
    n = p.shape[1]
    return p.ran(p.product()[:, np.arange(n).reshape(2, -1).T.ravel()], half=n // 2)


def blocks_of(m: int, n: int, size: int) -> list[tuple[int, int]]:
    """The first row and column of every output block, along N first."""
    return [(i, j) for i in range(0, m, size) for j in range(0, n, size)]


@wrong("launch", "tenstorrent/tt-metal#54798", ZERO, BLOCK, half=(ZERO,))
def blocks_beyond_the_cores_never_computed(random: Random) -> Run:
    """There are {count} output blocks of 16 x 16 and one less core than blocks, or two: the last ones stay zero."""
    p = draw(random, DENSE, (48, 64), (32, 48), 64)
    out, places = p.product(), blocks_of(len(p.a), p.shape[1], 16)
    for i, j in places[-int(random.choice([1, 2])) :]:
        out[i : i + 16, j : j + 16] = 0
    return p.ran(out, count=len(places))


@wrong("launch", "NVIDIA/cuda-samples#411", COLUMNS, ZERO, value("from"), half=(COLUMNS, ZERO))
def grid_divided_down(random: Random) -> Run:
    """gridDim.x is N / 16 rounded down: columns {from}-{last} stay zero."""
    p = draw(random, DENSE, (32, 64), (40, 56), 64)
    out, n = p.product(), p.shape[1]
    out[:, n // 16 * 16 :] = 0
    return p.ran(out, last=n - 1, **{"from": n // 16 * 16})


@wrong("launch", "Cjkkkk/CUDA_gemm#3", ROWS, ZERO, value("from"), half=(ROWS, ZERO))
def rows_beyond_the_last_whole_block(random: Random) -> Run:
    """Only whole blocks of 32 rows are launched: rows {from}-{last} stay zero."""
    p = draw(random, DENSE, (44, 72), (16, 32), 64)
    out, m = p.product(), len(p.a)
    out[m // 32 * 32 :] = 0
    return p.ran(out, last=m - 1, **{"from": m // 32 * 32})


@wrong("store", "vllm-project/vllm#56248", D, PITCH + r"|padd", value("n"), half=(D,))
def padded_output_written_as_packed(random: Random) -> Run:
    """D has a pitch of {pitch} and is written with {n}, so that its rows run together and its end stays zero."""
    p = draw(random, DENSE, (32, 64), (24, 32), (64, 96))
    product = p.product()
    m, n = product.shape
    pitch = n + int(random.choice([8, 16]))
    memory = np.zeros(m * pitch, product.dtype)
    memory[: m * n] = product.ravel()
    return p.ran(memory.reshape(m, pitch)[:, :n].copy(), n=n, pitch=pitch)


@wrong(
    "store",
    "mudler/vllm.cpp#2889",
    COLUMNS + r"|rows?",
    ZERO + r"|overwrit|next row|overhang|mask|guard|beyond",
    r"\b0\b|first|next row|wrap|overhang|mask|beyond",
    half=(ZERO, D),
)
def overhang_written_into_the_next_row(random: Random) -> Run:
    """N = {n} ends inside a tile of 16 and the store is not masked: its zeros overwrite columns 0-{last} of the next row."""
    p = draw(random, DENSE, (32, 64), (40, 24), 64)
    out, n = p.product(), p.shape[1]
    out[1:, : 16 - n % 16] = 0
    return p.ran(out, n=n, last=15 - n % 16)


@wrong("store", "NVIDIA/cutlass#2162", ZERO + r"|never|\blost\b|not stored", BLOCK + "|" + ROWS, half=(ZERO,))
def patch_stored_through_another_tensor_map(random: Random) -> Run:
    """The tensor map is replaced while a store is under way: rows {row}-{end}, columns {column}-{last} of D never arrive."""
    p = draw(random, "wgmma, wgmma bf16, wgmma e4m3", 128, 64, 64)
    row, column = int(random.choice([0, 64])), int(random.choice([0, 32]))
    out = p.product()
    out[row : row + 64, column : column + 32] = 0
    return p.ran(out, row=row, end=row + 63, column=column, last=column + 31)


@wrong("store", "NVlabs/cuda-oxide#474", D, r"register|fragment|lane|layout|order|adjacent|thread", half=(D,))
def accumulators_stored_as_neighbours(random: Random) -> Run:
    """Each lane stores its four accumulators as four neighbours of the 16 x 8 tile, in the order of the lanes."""
    p = draw(random, "f16, bf16, tf32, e4m3", (16, 32), (16, 24), (32, 64))
    product, out = p.product(), np.zeros((len(p.a), p.shape[1]), np.float32)
    row, column = (
        tcsim.instruction(p.how.mnemonic, arch=p.how.arch)
        .operands["d"]
        .layout(np.arange(32)[:, None], np.arange(4)[None], 0)
    )
    for i in range(0, len(out), 16):
        for j in range(0, out.shape[1], 8):
            out[i : i + 16, j : j + 8] = product[i : i + 16, j : j + 8][row, column].reshape(16, 8)
    return p.ran(out)


@wrong("store", "apache/tvm#18528", D, ROWS + r"|register", SWAPPED + r"|order|<->|each other|\b8\b", half=(D,))
def halves_of_the_accumulator_exchanged(random: Random) -> Run:
    """The offset of the accumulator's halves is wrong: rows 0-7 and 8-15 of every 16 of D are exchanged."""
    p = draw(random, "f16, bf16, tf32, e4m3, s8", (32, 64), (16, 24), (32, 64))
    return p.ran(p.product()[np.arange(len(p.a)) ^ 8])


@wrong("epilogue", "OpenMathLib/OpenBLAS#5712", C, r"bf16|16.bit|half|format|type", half=(C,))
def c_read_as_bf16(random: Random) -> Run:
    """C is float32 and is read as bf16: element i of the buffer is its i-th half word."""
    p = draw(random, "bf16, wgmma bf16", (32, 64), (16, 32), (64, 96), c=True)
    halves = np.ascontiguousarray(p.c).view(np.uint16).ravel()[: p.c.size]  # type: ignore[union-attr, arg-type]
    read = halves.view(ml_dtypes.bfloat16).astype(np.float32).reshape(len(p.a), -1)
    return p.ran(p.product(c=accumulator(p.how, read)))


@wrong(
    "epilogue",
    "textbook",
    C,
    COLUMNS + r"|tile|block",
    r"same|repeat|local|first|instead|again|\b0-15|modulo|%|every|offset",
    half=(C,),
)
def bias_indexed_by_the_column_in_the_tile(random: Random) -> Run:
    """The bias in C is indexed by the column in the tile of 16: every tile adds that of columns 0-15."""
    p = draw(random, DENSE, (32, 64), (48, 64), (64, 96))
    bias = (
        random.integers(-9000, 9000, (1, p.shape[1]))
        if p.how.d == "s32"
        else random.standard_normal((1, p.shape[1])) * 8
    )
    table: Array = np.repeat(bias, len(p.a), axis=0)
    p = replace(p, c=accumulator(p.how, table))
    return p.ran(p.product(c=accumulator(p.how, table[:, np.arange(p.shape[1]) % 16])))


@wrong(
    "store",
    "textbook",
    rf"\bd\b[^+]*(?:{PITCH})[^+]*\b16\b|\b16\b[^+]*(?:{PITCH})[^+]*\bd\b|\bd\b[^+]*\b16\b[^+]*(?:{PITCH})",
    half=(D,),
)
def tiles_stored_with_a_pitch_of_their_own(random: Random) -> Run:
    """store_matrix_sync of D is given a leading dimension of 16, not of N = {n}: tiles write over each other and leave zeros."""
    p = draw(random, "wmma", (32, 48), (32, 48), (32, 64))
    product = p.product()
    m, n = product.shape
    memory = np.zeros(m * n + 256, np.float32)
    for i, j in blocks_of(m, n, 16):
        memory[i * n + j : i * n + j + 256] = product[i : i + 16, j : j + 16].ravel()
    return p.ran(memory[: m * n].reshape(m, n), n=n)


@wrong("epilogue", "textbook", r"negat|sign|minus|-1|subtract", A + r"|\bb\b|product|a b", half=("negat|sign",))
def product_subtracted(random: Random) -> Run:
    """imm-scale-a is -1: D = C - A B."""
    p = draw(random, "wgmma, wgmma bf16", (64, 128), (32, 64), (64, 96), c=True)
    return p.ran(p.product(a=p.a ^ np.uint16(0x8000)))


@wrong("epilogue", "textbook", r"clamp|satur|\b127\b|limit|clip", half=(D,))
def clamped_to_eight_bits(random: Random) -> Run:
    """The s32 results are clamped to -128 ... 127 on their way out."""
    p = draw(random, "s8, wgmma s8", (32, 64), (16, 32), (64, 96))
    p = replace(p, a=(p.a.view(np.int8) // 16).view(np.uint8), b=(p.b.view(np.int8) // 16).view(np.uint8))
    return p.ran(np.clip(p.product(), -128, 127))
