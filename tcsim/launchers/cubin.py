"""What a cubin says of a kernel's resources: a reader of its ELF sections, as far as that takes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SIZED, _REGISTERS, _FRAME = 4, 0x2F, 0x11
"""Of .nv.info: an entry whose payload follows, and the attributes EIATTR_REGCOUNT and EIATTR_FRAME_SIZE (nvdisasm's names)."""


def sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """The sections of a 64-bit ELF file: names and contents. Nothing of bytes that are not one."""
    if cubin[:5] != b"\x7fELF\x02":
        return
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", cubin, table + size * number) for number in range(count)]
    for name, _, _, _, offset, length in heads:
        start = heads[names][4] + name
        yield cubin[start : cubin.index(b"\0", start)].decode(), cubin[offset : offset + length]


def resources(cubin: bytes) -> tuple[int, int]:
    """The registers of a thread, and the bytes of its stack frame: of the function of the cubin that takes most.

    >>> resources(b"not a cubin")
    (0, 0)
    """
    most = {_REGISTERS: 0, _FRAME: 0}
    for name, data in sections(cubin):
        at = 0
        while name == ".nv.info" and at + 4 <= len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            if form == _SIZED and attribute in most:
                most[attribute] = max(most[attribute], struct.unpack_from("<I", data, at + 8)[0])
            at += 4 + (size if form == _SIZED else 0)
    return most[_REGISTERS], most[_FRAME]
