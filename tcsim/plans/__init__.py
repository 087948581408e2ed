"""The order in which a library sums a matrix product on a GPU: looked up by shape, and computed with the bits of that GPU."""

from __future__ import annotations

from tcsim.plans.blocks import BLOCKS, blocked_product
from tcsim.plans.lookup import plan, table_answers
from tcsim.plans.product import product
from tcsim.plans.record import Plan, PlanError, Profile, profile, recorded

__all__ = [
    "BLOCKS",
    "Plan",
    "PlanError",
    "Profile",
    "blocked_product",
    "plan",
    "product",
    "profile",
    "recorded",
    "table_answers",
]
