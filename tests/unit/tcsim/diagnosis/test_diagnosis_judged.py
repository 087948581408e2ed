"""How the diagnosis judges what was tried: what is kept, what tells, what gives every bit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.diagnosis import (
    at_sight,
    bitwise,
    maps,
    misread,
    moved,
    operands,
    passes,
    predicted,
    resemblance,
    rounded,
    search,
    solution,
    some_tiles,
    tables,
    where,
)
from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.functions import Applied
from tcsim.diagnosis.hypothesis import WrongKernel
from tcsim.diagnosis.kept import Form
from tcsim.diagnosis.maps import SAME, Rule
from tcsim.diagnosis.pipelines import counts
from tcsim.diagnosis.predicted import Way
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Reals
from tcsim.diagnosis.report import Explanation
from tcsim.diagnosis.rules import counts_of, rules_of
from tcsim.diagnosis.solve import _VERIFIED, Scored, Solver
from tcsim.diagnosis.tile_sums import TileSums
from tcsim.numbers.formats import FORMATS
from tests.support.diagnosis_parts import MMA, numbers, problem

# --- what is judged


def test_what_is_near_is_within_reach() -> None:
    """The end of the reach belongs to it, of a batch as elsewhere."""
    one, seen = np.ones((1, 1, 1)), np.array([[[1.5, 2.25, 4.0]]])
    given = Reals(one, one.repeat(3, 1), seen * 0, seen * 0 + 1, seen, np.full((1, 1, 3), 0.5), seen > 0, 0.0)
    own = WrongKernel((), store=lambda computed, right: computed + np.arange(3))
    assert own.near(given, 0).tolist() == [[True, True, False]] and own.everywhere(given) is False


def test_which_names_are_simpler() -> None:
    """One more where C is added outside of the function."""
    ranks = [Applied.rank.fget(SimpleNamespace(named=SimpleNamespace(rank=2), outside=own)) for own in (False, True)]  # type: ignore[attr-defined]
    assert ranks == [2, 3]


def test_outputs_that_cannot_be_predicted_are_not_given() -> None:
    """They show nothing, of what is explained in part either."""
    own = problem(m=16, n=8)
    known, given = np.indices((1, 16, 8))[1] < 8, np.zeros((1, 16, 8), bool)
    changed = replace(own, observed=own.outputs, known=known)
    score = search._score(changed, list(changed.parts()), ~given, given)
    assert np.array_equal(given, known) and (score.matched, score.known, score.telling) == (64, 64, 64)


@pytest.mark.parametrize(("zero", "found"), [([], None), ([3, 4], "rows 3-4 of a are zero"), (range(16), None)])
def test_lines_that_are_zero(zero: list[int], found: str | None) -> None:
    """Some of them: none, or all, say nothing of an operand."""
    own = problem()
    seen = tcsim.decode(own.observed, "f32").astype(np.float64)
    seen[0, list(zero)] = 0
    rule = moved.zero_lines(replace(numbers(own), observed=seen), np.ones(seen.shape, bool), "a")
    assert (rule and rule.detail) == found


@pytest.mark.parametrize("pitch", [38, 20])
def test_outputs_that_are_stored_over_each_other(pitch: int) -> None:
    """A pitch that is a little too small, or half."""
    base = np.random.default_rng(0).standard_normal((8, 40))
    memory = np.zeros(8 * 40)
    for row in range(8):
        memory[pitch * row : pitch * row + 40] = base[row]
    seen = memory.reshape(8, 40)
    found = moved.overwritten(base, seen, np.full(base.shape, 1e-9), np.abs(seen) > 0)
    assert [own.flat.detail for own in found] == [f"{pitch} elements for 40 from row to row"]


def test_where_a_nan_may_come_from() -> None:
    """What fills a last tile of K first, where there is such a tile."""
    assert at_sight.nan_source(problem(k=64)).startswith(
        "what fills a tile of K out of bounds, behind K = 64 or a tile"
    )
    assert at_sight.nan_source(problem(k=128)) == "a tile that was not written"


def test_maps_of_lines_in_words() -> None:
    """Four runs are said, of more how many there are; groups of 16 by their order; what is transposed in pairs."""
    runs = np.concatenate([np.arange(4) + start for start in (100, 60, 140, 20, 180, 40, 80)])
    assert (
        where.described(runs, "rows").endswith("and 3 more runs")
        and where.described(runs, "rows").count(" are rows ") == 4
    )
    order = np.random.default_rng(0).permutation(16)
    assert where.described((np.arange(0, 64, 16)[:, None] + order).reshape(-1), "rows").startswith(
        "rows permuted in each 16"
    )
    pairs = np.arange(8).reshape(4, 2).T.reshape(-1)
    assert "as an array of 4 x 2" in where._transposed(pairs, "rows") and where._transposed(np.arange(8), "rows") == ""


def test_a_store_past_the_end() -> None:
    """B has just the columns that it would take; a tile of two rows is none; a matrix with one wrong column has a width, too."""
    own = problem(m=16, n=8, k=16)
    item = misread.stored_past(8, (16, 8), next(iter(misread._LOADS)), False, np.ones((1, 16, 8), bool))
    right = own.outputs
    assert np.array_equal(item.codes(own)[:, 1:], right[:, :-1]) and np.array_equal(item.codes(own)[:, 0], right[:, 0])
    empty = np.zeros((1, 2, 8), bool)
    empty[0, 1] = True
    assert misread.over_next_row(empty, None) == ("", False)
    rows = np.zeros((1, 32, 12), bool)
    rows[0, np.arange(32) % 16 > 0, :4] = True
    assert misread.over_next_row(rows, None)[1]


def test_a_store_past_the_end_is_found_by_one_column() -> None:
    """Of N = 7, tiles of 8 store one column over the next row's first."""
    random = np.random.default_rng(0)
    a, b = (tcsim.encode(random.standard_normal(shape), "f16") for shape in ((32, 16), (16, 7)))
    right = tcsim.decode(tcsim.gemm(a, b, instruction=MMA), "f32")
    wide = tcsim.decode(tcsim.gemm(a, np.concatenate([b, b[:, :1]], 1), instruction=MMA), "f32")
    seen = right.copy()
    seen[1:, 0] = wide[:-1, 7]
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.encode(seen, "f32"))
    assert "past N = 7" in str(found), str(found)


def test_an_overflow_says_nothing_of_the_format() -> None:
    """Results of another format are told by finite ones."""
    own = problem(m=16, n=8)
    right = tcsim.decode(own.observed, "f32")
    noise = np.random.default_rng(0).standard_normal(right.shape).astype(np.float32) * 100
    large = own.c.copy()
    large[0, 0, 0] = 0x5F000000
    assert at_sight.reread(replace(own, c=large, output="bf16", observed=tcsim.encode(noise, "f32"))) is None


def test_lines_that_look_like_others() -> None:
    """A period is shorter than the matrix: lines that are not repeated are said one by one."""
    given = np.ones((8, 4), bool)
    given[:4] = False
    found = np.array([0, 1, 2, 3, 1, 0, 3, 2])
    text = [said for said, _ in resemblance._runs(found, given, "rows", "")]
    assert text and not any("every 8" in own for own in text)


def test_a_last_slice_is_not_a_row_more() -> None:
    assert resemblance._region(np.array([0, 1, 2, 3]), 2) == resemblance.where_text(
        np.ones((1, 2 * resemblance._BLOCK, 2 * resemblance._BLOCK), bool)
    )


def test_the_largest_distance_in_last_places() -> None:
    """Of floats in units of the last place; of integers as they are."""
    own = problem()
    model = own.observed.copy()
    model[0, 3, 4] += 5
    small = np.abs(tcsim.decode(own.observed, "f32")) < np.median(np.abs(tcsim.decode(own.observed, "f32")))
    assert rounded.ulps(own, own.observed, FORMATS["f32"]) == 0
    found = rounded.ulps(own, model, FORMATS["f32"])
    assert 1 <= found <= 5 and (found == 5 or small[0, 3, 4])


@pytest.mark.parametrize(
    ("reach", "coarse", "off", "next_to"), [(0.5, 0.25, 1.4, True), (0.5, 0.25, 1.6, False), (0.1, 0.25, 1.05, True)]
)
def test_outputs_next_to_what_was_given(reach: float, coarse: float, off: float, next_to: bool) -> None:
    """Within the reach of rounding and a step of a narrower format."""
    own = problem()
    seen, given = np.full(own.c.shape, 4.0), np.full(own.c.shape, 4.0 - off)
    fake: Any = SimpleNamespace(
        problem=replace(own, observed=tcsim.encode(seen, "f32")), codes=tcsim.encode(given, "f32"), reals=SimpleNamespace(reach=np.full(own.c.shape, reach), coarse=coarse)
    )  # fmt: skip
    assert solution.Solved._one_step_off.fget(fake) is next_to  # type: ignore[attr-defined]


def test_values_that_are_listed() -> None:
    """So many; of more, how many there are."""
    was = np.arange(tables._LISTED + 2.0)
    for more in range(3):
        text = tables._listed(was, was + 1, was < tables._LISTED - 1 + more)
        assert text.count("counts as") == min(tables._LISTED, tables._LISTED - 1 + more)
        assert text.endswith(" more") is (more > 1)


@pytest.mark.parametrize("scattered", [False, True])
def test_outputs_that_were_never_written(scattered: bool) -> None:
    """Those of one code: a rectangle of it, also where padding lies beside; not single ones."""
    own = problem(m=32, n=32, k=16)
    codes, model = own.observed.copy(), own.observed
    which = np.zeros(codes.shape, bool)
    which[0, 8:16] = True
    if scattered:
        which = np.random.default_rng(0).random(codes.shape) < 0.02
    codes[which] = 0x7F7F7F7F
    codes[0, 2, 3:5] = 0x7F7F7F7F  # by chance: no line of it
    found = at_sight.unwritten_of(replace(own, observed=codes), numbers(own), codes != model, model)
    assert np.array_equal(found, which & (not scattered))


def test_vectors_of_four_that_were_never_written() -> None:
    """Stores of 16 bytes that are left out: runs of four in places of no order; runs of three are what was clamped."""
    own = problem(m=32, n=32, k=16)
    groups = np.random.default_rng(2).random((1, 32, 4)) < 0.3
    for width in (4, 3):
        which = np.repeat(groups, 8, 2) & (np.arange(32) % 8 < width)
        codes = np.where(which, 0x7F7F7F7F, own.observed).astype(np.uint32)
        found = at_sight.unwritten_of(replace(own, observed=codes), numbers(own), which, own.observed)
        assert np.array_equal(found, which & (width == 4))


def test_a_triangle_has_eight_diagonals() -> None:
    mask = np.zeros((1, 16, 16), bool)
    for count in (7, 8):
        mask[0] = np.tri(16, 16, count - 16, dtype=bool)
        assert bool(where.beyond_diagonal(mask, mask)) is (count == 8)


def test_rounding_reaches_further_for_more_tiles() -> None:
    """As far as the sums of what is added; no further for one tile in place of another."""
    asked: list[Any] = []
    given: Any = SimpleNamespace(
        factors=None, absolute=lambda: None, near=lambda values, matrix, size: asked.append(size)
    )
    for times in ([[[1, 1]]], [[[2, 1]]], [[[1, 0], [0, 1]]], [[[1, 0], [1, 0]]]):
        TileSums.near(SimpleNamespace(times=np.array(times), values=lambda reals, matrix: "size"), given, 0)  # type: ignore[arg-type]
    assert asked == [0.0, "size", 0.0, "size"]


def test_factors_are_read_where_a_rule_reads_its_operand() -> None:
    """Of a sparse A, too, whose elements are half of K: the halves of K exchanged, the factors of blocks of 32 are."""
    machine: Any = SimpleNamespace(kept=32, shape=(16, 8, 64), sparsity=SimpleNamespace(group=2))
    codes, factors = np.arange(128, dtype=np.uint8).reshape(1, 2, 64), np.arange(8, dtype=np.uint8).reshape(1, 2, 4)
    zero = np.zeros((1, 2, 2), np.uint32)
    own = Problem(
        machine, codes, np.zeros((1, 128, 2), np.uint8), zero, zero, scales=(factors, np.zeros((1, 4, 2), np.uint8))
    )
    rule = Rule("", "", "", lambda r, k, o: (r, k ^ 64), 1)
    found = predicted._reread(own, own, "a", rule, 0, np.arange(2), 0)
    assert found is not None and found.scales is not None
    assert np.array_equal(found.a, np.roll(codes, 32, 2)) and np.array_equal(found.scales[0], np.roll(factors, 2, 2))


def test_the_way_that_gives_every_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way that gives those that are looked at first, and not all others, is passed over: the next one may."""
    right = np.arange(256, dtype=np.uint32).reshape(1, 16, 16)
    few = predicted.sample(np.ones(right.shape, bool))[0]
    partly = right + 1
    partly[0][np.ix_(few.rows, few.columns)] -= 1
    own: Any = SimpleNamespace(observed=right, seen=lambda part: right[0][np.ix_(part.rows, part.columns)])
    given = {Way((0,)): partly, Way((1,)): right}
    monkeypatch.setattr(predicted, "ways", lambda problem, item: iter(given))
    monkeypatch.setattr(predicted, "whole", lambda problem, item, way: given[way])
    monkeypatch.setattr(
        predicted, "codes_of", lambda problem, item, way, part: given[way][0][np.ix_(part.rows, part.columns)]
    )
    every = np.ones(right.shape, bool)
    assert predicted.way_of(own, Candidate(), every, (lambda codes: codes,), every=True) == Way((1,))
    assert predicted.way_of(own, Candidate(), every, (lambda codes: codes,)) == Way((0,))


def test_candidates_that_are_reckoned_out() -> None:
    """At most a given number, each of which gives at least 0.7 of what the best one does."""

    def named(number: int) -> Any:
        return SimpleNamespace(names=lambda: [(f"mistake {number}", "", "")], a=SAME, b=SAME)

    own: Any = SimpleNamespace(
        reals=SimpleNamespace(coarse=0), _by_right_outputs=lambda found: found, reckoned=lambda item, open_: item
    )
    few = [(count, rank, named(rank)) for rank, count in enumerate((20, 15, 14, 13))]
    assert Solver._verified(own, few, np.ones(40, bool)) == [item for count, _, item in few if count >= 14]
    many = [(20, rank, named(rank)) for rank in range(_VERIFIED + 3)]
    assert len(Solver._verified(own, many, np.ones(40, bool))) == _VERIFIED


def test_pairs_of_rules_of_outputs_stored_elsewhere() -> None:
    """With their C, whose row moves with A's: a rule of one operand and none of the other."""
    own = problem(m=32, n=32, k=32, c=True)
    seen = own.observed[:, np.arange(32) ^ 8]
    own = replace(own, observed=seen)
    solver = Solver(own, numbers(own))
    places = np.argwhere(np.ones(seen.shape, bool))[np.random.default_rng(0).permutation(1024)[:64]]
    [*solver._singles(places)]
    found = [item for _, _, item in solver._pairs(places) if item.stored and item.b is SAME]
    assert any("blocks of 8 exchanged" in item.a.detail for item in found)


def test_a_running_sum_that_begins_with_a_rounded_c() -> None:
    """C of 1 + 2**-8 is 1 in bf16: what is added to it is added to 1."""
    c, part = np.full((1, 1), 1 + 2.0**-8), np.full((1, 1), 2.0**-8)
    form = Form("bf16", "rne", 1, 1, True, False, late=False)
    assert form.total(lambda number, start: part, c).tolist() == [[1.0]]
    assert replace(form, wide=True).total(lambda number, start: part, c).tolist() == [[1 + 2.0**-7]]


@pytest.mark.parametrize(("clean", "kept"), [(0, False), (1, True), (2, True)])
def test_hypotheses_of_whole_fragments_are_kept(clean: int, kept: bool) -> None:
    """One that gives the same places of all fragments is clean enough."""
    every = np.ones((1, 2, 2), bool)
    one = Scored(Candidate(), every, clean, 4, None, True)
    solver: Any = SimpleNamespace(problem=None, reals=SimpleNamespace(finite=every), reckoned=lambda item, wrong: one)
    found = passes.recovered(solver, every, lambda problem, reals, wrong: iter([Candidate()]))
    assert found == [one] * kept


def test_a_count_in_other_words() -> None:
    """An accumulator that is restarted is one apart; another miscounted K is two wrong reads, if both operands can read so."""
    asked: list[Any] = []
    solver: Any = SimpleNamespace(
        reading=lambda count: asked.append(count) or (Rule("a", "", "", None, 1), Rule("b", "", "", None, 1)),
        reckoned=lambda item, left: item,
    )  # type: ignore[arg-type]
    for restarts in (True, False):
        item = Candidate(count=next(own for own in counts(64, 16, 64) if own.restarted is restarts), beta=0.0)
        assert item.restarted is restarts
        (again,) = passes.restated(solver, None, Scored(item, np.ones(1), 2, 1, None, True), None)  # type: ignore[arg-type]
        assert again.item.apart if restarts else (again.a.mistake, again.b.mistake) == ("a", "b")  # type: ignore[attr-defined, union-attr]
    assert len(asked) == 1


def test_pieces_beside_a_right_rest() -> None:
    """Where a piece gives outputs that the rest does not; outputs that the rest gives stay."""
    model, piece = np.array([[1, 2, 3, 4]]), np.array([[7, 2, 8, 9]])
    own: Any = SimpleNamespace(
        fitted=None, model=model, candidate=None, base=None, problem=SimpleNamespace(observed=np.array([[7, 2, 3, 5]])), unwritten=np.zeros((1, 4), bool),
        pieces=[SimpleNamespace(near=np.array([[True, True, False, False]]))], _codes_of=lambda own, base: piece,
    )  # fmt: skip
    assert solution.Solved.ended(own, lambda codes: codes).tolist() == [[7, 2, 3, 4]]  # type: ignore[union-attr]


def test_another_order_of_summation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, if it gives every bit; what another arch would give is no mistake then."""
    own = problem()
    model = own.observed
    off = replace(own, observed=model + 1)
    solved: Any = SimpleNamespace(reals=numbers(own), ends=())
    monkeypatch.setattr(rounded, "kept_sums", lambda *given: None)
    other = Explanation(rounded.OTHER_ARCH, "sm_80", "", 128)
    for same, found in ((128, "in reverse"), (100, "sm_80")):
        monkeypatch.setattr(rounded, "reproducing", lambda *given, same=same: ("in reverse", same))
        told = rounded.within_rounding(off, model, solved, [other], "", 1)
        assert [item.detail for item in told.explanations or ()] == [found], told
    told = rounded.within_rounding(off, model, solved, [], "", 1)
    assert told.verdict == "correct" and "in reverse" in told.note


# --- rules on codes


def test_rules_that_give_every_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that give what is looked at first the ones that give all that was given, in the type that it was given in."""
    own = problem(m=16, n=8, k=16, output="bf16")
    own = replace(own, observed=narrowed(own.observed, "bf16"))
    right = replace(own, output=None).outputs
    items = [Candidate(beta=beta) for beta in (1.0, 2.0, 3.0, 4.0)]
    given = dict(zip(items, (right, right + 0x10000, None, right), strict=True))
    monkeypatch.setattr(bitwise, "_items", lambda problem: iter(items))
    monkeypatch.setattr(bitwise, "_gives", lambda problem, item, way, part, far: item.beta < 4)
    monkeypatch.setattr(bitwise, "ways", lambda problem, item: iter([Way((0,))]))
    monkeypatch.setattr(bitwise, "whole", lambda problem, item, way: given[item])
    assert [*bitwise.by_bits(own, [next(own.parts())])] == items[:1]


@pytest.mark.parametrize(("off", "wrong", "found"), [(0.5, 0, True), (0.4, 0, True), (0.6, 0, False), (0.4, 1, False)])
def test_a_part_that_a_rule_gives(off: float, wrong: int, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit; the instruction runs only where an exact sum is as near as rounding takes one."""
    own = problem(m=16, n=8, k=16)
    part = next(own.parts())
    monkeypatch.setattr(bitwise, "off", lambda problem, part, codes: np.full(codes.shape, off))
    own = replace(own, observed=own.observed + wrong)
    assert bitwise._gives(own, Candidate(), Way((0,)), part, 0.5) is found


def test_rules_of_an_operand_are_of_its_size() -> None:
    """Of its lines, of K, and of the elements in 16 bytes."""
    own = problem(m=32, n=16, k=64)
    found = rules_of(own)
    assert {rule.mistake for rule in found["a"]} >= {"{x}: swizzle wrong", "{x}: tile in boxes"}
    for name, said in (("a", "16-31 are 0-15"), ("b", "8-15 are 0-7")):
        assert any(rule.detail.endswith(f"repeated: {said}") for rule in found[name]), name
    assert not any(rule.detail.endswith("repeated: 16-31 are 0-15") for rule in found["b"])
    assert [item.weights.tolist() for item in counts_of(own)] == [item.weights.tolist() for item in counts(64, 16, 64)]


def test_advances_inside_a_tile() -> None:
    """Parts of a tile that lie nearer to each other than they are long, or further apart."""
    k = np.arange(64)
    assert maps._inner(k, 16, 8, 32).tolist() == [k // 32 * 32 + k % 32 // 16 * 8 + k % 16 for k in range(64)]
    said = {rule.detail for rule in maps.depth_rules(64, 16, 8)}
    assert {f"{moved} for every 16" for moved in (4, 8, 32, 64)} <= said


@pytest.mark.parametrize("by_column", [False, True])
def test_c_read_as_another_type(by_column: bool) -> None:
    """Two f16 of a column or row at the place of an f32, and zeros where the memory ends."""
    own = problem(m=16, n=8, c=True)
    values = np.arange(128, dtype=np.float32).reshape(1, 16, 8) + 1
    found = operands._c_as(replace(own, c=tcsim.encode(values, "f32")), "f16", "f32", by_column)
    assert found is not None
    memory = (values.swapaxes(1, 2) if by_column else values).astype(np.float16).reshape(-1).view(np.float32)
    expected = np.concatenate([memory, np.zeros(64, np.float32)])
    seen = tcsim.decode(found.c, "f32")
    assert np.array_equal((seen.swapaxes(1, 2) if by_column else seen).reshape(-1), expected)


def test_other_selectors() -> None:
    """Every byte and thread but the right ones; an operand's own factors are replaced, and other lanes' metadata."""

    def matrix(*given: Any) -> Any:
        return given

    sparsity = SimpleNamespace(selectors=(0, 1))
    machine: Any = SimpleNamespace(
        sparsity=sparsity, instruction=SimpleNamespace(scale_matrix=matrix, decode_metadata=matrix)
    )
    zero = np.zeros((1, 1, 1), np.uint32)
    own = Problem(
        machine,
        zero,
        zero,
        zero,
        zero,
        scales=("a", "b"),
        scale_words={"a": ("words", 1, 2), "b": ("others", 0, 0)},
        metadata="metadata",
    )  # type: ignore[arg-type, dict-item]
    tried = [*operands.of_selectors(own)]
    assert len(tried) == 1 + 15 + 15 and not any(
        item.detail in ("byte_id_a 1, thread_id_a 2", "byte_id_b 0, thread_id_b 0", "0") for item in tried
    )
    changed = {item.detail: item.change() for item in tried}
    one, two, other = (changed[name] for name in ("byte_id_a 3, thread_id_a 1", "byte_id_b 3, thread_id_b 1", "1"))
    assert one and one.scales == (("a", "words", 3, 1), "b") and two and two.scales == ("a", ("b", "others", 3, 1))
    assert other and other.positions == ("metadata", 1)  # type: ignore[comparison-overlap]
    assert operands._metadata(replace(own, metadata=None), 1) is None


def test_rules_whose_numbers_overflow_hold_in_no_tile():
    changes = np.zeros((2, 6, 2))
    changes[:, :3, 0], changes[:, 3:, 1] = [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]
    changes[0, 0, 0] = np.nan
    wanted, reach = np.array([1.0, 2.0, 3.0, 0.0, 0.0, 0.0]), np.full(6, 1e-6)
    found = list(some_tiles.holding(changes, wanted, reach))
    assert [(number, holds.tolist()) for number, holds in found] == [(1, [True, False])]
