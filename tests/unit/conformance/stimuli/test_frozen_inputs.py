"""A changed constant of the model is a mismatch with the hardware, never "other inputs": the inputs of recordings are frozen."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.stimuli import exchange, frozen
from conformance.stimuli.classes import digest
from tests.support.extent import part
from tests.support.suite_runs import ROOT

HALF = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
WHOLE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
TILE = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
FP8 = "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"
UNITS = "tcsim/arithmetic/units.py"
MEASURED = 'Unit(("half", "f16", "tf32"), 90, None, 25, -133, -21)'
# What of the model is changed, in the text of which file, and the case whose inputs were made with it
CHANGES = {
    "fraction bits": (UNITS, MEASURED, MEASURED.replace("25", "24"), HALF, "edges"),
    "floor": (UNITS, MEASURED, MEASURED.replace("-133", "-132"), HALF, "floor"),
    "rounding": (UNITS, 'self.f32_output, "rz"', 'self.f32_output, "rne"', HALF, "floor"),
    "bits kept": (UNITS, '-133, -21, "e8m13"', '-133, -21, "f32"', FP8, "edges"),
    "bias of a format": ("tcsim/numbers/formats.py", '_float("e4m3", 4, 3, 7', '_float("e4m3", 4, 3, 8', FP8, "normal"),
    "layout of a fragment": ("tcsim/isa/mma/fragments.py", "Layout((4, 8), (2 * m, 1)), value, m, n", "Layout((8, 4), (1, 2 * m)), value, m, n", WHOLE, "normal"),
    "swizzle": ("tcsim/layouts/swizzle.py", '"128B": Swizzle(3, 4, 3)', '"128B": Swizzle(2, 4, 3)', TILE, "wide"),
    "places of metadata": ("tcsim/layouts/sparsity.py", "4 * (group % 4)", "4 * (3 - group % 4)", SPARSE, "normal"),
}  # fmt: skip
ASK = """
import json, sys
sys.path[:0] = sys.argv[1:3]
import tcsim
from conformance.isa import testbench_of
from conformance.stimuli.classes import digest
from conformance.suite.cases import Case, Settings, Suite
assert tcsim.__file__.startswith(sys.argv[1])
case = Case(sys.argv[3], sys.argv[4], 0)
suite = Suite(Settings("sm_90", "replay"))
outcome = suite.run(case)
instruction = suite.instruction(case.mnemonic)
recorded = suite.recording(case.mnemonic).cases[case.name, 0]
own = testbench_of(instruction.row.family).inputs(instruction, case.name, 0, recorded.samples)
print(json.dumps([outcome.verdict, outcome.mismatches, outcome.text[:200], digest(own) == recorded.inputs_sha256]))
"""


@pytest.mark.parametrize("what", part(CHANGES, 5))
def test_a_changed_constant_is_a_mismatch(what: str, tmp_path: Path) -> None:
    """The tree's own generator makes other inputs with it, so that the replay would have had nothing to compare."""
    file, right, wrong, mnemonic, name = CHANGES[what]
    shutil.copytree(ROOT / "tcsim", tmp_path / "tcsim", ignore=shutil.ignore_patterns("__pycache__"))
    text = (ROOT / file).read_text()
    assert right in text
    (tmp_path / file).write_text(text.replace(right, wrong))
    command = [sys.executable, "-P", "-c", ASK, str(tmp_path), str(ROOT), mnemonic, name]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    verdict, mismatches, said, same = json.loads(run.stdout)
    assert not same, "this change does not reach the inputs: it shows nothing"
    assert verdict == "FAIL"
    assert mismatches > 0, said
    assert "outputs differ" in said


def test_the_frozen_generators_are_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed archive is not run."""
    assert frozen.version() >= 1
    archive = tmp_path / "generators.zip"
    archive.write_bytes(frozen.ARCHIVE.read_bytes()[:-1] + b"x")
    monkeypatch.setattr(frozen, "ARCHIVE", archive)
    with pytest.raises(frozen.FrozenError, match=r"is not version \d+ that generators.json locks: its hash is "):
        frozen.version()


def test_what_is_not_frozen_is_said() -> None:
    """Rows and classes that came later."""
    for question in (("no.such", "sm_90", "wide", 0, 1), (WHOLE, "sm_90", "later", 0, 1)):
        with pytest.raises(frozen.UnknownCase):
            frozen.generators().ask("case", *question)
    with pytest.raises(frozen.FrozenError, match="case"):
        frozen.generators().ask("case", WHOLE, "sm_90", "wide", "no seed", "no number")


def test_what_is_expected_is_made_before_it_is_asked_for() -> None:
    """The same inputs; what was expected and is not asked for is dropped, also when it is not known."""
    questions = [("case", WHOLE, "sm_90", name, 0, 2) for name in ("wide", "normal", "uniform")]
    generators = frozen.Generators()
    try:
        plain = [digest(generators.ask(*question)) for question in questions]
        assert len(set(plain)) == 3
        for question, expected in zip(questions, plain, strict=True):
            generators.expect(*question)
            assert digest(generators.ask(*question)) == expected
        generators.expect(*questions[0])
        generators.expect("case", WHOLE, "sm_90", "later", 0, 1)
        assert digest(generators.ask(*questions[1])) == plain[1]
        generators.expect(*questions[2])
    finally:
        generators.close()


def test_the_process_has_nothing_of_the_tree() -> None:
    """What it imported of the tree would stand in the place of what is frozen, and give other inputs."""
    tree = ast.parse(Path(exchange.__file__).read_text(encoding="utf-8"))
    names = {own.name for node in ast.walk(tree) if isinstance(node, ast.Import) for own in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names}
