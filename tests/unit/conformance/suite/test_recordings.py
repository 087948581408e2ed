"""Files of recordings: written whole or not at all, read back as they were, refused where damaged or foreign."""

from __future__ import annotations

import re
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conformance.suite import recordings
from conformance.suite.recordings import Origin, RecordedCase, Recording, RecordingError
from tests.support.suite_runs import MNEMONIC, OTHER, case_path, copy_recording, recorded, suite_run


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with the committed recording of one instruction."""
    return copy_recording(tmp_path / "recordings")


def test_a_corrupt_recording_stops_the_run(copied: Path) -> None:
    """Wrong usage, not a pass of what is left: the file, what is wrong and how to repair it."""
    path = recordings.path_of(MNEMONIC, "sm_90", copied)
    path.write_bytes(path.read_bytes()[:-200])
    run = suite_run(case_path("wide"), "--replay", "--recordings", str(copied))
    assert run.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    text = run.stdout + run.stderr
    assert f"corrupt recording {path}: BadZipFile" in text
    assert "record it again on a GPU with `pytest --pyargs conformance --record`, or restore the committed file" in text
    assert " passed" not in run.stdout


def with_header(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Rewrite the header of a recording."""
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    content["header"] = np.frombuffer(change(content["header"].tobytes()), np.uint8)
    np.savez(path, **content)


def bomb(path: Path, method: int = zipfile.ZIP_DEFLATED) -> None:
    """80 MiB of zeros in a small file."""
    with (
        zipfile.ZipFile(path, "w", method, compresslevel=1) as file,
        file.open("header.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (80 << 20,)})  # type: ignore[arg-type]
        for _ in range(20):
            member.write(bytes(1 << 22))


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
        lambda path: with_header(path, lambda header: b"[" * 100_000),
        lambda path: with_header(path, lambda header: b'{"schema": ' + b"1" * 100_000 + b"}"),
        lambda path: np.savez(path, header=np.array([{}], object)),
        lambda path: bomb(path),
        lambda path: bomb(path, zipfile.ZIP_LZMA),
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
        "deep JSON",
        "digits",
        "pickled",
        "bomb",
        "LZMA bomb",
    ],
)
def test_every_damage_is_a_recording_error(
    copied: Path, damage: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with the file, reading it raises one kind of error that names it, and costs little."""
    monkeypatch.setattr("conformance.suite.files.LARGEST", 64 << 20)
    path = recordings.path_of(MNEMONIC, "sm_90", copied)
    assert path.stat().st_size > 3100
    damage(path)
    tracemalloc.start()
    try:
        with pytest.raises(
            RecordingError, match=f"corrupt recording {re.escape(str(path))}: .+; record it again"
        ) as caught:
            recordings.read(MNEMONIC, "sm_90", copied)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 600


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
    run = suite_run(case_path("wide", OTHER), "--replay", "--recordings", str(copied))
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

    monkeypatch.setattr(f"tcsim.core.files.os.{where}", fail)
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
