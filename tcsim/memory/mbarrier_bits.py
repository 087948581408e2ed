"""The 64 bits of an mbarrier object: which field lies where on which arch, and how that is known.

The PTX manual calls the object opaque. Where ptxas computes on it in the open, its machine code says what the bits mean:
`mbarrier.init` makes the initial object from the count, `mbarrier.pending_count` takes the pending arrivals out of a state,
`mbarrier.test_wait` compares one bit of it (on sm_80 to sm_89 with the object's, in plain instructions), `check_layout`
tests one bit. `tests/unit/tcsim/memory/test_mbarrier_bits.py` reads that again from the assembler at hand.

A state that an arrive returns is the high word of the object as it was before: this held for 26,722 states of an NVIDIA H200 in
every stage of a phase. Its low word was never that of the object: it was 0 after the arrives, and after .noComplete, which ptxas
finishes in instructions of its own, a mask of lanes that stays in the register.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from tcsim.core.arguments import integer
from tcsim.core.errors import NotModelledError, OperandError
from tcsim.core.evidence import Evidence, inferred
from tcsim.core.targets import ARCHS, Arch, arch_named
from tcsim.descriptors.bit_field import Field

_INIT = Evidence("literature", "the machine code of mbarrier.init, ptxas 13.5")
_PENDING = Evidence("literature", "the machine code of mbarrier.init and mbarrier.pending_count, ptxas 13.5")
_PHASE = Evidence("literature", "the machine code of mbarrier.test_wait and mbarrier.test_wait.parity, ptxas 13.5")
_LAYOUT = Evidence("literature", "the machine code of mbarrier.init and mbarrier.check_layout, ptxas 13.5")
_ANNOTATED = Evidence(
    "literature", "comments in an annotated copy of DeepEP (a table of the fields); no machine code shows it"
)


HOPPER = (
    Field("layout", 0, 1, meaning="0: v0, 1: v1", evidence=_LAYOUT),
    Field("expected", 1, 20, meaning="arrivals of the next phase", negated=True, evidence=_INIT),
    Field(
        "tx_count", 21, 21, meaning="bytes expected and not complete", negated=True, signed=True, evidence=_ANNOTATED
    ),
    Field("error", 42, 1, meaning="set when more arrivals come than were pending", evidence=_ANNOTATED),
    Field("pending", 43, 20, meaning="arrivals of the phase under way", negated=True, evidence=_PENDING),
    Field("phase", 63, 1, meaning="its parity", evidence=_PHASE),
)
"""sm_90 and later. Layout v1 has the same fields except on sm_107, where its counts are narrower and elsewhere."""
AMPERE = (
    Field("expected", 0, 30, meaning="arrivals of the next phase", negated=True, evidence=_INIT),
    Field("pending", 32, 31, meaning="arrivals of the phase under way", negated=True, evidence=_PENDING),
    Field("phase", 63, 1, meaning="its parity", evidence=_PHASE),
)
"""sm_80 to sm_89, which have no transaction count. Bits 30 and 31 are zero in a new object; what they are for is unknown."""


def _fields_on(arch: Arch) -> tuple[Field, ...]:
    fields = HOPPER if arch.number >= 90 else AMPERE
    return fields if arch.source else tuple(replace(field, evidence=inferred(arch)) for field in fields)


FIELDS = MappingProxyType({name: _fields_on(arch) for name, arch in ARCHS.items() if arch.number >= 80})
"""The fields of the object by arch."""
OWN_LAYOUT_V1 = ("sm_107",)
"""Archs on which mbarrier.init.layout::v1 makes an object with different fields, not all of which are known."""


def unpack(value: int, arch: str) -> dict[str, int]:
    """The numbers that the bits of an object hold, by field.

    Raises OperandError for a number that is not 64 bits or an arch without mbarrier, NotModelledError for layout v1 on
    sm_107.

    >>> unpack(0x7FFF_D800_001F_FFF6, "sm_90")
    {'layout': 0, 'expected': 5, 'tx_count': 0, 'error': 0, 'pending': 5, 'phase': 0}

    Pre-conditions:
        0 <= value < 1 << 64
        arch_named(arch) in FIELDS
        value & 1 == 0 or arch not in OWN_LAYOUT_V1
    Post-conditions:
        arch not in ("sm_90", "sm_100") or pack(result, arch) == value
        all(field.least <= result[field.name] <= field.most for field in FIELDS[arch])
    """
    value = integer(value, "unpack: value")
    if not 0 <= value < 1 << 64:
        raise OperandError(f"unpack({value}): an mbarrier object has 64 bits; valid: 0 to 2**64 - 1")
    fields = _fields(arch)
    _require_known(value & 1, arch)
    return {field.name: field.take(value) for field in fields}


def counts(value: int, arch: str) -> dict[str, int]:
    """As `unpack`, of an object of layout v1 what layout v0 would hold in its places. An arch before sm_90 has a count where later ones say the layout.

    >>> value = pack({"expected": 3, "pending": 2}, "sm_80")
    >>> value & 1, counts(value, "sm_80")
    (1, {'expected': 3, 'pending': 2, 'phase': 0})

    Pre-conditions:
        0 <= value < 1 << 64
        arch_named(arch) in FIELDS
    Post-conditions:
        result.get("layout", 0) == 0
    """
    layout = any(field.name == "layout" for field in _fields(arch))
    return unpack(value & ~1 if layout else value, arch)


def pack(values: dict[str, int], arch: str) -> int:
    """The bits of an object with these numbers: inverse of `unpack`; fields that are not named are zero.

    Raises OperandError for an arch without mbarrier, or one that has no place for a number that is not zero;
    NotModelledError for layout v1 on sm_107.

    Post-conditions:
        unpack(result, arch).items() >= {name: number for name, number in values.items() if number}.items()
        {name for name, number in unpack(result, arch).items() if number} <= values.keys()
    """
    fields = {field.name: field for field in _fields(arch)}
    _require_known(values.get("layout", 0), arch)
    total = 0
    for name, number in values.items():
        if name in fields:
            total |= fields[name].put(number)
        elif number:
            raise OperandError(f"pack: {name}={number}: on {arch} an mbarrier does not have that count; valid: 0")
    return total


def _fields(arch: str) -> tuple[Field, ...]:
    name = arch_named(arch)
    if name not in FIELDS:
        raise OperandError(f"{arch}: no mbarrier; valid: {', '.join(FIELDS)}")
    return FIELDS[name]


def _require_known(layout: int, arch: str) -> None:
    if layout and any(name in OWN_LAYOUT_V1 for name in ARCHS[arch_named(arch)].lineage):
        raise NotModelledError(
            f"layout v1 on {arch}: where its object keeps bytes, reports and the conditional phase is not known"
        )


def pending_count(state: int, arch: str) -> int:
    """What `mbarrier.pending_count` makes of the 64 bits of a state, whatever they are: 2**n minus a field of n bits.

    Raises OperandError for a number that is not 64 bits or an arch without mbarrier. Source: its machine code, ptxas 13.5.

    >>> pending_count(0, "sm_90"), pending_count(1 << 43, "sm_90"), pending_count((1 << 64) - 1, "sm_90")
    (1048576, 1048575, 1)

    Pre-conditions:
        0 <= state < 1 << 64
        arch_named(arch) in FIELDS
    Post-conditions:
        result >= 1
        result == unpack(state & ~1, arch)["pending"] or unpack(state & ~1, arch)["pending"] == 0
    """
    if not 0 <= state < 1 << 64:
        raise OperandError(f"pending_count({state}): a state has 64 bits; valid: 0 to 2**64 - 1")
    field = next(field for field in _fields(arch) if field.name == "pending")
    return (1 << field.bits) - (state >> field.low & (1 << field.bits) - 1)
