"""Models of transformers on the CPU, module by module with the bits that an H200 returned."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from hwkernels.aten.models import CASES, outputs
from tests.support.emulated import Emulated

RECORDED = json.loads(
    lzma.decompress((Path(__file__).parents[1] / "data" / "aten" / "models_h200.json.xz").read_bytes())
)["cases"]


def test_all_are_recorded() -> None:
    assert set(CASES) == RECORDED.keys() and sum(map(len, RECORDED.values())) > 4000


@pytest.mark.parametrize("case", CASES)
def test_every_module(case: str) -> None:
    around = Emulated()
    found, expected = list(outputs(case, "cpu", around)), [tuple(own) for own in RECORDED[case]]
    assert [name for name, _ in found] == [name for name, _ in expected]
    differ = [name for (name, own), (_, other) in zip(found, expected, strict=True) if own != other and other]
    assert not differ, f"{len(differ)} of {len(found)} modules, first {differ[0]}"
    assert around.runs[0].exact, str(around.runs[0])
