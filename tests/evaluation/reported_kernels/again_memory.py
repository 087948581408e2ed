"""Mistakes of descriptors, swizzles, fragments and layouts, of formats, and of metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

import tcsim
from tests.evaluation.reported_kernels.again_words import COLUMN, MIXED, ROW, SWAPPED, A, B, K
from tests.evaluation.reported_kernels.case import FORMS, Array, Problem, Random, Run, draw, wrong

Descriptor = tcsim.MatrixDescriptor
Change = Callable[[Descriptor, int], Descriptor]
WGMMA = "wgmma, wgmma bf16"
TCGEN05 = "tcgen05, tcgen05 bf16"


def shared(p: Problem, codes: Array, major: str, swizzle: str, change: Change, read_major: str = "") -> Array:
    """What descriptors, each changed for its step, read of a tile (rows, K) of 16-bit codes; behind it lies a copy."""
    rows, k = codes.shape
    arch = "sm_100" if p.how.kind else "sm_90"
    tile = Descriptor.for_tile(rows, k, "f16", major, swizzle, arch=arch)  # type: ignore[arg-type]
    memory = np.tile(tile.image(np.ascontiguousarray(codes)), 4).view(np.uint16)
    steps = [
        memory[change(own, i).addresses(rows, 16, "f16", read_major or major) // 2]  # type: ignore[arg-type]
        for i, own in enumerate(tile.descriptors)
    ]
    return np.hstack(steps)


def with_b(p: Problem, major: str, swizzle: str, change: Change, read_major: str = "") -> Array:
    """The product when B is read through changed descriptors."""
    return p.how(
        p.a,
        np.ascontiguousarray(shared(p, p.b.T.view(np.uint16), major, swizzle, change, read_major).T).view(p.b.dtype),
    )


def with_a(p: Problem, swizzle: str, change: Change) -> Array:
    """The product when A is read through changed descriptors."""
    return p.how(shared(p, p.a.view(np.uint16), "K", swizzle, change).view(p.a.dtype), p.b)


@wrong("shared", "textbook", A, r"swizzle", r"64", half=(r"swizzle", A))
def a_read_with_half_the_swizzle(random: Random) -> Run:
    """A lies in shared memory with the 128-byte swizzle; its descriptor says 64B."""
    p = draw(random, WGMMA, 64, (32, 64), 64)
    return p.ran(with_a(p, "128B", lambda own, _: replace(own, swizzle="64B")))


@wrong(
    "shared",
    "textbook",
    B,
    r"swizzle",
    r"none|no swizzle|not swizzled|without|ignored|unswizzled|interleave",
    half=(r"swizzle", B),
)
def b_stored_without_the_swizzle_of_its_descriptor(random: Random) -> Run:
    """B is stored with no swizzle, row after row, but its descriptor says 128B."""
    p = draw(random, WGMMA + ", " + TCGEN05, (32, 64), 64, 64)
    n = np.arange(64)[:, None]
    at = (np.arange(64)[None] // 8 ^ n % 8) * 8 + np.arange(64)[None] % 8
    return p.ran(p.how(p.a, p.b[at.T, n.T]))


@wrong("shared", "textbook", B, r"sbo|stride", r"512", half=(r"sbo|stride", B))
def sbo_of_b_is_half(random: Random) -> Run:
    """B's descriptor has SBO 512 where groups of 8 rows are 1024 bytes apart (128B swizzle)."""
    p = draw(random, WGMMA, 64, 64, 64)
    return p.ran(with_b(p, "K", "128B", lambda own, _: replace(own, stride_byte_offset=512)))


@wrong("shared", "textbook", B, K, r"advanc|step|start", r"\b64\b|twice|double|\b2\b|two", half=(B, K))
def b_advances_twice_as_far(random: Random) -> Run:
    """B's start address advances by 64 bytes a K step in place of 32: the step is doubled."""
    p = draw(random, WGMMA, 64, (32, 64), 64)
    return p.ran(with_b(p, "K", "128B", lambda own, step: replace(own, start_address=64 * step)))


@wrong("shared", "textbook", B, r"lbo|leading", r"sbo|stride", SWAPPED, half=(r"lbo|sbo", B))
def lbo_and_sbo_of_an_mn_major_b_exchanged(random: Random) -> Run:
    """B is MN-major with the 64-byte swizzle; LBO and SBO of its descriptor are exchanged."""
    p = draw(random, TCGEN05, (32, 64), 64, 64)
    return p.ran(with_b(p, "MN", "64B", lambda own, _: replace(
        own, leading_byte_offset=own.stride_byte_offset, stride_byte_offset=own.leading_byte_offset)))  # fmt: skip


@wrong("shared", "textbook", B, r"major|transpos|tnsp|trans_b", half=(B,))
def b_said_to_be_mn_major(random: Random) -> Run:
    """B is K-major and the instruction takes it for MN-major: it is transposed within what a descriptor reads."""
    p = draw(random, WGMMA, 64, 64, 64)
    return p.ran(with_b(p, "K", "128B", lambda own, step: replace(
        own, start_address=2048 * step, leading_byte_offset=8192, stride_byte_offset=1024), "MN"))  # fmt: skip


@wrong(
    "shared",
    "flagos-ai/FlagTree#1075",
    rf"{A}|{B}",
    K,
    r"swizzle|xor|chunk|exchang|swap|\b32\b|phase",
    r"odd|second|stage|every other|\b{tile}\b|alternat|16 bytes|64|base.?offset",
    half=(A, K),
)
def swizzle_phase_of_the_second_stage(random: Random) -> Run:
    """The swizzle is applied before the offset of the stage is added: in odd tiles of {tile} of K, chunk c of a row of A is read for chunk c xor 4, so the halves of 32 are exchanged."""
    p = draw(random, "f16, bf16, wgmma", (32, 64), (32, 64), (128, 192))
    at = np.arange(p.shape[2])
    return p.ran(p.how(p.a[:, np.where(at // 64 % 2 == 1, at ^ 32, at)], p.b), tile=64)


def quadrants(codes: Array, rows: int, k: int) -> Array:
    """Codes with the upper right and the lower left quadrant of each block of 2 rows x 2 k exchanged."""
    blocks = codes.reshape(codes.shape[0] // (2 * rows), 2, rows, codes.shape[1] // (2 * k), 2, k)
    return np.ascontiguousarray(blocks.transpose(0, 4, 2, 3, 1, 5)).reshape(codes.shape)


@wrong(
    "fragments",
    "openxla/triton#17",
    A,
    r"registers?|quadrant|8 ?x ?8|matri(x|ces)|fragment|rows? 8|k 8",
    SWAPPED,
    half=(A,),
)
def registers_of_a_in_the_order_of_k(random: Random) -> Run:
    """A of wgmma comes from registers in the order of K: registers 1 and 2 of A are exchanged."""
    p = draw(random, WGMMA, 64, (32, 64), (32, 64))
    return p.ran(p.how(quadrants(p.a, 8, 8), p.b))


@wrong(
    "fragments",
    "triton-lang/triton#4979",
    rf"{A}|{B}",
    r"registers?|\bk\b|half|halves",
    SWAPPED,
    r"8|0 and 1|1 and 0|half|halves",
    half=(B,),
)
def registers_of_b_exchanged(random: Random) -> Run:
    """Registers 0 and 1 of B are exchanged: K 0-7 and K 8-15 of each instruction."""
    p = draw(random, "f16, bf16", (32, 64), (32, 64), (32, 64))
    return p.ran(p.how(p.a, p.b[np.arange(p.shape[2]) ^ 8]))


@wrong(
    "fragments",
    "triton-lang/triton#3483",
    rf"{A}|{B}",
    K,
    rf"{MIXED}|4 ?(x|by) ?4|wide|vector|consecutive",
    half=(A, K),
)
def wide_loads_taken_for_ldmatrix(random: Random) -> Run:
    """A lane loads 4 consecutive elements along K of A and takes them for those of ldmatrix: within 16 of K, element t + 4 j is element 4 t + j, a transposed 4 x 4."""
    p = draw(random, "tf32", (32, 64), (32, 64), (32, 64))
    at = np.arange(p.shape[2]).reshape(-1, 4, 4).transpose(0, 2, 1).ravel()
    return p.ran(p.how(p.a[:, at], p.b))


@wrong(
    "fragments",
    "textbook",
    B,
    r"transpos|\.trans|trans\b",
    r"8 ?(x|by) ?8|ldmatrix|block|matri(x|ces)|fragment|tile",
    half=(B,),
)
def ldmatrix_of_b_without_trans(random: Random) -> Run:
    """ldmatrix of B lacks .trans: each 8 x 8 matrix of B is transposed."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), (32, 64))
    k, n = p.b.shape
    blocks = p.b.reshape(k // 8, 8, n // 8, 8).transpose(0, 3, 2, 1)
    return p.ran(p.how(p.a, np.ascontiguousarray(blocks).reshape(k, n)))


@wrong(
    "fragments",
    "textbook",
    r"\bd\b|output|result|accumul",
    r"registers?|columns?|neighbo|pair",
    SWAPPED,
    r"0 and 1|1 and 0|2 and 3|odd|even|neighbo|adjacent|pair|xor 1|every two|each two|2 ?\w ?\+ ?1",
    half=(COLUMN,),
)
def registers_of_d_exchanged_in_pairs(random: Random) -> Run:
    """The two registers of each pair of D are stored in the wrong order: neighbouring columns, even and odd, are exchanged."""
    p = draw(random, "f64, f16, s8", (32, 64), (16, 32), (32, 64))
    return p.ran(np.ascontiguousarray(p.product()[:, np.arange(p.shape[1]) ^ 1]))


@wrong("fragments", "textbook", A, r"registers?|rows?", SWAPPED, r"\b8\b|0 and 1|1 and 0|halves", half=(A,))
def halves_of_a_exchanged(random: Random) -> Run:
    """Rows r and r + 8 of each 16 of A are exchanged (registers 0 and 1, 2 and 3), and D is stored as it should be."""
    p = draw(random, "s8, e4m3, tf32", (32, 64), (16, 32), (64, 128))
    return p.ran(p.how(p.a[np.arange(p.shape[0]) ^ 8], p.b))


@wrong(
    "fragments",
    "textbook",
    r"\bd\b|output|result|accumul|store",
    r"transpos|col_?major|column.major|mem_col",
    r"16|tile|block|fragment|wmma|each",
    half=(r"transpos|major",),
)
def fragments_stored_column_major(random: Random) -> Run:
    """store_matrix_sync with mem_col_major: each 16 x 16 tile of D is transposed."""
    p = draw(random, "wmma", (32, 64), (32, 64), (32, 64))
    m, n, _ = p.shape
    tiles = p.product().reshape(m // 16, 16, n // 16, 16).transpose(0, 3, 2, 1)
    return p.ran(np.ascontiguousarray(tiles).reshape(m, n))


@wrong("load", "ROCm/TransformerEngine#569", A, r"transpos|major|order in memory", half=(A,))
def transposed_data_without_the_flag(random: Random) -> Run:
    """The data of A is the transposed copy and the flag still says that it is not: A is transposed."""
    size = int(random.choice([32, 64]))
    p = draw(random, "e4m3, mx, bf16", size, (16, 32), size)
    return p.ran(p.product(a=np.ascontiguousarray(p.a.T)))


@wrong("load", "textbook", B, r"pitch|strid|leading|ld[ab]?\b|major|transpos|reshap|flat|row.length", half=(B,))
def b_read_with_the_wrong_major(random: Random) -> Run:
    """B is stored column by column and read row by row with a pitch of N: a reshape without a transposition."""
    p = draw(random, "f16, bf16, tf32, wmma", (32, 64), (16, 32), (64, 96))
    k, n = p.b.shape
    return p.ran(p.how(p.a, np.ascontiguousarray(p.b.T).reshape(k, n)))


@wrong("load", "textbook", A, ROW, r"\+ ?1|next|shift|below|one row|by (1|one)\b|\b1 row|off by", half=(A, ROW))
def a_begins_a_row_too_late(random: Random) -> Run:
    """The pointer of A begins one row too late: row r reads row r + 1, and the last reads zeros."""
    p = draw(random, "f16, bf16, e4m3, s8, wgmma", (48, 64), (16, 32), (64, 96))
    a = np.zeros_like(p.a)
    a[:-1] = p.a[1:]
    return p.ran(p.how(a, p.b))


@wrong("load", "microsoft/BitNet#600", rf"{A}|{B}", K, rf"{MIXED}|4 ?(x|by) ?32|32 ?(x|by) ?4", half=(B, K))
def packed_weights_unpacked_in_another_order(random: Random) -> Run:
    """The four codes of a byte are taken for neighbours along K of B, and they are 32 apart: within 128 of K, element 4 j + i is element j + 32 i, a transposed 4 x 32."""
    p = draw(random, "s8, f16", (32, 64), (16, 32), (128, 256))
    at = np.arange(p.shape[2]).reshape(-1, 4, 32).transpose(0, 2, 1).ravel()
    return p.ran(p.how(p.a, p.b[at]))


@wrong(
    "formats",
    "uccl-project/uccl#804",
    r"half (as|of (the|what)|the (value|size|magnitude))|halved|0\.5|1/2|2\^-1|2\*\*-1|fnuz|exponent bias|(by|of) (a )?half",
    half=(A,),
)
def a_read_as_fnuz(random: Random) -> Run:
    """The bytes of A are e4m3fn and are read as e4m3fnuz, whose exponent bias is one more: everything is half as large."""
    p = draw(random, "e4m3, wgmma e4m3, tcgen05 e4m3", (32, 64), (16, 32), (64, 128))
    a = np.where(p.a == 0x80, 0, p.a)
    p = replace(p, a=a)
    return p.ran(p.product() * np.float32(0.5))


@wrong("formats", "textbook", r"bf16|bfloat", r"(?<!b)f16|half", half=(r"format|read as|taken",))
def bfloats_taken_for_halves(random: Random) -> Run:
    """The codes of A and B are bf16 and the instruction takes them for f16."""
    p = draw(random, "bf16, wgmma bf16", (32, 64), (32, 64), (32, 64))
    return p.ran(FORMS["f16" if p.how is FORMS["bf16"] else "wgmma"](p.a, p.b))


@wrong("formats", "textbook", A, r"e4m3", r"e5m2", half=(A, r"e4m3|e5m2|format"))
def a_taken_for_e4m3(random: Random) -> Run:
    """The bytes of A are e5m2 and are read as e4m3."""
    p = draw(random, "e5m2", (32, 64), (16, 32), (64, 128))
    return p.ran(FORMS["e4m3"](np.where(p.a & 0x7F == 0x7F, 0, p.a), p.b))


@wrong("formats", "textbook", B, r"unsigned|\bu8\b|\bsign(ed)?\b", half=(B,))
def signed_bytes_of_b_taken_for_unsigned(random: Random) -> Run:
    """The bytes of B are signed and are read as unsigned."""
    p = draw(random, "s8, wgmma s8", (32, 64), (16, 32), (64, 128))
    product = tcsim.decode(p.a, "s8").astype(np.int64) @ (p.b.view(np.uint8).astype(np.int64))
    return p.ran(product.astype(np.int32))


@wrong(
    "formats",
    "textbook",
    rf"{A}|{B}",
    r"nibble|neighbo|adjacent|pair|odd|even|xor 1|2 ?\w ?\+ ?1|half.?byte|4 bits|0 and 1",
    SWAPPED,
    half=(A, K),
)
def nibbles_of_a_exchanged(random: Random) -> Run:
    """The two nibbles of each byte of A are exchanged: even and odd elements along K."""
    p = draw(random, "mxf4, nvf4", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product(a=p.a[:, np.arange(p.a.shape[1]) ^ 1]))


@wrong(
    "sparse",
    "textbook",
    r"metadata|position|index|indices|selector",
    ROW,
    r"\b8\b|halves|lanes?|quad|group",
    half=(r"metadata|position|indices",),
)
def metadata_of_the_other_half_of_the_rows(random: Random) -> Run:
    """The metadata of rows r and r + 8 are exchanged."""
    p = draw(random, "sparse, sparse s8", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product(metadata=p.extras["metadata"][np.arange(p.shape[0]) ^ 8]))


@wrong(
    "sparse",
    "textbook",
    r"metadata|position|index|indices",
    r"first two|0 and 1|ignor|constant|0x4|not (read|used|loaded)|\b44|same|all",
    half=(r"metadata|position|indices",),
)
def metadata_not_read(random: Random) -> Run:
    """The metadata is not loaded: the kept elements are multiplied as if they were the first two of four, 0 and 1."""
    p = draw(random, "sparse", (32, 64), (16, 32), (64, 128))
    positions = p.extras["metadata"]
    return p.ran(
        p.product(metadata=np.broadcast_to(np.arange(positions.shape[1]) % 2, positions.shape).astype(positions.dtype))
    )
