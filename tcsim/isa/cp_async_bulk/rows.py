"""cp.async.bulk and cp.reduce.async.bulk: the rows the assembler accepts, and what each becomes.

Sources: PTX ISA 8.0 to 9.4, sections cp.async.bulk, cp.reduce.async.bulk, cp.async.bulk.prefetch, cp.async.bulk.commit_group,
cp.async.bulk.wait_group, applypriority.async.bulk; ptxas 13.5.37 (targets, versions, SASS). What they do is the manual's
word; nothing is measured yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from types import MappingProxyType
from typing import Any

from tcsim.arithmetic.reduction import Reduction
from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import TARGETS, Arch, since, suffixed_since
from tcsim.core.versions import PTX_MANUAL, latest
from tcsim.isa.copies import CACHE_POLICY, PENDING_GROUPS, WAITS, CopyRow
from tcsim.isa.cp_async_bulk.semantics import CLASSES
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand, Role, Space

COPY, REDUCE = "cp.async.bulk", "cp.reduce.async.bulk"

_HOPPER, _BLACKWELL, _RUBIN = since("sm_90"), since("sm_100"), ("sm_107f", "sm_107a")
_TMA = ("sm_90a", *(target for target in suffixed_since("sm_100") if TARGETS[target].number < 120))
"""Targets of the relaxed copies from global memory to .shared::cluster."""
_TO_BARRIER, _GROUP, _HINT = ".mbarrier::complete_tx::bytes", ".bulk_group", ".L2::cache_hint"
_SCOPES = MappingProxyType({"cta": "SM", "cluster": "GPU", "gpu": "GPU", "sys": "SYS"})
"""Scopes of relaxed copies, and how the machine code calls them."""
_PATTERNS = MappingProxyType(
    {
        "per_16bytes::80000000": "80000000",
        "per_16bytes::8000": "XXXX8000",
        "per_16bytes::80": "XXXXXX80",
        "per_16bytes::8": "XXXXXXX8",
        "per_element::ff": "EVERY_FF",
    }
)
"""What .mbarrier::report::validity looks for, and how the machine code calls it."""


_SIZE, _BYTES = Operand("size"), Operand("byte_mask", type=".b16")
_ENDS = (Operand("ignore_left"), Operand("ignore_right"))


def _address(name: str, role: Role, space: Space) -> Operand:
    return Operand(name, role, "address", type=".b64" if space == "global" else ".b32", space=space, proxy="async")


def _row(
    family: str,
    mnemonic: str,
    version: str,
    targets: tuple[str, ...],
    arithmetic: str,
    operands: tuple[Operand, ...],
    operation: str = "copy",
    names: Iterable[str] = ("",),
    **facts: Any,
) -> CopyRow:
    forms = tuple(Form(operands, targets, version, "thread", name=name) for name in names)
    return CopyRow(mnemonic, family, forms=forms, arithmetic=arithmetic, operation=operation, **facts)


def _moved(source: Space, destination: Space, *after: Operand, role: Role = "destination") -> tuple[Operand, ...]:
    """The operands of a copy; one that does not complete through a group has a barrier before what follows the ends."""
    ends, late = [part for part in after if part in _ENDS], [part for part in after if part not in _ENDS]
    barrier = () if destination == "global" else (_address("barrier", "both", destination),)
    return (
        _address("destination", role, destination),
        _address("source", "source", source),
        _SIZE,
        *ends,
        *barrier,
        *late,
    )


def _in() -> Iterator[CopyRow]:
    """From global memory to shared memory."""
    spaces: tuple[tuple[Space, str], ...] = (("shared::cta", "8.6"), ("shared::cluster", "8.0"))
    for hint, (space, version) in product(("", _HINT), spaces):
        policy = (CACHE_POLICY,) if hint else ()
        # what follows the barrier in the name, its first version, targets, operands, what it adds to the opcode, whether it reports
        endings: list[tuple[str, str, tuple[str, ...], tuple[Operand, ...], str, bool]] = [
            ("", version, _HOPPER, (), "", False)
        ]
        if space == "shared::cta":
            endings.append((".ignore_oob", "9.2", _HOPPER, _ENDS, "", False))
        else:
            endings += [
                (f".multicast::cluster{width}", first, targets, (Operand("cta_mask", type=f".b{bits}"),), mark, False)
                for width, first, targets, mark, bits in (
                    ("", "8.0", _HOPPER, ".MULTICAST", 16),
                    ("::16b", "9.4", _HOPPER, ".MULTICAST", 16),
                    ("::32b", "9.4", _RUBIN, ".MULTICAST32", 32),
                )
            ]
        report = ".mbarrier::report::"
        endings.append((f"{report}disabled", "9.4", _RUBIN, (), "", False))
        endings += [
            (f"{report}validity::{pattern}", "9.4", _RUBIN, (), f".VALIDCHK_{mark}", True)
            for pattern, mark in _PATTERNS.items()
        ]
        arithmetic, stem = f"copy {space} from global", f".{space}.global{_TO_BARRIER}"
        for word, first, targets, own, mark, reports in endings:
            operands = _moved("global", space, *own, *policy)
            name, least, opcode = f"{COPY}{stem}{word}{hint}", latest(first, version), f"UBLKCP.S.G{mark}"
            yield _row(COPY, name, least, targets, arithmetic, operands, opcode=opcode, reports=reports)
        for scope, mark in _SCOPES.items():
            targets = _HOPPER if space == "shared::cta" else _TMA
            name, operands = f"{COPY}.relaxed.{scope}{stem}{hint}.b128", _moved("global", space, *policy)
            yield _row(COPY, name, "9.3", targets, arithmetic, operands, opcode=f"UBLKCP.S.G.STRONG.{mark}")


def _out() -> Iterator[CopyRow]:
    """From shared memory to global memory."""
    for masked, hint in product((False, True), ("", _HINT)):
        operands = _moved("shared::cta", "global", *((CACHE_POLICY,) if hint else ()), *((_BYTES,) if masked else ()))
        tail = f".global.shared::cta{_GROUP}{hint}" + (".cp_mask" if masked else "")
        code = "UBLKCP.G.S" + (".DST_G_BYTE_MASK" if masked else "")
        targets, first = (_BLACKWELL, "8.6") if masked else (_HOPPER, "8.0")
        for order, version, strong in (
            ("", first, ""),
            (".weak", "9.3", ""),
            *((f".relaxed.{scope}", "9.3", mark) for scope, mark in _SCOPES.items()),
        ):
            name, opcode = (
                f"{COPY}{order}{tail}{'.b128' if strong else ''}",
                code + (f".STRONG.{strong}" if strong else ""),
            )
            arithmetic = "copy global from shared::cta"
            yield _row(COPY, name, version, targets, arithmetic, operands, opcode=opcode, group="bulk")


def _across() -> Iterator[CopyRow]:
    """From the shared memory of one block to another's."""
    tail, operands = f".shared::cluster.shared::cta{_TO_BARRIER}", _moved("shared::cta", "shared::cluster")
    for order, version, strong in (
        ("", "8.0", ""),
        (".weak", "9.3", ""),
        *((f".relaxed.{scope}", "9.3", _SCOPES[scope]) for scope in ("cta", "cluster")),
    ):
        end, mark = (".b128", f".STRONG.{strong}") if strong else ("", "")
        name, arithmetic = f"{COPY}{order}{tail}{end}", "copy shared::cluster from shared::cta"
        yield _row(COPY, name, version, _HOPPER, arithmetic, operands, opcode=f"UBLKCP.S.S{mark}")


def _others() -> Iterator[CopyRow]:
    """Groups and caches."""
    name = f"{COPY}.commit_group"
    yield _row(COPY, name, "8.0", _HOPPER, "commit_group", (), "commit", opcode="UTMACMDFLUSH", group="bulk")
    for word, reads, version in (
        ("wait_group", False, "8.0"),
        ("wait_group.read", True, "8.0"),
        ("wait_group.sync_restrict::proxy::async", False, "9.5"),
    ):
        facts: dict[str, Any] = {"group": "bulk", "reads_only": reads}
        yield _row(COPY, f"{COPY}.{word}", version, _HOPPER, word, (PENDING_GROUPS,), "wait", WAITS, **facts)
    operands = (_address("source", "source", "global"), _SIZE)
    stem = f"{COPY}.prefetch.L2.global"
    for word, version, targets, more, opcode in (
        ("", "8.0", _HOPPER, (), "UBLKPF.L2"),
        (_HINT, "8.0", _HOPPER, (CACHE_POLICY,), "UBLKPF.L2"),
        (".L2::evict_last", "9.4", _RUBIN, (), "UBLKL2CCTL.PM"),
    ):
        yield _row(COPY, stem + word, version, targets, "prefetch", (*operands, *more), "prefetch", opcode=opcode)
    name = "applypriority.async.bulk.global.bulk_group.L2::evict_normal"
    facts = {"opcode": "UBLKL2CCTL.DM", "group": "bulk", "alignment": 128}
    yield _row(COPY, name, "9.4", _RUBIN, "applypriority", operands, "prefetch", **facts)


def rows() -> tuple[CopyRow, ...]:
    """Every cp.async.bulk spelling, and applypriority.async.bulk."""
    return (*_in(), *_out(), *_across(), *_others())


_BITS = tuple((name, type) for name in ("and", "or", "xor") for type in ("b32", "b64"))
_INTEGERS = (
    *(("add", type) for type in ("u32", "s32", "u64")),
    ("inc", "u32"),
    ("dec", "u32"),
    *((name, type) for name in ("min", "max") for type in ("u32", "s32", "u64", "s64")),
)
_FLOATS = (
    *(("add.noftz", type) for type in ("f16", "bf16", "f32")),
    *(("add", type) for type in ("f32", "f64")),
    *((name, type) for name in ("min", "max") for type in ("f16", "bf16")),
)
_WITHIN_CLUSTER = frozenset({*((n, "b32") for n in ("and", "or", "xor")), ("add", "u64"),
                             *((n, t) for n, t in _INTEGERS if t in ("u32", "s32"))})  # fmt: skip
_TYPES = MappingProxyType({"u32": "", "b32": "", "s32": ".S32", "u64": ".U64", "b64": ".U64", "s64": ".S64",
                           "f16": ".F16.RN", "bf16": ".BF16.RN", "f32": ".F32.RN", "f64": ".F64.RN"})  # fmt: skip


def reduce_rows() -> tuple[CopyRow, ...]:
    """Every cp.reduce.async.bulk spelling."""
    found = []
    for name, type in (*_BITS, *_INTEGERS, *_FLOATS):
        operation = name.removesuffix(".noftz")
        version = "9.4" if (name, type) == ("add.noftz", "f32") else "8.0"
        kinds: list[tuple[Space, str, str]] = [("global", "", version), ("global", _HINT, version)]
        if (name, type) in _WITHIN_CLUSTER:
            kinds.insert(0, ("shared::cluster", "", "8.0"))
        for space, hint, first in kinds:
            outward = space == "global"
            tail = f".{space}.shared::cta{_GROUP if outward else _TO_BARRIER}{hint}.{name}.{type}"
            operands = _moved("shared::cta", space, *((CACHE_POLICY,) if hint else ()), role="both")
            opcode = f"UBLKRED.{'G' if outward else 'S'}.S.{operation.upper()}{_TYPES[type]}"
            found.append(
                _row(
                    REDUCE,
                    REDUCE + tail,
                    first,
                    _HOPPER,
                    f"{operation} {type}",
                    operands,
                    "reduce",
                    opcode=opcode,
                    group="bulk" if outward else None,
                    reduction=Reduction(operation, type),
                )
            )
    return tuple(found)


_ON_SM_107 = MappingProxyType({"UBLKPF.L2": "UBLKL2CCTL.PF"})
"""Machine instructions that sm_107 has another name for."""


def lowering(row: CopyRow, arch: Arch) -> Lowering:
    """One machine instruction. From sm_120 on there is no multicast: a mask of one block is a plain copy, others a call."""
    if row.has("cta_mask") and arch.number >= 120:
        return Lowering(
            "emulated", (), (("UBLKCP.S.G", 1),), "where the mask is 1; else a call to a function of the driver"
        )
    opcode = _ON_SM_107.get(row.opcode, row.opcode) if arch.name == "sm_107" else row.opcode
    return Lowering("native", (), ((opcode, 1),) if opcode else (), "" if opcode else "DEPBAR.LE")


_COPIES = Evidence("literature", f"{PTX_MANUAL}, sections cp.async.bulk")
_REDUCTIONS = Evidence("literature", f"{PTX_MANUAL}, section cp.reduce.async.bulk")
_NAN = Evidence(
    "inferred", f"{PTX_MANUAL}, section cp.reduce.async.bulk; what a NaN becomes, from what an NVIDIA H200 gave"
)


def evidence(row: CopyRow, arch: Arch) -> Evidence:
    """A recording, or the manual's word; what a NaN becomes was measured on one arch and is inferred elsewhere."""
    if arch.name in RECORDED:
        return RECORDED[arch.name]
    if row.reduction is None:
        return _COPIES
    return _NAN if row.reduction.float else _REDUCTIONS


FAMILY = Family(COPY, rows, lowering, evidence, CLASSES, also=("applypriority",))
REDUCE_FAMILY = Family(
    REDUCE,
    reduce_rows,
    lowering,
    evidence,
    CLASSES,
    "none of a product: each element is combined with the one that is there",
)
