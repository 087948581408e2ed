"""One-instruction probe kernels: PTX for any row of the registry, emitted from the row itself, assembled and checked.

What a kernel does around the instruction differs by family (hwkernels/probes); what is common is here.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from hwkernels.device.driver import Launch
from hwkernels.device.sass import SassError, SassFunction, disassemble, kernel_hashes, opcode_counts
from hwkernels.device.toolchain import AssembleError, ToolchainError, assemble
from hwkernels.probes import body_of
from tcsim.core.targets import TARGETS
from tcsim.core.versions import latest
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row


def kernel_name(row: Row, variant: str = "") -> str:
    """The entry point of a row's probe: the mnemonic with its punctuation replaced, and the operand form if several.

    >>> kernel_name(tcsim.catalog.rows()["mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"])
    'probe_mma_sync_aligned_m16n8k4_row_col_f32_tf32_tf32_f32'
    """
    return "probe_" + re.sub(r"\W+", "_", row.mnemonic) + (f"__{variant}" if variant else "")


def ptx_version(rows: Sequence[Row], target: str) -> str:
    """The lowest `.version` that has the target, every row, and what their probes do around them."""
    return latest(TARGETS[target].ptx_version, *(body_of(row).version_on(row, target) for row in rows))


def emit(rows: Row | Sequence[Row], target: str) -> str:
    """PTX of one module with a probe for each row.

    Raises ValueError if a row does not exist on the target.
    """
    rows = [rows] if isinstance(rows, Row) else list(rows)
    for row in rows:
        if target not in row.targets:
            raise ValueError(f"{row.mnemonic} has no target {target}; valid: {', '.join(row.targets)}")
    head = f".version {ptx_version(rows, target)}\n.target {target}\n.address_size 64\n"
    return head + "".join(
        body_of(row).kernel_on(row, kernel_name(row, variant), variant, target)
        for row in rows
        for variant in forms_on(row, target)
    )


def forms_on(row: Row, target: str) -> tuple[str, ...]:
    """The variants of a row's probe that a target has, each an entry point."""
    return body_of(row).forms_on(row, target)


@dataclass(frozen=True)
class Probe:
    """The assembled probe of one instruction for one target."""

    instruction: Instruction
    target: str
    cubin: bytes = field(repr=False)  # may hold other probes too
    assembler: str  # "ptxas 13.5.37"
    complaint: str  # what is wrong with the machine code, or nothing
    code_sha256: str  # of this probe's machine code

    def launch(self, inputs: dict[str, npt.NDArray[Any]], repeat: int = 1) -> Launch:
        """The launch that runs the probe on a batch of inputs, as the family's body takes them."""
        row = self.instruction.row
        plan = body_of(row).plan(row, inputs)
        return Launch(
            cubin=self.cubin,
            kernel=kernel_name(row, plan.variant),
            inputs=plan.inputs,
            outputs=(plan.output,),
            scalars=plan.scalars,
            grid=plan.grid,
            block=plan.block,
            shared_bytes=plan.shared_bytes,
            cluster=plan.cluster,
            repeat=repeat,
            tensor_maps=plan.tensor_maps,
            tensor_map_buffers=plan.tensor_map_buffers,
            driver_map_table=plan.driver_map_table,
            driver_maps=plan.driver_maps,
        )


def build(instructions: Sequence[Instruction], target: str) -> dict[str, Probe | RuntimeError]:
    """Assemble the probes of several instructions for a target: by mnemonic, the probe or why there is none.

    One module holds them all; if the assembler refuses it, each is assembled by itself to find out which it refuses.
    """
    if not instructions:
        return {}
    try:
        assembly = assemble(emit([item.row for item in instructions], target), target)
        functions: dict[str, list[SassFunction]] = defaultdict(list)
        for function in disassemble(assembly.cubin):
            functions[function.section].append(function)
        hashes = kernel_hashes(assembly.cubin)
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
            opcode_complaint(
                item, [own for section in sections_of(item.row, target) for own in functions[section]], target
            ),
            _code_sha256(hashes, item.row, target),
        )
        for item in instructions
    }


def opcode_complaint(instruction: Instruction, functions: Iterable[SassFunction], target: str = "") -> str:
    """What is wrong with the machine code of an instruction's probe, or nothing: it must do what the row claims.

    Every claimed opcode must occur as often as claimed, and no other that the family's body watches for. `functions` may
    hold other kernels; those in the probe's own sections count, with the helpers they call. `target` is the arch's first if
    not given.
    """
    functions, wrong = list(functions), []
    row, body, target = instruction.row, body_of(instruction.row), target or instruction.targets[0]
    for variant in forms_on(row, target):
        name = kernel_name(row, variant)
        own = [function for function in functions if function.section == f".text.{name}"]
        if not own:
            wrong.append(f"{name} is not in the machine code")
        elif wanting := body.complaint(instruction, variant, target, opcode_counts(own)):
            wrong.append(f"{name}: {wanting}" if variant else wanting)
    return "; ".join(wrong)


def sections_of(row: Row, target: str) -> list[str]:
    """The sections of a cubin that hold a row's probe, one for each operand form."""
    return [f".text.{kernel_name(row, variant)}" for variant in forms_on(row, target)]


def _code_sha256(kernels: Mapping[str, str], row: Row, target: str) -> str:
    """SHA-256 of the machine code of a row's probe; of several operand forms, of their hashes."""
    hashes = [kernels.get(section, "") for section in sections_of(row, target)]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def ptx_sha256(row: Row, target: str) -> str:
    """SHA-256 of the PTX text of a module with a row's probe alone, by which a recording knows its kernel."""
    return hashlib.sha256(emit(row, target).encode()).hexdigest()
