"""How exceptions end a launch: PTX is untrusted, and nothing that it says may raise one to the caller."""

from __future__ import annotations

from tcsim.core.errors import TcsimError
from tcsim.ptx.memory import MemoryFault
from tcsim.ptx.threads import Stop

EXCEPTIONS = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, MemoryError, RecursionError)
"""What may come out of an instruction; TcsimError is a ValueError."""


def stop_for(error: Exception) -> Stop:
    """The end of the launch that an exception means.

    >>> stop_for(MemoryFault("GMEM_UNMAPPED", "nothing there")).name, stop_for(MemoryError()).name, stop_for(KeyError(1)).name
    ('GMEM_UNMAPPED', 'LIMIT', 'INVALID_OPERAND')
    """
    if isinstance(error, MemoryFault):
        return Stop(error.name, error.detail)
    if isinstance(error, (MemoryError, RecursionError)):
        return Stop("LIMIT", f"{type(error).__name__}: {error}")
    return Stop("INVALID_OPERAND", str(error) if isinstance(error, TcsimError) else f"{type(error).__name__}: {error}")
