"""The instructions that the machine runs by itself, as rows: what others hear of them, which registers they write, how bytes go through them.

Everything else is an instruction of the catalog, whose row and class say the same, or a scalar one, which computes its first operand
from the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from tcsim import catalog
from tcsim.core.errors import InstructionError
from tcsim.isa.scalar.catalog import scalar
from tcsim.model.row import Row

Path = Literal["compute", "move", "load", "store", "atomic", "shuffle", "warp", "convert", "call"]

Carries = Literal["", "whole", "elements", "either", "bytes", "up", "down", "lanes"]
"""How a result has bytes of its sources as they are: all of them ("whole", a vector's parts side by side), each element in another format, one of
two sources ("either"), bytes that a number names, shifted by a number "up" or "down", those of another lane. Empty: it is computed."""


@dataclass(frozen=True)
class Ordinary:
    """A row: one instruction, or several with the same stem."""

    heard: bool = False  # whether another thread may wait for what it does
    writes: bool = True  # whether its first operand is a result, if it is no address
    members: bool = False  # whether the lanes of a member mask execute it as one
    path: Path = "compute"  # how the bytes of its operands become those of its result
    carries: Carries = ""


_SCALAR = Ordinary()
_WARP = Ordinary(members=True, path="warp")
_STORE = Ordinary(heard=True, writes=False, path="store")
_CONTROL = Ordinary(heard=True, writes=False)
_CALL = Ordinary(heard=True, writes=False, path="call")
ROWS: dict[str, Ordinary] = {
    "mov": Ordinary(path="move", carries="whole"), "cvt": Ordinary(path="convert", carries="elements"), "selp": Ordinary(carries="either"),
    "prmt": Ordinary(carries="bytes"), "shl": Ordinary(carries="up"), "shr": Ordinary(carries="down"), "ld": Ordinary(path="load"), "ldu": Ordinary(path="load"), "st": _STORE,
    "atom": Ordinary(heard=True, path="atomic"), "red": Ordinary(heard=True, writes=False, path="atomic"),
    "shfl": Ordinary(members=True, path="shuffle", carries="lanes"), "vote": _WARP, "match": _WARP, "activemask": _SCALAR,
    "cvta": _SCALAR, "isspacep": _SCALAR, "prefetch": Ordinary(writes=False), "prefetchu": Ordinary(writes=False),
    "membar": _CONTROL, "pmevent": _CONTROL, "nanosleep": _CONTROL,
    "bra": _CONTROL, "brx": _CONTROL, "call": _CALL, "ret": _CALL, "exit": _CONTROL, "trap": _CONTROL, "brkpt": _CONTROL,
    "alloca": Ordinary(heard=True), "stacksave": Ordinary(heard=True), "stackrestore": _CONTROL,
}  # fmt: skip
"""By stem."""


@cache
def row_of(opcode: str) -> Row | None:
    """The row of an instruction of the catalog; None of ordinary instructions, and of what does not exist.

    >>> row_of("add.u32"), row_of("fence.proxy.async").family
    (None, 'fence')
    """
    try:
        return None if scalar(opcode) is not None else catalog.row_of(opcode)
    except InstructionError:
        return None


@cache
def moves(opcode: str) -> bool:
    """Whether an instruction of the catalog moves elements of registers as they are.

    >>> moves("movmatrix.sync.aligned.m8n8.trans.b16"), moves("mov.b32")
    (True, False)
    """
    row = row_of(opcode)
    return row is not None and not row.dropped and catalog.instruction(row.mnemonic, row.first_arch.name).moves


@cache
def ordinary(opcode: str) -> Ordinary:
    """What is said of an instruction, of the catalog too.

    >>> ordinary("add.u32").heard, ordinary("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64").heard, ordinary("bar.sync").heard
    (False, False, True)
    """
    found = ROWS.get(opcode.partition(".")[0])
    if found is not None:
        return found
    row = row_of(opcode)
    if row is None or row.dropped:
        return _SCALAR if scalar(opcode) is not None else _CONTROL
    instruction = catalog.instruction(row.mnemonic, row.first_arch.name)
    form = row.forms[0]
    return Ordinary(
        heard=instruction.heard, writes=bool(form.operands) and form.operands[0].role != "source",
        members=row.meets and form.together == "member_mask", path="warp" if form.together == "member_mask" else "compute",
    )  # fmt: skip
