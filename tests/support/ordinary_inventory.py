"""Which spellings of instructions around kernels ptxas accepts: tries every candidate for every target and version.

`python -m tests.support.ordinary_inventory` writes ordinary_inventory.csv of tests/data/tables.zip anew from the installed assemblers: each target is
asked of the newest ptxas that has it. A candidate is a line of one kernel that holds all of them; those that
ptxas names in an error are left out of the next try, until it names none.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from hwkernels.device.toolchain import find_toolchains
from tcsim.core.targets import TARGETS
from tcsim.core.versions import PTX_ISA, earliest
from tests.support import tables

INVENTORY = tables.TABLES / "ordinary_inventory.csv"
VERSIONS = (
    *(f"6.{minor}" for minor in range(6)), *(f"7.{minor}" for minor in range(9)), *(f"8.{minor}" for minor in range(9)),
    *(f"9.{minor}" for minor in range(6)),
)  # fmt: skip
"""Every PTX ISA version from that of the oldest target's assembler on (there is none from 6.6 to 6.9)."""
_ENTRY = (
    ".visible .entry tried(.param .u64 given) {",
    ".reg .pred %p, %q; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>; .reg .f64 %g<9>;",
)
_HEADER = """\
# Spellings around kernels (reductions over a warp, barriers of a CTA, cache policies and hints, ranks, parameter addresses)
# that ptxas 13.5.37 (sm_70, sm_72: 12.9.86) accepts: the list of operands, the targets that take it, the lowest
# PTX ISA version, whether the PTX manual's grammar (9.4) lists it. Written by tests/support/ordinary_inventory.py.
family,mnemonic,extra,targets,min_ptx_isa,documented
"""


class Candidate(NamedTuple):
    """One spelling with one list of operands."""

    family: str
    mnemonic: str
    extra: str  # the name of the list of operands
    operands: str
    documented: bool = True

    @property
    def statement(self) -> str:
        """The PTX statement."""
        return f"{self.mnemonic} {self.operands};"


def _redux() -> Iterator[Candidate]:
    types = ("u32", "s32", "b32", "u64", "s64", "b64", "f32", "f16x2", "bf16x2", "f64")
    listed = {f"redux.sync.{op}.{kind}" for op in ("add", "min", "max") for kind in ("u32", "s32")}
    listed |= {f"redux.sync.{op}.b32" for op in ("and", "or", "xor")}
    listed |= {
        f"redux.sync.{op}{absolute}{nan}.f32"
        for op in ("min", "max")
        for absolute in ("", ".abs")
        for nan in ("", ".NaN")
    }
    for op, absolute, nan, kind in product(
        ("add", "min", "max", "and", "or", "xor", "mul", "inc"), ("", ".abs"), ("", ".NaN"), types
    ):
        name = f"redux.sync.{op}{absolute}{nan}.{kind}"
        wide = "%f0, %f1" if kind == "f32" else "%d0, %d1" if "64" in kind else "%r0, %r1"
        yield Candidate("redux.sync", name, "", f"{wide}, %r2", name in listed)


def _barriers() -> Iterator[Candidate]:
    for (head, aligned), cta in product(
        (("bar", ""), ("bar", ".aligned"), ("barrier", ""), ("barrier", ".aligned")), ("", ".cta")
    ):
        listed = not (head == "bar" and aligned)
        for place, number, many in (("", "1", "64"), ("register", "%r0", "%r1")):
            name = place + "+" * bool(place)
            only, both = place, f"{name}count"
            stem = f"{head}{cta}"
            yield Candidate("barrier.cta", f"{stem}.sync{aligned}", only, number, listed)
            yield Candidate("barrier.cta", f"{stem}.sync{aligned}", both, f"{number}, {many}", listed)
            yield Candidate("barrier.cta", f"{stem}.arrive{aligned}", only, number, False)
            yield Candidate("barrier.cta", f"{stem}.arrive{aligned}", both, f"{number}, {many}", listed)
            for op, result in ((".popc", "%r2"), (".and", "%p"), (".or", "%p"), (".xor", "%p")):
                red = f"{stem}.red{op}{aligned}.{'u32' if op == '.popc' else 'pred'}"
                yield Candidate("barrier.cta", red, only, f"{result}, {number}, %q", listed)
                yield Candidate("barrier.cta", red, both, f"{result}, {number}, {many}, %q", listed)
    for head in ("bar.warp.sync", "barrier.warp.sync", "bar.warp.sync.aligned"):
        yield Candidate("bar.warp.sync", head, "", "%r0", head == "bar.warp.sync")


def _policies() -> Iterator[Candidate]:
    eviction = ("evict_last", "evict_normal", "evict_first", "evict_unchanged", "no_allocate")
    for primary, secondary in product(eviction, ("", *eviction)):
        levels = f".L2::{primary}" + (f".L2::{secondary}" if secondary else "")
        listed = primary != "no_allocate" and secondary in ("", "evict_first", "evict_unchanged")
        name = f"createpolicy.fractional{levels}.b64"
        yield Candidate("createpolicy", name, "", "%d0", listed)
        yield Candidate("createpolicy", name, "fraction", "%d0, %f0", listed)
        for space in ("", ".global"):
            name = f"createpolicy.range{space}{levels}.b64"
            yield Candidate("createpolicy", name, "", "%d0, [%d1], %r0, %r1", listed)
    yield Candidate("createpolicy", "createpolicy.cvt.L2.b64", "", "%d0, %d1")


def _hints() -> Iterator[Candidate]:
    for space, size in product(("", ".global", ".shared", ".local"), (32, 64, 128, 256)):
        extra, listed = "" if size == 128 else f"size={size}", size == 128 and space in ("", ".global")
        for level in (".L2", ".L1", ""):
            yield Candidate("discard", f"discard{space}{level}", extra, f"[%d0], {size}", listed and level == ".L2")
        for level in ("evict_normal", "evict_first", "evict_last", "evict_unchanged"):
            name = f"applypriority{space}.L2::{level}"
            yield Candidate("applypriority", name, extra, f"[%d0], {size}", listed and level == "evict_normal")


def _addresses() -> Iterator[Candidate]:
    for space, kind in product(
        ("", ".shared", ".shared::cta", ".shared::cluster", ".global"), ("u32", "u64", "b32", "b64")
    ):
        listed = space in ("", ".shared::cluster") and kind[0] == "u"
        yield Candidate("getctarank", f"getctarank{space}.{kind}", "", f"%r0, %{'d' if '64' in kind else 'r'}1", listed)
    for to, space, kind in product(("", ".to"), (".param", ".param::entry", ".param::func"), ("u32", "u64", "b64")):
        wide = "d" if "64" in kind else "r"
        listed = kind[0] == "u" and not space.endswith("func")
        yield Candidate("cvta.param", f"cvta{to}{space}.{kind}", "", f"%{wide}0, %{wide}1", listed)
        if not to:
            yield Candidate("cvta.param", f"cvta{space}.{kind}", "variable", f"%{wide}0, given", listed)


_ORDERS = {
    "ld_reduce": ("weak", "relaxed", "acquire"),
    "st": ("weak", "relaxed", "release"),
    "red": ("relaxed", "release", "weak"),
}
_SIXTEENTHS = {"f16": 1, "bf16": 1, "f16x2": 2, "bf16x2": 2, "f32": 2, "f64": 4}
_BYTES = {f"{kind}{times}": size for kind in ("e5m2", "e4m3") for times, size in (("", 1), ("x2", 2), ("x4", 4))}


def _vector(letter: str, count: int) -> str:
    return f"%{letter}0" if count == 1 else "{" + ", ".join(f"%{letter}{place}" for place in range(count)) + "}"


def _multimem() -> Iterator[Candidate]:
    integers = ("b32", "b64", "u32", "u64", "s32", "s64")
    floats = {"f16": "h", "bf16": "h", "f16x2": "r", "bf16x2": "r", "f32": "f", "f64": "g"}
    floats |= {name: "h" if size < 4 else "r" for name, size in _BYTES.items()}
    orders = {  # what stands before the state space
        form: (
            "",
            *(
                f".{sem}{scope}"
                for sem in sems
                for scope in (("",) if sem == "weak" else (".cta", ".cluster", ".gpu", ".sys"))
            ),
        )
        for form, sems in _ORDERS.items()
    }
    for form, found in orders.items():
        for order, space in product(found, ("", ".global")):
            stem = f"multimem.{form}{order}{space}"
            listed = not (form == "red" and "weak" in order)
            for kind in integers:
                register = "%d0" if "64" in kind else "%r0"
                operands = f"{register}, [%d8]" if form == "ld_reduce" else f"[%d8], {register}"
                for op in ("",) if form == "st" else (".min", ".max", ".add", ".and", ".or", ".xor"):
                    yield Candidate(f"multimem.{form}", f"{stem}{op}.{kind}", "", operands, listed)
            accumulators = ("", ".acc::f32", ".acc::f16") if form == "ld_reduce" else ("",)
            ops = ("",) if form == "st" else (".add", ".min", ".max")
            for op, accumulator, count, (kind, letter) in product(ops, accumulators, (1, 2, 4, 8), floats.items()):
                vector = _vector(letter, count)
                operands = f"{vector}, [%d8]" if form == "ld_reduce" else f"[%d8], {vector}"
                name = f"{stem}{op}{accumulator}{f'.v{count}' if count > 1 else ''}.{kind}"
                yield Candidate(f"multimem.{form}", name, "", operands, listed and not (form == "red" and op != ".add"))
    for source, mask in product((".shared::cta", ".shared", ".shared::cluster"), ("", ".cp_mask")):
        name = f"multimem.cp.async.bulk.global{source}.bulk_group{mask}"
        yield Candidate(
            "multimem.cp.async.bulk", name, "", f"[%d0], [%r0], %r1{', %h0' if mask else ''}", source == ".shared::cta"
        )
    for source, op, kind in product(
        (".shared::cta", ".shared"),
        ("add", "min", "max", "inc", "dec", "and", "or", "xor", "add.noftz"),
        (*integers, "f16", "bf16", "f32", "f64"),
    ):
        name = f"multimem.cp.reduce.async.bulk.global{source}.bulk_group.{op}.{kind}"
        yield Candidate("multimem.cp.reduce.async.bulk", name, "", "[%d0], [%r0], %r1", source == ".shared::cta")

    for order, scope, space in product(
        ("", ".relaxed", ".release"), ("", ".cta", ".cluster", ".gpu", ".sys"), ("", ".global")
    ):
        words = f"{order}{scope}{space}"
        listed = order == ".release" and scope in (".gpu", ".sys")
        for kind, letter in _LETTERS.items():
            yield Candidate("multimem.st.async", f"multimem.st.async{words}.{kind}", "", f"[%d8], %{letter}0", listed)
            for op in ("add", "min", "max", "and", "inc"):
                yield Candidate(
                    "multimem.red.async", f"multimem.red.async{words}.{op}.{kind}", "", f"[%d8], %{letter}0", listed
                )


_LETTERS = {
    **dict.fromkeys(("b8", "u8", "s8", "b16", "u16", "s16"), "h"), **dict.fromkeys(("b32", "u32", "s32"), "r"), **dict.fromkeys(("b64", "u64", "s64"), "d"),
    "f32": "f", "f64": "g",
}  # fmt: skip


def candidates() -> tuple[Candidate, ...]:
    """Every spelling that is tried, but those of multimem, which has a file of its own."""
    return tuple(one for part in (_redux, _barriers, _policies, _hints, _addresses) for one in part())


def multimem() -> tuple[Candidate, ...]:
    """Every spelling of multimem that is tried."""
    return tuple(_multimem())


def accepted(tried: Iterable[Candidate], target: str, version: str) -> set[Candidate]:
    """Those that ptxas takes for a target with a `.version`; none if it does not have the target or the version."""
    left = list(tried)
    old = TARGETS[target].number < 75  # left out of CUDA 13
    toolchain = next(one for one in find_toolchains() if not old or int(one.version.split(".")[0]) < 13)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "tried.ptx")
        while left:
            head = [f".version {version}", f".target {target}", ".address_size 64", *_ENTRY]
            first = len(head) + 1
            source.write_text("\n".join([*head, *(one.statement for one in left), "ret; }", ""]))
            asked = [str(toolchain.ptxas), f"-arch={target}", "-O0", str(source), "-o", f"{folder}/tried.cubin"]
            answer = subprocess.run(asked, capture_output=True, text=True)
            if answer.returncode == 0:
                return set(left)
            text = answer.stdout + answer.stderr
            refused = {
                int(error or narrow) - first
                for error, narrow in re.findall(r"line (\d+); error|32-bit address on line '(\d+)'", text)
            }
            if not refused or min(refused) < 0:
                return set()  # the target or the version itself
            left = [one for place, one in enumerate(left) if place not in refused]
    return set()


def inventory() -> Iterator[tuple[Candidate, tuple[str, ...], str]]:
    """Each spelling that some target takes, its targets, and the lowest version."""
    yield from _inventory(candidates())


def _inventory(tried: Iterable[Candidate]) -> Iterator[tuple[Candidate, tuple[str, ...], str]]:
    tried = list(tried)
    targets = {
        target: accepted(tried, target, "8.8" if TARGETS[target].number < 75 else PTX_ISA[-1]) for target in TARGETS
    }
    versions: dict[Candidate, str] = {}
    for version in VERSIONS:
        for target, found in targets.items():
            left = [one for one in tried if one in found and one not in versions]
            if left and earliest(version, TARGETS[target].ptx_version) == TARGETS[target].ptx_version:
                versions |= dict.fromkeys(accepted(left, target, version), version)
    for one in tried:
        if takers := tuple(target for target, found in targets.items() if one in found):
            yield one, takers, versions[one]


def multimem_table() -> str:
    """The inventory of multimem: what stands before an operation and what may follow it, since all combinations exist."""
    lines = []
    for one, takers, version in _inventory(multimem()):
        words = one.mnemonic.removeprefix(one.family).split(".")[1:]
        head = [word for word in words if word in _BEFORE] if ".cp." not in one.family else words[:3]
        end = ".".join(word for word in words if word not in head)
        lines.append((one.family, ".".join(head), end, " ".join(takers), version, int(one.documented)))
    found: dict[tuple[object, ...], list[str]] = {}
    for family, head, *rest in lines:
        found.setdefault((family, *rest), []).append(head)
    rows = [",".join([str(family), " ".join(heads), *map(str, rest)]) for (family, *rest), heads in found.items()]
    return _MULTIMEM + "\n".join(rows) + "\n"


_BEFORE = ("weak", "relaxed", "acquire", "release", "cta", "cluster", "gpu", "sys", "global")
_MULTIMEM = """\
# Spellings of multimem that ptxas 13.5.37 accepts: each of the words before (an order, a scope, a state space; a first blank: none) with what
# follows. Written by tests/support/ordinary_inventory.py.
family,before,end,targets,min_ptx_isa,documented
"""
MULTIMEM = tables.TABLES / "multimem_inventory.csv"


def main() -> None:
    """Write the inventories."""
    tables.write(MULTIMEM.name, multimem_table())
    lines = (
        f"{one.family},{one.mnemonic},{one.extra},{' '.join(takers)},{version},{int(one.documented)}"
        for one, takers, version in inventory()
    )
    tables.write(INVENTORY.name, _HEADER + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
