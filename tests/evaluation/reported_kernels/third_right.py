"""Right kernels, which must be called correct; and outputs that no mistake explains."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.reported_kernels.case import Random, Run, draw, noise, right


@right("loop")
def k_in_three_unequal_splits(random: Random) -> Run:
    """Three splits of K, of different lengths, are added in f32."""
    p = draw(random, "f16, bf16, wgmma", 64, (16, 32), 160)
    return p.ran(p.part(0, 32) + p.part(32, 96) + p.part(96, 160))


@right("loop")
def steps_of_k_from_the_last(random: Random) -> Run:
    """K is gone through from its end."""
    p = draw(random, "f16, tf32, wmma", (32, 64), (16, 32), 128)
    return p.ran(p.how(p.a[:, ::-1], p.b[::-1]))


@right("memory")
def product_of_the_transposes(random: Random) -> Run:
    """The kernel computes the transpose from the transposes, and stores it transposed."""
    p = draw(random, "f16, bf16, f64", (32, 64), (16, 32), (64, 128))
    return p.ran(p.how(p.b.T, p.a.T).T.copy())


@right("output")
def c_added_at_the_end(random: Random) -> Run:
    """C is added to the finished product."""
    p = draw(random, "f16, wgmma bf16", 64, (16, 32), 64, c=True)
    assert p.c is not None
    return p.ran(p.product(c=None) + p.c.view(np.float32))


@right("output")
def output_in_f16(random: Random) -> Run:
    """The f32 sums are stored as f16."""
    p = draw(random, "f16, wgmma, tcgen05", (64, 128), (16, 32), (64, 128))
    return p.ran(p.product().astype(np.float16))


@right("loop")
def columns_of_k_permuted_in_both(random: Random) -> Run:
    """A and B are stored in the same permutation of K within every 16."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), (64, 128))
    k = np.arange(p.shape[2]).reshape(-1, 2, 4, 2).transpose(0, 2, 1, 3).reshape(-1)
    return p.ran(p.how(p.a[:, k], p.b[k]))


@right("loop")
def integers_in_float64(random: Random) -> Run:
    """Products of bytes are added in f64, which is exact."""
    p = draw(random, "s8, wgmma s8", 64, (16, 32), (64, 128))
    a, b = (tcsim.decode(codes, "s8").astype(np.float64) for codes in (p.a, p.b))
    return p.ran((a @ b).astype(np.int32))


@noise("output")
def another_product(random: Random) -> Run:
    """The product of two other random matrices."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), 64)
    return p.ran(draw(random, p.how.a, p.shape[0], p.shape[1], 64).product())


@noise("output")
def outputs_permuted_at_random(random: Random) -> Run:
    """All outputs are in random order."""
    p = draw(random, "f16, tf32", (32, 64), (16, 32), 64)
    return p.ran(random.permutation(p.product().reshape(-1)).reshape(p.shape[:2]))


@noise("output")
def signs_at_random(random: Random) -> Run:
    """Every output has a random sign."""
    p = draw(random, "f16, bf16, wgmma", 64, (16, 32), 64)
    return p.ran(p.product() * random.choice(np.array([-1, 1], np.float32), p.shape[:2]))


@noise("memory")
def a_with_random_elements(random: Random) -> Run:
    """A third of the elements of A, at random places, are other numbers."""
    p = draw(random, "f16, bf16", (32, 64), (16, 32), 64)
    other = draw(random, p.how.a, *p.shape).a
    return p.ran(p.product(a=np.where(random.random(p.a.shape) < 1 / 3, other, p.a)))


@noise("scales")
def outputs_scaled_at_random(random: Random) -> Run:
    """Every output is multiplied by a random number between 1/2 and 2."""
    p = draw(random, "f16, wgmma, tcgen05", (64, 128), (16, 32), 64)
    return p.ran((p.product() * random.uniform(0.5, 2, p.shape[:2])).astype(np.float32))


@noise("output")
def random_bits(random: Random) -> Run:
    """The output is random numbers of the product's size."""
    p = draw(random, "f16, e4m3, mx", (32, 64), (16, 32), 64)
    return p.ran((random.standard_normal(p.shape[:2]) * p.product().std()).astype(np.float32))


@noise("scales")
def integers_with_random_low_bits(random: Random) -> Run:
    """The low ten bits of every integer are random."""
    p = draw(random, "s8", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product() & ~1023 | random.integers(0, 1024, p.shape[:2], np.int32))
