"""Docstrings state conditions as equations, and all of them are executed.

A docstring of layouts, descriptors or memory may say:

    Pre-conditions:
        0 <= row < self.rows
    Post-conditions:
        self(*result) == (row, column)

Each line is one Python expression over the arguments, the module's names, `np`, `tcsim`, `result`, and `before`, which is what
`self` was before the call; an array holds if every element does. A call that returns must have met all of them. Where
pre-conditions are stated they say exactly what is refused: a call that meets them all may not raise a `TcsimError`, and one
that does not must. Functions without pre-conditions may refuse what they like.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tcsim
from tcsim.core.errors import TcsimError
from tests.house.condition_calls import CALLS

PACKAGES = ("tcsim.core", "tcsim.layouts", "tcsim.descriptors", "tcsim.memory")
HEADING = re.compile(r"^ *(Pre|Post)-conditions:$", re.MULTILINE)
SECTION = re.compile(
    r"^(?P<indent> *)(?P<which>Pre|Post)-conditions:\n(?P<lines>(?:(?P=indent) +\S.*\n?)+)", re.MULTILINE
)


@dataclass
class Stated:
    """A function that states conditions, and what became of the calls so far."""

    name: str
    function: Callable[..., Any]
    module: Any
    before: tuple[str, ...]
    after: tuple[str, ...]
    accepted: int = 0
    unmet: Counter[str] = field(default_factory=Counter)
    results: list[tuple[dict[str, Any], Any]] = field(default_factory=list)

    def call(self, *args: Any, **named: Any) -> None:
        """Call it once, and check every condition."""
        bound = inspect.signature(self.function).bind(*args, **named)
        bound.apply_defaults()
        names = vars(self.module) | {"np": np, "tcsim": tcsim} | bound.arguments
        if any(re.search(r"\bbefore\b", line) for line in (*self.before, *self.after)):
            names["before"] = deepcopy(names["self"])
        unmet = [line for line in self.before if not holds(line, names)]
        self.unmet.update(unmet)
        try:
            result = self.function(*bound.args, **bound.kwargs)
        except TcsimError:
            if unmet or not self.before:
                return
            raise  # it refuses what meets its pre-conditions
        assert not unmet, f"{self.name} takes {bound.arguments} against its pre-condition {unmet[0]}"
        names["result"] = result
        for line in self.after:
            assert holds(line, names), f"{self.name}: not so for {bound.arguments}, which gives {result!r}: {line}"
        self.accepted += 1
        self.results.append((names, result))

    def notices(self) -> bool:
        """Whether a result that belongs to another call is noticed."""
        for (names, own), (_, other) in zip(self.results, self.results[1:], strict=False):
            try:
                if not np.all(own == other) and not all(holds(line, names | {"result": other}) for line in self.after):
                    return True
            except (ValueError, TypeError, IndexError, AttributeError):  # of another shape
                return True
        return False


def holds(line: str, names: dict[str, Any]) -> bool:
    """Whether a condition is true; one that cannot even be asked is not."""
    try:
        return bool(np.all(eval(line, names)))
    except TcsimError:
        return False


def functions_of(module: Any) -> Iterator[tuple[str, Callable[..., Any], str]]:
    """(name, function, docstring) of what a module defines: functions, methods, properties."""
    owners = [("", module), *((name, item) for name, item in vars(module).items() if inspect.isclass(item))]
    for prefix, owner in owners:
        if prefix and owner.__module__ != module.__name__:
            continue
        for name, item in vars(owner).items():
            function = item
            if isinstance(item, (staticmethod, classmethod)):
                function = getattr(owner, name)
            elif isinstance(item, property):
                function = item.fget
            elif isinstance(item, cached_property):
                function = item.func
            if callable(function) and not inspect.isclass(function) and function.__module__ == module.__name__:
                yield f"{module.__name__}.{prefix + '.' if prefix else ''}{name}", function, function.__doc__ or ""


def modules() -> Iterator[Any]:
    """The modules whose docstrings may state conditions."""
    for package in map(importlib.import_module, PACKAGES):
        for item in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(item.name)


def collected() -> dict[str, Stated]:
    """Every function that states conditions, by name."""
    found = {}
    for module in modules():
        for name, function, text in functions_of(module):
            sections = {m["which"]: tuple(map(str.strip, m["lines"].splitlines())) for m in SECTION.finditer(text)}
            if sections:
                found[name] = Stated(name, function, module, sections.get("Pre", ()), sections.get("Post", ()))
    return found


STATED = collected()


def test_every_condition_is_found() -> None:
    """As many sections are collected as are written, and each line is an expression."""
    written = sum(len(HEADING.findall(Path(module.__file__).read_text(encoding="utf-8"))) for module in modules())
    assert sum(bool(one.before) + bool(one.after) for one in STATED.values()) == written > 80
    for one in STATED.values():
        for line in (*one.before, *one.after):
            compile(line, one.name, "eval")


BOUNDS_ONLY = {"tcsim.memory.mbarrier.MBarrier.tx_count", "tcsim.descriptors.bit_field.Field.mask"}
"""Functions whose conditions bound the result and do not determine it."""


def test_every_function_with_conditions_is_called() -> None:
    """And nothing is listed that states none."""
    assert set(CALLS) == set(STATED)


@pytest.mark.parametrize("name", STATED)
def test_conditions(name: str) -> None:
    """They hold, pre-conditions are seen unmet too, and a result that belongs to another call is noticed."""
    one = STATED[name]

    @settings(max_examples=120)
    @given(CALLS[name])
    def check(arguments: tuple[Any, ...]) -> None:
        named = arguments[-1] if isinstance(arguments[-1], dict) and len(arguments) > 1 else {}
        one.call(*(arguments[:-1] if named else arguments), **named)

    check()
    assert one.accepted >= 4, "almost no call was accepted"
    for line in one.before:
        assert one.unmet[line], f"no call went against {line}"
    if one.after and not any("before" in line for line in one.after) and name not in BOUNDS_ONLY:
        assert one.notices(), "a wrong result would go unnoticed"
