"""What an ordinary access or a fence orders, by the words of its opcode, and for whom: weak accesses nothing."""

from __future__ import annotations

from functools import cache

_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
_NEAR = frozenset(("cta", "cluster"))
"""Scopes within a cluster."""


@cache
def order_of(opcode: str) -> tuple[bool, bool, bool, bool]:
    """Of an ordinary access: whether it is not weak, whether it can be part of an acquire, whether it acquires itself, and whether it releases.

    A reduction gives no value, so that nothing is acquired with it (PTX ISA 9.4, Memory Consistency Model, special cases).
    """
    stem, *words = opcode.split(".")
    strong = stem in ("atom", "red") or not _STRONG.isdisjoint(words)
    both = "acq_rel" in words
    return strong, stem != "red", both or "acquire" in words, both or "release" in words


@cache
def is_far(opcode: str) -> bool:
    """Whether a strong access, or a membar, is for the whole GPU: what names no scope is (PTX ISA 9.4, Scope, atom, membar)."""
    return _NEAR.isdisjoint(opcode.split("."))
