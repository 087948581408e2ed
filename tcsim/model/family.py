"""What a family of instructions contributes to the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.model.row import Row


@dataclass(frozen=True)
class Family:
    """What a family module contributes to the registry."""

    name: str
    rows: Callable[[], tuple[Row, ...]]
    lowering: Callable[[Row, Arch], Lowering]
    evidence: Callable[[Row, Arch], Evidence]
    bind: Callable[..., Any]  # (row, arch, targets, lowering, evidence) -> the instruction with its execute
    without_steps: str = "none: it moves data"  # what a row does whose lowering has no arithmetic steps
