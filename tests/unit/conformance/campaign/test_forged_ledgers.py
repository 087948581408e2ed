"""Ledgers that are forged or damaged: `verify` refuses each in sentences that name the line, and takes the one that is in the tree."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.campaign import cluster, ledger
from conformance.campaign.__main__ import main
from conformance.campaign.campaign import PART, Campaign, CampaignError, complaints, done, run, table, verified
from conformance.campaign.ledger import LedgerError, Line, merged, missing, read
from conformance.campaign.on_cpu import CPU, compared
from conformance.campaign.tasks import Task
from tests.unit.conformance.campaign.test_campaign import MMA, SPARSE, OnCpu

ROOT = Path(__file__).resolve().parents[4]
GPU = "NVIDIA H200"
SPAN = 32  # samples


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Three spans that NumPy compared, as if a GPU had."""
    path = tmp_path_factory.mktemp("right") / "ledger.jsonl"
    run(Campaign(MMA, 5, 3 * SPAN * MMA.outputs, path, GPU, SPAN * MMA.outputs), OnCpu())
    return [asdict(line) for line in read(path)]


def written(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def with_field(number: int, **fields: Any) -> Callable[[list[dict[str, Any]]], list[Any]]:
    """A line with other fields."""
    return lambda lines: [line | fields if place == number else line for place, line in enumerate(lines)]


def without(key: str) -> Callable[[list[dict[str, Any]]], list[Any]]:
    """The second line without a key."""
    return lambda lines: [lines[0], {name: value for name, value in lines[1].items() if name != key}, lines[2]]


FORGED: dict[str, tuple[Callable[[list[dict[str, Any]]], list[Any]], str]] = {
    "more outputs": (with_field(1, outputs=10**15), "line 2: outputs"),
    "fewer outputs": (with_field(1, outputs=1), "line 2: outputs"),
    "mismatches": (with_field(1, mismatches=5), "line 2: places"),
    "mismatches with places": (with_field(1, mismatches=1, places=[SPAN * 128]), "line 2: 1 mismatches"),
    "more mismatches than outputs": (with_field(1, mismatches=10**9), "line 2: mismatches"),
    "no part": (with_field(1, part=0), "line 2: part is 0; valid: an integer from 1"),
    "a part larger than the span": (with_field(1, part=SPAN + 1), "line 2: part"),
    "another part": (with_field(1, part_digest=f"{5:#018x}"), "line 2: part_digest"),
    "digits of a part": (with_field(1, part_digest="0x5"), "line 2: part_digest"),
    "digits of a digest": (with_field(1, digest="5"), "line 2: digest"),
    "the same line five times": (lambda lines: [lines[0]] * 5, "line 2: samples 0 to 31"),
    "a line twice, later": (lambda lines: [*lines, lines[1]], "line 4: samples 32 to 63"),
    "spans that overlap": (with_field(1, first=SPAN - 1), "line 2: samples 31 to 62"),
    "a span that is missing": (lambda lines: [lines[0], lines[2]], "samples 32 to 63 are missing"),
    "no beginning": (lambda lines: lines[1:], "samples 0 to 31 are missing"),
    "another GPU's span": (with_field(1, gpu="NVIDIA H100"), "samples 0 to 31 are missing"),
    "a CPU's lines": (lambda lines: [line | {"gpu": CPU} for line in lines], "no GPU"),
    "a CPU's span among a GPU's": (with_field(1, gpu=CPU), "are missing"),
    "no GPU": (with_field(1, gpu=""), "line 2: gpu"),
    "a GPU that steers the terminal": (with_field(1, gpu="\x1b[31m"), "line 2: gpu"),
    "no instruction": (with_field(1, mnemonic="mma.sync.aligned.m1n1k1"), "line 2: "),
    "an instruction of no campaign": (with_field(1, mnemonic="cvt.rn.f16.f32"), "line 2: "),
    "an arch that there is not": (with_field(1, arch="sm_1"), "line 2: "),
    "an arch that does not have it": (with_field(1, arch="sm_70"), "line 2: "),
    "a seed below zero": (with_field(1, seed=-1), "line 2: seed"),
    "a seed of 65 bits": (with_field(1, seed=2**64), "line 2: seed"),
    "a seed of text": (with_field(1, seed="5"), "line 2: seed"),
    "another seed": (lambda lines: [line | {"seed": 6} for line in lines], "line 1: part_digest"),
    "a first below zero": (with_field(0, first=-1), "line 1: first"),
    "no samples": (with_field(1, samples=0, outputs=0), "line 2: samples"),
    "samples beyond 64 bits": (with_field(2, samples=2**64, outputs=2**64 * 128), "line 3: samples"),
    "a truth for a number": (with_field(1, part=True), "line 2: part"),
    "seconds below zero": (with_field(1, seconds=-1.0), "line 2: seconds"),
    "seconds that are not a number": (with_field(1, seconds=float("nan")), "line 2: seconds"),
    "places of other spans": (with_field(1, mismatches=1, places=[0]), "line 2: places"),
    "a place twice": (with_field(1, mismatches=2, places=[SPAN * 128] * 2), "line 2: places"),
    "places of text": (with_field(1, mismatches=1, places=["0"]), "line 2: places"),
    "no digest": (without("digest"), "line 2 has no digest"),
    "another key": (with_field(1, more=1), "line 2: unknown key 'more'"),
    "not JSON": (lambda lines: [lines[0], "{", lines[2]], "line 2 is not JSON"),
    "a list": (lambda lines: [lines[0], "[]", lines[2]], "line 2 is '[]'"),
    "an empty line": (lambda lines: [lines[0], "", lines[2]], "line 2 is not JSON"),
    "deep JSON": (lambda lines: [lines[0], "[" * 100_000, lines[2]], "line 2 is not JSON"),
    "100,000 digits": (lambda lines: [lines[0], '{"seed": ' + "1" * 100_000 + "}", lines[2]], "line 2 is not JSON"),
    "a line cut in the middle": (lambda lines: [lines[0], json.dumps(lines[1])[:90], lines[2]], "line 2 is not JSON"),
    "nothing": (lambda lines: [], "has no lines"),
}  # fmt: skip
"""What is done to a ledger that is right, and what is said of it."""


def told(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    """The exit status and what a command says."""
    status = main(["verify", str(path), *more])
    found = capsys.readouterr()
    return status, found.out + found.err


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_ledger_is_refused(
    name: str, right: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge, words = FORGED[name]
    path = written(tmp_path / "ledger.jsonl", forge(right))
    status, said = told(path, capsys)
    assert status == 1 and words in said, said
    assert all(len(line) < 600 and line.isprintable() for line in said.splitlines()), said


def test_a_right_ledger_is_accepted(
    right: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "ledger.jsonl", right)
    for more in ((), ("--whole",)):
        status, said = told(path, capsys, *more)
        assert status == 0 and said.endswith("3 lines, 0 wrong\n"), said
    joined = [asdict(line) for line in merged(read(path))]
    assert len(joined) == 1 and told(written(path, joined), capsys, "--whole")[0] == 0
    other = [line | {"gpu": "NVIDIA H100"} for line in right]
    assert told(written(path, [*right, *other]), capsys)[0] == 0  # two GPUs, each its own spans
    mixed = [line | {"gpu": CPU} for line in right]
    assert told(written(path, [*right, *mixed]), capsys)[0] == 0
    assert table(read(path)).count(MMA.mnemonic) == 1  # what a CPU said is no result of hardware


def test_whole_lines_are_compared_whole(
    right: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "ledger.jsonl", with_field(1, digest=f"{7:#018x}")(right))
    assert told(path, capsys)[0] == 0
    status, said = told(path, capsys, "--whole")
    assert status == 1 and "line 2: digest" in said and "line 1" not in said
    (line,) = read(written(path, [right[0]]))
    assert verified(line, whole=True) and not verified(replace(line, digest=f"{7:#018x}"), whole=True)


def test_the_ledger_of_the_tree_says_what_its_instructions_have() -> None:
    """All but the digests of the parts, which `python -m conformance.campaign verify` computes in a minute."""
    lines = read(ROOT / "docs/measurements/campaign.jsonl")
    assert len(lines) == 60 and complaints(lines) == []
    for line in (lines[0], lines[17], lines[-1]):
        assert verified(line)


def test_other_subcommands_name_a_wrong_line_too(
    right: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "ledger.jsonl", [*right, right[1]])
    for what in ("verify", "merge", "table"):
        assert main([what, str(path)]) == 1
        assert "line 4: samples 32 to 63" in capsys.readouterr().err
    command = [
        sys.executable,
        "-m",
        "conformance.campaign",
        "run",
        str(path),
        "--cpu",
        "--outputs",
        "1000",
        "--only",
        MMA.mnemonic,
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1 and "line 4" in result.stderr and "Traceback" not in result.stderr
    (tmp_path / "folder").mkdir()
    assert main(["verify", str(tmp_path / "folder")]) == 1 and "not a regular file" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "none")]) == 1 and "has no lines" in capsys.readouterr().err


def test_what_a_cpu_compared_is_compared_again_by_a_gpu(tmp_path: Path) -> None:
    path, outputs = tmp_path / "ledger.jsonl", 2 * SPAN * MMA.outputs
    run(Campaign(MMA, 5, outputs, path, CPU, SPAN * MMA.outputs), OnCpu())
    assert len(read(path)) == 2
    for gpu, lines in ((GPU, 4), (GPU, 4), ("NVIDIA H100", 6)):
        (found,) = run(Campaign(MMA, 5, outputs, path, gpu, SPAN * MMA.outputs), OnCpu())
        assert found.gpu == gpu and found.samples == 2 * SPAN and len(read(path)) == lines


LINE = Line("a", "sm_90", 0, 0, 4, 8, 0, f"{1:#018x}", 1, f"{1:#018x}", 0.5, GPU)


def test_a_worker_with_another_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "device_info", lambda ordinal: SimpleNamespace(name="NVIDIA A100"))
    monkeypatch.setattr(cluster, "_device", lambda opens: OnCpu())
    task = Task(MMA, 5, 0, 1, 1)
    with pytest.raises(CampaignError, match="has an NVIDIA A100; the campaign is of an NVIDIA H200"):
        cluster.answered(task, cluster.ON_GPU, GPU)
    assert cluster.answered(task, cluster.ON_GPU, "NVIDIA A100").gpu == "NVIDIA A100"
    assert cluster.answered(task, "of.a:test", CPU).gpu == CPU


def test_missing_spans() -> None:
    """Between lines, before the first, behind the last; lines of other subjects and GPUs do not count; a line beyond the end is none."""
    key = LINE.key
    assert list(missing([], key, 0, 4)) == []
    assert list(missing([LINE], key, 4, 4)) == [] and list(missing([LINE], key, 3, 4)) == []
    assert list(missing([LINE], key, 10, 4)) == [(4, 4), (8, 2)]
    assert list(missing([replace(LINE, first=3), replace(LINE, first=9)], key, 20, 100)) == [(0, 3), (7, 2), (13, 7)]
    assert list(missing([replace(LINE, first=9), replace(LINE, first=3)], key, 11, 2)) == [(0, 2), (2, 1), (7, 2)]
    assert list(missing([replace(LINE, first=2, samples=9), LINE, replace(LINE, first=4)], key, 12, 4)) == [(11, 1)]
    assert list(missing([replace(LINE, first=30)], key, 6, 4)) == [(0, 4), (4, 2)]
    for other in ({"mnemonic": "b"}, {"arch": "sm_80"}, {"seed": 1}, {"gpu": CPU}):
        assert list(missing([replace(LINE, **other)], key, 4, 4)) == [(0, 4)]  # type: ignore[arg-type]


def test_lines_are_joined_where_they_meet() -> None:
    after = replace(
        LINE,
        first=4,
        samples=3,
        outputs=6,
        mismatches=2,
        digest=f"{2**64 - 1:#018x}",
        part=2,
        part_digest=f"{9:#018x}",
        seconds=0.25,
        places=(8, 9),
    )
    (joined,) = merged([after, LINE])
    assert joined == replace(
        LINE, samples=7, outputs=14, mismatches=2, digest=f"{0:#018x}", seconds=0.75, places=(8, 9)
    )
    apart = replace(after, first=5)
    assert merged([apart, LINE]) == [LINE, apart]
    elsewhere = replace(after, gpu="NVIDIA H100")
    assert merged([elsewhere, LINE]) == [elsewhere, LINE]
    between = [replace(LINE, gpu=gpu, first=first) for first in (0, 4, 8) for gpu in (GPU, "NVIDIA H100")]
    assert [(line.gpu, line.samples) for line in merged(between)] == [("NVIDIA H100", 12), (GPU, 12)]
    other = replace(after, seed=1)
    assert merged([other, LINE]) == [LINE, other]
    assert merged([]) == []
    many = [
        replace(LINE, first=4 * place, mismatches=3, places=tuple(range(8 * place, 8 * place + 3)))
        for place in range(8)
    ]
    (whole,) = merged(many)
    assert whole.mismatches == 24 and whole.places == (0, 1, 2, 8, 9, 10, 16, 17, 18, 24, 25, 26, 32, 33, 34, 40)


def test_done_says_what_the_device_said() -> None:
    """Every field of a line, from what a comparison leaves; and a device that compared something else is refused."""
    task = Task(SPARSE, 3, 7, 20, PART)

    class Given(OnCpu):
        """A device whose answer has words of its own."""

        def __init__(self, **words: int) -> None:
            super().__init__()
            self.words = words

        def run(self, launch: Any, timeout_s: float = 20.0) -> list[Any]:
            whole, part = compared(launch)
            for place, word in self.words.items():
                whole[int(place[1:])] = word
            return [whole, part]

    line = done(task, Given(), GPU)
    whole, part = compared(task)
    assert line == Line(
        SPARSE.mnemonic,
        "sm_90",
        3,
        7,
        20,
        20 * SPARSE.outputs,
        0,
        f"{int(whole[2]):#018x}",
        PART,
        f"{int(part[2]):#018x}",
        line.seconds,
        GPU,
        (),
    )
    assert part[2] == compared(Task(SPARSE, 3, 7, PART, PART))[0][2] != whole[2]
    assert 0 <= line.seconds < 60
    place = 7 * SPARSE.outputs
    found = done(task, Given(_1=3, _3=3, _4=place, _5=place + 1, _6=place + 2, _7=place + 3), GPU)
    assert found.mismatches == 3 and found.places == (place, place + 1, place + 2)
    many = done(task, Given(_1=99, _3=99, **{f"_{4 + at}": place + at for at in range(16)}), GPU)
    assert many.places == tuple(range(place, place + 16))
    for outputs in (0, 20 * SPARSE.outputs - 1, 20 * SPARSE.outputs + 1):
        with pytest.raises(CampaignError, match=f"{outputs} outputs compared of {20 * SPARSE.outputs}"):
            done(task, Given(_0=outputs), GPU)


def test_a_line_of_an_unwritable_ledger_is_not_lost(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="the line that is not there"):
        ledger.append(Path("/dev/full"), LINE)
