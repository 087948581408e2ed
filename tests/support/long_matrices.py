"""Long matrices: `pytest tests/` runs a part of each, the same in every run; with TCSIM_WHOLE=1, which `tox -e whole` sets, all of it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any, TypeVar

from hypothesis import settings

T = TypeVar("T")

WHOLE = os.environ.get("TCSIM_WHOLE") == "1"


def part(items: Iterable[T], number: int, seed: object = 0) -> list[T]:
    """So many of them, drawn by a seed, in their order; all of them where the whole is asked for."""
    found = list(items)
    if WHOLE or number >= len(found):
        return found
    return [found[place] for place in sorted(random.Random(str(seed)).sample(range(len(found)), number))]


def examples(number: int, **others: Any) -> settings:
    """Hypothesis draws a fifth of so many examples, ten at least; all of them where the whole is asked for."""
    return settings(max_examples=number if WHOLE else min(number, max(10, number // 5)), **others)
