"""The search: which hypotheses reproduce the bits of a product. A few telling outputs reject nearly all, the others see more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.explanation.arithmetic import Arithmetic, Codes, arithmetics, rivals
from tcsim.explanation.candidate import Candidate
from tcsim.explanation.epilogue import epilogues, through
from tcsim.explanation.orders import FLOATS, ONE, Chains, Order, add, contiguous, in_turn, residue_first, variants
from tcsim.explanation.probes import cancelling, spread
from tcsim.explanation.question import Floats, Places, Question, ask, codes_of
from tcsim.explanation.report import Explanation, Summation, Verdict
from tcsim.numbers.formats import FORMATS, Format

FIRST, SECOND, THIRD = 10, (32, 96), 1024
"""Outputs that a hypothesis meets: each, those that survived, those that stand for a class."""
WHOLE = 3 << 30
"""Products beyond which the likeliest order, too, is compared with `THIRD` outputs only."""
KEPT = 64
"""Survivors of the first outputs that go on, likeliest first."""
_BOUNDS = 256
"""Places of K, at most, where a part may begin."""


def explain(
    a: Any, b: Any, observed: Any, c: Any = None, arch: str = "sm_90", *, alpha: float = 1.0, beta: float = 1.0,
    scale_a: Any = None, scale_b: Any = None,
) -> Explanation:  # fmt: skip
    """Which instruction, order of K, split and epilogue give the bits of a library's product.

    a (..., M, K), b (..., K, N), observed (..., M, N), c (what broadcasts to it: a matrix or a bias): arrays of NumPy, ml_dtypes, torch, CuPy
    or DLPack whose dtype is the format. The output is taken for alpha scale_a scale_b a b + beta c, perhaps with a ReLU, rounded once.
    f32 operands may be multiplied as they are or rounded to tf32, bf16 or f16: that is part of the search. arch: the GPU's.

    Every hypothesis is compared with the exact product, chains of FMA and the plain order of each instruction, whatever else fits.

    Raises OperandError for shapes or dtypes that do not fit, TargetError for an unknown arch.

    >>> random = np.random.default_rng(0)
    >>> a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((32, 256), (256, 32)))
    >>> half = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    >>> parts = [tcsim.gemm(a[:, k : k + 128], b[k : k + 128], instruction=half).view(np.float32) for k in (0, 128)]
    >>> found = tcsim.explain(a, b, parts[0] + parts[1])
    >>> found.verdict, found.matching, found.classes[0].order
    ('explained', 1024, 'a fresh accumulator every 128 elements of K')
    """
    start = time.monotonic()
    question = ask(a, b, observed, c, (scale_a, scale_b), alpha, beta)
    return Search(question, arch).answer(np.shape(observed), start)


def plain(item: Arithmetic, k: int, unit: int) -> Iterable[Order]:
    """Runs of K in ascending order; of a chain of ordinary instructions beside a tensor core one accumulator."""
    return contiguous(k, unit) if item.ordered and not item.rival else [Order((0, k), name=ONE)]


def residues(item: Arithmetic, k: int, unit: int) -> Iterable[Order]:
    """Runs of K as CUTLASS cuts it, what exceeds whole tiles first."""
    if not item.ordered or item.rival or item.blocks:
        return ()
    return residue_first(k, item.step, 128 // FORMATS[item.formats[0]].container_bits)


def any_sum(item: Arithmetic, k: int, unit: int) -> Iterable[Order]:
    """Runs of K, to be added in any way; of every arithmetic."""
    return chain(contiguous(k, unit), residues(item, k, unit)) if item.ordered else ()


def turns(item: Arithmetic, k: int, unit: int) -> Iterable[Order]:
    """Blocks of K in turn."""
    return in_turn(k, item.step) if item.ordered and not item.blocks else ()


def any_turn(item: Arithmetic, k: int, unit: int) -> Iterable[Order]:
    """Blocks of K in turn, added in any way."""
    return chain.from_iterable(variants(order, False) for order in turns(item, k, unit))


STAGES: tuple[tuple[Callable[[Arithmetic, int, int], Iterable[Order]], str | None, str], ...] = (
    (plain, None, "rne"), (plain, "gelu", "rne"), (plain, "relu", "rne"), (residues, None, "rne"), (any_sum, None, "rne"),
    (turns, None, "rne"), (any_turn, None, "rne"), (plain, None, "rz"),
)  # fmt: skip
"""Which orders are tried, with which activation (None: what the outputs look like) and rounding; the next ones only where those before all fail."""


def _activation(seen: Floats, plain: Floats) -> str:
    """What the outputs look like beside the values without an activation."""
    if not seen.any() or not (plain < -_NEGATIVE).any():
        return ""
    if seen.min() >= 0:
        return "relu"
    return "gelu" if seen.min() > -_NEGATIVE else ""


_NEGATIVE = 0.25
"""Beyond the least value of GELU, -0.17."""


class Search:
    """One question on the way to its answer."""

    def __init__(self, question: Question, arch: str) -> None:
        self.question, self.tried = question, 0
        self.output = FORMATS[question.formats[2]]
        with np.errstate(all="ignore"):
            plain = question.extras.reference(question.product)
            seen = question.values[2]
            self.activation = _activation(seen, plain)
        self.arithmetics = self._likely(list(arithmetics(*question.formats[:2], arch)))
        self._scores: list[tuple[int, Candidate]] = []

    def answer(self, shape: tuple[int, ...], start: float) -> Explanation:
        """All of it."""
        question = self.question
        third = question.telling(self.activation, THIRD)
        survivors = self._screened()
        for count in SECOND:
            survivors = self._kept(survivors, question.telling(self.activation, count))
        survivors = self._kept(self._varied(survivors), question.telling(self.activation, SECOND[-1]))
        whole = question.observed.size * question.k <= WHOLE
        found: list[Summation] = []
        nearest: list[Summation] = []
        for group in self._classes(survivors):
            said = self._summation(group, None if whole and not found else third)
            (found if said.matched == said.compared else nearest).append(said)
        beside = {}
        for arithmetic in rivals(question.formats[:2], question.k):
            said = self._summation([self._rival(arithmetic)], third)
            beside[arithmetic.name] = (said.matched, said.compared)
            if said.matched == said.compared:
                found.append(said)
        if not found and not nearest:
            best = sorted(self._scores, key=lambda item: (-item[0], item[1].rank))[:3]
            nearest = [self._summation([candidate], third) for _, candidate in best]
        nearest.sort(key=lambda item: -item.matched)
        verdict: Verdict = "consistent" if found else "not explained"
        if len(found) == 1 or any(not item.candidate.arithmetic.ordered for item in found):
            verdict, found = "explained", found[:1]
        return Explanation(
            verdict, tuple(found), () if found else tuple(nearest[:3]), beside, self.tried, shape, question.formats,
            time.monotonic() - start, question.k,
        )  # fmt: skip

    def _likely(self, items: list[Arithmetic]) -> list[Arithmetic]:
        """Without those that round operands otherwise than the output says: the exact product of what they read is too far from it."""
        a, b, seen, extras = self.question.at(self.question.telling(self.activation, SECOND[-1]))
        values = self.output.values(seen) if self.output.kind == "float" else seen.astype(np.float64)
        errors: dict[tuple[str, str], float] = {}
        for item in items:
            key = (item.formats[0], item.rounding)
            if self.output.kind == "float" and key not in errors:
                left, right = (FORMATS[f].values(x) for f, x in zip(item.formats, self._read(item, a, b), strict=True))
                with np.errstate(all="ignore"):
                    near = extras.reference((left * right).sum(axis=1), self.activation)
                    off = np.abs(near - values)
                off = np.where(np.isnan(off), np.inf, off)[np.isfinite(values)]  # what overflows is far off
                errors[key] = float(np.median(off)) if off.size else 0.0
        least = min(errors.values(), default=0.0)
        return [item for item in items if errors.get((item.formats[0], item.rounding), 0.0) <= _FARTHER * least]

    def _read(self, arithmetic: Arithmetic, a: Codes, b: Codes) -> tuple[Codes, Codes]:
        left, right, _ = self.question.formats
        return arithmetic.read(a, left, 0), arithmetic.read(b, right, 1)

    def _chains(self, arithmetic: Arithmetic, a: Codes, b: Codes) -> Chains:
        return Chains(arithmetic, *self._read(arithmetic, a, b))

    def _screened(self) -> list[Candidate]:
        """What reproduces the first outputs, likeliest orders first: others are tried only where those fail."""
        k, chosen = self.question.k, self.question.telling(self.activation, FIRST)
        a, b, *_ = self.question.at(chosen)
        held = {item: self._chains(item, a, b) for item in self.arithmetics}
        for stage, activation, rounding in STAGES:
            found = []
            way = self.activation if activation is None else activation
            for item, chains in held.items():
                listed = list(stage(item, k, _unit(k, item.step)))
                chains.prepare(listed)
                if stage is any_sum:
                    listed = self._near(item, chains, listed, chosen)
                found += self._reproducing(item, chains, listed, chosen, (way, rounding))
            if found:
                return sorted(found, key=lambda item: item.rank)[:KEPT]
        return []

    def _near(self, item: Arithmetic, chains: Chains, listed: list[Order], chosen: Places) -> list[Order]:
        """Every other way to add the parts of those orders whose sum lies as near the outputs as rounding allows."""
        found: list[Order] = []
        _, _, seen, extras = self.question.at(chosen)
        values = self.output.values(seen)
        narrow = self.output.name != item.accumulator
        with np.errstate(all="ignore"):
            spacing = (
                np.ldexp(1.0, np.frexp(values)[1] - 1 - self.output.fraction_bits) + 2.0**self.output.minimum_exponent
            )
            for order in listed:
                parts = np.array([part.view(FLOATS[item.accumulator]) for part in chains.parts(order)], np.float64)
                if len(parts) > 2:
                    rounding = np.abs(parts).max(axis=0) * (len(parts) * 2.0**-item.output.fraction_bits)
                    allowed = rounding + spacing * (len(parts) if narrow else 1)
                    off = np.abs(extras.reference(parts.sum(axis=0), self.activation) - values)
                    if not (off <= allowed).all():
                        continue
                found += variants(order, narrow) if len(parts) > 1 else ()
        return found

    def _reproducing(
        self, item: Arithmetic, chains: Chains, listed: list[Order], chosen: Places, way: tuple[str, str]
    ) -> list[Candidate]:
        """Candidates that give every chosen output; the counts of the others are kept."""
        _, _, seen, extras = self.question.at(chosen)
        there = through(self.output.name, item.accumulator)
        found: list[Candidate] = []
        if not listed:
            return found
        totals = np.array([add(chains.parts(order), order, item.accumulator, there) for order in listed])
        for epilogue in epilogues(extras, self.output.name, item.accumulator, *way):
            counts = same(epilogue.outputs(totals, item.accumulator, extras, self.output.name), seen, self.output).sum(
                axis=1
            )
            self.tried += len(listed)
            for place in np.argsort(-counts, kind="stable"):
                candidate = Candidate(item, listed[place], epilogue, self.question.formats, self.question.extras)
                if counts[place] < len(seen):
                    self._scores.append((int(counts[place]), candidate))
                    break
                found.append(candidate)
        return found

    def _varied(self, candidates: list[Candidate]) -> list[Candidate]:
        """With every other way to add the parts of each."""
        more = []
        for item in candidates:
            narrow = self.output.name != item.arithmetic.accumulator
            more += (
                [replace(item, order=order) for order in variants(item.order, narrow)]
                if item.arithmetic.ordered
                else []
            )
        keys = {(item.arithmetic, item.order.key, item.epilogue) for item in candidates}
        return (
            candidates + [item for item in more if (item.arithmetic, item.order.key, item.epilogue) not in keys][:KEPT]
        )

    def _kept(self, candidates: list[Candidate], chosen: Places) -> list[Candidate]:
        """Those that reproduce more outputs."""
        a, b, seen, extras = self.question.at(chosen)
        found = []
        for candidate, chains in self._with_chains(candidates, a, b):
            equal = int(same(candidate.outputs(chains, extras), seen, self.output).sum())
            if equal == len(seen):
                found.append(candidate)
            else:
                self._scores.append((equal, candidate))
        return found

    def _with_chains(self, candidates: list[Candidate], a: Codes, b: Codes) -> list[tuple[Candidate, Chains]]:
        """Each candidate with the chains of its arithmetic, all parts computed together."""
        held: dict[Arithmetic, Chains] = {}
        for item in candidates:
            if item.arithmetic not in held:
                held[item.arithmetic] = self._chains(item.arithmetic, a, b)
                held[item.arithmetic].prepare(
                    [other.order for other in candidates if other.arithmetic == item.arithmetic]
                )
        return [(item, held[item.arithmetic]) for item in candidates]

    def _classes(self, candidates: list[Candidate]) -> list[list[Candidate]]:
        """Candidates by their bits on operands that tell orders apart; in each class, and among classes, the likeliest first."""
        left, right, _ = self.question.formats
        if not candidates or FORMATS[left].kind != "float":
            return [candidates[:1]] if candidates else []
        probe = spread if max(FORMATS[left].bits, FORMATS[right].bits) <= 8 else cancelling
        a, b = probe((_PROBED, _PROBED), self.question.k, (left, right), 0)
        rows, columns = codes_of(a, "a", (left,))[0], np.ascontiguousarray(codes_of(b, "b", (right,))[0].T)
        groups: dict[tuple[Any, ...], list[Candidate]] = {}
        for item, chains in self._with_chains(candidates, rows, columns):
            bits = item.accumulators(chains)
            groups.setdefault((item.arithmetic.accumulator, bits.tobytes(), item.epilogue.name), []).append(item)
        return list(groups.values())

    def _rival(self, arithmetic: Arithmetic) -> Candidate:
        question = self.question
        way = next(iter(epilogues(question.extras, self.output.name, arithmetic.accumulator, self.activation)))
        return Candidate(arithmetic, Order((0, question.k), name=ONE), way, question.formats, question.extras)

    def _summation(self, group: list[Candidate], chosen: Places | None) -> Summation:
        """The first of a class against outputs: those chosen, or all."""
        question, first = self.question, group[0]
        if chosen is None:
            parts = zip(question.a, question.b, range(len(question.a)), strict=True)
            predicted = np.stack([first.whole(a, b, question.extras.at(place)) for a, b, place in parts])
            seen = question.observed
        else:
            a, b, seen, extras = question.at(chosen)
            predicted = first.outputs(self._chains(first.arithmetic, a, b), extras)
        work = first.arithmetic
        return Summation(
            work.name, first.order.name, first.epilogue.name, tuple(dict.fromkeys(str(item) for item in group[1:])), work.instructions,
            int(same(predicted, seen, self.output).sum()), seen.size, first,
        )  # fmt: skip


_FARTHER = 4.0
"""How much farther from the output the exact product of rounded operands may be than the nearest."""
_PROBED = 12  # outputs of the probe that tells classes apart


def same(predicted: Codes, seen: Codes, format: Format) -> npt.NDArray[np.bool_]:
    """Equal codes; any NaN equals any other."""
    equal = predicted == seen
    if format.kind == "float" and not equal.all():
        equal |= np.isnan(format.values(predicted)) & np.isnan(format.values(seen))
    return equal


def _unit(k: int, step: int) -> int:
    """What bounds of parts are multiples of."""
    unit = max(step, 8)
    while -(-k // unit) > _BOUNDS:
        unit *= 2
    return unit
