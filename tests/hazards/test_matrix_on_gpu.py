"""What runs mutants on a GPU, without one: which are sampled, what a tool's output says of each, and how results are joined."""

from __future__ import annotations

import doctest
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter, sleep
from types import ModuleType
from typing import Any

import pytest

from tests.hazards import hangs_on_gpu, sanitized
from tests.hazards.device_jobs import Job
from tests.hazards.matrix import page
from tests.hazards.matrix.subjects import subjects
from tests.kernels.corpora.pack import ROOT

TOOL = f"""#!{sys.executable}
import pathlib, pickle, sys

path = pathlib.Path(sys.argv[-1])
with path.with_suffix(".done").open("a") as done:
    for job in pickle.loads(path.read_bytes()):
        if "error" in job.key:
            print(f"========= Error: Race reported between Read access at {{job.entry}}+0x10\\n=========     and Write access at {{job.entry}}+0x20")
        if "warning" in job.key:
            print(f"========= Warning: Race reported at {{job.entry}}+0x10")
        if "fault" in job.key:
            done.write(f"{{job.entry}} cuStreamSynchronize returned 719\\n")
            break
        done.write(f"{{job.entry}} ended\\n")
print("========= ERROR SUMMARY: 7 errors")
"""


@pytest.mark.parametrize("module", [sanitized, page])
def test_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0 and not found.failed


def test_a_sample_is_spread_over_kernels() -> None:
    """Of each kind as many mutants as are asked for, or as there are, of as many kernels as have some."""
    found = page.verdicts()
    chosen = set(sanitized.sample([own.key for own in found], 6))
    assert not {own.kind for own in found} - {own.kind for own in found if own.key in chosen}
    for kind in {own.kind for own in found}:
        every = [own for own in found if own.kind == kind]
        own = Counter(each.subject for each in every if each.key in chosen)
        assert own.total() == min(6, len(every))
        assert len(own) == min(6, len({each.subject for each in every}))


def test_a_tool_is_asked_until_every_job_has_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a job whose launch ends the process; a tool that says nothing gives no answer."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    subject = subjects()["tma_ring"]
    keys = ("a", "b error", "c fault", "d warning", "e fault error", "f")
    jobs = [Job("k", key, "wait", b"", f"m0_{place}_k", subject.launch, subject.compiled) for place, key in enumerate(keys)]  # fmt: skip
    tool = tmp_path / "tool"
    tool.write_text(TOOL, encoding="utf-8")
    tool.chmod(0o755)
    found: dict[tuple[str, str], str] = {}

    def tell(job: Job, name: str, said: str) -> None:
        found[job.key, name] = said

    sanitized.together(str(tool), jobs, tmp_path / "jobs.pickle", 0, "racecheck", perf_counter() + 60, tell)
    said = {key: found.pop((key, "racecheck")) for key in keys}
    assert said == {"a": "0", "b error": "1", "c fault": "cuStreamSynchronize returned 719", "d warning": "0", "e fault error": "1", "f": "0"}  # fmt: skip
    assert found.pop(("d warning", "racecheck warnings")) == "1"
    assert found.pop(("b error", "racecheck said")).startswith("Error: Race reported between Read access at m0_1_k")
    assert [key for key, _ in found] == ["e fault error"]
    tool.write_text(f"#!{sys.executable}\n", encoding="utf-8")
    sanitized.together(str(tool), jobs[:2], tmp_path / "more.pickle", 0, "memcheck", perf_counter() + 60, tell)
    assert all(found[key, "memcheck"].startswith("no answer") for key in keys[:2])


def test_another_host_has_results_of_its_own() -> None:
    """What two hosts saw is not mixed."""

    def ran(driver: str, **mutants: Any) -> dict[str, Any]:
        return {"device": "H200", "driver": driver, "mutants": mutants}

    first, second = ran("1", a={"gpu": 0}, b={"gpu": "hang"}), ran("2", b={"gpu": 3})
    assert page.joined(first, second) == second and page.joined(None, first) == first
    assert page.joined(first, ran("1", b={"gpu": 3}))["mutants"] == {"a": {"gpu": 0}, "b": {"gpu": 3}}


class _Launches:
    """A process that answers at once, falls silent, or is late, by the name of its job."""

    ready = True

    def __init__(self, processes: Any, gpu: int) -> None:
        self.pipe, self.left, self.job = self, 0, ""

    def send(self, jobs: tuple[Any, Any]) -> None:
        self.left, self.job = hangs_on_gpu.TIMES, str(jobs[1])

    def poll(self, seconds: float) -> bool:
        if self.job == "late":
            sleep(0.25)
        return self.job != "silent"

    def recv(self) -> bool | str:
        self.left -= 1
        return "fault: 719" if self.job == "fault" and not self.left else self.job == "other"

    def answer(self, original: Any, job: Any) -> int | str:
        sleep(0.001)
        return "hang" if str(job) == "silent" else 0

    def end(self) -> None:
        pass


@pytest.mark.parametrize(
    ("jobs", "wanted"),
    [
        (("same", "other"), {"launches": 8, "other_bits": 4, "hangs": 0, "late": 0, "processes": 2}),
        (("same", "silent"), {"launches": 6, "other_bits": 0, "hangs": 3, "late": 0, "processes": 3}),
        (("late",), {"launches": 2, "other_bits": 0, "hangs": 0, "late": 2, "processes": 1}),
        (("fault",), {"launches": 3, "other_bits": 0, "hangs": 0, "late": 0, "processes": 3}),
    ],
)
def test_launches_that_hang_are_told_from_late_ones(
    jobs: tuple[Any, ...], wanted: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in its own count; processes beside them are killed when they hang, and end with the condition."""
    monkeypatch.setattr(hangs_on_gpu, "Server", _Launches)
    monkeypatch.setattr(hangs_on_gpu, "SILENCE_S", 0.2)
    monkeypatch.setattr(hangs_on_gpu, "TIMES", 2)
    original: Any = "same"
    launches = wanted["launches"]
    found = hangs_on_gpu.condition(0, original, jobs, ["silent", "same"], 2, launches, 5.0)
    assert found.pop("killed beside") >= 1
    faults = found.pop("faults")
    assert faults == ["fault: 719"] * (3 if jobs == ("fault",) else 0)
    assert found | {"late": len(found["late"])} == wanted
