"""What an ordinary access or a fence orders, by the words of its opcode, and for whom: weak accesses nothing."""

from __future__ import annotations

from functools import cache

from tcsim.model.operand import Scope

_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
_SCOPES: tuple[Scope, ...] = "cta", "cluster", "gpu", "sys"


@cache
def order_of(opcode: str) -> tuple[bool, bool, bool, bool]:
    """Of an ordinary access: whether it is not weak, whether it can be part of an acquire, whether it acquires itself, and whether it releases.

    A reduction gives no value, so that nothing is acquired with it (PTX ISA, Memory Consistency Model, special cases).
    """
    stem, *words = opcode.split(".")
    strong = stem in ("atom", "red") or not _STRONG.isdisjoint(words)
    both = "acq_rel" in words
    return strong, stem != "red", both or "acquire" in words, both or "release" in words


@cache
def scope_of(opcode: str) -> Scope:
    """The scope of a strong access, or of a membar: the whole GPU if it names none (PTX ISA, Scope, atom, membar).

    >>> scope_of("ld.acquire.cta.shared::cta.u32"), scope_of("atom.shared::cta.add.u32")
    ('cta', 'gpu')
    """
    return next((own for own in _SCOPES if own in opcode.split(".")), "gpu")
