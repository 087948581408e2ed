"""Right kernels that add in another order or write another type, and outputs that no mistake explains."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from tests.evaluation.reported_kernels.case import Random, Run, draw, noise, right
from tests.evaluation.reported_kernels.kinds_loop import added

DENSE = "f16, bf16, tf32, e4m3, wgmma, wgmma bf16, tcgen05, tcgen05 e4m3"
ALL = DENSE + ", s8, f64, mx, nvf4"


@right("loop")
def right_from_the_last_tile_to_the_first(random: Random) -> Run:
    """The loop over K runs backwards."""
    p = draw(random, DENSE, (32, 64), (16, 32), (128, 192))
    at = np.arange(p.shape[2]).reshape(-1, 32)[::-1].ravel()
    return p.ran(p.how(p.a[:, at], p.b[at]))


@right("split")
def right_slices_added_in_float(random: Random) -> Run:
    """Four slices of K are added in float32."""
    p = draw(random, DENSE, (32, 64), (16, 32), (128, 256))
    each = p.shape[2] // 4
    return p.ran(added(p, [(each * i, each * i + each) for i in (0, 1, 2, 3)]))


@right("split")
def right_uneven_slices_in_any_order(random: Random) -> Run:
    """Stream-K: the second part of K, which is longer, is added to the first."""
    p = draw(random, DENSE, (32, 64), (16, 32), (128, 192))
    return p.ran(added(p, [(32, p.shape[2]), (0, 32)]))


@right("loop")
def right_promoted_every_tile(random: Random) -> Run:
    """Sums of 64 of K in the tensor core, and their sum in registers."""
    p = draw(random, "wgmma e4m3, e4m3, tcgen05 e4m3", (32, 64), (16, 32), (192, 256))
    return p.ran(added(p, [(k, k + 64) for k in range(0, p.shape[2], 64)]))


@right("store")
def right_written_as_bf16(random: Random) -> Run:
    """The output is bf16."""
    p = draw(random, "bf16, wgmma bf16, tcgen05 bf16", (32, 64), (16, 32), (64, 128))
    return p.ran(p.product().astype(ml_dtypes.bfloat16))


@right("launch")
def right_operands_exchanged_and_transposed(random: Random) -> Run:
    """D' = B' A', as kernels do it for few rows."""
    p = draw(random, "f16, bf16, wgmma, tcgen05", (32, 64), (16, 32), (64, 128))
    return p.ran(p.how(np.ascontiguousarray(p.b.T), np.ascontiguousarray(p.a.T)).T.copy())


@right("epilogue")
def right_c_added_at_the_end(random: Random) -> Run:
    """C is added in the epilogue, not by the first instruction."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128), c=True)
    return p.ran(p.product(c=None) + p.c.view(np.float32))  # type: ignore[union-attr]


@right("loop")
def right_scaled_in_another_order(random: Random) -> Run:
    """A block-scaled product that goes over K backwards, scale factors and all."""
    p = draw(random, "mx, tcgen05 mx", (32, 64), (16, 32), (128, 256))
    blocks = np.arange(p.shape[2] // 32)[::-1]
    at = (blocks[:, None] * 32 + np.arange(32)).ravel()
    return p.ran(
        p.how(p.a[:, at], p.b[at], scale_a=p.extras["scale_a"][:, blocks], scale_b=p.extras["scale_b"][blocks])
    )


def spread(values: np.ndarray) -> float:  # type: ignore[type-arg]
    """The standard deviation of the finite ones."""
    return float(np.std(values[np.isfinite(values)].astype(float)))


@noise("numbers")
def noise_of_a_twentieth(random: Random) -> Run:
    """The product with normal noise of 5 % of its spread."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128))
    product = p.product()
    return p.ran((product + random.standard_normal(product.shape) * 0.05 * spread(product)).astype(product.dtype))


@noise("numbers")
def noise_alone(random: Random) -> Run:
    """Normal numbers of the spread of the product."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128))
    product = p.product()
    return p.ran((random.standard_normal(product.shape) * spread(product)).astype(product.dtype))


@noise("operands")
def noise_of_another_a(random: Random) -> Run:
    """The product of B and another A, that nobody gave."""
    p = draw(random, ALL, (32, 64), (16, 32), (64, 128))
    other = p.a.ravel()[random.permutation(p.a.size)].reshape(p.a.shape)
    return p.ran(p.product(a=other))


@noise("numbers")
def noise_of_the_signs(random: Random) -> Run:
    """A third of the outputs, at random, have the other sign."""
    p = draw(random, DENSE + ", s8, f64", (32, 64), (16, 32), (64, 128))
    product = p.product()
    return p.ran(np.where(random.random(product.shape) < 1 / 3, -product, product).astype(product.dtype))


@noise("numbers")
def noise_of_small_integers(random: Random) -> Run:
    """Every output of an integer product is wrong by 1 to 3 in either direction."""
    p = draw(random, "s8, wgmma s8", (32, 64), (16, 32), (64, 128))
    product = p.product()
    wrong_by = random.integers(1, 4, product.shape) * random.choice([-1, 1], product.shape)
    return p.ran((product + wrong_by).astype(np.int32))


@noise("places")
def noise_of_a_shuffle(random: Random) -> Run:
    """The outputs are shuffled at random, all of them."""
    p = draw(random, ALL, (32, 64), (16, 32), (64, 128))
    product = p.product()
    return p.ran(product.ravel()[random.permutation(product.size)].reshape(product.shape))


@noise("numbers")
def noise_in_the_bits(random: Random) -> Run:
    """One random bit of the upper half of every second output, at random, is flipped."""
    p = draw(random, DENSE, (32, 64), (16, 32), (64, 128))
    bits = p.product().view(np.uint32)
    flip = np.where(random.random(bits.shape) < 0.5, 1 << random.integers(16, 23, bits.shape), 0)
    return p.ran((bits ^ flip.astype(np.uint32)).view(np.float32))


@noise("operands")
def noise_that_hides_a_mistake(random: Random) -> Run:
    """A transposed A, which would be known, under noise of a tenth of the spread."""
    p = draw(random, DENSE, 64, (16, 32), 64)
    product = replace(p, a=np.ascontiguousarray(p.a.T)).product()
    return p.ran((product + random.standard_normal(product.shape) * 0.1 * spread(product)).astype(product.dtype))
