"""A matrix descriptor field by field, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tcsim.descriptors.checks import TileCheck
from tcsim.descriptors.matrix import CanonicalTile, MatrixDescriptor, form_of


@dataclass(frozen=True)
class FieldValue:
    """Some bits and what they say."""

    name: str
    high: int
    low: int
    raw: int  # the bits as a number
    value: int | str  # in bytes if the field counts units; the mode's name of the swizzle
    meaning: str

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return asdict(self)


def fields_of(descriptor: MatrixDescriptor) -> tuple[FieldValue, ...]:
    """The fields from the lowest bits up.

    Raises OperandError if a field cannot hold its number.

    >>> fields_of(tcsim.MatrixDescriptor(start_address=1024, swizzle="64B"))[0].raw
    64
    """
    value = descriptor.encode()
    found = []
    for field in form_of(descriptor.arch)[1].fields:
        shown: int | str = descriptor.swizzle if field.name == "swizzle" else field.take(value)
        raw = value >> field.low & ((1 << field.bits) - 1)
        found.append(FieldValue(field.name, field.low + field.bits - 1, field.low, raw, shown, field.meaning))
    return tuple(found)


def descriptor_dict(descriptor: MatrixDescriptor) -> dict[str, Any]:
    """The keys of JSON of a descriptor."""
    value = descriptor.encode()
    return {
        "value": f"{value:#018x}", "arch": descriptor.arch, "fields": [field.as_dict() for field in fields_of(descriptor)],
    }  # fmt: skip


def tile_dict(tile: CanonicalTile) -> dict[str, Any]:
    """The keys of JSON of a canonical tile."""
    return {
        "rows": tile.rows, "k": tile.k, "format": tile.format.name, "major": tile.major, "swizzle": str(tile.swizzle),
        "layout": str(tile.layout), "bytes": tile.bytes, "step_k": tile.step, "advances": list(tile.advances),
        "descriptor": descriptor_dict(tile.descriptor),
        "descriptors": [f"{descriptor.encode():#018x}" for descriptor in tile.descriptors],
    }  # fmt: skip


def check_dict(check: TileCheck) -> dict[str, Any]:
    """The keys of JSON of a check."""
    return {
        "ok": check.ok, "messages": list(check.messages), "outside": check.outside.tolist(),
        "shared": check.shared.tolist(), "first_byte": check.first, "last_byte": check.last,
        "unused_bytes": check.unused, "off_phase": check.off_phase, "conflict_degree": check.conflict_degree,
    }  # fmt: skip
