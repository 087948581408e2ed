"""A ranking of tiles is learnt: of a library that takes a small tile where the result is small."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.plans.trees import Machine

torch = pytest.importorskip("torch")


def test_a_ranking_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tiles: the larger is chosen and cut in two, for every second product the smaller, not cut; a few steps suffice, the same twice, and the file's bytes say it."""
    from hwkernels.plans import rank
    from tcsim.plans.ranking import ranked

    for name, value in (("OFTEN", 10), ("LEAVES", 20), ("RATE", 2e-2), ("RISE", 1)):
        monkeypatch.setattr(rank, name, value)
    rng, count = np.random.default_rng(5), 600
    shape = np.stack(
        [
            np.where(np.arange(count) % 2, 8, rng.integers(64, 99, count)),
            rng.integers(512, 4096, count),
            rng.integers(2568, 9999, count),
        ],
        1,
    )
    large = shape[:, 0] > 16
    tile, split = np.where(large, 22, 10), np.where(large, 2, 1)
    blocks = -(-shape[:, 1] // 64) * -(-shape[:, 0] // np.where(large, 512, 8))
    machine = Machine(132, 1 << 25, 64)
    made = rank.Choices(np.arange(count) % 4, shape, tile, np.full(count, 2), split, blocks)
    assert rank.sizes(made)[10] == (64, 8)
    monkeypatch.setattr(rank, "sizes", lambda made: {22: (64, 128), 10: (64, 8)})
    sizes = rank.Size(4, 1, 2, 8, 64, 20), rank.Size(8, 2, 2, 5, 64, 100)
    learnt = rank.trained(made, machine, *sizes)
    assert not torch.backends.cuda.matmul.allow_tf32, "other products are as before"
    assert learnt.packed() == rank.trained(made, machine, *sizes).packed()
    again = ranked(learnt.packed(), machine, *learnt.sizes())
    found = [again.answer(*x, 1) for x in shape[:100].tolist()]
    assert np.mean(np.array(found) == split[:100]) > 0.8 and set(found) == {1, 2}
