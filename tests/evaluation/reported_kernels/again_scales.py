"""Mistakes of quantized weights with groups and zero points, and of block scales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import tcsim
from tests.evaluation.reported_kernels.again_words import MIXED, ROW, SCALE, SWAPPED, TWICE, A, B, K
from tests.evaluation.reported_kernels.case import Array, Problem, Random, Run, coded, draw, wrong

ZERO = r"zero.?points?|constant|added to|subtract|\b[ab] ?[+-] ?\d"


def weights(random: Random, forms: str, group: int) -> tuple[Problem, Array, Array, Array]:
    """A problem whose B is (q - zero) scale of 4-bit weights in groups along K; and q, zero and scale, each (K, N)."""
    p = draw(random, forms, (32, 64), (16, 32), (128, 192))
    k, n = p.b.shape
    q = random.integers(0, 16, (k, n))
    zero, exponent, step = (
        np.repeat(random.integers(lo, hi, (k // group, n)), group, axis=0) for lo, hi in ((4, 12), (-6, -2), (4, 8))
    )
    scale = step / 4 * 2.0**exponent
    return replace(p, b=coded((q - zero) * scale, p.how.b)), q, zero, scale


@wrong("scales", "vllm-project/vllm#21066", B, ZERO, half=(B,))
def zero_points_of_a_symmetric_model_subtracted(random: Random) -> Run:
    """The weights are symmetric, and the kernel subtracts the zero points that lie beside them all the same, 8 once more: a constant of each group and column of B, 8 times its scale."""
    p, q, _, scale = weights(random, "f16", 32)
    p = replace(p, b=coded((q - 8) * scale, p.how.b))
    return p.ran(p.how(p.a, coded((q - 16) * scale, p.how.b)))


@wrong("scales", "textbook", B, ZERO, half=(B,))
def zero_point_one_too_large(random: Random) -> Run:
    """The zero point is stored less one, and the kernel does not know: B is larger by one scale, a constant of its group and column."""
    p, q, zero, scale = weights(random, "f16, bf16, wgmma", 64)
    return p.ran(p.how(p.a, coded((q - zero + 1) * scale, p.how.b)))


@wrong("scales", "ARM-software/ComputeLibrary#1033", A, rf"{ZERO}|\b{{twice}}\b", half=(A,))
def zero_point_added(random: Random) -> Run:
    """The zero point of A is added where it should be subtracted: A is larger by the constant {twice}, twice the zero point."""
    p = draw(random, "s8", (32, 64), (16, 32), (64, 128))
    zero = int(random.choice([3, 5, 12, 20]))
    a, b = (tcsim.decode(codes, "s8").astype(np.int64) for codes in (p.a, p.b))
    return p.ran(((a + 2 * zero) @ b).astype(np.int32), twice=2 * zero)


@wrong(
    "scales",
    "gittensor-ai-lab/sparkinfer#761",
    B,
    r"borrow|carr(y|ies)|neighbo|decrement|one (less|lower|smaller|too)|minus (1|one)|- ?1\b|off by one",
    half=(B,),
)
def unpacking_borrows_from_the_next_byte(random: Random) -> Run:
    """Four weights are sign-extended by one 32-bit subtraction: a negative one borrows from its neighbour, the next of four along K of B, which becomes one too small."""
    p = draw(random, "s8", (32, 64), (16, 32), (64, 128))
    b = random.integers(-7, 8, p.b.shape)
    lanes = ((b & 15) ^ 8).astype(np.uint32).reshape(-1, 4, b.shape[1])
    words = sum(lanes[:, i] << np.uint32(8 * i) for i in range(4)) - np.uint32(0x08080808)
    read = np.stack([(words >> np.uint32(8 * i)).astype(np.uint8) for i in range(4)], axis=1).reshape(b.shape)
    p = replace(p, b=coded(b.astype(float), "s8"))
    return p.ran(p.how(p.a, read.view(p.b.dtype)))


@wrong(
    "scales",
    "bitsandbytes-foundation/bitsandbytes#1721",
    B,
    r"\|=|or'?ed|bitwise|not cleared|leftover|bits (of|remain|kept)|(?-i:\bOR\b)",
    half=(B,),
)
def packed_byte_not_cleared(random: Random) -> Run:
    """The byte that collects two codes of B is not cleared: the second byte of each two, elements 2 and 3 of 4 along K, is the bitwise OR with the first."""
    p = draw(random, "mxf4", (32, 64), (16, 32), (64, 128))
    b = p.b.copy()
    b[2::4] |= b[::4]
    b[3::4] |= b[1::4]
    return p.ran(p.product(b=b))


@wrong(
    "scales", "textbook", B, K, rf"{SCALE}|factor|constant", r"group|\b{group}\b|block|next|previous|neighbo", half=(B,)
)
def scale_of_the_next_group(random: Random) -> Run:
    """The scale of the next group of {group} along K is applied to B; the last group keeps its own."""
    p, q, zero, scale = weights(random, "f16, wgmma", 32)
    moved = np.vstack([scale[32:], scale[-32:]])
    return p.ran(p.how(p.a, coded((q - zero) * moved, p.how.b)), group=32)


@wrong(
    "scales",
    "NVIDIA/cutlass#3596",
    SCALE,
    r"64|rows? \b{first}\b",
    rf"{TWICE}|product|also|multipl|previous|preceding|squar|rows 0|0-63|0 to 63|factor",
    half=(SCALE, ROW),
)
def scale_of_the_wave_before_applied_again(random: Random) -> Run:
    """The scales of B are multiplied by those of A in place: in the second wave, rows {first} to 127, the scales of A of rows 0 to 63 are applied also."""
    p = draw(random, "mx, tcgen05 mx", 128, (16, 32), (64, 128))
    first, second = (random.integers(122, 133, p.extras["scale_a"].shape[1]).astype(np.uint8) for _ in "ab")
    first[first == 127] = 129
    p = replace(p, extras={**p.extras, "scale_a": np.repeat([first, second], 64, axis=0)})
    both = (first.astype(int) + second - 127).astype(np.uint8)
    return p.ran(p.product(scale_a=np.repeat([first, both], 64, axis=0)), first=64)


@wrong("scales", "ROCm/composable_kernel#3765", SCALE, ROW, r"column|next|neighbo|\+|later|mod|lane", half=(SCALE,))
def scale_of_a_neighbouring_row(random: Random) -> Run:
    """The scale of row m is gathered at the index of the output: column n has the scale of A of row m + n mod 4, a neighbouring row's."""
    p = draw(random, "mx", (32, 64), (16, 32), 32)
    m, n, _ = p.shape
    each = [p.product(scale_a=np.roll(p.extras["scale_a"], -i, axis=0)) for i in range(4)]
    return p.ran(np.stack([each[j % 4][:, j] for j in range(n)], axis=1))


@wrong(
    "scales",
    "ROCm/rocm-libraries#12232",
    r"scale_a|scales? of a|\ba's scale",
    r"strid|pitch|pad|\b64\b|row length|layout|address",
    half=(SCALE,),
)
def scales_with_the_stride_of_unpadded_rows(random: Random) -> Run:
    """The scales of A are stored K block after K block with a stride of {rows} rows and read with the padded stride 64; beyond the end they are 1."""
    p = draw(random, "mx", 48, (16, 32), (128, 256))
    scales = p.extras["scale_a"]
    m, blocks = scales.shape
    memory = np.full(64 * blocks, 127, np.uint8)
    memory[: m * blocks] = scales.T.ravel()
    return p.ran(p.product(scale_a=np.ascontiguousarray(memory.reshape(blocks, 64)[:, :m].T)), rows=m)


@wrong(
    "scales", "huggingface/transformers#47030", SCALE, r"powers? of (two|2)|round|mantissa|exponent|ceil", half=(SCALE,)
)
def scales_rounded_up_to_powers_of_two(random: Random) -> Run:
    """The scales are rounded up to powers of two, and the elements are not quantized again."""
    p = draw(random, "nvf4", (32, 64), (16, 32), (64, 128))
    up = {name: tcsim.encode(2.0 ** np.ceil(np.log2(tcsim.decode(codes, "ue4m3").astype(float))), "ue4m3")
          for name, codes in p.extras.items()}  # fmt: skip
    return p.ran(p.product(**up))


@wrong(
    "scales",
    "ByteDance-Seed/Triton-distributed#133",
    SCALE,
    ROW,
    r"strid|/ ?2|//|half|\b2\b|two|multipl|pitch|top.?k|index",
    half=(SCALE,),
)
def row_of_the_scale_not_multiplied(random: Random) -> Run:
    """The row of the scale of A is not multiplied by the two experts of a token: row 2 m + j has the scale of row m + j."""
    p = draw(random, "mx", (32, 64), (16, 32), (32, 64))
    r = np.arange(p.shape[0])
    return p.ran(p.product(scale_a=p.extras["scale_a"][r // 2 + r % 2]))


@wrong(
    "scales",
    "triton-lang/triton#11635",
    SCALE,
    r"128|\b{rows}\b|row",
    rf"{K}|\b4\b|block|word",
    r"0-127|0 to 127|first|other|rows? 0|-128|- 128|mod|\b{rows}\b",
    half=(SCALE,),
)
def strides_of_a_slice_taken_for_compact(random: Random) -> Run:
    """A slice of the scales of A in Tensor Memory is read with the strides of a compact one: rows {rows} to 255 have, in the second word of 4 K blocks, the scales of rows 0 to 127."""
    p = draw(random, "tcgen05 mx", 256, 16, 256)
    scales = p.extras["scale_a"].copy()
    scales[128:, 4:] = scales[:128, 4:]
    return p.ran(p.product(scale_a=scales), rows=128)


@wrong(
    "scales",
    "tile-ai/tilelang#2644",
    SCALE,
    rf"{K}|block|word",
    r"mod|repeat|again|first|same|\b{first}\b|128|four|4|not advanc|\b0\b",
    half=(SCALE,),
)
def scale_ids_wrap_at_four(random: Random) -> Run:
    """The ids of scales wrap at 4: K blocks {first} and on have the scales of the first four blocks again, of A and B."""
    p = draw(random, "tcgen05 mx, mx", (32, 64), (16, 32), (192, 256))
    at = np.arange(p.shape[2] // 32) % 4
    return p.ran(p.product(scale_a=p.extras["scale_a"][:, at], scale_b=p.extras["scale_b"][at]), first=4)


@wrong(
    "scales", "textbook", SCALE, r"\b32\b|\btwo\b|every (other|second)|pair|half|/ ?2|double|repeat|//", half=(SCALE,)
)
def blocks_of_sixteen_taken_for_thirty_two(random: Random) -> Run:
    """The scales of A are one for 16 and are indexed as one for 32: each two K blocks have the scale of block k / 32, so half of them are never used."""
    p = draw(random, "nvf4", (32, 64), (16, 32), (128, 192))
    at = np.arange(p.shape[2] // 16) // 2
    return p.ran(p.product(scale_a=p.extras["scale_a"][:, at]))


@wrong("scales", "textbook", SCALE, SWAPPED, half=(SCALE,))
def pointers_of_scales_exchanged(random: Random) -> Run:
    """The pointers of the scales of A and of B are exchanged."""
    p = draw(random, "mx, nvf4, mxf4", 32, 32, (64, 128))
    a, b = p.extras["scale_a"], p.extras["scale_b"]
    return p.ran(p.product(scale_a=b.T.copy(), scale_b=a.T.copy()))


@wrong(
    "scales",
    "textbook",
    r"scale_b|scales? of b",
    r"ignor|(is|are|were|as) (1|one)\b|= ?1\b|not (appl|read|used|multipl|load)|without|missing|left out|dropped|127",
    half=(SCALE,),
)
def scales_of_b_not_applied(random: Random) -> Run:
    """The scales of B are not applied: they are 1."""
    p = draw(random, "mx, mxf4", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product(scale_b=np.full_like(p.extras["scale_b"], 127)))


@wrong("scales", "textbook", r"scale_b|scales? of b", rf"{MIXED}|reshap|flat|major", half=(SCALE,))
def scales_of_b_read_in_the_other_order(random: Random) -> Run:
    """The scales of B are stored column after column, K blocks together, and read block after block: a reshape in place of a transposition."""
    p = draw(random, "mx, nvf4", (32, 64), (16, 32), (128, 192))
    scales = p.extras["scale_b"]
    return p.ran(p.product(scale_b=np.ascontiguousarray(scales.T).reshape(scales.shape)))


@wrong(
    "scales",
    "textbook",
    r"byte|revers|swap|order(?! in memory)|permut|exchang|endian|mirror|xor 3",
    SCALE,
    half=(SCALE,),
)
def bytes_of_a_scale_word_reversed(random: Random) -> Run:
    """The four scale bytes of a word, K blocks 0 to 3, are packed in the reverse order, of A and B."""
    p = draw(random, "mx, tcgen05 mx", (32, 64), (16, 32), (128, 256))
    at = np.arange(p.shape[2] // 32) ^ 3
    return p.ran(p.product(scale_a=p.extras["scale_a"][:, at], scale_b=p.extras["scale_b"][at]))
