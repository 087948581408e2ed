"""fence and membar.proxy: instructions that order memory accesses and change nothing. What each orders, in words.

Sources: PTX ISA 9.4, section membar / fence; ptxas 13.5.37 and 12.9.86 (targets, versions, SASS). What is here for the groups of
wgmma and for griddepcontrol too: the row, the class and the evidence of an instruction that orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, since
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand
from tcsim.model.row import Row


@dataclass(frozen=True, kw_only=True)
class OrderRow(Row):
    """A spelling that orders memory accesses."""

    orders: str  # a sentence


@dataclass(frozen=True, eq=False, repr=False)
class OrderInstruction(Instruction):
    """A fence, or a wait or commit of a group.

    >>> tcsim.instruction("fence.proxy.async.shared::cta", arch="sm_90").orders
    'accesses to shared memory of the block by ordinary instructions, and those by asynchronous copies and wgmma'
    """

    row: OrderRow

    @property
    def orders(self) -> str:
        """Which accesses come before which."""
        return self.row.orders

    @property
    def rules(self) -> tuple[str, ...]:
        """What it orders."""
        return (f"orders {self.orders}",)

    def execute(self, groups: int = 0) -> None:
        """Nothing: no `execute` here leaves an access outstanding.

        groups: of wait_group, how many of the latest may be pending. Raises OperandError for a negative number.

        >>> tcsim.instruction("wgmma.wait_group.sync.aligned", arch="sm_90a").execute(groups=1)
        """
        if groups < 0:
            raise OperandError(f"{self._call}: groups={groups}: valid: 0 and more")


def manual(section: str) -> Callable[[OrderRow, Arch], Evidence]:
    """The manual's word on documented spellings; others are taken to be as those beside them."""

    def evidence(row: OrderRow, arch: Arch) -> Evidence:
        if not row.documented:
            return Evidence("inferred", f"PTX ISA 9.4, section {section}: the spellings beside it")
        return Evidence("literature", f"PTX ISA 9.4, section {section}")

    return evidence


NAME = "fence"
_PROXY = "proxy"

_VOLTA, _HOPPER = since("sm_70"), since("sm_90")
_EARLY = ("sm_70", "sm_72")
"""Targets of one-way fences, which sm_75 to sm_89 do not have: ptxas 12.9 takes them for these from PTX ISA 6.0 on, ptxas 13.5 for
sm_90 and later from PTX ISA 8.6 on."""
_SCOPES = MappingProxyType({"cta": "the block", "cluster": "the cluster", "gpu": "the GPU", "sys": "the whole system"})
_ONE_WAY = MappingProxyType(
    {
        "acquire": "earlier reads before later accesses, as the second half of a synchronisation, in {}",
        "release": "earlier accesses before later writes, as the first half of a synchronisation, in {}",
    }
)
_ORDINARY, _ASYNC = "by ordinary instructions", "those by asynchronous copies and wgmma"
_MAP = (Operand("address", kind="address", space="generic"), Operand("size", kind="immediate", values=(128,)))


def _row(
    mnemonic: str,
    version: str,
    targets: tuple[str, ...],
    orders: str,
    documented: bool = True,
    operands: tuple[Operand, ...] = (),
    kind: str = "fence",
    early: bool = False,
) -> OrderRow:
    """early: the targets before the gap have it too."""
    first = (Form((), _EARLY, "6.0", "thread"),) if early else ()
    forms = (*first, Form(operands, targets, version, "thread", documented=documented))
    return OrderRow(mnemonic, NAME, arithmetic=kind, documented=documented, forms=forms, orders=orders)


def _fences() -> Iterator[OrderRow]:
    for scope, whose in _SCOPES.items():
        cluster = scope == "cluster"
        targets, version = (_HOPPER, "7.8") if cluster else (_VOLTA, "6.0")
        both = f"earlier accesses before later ones, in {whose}"
        yield _row(f"fence.{scope}", version, targets, both)
        yield _row(f"fence.acq_rel.{scope}", version, targets, both)
        yield _row(f"fence.sc.{scope}", version, targets, f"{both}, and all such fences among themselves")
        for half, text in _ONE_WAY.items():
            yield _row(f"fence.{half}.{scope}", "8.6", _HOPPER, text.format(whose), early=not cluster)
            operands = _MAP if half == "acquire" else ()
            orders = f"writes to a tensor map by ordinary instructions and its use by tensor copies: the {half} half, in {whose}"
            name = f"fence.proxy.tensormap::generic.{half}.{scope}"
            yield _row(name, "8.3", _HOPPER, orders, operands=operands, kind=_PROXY)


def _proxies() -> Iterator[OrderRow]:
    for word, known in (("fence", True), ("membar", False)):
        alias = "accesses to one memory through different virtual addresses"
        yield _row(f"{word}.proxy.alias", "7.5", _VOLTA, alias, kind=_PROXY)
        everywhere = f"accesses to memory {_ORDINARY}, and {_ASYNC}"
        yield _row(f"{word}.proxy.async", "8.0", _HOPPER, everywhere, known, kind=_PROXY)
    for space, where in (
        ("global", "global memory"),
        ("shared::cta", "shared memory of the block"),
        ("shared::cluster", "shared memory of the cluster"),
    ):
        orders = f"accesses to {where} {_ORDINARY}, and {_ASYNC}"
        yield _row(f"fence.proxy.async.{space}", "8.0", _HOPPER, orders, kind=_PROXY)
    for half in _ONE_WAY:
        orders = f"accesses to one memory through different virtual addresses: the {half} half, in the whole system"
        yield _row(f"fence.proxy.alias.{half}.sys", "9.4", _HOPPER, orders, False, kind=_PROXY)
    for half, space, version, known in (
        ("acquire", "shared::cluster", "8.6", True),
        ("release", "shared::cta", "8.6", True),
        ("release", "shared::cluster::read", "9.4", False),
    ):
        orders = f"only {space.replace('::', ' ')}: accesses {_ORDINARY}, and {_ASYNC}: the {half} half, in the cluster"
        name = f"fence.proxy.async::generic.{half}.sync_restrict::{space}.cluster"
        yield _row(name, version, _HOPPER, orders, known, kind=_PROXY)
        if known:
            orders = _ONE_WAY[half].format(f"the cluster, only of {space.replace('::', ' ')}")
            yield _row(f"fence.{half}.sync_restrict::{space}.cluster", "8.6", _HOPPER, orders)
    orders = "the initialisation of barriers before later accesses, for the other blocks of the cluster"
    yield _row("fence.mbarrier_init.release.cluster", "8.0", _HOPPER, orders)


def rows() -> tuple[OrderRow, ...]:
    """Every fence, and membar.proxy."""
    return (*_fences(), *_proxies())


def lowering(row: OrderRow, arch: Arch) -> Lowering:
    """In words: what ptxas emits depends on what is around the instruction."""
    return Lowering("native", (), (), "MEMBAR, FENCE or nothing")


FAMILY = Family(NAME, rows, lowering, manual("membar / fence"), OrderInstruction, "none: it orders memory accesses")
