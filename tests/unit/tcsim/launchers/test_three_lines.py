"""What `check`, `exec`, `profile` and `step` say by default: cause, place and mend, with the lines of the source; -v has the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_runs import answer, data

HEAD = '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "FOLDER/k.cu"\n'
STORE = """.visible .entry store(.param .u64 x)
{
  .reg .b64 %d<3>; .reg .b32 %r<2>;
  ld.param.u64 %d0, [x]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1;
  .loc 1 3 1
  st.global.u32 [%d2], %r0;
  ret;
}
"""
COUNT = """.visible .entry count(.param .u64 x)
{
  .reg .b64 %d<2>; .reg .b32 %r<2>;
  ld.param.u64 %d0, [x];
  .loc 1 3 1
  ld.global.u32 %r0, [%d0+4]; add.u32 %r0, %r0, 1;
  st.global.u32 [%d0+4], %r0;
  ret;
}
"""
HANG = """.visible .entry hang(.param .u64 x)
{
  .reg .b64 %s; .reg .pred %p; .reg .b32 %r<2>; .shared .align 8 .b64 bar;
  mov.u32 %r0, bar; mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0;
  @%p bra READY;
  mbarrier.init.shared.b64 [%r0], 40;
READY:
  bar.sync 0;
  .loc 1 2 1
  mbarrier.arrive.shared.b64 %s, [%r0];
  .loc 1 3 1
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [%r0], 0;
  @!%p bra WAIT;
  ret;
}
"""
NAMED = """.visible .entry named(.param .u64 x)
{
  .reg .pred %p; .reg .b32 %r<2>;
  mov.u32 %r0, %tid.x; setp.ge.u32 %p, %r0, 64;
  @%p bra OTHERS;
  .loc 1 2 1
  bar.arrive 1, 64;
  ret;
OTHERS:
  .loc 1 3 1
  bar.sync 1, 128;
  ret;
}
"""
COLUMNS = """.visible .entry columns(.param .u64 x)
{
  .reg .b32 %r<5>; .shared .align 16 .b8 tile[8192];
  mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 128, %r1;
  .loc 1 3 1
  ld.shared.u32 %r3, [%r2];
  ld.shared.u32 %r4, [%r2+4];
  ret;
}
"""
TWICE = """.visible .entry twice(.param .u64 x)
{
  .reg .b32 %r<8>; .shared .align 4 .b8 tile[256];
  mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1; xor.b32 %r3, %r2, 64;
  st.shared.u32 [%r2], %r0;
  ld.shared.u32 %r4, [%r3];
  st.shared.u32 [%r2+128], %r4;
  ld.shared.u32 %r5, [%r3+128];
  ret;
}
"""
SOURCE = "__global__ void k(unsigned *x) {\n    arrive(bar);\n    the_third_line();\n}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("store", STORE),
        ("count", COUNT),
        ("hang", HANG),
        ("named", NAMED),
        ("columns", COLUMNS),
        ("twice", TWICE),
    ):
        (tmp_path / f"{name}.ptx").write_text(HEAD.replace("FOLDER", str(tmp_path)) + text)
    (tmp_path / "k.cu").write_text(SOURCE)
    (tmp_path / "k.toml").write_text(
        'block = 32\ngrid = 2\nparams = [{ pointer = "x" }]\narrays.x = { format = "u32", shape = [16], distribution = "zeros" }\n'
    )
    return tmp_path


def said(*given: Any, status: int = 1) -> list[list[str]]:
    """The findings of an answer, each as its lines."""
    parts = [part.splitlines() for part in answer(*given, status=status).split("\n\n")]
    found = [[line for line in part if line[:7] in ("cause  ", "place  ", "mend   ")] for part in parts]
    assert all(len(part) == len(own) for part, own in zip(parts, found, strict=True) if part[0].startswith("cause"))
    return [own for own in found if own]


@pytest.mark.parametrize("command", ["check", "exec"])
def test_an_access_to_nothing_names_the_array_before_it(command: str, folder: Path) -> None:
    ((cause, place, mend),) = said(command, "store.ptx", "--launch", "k.toml")
    assert "GMEM_UNMAPPED: 4 bytes at 0x" in cause and "(x + 64; x has 64 bytes)" in cause
    assert place == "place  k.cu:3 (PTX line 10, block 0,0,0 warp 0 lane 16): the_third_line()"
    assert mend.startswith("mend   Print the address")


@pytest.mark.parametrize("command", ["check", "exec"])
def test_a_hang_is_said_once_at_the_lines_of_the_source(command: str, folder: Path) -> None:
    """The deadlock belongs to the error that explains it; --all and JSON have both."""
    ((cause, place, _),) = said(command, "hang.ptx", "--launch", "k.toml")
    assert "MBAR_ARRIVE_MISSING: warp 0 waits forever" in cause and "mbarrier.arrive" in cause and "(k.cu:2)" in cause
    assert place.startswith("place  k.cu:3 (PTX line 17, block 0,0,0 warp 0 lane 0): the_third_line()")
    assert f"1 more {'that go with it' if command == 'check' else 'of this cause'}: --all" in place
    assert len(said(command, "hang.ptx", "--launch", "k.toml", "--all")) == 2
    found = data(command, "hang.ptx", "--launch", "k.toml", status=1)["findings" if command == "check" else "hazards"]
    deadlock = next(own for own in found if own["name"] == "DEADLOCK")
    assert "line 17, k.cu:3: waits for phase 0" in deadlock["message"]
    assert (deadlock["here"] if command == "check" else deadlock)["source"].endswith("k.cu:3")


@pytest.mark.parametrize("command", ["check", "diagnose"])
def test_what_threads_wait_for_comes_before_what_may_happen_in_another_order(command: str, folder: Path) -> None:
    (folder / "four.toml").write_text((folder / "k.toml").read_text().replace("block = 32", "block = 128"))
    (cause, place, mend), *_ = said(command, "named.ptx", "--launch", "four.toml")
    assert "BARRIER_COUNT: warp 2 waits forever: barrier 1 is for 128 threads, and 64 are left" in cause
    assert "k.cu:3 (PTX line 15" in place and "`bar.arrive 1, 128;` instead of `bar.arrive 1, 64;`" in mend
    assert mend.endswith("tried, and the launch ends and check finds no error")


def test_a_race_says_which_access_came_first_and_that_an_atomic_would_do(folder: Path) -> None:
    """Of a line that reads and writes both lines of PTX stand behind it; without --races the answer says that nobody looked."""
    every = said("check", "count.ptx", "--launch", "k.toml", "--races")
    (cause, place, mend), *_ = every
    assert "GMEM_RACE: " in cause and "(x + 4)" in cause and "line 10" not in cause
    assert place.startswith("place  k.cu:3 (PTX line 10 after 11)") and "one atomic (atomicAdd" in mend
    shown = answer("check", "count.ptx", "--launch", "k.toml")
    assert shown.endswith("race in shared memory; races in global memory were not looked for (--races)\n")
    whole = answer("check", "count.ptx", "--launch", "k.toml", "--races", "-v", status=1)
    assert "section  Conflict and Data-races" in whole and "place  " not in whole


def test_a_profile_is_of_lines_of_the_source(folder: Path) -> None:
    """Two loads of an unrolled line are one cause and one row; every counter with -v; --compare shows nothing but changes."""
    ((cause, place, mend),) = said("profile", "columns.ptx", "--launch", "k.toml", status=0)
    assert (
        cause.endswith("in each of 2 instructions")
        and mend == "mend   pad rows of 128 bytes by 4: 1 instead of 32 wavefronts"
    )
    assert place == "place  k.cu:3 (PTX lines 10, 11): the_third_line()"
    shown = answer("profile", "columns.ptx", "--launch", "k.toml")
    assert shown.count("the_third_line()") == 2 and "k.cu:3     128" in shown and "ptx__inst" not in shown
    assert "ptx__inst_executed.sum" in answer("profile", "columns.ptx", "--launch", "k.toml", "-v")
    (folder / "before.json").write_text(answer("profile", "columns.ptx", "--launch", "k.toml", "--json"))
    (folder / "columns.ptx").write_text((folder / "columns.ptx").read_text().replace(", 128, %r1", ", 132, %r1"))
    compared = answer("profile", "columns.ptx", "--launch", "k.toml", "--compare", "before.json")
    assert compared.startswith("columns: before and after\n") and "-97 %" in compared and "launch" not in compared


def test_the_stepper_says_a_hang_in_three_lines(folder: Path) -> None:
    shown = answer("step", "hang.ptx", "--launch", "k.toml", "-x", "run")
    assert [shown.count(f"\n{name}") for name in ("cause", "place", "mend")] == [
        1,
        1,
        1,
    ] and "MBAR_ARRIVE_MISSING" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_two_mistakes_are_mended_together(folder: Path) -> None:
    """No mend of one is right; with those that helped, both are."""
    ((cause, place, mend),) = said("diagnose", "twice.ptx", "--launch", "k.toml")
    assert "WARP_SYNC_MISSING" in cause and "line 10: ld.shared.u32 %r4, [%r3], after line 9: st.shared" in place
    first, second = (f"`bar.warp.sync 0xffffffff;` before line {line}" for line in (10, 12))
    assert mend == f"mend   {first} and {second}: tried, and the launch ends and check finds no error"
