"""Where other projects and tcsim disagree, as data: what differs, the smallest case, who is right and how we know."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

VERSIONS = {
    "gfloat": "0.5.2",
    "ml_dtypes": "0.6.0",
    "mmasim": "2.1.1",
    "nvidia-cutlass-dsl": "4.8.1",
    "triton": "3.7.1",
}
"""The versions that were compared; the extra `oracles` of pyproject.toml installs them."""


@dataclass(frozen=True)
class Disagreement:
    """A class of inputs on which a project says something else than tcsim."""

    name: str
    project: str
    subjects: str  # pattern of the questions where it occurs
    inputs: str  # the class of inputs, in words
    case: dict[str, Any]  # the smallest case
    theirs: int  # the project's code for it
    ours: int  # tcsim's
    right: str  # who is right, and how we know
    covers: Callable[[Any], Any]  # Answers -> mask of the outputs that it explains

    def about(self, subject: str) -> bool:
        """Whether a question is one of `subjects`."""
        return re.fullmatch(self.subjects, subject) is not None


DISAGREEMENTS: tuple[Disagreement, ...] = ()
