"""What is said of an instruction, whichever table has it: what others hear of it, which registers it writes, how bytes go through it.

An ordinary instruction has a row (`tcsim.isa.ordinary`). One of the catalog has a row and a class that say the same, a scalar one computes
its first operand from the others.
"""

from __future__ import annotations

from functools import cache

from tcsim import catalog
from tcsim.core.errors import InstructionError
from tcsim.isa.ordinary.catalog import of_stem
from tcsim.isa.ordinary.table import Ordinary
from tcsim.isa.scalar.catalog import scalar
from tcsim.model.instruction import Instruction as Model
from tcsim.model.row import Row
from tcsim.model.statement import Instruction


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
    model = _model(opcode)
    return model is not None and model.moves


@cache
def reads_tiles(opcode: str) -> bool:
    """Whether an instruction of the catalog reads operands in shared memory through matrix descriptors.

    >>> reads_tiles("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"), reads_tiles("wgmma.fence.sync.aligned")
    (True, False)
    """
    model = _model(opcode)
    return model is not None and model.reads_tiles


def _model(opcode: str) -> Model | None:
    """An instruction of the catalog, on the first arch that has it."""
    row = row_of(opcode)
    return None if row is None or row.dropped else catalog.instruction(row.mnemonic, row.first_arch.name)


def computes(item: Instruction) -> bool:
    """Whether an instruction is scalar: it computes registers from registers, and does nothing else."""
    return scalar(item.opcode, len(item.operands) - 1) is not None


@cache
def ordinary(opcode: str) -> Ordinary:
    """What is said of an instruction, of the catalog too.

    >>> ordinary("add.u32").heard, ordinary("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64").heard, ordinary("bar.sync").heard
    (False, False, True)
    """
    own, stem = of_stem(opcode), opcode.partition(".")[0]
    if own is not None and not own.catalogued:
        return own
    row = row_of(opcode)
    if row is None or row.dropped:
        is_scalar = scalar(opcode) is not None
        return Ordinary(stem=stem, heard=not is_scalar, writes=is_scalar)
    instruction = catalog.instruction(row.mnemonic, row.first_arch.name)
    form = row.forms[0]
    members = form.together == "member_mask"
    return Ordinary(
        stem=stem,
        heard=instruction.heard,
        writes=bool(form.operands) and form.operands[0].role != "source",
        members=row.meets and members,
        path="warp" if members else "compute",
        cuts=instruction.cuts,
    )
