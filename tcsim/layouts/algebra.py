"""CuTe's layout algebra: what layouts become when simplified, composed, completed, tiled, repeated and inverted.

A layout is read as a function from 0, ..., size - 1 to indices. Results are the layouts that CuTe gives for static integers,
with two differences: a mode of extent 1 gets stride 0, as its stride means nothing, and where no layout is exactly the function
asked for, that is an error. CuTe also answers where the inner layout of a composition runs past the end of the outer, where a
sum carries from one mode of the outer to the next, and where a complement leaves holes. docs/fragments.md has examples.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from tcsim.core.errors import OperandError
from tcsim.layouts.layout import IntTuple, Layout

Tiler: TypeAlias = "Layout | int | tuple[Tiler, ...]"
"""What a layout is composed with, divided by or multiplied by: a layout; an extent n, for n:1; or one for each mode."""

Mode: TypeAlias = tuple[int, int]  # extent, stride


def coalesce(layout: Layout) -> Layout:
    """The same function with as few modes as possible, and none nested.

    Raises OperandError for an extent below 1 or a negative stride.

    Post-conditions:
        result.size == layout.size
        all(result(i) == layout(i) for i in range(layout.size))
        isinstance(result.shape, int) or all(isinstance(extent, int) and extent > 1 for extent in result.shape)

    >>> str(coalesce(Layout((2, (1, 6)), (1, (6, 2)))))
    '12:1'
    """
    return _from_modes(_coalesced(_flat(layout)))


def cosize(layout: Layout) -> int:
    """One more than the largest index of a layout.

    Raises OperandError for an extent below 1 or a negative stride.

    Post-conditions:
        result == 1 + max(layout(i) for i in range(layout.size))

    >>> cosize(Layout((4, 2), (1, 10)))
    14
    """
    return 1 + sum((extent - 1) * stride for extent, stride in _flat(layout))


def composition(outer: Layout, inner: Tiler) -> Layout:
    """The layout i -> outer(inner(i)), shaped like `inner`; a tuple is applied mode by mode.

    Raises OperandError where that function has no layout: where `inner` runs past the end of `outer`, where its strides
    and extents do not divide those of `outer`, where its modes carry into each other, and for a tuple longer than `outer`.

    Post-conditions:
        not isinstance(inner, Layout) or result.size == inner.size
        not isinstance(inner, Layout) or all(result(i) == outer(inner(i)) for i in range(inner.size))

    >>> str(composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
    '((2,2),3):((24,2),8)'
    >>> str(composition(Layout((12, (4, 8)), (59, (13, 1))), (Layout(3, 4), Layout(8, 2))))
    '(3,(2,4)):(236,(26,1))'
    """
    return _by_mode("composition", outer, inner, _compose)


def complement(layout: Layout, size: int) -> Layout:
    """The ordered layout of the offsets at which copies of `layout` fill 0, ..., size - 1, each index once.

    Where its period does not divide `size`, the copies fill more: the next multiple. Modes of stride 0 are ignored.

    Raises OperandError for a size below 1, and for modes that overlap or interleave, so that no copies fit together.

    Post-conditions:
        all(result(i) < result(i + 1) for i in range(result.size - 1))
        {int(layout(i) + result(j)) for i in range(layout.size) for j in range(result.size)} >= set(range(size))
        len({int(layout(i)) for i in range(layout.size)}) * result.size == cosize(layout) + int(result(result.size - 1))

    >>> str(complement(Layout(4, 2), 24))
    '(2,3):(1,8)'
    """
    if size < 1:
        raise OperandError(f"complement of {layout}: size {size} holds no index; valid sizes are 1 and above")
    rest: list[Mode] = []
    filled = 1  # 0, ..., filled - 1 are the indices of the modes so far and of their copies
    for extent, stride in sorted(_essential(layout), key=lambda mode: mode[1]):
        if stride % filled:
            raise OperandError(
                f"complement of {layout}: mode {extent}:{stride} meets the {filled} indices that the modes of smaller "
                f"stride span; valid strides for it are multiples of {filled}"
            )
        rest.append((stride // filled, filled))
        filled = stride * extent
    rest.append((-(-size // filled), filled))
    return _from_modes(_coalesced(rest))


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """A layout as (tile, rest): the elements that `tiler` points to, then the offsets of all tiles; a tuple goes mode by mode.

    Raises OperandError where the tiles do not fill the layout exactly, and as `composition` and `complement` do.

    Post-conditions:
        not isinstance(tiler, Layout) or result.size * len({int(tiler(i)) for i in range(tiler.size)}) == layout.size * tiler.size
        not isinstance(tiler, Layout) or all(result(i) == layout(tiler(i)) for i in range(tiler.size))

    >>> str(logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2)))
    '((2,2),(2,3)):((4,1),(2,8))'
    """
    return _by_mode("logical_divide", layout, tiler, _divide)


def logical_product(layout: Layout, tiler: Tiler) -> Layout:
    """A layout as (tile, repetitions): `layout`, and disjoint copies of it in the order of `tiler`; a tuple goes mode by mode.

    Raises OperandError as `composition` and `complement` do.

    Post-conditions:
        not isinstance(tiler, Layout) or result.size == layout.size * tiler.size
        isinstance(tiler, tuple) or all(result(i) == layout(i) for i in range(layout.size))

    >>> str(logical_product(Layout((2, 2), (4, 1)), Layout(6, 1)))
    '((2,2),(2,3)):((4,1),(2,8))'
    """
    return _by_mode("logical_product", layout, tiler, _multiply)


def right_inverse(layout: Layout) -> Layout:
    """From an index to a coordinate that has it: layout(right_inverse(layout)(i)) == i for all i below its size.

    It starts at index 0 and ends where no mode continues without a gap: a layout without stride 1 gives 1:0.

    Raises OperandError for an extent below 1 or a negative stride.

    Post-conditions:
        all(layout(result(i)) == i for i in range(result.size))

    >>> str(right_inverse(Layout((4, 8), (8, 1))))
    '(8,4):(4,1)'
    """
    modes = _coalesced(_flat(layout))
    inverse: list[Mode] = []
    reached = 1  # 0, ..., reached - 1 have an inverse
    while reached in (strides := [stride for _, stride in modes]):
        place = strides.index(reached)
        extent = modes[place][0]
        inverse.append((extent, prod(earlier for earlier, _ in modes[:place])))
        reached *= extent
    return _from_modes(_coalesced(inverse))


def left_inverse(layout: Layout) -> Layout:
    """From an index to the one coordinate that has it: where layout(i) is j, the inverse is i at j, for all i.

    The answer for an index that `layout` does not have means nothing; one past cosize(layout) may have none.

    Raises OperandError for a layout that has an index twice, or whose modes interleave.

    Post-conditions:
        all(result(layout(i)) == i for i in range(layout.size))

    >>> inverse = left_inverse(Layout((4, 8), (1, 5)))
    >>> str(inverse), inverse([0, 3, 5, 38]).tolist()
    ('(5,8):(1,4)', [0, 3, 4, 31])
    """
    modes = _coalesced(_flat(layout))
    starts = [prod(extent for extent, _ in modes[:place]) for place in range(len(modes))]
    inverse: list[Mode] = []
    below, unit, start = 1, 1, 0  # of the mode before: indices it spans, its stride, what one step of it counts for
    for (extent, stride), next_start in sorted(zip(modes, starts, strict=True), key=lambda item: item[0][1]):
        if stride < below or stride % unit:
            raise OperandError(
                f"left_inverse of {layout}: mode {extent}:{stride} meets indices 0 to {below - 1} of the modes of smaller "
                f"stride; valid strides for it are multiples of {unit} from {below} upwards"
            )
        inverse.append((stride // unit, start))
        below, unit, start = extent * stride, stride, next_start
    return _from_modes(_coalesced([*inverse, (below // unit, start)]))


# --- one-dimensional cases


def _compose(outer: Layout, inner: Layout) -> Layout:
    if cosize(inner) > outer.size:
        raise OperandError(
            f"composition of {outer} with {inner}: coordinate {cosize(inner) - 1} is past the end; "
            f"valid are coordinates 0 to {outer.size - 1}"
        )
    modes = _coalesced(_flat(outer))
    used = [0] * len(modes)  # the largest sum of digits that `inner` can make in each mode of `outer`

    def place(extent: IntTuple, stride: IntTuple) -> tuple[IntTuple, IntTuple]:
        if isinstance(extent, tuple) and isinstance(stride, tuple):
            parts = [place(*mode) for mode in zip(extent, stride, strict=True)]
            return tuple(shape for shape, _ in parts), tuple(strides for _, strides in parts)
        assert isinstance(extent, int) and isinstance(stride, int)
        found = _from_modes(_pick(outer, inner, modes, used, (extent, stride)))
        return found.shape, found.stride

    result = Layout(*place(inner.shape, inner.stride))
    for (extent, stride), largest in zip(modes, used, strict=True):
        if largest >= extent:
            raise OperandError(
                f"composition of {outer} with {inner}: modes of the inner layout add up to {largest} in mode "
                f"{extent}:{stride} of the outer and carry into the next; valid sums are 0 to {extent - 1}"
            )
    return result


def _pick(outer: Layout, inner: Layout, modes: list[Mode], used: list[int], mode: Mode) -> list[Mode]:
    """What one mode of `inner` picks from `modes`, the coalesced modes of `outer`; notes in `used` how far it goes."""
    count, step = mode
    found: list[Mode] = []
    if count == 1 or step == 0:
        return [(count, 0)]
    for place, (extent, stride) in enumerate(modes):
        if step >= extent:
            if step % extent:
                raise _indivisible(outer, inner, mode, f"stride {step}", f"below {extent} or multiples of it")
            step //= extent
            continue
        taken = count
        if (count - 1) * step >= extent:  # it goes on in the next mode
            if extent % step:
                raise _indivisible(outer, inner, mode, f"stride {step}", f"divisors and multiples of {extent}")
            taken = extent // step
            if count % taken:
                raise _indivisible(outer, inner, mode, f"extent {count}", f"up to {taken}, and multiples of it")
        used[place] += (taken - 1) * step
        found.append((taken, stride * step))
        count //= taken
        if count == 1:
            break
        step = 1
    return found


def _indivisible(outer: Layout, inner: Layout, mode: Mode, what: str, valid: str) -> OperandError:
    return OperandError(
        f"composition of {outer} with {inner}: mode {mode[0]}:{mode[1]} arrives at a mode of the outer layout with {what}, "
        f"which does not divide it; valid there: {valid}"
    )


def _divide(layout: Layout, tiler: Layout) -> Layout:
    rest = complement(tiler, layout.size)
    period = max(
        (extent * stride for extent, stride in _essential(tiler)), default=1
    )  # filled by tiles in the gaps of one
    if layout.size % period:
        raise OperandError(
            f"logical_divide of {layout} by {tiler}: size {layout.size} is not a whole number of {period}, which the tile "
            f"and its copies in the gaps fill; valid sizes are multiples of {period}"
        )
    return _compose(layout, _concatenation(tiler, rest))


def _multiply(layout: Layout, tiler: Layout) -> Layout:
    copies = complement(layout, layout.size * cosize(tiler))
    return _concatenation(layout, _compose(copies, tiler))


# --- layouts as lists of modes


def _by_mode(name: str, layout: Layout, tiler: Tiler, operation: Callable[[Layout, Layout], Layout]) -> Layout:
    """Apply a one-dimensional operation to the modes that a tuple names, or to the whole; later modes stay."""
    if isinstance(tiler, int):
        tiler = Layout(tiler, 1)
    if isinstance(tiler, Layout):
        for checked in (layout, tiler):
            _flat(checked)
        return operation(layout, tiler)
    modes = _top(layout)
    if len(tiler) > len(modes):
        raise OperandError(
            f"{name} of {layout}: {len(tiler)} tilers were given, but it has {len(modes)} modes; valid are up to {len(modes)}"
        )
    done = [_by_mode(name, mode, part, operation) for mode, part in zip(modes, tiler, strict=False)]
    return _concatenation(*done, *modes[len(tiler) :])


def _top(layout: Layout) -> list[Layout]:
    if isinstance(layout.shape, tuple) and isinstance(layout.stride, tuple):
        return [Layout(*mode) for mode in zip(layout.shape, layout.stride, strict=True)]
    return [layout]


def _concatenation(*layouts: Layout) -> Layout:
    return Layout(tuple(layout.shape for layout in layouts), tuple(layout.stride for layout in layouts))


def _flat(layout: Layout) -> list[Mode]:
    """All modes, nested ones too, first fastest.

    Raises OperandError for an extent below 1 or a negative stride.
    """
    if isinstance(layout.shape, tuple):
        return [mode for part in _top(layout) for mode in _flat(part)]
    assert isinstance(layout.stride, int)
    if layout.shape < 1 or layout.stride < 0:
        raise OperandError(f"mode {layout} cannot be: valid are extents of 1 and above, strides of 0 and above")
    return [(layout.shape, layout.stride)]


def _essential(layout: Layout) -> list[Mode]:
    """The modes that move: neither extent 1 nor stride 0."""
    return [(extent, stride) for extent, stride in _flat(layout) if extent > 1 and stride]


def _coalesced(modes: list[Mode]) -> list[Mode]:
    """Without modes of extent 1, and neighbours joined where the second continues the first."""
    joined: list[Mode] = []
    for extent, stride in modes:
        if extent == 1:
            continue
        if joined and stride == joined[-1][0] * joined[-1][1]:
            joined[-1] = (joined[-1][0] * extent, joined[-1][1])
        else:
            joined.append((extent, stride))
    return joined


def _from_modes(modes: list[Mode]) -> Layout:
    if not modes:
        return Layout(1, 0)
    if len(modes) == 1:
        return Layout(*modes[0])
    return Layout(tuple(extent for extent, _ in modes), tuple(stride for _, stride in modes))
