"""From a kind and a seed to a case: operands, and the output of the kernel."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from tests.evaluation.second_wrong_kernels import (
    kinds_correct,
    kinds_eighth_launch,
    kinds_eighth_loop,
    kinds_eighth_output,
    kinds_eighth_quantized,
    kinds_eighth_right,
    kinds_eighth_split,
    kinds_eighth_tensor,
    kinds_eleventh_formats,
    kinds_eleventh_launch,
    kinds_eleventh_loop,
    kinds_eleventh_output,
    kinds_eleventh_right,
    kinds_eleventh_shared,
    kinds_eleventh_warps,
    kinds_epilogue,
    kinds_fifth_launch,
    kinds_fifth_loop,
    kinds_fifth_output,
    kinds_fifth_quantized,
    kinds_fifth_tensor,
    kinds_formats,
    kinds_fourth_launch,
    kinds_fourth_output,
    kinds_fourth_tensor,
    kinds_held_out,
    kinds_held_out_formats,
    kinds_loop,
    kinds_ninth_launch,
    kinds_ninth_loop,
    kinds_ninth_tensor,
    kinds_places,
    kinds_seventh_launch,
    kinds_seventh_loop,
    kinds_seventh_output,
    kinds_seventh_right,
    kinds_seventh_tensor,
    kinds_shared,
    kinds_sixth_formats,
    kinds_sixth_launch,
    kinds_sixth_loop,
    kinds_sixth_output,
    kinds_sixth_right,
    kinds_sixth_tensor,
    kinds_sixth_warps,
    kinds_tenth_launch,
    kinds_tenth_loop,
    kinds_tenth_tensor,
    kinds_twelfth_formats,
    kinds_twelfth_launch,
    kinds_twelfth_loop,
    kinds_twelfth_output,
    kinds_twelfth_right,
    kinds_twelfth_shared,
    kinds_twelfth_warps,
    kinds_two,
    kinds_warps,
)
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import (
    ARITHMETIC,
    Arithmetic,
    Array,
    Problem,
    Tiling,
    draw_problem,
    draw_tiling,
)


def _kinds(module: object) -> list[type[Kernel]]:
    own = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Kernel)]
    return [kind for kind in own if kind.__module__ == getattr(module, "__name__", "") and (kind.needs or kind.correct)]


def _set(*modules: object) -> tuple[dict[str, type[Kernel]], dict[str, type[Kernel]]]:
    """The kinds of mistakes of some modules, and the right kernels, by name."""
    kinds = [kind for module in modules for kind in _kinds(module)]
    wrong, right = ({kind.__name__: kind for kind in kinds if kind.correct is own} for own in (False, True))
    return wrong, right


WRONG = {
    kind.__name__: kind
    for module in (kinds_places, kinds_loop, kinds_shared, kinds_warps, kinds_epilogue, kinds_formats, kinds_two)
    for kind in _kinds(module)
}
HELD_OUT = {kind.__name__: kind for module in (kinds_held_out, kinds_held_out_formats) for kind in _kinds(module)}
FOURTH, FOURTH_CORRECT = _set(kinds_fourth_launch, kinds_fourth_tensor, kinds_fourth_output)
FIFTH, FIFTH_CORRECT = _set(
    kinds_fifth_launch, kinds_fifth_loop, kinds_fifth_tensor, kinds_fifth_quantized, kinds_fifth_output
)
SIXTH, SIXTH_CORRECT = _set(
    kinds_sixth_launch,
    kinds_sixth_loop,
    kinds_sixth_tensor,
    kinds_sixth_warps,
    kinds_sixth_output,
    kinds_sixth_formats,
    kinds_sixth_right,
)
SEVENTH, SEVENTH_CORRECT = _set(
    kinds_seventh_launch, kinds_seventh_loop, kinds_seventh_tensor, kinds_seventh_output, kinds_seventh_right
)
EIGHTH, EIGHTH_CORRECT = _set(
    kinds_eighth_launch,
    kinds_eighth_loop,
    kinds_eighth_split,
    kinds_eighth_tensor,
    kinds_eighth_quantized,
    kinds_eighth_output,
    kinds_eighth_right,
)
NINTH, NINTH_CORRECT = _set(kinds_ninth_launch, kinds_ninth_loop, kinds_ninth_tensor)
TENTH, TENTH_CORRECT = _set(kinds_tenth_launch, kinds_tenth_loop, kinds_tenth_tensor)
ELEVENTH, ELEVENTH_CORRECT = _set(
    kinds_eleventh_launch,
    kinds_eleventh_loop,
    kinds_eleventh_shared,
    kinds_eleventh_warps,
    kinds_eleventh_output,
    kinds_eleventh_formats,
    kinds_eleventh_right,
)
TWELFTH, TWELFTH_CORRECT = _set(
    kinds_twelfth_launch,
    kinds_twelfth_loop,
    kinds_twelfth_shared,
    kinds_twelfth_warps,
    kinds_twelfth_output,
    kinds_twelfth_formats,
    kinds_twelfth_right,
)
CORRECT = {kind.__name__: kind for kind in _kinds(kinds_correct) if kind is not kinds_correct.Correct}
EVERY: dict[str, type[Kernel]] = {
    **WRONG,
    **HELD_OUT,
    **FOURTH,
    **FIFTH,
    **SIXTH,
    **SEVENTH,
    **EIGHTH,
    **NINTH,
    **TENTH,
    **ELEVENTH,
    **TWELFTH,
    **CORRECT,
    **FOURTH_CORRECT,
    **FIFTH_CORRECT,
    **SIXTH_CORRECT,
    **SEVENTH_CORRECT,
    **EIGHTH_CORRECT,
    **NINTH_CORRECT,
    **TENTH_CORRECT,
    **ELEVENTH_CORRECT,
    **TWELFTH_CORRECT,
}


@dataclass(frozen=True)
class Case:
    """A kernel's run."""

    kind: type[Kernel]
    seed: int
    problem: Problem
    tiling: Tiling
    observed: Array
    says: str
    needs: tuple[str, ...]
    equal: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What runs it again: `--only KIND --seed SEED`."""
        return f"{self.kind.__name__}/{self.seed}"


def filled(text: str, kernel: Kernel) -> str:
    """The text with the facts of the kernel for their names in braces."""
    for name, value in kernel.facts.items():
        text = text.replace("{" + name + "}", f"{value:g}" if isinstance(value, float) else str(value))
    return text


def suits(arithmetic: Arithmetic, kind: type[Kernel]) -> bool:
    """Whether the kind can happen with this instruction."""
    if (
        arithmetic.style not in kind.styles
        or (kind.plain and not arithmetic.plain)
        or (kind.floats and arithmetic.d == "s32")
    ):
        return False
    if kind.wish.span and arithmetic.bits == 4:
        return False
    return {
        "": True,
        "sparse": arithmetic.sparse,
        "scaled": bool(arithmetic.scale),
        "16 bits": arithmetic.bits == 16,
        "8 bits": arithmetic.bits == 8,
        "same types": arithmetic.a == arithmetic.b,
    }.get(kind.only, kind.only == arithmetic.a and (arithmetic.plain or kind.only == "e2m1"))


def differs(observed: Array, right: Array) -> bool:
    """Whether a mistake shows: more than rounding, in one output at least."""
    x, y = observed.astype(np.float64), right.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    largest = np.nanmax(np.abs(np.where(np.isfinite(y), y, 0)), initial=0)
    return bool((~same & ~(np.abs(x - y) <= 0.02 * largest)).any())


def make(kind: type[Kernel], seed: int) -> Case:
    """The case of a kind and a seed. A draw on which the mistake does not show is drawn again."""
    for attempt in range(50):
        random = np.random.default_rng([seed, zlib.crc32(kind.__name__.encode()), attempt])
        arithmetic = ARITHMETIC[int(random.choice([i for i, row in enumerate(ARITHMETIC) if suits(row, kind)]))]
        tiling = draw_tiling(random, arithmetic, kind.wish)
        problem = draw_problem(random, arithmetic, tiling, kind.wish)
        kernel = kind(problem, tiling, random)
        with np.errstate(invalid="ignore", over="ignore"):
            observed = kernel.launch()
            if kind.correct or kind.__name__ in ROUNDING:
                shows = kind.correct or not np.array_equal(observed, right_of(kernel, random))
            else:
                shows = differs(observed, right_of(kernel, random))
        blind = next(
            (group for group in (SIXTH, SEVENTH, EIGHTH, NINTH, TENTH, ELEVENTH, TWELFTH) if kind.__name__ in group), {}
        )
        if shows and not (blind and twins(kernel, observed, seed, blind)):
            says = (kind.__doc__ or "").strip()
            return Case(
                kind,
                seed,
                problem,
                tiling,
                observed,
                filled(says, kernel),
                tuple(filled(pattern, kernel) for pattern in kind.needs),
                tuple(filled(pattern, kernel) for pattern in kernel.equal),
            )
    raise RuntimeError(f"{kind.__name__}: the mistake shows in none of 50 draws")


# Kinds that change the rounding alone.
ROUNDING = (
    "ThroughHalf",
    "TruncatedToBf16",
    "AccumulatedInHalves",
    "AccumulatedInBf16",
    "PartialsInBf16",
    "SumsRoundedInEveryTile",
    "HalfTowardZero",
)


def can_show(kind: type[Kernel], p: Problem, t: Tiling) -> bool:
    """Whether a kind of the sixth to the twelfth set has what it wishes on a problem that was drawn for another."""
    wish = kind.wish
    extents = {"m": (p.m, t.bm), "n": (p.n, t.bn), "k": (p.k, t.bk)}
    return (
        suits(p.arithmetic, kind)
        and all(
            -(-extents[axis][0] // extents[axis][1]) >= least for axis, least in zip("mn", wish.blocks, strict=True)
        )
        and -(-p.k // t.bk) >= wish.tiles
        and t.stages in wish.stages
        and t.split in wish.split
        and all(extents[axis][0] % extents[axis][1] for axis in wish.ragged)
        and not any(extents[axis][0] % extents[axis][1] for axis in wish.whole)
        and wish.c in (None, p.c is not None)
        and (t.warps[0] >= wish.warps[0] and t.warps[1] >= wish.warps[1])
        and wish.span in (0, t.bk * p.arithmetic.bits // 8)
        and wish.majors in ("", {"k": "k", "mn": "m"}[t.a_major] + {"k": "k", "mn": "m"}[t.b_major])
    )


def twins(kernel: Kernel, observed: Array, seed: int, others: dict[str, type[Kernel]] | None = None) -> list[str]:
    """Kinds (of the sixth set, unless others are given) whose output is the same on this problem."""
    found = []
    for name, kind in (others or SIXTH).items():
        if kind is not type(kernel) and can_show(kind, kernel.p, kernel.t):
            other = kind(kernel.p, kernel.t, np.random.default_rng([seed, zlib.crc32(name.encode())]))
            other.output, other.blank = kernel.output, kernel.blank
            with np.errstate(invalid="ignore", over="ignore"):
                output = other.launch()
            if np.array_equal(output.astype(np.float64), observed.astype(np.float64), equal_nan=True):
                found.append(name)
    return found


def right_of(kernel: Kernel, random: np.random.Generator) -> Array:
    """What the kernel would have returned without the mistake."""
    right = Kernel(kernel.p, kernel.t, random)
    right.output, right.blank = kernel.output, kernel.blank
    return right.launch()
