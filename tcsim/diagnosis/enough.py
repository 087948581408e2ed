"""The one bound of what an explanation must give: more outputs than numbers that were read off them.

A number that is fitted gives the outputs that it was fitted to, of noise too. So an explanation counts only if outputs are left over that tell
it from any other: a fifth of the numbers more, and TELLING of them beside that.
"""

from __future__ import annotations

TELLING = 8
"""Outputs that an explanation without any fitted number must give, and that are not the model's."""
_MORE = 1.2


def enough(outputs: int, fitted: int = 0) -> bool:
    """Whether outputs that are given tell more than the numbers that were fitted to them.

    >>> enough(7), enough(8), enough(84, 64), enough(85, 64)
    (False, True, False, True)
    """
    return outputs >= _MORE * fitted + TELLING
