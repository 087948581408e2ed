"""Places in Tensor Memory, against the slow model, both ways, for every shape and form."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import tcsim
from tcsim.memory.tmem_layout import (
    DATA_PATHS,
    GROUPS,
    TmemLayout,
    a_layout,
    accumulator_layout,
    data_path,
    lookup_layout,
    metadata_layout,
    scale_layout,
)
from tests.exact import tcgen05 as exact

FORMS = sorted(DATA_PATHS)


def places(layout: TmemLayout) -> list[list[set]]:
    """All (CTA, lane, column, slot) of every element, by the layout's cells."""
    cells = np.stack(layout.cells, axis=-1).reshape(-1, layout.rows, layout.columns, 4)
    return [[set(map(tuple, cells[:, r, c].tolist())) for c in range(layout.columns)] for r in range(layout.rows)]


def both_ways(layout: TmemLayout) -> int:
    """`where` and the call undo each other; no two elements share a place. How many places there are."""
    row, column = np.indices((layout.rows, layout.columns))
    taken = 0
    for copy in range(layout.copies):
        for cta in range(layout.ctas if layout.every_cta else 1):
            at = layout.where(row, column, copy, cta)
            back = layout(at[1], at[2], at[3], at[0])
            np.testing.assert_array_equal(back[0], row)
            np.testing.assert_array_equal(back[1], column)
            taken += row.size
    assert int((layout.holds >= 0).sum()) == taken
    return taken


@pytest.mark.parametrize("form", FORMS)
def test_accumulators(form: tuple[int, int, bool, bool]) -> None:
    m, cta_group, ws, sparse = form
    compared = 0
    for n in (64, 128, 256) if ws else (8 * cta_group, 48, 256):
        layout = accumulator_layout(m, n, cta_group, ws=ws, sparse=sparse)
        assert both_ways(layout) == m * n
        cta, lane, column, slot = (x[0, 0] for x in layout.cells)
        assert not slot.any()
        for r in range(0, m, 3):
            for c in range(n):
                wanted = exact.accumulator_place(m, n, cta_group, ws, sparse, r, c)
                assert (cta[r, c], lane[r, c], column[r, c]) == wanted
                compared += 1
    assert compared > 2000


def test_every_letter_has_its_form() -> None:
    assert {path.name for path in DATA_PATHS.values()} == set("ABCDEFG")
    assert data_path(64).lane_bases == data_path(128, 2, sparse=True).lane_bases == (0, 16)
    assert accumulator_layout(64, 256).lane_bases == (0, 16)
    assert accumulator_layout(128, 256).lane_bases == (0,)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("format", "kind", "bits", "k"),
    [("tf32", "tf32", 32, 8), ("bf16", "f16", 16, 16), ("e5m2", "f8f6f4", 8, 32), ("e3m2", "mxf8f6f4", 8, 32),
     ("e2m1", "f8f6f4", 8, 32), ("e2m1", "mxf4", 4, 64), ("u8", "i8", 8, 32)],
)  # fmt: skip
def test_a_from_tensor_memory(form: tuple[int, int, bool, bool], format: str, kind: str, bits: int, k: int) -> None:
    m, cta_group, ws, sparse = form
    layout = a_layout(m, 2 * k if sparse else k, format, cta_group, kind=kind, ws=ws, sparse=sparse)
    assert (layout.element_bits, layout.columns, layout.width) == (bits, k, 8)
    assert both_ways(layout) == m * k * layout.copies
    found = places(layout)
    for r in range(0, m, 7):
        for c in range(k):
            assert found[r][c] == exact.a_places(m, cta_group, ws, sparse, bits, r, c)


@pytest.mark.parametrize(
    ("side", "cta_group", "m"), [(s, g, m) for s in "ab" for g, m in ((1, 128), (2, 256), (2, 128))]
)
def test_scale_factors(side: str, cta_group: int, m: int) -> None:
    compared = 0
    for rows in (m,) if side == "a" else (8 * cta_group, 48, 96, 128, 208, 256):
        for vectors, scale_id in ((1, 0), (1, 3), (2, 0), (2, 2), (4, 0), (3, 1), (3, 2), (6, 0), (6, 2)):
            layout = scale_layout(side, rows, vectors, scale_id=scale_id, cta_group=cta_group, m=m)  # type: ignore[arg-type]
            copies = 2 if side == "b" and (cta_group, m) == (2, 128) else 4
            assert layout.copies == copies
            assert both_ways(layout) == rows * vectors * copies * (cta_group if side == "b" else 1)
            found = places(layout)
            for r in range(rows):
                for v in range(vectors):
                    assert found[r][v] == exact.scale_places(side, rows, m, cta_group, scale_id, r, v)
                    compared += 1
            crosses = scale_id + vectors > 4
            assert ("figures" in layout.evidence.source) == crosses
    assert compared > 500


@pytest.mark.parametrize("form", [form for form in FORMS if form[3]])
@pytest.mark.parametrize("kind", sorted(GROUPS))
def test_metadata(form: tuple[int, int, bool, bool], kind: str) -> None:
    m, cta_group, ws, _ = form
    paired = kind in ("f16", "tf32", "ti16")
    codes = 8 if paired else 16
    for selector in (0, 1) if paired else (0,):
        layout = metadata_layout(kind, m, codes * GROUPS[kind], cta_group, ws=ws, selector=selector)
        assert both_ways(layout) == m * codes * layout.copies
        found = places(layout)
        for r in range(m):
            for c in range(codes):
                assert found[r][c] == exact.metadata_places(kind, m, cta_group, ws, selector, r, c)


@pytest.mark.parametrize(("kind", "k"), [("mxf8f6f4", 128), ("mxf4", 128), ("mxf4nvf4", 192)])
def test_metadata_of_sm_107(kind: str, k: int) -> None:
    """Codes of four elements, of 4-bit kinds too, and as many columns as they fill."""
    for m, cta_group in ((128, 1), (256, 2)):
        layout = metadata_layout(kind, m, k, cta_group, unpaired=True)
        assert (layout.columns, layout.width) == (k // 4, k // 32)
        assert both_ways(layout) == m * k // 4
        found = places(layout)
        for r in range(0, m, 7):
            for c in range(k // 4):
                assert found[r][c] == exact.metadata_places(kind, m, cta_group, False, 0, r, c)


@pytest.mark.parametrize(("n", "cta_group"), [(8, 1), (24, 1), (256, 1), (16, 2), (256, 2)])
def test_lookup_tables(n: int, cta_group: int) -> None:
    """Byte i of table t in lane t of each warp; each CTA counts its own tables."""
    layout = lookup_layout(n, cta_group)
    assert (layout.rows, layout.columns, layout.copies, layout.evidence.level) == (n // 8, 8, 4, "inferred")
    assert both_ways(layout) == n * 4
    own = n // 8 // cta_group
    for table, row in enumerate(places(layout)):
        for entry, found in enumerate(row):
            cta, lane = divmod(table, own)
            assert found == {(cta, lane + 32 * warp, entry // 4, entry % 4) for warp in range(4)}


def test_metadata_fills_its_words() -> None:
    """Both selectors of kind::f16 together use every nibble of two columns, as one kind::i8 does."""
    both = [metadata_layout("f16", 128, 32, selector=one) for one in (0, 1)]
    used = {place for layout in both for row in places(layout) for each in row for place in each}
    whole = {place for row in places(metadata_layout("i8", 128, 64)) for each in row for place in each}
    assert used == whole
    assert len(used) == 128 * 2 * 8


def test_the_other_layout_of_scale_factors() -> None:
    layout = scale_layout("a", 256, 4, cta_group=2, m=256, lanes=128)
    assert (layout.copies, layout.width) == (1, 1)
    assert layout.where(130, 3) == (1, 2, 0, 3)
    assert both_ways(layout) == 256 * 4


def test_strings_are_cutes() -> None:
    """What CUTLASS's tmem_frg gives for the fragments of one instruction, a third mode for copies added."""
    assert str(accumulator_layout(64, 32)) == "((16,4),32,1):((65536,2097152),1,0)"
    assert str(accumulator_layout(128, 128, 2)) == "(64,(64,2),1):(65536,(1,4194304),0)"
    assert str(accumulator_layout(32, 64, ws=True)) == "(32,(16,4),1):(65536,(1,2097152),0)"
    assert str(a_layout(128, 16, "f16", 2)) == "(64,16,2):(131072,1,8388608)"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: accumulator_layout(64, 64, 2), "M = 64 with cta_group::2 has no data path; valid: 128, 256"),
        (lambda: accumulator_layout(32, 64), "valid: 64, 128"),
        (lambda: accumulator_layout(128, 24, 2), "multiples of 16"),
        (lambda: accumulator_layout(128, 264), "from 8 to 256"),
        (lambda: accumulator_layout(128, 64, 3), "no such form"),
        (lambda: a_layout(128, 17, "f16"), "must fill whole words of 2 f16"),
        (lambda: a_layout(128, 32, "e2m1"), "which kind?"),
        (lambda: lookup_layout(12), "multiples of 8 up to 256"),
        (lambda: lookup_layout(24, 2), "multiples of 16 up to 256"),
        (lambda: metadata_layout("mxf4", 128, 64), "sparse K = 64; valid: 128, 192"),
        (lambda: scale_layout("c", 128, 4), "valid: a, b"),  # type: ignore[arg-type]
        (lambda: scale_layout("a", 128, 5), "1, 2, 3, 4, 6 or 8 vectors"),
        (lambda: scale_layout("b", 100, 4), "multiples of 8"),
        (lambda: scale_layout("b", 128, 4, lanes=128), "128 for A on sm_107"),
        (lambda: scale_layout("a", 128, 4, cta_group=3), "valid: 1, 2"),
        (lambda: metadata_layout("f4", 128, 64), "valid: tf32, f16"),
        (lambda: metadata_layout("f16", 128, 64), "valid: 32"),
        (lambda: metadata_layout("i8", 128, 64, selector=1), "valid: 0"),
        (lambda: accumulator_layout(64, 32)(16, 0), "lane 16, column 0, slot 0 holds no element"),
        (lambda: accumulator_layout(64, 32)(128, 0), "valid are 0 to 127"),
        (lambda: accumulator_layout(64, 32).where(64, 0), "row 64 does not exist"),
        (lambda: accumulator_layout(64, 32).where(0, 0, copy=1), "copy 1 does not exist"),
    ],
)  # fmt: skip
def test_what_cannot_be(call: Callable[[], object], text: str) -> None:
    with pytest.raises(tcsim.OperandError, match=re.escape(text)):
        call()
