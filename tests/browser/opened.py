"""A page in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Opened:
    """A page that is written to a folder, loaded, and ready."""

    def __init__(self, browser: Any, folder: Path, text: str) -> None:
        self.browser = browser
        path = folder / "page.html"
        path.write_text(text, encoding="utf-8")
        browser.get(path.as_uri())
        assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
