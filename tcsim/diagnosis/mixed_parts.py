"""Which block's scale factors or metadata each block of K used, where no rule says it: read off the outputs as weights of partial products."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.least_squares import samples, solved_at, sources
from tcsim.diagnosis.maps import SAME, Ints, Rule
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.diagnosis.where import ranges


def part_maps(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """Factors of A, of B or of both alike; metadata of A."""
    if reals.factors is not None and reals.bare is not None:
        count = reals.factors[0].shape[2]
        for names in ("a", "b", "ab"):
            source = _solved(reals, open_, count, partial(_scaled, reals, names))
            if source is not None:
                rule = _rule("scale", source, 1, reals.a.shape[2])
                yield Candidate(rule if "a" in names else SAME, rule if "b" in names else SAME)
    if reals.kept is not None and reals.positions is not None:
        own = problem.machine.kept
        count = reals.kept.shape[2] // own
        source = _solved(reals, open_, count, partial(_with_positions, reals, own))
        if source is not None:
            yield Candidate(a=_rule("metadata", source, own, reals.a.shape[2]))


def _solved(reals: Reals, open_: Mask, count: int, terms_of: partial[Numbers]) -> Ints | None:
    """(blocks,): whose part each block used, -1 for none; None if it is not so, or nothing moved."""
    chosen = samples(reals, open_, count * (count + 1))
    if chosen is None:
        return None
    source = sources(solved_at(reals, chosen, terms_of(chosen), count))  # of (samples, blocks, sources), none last
    if source is None or (source < 0).any() or np.array_equal(source, np.arange(count)):
        return None
    return np.where(source == count, -1, source)


def _scaled(reals: Reals, names: str, chosen: Ints) -> Numbers:
    """Products of the blocks of K with every block's factors in turn, and with 1."""
    if reals.factors is None or reals.bare is None:
        raise ValueError("no factors")
    t, i, j = chosen.T
    lines, factors = {"a": i, "b": j}, dict(zip("ab", reals.factors, strict=True))
    count = reals.factors[0].shape[2]
    plain = (reals.bare[0][t, i] * reals.bare[1][t, j]).reshape(len(t), count, -1).sum(axis=2)[:, :, None]
    for name in "ab":
        own = factors[name][t, lines[name]]
        ones = np.ones((len(t), 1))
        plain = plain * (np.concatenate([own, ones], axis=1)[:, None] if name in names else own[:, :, None])
    return plain


def _with_positions(reals: Reals, own: int, chosen: Ints) -> Numbers:
    """Products of the blocks of K with every block's metadata in turn, and with the positions that nothing gives."""
    t, i, j = chosen.T
    if reals.kept is None:
        raise ValueError("no metadata")
    width = reals.kept.shape[2]
    count = width // own
    terms = np.empty((len(t), count, count + 1))
    for source in range(count + 1):
        at = np.resize(np.arange(own), width) + source * own if source < count else np.full(width, -1)
        dense = reals.other_part("a", "metadata", t, i, np.repeat(i[:, None], width, axis=1), at[None])
        terms[:, :, source] = (dense * reals.b[t, j]).reshape(len(t), count, -1).sum(axis=2)
    return terms


def _rule(part: str, source: Ints, size: int, depth: int) -> Rule:
    """The map as a rule; size: elements of the part in a block; depth: K."""
    name, block = ("scale_{x}", "block") if part == "scale" else (part, "K block")
    none = "counts as 1" if part == "scale" else "is not read: the first positions of each group"
    advice = f"look at the index along K with which the {'scale factors' if part == 'scale' else part} of {{x}} are read: a tile's, a step's, a slice's"
    missing = (source[source != np.arange(len(source))] < 0).all()
    mistake = f"{name} missing in a part of K" if missing else f"{name} of another {block}"
    said = _said(source, depth // len(source), none)
    return Rule(mistake, said, advice, partial(_at, source, size), 3, part=part)


def _said(source: Ints, width: int, missing: str) -> str:
    """The map in words, of blocks that are `width` of K each.

    >>> _said(np.array([0, 0, 2, -1]), 32, "counts as 1")
    'block 1 of 4 (K 32-63): that of block 0 instead of its own; block 3 of 4 (K 96-127, the last): counts as 1'
    >>> _said(np.array([1, 2, 3, -1]), 32, "is not read")
    'block i of 4: that of block i + 1, a later one; the last: is not read'
    >>> _said(np.array([3, 2, 1, 0, 7, 6, 5, 4, 8, 9]), 32, "is not read")
    'the blocks of every 4 in reverse'
    >>> _said(np.array([0, 1, 2, 0, 1, 2]), 32, "counts as 1")
    'blocks 3-5 of 6 (K 96-191): each that of the block 3 before'
    """
    parts = []
    own = np.arange(len(source))
    for size in (2, 4, 8, 16, len(source)):
        whole = len(source) // size * size
        turned = own[:whole] // size * size + size - 1 - own[:whole] % size
        if whole and np.array_equal(source, np.append(turned, own[whole:])):
            return f"the blocks of every {size} in reverse"
    by = int(source[0])
    if 0 < by < len(source) and np.array_equal(source[:-by], own[by:]) and len(set(source[-by:].tolist())) == 1:
        end = missing if source[-1] < 0 else f"that of block {source[-1]}"
        return f"block i of {len(source)}: that of block i + {by}, a later one; the last{f' {by}' if by > 1 else ''}: {end}"
    moved = np.flatnonzero(source != own)
    if len(moved) > 2 and np.ptp(moved) == len(moved) - 1 and source.min() >= 0 and np.ptp(source[moved] - moved) == 0:
        first, stop, off = int(moved[0]), int(moved[-1]) + 1, int(source[moved[0]] - moved[0])
        k = f"K {first * width}-{stop * width - 1}"
        return f"blocks {first}-{stop - 1} of {len(source)} ({k}): each that of the block {abs(off)} {'after' if off > 0 else 'before'}"
    for other in dict.fromkeys(source[source != own].tolist()):
        blocks = np.flatnonzero((source == other) & (source != own))
        where = f"block{'s' if len(blocks) > 1 else ''} {', '.join(map(str, blocks))} of {len(source)}"
        k = ranges((blocks[:, None] * width + np.arange(width)).reshape(-1))
        last = ", the last" if blocks[-1] == len(source) - 1 else ""
        parts.append(
            f"{where} (K {k}{last}): " + (missing if other < 0 else f"that of block {other} instead of its own")
        )
    return "; ".join(parts[:6]) + (f"; and {len(parts) - 6} more" if len(parts) > 6 else "")


def _at(source: Ints, size: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    block = source[np.minimum(k // size, len(source) - 1)]
    return r, np.where(block < 0, -1, block * size + k % size)
