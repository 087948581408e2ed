"""`tcsim step`: the commands, at a prompt, in a file, as JSON and on a screen; the three wrong kernels are found with it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tcsim.cli.app import app
from tcsim.inspection.stepping import COMMANDS, Console
from tests.support.stepped_kernels import NAMES, Launched, files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(*words: str, typed: str = "", status: int = 0) -> str:
    """What `tcsim step` writes."""
    result = CliRunner().invoke(
        app, ["step", *words], input=typed, env={"COLUMNS": None, "NO_COLOR": "1"}, prog_name="tcsim"
    )
    assert result.exit_code == status, result.output
    assert status == 2 or "--json" in words or max(map(len, result.output.splitlines()), default=0) <= 80
    return result.output


def of(name: str) -> tuple[str, ...]:
    return f"{name}.ptx", "--launch", f"{name}.toml"


FOUND = {
    "transposed": ("why c[0, 1]", "B[0:16, 1] <- b[1, 0:8], b[9, 0:8]"),
    "late": ("why c[0, 1]", "was in flight to these bytes: nothing waited for it"),
    "swizzled": ("why c[9, 1]", "A[9, 0:16] x4 <- a[4, 0:32], a[5, 32:64]"),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_wrong_kernel_is_found_and_its_mended_twin_is_not(name: str, folder: Path) -> None:
    command, said = FOUND[name]
    assert said in called(*of(name), "-x", "run", "-x", command)
    (folder / f"{name}.ptx").write_text(Launched(name, wrong=False).ptx, encoding="utf-8")
    assert said not in called(*of(name), "-x", "run", "-x", command)


def test_every_command_answers_in_text_and_as_json(folder: Path) -> None:
    commands = """
    break 41            # the first product
    break mbarrier 0x2800 1
    break if %lane 3 == 3 # never: it is written in the first lines, so this stops there
    break
    delete 3
    run
    run
    where
    list 2
    reg %r1 warp 1 as s32
    fragment 41 a
    shared 1024 64 swizzle 128B
    tile 1024 2 8 f16 pitch 128 swizzle 128B
    tile descriptor 0x4000004000000040 8 16 f16
    mbarriers
    groups
    tmem 0 2 as f32
    memory
    memory b
    hazards
    step 2 warp 1
    source
    run 51
    groups
    back 2
    goto 3
    restart
    s
    run if %f0 0 != 0.0
    delete 1
    delete 2
    run hazard
    run
    why c[9, 1]
    expand 1.1.1
    why 1024
    why 41 %f1 0
    why 60 %rd11 3
    help
    quit
    where
    """
    (folder / "commands").write_text(commands, encoding="utf-8")
    text = called(*of("swizzled"), "--commands", "commands")
    data = json.loads(called(*of("swizzled"), "--commands", "commands", "--json"))
    answers = data["answers"]
    assert (data["verb"], data["schema"], data["file"]) == ("step", 1, "swizzled.ptx")
    assert [f"(tcsim) {own['command']}" for own in answers] == [
        line for line in text.splitlines() if line.startswith("(tcsim) ")
    ]
    refused = [own["command"] for own in answers if own["failed"]]
    assert refused == [], [own["answer"] for own in answers if own["failed"]]
    assert {own["command"].split()[0] for own in answers} >= set(COMMANDS) - {"s"} and answers[-1]["command"] == "quit"
    by = {own["command"]: own["answer"] for own in answers}
    assert by["mbarriers"][0]["bytes"] == 0 and by["mbarriers"][0]["phase"] == 1 and by["groups"][0]["kind"] == "wgmma"
    assert by["memory b"]["values"] == Launched("swizzled").array("b").tolist()
    assert by["why c[9, 1]"]["tree"][0]["children"][0]["executions"] == 4


def test_what_is_wrong_is_said_in_a_line_or_two(folder: Path) -> None:
    for command, said in (
        ("foo", "no command 'foo'; nearest: "), ("step x", "'x'; valid: an integer"), ("run nowhere", "valid: a line, file:line"),
        ("reg", "valid: reg NAME"), ("fragment 3 a", "valid: an instruction on matrices"), ("why z[0]", "valid: an element of a, b, c"),
        ("expand 1", "valid: after why"), ("delete 9", "valid: there is none"), ("memory d", "no array 'd'; valid: a, b, c"),
        ("shared 0 99999999", "valid: 0 to"), ("tile 0 99999999 99999999 f16", "valid: 1 to 65536"), ("reg %r1 warp", "nothing stands behind warp"), ("break if %f0 0 = 3", "valid: =="),
        ("back -1x", "valid: an integer"), ("tile 0 1 2 f99", "no number format"),
    ):  # fmt: skip
        out = called(*of("transposed"), "-x", command, status=1)
        assert said in " ".join(out.split()), (command, out)


def test_wrong_use_is_one_line_and_status_2(folder: Path) -> None:
    assert "step: 'late.ptx' needs --launch" in called("late.ptx", status=2)
    assert "no file 'nothing'" in called(*of("late"), "--commands", "nothing", status=2)
    assert "valid: with --commands or --execute" in " ".join(called(*of("late"), "--json", status=2).split())


def test_a_prompt_reads_lines_and_repeats_the_last(folder: Path) -> None:
    out = called(*of("transposed"), typed="s\n\nbogus\nq\n")
    assert (
        "stepped, 1 instructions begun" in out
        and "stepped, 2 instructions begun" in out
        and "no command 'bogus'" in out
    )
    assert out.startswith("       4  .visible .entry product") and "=>     9    ld.param.u64 %pa, [a];" in out


def test_a_recorded_launch(folder: Path) -> None:
    path = Path(__file__).resolve().parents[3] / "data" / "launches" / "triton_softmax.npz"
    out = called(str(path), "--arch", "sm_90", "-x", "break triton_softmax.py:1", "-x", "run", "-x", "why buf1[64]")
    assert "ended, 920 instructions begun" in out and "line 242 triton_kernels.py:13: @%p1 st.global.b32" in out


def test_the_screen_shows_where_it_stands_and_takes_keys_and_commands() -> None:
    pytest.importorskip("textual", reason="the extra desk is not installed")
    from tcsim.cli.step_screen import Screen

    console = Console(Launched("transposed").session())
    screen = Screen(console)

    def shown() -> list[str]:
        strips: Any = screen.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    async def used() -> None:
        async with screen.run_test(size=(80, 24)) as pilot:
            assert any(line.startswith("=>     9    ld.param.u64 %pa") for line in shown())
            await pilot.press("f10", "f8", "f7")
            assert console.session.position == 1
            await pilot.press(*"run 39", "enter")
            await pilot.press("f5")
            await pilot.press(*"why c", "left_square_bracket", *"0,1", "right_square_bracket", "enter")
            await pilot.pause()
            lines = shown()
            assert len(lines) == 24 and all(len(line) <= 80 for line in lines)
            assert any("B[0:16, 1] <- b[1, 0:8], b[9, 0:8]" in line for line in lines)
            assert all(key in lines[-1] for key in ("Step", "Warp", "Back", "Run", "Help", "Quit"))
            await pilot.press("ctrl+q")

    asyncio.run(used())
    assert console.ended
