"""Mistakes of quantization: scales, zero points, nibbles, formats that are misread, and the metadata of a sparse A."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import tcsim
from tests.evaluation.reported_kernels.case import FORMS, Array, Problem, Random, Run, coded, draw, wrong
from tests.evaluation.reported_kernels.third_words import (
    CLIPPED,
    COLUMN,
    FACTOR,
    FIRST,
    METADATA,
    MIXED,
    OTHER,
    ROW,
    SCALE,
    SWAPPED,
    ZERO,
    A,
    B,
    D,
    K,
)


def groups(random: Random, forms: str, k: int, group: int) -> tuple[Problem, Array, Array, Array]:
    """A problem with B = (q - zero) scale of 4-bit q, and q of (K, N), zero and scale of (groups, N)."""
    p = draw(random, forms, (32, 64), (16, 32), k)
    n = p.shape[1]
    q, zero = random.integers(0, 16, (k, n)), random.integers(3, 13, (k // group, n))
    scale = random.choice([1.0, 1.25, 1.5, 1.75], (k // group, n)) * 2.0 ** random.integers(-5, 0, (k // group, n))
    at = np.arange(k) // group
    return replace(p, b=coded((q - zero[at]) * scale[at], p.how.b)), q, zero, scale


def weighted(random: Random, forms: str) -> tuple[Problem, Array]:
    """A problem whose rows of A have the weights of tokens in them, powers of two; and the weights."""
    p = draw(random, forms, (32, 64), (16, 32), 64)
    weight = 2.0 ** random.integers(-4, 4, p.shape[0])
    return replace(p, a=coded(tcsim.decode(p.a, p.how.a) * weight[:, None], p.how.a)), weight


@wrong(
    "scales",
    "ROCm/rocm-libraries#7920",
    rf"{SCALE}|factor",
    rf"{K}|group|block",
    rf"fast|early|late|ahead|advanc|every|step|{OTHER}",
    half=(B,),
)
def scales_advanced_with_every_step(random: Random) -> Run:
    """A group of 64 of K shares a scale, and the kernel goes on to the next with every step of 32: B's step i has the scale of group i, and the last one from there on."""
    p, q, zero, scale = groups(random, "f16, bf16, wgmma", 256, 64)
    k = np.arange(256)
    return p.ran(p.how(p.a, coded((q - zero[k // 64]) * scale[np.minimum(k // 32, 3)], p.how.b)))


@wrong("scales", "ROCm/FlyDSL#932", rf"{SCALE}|factor", ROW, rf"16|32|chunk|{OTHER}|\b0\b|zero", half=(SCALE, ROW))
def chunk_of_scales_for_each_block_of_16(random: Random) -> Run:
    """Blocks of 16 rows own chunks of 32 scales: rows 16 to 31 have the scales of A's rows 32 to 47, and rows from 32 on read beyond them, scale 0, and are zero."""
    p = draw(random, "mx", 64, (16, 32), (64, 128))
    scale = np.zeros((128, p.extras["scale_a"].shape[1]), np.uint8)
    scale[:64] = p.extras["scale_a"]
    row = np.arange(64)
    return p.ran(p.product(scale_a=scale[row // 16 * 32 + row % 16]))


@wrong("scales", "uxlfoundation/oneDNN#4780", A, ZERO, half=(A,))
def zero_point_indexed_by_the_row(random: Random) -> Run:
    """Eight rows of A share a zero point, and row m subtracts that of index m, not m / 8, none from row {rows} on: a constant is added to each row of A."""
    p = draw(random, "s8, wgmma s8", 64, (16, 32), (64, 128))
    q, zero = random.integers(0, 64, p.a.shape), random.integers(5, 60, 8)
    right, read = np.repeat(zero, 8), np.append(zero, np.zeros(56, int))
    p = replace(p, a=coded((q - right[:, None]).astype(float), "s8"))
    return p.ran(((q - read[:, None]) @ tcsim.decode(p.b, "s8").astype(np.int64)).astype(np.int32), rows=8)


@wrong("scales", "vllm-project/vllm#16801", ROW, FACTOR, half=(ROW,))
def weights_of_rows_cast_to_float(random: Random) -> Run:
    """The bf16 weights of the rows are read as floats: row m is multiplied by the weight of row 2 m + 1, and the rows of the last half by none, zero."""
    p, weight = weighted(random, "bf16, f16, wgmma bf16")
    words = np.append(coded(weight, "bf16").astype(np.uint16), np.zeros(len(weight), np.uint16))
    read = words.view(np.float32) / weight
    return p.ran((p.product() * read[:, None]).astype(np.float32))


@wrong("scales", "vllm-project/vllm-xpu-kernels#66", ROW, FACTOR, half=(ROW,))
def weight_of_a_token_for_each_expert(random: Random) -> Run:
    """Row m is multiplied by the weight of index m / 2: the rows have the scale of another row of the upper half."""
    p, weight = weighted(random, "f16, bf16, tcgen05")
    read = weight[np.arange(len(weight)) // 2] / weight
    return p.ran((p.product() * read[:, None]).astype(np.float32))


@wrong(
    "scales",
    "tile-ai/tilelang#2477",
    B,
    r"nibble|4.?bit|two's|complement|sign|bias|offset|constant|- ?7\b|minus 7|decod|negative",
    half=(B,),
)
def signed_nibbles_decoded_with_a_bias(random: Random) -> Run:
    """The signed 4-bit weights of B are decoded as nibble - 7 instead of as two's complement: 7 is subtracted where they are positive or 0, and 9 is added where they are negative."""
    p = draw(random, "s8, wgmma s8", (32, 64), (16, 32), (64, 128))
    b = random.integers(-8, 8, p.b.shape)
    p = replace(p, b=coded(b.astype(float), "s8"))
    return p.ran(p.product(b=coded(((b & 15) - 7).astype(float), "s8")))


@wrong(
    "scales",
    "ml-explore/mlx#3762",
    SCALE,
    r"raw|byte|code|integer|linear|decode|127|exponent|format|bits",
    half=(SCALE,),
)
def bytes_of_scales_not_decoded(random: Random) -> Run:
    """The scale of B is taken as the raw byte, 120 to 130, and not as 2 to the power of the byte - 127."""
    p = draw(random, "mx, mxf4", (16, 32), (16, 32), (64, 128))
    a, b = tcsim.decode(p.a, p.how.a).astype(float), tcsim.decode(p.b, p.how.b).astype(float)
    a = a * np.repeat(2.0 ** (p.extras["scale_a"].astype(int) - 127), 32, axis=1)
    return p.ran((a @ (b * np.repeat(p.extras["scale_b"].astype(float), 32, axis=0))).astype(np.float32))


@wrong("scales", "vllm-project/vllm#43557", B, rf"{CLIPPED}|\b[346]\b", half=(B,))
def exponent_of_scales_one_too_small(random: Random) -> Run:
    """The exponent of a block of B is that of its largest element / 6, one too small: elements are twice as large and saturate at 6, so that those of 4 and 6 count as 3."""
    p = draw(random, "mxf4", (32, 64), (16, 32), (64, 128))
    b = coded(np.clip(2 * tcsim.decode(p.b, "e2m1").astype(float), -6, 6), "e2m1")
    return p.ran(p.product(b=b, scale_b=p.extras["scale_b"] - np.uint8(1)))


@wrong(
    "scales",
    "vllm-project/compressed-tensors#538",
    rf"{FACTOR}|{SCALE}|exponent|bias|{D}",
    r"\b4\b|quarter|0\.25|1/4|\b125\b|two too|2 less|by 2\b|4 times|2\^-?2|2\*\*-?2",
    half=(FACTOR,),
)
def exponents_of_scales_with_bias_125(random: Random) -> Run:
    """The scales of B are stored with a bias of 125 and read with 127: they are 4 times too small, and the output is a quarter of the product."""
    p = draw(random, "mxf4, mx, tcgen05 mx", 128, (16, 32), (64, 128))
    return p.ran(p.product(scale_b=p.extras["scale_b"] - np.uint8(2)))


@wrong("scales", "microsoft/onnxruntime#24546", B, ZERO, half=(B,))
def zero_points_of_an_odd_number_of_groups(random: Random) -> Run:
    """The zero points of a column, three groups of K, are padded to four, and the padding is forgotten: columns of B subtract those of other groups, so a constant is added to each group and column of B."""
    p, q, zero, scale = groups(random, "f16, bf16, wgmma bf16", 96, 32)
    n = p.shape[1]
    memory = np.zeros((n, 4), int)
    memory[:, :3] = zero.T
    read = memory.reshape(-1)[: 3 * n].reshape(n, 3).T
    k = np.arange(96) // 32
    return p.ran(p.how(p.a, coded((q - read[k]) * scale[k], p.how.b)))


@wrong(
    "scales",
    "flashinfer-ai/flashinfer#5173",
    rf"{FACTOR}|alpha",
    r"\b{factor}\b|constant|global|uniform",
    half=(FACTOR,),
)
def alpha_without_the_global_scale(random: Random) -> Run:
    """The alpha into which the global scale of A was folded is not the one that is passed: every output is {factor} times too large."""
    p = draw(random, "nvf4, tcgen05 e4m3, mxf4", 128, (16, 32), (64, 128))
    factor = float(random.choice([6.0, 12.0, 28.0, 448.0]))
    return p.ran((p.product() * np.float32(factor)).astype(np.float32), factor=factor)


@wrong("scales", "vllm-project/vllm#20578", A, rf"{CLIPPED}|minimum|negative", half=(A,))
def scale_from_the_maximum_without_the_sign(random: Random) -> Run:
    """The scale is from the maximum of A, not of its magnitude: negative elements of A below minus the maximum are clipped to it."""
    p = draw(random, "e4m3, wgmma e4m3, tcgen05 e4m3", (64, 128), (16, 32), 64)
    a = np.minimum(random.standard_normal(p.a.shape) - 0.75, 0.5)
    p = replace(p, a=coded(a, "e4m3"))
    return p.ran(p.product(a=coded(np.maximum(a, -0.5), "e4m3")))


@wrong("scales", "tile-ai/tilelang-metax#140", A, rf"{CLIPPED}|256|448|binade|exponent|top", half=(A,))
def top_binade_of_e4m3_saturates(random: Random) -> Run:
    """The conversion of A to e4m3 saturates at the exponent field 15 already: every element of A of magnitude 256 or more is 448."""
    p = draw(random, "e4m3, wgmma e4m3", (64, 128), (16, 32), 64)
    a = coded(random.standard_normal(p.a.shape) * 200, "e4m3")
    return replace(p, a=a).ran(p.product(a=np.where(a & 0x7F >= 0x78, a & 0x80 | 0x7E, a).astype(a.dtype)))


@wrong(
    "scales",
    "vllm-project/llm-compressor#3038",
    rf"{SCALE}|factor",
    rf"group|order|index|g_idx|permut|{K}|row of b",
    half=(rf"{SCALE}|factor|{B}",),
)
def group_index_not_saved(random: Random) -> Run:
    """The weights are in groups by activation order, and the index of groups is lost: element k of B has the scale of group k / 32 and not of its own group."""
    p, q, _, scale = groups(random, "f16, bf16, tf32", 128, 32)
    own = random.permutation(128) // 32
    p = replace(p, b=coded((q - 8) * scale[own], p.how.b))
    return p.ran(p.how(p.a, coded((q - 8) * scale[np.arange(128) // 32], p.how.b)))


@wrong("scales", "textbook", SCALE, B, rf"{K}|group|block", rf"32|half|pair|{OTHER}", half=(SCALE,))
def scales_of_16_used_for_32(random: Random) -> Run:
    """The scale of B for 16 elements of K is used for 32, as with mxf4: each odd block of 16 has the scale of the block before it."""
    p = draw(random, "nvf4", (16, 32), (16, 32), (64, 128))
    scale = p.extras["scale_b"]
    return p.ran(p.product(scale_b=scale[np.arange(len(scale)) // 2 * 2]))


@wrong("scales", "textbook", SCALE, rf"{FIRST}|every|all|advance|repeat|never|mod", half=(SCALE,))
def scale_id_stays_zero(random: Random) -> Run:
    """The scale id of the instruction stays 0: all blocks of K have the scale of A's first block."""
    p = draw(random, "tcgen05 mx, mx", 128, (16, 32), 128)
    return p.ran(p.product(scale_a=np.repeat(p.extras["scale_a"][:, :1], 4, axis=1)))


@wrong("scales", "textbook", SCALE, ROW, rf"{MIXED}|linear|layout|swizzl|{OTHER}", half=(SCALE,))
def scales_left_in_rows(random: Random) -> Run:
    """The scales of A lie row after row where the tile of 32 x 4 x 4 bytes is expected: row m has the scales of row 4 (m mod 32) + m / 32, permuted."""
    p = draw(random, "tcgen05 mx, mx", 128, (16, 32), 128)
    row = np.arange(128)
    return p.ran(p.product(scale_a=p.extras["scale_a"][row % 32 * 4 + row // 32]))


@wrong("scales", "textbook", METADATA, r"half|16|first|\bk\b|group|word|lane|thread|selector", half=(METADATA,))
def metadata_of_the_first_half_for_both(random: Random) -> Run:
    """Each lane passes the metadata of the first 16 of 32 along K twice: the second half of K of every step uses the positions of the first."""
    p = draw(random, "sparse", (32, 64), (16, 32), (64, 128))
    at = np.arange(p.a.shape[1])
    return p.ran(p.product(metadata=p.extras["metadata"][:, at // 16 * 16 + at % 8]))


@wrong("scales", "textbook", METADATA, ROW, rf"{SWAPPED}|{OTHER}|\b8\b", half=(METADATA,))
def metadata_of_rows_eight_apart_exchanged(random: Random) -> Run:
    """The halves of the words of metadata are exchanged: rows r and r + 8 of A have each other's positions."""
    p = draw(random, "sparse", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product(metadata=p.extras["metadata"][np.arange(p.a.shape[0]) ^ 8]))


@wrong("scales", "textbook", METADATA, rf"{SWAPPED}|order", half=(METADATA,))
def kept_pairs_in_the_wrong_order(random: Random) -> Run:
    """The two kept elements of every group of A are exchanged, while the metadata is in ascending order: each has the position of the other."""
    p = draw(random, "sparse, sparse s8", (32, 64), (16, 32), 128)
    return p.ran(p.product(a=p.a[:, np.arange(p.a.shape[1]) ^ 1]))


@wrong("scales", "textbook", B, r"1024|constant|bias|magic|added|offset|zero.?point|\+", half=(B,))
def magic_number_not_subtracted(random: Random) -> Run:
    """The 4-bit weights are put into the fraction of the f16 1024, which is not subtracted: 1024 times the scale, a constant of each column and group of B, is added."""
    p, q, zero, scale = groups(random, "f16, wgmma, wmma", 128, 64)
    k, scale = np.arange(128) // 64, 2.0 ** np.floor(np.log2(scale))
    b, wrongly = (coded((q + magic - zero[k]) * scale[k], p.how.b) for magic in (0, 1024))
    return replace(p, b=b).ran(p.how(p.a, wrongly))


@wrong("scales", "textbook", B, r"unsigned|u8|sign|256|negative", half=(B,))
def signed_bytes_of_b_read_as_unsigned(random: Random) -> Run:
    """The signed bytes of B are multiplied as unsigned: 256 is added where B is negative."""
    p = draw(random, "s8, wgmma s8", (32, 64), (16, 32), (64, 128))
    return p.ran((tcsim.decode(p.a, "s8").astype(np.int64) @ p.b.astype(np.int64)).astype(np.int32))


@wrong("scales", "textbook", A, r"e5m2|format|misread|interpret|exponent", half=(A,))
def e4m3_of_a_read_as_e5m2(random: Random) -> Run:
    """The instruction is that for e5m2: the codes of A, which are e4m3, are read as e5m2."""
    p = draw(random, "e4m3", (32, 64), (16, 32), (64, 128))
    return p.ran(FORMS["e5m2"](p.a, p.b))


@wrong("scales", "textbook", COLUMN, FACTOR, rf"{OTHER}|local|index|\b32\b|tile", half=(COLUMN,))
def scales_of_columns_by_the_local_index(random: Random) -> Run:
    """The scales of B's columns are indexed inside the tile of 32: column n has the scale of column n mod 32."""
    p = draw(random, "f16, bf16, wgmma", (32, 64), (64, 128), 64)
    scale = 2.0 ** random.integers(-4, 4, p.shape[1])
    b = tcsim.decode(p.b, p.how.b).astype(float)
    p = replace(p, b=coded(b * scale, p.how.b))
    return p.ran(p.product(b=coded(b * scale[np.arange(len(scale)) % 32], p.how.b)))


@wrong("scales", "textbook", B, rf"{SWAPPED}|nibble|neighbo", half=(B,))
def nibbles_of_b_exchanged(random: Random) -> Run:
    """The high and the low nibble of B's bytes are exchanged: elements 2 i and 2 i + 1 along K are swapped."""
    p = draw(random, "mxf4, nvf4", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product(b=p.b[np.arange(p.shape[2]) ^ 1]))
