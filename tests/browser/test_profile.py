"""The page of `tcsim profile`: bars, roofline, heat and banks are drawn, say what they are, and fit on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By

from tcsim.inspection.report_html import report_page
from tcsim.launchers.profile import Profile
from tcsim.launchers.profile_page import page_report
from tests.browser.opened import Opened
from tests.kernels import counters


@pytest.fixture(scope="module")
def profile() -> Profile:
    """A product that Triton compiled, counted."""
    return next(
        counters.profiled(fields, name) for name, fields in counters.launches() if name == "cuda_wmma_naive_sm75"
    )


@pytest.mark.parametrize("width", [390, 1400])
def test_a_profile_is_drawn(browser: Any, tmp_path: Path, profile: Profile, width: int) -> None:
    text = report_page(page_report(profile))
    assert len(text) < 300_000
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 700}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        Opened(browser, tmp_path, text)
        drawings = browser.find_elements(By.CSS_SELECTOR, ".drawing")
        labels = [own.get_attribute("aria-label") for own in browser.find_elements(By.CSS_SELECTOR, ".drawing svg")]
        assert labels[:2] == ["What each unit needs of the bound", "Roofline"] and len(drawings) >= 3
        assert all(own.rect["width"] > 100 for own in drawings)
        tints = browser.execute_script(
            "return [...document.querySelectorAll('.heat tr')].map((row) => +row.style.getPropertyValue('--heat'))"
        )
        assert len(tints) > 5 and max(tints) > 0.1
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_log("browser") == []
