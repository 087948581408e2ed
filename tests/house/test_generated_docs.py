"""What of the documentation is made from the code, and that it is what the code says today."""

from __future__ import annotations

import importlib.util
import re
import sys
from types import ModuleType

from conformance.stimuli.classes import LEVEL_2
from conformance.suite import recordings
from conformance.suite.cases import VERDICTS
from tcsim import catalog
from tcsim.ptx import HAZARDS
from tests.house.test_docs import PAGES, ROOT, name_of


def generator() -> ModuleType:
    """docs/generate.py, with its own folder on the path, as when it is run."""
    if str(ROOT / "docs") not in sys.path:
        sys.path.insert(0, str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_are_current() -> None:
    """`python docs/generate.py` would change nothing, and every table it can write is used."""
    made = generator()
    assert [name_of(ROOT / path) for path in made.outdated()] == [], "run: python docs/generate.py"
    pages = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert [name for name in made.TABLES if f"<!-- generated: {name} -->" not in pages] == []


def test_every_row_is_in_the_reference() -> None:
    """Every instruction has a line in the page of its family; on a page that says so, it or one that differs in order, scope and space alone."""
    differing = {"weak", "relaxed", "release", "acquire", "cta", "cluster", "gpu", "sys", "global"}

    def alike(mnemonic: str) -> tuple[str, ...]:
        return tuple(word for word in mnemonic.split(".") if word not in differing)

    shared = set()
    for family in {row.family for row in catalog.rows().values()}:
        page = (ROOT / f"docs/reference/{family}.md").read_text(encoding="utf-8")
        own = {row.mnemonic for row in catalog.rows().values() if row.family == family}
        lines = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)) & own
        if "in order, scope and state space alone are one line" in page:
            shared.add(family)
            lines |= {name for name in own if alike(name) in {alike(line) for line in lines}}
        assert own <= lines, sorted(own - lines)[:5]
    assert shared == {"multimem.ld_reduce", "multimem.red", "multimem.st"}


def test_the_figures_of_the_recordings_are_current() -> None:
    """What README.md and docs/numerics.md say of how much dense mma.sync a run compares is what the recordings hold of its cases."""
    variants = cases = outputs = 0
    for row in catalog.on_arch("sm_90", "mma.sync"):
        recording = recordings.read(row.mnemonic, "sm_90")
        assert recording is not None, row.mnemonic
        d = row.operands["d"]
        results = [own for (name, seed), own in recording.results.items() if seed == 0 and name not in LEVEL_2]
        variants, cases = variants + 1, cases + len(results)
        outputs += sum(own.size for own in results) * 32 // d.layout.element_bits
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    numerics = " ".join((ROOT / "docs/numerics.md").read_text(encoding="utf-8").split())
    assert f"mma.sync {variants} {cases:,} {outputs:,} 0 REPLAYED" in readme
    assert f"{variants} instructions, {cases:,} cases, {outputs:,} outputs, 0 mismatches" in numerics


def test_every_verdict_is_explained() -> None:
    """The table of verdicts has a line for each."""
    text = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    assert [verdict for verdict in VERDICTS if f"| {verdict} |" not in text] == []


def test_every_rule_of_the_check_has_its_row() -> None:
    text = (ROOT / "docs/reference/tables/hazards.md").read_text(encoding="utf-8")
    assert [name for name in HAZARDS if f"| `{name}` |" not in text] == []
