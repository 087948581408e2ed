"""Probes of fences and groups: they order and change nothing, so that there is nothing to compare; they are assembled only."""

from __future__ import annotations

from collections.abc import Mapping

from hwkernels.probes import Array, Plan
from hwkernels.probes.images import entry
from tcsim.core.targets import TARGETS
from tcsim.isa.fence import order_facts
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row


class OrderBody:
    """The instruction alone."""

    def variants(self, row: Row) -> tuple[str, ...]:
        """An entry point for each list of operands."""
        return tuple(form.name.replace("=", "") for form in order_facts(row).forms)

    def forms_on(self, row: Row, target: str) -> tuple[str, ...]:
        """All of them."""
        return self.variants(row)

    def version_on(self, row: Row, target: str) -> str:
        """The lowest PTX ISA version on the target."""
        later = order_facts(row).hopper_version if TARGETS[target].number >= 90 else ""
        return later or row.ptx_version

    def kernel_on(self, row: Row, name: str, variant: str, target: str) -> str:
        """PTX of the entry point, the same for every target."""
        return self.kernel(row, name, variant)

    def complaint(self, instruction: Instruction, variant: str, target: str, counts: Mapping[str, int]) -> str:
        """The opcodes that the row claims; a fence claims none, since what ptxas makes of it depends on what is around it."""
        return "; ".join(
            f"{name} {counts.get(name, 0)} times instead of {times}"
            for name, times in instruction.lowering.opcodes
            if counts.get(name, 0) != times
        )

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        form = order_facts(row).forms[self.variants(row).index(variant)]
        words = {"address": "[%map]", "size": "128", "groups": form.name.removeprefix("N=")}
        text = " ".join([row.mnemonic, ", ".join(words[operand] for operand in form.operands)]).strip()
        # a group that is never waited for makes ptxas add a wait, and say so
        after = ["wgmma.wait_group.sync.aligned 0;"] if order_facts(row).commits else []
        return entry(name, ("map",), [".reg .u64 %map;", "ld.param.u64 %map, [map];", f"{text};", *after, "ret;"])

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """Never launched.

        Raises ValueError.
        """
        raise ValueError(f"{row.mnemonic} has no result to compare")


BODY = OrderBody()

BODIES = {"fence": BODY, "wgmma.sync": BODY, "griddepcontrol": BODY}
