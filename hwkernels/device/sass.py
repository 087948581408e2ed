"""What machine code a cubin holds: its instructions, how often each occurs, and a hash of the code alone."""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwkernels.device.toolchain import INSTALL_HINT, Toolchain, ToolchainError, find_toolchains

_TYPE = re.compile(r"^\s*\.type\s+(\S+),@function")  # announces a function; its label follows
_SECTION = re.compile(r"^\s*\.section\s+(\.text[^,\s]*)")
_LABEL = re.compile(r"^(\S+):$")
_ADDRESS = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s*(.*)$")
_INSTRUCTION = re.compile(r"^(?:@(!?\w+)\s+)?((?:[A-Z]|__)[\w.]*)\s*(.*?)\s*;$")


class SassError(RuntimeError):
    """A cubin could not be read or disassembled."""


@dataclass(frozen=True)
class SassInstruction:
    """One machine instruction as nvdisasm prints it."""

    address: int  # byte offset in its .text section
    predicate: str  # "P0", "!UPT"; empty when unconditional
    opcode: str  # with modifiers, "HMMA.16816.F32"
    operands: str  # "R12, R4, R8, R12"


@dataclass(frozen=True)
class SassFunction:
    """One kernel or device function and its instructions in address order."""

    name: str
    instructions: tuple[SassInstruction, ...]
    section: str = ""  # ".text.KERNEL": a kernel and the helpers that ptxas put beside it share one


def _disassemblers(toolchain: Toolchain | None) -> list[Path]:
    """The nvdisasm programs to try, newest first."""
    toolchains = find_toolchains() if toolchain is None else (toolchain,)
    programs = list(dict.fromkeys(item.nvdisasm for item in toolchains if item.nvdisasm is not None))
    if not programs:
        found = ", ".join(str(item) for item in toolchains) or "no toolchain at all"
        raise ToolchainError(f"disassembling needs nvdisasm; none was found with {found}; {INSTALL_HINT} brings one")
    return programs


def disassemble(cubin: bytes, toolchain: Toolchain | None = None) -> tuple[SassFunction, ...]:
    """The functions of `cubin`, in file order, through the newest nvdisasm that knows its architecture.

    Raises ToolchainError without an nvdisasm; SassError if none takes the cubin (13.5 refuses sm_70 and sm_72), or if
    its output holds a line this parser does not know. Source: `nvdisasm --print-code`.
    """
    return parse_listing(listing_of(cubin, toolchain))


def listing_of(cubin: bytes, toolchain: Toolchain | None = None, lines: bool = False) -> str:
    """The text that nvdisasm prints, with labels; lines: with those of the PTX, and encodings. Raises as `disassemble` does."""
    refusals = []
    with tempfile.TemporaryDirectory(prefix="hwkernels-") as directory:
        path = Path(directory, "kernel.cubin")
        path.write_bytes(cubin)
        for program in _disassemblers(toolchain):
            command = [
                str(program),
                "--print-code",
                *["--print-line-info-ptx", "--print-instruction-encoding"] * lines,
                path.name,
            ]
            answer = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
            if answer.returncode == 0:
                return answer.stdout
            refusals.append(answer.stderr.strip() or f"{program.name} ended with status {answer.returncode}")
    raise SassError(f"no installed nvdisasm reads this cubin of {len(cubin)} bytes: {'; '.join(refusals)}")


def parse_listing(listing: str) -> tuple[SassFunction, ...]:
    """The functions in the text that `nvdisasm --print-code` prints.

    Raises SassError on an addressed line that is not an instruction and on code outside a function.
    """
    functions: dict[tuple[str, str], list[SassInstruction]] = {}  # by section and name
    announced: set[str] = set()
    current: list[SassInstruction] | None = None
    section = ""
    for line in listing.splitlines():
        if match := _TYPE.match(line):
            announced.add(match[1])
        elif match := _SECTION.match(line):
            section, current = match[1], None
        elif (match := _LABEL.match(line)) and match[1] in announced:
            current = functions.setdefault((section, match[1]), [])
        elif match := _ADDRESS.match(line):
            parts = _INSTRUCTION.match(match[2])
            if parts is None or current is None:
                raise SassError(f"nvdisasm printed a line that is not an instruction of a function: {line.strip()!r}")
            current.append(SassInstruction(int(match[1], 16), parts[1] or "", parts[2], parts[3]))
    return tuple(SassFunction(name, tuple(found), section) for (section, name), found in functions.items())


def opcode_counts(functions: Iterable[SassFunction]) -> Counter[str]:
    """How often each opcode with modifiers occurs, over all `functions`."""
    return Counter(instruction.opcode for function in functions for instruction in function.instructions)


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """The sections of a little-endian ELF64 file as (name, contents). Source: the ELF-64 object file format."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise SassError(f"not a cubin: {len(elf)} bytes that begin with {elf[:6]!r}, not a little-endian ELF64 header")
    try:
        (table,) = struct.unpack_from("<Q", elf, 0x28)  # e_shoff
        size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)  # e_shentsize, e_shnum, e_shstrndx
        # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size
        headers = [struct.unpack_from("<IIQQQQ", elf, table + index * size) for index in range(count)]
        _, _, _, _, names, _ = headers[names_index]
    except (struct.error, IndexError):
        raise SassError(f"not a cubin: the section headers of this ELF file lie beyond its {len(elf)} bytes") from None
    for name, _, _, _, offset, length in headers:
        end = elf.index(b"\0", names + name)
        yield elf[names + name : end].decode(), elf[offset : offset + length]


def kernel_hashes(cubin: bytes) -> dict[str, str]:
    """SHA-256 of the machine code of every kernel by its section, ".text.KERNEL", the file read once.

    The helpers that ptxas put beside a kernel (".text.KERNEL.HELPER") belong to it. Raises SassError as `code_sha256`.
    """
    found: dict[str, Any] = {}
    for name, contents in _sections(cubin):
        if name.startswith(".text."):
            owner = ".".join(name.split(".", 3)[:3])
            found.setdefault(owner, hashlib.sha256()).update(contents)
    return {name: digest.hexdigest() for name, digest in found.items()}


def code_sha256(cubin: bytes, section: str = ".text") -> str:
    """SHA-256 of the contents of the .text sections, in file order: the machine code and nothing else.

    `section` narrows it: ".text.KERNEL" is one kernel of several, with the helpers that ptxas put beside it.
    Debug paths, tool names and the kernel's name do not enter it. Raises SassError if `cubin` is not an ELF64 file or has
    no such code. Source: the section headers.
    """
    digest, found = hashlib.sha256(), False
    for name, contents in _sections(cubin):
        if name == section or name.startswith(f"{section}."):  # ".text.k" is not ".text.k2"
            digest.update(contents)
            found = True
    if not found:
        raise SassError(f"this cubin of {len(cubin)} bytes has no {section} section: it holds no such machine code")
    return digest.hexdigest()
