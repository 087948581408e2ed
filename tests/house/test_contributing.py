"""docs/contributing.md is right: what it adds to the packages, an instruction, an arch, a family, works in a copy of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/contributing.md").read_text(encoding="utf-8")
ROW = "mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"
DOT = "dp4a.s32.u32"
MOST_FILES = 3  # of a small family

NEW_INSTRUCTION = """
import json, sys
import numpy as np
import tcsim
from conformance.isa import testbench_of
from conformance.suite.cases import Settings, Suite
from hwkernels.probes.probe import emit

mnemonic, arch, assembled = sys.argv[1:]
made = tcsim.instruction(mnemonic, arch=arch)
found = {"mnemonic": made.mnemonic, "targets": made.targets, "evidence": str(made.evidence), "forms": [form.names for form in made.forms]}
cases = [case for case in Suite(Settings(arch=arch, mode="live")).cases() if case.mnemonic == made.mnemonic]
found["cases"] = [case.id for case in cases]
bench, found["answers"], found["killed"] = testbench_of(made.row.family), {}, []
for case in cases:
    inputs = bench.inputs(made, case.name, case.seed, 16)
    right = bench.model(made, inputs)
    found["answers"][case.name] = len(right)
    assert bench.compare(made, inputs, right, right).mismatches == 0
    for mutant in bench.mutants:
        if mutant.applies(made) and (np.asarray(mutant.run(made, inputs)) != right).any():
            found["killed"].append(mutant.name)
found["probe"] = emit(made.row, made.targets[0])
if assembled:
    found["assembled"] = Suite(Settings(arch=arch, mode="replay")).assemble(made.mnemonic).verdict
if "matmul" in dir(made):
    found["matmul"] = float(tcsim.decode(made.matmul(np.full((16, 32), 0x3F80, np.uint16), np.full((32, 8), 0x4000, np.uint16),
                                                     np.zeros((16, 8), np.uint32)), "f32")[5, 7])
else:
    found["execute"] = int(made.execute(0xFF02FF02, 0x03FF03FF, 1000))
print(json.dumps(found))
"""
NEW_ARCH = """
import json, sys, tcsim
from tcsim import catalog
new, old = (tcsim.instruction(sys.argv[1], arch=arch) for arch in ("sm_130", "sm_120"))
print(json.dumps({"targets": new.targets, "level": new.evidence.level, "same": new.lowering == old.lowering,
                  "rows": sum(1 for _ in catalog.on_arch("sm_130"))}))
"""


def sections() -> dict[str, str]:
    """The sections of the page by their titles."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def edit(title: str, path: Path) -> None:
    """Change a file as the section's diff says: lines that begin with "+" come after those before them."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", sections()[title], re.MULTILINE | re.DOTALL)
    lines = diff.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" ", " +"))
    before = path.read_text(encoding="utf-8")
    assert old and before.count(old) == 1, f"{path.name} has changed its form"
    path.write_text(before.replace(old, new), encoding="utf-8")


def modules_of(title: str) -> dict[str, str]:
    """The files that a section adds, by path."""
    found = re.findall(r"^\*\*([\w/]+\.py)\*\*\n\n```py\n(.*?)^```$", sections()[title], re.MULTILINE | re.DOTALL)
    assert len(found) == sections()[title].count("```py\n")
    return dict(found)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages without the recordings."""
    for package in ("tcsim", "hwkernels", "conformance"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.npz", "*.json")
        )
    return tmp_path


def run(root: Path, program: str, *arguments: str) -> dict[str, Any]:
    """What a fresh interpreter finds in the copy."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    answer = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_an_instruction_is_a_row_in_one_file(copy: Path) -> None:
    """It is found, executed, probed and enumerated; ptxas of today does not take it, so that it is not assembled."""
    edit("Add an instruction to a family", copy / "tcsim/isa/mma/sync.py")
    found = run(copy, NEW_INSTRUCTION, ROW, "sm_90", "")
    assert found["mnemonic"] == ROW and found["targets"] == ["sm_90", "sm_90a"]
    assert found["forms"] == [["d", "a", "b", "c"]]
    assert found["matmul"] == 64.0  # 32 products of 1 and 2
    assert f"    {ROW} {{" in found["probe"] and ".version 9.9" in found["probe"]
    assert len(found["cases"]) > 5 and set(found["answers"].values()) == {16}
    assert found["killed"]


def test_an_arch_is_an_entry_of_one_table(copy: Path) -> None:
    """Instructions exist on it, compute as on the arch that stands in, and are inferred."""
    edit("Add an arch", copy / "tcsim/core/targets.py")
    found = run(copy, NEW_ARCH, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    assert found["targets"] == ["sm_130", "sm_130a"]
    assert found["level"] == "inferred" and found["same"]
    assert found["rows"] > 1000


def test_a_family_is_three_files(copy: Path) -> None:
    """Found without being listed anywhere: executed, probed, assembled, enumerated, and its mutant is killed."""
    files = modules_of("Add a family")
    assert len(files) <= MOST_FILES
    assert {path.rpartition("/")[0] for path in files} == {"tcsim/isa", "hwkernels/probes", "conformance/isa"}
    for path, text in files.items():
        assert not (copy / path).exists(), f"{path} exists: take another example"
        (copy / path).write_text(text, encoding="utf-8")
    found = run(copy, NEW_INSTRUCTION, DOT, "sm_90", "assembled")
    assert found["execute"] == 1000 + 2 * (2 * 255) - 2 * (1 * 3)
    assert found["forms"] == [["d", "a", "b", "c"]]
    assert f"    {DOT} %d, %a, %b, %c;" in found["probe"]
    assert found["cases"] == [f"{DOT}-random-0", f"{DOT}-extreme-0"]
    assert found["answers"] == {"random": 16, "extreme": 16}
    assert "c left out" in found["killed"]
    assert found["assembled"] == "UNVERIFIED"  # ptxas takes it, and its machine code is as claimed


def test_the_modules_of_the_page_are_clean(tmp_path: Path) -> None:
    """ruff finds nothing in them, and would not format them otherwise."""
    for path, text in modules_of("Add a family").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    config = ["--config", str(ROOT / "pyproject.toml")]
    for command in (["check"], ["format", "--check"]):
        answer = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *config, str(tmp_path)], capture_output=True, text=True
        )
        assert answer.returncode == 0, answer.stdout
