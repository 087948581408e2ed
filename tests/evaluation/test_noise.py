"""Outputs that are not the product of the operands are not explained: one row, constants, signs, permutations. `python -m tests.evaluation.noise` asks 1,000."""

from __future__ import annotations

import pytest

import tcsim
from tests.evaluation.noise.cases import case

FOUND = {
    0: "a bias of a number for each of 64 outputs",
    7: "a factor for each of 64 outputs",
    57: "a clamp to one number",
    74: "a permutation of 64 outputs",
    107: "signs of single rows",
    331: "sums that rounding takes far",
    2084: "rows not loaded where a row has one output",
    306: "numbers near 0.5 as the sigmoid of small ones",
    7149: "numbers near 0.5 as one element of C times a factor",
    155: "what pads the output to the instruction's shape",
}
"""Cases that were explained once, and as what."""


@pytest.mark.parametrize("number", FOUND, ids=[said.replace(" ", "-") for said in FOUND.values()])
def test_what_is_not_the_product_is_not_explained(number: int) -> None:
    own = case(number)
    assert own is not None
    found = tcsim.diagnose(own.instruction, **own.arguments)
    assert found.verdict in ("not explained", "partly explained"), (own.said, str(found))


def test_the_product_of_a_case_is_right() -> None:
    """What the cases exchange is the output alone."""
    own = case(0)
    assert own is not None
    arguments = {name: own.arguments[name] for name in "ab"}
    right = tcsim.gemm(arguments["a"], arguments["b"], instruction=own.instruction)
    assert tcsim.diagnose(own.instruction, **arguments, observed=right).verdict == "correct"
