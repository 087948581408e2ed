"""A recording run that ends early: what was complete is on disk, and what could not be written is one clear line."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from conformance.suite import recordings
from conformance.suite.recordings import Origin, RecordedCase, Recording, Unwritable
from tests.support.suite_runs import MNEMONIC, OTHER, suite_run, whole

PLUGIN = """
import conformance.suite.hardware as hardware, hwkernels.device.driver as driver, os, signal
INFO = driver.DeviceInfo(0, 'Imaginary GPU', 'sm_90', '1.2.3', '13.0', 1, 1)
driver.device_available = lambda ordinal=0: (True, 'Imaginary GPU')
driver.device_info = hardware.device_info = lambda ordinal=0: INFO
class Imaginary(hardware.Hardware):
    def run(self, made, inputs, repeat=1):
        if @kill in made.instruction.mnemonic: os.kill(os.getpid(), signal.SIGKILL)
        return [made.instruction.execute(**inputs) for _ in range(repeat)]
hardware.Hardware = Imaginary
import conformance.suite.files as files, errno
right = files._write_archive
def write(path, arrays):
    if @full in path.name: raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return right(path, arrays)
files._write_archive = write
"""


def arguments(tmp_path: Path, kill: str = "nothing", full: str = "nothing") -> list[str]:
    """Of pytest, for a run that records two instructions; what it is to die at, or to find no room for."""
    (tmp_path / "imaginary_gpu.py").write_text(PLUGIN.replace("@kill", repr(kill)).replace("@full", repr(full)))
    selection = *whole(MNEMONIC), *whole(OTHER)
    return ["-p", "imaginary_gpu", *selection, "--record", "--recordings", str(tmp_path / "new")]


def test_what_was_complete_survives_a_kill(tmp_path: Path) -> None:
    """SIGKILL in the second instruction: the first is on disk."""
    first, second = MNEMONIC, OTHER
    run = suite_run(*arguments(tmp_path, kill=second), path=tmp_path)
    assert run.returncode == -signal.SIGKILL
    assert recordings.read(first, "sm_90", tmp_path / "new") is not None
    assert recordings.read(second, "sm_90", tmp_path / "new") is None


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """It says where, why, and what was saved; the run ends there and fails."""
    first, second = MNEMONIC, OTHER
    run = suite_run(*arguments(tmp_path, full=recordings.path_of(second, "sm_90").name), path=tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    said = f"cannot write recordings to {tmp_path}/new/sm_90: No space left on device; 1 file saved, the last {recordings.path_of(first, 'sm_90').name}"
    assert said in run.stdout
    assert "Traceback" not in run.stdout + run.stderr


def test_a_folder_that_cannot_be_written_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    """A file in its place: wrong usage."""
    (tmp_path / "new").write_text("")
    run = suite_run(*arguments(tmp_path), path=tmp_path)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"cannot write recordings to {tmp_path}/new/sm_90: " in run.stderr
    assert "Traceback" not in run.stdout + run.stderr


def test_writing_raises_one_kind_of_error(tmp_path: Path) -> None:
    """Whatever the system says."""
    (tmp_path / "sm_90").write_text("")
    recording = Recording(MNEMONIC, "sm_90", Origin(*"abcdefg"))
    recording.add(RecordedCase("wide", 0, 1, "a" * 64), np.zeros((1, 2), np.uint32))
    with pytest.raises(Unwritable, match="cannot write recordings to "):
        recordings.write(recording, tmp_path)
    with pytest.raises(Unwritable, match="cannot write recordings to "):
        recordings.check_writable(tmp_path / "sm_90")
