"""Matrices of tcgen05.mma in the shared memory of one CTA or a pair, as matrix descriptors name them.

Which bytes a descriptor reads is in `tcsim.descriptors.addresses`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.descriptors.addresses import check_descriptors, element_bit_addresses
from tcsim.descriptors.elements import read_elements
from tcsim.descriptors.forms import Major, form_of
from tcsim.descriptors.matrix import descriptor_values
from tcsim.isa.tcgen05.lookup_table import ROW_BYTES, unpacked
from tcsim.numbers.formats import FORMATS, Format

Codes = npt.NDArray[Any]


def shared_bytes(smem: Any, ctas: int, call: str) -> npt.NDArray[np.uint8]:
    """Shared memory as an array uint8 (..., bytes), for a pair of CTAs (..., 2, bytes).

    Raises OperandError for another dtype or shape.
    """
    memory, pair = np.asarray(smem), ctas == 2
    if memory.dtype != np.uint8 or memory.ndim < 1 + pair or (pair and memory.shape[-2] != 2):
        need = "(..., 2, bytes), one for each CTA" if pair else "(..., bytes)"
        raise OperandError(f"{call}: smem is {memory.dtype} {memory.shape}; valid: uint8 {need}")
    return memory


@dataclass(frozen=True)
class SharedMemory:
    """The bytes that an instruction reads: uint8 (..., bytes), or (..., 2, bytes) for a pair of CTAs."""

    smem: Any
    ctas: int
    arch: str
    kind: str  # of tcgen05, which says how narrow elements are packed
    call: str  # what errors begin with

    def fetch(
        self, descriptor: Any, rows: int, k: int, format: Format, major: Major, name: str, *, skip: int = 0
    ) -> Codes:
        """The codes (..., rows - skip of each CTA, k) that a descriptor reads, without the first rows of each CTA.

        Raises OperandError for a memory or descriptor that cannot be, and addresses outside the memory.
        """
        value = self._descriptor(descriptor, name)
        check_descriptors(value, self.arch, f"{self.call}: {name}")
        return self._read(value, rows, k, format, major, name, skip)

    def indices(self, descriptor: Any, rows: int, k: int) -> Codes:
        """The indices (..., k, rows of every CTA) of lookup tables that stand for B.

        Raises OperandError as `fetch` does.
        """
        value = self._descriptor(descriptor, "b")
        check_descriptors(value, self.arch, f"{self.call}: b", halves=True)
        found = unpacked(self._read(value, rows, ROW_BYTES, FORMATS["u8"], "K", "b", 0))
        half = form_of(self.arch)[1].field("k_half").take_array(value)[..., None, None]
        return np.where(half == 0, found[..., :k], found[..., k:]).swapaxes(-1, -2)

    def _descriptor(self, descriptor: Any, name: str) -> npt.NDArray[np.uint64]:
        value = np.asarray(descriptor_values(descriptor))
        if value.dtype.kind not in "iu" or (value.dtype.kind == "i" and (value < 0).any()):
            raise OperandError(f"{self.call}: {name} is {value.dtype} {value.shape}; valid: a 64-bit matrix descriptor")
        return value.astype(np.uint64)

    def _read(
        self, value: npt.NDArray[np.uint64], rows: int, k: int, format: Format, major: Major, name: str, skip: int
    ) -> Codes:
        memory = shared_bytes(self.smem, self.ctas, self.call)
        address = element_bit_addresses(value, rows, k, format, major, self.arch, self.kind)
        parts = [
            read_elements(memory[..., cta, :] if self.ctas == 2 else memory, address, format, f"{self.call}: {name}")
            for cta in range(self.ctas)
        ]
        return np.concatenate([part[..., skip:, :] for part in parts], axis=-2)
