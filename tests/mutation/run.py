"""Runs the mutants: `python -m tests.mutation.run [--tests] [-n COUNT]`, from the root of the tree.

It writes docs/measurements/mutants.json, and goes on where that ends: delete it to run all of them again.
Each is imported in a process of its own and held against recorded hardware results of the families that run through its
module; those that survive are held against the tests that name the module, and its examples.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes  # noqa: F401  # imported once, before the forks
import numpy  # noqa: F401

from tests.mutation import replay
from tests.mutation.sites import ROOT, Site, chosen, mutated

RESULT = ROOT / "docs/measurements/mutants.json"
PATIENCE = 60  # seconds that a mutant may take
_MOST_FILES = 4


class Planted(MetaPathFinder, Loader):
    """Imports one module of the model from other source."""

    def __init__(self, site: Site) -> None:
        self.site, self.source = site, mutated(site)

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Of that module alone."""
        if name != self.site.module:
            return None
        return spec_from_file_location(name, ROOT / self.site.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        """Run the other source."""
        exec(compile(self.source, str(ROOT / self.site.path), "exec"), module.__dict__)


def _in_child(connection: Any, site: Site, folder: Path, families: list[str]) -> None:
    sys.meta_path.insert(0, Planted(site))
    try:
        answer = replay.killed(folder, families)
    except BaseException as error:  # the model cannot even be imported
        answer = f"import: {type(error).__name__}"
    connection.send(answer)


def by_replay(site: Site, folder: Path, families: list[str]) -> str:
    """What killed it, or nothing."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(False)
    process = context.Process(target=_in_child, args=(there, site, folder, families))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(PATIENCE) else "no end"
    except EOFError:
        return "the process died"
    finally:
        process.kill()
        process.join()


def by_tests(site: Site) -> str:
    """The tests that fail, or nothing."""
    name = re.escape(site.module).replace(r"\.", r"[./]")
    short = site.module.rpartition(".")
    words = re.compile(rf"{name}|from {re.escape(short[0])} import .*\b{short[2]}\b|test_{short[2]}\b")
    files = [path for path in sorted((ROOT / "tests").glob("test_*.py")) if words.search(path.name + path.read_text())]
    files.sort(key=lambda path: (short[2] not in path.name, path.stat().st_size))
    names = [str(path.relative_to(ROOT)) for path in files[:_MOST_FILES]]
    code = (
        "import sys, pytest; from tests.mutation.run import Planted; from tests.mutation.sites import Site; "
        f"sys.meta_path.insert(0, Planted({site!r})); "
        f"sys.exit(pytest.main(['-x', '-q', '-p', 'no:cacheprovider', '--doctest-modules', {site.path!r}, *{names!r}]))"
    )
    try:
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE, check=False,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "no end"
    if run.returncode == 0:
        return ""
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return failed[0] if failed else f"pytest exit {run.returncode}"


def main() -> None:
    """Run, report, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", action="store_true", help="ask the tests of those that survive the recordings")
    parser.add_argument("-n", type=int, help="run only so many")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    known = (
        {record["name"]: record for record in json.loads(options.out.read_text())["mutants"]}
        if options.out.exists()
        else {}
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        touched = _prepared(folder)
        found, started = [], time.monotonic()
        for site in chosen()[: options.n]:
            record = known.get(site.name) or _run(site, folder, touched)
            if options.tests and not record["replay"] and record["tests"] is None:
                record["tests"] = by_tests(site)
            record["line"] = site.line
            found.append(record)
            told = record["replay"] or record["tests"] or "SURVIVES"
            print(f"{len(found):4} {time.monotonic() - started:6.0f} s {site.name}: {told}", flush=True)
            options.out.parent.mkdir(exist_ok=True)
            options.out.write_text(json.dumps({"date": date.today().isoformat(), "mutants": found}, indent=1) + "\n")


def _run(site: Site, folder: Path, touched: dict[str, set[str]]) -> dict[str, Any]:
    families = [family for family, modules in touched.items() if site.module in modules] or list(touched)
    families.sort(key=lambda family: (folder / f"{family}.pickle").stat().st_size)
    everywhere = len(families) == len(touched)
    return {
        "name": site.name, "module": site.path, "line": site.line, "was": site.was, "becomes": site.becomes,
        "families": ["all"] if everywhere else families, "replay": by_replay(site, folder, families), "tests": None,
    }  # fmt: skip


def _prepared(folder: Path) -> dict[str, set[str]]:
    """In a process of its own: this one never imports the model."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(replay.prepare, (folder,))


if __name__ == "__main__":
    main()
