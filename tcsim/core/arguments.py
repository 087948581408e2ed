"""Checks of arguments: names, integers and arrays, and the errors for what is not one."""

from __future__ import annotations

from collections.abc import Container
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, TcsimError


def integer(value: Any, what: str, error: type[TcsimError] = OperandError) -> int:
    """A Python int from an integer of any type, NumPy's included; nothing is rounded or parsed.

    Raises `error`, quoting the value after `what`.

    >>> integer(np.uint64(5), "row")
    5
    >>> integer(1.0, "row")
    Traceback (most recent call last):
    tcsim.core.errors.OperandError: row=1.0; valid: an integer
    """
    try:
        return index(value)
    except TypeError:
        raise error(f"{what}={value!r}; valid: an integer") from None


def integers(value: Any, what: str, error: type[TcsimError] = OperandError) -> npt.NDArray[np.int64]:
    """An int64 array from an integer, a sequence or an array of integers.

    Raises `error` for anything else, and for integers beyond 64 bits.

    >>> integers([1, 2], "lane")
    array([1, 2])
    >>> integers([0.5], "lane")
    Traceback (most recent call last):
    tcsim.core.errors.OperandError: lane is float64 (1,); valid: integers
    """
    array = as_array(value, what, error)
    if array.size == 0 and not isinstance(value, np.ndarray):
        return array.astype(np.int64)  # NumPy makes [] an array of floats
    if array.dtype.kind not in "iub" or (array.dtype == np.uint64 and array.size and int(array.max()) >> 63):
        raise error(f"{what} is {array.dtype} {array.shape}; valid: integers")
    return array.astype(np.int64)


def is_name(value: Any, names: Container[str]) -> bool:
    """Whether a value is a string and one of these names; False for arrays and lists, which `in` cannot handle.

    >>> is_name("K", ("K", "MN")), is_name(np.array(["K", "MN"]), ("K", "MN"))
    (True, False)
    """
    return isinstance(value, str) and value in names


def is_number(value: Any, numbers: Container[Any]) -> bool:
    """Whether a value is a single integer and one of these.

    >>> is_number(np.int64(1), (0, 1)), is_number(np.array([0, 1]), (0, 1)), is_number([[1], [1, 2]], (0, 1))
    (True, False, False)
    """
    return isinstance(value, (int, np.integer, np.bool_)) and value in numbers


def as_array(value: Any, what: str, error: type[TcsimError] = OperandError) -> npt.NDArray[Any]:
    """A NumPy array from an array, a scalar or a nested sequence.

    Raises `error` for a sequence whose rows have different lengths.

    >>> as_array([[1], [1, 2]], "a")
    Traceback (most recent call last):
    tcsim.core.errors.OperandError: a: its rows have different lengths; valid: an array
    """
    try:
        return np.asarray(value)
    except ValueError:
        raise error(f"{what}: its rows have different lengths; valid: an array") from None


def broadcast_together(
    what: str, *arrays: npt.NDArray[Any], error: type[TcsimError] = OperandError
) -> list[npt.NDArray[Any]]:
    """The arrays, broadcast to one shape.

    Raises `error` if they do not broadcast.

    >>> broadcast_together("lane, register", np.arange(3), np.arange(4))
    Traceback (most recent call last):
    tcsim.core.errors.OperandError: lane, register: shapes (3,), (4,) do not broadcast
    """
    try:
        return list(np.broadcast_arrays(*arrays))
    except ValueError:
        raise error(f"{what}: shapes {', '.join(str(a.shape) for a in arrays)} do not broadcast") from None


def spread(array: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The array in a shape that it broadcasts to: itself where it has it, which is much quicker than `np.broadcast_to`.

    >>> spread(3, (2,)).tolist()
    [3, 3]
    """
    found: npt.NDArray[Any] = np.asarray(array)
    return found if found.shape == shape else np.broadcast_to(found, shape)


def broadcast(shapes: list[tuple[int, ...]], call: str) -> tuple[int, ...]:
    """The common batch shape of several arrays.

    Raises OperandError if they do not broadcast.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise OperandError(f"{call}: leading dimensions {shapes} do not broadcast") from None
