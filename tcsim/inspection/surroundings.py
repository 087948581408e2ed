"""What `describe` says of the instructions around a kernel: who executes them, what they take, what they order."""

from __future__ import annotations

from functools import singledispatch

from tcsim.isa.barrier_cluster import ClusterBarrierInstruction
from tcsim.isa.clusterlaunchcontrol import CANCELED_BIT, DIMENSIONS, RESPONSE_BYTES, QueryCancel, TryCancel
from tcsim.isa.elect import ElectLane
from tcsim.isa.fence import OrderInstruction
from tcsim.isa.mapa import MapAddress, address_facts
from tcsim.isa.setmaxnreg import FEWEST, MOST, STEP, MoveRegisters
from tcsim.isa.st_async import RemoteInstruction
from tcsim.isa.st_bulk import MOST_BYTES, UNIT_BYTES, ZeroFill
from tcsim.model.instruction import Instruction

_ALIGNED = ".aligned: all threads of a warp execute the same instruction"


@singledispatch
def executed_by(instruction: Instruction) -> tuple[str, ...]:
    """Who executes it, or nothing where the operands say so.

    >>> executed_by(tcsim.instruction("elect.sync", arch="sm_90"))
    ('the lanes of membermask together, and no other',)
    """
    return ()


@executed_by.register
def _(instruction: ElectLane) -> tuple[str, ...]:
    return ("the lanes of membermask together, and no other",)


@executed_by.register
def _(instruction: MoveRegisters) -> tuple[str, ...]:
    return (
        "one warpgroup: its four warps execute the same instruction, and synchronise before the next one",
        _ALIGNED,
    )


@executed_by.register
def _(instruction: ClusterBarrierInstruction) -> tuple[str, ...]:
    return ("each warp that has not exited, its threads together", *((_ALIGNED,) if instruction.facts.aligned else ()))


@singledispatch
def rules_of(instruction: Instruction) -> tuple[str, ...]:
    """What it takes and what it orders; nothing for instructions of other kinds.

    >>> rules_of(tcsim.instruction("griddepcontrol.wait", arch="sm_90"))
    ('orders all memory accesses of the grids that this one depends on, which have ended, before later accesses',)
    """
    return ()


@rules_of.register
def _(instruction: OrderInstruction) -> tuple[str, ...]:
    return (f"orders {instruction.orders}",)


@rules_of.register
def _(instruction: ClusterBarrierInstruction) -> tuple[str, ...]:
    return (f"orders {instruction.orders}", "each warp arrives once, then waits")


@rules_of.register
def _(instruction: ElectLane) -> tuple[str, ...]:
    return ("one member is elected, for one mask always the same; that it is the lowest is not promised",)


@rules_of.register
def _(instruction: MoveRegisters) -> tuple[str, ...]:
    return (
        f"count: a multiple of {STEP} from {FEWEST} to {MOST}; .inc to no fewer, .dec to no more than the warpgroup owns",
        "the kernel's number of registers must be known (.maxnreg, .maxntid): else ptxas leaves it out (note C7508)",
    )


@rules_of.register
def _(instruction: MapAddress) -> tuple[str, ...]:
    low = "of the lower 32 bits " if address_facts(instruction.row).bits == 64 else ""
    return (f"bits 24 to 31 {low}become the rank",)


@rules_of.register
def _(instruction: RemoteInstruction) -> tuple[str, ...]:
    facts = instruction.facts
    block = "another block of the cluster" if facts.reduction else "a block of the cluster, of two or more"
    return (
        f"address: in {block}, a multiple of {facts.bytes} bytes; the barrier in the same block",
        f"each thread completes {facts.bytes} bytes on the barrier",
    )


@rules_of.register
def _(instruction: ZeroFill) -> tuple[str, ...]:
    return (f"size: a multiple of {UNIT_BYTES} bytes from 0 to {MOST_BYTES}; the value is 0",)


@rules_of.register
def _(instruction: TryCancel) -> tuple[str, ...]:
    return (f"address: a multiple of {RESPONSE_BYTES}; {RESPONSE_BYTES} bytes complete on the barrier",)


@rules_of.register
def _(instruction: QueryCancel) -> tuple[str, ...]:
    places = ", ".join(f"{name} bits {low} to {low + bits - 1}" for name, (low, bits) in DIMENSIONS.items())
    return (f"bit {CANCELED_BIT} of the answer: cancelled; {places}",)
