"""The bounds of what an explanation must give: more outputs than numbers that were read off them, and how outputs vary.

A number that is fitted gives the outputs that it was fitted to, of noise too. So an explanation counts only if outputs are left over that tell
it from any other: a fifth of the numbers more, and TELLING of them beside that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

TELLING = 8
"""Outputs that an explanation without any fitted number must give, and that are not the model's."""
_MORE = 1.2
_LEFT = 0.25  # of how outputs vary: how far what is off may vary


def enough(outputs: int, fitted: int = 0) -> bool:
    """Whether outputs that are given tell more than the numbers that were fitted to them.

    >>> enough(7), enough(8), enough(84, 64), enough(85, 64)
    (False, True, False, True)
    """
    return outputs >= _MORE * fitted + TELLING


def follows(predicted: npt.NDArray[Any], observed: npt.NDArray[Any]) -> bool:
    """Whether predicted numbers go up and down with the outputs: near 0.5 everywhere is the sigmoid of any small numbers.

    >>> x = np.array([0.49, 0.5, 0.51])
    >>> follows(x + 1e-3, x), follows(x[::-1], x)
    (True, False)
    """
    largest = np.abs(observed).max(initial=0) or 1.0  # whose square may be infinite
    with np.errstate(all="ignore"):
        return bool(np.std(predicted / largest - observed / largest) <= _LEFT * np.std(observed / largest))


def runs(lines: npt.NDArray[np.bool_]) -> int:
    """How often a line is one of some and the one before is not: each is two numbers that were read off.

    >>> runs(np.array([True, True, False, True]))
    2
    """
    return int((lines & ~np.concatenate([[False], lines[:-1]])).sum())
