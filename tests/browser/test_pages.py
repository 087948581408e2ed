"""The pages in a real browser: hover both ways, search, keyboard, light and dark; compared with the layouts themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import tcsim
from tcsim.inspection.html_page import descriptor_page, instruction_page, tile_page
from tests.browser.opened import Opened

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
INSTRUCTIONS = {
    MMA: "sm_90",
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32": "sm_70",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32": "sm_80",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64": "sm_90",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": "sm_90",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32": "sm_90",
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16": "sm_90",
}


class Page(Opened):
    """What the tests ask of it."""

    def cell(self, board: str, place: int) -> Any:
        """A cell of a board, counted along its rows."""
        return self.browser.execute_script(f"return document.querySelectorAll('#{board} .c')[{place}]")

    def count(self, board: str) -> int:
        """How many cells a board has."""
        return int(self.browser.execute_script(f"return document.querySelectorAll('#{board} .c').length"))

    def hover(self, cell: Any) -> str:
        """Point at a cell; what the page then says."""
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", cell)
        ActionChains(self.browser).move_to_element(cell).perform()
        return self.info()

    def info(self) -> str:
        """What the page says."""
        return self.browser.find_element(By.ID, "info").text

    def lit(self, board: str, kind: str = "lit") -> list[str]:
        """The labels of the cells that a board marks."""
        script = f"return [...document.querySelectorAll('#{board} .c.{kind}')].map((cell) => cell.textContent)"
        return list(self.browser.execute_script(script))

    def search(self, text: str) -> str:
        """Search; what the page then says."""
        box = self.browser.find_element(By.ID, "search")
        box.clear()
        box.send_keys(text, Keys.ENTER)
        return self.info()


@pytest.mark.parametrize("mnemonic", INSTRUCTIONS)
def test_hover_an_element_and_a_register(browser: Any, tmp_path: Path, mnemonic: str) -> None:
    """Both ways, for elements spread over every fragment: what the page marks is what the layout says."""
    ins = tcsim.instruction(mnemonic, arch=INSTRUCTIONS[mnemonic])
    page = Page(browser, tmp_path, instruction_page(ins))
    compared = 0
    for name, operand in ins.operands.items():
        if name == "c" and operand.layout == ins.operands["d"].layout and operand.format == ins.operands["d"].format:
            continue  # the picture of d
        layout = operand.layout
        cells = page.count(f"{name}-matrix")
        size = layout.rows * layout.columns
        assert cells == layout.matrices * size and page.count(f"{name}-registers") == layout.lanes * layout.value.size
        for element in range(0, cells, max(1, cells // 7)):
            which, (row, column) = element // size, divmod(element % size, layout.columns)
            lane, register, slot = layout.where(row, column, which)
            shown = page.cell(f"{name}-matrix", element)
            said = page.hover(shown)
            own = register // 2 if layout.element_bits == 64 else register
            assert f"{name}[{row},{column}]" in said and f"lane {lane} {name}{own}[" in said
            assert len(page.lit(f"{name}-registers")) == layout.copies
            value = register * 32 // layout.element_bits + slot
            page.hover(page.cell(f"{name}-registers", lane * layout.value.size + value))
            marked = page.lit(f"{name}-matrix")
            assert marked == [shown.text]
            compared += 2
    assert compared >= 14


def test_a_result_shows_what_feeds_it(browser: Any, tmp_path: Path) -> None:
    """A row of A and a column of B."""
    page = Page(browser, tmp_path, instruction_page(tcsim.instruction(MMA, arch="sm_90")))
    page.hover(page.cell("d-matrix", 3 * 8 + 5))
    fed = browser.execute_script(
        "return ['a-matrix', 'b-matrix'].map((id) => [...document.querySelectorAll('#' + id + ' .c.fed')].map((c) => +c.dataset.p))"
    )
    assert fed == [[3 * 16 + k for k in range(16)], [k * 8 + 5 for k in range(16)]]


def test_search_keyboard_and_escape(browser: Any, tmp_path: Path) -> None:
    """Elements, registers and lanes are found; arrows move; Escape lets go; nonsense is answered."""
    page = Page(browser, tmp_path, instruction_page(tcsim.instruction(MMA, arch="sm_90")))
    assert page.search("a 3,7") == "a[3,7] = lane 15 a0[31:16]"
    assert page.search("5 a2") == "a[1,10] = lane 5 a2[15:0]"
    assert page.search("lane 4").startswith("d[1,0] = lane 4 d0")
    assert 'nothing is called "q 99,1"' in page.search("q 99,1")
    assert page.search("b[2,1]") == "b[2,1] = lane 5 b0[15:0]"
    active = browser.switch_to.active_element
    active.send_keys(Keys.ARROW_DOWN)
    assert page.info() == "b[3,1] = lane 5 b0[31:16]"
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert page.info().startswith("b[3,2] = lane 9")
    page.hover(page.cell("d-matrix", 0))
    assert page.info().startswith("b[3,2]")  # pinned by the search
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert page.info() == "Point at an element."
    assert page.hover(page.cell("d-matrix", 9)).startswith("d[1,1]")
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"


@pytest.mark.parametrize(
    ("format", "rows", "k", "major", "swizzle"),
    [
        ("f16", 64, 64, "K", "128B"),
        ("f16", 64, 32, "MN", "64B"),
        ("e4m3", 16, 64, "K", "32B"),
        ("b1", 8, 256, "K", "NONE"),
    ],
)
def test_a_tile_shows_its_bytes(
    browser: Any, tmp_path: Path, format: str, rows: int, k: int, major: Any, swizzle: str
) -> None:
    """Hover an element: its byte and bank; hover 16 bytes: all their elements; search a byte."""
    tile = tcsim.MatrixDescriptor.for_tile(rows, k, format, major, swizzle)
    page = Page(browser, tmp_path, tile_page(tile))
    assert page.count("tile-matrix") == rows * k and page.count("tile-memory") == -(-tile.bytes // 128) * 8
    for element in range(0, rows * k, rows * k // 9):
        row, column = divmod(element, k)
        byte = int(tile.addresses[row, column])
        said = page.hover(page.cell("tile-matrix", element))
        assert f"tile[{row},{column}] = byte {byte:#x} ({byte}), bank {byte // 4 % 32}" in said
        page.hover(page.cell("tile-memory", byte // 16))
        inside = int(((tile.addresses // 16) == byte // 16).sum())
        assert len(page.lit("tile-matrix")) == inside
    assert f"{int(tile.addresses[1, 0]):#x}" in page.search(f"{int(tile.addresses[1, 0]):#x}")


def test_a_wrong_descriptor_shows_what_is_shared(browser: Any, tmp_path: Path) -> None:
    """SBO in units of 16 for bytes: several elements at one place, and the verdict below."""
    wrong = tcsim.MatrixDescriptor(stride_byte_offset=64, swizzle="128B")
    page = Page(browser, tmp_path, descriptor_page(wrong, 64, 16, "f16"))
    addresses = wrong.addresses(64, 16, "f16")
    page.hover(page.cell("tile-matrix", 16 * 16))
    memory = int((addresses // 16 == addresses[16, 0] // 16).sum())
    page.hover(page.cell("tile-memory", int(addresses[16, 0]) // 16))
    assert len(page.lit("tile-matrix")) == memory > 8
    facts = browser.find_element(By.ID, "facts").text
    assert "wrong" in facts and "672 of 1024 elements are read from a place that another element has too" in facts


def test_light_and_dark(browser: Any, tmp_path: Path) -> None:
    """The button switches, and text stays legible on the ground."""
    page = Page(browser, tmp_path, instruction_page(tcsim.instruction(MMA, arch="sm_90")))
    seen = set()
    for _ in range(2):
        ground, ink = (
            [
                int(x)
                for x in re.findall(r"\d+", browser.execute_script(f"return getComputedStyle(document.body).{name}"))[
                    :3
                ]
            ]
            for name in ("backgroundColor", "color")
        )
        assert abs(sum(ground) - sum(ink)) > 400
        seen.add(sum(ground) > sum(ink))
        browser.find_element(By.ID, "theme").click()
    assert seen == {True, False}
    assert page.count("d-matrix") == 128


def test_nothing_is_logged(browser: Any, tmp_path: Path) -> None:
    """No script error and no request that failed, over all instructions above."""
    for mnemonic, arch in INSTRUCTIONS.items():
        Page(browser, tmp_path, instruction_page(tcsim.instruction(mnemonic, arch=arch)))
    assert browser.get_log("browser") == []
