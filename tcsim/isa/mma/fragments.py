"""Fragment layouts of mma.sync: which lane holds which element.

Source: PTX ISA, section Matrix Fragments for mma (one table per shape), restated as CuTe layouts. All shapes but
m8n8k4 f16 follow one rule: a group of four lanes shares a row of A (a column of B), each register packs the elements
next along K, and further registers step first by 8 rows, then along K.
"""

from __future__ import annotations

from functools import cache

from tcsim.layouts.layout import FragmentLayout, IntTuple, Layout


def compact(modes: list[tuple[int, int]]) -> Layout:
    """A layout of (extent, stride) modes without those of extent 1."""
    kept = [mode for mode in modes if mode[0] > 1] or [(1, 0)]
    if len(kept) == 1:
        return Layout(*kept[0])
    shape: IntTuple = tuple(extent for extent, _ in kept)
    stride: IntTuple = tuple(step for _, step in kept)
    return Layout(shape, stride)


@cache
def operand_a(m: int, k: int, element_bits: int) -> FragmentLayout:
    """A, M x K, of an m8n8 or m16n8 shape. Index m + M * k."""
    packed = max(1, 32 // element_bits)
    width = 4 * packed  # columns that four lanes cover with one register each
    value = compact([(packed, m), (m // 8, 8), (k // width, width * m)])
    return FragmentLayout(Layout((4, 8), (packed * m, 1)), value, m, k, element_bits)


@cache
def operand_b(n: int, k: int, element_bits: int) -> FragmentLayout:
    """B, K x N, column-major in the registers. Index n + N * k."""
    packed = max(1, 32 // element_bits)
    width = 4 * packed
    value = compact([(packed, n), (k // width, width * n)])
    return FragmentLayout(Layout((4, 8), (packed * n, 1)), value, k, n, element_bits, column_fastest=True)


@cache
def accumulator(m: int, n: int, element_bits: int) -> FragmentLayout:
    """C and D, M x N: each lane holds two neighbours of a row, then those 8 rows below. Index m + M * n."""
    value = compact([(2, m), (m // 8, 8)])
    return FragmentLayout(Layout((4, 8), (2 * m, 1)), value, m, n, element_bits)


# m8n8k4 f16: lanes (l % 4, quad pair, l / 16); each quad pair {q, q + 4} multiplies its own 8x8x4
_QUAD_PAIR = Layout((4, 4, 2), (0, 1, 0))


def quad_pair_a(row_major: bool) -> FragmentLayout:
    """A, 8 x 4, of m8n8k4: a lane holds a row (row-major) or four elements of a column."""
    thread = Layout((4, 4, 2), (1, 0, 4) if row_major else (8, 0, 4))
    return FragmentLayout(thread, Layout(4, 8 if row_major else 1), 8, 4, 16, matrix=_QUAD_PAIR)


def quad_pair_b(row_major: bool) -> FragmentLayout:
    """B, 4 x 8, of m8n8k4: a lane holds four elements of a row (row-major) or a column."""
    thread = Layout((4, 4, 2), (8, 0, 4) if row_major else (1, 0, 4))
    value = Layout(4, 1 if row_major else 8)
    return FragmentLayout(thread, value, 4, 8, 16, column_fastest=True, matrix=_QUAD_PAIR)


def quad_pair_accumulator(element_bits: int) -> FragmentLayout:
    """C and D, 8 x 8, of m8n8k4: a row per lane for f16; 2 x 2 patches for f32."""
    if element_bits == 16:
        return FragmentLayout(Layout((4, 4, 2), (1, 0, 4)), Layout(8, 8), 8, 8, 16, matrix=_QUAD_PAIR)
    thread = Layout((2, 2, 4, 2), (1, 16, 0, 4))
    matrix = Layout((2, 2, 4, 2), (0, 0, 1, 0))
    return FragmentLayout(thread, Layout((2, 2, 2), (8, 2, 32)), 8, 8, 32, matrix=matrix)
