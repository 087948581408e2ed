"""Probes of ldmatrix, stmatrix and movmatrix: one warp a block.

ldmatrix: the block copies its image of shared memory in, every lane adds its offset to the address of the image, the
instruction runs once, the registers come out. stmatrix: the same with registers in, and the whole image comes out.
Kernel parameters: smem, address[, registers], then the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwkernels.probes import Array, Body, Plan
from tcsim.isa.matrix.rows import MatrixRow
from tcsim.isa.matrix.semantics import LANES
from tcsim.model.operand import Fragment

LOAD_BYTES = 8192
"""Shared memory that an ldmatrix probe loads from."""
STORE_BYTES = 1024
"""Shared memory that a stmatrix probe stores to: all of it is recorded."""
_VECTOR_BYTES = 16  # of one lane's copy


class LoadBody(Body):
    """registers = ldmatrix(smem, address)."""

    def kernel(self, row: MatrixRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        d = row.operands["d"]
        return _entry(
            name,
            ("smem", "address", "d"),
            [
                *_declare_image(LOAD_BYTES),
                *_declare_registers(d),
                *_open("smem", LOAD_BYTES),
                *_copy_in(LOAD_BYTES),
                *_row_address(row),
                *_open("d", 4 * d.registers * LANES, 4 * d.registers),
                row.forms[0].statement(row.mnemonic, {"address": _address_register(row)}),
                *(f"st.global.b32 [%at_d+{4 * i}], %d{i};" for i in range(d.registers)),
            ],
        )

    def plan(self, row: MatrixRow, inputs: dict[str, Array]) -> Plan:
        """smem uint8 (samples, LOAD_BYTES) and address (samples, 32) -> registers (samples, 32, n)."""
        d, samples = row.operands["d"], len(inputs["smem"])
        return _plan(
            (_words(inputs["smem"], (samples, LOAD_BYTES)), _offsets(inputs["address"], samples)),
            (samples, d.lanes, d.registers),
        )


class StoreBody(Body):
    """smem = stmatrix(smem, address, registers)."""

    def kernel(self, row: MatrixRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        r = row.operands["registers"]
        return _entry(
            name,
            ("smem", "address", "registers", "result"),
            [
                *_declare_image(STORE_BYTES),
                *_declare_registers(r),
                *_open("smem", STORE_BYTES),
                *_copy_in(STORE_BYTES),
                *_row_address(row),
                *_open("registers", 4 * r.registers * LANES, 4 * r.registers),
                *(f"ld.global.b32 %registers{i}, [%at_registers+{4 * i}];" for i in range(r.registers)),
                row.forms[0].statement(row.mnemonic, {"address": _address_register(row)}),
                "bar.sync 0;",
                *_open("result", STORE_BYTES, _VECTOR_BYTES),
                *_copy_out(STORE_BYTES),
            ],
        )

    def plan(self, row: MatrixRow, inputs: dict[str, Array]) -> Plan:
        """smem uint8 (samples, STORE_BYTES), address (samples, 32), registers (samples, 32, n) -> words of the new smem."""
        r, samples = row.operands["registers"], len(inputs["smem"])
        registers = np.ascontiguousarray(inputs["registers"], np.uint32).reshape(samples, r.lanes, r.registers)
        return _plan(
            (_words(inputs["smem"], (samples, STORE_BYTES)), _offsets(inputs["address"], samples), registers),
            (samples, STORE_BYTES // 4),
        )


class TransposeBody(Body):
    """d = movmatrix(a)."""

    def kernel(self, row: MatrixRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        line = [row.forms[0].statement(row.mnemonic, {"d": "%d0", "a": "%a0"})]
        load, store = ["ld.global.b32 %a0, [%at_a];"], ["st.global.b32 [%at_d], %d0;"]
        registers = [*_declare_registers(row.operands["a"]), *_declare_registers(row.operands["d"])]
        places = [*_open("a", 4 * LANES, 4), *_open("d", 4 * LANES, 4)]
        return _entry(name, ("a", "d"), [*registers, *places, *load, *line, *store])

    def plan(self, row: MatrixRow, inputs: dict[str, Array]) -> Plan:
        """Registers (samples, 32, 1) -> (samples, 32, 1)."""
        a = np.ascontiguousarray(inputs["a"], np.uint32)
        return _plan((a,), a.shape)


LOAD = LoadBody()
STORE = StoreBody()
TRANSPOSE = TransposeBody()


# --- PTX


def _entry(name: str, parameters: Sequence[str], body: Sequence[str]) -> str:
    head = [
        ".reg .u32 %lane, %sample;",
        *(f".reg .u64 %at_{parameter};" for parameter in parameters),
        "mov.u32 %lane, %tid.x;",
        "mov.u32 %sample, %ctaid.x;",
    ]
    text = "\n".join(f"    {line}" for line in (*head, *body, "ret;"))
    listed = ", ".join(f".param .u64 {parameter}" for parameter in parameters)
    return f"\n.visible .entry {name}({listed})\n{{\n{text}\n}}\n"


def _declare_image(size: int) -> list[str]:
    return [
        f".shared .align 128 .b8 image[{size}];",
        ".reg .u32 %image, %mine, %offset, %row;",
        ".reg .u64 %generic;",
        ".reg .b32 %v<4>;",
        "mov.u32 %image, image;",
        f"mad.lo.u32 %mine, %lane, {_VECTOR_BYTES}, %image;",
    ]


def _declare_registers(operand: Fragment) -> list[str]:
    return [f".reg {operand.type} %{operand.name}<{operand.registers}>;"]


def _open(parameter: str, sample_bytes: int, lane_bytes: int = _VECTOR_BYTES) -> list[str]:
    """Point %at_<parameter> at this lane's part of this block's sample."""
    at = f"%at_{parameter}"
    return [
        f"ld.param.u64 {at}, [{parameter}];",
        f"cvta.to.global.u64 {at}, {at};",
        f"mad.wide.u32 {at}, %sample, {sample_bytes}, {at};",
        f"mad.wide.u32 {at}, %lane, {lane_bytes}, {at};",
    ]


def _steps(size: int) -> range:
    """Offsets at which the warp copies one vector a lane."""
    return range(0, size, _VECTOR_BYTES * LANES)


def _copy_in(size: int) -> list[str]:
    lines = []
    for step in _steps(size):
        lines += [
            f"ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%at_smem+{step}];",
            f"st.shared.v4.b32 [%mine+{step}], {{%v0, %v1, %v2, %v3}};",
        ]
    return [*lines, "bar.sync 0;"]


def _copy_out(size: int) -> list[str]:
    lines = []
    for step in _steps(size):
        lines += [
            f"ld.shared.v4.b32 {{%v0, %v1, %v2, %v3}}, [%mine+{step}];",
            f"st.global.v4.b32 [%at_result+{step}], {{%v0, %v1, %v2, %v3}};",
        ]
    return lines


def _row_address(row: MatrixRow) -> list[str]:
    """The address of this lane's row: of shared memory, or generic where the spelling names no state space."""
    lines = [
        *_open("address", 4 * LANES, 4),
        "ld.global.u32 %offset, [%at_address];",
        "add.u32 %row, %offset, %image;",
    ]
    if _address_register(row) == "%generic":
        lines += ["cvt.u64.u32 %generic, %row;", "cvta.shared.u64 %generic, %generic;"]
    return lines


def _address_register(row: MatrixRow) -> str:
    return "%generic" if row.forms[0]["address"].space == "generic" else "%row"


# --- launches


def _plan(inputs: tuple[Array, ...], output: tuple[int, ...]) -> Plan:
    return Plan(inputs, (output, np.dtype(np.uint32)), (), (output[0], 1, 1), (LANES, 1, 1))


def _words(smem: Array, shape: tuple[int, int]) -> Array:
    if smem.dtype != np.uint8 or smem.shape != shape:
        raise ValueError(f"smem is {smem.dtype} {smem.shape}; this probe takes uint8 {shape}")
    return np.ascontiguousarray(smem)


def _offsets(address: Array, samples: int) -> Array:
    if address.dtype.kind not in "iu" or address.shape != (samples, LANES):
        raise ValueError(f"address is {address.dtype} {address.shape}; this probe takes integers ({samples}, {LANES})")
    return np.ascontiguousarray(address).astype(np.uint32)


BODIES = {"ldmatrix": LOAD, "stmatrix": STORE, "movmatrix": TRANSPOSE}
