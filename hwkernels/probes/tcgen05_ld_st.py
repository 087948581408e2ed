"""Probes of tcgen05.ld, .ld.red, .ld.spcompress and .st: four warps fill Tensor Memory, each runs the instruction on its lanes.

Inputs by name, first axis the sample, one CTA each: `tmem` uint32 (samples, 128, columns), `offset` uint32 (samples,) that
is added to the address of each warp's lanes, `split` uint32 (samples,) of one value where the shape has two addresses, and
for st `registers` uint32 (samples, 4, 32, n). Output: the registers (samples, 4, 32, n), redval last; of st all cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes import tmem_kernel as kernel
from tcsim.isa.tcgen05.move import MoveRow
from tcsim.memory.tensor_memory import TensorMemory
from tcsim.model.operand import Names
from tcsim.model.row import Row

ROOM = 8  # columns more than the instruction reaches, so that addresses can differ
WARPS = 4


@dataclass(frozen=True)
class Geometry:
    """What a probe allocates and where the instruction may reach."""

    columns: int  # allocated and filled
    reach: int  # columns from the first to the last that the instruction touches, with the largest split
    splits: tuple[int, ...]  # the immediates that have a kernel; () if the shape has one address


def geometry(row: MoveRow) -> Geometry:
    """The sizes of a row's probe."""
    width = row.half_columns
    splits: tuple[int, ...] = ()
    if row.movement.halves == 2:
        apart = width + ROOM if 2 * width + ROOM <= TensorMemory.COLUMNS else width
        loads = "registers" not in row.operands
        splits = tuple(dict.fromkeys((width, apart, *((0,) if loads else ()))))
    reach = width + max(splits, default=0)
    columns = 32
    while columns < min(reach + ROOM, TensorMemory.COLUMNS):
        columns *= 2
    return Geometry(columns, reach, splits)


class _MoveBody(Body):
    """What ld and st have in common."""

    def variants(self, row: MoveRow) -> tuple[str, ...]:
        """One form, or one for each immHalfSplitoff."""
        return tuple(f"split{split}" for split in geometry(row).splits) or ("",)

    def _variant(self, row: MoveRow, inputs: dict[str, Array]) -> str:
        if not geometry(row).splits:
            return ""
        values = np.unique(inputs["split"])
        if len(values) != 1:
            raise ValueError(f"a batch has one split, not {values.tolist()}")
        return f"split{int(values[0])}"

    def _plan(self, row: MoveRow, inputs: dict[str, Array], names: tuple[str, ...], shape: tuple[int, ...]) -> Plan:
        samples = len(inputs["tmem"])
        return Plan(
            inputs=tuple(np.ascontiguousarray(inputs[name], np.uint32) for name in names),
            output=((samples, *shape), np.dtype(np.uint32)),
            scalars=(),
            grid=(samples, 1, 1),
            block=(kernel.THREADS, 1, 1),
            variant=self._variant(row, inputs),
        )


class LoadBody(_MoveBody):
    """registers = tcgen05.ld(tmem, address), with or without what comes after."""

    def scaffold(self, row: MoveRow) -> dict[str, int]:
        """Opcodes around the instruction."""
        return kernel.SCAFFOLD[1] | kernel.FILL

    def results(self, row: MoveRow) -> dict[str, int]:
        """The register operands in PTX's order, and how many registers each has."""
        return {name: operand.registers for name, operand in row.operands.items()}

    def kernel(self, row: MoveRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        size, results = geometry(row), self.results(row)
        total = sum(results.values())
        declared = [f".reg {row.operands[key].type} %{key}<{count}>;" for key, count in results.items()]
        split = variant.removeprefix("split")
        names = {"address": "%mine", "redval": "%redval0", "half_split_offset": split}
        order = [f"%{key}{i}" for key, count in results.items() for i in range(count)]
        body = [
            *declared,
            *kernel.allocate(size.columns),
            *kernel.fill("tmem", size.columns),
            *_offset(),
            row.forms[0].statement(row.mnemonic, names),
            "tcgen05.wait::ld.sync.aligned;",
            f"mul.wide.u32 %here, %row, {4 * total};",
            "add.u64 %here, %here, %at_d;",
            *(f"st.global.{'f' if _float(row, key) else 'b'}32 [%here+{4 * i}], {key};" for i, key in enumerate(order)),
            *kernel.free(size.columns),
        ]
        return kernel.entry(name, ("tmem", "offset", "d"), body)

    def plan(self, row: MoveRow, inputs: dict[str, Array]) -> Plan:
        """One CTA a sample."""
        shape = (WARPS, 32, sum(self.results(row).values()))
        return self._plan(row, inputs, ("tmem", "offset"), shape)


class StoreBody(_MoveBody):
    """tmem = tcgen05.st(tmem, address, registers)."""

    def scaffold(self, row: MoveRow) -> dict[str, int]:
        """Opcodes around the instruction."""
        return kernel.SCAFFOLD[1] | kernel.FILL | kernel.READ

    def kernel(self, row: MoveRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        size, count = geometry(row), row.operands["registers"].registers
        registers = tuple(f"%r{i}" for i in range(count))
        names: Names = {
            "address": "%mine",
            "half_split_offset": variant.removeprefix("split"),
            "registers": registers,
        }
        body = [
            f".reg .b32 %r<{count}>;",
            ".reg .u32 %base;",
            *kernel.allocate(size.columns),
            *kernel.fill("tmem", size.columns),
            "mov.u32 %base, %mine;",
            *_offset(),
            f"mul.wide.u32 %here, %row, {4 * count};",
            "add.u64 %here, %here, %at_registers;",
            *(f"ld.global.b32 %r{i}, [%here+{4 * i}];" for i in range(count)),
            row.forms[0].statement(row.mnemonic, names),
            "tcgen05.wait::st.sync.aligned;",
            "mov.u32 %mine, %base;",
            *kernel.read_back("d", size.columns),
            *kernel.free(size.columns),
        ]
        return kernel.entry(name, ("tmem", "offset", "registers", "d"), body)

    def plan(self, row: MoveRow, inputs: dict[str, Array]) -> Plan:
        """One CTA a sample."""
        return self._plan(row, inputs, ("tmem", "offset", "registers"), (kernel.LANES, geometry(row).columns))


class OrderBody(Body):
    """tcgen05.fence and tcgen05.wait: cells are filled, and read back after every fence and wait."""

    def scaffold(self, row: Row) -> dict[str, int]:
        """Opcodes around the instruction."""
        return kernel.SCAFFOLD[1] | kernel.FILL | kernel.READ

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        columns = kernel.BLOCK_COLUMNS
        body = [
            *kernel.allocate(columns), *kernel.fill("tmem", columns), *kernel.meet(),
            *kernel.read_back("d", columns), *kernel.free(columns),
        ]  # fmt: skip
        return kernel.entry(name, ("tmem", "d"), body)

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """tmem uint32 (samples, 128, 32) -> the same."""
        tmem = np.ascontiguousarray(inputs["tmem"], np.uint32)
        return Plan((tmem,), (tmem.shape, np.dtype(np.uint32)), (), (len(tmem), 1, 1), (kernel.THREADS, 1, 1))


LOAD = LoadBody()
STORE = StoreBody()
ORDER = OrderBody()


def _offset() -> list[str]:
    return [
        "mad.wide.u32 %here, %cta, 4, %at_offset;",
        "ld.global.u32 %at, [%here];",
        "add.u32 %mine, %mine, %at;",
    ]


def _float(row: MoveRow, register: str) -> bool:
    return row.operands[register[1:].rstrip("0123456789")].type == ".f32"


BODIES = {
    "tcgen05.fence": ORDER,
    "tcgen05.wait": ORDER,
    "tcgen05.ld": LOAD,
    "tcgen05.ld.red": LOAD,
    "tcgen05.ld.spcompress": LOAD,
    "tcgen05.st": STORE,
}
