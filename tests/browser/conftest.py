"""A headless Chromium for the pages; one that is missing is a failure: `tox -e browser` needs Chromium and ChromeDriver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1400,1000",
)  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    """Chromium under ChromeDriver."""
    found = {name: next(filter(None, map(shutil.which, names)), None) for name, names in _PROGRAMS.items()}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        pytest.fail(f"{' and '.join(missing)} not found: install them (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    for option in _OPTIONS:
        options.add_argument(option)
    options.binary_location = str(found["Chromium"])
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found["ChromeDriver"]))
    yield driver
    driver.quit()


_PROGRAMS = {"Chromium": ("chromium", "chromium-browser", "google-chrome"), "ChromeDriver": ("chromedriver",)}
