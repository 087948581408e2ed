"""How exceptions end a launch: PTX is untrusted, and nothing that it says may raise one to the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any

from tcsim.core.addresses import MisalignedCopyError
from tcsim.core.errors import TcsimError
from tcsim.memory.mbarrier import BarrierCountError, TransactionError
from tcsim.memory.tensor_memory import AllocationError
from tcsim.model.statement import Instruction
from tcsim.ptx.machine.memory import MemoryFault


class Stop(Exception):
    """The launch ends: a fault, a trap or a limit. `name` is one of `tcsim.ptx.HAZARDS`; `more` becomes the hazard's detail.

    item: the instruction, where it is not the one that is executed.
    """

    def __init__(
        self, name: str, detail: str, thread: int | None = None, item: Instruction | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.name, self.detail, self.thread, self.item, self.more = name, detail, thread, item, more


class Unbatchable(Exception):
    """The blocks of a batch cannot run as one: they run one after the other. Never raised to the caller; it says why."""


class Stuck(Unbatchable):
    """One of the blocks does not go on; the others may run as one."""


EXCEPTIONS = (
    ValueError, ArithmeticError, LookupError, TypeError, AttributeError, MemoryError, RuntimeError, AssertionError, NameError,
)  # fmt: skip
"""What may come out of an instruction. TcsimError, a ValueError, says what the PTX got wrong; others are tcsim's own mistakes."""


_NAMED: dict[type[Exception], str] = {
    BarrierCountError: "MBAR_COUNT",
    MisalignedCopyError: "TMA_MISALIGNED",
    TransactionError: "MBAR_TX_RANGE",
    AllocationError: "TMEM_ALLOC_SIZE",
}
"""Errors of the model that have a rule of their own."""


def rule_for(error: Exception, rest: str) -> str:
    """The rule that an error of the model means; `rest` for those that have none of their own."""
    return _NAMED.get(type(error), rest)


@contextmanager
def stopped_by_exceptions() -> Iterator[None]:
    """What an instruction raises ends the launch: it becomes a Stop."""
    try:
        yield
    except EXCEPTIONS as error:
        raise stop_for(error).with_traceback(error.__traceback__) from error


def stop_for(error: Exception) -> Stop:
    """The end of the launch that an exception means.

    >>> [stop_for(own).name for own in (MemoryFault("GMEM_UNMAPPED", "nothing there"), MemoryError(), AllocationError("a"), KeyError(1))]
    ['GMEM_UNMAPPED', 'LIMIT', 'TMEM_ALLOC_SIZE', 'INTERNAL_ERROR']
    """
    if isinstance(error, MemoryFault):
        return Stop(error.name, error.detail)
    if isinstance(error, (MemoryError, RecursionError)):
        return Stop("LIMIT", f"{type(error).__name__}: {error}")
    if isinstance(error, TcsimError):
        return Stop(rule_for(error, "INVALID_OPERAND"), str(error))
    places = [f"{Path(own.filename).name}:{own.lineno}" for own in extract_tb(error.__traceback__)[-2:]]
    return Stop("INTERNAL_ERROR", f"tcsim failed: {type(error).__name__}: {error} ({', '.join(places)})")
