"""clusterlaunchcontrol: the rows the assembler accepts, and what each becomes.

Sources: PTX ISA 9.4, sections clusterlaunchcontrol.try_cancel and .query_cancel; ptxas 13.5.37 (targets, version, SASS).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tcsim.evidence import Evidence
from tcsim.families.plain_rows import plain_row
from tcsim.launch_cancellation import DIMENSIONS, CancelFacts, bind, cancel_facts
from tcsim.operand_form import OperandForm
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch, since, suffixed_since

NAME = "clusterlaunchcontrol"

_BLACKWELL, _OWN = since("sm_100"), suffixed_since("sm_100")
_VERSION = "8.6"


def _row(tail: str, facts: tuple[str, str, bool, str], form: tuple[tuple[str, ...], tuple[str, ...]]) -> Row:
    operation, space, multicast, dimension = facts
    targets = _OWN if multicast else _BLACKWELL
    own = CancelFacts(operation, space, multicast, dimension, (OperandForm("", *form, targets, _VERSION),))
    return plain_row(NAME, f"{NAME}.{tail}", targets, _VERSION, operation, own, {"space": space})


def _rows() -> Iterator[Row]:
    for space, many in product(("", ".shared::cta"), ("", ".multicast::cluster::all")):
        tail = f"try_cancel.async{space}.mbarrier::complete_tx::bytes{many}.b128"
        yield _row(tail, ("try_cancel", space, bool(many), ""), ((), ("barrier",)))
    told = ("response",)
    yield _row("query_cancel.is_canceled.pred.b128", ("is_canceled", "", False, ""), (("canceled",), told))
    every = (*DIMENSIONS, "_")
    yield _row("query_cancel.get_first_ctaid.v4.b32.b128", ("get_first_ctaid", "", False, ""), (every, told))
    for name in DIMENSIONS:
        yield _row(
            f"query_cancel.get_first_ctaid::{name}.b32.b128", ("get_first_ctaid", "", False, name), ((name,), told)
        )


def rows() -> tuple[Row, ...]:
    """try_cancel and query_cancel."""
    return tuple(_rows())


def lowering(row: Row, arch: Arch) -> Lowering:
    """try_cancel is one machine instruction; query_cancel takes bits of the answer with ordinary ones."""
    facts = cancel_facts(row)
    if facts.operation == "try_cancel":
        return Lowering("native", (), (("UGETNEXTWORKID." + ("BROADCAST" if facts.multicast else "SELFCAST"), 1),))
    return Lowering("native", (), (), "plain instructions: shifts and masks")


_ASK = Evidence(
    "literature", "PTX ISA 9.4, section clusterlaunchcontrol.try_cancel; the bits of the answer are query_cancel's"
)
_READ = Evidence(
    "literature",
    "the machine code of clusterlaunchcontrol.query_cancel, ptxas 13.5; PTX ISA 9.4, section clusterlaunchcontrol, calls the answer opaque",
)


def evidence(row: Row, arch: Arch) -> Evidence:
    """The manual's word, and the machine code's for the bits."""
    return _ASK if cancel_facts(row).operation == "try_cancel" else _READ


FAMILY = Family(NAME, rows, lowering, evidence, bind)
