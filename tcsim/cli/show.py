"""`tcsim show`: everything that is known of one instruction on one arch."""

from __future__ import annotations

from typing import Any

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.inspection.description import Description, OperandDescription, describe
from tcsim.inspection.listing import target_text
from tcsim.inspection.report import Facts, Lines, Report


def show(
    mnemonic: options.Mnemonic,
    arch: options.Arch = None,
    form: options.Format = options.TextFormat.text,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Show all that is known of an instruction.

    Types, targets, constraints, execution, registers with closed formulas, arithmetic, machine code, evidence, PTX.
    """
    instruction = options.instruction_of(mnemonic, arch)
    found = describe(instruction)
    emit(
        "show",
        found.as_dict,
        lambda: report(found),
        form=form.value,
        json=json,
        html=html,
        page=lambda: _page(instruction),
    )


def _page(instruction: Any) -> str:
    from tcsim.inspection.html_page import instruction_page  # text and JSON do without pages

    return instruction_page(instruction)


def report(found: Description) -> Report:
    """A description as something to read."""
    facts = [
        ("family", found.family),
        ("types", ", ".join(f"{name} {kind}" for name, kind in found.types.items())),
        ("targets", target_text(found.targets)),
        (f"on {found.arch}", ", ".join(found.targets_here)),
        ("evidence", f"{found.evidence_level}: {found.evidence_source}"),
    ]
    if any(found.shape):
        facts.insert(1, ("shape", _shape(*found.shape)))
    machine = ", ".join(f"{times} {opcode}" for opcode, times in found.machine_code.items())
    parts: list[Facts | Lines] = [
        Facts(tuple(facts)),
        Lines(tuple(f"- {line}" for line in found.constraints), "Constraints", wrap=True),
        Lines(tuple(f"- {line}" for line in found.execution), "Execution", wrap=True),
        *(_operand(operand) for operand in found.operands),
    ]
    if found.registers:
        parts.append(Facts(tuple(found.registers.items()), "Registers"))
    title = f"Arithmetic: {found.lowering_kind}" + (f", {found.note}" if found.note else "")
    parts.append(Lines(found.steps, title, wrap=True))
    parts.append(Lines((machine or "none is claimed",), "Machine code of one instruction", wrap=True))
    if found.ptx is not None:
        parts.append(Lines((found.ptx,), "PTX", wrap=True))
    return Report(f"{found.mnemonic} on {found.arch}", tuple(parts))


def _shape(m: int, n: int, k: int) -> str:
    """m16n8k16; without M and N what the descriptor leaves, without K the cells that an instruction moves."""
    if not (m or n):
        return f"K {k}; M and N from the instruction descriptor"
    return f"m{m}n{n}k{k}" if k else f"{m} x {n}"


def _operand(operand: OperandDescription) -> Facts:

    size = f"{operand.rows} x {operand.columns} {operand.format}"
    several = f", {operand.matrices} matrices" if operand.matrices > 1 else ""
    held = f"{operand.ptx_registers} x {operand.register_type} in each of {operand.lanes} lanes"
    copies = f", every element {operand.copies} times" if operand.copies > 1 else ""
    pairs = [("registers", held + copies), ("layout", operand.layout), ("index", operand.index)]
    pairs += [(name, f"= {formula}") for name, _, formula in (text.partition(" = ") for text in operand.formulas)]
    return Facts(tuple(pairs), f"Operand {operand.name}: {size}{several}")
