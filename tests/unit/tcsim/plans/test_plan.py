"""Plans: every source, what is refused, and data that is damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.plans import packed, product, record
from tcsim.plans.lookup import LAYOUTS, OPS, OUT, chips, instruction_of
from tests.support.cli_runs import answer, data, refusal


def shapes(source: str, count: int = 20) -> list[dict[str, Any]]:
    """Questions that the H200's table answers so: recorded shapes, or those that a rule speaks of."""
    found: list[dict[str, Any]] = []
    whole = record.table("h200")
    for key, part in whole.parts.items():
        call, format, out, layout, fast = key.split()
        if call not in ("mm", "scaled"):
            continue
        for (n, k, _), row in part.rows.items():
            for m, column in part.columns.items():
                absent = part.choices[row, column] == packed.ABSENT
                asked = {"m": m, "n": n, "k": k, "format": format, "out": out, "layout": layout, "fast": fast == "1"}
                op = {"mm": "linear", "scaled": "scaled_mm"}[call]
                if absent == (source != "table") and tcsim.plan(op, **asked).source == source:
                    found.append({"op": op, **asked})
                    if len(found) >= count:
                        return found
    return found


def test_recorded_shapes_say_table() -> None:
    """A recorded shape has its decision; strict takes it unless its order is not modelled."""
    found = shapes("table")
    assert found
    for asked in found:
        plan = tcsim.plan(**asked, gpu="H200")
        assert plan.source == "table" and plan.gpu == "h200" and plan.kernel
        if plan.modelled:
            assert tcsim.plan(**asked, strict=True) == plan
            assert plan.instruction is not None and plan.instruction.startswith("wgmma")
            assert len(plan.chunks) == plan.split and plan.chunks[-1][1] == plan.k


def test_rules_never_contradict_the_table() -> None:
    """No recorded shape that a rule speaks of is split."""
    from tcsim.plans.lookup import _holds

    whole = record.table("h200")
    for key, rule in whole.rules.items():
        if "tiles" not in rule:
            assert all(whole.decisions[i].split == 0 for i in np.unique(whole.parts[key].choices) if i != packed.ABSENT)
            continue
        part, checked = whole.parts[key], 0
        for (n, k, batch), _ in part.rows.items():
            for m in part.columns:
                decision = whole.find(key, m, n, k, batch)
                if decision is not None and _holds(rule, m, n, k):
                    checked += 1
                    assert decision.split == 1, (key, m, n, k)
        assert checked


@pytest.mark.parametrize("gpu", ["b200", "B200", "h100", "rtx 5090", "sm_80", "sm_100a", "V100"])
def test_gpus_without_a_table_are_assumed(gpu: str) -> None:
    plan = tcsim.plan("linear", m=16, n=4096, k=14336, format="f16", gpu=gpu)
    assert (plan.source, plan.split, plan.chunk) == ("assumed", 1, 14336)
    assert plan.instruction is not None and tcsim.instruction(plan.instruction, arch=plan.arch)
    with pytest.raises(tcsim.PlanError, match="valid: a recorded shape of h200"):
        tcsim.plan("linear", m=16, n=4096, k=14336, format="f16", gpu=gpu, strict=True)


def test_every_format_has_an_instruction_where_the_arch_multiplies_it() -> None:
    """Each is one that the catalog has on that arch; f32 has none."""
    for arch in tcsim.ARCHS:
        for format in OUT:
            name = instruction_of(format, arch)
            assert (name is None) == (format == "f32") or tcsim.ARCHS[arch].number < 90
            if name is not None:
                assert tcsim.instruction(name, arch=arch)
    assert instruction_of("bf16", "sm_75") is None
    assert instruction_of("e4m3", "sm_89") == "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    assert set(chips().values()) == set(tcsim.ARCHS)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"op": "linaer"}, "nearest: linear"),
        ({"format": "bf17"}, "nearest: bf16"),
        ({"gpu": "h300"}, "no GPU 'h300'"),
        ({"layout": "TX"}, "valid: TN"),
        ({"m": 0}, "m is 0"),
        ({"k": 2.5}, "k is 2.5"),
        ({"batch": 4}, "op 'bmm'"),
        ({"op": "bmm", "bias": True}, "with a bias"),
        ({"op": "int_mm"}, "int_mm of s8"),
        ({"out": "e4m3"}, "valid: f32"),
    ],
)
def test_wrong_questions_are_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(tcsim.PlanError, match=words):
        tcsim.plan(**({"op": "linear", "m": 16, "n": 64, "k": 64} | asked))


def test_damaged_data_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, cut short, changed bytes, another version: one error that names the file."""
    good = packed.pkgutil.get_data("tcsim.plans", "h200.plans")
    assert good is not None
    changed = bytearray(good)
    changed[-1] ^= 1
    version = good.replace(b'"version":1', b'"version":9')
    for bad in (b"", good[: len(good) // 2], bytes(changed), version, b"no table", b"{}\n"):
        record.table.cache_clear()
        monkeypatch.setattr(packed.pkgutil, "get_data", lambda *_, bad=bad: bad)
        with pytest.raises(tcsim.PlanError, match=r"h200\.plans in tcsim\.plans\) are damaged"):
            tcsim.plan("linear", m=16, n=64, k=64)
    record.table.cache_clear()


def test_packing_and_reading_are_inverse() -> None:
    """What was packed is found, with its chunks; other shapes are not."""
    header = {"profile": {}, "decisions": [["nvjet", 3, 64]], "rules": {}}
    kinds = {"x": packed.Kind([(8, 200, 1)], [1, 2], np.array([[0, packed.ABSENT]], np.uint8))}
    assert packed.pack(header, kinds) == packed.pack(header, kinds)
    table = packed.unpack(packed.pack(header, kinds))
    found = table.find("x", 1, 8, 200, 1)
    assert found == packed.Decision("nvjet", 3, 64) and found.chunk(200) == 128
    assert table.find("x", 2, 8, 200, 1) is None and table.find("y", 1, 8, 200, 1) is None


def test_profile_and_names() -> None:
    about = tcsim.plans.profile("H200")
    assert about.arch == "sm_90" and about.torch.startswith("2.11") and about.shapes >= 100_000
    assert about.compared >= about.equal >= 2000 and about.held_out > 0 and about.driver
    assert about.shapes == sum(tcsim.plans.table_answers().values())
    with pytest.raises(tcsim.PlanError, match="valid: h200"):
        tcsim.plans.profile("b200")
    assert set(LAYOUTS) == {"TN", "NN", "NT", "TT"} and "linear" in OPS


def test_a_plan_shows_itself() -> None:
    plan = tcsim.plan("linear", m=16, n=64, k=128, gpu="sm_90")
    assert "one chain of wgmma" in str(plan) and "(assumed)" in str(plan)
    assert plan.as_dict()["instruction"] == plan.instruction
    other = tcsim.plan("linear", m=16, n=64, k=128, format="f32", gpu="b200")
    assert not other.modelled and "not modelled" in str(other)
    with pytest.raises(tcsim.TcsimError, match="plans with an instruction"):
        product(other, [[1.0]], [[1.0]])


def test_the_command_says_the_plan_and_what_changes() -> None:
    """Text and JSON say what the library says."""
    asked = ("plan", "linear", "16x4096x14336", "bf16", "--gpus", "h200,b200")
    found = data(*asked)
    plans = [tcsim.plan("linear", m=16, n=4096, k=14336, format="bf16", gpu=gpu) for gpu in ("h200", "b200")]
    assert found["plans"] == [plan.as_dict() for plan in plans]
    assert "instruction" in found["changes"]["b200"] and found["profiles"]["h200"]["workspace"] == 32 << 20
    text = answer(*asked)
    assert "wgmma" in text and "tcgen05" in text and "b200 differs from h200 in" in text
    assert "MxNxK" in refusal("plan", "linear", "16x4096", "bf16")
    assert "no GPU" in refusal("plan", "linear", "16x64x64", "bf16", "--gpus", "h200,nothing")


@pytest.mark.parametrize("gpu", ["h200", "b200", "a100"])
def test_sums_of_integers_are_a_rule(gpu: str) -> None:
    """Every order has the same bits, whatever was recorded."""
    plan = tcsim.plan("int_mm", m=17, n=64, k=96, format="s8", gpu=gpu, strict=True)
    assert plan.source == "rule" and plan.split == 1 and "every order" in plan.reason


def test_kinds_without_a_modelled_kernel_are_not_assumed_to_be_chains() -> None:
    """tf32 on an H200, of a shape that was not recorded."""
    plan = tcsim.plan("matmul", m=17, n=4096, k=4096, format="tf32", gpu="h200")
    assert not plan.modelled and plan.source == "assumed" and "no recorded shape" in plan.reason
