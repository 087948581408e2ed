"""wgmma.fence, wgmma.commit_group and wgmma.wait_group: what they order between registers, groups and later accesses, in words.

Sources: PTX ISA, sections wgmma.fence, wgmma.commit_group, wgmma.wait_group; ptxas 13.5.37 (targets, versions, SASS). Nothing
here changes a state that is modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcsim.arithmetic.steps import Lowering
from tcsim.core.targets import Arch
from tcsim.isa.fence import OrderInstruction, OrderRow, manual
from tcsim.model.effects import Array, Effects, GroupOp, Order, View
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand

NAME = "wgmma.sync"

_GROUPS = Operand("groups", kind="immediate", per="warpgroup")
_SPELLINGS: tuple[tuple[str, tuple[Operand, ...], str], ...] = (
    ("fence", (), "earlier accesses to registers before wgmma's"),
    ("commit_group", (), "earlier wgmma.mma_async into one group"),
    ("wait_group", (_GROUPS,), "all groups but the latest few before later accesses"),
)


@dataclass(frozen=True, eq=False, repr=False)
class WarpgroupOrder(OrderInstruction):
    """wgmma.fence, wgmma.commit_group and wgmma.wait_group."""

    @property
    def changes_nothing(self) -> bool:  # type: ignore[override]
        """Of the fence alone: the others close groups and wait for them."""
        return self.row.operation == "fence"

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """An order of registers, or what happens to the warpgroup's groups."""
        if self.row.operation == "fence":
            return Effects(orders=(Order("wgmma.fence", ("generic", "async"), scope="cta"),))
        if self.row.operation == "commit_group":
            return Effects(groups=(GroupOp("wgmma", "commit"),))
        return Effects(groups=(GroupOp("wgmma", "wait", int(operands["groups"])),))


def rows() -> tuple[OrderRow, ...]:
    """The fence and the two instructions for groups."""
    return tuple(
        OrderRow(
            f"wgmma.{word}.sync.aligned", NAME, arithmetic=word, operation=word, orders=orders,
            forms=(Form(operands, ("sm_90a",), "8.0", together="warpgroup", agent="warpgroup"),),
        )
        for word, operands, orders in _SPELLINGS
    )  # fmt: skip


def lowering(row: OrderRow, arch: Arch) -> Lowering:
    """In words: what ptxas emits depends on what is around the instruction."""
    return Lowering("native", (), (), "WARPGROUP.ARRIVE or .DEPBAR")


FAMILY = Family(NAME, rows, lowering, manual("wgmma.mma_async"), WarpgroupOrder, "none: it orders and waits")
