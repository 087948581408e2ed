"""Probes of fences and groups: they order and change nothing, so that there is nothing to compare; they are assembled only."""

from __future__ import annotations

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.images import entry
from tcsim.isa.fence import OrderRow

GROUPS = (0, 1, 7)
"""Numbers of groups that a wait is assembled with; it takes any."""


class OrderBody(Body):
    """The instruction alone. A fence claims no opcode: what ptxas makes of it depends on what is around it."""

    watched = ()  # of a commit without products ptxas makes an HGMMA

    def variants(self, row: OrderRow) -> tuple[str, ...]:
        """One, or one for each number of groups."""
        return tuple(f"N{number}" for number in GROUPS) if "groups" in row.forms[0] else ("",)

    def kernel(self, row: OrderRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        own = row.forms[-1].statement(row.mnemonic, {"address": "%map", "groups": variant.removeprefix("N")})
        # a group that is never waited for makes ptxas add a wait, and say so
        after = ["wgmma.wait_group.sync.aligned 0;"] if row.operation == "commit_group" else []
        return entry(name, ("map",), [".reg .u64 %map;", "ld.param.u64 %map, [map];", own, *after, "ret;"])

    def plan(self, row: OrderRow, inputs: dict[str, Array]) -> Plan:
        """Never launched.

        Raises ValueError.
        """
        raise ValueError(f"{row.mnemonic} has no result to compare")


BODY = OrderBody()

BODIES = {"fence": BODY, "wgmma.sync": BODY, "griddepcontrol": BODY}
