"""Hazards: what a kernel may do wrong, by name, and what a run says of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Rule:
    """A name that `Run.hazards` can have: what it means, and where that is said."""

    name: str
    severity: str  # "error": undefined, or a fault on hardware; "strict", "repaired" and "perf" are kept for rules of ordering
    sentence: str
    section: str  # title of the section
    source: str  # the document


_PTX = "PTX ISA 9.4"
_CUDA = "CUDA C++ Programming Guide 13"
_OURS = "tcsim, docs/kernels.md"

_RULES = (
    Rule("DEADLOCK", "error", "No thread can go on: each waits for what no other thread will do.", "Barrier instructions: bar, barrier", _PTX),
    Rule("GMEM_UNMAPPED", "error", "A global access lies outside the memory that was mapped or allocated.", "State Spaces", _PTX),
    Rule("ADDRESS_MISALIGNED", "error", "An address is not a multiple of the size of the access.", "Addresses as Operands", _PTX),
    Rule("SMEM_OUT_OF_RANGE", "error", "A shared access lies outside the block's static and dynamic shared memory.", "Shared State Space", _PTX),
    Rule("LOCAL_OUT_OF_RANGE", "error", "A local access lies outside the thread's local memory.", "Local State Space", _PTX),
    Rule("PARAM_OUT_OF_RANGE", "error", "An access to parameters lies outside them.", "Parameter State Space", _PTX),
    Rule("INVALID_OPERAND", "error", "An operand's value is one that the instruction does not take.", "Instruction Set", _PTX),
    Rule("TMEM_OUT_OF_RANGE", "error", "An access lies outside Tensor Memory.", "Tensor Memory", _PTX),
    Rule("MBARRIER_FAULT", "error", "An mbarrier gets a count that its object cannot hold, or something else is used as an mbarrier.", "Parallel Synchronization and Communication Instructions: mbarrier", _PTX),
    Rule("INVALID_PC", "error", "A call or an indexed branch goes to what is not one of its targets.", "Control Flow Instructions", _PTX),
    Rule("TRAP", "error", "A thread executed trap or brkpt.", "Miscellaneous Instructions: trap", _PTX),
    Rule("ASSERT", "error", "A device-side assert did not hold.", "Assertion", _CUDA),
    Rule("STACK_OVERFLOW", "error", "A thread's calls and alloca need more than its stack.", "Stack Manipulation Instructions", _PTX),
    Rule("LIMIT", "error", "The launch reached one of its limits; a real GPU would have gone on.", "Limits", _OURS),
)  # fmt: skip

HAZARDS: MappingProxyType[str, Rule] = MappingProxyType({rule.name: rule for rule in _RULES})
"""Every name that a run can report, and nothing else: names of rules that are not looked for yet are not here."""


@dataclass(frozen=True)
class Hazard:
    """Something that is wrong in what the kernel did.

    >>> Hazard("TRAP", "a thread executed trap", line=7).severity
    'error'
    """

    name: str  # of HAZARDS
    message: str
    line: int | None = None  # of the PTX text, from 1
    other_line: int | None = None  # of the instruction that it conflicts with
    source: str | None = None  # "file:line" of .loc
    other_source: str | None = None
    block: tuple[int, int, int] | None = None  # the first in which it was seen
    thread: int | None = None  # in that block: x + y * width + z * width * height; warp thread // 32, lane thread % 32
    detail: dict[str, Any] = field(default_factory=dict)
    count: int = 1

    @property
    def severity(self) -> str:
        """ "error", "strict", "repaired" or "perf"."""
        return HAZARDS[self.name].severity

    def as_dict(self) -> dict[str, Any]:
        """As plain data, the severity after the name."""
        named = dict(vars(self))
        named["detail"] = dict(self.detail)
        return {"name": named.pop("name"), "severity": self.severity, **named}

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line else []
        where += [self.source] if self.source else []
        where += [f"block {self.block}"] if self.block is not None else []
        where += [f"warp {self.thread // 32} lane {self.thread % 32}"] if self.thread is not None else []
        return f"{self.name}: {self.message}" + (f" ({', '.join(where)})" if where else "")


def merged(hazards: list[Hazard]) -> list[Hazard]:
    """One hazard for each (name, line, other line), in order of the first, with the number of all.

    >>> merged([Hazard("TRAP", "a", 1), Hazard("TRAP", "b", 1), Hazard("TRAP", "c", 2)])[0].count
    2
    """
    found: dict[tuple[str, int | None, int | None], Hazard] = {}
    for item in hazards:
        key = item.name, item.line, item.other_line
        found[key] = replace(found[key], count=found[key].count + item.count) if key in found else item
    return list(found.values())
