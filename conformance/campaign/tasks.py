"""What a device of a campaign is asked, as data that can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from conformance.campaign.subject import SHOWN, Subject

WORDS = 4 + SHOWN
"""What a comparison leaves: outputs, mismatches, digest, how many places were met, and the first of them."""


@dataclass(frozen=True)
class Task:
    """Samples first to first + samples - 1 of a subject; `part` of them, from the first on, get a digest of their own."""

    subject: Subject
    seed: int
    first: int
    samples: int
    part: int

    @property
    def kernel(self) -> str:
        """What a watchdog calls it."""
        return f"{self.subject.mnemonic}, samples from {self.first}"


@dataclass(frozen=True, eq=False)
class Question:
    """Operands of some samples, as codes, for which the instruction's answer is asked."""

    subject: Subject
    arrays: dict[str, npt.NDArray[Any]]  # of a, b, c, and groups of a sparse A: (samples, elements)

    @property
    def kernel(self) -> str:
        """What a watchdog calls it."""
        return self.subject.mnemonic
