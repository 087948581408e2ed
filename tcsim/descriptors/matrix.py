"""Shared-memory matrix descriptors: the 64 bits that tell a tensor core where a tile lies, and the tile that they read.

Which bits are what is in `tcsim.descriptors.forms`, which bytes they read in `tcsim.descriptors.addresses`, how a tile must
lie in `tcsim.descriptors.canonical_tile`, what is remarkable about a reading in `tcsim.descriptors.checks`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import integer, is_name, is_number
from tcsim.core.display import Shown
from tcsim.core.errors import OperandError, listing
from tcsim.core.targets import arch_named
from tcsim.descriptors.addresses import along_k, element_addresses, element_bit_addresses
from tcsim.descriptors.canonical_tile import Order, PlacedTile, place_tile
from tcsim.descriptors.checks import TileCheck, check_tile
from tcsim.descriptors.forms import CORE_BYTES, CORE_ROWS, FORMS, Form, Major, form_of, wrong_bits
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES, PATTERN_ROW
from tcsim.numbers.formats import Format
from tcsim.numbers.formats import format as find_format

__all__ = [
    "CORE_BYTES",
    "CORE_ROWS",
    "FORMS",
    "CanonicalTile",
    "Form",
    "Major",
    "MatrixDescriptor",
    "descriptor_values",
    "element_addresses",
    "form_of",
]


def descriptor_values(given: Any) -> Any:
    """What an instruction takes for a descriptor: the 64 bits of a MatrixDescriptor, anything else as it is."""
    return np.uint64(given.encode()) if isinstance(given, MatrixDescriptor) else given


@dataclass(frozen=True)
class MatrixDescriptor(Shown):
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
    leading_mode: int = 0  # not on sm_90
    k_half: int = 0  # sm_107 only: which half of 48 bytes of lookup indices
    arch: str = "sm_90"  # whose form

    def __post_init__(self) -> None:
        object.__setattr__(self, "arch", arch_named(self.arch))

    @staticmethod
    def decode(value: int, arch: str = "sm_90") -> MatrixDescriptor:
        """Take a 64-bit descriptor apart.

        Raises OperandError for anything but an integer, if a field has no meaning, or if bits outside the fields are set.

        Pre-conditions:
            0 <= value < 1 << 64
            value & ~form_of(arch)[1].known == 0
            value & form_of(arch)[1].constants == form_of(arch)[1].constants
            form_of(arch)[1].field("swizzle").take(value) in form_of(arch)[1].modes.values()
        Post-conditions:
            result.encode() == value
        """
        name, form = form_of(arch)
        value = integer(value, "MatrixDescriptor.decode: value")
        parts = {field.name: field.take(value) for field in form.fields}
        modes = {code: mode for mode, code in form.modes.items()}
        if wrong := wrong_bits(value, name):
            raise OperandError(f"descriptor {value:#x}: {'; '.join(wrong)}")
        return MatrixDescriptor(**{**parts, "swizzle": modes[parts["swizzle"]]}, arch=name)  # type: ignore[arg-type]

    @staticmethod
    def for_tile(
        rows: int,
        k: int,
        format: str | Format,
        major: Major = "K",
        swizzle: str = "128B",
        start_address: int = 0,
        arch: str = "sm_90",
        kind: str = "",
        step: int = 0,
        order: Order = "",
    ) -> CanonicalTile:
        """Where to put a tile of rows x k elements for wgmma or tcgen05, and the descriptors that read it, one per K step.

        `rows` runs along M for A and along N for B; `k` may be many steps long. Panels of one swizzle span lie one after the
        other, as TMA loads with boxes of that span write them. k below the span leaves the ends of rows unused (K-major).

        `kind` is the tcgen05 kind, as for `addresses`. `step` is K of one instruction; 0: what 32 bytes hold, padding included.
        `order` says along which the tile's atoms (8 rows of a swizzle's span) lie next to each other: "K" or "MN"; not given: as TMA
        writes panels, "MN" for a K-major tile and "K" for an MN-major one. The 48 bytes of K = 96 (sm_103, sm_107) run over the ends of 128-byte rows: such a step's descriptor names the next panel.

        Source: the element addresses measured on an H200, and CuTe's canonical GMMA layouts; for sm_100 the PTX ISA's canonical
        layouts, which CuTe's UMMA layouts are.

        Raises OperandError for a shape, format, major or start address with which no such tile exists.

        Post-conditions:
            result.descriptors[0] == result.descriptor == MatrixDescriptor.decode(result.descriptor.encode(), arch=arch)
            len(result.descriptors) == len(result.advances) == k // result.step
            np.hstack([one.addresses(rows, result.step, format, major, kind) for one in result.descriptors]) == result.addresses
            result.descriptor.check(rows, result.step, format, major, 1 << 18, kind).ok

        >>> tile = tcsim.MatrixDescriptor.for_tile(128, 128, "f16", major="K", swizzle="128B", start_address=1024)
        >>> print(tile)
        Swizzle<3,4,3> of ((8,16),(64,2)):((64,512),(1,8192)) (128 x 128 f16 in 16 bits, K-major)
        >>> tile.descriptor.stride_byte_offset, tile.bytes
        (1024, 32768)
        >>> tile.advances  # bytes; 32 inside a panel, then the next panel
        (0, 32, 64, 96, 16384, 16416, 16448, 16480)
        >>> tcsim.MatrixDescriptor.for_tile(128, 128, "f16", order="K").descriptor.stride_byte_offset
        2048
        """
        tile = place_tile(CanonicalTile, rows, k, format, major, swizzle, start_address, arch, kind, step, order)
        tile.descriptor.encode()  # raises if a field cannot hold its number
        return tile

    def encode(self) -> int:
        """The 64-bit descriptor.

        Raises OperandError if a field cannot hold its number.

        Post-conditions:
            MatrixDescriptor.decode(result, arch=self.arch) == self
        """
        _, form = form_of(self.arch)
        if not is_name(self.swizzle, form.modes):
            raise OperandError(f"no swizzle {self.swizzle!r} on {self.arch}; valid: {listing(form.modes)}")
        numbers = {field.name: getattr(self, field.name) for field in fields(self)} | {
            "swizzle": form.modes[self.swizzle]
        }
        unknown = [
            name
            for name in ("leading_mode", "k_half")
            if not is_number(numbers[name], (0,)) and name not in {f.name for f in form.fields}
        ]
        if unknown:
            raise OperandError(f"{self.arch} descriptors have no field {unknown[0]}")
        return form.constants | sum(field.put(numbers[field.name]) for field in form.fields)

    def check(
        self,
        rows: int,
        k: int,
        format: str | Format,
        major: Major = "K",
        memory: int = 227 * 1024,
        kind: str = "",
    ) -> TileCheck:
        """What is remarkable about reading a tile of rows x k elements with this descriptor.

        It looks for elements outside `memory` bytes, bytes read for two elements, unused bytes, a start off the swizzle's phase,
        and bank conflicts among a core matrix's 8 rows. It gives each as a number and as a sentence.

        The default memory is what one block can have on sm_90 and sm_100. The 8 rows of a core matrix never conflict, whatever
        the descriptor says, because those are the rows that the swizzle spreads. Conflicts come from how threads write the tile:
        see `tcsim.bank_conflicts`.

        `kind` is the tcgen05 kind, as for `addresses`.

        Raises OperandError for a memory of less than one byte, and as `addresses` does.

        Post-conditions:
            result.ok == (len(result.outside) == len(result.shared) == 0)
            result.first == self.addresses(rows, k, format, major, kind).min()
            result.last >= self.addresses(rows, k, format, major, kind).max()
            bool(len(result.outside)) == (result.last >= memory)
            len(result.shared) == rows * k - len(np.unique(self.bit_addresses(rows, k, format, major, kind)))
            bool(result.messages) == (not result.ok or result.off_phase > 0 or result.unused > 0 or result.conflict_degree > 1)

        >>> units_for_bytes = tcsim.MatrixDescriptor(stride_byte_offset=64, swizzle="128B")  # 64 units of 16 bytes meant
        >>> print(units_for_bytes.check(64, 16, "f16").messages[0])
        672 of 1024 elements are read from a place that another element has too; the first is row 16, k 0 at 0x90: is SBO=64 or LBO=0 too small, or not in bytes?
        """
        if integer(memory, "MatrixDescriptor.check: memory") < 1:
            raise OperandError(f"MatrixDescriptor.check: memory={memory}; valid: a number of bytes, at least 1")
        element = find_format(format)
        place = self.bit_addresses(rows, k, element, major, kind)
        chunk = along_k(k, element, kind, self.arch).chunk if major == "K" else 0
        start = self.start_address - self.base_offset * PATTERN_ROW
        offsets = self.stride_byte_offset, self.leading_byte_offset
        return check_tile(place, element, chunk, self.swizzle, start, offsets, memory)

    def describe(self) -> list[str]:
        """One line for each field: bits, name, value in bytes, meaning.

        Post-conditions:
            len(result) == len(form_of(self.arch)[1].fields) + len(form_of(self.arch)[1].fixed)

        >>> print(MatrixDescriptor(start_address=1024, swizzle="64B").describe()[0])
        bits 13:0   start_address        1024       shared address of the tile's first byte
        """
        _, form = form_of(self.arch)
        value = self.encode()
        lines = []
        for field in sorted((*form.fields, *(fixed for fixed, _ in form.fixed)), key=lambda one: one.low):
            shown = self.swizzle if field.name == "swizzle" else str(field.take(value))
            lines.append(f"bits {field.place:<6} {field.name:<20} {shown:<10} {field.meaning}")
        return lines

    def addresses(
        self, rows: int, k: int, format: str | Format, major: Major = "K", kind: str = ""
    ) -> npt.NDArray[np.int64]:
        """The shared byte address of every element of a tile, (rows, k); for a sub-byte element, the byte of its first bit.

        `rows` runs along M for A and along N for B. `kind` is the tcgen05 kind, needed for e2m1 on sm_100: kind::f8f6f4 and
        kind::mxf8f6f4 take 16 fp4 or fp6 elements from the first bytes of 16, the others pack them.

        A K-major row longer than the swizzle's span continues one LBO further on with every span. `base_offset` moves the
        pattern of a swizzle on by that number of rows of 128 bytes.

        Evidence: measured on an H200 for sm_90; literature for sm_100 (PTX ISA, Canonical Layouts; CUTLASS's
        make_umma_desc). On sm_100 long rows are inferred from sm_90, and leading_mode=1 is inferred.

        Raises OperandError for a major, format, kind or mode that does not exist, or whose addresses are not published.

        Post-conditions:
            result.shape == (rows, k)
            result == self.bit_addresses(rows, k, format, major, kind) // 8
            result == element_addresses(np.array(self.encode(), np.uint64), rows, k, find_format(format), major, self.arch, kind)

        >>> one = tcsim.MatrixDescriptor.for_tile(8, 16, "f16", swizzle="32B").descriptor
        >>> one.addresses(8, 16, "f16")[[0, 4], :9:4].tolist()  # rows from 4 on have their 16-byte chunks exchanged
        [[0, 8, 16], [144, 152, 128]]
        """
        return self.bit_addresses(rows, k, format, major, kind) // 8

    def bit_addresses(
        self, rows: int, k: int, format: str | Format, major: Major = "K", kind: str = ""
    ) -> npt.NDArray[np.int64]:
        """The shared address of every element in bits, (rows, k): 8 times the byte, plus the bit in it.

        A 6-bit element may continue in the next byte. Otherwise as `addresses`.

        Post-conditions:
            result.shape == (rows, k)
            result[0, 0] == 8 * DESCRIPTOR_SWIZZLES[self.swizzle](self.start_address, self.base_offset)

        >>> tile = tcsim.MatrixDescriptor(stride_byte_offset=1024, swizzle="128B", arch="sm_100")
        >>> tile.bit_addresses(8, 4, "e3m2", kind="f8f6f4")[1]
        array([1152, 1158, 1164, 1170])
        """
        value = np.array(self.encode(), np.uint64)
        return element_bit_addresses(value, rows, k, find_format(format), major, self.arch, kind)


@dataclass(frozen=True)
class CanonicalTile(PlacedTile, Shown):
    """A tile in shared memory and the descriptors that read it, one for each K step. `MatrixDescriptor.for_tile` makes one."""

    @cached_property
    def descriptor(self) -> MatrixDescriptor:
        """The descriptor of the first K step."""
        name = next(name for name, pattern in DESCRIPTOR_SWIZZLES.items() if pattern == self.swizzle)
        return MatrixDescriptor(
            self.start_address, self.leading_byte_offset, self.stride_byte_offset, swizzle=name, arch=self.arch
        )

    @property
    def descriptors(self) -> tuple[MatrixDescriptor, ...]:
        """One descriptor for each K step.

        A step of 48 bytes that runs on into the next panel says so: its LBO is that panel's address (leading_mode=1).
        """
        start, span = self.start_address, self.swizzle.span
        found = []
        for advance in self.advances:
            one = replace(self.descriptor, start_address=start + advance)
            if self.major == "K" and span > CORE_BYTES and advance % span + self.step_bytes > span:
                beyond = start + (advance // (self.rows * span) + 1) * self.rows * span
                one = replace(one, leading_byte_offset=beyond, leading_mode=1)
            found.append(one)
        return tuple(found)
