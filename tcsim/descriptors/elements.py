"""Elements of any width read from shared memory, at addresses counted in bits."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.numbers.formats import Format


def read_elements(
    memory: npt.NDArray[np.uint8], bits: npt.NDArray[np.int64], format: Format, what: str
) -> npt.NDArray[Any]:
    """The codes at bit addresses (..., rows, columns) of a memory (..., bytes); leading dimensions broadcast.

    Raises OperandError for addresses outside the memory.

    Pre-conditions:
        (bits.max() + format.bits - 1) // 8 < memory.shape[-1]
    Post-conditions:
        result.shape == bits.shape and result.dtype == format.dtype
        [int(code) & (1 << format.bits) - 1 for code in result.flat] == [int.from_bytes(memory.tobytes(), "little") >> int(bit) & (1 << format.bits) - 1 for bit in bits.flat]
    """
    end = memory.shape[-1]
    address = bits // 8
    size = max(1, format.container_bits // 8) if format.bits >= 8 else 1 + int((bits % 8 + format.bits > 8).any())
    last = address + (size if format.bits >= 8 else 1)
    if (last > end).any():
        *_, row, column = np.argwhere(last > end)[0]
        raise OperandError(
            f"{what}: row {row}, k {column} lies at byte {int(address[last > end][0])}, outside the {end} bytes of smem"
        )
    batch = np.broadcast_shapes(memory.shape[:-1], address.shape[:-2])
    places = np.minimum(
        address[..., None] + np.arange(size), end - 1
    )  # a code may end with the byte that memory ends with
    flat = np.broadcast_to(places, (*batch, *places.shape[-3:])).reshape(*batch, prod(places.shape[-3:]))
    found = np.take_along_axis(np.broadcast_to(memory, (*batch, end)), flat, axis=-1)
    octets = np.ascontiguousarray(found.reshape(*batch, *places.shape[-3:]))
    if format.bits >= 8:
        return octets.view(f"<u{size}")[..., 0].astype(format.dtype)
    words = (octets.astype(np.uint16) << (8 * np.arange(size)).astype(np.uint16)).sum(-1, dtype=np.uint16)
    return (words >> (bits % 8).astype(np.uint16) & np.uint16(format.code_mask)).astype(format.dtype)
