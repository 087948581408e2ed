"""The 64 bits of an mbarrier object in shared memory, as far as machine code shows them.

The PTX manual calls the object opaque. But ptxas computes its first value in ordinary instructions before it stores it
(`mbarrier.init`), and takes the pending arrivals out of a state in ordinary instructions (`mbarrier.pending_count`): both
counts are kept as what is missing to a power of two, so that the last arrival carries out of the field. Read with nvdisasm
for sm_80, sm_90, sm_100 and sm_120; no hardware was asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tcsim.errors import OperandError, TargetError
from tcsim.evidence import Evidence
from tcsim.targets import accepting

_INIT = "the machine code of mbarrier.init (ptxas, nvdisasm)"
_PENDING = "the machine code of mbarrier.init and mbarrier.pending_count (ptxas, nvdisasm)"
_CARRY = "the field above the pending count, which the last arrival carries into, and 0 after mbarrier.init"


@dataclass(frozen=True)
class BarrierField:
    """Some bits of the object."""

    name: str
    low: int
    bits: int
    evidence: Evidence
    missing: bool = False  # the number is 2**bits less what the bits hold

    def take(self, value: int) -> int:
        """The number that the bits stand for."""
        raw = value >> self.low & ((1 << self.bits) - 1)
        return (1 << self.bits) - raw if self.missing else raw


_AMPERE = (
    BarrierField("expected", 0, 30, Evidence("literature", _INIT), missing=True),
    BarrierField("pending", 32, 31, Evidence("literature", _PENDING), missing=True),
    BarrierField("phase_parity", 63, 1, Evidence("inferred", _CARRY)),
)
_HOPPER = (
    BarrierField("expected", 1, 20, Evidence("literature", _INIT), missing=True),
    BarrierField("pending", 43, 20, Evidence("literature", _PENDING), missing=True),
    BarrierField("phase_parity", 63, 1, Evidence("inferred", _CARRY)),
)


@dataclass(frozen=True)
class BarrierObject:
    """One object taken apart."""

    value: int
    arch: str
    fields: tuple[BarrierField, ...]

    @property
    def numbers(self) -> dict[str, int]:
        """The fields by name."""
        return {field.name: field.take(self.value) for field in self.fields}

    @property
    def unknown(self) -> int:
        """The bits that no known field has; on sm_90 the transaction count must be among them."""
        known = sum(((1 << field.bits) - 1) << field.low for field in self.fields)
        return self.value & ~known & ((1 << 64) - 1)

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "value": f"{self.value:#018x}", "arch": self.arch,
            "fields": [
                {
                    "name": field.name, "low": field.low, "high": field.low + field.bits - 1,
                    "value": field.take(self.value), "evidence": field.evidence.level, "source": field.evidence.source,
                }
                for field in self.fields
            ],
            "unknown_bits": f"{self.unknown:#018x}",
        }  # fmt: skip


def decode_barrier(value: int, arch: str = "sm_90") -> BarrierObject:
    """Take a 64-bit mbarrier object, or the state that an arrive returns, apart.

    Raises OperandError for a value that is not 64 bits wide, TargetError for an arch without mbarrier.

    >>> decode_barrier(initial_barrier(128, "sm_90"), "sm_90").numbers
    {'expected': 128, 'pending': 128, 'phase_parity': 0}
    """
    fields = _fields(arch)
    if not 0 <= value < 1 << 64:
        raise OperandError(f"mbarrier {value:#x}: valid are 64 bits, 0x0 to {(1 << 64) - 1:#x}")
    return BarrierObject(value, accepting(arch)[0].name, fields)


def initial_barrier(count: int, arch: str = "sm_90") -> int:
    """What mbarrier.init stores for an expected arrival count.

    Raises BarrierError for a count that is not 1 to 2**20 - 1, TargetError for an arch without mbarrier.

    >>> hex(initial_barrier(1, "sm_90"))
    '0x7ffff800001ffffe'
    """
    from tcsim.mbarrier import MBarrier

    MBarrier(count)  # raises for a count that cannot be
    return sum(((1 << field.bits) - count) << field.low for field in _fields(arch) if field.missing)


def _fields(arch: str) -> tuple[BarrierField, ...]:
    number = accepting(arch)[0].number
    if number < 80:
        raise TargetError(f"{arch} has no mbarrier; valid: sm_80 and later")
    return _AMPERE if number < 90 else _HOPPER
