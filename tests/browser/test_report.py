"""Reports in a real browser: what is linked lights up, maps of errors are drawn in every size, a phone is wide enough."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import tcsim
from tcsim.diagnosis.error_map import error_map
from tcsim.diagnosis.report import Diagnosis
from tcsim.inspection.diagnosis_view import diagnosis_report
from tcsim.inspection.report import Report
from tcsim.inspection.report_html import report_page
from tcsim.inspection.swizzle_view import swizzle_report, swizzle_view
from tcsim.inspection.tensor_map_view import tensor_map_report
from tcsim.inspection.trace_report import trace_report
from tcsim.inspection.trace_steps import trace_steps
from tests.browser.opened import Opened


class Page(Opened):
    """What the tests ask of it."""

    def __init__(self, browser: Any, folder: Path, report: Report) -> None:
        super().__init__(browser, folder, report_page(report))

    def hover(self, node: Any) -> str:
        """Point at something; what the page says."""
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", node)
        ActionChains(self.browser).move_to_element(node).perform()
        return self.info()

    def info(self) -> str:
        """What the page says."""
        return str(self.browser.find_element(By.ID, "info").text)

    def all(self, selector: str) -> list[Any]:
        """What a selector finds."""
        return list(self.browser.find_elements(By.CSS_SELECTOR, selector))


def errors() -> Report:
    """A map of 64 x 128 with rows 16-31 twice the model, and one output wrong."""
    model = np.random.default_rng(0).standard_normal((1, 64, 128))
    observed = model.copy()
    observed[0, 16:32] *= 2
    observed[0, 50, 100] = 7
    found = error_map(observed, model)
    return diagnosis_report("t", Diagnosis("not explained", model.size, 6143, (), (), 9, "rows 16-31", errors=found))


def test_a_map_of_errors_is_drawn_in_every_size(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, tmp_path, errors())
    compared = 0
    for place, size in enumerate((8, 16, 32, 64)):
        page.all(".sizes button")[place].click()  # which draws them anew
        squares = page.all(".squares i")
        assert len(squares) == (64 // size) * (128 // size)
        row, column = 16 // size, 24 // size
        said = page.hover(squares[row * (128 // size) + column])
        assert said.startswith(f"rows {row * size}-{row * size + size - 1}, columns {column * size}-")
        assert f"{min(size, 16) * size} of {size * size} outputs wrong" in said
        compared += 1
    assert compared == 4


def test_keys_move_and_escape_lets_go(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, tmp_path, errors())
    page.all(".sizes button")[0].click()
    page.all(".squares i")[0].click()
    assert page.info().startswith("rows 0-7, columns 0-7")
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert page.info().startswith("rows 0-7, columns 8-15")
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert page.info().startswith("rows 8-15, columns 8-15")
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert page.info() == "Point at a cell."


def test_the_legend_lights_its_squares(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, tmp_path, errors())
    page.all(".sizes button")[0].click()
    entry = next(one for one in page.all(".legend span") if "2 times" in one.text)
    page.hover(entry)
    assert len(page.all(".squares i.fed")) == 2 * 16


@pytest.mark.parametrize("width", [320, 390, 1400])
def test_no_screen_is_too_narrow(browser: Any, tmp_path: Path, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 700},
    )
    try:
        Page(browser, tmp_path, errors())
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_log("browser") == []


def linked(browser: Any, kind: str) -> set[str]:
    """The texts of what is lit, or fed."""
    return set(
        browser.execute_script(
            "return [...document.querySelectorAll('.' + arguments[0])].map((one) => one.textContent)", kind
        )
    )


@pytest.mark.parametrize("pitch", [None, 256])
def test_a_chunk_of_a_swizzle_shows_its_banks_and_whom_it_meets(
    browser: Any, tmp_path: Path, pitch: int | None
) -> None:
    view = swizzle_view("128B", 0, pitch, 16)
    page = Page(browser, tmp_path, swizzle_report(view))
    boards = page.all(".cells")
    compared = 0
    for row, chunk in ((0, 0), (3, 5), (9, 2)):
        for board in boards:
            cell = board.find_elements(By.CSS_SELECTOR, "tbody tr")[row].find_elements(By.CSS_SELECTOR, "td")[chunk + 1]
            said = page.hover(cell)
            bank = view.banks[row][chunk]
            assert f"lies at {view.lands[row][chunk]:#x}, banks {bank}-{bank + 3}" in said
            assert linked(browser, "lit") == {f"{view.lands[row][chunk]:#x}", f"{bank}-{bank + 3}"}
            first = row // 8 * 8
            meeting = [x for x in range(first, first + 8) if x != row and view.banks[x][chunk] == bank]
            assert len(page.all(".cells .fed")) == 2 * len(meeting)
            compared += 1
    assert compared == 6


def test_bytes_of_a_tensor_map_and_its_fields_are_linked(browser: Any, tmp_path: Path) -> None:
    tensor_map = tcsim.TensorMap("FLOAT16", (256, 100), (512,), (64, 8))
    facts = {own.name: getattr(tensor_map, own.name) for own in fields(tensor_map)}
    page = Page(browser, tmp_path, tensor_map_report(tensor_map, facts, tensor_map.encode(0x10000)))
    words = {cell.get_attribute("data-k"): cell for cell in page.all(".rows td[data-k]")}
    assert len(words) == 32
    assert page.hover(words["word3"]) == "bytes 12-15: global_strides[0] = 512"
    assert linked(browser, "fed") == {"global_strides512"}
    strides = next(row for row in page.all(".facts tr") if "global_dim" in row.text)
    assert "global_dim[0] in bits 287:256" in page.hover(strides)
    assert len(page.all(".rows .fed")) == 6  # five sizes, and the word with the rank


def test_a_term_of_a_trace_shows_its_bits(browser: Any, tmp_path: Path) -> None:
    mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    a, b = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float16)
    text = report_page(trace_report(mma, (0, 0), trace_steps(mma, a, b, tcsim.encode(1.0, "f32"))))
    Opened(browser, tmp_path, text)
    cells = browser.find_elements(By.CSS_SELECTOR, ".rows td[data-k]")
    drawn = browser.find_elements(By.CSS_SELECTOR, ".lines span[data-k]")
    assert len(drawn) * 4 == len(cells) == 36
    ActionChains(browser).move_to_element(drawn[3]).perform()
    assert browser.find_element(By.ID, "info").text.startswith("k=3: ")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".rows td.lit")) == 4
    tops = [one.rect["y"] for one in drawn]
    assert tops == sorted(set(tops))  # one line below the other
