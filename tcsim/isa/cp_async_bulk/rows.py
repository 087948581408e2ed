"""cp.async.bulk and cp.reduce.async.bulk: the rows the assembler accepts, and what each becomes.

Sources: PTX ISA 8.0 to 9.4, sections cp.async.bulk, cp.reduce.async.bulk, cp.async.bulk.prefetch, cp.async.bulk.commit_group,
cp.async.bulk.wait_group, applypriority.async.bulk; ptxas 13.5.37 (targets, versions, SASS). What they do is the manual's
word; nothing is measured yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.reduction import Reduction
from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import TARGETS, Arch, since, suffixed_since
from tcsim.isa.copies import CopyFacts, copy_facts
from tcsim.isa.cp_async import WAITS
from tcsim.isa.cp_async_bulk.semantics import bind
from tcsim.model.family import Family
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row

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


def _row(
    family: str,
    mnemonic: str,
    version: str,
    targets: tuple[str, ...],
    arithmetic: str,
    facts: CopyFacts,
    operands: tuple[str, ...] = (),
    opcode: str = "",
    names: tuple[str, ...] = ("",),
) -> Row:
    forms = tuple(OperandForm(name, (), ("groups",) if name else operands, targets, version) for name in names)
    return Row(
        mnemonic,
        family,
        (0, 0, 0),
        MappingProxyType({}),
        targets,
        version,
        arithmetic,
        facts=replace(facts, forms=forms, opcode=opcode),
    )


def _later(*versions: str) -> str:
    return max(versions, key=float)


def _in() -> Iterator[Row]:
    """From global memory to shared memory."""
    for hint, (space, version) in product(("", _HINT), ((".shared::cta", "8.6"), (".shared::cluster", "8.0"))):
        stem, policy = f".global{_TO_BARRIER}", (("cache_policy",) if hint else ())
        plain = CopyFacts("copy", space, ".global", ())

        def row(
            word: str,
            first: str,
            targets: tuple[str, ...],
            facts: CopyFacts,
            operands: tuple[str, ...] = (),
            mark: str = "",
            place: tuple[str, str, str, str, tuple[str, ...]] = (space, version, stem, hint, policy),
        ) -> Row:
            to, least, middle, end, after = place
            name, code = f"{COPY}{to}{middle}{word}{end}", f"UBLKCP.S.G{mark}"
            arithmetic = f"copy {to[1:]} from global"
            return _row(COPY, name, _later(first, least), targets, arithmetic, facts, (*operands, *after), code)

        yield row("", version, _HOPPER, plain)
        if space == ".shared::cta":
            ends = ("ignore_left", "ignore_right")
            yield row(".ignore_oob", "9.2", _HOPPER, replace(plain, ignores=True), ends)
        else:
            several = replace(plain, multicast=True)
            for width, first, targets, mark, bits in (
                ("", "8.0", _HOPPER, ".MULTICAST", 16),
                ("::16b", "9.4", _HOPPER, ".MULTICAST", 16),
                ("::32b", "9.4", _RUBIN, ".MULTICAST32", 32),
            ):
                own = replace(several, mask_bits=bits)
                yield row(f".multicast::cluster{width}", first, targets, own, ("cta_mask",), mark)
        report = ".mbarrier::report::"
        yield row(f"{report}disabled", "9.4", _RUBIN, plain)
        for pattern, mark in _PATTERNS.items():
            yield row(
                f"{report}validity::{pattern}", "9.4", _RUBIN, replace(plain, reports=True), (), f".VALIDCHK_{mark}"
            )
        for scope, mark in _SCOPES.items():
            targets = _HOPPER if space == ".shared::cta" else _TMA
            name = f"{COPY}.relaxed.{scope}{space}{stem}{hint}.b128"
            arithmetic = f"copy {space[1:]} from global"
            yield _row(COPY, name, "9.3", targets, arithmetic, plain, policy, f"UBLKCP.S.G.STRONG.{mark}")


def _out() -> Iterator[Row]:
    """From shared memory to global memory."""
    for masked, hint in product((False, True), ("", _HINT)):
        facts = CopyFacts("copy", ".global", ".shared::cta", (), masked=masked, grouped=True)
        operands = (*(("cache_policy",) if hint else ()), *(("byte_mask",) if masked else ()))
        tail = f".global.shared::cta{_GROUP}{hint}" + (".cp_mask" if masked else "")
        code = "UBLKCP.G.S" + (".DST_G_BYTE_MASK" if masked else "")
        targets, first = (_BLACKWELL, "8.6") if masked else (_HOPPER, "8.0")
        for order, version, strong in (
            ("", first, ""),
            (".weak", "9.3", ""),
            *((f".relaxed.{scope}", "9.3", mark) for scope, mark in _SCOPES.items()),
        ):
            end = ".b128" if strong else ""
            opcode = code + (f".STRONG.{strong}" if strong else "")
            yield _row(
                COPY,
                f"{COPY}{order}{tail}{end}",
                version,
                targets,
                "copy global from shared::cta",
                facts,
                operands,
                opcode,
            )


def _across() -> Iterator[Row]:
    """From the shared memory of one block to another's."""
    facts = CopyFacts("copy", ".shared::cluster", ".shared::cta", ())
    tail = f".shared::cluster.shared::cta{_TO_BARRIER}"
    for order, version, strong in (
        ("", "8.0", ""),
        (".weak", "9.3", ""),
        *((f".relaxed.{scope}", "9.3", _SCOPES[scope]) for scope in ("cta", "cluster")),
    ):
        end, mark = (".b128", f".STRONG.{strong}") if strong else ("", "")
        name, arithmetic = f"{COPY}{order}{tail}{end}", "copy shared::cluster from shared::cta"
        yield _row(COPY, name, version, _HOPPER, arithmetic, facts, (), f"UBLKCP.S.S{mark}")


def _others() -> Iterator[Row]:
    """Groups and caches."""
    facts = CopyFacts("commit", "", "", (), grouped=True)
    yield _row(COPY, f"{COPY}.commit_group", "8.0", _HOPPER, "commit_group", facts, (), "UTMACMDFLUSH")
    for name in ("wait_group", "wait_group.read"):
        waits = tuple(f"N={number}" for number in WAITS)
        yield _row(COPY, f"{COPY}.{name}", "8.0", _HOPPER, name, replace(facts, operation="wait"), (), "", waits)
    facts = CopyFacts("prefetch", "", ".global", ())
    for hint, operands in (("", ()), (_HINT, ("cache_policy",))):
        yield _row(COPY, f"{COPY}.prefetch.L2.global{hint}", "8.0", _HOPPER, "prefetch", facts, operands, "UBLKPF.L2")
    name = f"{COPY}.prefetch.L2.global.L2::evict_last"
    yield _row(COPY, name, "9.4", _RUBIN, "prefetch", facts, (), "UBLKL2CCTL.PM")
    facts = replace(facts, grouped=True)
    name = "applypriority.async.bulk.global.bulk_group.L2::evict_normal"
    yield _row(COPY, name, "9.4", _RUBIN, "applypriority", replace(facts, alignment=128), (), "UBLKL2CCTL.DM")


def rows() -> tuple[Row, ...]:
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


def reduce_rows() -> tuple[Row, ...]:
    """Every cp.reduce.async.bulk spelling."""
    found = []
    for name, type in (*_BITS, *_INTEGERS, *_FLOATS):
        operation = name.removesuffix(".noftz")
        facts = CopyFacts("reduce", ".global", ".shared::cta", (), reduction=Reduction(operation, type), grouped=True)
        version = "9.4" if (name, type) == ("add.noftz", "f32") else "8.0"
        opcode = f".{operation.upper()}{_TYPES[type]}"
        arithmetic = f"{operation} {type}"
        if (name, type) in _WITHIN_CLUSTER:
            tail = f".shared::cluster.shared::cta{_TO_BARRIER}.{name}.{type}"
            within = replace(facts, destination=".shared::cluster", grouped=False)
            found.append(_row(REDUCE, REDUCE + tail, "8.0", _HOPPER, arithmetic, within, (), f"UBLKRED.S.S{opcode}"))
        for hint in ("", _HINT):
            tail = f".global.shared::cta{_GROUP}{hint}.{name}.{type}"
            policy = ("cache_policy",) if hint else ()
            found.append(
                _row(REDUCE, REDUCE + tail, version, _HOPPER, arithmetic, facts, policy, f"UBLKRED.G.S{opcode}")
            )
    return tuple(found)


_ON_SM_107 = MappingProxyType({"UBLKPF.L2": "UBLKL2CCTL.PF"})
"""Machine instructions that sm_107 has another name for."""


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction. From sm_120 on there is no multicast: a mask of one block is a plain copy, others a call."""
    facts = copy_facts(row)
    if facts.multicast and arch.number >= 120:
        return Lowering(
            "emulated", (), (("UBLKCP.S.G", 1),), "where the mask is 1; else a call to a function of the driver"
        )
    opcode = _ON_SM_107.get(facts.opcode, facts.opcode) if arch.name == "sm_107" else facts.opcode
    return Lowering("native", (), ((opcode, 1),) if opcode else (), "" if opcode else "DEPBAR.LE")


_COPIES = Evidence("literature", "PTX ISA 9.4, sections cp.async.bulk")
_REDUCTIONS = Evidence("literature", "PTX ISA 9.4, section cp.reduce.async.bulk")
_NAN = Evidence(
    "inferred", "PTX ISA 9.4, section cp.reduce.async.bulk; what a NaN becomes, from what an NVIDIA H200 gave"
)


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word; what a NaN becomes was measured on one arch and is inferred elsewhere."""
    if arch.name in RECORDED:
        return RECORDED[arch.name]
    reduction = copy_facts(row).reduction
    if reduction is None:
        return _COPIES
    return _NAN if reduction.float else _REDUCTIONS


FAMILY = Family(COPY, rows, lowering, evidence, bind)
REDUCE_FAMILY = Family(
    REDUCE,
    reduce_rows,
    lowering,
    evidence,
    bind,
    "none of a product: each element is combined with the one that is there",
)
