"""Fragment layouts of wmma: which lane holds which element, on each arch.

The PTX manual leaves them open. They were read off an H200, by loading the bits of the element index with every layout
of wmma.load (sm_90), and off the machine code of every wmma.load and wmma.store (all archs).

Since Turing a fragment is a stack of mma.sync fragments, whatever the order in memory; m8n32k16 is computed as its
transpose, so that there B is the operand with 16 rows. On Volta each quad pair of lanes {q, q + 4} computes an 8 x 8
block of the result with the layouts of m8n8k4, and those of A and B depend on the order in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from tcsim.core.targets import ARCHS, Arch
from tcsim.isa.mma.fragments import compact
from tcsim.isa.mma.operands import REGISTER_TYPES
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Fragment, Role, fragment
from tcsim.model.row import Row
from tcsim.numbers.formats import FORMATS, Format

_SHOWN = ARCHS["sm_90"]  # its layouts are those of every arch since sm_80, and what a row shows

_F16_VALUES = 16  # f16 values of A or B that a lane holds, whatever the shape: 8 registers
_FIRST_STACKED = 75  # arch number from which f16 fragments are stacks of mma.sync fragments
_FIRST_TRANSPOSED_INT8 = 80  # arch number from which int8 m8n32k16 is computed as its transpose; f16: _FIRST_STACKED


@dataclass(frozen=True, kw_only=True)
class TileRow(Row):
    """A row of wmma: its fragments come from tiles in memory, or go there."""

    row_major: Mapping[
        str, bool
    ]  # by operand: whether its tile lies in memory row after row; not given: it makes no difference


@dataclass(frozen=True, eq=False, repr=False)
class TileInstruction(Instruction):
    """An instruction on fragments of wmma, whose layouts are the arch's own."""

    row: TileRow

    @cached_property
    def operands(self) -> Mapping[str, Fragment]:
        """The register operands by name, in PTX's order, with the arch's layouts."""
        return replace(self.row, operands=operands_on(self.row, self.arch)).operands


def operands_on(row: TileRow, arch: Arch) -> dict[str, Fragment]:
    """The operands of a row with the layouts that they have on an arch."""
    return {
        name: replace(
            operand, layout=fragment_layout(name, row.shape, operand.format, row.row_major.get(name, True), arch)
        )
        for name, operand in row.operands.items()
    }


def shown(
    name: str, shape: tuple[int, int, int], format: str, row_major: bool = True, role: Role | None = None
) -> Fragment:
    """An operand as a row has it: with the layout of the newest arch."""
    layout = fragment_layout(name, shape, FORMATS[format], row_major, _SHOWN)
    return fragment(name, FORMATS[format], layout, REGISTER_TYPES.get(format, ".b32"), role)


def fragment_layout(
    name: str, shape: tuple[int, int, int], format: Format, row_major: bool, arch: Arch
) -> FragmentLayout:
    """The layout of operand a, b, c or d; `row_major` is its order in memory, which matters to Volta's A and B only.

    >>> from tcsim.core.targets import ARCHS
    >>> for name in ("sm_70", "sm_90"):
    ...     print(fragment_layout("a", (16, 16, 16), FORMATS["f16"], True, ARCHS[name]))
    ((4,2,2,2),16):((1,8,0,4),16)
    ((4,8),(2,2,2,2)):((32,1),(16,8,128,0))
    """
    m, n, k = shape
    if arch.number < _FIRST_STACKED and format.name in ("f16", "f32"):
        if name == "a":
            return _quad_pair_multiplicand(m, k, along_k=row_major, bit=0)
        if name == "b":
            return _quad_pair_multiplicand(n, k, along_k=not row_major, bit=1, b=True)
        return _quad_pair_accumulator(m, n, format.bits)
    transposed = (m, n) == (8, 32) and arch.number >= (
        _FIRST_TRANSPOSED_INT8 if format.kind == "integer" else _FIRST_STACKED
    )
    if name == "a":
        return _multiplicand(m, k, format, leading=not transposed)
    if name == "b":
        return _multiplicand(n, k, format, leading=transposed, b=True)
    return accumulator(m, n, format.bits, transposed=transposed)


@cache
def _multiplicand(outer: int, k: int, format: Format, *, leading: bool, b: bool = False) -> FragmentLayout:
    """A, M x K, or B, K x N, as a stack of mma.sync fragments. Index m + M * k or n + N * k.

    `leading`: it is the operand of 16 rows of each mma.sync, whose registers step first by 8 rows, then along K.
    """
    bits = format.container_bits if format.kind == "float" else format.bits
    packed = max(1, 32 // bits)
    width = 4 * packed  # k that four lanes cover with one register each
    slots, along_k = (packed, outer), (k // width, width * outer)
    if leading:
        modes = [slots, (min(2, outer // 8), 8), along_k, (outer // 16, 16)]
    else:
        modes = [slots, along_k, (outer // 8, 8)]
    copies = _F16_VALUES * 32 // (outer * k) if format.name == "f16" else 1
    value = compact([*modes, (copies, 0)])
    thread = Layout((4, 8), (packed * outer, 1))
    rows, columns = (k, outer) if b else (outer, k)
    return FragmentLayout(thread, value, rows, columns, bits, column_fastest=b, copies=copies)


@cache
def accumulator(m: int, n: int, bits: int, *, transposed: bool) -> FragmentLayout:
    """C and D, M x N: pairs of neighbours of a row, or of a column if transposed. Index m + M * n."""
    if transposed:
        return FragmentLayout(Layout((4, 8), (2, m)), compact([(2, 1), (n // 8, 8 * m)]), m, n, bits)
    value = compact([(2, m), (m // 8, 8), (n // 8, 8 * m)])
    return FragmentLayout(Layout((4, 8), (2 * m, 1)), value, m, n, bits)


# --- Volta: lanes (l % 4, two bits of the quad pair's number, l / 16)

_LANES = (4, 2, 2, 2)


def _blocks(extent: int, bit: int) -> tuple[int, int]:
    """Where the two bits of the quad pair's number lead along a dimension, which 16 takes one of, 8 none and 32 both."""
    if extent == 16:
        return (8, 0) if bit == 0 else (0, 8)
    return (8, 16) if extent == 32 else (0, 0)


@cache
def _quad_pair_multiplicand(outer: int, k: int, *, along_k: bool, bit: int, b: bool = False) -> FragmentLayout:
    """A or B: a lane holds all k of a row of A (a column of B) if the memory runs along k, else four rows of k, k + 4 ..."""
    first, second = _blocks(outer, bit)
    thread = Layout(_LANES, (1 if along_k else outer, first, second, 4))
    value = Layout(k, outer) if along_k else Layout((4, k // 4), (1, 4 * outer))
    rows, columns = (k, outer) if b else (outer, k)
    copies = _F16_VALUES * 32 // (outer * k)
    return FragmentLayout(thread, value, rows, columns, 16, column_fastest=b, copies=copies)


@cache
def _quad_pair_accumulator(m: int, n: int, bits: int) -> FragmentLayout:
    """C and D: a row of 8 of its block per lane for f16; 2 x 2 patches for f32."""
    rows, columns = _blocks(m, 0), _blocks(n, 1)
    block = (rows[0] + m * columns[0], rows[1] + m * columns[1])
    if bits == 16:
        return FragmentLayout(Layout(_LANES, (1, *block, 4)), Layout(8, m), m, n, 16)
    thread = Layout((2, 2, 2, 2, 2), (1, 2 * m, *block, 4))
    return FragmentLayout(thread, Layout((2, 2, 2), (m, 2, 4 * m)), m, n, 32)
