"""Every recorded or runnable case: hardware bits against model bits."""

from __future__ import annotations

from typing import Any

from conformance.suite.cases import Case, Outcome, Suite
from tcsim.model.row import Row


def test_case(case: Case, suite: Suite, conclude: Any) -> None:
    """The hardware's result registers equal the model's, bit for bit."""
    conclude(suite.instruction(case.mnemonic).row.family, case.mnemonic, suite.run(case))


def test_assembles(unproven: str, suite: Suite, conclude: Any) -> None:
    """No hardware result here: the probe assembles for every target and its machine code is as claimed."""
    conclude(suite.instruction(unproven).row.family, unproven, suite.assemble(unproven))


def test_refused(refused: Row, suite: Suite, conclude: Any) -> None:
    """Spellings that the assembler accepts and drops, or that the model does not compute, are refused, with the reason."""
    conclude(refused.family, refused.mnemonic, Outcome("NOT_SUPPORTED", how=suite.why_refused(refused)))
