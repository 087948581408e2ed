"""Lines of the source where helpers were inlined: hazards name the kernel's, findings of one cause are one, and breakpoints stop there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tcsim.ptx import Memory, Run, Session, parse
from tests.support.cli_runs import answer, data

SCHEDULES: tuple[str | int, ...] = ("late", "early", 1, 2, 3)
HEAD = """.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dyn[];
.visible .entry k(.param .u64 out)
{
  .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %d<3>;
  .shared .align 16 .b8 tile[1024];
  .shared .align 8 .b64 _ZZ1kPjE4full[4];
  .loc 1 40 3
  mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mad.lo.u32 %r3, %r1, 4, %r2; xor.b32 %r4, %r3, 128;
"""
TAIL = """  .loc 1 90 1
  ret;
}
.file 1 "src/gemm.cu"
.file 2 "/usr/include/helper.cuh"
.section .debug_str
{
INFO0:
.b8 104, 0
INFO1:
.b8 104, 0
}
"""
STORE = """  .loc 1 44 5
  .loc 1 20 3, function_name INFO0, inlined_at 1 44 5
  .loc 2 7 9, function_name INFO1, inlined_at 1 20 3
  st.shared.u32 [%r3+{at}], %r1;
"""
"""In a helper of a helper that is called in line 44."""
LOADS = """  .loc 1 {line} 5
  .loc 2 9 72, function_name INFO1, inlined_at 1 {line} 5
  ld.shared.u32 %r5, [%r4+{at}];
"""
BARRIER = "  .loc 1 48 3\n  bar.sync 0;\n"


def ptx(barrier: bool = False, loc: bool = True, lines: tuple[int, ...] = (52,) * 8 + (60,) * 8) -> str:
    """128 threads store, and load what others stored, sixteen times through one helper that is called in two lines."""
    body = "".join(STORE.format(at=512 * (number % 2)) for number in range(2)) + (BARRIER if barrier else "")
    body += "".join(LOADS.format(line=line, at=512 * (number % 2)) for number, line in enumerate(lines))
    source = HEAD + body + TAIL
    return (
        source if loc else "\n".join(own for own in source.split("\n") if not own.strip().startswith((".loc", ".file")))
    )


def launched(source: str, schedule: str | int = "late") -> Run:
    memory = Memory()
    return (
        parse(source)
        .kernel()
        .launch(memory, [memory.allocate(64)], block=(128, 1, 1), schedule=schedule, dynamic_smem=1024)
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_hazard_names_the_line_of_the_kernel_and_then_the_helpers(schedule: str | int) -> None:
    run = launched(ptx(), schedule)
    found = [own for own in run.errors if own.name == "SMEM_RACE_RAW"]
    assert {own.source for own in found} == {"src/gemm.cu:52", "src/gemm.cu:60"} and len(found) == 16
    for own in found:
        assert own.inlined == ("/usr/include/helper.cuh:9",) and own.other_source == "src/gemm.cu:44"
        assert own.other_inlined == ("src/gemm.cu:20", "/usr/include/helper.cuh:7")
        assert own.as_dict()["other_inlined"] == list(own.other_inlined)
        assert f"{own.source} > /usr/include/helper.cuh:9" in str(own)
    assert not launched(ptx(barrier=True), schedule).hazards


def test_a_fault_names_the_line_of_the_kernel_too() -> None:
    run = launched(ptx(barrier=True).replace("[%r4+0]", "[%r4+1000000]", 1))
    assert run.cause is not None and (run.cause.name, run.cause.source) == ("SMEM_OUT_OF_RANGE", "src/gemm.cu:52")
    assert run.cause.inlined == ("/usr/include/helper.cuh:9",)


@pytest.mark.parametrize(
    ("loc", "own", "inlined"),
    [
        (".loc 1 5 1", "a.cu:5", ()),
        (".loc 1 5 1, function_name L, inlined_at 1 9 2", "a.cu:9", ("a.cu:5",)),  # no .loc of that place comes before
        (".loc 1 5 1, function_name L+8, inlined_at 2 9 2", "b.h:9", ("a.cu:5",)),
        (".loc 1 9 2\n.loc 1 0 0, function_name L, inlined_at 1 9 2", "a.cu:9", ()),  # line 0: of nothing itself
        (".loc 1 0 0", None, ()),
        (".loc 1 5 1, function_name L, inlined_at 1 5 1", "a.cu:5", ()),
        (".loc 1 7 1\n.loc 1 5 1, function_name L, inlined_at 1 7 1\n.loc 1 5 1, function_name L, inlined_at 1 5 1", "a.cu:7", ("a.cu:5",)),
    ],
)  # fmt: skip
def test_chains_of_every_form(loc: str, own: str | None, inlined: tuple[str, ...]) -> None:
    """The same place twice in a row, as of recursion, is told once."""
    text = f'.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n{loc}\ntrap;\n}}\n.file 1 "a.cu"\n.file 2 "b.h"\n'
    run = parse(text).kernel().launch(Memory(), [])
    assert run.cause is not None and (run.cause.source, run.cause.inlined) == (own, inlined)


def test_a_deep_chain_is_told_in_part() -> None:
    """PTX is untrusted: a thousand functions inlined in one another are bounded."""
    chain = ".loc 1 1 1\n" + "".join(
        f".loc 1 {at + 1} 1, function_name L, inlined_at 1 {at} 1\n" for at in range(1, 1000)
    )
    text = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n{chain}trap;\n}}\n"
    run = parse(text).kernel().launch(Memory(), [])
    assert run.cause is not None and 10 < len(run.cause.inlined) < 100


def test_shared_variables_have_their_names() -> None:
    """Static, by element or by byte, of a C++ function, and dynamic."""
    run = launched(ptx())
    assert all("(tile" in own.message for own in run.errors)
    for address, name in (("%r2+1032", "full[1]"), ("dyn+64", "dyn + 64"), ("%r2", "tile")):
        place = address.replace("dyn", "%r6")
        body = f"  mov.u32 %r6, dyn; st.shared.u32 [{place}], %r1; ld.shared.u32 %r5, [{place}];\n"
        found = launched(HEAD + body + TAIL).errors
        assert found and f"({name})" in found[0].message, (name, [str(own) for own in found])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.ptx").write_text(ptx())
    (tmp_path / "bare.ptx").write_text(ptx(loc=False))
    (tmp_path / "right.ptx").write_text(ptx(barrier=True))
    (tmp_path / "k.toml").write_text(
        'block = 128\ndynamic_smem = 1024\nparams = [{ pointer = "out" }]\narrays.out = { format = "u32", shape = [16], distribution = "zeros" }\n'
    )
    return tmp_path


@pytest.mark.parametrize("verb", ["check", "exec"])
def test_findings_of_one_cause_are_shown_once(verb: str, folder: Path) -> None:
    """One for each line of the source that calls the helper; all of them with --all, and in JSON."""
    call: tuple[Any, ...] = (verb, "k.ptx", "--launch", "k.toml", *(("--orders", 0) if verb == "check" else ()))
    told = " ".join(answer(*call, status=1).split())
    assert told.count("SMEM_RACE_RAW") == (2 if verb == "check" else 3) and told.count("--all shows them") == 2
    assert told.count("(and 7 more of this cause") == 2
    assert "gemm.cu:52" in told and "gemm.cu:60" in told
    every = answer(*call, "--all", status=1)
    assert every.count("SMEM_RACE_RAW") >= 16 and "--all shows them" not in every
    found = data(*call, status=1)
    assert len(found["findings" if verb == "check" else "hazards"]) == 16
    bare = " ".join(answer(verb, "bare.ptx", *call[2:], status=1).split())
    assert bare.count("--all shows them") == 1  # without .loc those of the same instructions
    assert "SMEM_RACE_RAW" not in answer(verb, "right.ptx", *call[2:])


def test_what_check_says_of_two_causes(folder: Path) -> None:
    told = answer("check", "k.ptx", "--launch", "k.toml", "--orders", 0, status=1)
    assert "\n16 errors with 2 causes; races" in told and "src/gemm.cu:52 > /usr/include/helper.cuh:9 (PTX line" in told
    place = data("check", "k.ptx", "--launch", "k.toml", "--orders", 0, status=1)["findings"][0]["here"]
    assert place["source"] == "src/gemm.cu:52" and place["inlined"] == ["/usr/include/helper.cuh:9"]


def session(source: str) -> Session:
    memory = Memory()
    return parse(source).kernel().session(memory, [memory.allocate(64)], block=(128, 1, 1), dynamic_smem=1024)


@pytest.mark.parametrize(
    "place",
    ["gemm.cu:52", "src/gemm.cu:52", "./src/gemm.cu:52", "/home/me/src/gemm.cu:52", "helper.cuh:9", "/usr/include/helper.cuh:9", "gemm.cu:20", "gemm.cu:44", "52"],
)  # fmt: skip
def test_a_breakpoint_stops_at_a_line_that_something_was_inlined_at(place: str) -> None:
    """Of the kernel, of a helper and of one between; the file with folders or none."""
    own = session(ptx(barrier=True))
    number = own.break_at(place)
    assert own.never(number) == ""
    where = own.run()
    assert where.reason == f"breakpoint {number}: source line {place}" and not own.ended


@pytest.mark.parametrize(
    ("place", "source", "why"),
    [
        ("gemm.cu:53", ptx(), "nearest: 20, 40, 44, 52, 60"),
        ("other.cu:52", ptx(), "no instruction is of 'other.cu'; valid:"),
        ("lib/gemm.cu:52", ptx(), "valid:"),
        ("gemm.cu:52", ptx(loc=False), "compiled with -lineinfo"),
        ("gemm.cu:x", ptx(), "nearest:"),
    ],
)
def test_a_breakpoint_that_can_never_stop_says_why(place: str, source: str, why: str, folder: Path) -> None:
    own = session(source)
    number = own.break_at(place)
    assert why in own.never(number)
    own.run()
    assert own.ended
    (folder / "it.ptx").write_text(source)
    told = " ".join(answer("step", "it.ptx", "--launch", "k.toml", "-x", f"break {place}", "-x", "run").split())
    assert f"it never stops: {own.never(number)}"[:40] in told


def test_stepping_by_lines_goes_on_in_the_kernel() -> None:
    """Not into a helper and out of it: those lines are no others."""
    own = session(ptx(barrier=True))
    lines = []
    while not own.ended and len(lines) < 99:
        where = own.step_source()
        lines += [item.source for item in where.threads if item.next]
    assert lines and set(lines) <= {f"src/gemm.cu:{line}" for line in (40, 44, 48, 52, 60, 90)}
