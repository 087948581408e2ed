"""How a PTX mnemonic is read: a stem, then modifiers of which only some have an order."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import NamedTuple

STEMS: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {
        head: frozenset(words.split())
        for head, words in {
            "applypriority": "async bulk tensor",
            "bar": "cta arrive red warp",
            "barrier": "cta cluster arrive red wait",
            "clmad": "lo hi",
            "clusterlaunchcontrol": "try_cancel query_cancel async",
            "cp": "async reduce bulk prefetch tensor mbarrier arrive commit_group wait_group wait_all",
            "createpolicy": "fractional range cvt",
            "cvt": "pack",
            "cvta": "to",
            "div": "full",
            "dp2a": "lo hi",
            "fence": "proxy",
            "griddepcontrol": "launch_dependents wait",
            "mad": "lo hi wide",
            "mad24": "lo hi",
            "madc": "lo hi",
            "mbarrier": "init inval check_layout arrive arrive_drop expect_tx complete_tx test_wait try_wait parity pending_count",
            "membar": "proxy",
            "mul": "lo hi wide",
            "mul24": "lo hi",
            "multimem": "ld_reduce st red cp async reduce bulk",
            "red": "async",
            "setmaxnreg": "inc dec",
            "shf": "l r",
            "st": "async bulk",
            "tcgen05": "alloc dealloc relinquish_alloc_permit commit cp ld mma red shift spcompress st ws wait::ld wait::st",
            "tensormap": "replace cp_fenceproxy",
            "wgmma": "mma_async fence commit_group wait_group",
            "wmma": "load store mma a b c d",
        }.items()
    }
)
"""The words that are part of an instruction's name where they stand at its beginning: the assembler takes them in that place only."""

ORDERED = (
    r"((bf|tf|[subf])\d+(?<!b1024)|u?e\d+m\d+)(x\d+)?|s\df\dx2|b\d+x\d+_p\d+|pred",  # types; b1024 is a swizzle's
    r"row|col",  # layouts of A and B
    r"and|or|xor|popc",  # an operation on bits and what is done with its result
    r"(shared|global|local)(::\w+)?",  # state spaces: destination, source
    r"L2::evict_\w+",  # priorities of a cache policy: primary, secondary
)
"""Words whose order has a meaning among those of the same kind, which others may stand between."""
_KINDS = tuple(map(re.compile, ORDERED))


class Spelling(NamedTuple):
    """What the order of a mnemonic's modifiers does not change: two spellings of one instruction have equal ones."""

    stem: tuple[str, ...]
    ordered: tuple[tuple[str, ...], ...]  # for each kind of `ORDERED`, its words as they follow each other
    others: tuple[str, ...]  # sorted


def spelling(mnemonic: str) -> Spelling:
    """A mnemonic taken apart. ptxas 13.5 and 12.9 take each order of modifiers that leaves this as it is, and no other.

    >>> spelling("ldmatrix.sync.aligned.x4.m8n8.shared.b16") == spelling("ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    True
    >>> spelling("cp.async.bulk.global.shared::cta.bulk_group") == spelling("cp.async.bulk.shared::cta.global.bulk_group")
    False
    """
    head, *words = mnemonic.split(".")
    known, length = STEMS.get(head, frozenset()), 0
    while length < len(words) and words[length] in known:
        length += 1
    ordered: tuple[list[str], ...] = tuple([] for _ in _KINDS)
    others: list[str] = []
    for word in words[length:]:
        kinds = (found for pattern, found in zip(_KINDS, ordered, strict=True) if pattern.fullmatch(word))
        next(kinds, others).append(word)
    return Spelling((head, *words[:length]), tuple(map(tuple, ordered)), tuple(sorted(others)))
