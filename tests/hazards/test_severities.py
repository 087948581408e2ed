"""What each severity does to an exit status and to the cause that is printed: errors decide, the others are only shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tcsim.launchers import script
from tcsim.launchers.launched import LaunchFailed
from tcsim.launchers.session import Session
from tcsim.ptx import Hazard, Memory, Run, parse
from tcsim.ptx.hazards.hazard import SEVERITIES, merged, worst_first
from tests.support.cli_runs import answer, data

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .pred %p; .reg .b32 %r<9>; .reg .f32 %f<4>; .reg .b64 %d<3>;
  .shared .align 128 .b8 tile[16384];
  ld.param.u64 %d0, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mad.lo.u32 %r3, %r1, 4, %r2; xor.b32 %r4, %r3, 128;
"""
RACE = "  st.shared.u32 [%r3], %r1;\n  ld.shared.u32 %r5, [%r4];\n"
UNINITIALISED = "  ld.shared.u32 %r6, [%r3+2048];\n"
BARRIER = "  bar.sync 0;\n  bar.sync 0;\n"
PRODUCT = """  mov.b64 %d1, 0x0000004000080040; mov.b64 %d2, 0x0000004000080060;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d1, %d2, 1, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
"""
OUTSIDE = "  ld.global.u32 %r7, [%d0+65536];\n"
CASES = {
    "strict": (UNINITIALISED, None, {"strict"}),
    "perf and strict": (UNINITIALISED + BARRIER, None, {"strict", "perf"}),
    "repaired and strict": (UNINITIALISED + PRODUCT, None, {"strict", "repaired"}),
    "strict before an error": (UNINITIALISED + RACE, "SMEM_RACE_RAW", {"strict", "error"}),
    "strict after an error": (RACE + UNINITIALISED, "SMEM_RACE_RAW", {"strict", "error"}),
    "strict and a fault": (UNINITIALISED + OUTSIDE, "GMEM_UNMAPPED", {"strict", "error"}),
    "an error, strict and a fault": (RACE + UNINITIALISED + OUTSIDE, "GMEM_UNMAPPED", {"strict", "error"}),
}
"""What a kernel does, the cause of its failure, and the severities of what is found."""


def ptx(body: str) -> str:
    return HEAD + body + "  ret;\n}\n"


def launched(body: str, schedule: Any = "late") -> Run:
    memory = Memory()
    return parse(ptx(body)).kernel().launch(
        memory, [memory.allocate(64)], block=(128, 1, 1), schedule=schedule
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("schedule", ["late", "early", "1", "2", "3"])
def test_errors_decide_what_exec_and_check_end_with(
    name: str, schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, cause, severities = CASES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.ptx").write_text(ptx(body))
    (tmp_path / "k.toml").write_text(
        'block = 128\nparams = [{ pointer = "out" }]\narrays.out = { format = "u32", shape = [16], distribution = "zeros" }\n'
    )
    status = int(cause is not None)
    told = answer("exec", "k.ptx", "--launch", "k.toml", "--schedule", schedule, status=status)
    assert told.rstrip().endswith(f"failed: {cause}" if cause else "completed; nothing is expected")
    found = data("check", "k.ptx", "--launch", "k.toml", "--schedule", schedule, "--orders", 0, status=status)
    assert {severity for severity, count in found["counts"].items() if count} == severities


@pytest.mark.parametrize("name", CASES)
def test_errors_decide_what_a_script_ends_with(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, cause, _ = CASES[name]
    (tmp_path / "s.py").write_text("import launches\nlaunches.launch()\n")

    @contextmanager
    def launcher(arch: str, **options: Any) -> Iterator[Session]:
        own = Session(arch, log=None)
        with own.memory.lent([], [(64, 16)]) as taken:
            params = [pointer.to_bytes(8, "little") for pointer in taken]

        def launch() -> None:
            own.launch(parse(ptx(body)).kernel(), (1, 1, 1), (128, 1, 1), (1, 1, 1), 0, [], lambda: params)

        monkeypatch.setitem(__import__("sys").modules, "launches", SimpleNamespace(launch=launch))
        yield own

    monkeypatch.setattr(script, "triton", launcher)
    status, session = script.run_script(str(tmp_path / "s.py"), [], "sm_90")
    assert status == int(cause is not None)
    assert session.summary().endswith(f"{status} with errors") and len(session.launches) == 1
    if not session.launches[0].run.completed:
        assert f"k stopped: {cause}" in str(LaunchFailed(session.launches[0]))


def test_the_cause_is_never_a_strict_finding() -> None:
    """Whatever stands last; and what ended a run stays last where the same was found before."""
    counted = 0
    for body, cause, _ in CASES.values():
        run = launched(body)
        assert (run.cause.name if run.cause else None) == cause
        assert run.completed or run.hazards[-1] is run.cause
        counted += 1
    assert counted == len(CASES)
    twice = [Hazard("TMA_MISALIGNED", "a", 7), Hazard("SMEM_RACE_RAW", "b", 8), Hazard("TMA_MISALIGNED", "a", 7)]
    assert [own.name for own in merged(twice)] == ["TMA_MISALIGNED", "SMEM_RACE_RAW"]
    assert [(own.name, own.count) for own in merged(twice, completed=False)] == [
        ("SMEM_RACE_RAW", 1),
        ("TMA_MISALIGNED", 2),
    ]


def test_the_worst_are_told_first() -> None:
    names = ["SMEM_UNINITIALISED", "WGMMA_MISSING_FENCE", "TRAP", "BARRIER_ORDERS_NOTHING", "DEADLOCK"]
    found = worst_first(Hazard(name, "") for name in names)
    assert [own.severity for own in found] == ["error", "error", "strict", "repaired", "perf"]
    assert [own.name for own in found][:2] == ["TRAP", "DEADLOCK"]
    assert list(SEVERITIES) == ["error", "strict", "repaired", "perf"]
    page = (Path(__file__).parents[2] / "docs" / "hazards.md").read_text()
    assert all(f"| `{severity}` |" in page for severity in SEVERITIES)
