"""How notebooks show objects: a hook that the package sets, so that the lower layers need not know the renderers.

`tcsim/__init__.py` names the module that renders; it is imported when something is first shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Renderer = Callable[[Any], str | None]

_load: Callable[[], dict[type, Renderer]] | None = None


def install(load: Callable[[], dict[type, Renderer]]) -> None:
    """Set the function that returns the renderer of each type. It is called when something is shown."""
    global _load
    _load = load


def rendered(shown: Any) -> str | None:
    """The HTML or SVG of an object, by the renderer of its class or of the nearest base class; None where there is none."""
    renderers = _load() if _load else {}
    for kind in type(shown).__mro__:
        if kind in renderers:
            return renderers[kind](shown)
    return None


class Shown:
    """An object that notebooks show as its renderer makes it."""

    def _repr_html_(self) -> str | None:
        return rendered(self)
