"""Random programs beside what an H200 left of them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from conformance import programs


def test_the_first_programs_leave_what_the_gpu_left() -> None:
    made, digests = programs.recorded()
    assert made["gpu"] == "NVIDIA H200" and len(digests) == programs.COUNT
    seeds = range(16)
    assert [programs.digest(programs.modelled(seed)) for seed in seeds] == digests[: len(seeds)]


def test_programs_have_every_kind_of_statement() -> None:
    text = "".join(map(programs.program, range(16)))
    for word in (
        "shfl.sync",
        "redux.sync",
        "elect.sync",
        "bar.sync",
        "call",
        "LOOP",
        "ELSE",
        "ld.local",
        "atom.",
        "fma.",
        "setp.",
        "cvt.",
    ):
        assert word in text, word


def test_a_difference_without_a_reason_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(lzma.decompress(programs.RECORDED.read_bytes()))
    data["digests"][1] = "0" * 8
    path = tmp_path / "programs.json.xz"
    path.write_bytes(lzma.compress(json.dumps(data).encode()))
    monkeypatch.setattr(programs, "RECORDED", path)
    assert programs.main(["--count", "2"]) == 1
    assert "1 of 2 programs are equal\nprogram 1 differs: not known why" in capsys.readouterr().out
    monkeypatch.setattr(programs, "OPEN", {1: "a reason"})
    assert programs.main(["--count", "2"]) == 0


def test_a_recording_of_other_programs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "STATEMENTS", 3)
    with pytest.raises(ValueError, match=r"are not those that conformance\.programs makes"):
        programs.recorded()
