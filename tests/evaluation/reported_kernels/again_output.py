"""Mistakes of the epilogue and of the store: factors, bias, activations, types, columns and pitches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.evaluation.reported_kernels.again_words import BATCH, COLUMN, LOST, MIXED, ROW, SWAPPED, C
from tests.evaluation.reported_kernels.case import Multiply, Random, Run, accumulator, coded, draw, wrong

DENSE = "f16, bf16, tf32, e4m3, wgmma, wgmma bf16, tcgen05, tcgen05 e4m3"
FACTOR = r"factor|times|multipl|scal|\balpha\b"


@wrong(
    "epilogue",
    "openxla/xla#46110",
    r"\b{alpha}\b|1/\b{inverse}\b|alpha",
    r"product|a ?[·*@x]? ?b\b|accumul|\bsum|not c\b|before c|only",
    half=(FACTOR,),
)
def alpha_does_not_reach_the_bias(random: Random) -> Run:
    """The product is multiplied by alpha ({alpha}, 1/{inverse}) before C is added, so the bias is not."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128), c=True)
    inverse = int(random.choice([4, 16, 64]))
    assert p.c is not None
    observed = replace(p, c=None).product() * np.float32(1 / inverse) + p.c.view(np.float32)
    return p.ran(observed, alpha=1 / inverse, inverse=inverse)


@wrong(
    "epilogue",
    "amd/ZenDNN#34",
    C,
    r"\b{times}\b|twice|double|beta",
    r"times|factor|multipl|add|count|scal|beta|twice|double|large",
    half=(C,),
)
def beta_is_a_flag(random: Random) -> Run:
    """beta is taken for a flag: C is not scaled by it, and enters {times} times as large."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128), c=True)
    times = int(random.choice([2, 4]))
    assert p.c is not None
    return p.ran(p.product(c=accumulator(p.how, p.c.view(np.float32) * times)), times=times)


@wrong("epilogue", "modular/modular#6600", r"\b{factor}\b|1/\b{factor}\b", FACTOR, half=(FACTOR,))
def global_scale_not_inverted(random: Random) -> Run:
    """The global scale is stored as a divisor and used as a factor: everything is multiplied by {factor}."""
    p = draw(random, "nvf4", (32, 64), (16, 32), (64, 128))
    factor = int(random.choice([896, 1792, 3584]))
    return p.ran(p.product() * np.float32(factor), factor=factor)


@wrong(
    "epilogue",
    "triton-lang/triton#2296",
    r"8.?bit|8 bits|low byte|lowest byte|int8|mod(ulo)? 256|2\^8|wrap|(kept|written|stored|converted|narrowed|truncated|cast) (in|to|as) s8",
    half=(r"bit|modulo|overflow|truncat",),
)
def output_written_as_bytes(random: Random) -> Run:
    """The output has the type of the operands: of each sum the low 8 bits are kept, s8."""
    p = draw(random, "s8, wgmma s8", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product().astype(np.int8).astype(np.int32))


@wrong(
    "epilogue",
    "ROCm/hip-ep#672",
    r"(?<!b)f16|half|65504",
    r"round|convert|narrow|written|store|through|overflow|inf|range|precision|65504",
    half=(r"overflow|inf",),
)
def result_overflows_in_half(random: Random) -> Run:
    """The result is narrowed to f16 on its way to float: what is beyond 65504 overflows to infinity."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), (64, 128))
    a, b = (coded(random.standard_normal(codes.shape) * 64, p.how.a) for codes in (p.a, p.b))
    p = replace(p, a=a, b=b)
    return p.ran(p.product().astype(np.float16).astype(np.float32))


@wrong(
    "epilogue", "NVIDIA/cutlass#1188", r"(?<!b)f16|half", r"accumul", half=(r"round|precision|accumul",), rounds=True
)
def accumulators_in_half(random: Random) -> Run:
    """The accumulators are f16, not float32."""
    p = draw(random, "f16", (32, 64), (16, 32), (128, 256))
    narrow = Multiply("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80", "f16", "f16", "f16")
    return p.ran(narrow(p.a, p.b))


@wrong(
    "epilogue",
    "textbook",
    r"relu|max\(|activation|clamp|negative",
    r"before|without c|c (is )?(added )?after|bias|\bc\b",
    half=(r"relu|max\(|activation|negative",),
)
def relu_before_the_bias(random: Random) -> Run:
    """ReLU is applied to the product before C is added."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128), c=True)
    assert p.c is not None
    return p.ran(np.maximum(replace(p, c=None).product(), 0) + p.c.view(np.float32))


@wrong("epilogue", "textbook", C, r"transpos|per row|rows?", half=(C,))
def bias_of_a_row_in_place_of_a_column(random: Random) -> Run:
    """The bias of column n is added to row n: C is transposed."""
    p = draw(random, DENSE, 64, 64, (32, 64))
    bias = np.broadcast_to(random.normal(0, 4, 64), (64, 64))
    p = replace(p, c=accumulator(p.how, bias))
    return p.ran(p.product(c=accumulator(p.how, bias.T)))


@wrong("epilogue", "textbook", C, LOST, half=(C,))
def c_not_loaded(random: Random) -> Run:
    """beta is not 0, but C is not added."""
    p = draw(random, DENSE + ", f64, s8", (32, 64), (16, 32), (64, 96), c=True)
    return p.ran(replace(p, c=None).product())


@wrong("epilogue", "textbook", r"negat|\bsigns?\b|subtract|minus|times -1|\* ?-1|factor -1", half=(r"sign|minus",))
def product_negated_before_c(random: Random) -> Run:
    """The immediate that negates A is set: the product is subtracted from C."""
    p = draw(random, "wgmma, wgmma bf16, tcgen05", (32, 64), (32, 64), (64, 96), c=True)
    return p.ran(p.product(a=p.a ^ np.array(0x8000, p.a.dtype)))


@wrong("store", "ROCm/ATOM#1410", COLUMN, MIXED + r"|halves|even|odd", half=(COLUMN,))
def gate_and_up_in_turn(random: Random) -> Run:
    """The weights are interleaved, gate and up in turn, where the kernel takes halves: columns of the first half land in even, of the second in odd columns."""
    p = draw(random, "bf16, f16, wgmma bf16, tcgen05 bf16", (32, 64), (32, 64), (64, 128))
    n = p.shape[1]
    return p.ran(np.ascontiguousarray(p.product()[:, np.arange(n).reshape(2, -1).T.ravel()]))


@wrong(
    "store",
    "flashinfer-ai/flashinfer#4130",
    COLUMN,
    rf"{SWAPPED}|shift|rotat|roll|\+ ?\b{{half}}\b",
    r"hal(f|ves)|\b{half}\b",
    half=(COLUMN,),
)
def up_before_gate(random: Random) -> Run:
    """Up comes before gate: the two halves of the columns, {half} each, are exchanged."""
    p = draw(random, "bf16, e4m3, mx, wgmma bf16", (32, 64), (32, 64), (64, 128))
    half = p.shape[1] // 2
    return p.ran(np.roll(p.product(), half, axis=1), half=half)


@wrong("store", "textbook", COLUMN, SWAPPED, r"\b16\b|\b32\b|tile|block", half=(COLUMN,))
def columns_taken_for_packed_tiles(random: Random) -> Run:
    """The epilogue takes two tiles of 16 columns for packed: columns 16-31 and 32-47 of each 64 are exchanged."""
    p = draw(random, DENSE, (32, 64), 64, (64, 128))
    order = np.arange(64).reshape(2, 2, 16).transpose(1, 0, 2).ravel()
    return p.ran(np.ascontiguousarray(p.product()[:, order]))


@wrong("store", "tenstorrent/tt-metal#35249", ROW, r"\blast\b|\b{last}\b", LOST, half=(ROW,))
def last_row_is_zero(random: Random) -> Run:
    """The parameters are those of a matrix that is not transposed: the last row, {last}, is zero."""
    p = draw(random, DENSE, (32, 48, 64), (16, 32), (64, 128))
    observed = p.product()
    observed[-1] = 0
    return p.ran(observed, last=p.shape[0] - 1)


@wrong("store", "flashinfer-ai/flashinfer#3103", BATCH, MIXED + r"|innermost|contiguous|address", half=(BATCH,))
def batch_innermost_in_the_output(random: Random) -> Run:
    """The output has the matrices of the batch innermost and is stored as if they were outermost: the matrices are interleaved, with a wrong stride."""
    p = draw(random, "f16, bf16, wgmma bf16", (32, 64), (16, 32), (64, 96), batch=4)
    right = p.product()
    return p.ran(np.ascontiguousarray(np.moveaxis(right.reshape(-1).reshape(*right.shape[1:], len(right)), -1, 0)))


@wrong("store", "textbook", ROW, r"pitch|strid|\bld[cd]?\b|leading|row length|width|wrap", half=(ROW,))
def output_pitch_is_that_of_the_tile(random: Random) -> Run:
    """Rows of the output are written with a pitch of {pitch}, the width of the tile, and read with {width}; between them lie zeros."""
    p = draw(random, DENSE, (32, 64), (40, 48, 56), (64, 96))
    m, n, _ = p.shape
    memory = np.zeros(m * 64, np.float32)
    memory.reshape(m, 64)[:, :n] = p.product()
    return p.ran(memory[: m * n].reshape(m, n).copy(), pitch=64, width=n)


@wrong("store", "textbook", COLUMN, LOST, r"\b{first}\b|\b{last}\b|tail|partial", half=(COLUMN,))
def partial_tile_of_columns_not_stored(random: Random) -> Run:
    """The last, partial tile of columns, {first} to {last}, is not stored."""
    p = draw(random, DENSE, (32, 64), (40, 48, 56), (64, 96))
    observed = p.product()
    observed[:, 32:] = 0
    return p.ran(observed, first=32, last=p.shape[1] - 1)


@wrong("store", "textbook", r"tile|block", r"\b32\b|grid|coordinat", rf"{SWAPPED}|transpos", half=(r"tile|block",))
def tiles_stored_at_exchanged_coordinates(random: Random) -> Run:
    """The tile at row i and column j of the grid is stored at row j and column i: blocks of 32 x 32 are exchanged, not transposed inside."""
    p = draw(random, DENSE, 64, 64, (64, 96))
    tiles = p.product().reshape(2, 32, 2, 32).transpose(2, 1, 0, 3)
    return p.ran(np.ascontiguousarray(tiles).reshape(64, 64))
