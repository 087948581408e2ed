"""How the command line writes: JSON with the documented keys, help, colour on a terminal alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tcsim
from tcsim.cli import output
from tcsim.cli.group import SUBCOMMANDS
from tests.support.cli_runs import MMA, answer, data
from tests.unit.conformance.vectors.test_vectors import said

PAGES = ("picture", "launch")
"""Subcommands whose answer is a page or a launch file and nothing else."""
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"

# --- what every subcommand does


def test_every_verb_takes_json_and_explains_itself() -> None:
    """`--json` is an option of each, and `--help` is short of 80 columns."""
    subcommands = 0
    groups = {
        "descriptor": ("decode", "encode", "tile", "check"),
        "mbarrier": ("decode",),
        "idesc": ("decode", "encode", "bits"),
        "tensormap": ("decode", "encode", "check"),
        "vectors": ("make", "classes", "verify"),
    }
    for name in SUBCOMMANDS:
        for words in [(name, subcommand) for subcommand in groups.get(name, ())] or [(name,)]:
            text = answer(*words, "--help")
            assert ("--json" in text or name in PAGES) and max(map(len, text.splitlines())) <= 80, words
            subcommands += 1
    assert subcommands == 22 + 14
    listed = re.findall(r"^  (\w+)  +\S", answer("--help").split("Commands:")[1], re.MULTILINE)
    assert tuple(listed) == tuple(SUBCOMMANDS)
    assert answer("--version") == f"tcsim {tcsim.__version__}\n"


def documented_keys() -> dict[str, set[str]]:
    """The keys of JSON by subcommand, from the table of docs/json.md."""
    page = (Path(__file__).resolve().parents[4] / "docs/json.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", page.split("## JSON")[1].split("## ")[0], re.MULTILINE)
    return {subcommand: set(re.findall(r"`(\w+)`", keys)) for subcommand, keys in rows}


def test_json_has_the_documented_keys(matrices: tuple[str, dict[str, np.ndarray]], tmp_path: Path) -> None:
    """No key more and none less, for every subcommand; with --html a page is written beside the answer."""
    np.save(tmp_path / "x.npy", np.ones(4, np.float32))
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, **matrices[1], observed=np.zeros((16, 8), np.uint32))
    halves = {name: np.ones((4, 4), np.float16) for name in "ab"}
    np.savez(tmp_path / "product.npz", **halves, observed=np.full((4, 4), 4, np.float32))
    tile = ("--rows", 64, "--k", 16, "--type", "f16")
    vectors = tmp_path / "vectors"
    answer("vectors", "make", MMA, "--classes", "normal", "--form", "hex", "--outputs", 128, "--out", vectors)
    commands: dict[str, tuple[object, ...]] = {
        "list": ("movm",),
        "list --families": (),
        "show": (MMA,),
        "where": (MMA, "-o", "a", "-e", "0,0"),
        "what": (MMA, "-l", 0, "-r", "a0"),
        "what --byte": (128, WGMMA, "-o", "b"),
        "what --column": (3, "tcgen05.mma.cta_group::1.kind::f16", "--idesc", "0x8400410", "-o", "d", "-l", 2),
        "map": (MMA, "-o", "a"),
        "inputs": (MMA, "-e", "0,0"),
        "descriptor decode": (0,),
        "descriptor encode": (),
        "descriptor tile": tile,
        "descriptor check": (tcsim.MatrixDescriptor.for_tile(64, 16, "f16").descriptor.encode(), *tile),
        "swizzle": ("128B",),
        "tmem": ("--m", 64, "--n", 128),
        "swizzle --address": ("128", "64B"),
        "mbarrier decode": (0,),
        "number": ("e4m3", "1"),
        "quantize": (tmp_path / "x.npy", "-t", "e4m3"),
        "run": (MMA, "-i", matrices[0]),
        "exec": (Path(__file__).parents[3] / "data" / "launches" / "triton_vadd_f32.npz", "--arch", "sm_90"),
        "check": (Path(__file__).parents[3] / "data" / "launches" / "triton_vadd_f32.npz", "--arch", "sm_90"),
        "profile": (Path(__file__).parents[3] / "data" / "launches" / "triton_vadd_f32.npz", "--arch", "sm_90"),
        "step": (
            Path(__file__).parents[3] / "data" / "launches" / "triton_vadd_f32.npz",
            "--arch",
            "sm_90",
            "-x",
            "where",
        ),
        "trace": (MMA, "--seed", 1),
        "compare": (MMA, "--archs", "sm_80,sm_90", "--count", 16),
        "diagnose": (MMA, "-i", wrong),
        "explain": (tmp_path / "product.npz",),
        "plan": ("linear", "16x4096x14336", "bf16"),
        "tensormap decode": (tcsim.TensorMap("FLOAT16", (64, 64), (128,), (64, 8)).encode(4096).hex(),),
        "tensormap encode": ("--type", "FLOAT16", "--dim", "64,64", "--box", "64,8"),
        "tensormap check": ("--type", "FLOAT16", "--dim", "64,64", "--box", "64,8"),
        "idesc decode": (0x8400410, "--kind", "f16"),
        "idesc encode": ("--kind", "f16", "--a", "f16", "--m", 64, "--n", 8),
        "idesc bits": ("--kind", "f16"),
        "vectors make": (MMA, "--classes", "normal", "--outputs", 128, "--out", tmp_path / "more"),
        "vectors classes": (MMA,),
        "vectors verify": (vectors, said(vectors)),
    }
    documented = documented_keys()
    assert set(documented) == set(commands)
    for subcommand, arguments in commands.items():
        status = 1 if subcommand == "diagnose" else 0  # a mistake is named
        page = tmp_path / "page.html"
        paged = ("--html", page) if not subcommand.startswith(("step", "vectors")) else ()
        found = json.loads(answer(*subcommand.split(), *arguments, "--json", *paged, status=status))
        assert set(found) == documented[subcommand] | {"verb"}, subcommand
        assert not paged or page.read_text(encoding="utf-8").startswith("<!doctype html>"), subcommand
        page.unlink(missing_ok=True)
    assert set(data("where", MMA, "-o", "a", "-e", "0,0")["places"][0]) == {
        "operand", "matrix", "row", "column", "lane", "register", "slot", "high", "low", "words", "name",
    }  # fmt: skip


# --- how it is written


def test_json_has_words_for_what_json_has_not() -> None:
    """Infinities and NaN, NumPy numbers and arrays."""
    given = {"a": [float("inf"), float("nan"), -float("inf")], "b": np.uint32(7), "c": np.arange(2)}
    assert output.plain(given) == {"a": ["inf", "nan", "-inf"], "b": 7, "c": [0, 1]}


class Terminal:
    """Standard output that says it is a terminal."""

    def __init__(self) -> None:
        self.text = ""
        self.encoding = "utf-8"

    def isatty(self) -> bool:
        """As terminals do."""
        return True

    def write(self, text: str) -> int:
        """Keep what is written."""
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool) -> None:
    """The same text, with and without the escapes; NO_COLOR and dumb terminals have none."""
    from tcsim.inspection.report import Line, Report, table, text_lines

    for name in ("NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    report = Report("title [not markup]", (table(("a", "b"), [(1, 2)], "heading"),))
    output.emit("show", dict, lambda: report)
    assert ("\x1b[" in terminal.text) == coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text)
    assert plain == "".join(f"{line.text}\n" for line in text_lines(report))
    assert Line("title [not markup]", "title") in list(text_lines(report))
