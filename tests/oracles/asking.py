"""Asking another project: a script in a process of its own, where it may crash without ending the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracles.disagreements import VERSIONS

HERE = Path(__file__).parent
TIMEOUT_S = 600.0
SURROUNDINGS = {
    "ask_cutlass_tcgen05.py": {"CUTE_DSL_ARCH": "sm_100a", "CUTE_DSL_KEEP_PTX": "1", "PYTHONWARNINGS": "ignore"},
}
"""Variables that a script's project reads when it is imported, by script."""
TAIL = 4000  # characters of a failed script's output that are shown


@dataclass(frozen=True)
class Question:
    """One job: what the script is to do, and the arrays it needs."""

    job: dict[str, Any]
    arrays: dict[str, Any] = field(default_factory=dict)


def ask(project: str, script: str, questions: Sequence[Question], folder: Path) -> list[dict[str, Any]]:
    """The answers of a project to some questions, in order: the named arrays that the script gave for each.

    A project that is not installed, has another version than the comparison was made with, crashes, hangs or answers
    nothing is a failure of the test, and shows what the script printed.
    """
    request, reply = folder / "request.npz", folder / "reply.npz"
    arrays = {f"{i}.{name}": array for i, question in enumerate(questions) for name, array in question.arrays.items()}
    jobs = json.dumps([question.job for question in questions]).encode()
    np.savez(request, jobs=np.frombuffer(jobs, np.uint8), **arrays)
    reply.unlink(missing_ok=True)
    # where such projects put what they compile, once for all questions; one thread, for the arrays are small
    home = str(folder.parent)
    surroundings = {"HOME": home, "TORCH_EXTENSIONS_DIR": home, "TRITON_HOME": home, "OMP_NUM_THREADS": "1"}
    surroundings["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))  # ninja
    surroundings |= {"CUTE_DSL_DUMP_DIR": str(folder), **SURROUNDINGS.get(script, {})}
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / script), str(request), str(reply)],
            capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S,
            env={**os.environ, **surroundings},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"{project} ({script}) gave no answer in {error.timeout:.0f} s")
    said = (done.stdout + done.stderr)[-TAIL:]
    if done.returncode != 0 or not reply.exists():
        pytest.fail(f"{project} ({script}) ended with status {done.returncode} and no answer; it printed:\n{said}")
    with np.load(reply) as file:
        answer = dict(file)
    found = str(answer.pop("version"))
    assert found == VERSIONS[project], f"{project} is {found}; the comparison was made with {VERSIONS[project]}"
    return [
        {name.removeprefix(f"{i}."): array for name, array in answer.items() if name.startswith(f"{i}.")}
        for i in range(len(questions))
    ]
