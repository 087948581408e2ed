"""A kind of mistake is one row: another package adds one, and it is named in either operand and in both."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import tcsim
from tcsim.diagnosis import rules

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
MODULE = """
from tcsim.diagnosis.maps import Rule

DETAIL = "line r is rotated by r in each 16 along K"
ADVICE = "writer and reader of the tile of {x} must skew it alike"
ROW = Rule("{x}: skew on one side only", DETAIL, ADVICE, lambda r, k, o: (r, k // 16 * 16 + (k + r) % 16), 3)
"""


@pytest.mark.parametrize("operands", ["a", "b", "ab"])
def test_a_row_is_a_kind_of_mistake(operands: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "rows_of_others"
    package.mkdir()
    (package / "__init__.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    row = importlib.import_module("rows_of_others").ROW
    random, k = np.random.default_rng(3), np.arange(32)[None]
    a, b = (random.standard_normal((lines, 32)).astype(np.float16) for lines in (32, 24))
    read = {
        name: np.take_along_axis(x, k // 16 * 16 + (k + np.arange(len(x))[:, None]) % 16, 1) if name in operands else x
        for name, x in (("a", a), ("b", b))
    }
    observed = tcsim.gemm(read["a"], np.ascontiguousarray(read["b"].T), instruction=MMA).view(np.float32)
    given = {"a": a, "b": np.ascontiguousarray(b.T), "observed": observed, "arch": "sm_90"}
    assert "skew" not in str(tcsim.diagnose(MMA, **given))
    monkeypatch.setattr(rules, "ROWS", (*rules.ROWS, row))
    found = tcsim.diagnose(MMA, **given)
    expected = " + ".join(f"{name}: skew on one side only" for name in operands)
    assert (found.verdict, found.mistake, found.explanations[0].bits) == ("explained", expected, True), str(found)
