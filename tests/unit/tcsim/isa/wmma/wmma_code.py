"""The addresses that ptxas's code for wmma.load and wmma.store computes: its straight-line integer code run for all lanes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from hwkernels.device.sass import SassInstruction, disassemble
from hwkernels.device.toolchain import assemble
from hwkernels.probes.mma import declaration, transfer
from tcsim.core.targets import TARGETS
from tcsim.core.versions import latest
from tcsim.isa.wmma.fragments import TileRow

Lanes = np.ndarray  # uint64 (32,), the low 32 bits used
LANES = 32
WORD = np.uint64(0xFFFF_FFFF)
TILE, FRAGMENT = 0x10000, 0x7_4000_0000  # where the tile and the registers' copies lie
FAR = 1024  # a stride of which every line and place can be told apart
_CARRY = re.compile(r"!?U?P[0-9T]")
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@dataclass(frozen=True)
class Found:
    """What the code of one row does."""

    size: int  # bytes of an access; of LDSM, of a lane's row
    offsets: dict[int, dict[int, int]]  # what is added to the tile's own stride -> line -> bytes from the tile's start


def line_offsets(rows: Sequence[TileRow], target: str, extra: Iterable[int]) -> Iterator[tuple[TileRow, Found]]:
    """For every row the offset of each line with the default stride plus each of `extra`.

    Raises NotImplementedError for an opcode that is not here, AssertionError if an offset depends on more than the line.
    """
    functions = {one.name: one.instructions for one in disassemble(assemble(_module(rows, target), target).cubin)}
    base = 0x380 if TARGETS[target].number >= 100 else 0x210 if TARGETS[target].number >= 90 else 0x160
    for number, row in enumerate(rows):
        code, (operand,) = functions[f"k{number}"], row.operands.values()
        bits, place = operand.layout.element_bits, operand.shape[1 if row.row_major[operand.name] else 0]
        far = _accesses(code, row, base, FAR)
        sizes = {_size(opcode) for opcode, _ in far}
        assert len(sizes) == 1, row.mnemonic
        offsets = {}
        for more in extra:
            found: dict[int, int] = {}
            for (_, one), (_, other) in zip(far, _accesses(code, row, base, place + more), strict=True):
                lines, inside = np.divmod(one, FAR * bits // 8)
                for line, offset in zip(lines.tolist(), (other - inside).tolist(), strict=True):
                    assert found.setdefault(line, offset) == offset, (row.mnemonic, more)
            offsets[more] = found
        yield row, Found(sizes.pop(), offsets)


def _module(rows: Sequence[TileRow], target: str) -> str:
    """One entry for each row: parameters tile, fragment, stride."""
    version = latest(TARGETS[target].ptx_version, *(row.ptx_version for row in rows))
    out = [f".version {version}\n.target {target}\n.address_size 64"]
    for number, row in enumerate(rows):
        (operand,), form = row.operands.values(), row.forms[0]
        statement = form.statement(row.mnemonic, {"address": "%place"})
        stores = row.family == "wmma.store"
        body = [
            ".reg .u32 %thread, %stride;", ".reg .u64 %place, %address;", f".reg .u64 %base_{operand.name};",
            declaration(operand), "mov.u32 %thread, %tid.x;",
            f"ld.param.u64 %base_{operand.name}, [fragment];",
            f"cvta.to.global.u64 %base_{operand.name}, %base_{operand.name};",
            "ld.param.u64 %place, [tile];", "ld.param.u32 %stride, [stride];",
            *([*transfer(operand, "ld"), statement] if stores else [statement, *transfer(operand, "st")]), "ret;",
        ]  # fmt: skip
        out.append(f".visible .entry k{number}(.param .u64 tile, .param .u64 fragment, .param .u32 stride)\n{{")
        out.extend([*body, "}"])
    return "\n".join(out)


def _size(opcode: str) -> int:
    if opcode.startswith("LDSM"):
        return 16
    return next((_BYTES[part] for part in opcode.split(".") if part in _BYTES), 4)


def _accesses(code: Sequence[SassInstruction], row: TileRow, base: int, stride: int) -> list[tuple[str, np.ndarray]]:
    """The tile's accesses: opcode, and each lane's bytes from the tile's start."""
    kinds = ("STG", "STS", "ST") if row.family == "wmma.store" else ("LDG", "LDS", "LDSM", "LD")
    words = (TILE, 0, FRAGMENT & 0xFFFF_FFFF, FRAGMENT >> 32, stride)
    machine = Machine({base + 4 * place: word for place, word in enumerate(words)})
    machine.run(code)
    out = []
    for opcode, address in machine.accesses:
        if opcode.split(".")[0] in kinds and (address < np.uint64(FRAGMENT)).all():
            lanes = {"4": 32, "2": 16}.get(opcode[-1], 8) if opcode.startswith("LDSM") else LANES
            lanes = 8 if opcode.endswith("88") else lanes
            out.append((opcode, address.astype(np.int64)[:lanes] - TILE))
    return out


class Machine:
    """Integer registers of a warp, the constant bank with the parameters, and a list of what memory was asked."""

    def __init__(self, parameters: dict[int, int]) -> None:
        self.registers: dict[str, Lanes] = {}
        self.carries: dict[str, Lanes] = {}
        self.parameters = parameters
        self.accesses: list[tuple[str, Lanes]] = []

    def run(self, code: Iterable[SassInstruction]) -> None:
        """Up to EXIT."""
        for item in code:
            if item.opcode == "EXIT":
                return
            assert not item.predicate, item
            self._step(item.opcode, [part.strip() for part in re.split(r",\s*(?![^\[]*\])", item.operands)])
        raise AssertionError("no EXIT")

    # registers: 32 bits of each lane, or 64 in two of them

    def _get(self, text: str) -> Lanes:
        text = text.removesuffix(".reuse").removesuffix(".64")
        if text in ("RZ", "URZ", "PT", "!PT", "UPT", "!UPT"):
            return _all(text in ("PT", "UPT"))
        if match := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", text):
            return _all(self.parameters.get(int(match[1], 16), 0))
        if re.fullmatch(r"-?0x[0-9a-f]+", text):
            return _all(int(text, 16) & 0xFFFF_FFFF)
        if text[0] in "-~":
            return (~self._get(text[1:]) + np.uint64(text[0] == "-")) & WORD
        return self.carries[text] if _CARRY.fullmatch(text) else self.registers[text]

    def _get64(self, text: str) -> Lanes:
        text = text.removesuffix(".reuse").removesuffix(".64")
        if match := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", text):
            return self._get(text) | self._get(f"c[0x0][{int(match[1], 16) + 4:#x}]") << np.uint64(32)
        if "Z" in text or text.startswith("0x"):
            return self._get(text)
        return self._get(text) | self._get(_next(text)) << np.uint64(32)

    def _put(self, name: str, value: Lanes, wide: bool = False) -> None:
        self.registers[name] = value & WORD
        if wide:
            self.registers[_next(name)] = value >> np.uint64(32)

    def _address(self, text: str) -> Lanes:
        inside = re.search(r"\[([^\]]*)\]$", text)
        assert inside, text
        total = _all(0)
        for part in re.findall(r"[+-]?[^+-]+", inside[1]):
            name = part.lstrip("+-")
            value = self._get64(name) if name.endswith(".64") else self._get(name)
            total = total - value if part.startswith("-") else total + value
        return total

    # instructions

    def _step(self, opcode: str, a: list[str]) -> None:
        kind = opcode.split(".")[0]
        if kind in ("NOP", "BAR", "WARPSYNC") or (kind == "LDC" and a[0] == "R1"):
            return
        if kind in ("LDG", "LDS", "LDSM", "LD", "STG", "STS", "ST"):
            loads = kind.startswith("LD")
            self.accesses.append((opcode, self._address(a[1 if loads else 0])))
            for _ in range(4 if loads else 0):  # what is loaded never becomes an address
                self.registers.setdefault(a[0], _all(0))
                a[0] = _next(a[0])
        elif kind in ("S2R", "S2UR", "CS2R"):
            self._put(a[0], np.arange(LANES, dtype=np.uint64) if a[1] in ("SR_LANEID", "SR_TID.X") else _all(0))
        elif kind in ("MOVM", "PRMT", "F2FP", "F2F"):
            self._put(a[0], _all(0))
        elif opcode.endswith(".128"):  # four words of the constant bank
            place, name = int(re.findall(r"0x[0-9a-f]+", a[1])[1], 16), a[0]
            for word in range(4):
                self._put(name, self._get(f"c[0x0][{place + 4 * word:#x}]"))
                name = _next(name)
        elif kind in ("LDC", "ULDC", "LDCU", "MOV", "UMOV", "R2UR"):
            wide = opcode.endswith(".64")
            self._put(a[0], self._get64(a[1]) if wide else self._get(a[1]), wide)
        elif kind in ("HFMA2",):  # a constant of two halves
            high, low = (int(np.float16(float(text)).view(np.uint16)) for text in a[3:5])
            self._put(a[0], _all(high << 16 | low))
        else:
            self._compute(opcode, a)

    def _compute(self, opcode: str, a: list[str]) -> None:
        numbers = [text for text in a if not _CARRY.fullmatch(text)]
        carries = [text for text in a if _CARRY.fullmatch(text)]
        name = opcode.removeprefix("U")
        if name.startswith("LOP3"):
            x, y, z = (self._get(text) for text in numbers[1:4])
            self._put(numbers[0], _lop3(x, y, z, int(numbers[4], 16)))
        elif name.startswith("SHF.R.U32"):
            self._put(a[0], self._get(a[3]) >> self._get(a[2]))
        elif name.startswith("SHF.L.U32"):
            self._put(a[0], self._get(a[1]) << self._get(a[2]))
        elif name.startswith("SHF.L.U64.HI"):
            self._put(a[0], (self._get(a[1]) | self._get(a[3]) << np.uint64(32)) << self._get(a[2]) >> np.uint64(32))
        elif name.startswith("IMAD.WIDE"):
            self._put(a[0], self._get(numbers[1]) * self._get(numbers[2]) + self._get64(numbers[3]), wide=True)
        elif name == "IMAD.HI.U32":
            self._put(a[0], self._get(a[1]) * self._get(a[2]) + self._get64(a[3]) >> np.uint64(32))
        elif name in ("IADD.64", "IADD3.64"):
            self._put(a[0], sum((self._get64(text) for text in numbers[1:]), _all(0)), wide=True)
        elif name.startswith("IMAD"):
            value = self._get(numbers[1]) * self._get(numbers[2]) + self._get(numbers[3])
            self._put(a[0], value + self._carry(carries) if ".X" in name else value)
        elif name in ("LEA", "LEA.HI", "LEA.HI.X"):
            self._lea(name, numbers, carries)
        elif name.startswith(("IADD3", "VIADD", "IADD")):
            outs = list(takewhile(_CARRY.fullmatch, a[1:]))
            value = sum((self._get(text) for text in numbers[1:]), _all(0))
            self._sum(numbers[0], value + self._carry(carries[len(outs) :]) if ".X" in name else value, outs)
        else:
            raise NotImplementedError(f"{opcode} {', '.join(a)}")

    def _lea(self, name: str, a: list[str], carries: list[str]) -> None:
        shift = np.uint64(int(a[-1], 16))
        if name == "LEA":
            self._sum(a[0], (self._get(a[1]) << shift & WORD) + self._get(a[2]), carries[:1])
            return
        high = (self._get(a[1]) | self._get(a[3]) << np.uint64(32)) << shift >> np.uint64(32)
        value = (high & WORD) + self._get(a[2])
        self._put(a[0], value + self._get(carries[-1]) if name.endswith("X") else value)

    def _carry(self, names: Sequence[str]) -> Lanes:
        return sum((_all(0) if "!" in text else self._get(text) for text in names), _all(0))

    def _sum(self, name: str, value: Lanes, outs: Sequence[str]) -> None:
        """A sum whose carry, 0 to 2, goes to one predicate or is split over two."""
        carry = value >> np.uint64(32)
        for number, out in enumerate(outs):
            self.carries[out] = (carry > number).astype(np.uint64)
        self._put(name, value)


def _all(value: int | bool) -> Lanes:
    return np.full(LANES, int(value), np.uint64)


def _next(register: str) -> str:
    if register in ("RZ", "URZ"):
        return register
    letters, number = re.fullmatch(r"([A-Z]+)(\d+)", register).groups()  # type: ignore[union-attr]
    return f"{letters}{int(number) + 1}"


def _lop3(x: Lanes, y: Lanes, z: Lanes, table: int) -> Lanes:
    """Bit by bit, the bit of the table that three bits number."""
    out, ones = _all(0), WORD
    choose: Callable[[Lanes, int], Lanes] = lambda value, bit: value if bit else value ^ ones  # noqa: E731
    for entry in range(8):
        if table >> entry & 1:
            out |= choose(x, entry & 4) & choose(y, entry & 2) & choose(z, entry & 1)
    return out
