"""Number formats against ml_dtypes: every code decoded, values encoded by casts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tcsim
from tcsim.numbers.formats import NAN
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.values import around, codes_of

PROJECT = "ml_dtypes"
SCRIPT = "ask_ml_dtypes.py"
FORMATS = ("bf16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "ue8m0")
INTEGERS = ("s4", "u4")


@pytest.mark.parametrize("name", [*FORMATS, *INTEGERS])
def test_codes_decode_alike(name: str, tmp_path: Path) -> None:
    """Every code."""
    codes = codes_of(tcsim.format(name))
    (said,) = ask(PROJECT, SCRIPT, [Question({"do": "decode", "format": name}, {"codes": codes})], tmp_path)
    ours = tcsim.decode(codes, name).astype(np.float64)
    assert compare(Answers(PROJECT, f"{name} decode", {"code": codes}, said["values"], ours)) == len(codes)


@pytest.mark.parametrize("source", ["float64", "float32"])
@pytest.mark.parametrize("name", FORMATS)
def test_values_round_alike(name: str, source: str, tmp_path: Path) -> None:
    """Values, middles and their neighbours to nearest even, from both floats of NumPy."""
    format = tcsim.format(name)
    with np.errstate(over="ignore", under="ignore"):
        values = around(format).astype(source)
    (said,) = ask(PROJECT, SCRIPT, [Question({"do": "encode", "format": name}, {"values": values})], tmp_path)
    theirs, ours = said["codes"].astype(format.dtype), tcsim.encode(values, name)
    for codes in (theirs, ours):
        codes[format.fields(codes).kind == NAN] = format.canonical_nan or 0
    assert compare(Answers(PROJECT, f"{name} from {source}", {"value": values}, theirs, ours)) == len(values)
