"""Canonical tiles: how an operand lies in shared memory so that a row of matrix descriptors can read it.

The layouts are those of CuTe's GMMA and UMMA layout atoms and of what a TMA load with the same swizzle writes. That the tensor
core of sm_90 reads them so follows from the element addresses that were measured with random descriptors on an NVIDIA H200;
for sm_100 it is what the PTX ISA says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import integer, is_name
from tcsim.core.errors import OperandError, listing
from tcsim.descriptors.addresses import along_k, swizzle_refusal
from tcsim.descriptors.forms import CORE_BYTES, CORE_ROWS, Major, form_of
from tcsim.layouts.layout import Layout
from tcsim.layouts.swizzle import ATOM_32B, DESCRIPTOR_SWIZZLES, Swizzle
from tcsim.numbers.codec import as_codes
from tcsim.numbers.formats import Format
from tcsim.numbers.formats import format as find_format

STEP_BYTES = 32
"""Bytes along K of one row that one instruction multiplies: k16 of 16-bit types, k32 of 8-bit, k8 of tf32, k256 of b1."""
Order = Literal["", "K", "MN"]
"""Along which neighbouring atoms lie next to each other in memory; empty: as TMA writes panels, MN of a K-major tile and K of an MN-major one."""
LONG_STEPS = {STEP_BYTES: (4, 8, 16, 32), 48: (4, 8), 64: (4, 8)}
"""Such bytes, of tcgen05 -> bits of the elements that have them. 48 bytes are K = 96 of fp4 (sm_103, sm_107) or lookup indices
(sm_107); 64 bytes are twice the smallest K (sm_107)."""


T = TypeVar("T", bound="PlacedTile")


@dataclass(frozen=True)
class PlacedTile:
    """A tile of `rows` x `k` elements in shared memory; rows run along M for A and along N for B.

    The tile is cut into panels, each of one swizzle span along K (K-major) or along MN (MN-major), one after the other.
    """

    rows: int
    k: int
    format: Format
    major: Major
    swizzle: Swizzle
    layout: Layout  # (row, k) -> offset in elements from the start, before the swizzle
    bytes: int  # of shared memory that the tile takes, unused ends of panels included
    start_address: int
    leading_byte_offset: int
    stride_byte_offset: int
    arch: str  # whose descriptors read it
    kind: str = ""  # tcgen05 kind
    step_bytes: int = STEP_BYTES  # of a row that one instruction multiplies

    @property
    def bits(self) -> int:
        """Bits that an element takes in shared memory, its share of padding included."""
        return _along(self.format, self.kind, self.arch)[0]

    @property
    def step(self) -> int:
        """Elements along K that one instruction multiplies."""
        return self.step_bytes * 8 // self.bits

    @cached_property
    def advances(self) -> tuple[int, ...]:
        """Bytes to add to the start address for each K step; the descriptor counts them in units of 16.

        Post-conditions:
            len(result) == self.k // self.step and result[0] == 0
            all(earlier < later for earlier, later in zip(result, result[1:]))
        """
        first = np.arange(0, self.k, self.step) * self.rows  # row 0 of each step, as a coordinate of the layout
        return tuple(int(offset) for offset in self.layout(first) * self.bits // 8)

    @property
    def addresses(self) -> npt.NDArray[np.int64]:
        """The shared byte address of every element (rows, k); for a sub-byte element, the byte of its first bit.

        Post-conditions:
            result == self.bit_addresses // 8
        """
        return self.bit_addresses // 8

    @property
    def bit_addresses(self) -> npt.NDArray[np.int64]:
        """The same in bits: 8 times the byte, plus the bit in it.

        Post-conditions:
            len(np.unique(result)) == self.rows * self.k
            result.min() == 8 * self.start_address and result.max() < 8 * (self.start_address + self.bytes)
        """
        row, k = np.arange(self.rows)[:, None], np.arange(self.k)
        width, chunk = _along(self.format, self.kind, self.arch)[1:]
        first = k // chunk * chunk  # the chunk's first element, at a multiple of 16 bytes
        inside = k % chunk * width if chunk > 1 else 0 * k
        offset = self.layout(row + self.rows * first) * self.bits + inside
        address: npt.NDArray[np.int64] = self.swizzle(self.start_address + offset // 8) * 8 + offset % 8
        return address

    def image(self, codes: Any) -> npt.NDArray[np.uint8]:
        """The bytes (..., bytes) from the start address on that hold codes (..., rows, k); unused bytes are 0.

        Raises OperandError for another shape, FormatError for another dtype.

        Post-conditions:
            result.shape == (*np.shape(codes)[:-2], self.bytes)
            tcsim.descriptors.elements.read_elements(result, self.bit_addresses - 8 * self.start_address, self.format, "image") == codes
        """
        call = "CanonicalTile.image"
        array = as_codes(codes, self.format, call)
        if array.shape[-2:] != (self.rows, self.k):
            raise OperandError(f"{call}: codes have shape {array.shape}; valid: (..., {self.rows}, {self.k})")
        flat = array.reshape(*array.shape[:-2], -1)
        place = (self.bit_addresses - self.start_address * 8).reshape(-1)
        if self.format.bits < 8:  # bit by bit: elements share bytes, and some lie in two
            bits = np.zeros((*array.shape[:-2], self.bytes * 8), np.uint8)
            for bit in range(self.format.bits):
                bits[..., place + bit] = flat >> np.uint8(bit) & np.uint8(1)
            return np.packbits(bits, axis=-1, bitorder="little")
        image = np.zeros((*array.shape[:-2], self.bytes), np.uint8)
        parts = np.ascontiguousarray(flat)[..., None].view(np.uint8)  # little-endian, as shared memory is
        for byte in range(self.bits // 8):
            image[..., place // 8 + byte] = parts[..., byte]
        return image

    def __str__(self) -> str:
        unit = f"{self.format.name} in {self.bits} bits"
        return f"{self.swizzle} of {self.layout} ({self.rows} x {self.k} {unit}, {self.major}-major)"


def place_tile(
    made: type[T],
    rows: int,
    k: int,
    format: str | Format,
    major: Major,
    swizzle: str,
    start_address: int,
    arch: str,
    kind: str,
    step: int,
    order: Order = "",
) -> T:
    """How a tile lies, and the offsets that its descriptors have; `made` is the class to make of it.

    `order`: CuTe's tile_to_shape with Step<_2,_1> is "K", with Step<_1,_2> "MN". The other arguments are those of `MatrixDescriptor.for_tile`. Raises OperandError as that does.
    """
    element = find_format(format)
    name, form = form_of(arch)
    call = f"MatrixDescriptor.for_tile(rows={rows}, k={k}, {element.name}, major={major!r}, swizzle={swizzle!r})"
    for what, size in (("rows", rows), ("k", k), ("start_address", start_address), ("step", step)):
        integer(size, f"{call}: {what}")
    if not is_name(swizzle, form.modes):
        raise OperandError(f"{call}: no such swizzle; valid: {listing(form.modes)}")
    bits = _along(element, kind, name)[0]
    step_bytes = step * bits // 8 if step else STEP_BYTES
    sizes = [size for size in LONG_STEPS if name != "sm_90" and bits in LONG_STEPS[size]] or [STEP_BYTES]
    if step_bytes not in sizes or step * bits % 8:
        raise OperandError(f"{call}: step={step}; valid: {listing(size * 8 // bits for size in sizes)}")
    if step_bytes == 48 and (major != "K" or swizzle not in ("128B", "NONE")):
        raise OperandError(
            f"{call}: steps of 48 bytes run over the ends of rows; valid: major='K' with the swizzle 128B or NONE"
        )
    _check(rows, k, element, major, swizzle, call, name, bits, step_bytes)
    if order not in ("", "K", "MN"):
        raise OperandError(f"{call}: order={order!r}; valid: K, MN: along which atoms lie next to each other")
    if order == "K" and step_bytes == 48:
        raise OperandError(f"{call}: order='K': steps of 48 bytes run on into the next panel; valid: MN")
    pattern = DESCRIPTOR_SWIZZLES[swizzle]
    if start_address % pattern.period:
        raise OperandError(
            f"{call}: start_address={start_address:#x}: the tile must start where the swizzle pattern does; valid: multiples "
            f"of {pattern.period} bytes"
        )
    span = pattern.span
    if major == "K":
        width = min(span * 8 // bits, k)  # elements of k in a panel
        panels = -(-k // width)
        atom, panel = CORE_ROWS * span, rows * span
        along_k, along_mn = (atom, atom * panels) if order == "K" else (panel, atom)
        row_mode, row_stride = (CORE_ROWS, rows // CORE_ROWS), (span * 8 // bits, along_mn * 8 // bits)
        layout = Layout((row_mode, (width, panels)), (row_stride, (1, along_k * 8 // bits)))
        leading, stride = (along_k, along_mn) if span == CORE_BYTES else (0, along_mn)
    else:
        width = min(span * 8 // bits, rows)  # elements of MN in a panel
        panels = rows // width
        group = CORE_ROWS // 2 if swizzle == ATOM_32B else CORE_ROWS  # k of an atom
        atom, panel = group * span, k * span
        along_k, along_mn = (atom * panels, atom) if order == "MN" else (atom, panel)
        k_mode, k_stride = (group, k // group), (span * 8 // bits, along_k * 8 // bits)
        layout = Layout(((width, panels), k_mode), ((1, along_mn * 8 // bits), k_stride))
        leading, stride = (along_k, along_mn) if span == CORE_BYTES else (along_mn, along_k)
    total = panels * panel
    return made(rows, k, element, major, pattern, layout, total, start_address, leading, stride, name, kind, step_bytes)


def _along(format: Format, kind: str, arch: str) -> tuple[int, int, int]:
    """(bits of an element with its share of padding, without it, elements in 16 bytes or 1 if they fill whole bytes)."""
    along = along_k(1, format, kind, arch)
    return CORE_BYTES * 8 // along.chunk, along.bits, along.chunk if along.bits < 8 else 1


def _check(
    rows: int, k: int, format: Format, major: str, swizzle: str, call: str, arch: str, bits: int, step_bytes: int
) -> None:
    if not is_name(major, ("K", "MN")):
        raise OperandError(f"{call}: no such major; valid: K, MN")
    step = step_bytes * 8 // bits
    if rows < CORE_ROWS or rows % CORE_ROWS:
        raise OperandError(f"{call}: rows come in groups of {CORE_ROWS}; valid: multiples of {CORE_ROWS}")
    if k < step or k % step:
        raise OperandError(
            f"{call}: one instruction multiplies {step} {format.name} along K; valid: multiples of {step}"
        )
    why = swizzle_refusal(arch, format, major, [swizzle])
    if why:
        raise OperandError(f"{call}: {why}")
    width = DESCRIPTOR_SWIZZLES[swizzle].span * 8 // bits
    if major == "K" and k > width and k % width:
        raise OperandError(f"{call}: a panel has {width} elements along K; valid: at most {width}, or multiples of it")
    if major == "MN" and rows > width and rows % width:
        raise OperandError(f"{call}: a panel has {width} elements along MN; valid: at most {width}, or multiples of it")
