"""The memory accesses that wmma.load and wmma.store become: opcodes, the alignment they need, what they make of a stride.

Source: the machine code of every spelling by ptxas 12.9 and 13.5 (nvdisasm), its addresses computed for every lane and for
strides of every remainder; no nvdisasm at hand reads sm_70 and sm_72, so there the strides are inferred. An H200 agrees
where it was asked (docs/fragments.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.targets import Arch
from tcsim.isa.wmma.fragments import TileRow, operands_on
from tcsim.layouts.layout import FragmentLayout
from tcsim.model.operand import Space

LDSM_BYTES = 16
"""What a lane of LDSM, which loads 8 x 8 matrices from shared memory, points at; its addresses are multiples of that."""

_WIDTHS = {8: ".U8", 16: ".U16", 32: "", 64: ".64", 128: ".128"}
_FIRST_MOVM = 75  # arch number from which LDSM and MOVM move 8 x 8 matrices of 16-bit elements
_FIRST_LDSM_BY_4 = 80  # arch number from which wmma.load of 16-bit elements uses LDSM of four matrices
_FIRST_PLAIN = 80  # arch number from which opcodes are spelled without .U and .SYS
_FIRST_READ = 75  # arch number from which the addresses were read off the machine code
_BLOCK_LINES = 8  # lines of the blocks that a fragment is made of
_WORD_BITS = 32


@dataclass(frozen=True)
class Accesses:
    """What one wmma.load or wmma.store does with memory on an arch. A *line* of the tile is a row or a column, contiguous."""

    opcodes: tuple[tuple[str, int], ...]  # of one lane, how often each, transpositions included
    size: int  # bytes of one access (of LDSM: of one lane's row): every line starts at a multiple of it
    element_bits: int
    stride_unit: int  # elements: the address arithmetic drops what a stride has beyond a multiple of it
    block: int  # lines after which the whole stride counts again; 0: never

    @property
    def by_ldsm(self) -> bool:
        """Whether LDSM, from shared memory, loads it."""
        return any(opcode.startswith("LDSM") for opcode, _ in self.opcodes)

    def offsets(self, stride: npt.NDArray[np.int64], lines: int) -> npt.NDArray[np.int64]:
        """Bytes from the first line to every line, as the machine code computes them: (...) -> (..., lines).

        Post-conditions:
            offsets(s, n)[i] = i * s * element_bits / 8, where s is a multiple of stride_unit

        Where it is not, within a block i counts multiples of `stride_unit` only, and from block to block the whole
        stride: with element size e = element_bits / 8, unit u and block b,
            offsets(s, n)[i] = (i mod b) * (s div u) * u * e + (i div b) * b * s * e
        """
        line = np.arange(lines)
        within, blocks = (line % self.block, line // self.block) if self.block else (line, np.zeros_like(line))
        kept = stride[..., None] // self.stride_unit * self.stride_unit
        return (within * kept + blocks * self.block * stride[..., None]) * self.element_bits // 8


def accesses(row: TileRow, arch: Arch) -> Accesses:
    """The accesses of a row of wmma.load or wmma.store on an arch."""
    (operand,) = operands_on(row, arch).values()
    layout, space, stores = operand.layout, row.forms[0]["address"].space, operand.role == "source"
    bits, multiplicand = layout.element_bits, operand.name in "ab"
    registers = layout.registers // (1 if layout.copies_in_lanes else layout.copies)  # a lane's own copies: loaded once
    run = _run(layout, row.row_major[operand.name])
    narrow = bits <= 16 and arch.number >= _FIRST_MOVM
    transposes = bits == 16 and run == 1 and narrow
    word = max(1, _WORD_BITS // bits) if bits < 8 else 1  # strides of sub-byte elements count words
    if narrow and not stores and multiplicand and space.startswith("shared") and (run > 1 or transposes):
        return Accesses((_ldsm(registers, transposes, bits, arch),), LDSM_BYTES, bits, word, 0)
    width = _WORD_BITS if transposes else min(128, run * bits)
    moved: tuple[tuple[str, int], ...] = ((_access(stores, space, width, arch), _WORD_BITS * registers // width),)
    if transposes:
        moved += (("MOVM.16.MT88", registers),)
    pairs = width == 2 * bits and bits in (16, 32) and arch.number >= _FIRST_READ  # addresses count pairs of elements
    whole = not multiplicand and layout.rows == layout.columns  # C and D of 16 x 16: no line gets the whole stride
    return Accesses(moved, width // 8, bits, 2 if pairs else word, _BLOCK_LINES if pairs and not whole else 0)


def lowering(row: TileRow, arch: Arch) -> Lowering:
    """The memory accesses of one lane and the transpositions, by opcode; nothing is computed."""
    return Lowering("native", (), accesses(row, arch).opcodes)


def _ldsm(registers: int, transposes: bool, element_bits: int, arch: Arch) -> tuple[str, int]:
    most = 4 if element_bits == 16 and arch.number >= _FIRST_LDSM_BY_4 else 2
    matrices = min(registers, most)
    opcode = "LDSM.16.MT88" if transposes else "LDSM.16.M88"
    return opcode + (f".{matrices}" if matrices > 1 else ""), registers // matrices


def _access(stores: bool, space: Space, width: int, arch: Arch) -> str:
    """The opcode of a load or store of one lane."""
    plain = arch.number >= _FIRST_PLAIN
    if space.startswith("shared"):
        return ("STS" if stores else "LDS" if plain else "LDS.U") + _WIDTHS[width]
    return f"{'ST' if stores else 'LD'}{'G' if space == 'global' else ''}.E{_WIDTHS[width]}{'' if plain else '.SYS'}"


def _run(layout: FragmentLayout, row_major: bool) -> int:
    """How many values of a lane, from the first on, lie next to each other in memory."""
    rows, columns = np.divmod(layout.flat_element[: layout.value.size], layout.columns)
    line, place = (rows, columns) if row_major else (columns, rows)
    run = 1
    while run < len(line) and line[run] == line[0] and place[run] == place[0] + run:
        run += 1
    return run
