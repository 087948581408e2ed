"""Runs the mutants of the source: `python -m tests.evaluation.mutation.run [-n COUNT] [-j PROCESSES]`, from the root of the tree.

It writes docs/measurements/mutants.json.xz, and goes on where that ends: delete it to run all of them again. `--survivors` prints those that nothing
contradicts and no reason explains.
Each is imported in a process of its own and held against recorded hardware results of the families that run through its
module; those that survive are held against the module's examples and the tests that `MODULES` names for it. Mutants of `BEHAVIOUR` were held
against other tests too: those that reach their line, the quickest first.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes  # noqa: F401  # imported once, before the forks
import numpy  # noqa: F401

from tests.evaluation.mutation import replay
from tests.evaluation.mutation.sites import ROOT, Site, behaves, chosen, mutated, tests_of

RESULT = ROOT / "docs/measurements/mutants.json.xz"
REASONS = ROOT / "docs/measurements/mutants-reasons.json"
"""Why a mutant that survives changes no result: a sentence for its name."""
PATIENCE = 60  # seconds of a processor that the recordings of a mutant may take
_PATIENCE_OF_TESTS = 300
_NO_END = -signal.SIGXCPU
NOTHING_RUN = 5  # of pytest


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


def _limited(seconds: int) -> None:
    """Of the processor, not of the clock: a busy machine does not kill a mutant."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def _in_child(connection: Any, site: Site, folder: Path, families: list[str]) -> None:
    _limited(PATIENCE)
    sys.meta_path.insert(0, Planted(site))
    try:
        answer = replay.killed(folder, families)
    except BaseException as error:  # the model cannot even be imported
        answer = f"import: {type(error).__name__}"
    connection.send(answer)


def by_replay(site: Site, folder: Path, families: list[str]) -> str:
    """What killed it, or nothing."""
    context = get_context("fork")
    here, there = context.Pipe(False)
    process = context.Process(target=_in_child, args=(there, site, folder, families))
    process.start()
    there.close()
    try:
        return str(here.recv())
    except EOFError:
        process.join()
        return "no end" if process.exitcode == _NO_END else "the process died"
    finally:
        process.kill()
        process.join()


def by_tests(site: Site) -> str:
    """The test that fails, and passes without the mutant; or nothing."""
    files = [site.path, *tests_of(site.path)]
    while files:
        code = (
            "import importlib, sys, pytest; from tests.evaluation.mutation.run import Planted; from tests.evaluation.mutation.sites import Site; "
            f"sys.meta_path.insert(0, Planted({site!r})); "
            f"importlib.import_module({site.module!r}); "  # before pytest: it would import the examples' module from its file
            f"sys.exit(pytest.main({[*PYTEST, *files]!r}))"
        )
        run = _python(["-c", code])
        if run.returncode in (0, NOTHING_RUN):
            return ""
        if run.returncode == _NO_END:
            return "no end" if _python(["-m", "pytest", *PYTEST, *files]).returncode == 0 else ""
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
        if not failed:
            return f"pytest exit {run.returncode}"
        if _passes(failed[0]):
            return str(failed[0])
        files.remove(failed[0].partition("::")[0])  # it fails in any case
    return ""


PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "--doctest-modules")


def _python(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=lambda: _limited(_PATIENCE_OF_TESTS),
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "TCSIM_CACHE_DIR": ""},  # code that was compiled before would hide a mutant
    )  # fmt: skip


@cache
def _passes(test: str) -> bool:
    return _python(["-m", "pytest", *PYTEST, test]).returncode == 0


def main() -> None:
    """Run, report, write: whatever ends the run early, the mutants that have a fate are in the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, help="how many to run")
    parser.add_argument("-j", type=int, default=1, help="number of processes")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--survivors", action="store_true", help="print those that are left, and run none")
    options = parser.parse_args()
    records = {record["name"]: record for record in (reported(options.out) if options.out.exists() else [])}
    reasons = json.loads(REASONS.read_text())
    if options.survivors:
        print(*(name for name, record in records.items() if not _decided(record, reasons)), sep="\n")
        return
    wanted = chosen(records)[: options.n]
    found = {site.name: records[site.name] | {"line": site.line} for site in wanted if site.name in records}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(options.j, get_context("spawn")) as pool:
        folder = Path(name)
        touched = _prepared(folder)
        asked = [
            pool.submit(_fate, site, found.get(site.name), folder, touched)
            for site in wanted
            if not _decided(found.get(site.name), reasons)
        ]
        for number, done in enumerate(as_completed(asked), 1):
            record = done.result()
            found[record["name"]] = record
            told = record["replay"] or record["tests"] or "SURVIVES"
            print(
                f"{number:4} of {len(asked)} {time.monotonic() - started:6.0f} s {record['name']}: {told}", flush=True
            )
            _write(options.out, [found[site.name] for site in wanted if site.name in found])
    _write(options.out, [found[site.name] for site in wanted if site.name in found])


def reported(path: Path = RESULT) -> list[dict[str, Any]]:
    """The records of a file."""
    found: list[dict[str, Any]] = json.loads(lzma.decompress(path.read_bytes()))["mutants"]
    return found


def _write(out: Path, mutants: list[dict[str, Any]]) -> None:
    out.parent.mkdir(exist_ok=True)
    text = json.dumps({"date": date.today().isoformat(), "mutants": mutants}, indent=1) + "\n"
    out.write_bytes(lzma.compress(text.encode(), preset=9))


def _decided(record: dict[str, Any] | None, reasons: Container[str]) -> bool:
    return record is not None and bool(record["replay"] or record["tests"] or record["name"] in reasons)


def _fate(site: Site, known: dict[str, Any] | None, folder: Path, touched: dict[str, set[str]]) -> dict[str, Any]:
    """The record of one mutant; `known`: of one that no recording contradicts, so that tests are asked again."""
    record = known or _replayed(site, folder, touched)
    return record if record["replay"] else record | {"tests": by_tests(site)}


def _replayed(site: Site, folder: Path, touched: dict[str, set[str]]) -> dict[str, Any]:
    about = {"name": site.name, "module": site.path, "line": site.line, "was": site.was, "becomes": site.becomes}
    if behaves(site.path):
        return about | {"families": [], "replay": "", "tests": ""}
    families = [family for family, modules in touched.items() if site.module in modules] or list(touched)
    families.sort(key=lambda family: (folder / f"{family}.pickle").stat().st_size)
    everywhere = len(families) == len(touched)
    return about | {
        "families": ["all"] if everywhere else families,
        "replay": by_replay(site, folder, families),
        "tests": "",
    }


def _prepared(folder: Path) -> dict[str, set[str]]:
    """In a process of its own: this one never imports the model."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(replay.prepare, (folder,))


if __name__ == "__main__":
    main()
