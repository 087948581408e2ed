"""How elements follow one another in a K-major row of shared memory for tcgen05.mma.

Formats of 8 bits and more lie one after another. fp6 and fp4 of kinds f8f6f4 and mxf8f6f4 come in runs of 16 that take 16
bytes: the 16 codes packed without gaps, low bits first, then padding. kinds mxf4 and mxf4nvf4 pack two to a byte.
Source: PTX ISA, section Packing formats of elements in Tensor and Shared memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.errors import OperandError
from tcsim.formats import Format

RUN = 16
"""Elements, and bytes, of a padded run."""


def packed_bytes(k: int, format: Format, *, padded: bool) -> int:
    """Bytes of a row of k elements.

    Raises OperandError if padded runs, or bytes, are not filled.

    >>> packed_bytes(32, FORMATS["e2m3"], padded=True), packed_bytes(64, FORMATS["e2m1"], padded=False)
    (32, 32)
    """
    if format.bits >= 8:
        return k * format.container_bits // 8
    if k % RUN:
        raise OperandError(f"a row of {k} {format.name}: valid are multiples of {RUN}")
    return k if padded else k * format.bits // 8


def unpacked(octets: npt.NDArray[np.uint8], k: int, format: Format, *, padded: bool) -> npt.NDArray[Any]:
    """The codes (..., k) in rows of bytes (..., bytes).

    >>> row = packed(np.arange(32, dtype=np.uint8), FORMATS["e2m3"], padded=True)
    >>> row[:4].tolist(), unpacked(row, 32, FORMATS["e2m3"], padded=True)[:4].tolist()
    ([64, 32, 12, 68], [0, 1, 2, 3])
    """
    if format.bits >= 8:
        return np.ascontiguousarray(octets).view(f"<u{format.container_bits // 8}").astype(format.dtype)
    run = RUN if padded else RUN * format.bits // 8
    runs = octets.reshape(*octets.shape[:-1], k // RUN, run)[..., : RUN * format.bits // 8]
    bits = np.unpackbits(runs, axis=-1, bitorder="little").reshape(*runs.shape[:-1], RUN, format.bits)
    return np.packbits(bits, axis=-1, bitorder="little").reshape(*octets.shape[:-1], k)


def packed(codes: npt.NDArray[Any], format: Format, *, padded: bool) -> npt.NDArray[np.uint8]:
    """The bytes of rows of codes (..., k): inverse of `unpacked`, with zeros for padding."""
    if format.bits >= 8:
        return np.ascontiguousarray(codes, f"<u{format.container_bits // 8}").view(np.uint8)
    k = codes.shape[-1]
    runs = codes.astype(np.uint8).reshape(*codes.shape[:-1], k // RUN, RUN, 1)
    bits = np.unpackbits(runs, axis=-1, bitorder="little")[..., : format.bits]
    out = np.packbits(bits.reshape(*runs.shape[:-2], RUN * format.bits), axis=-1, bitorder="little")
    filled = np.zeros((*out.shape[:-1], RUN if padded else out.shape[-1]), np.uint8)
    filled[..., : out.shape[-1]] = out
    return filled.reshape(*codes.shape[:-1], packed_bytes(k, format, padded=padded))
