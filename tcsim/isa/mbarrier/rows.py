"""mbarrier: the rows the assembler accepts, their lists of operands, and what each becomes.

Sources: PTX ISA 7.0 to 9.4, sections Parallel Synchronization and Communication Instructions: mbarrier.*; ptxas 13.5.37
(targets, versions, SASS). What the instructions do is the manual's word; nothing is measured yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import TARGETS, Arch, since
from tcsim.core.versions import PTX_MANUAL, latest
from tcsim.isa.mbarrier.semantics import CLASSES, BarrierRow, barrier_operand
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand, Space
from tcsim.model.row import present

NAME = "mbarrier"

_BLOCK = ("", ".shared", ".shared::cta")
_CLUSTER = ".shared::cluster"
_SPACE_VERSION = MappingProxyType({"": "7.0", ".shared": "7.0", ".shared::cta": "7.8", _CLUSTER: "8.0"})
_SPACES: Mapping[str, Space] = MappingProxyType(
    {"": "generic", ".shared": "shared", ".shared::cta": "shared::cta", _CLUSTER: "shared::cluster"}
)
_AMPERE, _HOPPER, _RUBIN = since("sm_80"), since("sm_90"), ("sm_107f", "sm_107a")
_MULTICAST = ".multicast::cluster::32b"


_STATE, _OLD_STATE = Operand("state", "destination", type=".b64"), Operand("state", type=".b64")
_SINK = Operand("state", "destination", "sink", type=".b64")
_COUNT, _BYTES, _PARITY = Operand("count"), Operand("tx_count"), Operand("parity")
_TIME, _CTAS = Operand("time_hint"), Operand("cta_mask")
_PENDING = Operand("pending", "destination")
_MATCHES, _COMPLETE = (Operand(name, "destination", "predicate", type=".pred") for name in ("matches", "complete"))
_REPORT = Operand("report", "destination", "predicate", type=".pred", joined=True)
_VALUE = Operand("value", "destination", type=".b8")
_HERE = barrier_operand("generic")
"""The barrier; the spelling says in which space."""


def _form(name: str, version: str, targets: tuple[str, ...], *operands: Operand, documented: bool = True) -> Form:
    """A list of operands, before spaces and memory order narrow where it exists."""
    return Form(operands, targets, version, "thread", name=name, documented=documented)


@dataclass(frozen=True)
class _Order:
    """Memory order and scope in a spelling."""

    text: str  # ".release.cta"
    ptx_version: str = "7.0"
    hopper: bool = False  # not before sm_90


_NONE = _Order("")
_RELEASE = (_NONE, _Order(".release.cta", "8.0"), _Order(".release.cluster", "8.0", True))
_ACQUIRE = (_NONE, _Order(".acquire.cta", "8.0"), _Order(".acquire.cluster", "8.0", True))
_RELAXED = (_Order(".relaxed.cta", "8.6", True), _Order(".relaxed.cluster", "8.6", True))
_RELAXED_TX = (_Order(".relaxed.cta", "8.0", True), _Order(".relaxed.cluster", "8.0", True))


@dataclass(frozen=True)
class _Group:
    """Spellings that differ only in state space and memory order."""

    stem: str  # "mbarrier.arrive.expect_tx"
    operation: str
    forms: tuple[Form, ...]
    spaces: tuple[str, ...] = _BLOCK
    orders: tuple[_Order, ...] = (_NONE,)
    ptx_version: str = "7.0"
    suffix: str = ""  # after the space
    undocumented: tuple[str, ...] = ()  # spaces with which the manual does not list it
    layout: str = ""
    phase_type: str = ""
    no_complete: bool = False


def _arrivals(stem: str, operation: str, sink_version: str) -> Iterator[_Group]:
    """arrive or arrive_drop: with and without a count, .expect_tx, .noComplete."""
    forms: tuple[Form, ...] = (
        _form("state", "7.0", _AMPERE, _STATE, _HERE),
        _form("sink", sink_version, _AMPERE, _SINK, _HERE),
        _form("state+count", "7.8", _HOPPER, _STATE, _HERE, _COUNT),
        _form("sink+count", "7.8", _HOPPER, _SINK, _HERE, _COUNT),
    )
    yield _Group(stem, operation, forms, (*_BLOCK, _CLUSTER), (*_RELEASE, *_RELAXED))
    forms = tuple(_form(name, "8.0", _HOPPER, to, _HERE, _BYTES) for name, to in (("state", _STATE), ("sink", _SINK)))
    yield _Group(f"{stem}.expect_tx", operation, forms, (*_BLOCK, _CLUSTER), (*_RELEASE, *_RELAXED))
    forms = (
        _form("state", "7.0", _AMPERE, _STATE, _HERE, _COUNT),
        _form("sink", sink_version, _AMPERE, _SINK, _HERE, _COUNT, documented=False),
    )
    yield _Group(f"{stem}.noComplete", operation, forms, _BLOCK, _RELEASE[:2], no_complete=True)
    orders = (*_RELEASE, *_RELAXED)
    for word, operand in (("", _COUNT), (".expect_tx", _BYTES)):
        forms = (_form("", "9.4", _RUBIN, _SINK, _HERE, operand, _CTAS),)
        yield _Group(f"{stem}{word}", operation, forms, (_CLUSTER,), orders, suffix=_MULTICAST)


def _waits(operation: str, version: str, parity_version: str, targets: tuple[str, ...]) -> Iterator[_Group]:
    """test_wait or try_wait: by state and by parity, plain, with a time hint, and with a report."""
    orders = (*_ACQUIRE, *_RELAXED)
    hints: tuple[tuple[str, tuple[Operand, ...]], ...] = (("", ()), ("hint", (_TIME,)))
    for phase, first, word in ((_OLD_STATE, version, ""), (_PARITY, parity_version, ".parity")):
        stem, taken = f"mbarrier.{operation}{word}", hints[: 2 if operation == "try_wait" else 1]
        plain = tuple(_form(name, first, targets, _COMPLETE, _HERE, phase, *time) for name, time in taken)
        yield _Group(stem, operation, plain, _BLOCK, orders)
        reports = tuple(
            _form(f"{name};{hint}".rstrip(";"), "9.3", _HOPPER, _COMPLETE, _REPORT, *value, _HERE, phase, *time)
            for hint, time in taken
            for name, value in (("report", ()), ("report+value.b8", (_VALUE,)))
        )
        here = tuple(replace(form, targets=_HOPPER) for form in plain)
        for kind, forms in (("primary", (*here, *reports)), *((("conditional", here),) if word else ())):
            yield _Group(f"{stem}.phase_type::{kind}", operation, forms, _BLOCK, orders, "9.3", phase_type=kind)


def _groups() -> Iterator[_Group]:
    yield _Group("mbarrier.init", "init", (_form("", "7.0", _AMPERE, _HERE, _COUNT),))
    for layout in ("v0", "v1"):
        yield _Group(
            f"mbarrier.init.layout::{layout}", "init", (_form("", "9.3", _HOPPER, _HERE, _COUNT),), layout=layout
        )
        matches = (_form("", "9.3", _HOPPER, _MATCHES, _HERE),)
        stem = f"mbarrier.check_layout.layout::{layout}"
        yield _Group(stem, "check_layout", matches, undocumented=(".shared",), layout=layout)
    yield _Group("mbarrier.inval", "inval", (_form("", "7.0", _AMPERE, _HERE),))
    for name in ("expect_tx", "complete_tx"):
        form = _form("", "8.0", _HOPPER, _HERE, _BYTES)
        yield _Group(f"mbarrier.{name}", name, (form,), (*_BLOCK, _CLUSTER), (_NONE, *_RELAXED_TX))
        form = _form("", "9.4", _RUBIN, _HERE, _BYTES, _CTAS)
        yield _Group(f"mbarrier.{name}", name, (form,), (_CLUSTER,), (_NONE, *_RELAXED_TX), suffix=_MULTICAST)
    yield from _arrivals("mbarrier.arrive", "arrive", "7.1")
    yield from _arrivals("mbarrier.arrive_drop", "arrive_drop", "7.0")
    yield _Group("mbarrier.pending_count", "pending_count", (_form("", "7.0", _AMPERE, _PENDING, _OLD_STATE),), ("",))
    yield from _waits("test_wait", "7.0", "7.1", _AMPERE)
    yield from _waits("try_wait", "7.8", "7.8", _HOPPER)


def _narrowed(form: Form, group: _Group, space: str, order: _Order) -> Form:
    hopper = order.hopper or space == _CLUSTER
    here = barrier_operand(_SPACES[space])
    return replace(
        form,
        operands=tuple(here if operand is _HERE else operand for operand in form.operands),
        targets=_HOPPER if hopper and form.targets == _AMPERE else form.targets,
        ptx_version=latest(form.ptx_version, group.ptx_version, order.ptx_version, _SPACE_VERSION[space]),
        documented=form.documented and space not in group.undocumented,
    )


def _row(group: _Group, space: str, order: _Order) -> BarrierRow:
    forms = tuple(
        _narrowed(form, group, space, order)
        for form in group.forms
        if space != _CLUSTER or "state" not in form.results  # from another block no state comes back
    )
    scope = order.text.rpartition(".")[2]
    return BarrierRow(
        f"{group.stem}{order.text}{space}{group.suffix}.b64",
        NAME,
        arithmetic=group.stem.removeprefix("mbarrier."),
        documented=any(form.documented for form in forms),
        modifiers=present(
            order=order.text.rpartition(".")[0],
            scope=f".{scope}" if scope else "",
            space=space,
            multicast=group.suffix,
        ),
        forms=forms,
        operation=group.operation,
        may_wait=group.operation == "try_wait",
        layout=group.layout,
        phase_type=group.phase_type,
        no_complete=group.no_complete,
    )


def rows() -> tuple[BarrierRow, ...]:
    """Every spelling of mbarrier; each may take several lists of operands."""
    return tuple(
        _row(group, space, order) for group in _groups() for order, space in product(group.orders, group.spaces)
    )


_PLAIN = "plain instructions: "
_NOTES = MappingProxyType({"pending_count": _PLAIN + "a shift, a mask, a subtraction"})
_AMPERE_NOTES = MappingProxyType(
    {
        "init": _PLAIN + "a 64-bit store",
        "inval": "nothing at all",
        "pending_count": _PLAIN + "a mask, a subtraction",
        "test_wait": _PLAIN + "a load, a test of bit 63",
        "arrive": "an atomic add to the pending arrivals",  # .noComplete
        "arrive_drop": "atomic adds to the pending and the expected arrivals",  # .noComplete
    }
)


def opcodes(row: BarrierRow, form: Form, arch: Arch) -> tuple[tuple[str, int], ...]:
    """The machine instructions on the barrier that a spelling becomes with one of its lists of operands.

    On sm_107 they may be the same of the uniform datapath, whose names begin with U.
    """
    if arch.number < 90:
        return tuple((name, 1) for name in _ampere(row))
    names = {
        "init": ["SYNCS.EXCH.64"],
        "inval": ["SYNCS.CCTL.IV"],
        "check_layout": ["SYNCS.LD.64"],
        "pending_count": [],
        "test_wait": ["SYNCS.PHASECHK.TRANS64"],
        "try_wait": ["SYNCS.PHASECHK.TRANS64.TRYWAIT"]
        + ["SYNCS.PHASECHK.TRANS64"] * ("time_hint" in form),  # with NANOSLEEP.SYNCS between
    }.get(row.operation)
    if names is None:
        names = _arrival(row, form, arch)
    elif row.waits and arch.name == "sm_107":
        kind = ".PRIMARY" if "report" in form.results else ".CONDITIONAL" if row.phase_type == "conditional" else ""
        names = [name + kind for name in names]
    return tuple((name, 1) for name in names)


def _ampere(row: BarrierRow) -> list[str]:
    if not row.arrives or row.no_complete:
        return []
    kind = "ATOM.E.{}.STRONG.SM" if row.space == "generic" else "ATOMS.{}"
    names = ["ARRIVE.64", *(["POPC.INC.32"] if row.operation == "arrive_drop" else [])]
    return [kind.format(name) for name in names]


def _arrival(row: BarrierRow, form: Form, arch: Arch) -> list[str]:
    """SYNCS.ARRIVE.TRANS64 with what it counts: A arrivals (1, or R: from a register), T bytes (R expected, X complete)."""
    stem = "SYNCS.ARRIVE.TRANS64"
    if row.operation in ("expect_tx", "complete_tx"):
        name = f"{stem}.RED.A0T{'R' if row.operation == 'expect_tx' else 'X'}"
        return [name + ".MULTICAST" * row.has("cta_mask")]
    one = "ACT0" if arch.name == "sm_107" else "A1T0"
    # a sink in a space that may be another block's
    remote = row.space in ("generic", "shared::cluster") and "state" not in form.results
    words = [stem, *(["TMASK"] if row.no_complete and "state" in form.results else []), *(["RED"] if remote else [])]
    words += ["OPTOUT"] if row.operation == "arrive_drop" else []
    if row.has("cta_mask") and row.has("tx_count"):
        return [f"{stem}.RED.A0TR.MULTICAST", ".".join([*words, one, "MULTICAST"])]
    words += ["ART0"] if "count" in form else [] if row.has("tx_count") else [one]
    return [".".join(words) + ".MULTICAST" * row.has("cta_mask")]


def lowering(row: BarrierRow, arch: Arch) -> Lowering:
    """Machine instructions on the barrier, of the first list of operands that the arch has."""
    own = (form for form in row.forms if arch.name in {TARGETS[target].arch for target in form.targets})
    form = next(own, row.forms[0])
    notes = _NOTES if arch.number >= 90 else _AMPERE_NOTES
    found = opcodes(row, form, arch)
    return Lowering("native", (), found, "" if found else notes[row.operation])


_MANUAL = Evidence("literature", f"{PTX_MANUAL}, sections mbarrier")


def evidence(row: BarrierRow, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, CLASSES, "none: it counts arrivals and bytes")
