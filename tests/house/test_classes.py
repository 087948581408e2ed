"""Classes of tcsim.ptx are small, and parts of each other rather than towers: few methods, counted with those that they inherit, and little depth."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from types import FunctionType

import pytest

import tcsim.ptx

MOST_METHODS, MOST_DEPTH = 25, 2
"""Of a class: methods and properties, with those of our classes that it inherits from; and itself with the longest line of these."""
IN_TWO = {"tcsim.ptx.stepping.session.Session"}
"""Public calls in two classes, one above the other, each of them small."""


def classes() -> Iterator[type]:
    """Every class that is defined in tcsim.ptx, but for protocols, which have no code."""
    for module in pkgutil.walk_packages(tcsim.ptx.__path__, "tcsim.ptx."):
        for own in vars(import_module(module.name)).values():
            ours = isinstance(own, type) and own.__module__ == module.name
            if ours and not getattr(own, "_is_protocol", False):
                yield own


def bases(own: type) -> list[type]:
    """The classes of ours that one is made of directly."""
    return [base for base in own.__bases__ if base.__module__.startswith("tcsim.")]


def depth(own: type) -> int:
    """Itself, and the longest line of our classes above it."""
    return 1 + max(map(depth, bases(own)), default=0)


def methods(own: type) -> set[str]:
    """What is written in the class or one of ours above it, and executed: no method that a decorator makes."""
    found = {name for base in bases(own) for name in methods(base)}
    for name, value in vars(own).items():
        inner = value.fget if isinstance(value, property) else value
        inner = inner.func if isinstance(inner, cached_property) else getattr(inner, "__func__", inner)
        if isinstance(inner, FunctionType) and inner.__code__.co_filename != "<string>" and "." in inner.__qualname__:
            found.add(name)
    return found


def test_classes_are_small() -> None:
    """Every class of tcsim.ptx; the largest is near the most."""
    counted = {f"{own.__module__}.{own.__qualname__}": len(methods(own)) for own in classes()}
    for name in IN_TWO:
        above = counted["tcsim.ptx.stepping.stopped.Stopped"]
        counted[name] = max(counted[name] - above, above)
    assert len(counted) > 150 and max(counted.values()) > MOST_METHODS // 2
    assert {name: count for name, count in counted.items() if count > MOST_METHODS} == {}


def test_nothing_is_a_tower() -> None:
    """Every class of tcsim.ptx; some inherit."""
    found = {f"{own.__module__}.{own.__qualname__}": depth(own) for own in classes()}
    assert MOST_DEPTH in found.values()
    assert {name: own for name, own in found.items() if own > MOST_DEPTH} == {}


@pytest.mark.parametrize("count", [0, 3])
def test_what_is_inherited_counts(count: int) -> None:
    """A class below another has the methods of both, and is one deeper."""

    class Base:
        """Of ours."""

        __module__ = "tcsim.ptx.made"

        @property
        def one(self) -> int:
            """A property."""
            return 1

    own = type("Own", (Base,), {f"m{place}": (lambda self: None) for place in range(count)})
    own.__module__ = "tcsim.ptx.made"
    assert methods(own) == {"one", *(f"m{place}" for place in range(count))} and depth(own) == 2
