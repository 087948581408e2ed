"""Pitches, pointers and bounds of any size, read off the outputs: where in memory the line begins that an output was computed from, and where its K ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tcsim.core.samples import repeatable
from tcsim.diagnosis.maps import ACROSS, ALONG, Ints, Rule, k_from, pitched, within
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.diagnosis.where import ranges

_LINES, _OUTPUTS = 5, 6  # lines that are looked for, and outputs of each
_MOST = 40  # places where a line may begin; of more it tells nothing
_SHARE = 0.6  # of the lines that an address must be right for
_FOUND = 3  # addresses that are tried on all outputs
_BEYOND = 65  # how far beyond twice the right one a pitch is looked for
_BLOCK = 32  # lines, or of K, of the smallest tile whose index is likelier to be off than a pointer
_PITCH, _POINTER = "{x}: pitch wrong", "{x}: pointer off"
_LEADING, _FIRST = "look at the leading dimension that is passed", "look at the address of the first element"


def addresses(problem: Problem, reals: Reals, open_: Mask) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Rules of A and of B whose lines begin elsewhere in memory, with scale factors that stay; of a sparse A other rules say where it lies."""
    matrix = int(open_.sum(axis=(1, 2)).argmax())
    found: list[tuple[Rule, ...]] = []
    for side, name in enumerate("ab"):
        if name == "a" and reals.positions is not None:
            found.append(())
            continue
        lines = (reals.lines(name) if reals.bare is None else reals.bare[side])[matrix]
        count = lines.shape[0] if problem.size is None else problem.size[side]
        view = _View.of(reals, open_, matrix, name, lines[:count, : problem.depth])
        rules = (within(rule, view.depth, lines.shape[1]) for rule in view.rules())
        found.append(tuple(rules if reals.bare is None else (replace(rule, part="data") for rule in rules)))
    return found[0], found[1]


@dataclass(frozen=True)
class _View:
    """A problem with the lines of one operand as rows."""

    own: Numbers  # (lines, K), as they were given
    others: Numbers  # (others, K)
    seen: Numbers  # (lines, others), without C
    reach: Numbers
    usable: Mask
    what: str
    factors: Numbers | None  # (lines, K): scale factors that stay where they are

    @classmethod
    def of(cls, reals: Reals, open_: Mask, matrix: int, name: str, own: Numbers) -> _View:
        """Of operand a or b of a matrix."""
        others = reals.lines("b" if name == "a" else "a")[matrix][:, : own.shape[1]]
        seen = (reals.observed - reals.c)[matrix]
        usable = open_[matrix] & reals.finite[matrix] & (reals.observed[matrix] != 0)
        reach = reals.reach[matrix]
        if name == "b":
            seen, usable, reach = seen.T, usable.T, reach.T
        factors = None
        if reals.factors is not None:
            each = reals.factors["ab".index(name)][matrix]
            factors = np.repeat(each, reals.a.shape[2] // each.shape[1], axis=1)[:, : own.shape[1]]
        return cls(own, others, seen, reach, usable, "rows" if name == "a" else "columns", factors)

    @property
    def count(self) -> int:
        """Lines."""
        return self.own.shape[0]

    @property
    def depth(self) -> int:
        """K."""
        return self.own.shape[1]

    def rules(self) -> Iterator[Rule]:
        """Lines that lie one after another along K, then those whose neighbours lie side by side."""
        enough = np.flatnonzero(self.usable.sum(axis=1) >= 3)
        if not len(enough):
            return
        lines = enough[np.unique(np.linspace(0, len(enough) - 1, _LINES).astype(int))]
        shape = self.count, self.depth
        along = {int(line): self._begins(int(line), False) for line in lines}
        for pitch, off in _affine(along, self.depth):
            yield _rule(pitch, off, shape, self.what)
        for off in _common([self._begins(int(line), True) - line for line in lines]):
            yield _rule(self.count, off, shape, "k")
        for pitch in self._pitches_across(lines):
            yield _rule(pitch, 0, shape, "k")

    def _met(self, line: int, others: Any) -> Numbers:
        """What a line is multiplied with."""
        return self.others[others] if self.factors is None else self.others[others] * self.factors[line]

    def _asked(self, line: int) -> Ints:
        others = np.flatnonzero(self.usable[line])
        found: Ints = others[np.unique(np.linspace(0, len(others) - 1, _OUTPUTS).astype(int))]
        return found

    def _confirmed(self, line: int, begins: Ints, step: int, flat: Numbers) -> Ints:
        """Of some addresses those that give more outputs of a line too; none if they are too many."""
        for other in self._asked(line):
            if not len(begins):
                break
            place = begins[:, None] + np.arange(self.depth) * step
            inside = (place >= 0) & (place < flat.size)
            values = np.where(inside, flat[np.where(inside, place, 0)], 0.0) @ self._met(line, other)
            begins = begins[np.abs(values - self.seen[line, other]) <= self.reach[line, other]]
        return begins if len(begins) <= _MOST else begins[:0]

    @cached_property
    def _memory(self) -> list[tuple[int, int, Any]]:
        """Line after line as it lies, and with zeros behind each, so that no line goes on in the next one: how long that is, and its transform."""
        found = []
        for lines in (self.own, np.pad(self.own, ((0, 0), (0, self.depth)))):
            size = 1 << int(lines.size + self.depth - 1).bit_length()
            found.append((lines.size, size, np.fft.rfft(lines.reshape(-1), size)))
        return found

    def _begins(self, line: int, across: bool) -> Ints:
        """Where a line may begin whose K lies in a row; across: at the right distance."""
        other, (length, size, turned) = int(self._asked(line)[0]), self._memory[across]
        values = np.fft.irfft(turned * np.conj(np.fft.rfft(self._met(line, other), size)), size)
        begins = np.flatnonzero(np.abs(values - self.seen[line, other]) <= 1.01 * self.reach[line, other])
        begins = np.where(begins >= length, begins - size, begins)
        begins = begins[begins > -self.depth]
        if across:
            row, k = np.divmod(begins + self.depth, 2 * self.depth)
            begins = (k - self.depth) * self.count + row
        lines = np.ascontiguousarray(self.own.T) if across else self.own
        return self._confirmed(line, begins, self.count if across else 1, lines.reshape(-1))

    def _pitches_across(self, lines: Ints) -> list[int]:
        """Other distances of K that give the outputs of most lines, the first element being right."""
        flat = np.ascontiguousarray(self.own.T).reshape(-1)
        pitches = np.arange(1, 2 * self.count + _BEYOND)
        pitches = pitches[pitches != self.count]
        fits = np.zeros(len(pitches), np.int64)
        for line in lines:
            others = self._asked(int(line))[-2:]
            place = pitches[:, None] * np.arange(self.depth) + line
            inside = place < flat.size
            values = np.where(inside, flat[np.where(inside, place, 0)], 0.0) @ self._met(int(line), others).T
            fits += (np.abs(values - self.seen[line, others]) <= self.reach[line, others]).all(axis=1)
        best = np.argsort(-fits, kind="stable")[:_FOUND]
        return [int(pitches[one]) for one in best if fits[one] >= max(2, _SHARE * len(lines))]


def _affine(begins: dict[int, Ints], depth: int) -> list[tuple[int, int]]:
    """(pitch, pointer) that give where most lines begin, the best first."""
    votes: dict[tuple[int, int], int] = {}
    lines = list(begins)
    for place, one in enumerate(lines):
        for other in lines[place + 1 :]:
            steps = begins[other][None] - begins[one][:, None]
            for first, second in np.argwhere(steps % (other - one) == 0):
                pitch = int(steps[first, second]) // (other - one)
                votes[pitch, int(begins[one][first]) - pitch * one] = 0
    if len(lines) == 1:
        votes = {(depth, int(begin) - depth * lines[0]): 0 for begin in begins[lines[0]]}
    for pitch, off in votes:
        votes[pitch, off] = sum(bool((begins[line] == pitch * line + off).any()) for line in lines)
    right = [key for key in votes if key != (depth, 0) and key[0] >= 0 and votes[key] >= _SHARE * len(lines)]
    return sorted(right, key=lambda key: (-votes[key], key[0] != depth, abs(key[1])))[:_FOUND]


def _common(offs: list[Ints]) -> list[int]:
    """What most of some lists hold, zero apart."""
    values, counts = np.unique(np.concatenate([np.unique(off) for off in offs]), return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_FOUND]
    return [int(values[one]) for one in most if values[one] and counts[one] >= _SHARE * len(offs)]


def _rule(pitch: int, off: int, shape: tuple[int, int], what: str) -> Rule:
    """The rule of a pitch and a pointer; shape: lines and K; what: the lines, "k" where their neighbours lie side by side."""
    order = ACROSS if what == "k" else ALONG
    length = shape[order == ALONG]
    where = partial(pitched, order == ALONG, *shape, length, pitch, off)
    if pitch != length:
        first = f", and the first element {abs(off)} too {'late' if off > 0 else 'early'}" if off else ""
        advice = f"{_LEADING}; {_FIRST}" if off else _LEADING
        return Rule(_PITCH, f"{pitch} elements for {length} ({order}){first}", advice, where, 4 + bool(off))
    said = f"by {off} elements ({order})"
    if off % length:
        return Rule(_POINTER, said, _FIRST, where, 4 + (off < 0))
    lines = abs(off) // length
    said += f": {lines} {what}, as an offset that is added twice, or a block that begins {lines} too {'late' if off > 0 else 'early'} with zeros behind the end"
    tile = lines % _BLOCK == 0  # then its index is likelier to be off
    most = 2 * abs(off) > shape[0] * shape[1]  # next to nothing is left
    return Rule(
        _POINTER, said, _FIRST, where, 1 + 2 * tile + (order == ACROSS) + 3 * (off < 0) + 3 * most
    )  # late ones are commoner, also of stores


_SAMPLES = 24  # outputs that every bound is tried on
_ENOUGH = 0.9  # of them a bound must give
_ADVICE = "look at what the loads along K are masked by: the bound must be K itself, and the index that of the element"


def bounds(problem: Problem, reals: Reals, open_: Mask) -> tuple[Rule, ...]:
    """Rules of B that leave out all k from a bound on, or up to it, where it is not one of the instruction's steps; of A the same is true.

    open_: (batch, M, N), the outputs that are looked at.
    """
    matrix = int(open_.sum(axis=(1, 2)).argmax())
    i, j = np.nonzero(open_[matrix] & reals.finite[matrix])
    if len(i) < _SAMPLES // 3:
        return ()
    some = repeatable().permutation(len(i))[:_SAMPLES]
    i, j = i[some], j[some]
    depth = problem.length
    step = problem.machine.shape[2]
    sums = np.cumsum(reals.a[matrix, i, :depth] * reals.b[matrix, j, :depth], axis=1)
    wanted = (reals.observed - reals.c)[matrix, i, j][:, None]
    reach = reals.reach[matrix, i, j][:, None]
    found = []
    for early, told in ((True, sums), (False, sums[:, -1:] - sums)):
        share = (np.abs(told - wanted) <= reach).mean(axis=0)
        bound = int(share.argmax()) + 1
        if share[bound - 1] >= _ENOUGH and bound % step and bound < depth:
            lost = np.arange(bound, depth) if early else np.arange(bound)
            said = f"K {ranges(lost)} of a, of b or of both are zeros"
            k = np.arange(reals.a.shape[2])
            found.append(Rule("K block missing", said, _ADVICE, partial(k_from, np.where(np.isin(k, lost), -1, k)), 2))
    return tuple(found)
