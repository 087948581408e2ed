"""Runs of the conformance suite in processes of their own, for the tests of the suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import tcsim
from conformance.stimuli import classes as inputs
from conformance.suite import recordings
from conformance.suite.recordings import Recording
from hwkernels.device.driver import DeviceInfo

ROOT = Path(__file__).resolve().parents[2]
MNEMONIC = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
OTHER = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"
CLASSES = [item.name for item in inputs.classes_for(tcsim.instruction(MNEMONIC, arch="sm_90"))]
OUTPUTS = 2048  # of each class but onehot, which has 16 warps of 128
QUIET = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # whose summary would import Hypothesis
GPU = DeviceInfo(0, "Imaginary GPU", "sm_90", "1.2.3", "13.0", 1, 1)


def suite_run(
    *arguments: str, path: Path | None = None, folder: Path = ROOT, wait: int = 300
) -> subprocess.CompletedProcess[str]:
    """Run pytest on the suite, from a folder. `path` is where plugins given with -p are."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200", "CI": "true"}  # where summaries are longest
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, "-m", "pytest", *QUIET, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=wait)


def case_path(name: str, mnemonic: str = MNEMONIC) -> str:
    """The pytest id of a case."""
    return f"conformance/test_cases.py::test_case[{mnemonic}-{name}-0]"


def whole(mnemonic: str = MNEMONIC) -> tuple[str, ...]:
    """Every class of an instruction. A run that names its cases collects nothing else."""
    classes = inputs.classes_for(tcsim.instruction(mnemonic, arch="sm_90"))
    return tuple(case_path(item.name, mnemonic) for item in classes)


def table_rows(output: str) -> list[list[str]]:
    """The closing table: its lines, split where two spaces or more are."""
    lines = output.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("family "))
    rows = []
    for line in lines[start + 1 :]:
        if not line.startswith("mma.sync"):
            break
        rows.append(re.split(r"\s{2,}", line))
    return rows


def recorded(root: Path, mnemonic: str = MNEMONIC) -> Recording:
    """A recording that must be there."""
    recording = recordings.read(mnemonic, "sm_90", root)
    assert recording is not None
    return recording


def copy_recording(root: Path, mnemonic: str = MNEMONIC) -> Path:
    """A folder with the committed recording of one instruction, in a file of its own."""
    recordings.write(recorded(recordings.ROOT, mnemonic), root)
    return root
