"""Functions that PTX declares and the driver provides: vprintf, malloc, free, __assertfail."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Protocol

from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.limits import Limits
from tcsim.ptx.machine.memory import Memory

_LONGEST = 1 << 16  # bytes of a format or of a string, without its NUL
_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?(?P<length>hh|h|ll|l|z|j|t|L)?(?P<kind>.)",
    re.DOTALL,
)


class Machine(Protocol):
    """What a function sees of the machine: the memory of the thread that calls it."""

    limits: Limits
    output: list[str]

    @property
    def memory(self) -> Memory:
        """Global memory."""
        ...

    def octets(self, address: int, size: int, thread: int) -> bytes:
        """Bytes at a generic address."""
        ...


def text_at(machine: Machine, address: int, thread: int) -> str:
    """The string at a generic address, without its NUL; bytes that are not UTF-8 as Latin-1."""
    found = bytearray()
    while len(found) < _LONGEST:
        piece = machine.octets(address + len(found), 1, thread)
        if piece == b"\0":
            break
        found += piece
    try:
        return found.decode()
    except UnicodeDecodeError:
        return found.decode("latin-1")


class Arguments:
    """The packed arguments of vprintf: each aligned as its size asks."""

    def __init__(self, machine: Machine, address: int, thread: int) -> None:
        self.machine, self.address, self.thread, self.at, self.count = machine, address, thread, 0, 0

    def take(self, size: int) -> bytes:
        """The bytes of the next one."""
        self.at = -(-self.at // size) * size
        found = self.machine.octets(self.address + self.at, size, self.thread)
        self.at += size
        self.count += 1
        return found

    def integer(self, size: int, signed: bool) -> int:
        """The next one as an integer."""
        return int.from_bytes(self.take(size), "little", signed=signed)


def formatted(machine: Machine, text: str, arguments: Arguments, most: int) -> str:
    """A format with its arguments put in. Raises Stop (LIMIT) for a field wider than `most`."""

    def field(match: re.Match[str]) -> str:
        flags, kind, length = match["flags"], match["kind"], match["length"] or ""
        if kind == "%":
            return "%"
        width = arguments.integer(4, True) if match["width"] == "*" else int(match["width"] or 0)
        given = match["precision"]
        precision = None if given is None else arguments.integer(4, True) if given == "*" else int(given or 0)
        if max(abs(width), precision or 0) > most:
            raise Stop("LIMIT", f"vprintf: a field of {max(abs(width), precision or 0)} characters", limit="output")
        if width < 0:
            flags, width = flags + "-", -width
        spec = f"%{flags}{width or ''}" + ("" if precision is None or precision < 0 else f".{precision}")
        return _converted(machine, arguments, spec, kind, length) if kind in "diuoxXcspfFeEgGaA" else match[0]

    return _CONVERSION.sub(field, text)


def _converted(machine: Machine, arguments: Arguments, spec: str, kind: str, length: str) -> str:
    if kind in "fFeEgG":
        return (spec + kind) % struct.unpack("<d", arguments.take(8))[0]
    if kind in "aA":
        found = re.sub(r"\.?0*p", "p", struct.unpack("<d", arguments.take(8))[0].hex())
        return (re.sub(r"\.\d+$", "", spec) + "s") % (found.upper() if kind == "A" else found)
    if kind == "s":
        address = arguments.integer(8, False)
        return (spec + "s") % (text_at(machine, address, arguments.thread) if address else "(null)")
    if kind == "c":
        return (spec.split(".")[0] + "s") % chr(arguments.integer(4, False) & 0xFF)
    if kind == "p":
        return (spec.split(".")[0] + "s") % hex(arguments.integer(8, False))
    value = arguments.integer(8 if length in ("l", "ll", "z", "j", "t") else 4, kind in "di")
    if length in ("h", "hh"):
        bits = 16 if length == "h" else 8
        value &= (1 << bits) - 1
        value -= (value >> (bits - 1) << bits) if kind in "di" else 0
    if kind == "o" and "#" in spec:
        return (spec.replace("#", "") + "s") % f"0{value:o}"
    return (spec + ("d" if kind in "iu" else kind)) % value


def vprintf(machine: Machine, given: tuple[int, ...], thread: int) -> int:
    """Write; the number of arguments, or -1 without a format."""
    address, packed = given
    if not address:
        return -1
    arguments = Arguments(machine, packed, thread)
    written = formatted(machine, text_at(machine, address, thread), arguments, machine.limits.output)
    machine.output.append(written)
    return arguments.count


def malloc(machine: Machine, given: tuple[int, ...], thread: int) -> int:
    """Memory of the heap, 16-byte aligned or better; 0 if the heap does not have as much."""
    (size,) = given
    used = sum(machine.memory.heap.values())
    if size == 0 or used + size > machine.limits.heap:
        return 0
    address = machine.memory.allocate(int(size))
    machine.memory.heap[address] = int(size)
    return address


def free(machine: Machine, given: tuple[int, ...], thread: int) -> int:
    """Give memory back; what malloc did not give is INVALID_OPERAND."""
    (address,) = given
    if address and machine.memory.heap.pop(address, None) is None:
        raise Stop("INVALID_OPERAND", f"free of {address:#x}, which malloc did not give or was freed", thread)
    if address:
        machine.memory.release(address)
    return 0


def assertfail(machine: Machine, given: tuple[int, ...], thread: int) -> int:
    """A device-side assert that did not hold."""
    message, file, line, function, _ = given
    words: dict[str, Any] = {
        name: text_at(machine, address, thread) if address else ""
        for name, address in (("assertion", message), ("file", file), ("function", function))
    }
    said = f"{words['file']}:{line}: {words['function']}: assertion `{words['assertion']}` failed"
    raise Stop("ASSERT", said, thread, **words, file_line=line)


Native = Callable[[Any, tuple[int, ...], int], int]
NATIVE: MappingProxyType[str, Native] = MappingProxyType(
    {"vprintf": vprintf, "malloc": malloc, "free": free, "__assertfail": assertfail}
)
"""By name; their arguments and results are those of `tcsim.ptx.compile.calls.PROVIDED`."""
