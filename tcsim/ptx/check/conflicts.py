"""Conflicts: earlier accesses to the words of one now that nothing orders with it, and what their order lacks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tcsim.ptx.check.operations import READ, WRITTEN
from tcsim.ptx.machine.arrays import Array


class Prior(Enum):
    """What was done before."""

    WRITTEN = "written by an instruction of a warp"
    READ = "read by an instruction of a warp"
    LANDED = "written by an asynchronous operation"
    FETCHED = "read by an asynchronous operation"
    NOBODY = "nothing: it is read, and nobody has written it"

    def __init__(self, _: str) -> None:
        self.work = self.name in ("LANDED", "FETCHED")  # by an operation, not an instruction
        self.did, self.part = ("read", READ) if self.name in ("READ", "FETCHED") else ("written", WRITTEN)


class Lack(Enum):
    """What is missing between the two."""

    ORDER = "anything that orders them"
    WARPS = "what orders it with the other warps of a warpgroup"
    FENCE = "a fence: between proxies, or of tcgen05"
    WAIT = "a wait: it is known to be done because its registers were needed"
    PIPELINE = "a wait: both are tcgen05 of one thread, and no pipelined pair"
    LANES = "what orders lanes of a warp: another one did it, or waited for it"
    HEARD = "what orders lanes: another one waited for what orders it"
    TOLD = "what orders lanes: another one arrived for the one that did it"


LANES = (Lack.LANES, Lack.HEARD, Lack.TOLD)
"""In order as far as whole warps go."""


@dataclass(frozen=True)
class Conflict:
    """Earlier accesses, by the places in the list of words of the access now."""

    prior: Prior
    lack: Lack
    places: Array
    earlier: Array  # numbers of instructions, or of operations
    warps: Array  # the warp of the earlier access; of operations 0
    joined: bool = False  # of lanes: whether they have executed an instruction together since then
