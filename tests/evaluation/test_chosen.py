"""How tests are chosen that run by default, and that what is named there exists."""

from __future__ import annotations

import numpy as np

from tests.evaluation.chosen import choose, table_of
from tests.support import extent


def test_what_reaches_more_for_less_is_chosen():
    took = {
        "a.py::quick": 0.1,
        "a.py::slow": 9.0,
        "a.py::slower": 20.0,
        **{f"a.py::many[{i}]": 1.0 + i for i in range(4)},
    }
    lines = {
        "a.py::quick": [0],
        "a.py::slow": [0, 1, 2],
        "a.py::slower": [1, 2, 3],
        "a.py::many[2]": [3],
        "a.py::many[3]": [4],
    }
    reach = {test: np.isin(np.arange(5), lines.get(test, [])) for test in took}
    chosen = choose(took, reach, {"a.py::many[1]", "gone.py::test"}, 0)
    assert chosen == {"a.py::quick", "a.py::slow", "a.py::many[1]", "a.py::many[2]", "a.py::many[3]"}
    assert table_of(took, chosen) == {"a.py": {"many": ["1", "2", "3"], "slower": []}}
    assert choose(took, reach, (), 100) >= {"a.py::slower"}


def test_a_function_of_quick_cases_keeps_some():
    took = {f"a.py::many[{i}]": 0.09 for i in range(40)} | {f"a.py::slow[{i}]": 0.5 for i in range(3)}
    chosen = choose(took, {test: np.zeros(1, bool) for test in took}, (), 0)
    assert (
        len([test for test in chosen if "many" in test]) == 4 and len([test for test in chosen if "slow" in test]) == 1
    )


def test_what_the_table_leaves_out_and_what_is_stale_in_it():
    tests = ["a.py::f[1]", "a.py::f[2]", "a.py::C::g", "b.py::h"]
    table = {"a.py": {"f": ["2"], "C::g": []}, "other.py": {"f": []}}
    assert extent.left_out(tests, table) == {"a.py::f[1]", "a.py::C::g"} and extent.stale(tests, table) == []
    assert extent.stale(tests, {"a.py": {"f": ["3"], "gone": []}}) == ["a.py::f[3]", "a.py::gone"]


def test_functions_that_the_table_names_are_in_their_files():
    table = extent.read()
    for file, functions in table.items():
        text = (extent.DEFAULT.parents[1] / file).read_text(encoding="utf-8")
        missing = [
            name for name in functions
            if f"def {name}(" not in text and f"{name.partition('::')[0]} = " not in text and f"class {name.partition('::')[0]}" not in text
        ]  # fmt: skip
        assert missing == [], file
    assert sum(map(len, table.values())) > 100
