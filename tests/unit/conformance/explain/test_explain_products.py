"""The products that are recorded on a GPU: their list, and the frozen generator of their operands."""

from collections import Counter

import numpy as np
import pytest

from conformance.explain import inputs
from conformance.explain.products import products


def test_ids_are_unique_and_every_library_has_its_share():
    counts = Counter(item.library for item in products())
    assert len({item.id for item in products()}) == counts.total()
    assert counts["cublas"] + counts["cublaslt"] >= 60
    assert counts["triton"] >= 10 and counts["cudnn"] >= 10


CHOSEN = (
    ("cublas-bf16-bf16-bf16-72x40x136", "normal", "e6e570524d06c14f"),
    ("cublas-f16-f16-f16-33x77x1000", "cancelling", "087727f3cdc64571"),
    ("cublas-f32-f32-f32-33x77x999", "tree", "5600dd7df2dd214a"),
    ("cublas-e4m3-e4m3-bf16-128x128x1024-bias-NT", "normal", "d597ff16222f29f3"),
    ("cudnn-three-tf32-tf32-f32-256x64x576", "normal", "4dbb20f77123db2d"),
)


@pytest.mark.parametrize(("id", "kind", "digest"), CHOSEN)
def test_the_generator_is_frozen(id, kind, digest):
    product = next(item for item in products() if item.id == id)
    assert inputs.digest(inputs.operands(product, kind))[:16] == digest


def test_cancelling_pairs_cancel():
    checked = 0
    for product in products():
        if "cancelling" in product.kinds and np.prod(product.shape) < 2.2e6:
            given = inputs.operands(product, "cancelling")
            exact = given["a"].astype(np.float64) @ given["b"].astype(np.float64)
            assert np.abs(exact).max() < 1e-9
            checked += 1
    assert checked > 5
