"""Runs the straight-line machine code that ptxas makes of one tensormap.replace, on 128 bytes: enough opcodes for that."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from hwkernels.device.sass import SassInstruction

WORD = (1 << 32) - 1


class Machine:
    """Registers, the constant bank with the kernel's parameters, and shared memory."""

    def __init__(self, parameters: dict[int, int], memory: bytes) -> None:
        self.registers: dict[str, int] = {"RZ": 0, "URZ": 0}
        self.parameters = parameters  # 32-bit words by byte offset
        self.memory = bytearray(memory)

    def run(self, code: Iterable[SassInstruction]) -> bytes:
        """Memory after the code. Raises NotImplementedError for an opcode that is not here."""
        for item in code:
            if item.opcode == "EXIT":
                return bytes(self.memory)
            assert not item.predicate, item
            self._step(item.opcode, [part.strip() for part in re.split(r",\s*(?![^\[]*\])", item.operands)])
        raise AssertionError("no EXIT")

    def _get(self, text: str) -> int:
        text = text.removesuffix(".reuse")
        if match := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", text):
            return self.parameters[int(match[1], 16)]
        if re.fullmatch(r"-?0x[0-9a-f]+", text):
            return int(text, 16) & WORD
        return self.registers[text]

    def _address(self, text: str) -> int:
        match = re.fullmatch(r"\[(\w+)(?:\+(0x[0-9a-f]+))?\]", text)
        assert match, text
        return self.registers[match[1]] + int(match[2] or "0", 16)

    def _step(self, opcode: str, a: list[str]) -> None:
        if opcode == "NOP" or (opcode in ("LDC", "MOV", "LDCU", "ULDC") and a[0] == "R1"):  # the stack pointer
            return
        if opcode in ("ULDC", "LDC", "LDCU", "MOV", "UMOV"):
            self.registers[a[0]] = self._get(a[1])
        elif opcode in ("LDC.64", "LDCU.64", "ULDC.64"):
            offset = int(re.findall(r"0x[0-9a-f]+", a[1])[1], 16)
            self.registers[a[0]] = self.parameters[offset]
            self.registers[_next(a[0])] = self.parameters[offset + 4]
        elif opcode == "LDS":
            where = self._address(a[1])
            self.registers[a[0]] = int.from_bytes(self.memory[where : where + 4], "little")
        elif opcode == "STS":
            self._put(self._address(a[0]), self._get(a[1]))
        elif opcode == "STS.64":
            self._put(self._address(a[0]), self._get(a[1]))
            self._put(self._address(a[0]) + 4, self._get(_next(a[1])))
        else:
            self.registers[a[0]] = self._value(opcode, a) & WORD

    def _value(self, opcode: str, a: list[str]) -> int:
        if opcode == "LOP3.LUT":
            return _lop3(*(self._get(text) for text in a[1:4]), int(a[4], 16))
        if opcode in ("IADD3", "VIADD"):
            return sum(self._get(text) for text in a[1:] if text not in ("PT", "!PT"))
        if opcode == "SHF.L.U32":
            return self._get(a[1]) << self._get(a[2])
        if opcode == "SHF.R.U32.HI":
            return self._get(a[3]) >> self._get(a[2])
        if opcode == "SHF.R.U64":
            return (self._get(a[3]) << 32 | self._get(a[1])) >> self._get(a[2])
        if opcode in ("IMAD.U32", "IMAD.SHL.U32", "IMAD.MOV.U32"):
            return self._get(a[1]) * self._get(a[2]) + self._get(a[3])
        if opcode in ("HFMA2.MMA", "HFMA2") and a[1:3] == ["-RZ", "RZ"]:  # a constant of two halves
            high, low = (int(np.float16(float(text)).view(np.uint16)) for text in a[3:5])
            return high << 16 | low
        raise NotImplementedError(f"{opcode} {', '.join(a)}")

    def _put(self, where: int, value: int) -> None:
        self.memory[where : where + 4] = value.to_bytes(4, "little")


def _next(register: str) -> str:
    letters, number = re.fullmatch(r"([A-Z]+)(\d+)", register).groups()  # type: ignore[union-attr]
    return f"{letters}{int(number) + 1}"


def _lop3(x: int, y: int, z: int, table: int) -> int:
    """Bit by bit, the bit of the table that three bits number."""
    out = 0
    for entry in range(8):
        if table >> entry & 1:
            out |= (x if entry & 4 else ~x) & (y if entry & 2 else ~y) & (z if entry & 1 else ~z)
    return out & WORD
