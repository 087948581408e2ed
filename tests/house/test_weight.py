"""The tree, a shallow clone and the wheel stay within their budgets."""

from __future__ import annotations

import json

import pytest

from tests.house.weight import MOST, NOTED, ROOT, Weight, tracked, weigh


def test_the_tree_the_clone_and_the_wheel_are_light_enough():
    if not (ROOT / ".git").exists():
        pytest.skip("the weight is that of a clone: there is no .git here")
    names = tracked(ROOT)
    assert len(names) > 1000
    assert not weigh(ROOT, names).complaints(json.loads(NOTED.read_text()))


def test_what_is_too_much_is_told_with_what_grew(tmp_path):
    (tmp_path / "tcsim").mkdir()
    (tmp_path / "tcsim/a.py").write_bytes(bytes(2000))
    (tmp_path / "b.py").write_bytes(bytes(2000))
    found = weigh(tmp_path, ["b.py", "tcsim/a.py"])
    assert found.sizes["tree"] == 4000 and found.sizes["clone"] == found.sizes["wheel"] < 100
    assert found.folders == {".": 2000, "tcsim": 2000} and not found.complaints({})
    heavy = Weight({"tree": MOST["tree"] + 1, "clone": 0, "wheel": 0}, {"docs": 70, "tcsim": 50})
    (line,) = heavy.complaints({"docs": 20, "tcsim": 50})
    assert "the tree has 45,000,001 bytes" in line and line.endswith("docs +50")
