"""The fused multiply-add of f64 on whole arrays, exact to the bit, in the host's f64 arithmetic.

Faster than `tcsim.numbers.ieee.fma`, which computes the same in integers, checks this, and takes the elements that this cannot:
NaN, infinities, numbers near the ends of the exponent range, and sums too close to halfway between two numbers.

The product is two numbers without error (Veltkamp's splitting, Dekker's product), and so is the sum of the larger and the addend
(Knuth's two-sum). So the result is a number and two small ones. These are added with a rounding of at most 2**-53 of their sum.
To nearest: where a little more and a little less give the same result, it is right. In a direction: if those two have anything
in excess of what the rounding lost, its sign says on which side of the nearest number the result lies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.lowering.traced import asarray
from tcsim.numbers import ieee
from tcsim.numbers.formats import FORMATS
from tcsim.numbers.rounding import Rounding

Codes = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_F64 = FORMATS["f64"]
_SPLITTER = 2.0**27 + 1
_ABOVE, _BELOW = 1 + 2.0**-52, 1 - 2.0**-52
_NARROW = 2.0**480  # between its inverse and itself, any two numbers have a product with an exact error
_LARGEST = 2.0**990  # numbers up to here can be split; products and addends up to here do not overflow when added
_SMALLEST_NUMBER, _SMALLEST_PRODUCT = 2.0**-1000, 2.0**-960  # the last bit of the error lies above 2**-1074


def fma(a: Codes, b: Codes, c: Codes, rounding: Rounding = "rne", nan_order: str = "") -> Codes:
    """a * b + c with one rounding, uint64 codes of f64 in and out; the arrays broadcast. NaN as `tcsim.numbers.ieee.fma` says.

    >>> third = np.array([1 / 3]).view(np.uint64)
    >>> fma(third, np.array([3.0]).view(np.uint64), np.array([-1.0]).view(np.uint64)).view(np.float64) == -(2.0**-54)
    array([ True])
    """
    if rounding == "rna":
        return ieee.fma(a, b, c, (_F64,) * 3, _F64, rounding, nan_order)
    x, y, z = (asarray(codes).view(np.float64) for codes in (a, b, c))
    with np.errstate(all="ignore"):
        product, error = _product(x, y)
        d, unsure = _sum(product, error, z, rounding)
        doubtful = _doubtful(x, y, z, product)
    codes = d.view(np.uint64)
    for slow in (unsure, doubtful):
        if slow is not None:
            left, right, addend = (operand[slow] for operand in np.broadcast_arrays(a, b, c))
            codes[slow] = ieee.fma(left, right, addend, (_F64,) * 3, _F64, rounding, nan_order)
    return codes


def _split(x: Doubles) -> tuple[Doubles, Doubles]:
    """Two numbers of at most 26 significant bits whose sum is x."""
    large = x * _SPLITTER
    high = large - (large - x)
    return high, x - high


def _product(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """The rounded product and its error."""
    (x_high, x_low), (y_high, y_low) = _split(x), _split(y)
    product = np.multiply(x, y)
    error = x_high * y_high
    error -= product
    part = x_high * y_low
    error += part
    error += np.multiply(x_low, y_high, out=part)
    error += np.multiply(x_low, y_low, out=part)
    return product, error


def _two_sum(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """The rounded sum and its error."""
    total = x + y
    of_y = total - x
    rest = total - of_y
    np.subtract(x, rest, out=rest)
    np.subtract(y, of_y, out=of_y)
    rest += of_y
    return total, rest


def _sum(product: Doubles, error: Doubles, z: Doubles, rounding: Rounding) -> tuple[Doubles, Flags | None]:
    """product + error + z with one rounding, and where that may be wrong."""
    high, rest = _two_sum(product, z)
    unsure = None
    if rounding == "rne":
        rest += error  # off by at most 2**-53 of itself: does it matter?
        d = high + rest * _ABOVE
        rest *= _BELOW
        high += rest
        differ = high != d
        if differ.any():
            exact = error == 0  # the host's own sum is right, halfway between two numbers too
            d = np.where(exact, product + z, d)
            differ &= ~exact
            unsure = differ if differ.any() else None
    else:
        small = rest + error
        d, left = _two_sum(high, small)
        exact = left == 0  # but for what the sum of the two small ones lost, which is less than anything left here
        if exact.any():
            np.copyto(left, _two_sum(rest, error)[1], where=exact)
        _direct(d, left, rounding)
    zero = d == 0
    if zero.any():  # exactly: its sign is that of both terms, or of a cancellation
        np.add(product, z, out=d, where=zero)
        if rounding == "rm":
            d[zero & (np.signbit(product) | np.signbit(z))] = -0.0
    return d, unsure


def _direct(near: Doubles, left: Doubles, rounding: Rounding) -> None:
    """Move each nearest number by one where near + left lies on the wrong side of it. Where anything is left, near is not zero."""
    bits, negative = near.view(np.int64), near < 0
    if rounding == "rz":
        bits -= (left != 0) & ((left < 0) != negative)
    elif rounding == "rm":
        down = left < 0
        bits -= down & ~negative
        bits += down & negative
    else:
        up = left > 0
        bits += up & ~negative
        bits -= up & negative


def _doubtful(x: Doubles, y: Doubles, z: Doubles, product: Doubles) -> Flags | None:
    """Where an operand or the product is not a number or too near an end of the exponent range; None: nowhere."""
    sizes = np.abs(x), np.abs(y)
    narrow = all(size.min(initial=1) >= 1 / _NARROW and size.max(initial=1) <= _NARROW for size in sizes)
    if narrow and z.max(initial=0) <= _LARGEST and z.min(initial=0) >= -_LARGEST:
        return None
    allowed = [(size == 0) | (size >= _SMALLEST_NUMBER) & (size <= _LARGEST) for size in sizes]
    size = np.abs(product)
    sure = (size >= _SMALLEST_PRODUCT) & (size <= _LARGEST) | (x == 0) | (y == 0)
    found: Flags = ~(allowed[0] & allowed[1] & sure & (np.abs(z) <= _LARGEST))
    return found if found.any() else None
