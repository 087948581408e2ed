"""The map of errors: planted ones are seen where they are and as what they are; nothing is seen in what is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.diagnosis.error_map import ErrorMap, error_map
from tcsim.inspection.diagnosis_view import diagnosis_report
from tcsim.inspection.report_html import report_page

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
Numbers = np.ndarray[Any, np.dtype[np.float64]]
Plant = Callable[[Numbers, Numbers, np.random.Generator], None]


def _rows(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[32:64] = r[:32]


def _columns(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[:, :-8] = r[:, 8:]
    o[:, -8:] = 0


def _part_of_rows(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[32:64, 64:] = r[:32, 64:]


def _every_32(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[:] = r[np.arange(128) % 32]


def _tiles(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[:64, :64], o[64:, 64:] = r[64:, 64:], r[:64, :64]


def _factors(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[:64, :32] *= 2
    o[64:, 96:] *= -1
    o[96:, :32] *= 0.5


def _garbage_repeated(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[:] = random.standard_normal(o.shape)
    o[32:64] = o[:32]


def _one_row_everywhere(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[:] = random.standard_normal((1, 128))


def _nan(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[5:9, 70:80] = np.nan


def _bias(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[:, :64] += 0.5


def _one(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[3, 5] = 700


def _third_of_each_16(o: Numbers, r: Numbers, random: np.random.Generator) -> None:
    o[np.arange(128) % 16 >= 8] = 0


PLANTED: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "rows": (_rows, ("rows 32-63 look like rows 0-31 of the model",)),
    "columns": (
        _columns,
        (
            "zero where the model is not: 1,024 of 16,384 wrong outputs, rows 0-127, columns 120-127",
            "columns shifted by 8: columns 0-119 look like columns 8-127 of the model",
        ),
    ),
    "part of rows": (_part_of_rows, ("rows 32-63 look like rows 0-31 of the model, in columns 64-127",)),
    "every 32": (_every_32, ("rows 32-127 repeat rows 0-31 of the model, every 32",)),
    "tiles": (_tiles, ("rows 0-63, columns 0-63 look like rows 64-127, columns 64-127 of the model",)),
    "factors": (
        _factors,
        (
            "twice the model: rows 0-63, columns 0-31",
            "the negative of the model: rows 64-127, columns 96-127",
            "half the model: rows 96-127, columns 0-31",
        ),
    ),
    "garbage repeated": (_garbage_repeated, ("rows 32-63 look like rows 0-31",)),
    "one row": (_one_row_everywhere, ("rows 0-127 are all the same",)),
    "nan": (
        _nan,
        ("NaN or infinite where the model is not: 40 of 40 wrong outputs, rows 5-8, columns 70-79",),
    ),
    "bias": (_bias, ("the model plus 0.5: rows 0-127, columns 0-63",)),
    "one": (_one, ("furthest off: D(3,5) is 700",)),
    "half of each 16": (_third_of_each_16, ("rows 8-15 of every 16 in 0-127",)),
}


def planted(name: str) -> ErrorMap:
    """The map of one plant on a matrix of 128 x 128."""
    random = np.random.default_rng(0)
    model = random.standard_normal((1, 128, 128))
    observed = model.copy()
    PLANTED[name][0](observed[0], model[0], random)
    return error_map(observed, model)


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_seen(name: str) -> None:
    """Each sentence that is expected, and no other beside the output that is furthest off."""
    found = planted(name)
    wanted = PLANTED[name][1]
    for text in wanted:
        assert any(text in fact for fact in found.facts), found.facts
    others = [fact for fact in found.facts if not any(text in fact for text in wanted)]
    assert len(others) <= 1 + (name == "tiles") and sum(fact.startswith("furthest off") for fact in found.facts) <= 1


@pytest.mark.parametrize("relative", [0.0, 1e-7])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_seen_in_what_is_right(seed: int, relative: float) -> None:
    """To the bit, or within rounding; also with NaN that the model has too."""
    random = np.random.default_rng(seed)
    model = random.standard_normal((2, 40, 72))
    model[0, 3, 3] = np.nan
    found = error_map(model * (1 + relative * random.standard_normal(model.shape)), model)
    assert found.facts == () and found.sums["beyond"].sum() == 0
    assert set(np.unique(found.blocks(8).kinds)) <= set(".~")


@pytest.mark.parametrize("seed", range(4))
def test_noise_resembles_nothing(seed: int) -> None:
    """Random outputs, in f32 and as coarse as bf16: no line, block or factor is claimed."""
    random = np.random.default_rng(seed)
    model, noise = random.standard_normal((2, 1, 96, 80))
    for exactness in (0.0, 2.0**-7):
        found = error_map(noise, model, exactness=exactness)
        assert len(found.facts) == 1 and found.facts[0].startswith("furthest off")
        assert set(np.unique(found.blocks(16).kinds)) == {"x"}


@pytest.mark.parametrize("size", [8, 16, 32, 64])
def test_blocks_count_their_outputs(size: int) -> None:
    """At the edges too; wrong outputs are those that were planted."""
    random = np.random.default_rng(size)
    model = random.standard_normal((2, 100, 130))
    wrong = random.random(model.shape) < 0.3
    found = error_map(np.where(wrong, model + 1, model), model).blocks(size)
    compared = 0
    for t, i, j in np.ndindex(found.wrong.shape):
        place = (t, slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size))
        assert found.outputs[t, i, j] == wrong[place].size and found.wrong[t, i, j] == wrong[place].sum()
        compared += 1
    assert compared == 2 * -(-100 // size) * -(-130 // size)


def test_a_large_output_takes_seconds() -> None:
    """1024 x 1024, wholly wrong: a sixteenth of what 4096 x 4096 takes."""
    random = np.random.default_rng(0)
    model = random.standard_normal((1, 1024, 1024))
    observed = np.roll(model, 64, axis=2)
    start = time.process_time()
    found = error_map(observed, model)
    assert time.process_time() - start < 1
    assert any("columns" in fact and "look like" in fact for fact in found.facts)
    assert max(map(len, found.drawn())) <= 80


def test_a_diagnosis_draws_what_it_cannot_explain() -> None:
    """Text, JSON and page; what comes closest says what it leaves; nothing of it is drawn of a right result."""
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((32, 16), (16, 32)))
    right = tcsim.gemm(a, b, instruction=tcsim.instruction(MMA, arch="sm_90")).view(np.float32)
    observed = right.copy()
    observed[:8] = random.standard_normal((8, 32))
    observed[16:, 16:] *= 3
    found = tcsim.diagnose(MMA, a=a, b=b, observed=observed)
    assert found.errors is not None and not found.explanations
    text = str(found)
    assert "3 times the model: rows 16-31, columns 16-31" in text and "100.0%" not in text
    assert all(item.left for item in found.nearest if right.size > item.matched > found.right)
    assert found.as_dict()["errors"]["map"] == ["".join(row) for row in found.errors.shown.kinds[0]]
    page = report_page(diagnosis_report("t", found))
    assert len(page) < 100_000 and "3 times the model" in page
    assert found._repr_html_().startswith("<iframe")
    assert tcsim.diagnose(MMA, a=a, b=b, observed=right).errors is None


def test_equal_operands_cannot_tell() -> None:
    """All ones: a right result says so too, and a wrong one is not explained with confidence."""
    a, b = np.ones((32, 32), np.float16), np.ones((32, 32), np.float16)
    for seen, verdict in ((32.0, "correct"), (64.0, "ambiguous"), (5.0, "ambiguous")):
        found = tcsim.diagnose(MMA, a=a, b=b, observed=np.full((32, 32), seen, np.float32))
        assert found.verdict == verdict and found.mistake is None
        assert "all rows of a are equal and all columns of b are equal" in str(found)
