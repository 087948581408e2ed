"""CCCL: the statements of its PTX headers, and the target of each. Run by tests/oracles/asking.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import distribution

from answering import Arrays, Job, main
from inline_assembly import statements

DISTRIBUTION = "nvidia-cuda-cccl"
FOLDER = "cuda/__ptx/instructions/generated/"
_FUNCTION = re.compile(r"/\*\n(?P<said>.*?)\*/\s*#if __cccl_ptx_isa >= \d+(?P<body>.*?)#endif", re.DOTALL)


def every() -> Iterator[tuple[str, list[str], str]]:
    """Template, constraints, and the first target that the comment before it names."""
    for file in sorted(distribution(DISTRIBUTION).files or ()):
        if FOLDER in file.as_posix() and file.suffix == ".h":
            for function in _FUNCTION.finditer(file.read_text()):
                targets = [name.lower() for name in re.findall(r"SM_[0-9]+[af]?", function["said"])]
                for template, constraints in statements(function["body"]):
                    yield template, constraints, targets[0] if targets else "sm_75"


def answer(job: Job, given: Arrays) -> Arrays:
    """All of them, as JSON."""
    return {"statements": json.dumps(list(every()))}


main(DISTRIBUTION, answer)
