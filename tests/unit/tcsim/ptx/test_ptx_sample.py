"""A launch with check="sample": some clusters are watched, named in `Run.checked`; all else is as with the complete check, and without one."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tcsim.inspection.object_reports import run_report
from tcsim.inspection.report import text_lines
from tcsim.launchers.launched import Launched, summary
from tcsim.launchers.session import Session
from tcsim.ptx import LaunchError, Limits, Memory, Run, parse
from tcsim.ptx import kernel as kernels
from tcsim.ptx.launch.grid import MOST_WATCHED
from tcsim.ptx.observer import Observer
from tests.support.ptx_copies import text
from tests.unit.tcsim.ptx.test_ptx_barriers import CANCEL
from tests.unit.tcsim.ptx.test_ptx_processes import (
    ACROSS,
    COUNTER,
    FLAG,
    OUT,
    PRINTF,
    PRINTS,
    SUMS,
    kernel,
)  # fmt: skip

WORDS = 1 << 12
SPREAD = (0, 9, 18, 27, 36, 45, 54, 63)
"""The blocks that are watched of 64."""
OWN = "mad.lo.u32 %r3, %r2, %r2, %r1; st.global.u32 [%rd1], %r3;"
RACE = """
    shl.b32 %r2, %r1, 6; add.u32 %r2, %r2, %r0; mul.wide.u32 %rd1, %r2, 4; add.s64 %rd1, %rd0, %rd1;
    mov.u32 %r3, smem; shl.b32 %r4, %r0, 2; add.u32 %r5, %r3, %r4; xor.b32 %r4, %r4, 128; add.u32 %r6, %r3, %r4;
    st.shared.u32 [%r5], %r2; setp.eq.u32 %p0, %r1, {block}; @%p0 bra READ; bar.sync 0;
    READ: ld.shared.u32 %r7, [%r6]; st.global.u32 [%rd1], %r7;
"""
"""One block of two warps leaves out its barrier."""
FAULT = "setp.eq.u32 %p0, %r1, {block}; st.global.u32 [%rd1], %r1; @%p0 ld.global.u32 %r3, [%rd0+65536];"


def ran(
    source: str, check: bool | str, grid: int = 64, block: int = 32, cluster: int = 1, **options: Any
) -> tuple[Run, bytes]:
    """A launch over 4,096 words, the last 128 of which hold their numbers; in one process, if nothing else is asked, however long it takes."""
    memory = Memory()
    memory.map(OUT, np.where(np.arange(WORDS) < WORDS - 128, 0, np.arange(WORDS)).astype(np.uint32).view(np.uint8))
    options.setdefault("limits", Limits(processes=1))
    run = parse(source).kernel().launch(
        memory, [OUT], (grid, 1, 1), (block, 1, 1), (cluster, 1, 1), check=check, **options
    )  # fmt: skip
    return run, memory.read(OUT, 4 * WORDS).tobytes()


def blocks(numbers: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    return tuple((number, 0, 0) for number in numbers)


@pytest.mark.parametrize("grid", range(1, MOST_WATCHED + 1))
def test_all_clusters_of_a_small_grid_are_watched(grid: int) -> None:
    run, _ = ran(kernel(OWN), "sample", grid)
    assert run.checked == blocks(range(grid)) and run.blocks == grid and not run.sampled


@pytest.mark.parametrize(
    ("grid", "watched"),
    [(9, (0, 1, 2, 3, 4, 5, 6, 8)), (16, (0, 2, 4, 6, 8, 10, 12, 15)), (64, SPREAD)],
)  # fmt: skip
def test_the_first_and_the_last_and_some_between_are_watched(grid: int, watched: tuple[int, ...]) -> None:
    run, _ = ran(kernel(OWN), "sample", grid)
    assert run.checked == blocks(watched) and run.sampled == f"only 8 of {grid} blocks were watched"
    assert [ran(kernel(OWN), check, grid)[0].checked for check in (True, False)] == [None, ()]


def test_a_grid_of_three_dimensions_and_clusters() -> None:
    """The blocks of a cluster are watched together, in the order of their ranks."""
    memory = Memory()
    run = parse(text("", "mov.u32 %r1, 0;")).kernel().launch(
        memory, [], (4, 2, 20), (32, 1, 1), (2, 1, 1), check="sample"
    )  # fmt: skip
    assert run.checked is not None and len(run.checked) == 2 * MOST_WATCHED and run.blocks == 160
    assert run.checked[:2] == ((0, 0, 0), (1, 0, 0)) and run.checked[-2:] == ((2, 1, 19), (3, 1, 19))


@pytest.mark.parametrize("block", range(26, 30))
def test_a_hazard_is_found_in_a_block_that_is_watched(block: int) -> None:
    source = kernel(RACE.format(block=block))
    found = [ran(source, check, block=64)[0] for check in (True, "sample", False)]
    names = [[(own.name, own.block, own.count) for own in run.hazards] for run in found]
    race = [("SMEM_RACE_RAW", (block, 0, 0), 1)]
    assert names == [race, race if block in SPREAD else [], []]
    assert found[1].batch == 8 and not found[1].alone


ALIKE: dict[str, tuple[str, dict[str, Any], int]] = {
    "words of its own": (kernel(OWN), {}, 8),
    "early": (kernel(OWN), {"schedule": "early"}, 8),
    "a random schedule": (kernel(OWN), {"schedule": 3}, 1),
    "cooperative": (kernel(OWN), {"cooperative": True}, 1),
    "clusters": (kernel(ACROSS), {"cluster": 2}, 8),
    "elements are followed": (kernel(OWN), {"origins": True}, 8),
    "a counter": (kernel(COUNTER), {}, 1),
    "sums": (kernel(SUMS), {}, 1),
    "sums of all blocks": (kernel(SUMS.replace("%rd2", "%rd0")), {}, 1),
    "printf": (kernel(PRINTS, PRINTF), {}, 1),
    "no room for a batch": (kernel(OWN), {"limits": Limits(batch=1, processes=1)}, 1),
    "batches of three": (kernel(OWN), {"limits": Limits(batch=3, processes=1)}, 3),
    "two processes": (kernel(OWN), {"limits": Limits(processes=2)}, 8),
    "a watched block waits for one that is not": (kernel(FLAG), {"grid": 16}, 2),
}  # fmt: skip
"""Launches by what is special about them: the kernel, its options, and how many blocks the largest batch has."""


@pytest.mark.parametrize("name", ALIKE)
def test_as_with_the_complete_check_and_without(name: str) -> None:
    source, options, batch = ALIKE[name]
    every = [ran(source, check, **options) for check in (True, "sample", False)]
    said = [(run.completed, run.hazards, run.inexact, run.output, run.instructions, left) for run, left in every]
    assert said[0][0] and said[0] == said[1] == said[2]
    assert every[1][0].batch == batch and every[1][0].processes == every[2][0].processes
    numbers = (0, 2, 4, 6, 8, 10, 12, 15) if options.get("grid") else SPREAD
    if "cluster" not in options:
        assert set(every[1][0].checked or ()) == set(blocks(numbers))


@pytest.mark.parametrize("schedule", ["late", "early"])
def test_work_that_is_taken_from_clusters_that_have_not_started(schedule: str) -> None:
    """What never starts is not watched."""
    left, runs = [], []
    for check in (True, "sample"):
        memory = Memory()
        memory.map(OUT, np.zeros(20 * 128, np.uint8))
        runs.append(
            parse(CANCEL).kernel().launch(memory, [OUT], (20, 1, 1), (32, 1, 1), schedule=schedule, check=check)
        )
        left.append(memory.read(OUT, 20 * 128).tolist())
    assert left[0] == left[1] and runs[0].instructions == runs[1].instructions
    assert runs[1].checked == blocks((0, 2, 5, 8, 10, 13, 16, 19) if schedule == "early" else (0,))


@pytest.mark.parametrize("block", [0, 20, 27, 63])
def test_a_fault_ends_the_run_wherever_it_is(block: int) -> None:
    source = kernel(FAULT.format(block=block))
    (whole, before), (run, after), (plain, _) = (ran(source, check) for check in (True, "sample", False))
    assert not run.completed and after == before and run.instructions == whole.instructions
    assert [own.as_dict() for own in run.hazards] == [own.as_dict() for own in plain.hazards]
    assert (run.hazards[-1].name, run.hazards[-1].block) == ("GMEM_UNMAPPED", (block, 0, 0))
    assert run.hazards[-1].line == whole.hazards[-1].line and run.hazards[-1].thread == whole.hazards[-1].thread
    assert run.checked == blocks([own for own in SPREAD if own <= block])


def test_a_limit_in_a_block_that_is_not_watched() -> None:
    source = kernel(OWN)
    steps = ran(source, False, 1)[0].instructions
    run, _left = ran(source, "sample", limits=Limits(instructions=steps * 12 + 1))
    assert [(own.name, own.block) for own in run.hazards] == [("LIMIT", (12, 0, 0))]
    assert run.checked == blocks((0, 9))


# --- wrong use


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"check": "some"}, "check='some'; valid: True, False or \"sample\""),
        ({"check": "sample", "races": True}, 'check="sample" with races=True; valid: True'),
        ({"check": "sample", "observe": lambda _: Observer()}, 'check="sample" with observe=; valid: True or False'),
    ],
)
def test_what_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError) as caught:
        ran(kernel(OWN), **options)
    assert said in str(caught.value)


def test_a_session_watches_all_or_nothing() -> None:
    with pytest.raises(LaunchError, match='check="sample" of a session; valid: True or False'):
        parse(text("", "mov.u32 %r1, 0;")).kernel().session(Memory(), [], check="sample")  # type: ignore[arg-type]


# --- what is said


def test_reports_say_how_many_blocks_were_watched() -> None:
    said = "only 8 of 64 blocks were watched"
    for block, hazards in ((3, f"no hazards; {said}"), (9, f"Hazards; {said}")):
        run, _ = ran(kernel(RACE.format(block=block)), "sample", block=64)
        assert hazards in "\n".join(line.text for line in text_lines(run_report(run)))
        own = Launched("k", (64, 1, 1), (64, 1, 1), (1, 1, 1), 0, run, 0.0)
        assert own.line().endswith(said) and summary([own, own]).endswith("; only 16 of 128 blocks were watched")
        assert own.as_dict()["checked"] == [list(one) for one in blocks(SPREAD)]
        (log,) = run.sarif()["runs"]
        assert log["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == said
    every, _ = ran(kernel(OWN), True)
    assert not every.sampled and "invocations" not in every.sarif()["runs"][0]


def test_the_launches_of_a_program() -> None:
    log, source = io.StringIO(), text("", "mov.u32 %r1, 0;")
    session = Session("sm_90", log=log, check="sample")
    session.launch(parse(source).kernel(), (64, 1, 1), (32, 1, 1), (1, 1, 1), 0, [], list)
    assert log.getvalue().strip().endswith("only 8 of 64 blocks were watched")
    assert session.summary().endswith("0 with errors; only 8 of 64 blocks were watched")


def test_clusters_that_were_observed_until_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many whether blocks run one by one or in batches: a mend is kept if it mends each of them."""
    told: list[int] = []
    before = kernels.merged

    def merged(hazards: Any, completed: bool, clusters: int) -> Any:
        told.append(clusters)
        return before(hazards, completed, clusters)

    monkeypatch.setattr(kernels, "merged", merged)
    for batch in (1, 8):
        run, _ = ran(kernel(FAULT.format(block=40)), True, limits=Limits(batch=batch))
        assert not run.completed
    assert told == [41, 41]
