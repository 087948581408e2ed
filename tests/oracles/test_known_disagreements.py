"""Every disagreement in the table still occurs: its smallest case is answered as the table says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from tests.oracles.asking import Question, ask
from tests.oracles.disagreements import DISAGREEMENTS, VERSIONS, Disagreement
from tests.oracles.layouts import evaluate, values_of


def ask_gfloat(case: dict[str, Any], folder: Path) -> tuple[int, int]:
    """A value rounded."""
    job = {"do": "round", "format": case["format"], "rounding": case["rounding"], "saturate": False}
    (said,) = ask("gfloat", "ask_gfloat.py", [Question(job, {"values": np.array([case["value"]])})], folder)
    return said["codes"][0], tcsim.encode(case["value"], case["format"], case["rounding"])


def ask_ml_dtypes(case: dict[str, Any], folder: Path) -> tuple[int, int]:
    """A float64 cast."""
    job = {"do": "encode", "format": case["format"]}
    (said,) = ask("ml_dtypes", "ask_ml_dtypes.py", [Question(job, {"values": np.array([case["value"]])})], folder)
    return said["codes"][0], tcsim.encode(case["value"], case["format"])


def ask_mmasim(case: dict[str, Any], folder: Path) -> tuple[int, int]:
    """f64 on Hopper: one product of a and b in the first place of K, plus c."""
    operands = {}
    for name, at in (("a", (slice(None), 0)), ("b", (0, slice(None))), ("c", ())):
        operands[name] = np.zeros((1, 8, 4) if name == "a" else (1, 4, 8) if name == "b" else (1, 8, 8), np.uint64)
        operands[name][(0, *at)] = case[name]
    job = {
        "do": "run",
        "model": "MMA",
        "arch": "Ampere",
        "name": case["mnemonic"],
        "formats": dict.fromkeys("abc", "f64"),
    }
    (said,) = ask("mmasim", "ask_mmasim.py", [Question(job, operands)], folder)
    mma = tcsim.instruction("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", arch="sm_90")
    return said["d"][0, 0, 0], mma.matmul(**operands)[0, 0, 0]


def ask_cutlass(case: dict[str, Any], folder: Path) -> tuple[int, int]:
    """The group of 2 columns in which a value of a sparse A is."""
    job = {"kind": "sparse", "shape": case["shape"], "types": case["types"]}
    (said,) = ask("nvidia-cutlass-dsl", "ask_cutlass.py", [Question(job)], folder)
    theirs = evaluate(str(said["a"]))[case["lane"], case["value"]] // 16 // 2
    mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", arch="sm_90")
    return theirs, values_of(mma.operands["a"].layout)[1][case["lane"], case["value"] // 2]


ASKING = {
    "gfloat": ask_gfloat,
    "ml_dtypes": ask_ml_dtypes,
    "mmasim": ask_mmasim,
    "nvidia-cutlass-dsl": ask_cutlass,
}


@pytest.mark.parametrize("item", DISAGREEMENTS, ids=lambda item: f"{item.project}: {item.name}")
def test_the_smallest_case_is_answered_so(item: Disagreement, tmp_path: Path) -> None:
    """A project that was corrected, or a change of tcsim, shows here: then the entry goes."""
    theirs, ours = ASKING[item.project](item.case, tmp_path)
    assert (hex(theirs), hex(ours)) == (hex(item.theirs), hex(item.ours))
    assert item.theirs != item.ours


def test_the_page_has_the_table() -> None:
    """docs/oracles.md names every disagreement and every version."""
    page = (Path(__file__).parents[2] / "docs/oracles.md").read_text(encoding="utf-8")
    assert [item.name for item in DISAGREEMENTS if f"| {item.name} |" not in page] == []
    assert [project for project, version in VERSIONS.items() if f"| {project} {version} |" not in page] == []


def test_the_table_is_complete() -> None:
    """Every entry says who is right; names are not used twice."""
    assert all(item.right and item.inputs and item.project in VERSIONS for item in DISAGREEMENTS)
    assert len({item.name for item in DISAGREEMENTS}) == len(DISAGREEMENTS)
