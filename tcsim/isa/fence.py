"""Instructions that order memory accesses and change nothing: fences, and the groups of wgmma. What each orders, in words.

fence, membar.proxy, and the fence and groups of wgmma: the rows the assembler accepts, and what each orders.

Sources: PTX ISA 9.4, sections membar / fence, wgmma.fence, wgmma.commit_group, wgmma.wait_group; ptxas 13.5.37 and 12.9.86
(targets, versions, SASS). Nothing here changes a state that is modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, since
from tcsim.model.family import Family
from tcsim.model.instruction import Instruction
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row


@dataclass(frozen=True)
class OrderFacts:
    """What a row orders."""

    orders: str  # a sentence
    forms: tuple[OperandForm, ...]
    commits: bool = False  # it makes a group, which something must wait for
    hopper_version: str = ""  # the lowest PTX ISA version from sm_90 on, if not the row's


def order_facts(row: Row) -> OrderFacts:
    """The facts of a row.

    Raises TypeError if it has none.
    """
    if not isinstance(row.facts, OrderFacts):
        raise TypeError(f"{row.mnemonic} is no fence")
    return row.facts


@dataclass(frozen=True, eq=False, repr=False)
class OrderInstruction(Instruction):
    """A fence, or a wait or commit of a group.

    >>> tcsim.instruction("fence.proxy.async.shared::cta", arch="sm_90").orders
    'accesses to shared memory of the block by ordinary instructions, and those by asynchronous copies and wgmma'
    """

    @cached_property
    def orders(self) -> str:
        """Which accesses come before which."""
        return order_facts(self.row).orders

    def execute(self, groups: int = 0) -> None:
        """Nothing: no `execute` here leaves an access outstanding.

        groups: of wait_group, how many of the latest may be pending. Raises OperandError for a negative number.

        >>> tcsim.instruction("wgmma.wait_group.sync.aligned", arch="sm_90a").execute(groups=1)
        """
        if groups < 0:
            raise OperandError(f"{self!r}.execute: groups={groups}: valid: 0 and more")


def bind(row: Row, *rest: Any) -> OrderInstruction:
    """The instruction of a row."""
    return OrderInstruction(row, *rest)


FENCE, WGMMA = "fence", "wgmma.sync"
_PROXY = "proxy"

_VOLTA, _HOPPER = since("sm_70"), since("sm_90")
_EARLY_ONE_WAY = ("sm_70", "sm_72", *_HOPPER)
"""Targets of one-way fences: ptxas 12.9 takes them for sm_70 and sm_72 from PTX ISA 6.0 on, ptxas 13.5 refuses them for sm_75 to
sm_89 and takes them for later ones from PTX ISA 8.6 on."""
_SCOPES = MappingProxyType(
    {"cta": "the block", "cluster": "the cluster", "gpu": "the GPU", "sys": "the whole system"},
)
_ONE_WAY = MappingProxyType(
    {
        "acquire": "earlier reads before later accesses, as the second half of a synchronisation, in {}",
        "release": "earlier accesses before later writes, as the first half of a synchronisation, in {}",
    }
)
_ORDINARY, _ASYNC = "by ordinary instructions", "those by asynchronous copies and wgmma"


def _row(
    family: str,
    mnemonic: str,
    version: str,
    targets: tuple[str, ...],
    orders: str,
    documented: bool = True,
    names: tuple[str, ...] = ("",),
    operands: tuple[str, ...] = (),
    hopper_version: str = "",
    kind: str = "fence",
    commits: bool = False,
) -> Row:
    forms = tuple(OperandForm(name, (), operands, targets, version, documented) for name in names)
    return Row(
        mnemonic,
        family,
        (0, 0, 0),
        MappingProxyType({}),
        targets,
        version,
        kind,
        documented=documented,
        facts=OrderFacts(orders, forms, commits, hopper_version),
    )


def _fences() -> Iterator[Row]:
    for scope, whose in _SCOPES.items():
        cluster = scope == "cluster"
        targets, version = (_HOPPER, "7.8") if cluster else (_VOLTA, "6.0")
        both = f"earlier accesses before later ones, in {whose}"
        yield _row(FENCE, f"fence.{scope}", version, targets, both)
        yield _row(FENCE, f"fence.acq_rel.{scope}", version, targets, both)
        yield _row(FENCE, f"fence.sc.{scope}", version, targets, f"{both}, and all such fences among themselves")
        one_way, first = (_HOPPER, "8.6") if cluster else (_EARLY_ONE_WAY, "6.0")
        for half, text in _ONE_WAY.items():
            yield _row(FENCE, f"fence.{half}.{scope}", first, one_way, text.format(whose), hopper_version="8.6")
            operands = ("address", "size") if half == "acquire" else ()
            told = f"writes to a tensor map by ordinary instructions and its use by tensor copies: the {half} half, in {whose}"
            name = f"fence.proxy.tensormap::generic.{half}.{scope}"
            yield _row(FENCE, name, "8.3", _HOPPER, told, operands=operands, kind=_PROXY)


def _proxies() -> Iterator[Row]:
    for word, known in (("fence", True), ("membar", False)):
        alias = "accesses to one memory through different virtual addresses"
        yield _row(FENCE, f"{word}.proxy.alias", "7.5", _VOLTA, alias, kind=_PROXY)
        everywhere = f"accesses to memory {_ORDINARY}, and {_ASYNC}"
        yield _row(FENCE, f"{word}.proxy.async", "8.0", _HOPPER, everywhere, known, kind=_PROXY)
    for space, where in (
        ("global", "global memory"),
        ("shared::cta", "shared memory of the block"),
        ("shared::cluster", "shared memory of the cluster"),
    ):
        told = f"accesses to {where} {_ORDINARY}, and {_ASYNC}"
        yield _row(FENCE, f"fence.proxy.async.{space}", "8.0", _HOPPER, told, kind=_PROXY)
    for half in _ONE_WAY:
        told = f"accesses to one memory through different virtual addresses: the {half} half, in the whole system"
        yield _row(FENCE, f"fence.proxy.alias.{half}.sys", "9.4", _HOPPER, told, False, kind=_PROXY)
    for half, space, version, known in (
        ("acquire", "shared::cluster", "8.6", True),
        ("release", "shared::cta", "8.6", True),
        ("release", "shared::cluster::read", "9.4", False),
    ):
        told = f"only {space.replace('::', ' ')}: accesses {_ORDINARY}, and {_ASYNC}: the {half} half, in the cluster"
        name = f"fence.proxy.async::generic.{half}.sync_restrict::{space}.cluster"
        yield _row(FENCE, name, version, _HOPPER, told, known, kind=_PROXY)
        if known:
            told = _ONE_WAY[half].format(f"the cluster, only of {space.replace('::', ' ')}")
            yield _row(FENCE, f"fence.{half}.sync_restrict::{space}.cluster", "8.6", _HOPPER, told)
    told = "the initialisation of barriers before later accesses, for the other blocks of the cluster"
    yield _row(FENCE, "fence.mbarrier_init.release.cluster", "8.0", _HOPPER, told)


def fence_rows() -> tuple[Row, ...]:
    """Every fence, and membar.proxy."""
    return (*_fences(), *_proxies())


def wgmma_rows() -> tuple[Row, ...]:
    """The fence and the groups of wgmma."""
    only = ("sm_90a",)
    return (
        _row(WGMMA, "wgmma.fence.sync.aligned", "8.0", only, "earlier accesses to registers before wgmma's"),
        _row(
            WGMMA,
            "wgmma.commit_group.sync.aligned",
            "8.0",
            only,
            "earlier wgmma.mma_async into one group",
            kind="commit_group",
            commits=True,
        ),
        _row(
            WGMMA,
            "wgmma.wait_group.sync.aligned",
            "8.0",
            only,
            "all groups but the latest few before later accesses",
            names=("N=0", "N=1", "N=7"),
            operands=("groups",),
            kind="wait_group",
        ),
    )


def _family(name: str, rows: Callable[[], tuple[Row, ...]], machine: str, section: str, does: str) -> Family[Any]:
    """Machine instructions are told in words: what ptxas emits depends on what is around them."""

    def lowering(row: Row, arch: Arch) -> Lowering:
        return Lowering("native", (), (), machine)

    def evidence(row: Row, arch: Arch) -> Evidence:
        if not row.documented:
            return Evidence("inferred", f"PTX ISA 9.4, section {section}: the spellings beside it")
        return Evidence("literature", f"PTX ISA 9.4, section {section}")

    return Family(name, rows, lowering, evidence, bind, does)


FENCE_FAMILY = _family(
    FENCE, fence_rows, "MEMBAR, FENCE or nothing", "membar / fence", "none: it orders memory accesses"
)
WGMMA_FAMILY = _family(WGMMA, wgmma_rows, "WARPGROUP.ARRIVE or .DEPBAR", "wgmma.mma_async", "none: it orders and waits")
