"""The syntax of the instructions that the machine itself runs, as data: modifiers in the manual's order, and which combine.

Sources: PTX ISA 9.4, the section of each instruction; which combine, the targets and the lowest versions are those of ptxas 13.5.37.
"""

from __future__ import annotations

from dataclasses import replace

from tcsim.model.grammar import Grammar, Rule, Since, Slot
from tcsim.model.grammar import apart as _apart
from tcsim.model.grammar import need as _needs
from tcsim.model.grammar import one as _one
from tcsim.model.grammar import since as _since
from tcsim.model.grammar import some as _any
from tcsim.model.grammar import words_of as _set

_BITS = "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
_SHARED = "shared shared::cta shared::cluster"
_SCOPES = "cta cluster gpu sys"
_L1S = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
_L2S = "L2::evict_normal L2::evict_first L2::evict_last"
_FETCHES = "L2::64B L2::128B L2::256B"
_SCOPE, _HINT, _VECTOR = _any(_SCOPES), _any("L2::cache_hint"), _any("v2 v4 v8")
SPACES = _set(f"global {_SHARED} local const param param::entry param::func")
"""The state spaces that loads, stores and atomics name."""


_WORDS, _DOUBLE = "b32 u32 s32 f32", "b64 u64 s64 f64"


def _access(orders: str, ways: str) -> tuple[Rule, ...]:
    """What combines in ld and st: orders with a scope, and caching policies (PTX ISA 9.4, sections ld and st)."""
    private = "local const param param::entry param::func"
    elsewhere = f"{_SHARED} {private}"
    return (
        _needs(_SCOPES, orders), _needs(orders, _SCOPES), _needs(orders, "mmio"), _needs("sys", "mmio"),
        _apart(f"{elsewhere} {_L1S} {_L2S} {_FETCHES} L2::cache_hint v2 v4 v8", "mmio"),
        _apart(private, orders), _apart(private.replace("local", ""), "volatile"), _apart(ways, f"{orders} volatile"),
        _apart(f"{_L1S} L2::cache_hint", "volatile"), _apart(_L1S, ways), _apart(f"{_L1S} {_L2S} {_FETCHES} L2::cache_hint", elsewhere),
        _needs("v4 v8", _L2S), _needs(_DOUBLE, _L2S, "v4"), _needs(_WORDS, _L2S, "v8"),
        _apart("v2 v4 v8", "b128"), _apart(_DOUBLE, "v8"), _apart(elsewhere, "v4", _DOUBLE), _apart(elsewhere, "v8", _WORDS),
    )  # fmt: skip


_ATOMICS = "add min max and or xor exch cas inc dec"
_HALVES = "f16 f16x2 bf16 bf16x2"
_NUMBERS = _one(f"b16 b32 b64 b128 u32 u64 s32 s64 {_HALVES} f32 f64")
_REDUCED = Slot(True, _NUMBERS.words - _set("b16 b128"))
ATOMIC = _one(_ATOMICS)[1] | _NUMBERS[1] | _set("noftz v2 v4 v8")
"""Of an atomic's modifiers those that choose its row: not order, scope, state space and cache."""
_WIDE = _one("u32 u64")
_COMMON = (
    _since("7.8", 0, "shared::cta"), _since("7.8", 90, "shared::cluster cluster"), _since("8.3", 0, "param::entry param::func"),
    _since("6.0", 70, "weak relaxed acquire release acq_rel"), _since("8.2", 70, "mmio"), _since("9.3", 70, "mmio", "acquire release"), _since("9.1", 0, "volatile", "local"),
    _since("7.4", 70, _L1S), _since("7.4", 75, "L2::64B L2::128B"), _since("7.4", 80, "L2::256B L2::cache_hint"),
    _since("8.3", 70, "b128"), _since("8.4", 70, "b128", "sys"),
)  # fmt: skip
"""Of every instruction."""
_ACCESS = (_since("8.8", 100, "v8", _WORDS), _since("8.8", 100, "v4", _DOUBLE))
_ATOMIC = (
    _since("5.0", 60, _SCOPES), _since("5.0", 60, "add", "f64"), _since("6.2", 60, "noftz", "f16x2"), _since("6.3", 70, "noftz", "f16"),
    _since("7.8", 90, "bf16 bf16x2"), _since("6.3", 70, "b16"), _since("8.3", 90, "b128"), _since("8.1", 90, "v2 v4 v8"),
    _since("9.4", 90, "noftz", "f32"),
)  # fmt: skip
_PARAM, _SYNC = (_since("7.7", 70, "param param::entry"),), (_since("5.1", 0, "sync"),)


_FURTHER = _set("L2::cache_hint cas")
_OPERANDS = {
    "ld": (2,), "ldu": (2,), "st": (2,), "atom": (3,), "red": (2,), "mov": (2,), "cvta": (2,), "isspacep": (2,), "prefetch": (1,),
    "prefetchu": (1,), "membar": (0,), "pmevent": (1,), "shfl": (5,), "vote": (3,), "activemask": (1,), "match": (3,), "nanosleep": (1,),
    "bra": (1,), "brx": (2,), "ret": (0,), "exit": (0,), "trap": (0,), "brkpt": (0,), "alloca": (2, 3), "stacksave": (1,), "stackrestore": (1,),
}  # fmt: skip
"""How many operands each takes; a modifier of _FURTHER brings one more."""
_VECTORS = {"ld": (0,), "ldu": (0,), "st": (1,), "atom": (0, 2), "red": (1,), "mov": (0, 1)}
"""Which operands are vectors where .v2, .v4 or .v8 stands."""


def _grammar(
    slots: tuple[Slot, ...], rules: tuple[Rule, ...] = (), since: tuple[Since, ...] = (), named: str = ""
) -> Grammar:
    return Grammar(slots, rules, (*_COMMON, *since), named)


_GRAMMARS: dict[str, Grammar] = {
    "ld": _grammar(
        (_any("mmio"), _any("weak volatile relaxed acquire"), _SCOPE, Slot(False, SPACES), _any("nc"), _any("ca cg cs lu cv"),
         _any(_L1S), _any(_L2S), _HINT, _any(_FETCHES), _VECTOR, _one(_BITS)),
        (*_access("relaxed acquire", "ca cg cs lu cv"), _needs("global", "nc"), _apart("weak volatile relaxed acquire lu cv", "nc")),
        _ACCESS,
    ),
    "ldu": _grammar((_any("global"), _any("v2 v4"), _one(_BITS)), (_apart("v2 v4", "b128"), _apart(_DOUBLE, "v4"))),
    "st": _grammar(
        (_any("mmio"), _any("weak volatile relaxed release"), _SCOPE, Slot(False, SPACES - _set("const param::entry")), _any("wb cg cs wt"),
         _any(_L1S), _any(_L2S), _HINT, _VECTOR, _one(_BITS)),
        _access("relaxed release", "wb cg cs wt"),
        _ACCESS,
    ),
    "atom": _grammar(
        (_any("relaxed acquire release acq_rel"), _SCOPE, _any(f"global {_SHARED}"), _one(_ATOMICS), _any("noftz"), _HINT, _VECTOR, _NUMBERS),
        (_apart("v2 v4 v8 L2::cache_hint", _SHARED), _apart("L2::cache_hint", "cas")),
        _ATOMIC,
    ),
    "red": _grammar(
        (_any("relaxed release"), _SCOPE, _any(f"global {_SHARED}"), _one("add min max and or xor inc dec"), _any("noftz"), _HINT, _VECTOR, _REDUCED),
        (_apart("v2 v4 v8 L2::cache_hint", _SHARED),),
        _ATOMIC,
    ),
    "mov": _grammar((_any("v2 v4"), _one("b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f32 f64 pred")), (_apart("v2 v4", "b128 pred"), _apart(_DOUBLE, "v4"))),
    "cvta": _grammar((_any("to"), _one(f"global {_SHARED} local const param param::entry"), _one("u64")), (), _PARAM, "to"),
    "isspacep": _grammar((_one(f"global {_SHARED} local const param param::entry"),), (), _PARAM),
    "prefetch": _grammar(
        (_any("global local const param"), _one("L1 L2 L2::evict_last L2::evict_normal tensormap")),
        (_apart("local", "L2::evict_last L2::evict_normal"), _needs("tensormap", "const param"), _apart("global local", "tensormap")),
        (_since("7.4", 80, "L2::evict_last L2::evict_normal"), _since("8.0", 90, "tensormap")),
    ),
    "prefetchu": _grammar((_one("L1"),)),
    "membar": _grammar((_one("cta gl sys proxy"), _any("alias")), (_needs("alias", "proxy"), _needs("proxy", "alias")), (_since("7.5", 60, "proxy"),), "proxy"),
    "pmevent": _grammar((_any("mask"),)),
    "shfl": _grammar((_one("sync"), _one("up down bfly idx"), _one("b32")), (), _SYNC),
    "vote": _grammar((_one("sync"), _one("all any uni ballot"), _one("pred b32")), (_needs("b32", "ballot"), _needs("ballot", "b32")), _SYNC),
    "activemask": _grammar((_one("b32"),), (), (_since("6.2", 0, "b32"),)),
    "match": _grammar((_one("any all"), _one("sync"), _one("b32 b64")), (), (_since("6.0", 70, "sync"),)),
    "nanosleep": _grammar((_one("u32"),), (), (_since("6.2", 70, "u32"),)),
    "bra": _grammar((_any("uni"),)),
    "brx": _grammar((_one("idx"), _any("uni")), (), (_since("5.1", 0, "idx"),), "idx"),
    "call": _grammar((_any("uni"),)),
    "ret": _grammar((_any("uni"),)),
    "exit": _grammar(()), "trap": _grammar(()), "brkpt": _grammar(()),
    **dict.fromkeys(("alloca", "stacksave", "stackrestore"), _grammar((_WIDE,), (), (_since("7.3", 60, "u32 u64"),))),
}  # fmt: skip
GRAMMARS = {
    stem: replace(own, operands=_OPERANDS.get(stem, ()), further=_FURTHER, vectors=_VECTORS.get(stem, ()))
    for stem, own in _GRAMMARS.items()
}
"""By the first word of an instruction."""
