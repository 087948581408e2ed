"""Mistakes of loads: strides, offsets, transposes, fragments, swizzles and descriptors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import tcsim
from tests.evaluation.reported_kernels.case import Array, Random, Run, draw, wrong
from tests.evaluation.reported_kernels.third_words import (
    BATCH,
    COLUMN,
    LOST,
    OTHER,
    PITCH,
    ROW,
    SWAPPED,
    TILE,
    TWICE,
    A,
    B,
    C,
    K,
)


def repitched(matrix: Array, own: int, read: int) -> Array:
    """What is read at a pitch from rows that lie at another, zeros between and after them."""
    rows, columns = matrix.shape
    memory = np.zeros(rows * max(own, read) + columns, matrix.dtype)
    for row in range(rows):
        memory[row * own : row * own + columns] = matrix[row]
    return memory[np.arange(rows)[:, None] * read + np.arange(columns)]


def blockwise(matrix: Array, rows: int, columns: int) -> Array:
    """A writable view of a copy in blocks: (block row, row, block column, column)."""
    m, n = matrix.shape
    return matrix.copy().reshape(m // rows, rows, n // columns, columns)


@wrong("memory", "Xilinx/mlir-aie#2434", B, rf"{PITCH}|reshap", half=(B,))
def columns_of_b_stepped_by_n(random: Random) -> Run:
    """B lies column after column, and the kernel steps from one column to the next by N, {n}, instead of K, {k}: B is read with the wrong stride."""
    p = draw(random, "f16, wgmma, tf32, f64, wgmma s8", (32, 64), (16, 32), (64, 128))
    m, n, k = p.shape
    return p.ran(p.product(b=p.b.T.reshape(-1)[np.arange(n) * n + np.arange(k)[:, None]]), n=n, k=k)


@wrong(
    "memory",
    "ROCm/aiter#3714",
    A,
    r"shift|offset|further|later|displac|moved|roll|next|\+ ?{by}|\b{by}\b",
    half=(A,),
)
def a_read_at_an_offset(random: Random) -> Run:
    """A cache hint is taken for an offset: every element of A is read {by} elements further on in memory, shifted along K, and the end of a row reads the next row's start."""
    p = draw(random, "f16, bf16, e4m3, wmma", (32, 64), (16, 32), (64, 128))
    by = int(random.choice([1, 2, 3, 4]))
    memory = np.append(p.a.reshape(-1), np.zeros(by, p.a.dtype))
    return p.ran(p.product(a=memory[by:].reshape(p.a.shape)), by=by)


@wrong("memory", "tile-ai/tilelang#2964", B, r"64|panel|half|halves", rf"panel|strid|{OTHER}", half=(B,))
def panels_of_a_sliced_operand(random: Random) -> Run:
    """B's panels of 64 elements of K lie 128 columns apart, and 64 is taken: for k from 64 on, the first 64 columns read B at k - 64 of the last 64 columns, and the last 64 columns read the first 64 columns of B."""
    p = draw(random, "wgmma, wgmma bf16, tcgen05", (64, 128), 128, 128)
    b = p.b.copy()
    b[64:, :64], b[64:, 64:] = p.b[:64, 64:], p.b[64:, :64]
    return p.ran(p.product(b=b))


@wrong("memory", "llvm/llvm-project#76150", B, r"transpos|major|swap|k and n|n and k|row for column", half=(B,))
def transpose_flag_of_b_inverted(random: Random) -> Run:
    """The flag for B has the meaning of A's: every 64 x 64 tile of B, in the 128-byte swizzle, is read transposed."""
    p = draw(random, "wgmma, wgmma bf16, tcgen05 bf16", (64, 128), 64, (64, 128))
    b = np.concatenate([p.b[k : k + 64].T for k in range(0, p.b.shape[0], 64)])
    return p.ran(p.product(b=b))


@wrong(
    "memory", "intel/graph-compiler#410", B, r"same|every|always|repeat|again|fixed|never", rf"{COLUMN}|16", half=(B,)
)
def offsets_swapped_in_every_iteration(random: Random) -> Run:
    """Offsets are swapped inside the loop, once each iteration: from column 16 on, every step of K reads the same 16 rows of B: columns 16 to 31 always k 0 to 15, columns 32 to 47 always k 16 to 31, and so on."""
    p = draw(random, "f16, bf16", (32, 64), (32, 48), 64)
    b = p.b.copy()
    for j in range(1, b.shape[1] // 16):
        b[:, 16 * j : 16 * j + 16] = np.tile(p.b[16 * j - 16 : 16 * j, 16 * j : 16 * j + 16], (b.shape[0] // 16, 1))
    return p.ran(p.product(b=b))


@wrong("memory", "JuliaGPU/GPUArrays.jl#590", K, LOST, r"\b{row}\b|last|tail|edge|bottom|rows?", half=(LOST, ROW))
def threads_without_an_output_do_not_load(random: Random) -> Run:
    """Threads beyond the last row of the output load nothing either: in the last tile of rows, from row {row} on, the products with k mod 16 from 8 on are missing, as B's rows there stay zero."""
    p = draw(random, "f16, tf32, wmma, e5m2", (24, 40, 56), (16, 32), (64, 128))
    row = p.shape[0] // 16 * 16
    a = p.a.copy()
    a[row:, np.arange(a.shape[1]) % 16 >= 8] = 0
    return p.ran(p.product(a=a), row=row)


@wrong("memory", "giaf/blasfeo#152", C, PITCH, half=(C,))
def c_read_with_the_stride_of_d(random: Random) -> Run:
    """C is read with the row stride of D, {n}, while its own rows lie {pitch} apart, padded with zeros."""
    p = draw(random, "f16, f64, wgmma", (32, 64), (16, 32), 64, c=True)
    assert p.c is not None
    n = p.shape[1]
    return p.ran(p.product(c=repitched(p.c, n + 8, n)), n=n, pitch=n + 8)


@wrong(
    "memory",
    "sonots/cumo#268",
    BATCH,
    rf"{LOST}|nothing|beyond|past|outside|out of",
    r"first|\b[012]\b|other|rest|remaining|all but",
    half=(BATCH,),
)
def one_b_for_the_batch_walked_past_its_end(random: Random) -> Run:
    """B holds one matrix for the whole batch, and the kernel steps on by its size: all matrices of the batch but the first read beyond the end of B, and are zero."""
    p = draw(random, "f16, bf16, tf32", (16, 32), (16, 32), 64, batch=3)
    p = replace(p, b=np.repeat(p.b[:1], 3, axis=0))
    d = p.product()
    d[1:] = 0
    return p.ran(d)


@wrong(
    "memory",
    "Xilinx/mlir-aie#2392",
    rf"{A}|{ROW}",
    rf"skip|twice|repeat|never|{OTHER}",
    r"\b{rows}\b|\b{twice}\b|chunk|quarter",
    half=(ROW,),
)
def every_second_chunk_of_a_skipped(random: Random) -> Run:
    """The offset between chunks of {rows} rows of A is that of twice as many: rows {rows} on hold the product of A's rows {twice} on, and the last half repeats the first half; the second and fourth chunk of A are skipped."""
    p = draw(random, "f16, bf16, s8", (64, 128), (16, 32), 64)
    rows = p.shape[0] // 4
    first, _, third, _ = np.split(p.a, 4)
    return p.ran(p.product(a=np.concatenate([first, third, first, third])), rows=rows, twice=2 * rows)


@wrong("memory", "textbook", A, PITCH, half=(A,))
def padding_of_shared_rows_forgotten(random: Random) -> Run:
    """Tiles of A are stored in shared memory with 40 elements from row to row, padded with 8 zeros, and read with a stride of 32."""
    p = draw(random, "f16, wmma", (16, 32), (16, 32), (32, 64))
    return p.ran(
        p.product(a=np.hstack([repitched(tile, 40, 32) for tile in np.split(p.a, p.a.shape[1] // 32, axis=1)]))
    )


@wrong("memory", "textbook", A, rf"{TILE}|matri|register|fragment|ldmatrix", SWAPPED, half=(A,))
def addresses_of_ldmatrix_along_k_first(random: Random) -> Run:
    """The lanes' addresses for ldmatrix.x4 go along K first: in every 16 x 16 block of A the lower left and the upper right 8 x 8 matrix are exchanged."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), (64, 128))
    a = blockwise(p.a, 16, 16)
    a[:, 8:, :, :8], a[:, :8, :, 8:] = a[:, :8, :, 8:].copy(), a[:, 8:, :, :8].copy()
    return p.ran(p.product(a=a.reshape(p.a.shape)))


@wrong("memory", "textbook", A, r"swizzl|xor|chunk|bytes|\b8\b", r"swizzl|xor|permut|exchang|swap|order", half=(A,))
def swizzle_of_64_bytes_from_the_wrong_bits(random: Random) -> Run:
    """The 64-byte swizzle XORs the chunk with row mod 4 where A is stored, and with row / 2 mod 4 where it is read: in three of four rows chunks of 8 elements of K are exchanged."""
    p = draw(random, "f16, bf16, wgmma", (32, 64), (16, 32), (32, 64))
    m, _, k = p.shape
    row, at = np.arange(m)[:, None], np.arange(k)
    return p.ran(p.product(a=p.a[row, at ^ (8 * ((row % 4) ^ (row // 2 % 4)))]))


@wrong(
    "memory", "textbook", B, rf"lbo|sbo|leading|strid|offset|core|matri|{TILE}|\b8\b", rf"lbo|sbo|{SWAPPED}", half=(B,)
)
def leading_and_stride_offset_swapped(random: Random) -> Run:
    """The leading and the stride byte offset of B's descriptor are exchanged, without a swizzle: 8 x 8 core matrices of B are read in the wrong order."""
    p = draw(random, "wgmma, wgmma bf16", 64, 64, (32, 64))
    right, swapped = (
        tcsim.MatrixDescriptor(leading_byte_offset=lead, stride_byte_offset=stride, swizzle="NONE").addresses(
            64, 16, p.how.b
        )
        for lead, stride in ((128, 256), (256, 128))
    )
    b = []
    for step in np.split(p.b, p.b.shape[0] // 16):
        memory = np.zeros(4096, p.b.dtype)
        memory[right // 2] = step.T
        b.append(memory[swapped // 2].T)
    return p.ran(p.product(b=np.concatenate(b)))


@wrong("memory", "textbook", B, K, rf"16|half|overlap|advanc|step|offset|{TWICE}", half=(B,))
def descriptor_advanced_by_half_a_step(random: Random) -> Run:
    """The descriptor of B moves on by 16 bytes where a step of K has 32: step s reads B from k = 16 s on, so that most k are read twice."""
    p = draw(random, "wgmma e4m3, tcgen05 e4m3, wgmma s8", (64, 128), (16, 32), (64, 128))
    b = [p.b[k // 2 : k // 2 + 32] for k in range(0, p.b.shape[0], 32)]
    return p.ran(p.product(b=np.concatenate(b)))


@wrong("memory", "textbook", rf"{A}|{K}", LOST, r"\b[48]\b|half|halves|second|upper|chunk|bytes", half=(LOST,))
def copies_of_8_instead_of_16_bytes(random: Random) -> Run:
    """cp.async copies 8 of every 16 bytes of A: elements 4 to 7 of every 8 along K stay zero."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), (64, 128))
    a = p.a.copy()
    a[:, np.arange(a.shape[1]) % 8 >= 4] = 0
    return p.ran(p.product(a=a))


@wrong("memory", "textbook", ROW, r"64|half|halves", rf"{OTHER}|first|duplicat", half=(ROW,))
def both_ctas_load_the_same_half_of_a(random: Random) -> Run:
    """Both CTAs of a pair load the first half of A: rows 64 to 127 are the same as rows 0 to 63."""
    p = draw(random, "tcgen05, tcgen05 bf16, tcgen05 mx", 128, (16, 32, 64), 64)
    rows = np.arange(128) % 64
    extras = {"scale_a": p.extras["scale_a"][rows]} if p.extras else {}
    return p.ran(p.product(a=p.a[rows], **extras))
