"""What a type checker says of a program that calls tcsim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import numpy as np
import tcsim

mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
reveal_type(mma)  # tcsim.model.instruction.Instruction
zeros = np.zeros((32, 4), np.uint32)
mma.execute(a=zeros[:, :2], b=zeros[:, :1], c=zeros)
mma.matmul(zeros, zeros, zeros)
mma.matrix("d", zeros)
reveal_type(mma.operands["a"].format.name)  # str
reveal_type(mma.forms[0].operands[0].kind)  # Literal
reveal_type(mma.evidence.level)  # Literal
reveal_type(mma.lowering.kind)  # Literal
reveal_type(mma.mnemonic + mma.arch.name)  # str
tcsim.gemm(zeros, zeros, instruction=mma)
tcsim.TensorMemory()
mma.exeucte(a=zeros)  # wrong: has no attribute "exeucte"
mma.matmult(zeros, zeros)  # wrong: has no attribute "matmult"
mma.operand["a"]  # wrong: has no attribute "operand"
mma.evidence.levels  # wrong: has no attribute "levels"
tcsim.instruction("movmatrix.sync.aligned.m8n8.trans.b16")  # wrong: Missing positional argument "arch"
tcsim.intruction  # wrong: has no attribute "intruction"
"""


def test_a_mistyped_method_is_an_error(tmp_path: Path) -> None:
    """mypy names every line that is wrong and no other, and reveals the types that the comments say."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path / "cache"),
        "--config-file=",
        str(file),
    ]
    answer = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True, text=True
    )
    said: dict[int, str] = {}
    for number, text in re.findall(r"program\.py:(\d+): (?:error|note): (.*)", answer.stdout):
        said[int(number)] = said.get(int(number), "") + text
    lines = dict(enumerate(PROGRAM.splitlines(), 1))
    wanted = {
        number: line.rpartition("# ")[2].removeprefix("wrong: ") for number, line in lines.items() if "# " in line
    }
    assert said.keys() == wanted.keys(), answer.stdout + answer.stderr
    assert [(number, said[number]) for number, text in wanted.items() if text not in said[number]] == []
    assert sum("# wrong" in line for line in lines.values()) == 6
