"""The bits of shared-memory matrix descriptors, as each generation has them.

Sources: PTX ISA, sections Asynchronous Warpgroup Level Matrix Shared Memory Layout (sm_90) and tcgen05 Shared Memory
Descriptor (sm_100, sm_107); CUTLASS's GmmaDescriptor and UMMA::SmemDescriptor have the same bits of the first two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from tcsim.core.errors import TargetError, listing
from tcsim.core.targets import ARCHS, accepting, nearest_known
from tcsim.descriptors.bit_field import Field, stray_bits

Major = Literal["K", "MN"]
CORE_ROWS = 8  # rows (or columns of k) of a core matrix
CORE_BYTES = 16  # bytes of a row of a core matrix


_START = Field("start_address", 0, 14, 16, "shared address of the tile's first byte")
_LEADING = Field(
    "leading_byte_offset", 16, 14, 16,
    "LBO: between core matrices along K (no swizzle), between swizzled blocks along MN, between the spans of a longer K-major row",
)  # fmt: skip
_STRIDE = Field(
    "stride_byte_offset", 32, 14, 16, "SBO: between groups of 8 rows (K-major), between groups of 8 k (MN-major)"
)

_BASE = Field(
    "base_offset", 49, 3, 1, "phase of the swizzle pattern if the tile does not start at a multiple of its period"
)


_MODE = Field("leading_mode", 52, 1, 1, "0: LBO is a byte offset; 1: LBO is an absolute address")
_SWIZZLE = Field("swizzle", 61, 3, 1, "0 none, 1 128 bytes of 32-byte atoms, 2 128 bytes, 4 64 bytes, 6 32 bytes")
_VERSION = (Field("version", 46, 3, 1, "1: the form of sm_100"), 1)
_MODES = MappingProxyType({"NONE": 0, "128B_ATOM_32B": 1, "128B": 2, "64B": 4, "32B": 6})


@dataclass(frozen=True)
class Form:
    """The descriptor of one generation."""

    fields: tuple[Field, ...]
    modes: MappingProxyType[str, int]  # swizzle name -> value of the field `swizzle`
    fixed: tuple[tuple[Field, int], ...] = ()  # fields that hold one number

    @property
    def constants(self) -> int:
        """The bits that must be set."""
        return sum(field.put(number) for field, number in self.fixed)

    @property
    def known(self) -> int:
        """The bits that belong to a field, and the constants."""
        return self.constants | sum(field.mask for field in self.fields)

    def field(self, name: str) -> Field:
        """One field by its name."""
        return next(field for field in self.fields if field.name == name)


FORMS: MappingProxyType[str, Form] = MappingProxyType(
    {
        "sm_90": Form(
            (
                _START,
                _LEADING,
                _STRIDE,
                _BASE,
                Field("swizzle", 62, 2, 1, "0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes"),
            ),
            MappingProxyType({"NONE": 0, "128B": 1, "64B": 2, "32B": 3}),
        ),
        "sm_100": Form((_START, _LEADING, _STRIDE, _BASE, _MODE, _SWIZZLE), _MODES, fixed=(_VERSION,)),
        # more shared memory: a bit more of what may be an address
        "sm_107": Form(
            (
                replace(_START, bits=15),
                replace(_LEADING, bits=15),
                _STRIDE,
                _BASE,
                _MODE,
                Field("k_half", 53, 1, 1, "half of 48 bytes of lookup indices that is read (.decompress::lut::b)"),
                _SWIZZLE,
            ),
            _MODES,
            fixed=(_VERSION,),
        ),
    }
)
"""By the arch that the form was made for; what other archs have: `form_of`."""


def form_of(arch: str) -> tuple[str, Form]:
    """The descriptor form of an arch or target, and the arch that it was made for: its own, or that of its nearest relative.

    Raises TargetError for an arch whose tensor cores take no descriptors.

    Post-conditions:
        result == (result[0], FORMS[result[0]]) == form_of(result[0])
        result[0] in accepting(arch)[0].lineage
    """
    chip, _ = accepting(arch)
    found = nearest_known(FORMS, chip)
    if found is None:
        tcgen05 = [one.name for one in ARCHS.values() if (nearest_known(FORMS, one) or ("sm_90",))[0] != "sm_90"]
        raise TargetError(f"{arch} has no matrix descriptors; sm_90 (wgmma) and {listing(tcgen05)} (tcgen05) have")
    return found


def wrong_bits(value: int, arch: str) -> tuple[str, ...]:
    """What 64 bits have that no descriptor of an arch has, field by field; nothing for a descriptor.

    >>> wrong_bits(0x4000004000000040, "sm_100")
    ('version (bits 48:46) must be set to 1: the form of sm_100; it is 0: is this a descriptor of sm_90?',)
    >>> wrong_bits(0x8000, "sm_90")
    ('bits 0x8000 belong to no field of sm_90: bit 15, between start_address (13:0) and leading_byte_offset (29:16)',)
    """
    name, form = form_of(arch)
    if not 0 <= value < 1 << 64:
        return (f"a descriptor has 64 bits; valid: 0 to {(1 << 64) - 1:#x}",)
    found = []
    for field, number in form.fixed:
        raw = value >> field.low & (1 << field.bits) - 1
        if raw != number:
            others = [
                other
                for other in FORMS
                if other != name and not FORMS[other].fixed and not _unknown(value, FORMS[other])
            ]
            perhaps = f": is this a descriptor of {' or '.join(others)}?" if others else ""
            found.append(f"{field.name} (bits {field.place}) must be set to {field.meaning}; it is {raw}{perhaps}")
    swizzle = form.field("swizzle")
    mode = swizzle.take(value)
    if mode not in form.modes.values():
        found.append(f"swizzle mode {mode} does not exist on {arch} (bits {swizzle.place}); valid: {swizzle.meaning}")
    known = (*form.fields, *(field for field, _ in form.fixed))
    if unknown := _unknown(value, form):
        found.append(
            f"bits {unknown:#x} belong to no field of {name}: {' '.join(stray_bits(unknown, known)).rstrip(',')}"
        )
    return tuple(found)


def _unknown(value: int, form: Form) -> int:
    """The bits that belong to no field."""
    fixed = sum(field.mask for field, _ in form.fixed)
    return value & ~(form.known | fixed)
