"""A kernel's machine code with the line of PTX of each instruction, and what ptxas says that it takes: for `tcsim profile --machine`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hwkernels.device.sass import listing_of
from hwkernels.device.toolchain import Toolchain, assemble

_TAKES = re.compile(
    r"Compiling entry function '(?P<kernel>[^']+)'.*?(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True)
class Lined:
    """What ptxas made of a kernel."""

    listing: str  # nvdisasm's, with lines of the PTX
    registers: int  # of a thread
    spilled: int  # bytes that a thread stores and loads for want of registers
    assembler: str


def lined(ptx: str, kernel: str, arch: str, toolchain: Toolchain | None = None) -> Lined:
    """Assemble PTX for an arch with lines, and disassemble it. toolchain: None for the newest.

    Raises what `hwkernels.device.toolchain.assemble` and `hwkernels.device.sass.listing_of` raise; ValueError if it has no such kernel.
    """
    target = re.search(r"^\s*\.target\s+(\w+)", ptx, re.MULTILINE)
    suffix = target[1][-1] if target and target[1][-1] in "af" else ""
    made = assemble(ptx, arch + suffix, toolchain, flags=("-lineinfo",), allow_notes=True)
    found = next((own for own in _TAKES.finditer(made.log) if own["kernel"] == kernel), None)
    if found is None:
        raise ValueError(f"ptxas says nothing of {kernel!r}")
    listing = listing_of(made.cubin, made.toolchain, lines=True)
    return Lined(listing, int(found["registers"]), int(found["stores"]) + int(found["loads"]), str(made.toolchain))
