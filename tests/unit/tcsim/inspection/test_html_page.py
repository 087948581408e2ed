"""The HTML pages, without a browser: what is in them, how large they are, what cannot be shown. tests/browser hovers."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.catalog import rows
from tcsim.inspection.html_page import MOST_ELEMENTS, descriptor_page, instruction_page, tile_page
from tcsim.layouts.layout import FragmentLayout, Layout

LIMIT = 300_000  # bytes


def data_of(page: str) -> Any:
    """The JSON in a page."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def tuples(x: Any) -> Any:
    """JSON's lists as the layouts' tuples."""
    return tuple(map(tuples, x)) if isinstance(x, list) else x


def test_every_fragment_is_in_its_page() -> None:
    """One instruction of every family and set of layouts: what the page draws is what the layout says."""
    seen: set[tuple[str, ...]] = set()
    compared = 0
    for row in rows().values():
        key = (row.family, *(str(operand.layout) for operand in row.operands.values()))
        if row.dropped or not row.operands or key in seen:
            continue
        seen.add(key)
        ins = tcsim.instruction(row.mnemonic, arch=row.targets[-1])
        page = instruction_page(ins)
        assert len(page.encode()) <= LIMIT, row.mnemonic
        views = {view["id"]: view for view in data_of(page)["views"]}
        for name, operand in ins.operands.items():
            view = views["d" if name == "c" and name not in views else name]
            layout = operand.layout
            if view["elements"] is None:
                matrix = Layout(*(tuples(view["matrix"][x]) for x in ("shape", "stride"))) if view["matrix"] else None
                parts = [Layout(*(tuples(view[x][y]) for y in ("shape", "stride"))) for x in ("thread", "value")]
                drawn = FragmentLayout(
                    *parts, view["rows"], view["columns"], view["bits"], view["columnFastest"], matrix
                ).flat_element
            else:
                drawn = np.frombuffer(base64.b64decode(view["elements"]), "<u4")
            np.testing.assert_array_equal(drawn, layout.flat_element)
            compared += drawn.size
    assert len(seen) > 50 and compared > 100_000


@pytest.mark.parametrize(("format", "rows_", "k"), [("f16", 256, 128), ("e4m3", 256, 128), ("b1", 64, 512)])
def test_tiles_carry_their_addresses(format: str, rows_: int, k: int) -> None:
    """The bytes of every element, in a page of at most 300 kB."""
    tile = tcsim.MatrixDescriptor.for_tile(rows_, k, format)
    page = tile_page(tile)
    assert len(page.encode()) <= LIMIT
    (view,) = data_of(page)["views"]
    np.testing.assert_array_equal(
        np.frombuffer(base64.b64decode(view["addresses"]), "<u4").reshape(rows_, k), tile.addresses
    )


def test_a_page_stands_alone() -> None:
    """No address of anything else, nothing that would end the script early."""
    page = instruction_page(tcsim.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16", arch="sm_90"))
    assert "http" not in page and "src=" not in page and "href" not in page
    assert page.count("</script>") == 2 and page.count("<script") == 2
    assert f"Drawn by tcsim {tcsim.__version__}" in page


def test_what_cannot_be_shown() -> None:
    """Instructions without fragments, tiles beyond the limit."""
    with pytest.raises(tcsim.OperandError, match="no fragments to show"):
        instruction_page(tcsim.instruction("cvt.rn.f16.f32", arch="sm_90"))
    descriptor = tcsim.MatrixDescriptor(leading_byte_offset=128, stride_byte_offset=256)
    with pytest.raises(tcsim.OperandError, match=f"at most {MOST_ELEMENTS}"):
        descriptor_page(descriptor, 512, 128, "f16")


def test_notebooks_show_objects() -> None:
    """Pages in frames, tables and pictures; None where a picture would be too large."""
    ins = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    assert ins._repr_html_().startswith("<iframe srcdoc=") and "&lt;!doctype html&gt;" in ins._repr_html_()
    without = tcsim.instruction("cvt.rn.f16.f32", arch="sm_90")._repr_html_()
    assert "cvt.rn.f16.f32" in without and "evidence" in without and "measured: NVIDIA H200" in without
    for shown in (ins, tcsim.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16", arch="sm_90")):
        assert shown._repr_html_().count("evidence measured: NVIDIA H200") >= 1  # below the title
    picture = ins.operands["a"].layout._repr_svg_()
    assert picture is not None and picture.count("<rect") == 256 and ">15:0.1<" in picture
    tile = tcsim.MatrixDescriptor.for_tile(64, 64, "f16")
    assert tile._repr_html_().startswith("<iframe") and "stride_byte_offset" in tile.descriptor._repr_html_()
    table = tcsim.Layout((4, (2, 3)), (6, (1, 2)))._repr_svg_()
    assert table is not None and table.count("<rect") == 24
    assert tcsim.Layout(8192, 1)._repr_svg_() is None
    assert "valid" in tcsim.MatrixDescriptor(start_address=7)._repr_html_()


def shown_objects() -> list[Any]:
    """One object of every public type that notebooks show as a report."""
    kernel = tcsim.ptx.parse(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry store(.param .u64 p) {\n"
        ".reg .u64 %a; ld.param.u64 %a, [p];\nst.global.u32 [%a], 1; ret; }"
    ).kernel()
    runs = [kernel.launch(tcsim.ptx.Memory(), [pointer], grid=(1, 1, 1), block=(1, 1, 1)) for pointer in (7, 8)]
    one = np.ones((16, 16), np.float16)
    wrong = np.full((16, 16), 5, np.float32)
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    return [
        kernel, kernel.module, runs[0], runs[0].hazards[0], tcsim.MBarrier(2), tcsim.TensorMemory(),
        tcsim.bank_conflicts(64 * np.arange(32), width=4), tcsim.format("e4m3"), tcsim.format("s8"), tcsim.Swizzle(3, 4, 3),
        tcsim.MatrixDescriptor(), tcsim.TensorMap("FLOAT16", (64, 64), (128,), (64, 64)),
        tcsim.explain(one, one, wrong), tcsim.diagnose(mma, a=one, b=one, observed=wrong),
    ]  # fmt: skip


def test_answers_and_state_show_themselves_alike() -> None:
    """Each in a frame of its own, with the style of the pages, and small."""
    objects = shown_objects()
    for item in objects:
        shown = item._repr_html_()
        assert shown.startswith("<iframe srcdoc=") and "prefers-color-scheme" in shown, type(item)
        assert len(shown) < 60_000, type(item)
    assert len({type(item) for item in objects}) == len(objects) - 1
