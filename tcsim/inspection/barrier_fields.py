"""The 64 bits of an mbarrier object field by field, as data: `tcsim.mbarrier_bits` with numbers filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tcsim import mbarrier_bits
from tcsim.errors import TargetError
from tcsim.mbarrier_bits import Field
from tcsim.targets import accepting


@dataclass(frozen=True)
class BarrierObject:
    """One object taken apart."""

    value: int
    arch: str
    numbers: dict[str, int]  # by field

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields on the arch, from the lowest bits up."""
        return mbarrier_bits.FIELDS[self.arch]

    @property
    def unknown(self) -> int:
        """The bits that are set and belong to no field."""
        return self.value & ~sum(((1 << field.bits) - 1) << field.low for field in self.fields)

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "value": f"{self.value:#018x}", "arch": self.arch,
            "fields": [
                {
                    "name": field.name, "low": field.low, "high": field.low + field.bits - 1,
                    "value": self.numbers[field.name], "evidence": field.evidence.level, "source": field.evidence.source,
                }
                for field in self.fields
            ],
            "unknown_bits": f"{self.unknown:#018x}",
        }  # fmt: skip


def decode_barrier(value: int, arch: str = "sm_90") -> BarrierObject:
    """Take a 64-bit mbarrier object, or the state that an arrive returns, apart.

    Raises OperandError for a value that is not 64 bits wide, TargetError for an arch without mbarrier, NotModelledError for
    layout v1 on sm_107.

    >>> decode_barrier(tcsim.MBarrier(128).encode(arch="sm_90")).numbers
    {'layout': 0, 'expected': 128, 'tx_count': 0, 'error': 0, 'pending': 128, 'phase': 0}
    """
    name = accepting(arch)[0].name
    if name not in mbarrier_bits.FIELDS:
        raise TargetError(f"{arch} has no mbarrier; valid: sm_80 and later")
    return BarrierObject(value, name, mbarrier_bits.unpack(value, name))
