"""The mutants of the model's source: chosen without a hand in it, each another program, and all of those reported have a fate."""

from __future__ import annotations

import ast
import json
from collections import Counter

import pytest

from tests.mutation.run import RESULT, Planted
from tests.mutation.sites import MODULES, ROOT, Site, chosen, mutated, sites


def test_at_least_200_are_chosen_from_every_module_that_computes() -> None:
    found = chosen()
    assert len(found) >= 200
    assert len({site.name for site in found}) == len(found)
    assert {site.path for site in found} == {
        f"{folder}/{name}.py" for folder, names in MODULES.items() for name in names
    }


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
        mutated(Site(site.path, 1, 10**6, "1", "2"))


def test_the_reported_mutants_are_those_of_the_source_and_most_are_contradicted() -> None:
    """A change of a module drops its mutants from the report until they are run again."""
    known = {record["name"]: record for record in json.loads(RESULT.read_text())["mutants"]}
    fates = Counter("recordings" if item["replay"] else "tests" if item["tests"] else "none" for item in known.values())
    assert fates["recordings"] > 0.5 * fates.total()
