"""The plugin through which an installed suite gets its options: pytest reads no conftest.py of what `--pyargs` names before them.

It is loaded with every pytest of the environment, so it imports nothing of the suite unless the command line names it.
"""

from __future__ import annotations

import importlib
import os

import pytest

SUITE = "conformance"


def names_the_suite(arguments: list[str]) -> bool:
    """Whether a command line asks for the installed suite or a part of it.

    >>> names_the_suite(["--pyargs", "conformance.test_cases::test_case[x]"]), names_the_suite(["conformance"])
    (True, False)
    """
    named = (argument.partition("[")[0].partition("::")[0] for argument in arguments)
    return "--pyargs" in arguments and any(name.partition(".")[0] == SUITE for name in named)


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Register the suite's conftest.py under the name that pytest gives it, before the options are read."""
    if not names_the_suite(args):
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the conftest.py of the tree does, and why
    conftest = importlib.import_module(f"{SUITE}.conftest")
    name = str(conftest.__file__)
    if not early_config.pluginmanager.has_plugin(name):
        early_config.pluginmanager.register(conftest, name)
