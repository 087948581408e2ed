"""A page that stands alone: data, style and script of the assets in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

import tcsim
from tcsim.core.texts import markup, shown


def filled(data: Mapping[str, Any], parts: Sequence[str] = ("page",), script: str = "page") -> str:
    """A page that holds data, with a "title" and perhaps "evidence", styled by assets/<part>.css and drawn by assets/<script>.js."""
    assets = resources.files("tcsim.inspection") / "assets"
    written = json.dumps(shown(data), separators=(",", ":")).replace("<", "\\u003c")  # nothing in it may end the script
    return Template((assets / "page.html").read_text(encoding="utf-8")).substitute(
        title=markup(str(data["title"]), quote=False),
        style="\n".join((assets / f"{part}.css").read_text(encoding="utf-8") for part in parts),
        evidence=markup(str(data.get("evidence", "")), quote=False),
        data=written,
        script=(assets / f"{script}.js").read_text(encoding="utf-8"),
        version=tcsim.__version__,
    )
