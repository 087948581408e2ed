"""How likely a row is meant that has all the words of a question: what it has besides them counts against it.

A *modifier* that was not asked for (1 and more) makes a row a special case of another; a *preference* (below 1) only orders equals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

_PREFERENCES = (
    (r"sync|aligned|row|col|cta_group::1|shared|global|mma|mma_async|tile|rn|approx|b64|one|relaxed", 0.0),
    (r"f32|f16|b16|s32|b32|d|x4|u32", 0.0),
    (r"bf16|e4m3|s8", 0.1),
    (r"tf32|e5m2|u8|x2|mxf8f6f4|mxf4nvf4", 0.2),
    (r"f64|s4|e2m1|u4|x1|e3m2|e2m3|f16x2|bf16x2|e\dm\dx\d", 0.3),
    (r"b1|ue8m0|ue4m3|u64|s64", 0.4),
    (
        r"m8n8|m16n8k\d+|m8n8k\d+|32x32b|x32|2d|ca|m16n16k16|m64n128k\d+|kind::f16|mbarrier::complete_tx::bytes|bulk_group|popc|xor",
        0.0,
    ),
    (r"cg|x16|128x256b|kind::(tf32|f8f6f4|i8)|wait|arrive", 0.1),
    (r"m64n256k\d+|x64|x8|3d|m16n16k8|kind::mxf\w+", 0.2),
    (r"m64n64k\d+|4d|1d|16x256b", 0.3),
    (r"5d|x128|m(?!16n8|8n8k)\d+n\d+k?\d*|and|\d+x\d+b\w*|dec|inc|add|min|max|mbarrier::arrive::one", 0.4),
    (r"rz|rm|rp|rna|rni|rzi|rmi|rpi|full|cta|u16|s16|b8", 0.5),
    (r"shared::cta|shared::cluster", 0.6),
    (r"satfinite", 1.0),
)
"""What a word costs that was not asked for; any other one costs `_MODIFIER`."""
_WORDS = tuple((re.compile(pattern), cost) for pattern, cost in _PREFERENCES)
_MODIFIER = 1.5

_WHOLE = tuple(
    (re.compile(pattern), cost)
    for pattern, cost in (
        (r"^(ld|st)matrix(?!.*\.shared\.)", 1.0),  # the same instruction, spelled without its state space or longer
        (r"^cp\.async\.c[ag]\.shared::cta", 1.0),
        (r"^cvt\..*satfinite", -0.9),  # narrow formats have no other
        (r"^cvt\..*\.f32$", -0.2),
        (r"^cvt\.rna\.tf32", -0.7),
        (r"^fence\.proxy\.async$", -0.5),
        (r"^mbarrier\..*\.shared\.b64|^mbarrier\.\w+\.b64", -0.1),
        (r"^multimem", 3.0),
        (r"\.m8n8k4\.(?!row\.col)(?!.*f64)", 0.2),
        (r"\.mma\.sync\.aligned\.row\.(?!col)|\.mma\.sync\.aligned\.col\.", 0.2),
        (r"^wmma\.(load|store).*\.(shared|global)", 0.6),
    )
)

_FAMILIES = {
    "mma.sync": 0.0, "wgmma": 0.6, "tcgen05.mma": 1.0, "wmma.mma": 2.0, "wmma.load": 2.6, "wmma.store": 2.8, "ldmatrix": 0.9,
    "stmatrix": 1.4, "cvt": 2.2,
}  # fmt: skip
_OTHER_FAMILY = 1.2
COMPOSED = ("wmma.load", "wmma.store", "wmma.mma")
"""Families whose instructions are several machine instructions: one of these is hardly asked about as one of those."""
_NEWEST = ("tcgen05.mma", "wgmma", "mma.sync", "wmma.mma")
"""What an arch multiplies matrices with, the newest first: on an arch that was named, the newest that it has is meant."""
_HEAD = 0.5  # the first word of the mnemonic was not asked for


@cache
def family_cost(family: str, here: frozenset[str] | None) -> float:
    """What a family costs, if none of the question's words names it; `here`: the families of the arch that was asked for.

    A variant, such as `mma.sp`, costs what its family costs: its further words cost something themselves.
    """
    own = max((name for name in _NEWEST if family.startswith(name.removesuffix(".sync"))), key=len, default=family)
    if here is not None and own in _NEWEST:
        return 0.9 * [name for name in _NEWEST if name in here].index(own)
    return _FAMILIES.get(own, _OTHER_FAMILY)


def head_cost(mnemonic: str, asked: frozenset[str] | set[str]) -> float:
    """What it costs that the first word of a mnemonic was not asked for."""
    return 0.0 if mnemonic.partition(".")[0] in asked else _HEAD


@cache
def word_cost(word: str) -> float:
    """What a word of a mnemonic costs that was not asked for."""
    return next((cost for pattern, cost in _WORDS if pattern.fullmatch(word)), _MODIFIER)


@cache
def spelling_cost(mnemonic: str) -> float:
    """What the whole spelling says besides its words."""
    return sum(cost for pattern, cost in _WHOLE if pattern.search(mnemonic))


_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_BITS = re.compile(r"\d+")
_STORED = {"tf32": 32, "e4m3": 8, "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1": 8}


def shape_cost(mnemonic: str, a: str, asked: bool) -> float:
    """What an unusual shape of mma.sync costs: the usual one is m16n8 and 256 bits of K, of f64 m8n8k4."""
    found = _SHAPE.search(mnemonic)
    if found is None or asked or not mnemonic.startswith("mma"):
        return 0.0
    m, n, k = map(int, found.groups())
    bits = _STORED.get(a) or int((_BITS.search(a) or ["0"])[0])
    row_bits = k * bits // (2 if mnemonic.startswith("mma.sp") else 1)
    usual = (8, 8, 256) if a == "f64" else (16, 8, 256)
    narrow = a == "e2m1" and k % 64 == 0  # two elements in a byte
    return min(0.8, 0.7 * ((m, n) != usual[:2]) + 0.6 * (row_bits != usual[2] and not narrow))


def accumulator_cost(formats: Mapping[str, str]) -> float:
    """A little for sums in f16, and for a C unlike D: they decide where nothing else does."""
    return 0.05 * (formats.get("d") == "f16") + 0.05 * (formats.get("c", formats.get("d")) != formats.get("d"))


def order_cost(asked: Sequence[str], own: Sequence[str]) -> float:
    """What it costs if row and col stand in another order than was asked, or types, or a type not so often."""
    layouts, types = _of_order(tuple(asked))
    again = any(types.count(word) > max(1, own.count(word)) for word in types)
    return 0.5 * (not _follow(layouts, own)) + 0.5 * again + 0.04 * (not _follow(types, own))


@cache
def _of_order(asked: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(word for word in asked if kind.fullmatch(word)) for kind in (_LAYOUTS, _TYPES))


def _follow(words: Sequence[str], own: Sequence[str]) -> bool:
    """Whether words stand in this order among a row's."""
    rest = iter(own)
    return all(word in rest for word in words)


_LAYOUTS = re.compile(r"row|col")
_TYPES = re.compile(r"[subf]\d+|bf16|tf32|e\dm\d")
