"""The conformance suite on small selections: what passes, what must not, and what every mistake is told.

Each run is a process of its own that sees no GPU. The recordings are copies of the committed ones, some of them
damaged.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tcsim
from conformance.suite import recordings, rerun
from conformance.suite.cases import Case, Settings, Suite
from conformance.suite.recordings import Recording
from tests.support.suite_runs import (
    CLASSES,
    MNEMONIC,
    OTHER,
    OUTPUTS,
    case_path,
    copy_recording,
    recorded,
    suite_run,
    table_rows,
    whole,
)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with the committed recording of one instruction."""
    return copy_recording(tmp_path / "recordings")


# ---- replay


def test_a_replay_that_agrees(copied: Path) -> None:
    """Every class of one instruction: exit code 0, verdict REPLAYED, and the table says what was compared with what."""
    proof = f"conformance/test_mutants.py::test_mutants[{MNEMONIC}]"
    run = suite_run("-v", *whole(), proof, "--arch", "sm_90", "--replay", "--recordings", str(copied), "--proof")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "conformance: sm_90 by replay of recorded hardware results (no GPU is used)" in run.stdout
    assert "= conformance of sm_90, replay =" in run.stdout
    assert len(re.findall(r"::test_case\[.*\] REPLAYED", run.stdout)) == len(CLASSES)
    assert len(re.findall(r"::test_mutants\[.*\] PASSED", run.stdout)) == 1
    outputs = sum(result.size for result in recorded(copied).results.values())
    assert outputs == OUTPUTS * len(CLASSES)
    rows = table_rows(run.stdout)
    assert [row[:5] for row in rows] == [["mma.sync", "1", str(len(CLASSES)), f"{outputs:,}", "0"]]
    assert rows[0][5] == f"REPLAYED: recorded on {recorded(copied).origin}"
    assert f"{len(CLASSES) + 1} passed" in run.stdout


def test_the_committed_recordings_are_the_default() -> None:
    """Without options and without a GPU: the recordings in the tree, of an H200."""
    run = suite_run("-q", case_path("wide", OTHER), case_path("zeros", OTHER))
    assert run.returncode == 0, run.stdout + run.stderr
    ((family, variants, cases, outputs, mismatches, how),) = table_rows(run.stdout)
    assert (family, variants, cases, outputs, mismatches) == ("mma.sync", "1", "2", "4,096", "0")
    assert how.startswith("REPLAYED: recorded on NVIDIA H200, driver ")


def test_several_processes_compare_the_same(copied: Path) -> None:
    """With -n 2 the verdicts of both workers are in the table."""
    run = suite_run(*whole(), "-n", "2", "--replay", "--recordings", str(copied))
    assert run.returncode == 0, run.stdout + run.stderr
    assert [row[:5] for row in table_rows(run.stdout)] == [
        ["mma.sync", "1", str(len(CLASSES)), f"{OUTPUTS * len(CLASSES):,}", "0"]
    ]


def test_fewer_samples_compare_fewer_outputs(copied: Path) -> None:
    """--samples takes the first warps of a recorded case."""
    arguments = (case_path("wide"), "--arch", "sm_90", "--replay", "--samples", "3", "--recordings", str(copied))
    run = suite_run(*arguments)
    assert run.returncode == 0, run.stdout + run.stderr
    assert [row[3] for row in table_rows(run.stdout)] == [str(3 * 128)]


# ---- what must fail


def flip(root: Path, name: str, place: tuple[int, int, int], bit: int) -> tuple[int, int]:
    """Change one bit of a recorded register; the register as recorded and as it is now."""
    recording = recorded(root)
    before = int(recording.results[name, 0][place])
    recording.results[name, 0][place] ^= np.uint32(1 << bit)
    recordings.write(recording, root)
    return before, before ^ 1 << bit


def test_one_flipped_bit_is_found_and_explained(copied: Path, tmp_path: Path) -> None:
    """Exit code 1; the line of the mismatch, the command that reruns it (and does), and the trace."""
    warp, lane, register = 7, 13, 2
    right, wrong = flip(copied, "wide", (warp, lane, register), 9)
    options = ("--arch", "sm_90", "--replay")
    run = suite_run(*whole(), "--replay", "--recordings", str(copied))
    assert run.returncode == 1
    instruction = tcsim.instruction(MNEMONIC, arch="sm_90")
    row, column = instruction.operands["d"].layout(lane, register, 0)
    lines = run.stdout.splitlines()
    (mismatch,) = [line for line in lines if line.startswith("MISMATCH")]
    assert mismatch.startswith(
        f"MISMATCH warp {warp} lane {lane} register {register} (row {row}, column {column}): a=[0x"
    )
    assert mismatch.endswith(f" hardware 0x{wrong:08x} model 0x{right:08x}")
    assert f"FAIL: {MNEMONIC}-wide-0: 1 of 2048 outputs differ; evidence measured: " in run.stdout
    (line,) = [line for line in lines if line.startswith("rerun: ")]
    after = lines[lines.index(line) + 1 :]
    assert after[0] == f"{MNEMONIC} on sm_90: native, 1 step"
    assert after[1].startswith("step 1: fused dot-add of k 0-7 and c")
    assert any(line.startswith(f"  d = 0x{right:08x} (") for line in after)
    verdicts = {row[5].split(":")[0]: (int(row[2]), row[3], row[4]) for row in table_rows(run.stdout)}
    assert verdicts == {
        "FAIL": (1, "2,048", "1"),
        "REPLAYED": (len(CLASSES) - 1, f"{OUTPUTS * (len(CLASSES) - 1):,}", "0"),
    }
    assert line == f"rerun: {rerun.command(f'test_cases.py::test_case[{MNEMONIC}-wide-0]', *options, root=copied)}"
    words = shlex.split(line.removeprefix("rerun: "))
    assert words[:3] == [sys.executable, "-m", "pytest"]
    again = suite_run(*words[3:], folder=tmp_path)  # not the folder of the first run
    assert again.returncode == 1
    assert mismatch in again.stdout.splitlines()
    assert "1 failed in" in again.stdout


def test_a_wrong_constant_in_the_model_is_found(copied: Path, tmp_path: Path) -> None:
    """The model with one fraction bit fewer, against what the hardware said."""
    (tmp_path / "wrong_constant.py").write_text(
        "from dataclasses import replace\n"
        "from tcsim.arithmetic import steps\n"
        "right = steps.dot_add\n"
        "def wrong(a, b, c, formats, unit):\n"
        "    return right(a, b, c, formats, replace(unit, fraction_bits=unit.fraction_bits - 1))\n"
        "steps.dot_add = wrong\n"
    )
    arguments = (case_path("wide"), case_path("zeros"), "--arch", "sm_90", "--replay", "--recordings", str(copied))
    assert suite_run(*arguments).returncode == 0
    run = suite_run("-p", "wrong_constant", *arguments, path=tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    assert run.stdout.count("MISMATCH warp ") == 5  # the first few of many
    more = re.search(r"^\.\.\. and (\d+) more$", run.stdout, re.MULTILINE)
    assert more is not None
    assert f"-wide-0: {int(more[1]) + 5} of 2048 outputs differ" in run.stdout
    assert "1 failed, 1 passed" in run.stdout


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda recording: recording.cases.update(
                {("wide", 0): replace(recording.cases["wide", 0], inputs_sha256="0" * 64)}
            ),
            f"the inputs of class wide are no longer those that {MNEMONIC} was recorded with; record it again with",
        ),
        (
            lambda recording: setattr(recording, "origin", replace(recording.origin, ptx_sha256="0" * 64)),
            f"the probe of {MNEMONIC} is no longer the PTX that was recorded; record it again with",
        ),
        (
            lambda recording: recording.results.update({("wide", 0): recording.results["wide", 0][:3]}),
            "the recorded ",
        ),
    ],
)
def test_a_stale_recording_is_not_compared(copied: Path, change: Callable[[Recording], None], complaint: str) -> None:
    """Other inputs, another probe, or registers that do not fit: FAIL with the reason, and no output counts."""
    recording = recorded(copied)
    change(recording)
    recordings.write(recording, copied)
    outcome = Suite(Settings("sm_90", "replay", root=copied)).run(Case(MNEMONIC, "wide", 0))
    assert outcome.verdict == "FAIL"
    assert outcome.text.startswith(complaint)
    assert (outcome.outputs, outcome.mismatches) == (0, 0)


def test_a_stale_recording_fails_the_run(copied: Path) -> None:
    """The same from the command line."""
    recording = recorded(copied)
    recording.cases["wide", 0] = replace(recording.cases["wide", 0], inputs_sha256="0" * 64)
    recordings.write(recording, copied)
    run = suite_run(case_path("wide"), "--arch", "sm_90", "--replay", "--recordings", str(copied))
    assert run.returncode == 1
    assert "FAIL: the inputs of class wide are no longer those that" in run.stdout
    assert f"record it again with `{rerun.command('', '--arch', 'sm_90', '--record', root=copied)}`" in run.stdout
    assert "nothing was compared" in run.stdout


def test_a_recorded_result_of_another_shape_is_not_compared(copied: Path) -> None:
    """Right number of warps, wrong number of registers: an error, never a verdict that counts."""
    recording = recorded(copied)
    recording.results["wide", 0] = recording.results["wide", 0][:, :, :2]
    recordings.write(recording, copied)
    run = suite_run(case_path("wide"), "--arch", "sm_90", "--replay", "--recordings", str(copied))
    assert run.returncode == 1
    assert "(16, 32, 2)" in run.stdout
    assert "nothing was compared" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--arch", "sm_91"), "--arch sm_91: no such chip generation; valid: sm_70, .*sm_121"),
        (("--arch", "sm_90a"), "--arch sm_90a: no such chip generation; valid: sm_70, "),
        (("--live",), "--live needs a GPU and cuda-python; here: .+; valid without one: --replay"),
        (("--record",), "--live needs a GPU and cuda-python; here: .+; valid without one: --replay"),
        (("--replay", "--record"), "--replay excludes --live and --record: choose one"),
        (("--replay", "--live"), "--replay excludes --live and --record: choose one"),
        (("--samples", "0"), "--samples 0: valid are 1 and more"),
        (("--seed", "-1"), "--seed -1: valid are 0 and more"),
    ],
)
def test_wrong_options_are_told_what_is_valid(arguments: tuple[str, ...], complaint: str) -> None:
    """pytest's exit code for wrong usage, and one line that says why."""
    run = suite_run("conformance/test_cases.py", "-k", MNEMONIC, *arguments)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR, run.stdout + run.stderr
    assert re.search(complaint, run.stdout + run.stderr), run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    assert " passed" not in run.stdout


def test_a_seed_that_was_not_recorded(copied: Path) -> None:
    """The run stops before it compares anything, and names the recorded seeds."""
    run = suite_run(case_path("wide"), "--replay", "--seed", "7", "--recordings", str(copied))
    assert run.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    assert f"{MNEMONIC} has no recording with --seed 7; recorded seeds: [0, 1]" in run.stdout + run.stderr
    assert " passed" not in run.stdout


def test_more_samples_than_were_recorded(copied: Path) -> None:
    """The verdict is FAIL, and the text names the limit."""
    arguments = (case_path("wide"), "--arch", "sm_90", "--replay", "--samples", "17", "--recordings", str(copied))
    run = suite_run(*arguments)
    assert run.returncode == 1
    assert f"FAIL: --samples 17: {MNEMONIC}-wide-0 was recorded with 16; valid: 1 to 16" in run.stdout
    assert "nothing was compared: this run proves nothing and fails" in run.stdout


@pytest.mark.parametrize("selection", ["nothing_has_this_name", "test_refused"])
def test_a_run_that_compares_nothing_fails(copied: Path, selection: str) -> None:
    """No case selected, or refused spellings only."""
    arguments = ("-k", selection, "--arch", "sm_90", "--replay", "--recordings", str(copied))
    run = suite_run("conformance/test_cases.py", *arguments)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "nothing was compared: this run proves nothing and fails" in run.stdout
    assert " passed" not in run.stdout
    if selection == "test_refused":
        assert "4 not_supported" in run.stdout
        assert [row[1:3] + row[5:] for row in table_rows(run.stdout)] == [["4", "4", "NOT_SUPPORTED"]]


def test_what_was_only_assembled_is_unverified() -> None:
    """An arch without recordings: assembled and checked, neither passed nor skipped, and the run fails."""
    mnemonic = "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e3m2.f32"
    run = suite_run("-v", f"conformance/test_cases.py::test_assembles[{mnemonic}]", "--arch", "sm_120")
    assert run.returncode == 1, run.stdout + run.stderr
    assert f"test_assembles[{mnemonic}] UNVERIFIED" in run.stdout
    assert "1 unverified" in run.stdout
    assert not re.search(r"\d+ (passed|skipped)", run.stdout)
    assert [row[1:] for row in table_rows(run.stdout)] == [["1", "1", "0", "0", "UNVERIFIED, evidence inferred"]]
    assert "nothing was compared: this run proves nothing and fails" in run.stdout
