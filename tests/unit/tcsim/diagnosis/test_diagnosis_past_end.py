"""What lies past N lands in the next row; rings whose stages are read too early from the second turn on."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
N = 43  # in tiles of 8, 5 columns lie past it


def operands(n: int = N, k: int = 32) -> dict[str, np.ndarray]:
    """A, B and C."""
    random = np.random.default_rng(61)
    given = {name: random.standard_normal(shape).astype(np.float16) for name, shape in (("a", (24, k)), ("b", (k, n)))}
    return given | {"c": random.standard_normal((24, n)).astype(np.float32)}


@pytest.mark.parametrize("loads", ["modulo", "clamped", "memory", "zeros"])
def test_a_store_without_a_mask_for_columns(loads: str) -> None:
    """The columns past N are those that the loads gave, and each row's are stored after the next row's own."""
    given = operands()
    a, b = given["a"], given["b"]
    memory = np.concatenate([b.reshape(-1), np.zeros(5, np.float16)])
    past = {
        "modulo": b[:, :5],
        "clamped": b[:, [N - 1] * 5],
        "memory": np.stack([memory[k * N + N : k * N + N + 5] for k in range(32)]),
        "zeros": np.zeros((32, 5), np.float16),
    }[loads]
    observed = tcsim.gemm(**given, instruction=MMA).view(np.float32)
    observed[1:, :5] = tcsim.gemm(a, past, instruction=MMA).view(np.float32)[:-1]
    found = tcsim.diagnose(MMA, **given, observed=observed)
    assert found.verdict == "explained" and found.explanations[0].bits
    if loads == "zeros":
        assert found.mistake == "d: stored past the end of a row"
        assert "what a tile holds past N = 43 ran into the next row and overwrote them" in str(found)
    else:
        assert found.mistake == "d: stored past the end of a row" and "over the first 5 columns" in str(found)


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize(
    ("said", "tiles"),
    [
        ("from the second turn on stages are read before they are filled again", (0, 1, 2, 0, 1, 2, 3, 4)),
        ("the ring is filled once and never again", (0, 1, 2, 0, 1, 2, 0, 1)),
        ("from the second turn on the last stage is not awaited", (0, 1, 2, 3, 4, 2, 6, 7)),
    ],
)
def test_stages_of_a_ring(said: str, tiles: tuple[int, ...], operand: str) -> None:
    """Of three stages of 32 along K, in one operand."""
    given = operands(48, 256)
    at = (np.array(tiles)[:, None] * 32 + np.arange(32)).reshape(-1)
    changed = given | ({"a": given["a"][:, at]} if operand == "a" else {"b": given["b"][at]})
    found = tcsim.diagnose(MMA, **given, observed=tcsim.gemm(**changed, instruction=MMA))
    assert found.mistake == f"K blocks of {operand} mismatched" and said in str(found), str(found)
