"""Every output that an H200 gave and that is said to be exact, against tcsim's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hwkernels.aten.cases import DTYPE_NAMES, GROUPS, Case
from hwkernels.aten.recording import digest, recorded_cases
from tcsim.aten.evidence import status
from tests.support import extent
from tests.support.aten_calls import computed, properties

RECORDING = Path(__file__).parents[3] / "data" / "aten_h200.json.xz"
LEAST = {
    "reductions": 1700,
    "softmaxes": 690,
    "normalisations": 730,
    "embeddings": 15,
    "attentions": 100,
    "decodings": 100,
}
"""Cases that are compared at least; of attention what is quick."""


def _quick(case: Case) -> bool:
    o = case.options
    if case.op != "attention" or extent.WHOLE:
        return True
    return o["batch"] * o["heads"] * o["queries"] * o["keys"] * o["size"] < 1 << 20


@pytest.mark.parametrize("group", GROUPS)
def test_exact_calls_equal_the_recording(group: str) -> None:
    compared: Counter[str] = Counter()
    wrong = []
    for case, entry in recorded_cases(RECORDING, group):
        if not _quick(case) or status(case.op, DTYPE_NAMES[case.dtype], **properties(case)) != "exact":
            continue
        compared[case.op] += 1
        if digest(computed(case)) != entry["digest"]:
            wrong.append(case.id)
    assert not wrong
    assert compared.total() >= LEAST[group]


def test_what_is_not_modelled_raises() -> None:
    counted = 0
    for case, _ in recorded_cases(RECORDING):
        if _quick(case) and status(case.op, DTYPE_NAMES[case.dtype], **properties(case)) == "not modelled":
            counted += 1
            with pytest.raises(NotImplementedError):
                computed(case)
    assert counted >= 50
