"""Which spellings of ordinary instructions ptxas takes: right ones, ones with a modifier too many or too few, and other orders.

`python -m tests.unit.tcsim.ptx.spelling_cases` writes tests/data/spellings.xz anew: for each statement a bit for each pair of `.version` and `.target`.
A statement is a line of one kernel that holds many; those that ptxas names in an error are left out of the next try, until it names none.
"""

from __future__ import annotations

import lzma
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, permutations, product
from pathlib import Path
from typing import NamedTuple

from hwkernels.device.toolchain import find_toolchains
from tcsim.core.versions import number
from tcsim.isa.scalar.catalog import scalar, scalars
from tcsim.model.spelling import spelling
from tests.support import scalar_inventory
from tests.unit.tcsim.model.test_near_misses import families, forms_of

FILE = Path(__file__).parents[3] / "data" / "spellings.xz"
PAIRS = (
    ("9.5", "sm_107a"), ("9.4", "sm_120a"), ("9.0", "sm_100a"), ("8.8", "sm_120f"), ("8.7", "sm_100"), ("8.4", "sm_90a"), ("8.3", "sm_90"),
    ("8.2", "sm_90"), ("8.0", "sm_90a"), ("7.8", "sm_90"), ("7.7", "sm_80"), ("7.4", "sm_80"), ("7.0", "sm_80"), ("6.3", "sm_75"),
    ("6.0", "sm_70"), ("5.0", "sm_60"),
)  # fmt: skip
"""Versions and targets that are asked."""
REGISTERS = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>; .reg .f64 %g<9>; .param .align 32 .b8 passed[64];"
WIDE = " .reg .b128 %q<9>;"  # which needs .version 8.3
SEED, DEEP, ORDERS = 700, 500, 6

TYPES = [
    "b8",
    "b16",
    "b32",
    "b64",
    "b128",
    "u8",
    "u16",
    "u32",
    "u64",
    "s8",
    "s16",
    "s32",
    "s64",
    "f32",
    "f64",
    "f16",
    "bf16",
    "f16x2",
    "bf16x2",
    "pred",
]
Operands = Callable[[list[str]], str]


class Case(NamedTuple):
    """An instruction: the modifiers of each kind that are tried, valid or not; right spellings to change; its operands."""

    slots: tuple[tuple[str, ...], ...]
    bases: tuple[str, ...]
    operands: Operands


def register(type: str, place: int) -> str:
    """A register of a type."""
    letters = {"pred": "p", "b128": "q", "f32": "f", "f64": "g", "f16x2": "r", "bf16x2": "r"}
    if type in letters:
        return f"%{letters[type]}{place}"
    bits = int(type.lstrip("bufs"))
    return f"%{'h' if bits < 32 else 'r' if bits == 32 else 'd'}{place}"


def type_of(words: list[str], default: str = "b32") -> str:
    """The first type among modifiers."""
    return next((word for word in words if word in TYPES), default)


def _vector(words: list[str], first: int = 0) -> str:
    type = type_of(words)
    count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 0)
    if not count:
        return register(type, first)
    return "{" + ", ".join(register(type, (first + place) % 9) for place in range(count)) + "}"


def _address(words: list[str], written: bool = False) -> str:
    if "param::func" in words or (written and "param" in words):
        return "[passed]"
    if {"param", "param::entry"} & set(words):
        return "[given]"
    return "[%d6]" if any(word.startswith("shared") for word in words) else "[%d5]" if "local" in words else "[%d8]"


def _hint(words: list[str]) -> str:
    return ", %d7" if "L2::cache_hint" in words else ""


def _load(words: list[str]) -> str:
    return f"{_vector(words)}, {_address(words)}{_hint(words)}"


def _store(words: list[str]) -> str:
    return f"{_address(words, True)}, {_vector(words)}{_hint(words)}"


def _reduce(words: list[str]) -> str:
    third = f", {_vector(words, 2)}" if "cas" in words else ""
    return f"{_address(words)}, {_vector(words, 1)}{third}{_hint(words)}"


def _atomic(words: list[str]) -> str:
    return f"{_vector(words)}, {_reduce(words)}"


def _same(count: int, default: str = "b32") -> Operands:
    return lambda words: ", ".join(register(type_of(words, default), place) for place in range(count))


def _with_mask(result: str, second: bool = False) -> Operands:
    def operands(words: list[str]) -> str:
        end = ", %r4" if "sync" in words else ""
        one = result or register(type_of(words), 0)
        return f"{one}{'|%p0' * second}, {register(type_of(words), 1)}, %r2, %r3{end}"

    return operands


def _slots(*texts: str) -> tuple[tuple[str, ...], ...]:
    return tuple(("", *text.split()) for text in texts)


_ORDER = "weak volatile relaxed acquire release acq_rel"
_SCOPE = "cta cluster gpu sys"
_SPACE = "global shared shared::cta shared::cluster local param param::entry param::func const"
_L1 = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
_L2 = "L2::evict_normal L2::evict_first L2::evict_last"
_FETCH = "L2::64B L2::128B L2::256B"
_ALL = " ".join(TYPES)
_ACCESS = (
    "mmio",
    _ORDER,
    _SCOPE,
    _SPACE,
    "nc",
    "ca cg cs lu cv wb wt",
    _L1,
    _L2,
    "L2::cache_hint",
    _FETCH,
    "v2 v4 v8",
    _ALL,
)
_ATOM = (
    _ORDER,
    _SCOPE,
    _SPACE,
    "add min max and or xor exch cas inc dec sub",
    "noftz",
    "v2 v4 v8",
    "L2::cache_hint",
    _ALL,
)
_LOADS = (
    "ld.b32", "ld.global.b32", "ld.relaxed.gpu.global.b32", "ld.mmio.relaxed.sys.global.b32", "ld.global.nc.b32", "ld.global.v8.b32", "ld.global.v4.b64",
    "ld.shared.b32", "ld.volatile.global.b32", "ld.acquire.cta.shared::cta.b32", "ld.global.nc.L1::no_allocate.L2::evict_first.v8.f32",
    "ld.acquire.gpu.global.L2::evict_first.v8.b32", "ld.param.v2.b32", "ld.global.L2::cache_hint.L2::128B.b64", "ld.const.f32", "ld.local.u8",
)  # fmt: skip
_ATOMS = (
    "add.u32", "global.add.f32", "shared.or.b32", "relaxed.gpu.global.add.noftz.f16x2", "global.add.v2.f32", "release.sys.min.u64",
    "global.add.noftz.v4.f16", "global.and.b64", "shared::cluster.max.s64",
)  # fmt: skip
_PLAIN = ("uni sync", "idx")
CASES: dict[str, Case] = {
    "ld": Case(_slots(*_ACCESS), _LOADS, _load),
    "st": Case(
        _slots(*_ACCESS),
        tuple(base.replace("ld", "st").replace("acquire", "release").replace(".nc", "").replace("L2::128B.", "") for base in _LOADS if "const" not in base),
        _store,
    ),
    "ldu": Case(_slots("weak", _SPACE, "ca", "L2::cache_hint", "v2 v4 v8", _ALL), ("ldu.b32", "ldu.global.v4.b32"), _load),
    "atom": Case(_slots(*_ATOM), (*(f"atom.{base}" for base in _ATOMS), "atom.acq_rel.sys.exch.b64", "atom.global.cas.b128", "atom.cas.b16"), _atomic),
    "red": Case(_slots(*_ATOM), tuple(f"red.{base}" for base in _ATOMS), _reduce),
    "mov": Case(_slots("v2 v4", "sat rn", _ALL), ("mov.b32", "mov.v4.u32"), lambda words: f"{_vector(words)}, {_vector(words, 4)}"),
    "cvta": Case(_slots("to", _SPACE, "u32 u64 b64 s64"), ("cvta.to.global.u64", "cvta.shared.u64"), _same(2, "u64")),
    "isspacep": Case(_slots(_SPACE, "u64 pred"), ("isspacep.global",), lambda words: "%p0, %d1"),
    "prefetch": Case(
        _slots(_SPACE, "L1 L2 L1::32B L2::evict_last L2::evict_normal L2::evict_first", "tensormap valid_addr"),
        ("prefetch.global.L1", "prefetch.L2", "prefetch.tensormap", "prefetch.global.L1::32B.valid_addr"), lambda words: "[given]" if "param" in words else "[%d8]",
    ),
    "prefetchu": Case(_slots(_SPACE, "L1 L2"), ("prefetchu.L1",), lambda words: "[%d8]"),
    "membar": Case(_slots("cta gl sys gpu cluster", "proxy", "alias global"), ("membar.gl", "membar.proxy.alias"), lambda words: ""),
    "pmevent": Case(_slots("mask", "b32"), ("pmevent",), lambda words: "3"),
    "shfl": Case(_slots("sync", "up down bfly idx", _ALL), ("shfl.sync.up.b32",), _with_mask("")),
    "shfl|": Case(_slots("sync", "up down bfly idx", _ALL), ("shfl.sync.idx.b32",), _with_mask("", True)),
    "vote": Case(
        _slots("sync", "all any uni ballot", "pred b32 u32 b64"), ("vote.sync.all.pred", "vote.sync.ballot.b32"),
        lambda words: f"{register(type_of(words), 0)}, %p1{', %r2' if 'sync' in words else ''}",
    ),
    "activemask": Case(_slots("sync", "b32 u32 b64 pred"), ("activemask.b32",), _same(1)),
    "match": Case(_slots("sync", "any all", _ALL), ("match.any.sync.b32",), lambda words: f"%r0, {register(type_of(words), 1)}, %r2"),
    "nanosleep": Case(_slots("uni", "u32 b32 s32 u64"), ("nanosleep.u32",), _same(1)),
    "bra": Case(_slots(*_PLAIN), ("bra",), lambda words: "END"),
    "brx": Case(_slots("idx", "uni sync"), ("brx.idx",), lambda words: "%r0, TARGETS"),
    **{stem: Case(_slots(*_PLAIN), (stem,), lambda words: "") for stem in ("ret", "exit", "trap", "brkpt")},
    **{stem: Case(_slots("u32 u64 b64 b32", "local"), (f"{stem}.u64",), _same(count, "u64")) for stem, count in (("alloca", 2), ("stacksave", 1), ("stackrestore", 1))},
}  # fmt: skip


def _line(stem: str, words: Iterable[str], operands: str) -> str:
    return f"{'.'.join([stem.rstrip('|'), *words])} {operands};"


def _changed(stem: str) -> Iterator[tuple[int, str]]:
    """The right spellings of an instruction and those with up to two modifiers changed: how many are, and the statement."""
    case = CASES[stem]
    for base in case.bases:
        words, chosen = base.split(".")[1:], [""] * len(case.slots)
        for word in words:
            place = next(place for place, slot in enumerate(case.slots) if word in slot and not chosen[place])
            chosen[place] = word
        for count in range(3):
            for places in combinations(range(len(chosen)), count):
                for values in product(*(case.slots[place] for place in places)):
                    own = list(chosen)
                    for place, value in zip(places, values, strict=True):
                        own[place] = value
                    found = [word for word in own if word]
                    yield count, _line(stem, found, case.operands(found))


def ordinary() -> list[str]:
    """Statements of the instructions that the machine itself runs: all with one change, and as many with two as are to be had."""
    listed: dict[str, None] = {}
    for stem in CASES:
        found: dict[str, int] = {}
        for count, line in _changed(stem):
            found[line] = min(count, found.get(line, count))
        near = [line for line, count in found.items() if count < 2]
        far = [line for line, count in found.items() if count == 2]
        random.Random(f"{SEED} {stem}").shuffle(far)
        listed |= dict.fromkeys([*near, *far[:DEEP]])
    return list(listed)


def computing() -> list[str]:
    """Statements of scalar instructions, some of each stem."""
    spelled: dict[str, list[str]] = {}
    for one in scalar_inventory.spellings():
        operands = re.sub(r"%p(?!\d)", "%p0", scalar_inventory.statement(one).replace("%q", "%p5"))
        spelled.setdefault(one.mnemonic.partition(".")[0], []).append(f"{one.mnemonic} {operands};")
    listed: list[str] = []
    for stem, lines in spelled.items():
        known = {item.partition("|")[0].partition("/")[0] for item in scalars() if item.startswith(f"{stem}.")}
        choose = random.Random(f"{SEED} {stem}")
        for right in (True, False):
            own = [line for line in lines if (line.split()[0] in known) == right]
            listed += choose.sample(own, min(len(own), 90 if right else 40))
    return listed


def others() -> list[str]:
    """Statements of the instructions of the catalog: two rows of each family, each in all its forms."""
    listed: list[str] = []
    for name, rows in families().items():
        for row in random.Random(f"{SEED} {name}").sample(list(rows), min(2, len(rows))):
            listed += [form.line(row.mnemonic) for form in forms_of(row)]
    return listed


def orders(lines: Iterable[str]) -> list[str]:
    """Statements with their modifiers in other orders."""
    listed: dict[str, None] = {}
    for line in lines:
        head, _, operands = line.partition(" ")
        stem, *words = head.split(".")
        choose = random.Random(f"{SEED} {line}")
        every = (
            list(permutations(words))
            if len(words) <= 3
            else [tuple(choose.sample(words, len(words))) for _ in range(ORDERS)]
        )
        for own in every:
            name = ".".join([stem, *own])
            if (
                spelling(name) == spelling(head) or scalar(name) is None
            ):  # else another one, with operands of other types
                listed[f"{name} {operands}"] = None
    return list(listed)


def module(lines: Iterable[str], version: str, target: str) -> str:
    """A kernel of some statements, one a line, the first on line 6."""
    wide = WIDE if number(version) >= (8, 3) else ""
    labels = "TARGETS: .branchtargets END;" if number(version) >= (6, 0) else ""
    body = "\n".join(lines)
    return (
        f".version {version}\n.target {target}\n.address_size 64\n.visible .entry tried(.param .align 32 .b8 given[64]) {{\n"
        f"{REGISTERS}{wide} {labels}\n{body}\nEND: ret; }}\n"
    )


HEAD = 5  # lines of `module` before the first statement


def taken(lines: Iterable[str], version: str, target: str) -> set[str]:
    """The statements that ptxas takes."""
    left = [line for line in lines if number(version) >= (8, 3) or "%q" not in line]
    ptxas = find_toolchains()[0].ptxas
    arch = target if int(re.sub(r"\D", "", target)) >= 75 else "sm_75"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "tried.ptx")
        while left:
            source.write_text(module(left, version, target))
            asked = [str(ptxas), f"-arch={arch}", "-O0", str(source), "-o", f"{folder}/tried.cubin"]
            answer = subprocess.run(asked, capture_output=True, text=True)
            if answer.returncode == 0:
                return set(left)
            text = answer.stdout + answer.stderr
            refused = {
                int(a or b) - HEAD - 1 for a, b in re.findall(r"line (\d+); error|32-bit address on line '(\d+)'", text)
            }
            if refused:
                assert min(refused) >= 0, text[:400]
                left = [line for place, line in enumerate(left) if place not in refused]
            elif len(left) == 1:  # a crash, or an error that names no line
                return set()
            else:
                half = len(left) // 2
                return taken(left[:half], version, target) | taken(left[half:], version, target)
    return set()


def crashes(line: str) -> bool:
    """Whether ptxas ends without an answer: vectors of eight elements of fewer than 32 bits, undocumented."""
    return ".v8" in line and bool(re.search(r"\.[bus](8|16)\b", line)) and line.startswith(("ld", "st"))


def table() -> dict[str, int]:
    """Each statement with a bit for each of PAIRS."""
    lines = [line for line in dict.fromkeys([*ordinary(), *computing(), *others()]) if not crashes(line)]
    last = taken(lines, *PAIRS[0]) | taken(lines, *PAIRS[1])
    choose = random.Random(SEED)
    right = [line for line in lines if line in last and not line.startswith("{")]
    lines = list(dict.fromkeys([*lines, *orders(choose.sample(right, 900))]))
    found = [taken(lines, *pair) for pair in PAIRS]
    return {line: sum((line in own) << place for place, own in enumerate(found)) for line in lines}


def recorded() -> dict[str, int]:
    """The table as committed."""
    rows = lzma.decompress(FILE.read_bytes()).decode().splitlines()
    found = (row.partition(" ") for row in rows if not row.startswith("#"))
    return {line: int(bits, 16) for bits, _, line in found}


def main() -> None:
    """Write the table."""
    head = "# Statements that ptxas 13.5.37 takes: a bit for each of " + " ".join(
        f"{version}/{target}" for version, target in PAIRS
    )
    rows = [f"{bits:04x} {line}" for line, bits in table().items()]
    FILE.write_bytes(lzma.compress("\n".join([head, *rows, ""]).encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
