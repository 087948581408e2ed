"""Packs of recordings: they hold what the files held, are read together with what is recorded later, and say what is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.suite import files, manifest, packs, recordings, whole_recordings
from conformance.suite.cases import Settings, Suite
from conformance.suite.recordings import RecordedCase, Recording, RecordingError
from tests.support.suite_runs import CLASSES, MNEMONIC, OTHER, case_path, copy_recording, recorded, suite_run, whole

WHOLE = "gemm-x"
ABOUT = {"inputs_sha256": "a" * 64, "gpu": "G", "driver": "1", "compiler": "c", "date": "2026-01-01"}
FIRST = Path("sm_90/packed/mma.sync.npz")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Two instructions and a whole output, packed and locked."""
    root = copy_recording(copy_recording(tmp_path / "recordings"), OTHER)
    whole_recordings.write(WHOLE, "sm_90", 0, np.arange(70, dtype=np.uint16), ABOUT, root)
    manifest.renew(root, "sm_90")
    assert packs.main(["--recordings", str(root)]) == 0
    manifest.renew(root, "sm_90")
    return root


def test_a_pack_holds_what_the_files_held(packed: Path) -> None:
    """No file is left beside two packs, and every case comes back: header, origin, arrays."""
    assert [path.name for path in (packed / "sm_90").glob("*.npz")] == []
    assert [path.name for path in packs.paths(packed, "sm_90")] == ["mma.sync.npz", "whole-gemm.npz"]
    assert packs.names("sm_90", packed) == {MNEMONIC, OTHER, WHOLE}
    for mnemonic in (MNEMONIC, OTHER):
        before, after = recorded(recordings.ROOT, mnemonic), recorded(packed, mnemonic)
        assert (after.origin, after.cases) == (before.origin, before.cases)
        assert all((after.results[key] == before.results[key]).all() for key in before.results)
        assert len(after.results) == len(before.results) > 10
    whole = whole_recordings.read(WHOLE, "sm_90", 0, packed)
    assert whole is not None and whole.shape == (70,) and whole.codes.tolist() == list(range(6, 70))
    assert manifest.complaints(packed, "sm_90") == []


def test_a_replay_reads_packs(packed: Path) -> None:
    """As from files."""
    run = suite_run(*whole(), "--replay", "--recordings", str(packed))
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(CLASSES)} passed" in run.stdout


def test_cases_are_listed_from_headers_alone(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run collects needs no result; the first case that is run reads its pack."""
    read: list[Path] = []
    whole = files.read_array
    monkeypatch.setattr(files, "read_array", lambda path, name: (read.append(path), whole(path, name))[1])
    suite = Suite(Settings("sm_90", "replay", root=packed))
    cases = [case for case in suite.cases() if case.mnemonic == MNEMONIC]
    assert [case.name for case in cases] == CLASSES and read == []
    assert suite.run(cases[0]).verdict == "REPLAYED" and read == [packed / FIRST]


def test_a_case_whose_results_are_gone_fails(tmp_path: Path) -> None:
    """The header lists it, its array has another name: not a pass, and not the end of the run."""
    path = recordings.path_of(MNEMONIC, "sm_90", copy_recording(tmp_path))
    header, arrays = files.read_arrays(path)
    arrays["vast.0"] = arrays.pop("wide.0")
    files.write_arrays(path, header, arrays)
    suite = Suite(Settings("sm_90", "replay", root=tmp_path))
    outcome = suite.run(next(suite.cases()))
    assert outcome.verdict == "FAIL" and outcome.text.startswith(f"corrupt recording {path}: KeyError: 'wide.0'")


def later(root: Path, seed: int, value: int) -> Recording:
    """A recording of one class, made later and elsewhere."""
    old = recorded(root)
    new = Recording(MNEMONIC, "sm_90", replace(old.origin, date="2099-01-01"))
    new.add(RecordedCase("wide", seed, 1, "b" * 64), np.full((1, 32, 4), value, np.uint32))
    return new


def test_what_is_recorded_later_is_read_together_with_a_pack(packed: Path) -> None:
    """Another seed comes to it; the same class and seed replaces it; the pack's bytes stay, and each case knows its origin."""
    before, path = recorded(packed), packed / FIRST
    data = path.read_bytes()
    recordings.write(later(packed, 1, 7), packed)
    found = recorded(packed)
    assert found.cases.keys() == before.cases.keys() | {("wide", 1)}
    assert (found.results["wide", 1] == 7).all() and (found.results["wide", 0] == before.results["wide", 0]).all()
    assert found.origin_of("wide", 1).date == "2099-01-01"
    assert found.origin_of("wide", 0) == before.origin
    assert [path.name for path in packs.pack(packed, "sm_90", "seed-1")] == ["mma.sync.npz"]
    assert recorded(packed).cases == found.cases
    recordings.write(later(packed, 0, 9), packed)
    assert (recorded(packed).results["wide", 0] == 9).all()
    assert path.read_bytes() == data
    with pytest.raises(RecordingError, match=r"mma\.sync\.npz is there already: packs are not written again"):
        packs.pack(packed, "sm_90", "seed-1")
    assert (packed / "sm_90" / f"{MNEMONIC}.npz").exists()


def test_equal_arrays_are_kept_once(tmp_path: Path) -> None:
    """Their places are the same; their shapes may differ."""
    one = np.arange(6, dtype=np.uint32)
    packs.write(tmp_path / "p.npz", (("x", {}, {"a": one}), ("y", {}, {"a": one.reshape(2, 3), "b": one + 1})))
    pack = packs.Pack(tmp_path / "p.npz")
    assert len(files.read_array(pack.path, "content")) == 48
    assert pack.arrays("y")["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and pack.arrays("y")["b"].tolist() == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the header of a pack."""
    header, content = files.read_arrays(path)
    edit(header)
    files.write_arrays(path, header, content)


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "beyond the end": (lambda own: own["arrays"]["wide.0"].__setitem__(0, 1 << 40), "an array ends at byte"),
    "negative start": (lambda own: own["arrays"]["wide.0"].__setitem__(0, -4), "no array is uint32"),
    "absurd shape": (lambda own: own["arrays"]["wide.0"].__setitem__(2, [1 << 40, 1 << 40]), "an array ends at byte"),
    "negative shape": (lambda own: own["arrays"]["wide.0"].__setitem__(2, [-1, 4]), "no array is uint32"),
    "objects": (lambda own: own["arrays"]["wide.0"].__setitem__(1, "object"), "no array is object"),
    "no place": (lambda own: own["arrays"].__setitem__("wide.0", 3), "TypeError"),
    "no arrays": (lambda own: own.pop("arrays"), "KeyError"),
    "no class": (lambda own: own["arrays"].pop("wide.0"), "KeyError: 'wide.0'"),
    "no driver": (lambda own: own["origin"].pop("driver"), "driver"),
    "another instruction": (lambda own: own.__setitem__("mnemonic", OTHER), f"foreign recording .* it holds {OTHER}"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_pack_is_a_recording_error(packed: Path, what: str) -> None:
    """It names the file and what is wrong; nothing is allocated for it."""
    edit, said = DAMAGE[what]
    change(packed / FIRST, lambda header: edit(header["files"][MNEMONIC]))
    with pytest.raises(RecordingError, match=said) as error:
        recordings.read(MNEMONIC, "sm_90", packed)
    assert str(packed / FIRST) in str(error.value)
    assert "record it again on a GPU" in str(error.value)


@pytest.mark.parametrize(
    "header", [{"schema": 2, "files": {}}, {"schema": 1}, {"schema": 1, "files": 3}], ids=json.dumps
)
def test_what_is_not_a_pack_is_said(packed: Path, header: dict[str, Any]) -> None:
    files.write_arrays(packed / FIRST, header, {})
    with pytest.raises(RecordingError, match="is not a pack of schema 1"):
        recordings.read(MNEMONIC, "sm_90", packed)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "pack": (lambda path: path.unlink(), "is missing: the manifest lists it with 52 cases"),
    "recording": (lambda path: change(path, lambda header: header["files"].pop(OTHER)), f"its header lacks {OTHER} boundaries.0, "),
    "class": (
        lambda path: change(path, lambda header: header["files"][OTHER]["cases"].pop()),
        f"its header lacks {OTHER} ",
    ),
    "bytes": (lambda path: path.write_bytes(b"x"), "corrupt recording "),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_pack_must_hold_is_locked(packed: Path, what: str) -> None:
    """A replay of the other instruction in it fails."""
    edit, said = CHANGES[what]
    edit(packed / FIRST)
    (line,) = manifest.complaints(packed, "sm_90")
    assert line.startswith("sm_90/packed/mma.sync.npz is ") and said in line
    run = suite_run(case_path("wide"), "--arch", "sm_90", "--replay", "--recordings", str(packed))
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in run.stderr
    if what != "bytes":
        with pytest.raises(RecordingError, match="if that is meant, say --removed"):
            manifest.renew(packed, "sm_90")
