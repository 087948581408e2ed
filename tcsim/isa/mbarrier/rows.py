"""mbarrier: the rows the assembler accepts, their lists of operands, and what each becomes.

Sources: PTX ISA 7.0 to 9.4, sections Parallel Synchronization and Communication Instructions: mbarrier.*; ptxas 13.5.37
(targets, versions, SASS). What the instructions do is the manual's word; nothing is measured yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import TARGETS, Arch, since
from tcsim.isa.mbarrier.semantics import BarrierFacts, barrier_facts, bind
from tcsim.model.family import Family
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row

NAME = "mbarrier"

_BLOCK = ("", ".shared", ".shared::cta")
_CLUSTER = ".shared::cluster"
_SPACE_VERSION = MappingProxyType({"": "7.0", ".shared": "7.0", ".shared::cta": "7.8", _CLUSTER: "8.0"})
_AMPERE, _HOPPER, _RUBIN = since("sm_80"), since("sm_90"), ("sm_107f", "sm_107a")
_MULTICAST = ".multicast::cluster::32b"


@dataclass(frozen=True)
class _Form:
    """A list of operands, before spaces and memory order narrow where it exists."""

    name: str
    results: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    ptx_version: str = "7.0"
    targets: tuple[str, ...] = _HOPPER
    documented: bool = True


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
    forms: tuple[_Form, ...]
    spaces: tuple[str, ...] = _BLOCK
    orders: tuple[_Order, ...] = (_NONE,)
    ptx_version: str = "7.0"
    suffix: str = ""  # after the space
    undocumented: tuple[str, ...] = ()  # spaces with which the manual does not list it


def _arrivals(stem: str, operation: str, sink_version: str) -> Iterator[_Group]:
    """arrive or arrive_drop: with and without a count, .expect_tx, .noComplete."""
    state, sink = ("state",), ("_",)
    forms: tuple[_Form, ...] = (
        _Form("state", state, (), "7.0", _AMPERE),
        _Form("sink", sink, (), sink_version, _AMPERE),
        _Form("state+count", state, ("count",), "7.8"),
        _Form("sink+count", sink, ("count",), "7.8"),
    )
    yield _Group(stem, operation, forms, (*_BLOCK, _CLUSTER), (*_RELEASE, *_RELAXED))
    forms = (_Form("state", state, ("tx_count",), "8.0"), _Form("sink", sink, ("tx_count",), "8.0"))
    yield _Group(f"{stem}.expect_tx", operation, forms, (*_BLOCK, _CLUSTER), (*_RELEASE, *_RELAXED))
    forms = (
        _Form("state", state, ("count",), "7.0", _AMPERE),
        _Form("sink", sink, ("count",), sink_version, _AMPERE, documented=False),
    )
    yield _Group(f"{stem}.noComplete", operation, forms, _BLOCK, _RELEASE[:2])
    cluster = (_Order(".release.cluster", "8.0", True),)
    for word, operand in (("", "count"), (".expect_tx", "tx_count")):
        forms = (_Form("", sink, (operand, "cta_mask"), "9.4", _RUBIN),)
        yield _Group(f"{stem}{word}", operation, forms, (_CLUSTER,), cluster, suffix=_MULTICAST)


def _waits(operation: str, version: str, parity_version: str, targets: tuple[str, ...]) -> Iterator[_Group]:
    """test_wait or try_wait: by state and by parity, plain, with a time hint, and with a report."""
    for parity in (False, True):
        phase, first = ("parity", parity_version) if parity else ("state", version)
        stem = f"mbarrier.{operation}" + (".parity" if parity else "")
        plain = _Form("", ("complete",), (phase,), first, targets)
        hint = (_Form("hint", ("complete",), (phase, "time_hint"), first, targets),) if operation == "try_wait" else ()
        yield _Group(stem, operation, (plain, *hint), _BLOCK, (*_ACQUIRE, *_RELAXED))
        report = _Form("report", ("complete", "report"), (phase,), "9.3")
        value = _Form("report+value.b8", ("complete", "report", "value"), (phase,), "9.3")
        told = [report, value]
        if hint:
            told += [replace(form, name=f"{form.name};hint", operands=(phase, "time_hint")) for form in (report, value)]
        here = tuple(replace(form, targets=_HOPPER) for form in (plain, *hint))
        orders = (*_ACQUIRE, *_RELAXED)
        yield _Group(f"{stem}.phase_type::primary", operation, (*here, *told), _BLOCK, orders, "9.3")
        if parity:
            yield _Group(f"{stem}.phase_type::conditional", operation, here, _BLOCK, orders, "9.3")


def _groups() -> Iterator[_Group]:
    count = ("count",)
    yield _Group("mbarrier.init", "init", (_Form("", (), count, "7.0", _AMPERE),))
    for layout in ("v0", "v1"):
        yield _Group(f"mbarrier.init.layout::{layout}", "init", (_Form("", (), count, "9.3"),))
        yield _Group(
            f"mbarrier.check_layout.layout::{layout}",
            "check_layout",
            (_Form("", ("matches",), (), "9.3"),),
            undocumented=(".shared",),
        )
    yield _Group("mbarrier.inval", "inval", (_Form("", targets=_AMPERE),))
    for name in ("expect_tx", "complete_tx"):
        form = _Form("", (), ("tx_count",), "8.0")
        yield _Group(f"mbarrier.{name}", name, (form,), (*_BLOCK, _CLUSTER), (_NONE, *_RELAXED_TX))
        form = _Form("", (), ("tx_count", "cta_mask"), "9.4", _RUBIN)
        yield _Group(f"mbarrier.{name}", name, (form,), (_CLUSTER,), _RELAXED_TX[1:], suffix=_MULTICAST)
    yield from _arrivals("mbarrier.arrive", "arrive", "7.1")
    yield from _arrivals("mbarrier.arrive_drop", "arrive_drop", "7.0")
    pending = _Form("", ("pending",), ("state",), "7.0", _AMPERE)
    yield _Group("mbarrier.pending_count", "pending_count", (pending,), ("",))
    yield from _waits("test_wait", "7.0", "7.1", _AMPERE)
    yield from _waits("try_wait", "7.8", "7.8", _HOPPER)


def _version(*versions: str) -> str:
    return max(versions, key=lambda version: tuple(int(part) for part in version.split(".")))


def _form(form: _Form, group: _Group, space: str, order: _Order) -> OperandForm:
    hopper = order.hopper or space == _CLUSTER
    return OperandForm(
        form.name,
        form.results,
        form.operands,
        _HOPPER if hopper and form.targets == _AMPERE else form.targets,
        _version(form.ptx_version, group.ptx_version, order.ptx_version, _SPACE_VERSION[space]),
        form.documented and space not in group.undocumented,
    )


def _row(group: _Group, space: str, order: _Order) -> Row:
    words = group.stem.split(".")
    forms = tuple(
        _form(form, group, space, order)
        for form in group.forms
        if space != _CLUSTER or "state" not in form.results  # from another block no state comes back
    )
    targets = max((form.targets for form in forms), key=len)
    scope = order.text.rpartition(".")[2]
    named = dict(word.split("::") for word in words if "::" in word)  # layout::v0, phase_type::primary
    modifiers = {
        "order": order.text.rpartition(".")[0],
        "scope": f".{scope}" if scope else "",
        "space": space,
        "multicast": group.suffix,
    }
    return Row(
        f"{group.stem}{order.text}{space}{group.suffix}.b64",
        NAME,
        (0, 0, 0),
        MappingProxyType({}),
        targets,
        min((form.ptx_version for form in forms), key=lambda version: tuple(map(int, version.split(".")))),
        group.stem.removeprefix("mbarrier."),
        documented=any(form.documented for form in forms),
        modifiers=MappingProxyType({name: text for name, text in modifiers.items() if text}),
        facts=BarrierFacts(
            group.operation,
            space,
            named.get("layout", ""),
            expect_tx=group.operation.startswith("arrive") and "expect_tx" in words,
            no_complete="noComplete" in words,
            parity="parity" in words,
            multicast=bool(group.suffix),
            forms=forms,
            phase_type=named.get("phase_type", ""),
        ),
    )


def rows() -> tuple[Row, ...]:
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


def opcodes(row: Row, form: OperandForm, arch: Arch) -> tuple[tuple[str, int], ...]:
    """The machine instructions on the barrier that a spelling becomes with one of its lists of operands.

    On sm_107 they may be the same of the uniform datapath, whose names begin with U.
    """
    facts = barrier_facts(row)
    if arch.number < 90:
        return tuple((name, 1) for name in _ampere(facts))
    names = {
        "init": ["SYNCS.EXCH.64"],
        "inval": ["SYNCS.CCTL.IV"],
        "check_layout": ["SYNCS.LD.64"],
        "pending_count": [],
        "test_wait": ["SYNCS.PHASECHK.TRANS64"],
        "try_wait": ["SYNCS.PHASECHK.TRANS64.TRYWAIT"]
        + ["SYNCS.PHASECHK.TRANS64"] * ("time_hint" in form.operands),  # with NANOSLEEP.SYNCS between
    }.get(facts.operation)
    if names is None:
        names = _arrival(facts, form, arch)
    elif facts.operation.endswith("_wait") and arch.name == "sm_107":
        kind = ".PRIMARY" if "report" in form.results else ".CONDITIONAL" if facts.phase_type == "conditional" else ""
        names = [name + kind for name in names]
    return tuple((name, 1) for name in names)


def _ampere(facts: BarrierFacts) -> list[str]:
    if not facts.operation.startswith("arrive") or facts.no_complete:
        return []
    kind = "ATOMS.{}" if facts.space else "ATOM.E.{}.STRONG.SM"
    names = ["ARRIVE.64", *(["POPC.INC.32"] if facts.operation == "arrive_drop" else [])]
    return [kind.format(name) for name in names]


def _arrival(facts: BarrierFacts, form: OperandForm, arch: Arch) -> list[str]:
    """SYNCS.ARRIVE.TRANS64 with what it counts: A arrivals (1, or R: from a register), T bytes (R expected, X complete)."""
    stem = "SYNCS.ARRIVE.TRANS64"
    if facts.operation in ("expect_tx", "complete_tx"):
        name = f"{stem}.RED.A0T{'R' if facts.operation == 'expect_tx' else 'X'}"
        return [name + ".MULTICAST" * facts.multicast]
    one = "ACT0" if arch.name == "sm_107" else "A1T0"
    remote = facts.space in ("", _CLUSTER) and "_" in form.results  # a sink in a space that may be another block's
    words = [stem, *(["TMASK"] if facts.no_complete and "state" in form.results else []), *(["RED"] if remote else [])]
    words += ["OPTOUT"] if facts.operation == "arrive_drop" else []
    if facts.multicast and facts.expect_tx:
        return [f"{stem}.RED.A0TR.MULTICAST", ".".join([*words, one, "MULTICAST"])]
    words += ["ART0"] if "count" in form.operands else [] if facts.expect_tx else [one]
    return [".".join(words) + ".MULTICAST" * facts.multicast]


def lowering(row: Row, arch: Arch) -> Lowering:
    """Machine instructions on the barrier, of the first list of operands that the arch has."""
    facts = barrier_facts(row)
    form = next(form for form in facts.forms if arch.name in {TARGETS[target].arch for target in form.targets})
    notes = _NOTES if arch.number >= 90 else _AMPERE_NOTES
    found = opcodes(row, form, arch)
    return Lowering("native", (), found, "" if found else notes[facts.operation])


_MANUAL = Evidence("literature", "PTX ISA 9.4, sections mbarrier")


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, bind, "none: it counts arrivals and bytes")
