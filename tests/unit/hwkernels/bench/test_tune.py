"""The search for fast choices, without a GPU: what it may choose, that it finds the best, and that its picks are applied as data."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.kernels import precompile
from hwkernels.bench import tune
from hwkernels.bench.results import AGAIN, REFERENCE, Result, summarise
from hwkernels.bench.tune_space import AXES, alternatives, base, every_build, start
from hwkernels.gemm import picks as gemm_picks
from hwkernels.gemm.build import SHARED_LIMIT
from hwkernels.gemm.kernels import OPERAND_FORMATS
from hwkernels.gemm.picks import Product, load_picks, merge, picked, product_of
from hwkernels.gemm.tiles import Shape
from hwkernels.gemm.tuning import Tuning, tuned

SIZES = [(extent,) * 3 for extent in (2048, 4096, 8192, 16384)]
WANTED = {"cluster": (2, 2), "panels": 4, "stagger": 1, "group": 16, "stream": True, "promotion": "L2_128B"}


def timer(choices: Sequence[Tuning], rounds: int) -> list[Result]:
    """A GPU on which every wanted value makes a launch 2 % faster, and clocks drift."""
    drift = [1 + 0.01 * turn for turn in range(rounds)]

    def samples(factor: float) -> list[float]:
        return [100 * factor * step for step in drift]

    times = {REFERENCE: samples(1), AGAIN: samples(1.001)}
    for item in choices:
        right = sum(getattr(item, name) == value for name, value in WANTED.items())
        times[tune.name_of(item)] = samples(1.1 * 0.98**right)
    return summarise(times, "bf16", "bf16", SIZES[1], "cold")


def test_the_search_finds_what_is_fastest() -> None:
    """From the rule's choices, over every axis; nothing changes that does not pay."""
    best, results = tune.descend(timer, "bf16", SIZES[1], 5)
    assert {name: getattr(best, name) for name in WANTED} == WANTED
    assert best.block_n == 256 and best.promote is None
    assert len(results) > 20 and {item.contender for item in results} > {REFERENCE, AGAIN, tune.name_of(best)}


def test_the_search_stops_in_time() -> None:
    """No axis is begun after the limit."""
    best, results = tune.descend(timer, "bf16", SIZES[1], 5, until=time.monotonic() - 1)
    assert best == start("bf16", SIZES[1]) and results == []


@pytest.mark.parametrize("format_", OPERAND_FORMATS)
def test_whatever_is_asked_for_is_compiled_beforehand(format_: str) -> None:
    """Every alternative of every axis, from the start and from the far end, is among the builds that precompile knows; all fit."""
    builds = set(every_build(format_, SIZES))
    assert len(builds) > 100 and all(item.shared_bytes <= SHARED_LIMIT for item in builds)
    checked = 0
    for size in SIZES:
        first = start(format_, size)
        far = Tuning(128, (4, 1), stagger=1, group=4, panels=4, stream=True, defer=first.defer)
        for now in (first, far):
            for axis in AXES:
                found = alternatives(axis, now, format_, size)
                assert found[0] == now, "the present choices are among them"
                for item in found:
                    assert tuned(base(format_, size), item) in builds
                    checked += 1
    assert checked > 150


def test_a_sparse_kernel_is_searched_too() -> None:
    """Along the axes that it has: no panels, no other way to store, clusters of rows alone."""
    kernel, size = "sm90_wgmma_sparse", SIZES[1]
    builds = set(every_build("bf16", [size], kernel))
    now = start("bf16", size, kernel=kernel)
    counts = {}
    for axis in AXES:
        found = alternatives(axis, now, "bf16", size, kernel=kernel)
        assert found[0] == now and {tuned(base("bf16", size, kernel=kernel), item) for item in found} <= builds
        counts[axis] = len(found)
    assert {item.kernel for item in builds} == {kernel}
    assert min(counts[axis] for axis in ("block_n", "cluster", "stagger", "group", "promotion")) > 1
    assert [counts[axis] for axis in ("defer", "panels", "stream")] == [1, 1, 1]


def test_precompile_names_them() -> None:
    """One list, two readers."""
    assert {(extent,) * 3 for extent in precompile.EXTENTS} >= set(SIZES)


def test_picks_are_kept_by_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written beside others, read back, applied to that product alone; never a choice that changes a result."""
    path = tmp_path / "picks.json"
    build, shape = base("bf16", SIZES[0]), Shape(*SIZES[0])
    product = product_of(build, shape, 90, 132)
    other = Product("sm90_wgmma_persistent", 90, 132, "f16", "f16", "f16", 1, 2, 3)
    merge(path, {other: (Tuning(group=2), {"ratio": 1.0})})
    merge(path, {product: (Tuning(cluster=(2, 2), stream=True, promotion="NONE"), {"ratio": 1.1})})
    monkeypatch.setenv(gemm_picks.VARIABLE, str(path))
    assert set(load_picks(path)) == {other, product}
    assert picked(build, shape, 90, 132) == Tuning(cluster=(2, 2), stream=True, promotion="NONE")
    assert picked(build, shape, 90, 114) == picked(build, Shape(1, 2, 3), 90, 132) == Tuning()
    assert tuned(build, picked(build, shape, 90, 132)).stream
    rows = json.loads(path.read_text(encoding="utf-8"))
    rows["picks"][0]["tuning"]["promote"] = 4
    with pytest.raises(ValueError, match="a pick fixes promote; valid: block_n"):
        gemm_picks.from_json(rows)
    assert load_picks(tmp_path / "absent.json") == {}


def test_a_session_is_short() -> None:
    """bf16 at four sizes: launches of all choices and rounds, at a rate well below a GPU's, take less than five minutes."""
    seconds = 0.0
    for size in SIZES:
        launches = 0

        def count(choices: Sequence[Tuning], rounds: int) -> list[Result]:
            nonlocal launches
            launches += (len(choices) + 2) * (rounds + 3)  # and the warm-up
            return timer(choices, rounds)

        tune.descend(count, "bf16", size, 10)
        flush = 512 * 2**20 / 2e12  # seconds, at 2 TB/s
        seconds += launches * (2 * math.prod(size) / 500e12 + flush)
    assert 1 < seconds < 120
