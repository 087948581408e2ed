"""Mistakes on the way from global memory to the fragments: loads, shared memory, descriptors, registers."""

from __future__ import annotations

from typing import Any

import numpy as np

import tcsim
from tests.evaluation.reported_kernels.case import Array, Problem, Random, Run, draw, wrong
from tests.evaluation.second_wrong_kernels.words import KTILE, PITCH, SAME, SWAPPED, TRANSPOSED, A, B, value

COPIED = SAME + r"|first|(?:rows?|columns?) 0-|are (?:the )?(?:rows|columns|those)"
EXCHANGED = SWAPPED + r"|order|<->|each other"
MOVED = r"offset|start|begin|pointer|address|step|advance|stride|moved|instead|reads? |taken|descriptor"


def flat(memory: Array, address: Array) -> Array:
    """Elements of flat memory; zeros behind its end."""
    inside = (address >= 0) & (address < memory.size)
    return np.where(inside, memory[np.where(inside, address, 0)], 0).astype(memory.dtype)


@wrong(
    "load",
    "NVIDIA/cutlass#2697",
    KTILE,
    r"mask|predicat|guard|beyond|past|next row|following row|runs? on|overrun|over the end|next column|neighbou?r",
    half=(KTILE,),
)
def k_tail_not_masked(random: Random) -> Run:
    """K = {k} is not a multiple of the tile of 32 and no load is masked: each row of A and column of B runs on into the next."""
    p = draw(random, "f16, bf16, wgmma", (32, 64), (16, 32), (40, 72))
    m, n, k = p.shape
    reach = np.arange(-(-k // 32) * 32)
    a = flat(p.a.ravel(), np.arange(m)[:, None] * k + reach)
    b = flat(p.b.T.ravel(), np.arange(n)[:, None] * k + reach).T
    return p.ran(p.how(a, b), k=k)


@wrong("load", "NVIDIA/cuda-samples#5", A, PITCH, value("m"), half=(A,))
def leading_dimension_of_a_is_m(random: Random) -> Run:
    """A is read with a leading dimension of M = {m}, not of K = {k}."""
    p = draw(random, "wmma, f16", (32, 48), (16, 32), (64, 80))
    m, _, k = p.shape
    a = flat(p.a.ravel(), np.arange(m)[:, None] * m + np.arange(k))
    return p.ran(p.how(a, p.b), m=m, k=k)


@wrong(
    "fragments",
    "ml-explore/mlx#3565",
    A,
    r"offset|index|depends|follow|diagonal|row'?s? (?:block|tile|fragment|offset)|instead|block of",
    half=(A,),
)
def offset_of_the_rows_for_the_columns(random: Random) -> Run:
    """Each 8 x 8 fragment of A is loaded from the columns of its row offset instead of its own column offset."""
    p = draw(random, "f16, bf16, tf32", 32, (16, 24), 32)
    row, k = np.arange(32)[:, None], np.arange(32)[None]
    return p.ran(p.how(p.a[row, row // 8 * 8 + k % 8], p.b))


@wrong("load", "ROCm/aiter#2466", B, PITCH + r"|padd", value("k"), half=(B,))
def padded_weights_read_as_packed(random: Random) -> Run:
    """B is a view of rows of {padded} elements along K, of which {k} count; it is read as if its pitch were {k}."""
    p = draw(random, "e4m3, wgmma e4m3, bf16", (32, 64), (24, 32), (64, 96))
    _, n, k = p.shape
    pad = int(random.choice([16, 32]))
    memory = np.pad(p.b.T, ((0, 0), (0, pad))).ravel()
    return p.ran(p.how(p.a, memory[: n * k].reshape(n, k).T), k=k, padded=k + pad)


@wrong(
    "load",
    "1bit-MONSTER/1bit-MONSTER#1265",
    KTILE,
    r"\b16\b",
    r"zero|missing|only|one of|every|without|not ",
    half=(KTILE, B),
)
def one_row_of_each_fragment(random: Random) -> Run:
    """The shared buffer of B has one row where the fragment has 16: of every 16 elements of K only the first counts."""
    p = draw(random, "wmma", (16, 32), (16, 32), (64, 96))
    b = np.where(np.arange(p.shape[2])[:, None] % 16 == 0, p.b, 0).astype(p.b.dtype)
    return p.ran(p.how(p.a, b))


@wrong(
    "load",
    "PTO-ISA/SuperNPUBench#184",
    B,
    r"pack|nibble|pairs?\b|two per byte|4.bit|interleav|adjacent|byte",
    half=(B,),
)
def nibbles_packed_along_the_other_axis(random: Random) -> Run:
    """B has pairs of K in a byte and is read as if a byte held a pair of N."""
    p = draw(random, "mxf4", 32, (16, 32), (64, 128))
    _, n, k = p.shape
    byte = np.arange(k)[:, None] * (n // 2) + np.arange(n)[None] // 2
    return p.ran(p.product(b=p.b[2 * (byte // n) + np.arange(n)[None] % 2, byte % n]))


@wrong("load", "NVIDIA/cutlass#492", B, TRANSPOSED + "|" + PITCH + r"|row by row|reshap|layout|order|n x k", half=(B,))
def weight_of_n_rows_read_as_k_rows(random: Random) -> Run:
    """B lies in memory as N x K, and is read row by row as K x N."""
    p = draw(random, "s8, wgmma s8", (32, 64), (24, 48), (64, 96))
    _, n, k = p.shape
    return p.ran(p.how(p.a, p.b.T.reshape(k, n)))


@wrong("loop", "textbook", B, MOVED, half=(B, KTILE))
def b_advances_by_the_depth_of_the_tile(random: Random) -> Run:
    """B is row-major and its pointer advances by 32 elements per K tile, as if K were contiguous, not by 32 rows."""
    p = draw(random, "f16, bf16, e4m3", (32, 64), (40, 48), (96, 128))
    _, n, k = p.shape
    row = np.arange(k)[:, None]
    return p.ran(p.how(p.a, flat(p.b.ravel(), row // 32 * 32 + row % 32 * n + np.arange(n))))


@wrong(
    "fragments", "TiledTensor/TiledCUDA#60", B, r"8 ?x ?8|matri|quarter|ldmatrix|register|block", EXCHANGED, half=(B,)
)
def matrices_of_b_in_the_other_order(random: Random) -> Run:
    """ldmatrix.x4 of B goes over the columns first: the 8 x 8 matrices 1 and 2 of every 16 x 16 are exchanged."""
    p = draw(random, "f16, bf16", (32, 64), (32, 48), (32, 64))
    k, n = np.arange(p.shape[2])[:, None], np.arange(p.shape[1])[None]
    upper, beside = k % 16 >= 8, n % 16 >= 8
    shift = np.where(upper & ~beside, 1, np.where(~upper & beside, -1, 0)) * 8
    return p.ran(p.how(p.a, p.b[k - shift, n + shift]))


@wrong(
    "fragments",
    "Ph0rk0z/SageAttention2#10",
    A,
    r"a1|a\[1\]|a2|registers? (?:a )?1|1 and 2|\b1, ?2\b",
    EXCHANGED,
    half=(A,),
)
def registers_one_and_two_of_a(random: Random) -> Run:
    """Registers 1 and 2 of A are exchanged: rows 8-15 of the first half of K and rows 0-7 of the second."""
    p = draw(random, "s8, f16, bf16", (16, 32), (16, 24), (64, 96))
    half = 16 if p.how.a == "s8" else 8
    row, k = np.arange(p.shape[0])[:, None], np.arange(p.shape[2])[None]
    low, late = row % 16 >= 8, k % (2 * half) >= half
    turn = np.where(low & ~late, 1, np.where(~low & late, -1, 0))
    return p.ran(p.how(p.a[row - 8 * turn, k + half * turn], p.b))


@wrong(
    "fragments",
    "triton-lang/triton#7899",
    A,
    r"byte|pairs?|4th|of (?:every |each )?(?:4|four)|1 and 2|within|\bk\b",
    EXCHANGED,
    half=(A, KTILE),
)
def bytes_of_a_register_permuted(random: Random) -> Run:
    """Bytes 1 and 2 of every register of A are exchanged, so elements 1 and 2 of every four of K."""
    p = draw(random, "e4m3, e5m2, wgmma e4m3", (32, 64), (16, 32), (64, 96))
    k = np.arange(p.shape[2]).reshape(-1, 4)[:, [0, 2, 1, 3]].ravel()
    return p.ran(p.how(p.a[:, k], p.b))


@wrong("fragments", "textbook", A, r"lane|fragment|register|transpos|permut|order|thread", half=(A,))
def lanes_of_a_column_by_column(random: Random) -> Run:
    """Lane l loads A's element (l % 8, l / 8) of the 8 x 4 tile instead of (l / 4, l % 4)."""
    p = draw(random, "f64", (16, 24), (8, 16), (16, 20))
    row, k = np.arange(p.shape[0])[:, None], np.arange(p.shape[2])[None]
    lane = row % 8 * 4 + k % 4
    return p.ran(p.how(p.a[row // 8 * 8 + lane % 8, k // 4 * 4 + lane // 8], p.b))


@wrong("fragments", "textbook", A, r"\brows?\b|a1|a\[1\]|register", COPIED, half=(A,))
def rows_of_the_upper_matrices_again(random: Random) -> Run:
    """The lanes 8-15 and 24-31 of ldmatrix give the addresses of lanes 0-7 and 16-23: rows 8-15 of each 16 of A are rows 0-7."""
    p = draw(random, "f16, bf16, tf32", (32, 64), (16, 32), (32, 64))
    row = np.arange(p.shape[0])
    return p.ran(p.how(p.a[row // 16 * 16 + row % 8], p.b))


@wrong("fragments", "textbook", B, TRANSPOSED, r"\b16\b|fragment|tile|block", half=(B,))
def fragment_of_b_declared_row_major(random: Random) -> Run:
    """B is column-major and its wmma fragment is declared row_major: every 16 x 16 tile of it is transposed."""
    p = draw(random, "wmma", (16, 32), (32, 48), (32, 64))
    k, n = np.arange(p.shape[2])[:, None], np.arange(p.shape[1])[None]
    return p.ran(p.how(p.a, p.b[k // 16 * 16 + n % 16, n // 16 * 16 + k % 16]))


@wrong("shared", "textbook", A, r"swizzl|xor|phase", half=(A,))
def phase_of_the_swizzle_from_another_bit(random: Random) -> Run:
    """A is written with its 16-byte chunks XORed with row % 8 and read with (row / 2) % 8."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), 64)
    row, k = np.arange(p.shape[0])[:, None], np.arange(64)[None]
    chunk = k // 8 ^ row // 2 % 8 ^ row % 8
    return p.ran(p.how(p.a[row, chunk * 8 + k % 8], p.b))


# Real descriptors: two tiles of 128-byte rows in shared memory, multiplied by wgmma one step of K after another.


def stored(tile: Array, swizzled: bool = True) -> Array:
    """The bytes of rows of 128 bytes as TMA writes them with a swizzle of 128 bytes, or with none."""
    rows = np.ascontiguousarray(tile).view(np.uint8).reshape(-1, 8, 16)
    row, chunk = np.arange(len(rows))[:, None], np.arange(8)[None]
    return (rows[row, chunk ^ row % 8] if swizzled else rows).ravel()


def descriptor(address: int, **fields: Any) -> tcsim.MatrixDescriptor:
    """A tile of 128-byte rows, swizzled; some fields otherwise."""
    return tcsim.MatrixDescriptor(
        **{"start_address": address, "leading_byte_offset": 16, "stride_byte_offset": 1024, "swizzle": "128B", **fields}
    )


def multiplied(
    p: Problem, a: dict[str, Any], b: dict[str, Any], step_a: int = 32, swizzled: bool = True, **bits: int
) -> Array:
    """What wgmma makes of A (64, K) and B (K, 64) with these fields of the descriptors."""
    memory = np.zeros(65536, np.uint8)
    memory[:8192], memory[16384:24576] = stored(p.a, swizzled), stored(p.b.T, swizzled)
    instruction = tcsim.instruction(p.how.mnemonic, arch=p.how.arch)
    lanes, registers = np.arange(128)[:, None], np.arange(32)[None]
    out = np.zeros((128, 32), np.uint32)
    for step in range(4):
        at_a, at_b = descriptor(step_a * step, **a), descriptor(16384 + 32 * step, **b)
        out = instruction.execute(smem=memory, a=at_a.encode(), b=at_b.encode(), c=out, **bits)
    d = np.zeros((64, 64), np.float32)
    d[instruction.operands["d"].layout(lanes, registers, 0)] = out.view(np.float32)
    return d


WGMMA = "wgmma, wgmma bf16"


def pair(random: Random, forms: str = WGMMA) -> Problem:
    """Tiles of 128-byte rows."""
    return draw(random, forms, 64, 64, 128 if "e4m3" in forms else 64)


@wrong("shared", "textbook", B, "swizzl", half=("swizzl", B))
def descriptor_of_b_with_half_the_swizzle(random: Random) -> Run:
    """B was written with a swizzle of 128 bytes and its descriptor says 64."""
    p = pair(random)
    return p.ran(multiplied(p, {}, {"swizzle": "64B", "stride_byte_offset": 512}))


@wrong("shared", "textbook", "swizzl", rf"(?:{A})[\s\S]*(?:{B})|(?:{B})[\s\S]*(?:{A})|both", half=("swizzl",))
def tiles_written_without_the_swizzle(random: Random) -> Run:
    """Both tiles were written row by row, and both descriptors say a swizzle of 128 bytes."""
    p = pair(random)
    return p.ran(multiplied(p, {}, {}, swizzled=False))


@wrong("shared", "textbook", A, r"\bsbo\b|stride byte|stride|512|rows?", half=(A,))
def stride_of_a_halved(random: Random) -> Run:
    """The stride byte offset of A is 512, not 1024."""
    p = pair(random)
    return p.ran(multiplied(p, {"stride_byte_offset": 512}, {}))


@wrong("loop", "textbook", A, r"advance|step|\bk\b", r"32|64|twice|double|bytes|instead|not", half=(A, KTILE))
def step_of_a_of_two_byte_elements(random: Random) -> Run:
    """The descriptor of A advances by 64 bytes per step of K, not by 32: its elements have one byte."""
    p = pair(random, "wgmma e4m3")
    return p.ran(multiplied(p, {}, {}, step_a=64))


@wrong("shared", "textbook", A, TRANSPOSED + "|tnsp", half=(A,))
def transpose_bit_of_a(random: Random) -> Run:
    """A lies K-major and the instruction is told that it is MN-major."""
    p = pair(random)
    return p.ran(multiplied(p, {}, {}, trans_a=1))


@wrong("fragments", "textbook", A, r"\brows?\b|warpgroup", COPIED, half=(A,))
def second_warpgroup_reads_the_rows_of_the_first(random: Random) -> Run:
    """The descriptor of A does not depend on the warpgroup: rows 64-127 of A are rows 0-63."""
    p = draw(random, "wgmma, wgmma bf16, wgmma e4m3, wgmma tf32", 128, (32, 64), 64)
    return p.ran(p.how(p.a[np.arange(128) % 64], p.b))


@wrong("fragments", "textbook", B, r"\bcolumns?\b|\bn\b|half|cta", COPIED, half=(B,))
def both_ctas_load_the_same_half_of_b(random: Random) -> Run:
    """Both CTAs of a pair load the first half of B's columns."""
    p = draw(random, "tcgen05, tcgen05 bf16, tcgen05 e4m3", (64, 128), (32, 64), 64)
    n = p.shape[1]
    return p.ran(p.how(p.a, p.b[:, np.arange(n) % (n // 2)]))


@wrong("fragments", "textbook", KTILE, r"zero|missing|only|without|half|not ", r"\b4\b|half|4-7|of 8", half=(KTILE,))
def upper_half_of_k_not_loaded(random: Random) -> Run:
    """Registers 2 and 3 of A stay zero, as if the instruction had K = 4: elements 4-7 of every 8 of K are missing."""
    p = draw(random, "tf32", (32, 64), (16, 32), (32, 64))
    return p.ran(p.how(np.where(np.arange(p.shape[2])[None] % 8 < 4, p.a, 0).astype(p.a.dtype), p.b))


@wrong("launch", "textbook", B, r"batch|matri", COPIED + "|0", half=(B,))
def batch_stride_of_b_is_zero(random: Random) -> Run:
    """Every matrix of the batch multiplies with the first B."""
    p = draw(random, "f16, bf16, s8", 32, 16, 64, batch=3)
    return p.ran(p.how(p.a, p.b[[0, 0, 0]]))
