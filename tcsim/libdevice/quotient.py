"""Quotients and remainders: 1 / x, x / y, fmodf, remainderf.

fmodf and remainderf are exact by definition, whatever steps the compiler takes.
"""

from __future__ import annotations

from typing import Any

from tcsim.libdevice.operations import floats, quotient, remainder_of_nearest, remainder_of_whole

(_ONE,) = floats(0x3F800000)


def reciprocal(x: Any) -> Any:
    """1 / x."""
    return quotient(_ONE, x)


def divide(x: Any, y: Any) -> Any:
    """x / y."""
    return quotient(x, y)


def fmod(x: Any, y: Any) -> Any:
    """x less y times their quotient cut to an integer."""
    return remainder_of_whole(x, y)


def remainder(x: Any, y: Any) -> Any:
    """x less y times their quotient rounded to the nearest integer."""
    return remainder_of_nearest(x, y)
