"""One mbarrier object taken apart for a reader: its fields, how each is known, and bits that belong to none.

The fields are `tcsim.memory.mbarrier_bits`; this is what `tcsim mbarrier decode` shows of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tcsim.core.errors import OperandError, TargetError
from tcsim.core.targets import accepting
from tcsim.descriptors.bit_field import Field
from tcsim.memory.mbarrier import MBarrier
from tcsim.memory.mbarrier_bits import FIELDS, unpack


@dataclass(frozen=True)
class BarrierObject:
    """One object taken apart."""

    value: int
    arch: str
    fields: tuple[Field, ...]

    @property
    def numbers(self) -> dict[str, int]:
        """The fields by name."""
        return {field.name: field.take(self.value) for field in self.fields}

    @property
    def unknown(self) -> int:
        """The bits that no known field has."""
        known = sum(field.mask for field in self.fields)
        return self.value & ~known

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

    Raises OperandError for a value that is not 64 bits wide, TargetError for an arch without mbarrier, NotModelledError for
    layout v1 on sm_107.

    Post-conditions:
        result.numbers == unpack(value, result.arch)
        result.unknown == value & ~sum(field.mask for field in result.fields)

    >>> decode_barrier(initial_barrier(128, "sm_90"), "sm_90").numbers
    {'layout': 0, 'expected': 128, 'tx_count': 0, 'error': 0, 'pending': 128, 'phase': 0}
    """
    name = _arch(arch)
    if not 0 <= value < 1 << 64:
        raise OperandError(f"mbarrier {value:#x}: valid are 64 bits, 0x0 to {(1 << 64) - 1:#x}")
    unpack(value, name)  # raises where the fields are not known
    return BarrierObject(value, name, FIELDS[name])


def initial_barrier(count: int, arch: str = "sm_90") -> int:
    """What mbarrier.init stores for an expected arrival count.

    Raises BarrierError for a count that is not 1 to 2**20 - 1, TargetError for an arch without mbarrier.

    Pre-conditions:
        1 <= count < 1 << 20
    Post-conditions:
        MBarrier.decode(result, arch=arch) == MBarrier(count)
        decode_barrier(result, arch).unknown == 0

    >>> hex(initial_barrier(1, "sm_90"))
    '0x7ffff800001ffffe'
    """
    return MBarrier(count).encode(arch=_arch(arch))


def _arch(arch: str) -> str:
    name = accepting(arch)[0].name
    if name not in FIELDS:
        raise TargetError(f"{arch} has no mbarrier; valid: sm_80 and later")
    return name
