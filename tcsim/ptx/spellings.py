"""Which spellings of instructions exist: those of the tables, and those of the instructions that the machine itself runs.

A spelling is known if a table has it with its modifiers in any order. What a kernel's target and arch have is asked when it is
launched; here a word is refused that no instruction has.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from tcsim import catalog
from tcsim.core.errors import listing, nearest, shortened
from tcsim.core.targets import TARGETS
from tcsim.isa.scalar.atomic import atomics
from tcsim.isa.scalar.catalog import scalar, scalars

Slot = tuple[bool, frozenset[str]]
"""Modifiers, at most one of which a spelling has, and whether it must have one."""


def _one(words: str) -> Slot:
    return True, frozenset(words.split())


def _any(words: str) -> Slot:
    return False, frozenset(words.split())


_BITS = "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
_ORDER = _any("weak volatile relaxed acquire release acq_rel mmio")
_SCOPE = _any("cta cluster gpu sys")
_SPACE = _any("global shared shared::cta shared::cluster local param param::entry param::func const")
_L1 = _any("L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate")
_L2 = _any("L2::evict_normal L2::evict_first L2::evict_last")
_HINT, _VECTOR = _any("L2::cache_hint"), _any("v2 v4 v8")
_FETCH = _any("L2::64B L2::128B L2::256B")
_ATOMIC = _one("add min max and or xor exch cas inc dec")
_REDUCED = _one("add min max and or xor inc dec")
_NUMBERS = _one("b16 b32 b64 b128 u32 u64 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64")
_WIDE = _one("u32 u64")

GRAMMARS: dict[str, tuple[Slot, ...]] = {
    "ld": (_ORDER, _SCOPE, _SPACE, _any("nc"), _any("ca cg cs lu cv"), _L1, _L2, _HINT, _FETCH, _VECTOR, _one(_BITS)),
    "ldu": (_any("global"), _VECTOR, _one(_BITS)),
    "st": (_ORDER, _SCOPE, _SPACE, _any("wb cg cs wt"), _L1, _L2, _HINT, _VECTOR, _one(_BITS)),
    "atom": (_ORDER, _SCOPE, _SPACE, _ATOMIC, _any("noftz"), _HINT, _VECTOR, _NUMBERS),
    "red": (_ORDER, _SCOPE, _SPACE, _REDUCED, _any("noftz"), _HINT, _VECTOR, _NUMBERS),
    "mov": (_any("v2 v4"), _one("b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f32 f64 f16 bf16 f16x2 bf16x2 pred")),
    "cvta": (_any("to"), _one("global shared shared::cta shared::cluster local const param param::entry"), _WIDE),
    "isspacep": (_one("global shared shared::cta shared::cluster local const param param::entry"),),
    "prefetch": (_any("global local const param tensormap"), _any("L1 L2 L2::evict_last L2::evict_normal")),
    "prefetchu": (_one("L1"),),
    "membar": (_one("cta gl sys proxy"), _any("alias")),
    "pmevent": (_any("mask"),),
    "shfl": (_one("sync"), _one("up down bfly idx"), _one("b32")),
    "vote": (_one("sync"), _one("all any uni ballot"), _one("pred b32")),
    "activemask": (_one("b32"),),
    "match": (_one("any all"), _one("sync"), _one("b32 b64")),
    "nanosleep": (_one("u32"),),
    "bra": (_any("uni"),),
    "brx": (_one("idx"), _any("uni")),
    "call": (_any("uni"),),
    "ret": (_any("uni"),),
    "exit": (), "trap": (), "brkpt": (),
    "alloca": (_WIDE,), "stacksave": (_WIDE,), "stackrestore": (_WIDE,),
}  # fmt: skip
"""The modifiers of the instructions that the machine itself runs (PTX ISA 9.4, the section of each)."""


_TEXTURES = "textures and surfaces are not modelled"
_VIDEO = "of the video instructions there are vabsdiff2 and vabsdiff4 with .u32 results, as compilers emit them"
_OUTSIDE = {
    **dict.fromkeys(("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"), _TEXTURES),
    **dict.fromkeys((f"v{way}{parts}" for way in ("add", "sub", "absdiff", "min", "max", "set", "avrg", "shl", "shr", "mad") for parts in ("", 2, 4)), _VIDEO),
}  # fmt: skip
"""Instructions of PTX that no table has, by stem, and why."""
SPACES = _SPACE[1]
"""The state spaces that loads, stores and atomics name."""


def choosing(words: Iterable[str]) -> set[str]:
    """Of an atomic's modifiers those that choose its row: not order, scope, state space and cache."""
    return {word for word in words if word == "noftz" or any(word in own[1] for own in (_ATOMIC, _NUMBERS, _VECTOR))}


_ALL = frozenset(TARGETS)
_NEEDS: tuple[tuple[str, frozenset[str], int], ...] = (
    ("", frozenset(("shared::cluster",)), 90), ("", frozenset(("cluster",)), 90), ("", frozenset(("L2::cache_hint",)), 80),
    ("ld", frozenset(("L2::256B",)), 80), ("ld", frozenset(("v8",)), 100), ("st", frozenset(("v8",)), 100),
    *((stem, frozenset(("v4", type)), 100) for stem in ("ld", "st") for type in ("b64", "u64", "s64", "f64")),
    ("prefetch", frozenset(("tensormap",)), 90), ("prefetch", frozenset(("L2::evict_last",)), 80), ("prefetch", frozenset(("L2::evict_normal",)), 80),
)  # fmt: skip
"""Modifiers that need a later compute capability than the instruction does, of one stem or of all (ptxas 13.5)."""


@lru_cache(maxsize=1 << 14)
def targets_of(opcode: str) -> frozenset[str]:
    """The targets that have an instruction, in whatever order its modifiers stand.

    >>> sorted(targets_of("ld.shared::cluster.u32"))[:2], "sm_80" in targets_of("tanh.approx.f32")
    (['sm_100', 'sm_100a'], True)
    """
    stem, *words = opcode.split(".")
    found = scalar(opcode) or scalar(opcode + "|") or scalar(opcode + "/3")
    if found is not None:
        return found.targets
    if stem in ("atom", "red"):
        rows = [item.targets for item in atomics().values() if set(item.mnemonic.split(".")) == choosing(words)]
        least = frozenset().union(*rows) if rows else _ALL
    elif stem in GRAMMARS:
        least = _ALL
    else:
        row = catalog.row_of(opcode)
        return _ALL if row is None else frozenset(row.targets)
    needs = [number for own, given, number in _NEEDS if own in ("", stem) and given <= set(words)]
    return frozenset(name for name in least if TARGETS[name].number >= max(needs, default=0))


def refusal(opcode: str) -> str | None:
    """Why an opcode with its modifiers is not known, and what is nearest; None if it is.

    >>> refusal("add.ftz.rn.f32"), refusal("ld.global.v4.f32"), refusal("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    (None, None, None)
    >>> refusal("ld.globl.f32")[:64]
    "'ld.globl.f32' is not known: no modifier .globl; nearest: global"
    """
    return (
        _refusal(opcode)
        if len(opcode) <= catalog.LONGEST_MNEMONIC
        else f"{shortened(opcode)} is not known: it is too long"
    )


@lru_cache(maxsize=1 << 14)
def _refusal(opcode: str) -> str | None:
    stem, *words = opcode.split(".")
    grammar = GRAMMARS.get(stem)
    complaint = _against(words, grammar) if grammar is not None else None
    if grammar is not None and complaint is None:
        return None
    if scalar(opcode) or scalar(opcode + "|") or scalar(opcode + "/3") or catalog.row_of(opcode) is not None:
        return None
    if complaint:
        return f"{shortened(opcode)} is not known: {complaint}"
    if stem in _OUTSIDE:
        return f"{shortened(opcode)} is not known: {_OUTSIDE[stem]}"
    return f"{shortened(opcode)} is not known; nearest: {listing(nearest(opcode, _known()))}"


@cache
def _known() -> tuple[str, ...]:
    return (*(name.rstrip("|").removesuffix("/3") for name in scalars()), *catalog.rows(), *GRAMMARS)


def _against(words: list[str], grammar: tuple[Slot, ...]) -> str | None:
    """What is wrong with modifiers, which stand in any order."""
    left = list(grammar)
    for word in words:
        slot = next((own for own in left if word in own[1]), None)
        if slot is None:
            known = sorted({own for _, names in grammar for own in names})
            return (
                f"no modifier .{word}; nearest: {listing(nearest(word, known)) or 'it has none'}"
                if word not in known
                else f".{word} beside another modifier of its kind"
            )
        left.remove(slot)
    missing = next((names for needed, names in left if needed), None)
    return f"one of these is missing: {listing(sorted(missing))}" if missing else None
