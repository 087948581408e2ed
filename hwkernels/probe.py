"""One-instruction probe kernels: PTX for any register-to-register row, emitted from the row itself.

A probe is a batch of independent warps. Warp w loads each operand's registers from `operand[w][lane][register]`, runs
the instruction once, and stores the result likewise. Kernel parameters: the inputs in PTX order a, b, c, then d, then
the number of warps as u32.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hwkernels.driver import Launch
from hwkernels.sass import SassError, SassFunction, code_sha256, disassemble, opcode_counts
from hwkernels.toolchain import AssembleError, ToolchainError, assemble
from tcsim.instruction import Instruction
from tcsim.registry import Operand, Row
from tcsim.targets import TARGETS

BLOCK_THREADS = 128  # four warps a block


def kernel_name(row: Row) -> str:
    """The entry point of a row's probe: the mnemonic with its punctuation replaced.

    >>> kernel_name(tcsim.registry.rows()["mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"])
    'probe_mma_sync_aligned_m16n8k4_row_col_f32_tf32_tf32_f32'
    """
    return "probe_" + re.sub(r"\W+", "_", row.mnemonic)


def ptx_version(rows: Sequence[Row], target: str) -> str:
    """The lowest `.version` that has the target and every row."""
    versions = [TARGETS[target].ptx_version, *(row.ptx_version for row in rows)]
    return max(versions, key=lambda v: tuple(int(part) for part in v.split(".")))


def emit(rows: Row | Sequence[Row], target: str) -> str:
    """PTX of one module with a probe for each row.

    Raises ValueError if a row does not exist on the target.
    """
    rows = [rows] if isinstance(rows, Row) else list(rows)
    for row in rows:
        if target not in row.targets:
            raise ValueError(f"{row.mnemonic} has no target {target}; valid: {', '.join(row.targets)}")
    head = f".version {ptx_version(rows, target)}\n.target {target}\n.address_size 64\n"
    return head + "".join(_kernel(row) for row in rows)


@dataclass(frozen=True)
class Probe:
    """The assembled probe of one instruction for one target."""

    instruction: Instruction
    target: str
    cubin: bytes = field(repr=False)  # may hold other probes too
    assembler: str  # "ptxas 13.5.37"
    complaint: str  # what is wrong with the machine code, or nothing
    code_sha256: str  # of this probe's machine code

    def launch(self, inputs: dict[str, npt.NDArray[np.uint32]], repeat: int = 1) -> Launch:
        """The launch that runs the probe on registers (warps, lanes, registers) of a, b and c."""
        row, d = self.instruction.row, self.instruction.operands["d"]
        warps = len(inputs["a"])
        return Launch(
            cubin=self.cubin,
            kernel=kernel_name(row),
            inputs=tuple(np.ascontiguousarray(inputs[name], np.uint32) for name in _inputs(row)),
            outputs=(((warps, d.lanes, d.registers), np.dtype(np.uint32)),),
            scalars=(np.uint32(warps),),
            grid=(-(-warps * 32 // BLOCK_THREADS), 1, 1),
            block=(BLOCK_THREADS, 1, 1),
            repeat=repeat,
        )


def build(instructions: Sequence[Instruction], target: str) -> dict[str, Probe | RuntimeError]:
    """Assemble the probes of several instructions for a target: by mnemonic, the probe or why there is none.

    One module holds them all; if the assembler refuses it, each is assembled by itself to find out which it refuses.
    """
    if not instructions:
        return {}
    try:
        assembly = assemble(emit([item.row for item in instructions], target), target)
        functions = disassemble(assembly.cubin)
    except (ToolchainError, SassError) as error:
        return {item.mnemonic: error for item in instructions}
    except AssembleError as error:
        if len(instructions) == 1:
            return {instructions[0].mnemonic: error}
        return {name: probe for item in instructions for name, probe in build([item], target).items()}
    return {
        item.mnemonic: Probe(
            item,
            target,
            assembly.cubin,
            f"ptxas {assembly.toolchain.version}",
            opcode_complaint(item, functions),
            code_sha256(assembly.cubin, f".text.{kernel_name(item.row)}"),
        )
        for item in instructions
    }


def _inputs(row: Row) -> list[str]:
    return [name for name in row.operands if name != "d"]


def _vector(operand: Operand) -> str:
    return "{" + ", ".join(f"%{operand.name}{i}" for i in range(operand.ptx_registers)) + "}"


def _transfer(operand: Operand, word: str) -> list[str]:
    """Loads ("ld") or stores ("st") of all registers of an operand of this lane."""
    size = 4 * operand.registers // operand.ptx_registers
    lines = [
        f"mad.wide.u32 %address, %thread, {4 * operand.registers}, %base_{operand.name};",
    ]
    kind = operand.register_type
    for i in range(operand.ptx_registers):
        place, register = f"[%address+{size * i}]", f"%{operand.name}{i}"
        first, second = (register, place) if word == "ld" else (place, register)
        lines.append(f"{word}.global{kind} {first}, {second};")
    return lines


def _kernel(row: Row) -> str:
    inputs, d = [row.operands[name] for name in _inputs(row)], row.operands["d"]
    names = [operand.name for operand in (*inputs, d)]
    parameters = [f".param .u64 {name}" for name in names] + [".param .u32 warps"]
    body = [
        ".reg .pred %outside;",
        ".reg .u32 %thread, %block, %size, %warp, %warps;",
        ".reg .u64 %address;",
        *(f".reg .u64 %base_{name};" for name in names),
        *(f".reg {o.register_type} %{o.name}<{o.ptx_registers}>;" for o in (*inputs, d)),
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %size, %ntid.x;",
        "mad.lo.u32 %thread, %block, %size, %thread;",
        "shr.u32 %warp, %thread, 5;",
        "ld.param.u32 %warps, [warps];",
        "setp.ge.u32 %outside, %warp, %warps;",
        "@%outside exit;",
    ]
    for name in names:
        body += [f"ld.param.u64 %base_{name}, [{name}];", f"cvta.to.global.u64 %base_{name}, %base_{name};"]
    for operand in inputs:
        body += _transfer(operand, "ld")
    vectors = ", ".join(_vector(operand) for operand in (d, *inputs))
    body += [f"{row.mnemonic} {vectors};", *_transfer(d, "st"), "ret;"]
    text = "\n".join(f"    {line}" for line in body)
    return f"\n.visible .entry {kernel_name(row)}({', '.join(parameters)})\n{{\n{text}\n}}\n"


TENSOR_OPCODES = ("HMMA", "QMMA", "OMMA", "IMMA", "BMMA", "DMMA", "HGMMA", "QGMMA", "IGMMA", "BGMMA", "UTC")
"""SASS opcodes (or their beginnings) that run on the tensor core."""


def opcode_complaint(instruction: Instruction, functions: Iterable[SassFunction]) -> str:
    """What is wrong with the machine code of an instruction's probe, or nothing: it must do what the row claims.

    Every claimed opcode must occur as often as claimed, and no other tensor-core opcode may occur. `functions` may hold
    other kernels; those in the probe's own section count, with the helpers it calls.
    """
    name = kernel_name(instruction.row)
    own = [function for function in functions if function.section == f".text.{name}"]
    if not own:
        return f"{name} is not in the machine code"
    counts = opcode_counts(own)
    claimed = dict(instruction.lowering.opcodes)
    wrong = [
        f"{opcode} {counts[opcode]} times instead of {times}"
        for opcode, times in claimed.items()
        if counts[opcode] != times
    ]
    wrong += [
        f"{opcode} {times} times, which is not claimed"
        for opcode, times in sorted(counts.items())
        if opcode.startswith(TENSOR_OPCODES) and opcode not in claimed
    ]
    return "; ".join(wrong)


def ptx_sha256(row: Row, target: str) -> str:
    """SHA-256 of the PTX text of a module with a row's probe alone, by which a recording knows its kernel."""
    return hashlib.sha256(emit(row, target).encode()).hexdigest()
