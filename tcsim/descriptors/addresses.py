"""Which bits of shared memory a matrix descriptor reads an element from, on sm_90 and sm_100.

Sources: sm_90 measured on an NVIDIA H200: random descriptors of every swizzle, both majors and every base_offset, and with
rows longer than the span of the swizzle, whose further spans lie an LBO apart each. sm_100 from the PTX ISA, sections Canonical
Layouts and Leading Dimension Stride of tcgen05, and CUTLASS's make_umma_desc; long rows inferred from sm_90. Not measured there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import integer, is_name
from tcsim.core.errors import OperandError, listing
from tcsim.core.targets import accepting
from tcsim.descriptors.forms import CORE_BYTES, CORE_ROWS, Form, Major, form_of
from tcsim.layouts.swizzle import ATOM_32B, DESCRIPTOR_SWIZZLES
from tcsim.numbers.formats import Format

Ints = npt.NDArray[np.int64]

PADDED_KINDS = ("f8f6f4", "mxf8f6f4")
"""The kinds that take 16 elements of fewer than 8 bits from the first bytes of each 16 (PTX ISA, Packing formats)."""
PACKED_KINDS = ("mxf4", "mxf4nvf4")
ADDRESS_MODE_ARCHS = ("sm_103", "sm_107")
"""The archs with K = 96, whose 48 bytes of a row are why an LBO can be an address."""
CHUNK = 16
"""Elements of a padded 4-bit or 6-bit format that share 16 bytes."""


_MOST = 1 << 21  # elements: the bits of the 2**18 bytes that a descriptor's address reaches


def element_addresses(
    descriptors: npt.NDArray[np.uint64],
    rows: int,
    k: int,
    format: Format,
    major: Major,
    arch: str = "sm_90",
    kind: str = "",
) -> Ints:
    """Byte addresses (..., rows, k) that descriptors (...) read; swizzled, not yet wrapped or bounds-checked.

    Raises as `MatrixDescriptor.addresses` does.

    Post-conditions:
        result.shape == (*descriptors.shape, rows, k)
        result == element_bit_addresses(descriptors, rows, k, format, major, arch, kind) // 8
    """
    return element_bit_addresses(descriptors, rows, k, format, major, arch, kind) // 8


def element_bit_addresses(
    descriptors: npt.NDArray[np.uint64],
    rows: int,
    k: int,
    format: Format,
    major: Major,
    arch: str = "sm_90",
    kind: str = "",
) -> Ints:
    """The same in bits, which distinguishes the elements of a byte.

    Raises as `MatrixDescriptor.addresses` does.

    Post-conditions:
        result.shape == (*descriptors.shape, rows, k)
        format.bits < 8 or result % 8 == 0
        major == "MN" or result % 128 == result[..., :1, :] % 128
    """
    name, form = form_of(arch)
    for what, size in (("rows", rows), ("k", k)):
        if integer(size, what) < 1:
            raise OperandError(f"{what}={size}; valid: at least 1")
    if rows * k > _MOST:
        raise OperandError(f"rows={rows}, k={k}; valid: at most {_MOST} elements")
    if not is_name(major, ("K", "MN")):
        raise OperandError(f"major={major!r}: valid are K, MN")
    value = np.asarray(descriptors, np.uint64)[..., None, None]
    mode = form.field("swizzle").take_array(value)
    names = {code: word for word, code in form.modes.items()}
    codes = [int(code) for code in np.unique(mode)]
    used = [names.get(code, "") for code in codes]
    if "" in used:
        raise OperandError(f"descriptor with a swizzle mode that does not exist on {arch}; valid: {dict(form.modes)}")
    along = along_k(k, format, kind, name)
    why = swizzle_refusal(name, format, major, used)
    if why:
        raise OperandError(why)
    if name != "sm_90":
        _check_modes(value, form, used, major)
    place = np.searchsorted(codes, mode)
    patterns = [DESCRIPTOR_SWIZZLES[word] for word in used]
    span = np.array([pattern.span for pattern in patterns], int)[place]
    start, leading, stride = (
        form.field(word).take_array(value) for word in ("start_address", "leading_byte_offset", "stride_byte_offset")
    )
    r = np.arange(rows)[:, None]
    if major == "K":
        byte = along.byte[None, :]
        row = r % CORE_ROWS * span + r // CORE_ROWS * stride
        plain = row + byte // CORE_BYTES * leading + byte % CORE_BYTES
        address = start + np.where(mode == 0, plain, row + byte % span + byte // span * leading)
        if name != "sm_90":
            far = form.field("leading_mode").take_array(value) == 1
            over = start % span + byte - span  # bytes past the end of the swizzled row
            address = np.where(far & (over >= 0), leading + row + over, address)
        bit: Any = along.bit[None, :]
    else:
        size = along.bits // 8
        column = np.arange(k)[None, :]
        per_chunk = CORE_BYTES // size
        chunk, inside = r // per_chunk, r % per_chunk * size
        plain = inside + chunk * stride + column % CORE_ROWS * CORE_BYTES + column // CORE_ROWS * leading
        per_span = span // CORE_BYTES
        group = np.array([4 if word == ATOM_32B else CORE_ROWS for word in used], int)[place]  # k of an atom
        swizzled = (
            inside + chunk % per_span * CORE_BYTES + chunk // per_span * leading
            + column % group * span + column // group * stride
        )  # fmt: skip
        address = start + np.where(mode == 0, plain, swizzled)
        bit = 0
    base_offset = form.field("base_offset").take_array(value)
    swept: Ints = address
    for which, pattern in enumerate(patterns):
        swept = np.where(place == which, pattern(address, base_offset), swept)
    return swept * 8 + bit


@dataclass(frozen=True)
class Along:
    """Where the elements of a row lie along K."""

    bits: int  # that an element takes, without padding
    chunk: int  # elements in 16 bytes
    offset: Ints  # bits from the beginning of the row to each element

    @property
    def byte(self) -> Ints:
        """The byte of each element's first bit."""
        return self.offset // 8

    @property
    def bit(self) -> Ints:
        """That bit's place in its byte."""
        return self.offset % 8


def _dense(k: int, bits: int) -> Along:
    return Along(bits, CORE_BYTES * 8 // bits, np.arange(k) * bits)


def along_k(k: int, format: Format, kind: str, arch: str) -> Along:
    """The places of k elements of a row.

    Raises OperandError for a format whose packing depends on the kind, without the kind.

    Post-conditions:
        len(result.offset) == k and result.offset[0] == 0
        result.bits <= np.diff(result.offset)
        result.offset[:: result.chunk] == CORE_BYTES * 8 * np.arange(-(-k // result.chunk))
    """
    if format.bits >= 8:
        return _dense(k, format.container_bits)
    if arch == "sm_90" or format.kind != "float" or (kind in PACKED_KINDS and format.bits == 4):
        return _dense(k, format.bits)
    if kind in PADDED_KINDS or (not kind and format.bits == 6):
        column = np.arange(k)
        return Along(format.bits, CHUNK, column // CHUNK * CORE_BYTES * 8 + column % CHUNK * format.bits)
    raise OperandError(
        f"{format.name} with kind={kind!r}: kind::f8f6f4 and kind::mxf8f6f4 pad 16 elements to 16 bytes, kind::mxf4 and "
        "kind::mxf4nvf4 pack e2m1: which kind?"
    )


def swizzle_refusal(arch: str, format: Format, major: str, swizzles: list[str]) -> str:
    """Why an element of a major cannot lie in shared memory with these swizzles; "" if it can.

    Source: PTX ISA, Valid Combinations of Type-Size, Major-ness and Swizzling; sm_90: the instructions' own operands.
    """
    bits = format.container_bits if format.bits >= 8 else format.bits
    if arch == "sm_90":
        only = major == "MN" and bits != 16
        return f"MN-major {format.name}: only 16-bit elements can be MN-major in shared memory on sm_90" if only else ""
    if major == "K":
        return f"K-major {format.name}: the swizzle {ATOM_32B} has MN-major tiles only" if ATOM_32B in swizzles else ""
    if bits < 8:
        return f"MN-major {format.name}: only 8-bit, 16-bit and 32-bit elements can be MN-major on sm_100"
    if bits == 32 and swizzles != [ATOM_32B]:
        return f"MN-major {format.name}: 32-bit elements need the swizzle {ATOM_32B}; asked: {', '.join(swizzles)}"
    if bits < 32 and ATOM_32B in swizzles:
        return f"MN-major {format.name}: the swizzle {ATOM_32B} is for 32-bit elements"
    return ""


def check_descriptors(descriptors: npt.NDArray[np.uint64], arch: str, what: str, halves: bool = False) -> None:
    """Raise OperandError for matrix descriptors that the instructions of an arch cannot take.

    It refuses bits outside the fields, constant bits that are not set, an LBO that is an address where only an offset is known,
    and the upper half of lookup indices unless `halves`.
    Source: PTX ISA, Shared memory descriptor and its Target ISA Note (address mode: sm_103a), as for K = 96, which needs it.
    """
    _, form = form_of(arch)
    value = np.asarray(descriptors, np.uint64)
    unknown = value & np.uint64(~form.known & (1 << 64) - 1)
    if unknown.any():
        first = int(value[unknown != 0].flat[0])
        raise OperandError(f"{what}: descriptor {first:#x}: bits {first & ~form.known:#x} belong to no field; valid: 0")
    for field, number in form.fixed:
        wrong = field.take_array(value) != number
        if wrong.any():
            first = int(value[wrong].flat[0])
            raise OperandError(
                f"{what}: descriptor {first:#x}: {field.name} (bits {field.place}) is {field.take(first)}; valid: {number}"
            )
    modes = [field for field in form.fields if field.name == "leading_mode"]
    if (
        modes
        and not set(accepting(arch)[0].lineage) & set(ADDRESS_MODE_ARCHS)
        and (modes[0].take_array(value) != 0).any()
    ):
        raise OperandError(f"{what}: leading_mode=1 (LBO is an address) needs {listing(ADDRESS_MODE_ARCHS)}; valid: 0")
    if not halves and any((field.take_array(value) != 0).any() for field in form.fields if field.name == "k_half"):
        raise OperandError(
            f"{what}: k_half=1 (the upper half of lookup indices) is for B of .decompress::lut::b; valid: 0"
        )


def _check_modes(value: Any, form: Form, used: list[str], major: Major) -> None:
    """Raise OperandError for numbers in fields of sm_100 whose meaning is limited or not published."""
    swizzled = form.field("swizzle").take_array(value) != 0
    base = form.field("base_offset").take_array(value)
    if (swizzled & (base != 0)).any():
        raise OperandError(
            f"base_offset={int(base.max())}: which bytes sm_100 reads from a tile off the pattern's period is not published; "
            "valid: 0"
        )
    absolute = form.field("leading_mode").take_array(value) == 1
    if absolute.any() and (major == "MN" or set(used) != {"128B"}):
        raise OperandError("leading_mode=1 (LBO is an address) is for K-major tiles with the 128B swizzle only")
