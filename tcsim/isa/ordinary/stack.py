"""Memory on the stack of a thread: alloca, stacksave, stackrestore."""

from __future__ import annotations

from tcsim.core.errors import listing
from tcsim.isa.ordinary.table import Ordinary, effect, grammar, type_of
from tcsim.model.emit import Emitter, Lines, machine
from tcsim.model.grammar import one, since
from tcsim.model.statement import Immediate, Instruction

_ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64, 128)
_WIDTH, _SINCE = one("u32 u64"), (since("7.3", 60, "u32 u64"),)


def _allocate(emitter: Emitter, item: Instruction) -> Lines:
    """Memory, as an address of local memory."""
    to, size, align = (*item.operands, Immediate(8))[:3]
    if not isinstance(align, Immediate) or align.value not in _ALIGNMENTS:
        raise emitter.error(f"an alignment; valid: {listing(_ALIGNMENTS)}")
    type = type_of(emitter, item)
    return [emitter.put(to, f"stack.alloca({emitter.value(size, type)}, {align.value}, w)", type, calls_machine=True)]


def _save(emitter: Emitter, item: Instruction) -> Lines:
    """The top of the stack."""
    return [emitter.put(item.operands[0], "stack.top()", type_of(emitter, item), calls_machine=True)]


def _restore(emitter: Emitter, item: Instruction) -> Lines:
    """The top of the stack as it was."""
    return [machine(f"stack.restored({emitter.value(item.operands[0], type_of(emitter, item))}, w)")]


_ONE = grammar(_WIDTH, operands=(1,), since=_SINCE)
ROWS = (
    Ordinary(
        stem="alloca",
        grammar=grammar(_WIDTH, operands=(2, 3), since=_SINCE),
        emit=_allocate,
        heard=True,
        cuts=True,
        frames=True,
    ),
    Ordinary(stem="stacksave", grammar=_ONE, emit=_save, heard=True, cuts=True),
    effect(stem="stackrestore", grammar=_ONE, emit=_restore, cuts=True),
)
