"""The conformance suite on small selections: what passes, what must not, and what every mistake is told.

Each run is a process of its own that sees no GPU. The recordings are copies of the committed ones, some of them
damaged.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from suite_runs import CLASSES, MNEMONIC, OTHER, OUTPUTS, case_path, recorded, suite_run, table_rows

import tcsim
from conformance import inputs, recordings
from conformance.compare import compare
from conformance.recordings import Origin, RecordedCase, Recording, RecordingError
from conformance.suite import Case, Settings, Suite


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with the committed recording of one instruction."""
    root = tmp_path / "recordings"
    source = recordings.path_of(MNEMONIC, "sm_90")
    (root / "sm_90").mkdir(parents=True)
    shutil.copy(source, root / "sm_90" / source.name)
    return root


# ---- replay


def test_a_replay_that_agrees(copied: Path) -> None:
    """Every class of one instruction: exit code 0, verdict REPLAYED, and the table says what was compared with what."""
    run = suite_run("conformance", "-v", "-k", MNEMONIC, "--arch", "sm_90", "--replay", "--recordings", str(copied))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "conformance: sm_90 by replay of recorded hardware results (no GPU is used)" in run.stdout
    assert "= conformance of sm_90, replay =" in run.stdout
    assert len(re.findall(r"::test_case\[.*\] REPLAYED", run.stdout)) == len(CLASSES)
    assert len(re.findall(r"::test_wrong_models\[.*\] PASSED", run.stdout)) == 1
    outputs = sum(result.size for result in recorded(copied).results.values())
    assert outputs == OUTPUTS * len(CLASSES)
    rows = table_rows(run.stdout)
    assert [row[:5] for row in rows] == [["mma.sync", "1", str(len(CLASSES)), f"{outputs:,}", "0"]]
    assert rows[0][5] == f"REPLAYED: recorded on {recorded(copied).origin}"
    assert f"{len(CLASSES) + 1} passed" in run.stdout


def test_the_committed_recordings_are_the_default() -> None:
    """Without options and without a GPU: the recordings in the tree, of an H200."""
    run = suite_run("conformance/test_cases.py", "-q", "-k", f"{OTHER}-wide or {OTHER}-zeros")
    assert run.returncode == 0, run.stdout + run.stderr
    ((family, variants, cases, outputs, mismatches, how),) = table_rows(run.stdout)
    assert (family, variants, cases, outputs, mismatches) == ("mma.sync", "1", "2", "4,096", "0")
    assert how.startswith("REPLAYED: recorded on NVIDIA H200, driver ")


def test_several_processes_compare_the_same(copied: Path) -> None:
    """With -n 2 the verdicts of both workers are in the table."""
    run = suite_run("conformance/test_cases.py", "-n", "2", "-k", MNEMONIC, "--replay", "--recordings", str(copied))
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


def test_one_flipped_bit_is_found_and_explained(copied: Path) -> None:
    """Exit code 1; the line of the mismatch, the command that reruns it (and does), and the trace."""
    warp, lane, register = 7, 13, 2
    right, wrong = flip(copied, "wide", (warp, lane, register), 9)
    run = suite_run("conformance/test_cases.py", "-k", MNEMONIC, "--replay", "--recordings", str(copied))
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
    (rerun,) = [line for line in lines if line.startswith("rerun: ")]
    after = lines[lines.index(rerun) + 1 :]
    assert after[0] == f"{MNEMONIC} on sm_90: native, 1 step"
    assert after[1].startswith("step 1: fused dot-add of k 0-7 and c")
    assert any(line.startswith(f"  d = 0x{right:08x} (") for line in after)
    verdicts = {row[5].split(":")[0]: (int(row[2]), row[3], row[4]) for row in table_rows(run.stdout)}
    assert verdicts == {
        "FAIL": (1, "2,048", "1"),
        "REPLAYED": (len(CLASSES) - 1, f"{OUTPUTS * (len(CLASSES) - 1):,}", "0"),
    }
    words = shlex.split(rerun.removeprefix("rerun: "))
    assert words[0] == "pytest"
    again = suite_run(*words[1:])
    assert again.returncode == 1
    assert mismatch in again.stdout.splitlines()
    assert "1 failed in" in again.stdout


def test_a_wrong_constant_in_the_model_is_found(copied: Path, tmp_path: Path) -> None:
    """The model with one fraction bit fewer, against what the hardware said."""
    (tmp_path / "wrong_constant.py").write_text(
        "from dataclasses import replace\n"
        "from tcsim import steps\n"
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
    assert "record it again with `pytest conformance/ --arch sm_90 --record`" in run.stdout
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
    run = suite_run("conformance/test_cases.py", "-k", MNEMONIC, "--replay", "--seed", "7", "--recordings", str(copied))
    assert run.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    assert f"{MNEMONIC} has no recording with --seed 7; recorded seeds: [0]" in run.stdout + run.stderr
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
    run = suite_run(
        "conformance/test_cases.py",
        "-v",
        "-k",
        "f32.e2m1.e3m2.f32 and not mma.sp and not block_scale",
        "--arch",
        "sm_120",
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert f"test_assembles[{mnemonic}] UNVERIFIED" in run.stdout
    assert "1 unverified" in run.stdout
    assert not re.search(r"\d+ (passed|skipped)", run.stdout)
    assert [row[1:] for row in table_rows(run.stdout)] == [["1", "1", "0", "0", "UNVERIFIED, evidence inferred"]]
    assert "nothing was compared: this run proves nothing and fails" in run.stdout


# ---- recordings


def test_a_corrupt_recording_stops_the_run(copied: Path) -> None:
    """Wrong usage, not a pass of what is left: the file, what is wrong and how to repair it."""
    path = recordings.path_of(MNEMONIC, "sm_90", copied)
    path.write_bytes(path.read_bytes()[:-200])
    run = suite_run("conformance/test_cases.py", "-k", MNEMONIC, "--replay", "--recordings", str(copied))
    assert run.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    text = run.stdout + run.stderr
    assert f"corrupt recording {path}: BadZipFile" in text
    assert "record it again on a GPU with `pytest conformance/ --record`, or restore the committed file" in text
    assert " passed" not in run.stdout


def with_header(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Rewrite the header of a recording."""
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    content["header"] = np.frombuffer(change(content["header"].tobytes()), np.uint8)
    np.savez(path, **content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not a zip file"),
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        lambda path: path.write_bytes(
            bytearray(x ^ 0xFF if 3000 < i < 3100 else x for i, x in enumerate(path.read_bytes()))
        ),
        lambda path: np.savez(path, header=np.zeros(3, np.uint8)),
        lambda path: np.savez(path, something=np.zeros(3)),
        lambda path: with_header(path, lambda header: header[:-10]),
        lambda path: with_header(path, lambda header: header.replace(b'"schema"', b'"scheme"')),
        lambda path: with_header(path, lambda header: header.replace(b'"driver"', b'"drover"')),
        lambda path: with_header(path, lambda header: header.replace(b'"name": "wide"', b'"name": "vast"')),
    ],
    ids=[
        "empty",
        "text",
        "half",
        "flipped bytes",
        "no JSON",
        "no header",
        "cut JSON",
        "no schema",
        "no driver",
        "no array",
    ],
)
def test_every_damage_is_a_recording_error(copied: Path, damage: Callable[[Path], object]) -> None:
    """Whatever is wrong with the file, reading it raises one kind of error that names it."""
    path = recordings.path_of(MNEMONIC, "sm_90", copied)
    assert path.stat().st_size > 3100
    damage(path)
    with pytest.raises(RecordingError, match=f"corrupt recording {re.escape(str(path))}: .+; record it again"):
        recordings.read(MNEMONIC, "sm_90", copied)


def test_a_foreign_recording_is_refused(copied: Path) -> None:
    """A file under the name of another instruction or arch, or of another schema."""
    path = recordings.path_of(MNEMONIC, "sm_90", copied)
    for mnemonic, arch in ((OTHER, "sm_90"), (MNEMONIC, "sm_80")):
        other = recordings.path_of(mnemonic, arch, copied)
        other.parent.mkdir(exist_ok=True)
        shutil.copy(path, other)
        complaint = (
            f"foreign recording {other}: it holds {MNEMONIC} on sm_90, schema 1; valid: {mnemonic} on {arch}, schema 1"
        )
        with pytest.raises(RecordingError, match=re.escape(complaint)):
            recordings.read(mnemonic, arch, copied)
    with_header(path, lambda header: header.replace(b'"schema": 1', b'"schema": 2'))
    with pytest.raises(RecordingError, match=r"foreign recording .* schema 2; valid: .* schema 1"):
        recordings.read(MNEMONIC, "sm_90", copied)
    run = suite_run("conformance/test_cases.py", "-k", OTHER, "--replay", "--recordings", str(copied))
    assert run.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    assert "foreign recording " in run.stdout + run.stderr


def test_a_recording_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Content, and bytes that depend on nothing else; none where there is no file."""
    origin = Origin("GPU", "1", "ptxas 1.2.3", "sm_90a", "a" * 64, "b" * 64, "2026-01-02")
    recording = Recording("family.x::y", "sm_90", origin)
    for seed in (0, 3):
        recording.add(RecordedCase("wide", seed, 2, "c" * 64), np.arange(12, dtype=np.uint32).reshape(2, 3, 2) + seed)
    assert recordings.read("family.x::y", "sm_90", tmp_path) is None
    path = recordings.write(recording, tmp_path)
    assert path == tmp_path / "sm_90" / "family.x-y.npz"
    back = recordings.read("family.x::y", "sm_90", tmp_path)
    assert back is not None
    assert (back.mnemonic, back.arch, back.origin, back.cases) == ("family.x::y", "sm_90", origin, recording.cases)
    assert list(back.results) == [("wide", 0), ("wide", 3)]
    assert all((back.results[key] == recording.results[key]).all() for key in back.results)
    first = path.read_bytes()
    recordings.write(back, tmp_path)
    assert path.read_bytes() == first
    assert str(origin) == "GPU, driver 1, ptxas 1.2.3, 2026-01-02"


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["replace", "chmod"])
def test_a_failed_write_leaves_the_old_file_and_no_other(
    copied: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    """Neither half a recording nor a temporary file."""
    path = recordings.path_of(MNEMONIC, "sm_90", copied)
    before = path.read_bytes()
    recording = recorded(copied)
    recording.results["wide", 0][:] = 0

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(f"conformance.recordings.os.{where}", fail)
    with pytest.raises(type(error)):
        recordings.write(recording, copied)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_a_write_that_fails_while_it_packs_leaves_nothing(tmp_path: Path) -> None:
    """An array that cannot be stored."""
    recording = Recording(MNEMONIC, "sm_90", Origin(*"abcdefg"))
    recording.results["wide", 0] = np.array([object()])
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        recordings.write(recording, tmp_path)
    assert list((tmp_path / "sm_90").iterdir()) == []


# ---- cases and comparison


def test_a_case_is_its_id() -> None:
    """There and back, for every case there is; other text is refused."""
    checked = 0
    for case in Suite(Settings("sm_90", "live")).cases():
        assert Case.parse(case.id) == case
        checked += case.mnemonic.startswith("mma.sync.")
    assert checked == 1104
    for text in ("", MNEMONIC, f"{MNEMONIC}-wide", f"{MNEMONIC}-wide-", f"{MNEMONIC}-wide-x", f"-wide-0 {MNEMONIC}"):
        with pytest.raises(ValueError, match="no case id"):
            Case.parse(text)


def test_inputs_depend_on_the_case_alone() -> None:
    """The same registers every time; others for another seed or number of samples, by their digest."""
    compared = 0
    for mnemonic in (MNEMONIC, "mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32"):
        instruction = tcsim.instruction(mnemonic, arch="sm_90")
        seen = set()
        for item in inputs.classes_for(instruction):
            first, second = (inputs.registers(instruction, item, 0, 4) for _ in range(2))
            assert list(first) == list("abc")
            assert all((first[name] == second[name]).all() for name in first)
            digests = [
                inputs.digest(inputs.registers(instruction, item, seed, n)) for seed, n in ((0, 4), (1, 4), (0, 5))
            ]
            assert digests[0] == inputs.digest(first)
            if item.name != "zeros" or instruction.operands["a"].format.kind == "float":
                assert len({*digests}) == 3, item.name
            seen.add(digests[0])
            compared += 1
        assert len(seen) == len(inputs.classes_for(instruction))
    assert compared == len(CLASSES) + 8


@pytest.mark.parametrize(
    ("mnemonic", "place", "where"),
    [
        (MNEMONIC, (3, 31, 1), "warp 3 lane 31 register 1 (row 7, column 7)"),
        (OTHER, (0, 4, 1), "warp 0 lane 4 register 1 slot 1 (row 9, column 1)"),
        ("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64", (1, 0, 5), "warp 1 lane 0 register 4 (row 8, column 0)"),
        (
            "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
            (2, 20, 6),
            "warp 2 lane 20 register 6 matrix 1 (row 6, column 4)",
        ),
        ("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", (0, 9, 1), "warp 0 lane 9 register 1 (row 2, column 3)"),
        (
            "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc",
            (0, 0, 0),
            "warp 0 lane 0 register 0 (row 0, column 0)",
        ),
    ],
)
def test_a_mismatch_is_located(mnemonic: str, place: tuple[int, int, int], where: str) -> None:
    """One bit of one register: lane, register, slot, matrix, row and column; that result's inputs and trace."""
    instruction = tcsim.instruction(mnemonic, arch="sm_90")
    registers = inputs.registers(instruction, inputs.CLASSES["boundaries"], 1, 4)
    model = instruction.execute(**registers)
    assert compare(instruction, registers, model, model.copy()).mismatches == 0
    hardware = model.copy()
    hardware[place] ^= np.uint32(1 << 20)
    comparison = compare(instruction, registers, hardware, model)
    outputs = 4 * instruction.matrices * 8 * instruction.shape[0]
    assert (comparison.outputs, comparison.mismatches, len(comparison.first)) == (outputs, 1, 1)
    (mismatch,) = comparison.first
    line = mismatch.line(instruction)
    assert line.startswith(f"MISMATCH {where}: a=")
    assert "\n" not in line
    found: Any = mismatch
    one = instruction.matmul(
        np.tile(found.a, (instruction.shape[0], 1)),
        np.tile(found.b[:, None], (1, 8)),
        np.full((instruction.shape[0], 8), found.c, instruction.operands["c"].format.dtype),
    )
    assert int(one[0, 0]) == found.model  # the inputs shown are those of the result shown
    assert f"model 0x{found.model:0{instruction.operands['d'].format.bits // 4}x}" in line
    assert found.hardware != found.model
    assert mismatch.trace(instruction)[-1].startswith(
        f"  d = 0x{found.model:0{instruction.operands['d'].format.bits // 4}x}"
    )


def test_many_mismatches_are_counted_and_few_shown() -> None:
    """Every differing element counts once, in order; a comparison of other shapes is refused."""
    instruction = tcsim.instruction(MNEMONIC, arch="sm_90")
    registers = inputs.registers(instruction, inputs.CLASSES["wide"], 1, 4)
    model = instruction.execute(**registers)
    comparison = compare(instruction, registers, ~model, model)
    assert (comparison.outputs, comparison.mismatches, len(comparison.first)) == (512, 512, 5)
    places = [line.split(":")[0] for line in (item.line(instruction) for item in comparison.first)]
    assert places[1] == "MISMATCH warp 0 lane 0 register 1 (row 0, column 1)"
    assert len(compare(instruction, registers, ~model, model, limit=7).first) == 7
    with pytest.raises(ValueError, match=r"hardware registers have shape \(3, 32, 4\), the model's \(4, 32, 4\)"):
        compare(instruction, registers, model[:3], model)
