"""Mistakes of scale factors, quantised numbers, formats and metadata."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import tcsim
from tests.evaluation.reported_kernels.case import Array, Random, Run, draw, wrong
from tests.evaluation.second_wrong_kernels.words import KTILE, PITCH, SAME, SWAPPED, A, B

SCALE = r"scale"
ORDER = SWAPPED + r"|order|layout|interleav|<->|each other|another|stride|index"
SCALED = "mx, tcgen05 mx, mxf4, nvf4"
METADATA = r"metadata|position|ind(?:ex|ices)|selector|\bslots?\b"


@wrong(
    "scales",
    "vllm-project/vllm#39705",
    SCALE,
    B,
    SAME + r"|first|group|previous|2 blocks|coarse|granular",
    half=(SCALE,),
)
def scale_of_the_first_group_of_a_tile(random: Random) -> Run:
    """The K tile spans two groups of B's scale factors, and the first group's is used for both."""
    p = draw(random, SCALED, (32, 64), (16, 32), (128, 256))
    at = np.arange(len(p.extras["scale_b"])) // 2 * 2
    return p.ran(p.product(scale_b=p.extras["scale_b"][at]))


@wrong("scales", "vllm-project/vllm#53680", SCALE, r"f32|float|byte|format|bits|ue8m0|code", half=(SCALE,))
def float_scales_read_as_exponents(random: Random) -> Run:
    """The scale factors of A are float32 numbers, and their bytes are read as four ue8m0 codes each."""
    p = draw(random, "mx, tcgen05 mx", (32, 64), (16, 32), (128, 256))
    values = np.asarray(tcsim.decode(p.extras["scale_a"], "ue8m0"), np.float32)
    bytes_of = np.ascontiguousarray(values).view(np.uint8)
    return p.ran(p.product(scale_a=bytes_of[:, : values.shape[1]].copy()))


@wrong("scales", "flashinfer-ai/flashinfer#3882", SCALE, A, r"128 ?x ?4|swizzl|linear|" + ORDER, half=(SCALE,))
def linear_scales_where_swizzled_ones_are_read(random: Random) -> Run:
    """The scale factors of A lie row by row, and the kernel reads them in the 128 x 4 layout."""
    p = draw(random, "mx, tcgen05 mx", 128, (16, 32), 128)
    row, block = np.arange(128)[:, None], np.arange(4)[None]
    return p.ran(p.product(scale_a=p.extras["scale_a"].ravel()[row % 32 * 16 + row // 32 * 4 + block]))


@wrong(
    "scales",
    "flashinfer-ai/flashinfer#3932",
    SCALE,
    r"subnormal|denormal|implicit|hidden|exponent 0|decod",
    half=(SCALE,),
)
def subnormal_scales_with_a_hidden_bit(random: Random) -> Run:
    """Subnormal ue4m3 scale factors of A are decoded as if they had the implicit one: 1 / 512 becomes 9 / 1024."""
    p = draw(random, "nvf4", (32, 64), (16, 32), (64, 128))
    codes = random.integers(1, 32, p.extras["scale_a"].shape).astype(p.extras["scale_a"].dtype)
    p = replace(p, extras={**p.extras, "scale_a": codes})
    one = tcsim.encode(np.ones(1), "ue4m3")[0]
    code = p.extras["scale_a"]
    factor = np.where(code < 8, (8 + code) / 1024, np.asarray(tcsim.decode(code, "ue4m3"), float))
    total: Array = np.zeros(1, np.float32)
    for i in range(code.shape[1]):
        cut = slice(16 * i, 16 * i + 16)
        ones = np.full((len(p.a), 1), one, code.dtype)
        total = (
            total
            + p.how(p.a[:, cut], p.b[cut], scale_a=ones, scale_b=p.extras["scale_b"][i : i + 1]) * factor[:, i : i + 1]
        )
    return p.ran(total.astype(np.float32))


@wrong(
    "quantised",
    "ModelCloud/GPTQModel#2350",
    r"columns?|\bn\b",
    r"\b15\b|constant|offset|zero.?point|bias|shift|minus|subtract|row sum|sum of",
    half=(B,),
)
def zero_point_of_zero_becomes_fifteen(random: Random) -> Run:
    """B's 4-bit weights have a zero point per column; where it is 0 the kernel subtracts 15."""
    p = draw(random, "s8, wgmma s8", (32, 64), (24, 32), (64, 96))
    zero = np.where(random.random(p.shape[1]) < 0.3, 0, random.integers(1, 16, p.shape[1]))
    zero[int(random.integers(0, len(zero)))] = 0
    weight = random.integers(0, 16, p.b.shape)
    p = replace(p, b=(weight - zero).astype(np.int8).view(np.uint8))
    return p.ran(p.how(p.a, (weight - np.where(zero == 0, 15, zero)).astype(np.int8).view(np.uint8)))


@wrong(
    "scales",
    "ROCm/composable_kernel#3767",
    SCALE,
    B,
    r"columns?|\bn\b",
    SAME + r"|first|\b4\b|four|group",
    half=(SCALE,),
)
def one_scale_for_the_four_columns_of_a_lane(random: Random) -> Run:
    """A lane applies one scale factor of B to its four columns, that of the first."""
    p = draw(random, SCALED, (32, 64), (16, 32), (64, 128))
    return p.ran(p.product(scale_b=p.extras["scale_b"][:, np.arange(p.shape[1]) // 4 * 4]))


@wrong("scales", "ROCm/aiter#1258", SCALE, A, SAME + r"|first|row 0|all rows|constant|one ", half=(SCALE,))
def scales_per_row_used_as_one(random: Random) -> Run:
    """The scale factors of A per row are taken for one per tensor: every row has those of row 0."""
    p = draw(random, SCALED, (32, 64), (16, 32), (64, 128))
    return p.ran(p.product(scale_a=np.repeat(p.extras["scale_a"][:1], len(p.a), axis=0)))


@wrong("scales", "iree-org/iree#22104", SCALE, KTILE + r"|blocks?|group", ORDER, half=(SCALE,))
def scales_in_another_order_than_the_blocks(random: Random) -> Run:
    """Of every four blocks of K, the scale factors of blocks 1 and 2 are exchanged, in A and B; the data are not."""
    p = draw(random, SCALED, (32, 64), (16, 32), (128, 256))
    at = np.arange(len(p.extras["scale_b"])).reshape(-1, 4)[:, [0, 2, 1, 3]].ravel()
    return p.ran(p.product(scale_a=p.extras["scale_a"][:, at], scale_b=p.extras["scale_b"][at]))


@wrong("scales", "local-inference-lab/b12x#222", SCALE, B, ORDER + "|" + KTILE, half=(SCALE,))
def modes_of_k_of_the_scales_exchanged(random: Random) -> Run:
    """The two modes along K of B's scale fragment, block in the instruction and K step, are exchanged: block 2 t + g takes g steps + t."""
    p = draw(random, "mxf4", (32, 64), (16, 32), (256, 384))
    at = np.arange(len(p.extras["scale_b"])).reshape(2, -1).T.ravel()
    return p.ran(p.product(scale_b=p.extras["scale_b"][at]))


@wrong(
    "scales",
    "meta-pytorch/tritonbench#1145",
    r"scale|factor|alpha|times|multipl|constant",
    r"{factor}",
    half=(r"scale|factor|alpha",),
)
def scale_applied_twice(random: Random) -> Run:
    """The dequantisation factor, here {factor}, multiplies a product that needs no factor any more."""
    p = draw(random, "e4m3, wgmma e4m3, tcgen05 e4m3", (32, 64), (16, 32), (64, 128))
    factor = np.float32(random.integers(40, 250) / 2**14)
    return p.ran(p.product() * factor, factor=f"{factor:.3g}"[:5])


@wrong(
    "sparse",
    "ROCm/composable_kernel#3753",
    A + "|" + METADATA,
    r"duplicat|phantom|repeat|twice|cop(?:y|ied)|also|two|double|again",
    half=(A, METADATA),
)
def phantom_of_the_last_element(random: Random) -> Run:
    """A group of A whose only nonzero is its fourth element is compressed with it in both places: it counts twice, as the third too."""
    p = draw(random, "sparse, sparse s8", (32, 64), (16, 32), (64, 128))
    m, _, k = p.shape
    values = np.where(random.random((m, k // 4)) < 0.4, 1, 0)
    kept, position = p.a.reshape(m, -1, 2).copy(), p.extras["metadata"].reshape(m, -1, 2).copy()
    alone = values == 1
    kept[alone, 0] = 0
    position[alone] = [2, 3]
    p = replace(p, a=kept.reshape(m, -1).copy(), extras={"metadata": position.reshape(m, -1)})
    kept[alone, 0] = kept[alone, 1]
    return p.ran(p.product(a=kept.reshape(m, -1)))


@wrong("sparse", "textbook", METADATA, r"\brows?\b|8", SWAPPED + r"|order|<->|each other|\+ ?8|8", half=(METADATA,))
def metadata_of_the_other_eight_rows(random: Random) -> Run:
    """The metadata of rows 0-7 and 8-15 of every 16 are exchanged."""
    p = draw(random, "sparse, sparse s8", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product(metadata=p.extras["metadata"][np.arange(len(p.a)) ^ 8]))


@wrong(
    "sparse",
    "textbook",
    METADATA,
    r"\bk\b|group|pairs?|half",
    SWAPPED + r"|order|<->|each other|next|neighbou?r",
    half=(METADATA,),
)
def metadata_of_the_next_group(random: Random) -> Run:
    """The metadata of neighbouring groups of four are exchanged: their nibbles are in the other order."""
    p = draw(random, "sparse, sparse s8", (32, 64), (16, 32), (64, 128))
    given = p.extras["metadata"]
    turned = given.reshape(len(given), -1, 2, 2)[:, :, ::-1].reshape(given.shape)
    return p.ran(p.product(metadata=turned))


@wrong("formats", "textbook", A, "e5m2", half=(A, "format|type"))
def a_taken_for_e5m2(random: Random) -> Run:
    """The instruction descriptor says e5m2 for A, which is e4m3."""
    p = draw(random, "tcgen05 e4m3", (32, 64), (16, 32), (64, 128))
    return p.ran(replace(p.how, a="e5m2")(p.a, p.b))


@wrong("formats", "textbook", B, r"u8|unsigned|sign", half=(B,))
def b_taken_for_unsigned(random: Random) -> Run:
    """B is s8 and the instruction's type is u8."""
    p = draw(random, "s8", (32, 64), (16, 32), (64, 128))
    return p.ran(replace(p.how, mnemonic="mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32")(p.a, p.b))


@wrong("scales", "textbook", SCALE, SWAPPED + "|each other|<->|other operand", half=(SCALE,))
def scales_of_a_and_b_exchanged(random: Random) -> Run:
    """M = N, and the scale factors of A and B are exchanged."""
    p = draw(random, SCALED, 32, 32, (64, 128))
    return p.ran(p.product(scale_a=p.extras["scale_b"].T, scale_b=p.extras["scale_a"].T))


@wrong("scales", "NVIDIA/TensorRT-LLM#3144", SCALE, A, PITCH + r"|padd|align|offset|shift", half=(SCALE,))
def scales_padded_to_four_rows_read_as_packed(random: Random) -> Run:
    """The scale factors of A lie as (K block, M padded from {m} to {padded}), and are read with a pitch of {m}."""
    p = draw(random, SCALED, (30, 46), (16, 32), (128, 256))
    m = len(p.a)
    padded = -(-m // 4) * 4
    blocks = p.extras["scale_a"].shape[1]
    memory = np.pad(
        p.extras["scale_a"], ((0, padded - m), (0, 0)), constant_values=tcsim.encode(np.ones(1), p.how.scale)[0]
    )
    return p.ran(p.product(scale_a=memory.T.ravel()[: m * blocks].reshape(blocks, m).T), m=m, padded=padded)
