"""What docs/contributing.md adds to the executor of PTX works in a copy of the packages: each time one row, and nothing else changes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.house.test_contributing import ROOT, run, sections
from tests.house.test_contributing import copy as copy

INSTRUCTION, RULE = "Add an ordinary instruction", "Add a hazard rule"
KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry made_up(.param .u64 given)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [given];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d1, %d1, %d2;
    gray.b32 %r2, %r1;
    st.global.b32 [%d1], %r2;
    setp.lt.u32 %p1, %r1, 3;
    @%p1 clear.global.b32 [%d1];
    ret;
}
"""
LAUNCHED = """
import json, sys
import numpy as np
from tcsim.ptx import Memory, parse

memory, answers = Memory(), {}
pointer = memory.allocate(np.full(32, 9, np.uint32).view(np.uint8))
run = parse(sys.argv[1]).kernel().launch(memory, [pointer], block=(32, 1, 1))
answers["words"] = memory.read(pointer, 128).view(np.uint32).tolist()
answers["hazards"] = [hazard.name for hazard in run.hazards]
for old in (("8.0", "7.8"), ("sm_90", "sm_80")):
    try:
        parse(sys.argv[1].replace(*old)).kernel().launch(memory, [pointer])
        answers[old[1]] = ""
    except ValueError as error:
        answers[old[1]] = str(error)
print(json.dumps(answers))
"""

CHECKED = """
import json
from tcsim.ptx import HAZARDS, Memory, parse
from tests.hazards.kernels import RACES

answers = {"known": [own for own in HAZARDS if own == "SMEM_BYTE_STORE"]}
for name, source in (("right", RACES.source), ("wrong", RACES.without("SMEM_BYTE_STORE"))):
    memory = Memory()
    pointers = [memory.allocate(4096) for _ in range(2)]
    run = parse(source).kernel().launch(memory, pointers, block=(RACES.threads, 1, 1))
    answers[name] = [[own.severity, own.line, own.thread] for own in run.hazards if own.name == "SMEM_BYTE_STORE"]
answers["line"] = 1 + [".u8 [%r3]" in line for line in RACES.without("SMEM_BYTE_STORE").splitlines()].index(True)
print(json.dumps(answers))
"""


def extended(root: Path, section: str) -> set[str]:
    """Do to a copy what a section of the page says; the files that it changes."""
    diffs = re.findall(r"^\*\*([\w/]+\.py)\*\*\n\n```diff\n(.*?)^```$", sections()[section], re.MULTILINE | re.DOTALL)
    for name, diff in diffs:
        path, lines = root / name, diff.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        before = path.read_text(encoding="utf-8")
        assert old and before.count(old) == 1, f"{name} has changed its form"
        path.write_text(before.replace(old, new), encoding="utf-8")
    return {name for name, _ in diffs}


def test_an_ordinary_instruction_is_one_row(copy: Path) -> None:
    """One that computes and one that moves data: read, compiled, run, checked, refused for what does not have it."""
    assert {name.split("/")[2] for name in extended(copy, INSTRUCTION)} == {"scalar", "ordinary"}
    found = run(copy, LAUNCHED, KERNEL)
    assert found["words"] == [0, 0, 0, *(number ^ number >> 1 for number in range(3, 32))]
    assert found["hazards"] == []
    assert "gray.b32 needs .version 8.0 or later" in found["7.8"]
    assert "sm_80 does not have this instruction" in found["sm_80"]


def test_a_hazard_rule_is_a_row_and_a_judge(copy: Path) -> None:
    """The planted example breaks it, at its line; its right twin does not."""
    for package in ("hazards", "support"):
        shutil.copytree(
            ROOT / "tests" / package, copy / "tests" / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    changed = extended(copy, RULE)
    assert changed == {"tcsim/ptx/hazards/rules.py", "tcsim/ptx/check/rules/shared.py", "tests/hazards/kernels.py"}
    found = run(copy, CHECKED)
    assert found["known"] == ["SMEM_BYTE_STORE"] and found["right"] == []
    assert found["wrong"] == [["perf", found["line"], 0]]
