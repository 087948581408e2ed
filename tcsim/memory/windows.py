"""Where state spaces lie among generic addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

CONST_WINDOW = 0x00EF_0000_0000_0000
"""Where .const variables lie: their generic addresses are those of global memory, in a window of their own."""
SHARED_WINDOW = 0x00F0_0000_0000_0000
"""Generic address of shared memory: this and the 32 bits of an address in .shared::cluster."""
LOCAL_WINDOW = 0x00F1_0000_0000_0000
"""Generic address of a thread's local memory."""
PARAM_WINDOW = 0x00F2_0000_0000_0000
"""Generic address of the kernel's parameters."""


def in_bank(address: Any) -> Any:
    """Addresses of constants: those of 32 bits are places in the bank."""
    return np.where(address < np.uint64(1 << 32), address | np.uint64(CONST_WINDOW), address)
