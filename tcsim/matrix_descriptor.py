"""Shared-memory matrix descriptors: the 64 bits that tell a tensor core where a tile lies.

Sources: PTX ISA, sections Asynchronous Warpgroup Level Matrix Shared Memory Layout (sm_90) and tcgen05 Shared Memory
Descriptor (sm_100); the element addresses of sm_90 were measured on an NVIDIA H200 with random descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from tcsim.errors import OperandError, TargetError, listing
from tcsim.formats import Format
from tcsim.formats import format as find_format
from tcsim.swizzle import SWIZZLES
from tcsim.targets import accepting

if TYPE_CHECKING:
    from tcsim.canonical_tile import CanonicalTile
    from tcsim.tile_check import TileCheck

Major = Literal["K", "MN"]
CORE_ROWS = 8  # rows (or columns of k) of a core matrix
CORE_BYTES = 16  # bytes of a row of a core matrix


@dataclass(frozen=True)
class Field:
    """Some bits of a descriptor."""

    name: str
    low: int  # position of the lowest bit
    bits: int
    unit: int  # bytes that one step of an address or offset means; 1 for plain numbers
    meaning: str

    def take(self, value: int) -> int:
        """The field of a descriptor, in bytes if it has a unit."""
        return (value >> self.low & ((1 << self.bits) - 1)) * self.unit

    def put(self, number: int) -> int:
        """The descriptor bits of a number.

        Raises OperandError if it is not a multiple of the unit or too large.
        """
        limit = ((1 << self.bits) - 1) * self.unit
        if number % self.unit or not 0 <= number <= limit:
            step = f"multiples of {self.unit} from" if self.unit > 1 else "from"
            raise OperandError(
                f"{self.name}={number}: valid are {step} 0 to {limit} (bits {self.low + self.bits - 1}:{self.low})"
            )
        return number // self.unit << self.low


_START = Field("start_address", 0, 14, 16, "shared address of the tile's first byte")
_LEADING = Field(
    "leading_byte_offset",
    16,
    14,
    16,
    "LBO: between core matrices along K (no swizzle), between swizzled blocks along MN",
)
_STRIDE = Field(
    "stride_byte_offset", 32, 14, 16, "SBO: between groups of 8 rows (K-major), between groups of 8 k (MN-major)"
)

_BASE = Field(
    "base_offset", 49, 3, 1, "phase of the swizzle pattern if the tile does not start at a multiple of its period"
)


@dataclass(frozen=True)
class Form:
    """The descriptor of one generation."""

    fields: tuple[Field, ...]
    modes: MappingProxyType[str, int]  # swizzle name -> value of the field `swizzle`
    constants: int = 0  # bits that must be set


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
        "sm_100": Form(
            (
                _START,
                _LEADING,
                _STRIDE,
                _BASE,
                Field("leading_mode", 52, 1, 1, "0: LBO is a byte offset; 1: LBO is an absolute address"),
                Field("swizzle", 61, 3, 1, "0 none, 1 128 bytes of 32-byte atoms, 2 128 bytes, 4 64 bytes, 6 32 bytes"),
            ),
            MappingProxyType({"NONE": 0, "128B_ATOM_32B": 1, "128B": 2, "64B": 4, "32B": 6}),
            constants=1 << 46,
        ),
    }
)
"""By the first arch that has the form."""


def form_of(arch: str) -> tuple[str, Form]:
    """The descriptor form of an arch or target.

    Raises TargetError for an arch whose tensor cores take no descriptors.
    """
    chip, _ = accepting(arch)
    if chip.name == "sm_90":
        return "sm_90", FORMS["sm_90"]
    if 100 <= chip.number < 120:
        return "sm_100", FORMS["sm_100"]
    raise TargetError(
        f"{arch} has no matrix descriptors; sm_90 (wgmma) and sm_100, sm_103, sm_107, sm_110 (tcgen05) have"
    )


@dataclass(frozen=True)
class MatrixDescriptor:
    """One descriptor, field by field; offsets and addresses in bytes.

    >>> tile = MatrixDescriptor(start_address=1024, stride_byte_offset=1024, swizzle="128B")
    >>> hex(tile.encode())
    '0x4000004000000040'
    >>> MatrixDescriptor.decode(tile.encode(), arch="sm_90") == tile
    True
    """

    start_address: int = 0
    leading_byte_offset: int = 0
    stride_byte_offset: int = 0
    base_offset: int = 0
    swizzle: str = "NONE"  # a key of the form's modes
    leading_mode: int = 0  # sm_100 only
    arch: str = "sm_90"  # whose form

    @staticmethod
    def decode(value: int, arch: str = "sm_90") -> MatrixDescriptor:
        """Take a 64-bit descriptor apart.

        Raises OperandError if a field has no meaning or bits outside the fields are set.
        """
        name, form = form_of(arch)
        value = int(value)
        parts = {field.name: field.take(value) for field in form.fields}
        modes = {code: mode for mode, code in form.modes.items()}
        if parts["swizzle"] not in modes:
            raise OperandError(
                f"descriptor {value:#x}: swizzle mode {parts['swizzle']} does not exist on {arch}; valid: {listing(modes)}"
            )
        known = form.constants | sum(((1 << field.bits) - 1) << field.low for field in form.fields)
        if not 0 <= value < 1 << 64 or value & ~known:
            raise OperandError(
                f"descriptor {value:#x}: bits {value & ~known:#x} belong to no field of {name}'s descriptor"
            )
        if value & form.constants != form.constants:
            raise OperandError(f"descriptor {value:#x}: bits {form.constants:#x} must be set on {arch}")
        return MatrixDescriptor(**{**parts, "swizzle": modes[parts["swizzle"]]}, arch=name)  # type: ignore[arg-type]

    @staticmethod
    def for_tile(
        rows: int,
        k: int,
        format: str | Format,
        major: Major = "K",
        swizzle: str = "128B",
        start_address: int = 0,
    ) -> CanonicalTile:
        """Where to put a tile of rows x k elements for wgmma, and the descriptors that read it, one for each K step.

        `rows` runs along M for A and along N for B; `k` may be many steps long. Panels of one swizzle span lie one after the
        other, as TMA loads with boxes of that span write them. k below the span leaves the ends of rows unused (K-major).

        Source: the element addresses measured on an H200; CuTe's canonical GMMA layouts are the same.

        Raises OperandError for a shape, format, major or start address with which no such tile exists.

        >>> tile = tcsim.MatrixDescriptor.for_tile(128, 128, "f16", major="K", swizzle="128B", start_address=1024)
        >>> print(tile)
        Swizzle<3,4,3> of ((8,16),(64,2)):((64,512),(1,8192)) (128 x 128 f16 in 16 bits, K-major)
        >>> tile.descriptor.stride_byte_offset, tile.bytes
        (1024, 32768)
        >>> tile.advances  # bytes; 32 inside a panel, then the next panel
        (0, 32, 64, 96, 16384, 16416, 16448, 16480)
        """
        from tcsim.canonical_tile import canonical_tile  # it needs this class

        return canonical_tile(rows, k, format, major, swizzle, start_address)

    def encode(self) -> int:
        """The 64-bit descriptor.

        Raises OperandError if a field cannot hold its number.
        """
        _, form = form_of(self.arch)
        if self.swizzle not in form.modes:
            raise OperandError(f"no swizzle {self.swizzle!r} on {self.arch}; valid: {listing(form.modes)}")
        numbers = {field.name: getattr(self, field.name) for field in fields(self)} | {
            "swizzle": form.modes[self.swizzle]
        }
        unknown = [name for name in ("leading_mode",) if numbers[name] and name not in {f.name for f in form.fields}]
        if unknown:
            raise OperandError(f"{self.arch} descriptors have no field {unknown[0]}")
        return form.constants | sum(field.put(numbers[field.name]) for field in form.fields)

    def check(self, rows: int, k: int, format: str | Format, major: Major = "K", memory: int = 227 * 1024) -> TileCheck:
        """What is remarkable about reading a tile of rows x k elements with this descriptor.

        Elements outside `memory` bytes, bytes read for two elements, unused bytes, a start off the swizzle's phase, and the
        bank conflicts of a core matrix's 8 rows, each as a number and as a sentence.

        The default memory is what one block can have on sm_90. The 8 rows of a core matrix never conflict, whatever the
        descriptor says, because the swizzle spreads just those; conflicts come from how threads write the tile: see
        `tcsim.bank_conflicts`.

        Raises OperandError for a major, format or memory that cannot be, TargetError for a descriptor of sm_100.

        >>> units_for_bytes = tcsim.MatrixDescriptor(stride_byte_offset=64, swizzle="128B")  # 64 units of 16 bytes meant
        >>> print(units_for_bytes.check(64, 16, "f16").messages[0])
        672 of 1024 elements are read from a place that another element has too; the first is row 16, k 0 at 0x90: is SBO=64 or LBO=0 too small, or not in bytes?
        """
        from tcsim.tile_check import check_tile  # it needs this class

        return check_tile(self, rows, k, format, major, memory)

    def _only_sm_90(self, asked: str) -> None:
        if self.arch != "sm_90":
            raise TargetError(
                f"MatrixDescriptor.{asked}: {self.arch}'s descriptors are decoded and encoded only; valid: sm_90"
            )

    def _repr_html_(self) -> str:
        from tcsim.inspection.notebook import descriptor_html  # it needs this class

        return descriptor_html(self)

    def describe(self) -> list[str]:
        """One line a field: bits, name, value in bytes, meaning.

        >>> print(MatrixDescriptor(start_address=1024, swizzle="64B").describe()[0])
        bits 13:0   start_address        1024       shared address of the tile's first byte
        """
        _, form = form_of(self.arch)
        value = self.encode()
        lines = []
        for field in form.fields:
            shown = self.swizzle if field.name == "swizzle" else str(field.take(value))
            place = f"{field.low + field.bits - 1}:{field.low}"
            lines.append(f"bits {place:<6} {field.name:<20} {shown:<10} {field.meaning}")
        return lines

    def addresses(self, rows: int, k: int, format: str | Format, major: Major = "K") -> npt.NDArray[np.int64]:
        """The shared byte address of every element of a tile: (rows, k); of sub-byte elements, that of their byte.

        `rows` runs along M for A and along N for B. Raises OperandError for a major or format that cannot be, TargetError
        for a descriptor of sm_100.
        """
        self._only_sm_90("addresses")
        return element_addresses(np.array(self.encode(), np.uint64), rows, k, find_format(format), major)


def element_addresses(
    descriptors: npt.NDArray[np.uint64], rows: int, k: int, format: Format, major: Major
) -> npt.NDArray[np.int64]:
    """Byte addresses (..., rows, k) that sm_90 descriptors (...) read; swizzled, not yet wrapped or bounds-checked.

    Measured on an H200: 1,000 random descriptors of every swizzle and both majors.

    Raises OperandError for MN-major tiles of anything but 16-bit elements.
    """
    value = np.asarray(descriptors, np.uint64)[..., None, None]
    start, leading, stride = (_take(value, field) for field in (_START, _LEADING, _STRIDE))
    mode = (value >> np.uint64(62)).astype(np.int64)
    patterns = [SWIZZLES[name] for name, _ in sorted(FORMS["sm_90"].modes.items(), key=lambda item: item[1])]
    span = np.choose(mode, [pattern.span for pattern in patterns])
    r, column = np.arange(rows)[:, None], np.arange(k)[None, :]
    bits = format.container_bits if format.bits >= 8 else format.bits
    if major == "K":
        byte = column * bits // 8
        plain = r % 8 * 16 + r // 8 * stride + byte // 16 * leading + byte % 16
        swizzled = r % 8 * span + r // 8 * stride + byte
    elif bits == 16:
        chunk = r // 8  # 16-byte chunks along MN
        per_span = span // 16
        plain = r % 8 * 2 + chunk * stride + column % 8 * 16 + column // 8 * leading
        swizzled = (
            r % 8 * 2 + chunk % per_span * 16 + chunk // per_span * leading + column % 8 * span + column // 8 * stride
        )
    else:
        raise OperandError(f"MN-major {format.name}: only 16-bit elements can be MN-major in shared memory on sm_90")
    address = start + np.where(mode == 0, plain, swizzled)
    result: npt.NDArray[np.int64] = np.choose(mode, [pattern(address) for pattern in patterns])
    return result


def _take(value: npt.NDArray[np.uint64], field: Field) -> npt.NDArray[np.int64]:
    return ((value >> np.uint64(field.low)) & np.uint64((1 << field.bits) - 1)).astype(np.int64) * field.unit
