"""Finding instructions by any name: a table of questions, every row by its own name, machine code, chips, near misses."""

from __future__ import annotations

import json
import lzma
import re
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import tcsim
from tcsim import catalog
from tcsim.inspection.listing import entries
from tcsim.isa import index
from tcsim.search import search
from tcsim.search.finding import _alike
from tcsim.search.likelihood import accumulator_cost, order_cost
from tcsim.search.question import _format
from tests.support.cli_runs import answer, run

TABLE = Path(__file__).parents[3] / "data/search.txt"
QUESTIONS = [
    tuple(line.split(" -> ")) for line in TABLE.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"
]


def test_what_people_type_finds_the_right_instruction_first() -> None:
    """At least 95 % of the table; every one that is not right is named."""
    wrong = []
    for text, expected in QUESTIONS:
        found = tcsim.find(text)
        if not found or not any(fnmatchcase(found[0].mnemonic, one) for one in expected.split("|")):
            wrong.append((text, str(found[0]) if found else "nothing", expected))
    assert len(QUESTIONS) >= 340
    assert len(wrong) <= 0.05 * len(QUESTIONS), wrong


def test_the_table_asks_for_instructions_that_exist() -> None:
    names = [entry.mnemonic for entry in index.index().entries]
    for text, expected in QUESTIONS[::5]:
        assert all(any(fnmatchcase(name, one) for name in names) for one in expected.split("|")), text


def test_every_row_is_found_by_its_own_name() -> None:
    """Its spelling, its words in reverse order among the few that have them all."""
    rows = index.index().entries
    for entry in rows[::97]:
        assert tcsim.find(entry.mnemonic)[0].mnemonic == entry.mnemonic
        backwards = " ".join(reversed(entry.mnemonic.split(".")))
        assert entry.mnemonic in {match.mnemonic for match in tcsim.find(backwards)[:40]}, backwards
    assert len(rows) > 10_000


def test_every_machine_instruction_is_found() -> None:
    """The rows that a SASS name finds have it, or one that says more."""
    compared = 0
    for entry in index.index().entries[::211]:
        for opcode in entry.opcodes.split()[:1]:
            found = tcsim.find(opcode)
            asked = set(opcode.lower().split("."))
            own = {name.mnemonic: name.opcodes for name in index.index().entries}
            assert entry.mnemonic in {match.mnemonic for match in found}
            assert any(asked <= set(name.lower().split(".")) for name in own[found[0].mnemonic].split())
            compared += 1
    assert compared >= 15


def test_the_evidence_of_a_list_is_that_of_the_instruction() -> None:
    """On every arch that runs it."""
    listed = entries()[::97]
    levels: Counter[str] = Counter()
    for entry in listed:
        for arch, level in entry.evidence.items():
            assert tcsim.instruction(entry.mnemonic, arch=arch).evidence.level == level
            levels[level] += 1
    assert levels.total() > 400
    assert len(levels) >= 3
    narrowed = entries(arch="sm_90", family="wgmma")
    assert {tuple(entry.evidence) for entry in narrowed} == {("sm_90",)}


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("ldmatrix x4 trans", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
        ("mma m16n8k16 bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("HMMA.16816.F32.BF16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("m16n8k16", None),
        ("fp8", None),
        ("no such thing", None),
    ],
)
def test_one_is_meant_if_the_others_are_special_cases(text: str, only: str | None) -> None:
    found = search(text).only
    assert (found.mnemonic if found else None) == only


def test_an_arch_leaves_only_what_it_has() -> None:
    for text in ("fp8", "mma tf32"):
        for name, arch in (("h100", "sm_90"), ("b200", "sm_100"), ("4090", "sm_89")):
            found = tcsim.find(f"{name} {text}")
            own = {row.mnemonic for row in catalog.on_arch(arch)}
            assert found and {match.mnemonic for match in found} <= own
            assert [str(match) for match in found[:3]] == [str(match) for match in tcsim.find(text, arch=name)[:3]]
    with pytest.raises(tcsim.TargetError, match="nearest"):
        tcsim.find("mma", arch="sm_91")


def test_the_command_line_runs_a_unique_match_and_lists_several() -> None:
    unique = run("where", "m16n8k16", "bf16", "mma", "-o", "a", "-e", "8,6")
    assert unique.exit_code == 0 and unique.stdout == "a(8, 6) is a1[15:0] of lane 3\n"
    assert unique.stderr.startswith("tcsim: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    several = run("show", "m16n8k16")
    assert several.exit_code == 2 and several.stderr.splitlines()[1].strip() == str(tcsim.find("m16n8k16")[0])
    none = run("where", "ldmatrx", "x4", "-e", "0,0")
    assert none.exit_code == 1 and "ldmatrix x4: ldmatrix.sync.aligned.m8n8.x4.shared.b16" in none.stderr
    assert run("list", "nothing of the kind").exit_code == 1
    first = answer("list", "fp8", "--arch", "h100").splitlines()[1].split()[1]
    assert first.replace("nNk", "n128k") == str(tcsim.find("fp8 h100")[0])


@pytest.mark.parametrize(
    ("question", "said", "needed", "others"),
    [
        (("where", "ldmatrix", "x4", "trans", "-e", "3,3"), "d(3, 3), matrix 0 is d0[31:16] of lane 13", "isa.matrix.semantics", "mma|wgmma"),
        (("show", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), "mma.sync.aligned.m16n8k16", "isa.mma.sync", "matrix|wgmma"),
        (("list", "fp8"), "since", "search.finding", "mma|wgmma|matrix"),
    ],
)  # fmt: skip
def test_a_look_up_imports_one_family(question: tuple[str, ...], said: str, needed: str, others: str) -> None:
    """A process that answers about one family has not imported the others, nor pages: that is what keeps it quick."""
    code = (
        "import sys; from tcsim.cli.app import app\n"
        f"try: app({list(question)})\n"
        "except SystemExit: print(*(name for name in sys.modules if name.startswith('tcsim.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, *_, loaded = done.stdout.splitlines()
    assert first.startswith(said) and f"tcsim.{needed} " in f"{loaded} "
    assert not re.search(rf"isa\.({others}|multimem|tcgen05|cvt|cp_async|special|wmma)|html_page", loaded)


def test_any_text_is_answered() -> None:
    """Nonsense, very long, letters of other scripts, patterns: no error, and an answer in time."""
    for text in (
        "",
        " ",
        ".",
        "::",
        "x" * 5000,
        "mma " * 500,
        "ldmatrix q9 z8 y7 x6 w5 v4 u3 t2 s1 r0 p p p",
        "矩阵 f16",
        "a:b c:d",
        "[(*",
        "0x",
        "sm_ 90",
    ):
        found = search(text)
        assert len(found.near()) <= 3 and isinstance(found.matches, tuple)


def test_the_index_says_what_the_rows_say() -> None:
    """`python docs/generate.py` writes it; every row, family and target is compared."""
    entries = {entry.mnemonic: entry for entry in index.index().entries}
    rows = {name: row for name, row in catalog.rows().items() if not row.dropped}
    assert list(entries) == list(rows), "run: python docs/generate.py"
    assert all(
        entries[name].targets == row.targets and entries[name].family == row.family for name, row in rows.items()
    )
    assert {family.name: family.words for family in catalog.families()} == {
        name: home.words for name, home in index.index().families.items()
    }
    assert index.index().dropped == {name for name, row in catalog.rows().items() if row.dropped}
    assert json.loads(lzma.decompress(index.packed({"a": [1]}))) == {"a": [1]}


def test_what_a_likely_row_costs() -> None:
    """A little for f16 sums and for a C unlike D; half for a type that was asked for more often than it stands there."""
    formats = ({"d": "f32", "c": "f32"}, {"d": "f32"}, {"d": "f32", "c": "f16"}, {"d": "f16"}, {"d": "f16", "c": "f32"})
    assert [accumulator_cost(own) for own in formats] == [0, 0, 0.05, 0.05, 0.1]
    assert order_cost(["f16", "f16"], ("mma", "f16")) > 0.5 > order_cost(["f16", "f16"], ("mma", "f16", "f16")) == 0
    assert order_cost(["f16"], ("mma", "f32")) == 0.04 and order_cost(["row", "col"], ("col", "row")) == 0.5


def test_words_of_formats_and_misspelt_words() -> None:
    assert [_format(word) for word in ("fp16", "f16", "fp8", "banana")] == ["f16", "f16", "e4m3|e5m2", ""]
    assert [_alike(word) for word in ("ldmatrx", "stmatri", "wgmm", "zzzzz")] == [
        ["ldmatrix"],
        ["stmatrix"],
        ["wgmma"],
        [],
    ]


def test_a_machine_instruction_without_modifiers_is_all_of_them() -> None:
    """LDTM alone is what loading one register becomes; it means any number of them, a usual one first."""
    assert tcsim.find("LDTM")[0].mnemonic.endswith(".x4.b32") and tcsim.find("LDTM.x32")[0].mnemonic.endswith(
        ".x32.b32"
    )
