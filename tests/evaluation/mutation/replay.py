"""The recorded cases that mutants are held against: a few of each family, with their inputs made by the right model."""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path
from typing import Any

SECONDS = 0.5
"""Of the right model, for the cases of a family."""
ARCH = "sm_90"


def prepare(folder: Path) -> dict[str, set[str]]:
    """Write the cases of every family; the modules of the model that each runs through."""
    from conformance.isa import testbench_of
    from conformance.suite import recordings
    from conformance.suite.cases import Settings, Suite

    suite = Suite(Settings(ARCH, "replay", False, None, 0, recordings.ROOT))
    families: dict[str, list[str]] = {}
    for row in suite.rows:
        if suite.recording(row.mnemonic) is not None:
            families.setdefault(row.family, []).append(row.mnemonic)
    touched = {}
    for family, names in families.items():
        testbench, cases, spent, modules = testbench_of(family), [], 0.0, set[str]()
        for mnemonic in _spread(names):
            recording, instruction = suite.recording(mnemonic), suite.instruction(mnemonic)
            assert recording is not None
            for (name, seed), hardware in recording.results.items():
                recorded = recording.cases[name, seed]
                inputs = testbench.inputs(instruction, name, seed, recorded.samples)
                started = time.process_time()
                with _Calls(modules):
                    testbench.model(instruction, inputs)
                took = time.process_time() - started
                if took < SECONDS / 8:
                    spent += took
                    cases.append((mnemonic, name, inputs, hardware, recorded.result_sha256))
            if spent > SECONDS:
                break
        (folder / f"{family}.pickle").write_bytes(pickle.dumps(cases))
        touched[family] = modules
    return touched


def _spread(names: list[str]) -> list[str]:
    """Names from all over the list first."""
    found: list[str] = []
    step = len(names)
    while step:
        found += [name for name in names[::step] if name not in found]
        step //= 2
    return found


class _Calls:
    """The modules of the model that are called while it is entered."""

    def __init__(self, modules: set[str]) -> None:
        self.modules = modules

    def __enter__(self) -> None:
        sys.setprofile(self._called)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            name = frame.f_globals.get("__name__", "")
            if name.startswith("tcsim."):
                self.modules.add(name)


def killed(folder: Path, families: list[str]) -> str:
    """Which recorded case the model that is imported now contradicts, and how; or nothing."""
    import tcsim
    from conformance.isa import testbench_of
    from conformance.suite.recordings import result_digest

    for family in families:
        testbench = testbench_of(family)
        for mnemonic, name, inputs, hardware, digest in pickle.loads((folder / f"{family}.pickle").read_bytes()):
            case = f"{mnemonic}-{name}"
            try:
                instruction = tcsim.instruction(mnemonic, arch=ARCH)
                answer = testbench.model(instruction, inputs)
                if digest:
                    differs = result_digest(answer) != digest
                else:
                    differs = bool(testbench.compare(instruction, inputs, hardware, answer).mismatches)
            except Exception as error:
                return f"{case}: {type(error).__name__}"
            if differs:
                return f"{case}: MISMATCH"
    return ""
