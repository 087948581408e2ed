"""Every output that an H200 gave and that is said to be exact, against tcsim's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tcsim
from hwkernels.aten.cases import GROUPS, Case
from hwkernels.aten.recording import digest, recorded_cases
from tcsim.aten import known
from tcsim.aten.attention import composite
from tcsim.aten.evidence import DOMAINS, evidence_of
from tcsim.core.errors import NotModelledError
from tests.support import extent
from tests.support.aten_calls import computed, properties

RECORDING = Path(__file__).parents[3] / "data" / "aten_h200.json.xz"
SMALL = 1 << 17  # multiplications or elements of a case that every run computes
ONE_OF = 8  # of the larger ones up to LARGE, by the hash of the name
LARGE = 1 << 22
COMPARED = {
    "reductions": (1592, 1778),
    "softmaxes": (636, 690),
    "normalisations": (704, 735),
    "embeddings": (9, 15),
    "attentions": (657, 2000),
    "decodings": (113, 330),
}
"""The exact cases of each group that are compared by default, and with TCSIM_WHOLE=1."""


def _size(case: Case) -> int:
    o = case.options
    if case.op == "attention":
        return int(o["batch"] * o["heads"] * o["queries"] * o["keys"] * o["size"])
    size = 1
    for n in case.shape:
        size *= n
    return size


def _chosen(case: Case) -> bool:
    size = _size(case)
    return extent.WHOLE or size <= SMALL or (size <= LARGE and case.seed % ONE_OF == 0)


def _cases(group: str | None, status: str) -> Iterator[tuple[Case, str]]:
    for case, entry in recorded_cases(RECORDING, group):
        if _chosen(case) and evidence_of(case.op, case.dtype, **properties(case)).status == status:
            yield case, entry["digest"]


@pytest.mark.parametrize("group", GROUPS)
def test_exact_calls_equal_the_recording(group: str) -> None:
    compared, wrong = 0, []
    for case, expected in _cases(group, "exact"):
        compared += 1
        if digest(computed(case)) != expected:
            wrong.append(case.id)
    assert not wrong
    assert compared == COMPARED[group][extent.WHOLE]


def test_what_is_not_modelled_raises() -> None:
    counted = 0
    for case, _ in _cases(None, "not modelled"):
        counted += 1
        with pytest.raises(NotModelledError):
            computed(case)
        with pytest.raises(NotModelledError, match=f"aten.{case.op}: "):
            known(case.op, case.dtype, **properties(case))
    assert counted == (38, 54)[extent.WHOLE]


def test_every_operation_says_what_is_known() -> None:
    for row in DOMAINS:
        assert row.evidence
        assert row.dtypes
    with pytest.raises(NotModelledError, match=r"aten\.median: no rule for float32"):
        known("median", "f32")
    with pytest.raises(NotModelledError, match=r"aten\.sum: no rule for int64"):
        known("sum", "int64", length=3)


def test_one_query_takes_only_recorded_products(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.ones((2, 1, 64), np.float32), np.ones((2, 64, 7), np.float32)
    assert (composite.row(a, b, "TN") == 64).all()
    monkeypatch.setattr(
        composite, "plan", lambda *given, **named: replace(tcsim.plan(*given, **named), source="assumed")
    )
    with pytest.raises(NotModelledError, match="one query"):
        composite.row(a, b, "TN")
