"""CuTe's layout algebra: against coordinate-by-coordinate functions, CuTe's worked examples, fragments, and errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcsim import OperandError, catalog
from tcsim.layouts.algebra import (
    coalesce,
    complement,
    composition,
    cosize,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
)
from tcsim.layouts.layout import IntTuple, Layout
from tests.exact import layout_algebra as slow

EXTENTS = [1, 2, 2, 3, 4, 4, 5, 6, 8]
STRIDES = [0, 1, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32]


def joined(*layouts: Layout) -> Layout:
    """The layout with these modes."""
    return Layout(tuple(layout.shape for layout in layouts), tuple(layout.stride for layout in layouts))


@st.composite
def arbitrary(draw: st.DrawFn, most: int = 3, depth: int = 2) -> Layout:
    """Any extents and strides, nested; most of these overlap themselves."""
    count = draw(st.integers(0, most))
    if not count:
        return Layout(draw(st.sampled_from(EXTENTS)), draw(st.sampled_from(STRIDES)))
    modes = [
        draw(arbitrary(2, depth - 1))
        if depth and draw(st.integers(0, 3)) == 0
        else Layout(draw(st.sampled_from(EXTENTS)), draw(st.sampled_from(STRIDES)))
        for _ in range(count)
    ]
    return joined(*modes)


@st.composite
def spread(draw: st.DrawFn, most: int = 3) -> Layout:
    """Modes in any order, each with a stride that is a multiple of what the smaller ones span: a complement exists."""
    count = draw(st.integers(1, most))
    modes, stride = [], draw(st.sampled_from([1, 1, 1, 2, 3]))
    for _ in range(count):
        extent = draw(st.sampled_from([2, 2, 3, 4, 4, 6, 8]))
        modes.append(Layout(extent, stride))
        stride *= extent * draw(st.sampled_from([1, 1, 1, 2, 3]))
    modes = draw(st.permutations(modes))
    return modes[0] if count == 1 else joined(*modes)


@st.composite
def tiled(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """An outer layout, and an inner one that is made of factors of its extents in any order: it always composes."""
    factors = [
        draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=2)) for _ in range(draw(st.integers(1, 3)))
    ]
    strides = draw(st.lists(st.sampled_from(STRIDES), min_size=len(factors), max_size=len(factors)))
    modes, step = [], 1
    for factor in [factor for group in factors for factor in group]:
        modes.append(Layout(factor, step))
        step *= factor
    modes = draw(st.permutations(modes))[: draw(st.integers(1, len(modes)))]
    return Layout(tuple(map(prod, factors)), tuple(strides)), joined(*modes)


def answer(operation: Callable[..., Layout], *arguments: object) -> Layout | None:
    """What an operation gives, or None where it refuses."""
    try:
        return operation(*arguments)
    except OperandError:
        return None


# --- against the slow version


@given(arbitrary())
def test_the_slow_version_agrees_with_calling_a_layout(layout: Layout) -> None:
    """Two ways to read a layout: by nested coordinates, and by digits."""
    assert slow.indices(layout) == layout(np.arange(layout.size)).tolist()


@given(arbitrary())
def test_coalesce_keeps_the_function(layout: Layout) -> None:
    simple = coalesce(layout)
    assert slow.indices(simple) == slow.indices(layout)
    assert isinstance(simple.shape, int) or all(isinstance(extent, int) for extent in simple.shape)
    assert coalesce(simple) == simple


@given(arbitrary())
def test_cosize_is_past_the_largest_index(layout: Layout) -> None:
    assert cosize(layout) == max(slow.indices(layout)) + 1


@given(tiled())
def test_composition_of_factors_is_the_function(pair: tuple[Layout, Layout]) -> None:
    """It answers, shaped like the inner layout."""
    result = composition(*pair)
    assert slow.indices(result) == slow.composed(*pair)
    assert slow.is_compatible(result.shape, pair[1].shape)


@given(arbitrary(), arbitrary(2, 1))
def test_composition_is_the_function_or_refuses(outer: Layout, inner: Layout) -> None:
    result = answer(composition, outer, inner)
    if result is not None:
        assert slow.indices(result) == slow.composed(outer, inner)
        assert slow.is_compatible(result.shape, inner.shape)


def test_composition_refuses_only_what_is_no_layout() -> None:
    """All inner layouts with two modes of extents to 6 and strides to 12, over outer strides that never coincide.

    Refused too, as in CuTe, are strides that step along two modes of the outer layout at once: 2:5 over (4,6).
    """
    answered = refused = diagonal = 0
    extents = (1, 2, 3, 4, 6)
    for outer_shape, outer_stride in (((4, 6), (1, 1000)), ((6, 4), (1, 1000)), ((2, 3, 4), (1, 100, 10_000))):
        outer = Layout(outer_shape, outer_stride)
        table = slow.indices(outer)
        for shape, stride in product(product(extents, extents), product(range(13), range(13))):
            inner = Layout(shape, stride)
            wanted = slow.composed(outer, inner)
            modes = [[table[i * step] for i in range(n)] for n, step in zip(shape, stride, strict=True) if wanted]
            possible = wanted is not None and all(slow.is_a_layout(mode, len(mode)) for mode in modes)
            possible = possible and wanted == [a + b for b in modes[1] for a in modes[0]]
            result = answer(composition, outer, inner)
            if result is not None:
                assert possible
                assert slow.indices(result) == wanted
                answered += 1
            elif possible:
                along = [sum(digit > 0 for digit in digits(step, outer_shape)) for step in stride]
                assert any(n > 1 and count > 1 for n, count in zip(shape, along, strict=True)), f"{outer} {inner}"
                diagonal += 1
            else:
                refused += 1
    assert (answered, refused, diagonal) == (2585, 8755, 1335)


def digits(number: int, shape: tuple[int, ...]) -> list[int]:
    """A linear coordinate as one coordinate for each mode."""
    found = []
    for extent in shape:
        found.append(number % extent)
        number //= extent
    return found


@given(spread(), st.integers(1, 100))
def test_complement_fills_the_rest(layout: Layout, size: int) -> None:
    """Disjoint from the layout but for index 0, ordered, and together they have every index once."""
    rest = slow.indices(complement(layout, size))
    assert rest == sorted(set(rest))
    assert set(rest) & set(slow.indices(layout)) == {0}
    together = sorted(slow.sums(layout, complement(layout, size)))
    assert together == list(range(len(together)))
    assert len(together) >= size
    assert rest == slow.ordered_complement(layout, size)


@given(arbitrary(), st.integers(1, 100))
def test_complement_is_the_greedy_one_or_refuses(layout: Layout, size: int) -> None:
    result = answer(complement, layout, size)
    if result is not None:
        assert slow.indices(result) == slow.ordered_complement(layout, size)


@given(arbitrary())
def test_right_inverse_is_one(layout: Layout) -> None:
    values = slow.indices(layout)
    inverse = slow.indices(right_inverse(layout))
    assert [values[coordinate] for coordinate in inverse] == list(range(len(inverse)))


@given(spread())
def test_right_inverse_of_a_bijection_is_whole(layout: Layout) -> None:
    bijection = joined(layout, complement(layout, 1))
    assert right_inverse(bijection).size == bijection.size


@given(st.one_of(arbitrary(), spread()))
def test_left_inverse_is_one_or_refuses(layout: Layout) -> None:
    result = answer(left_inverse, layout)
    values = slow.indices(layout)
    if result is None:
        assert answer(complement, layout, 1) is None or len(set(values)) < len(values)
    else:
        inverse = slow.indices(result)
        assert [inverse[index] for index in values] == list(range(len(values)))


@given(tiled(), st.integers(1, 3))
def test_logical_divide_is_the_composition_with_tile_and_rest(pair: tuple[Layout, Layout], times: int) -> None:
    layout, tiler = pair
    divided = logical_divide(layout, tiler)
    assert divided == composition(layout, joined(tiler, complement(tiler, layout.size)))
    assert sorted(slow.indices(divided)) == sorted(slow.indices(layout))
    larger = joined(layout, Layout(times, cosize(layout)))  # a later mode stays, and a tuple goes mode by mode
    assert logical_divide(larger, (tiler,)) == joined(divided, Layout(times, cosize(layout)))


@given(spread(), spread(2))
def test_logical_product_repeats_without_overlap(layout: Layout, tiler: Layout) -> None:
    """Mode 0 is the layout; each repetition is a copy at the offset that the tiler counts off in the complement."""
    result = answer(logical_product, layout, tiler)
    if result is not None:
        offsets = slow.ordered_complement(layout, layout.size * cosize(tiler))
        assert offsets is not None
        wanted = [offsets[i] + j for i in slow.indices(tiler) for j in slow.indices(layout)]
        assert slow.indices(result) == wanted
        assert len(set(wanted)) == len(wanted)


@given(spread(), st.integers(1, 12))
def test_a_product_with_a_count_is_n_copies(layout: Layout, count: int) -> None:
    period = complement(layout, 1).size
    result = logical_product(layout, count * period)
    assert sorted(slow.indices(result)) == list(range(layout.size * count * period))


# --- the worked examples of NVIDIA's page "CuTe Layout Algebra", in the edition of 2025:
# https://docs.nvidia.com/cutlass/media/docs/cpp/cute/02_layout_algebra.html


def L(shape: IntTuple, stride: IntTuple) -> Layout:
    """A layout."""
    return Layout(shape, stride)


def test_coalesce_as_in_cute() -> None:
    assert str(coalesce(L((2, (1, 6)), (1, (6, 2))))) == "12:1"
    assert str(coalesce(L((2, 4), (1, 2)))) == "8:1"
    by_mode = joined(*(coalesce(mode) for mode in (L(2, 1), L((1, 6), (6, 2)))))
    assert str(by_mode) == "(2,6):(1,2)"


@pytest.mark.parametrize(
    ("outer", "inner", "result"),
    [
        (L((6, 2), (8, 2)), L((4, 3), (3, 1)), "((2,2),3):((24,2),8)"),
        (L(20, 2), L((5, 4), (4, 1)), "(5,4):(8,2)"),
        (L((10, 2), (16, 4)), L((5, 4), (1, 5)), "(5,(2,2)):(16,(80,4))"),
        (L((12, (4, 8)), (59, (13, 1))), (L(3, 4), L(8, 2)), "(3,(2,4)):(236,(26,1))"),
        (L((12, (4, 8)), (59, (13, 1))), (3, 8), "(3,(4,2)):(59,(13,1))"),
        # (3,6,2,8):(w,x,y,z) o 16:9 is (1,2,2,4):(9w,3x,y,z); the mode of extent 1 is left out
        (L((3, 6, 2, 8), (1000, 100, 7, 20)), L(16, 9), "(2,2,4):(300,7,20)"),
    ],
)
def test_composition_as_in_cute(outer: Layout, inner: Layout | tuple[Layout | int, ...], result: str) -> None:
    assert str(composition(outer, inner)) == result


def test_the_indices_of_the_first_composition() -> None:
    result = composition(L((6, 2), (8, 2)), L((4, 3), (3, 1)))
    assert slow.indices(result) == [0, 24, 2, 26, 8, 32, 10, 34, 16, 40, 18, 42]


@pytest.mark.parametrize(
    ("layout", "result"),
    [
        (L(4, 1), "6:4"),
        (L(6, 4), "4:1"),
        (L((4, 6), (1, 4)), "1:0"),
        (L(4, 2), "(2,3):(1,8)"),
        (L((2, 4), (1, 6)), "3:2"),
        (L((2, 2), (1, 6)), "(3,2):(2,12)"),
    ],
)
def test_complement_as_in_cute(layout: Layout, result: str) -> None:
    assert str(complement(layout, 24)) == result


def test_divide_as_in_cute() -> None:
    """One dimension, and two: there the tiles are composition(layout, tiler).

    Older editions have the layout (2,4,3):(4,1,8) in one dimension, whose result is another, and the strides (236,(13,52))
    in two, where coordinate 3 of 9:59 is 177 and coordinate 8 of (4,8):(13,1) is 2.
    """
    assert str(logical_divide(L((4, 2, 3), (2, 1, 8)), L(4, 2))) == "((2,2),(2,3)):((4,1),(2,8))"
    layout = L((9, (4, 8)), (59, (13, 1)))
    tiler = (L(3, 3), L((2, 4), (1, 8)))
    assert str(composition(layout, tiler)) == "(3,(2,4)):(177,(13,2))"
    assert (int(Layout(9, 59)(3)), int(Layout((4, 8), (13, 1))(8))) == (177, 2)
    divided = logical_divide(layout, tiler)
    assert str(divided) == "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"
    assert sorted(slow.indices(divided)) == sorted(slow.indices(layout))


def test_product_as_in_cute() -> None:
    tile = L((2, 2), (4, 1))
    assert str(logical_product(tile, L(6, 1))) == "((2,2),(2,3)):((4,1),(2,8))"
    assert str(logical_product(tile, L((4, 2), (2, 1)))) == "((2,2),(4,2)):((4,1),(8,2))"


def test_product_leaves_room_for_copies_that_the_tiler_skips() -> None:
    """Copies 0, 2 and 4 of a tile of 4: the complement must reach past as many copies as the tiler has elements."""
    assert str(logical_product(L(4, 1), L(3, 2))) == "(4,3):(1,8)"
    assert str(logical_product(L((2, 3), (1, 2)), (L(3, 2), 2))) == "((2,3),(3,2)):((1,4),(2,1))"


def test_left_inverse_of_a_padded_layout() -> None:
    """Rows of 4 padded to 5: what CuTe's include/cute/layout.hpp gives, as read by tensor-layouts 0.3.2."""
    assert str(left_inverse(L((4, 8), (1, 5)))) == "(5,8):(1,4)"
    assert str(left_inverse(L(4, 2))) == "(2,4):(0,1)"


# --- fragments


def test_right_inverse_finds_the_place_of_every_element_of_a_fragment() -> None:
    """Of a TV layout it is the table that FragmentLayout.where looks up, for all of dense mma.sync on sm_90."""
    seen = 0
    for row in catalog.on_arch("sm_90", "mma.sync"):
        for operand in row.operands.values():
            layout = operand.layout
            if layout.matrices > 1 or layout.copies > 1:
                continue
            inverse = right_inverse(joined(layout.thread, layout.value))
            assert inverse.size == layout.rows * layout.columns
            index = np.arange(inverse.size)
            r, c = np.divmod(index, layout.columns) if layout.column_fastest else np.divmod(index, layout.rows)[::-1]
            lane, register, slot = layout.where(r, c)
            value = register * 32 // layout.element_bits + slot
            assert (inverse(index) == lane + layout.lanes * value).all()
            seen += 1
    assert seen > 100


# --- errors


@pytest.mark.parametrize(
    ("operation", "arguments", "said"),
    [
        (coalesce, (L(0, 1),), "mode 0:1 cannot be: valid are extents of 1 and above"),
        (cosize, (L(4, -1),), "strides of 0 and above"),
        (right_inverse, (L((4, -2), (1, 4)),), "mode -2:4 cannot be"),
        (composition, (L((6, 2), (8, 2)), L(13, 1)), "coordinate 12 is past the end; valid are coordinates 0 to 11"),
        (composition, (L((4, 6), (1, 10)), L(3, 6)), "stride 6, which does not divide it; valid there: below 4 or"),
        (composition, (L((6, 4), (1, 10)), L(4, 4)), "stride 4, which does not divide it; valid there: divisors and"),
        (composition, (L((4, 6), (1, 10)), L(6, 1)), "extent 6, which does not divide it; valid there: up to 4, and"),
        (composition, (L((6, 2), (1, 10)), L((3, 2), (2, 3))), "add up to 7 in mode 6:1 of the outer and carry"),
        (composition, (L((2, 2), (1, 10)), L((2, 2), (1, 1))), "valid sums are 0 to 1"),
        (composition, (L(8, 1), (L(2, 1), L(2, 1))), "2 tilers were given, but it has 1 modes; valid are up to 1"),
        (complement, (L(4, 1), 0), "size 0 holds no index; valid sizes are 1 and above"),
        (complement, (L((4, 4), (1, 2)), 24), "valid strides for it are multiples of 4"),
        (complement, (L((4, 8), (1, 5)), 40), "mode 8:5 meets the 4 indices"),
        (logical_divide, (L(10, 1), 4), "size 10 is not a whole number of 4"),
        (logical_divide, (L((9, 8), (1, 9)), (3, 3)), "valid sizes are multiples of 3"),
        (logical_product, (L((4, 4), (1, 2)), 2), "complement of (4,4):(1,2)"),
        (left_inverse, (L((4, 2), (1, 0)),), "mode 2:0 meets indices 0 to 0"),
        (left_inverse, (L((3, 2), (2, 3)),), "multiples of 2 from 6 upwards"),
    ],
)
def test_errors_say_what_would_be_valid(
    operation: Callable[..., object], arguments: tuple[object, ...], said: str
) -> None:
    with pytest.raises(OperandError) as error:
        operation(*arguments)
    assert said in str(error.value)
