"""The manifest of recordings: what was locked is there, or the replay fails, whatever was selected."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.kernels import convert, gemm
from conformance.suite import manifest, packs, recordings
from conformance.suite.cases import Settings, Suite
from conformance.suite.recordings import RecordingError
from tests.support.suite_runs import MNEMONIC, OTHER, case_path, copy_recording, suite_run

OTHER_FILE = recordings.path_of(OTHER, "sm_90").name
FILE = recordings.path_of(MNEMONIC, "sm_90").name


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A folder with two recordings and their manifest."""
    root = copy_recording(tmp_path / "recordings")
    copy_recording(root, OTHER)
    manifest.renew(root, "sm_90")
    return root


def without_class(root: Path, name: str) -> None:
    """Remove a class from the header of a recording, as if it had never been there."""
    path = root / "sm_90" / OTHER_FILE
    header, content = recordings.read_arrays(path)
    header["cases"] = [case for case in header["cases"] if case["name"] != name]
    recordings.write_arrays(path, header, content)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "file": (lambda root: (root / "sm_90" / OTHER_FILE).unlink(), f"sm_90/{OTHER_FILE} is missing: the manifest lists"),
    "class": (lambda root: without_class(root, "wide"), f"sm_90/{OTHER_FILE} is not the file that the manifest locks: its header lacks {OTHER_FILE[:-4]} wide.0"),
    "bytes": (
        lambda root: (root / "sm_90" / OTHER_FILE).write_bytes(b"x"),
        f"sm_90/{OTHER_FILE} is not the file that the manifest locks: corrupt recording ",
    ),
    "new file": (lambda root: shutil.copy(root / "sm_90" / FILE, root / "sm_90" / "more.npz"), "sm_90/more.npz is not in the manifest"),
    "manifest": (lambda root: (root / "sm_90" / manifest.NAME).unlink(), "sm_90/manifest.json.xz, which SHA256SUMS locks, is missing"),
    "edited manifest": (
        lambda root: (root / "sm_90" / manifest.NAME).write_bytes((root / "sm_90" / manifest.NAME).read_bytes() + b" "),
        "sm_90/manifest.json.xz is not the file that SHA256SUMS locks",
    ),
    "sums": (lambda root: (root / manifest.SUMS).unlink(), "SHA256SUMS is missing: nothing says which recordings must be there"),
    "a line of the sums": (lambda root: (root / manifest.SUMS).write_text(""), "sm_90/manifest.json.xz is not locked by SHA256SUMS"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_locked_must_be_there(what: str, locked: Path) -> None:
    """One line that names it."""
    assert manifest.complaints(locked, "sm_90") == []
    change, complaint = CHANGES[what]
    change(locked)
    (line,) = manifest.complaints(locked, "sm_90")
    assert line.removeprefix(f"{locked}/").startswith(complaint)


@pytest.mark.parametrize("what", ["file", "class"])
def test_a_replay_of_another_instruction_fails_too(what: str, locked: Path) -> None:
    """Nothing is selected of the recording that changed."""
    selection = (case_path("wide"), "--arch", "sm_90", "--replay", "--recordings", str(locked))
    change, complaint = CHANGES[what]
    change(locked)
    run = suite_run(*selection)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "recordings are not those that were locked" in run.stderr
    assert complaint in run.stderr


def test_the_committed_recordings_are_locked() -> None:
    """All of them, and the frozen generators."""
    assert manifest.complaints(recordings.ROOT, "sm_90") == []
    sums = (recordings.ROOT / manifest.SUMS).read_text()
    for name in ("sm_90/manifest.json.xz", *manifest.BESIDE):
        assert f"  {name}\n" in sums
    locked = manifest.read(recordings.ROOT / "sm_90" / manifest.NAME)
    beside = sum(name.startswith("sm_90/") and name.endswith(".npz") for name in manifest.BESIDE)
    assert len(locked.hashes) + beside == len(list((recordings.ROOT / "sm_90").glob("**/*.npz"))) and beside == 1
    assert locked.all.keys() == packs.names("sm_90", recordings.ROOT)
    assert len(locked.all) > 3900
    assert sum(map(len, locked.all.values())) > 14000


def test_a_default_run_has_every_case_that_is_locked() -> None:
    """`pytest conformance/ --arch sm_90` leaves out no case of its seed and level; how many there are is written here."""
    suite, level_2 = Suite(Settings("sm_90", "replay")), Suite(Settings("sm_90", "replay", level=2))
    listed = [(recordings.path_of(case.mnemonic, "sm_90").stem, f"{case.name}.{case.seed}") for case in suite.cases()]
    held = manifest.read(recordings.ROOT / "sm_90" / manifest.NAME).all
    locked = set()
    for row in suite.rows:
        name = recordings.path_of(row.mnemonic, "sm_90").stem
        others = {f"{case}.0" for case in level_2.names(row.mnemonic)}
        locked |= {(name, case) for case in held.get(name, set()) - others if case.endswith(".0")}
    assert set(listed) == locked and len(listed) == len(locked) == 14_210
    assert (len(list(gemm.cases("sm_90"))), len(list(convert.cases("sm_90")))) == (828, 54)


def test_cases_are_dropped_only_where_that_is_said(locked: Path) -> None:
    """`--removed`."""
    without_class(locked, "wide")
    with pytest.raises(RecordingError, match=r"loses wide\.0, wide\.1: if that is meant, say --removed"):
        manifest.renew(locked, "sm_90")
    assert manifest.main(["--recordings", str(locked)]) == 1
    assert manifest.main(["--recordings", str(locked), "--removed"]) == 0
    assert manifest.complaints(locked, "sm_90") == []


@pytest.mark.parametrize("text", ["", "[]", '{"cases": [], "files": {"x": [0, "y"]}}', '{"cases": 3, "files": []}'])
def test_a_damaged_manifest_is_one_kind_of_error(text: str) -> None:
    """It names the file."""
    with pytest.raises(RecordingError, match="corrupt manifest somewhere"):
        manifest.parse(text, Path("somewhere"))


HEADERS: dict[str, Any] = {
    "no samples": {"samples": 0},
    "negative samples": {"samples": -3},
    "absurd samples": {"samples": 1 << 40},
    "true samples": {"samples": True},
    "half a sample": {"samples": 1.5},
    "negative seed": {"seed": -1},
    "short digest": {"inputs_sha256": "ab"},
    "no digest": {"result_sha256": None},
}


@pytest.mark.parametrize("what", HEADERS)
def test_a_header_that_lies_is_corruption(what: str, locked: Path) -> None:
    """The class and the field are named; nothing is allocated."""
    path = recordings.path_of(MNEMONIC, "sm_90", locked)
    header, content = recordings.read_arrays(path)
    header["cases"][0] |= HEADERS[what]
    recordings.write_arrays(path, header, content)
    (field,) = HEADERS[what]
    name = header["cases"][0]["name"]
    with pytest.raises(RecordingError, match=rf"corrupt recording .*: ValueError: class '{name}' has {field} "):
        recordings.read(MNEMONIC, "sm_90", locked)
