"""Addresses of memory: which ones an access takes, and the errors that say why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import as_array
from tcsim.core.errors import OperandError


class AddressError(OperandError):
    """An address in shared memory that the instruction cannot take."""


class MisalignedAddressError(AddressError):
    """An address that is no multiple of what the access needs."""


class OutsideMemoryError(AddressError):
    """An address whose bytes do not lie inside the memory."""


class ContestedRowError(AddressError):
    """Two rows with different bytes for the same address: which one stays is not defined."""


def integer_addresses(address: Any, call: str) -> npt.NDArray[np.int64]:
    """Addresses as int64.

    Raises OperandError unless they are integers.
    """
    array = as_array(address, f"{call}: address")
    if array.dtype.kind not in "iu":
        raise OperandError(f"{call}: address is {array.dtype}; valid: integers, byte addresses in shared memory")
    return array.astype(np.int64)


def require_alignment(address: npt.NDArray[np.int64], unit: int, what: str, call: str) -> None:
    """Raise MisalignedAddressError unless every address (..., lanes) is a multiple of `unit` bytes."""
    wrong = np.argwhere(address % unit != 0)
    if wrong.size:
        raise MisalignedAddressError(
            f"{call}: {_name(address, wrong[0])}: {what} starts at a multiple of {unit} bytes{_others(wrong)}"
        )


def require_inside(address: npt.NDArray[np.int64], length: int, memory: int, what: str, call: str) -> None:
    """Raise OutsideMemoryError unless `length` bytes at every address (..., lanes) lie in a memory of `memory` bytes."""
    wrong = np.argwhere((address < 0) | (address > memory - length))
    if wrong.size:
        last = f"0 to {memory - length:#x}" if memory >= length else "none, the memory is smaller than that"
        raise OutsideMemoryError(
            f"{call}: {_name(address, wrong[0])}: {what} of {length} bytes does not lie in the {memory} bytes of smem; "
            f"valid: {last}{_others(wrong)}"
        )


def require_uncontested(address: npt.NDArray[np.int64], rows: npt.NDArray[np.uint8], call: str) -> None:
    """Raise ContestedRowError if two rows (..., lanes, bytes) with different bytes go to one of the addresses (..., lanes)."""
    order = np.argsort(address, axis=-1, kind="stable")
    sorted_rows = np.take_along_axis(rows, order[..., None], axis=-2)
    places = np.take_along_axis(address, order, axis=-1)
    same = places[..., 1:] == places[..., :-1]
    differ = (sorted_rows[..., 1:, :] != sorted_rows[..., :-1, :]).any(axis=-1)
    wrong = np.argwhere(same & differ)
    if wrong.size:
        *batch, place = wrong[0]
        first, second = (int(order[(*batch, place + step)]) for step in (0, 1))
        raise ContestedRowError(
            f"{call}: lanes {first} and {second} store different bytes to {int(places[(*batch, place)]):#x}: which of them "
            "stay is not defined; valid: one row for an address, or rows with the same bytes"
        )


def _name(address: npt.NDArray[np.int64], index: npt.NDArray[np.intp]) -> str:
    place = ", ".join(str(i) for i in index)
    value = int(address[tuple(index)])
    return f"address[{place}] = {value:#x} (lane {index[-1]})"


def _others(wrong: npt.NDArray[np.intp]) -> str:
    return f" ({len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
