"""PTX that other projects write: CCCL's headers and TVM's table. Each statement is read, or refused by name with the reason."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tcsim.core.versions import PTX_ISA
from tcsim.ptx import PtxError, parse
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.inline_assembly import statements

REGISTERS = {"r": "b32", "l": "b64", "h": "b16", "f": "f32", "d": "f64", "q": "b128"}
"""The type of a register by its constraint; "n" is a number."""
READ, REFUSED, UNKNOWN = 0, 1, 2


def kernel(template: str, constraints: list[str], target: str) -> str:
    """A kernel of one statement, or of several, with a register for each operand."""
    counts: Counter[str] = Counter()
    names: list[str] = []
    for letter in constraints:
        if letter.isdigit():  # the operand of this number again
            names.append(names[int(letter)])
            continue
        names.append("1" if letter == "n" else f"%{letter}{counts[letter]}")
        counts[letter] += letter != "n"
    declared = " ".join(f".reg .{REGISTERS[letter]} %{letter}<{count}>;" for letter, count in counts.items() if count)
    body = re.sub(r"%(\d+)", lambda match: names[int(match[1])], template).replace("%%", "%")
    return f".version {PTX_ISA[-1]}\n.target {target}\n.address_size 64\n.visible .entry k() {{\n{declared}\n{body}\nret;\n}}\n"


def read(template: str, constraints: list[str], target: str) -> int:
    """What becomes of a statement."""
    try:
        parse(kernel(template, constraints, target))
    except PtxError as error:
        return REFUSED if "not modelled" in str(error) or ".override puts" in str(error) else UNKNOWN
    return READ


@pytest.mark.parametrize(
    ("project", "script", "most", "counts"),
    [
        ("nvidia-cuda-cccl", "ask_cccl.py", 0, {READ: 1991, REFUSED: 793}),
        ("apache-tvm", "ask_tvm.py", 150, {READ: 13099, REFUSED: 4963}),
    ],
)
def test_every_statement_is_known(project: str, script: str, most: int, counts: dict[int, int], tmp_path: Path) -> None:
    """None is unknown; how many of them run."""
    (found,) = ask(project, script, [Question({"most": most})], tmp_path)
    every = json.loads(str(found["statements"]))
    ours = np.array([read(*statement) for statement in every], np.uint8)
    theirs = np.where(ours == REFUSED, ours, np.uint8(READ))
    answers = Answers(project, "statements of PTX", {}, theirs, ours)
    compare(answers, lambda place: every[place[0]][0].strip().partition("\n")[0][:160])
    assert Counter(ours.tolist()) == counts


@pytest.mark.parametrize(
    ("text", "template", "constraints"),
    [
        ('asm("bar.sync 0;");', "bar.sync 0;", []),
        (
            'asm volatile("{ .reg .pred p;\\n mov.b32 %0, %%clock; }" : "=r"(a) :: "memory");',
            "{ .reg .pred p;\n mov.b32 %0, %%clock; }",
            ["r"],
        ),
        ('asm("x %0, " "%1;" : "+f"(a[1]) : "l"(::cuda::f(b, "q")), "n"(3));', "x %0, %1;", ["f", "l", "n"]),
    ],
)
def test_inline_assembly_is_found(text: str, template: str, constraints: list[str]) -> None:
    """Literals side by side, scopes of names, operands with brackets and literals in them."""
    assert list(statements(text)) == [(template, constraints)]
