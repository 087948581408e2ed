"""Single rules of the diagnosis, each on the few numbers that decide it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.diagnosis import (
    arithmetic,
    bitwise,
    line_sums,
    maps,
    mixed,
    moved,
    moves,
    nans,
    operands,
    orders,
    other_c,
    parts,
    past_end,
    pipelines,
    predicted,
    reals,
    recoded,
    recovered,
    registers,
    relations,
    reread,
    resemblance,
    restated,
    rounded,
    scale_tables,
    selectors,
    shared_maps,
    sizes,
    slice_functions,
    solution,
    some_tiles,
    tables,
    tails,
    tile_maps,
    unwritten,
    where,
)
from tcsim.diagnosis import line_words as words
from tcsim.diagnosis import memory as shared
from tcsim.diagnosis.addresses import _affine
from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.batches import Batched
from tcsim.diagnosis.beneath import Beneath
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.carried import Carried
from tcsim.diagnosis.counts import counts
from tcsim.diagnosis.equivalence import right_of
from tcsim.diagnosis.functions import _erf, casts, solved_functions
from tcsim.diagnosis.in_part import _where
from tcsim.diagnosis.kept import Form
from tcsim.diagnosis.least_squares import whole_weights
from tcsim.diagnosis.line_sums import Constants
from tcsim.diagnosis.maps import SAME, Rule
from tcsim.diagnosis.predicted import Way
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.question import problem_of
from tcsim.diagnosis.reals import Reals, reals_of
from tcsim.diagnosis.report import Explanation
from tcsim.diagnosis.rules import counts_of, rules_of
from tcsim.diagnosis.solve import _VERIFIED, Scored, Solver
from tcsim.diagnosis.tile_sums import TileSums
from tcsim.explanation.filters import BLOCKS
from tcsim.numbers.formats import FORMATS

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"


def problem(
    m: int = 16, n: int = 8, k: int = 64, c: bool = False, arch: str = "sm_90", mnemonic: str = MMA, **changes: Any
) -> Problem:
    """A right product of small numbers."""
    random = np.random.default_rng(m * n * k)
    a, b, added = (random.standard_normal(shape) for shape in ((m, k), (k, n), (m, n)))
    given = {
        "a": tcsim.encode(a, "f16"),
        "b": tcsim.encode(b, "f16"),
        "c": tcsim.encode(added if c else 0 * abs(added), "f32"),
    }
    found = problem_of(tcsim.instruction(mnemonic, arch=arch), "diagnose", np.zeros((m, n), np.uint32), given)
    return replace(replace(found, observed=right_of(found)), **changes)


def numbers(own: Problem) -> Reals:
    """Of a problem."""
    return reals_of(own, right_of(replace(own, finish=None)))


def read(rule: Rule, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """What a rule reads at every place."""
    r, k = np.indices((rows, columns))
    row, column = rule.where(r, k, r * 0)
    return np.broadcast_to(row, r.shape), np.broadcast_to(column, r.shape)


# --- sizes


def test_usual_sizes_double() -> None:
    """Tiles, steps, parts, blocks and groups are powers of two; shifts go both ways; stages are all of a range."""
    for table in (
        sizes.TILES,
        sizes.STEPS,
        sizes.PARTS,
        parts._SIZES,
        words._GROUPS,
        mixed._LINE_BLOCKS[::-1],
        BLOCKS[::-1],
        moved._SHIFTS[::2],
    ):
        assert all(later == 2 * before for before, later in itertools.pairwise(table)), table
    assert sorted(moved._SHIFTS) == sorted(-own for own in moved._SHIFTS) and sorted(parts._SHIFTS) == sorted(
        -own for own in parts._SHIFTS
    )
    assert tuple(range(1, 7)) == tails._STAGES and some_tiles._STAGES == pipelines._STAGES == tuple(range(2, 7))
    factors = [own.table.args for own in scale_tables._values(FORMATS["ue4m3"]) if own.mistake == "result scaled"]  # type: ignore[attr-defined]
    assert sorted(by for (by,) in factors) == sorted(1 / by for (by,) in factors) and len(factors) == 10


# --- what is tried


def test_lines_that_begin_at_a_pitch() -> None:
    """Of most lines, though one of them begins elsewhere, too."""
    begins = {line: np.array([40 * line + 3, 1000 + line * line]) for line in range(6)}
    assert _affine(begins, 32)[0] == (40, 3)
    assert _affine({2: np.array([67])}, 32) == [(32, 3)]


def test_the_same_codes_on_another_machine() -> None:
    """Only where it computes something else; its formats say which bits count."""
    own = problem()
    (volta, hopper) = (replace(own.machine, lowering=replace(own.machine.lowering, steps=())), own.machine)
    other = arithmetic._on(own, volta)
    assert other is not None and other.machine is volta and np.array_equal(other.a, own.a)
    assert arithmetic._on(own, hopper) is None
    for name, mask in (("f16", 0xFFFF), ("tf32", 0xFFFFFFFF), ("e2m1", 0xF)):
        assert arithmetic._mask(SimpleNamespace(formats={"a": FORMATS[name]}), "a") == mask  # type: ignore[arg-type]


def test_advances_of_k_that_are_tried() -> None:
    """By none, a half and a quarter of the right one, twice and four times it."""
    said = {own.detail for own in maps.depth_rules(64, 16) if own.mistake == maps.ADVANCE}
    assert {"no advance: K block 0 of 16 every time", *(f"{by} for every 16" for by in (8, 4, 32, 64))} <= said


def test_steps_of_k_that_are_left_out_or_taken_twice() -> None:
    found = [own.weights.tolist() for own in counts(64, 16, 64)]
    for block in range(4):
        for weight in (0.0, 2.0):
            assert np.repeat([weight if at == block else 1.0 for at in range(4)], 16).tolist() in found


def test_rules_of_lines() -> None:
    said = [own.detail for own in maps.line_rules(64, 64)]
    assert "the block of 16 is always the first, repeated: 16-31 are 0-15" in said
    starts = [own.split()[4:] for own in said if "that start every" in own]
    assert starts and all(int(own[-1]) < int(own[own.index("of") + 1]) for own in starts)


def test_matrices_of_ldmatrix_that_are_tried() -> None:
    """Rows that lie so many bytes apart, behind the first lane's."""
    address = np.arange(32) * 80 + 512
    found = dict(moves._addresses(address))
    assert found["rows 64 bytes apart"].tolist() == (512 + 64 * np.arange(32)).tolist()
    assert found["rows packed: 16 bytes apart"].tolist() == (512 + 16 * np.arange(32)).tolist()


@pytest.mark.parametrize(("major", "other"), [("K", "MN"), ("MN", "K")])
def test_majors_that_are_tried(major: str, other: str) -> None:
    """The other one, of elements of 16 bits."""
    right = tcsim.MatrixDescriptor(0, leading_byte_offset=16, stride_byte_offset=1024, swizzle="128B")
    tile: Any = SimpleNamespace(descriptor=right, swizzle=shared.SWIZZLES["128B"], major=major, bits=16, advances=(0,))
    (found,) = (own for own in shared._readings(problem(), "a", tile) if own.mistake == "a: major flipped")
    assert found.change.args[-1] == {"major": other} and found.advice == f"trans_a must be {int(major == 'MN')}"  # type: ignore[attr-defined]


def test_orders_of_registers_that_are_tried() -> None:
    """Each permutation once, and not the identity."""
    for count in (2, 4, 8, 16):
        found = [tuple(order) for _, order in registers._distinct(registers._register_orders(count))]
        assert found and len(set(found)) == len(found) and tuple(range(count)) not in found
        assert all(sorted(order) == list(range(count)) for order in found)
    said = [own for own, _ in registers._register_orders(16)]
    assert said[:4] == [f"register i with i ^ {bit}" for bit in (1, 2, 4, 8)]


def test_blocks_that_are_transposed() -> None:
    """Each 8 x 8 by itself."""
    codes = np.arange(128).reshape(8, 16)
    (rule,) = (own for own in maps.memory_rules(8, 16, 8, 8, 16) if own.detail == "each 8 x 8 block")
    found = codes[read(rule, 8, 16)]
    assert np.array_equal(found[:, :8], codes[:, :8].T) and np.array_equal(found[:, 8:], codes[:, 8:].T)


def test_groups_of_lines_that_are_one_line() -> None:
    said = {rule.detail: rule for rule in parts.first_rules(8)}
    assert [*said] == [
        "always the first of every 2",
        "always the first of every 4",
        "always the first, as of a stride of 0",
    ]
    for size, rule in zip((2, 4, 8), said.values(), strict=True):
        assert read(rule, 8, 1)[0][:, 0].tolist() == [row // size * size for row in range(8)]


def test_a_swizzle_on_one_side() -> None:
    """Chunks lie where a row's number says; nothing is taken off again."""
    rules = {rule.detail: rule for rule in shared_maps.shared_rules(64, 64, 8, 16)}
    row, column = np.indices((16, 64))
    found = read(rules["rows of 128 bytes: chunk ^ (row % 8) on one side only"], 16, 64)
    assert np.array_equal(found[0], row) and np.array_equal(found[1], column ^ (row % 8 * 8))


def test_bytes_that_are_transposed_in_pairs() -> None:
    """The second eight lines and the second register are 16 and 8 further on along K, or the other way round: each byte is read once."""
    rules = [rule for rule in shared_maps.shared_rules(64, 64, 16, 32) if "pairs of bytes" in rule.mistake]
    assert len(rules) == 2
    for rule in rules:
        row, column = read(rule, 16, 32)
        assert sorted((row * 32 + column).reshape(-1).tolist()) == list(range(512))


def test_lines_turned_back() -> None:
    """A matrix whose columns follow one another, taken for rows: each element once, the first line first."""
    _, back = (own for own in maps.memory_rules(4, 3, 4, 8, 16) if own.detail.startswith("the whole matrix"))
    found = read(back, 4, 3)
    assert sorted(zip(*(own.reshape(-1).tolist() for own in found), strict=True)) == [
        (r, c) for r in range(4) for c in range(3)
    ]
    assert [own[0, 1] for own in found] == [1, 0]


def test_bytes_that_are_missing() -> None:
    """Halves and a last quarter... of every 16 bytes along K."""
    found = {
        rule.detail.split(" are ")[0]: read(rule, 1, 16)[1][0]
        for rule in tile_maps._chunk_rules(8)
        if "missing" in rule.mistake
    }
    assert [*found] == [
        "the last 8 of every 16 bytes along K",
        "the first 8 of every 16 bytes along K",
        "the last 12 of every 16 bytes along K",
    ]
    assert found["the last 8 of every 16 bytes along K"].tolist() == [
        0,
        1,
        2,
        3,
        -1,
        -1,
        -1,
        -1,
        8,
        9,
        10,
        11,
        -1,
        -1,
        -1,
        -1,
    ]
    assert found["the first 8 of every 16 bytes along K"].tolist() == [
        -1,
        -1,
        -1,
        -1,
        4,
        5,
        6,
        7,
        -1,
        -1,
        -1,
        -1,
        12,
        13,
        14,
        15,
    ]


def test_strides_that_a_descriptor_should_have() -> None:
    """Core matrices of 8 x 16 bytes: along K the next lies 128 bytes on, the next 8 lines behind all of them; or the other way round."""
    advice = [rule.advice for rule in tile_maps._core_rules(64, 64, 8)]
    assert {own[own.index("LBO") :] for own in advice} == {"LBO 128 and SBO 1024 bytes", "LBO 1024 and SBO 128 bytes"}


def test_rules_in_a_part_of_k() -> None:
    """What a rule reads outside of the part, or of K, is nothing; elsewhere everything stays."""
    of_k = np.array([True, False, True, True])
    k = np.arange(4)
    found = [_where(lambda r, k, o, by=by: (r, k + by), of_k, k * 0, k, k * 0)[1].tolist() for by in (1, -1, 9, -9)]
    assert found == [[-1, 1, 3, -1], [-1, 1, -1, 2], [-1, 1, -1, -1], [-1, 1, -1, -1]]


def test_parts_of_k_with_c_last() -> None:
    """Other instructions' steps in parts, C first and last; without C once."""
    texts = [own.said for own in orders._other_steps(problem(k=64, c=True))]
    assert any(own.endswith(", C last") for own in texts) and len(set(texts)) == len(texts)
    assert not any(own.endswith(", C last") for own in (item.said for item in orders._other_steps(problem(k=64))))


def test_parts_of_k_start_from_c_once() -> None:
    own = problem(k=64, c=True)
    part = next(own.parts())
    once, each = (
        tcsim.decode(orders._chunks(1, False, "ascending", own, part, **more), "f32") for more in ({}, {"each": True})
    )
    c = tcsim.decode(own.c[0], "f32")
    assert np.allclose(each - once, 3 * c, atol=1e-3) and np.abs(c).max() > 1
    assert orders.OVERLAPPING.parts and all(order.parts for order in orders.from_c(own, 2))


def test_tiles_that_every_iteration_takes() -> None:
    """The first again and again is one of them; nothing at all, and what is right, are not."""
    found = {own.tiles for own in pipelines.sequences(64, 16)}
    assert (0, 0, 0, 0) in found and (0, 1, 2, 3) not in found and not any(set(tiles) == {-1} for tiles in found)


def test_what_else_takes_each_k_so_often() -> None:
    """Sequences of both operands that do; an accumulator that is cleared in every tile if the last one alone is left."""
    weights = np.repeat([0, 0, 0, 1], 16)
    assert (
        pipelines.causes(weights, 64, 16)[1]
        == "the accumulators are cleared in every tile of 16 (scale_d 0): only the last is left"
    )
    assert pipelines.causes(weights, 64, 16)[0] == []
    (found,), said = pipelines.causes(np.repeat([4, 0, 0, 0], 16), 64, 16)
    assert found.tiles == (0, 0, 0, 0) and said == f"in a and b alike, {found.said}"
    assert "cleared" not in pipelines.causes(np.repeat([1, 0, 0, 1], 16), 64, 16)[1]
    assert "cleared" not in pipelines.causes(np.ones(64), 64, 16)[1]


# --- what is computed


def test_the_error_function() -> None:
    x = np.linspace(-4, 4, 81)
    assert np.abs(_erf(x) - [math.erf(own) for own in x]).max() < 2e-7


def test_bits_that_a_narrower_format_keeps() -> None:
    """One more than its fraction has."""
    said = {own.said for own in casts() if own.mistake == "result passed through a narrower format"}
    assert said == {
        f"{name}: {FORMATS[name].fraction_bits + 1} bits are kept of each sum" for name in ("f32", "f16", "bf16")
    }


def test_a_leaky_relu_leaves_what_is_positive() -> None:
    x = np.linspace(-4, 4, 81)
    seen = np.where(x < 0, 0.125 * x, x)
    every = np.ones(len(x), bool)
    (found,) = (own for own in solved_functions(x, seen, every, every, False) if "leaky" in own.said)
    assert np.allclose(found.run(x), seen, rtol=1e-4) and found.run(np.array([0.5])).tolist() == [0.5]


def test_weights_are_refused_that_do_not_give_the_sums() -> None:
    """A whole weight may come out a little off: the sums may not."""
    terms = np.random.default_rng(0).standard_normal((64, 4))
    wanted, reach = terms @ np.array([1.0, 0.0, 2.0, 1.0]), np.full(64, 1e-3)
    found = whole_weights(terms, wanted, reach)
    assert found is not None and found.tolist() == [1, 0, 2, 1]
    assert whole_weights(terms, wanted + 0.008, reach) is None


def test_the_reach_of_rounding_is_bounded() -> None:
    """By a part of a usual output, however large the terms are."""
    own = problem(k=64)
    assert (numbers(own).reach <= reals._KNOWN * numbers(own).usual).all()
    huge = replace(own, c=np.full_like(own.c, 0x5F000000))
    found = reals_of(huge, right_of(own))
    assert (found.reach <= reals._KNOWN * found.usual).all()


@pytest.mark.parametrize(
    ("format", "codes", "found"),
    [("f16", [0xBC00, 0x3C00], [0x3C00, 0x3C00]), ("s8", [0xFF, 0x01], [0x7F, 0x01]), ("tf32", [0xBF80_0000], [0x3F80_0000]),
     ("e4m3", [0x81], [0x01]), ("ue8m0", [0x81], None), ("u8", [0x81], None), ("b1", [0xFF], None)],
)  # fmt: skip
def test_codes_without_their_sign(format: str, codes: list[int], found: list[int] | None) -> None:
    """The highest bit of formats that have one."""
    own = recoded._unsigned(np.array(codes, FORMATS[format].dtype), FORMATS[format])
    assert (None if own is None else own.tolist()) == found


def test_functions_of_slices_of_k() -> None:
    """C is in the first slice, or outside of all."""
    a, b, c = np.array([[[1.0, -2.0]]]), np.array([[[3.0, 1.0]]]), np.array([[[0.5]]])
    own: Any = SimpleNamespace(a=a, b=b, c=c)
    relu: Any = SimpleNamespace(run=lambda x: np.maximum(x, 0))
    halves = np.array([0, 1])
    assert slice_functions.OfSlices(relu, halves, True).values(own, 0).tolist() == [[3.5]]
    assert slice_functions.OfSlices(relu, halves[::-1], True).values(own, 0).tolist() == [[3.0]]
    assert slice_functions.OfSlices(relu, halves, False).values(own, 0).tolist() == [[3.5]]
    assert slice_functions.OfSlices(relu, halves[::-1], False).values(own, 0).tolist() == [[3.5]]


@pytest.mark.parametrize("inside", [False, True])
def test_functions_of_slices_are_found(inside: bool) -> None:
    """A ReLU of each half of K, and C beside the sums or in the first."""
    own = problem(m=32, n=32, k=64, c=True)
    bare = numbers(own)
    halves = [bare.a[0][:, part] @ bare.b[0][:, part].T for part in (slice(0, 32), slice(32, 64))]
    c = bare.c[0]
    seen = np.maximum(halves[0] + c * inside, 0) + np.maximum(halves[1], 0) + c * (not inside)
    own = replace(own, observed=tcsim.encode(seen, "f32")[None])
    found = [
        item
        for item in slice_functions.in_slices(own, numbers(own), np.ones((1, 32, 32), bool))
        if item.named.mistake == "ReLU applied"
    ]
    assert any(item.inside is inside and item.of_k.tolist() == [0] * 32 + [1] * 32 for item in found)


def test_what_follows_the_last_k() -> None:
    """Of one line, too: behind it is nothing. Of several the next one's first."""
    tail = tails.Tail(4, 2, tails.NEXT, tails.NEXT)
    assert tail.read(np.array([[1, 2, 3, 4]]), tails.NEXT).tolist() == [[0, 0]]
    assert tail.read(np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), tails.NEXT).tolist() == [[5, 6], [0, 0]]
    assert tail.read(np.array([[1, 2, 3, 4]]), tails.LAST).tolist() == [[4, 4]]


def test_c_from_elsewhere() -> None:
    """Zeros outside, also of a C of one element."""
    zero = np.zeros(2, int)
    found = other_c._taken(np.array([[[5.0]]]), zero, np.array([0, 1]), np.array([0, -1]))
    assert found.tolist() == [5.0, 0.0]


def test_a_pitch_of_c_is_found_from_few_outputs() -> None:
    """As few as the least that tell."""
    c = np.random.default_rng(0).standard_normal((1, 32, 32))
    i, j = np.divmod(np.arange(0, 600, 600 // other_c._LEAST)[: other_c._LEAST], 31)
    wanted = c[0].reshape(-1)[20 * i + j]
    reach = np.full(len(i), 1e-9)
    found = [rule.detail for rule in other_c.c_addresses(c, (32, 32), np.stack([i * 0, i, j], 1), wanted, reach)]
    assert "20 elements for 32 (row by row)" in found
    assert not [*other_c.c_addresses(c, (32, 32), np.stack([i * 0, i, j], 1)[1:], wanted[1:], reach[1:])]


def test_factors_of_both_operands_in_one_table() -> None:
    """What each code counts is read off products of two codes, of operands of different sizes."""
    random = np.random.default_rng(1)
    was = np.array([0.5, 1.0, 2.0])
    counted = {0.5: 0.25, 1.0: 1.0, 2.0: 8.0}
    a, b = random.choice(was, (64, 2)), random.choice(was, (48, 2))
    bare = tuple(random.standard_normal((1, rows, 32)) for rows in (64, 48))
    now = [np.vectorize(counted.get)(own) for own in (a, b)]
    seen = (bare[0] * np.repeat(now[0], 16, 1)) @ (bare[1] * np.repeat(now[1], 16, 1)).swapaxes(1, 2)
    own = numbers(problem(m=64, n=48, k=32))
    own = replace(own, factors=(a[None], b[None]), bare=bare, a=bare[0] * np.repeat(a, 16, 1), b=bare[1] * np.repeat(b, 16, 1), c=seen * 0, observed=seen,
                  finite=np.ones(seen.shape, bool), reach=np.full(seen.shape, 1e-6))  # fmt: skip
    found = [*tables._of_both(own, np.ones(seen.shape, bool), FORMATS["ue4m3"])]
    assert found and found[0].now.tolist() == [0.25, 1.0, 8.0]


# --- what is judged


def test_what_is_near_is_within_reach() -> None:
    """The end of the reach belongs to it, of a batch as elsewhere."""
    own: Any = SimpleNamespace(values=lambda reals, matrix: np.array([[1.0, 2.0, 3.0]]))
    given: Any = SimpleNamespace(
        reach=np.full((1, 1, 3), 0.5), observed=np.array([[[1.5, 2.25, 4.0]]]), finite=np.ones((1, 1, 3), bool)
    )
    assert Batched.near(own, given, 0).tolist() == [[True, True, False]]


def test_which_names_are_simpler() -> None:
    """One more where C is added outside of the function; one cause is as simple as one line that is added. Tiles that do not divide a matrix count whole."""
    item, named = SimpleNamespace(rank=3), SimpleNamespace(rank=2)
    ranks = [Beneath.rank.fget(SimpleNamespace(item=item, named=named, outside=own)) for own in (False, True)]  # type: ignore[attr-defined]
    assert ranks == [5, 6]
    assert Carried.rank == tails.Tail.rank == Constants.rank.fget(SimpleNamespace(added={"a": 0.5}))  # type: ignore[attr-defined]
    assert Carried.tiles.fget(SimpleNamespace(size=(100, 50), height=32, width=16)) == (4, 4)  # type: ignore[attr-defined]


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
    assert nans.nan_source(problem(k=64)).startswith("what fills a tile of K out of bounds, behind K = 64 or a tile")
    assert nans.nan_source(problem(k=128)) == "a tile that was not written"


def test_maps_of_lines_in_words() -> None:
    """Four runs are said, of more how many there are; groups of 16 by their order; what is transposed in pairs."""
    runs = np.concatenate([np.arange(4) + start for start in (100, 60, 140, 20, 180, 40, 80)])
    assert (
        words.described(runs, "rows").endswith("and 3 more runs")
        and words.described(runs, "rows").count(" are rows ") == 4
    )
    order = np.random.default_rng(0).permutation(16)
    assert words.described((np.arange(0, 64, 16)[:, None] + order).reshape(-1), "rows").startswith(
        "rows permuted in each 16"
    )
    pairs = np.arange(8).reshape(4, 2).T.reshape(-1)
    assert "as an array of 4 x 2" in words._transposed(pairs, "rows") and words._transposed(np.arange(8), "rows") == ""


def test_a_store_past_the_end() -> None:
    """B has just the columns that it would take; a tile of two rows is none; a matrix with one wrong column has a width, too."""
    own = problem(m=16, n=8, k=16)
    item = past_end.PastEnd(8, (16, 8), next(iter(past_end._LOADS)), False, np.ones((1, 16, 8), bool))
    assert item.codes(own) is not None and replace(item, width=9).codes(own) is None
    empty = np.zeros((1, 2, 8), bool)
    empty[0, 1] = True
    assert past_end.over_next_row(empty, None) == ("", False)
    rows = np.zeros((1, 32, 8), bool)
    rows[0, np.arange(32) % 16 > 0] = True
    assert past_end.over_next_row(rows, None)[1]


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


def test_results_off_by_a_vector_next_to_nothing() -> None:
    """Where the model gives zeros alone, what is off is a vector all the same."""
    own = numbers(problem(m=16, n=16))
    zero = np.zeros((1, 16, 16))
    offset = zero + np.arange(16)[None, None]
    assert relations.shifted(replace(own, observed=offset, product=zero, c=zero, reach=zero + 1e-6, a=own.a * 0)) == 1


def test_an_overflow_says_nothing_of_the_format() -> None:
    """Results of another format are told by finite ones."""
    own = problem(m=16, n=8)
    right = tcsim.decode(own.observed, "f32")
    noise = np.random.default_rng(0).standard_normal(right.shape).astype(np.float32) * 100
    large = own.c.copy()
    large[0, 0, 0] = 0x5F000000
    assert reread.reread(replace(own, c=large, output="bf16", observed=tcsim.encode(noise, "f32"))) is None


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
    found = unwritten.unwritten_of(replace(own, observed=codes), numbers(own), codes != model, model)
    assert np.array_equal(found, which & (not scattered))


def test_vectors_of_four_that_were_never_written() -> None:
    """Stores of 16 bytes that are left out: runs of four in places of no order; runs of three are what was clamped."""
    own = problem(m=32, n=32, k=16)
    groups = np.random.default_rng(2).random((1, 32, 4)) < 0.3
    for width in (4, 3):
        which = np.repeat(groups, 8, 2) & (np.arange(32) % 8 < width)
        codes = np.where(which, 0x7F7F7F7F, own.observed).astype(np.uint32)
        found = unwritten.unwritten_of(replace(own, observed=codes), numbers(own), which, own.observed)
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
    """Those that give at least 0.7 of what the best one does, and so many at most."""

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
    found = recovered.recovered(solver, every, (lambda problem, reals, wrong: iter([Candidate()]),))
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
        (again,) = restated.restated(solver, None, Scored(item, np.ones(1), 2, 1, None, True), None)  # type: ignore[arg-type]
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
    right = right_of(replace(own, output=None))
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
    assert maps._inner(32, 16, 8, k).tolist() == [k // 32 * 32 + k % 32 // 16 * 8 + k % 16 for k in range(64)]
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
    tried = [*selectors.attempts(own)]
    assert len(tried) == 1 + 15 + 15 and not any(
        item.detail in ("byte_id_a 1, thread_id_a 2", "byte_id_b 0, thread_id_b 0", "0") for item in tried
    )
    changed = {item.detail: item.change() for item in tried}
    one, two, other = (changed[name] for name in ("byte_id_a 3, thread_id_a 1", "byte_id_b 3, thread_id_b 1", "1"))
    assert one and one.scales == (("a", "words", 3, 1), "b") and two and two.scales == ("a", ("b", "others", 3, 1))
    assert other and other.positions == ("metadata", 1)  # type: ignore[comparison-overlap]
    assert selectors._metadata(replace(own, metadata=None), 1) is None


def test_rules_whose_numbers_overflow_hold_in_no_tile():
    changes = np.zeros((2, 6, 2))
    changes[:, :3, 0], changes[:, 3:, 1] = [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]
    changes[0, 0, 0] = np.nan
    wanted, reach = np.array([1.0, 2.0, 3.0, 0.0, 0.0, 0.0]), np.full(6, 1e-6)
    found = list(some_tiles.holding(changes, wanted, reach))
    assert [(number, holds.tolist()) for number, holds in found] == [(1, [True, False])]


def test_sums_that_overflow_have_no_factors():
    assert line_sums._least(np.array([[1.0, np.inf], [0.0, 1.0], [2.0, 3.0]]), np.ones((3, 1))) is None
    found = line_sums._least(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]]), np.array([[1.0], [2.0], [8.0]]))
    assert found is not None and np.allclose(found[:, 0], [1, 2])
