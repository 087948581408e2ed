"""A launch with the addresses of its buffers known: the bytes of parameters and of memory, and the block's size."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from tests.kernels.corpora.case import Array, Dim3, Launch, Map, Pointer, Struct
from tests.kernels.corpora.pack import Compiled

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_REQUIRED = re.compile(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def entry_of(compiled: Compiled, entry: str) -> str:
    """The kernel's name; the only one if none is given. Raises ValueError unless there is exactly one."""
    names = _ENTRY.findall(compiled.ptx)
    if not entry and len(names) != 1:
        raise ValueError(f"{len(names)} entries: {names}")
    return entry or str(names[0])


def block_of(compiled: Compiled, launch: Launch) -> Dim3:
    """The threads of a block: as the launch says, or as the PTX requires. Raises ValueError if neither does."""
    if launch.block:
        return launch.block
    found = _REQUIRED.search(compiled.ptx)
    if not found:
        raise ValueError("neither the case nor .reqntid says how large a block is")
    x, y, z = (int(size or 1) for size in found.groups())
    return x, y, z


def shared_of(compiled: Compiled, launch: Launch) -> int:
    """Dynamic shared bytes."""
    return compiled.shared_bytes if launch.shared_bytes is None else launch.shared_bytes


def images(launch: Launch, addresses: Mapping[str, int]) -> dict[str, Array]:
    """The bytes of each buffer before the launch."""
    found = {
        name: np.ascontiguousarray(array).view(np.uint8).reshape(-1).copy() for name, array in launch.buffers.items()
    }
    for (name, byte), pointer in launch.pointers.items():
        value = addresses[pointer.buffer] + pointer.offset
        found[name][byte : byte + 8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)
    return found


def parameters(launch: Launch, addresses: Mapping[str, int]) -> list[bytes]:
    """The bytes of each parameter."""
    made = []
    for item in launch.params:
        if isinstance(item, Pointer):
            made.append((addresses[item.buffer] + item.offset).to_bytes(8, "little"))
        elif isinstance(item, (Map, Struct)):
            made.append(item.encode(addresses))
        else:
            made.append(bytes(item) if isinstance(item, bytes) else item.tobytes())
    return made
