"""The picture of a product in a real browser: hover D, A and B, and what the page says is what the layouts say; light, dark, phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import tcsim
from tcsim.inspection.memory_places import shared_operand, tensor_memory_operand
from tcsim.inspection.product_page import Tile, product_page
from tests.browser.opened import Opened

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"
UMMA = "tcgen05.mma.cta_group::2.kind::f16"
SPARSE_UMMA = "tcgen05.mma.sp.cta_group::1.kind::f16"
SPARSE_IDESC = tcsim.InstructionDescriptor("f16", 128, 64, a_format="bf16", sparse=True).encode()
IDESC = tcsim.InstructionDescriptor("f16", 256, 64, a_format="bf16").encode()


class Page(Opened):
    """What the tests ask of it."""

    def hover(self, matrix: str, row: int, column: int) -> tuple[str, str]:
        """Point at an element: the line above, and the table."""
        self.browser.execute_script(
            """const canvas = document.getElementById(arguments[0]);
            canvas.scrollIntoView({block: 'center'});
            const box = canvas.getBoundingClientRect(), side = boards.find((b) => b.canvas === canvas).side;
            canvas.dispatchEvent(new PointerEvent('pointermove', {bubbles: true,
              clientX: box.left + (arguments[2] + 0.5) * side, clientY: box.top + (arguments[1] + 0.5) * side}));""",
            f"matrix-{matrix}", row, column,
        )  # fmt: skip
        return self.browser.find_element(By.ID, "info").text, self.browser.find_element(By.ID, "said").text


@pytest.mark.parametrize(
    ("mnemonic", "arch"),
    [(MMA, "sm_90"), (WGMMA, "sm_90a"), (SCALED, "sm_120a"), ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "sm_90")],
)
def test_a_notebook_frame_fits_900_pixels_and_begins_with_the_evidence(
    browser: Any, tmp_path: Path, mnemonic: str, arch: str
) -> None:
    """Nothing sticks out to the right, and nobody has to scroll to read how it is known."""
    path = tmp_path / "notebook.html"
    shown = tcsim.instruction(mnemonic, arch=arch)
    path.write_text(f'<meta charset="utf-8"><body style="margin:0;width:900px">{shown._repr_html_()}', encoding="utf-8")
    browser.get(path.as_uri())
    browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
    wide, room = browser.execute_script(
        "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    )
    said = browser.find_element(By.ID, "evidence")
    assert wide <= room <= 900 and said.rect["y"] < 100 and said.text.startswith(f"evidence {shown.evidence.level}: ")
    browser.switch_to.default_content()


def test_hover_the_registers_of_a_warp(browser: Any, tmp_path: Path) -> None:
    ins = tcsim.instruction(MMA, arch="sm_90")
    page = Page(browser, tmp_path, product_page(ins))
    compared = 0
    for name, operand in ins.operands.items():
        if name == "c":
            continue
        for row in range(0, operand.shape[0], 5):
            for column in range(0, operand.shape[1], 3):
                lane, register, slot = operand.layout.where(row, column)
                said, _ = page.hover(name, row, column)
                assert said.startswith(f"{name.upper()}({row},{column}) = lane {lane} {name}{register}["), said
                compared += 1
    _, table = page.hover("d", 8, 6)
    assert "row 8 of A" in table and "lanes 0-3, registers a1, a3" in table and "lanes 24-27, registers b0-b1" in table
    assert compared > 40


@pytest.mark.parametrize("swizzle", ["NONE", "128B"])
def test_hover_shared_memory_behind_descriptors(browser: Any, tmp_path: Path, swizzle: str) -> None:
    ins = tcsim.instruction(WGMMA, arch="sm_90a")
    page = Page(browser, tmp_path, product_page(ins, Tile(64, swizzle)))
    own = shared_operand(ins, "a", k=64, swizzle=swizzle)
    for row, column in ((0, 0), (9, 5), (37, 63), (63, 17)):
        place = own.place(row, column)
        said, table = page.hover("a", row, column)
        assert f"A({row},{column}) = byte {place.byte:#x}, bank {place.bank}" in said
        assert f"K step\n{column // 16} of 4" in table or f"K step {column // 16} of 4" in table
        assert "core matrix" in table and f"SBO {own.descriptor.stride_byte_offset} bytes" in table


def test_hover_tensor_memory(browser: Any, tmp_path: Path) -> None:
    ins = tcsim.instruction(UMMA, arch="sm_100a")
    page = Page(browser, tmp_path, product_page(ins, Tile(idesc=IDESC)))
    layout = tensor_memory_operand(ins, "d", IDESC)
    for row, column in ((0, 0), (130, 33), (255, 63)):
        cta, lane, at, _ = layout.where(row, column)
        said, _ = page.hover("d", row, column)
        assert said == f"D({row},{column}) = Tensor Memory lane {lane}, column {at} of CTA {cta}"


def test_hover_metadata(browser: Any, tmp_path: Path) -> None:
    """A kept element names its group's bits and the row of B that it meets; an output lights the rows of B that are kept."""
    ins = tcsim.instruction(SPARSE, arch="sm_90")
    page = Page(browser, tmp_path, product_page(ins))
    lanes, bits = ins.row.sparsity.places(0)  # type: ignore[attr-defined]
    kept = browser.execute_script("return data.kept")
    for row, column in ((0, 0), (3, 5), (9, 15)):
        _, table = page.hover("a", row, column)
        lane, low, k = lanes[row, column // 2], bits[row, column // 2], kept[row][column]
        assert f"in lane {lane} metadata[{low + 3}:{low}]" in table and f"{k}: it meets row {k} of B" in table
        said, table = page.hover("metadata", row, column // 2)
        assert said == f"metadata({row},{column // 2}) = lane {lane} metadata[{low + 3}:{low}]" and "0b" in table
        page.hover("d", row, 2)
        assert browser.execute_script("return lit(B).map(([k]) => k)") == kept[row]


def test_hover_metadata_in_tensor_memory(browser: Any, tmp_path: Path) -> None:
    """A kept element names the cell of its group, a group its lane and column; an output lights the metadata of its row, and the rows of B that are kept."""
    ins = tcsim.instruction(SPARSE_UMMA, arch="sm_100a")
    page = Page(browser, tmp_path, product_page(ins, Tile(idesc=SPARSE_IDESC)))
    layout = tensor_memory_operand(ins, "metadata", SPARSE_IDESC)
    kept = browser.execute_script("return data.kept")
    for row, column in ((0, 0), (9, 5), (127, 15)):
        _, lane, at, slot = layout.where(row, column // 2)
        cell = f"Tensor Memory lane {lane}, column {at}[{4 * slot + 3}:{4 * slot}]"
        _, table = page.hover("a", row, column)
        assert f"in {cell}" in table and f"{kept[row][column]}: it meets row {kept[row][column]} of B" in table
        said, table = page.hover("metadata", row, column // 2)
        assert said == f"metadata({row},{column // 2}) = {cell}" and "0b" in table
        _, table = page.hover("d", row, 2)
        lanes = sorted({int(layout.where(row, group)[1]) for group in range(layout.columns)})
        text = (
            f"Tensor Memory lanes {lanes[0]}, " if len(lanes) == 1 else f"Tensor Memory lanes {lanes[0]}, {lanes[1]}, "
        )
        assert text in table and "columns 0" in table
        assert browser.execute_script("return lit(B).map(([k]) => k)") == kept[row]
        assert browser.execute_script("return lit(operands.get('metadata')).length") == layout.columns


def test_hover_scale_factors(browser: Any, tmp_path: Path) -> None:
    ins = tcsim.instruction(SCALED, arch="sm_120")
    page = Page(browser, tmp_path, product_page(ins))
    scales = ins.scales  # type: ignore[attr-defined]
    for row, column, k in ((0, 0, 0), (9, 3, 40), (15, 7, 63)):
        block = k // ins.block  # type: ignore[attr-defined]
        lane, _, slot = scales["scale_a"].layout.where(row, block)
        assert f"in lane {lane} scale_a[{8 * slot + 7}:{8 * slot}]" in page.hover("a", row, k)[1]
        lane, _, slot = scales["scale_b"].layout.where(block, column)
        assert f"in lane {lane} scale_b[{8 * slot + 7}:{8 * slot}]" in page.hover("b", k, column)[1]
        said, table = page.hover("scale_b", block, column)
        first = block * ins.block  # type: ignore[attr-defined]
        assert said.startswith(f"scale_b({block},{column}) = lane {lane} ") and f"k {first}-{first + 15} of" in table


def test_search_keys_theme_and_a_phone(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, tmp_path, product_page(tcsim.instruction(MMA, arch="sm_90")))
    box = browser.find_element(By.ID, "search")
    box.send_keys("a 3,7", Keys.ENTER)
    assert browser.find_element(By.ID, "info").text.startswith("A(3,7) = lane 15 a0[31:16]")
    browser.find_element(By.ID, "matrix-a").send_keys(Keys.ARROW_DOWN)
    assert browser.find_element(By.ID, "info").text.startswith("A(4,7)")
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert browser.find_element(By.ID, "info").text.startswith("Point at an element")
    grounds = set()
    for _ in range(2):
        grounds.add(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
        browser.find_element(By.ID, "theme").click()
    assert len(grounds) == 2
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        for text in (
            product_page(tcsim.instruction(WGMMA, arch="sm_90a")),
            product_page(tcsim.instruction(MMA, arch="sm_90")),
            product_page(tcsim.instruction(SPARSE, arch="sm_90")),
            product_page(tcsim.instruction(SCALED, arch="sm_120")),
            product_page(tcsim.instruction(SPARSE_UMMA, arch="sm_100a"), Tile(idesc=SPARSE_IDESC)),
        ):
            page = Page(browser, tmp_path, text)
            assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
            assert page.hover("d", 3, 5)[0].startswith(("D(3,5) = lane ", "D(3,5) = Tensor Memory lane 3, "))
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_log("browser") == []
