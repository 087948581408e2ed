"""What an ordinary access orders, by the words of its opcode: weak ones nothing."""

from __future__ import annotations

from functools import cache

_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))


@cache
def order_of(opcode: str) -> tuple[bool, bool, bool, bool]:
    """Of an ordinary access: whether it is not weak, whether it can be part of an acquire, whether it acquires itself, and whether it releases.

    A reduction gives no value, so that nothing is acquired with it (PTX ISA 9.4, Memory Consistency Model, special cases).
    """
    stem, *words = opcode.split(".")
    strong = stem in ("atom", "red") or not _STRONG.isdisjoint(words)
    both = "acq_rel" in words
    return strong, stem != "red", both or "acquire" in words, both or "release" in words
