"""The timeline of a block: lanes, phases, work in flight, and the page that holds them."""

from __future__ import annotations

import json
import re
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcsim.cli.app import app
from tcsim.inspection.timeline_page import timeline_page
from tcsim.launchers import script
from tcsim.launchers.check import of_session
from tcsim.launchers.check import page as page_of
from tcsim.launchers.host_memory import HostArray
from tcsim.launchers.session import Session
from tcsim.ptx import Memory, Run, parse
from tcsim.ptx.timeline import KINDS, MOST_SPANS, Span, Timeline
from tests.hazards.kernels import KERNELS, LOAD, STORE, WARPGROUPS, Kernel
from tests.support.cli_runs import RUNNER, answer, refusal
from tests.support.ptx_copies import text


def drawn(kernel: Kernel, defect: str = "", block: tuple[int, int, int] = (0, 0, 0)) -> tuple[Timeline, Run]:
    """A planted kernel with its timeline."""
    memory, timeline = Memory(), Timeline(block)
    pointers = [memory.allocate(np.arange(1024, dtype=np.uint32).view(np.uint8)) for _ in range(2)]
    run = parse(kernel.without(defect)).kernel().launch(
        memory, pointers, grid=(kernel.blocks, 1, 1), block=(kernel.threads, 1, 1), cluster=(kernel.blocks, 1, 1), observe=timeline.observer
    )  # fmt: skip
    return timeline, run


def of(timeline: Timeline, lane: str) -> list[Span]:
    """The spans of a lane."""
    return [span for span in timeline.spans if span.lane == lane]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda own: own.name)
def test_every_block_has_a_timeline(kernel: Kernel) -> None:
    """Of the last block: each warp has a lane and ends; spans lie in time; hazards are those of a launch without a timeline."""
    for defect in ("", kernel.defects[0]):
        timeline, run = drawn(kernel, defect, (kernel.blocks - 1, 0, 0))
        warps = [f"warp {number}" for number in range(-(-kernel.threads // 32))]
        assert timeline.lanes[: len(warps)] == warps and timeline.threads == kernel.threads
        if run.completed:
            assert all(of(timeline, warp)[-1].kind == "exit" for warp in warps)
        assert all(0 <= span.start <= span.end <= timeline.ticks and span.kind in KINDS for span in timeline.spans)
        memory = Memory()
        pointers = [memory.allocate(np.arange(1024, dtype=np.uint32).view(np.uint8)) for _ in range(2)]
        shape: Any = {"grid": (kernel.blocks, 1, 1), "block": (kernel.threads, 1, 1), "cluster": (kernel.blocks, 1, 1)}
        plain = parse(kernel.without(defect)).kernel().launch(memory, pointers, **shape)
        assert [own.as_dict() for own in plain.hazards] == [own.as_dict() for own in run.hazards]


def test_a_copy_and_its_barrier() -> None:
    """A copy is in flight from its instruction until it lands; its bytes end phase 0 of the mbarrier, for which the warps wait."""
    timeline, _ = drawn(LOAD)
    (copy,) = of(timeline, "TMA")
    assert (
        copy.kind == "work"
        and copy.text.endswith("256 bytes at 0x400")
        and copy.stage == 0
        and timeline.stages == [range(0x400, 0x500)]
    )
    barrier = next(lane for lane in timeline.lanes if lane.startswith("mbarrier"))
    first, second = [span for span in of(timeline, barrier) if span.kind == "phase"][:2]
    assert (first.text, second.text) == (
        "phase 0",
        "phase 1",
    ) and first.start < copy.start < first.end == second.start <= copy.end
    assert [span.text for span in of(timeline, barrier) if span.kind == "signal"][:4] == [
        "init", "bytes expected: 256", "arrive", "bytes delivered: 256",
    ]  # fmt: skip
    for warp in ("warp 0", "warp 1"):
        waits = [span for span in of(timeline, warp) if span.kind == "wait" and span.end > copy.start]
        assert waits and waits[0].end > first.end


def test_products_are_on_a_lane_of_their_own() -> None:
    timeline, _ = drawn(WARPGROUPS)
    products = of(timeline, "tensor core")
    assert len(products) == 2 and all(span.read is not None and span.start < span.read < span.end for span in products)


def test_waits_begin_where_a_warp_came() -> None:
    """At a barrier that it came to first; one that does nothing but wait has waited for a moment."""
    body = "mov.u32 %r, %tid.x; setp.lt.u32 %p, %r, 32; @%p bra LATE; bar.sync 0; bra E; LATE: st.shared.u32 [sh], %r; bar.warp.sync -1; bar.sync 0; E: ret;"
    timeline = Timeline()
    head = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {"
    text = f"{head} .reg .pred %p; .reg .b32 %r; .shared .b32 sh; {body} }}"
    parse(text).kernel().launch(Memory(), [], (1, 1, 1), (64, 1, 1), observe=timeline.observer)
    (early,), (late,) = (
        [span for span in of(timeline, f"warp {warp}") if span.text == "waits at barrier 0"] for warp in (1, 0)
    )
    first = next(span for span in timeline.spans if span.lane == "barrier 0")
    assert min(early.start, late.start) == first.start < early.end and early.start != late.start
    body = (
        "setp.ge.u32 %p, %r, 32; @%p bra W; mbarrier.init.shared.b64 [sh], 32; mbarrier.arrive.shared.b64 _, [sh]; ret;"
    )
    text = f"{head} .reg .pred %p; .reg .b32 %r; .shared .b64 sh; mov.u32 %r, %tid.x; {body} W: mbarrier.try_wait.parity.shared.b64 %p, [sh], 0; @!%p bra W; ret; }}"
    timeline = Timeline()
    parse(text).kernel().launch(Memory(), [], (1, 1, 1), (64, 1, 1), observe=timeline.observer)
    seen = of(timeline, "warp 1")[0]
    assert seen.kind == "wait" and seen.end == seen.start + 1


def test_a_long_run_is_cut() -> None:
    timeline = Timeline()
    for number in range(MOST_SPANS + 5):
        timeline.add(Span("warp 0", number, number + 1, "read", 1, "ld"))
    assert len(timeline.spans) == MOST_SPANS and timeline.left_out == 5


def test_the_page_holds_it_and_is_small() -> None:
    """Its data have every span once, the two lines of the hazard, and nothing that is loaded from elsewhere."""
    timeline, run = drawn(STORE, "PROXY_FENCE_MISSING")
    page = timeline_page(timeline, run)
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page)
    assert found is not None and "https://" not in page and len(page) < 60_000
    data = json.loads(found[1])
    assert len(data["spans"]) == len(timeline.spans) and [lane["name"] for lane in data["lanes"]] == timeline.lanes
    hazard = data["hazards"][0]
    assert hazard["name"] == "PROXY_FENCE_MISSING" and {str(hazard["line"]), str(hazard["other"])} <= set(data["lines"])
    lines = {span[5] for span in data["spans"]}
    assert {hazard["line"], hazard["other"]} <= lines
    overlaps = 0
    for lane in range(len(data["lanes"])):
        for row in range(data["lanes"][lane]["rows"]):
            own = sorted(
                (span[2], span[3])
                for span in data["spans"]
                if span[:2] == [lane, row] and data["kinds"][span[4]] == "work"
            )
            overlaps += sum(start < end for (_, end), (start, _) in pairwise(own))
    assert not overlaps


RACE = text(
    ".param .u64 a", "ld.param.u64 %rd1, [a]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0;\n@%p1 st.global.u32 [%rd1], %r0;\n@!%p1 ld.global.u32 %r2, [%rd1];"
)  # fmt: skip


@pytest.mark.parametrize("block", [0, 1])
def test_the_page_of_either_block_has_both_instructions_of_a_race(block: int) -> None:
    """That of the other block in a lane of its own: before everything if it came first, else behind."""
    memory, timeline = Memory(), Timeline((block, 0, 0), races=True)
    run = (
        parse(RACE)
        .kernel()
        .launch(memory, [memory.allocate(128)], grid=(2, 1, 1), block=(32, 1, 1), observe=timeline.observer)
    )
    (hazard,) = run.hazards
    assert hazard.name == "GMEM_RACE" and hazard.block == (1, 0, 0)
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', timeline_page(timeline, run))
    assert found is not None
    data = json.loads(found[1])
    lanes = [own["name"] for own in data["lanes"]]
    (other,) = (own for own in data["spans"] if lanes[own[0]] == f"block {1 - block},0,0")
    assert other[5] == (hazard.other_line if block else hazard.line) and other[2] == (0 if block else timeline.ticks)
    here = {own[5] for own in data["spans"] if lanes[own[0]] == "warp 0"}
    assert (hazard.line if block else hazard.other_line) in here and other[3] <= data["ticks"]


def test_the_largest_page_is_below_500_kb() -> None:
    run = Run(True, [], {}, kernel="k", text="\n".join(f"mov.u32 %r{line}, {'1' * 300};" for line in range(800)))  # type: ignore[arg-type]
    timeline = Timeline(threads=1024)
    for number in range(MOST_SPANS):
        timeline.add(
            Span(
                f"warp {number % 32}",
                10**5 + number,
                10**5 + number + 1,
                "work",
                number % 800 + 1,
                "x" * 60 + str(number % 900),
                3,
                10**5,
            )
        )
    assert 100_000 < len(timeline_page(timeline, run)) < 500_000


def test_the_command_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the block of the first hazard, or of the one that is asked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store.ptx").write_text(STORE.without("PROXY_FENCE_MISSING"))
    arrays = ", ".join(f'{name} = {{ format = "u32", shape = [1024], distribution = "range" }}' for name in "ab")
    (tmp_path / "launch.toml").write_text(
        f'block = 64\ngrid = 2\nparams = [{{ pointer = "a" }}, {{ pointer = "b" }}]\narrays = {{ {arrays} }}\n'
    )
    given = ("check", "store.ptx", "-l", "launch.toml", "--timeline", "page.html")
    answer(*given, status=1)
    assert "block 0,0,0" in (tmp_path / "page.html").read_text()
    answer(*given, "--block", "1", status=1)
    assert "block 1,0,0" in (tmp_path / "page.html").read_text()
    assert "no block (2,) in a grid of 2" in refusal(*given, "--block", "2")
    assert "without --timeline" in refusal(*given[:4], "--block", "1")
    assert RUNNER.invoke(app, [*given[:5], "no/page.html"]).exit_code == 2


def session_of(*defects: str, schedule: str = "late") -> Session:
    """A program that launches copies, each of two blocks and with a defect or none."""
    session = Session("sm_90", schedule, log=None, timeline=True)
    arrays = [HostArray(np.arange(1024, dtype=np.uint32)) for _ in range(2)]
    for defect in defects:
        kernel = parse(STORE.without(defect) if defect else STORE.source).kernel()
        session.launch(
            kernel, (2, 1, 1), (STORE.threads, 1, 1), (1, 1, 1), 0, arrays, lambda: [own.data_ptr().to_bytes(8, "little") for own in arrays]
        )  # fmt: skip
    return session


@pytest.mark.parametrize(
    ("defects", "number"), [(("", ""), 0), (("", "PROXY_FENCE_MISSING", ""), 1), (("PROXY_FENCE_MISSING",), 0)]
)
def test_a_session_keeps_the_launch_to_show(defects: tuple[str, ...], number: int) -> None:
    """The first with a hazard of a block, else the first; run again, it has the same hazards, and the program's memory is left alone."""
    session = session_of(*defects)
    assert session.shown is not None and session.shown[1] is session.launches[number].run
    shown = of_session(session).shown
    assert shown is not None and tuple(shown.block) == (session.launches[number].run.hazard_block or (0, 0, 0))
    found = page_of(shown)
    assert all(own.name in found for own in session.launches[number].run.hazards) and "block 0,0,0" in found
    assert "stage" in found and "TMA" in found


def test_the_timeline_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the launch with the first hazard, under its schedule; a script that launches nothing has none. tests/on_triton has real scripts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("")
    program = {"late": ("",), "early": ("", "PROXY_FENCE_MISSING")}

    def run(path: str, words: object, arch: str, schedule: str, **kept: bool) -> tuple[int, Session]:
        assert kept == {"timeline": True, "races": False, "check": True, "witnesses": True, "says": False}
        return 0, session_of(*program[schedule], schedule=schedule)

    monkeypatch.setattr(script, "run_script", run)
    given = (
        "check",
        "own.py",
        "--arch",
        "sm_90",
        *("--schedule", "late", "--schedule", "early"),
        "--timeline",
        "page.html",
    )
    answer(*given, status=1)
    assert "PROXY_FENCE_MISSING" in (tmp_path / "page.html").read_text()
    answer(*given, "--block", "1", status=1)
    assert "block 1,0,0" in (tmp_path / "page.html").read_text()
    program["late"] = program["early"] = ()
    assert "launched nothing" in refusal(*given)


def test_a_colour_means_one_kind_of_event() -> None:
    """Every kind has a fill, and no two the same; nothing but its kind colours a bar."""
    css = (resources.files("tcsim.inspection") / "assets" / "timeline.css").read_text(encoding="utf-8")
    fills = re.findall(r"^\.k-(\w+)(?:\.odd)? \{ fill: ([^;]+);", css, re.MULTILINE)
    assert {kind for kind, _ in fills} == set(KINDS) and len({fill for _, fill in fills}) == len(fills) == len(
        KINDS
    ) + 1
    hues = [
        int(found[1]) for _, fill in fills if (found := re.match(r"hsl\((\d+)", fill)) and fill != "hsl(50 80% 40%)"
    ]
    assert all(after - before >= 20 for before, after in pairwise(sorted(hues)))
    assert "style" not in re.findall(r"const shown = make\(.*?\}\);", page_script(), re.DOTALL)[0]


def page_script() -> str:
    return (resources.files("tcsim.inspection") / "assets" / "timeline.js").read_text(encoding="utf-8")
