"""The steps of a lowering in words, in one cell of a table."""

from __future__ import annotations

from collections.abc import Sequence

from tcsim.arithmetic.steps import Step
from tcsim.inspection import step_text


def steps_text(steps: Sequence[Step], separator: str = "; ", without: str = "none") -> str:
    """A whole lowering."""
    return separator.join(step_text.steps_text(steps, without))
