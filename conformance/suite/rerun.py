"""The command that runs a test of the suite again: from any folder, installed or not."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from conformance.suite import recordings

FOLDER = Path(__file__).resolve().parent.parent


def command(test: str, *options: str, root: Path | None = None) -> str:
    """pytest of this interpreter on a test of the suite, such as `test_cases.py::test_case[...]`; "" is all of it.

    `root` is the folder of recordings, named if it is not the suite's own.
    """
    place = f"{FOLDER}/{test}" if test else str(FOLDER)
    words = [sys.executable, "-m", "pytest", place, *options]
    if root is not None and root.resolve() != recordings.ROOT.resolve():
        words += ["--recordings", str(root.resolve())]
    return shlex.join(words)
