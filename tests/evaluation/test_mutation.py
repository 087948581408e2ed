"""The mutants of the model's source: chosen without a hand in it, each another program, and all of those reported have a fate."""

from __future__ import annotations

import ast
import json
from collections import Counter

import pytest

from conformance.isa import testbench_of
from conformance.suite.cases import Settings, Suite
from conformance.suite.proofs import Proof
from conformance.testbench import Mutant
from tcsim import catalog
from tests.evaluation.mutation.named import RESULT as NAMED
from tests.evaluation.mutation.named import applying, fates, told_apart
from tests.evaluation.mutation.run import REASONS, Planted, reported
from tests.evaluation.mutation.sites import (
    BEHAVIOUR,
    EACH,
    MODULES,
    ROOT,
    Site,
    behaves,
    chosen,
    file_of,
    modules,
    mutated,
    sites,
)


def test_at_least_200_are_chosen_from_every_module_that_computes() -> None:
    found = chosen()
    assert len(found) >= 200
    assert len({site.name for site in found}) == len(found)
    assert {site.path for site in found} == {f"{module}.py" for module in modules()}
    tests = {name for names in modules().values() for name in names.split()}
    assert all((ROOT / file_of(name)).exists() for name in tests)


def test_three_are_chosen_of_every_module_that_behaves() -> None:
    """Of the executor, diagnosis, explanation, engines, search, campaigns and vectors: a new module is among them by itself."""
    found = Counter(site.path for site in chosen())
    for folder in BEHAVIOUR:
        for path in sorted((ROOT / folder).glob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            assert found[name] >= min(EACH, len(sites(name))), name
    assert sum(behaves(name) for name in found) > 200
    assert {folder.rpartition("/")[0] for folder in BEHAVIOUR} >= {"tcsim/ptx", "tcsim", "conformance"}


def test_a_name_says_where_a_mutant_stands_and_is_kept_with_the_report() -> None:
    """Names do not move with the lines above; those of the report are chosen again, whatever their hashes."""
    (site,) = [item for item in sites("tcsim/arithmetic/dot.py") if item.was == "1023"]
    assert site.name == "tcsim/arithmetic/dot.py, _BIAS64: 1023 -> 1024 #1"
    last = sites("tcsim/tma/box.py")[-1].name
    assert last not in {item.name for item in chosen()}
    assert last in {item.name for item in chosen({last})}


@pytest.mark.parametrize("path", ["tcsim/arithmetic/units.py", "tcsim/arithmetic/dot.py", "tcsim/tma/box.py"])
def test_each_is_another_program_of_the_same_shape(path: str) -> None:
    right = ast.unparse(ast.parse((ROOT / path).read_text()))
    found = sites(path)
    sources = [mutated(site) for site in found]
    assert right not in sources
    assert len(set(sources)) >= len(sources) * 0.95  # some equal constants of one expression give the same text
    for source in sources:
        compile(source, path, "exec")


def test_constants_comparisons_conditions_and_operators_are_changed() -> None:
    found = {(site.was, site.becomes) for site in sites("tcsim/arithmetic/dot.py")}
    assert ("2.0 ** 128", "2.0 ** 128") not in found
    assert {
        ("unit.addend_last", "not unit.addend_last"),
        ("NO_EXPONENT // 2", "NO_EXPONENT * 2"),
        ("magnitude == 0", "magnitude != 0"),
        ("1023", "1024"),
    } <= found
    assert not any("raise" in was or "Literal" in was for was, _ in found)


def test_the_planted_source_is_what_is_imported() -> None:
    (site,) = [item for item in sites("tcsim/arithmetic/dot.py") if item.was == "1023"]
    finder = Planted(site)
    assert "_BIAS64 = 1024" in finder.source
    spec = finder.find_spec("tcsim.arithmetic.dot", None, None)
    assert spec is not None
    assert spec.loader is finder
    assert finder.find_spec("tcsim.arithmetic.steps", None, None) is None
    with pytest.raises(ValueError, match="is not in this source"):
        mutated(Site(site.path, 1, 10**6, "", "1", "2", 1))


def test_at_least_200_mutants_were_run_most_of_them_of_this_source() -> None:
    """What changes a function may take its mutants away; the next run takes others in their place. Recordings contradict most."""
    now = {site.name for module in MODULES for site in sites(f"{module}.py")}
    core = [item for item in reported() if not behaves(item["module"])]
    fates = Counter("recordings" if item["replay"] else "tests" if item["tests"] else "none" for item in core)
    assert fates.total() >= 200
    assert len(now & {item["name"] for item in core}) > 0.75 * fates.total()
    assert fates["recordings"] > 0.5 * fates.total()


def test_the_tests_that_contradict_mutants_exist() -> None:
    """Each is named as pytest names it: a test, or the examples of a function."""
    killers = {record["tests"] for record in reported() if "::" in record["tests"]}
    for file, _, name in (killer.partition("::") for killer in killers):
        assert name.partition("[")[0].rpartition(".")[2] in (ROOT / file).read_text(), (file, name)
    assert len(killers) > 40


def test_every_survivor_has_a_reason() -> None:
    """And every reason a survivor, in the report and in the page made of it."""
    reasons = json.loads(REASONS.read_text())
    survivors = {record["name"] for record in reported() if not record["replay"] and not record["tests"]}
    assert reasons.keys() == survivors
    assert all(len(reason.split()) > 5 and reason.endswith(".") for reason in reasons.values())
    page = (ROOT / "docs/reference/tables/mutants-of-the-source.md").read_text()
    assert all(reason in page for reason in reasons.values())


def test_a_mutant_that_is_the_model_is_not_told_apart() -> None:
    """Nor is it contradicted by a recording."""
    suite, testbench = Suite(Settings("sm_90", "replay")), testbench_of("elect.sync")
    same = Mutant("same", "nothing", lambda instruction: True, testbench.model)
    instruction = next(applying("elect.sync", same))
    assert not told_apart(testbench, instruction, same)
    assert all(told_apart(testbench, instruction, mutant) for mutant in testbench.mutants)
    proof = Proof("elect.sync", (same, *testbench.mutants))
    assert fates("elect.sync", [proof], suite)["survivors"] == [("elect.sync", "same")]


def test_no_named_mutant_survives() -> None:
    """Of any family, as the report says; and every mutant is in it."""
    measured, contradicted = json.loads(NAMED.read_text())["families"], 0
    for family in catalog.families():
        names = {mutant.name for mutant in testbench_of(family.name).mutants}
        if names:
            own = measured[family.name]
            assert own["survivors"] == own["neither"] == []
            assert {*own["recordings"], *own["model"], *own["elsewhere"]} == names, family.name
            contradicted += len(own["recordings"])
    assert contradicted > 500
