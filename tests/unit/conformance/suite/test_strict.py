"""`--strict-verdicts`: what is UNTESTED or UNVERIFIED fails the run unless a waiver covers it, and waivers have rules."""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path

import pytest

from conformance.suite import waivers
from conformance.suite.waivers import Waiver, WaiverError
from tests.support.suite_runs import MNEMONIC, OTHER, case_path, suite_run

DAY = datetime.date(2026, 5, 1)
ENTRY = """[[waiver]]
arch = "sm_90"
pattern = "test_assembles[fence.*]"
kind = "no result"
reason = "It orders."
link = "docs/evidence.md"
given = 2026-05-01
"""
OPEN = "test_assembles[fence.proxy.alias]"
SELECTION = (case_path("wide", MNEMONIC), case_path("wide", OTHER), f"conformance/test_cases.py::{OPEN}")


@pytest.mark.parametrize("option", ["--strict-verdicts", "--strict"])
def test_what_is_open_fails(option: str, tmp_path: Path) -> None:
    """It is named; with a waiver the run passes, and says what it waived."""
    path = tmp_path / "waivers.toml"
    path.write_text("")
    selection = (*SELECTION, "--arch", "sm_90", "--replay", "--waivers", str(path))
    assert suite_run(*selection).returncode == 0
    run = suite_run(*selection, option)
    assert run.returncode == 1
    assert f"--strict: UNVERIFIED {OPEN}" in run.stdout
    path.write_text(ENTRY)
    run = suite_run(*selection, option)
    assert run.returncode == 0, run.stdout
    assert "waived (no result): test_assembles[fence.*]: It orders." in run.stdout


def test_a_waiver_covers_its_pattern_until_its_last_day() -> None:
    """Then its tests are open again, and the line says why."""
    item = Waiver("sm_90", "test_gemm[*-wide]", "unrecorded", "r", "l", DAY, DAY)
    found = [("test_gemm[a-wide]", "UNTESTED"), ("test_gemm[a-random]", "UNTESTED")]
    lines, used = waivers.unwaived([item], found, DAY)
    assert (lines, used) == (["UNTESTED test_gemm[a-random]"], [item])
    lines, used = waivers.unwaived([item], found, DAY + datetime.timedelta(1))
    assert lines[0] == "UNTESTED test_gemm[a-wide]: its waiver expired on 2026-05-01"
    assert (len(lines), used) == (2, [])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("[[waiver]]", "[[waiver"), "cannot read waivers from "),
        (('arch = "sm_90"\n', ""), "arch must be a str"),
        (('reason = "It orders."', 'reason = ""'), "reason must be a str"),
        (('link = "docs/evidence.md"\n', ""), "link must be a str"),
        (('"no result"', '"tired"'), "no kind 'tired'; valid: unrecorded, no result, no model"),
        (('"no result"', '"unrecorded"'), "a GPU can run it, so it must expire, at most 31 days after 2026-05-01"),
        (
            ('"no result"', '"unrecorded"\nexpires = 2026-06-02'),
            "a GPU can run it, so it must expire, at most 31 days after 2026-05-01",
        ),
        (('"no result"', '"no result"\nexpires = "soon"'), "expires must be a date"),
        (("given = 2026-05-01", "given = 2026-05-01\nsize = 3"), "unknown size"),
        (("[[waiver]]", "waiver = 3\n[other]"), "waivers are written as"),
    ],
)
def test_waivers_have_rules(change: tuple[str, str], complaint: str, tmp_path: Path) -> None:
    """One line that names the entry."""
    path = tmp_path / "waivers.toml"
    path.write_text(ENTRY.replace(*change))
    with pytest.raises(WaiverError, match=complaint):
        waivers.read(path, "sm_90")
    with pytest.raises(WaiverError, match="cannot read waivers from"):
        waivers.read(tmp_path / "none.toml", "sm_90")


def test_the_committed_waivers() -> None:
    """They are valid, and nothing that a GPU computes is waived without an end."""
    assert len(waivers.read(waivers.FILE, "sm_90")) == len(tomllib.loads(waivers.FILE.read_text())["waiver"]) > 3
    for item in waivers.read(waivers.FILE, "sm_90"):
        if item.kind == "no result":
            assert item.pattern.startswith("test_assembles[")
            assert item.pattern.removeprefix("test_assembles[").startswith(("fence.", "membar.", "wgmma.", "griddep"))
        elif item.kind == "no model":
            assert item.pattern.startswith("test_open_questions[")
        elif item.kind == "no machine":
            assert item.pattern == "test_assembles[multimem.*]"
        else:
            assert item.expires is not None
