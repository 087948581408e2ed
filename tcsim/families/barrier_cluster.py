"""barrier.cluster: the rows the assembler accepts, and what each orders.

Sources: PTX ISA 9.4, section barrier.cluster; ptxas 13.5.37 (targets, versions, SASS). What they do is the manual's word.
"""

from __future__ import annotations

from itertools import product

from tcsim.cluster_barrier import ClusterBarrierFacts, bind, cluster_barrier_facts
from tcsim.evidence import RECORDED, Evidence
from tcsim.families.plain_rows import plain_row
from tcsim.operand_form import OperandForm
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch, since

NAME = "barrier.cluster"

_TARGETS = since("sm_90")
_RELEASE = "accesses before it, but asynchronous ones, before what other threads of the cluster do after their wait"
_ACQUIRE = (
    "what other threads of the cluster did before their arrive, but asynchronous accesses, before accesses after it"
)
_ORDERS = {
    ("arrive", ""): _RELEASE,
    ("arrive", ".release"): _RELEASE,
    ("arrive", ".relaxed"): "nothing: a fence before it does, if anything must be seen after the wait",
    ("wait", ""): _ACQUIRE,
    ("wait", ".acquire"): _ACQUIRE,
}


def rows() -> tuple[Row, ...]:
    """Every spelling of arrive and wait."""
    found = []
    for ((operation, order), text), aligned in product(_ORDERS.items(), ("", ".aligned")):
        version = "8.0" if order else "7.8"
        facts = ClusterBarrierFacts(operation, text, bool(aligned), (OperandForm("", (), (), _TARGETS, version),))
        name = f"{NAME}.{operation}{order}{aligned}"
        found.append(plain_row(NAME, name, _TARGETS, version, operation, facts, {"order": order, "aligned": aligned}))
    return tuple(found)


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction on the barrier; releasing arrivals have MEMBAR.ALL.GPU before it, waits CCTL.IVALL after it."""
    arrives = cluster_barrier_facts(row).operation == "arrive"
    return Lowering("native", (), (("UCGABAR_ARV" if arrives else "UCGABAR_WAIT", 1),))


_MANUAL = Evidence("literature", "PTX ISA 9.4, section barrier.cluster")


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, bind)
