"""fence and membar.proxy: instructions that order memory accesses and change nothing. What each orders, in words.

Sources: PTX ISA, section membar / fence; ptxas 13.5.37 and 12.9.86 (targets, versions, SASS). What is here for the groups of
wgmma and for griddepcontrol too: the row, the class and the evidence of an instruction that orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.copies import MAP_BOUNDARY, MAP_SPACES, object_at
from tcsim.model.effects import Array, Effects, Order, Semantics, View
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand, Proxy, Scope, Space
from tcsim.model.row import Row
from tcsim.tma.bits import BYTES


@dataclass(frozen=True, kw_only=True)
class OrderRow(Row):
    """A spelling that orders memory accesses."""

    orders: str  # a sentence
    order: str = "fence"  # what it is as an `Order`: "fence", "fence.sc", "fence.proxy", "fence.mbarrier_init"
    proxies: tuple[Proxy, ...] = ("generic",)  # whose accesses are ordered with each other
    spaces: tuple[Space, ...] = ()  # of accesses in these state spaces; empty: in all
    sem: Semantics = "acq_rel"
    scope: Scope = "sys"


@dataclass(frozen=True, eq=False, repr=False)
class OrderInstruction(Instruction):
    """A fence, or a wait or commit of a group.

    >>> tcsim.instruction("fence.proxy.async.shared::cta", arch="sm_90").orders
    'accesses to shared memory of the block by ordinary instructions, and those by asynchronous copies and wgmma'
    """

    batched = True

    row: OrderRow
    changes_nothing = True

    @property
    def cuts(self) -> bool:  # type: ignore[override]
        """Of fences those of memory."""
        return self.row.family == NAME and self.row.order in ("fence", "fence.sc")

    @property
    def orders(self) -> str:
        """Which accesses come before which."""
        return self.row.orders

    @property
    def rules(self) -> tuple[str, ...]:
        """What it orders."""
        return (f"orders {self.orders}",)

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The order, and the object that it is for; of that nothing is touched."""
        row = self.row
        objects = (object_at(form["address"], operands["address"], BYTES),) if "address" in form else ()
        return Effects(reads=objects, orders=(Order(row.order, row.proxies, row.spaces, row.sem, row.scope),))

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
            return Evidence("inferred", f"{PTX_MANUAL}, section {section}: the spellings beside it")
        return Evidence("literature", f"{PTX_MANUAL}, section {section}")

    return evidence


NAME = "fence"
_PROXY = "proxy"

_VOLTA, _HOPPER = since("sm_70"), since("sm_90")
_EARLY = ("sm_70", "sm_72")
"""Targets of one-way fences, which sm_75 to sm_89 do not have: ptxas 12.9 takes them for these from PTX ISA 6.0 on, ptxas 13.5 for
sm_90 and later from PTX ISA 8.6 on."""
_SCOPES: Mapping[Scope, str] = MappingProxyType(
    {"cta": "the block", "cluster": "the cluster", "gpu": "the GPU", "sys": "the whole system"}
)
_ONE_WAY: Mapping[Semantics, str] = MappingProxyType(
    {
        "acquire": "earlier reads before later accesses, as the second half of a synchronisation, in {}",
        "release": "earlier accesses before later writes, as the first half of a synchronisation, in {}",
    }
)
_ORDINARY, _ASYNC = "by ordinary instructions", "those by asynchronous copies and wgmma"
_MAP = (
    Operand("address", kind="address", space="generic", within=MAP_SPACES, boundary=MAP_BOUNDARY),
    Operand("size", kind="immediate", values=(BYTES,)),
)


def _row(
    mnemonic: str,
    version: str,
    targets: tuple[str, ...],
    orders: str,
    documented: bool = True,
    operands: tuple[Operand, ...] = (),
    kind: str = "fence",
    early: bool = False,
    sem: Semantics = "acq_rel",
    scope: Scope = "sys",
    proxies: tuple[Proxy, ...] = ("generic",),
    spaces: tuple[Space, ...] = (),
    order: str = "",
) -> OrderRow:
    """early: the targets before the gap have it too."""
    first = (Form((), _EARLY, "6.0", "thread"),) if early else ()
    forms = (*first, Form(operands, targets, version, "thread", documented=documented))
    return OrderRow(
        mnemonic, NAME, arithmetic=kind, documented=documented, forms=forms, orders=orders, proxies=proxies,
        spaces=spaces, sem=sem, scope=scope, order=order or {_PROXY: "fence.proxy"}.get(kind, "fence"),
    )  # fmt: skip


def _fences() -> Iterator[OrderRow]:
    halves: tuple[Semantics, ...] = ("acquire", "release")
    for scope, whose in _SCOPES.items():
        cluster = scope == "cluster"
        targets, version = (_HOPPER, "7.8") if cluster else (_VOLTA, "6.0")
        both = f"earlier accesses before later ones, in {whose}"
        yield _row(f"fence.{scope}", version, targets, both, scope=scope)
        yield _row(f"fence.acq_rel.{scope}", version, targets, both, scope=scope)
        all_alike = f"{both}, and all such fences among themselves"
        yield _row(f"fence.sc.{scope}", version, targets, all_alike, scope=scope, order="fence.sc")
        for half in halves:
            orders = _ONE_WAY[half].format(whose)
            yield _row(f"fence.{half}.{scope}", "8.6", _HOPPER, orders, early=not cluster, sem=half, scope=scope)
            operands = _MAP if half == "acquire" else ()
            orders = f"writes to a tensor map by ordinary instructions and its use by tensor copies: the {half} half, in {whose}"
            name = f"fence.proxy.tensormap::generic.{half}.{scope}"
            yield _row(
                name, "8.3", _HOPPER, orders, operands=operands, kind=_PROXY, sem=half, scope=scope,
                proxies=("generic", "tensormap"),
            )  # fmt: skip


def _proxies() -> Iterator[OrderRow]:
    aliases: tuple[Proxy, ...] = ("generic", "alias")
    both: tuple[Proxy, ...] = ("generic", "async")
    shared: tuple[Space, ...] = ("shared",)
    for word, known in (("fence", True), ("membar", False)):
        alias = "accesses to one memory through different virtual addresses"
        yield _row(f"{word}.proxy.alias", "7.5", _VOLTA, alias, kind=_PROXY, proxies=aliases)
        everywhere = f"accesses to memory {_ORDINARY}, and {_ASYNC}"
        yield _row(f"{word}.proxy.async", "8.0", _HOPPER, everywhere, known, kind=_PROXY, proxies=both)
    windows: tuple[tuple[str, str, tuple[Space, ...], Scope], ...] = (
        ("global", "global memory", ("global",), "sys"),
        ("shared::cta", "shared memory of the block", shared, "cta"),
        ("shared::cluster", "shared memory of the cluster", shared, "cluster"),
    )
    for name, where, spaces, scope in windows:
        orders = f"accesses to {where} {_ORDINARY}, and {_ASYNC}"
        yield _row(
            f"fence.proxy.async.{name}", "8.0", _HOPPER, orders, kind=_PROXY, proxies=both, spaces=spaces, scope=scope
        )
    halves: tuple[Semantics, ...] = ("acquire", "release")
    for half in halves:
        orders = f"accesses to one memory through different virtual addresses: the {half} half, in the whole system"
        yield _row(
            f"fence.proxy.alias.{half}.sys", "9.4", _HOPPER, orders, False, kind=_PROXY, sem=half, proxies=aliases
        )
    orders = "earlier reads of a memory through other virtual addresses before later writes, in the whole system"
    name = "fence.alias.sync_restrict::read.release.sys"
    yield _row(name, "9.5", _HOPPER, orders, False, kind=_PROXY, sem="release", proxies=aliases)
    restricted: tuple[tuple[Semantics, str, str, bool, Scope], ...] = (
        ("acquire", "shared::cluster", "8.6", True, "cluster"),
        ("release", "shared::cta", "8.6", True, "cluster"),
        ("release", "shared::cluster::read", "9.4", False, "cluster"),
        ("release", "shared::cluster::read", "9.4", False, "cta"),
    )
    for half, space, version, known, scope in restricted:
        whose = _SCOPES[scope]
        orders = f"only {space.replace('::', ' ')}: accesses {_ORDINARY}, and {_ASYNC}: the {half} half, in {whose}"
        name = f"fence.proxy.async::generic.{half}.sync_restrict::{space}.{scope}"
        row = partial(_row, sem=half, scope=scope, spaces=shared)
        yield row(name, version, _HOPPER, orders, known, kind=_PROXY, proxies=both)
        if known:
            orders = _ONE_WAY[half].format(f"the cluster, only of {space.replace('::', ' ')}")
            yield row(f"fence.{half}.sync_restrict::{space}.cluster", "8.6", _HOPPER, orders)
    orders = "the initialisation of barriers before later accesses, for the other blocks of the cluster"
    yield _row(
        "fence.mbarrier_init.release.cluster", "8.0", _HOPPER, orders, sem="release", scope="cluster", spaces=shared,
        order="fence.mbarrier_init",
    )  # fmt: skip


def rows() -> tuple[OrderRow, ...]:
    """Every fence, and membar.proxy."""
    return (*_fences(), *_proxies())


def lowering(row: OrderRow, arch: Arch) -> Lowering:
    """In words: what ptxas emits depends on what is around the instruction."""
    return Lowering("native", (), (), "MEMBAR, FENCE or nothing")


FAMILY = Family(
    NAME, rows, lowering, manual("membar / fence"), OrderInstruction, "none: it orders memory accesses", ("membar",)
)
