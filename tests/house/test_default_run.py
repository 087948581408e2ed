"""What `pytest tests/` leaves out, and that its last lines say so."""

from __future__ import annotations

import configparser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import extent

TESTS = Path(__file__).parents[1]


class Reporter:
    """What the summary writes to."""

    def __init__(self, *skipped: str) -> None:
        self.stats = {"skipped": [SimpleNamespace(longrepr=("file", 1, reason)) for reason in skipped]}
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        """A line, as the reporter writes it."""
        self.lines.append(title)

    line = section


@pytest.fixture
def plugin(request: pytest.FixtureRequest) -> Any:
    """tests/conftest.py, as pytest has loaded it."""
    path = str(TESTS / "conftest.py")
    return next(own for own in request.config.pluginmanager.get_plugins() if getattr(own, "__file__", "") == path)


def config(*arguments: object) -> Any:
    return SimpleNamespace(
        args=[str(own) for own in arguments],
        stash=pytest.Stash(),
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )


def test_every_environment_that_is_named_exists():
    tox = configparser.ConfigParser()
    tox.read(TESTS.parent / "tox.ini")
    names = {name.removeprefix("testenv:").partition("{")[0] for name in tox.sections()}
    assert extent.ELSEWHERE.keys() <= names


def test_the_last_lines_name_what_did_not_run(plugin: Any):
    whole = config(TESTS)
    whole.stash[plugin.LEFT_OUT] = 6380
    reporter = Reporter("no nvdisasm here")
    plugin.pytest_terminal_summary(reporter, whole)
    text = "\n".join(reporter.lines)
    assert "no nvdisasm here" in text and all(f"tox -e {name}" in text for name in extent.ELSEWHERE if name != "whole")
    assert extent.WHOLE or "6,380 more tests" in text


def test_a_run_of_one_file_says_nothing_unless_it_skips(plugin: Any):
    silent, skipping = Reporter(), Reporter("no GPU")
    for reporter in (silent, skipping):
        plugin.pytest_terminal_summary(reporter, config(__file__))
    assert silent.lines == [] and "no GPU" in skipping.lines


@pytest.mark.skipif(extent.WHOLE, reason="the whole leaves nothing out")
def test_a_test_that_is_asked_for_by_name_runs(plugin: Any):
    file, functions = next(iter(extent.read().items()))
    name = next(iter(functions))
    kept = [
        SimpleNamespace(nodeid=f"{file}::{own}" + (f"[{case}]" if case else ""))
        for own, cases in functions.items()
        for case in cases or [""]
    ]
    left = SimpleNamespace(nodeid=f"{file}::{name}[no such case]")
    for own, expected in ((config(TESTS), False), (config(left.nodeid), True)):
        items = [*kept, left]
        plugin.pytest_collection_modifyitems(own, items)
        assert (left in items) is expected
