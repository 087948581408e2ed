"""Probes of wmma.load and wmma.store: one warp a block, and a memory of `MEMORY_BYTES` for each.

The memory is global, or shared: then the block copies it in before a load, and out after a store. A store starts from a
memory whose bytes are all `POISON`, as the driver leaves an output. What the probe itself loads or stores is spelled so
that its opcodes are none of the instruction's. Kernel parameters of a load: memory, address[, stride], then the
registers; of a store: address[, stride], registers, then the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwkernels.device.driver import POISON
from hwkernels.probes import Array, Body, Plan, form_of
from hwkernels.probes.mma import declaration, transfer
from tcsim.model.form import Form
from tcsim.model.operand import Operand

MEMORY_BYTES = 4096
"""Memory of one warp: room for the largest tile with a stride of half as much again."""
_LANES = 32
_VECTOR_BYTES = 16  # of one lane's copy


class LoadBody(Body):
    """registers = wmma.load(memory, address[, stride])."""

    def kernel(self, row: Any, name: str, variant: str) -> str:
        """PTX of the entry point."""
        form, (operand,) = form_of(row, variant), row.operands.values()
        body = [*_place(form, _copy_in()), _line(row, form), *transfer(operand, "st")]
        return _entry(name, ("memory", *_numbers(form), operand.name), operand, body)

    def plan(self, row: Any, inputs: dict[str, Array]) -> Plan:
        """memory uint8 (samples, MEMORY_BYTES), address and perhaps stride (samples,) -> registers (samples, 32, n)."""
        (operand,) = row.operands.values()
        memory = inputs["memory"]
        if memory.dtype != np.uint8 or memory.shape[1:] != (MEMORY_BYTES,):
            raise ValueError(
                f"memory is {memory.dtype} {memory.shape}; this probe takes uint8 (samples, {MEMORY_BYTES})"
            )
        arrays = (np.ascontiguousarray(memory), *_numbers_of(inputs))
        return _plan(inputs, arrays, (len(memory), _LANES, operand.registers))


class StoreBody(Body):
    """memory = wmma.store(address, registers[, stride]) into poison."""

    def kernel(self, row: Any, name: str, variant: str) -> str:
        """PTX of the entry point."""
        form, (operand,) = form_of(row, variant), row.operands.values()
        body = [*transfer(operand, "ld"), *_place(form, _fill(operand.layout.element_bits)), _line(row, form)]
        if _is_shared(form):
            body += ["bar.sync 0;", *_copy_out()]
        return _entry(name, (*_numbers(form), operand.name, "memory"), operand, body)

    def plan(self, row: Any, inputs: dict[str, Array]) -> Plan:
        """address and perhaps stride (samples,), registers (samples, 32, n) -> words of the memory."""
        registers = np.ascontiguousarray(inputs["registers"], np.uint32)
        return _plan(inputs, (*_numbers_of(inputs), registers), (len(registers), MEMORY_BYTES // 4))


LOAD = LoadBody()
STORE = StoreBody()


# --- PTX


def _numbers(form: Form) -> tuple[str, ...]:
    """The numbers that the instruction takes: the address, and the stride if there is one."""
    return tuple(name for name in form.names if name in ("address", "stride"))


def _line(row: Any, form: Form) -> str:
    return form.statement(row.mnemonic, {"address": "%place"})


def _is_shared(form: Form) -> bool:
    return form["address"].space.startswith("shared")


def _entry(name: str, parameters: Sequence[str], operand: Operand, body: Sequence[str]) -> str:
    head = [
        ".reg .u32 %lane, %sample, %thread, %stride, %image, %mine;",
        ".reg .u64 %address, %place, %number, %base_memory;",
        ".reg .b32 %v<4>;",
        f".reg .u64 %base_{operand.name};",
        declaration(operand),
        "mov.u32 %lane, %tid.x;",
        "mov.u32 %sample, %ctaid.x;",
        f"mad.lo.u32 %thread, %sample, {_LANES}, %lane;",
        f"ld.param.u64 %base_{operand.name}, [{operand.name}];",
        f"cvta.to.global.u64 %base_{operand.name}, %base_{operand.name};",
    ]
    text = "\n".join(f"    {line}" for line in (*head, *body, "ret;"))
    listed = ", ".join(f".param .u64 {parameter}" for parameter in parameters)
    return f"\n.visible .entry {name}({listed})\n{{\n{text}\n}}\n"


def _place(form: Form, prepare: Sequence[str]) -> list[str]:
    """Point %place at this sample's tile and load %stride; `prepare` gives shared memory its content."""
    lines = ["ld.param.u64 %base_memory, [memory];"]
    for number in _numbers(form):
        register = "%v0" if number == "address" else "%stride"
        lines += [
            f"ld.param.u64 %number, [{number}];",
            "cvta.to.global.u64 %number, %number;",
            "mad.wide.u32 %number, %sample, 4, %number;",
            f"ld.global.nc.u32 {register}, [%number];",
        ]
    lines.append("cvt.u64.u32 %number, %v0;")
    if not _is_shared(form):
        if form["address"].space == "global":  # a generic pointer stays as it comes
            lines.append("cvta.to.global.u64 %base_memory, %base_memory;")
        return [
            *lines,
            f"mad.wide.u32 %place, %sample, {MEMORY_BYTES}, %base_memory;",
            "add.u64 %place, %place, %number;",
        ]
    return [
        *lines,
        f".shared .align 128 .b8 image[{MEMORY_BYTES}];",
        "mov.u32 %image, image;",
        f"mad.lo.u32 %mine, %lane, {_VECTOR_BYTES}, %image;",
        "cvta.to.global.u64 %base_memory, %base_memory;",
        f"mad.wide.u32 %base_memory, %sample, {MEMORY_BYTES}, %base_memory;",
        f"mad.wide.u32 %base_memory, %lane, {_VECTOR_BYTES}, %base_memory;",
        *prepare,
        "bar.sync 0;",
        "cvt.u64.u32 %place, %image;",
        "add.u64 %place, %place, %number;",
    ]


def _steps() -> range:
    """Offsets at which the warp copies one vector a lane."""
    return range(0, MEMORY_BYTES, _VECTOR_BYTES * _LANES)


def _copy_in() -> list[str]:
    lines = []
    for step in _steps():
        lines += [
            f"ld.global.nc.v4.b32 {{%v0, %v1, %v2, %v3}}, [%base_memory+{step}];",
            f"st.shared.v4.b32 [%mine+{step}], {{%v0, %v1, %v2, %v3}};",
        ]
    return lines


_FILLS = {16: (8, ".v2.b32", "{%v0, %v0}"), 32: (16, ".v4.b32", "{%v0, %v0, %v0, %v0}"), 64: (1, ".u8", "%v0")}
"""By the bits of an element: a store (bytes, type, source) that no wmma.store of such elements becomes on any arch, and
that the assembler does not merge into one that it does."""


def _fill(element_bits: int) -> list[str]:
    """Poison in all of the lane's part of shared memory."""
    size, kind, source = _FILLS[element_bits]
    stores = [
        f"st.shared{kind} [%mine+{step + at}], {source};" for step in _steps() for at in range(0, _VECTOR_BYTES, size)
    ]
    return [f"mov.b32 %v0, {int.from_bytes(bytes([POISON]) * 4, 'little'):#x};", *stores]


def _copy_out() -> list[str]:
    lines = []
    for step in _steps():
        lines += [
            f"ld.shared.v4.b32 {{%v0, %v1, %v2, %v3}}, [%mine+{step}];",
            f"st.global.v4.b32 [%base_memory+{step}], {{%v0, %v1, %v2, %v3}};",
        ]
    return lines


# --- launches


def _numbers_of(inputs: dict[str, Array]) -> list[Array]:
    return [np.ascontiguousarray(inputs[name], np.uint32) for name in ("address", "stride") if name in inputs]


def _plan(inputs: dict[str, Array], arrays: tuple[Array, ...], output: tuple[int, ...]) -> Plan:
    variant = "stride" if "stride" in inputs else "packed"
    return Plan(arrays, (output, np.dtype(np.uint32)), (), (output[0], 1, 1), (_LANES, 1, 1), variant)


BODIES = {"wmma.load": LOAD, "wmma.store": STORE}
