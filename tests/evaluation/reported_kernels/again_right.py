"""Right kernels in other orders, and outputs that no mistake explains."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.reported_kernels.case import Problem, Random, Run, coded, draw, noise, right

DENSE = "f16, bf16, tf32, e4m3, wgmma, wgmma bf16, tcgen05, tcgen05 e4m3"


@right("loop")
def right_k_permuted_in_both_operands(random: Random) -> Run:
    """Both operands are loaded with K interleaved alike."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128))
    at = np.arange(p.shape[2]).reshape(-1, 4, 8).transpose(0, 2, 1).ravel()
    return p.ran(p.how(p.a[:, at], p.b[at]))


@right("loop")
def right_two_accumulators_in_turn(random: Random) -> Run:
    """Even and odd tiles of K are summed apart and added."""
    p = draw(random, DENSE, (32, 64), (16, 32), (128, 192))
    odd = np.arange(p.shape[2]) // 32 % 2 == 1
    return p.ran(p.how(p.a[:, ~odd], p.b[~odd]) + p.how(p.a[:, odd], p.b[odd]))


@right("epilogue")
def right_c_added_after_the_product(random: Random) -> Run:
    """C is added in float32 after the product."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128), c=True)
    assert p.c is not None
    return p.ran(Problem(p.how, p.a, p.b).product() + p.c.view(np.float32))


@right("split")
def right_atomic_adds_in_any_order(random: Random) -> Run:
    """Four slices of K are added to the output by atomics, in an order of chance."""
    p = draw(random, DENSE, (32, 64), (16, 32), (128, 256))
    quarter = p.shape[2] // 4
    observed = np.zeros(p.shape[:2], np.float32)
    for i in random.permutation(4):
        observed = observed + p.part(quarter * i, quarter * i + quarter)
    return p.ran(observed)


@right("split")
def right_integers_split_anyhow(random: Random) -> Run:
    """Integer slices of uneven length, the last first."""
    p = draw(random, "s8, wgmma s8", (32, 64), (16, 32), (96, 128))
    return p.ran(p.part(64, p.shape[2]) + p.part(0, 64))


@right("store")
def right_written_as_half(random: Random) -> Run:
    """The output is f16."""
    p = draw(random, "f16, wgmma, tcgen05", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product().astype(np.float16))


@right("fragments")
def right_short_instructions(random: Random) -> Run:
    """Twice as many instructions of half the K: m16n8k8 for m16n8k16."""
    p = draw(random, "f16", (32, 64), (16, 32), (64, 128))
    short = tcsim.gemm(p.a, p.b, instruction="mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_80")
    return p.ran(np.asarray(short).view(np.float32))


@right("scales")
def right_block_scales_in_slices(random: Random) -> Run:
    """A block-scaled product in two slices of K, added in float32."""
    p = draw(random, "mx, nvf4, tcgen05 mx", (32, 64), (16, 32), (128, 256))
    half, block = p.shape[2] // 2, p.how.block
    at = half // block
    halves = [
        p.how(p.a[:, :half], p.b[:half], None, scale_a=p.extras["scale_a"][:, :at], scale_b=p.extras["scale_b"][:at]),
        p.how(p.a[:, half:], p.b[half:], None, scale_a=p.extras["scale_a"][:, at:], scale_b=p.extras["scale_b"][at:]),
    ]
    return p.ran(halves[0] + halves[1])


@noise("store")
def noise_another_output(random: Random) -> Run:
    """The output of other operands."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128))
    a, b = (coded(random.standard_normal(codes.shape), name) for codes, name in ((p.a, p.how.a), (p.b, p.how.b)))
    return p.ran(p.how(a, b))


@noise("store")
def noise_every_element_elsewhere(random: Random) -> Run:
    """The elements of the right output in an order of chance."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128))
    right_one = p.product()
    return p.ran(random.permutation(right_one.ravel()).reshape(right_one.shape))


@noise("store")
def noise_of_five_percent(random: Random) -> Run:
    """The right output with 5 % of noise in each element."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128))
    right_one = p.product()
    return p.ran((right_one * (1 + 0.05 * random.standard_normal(right_one.shape))).astype(np.float32))


@noise("load")
def noise_bits_of_a_flipped(random: Random) -> Run:
    """A bit of chance is flipped in each element of A."""
    p = draw(random, "f16, s8, wgmma", (32, 64), (16, 32), (64, 128))
    bit = random.integers(0, 5, p.a.shape)
    return p.ran(p.how((p.a.view(f"u{p.a.itemsize}") ^ (1 << bit)).astype(f"u{p.a.itemsize}").view(p.a.dtype), p.b))


@noise("load")
def noise_signs_of_b(random: Random) -> Run:
    """A third of the elements of B has the other sign."""
    p = draw(random, "f16, bf16, wgmma", (32, 64), (16, 32), (64, 128))
    flipped = (random.random(p.b.shape) < 0.33) * np.uint16(0x8000)
    return p.ran(p.how(p.a, p.b ^ flipped.astype(p.b.dtype)))


@noise("store")
def noise_where_blocks_are_lost(random: Random) -> Run:
    """A quarter of the elements, anywhere, is random."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128))
    observed = p.product().copy()
    lost = random.random(observed.shape) < 0.25
    observed[lost] = random.standard_normal(int(lost.sum())) * observed.std()
    return p.ran(observed)


@noise("store")
def noise_of_powers_of_two(random: Random) -> Run:
    """Each element of the right output is multiplied by a power of two of chance."""
    p = draw(random, DENSE + ", mx, mxf4", (32, 64), (16, 32), (64, 128))
    right_one = p.product()
    return p.ran(np.ldexp(right_one, random.integers(-2, 4, right_one.shape)).astype(np.float32))
