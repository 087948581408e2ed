"""Plans: every source, what is refused, and data that is damaged."""

from __future__ import annotations

import hashlib
import itertools
import json
import lzma
import pkgutil
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.core.targets import PRODUCTS
from tcsim.plans import packed, product, record
from tcsim.plans.lookup import LAYOUTS, OPS, chip, instruction_of
from tcsim.plans.record import OUT
from tcsim.plans.trees import LEAF, Machine, Tree
from tests.support.cli_runs import answer, data, refusal


def shapes(source: str, count: int = 20) -> list[dict[str, Any]]:
    """Questions about layers of models that the H200's table answers so."""
    pairs = [(1024, 1024), (2048, 8192), (4096, 14336), (768, 3072), (3000, 5000), (264, 30000), (16384, 12000)]
    kinds = [("linear", "bf16", "TN"), ("linear", "f16", "NN"), ("scaled_mm", "e4m3", "TN")]
    found = []
    for (op, format, layout), (n, k), m in itertools.product(kinds, pairs, (1, 17, 96, 250, 1024, 4095)):
        asked: dict[str, Any] = {
            "op": op,
            "m": m,
            "n": n // 16 * 16,
            "k": k // 16 * 16,
            "format": format,
            "layout": layout,
        }
        if tcsim.plan(**asked).source == source:
            found.append(asked)
    return found[:count]


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
    """Nothing in the table that a rule speaks of is cut."""
    whole, checked = record.table("h200"), 0
    for key, rule in whole.rules.items():
        turned = key.split()[-1] in ("NT", "TT")
        for part in whole.parts.get(key, ()):
            for a, b, batch in part.rows:
                for x in (1, 8, 24, 250, 256, 1000, part.count):
                    m, n, k = (
                        (x * part.step, a, b) if part.axis == "m" else (a, b, x) if part.axis == "k" else (0, 0, 0)
                    )
                    if (
                        n % 16
                        or k % 16
                        or m == 0
                        or (m % 16 and turned)
                        or (decision := whole.find(key, m, n, k, batch)) is None
                    ):
                        continue
                    if k <= rule["most_k"]:
                        checked += 1
                        assert decision.split == 1, (key, m, n, k)
    assert checked > 100


def test_every_number_of_tokens_of_a_layer_is_in_the_table() -> None:
    """Forwards and backwards, and attention with any number of keys."""
    for m in range(1, 8193, 97):
        questions: tuple[dict[str, Any], ...] = (
            {"op": "linear", "m": m, "n": 4096, "k": 14336}, {"op": "addmm", "bias": True, "layout": "NN", "m": m, "n": 768, "k": 3072},
            {"op": "matmul", "layout": "NN", "m": m, "n": 4096, "k": 14336, "format": "f16"}, {"op": "matmul", "layout": "NT", "m": 2048, "n": 8192, "k": m + 1},
            {"op": "bmm", "batch": 12, "m": m // 2 + 1, "n": m // 2 + 1, "k": 64}, {"op": "bmm", "batch": 32, "layout": "NN", "m": 1, "n": 128, "k": m // 2 + 1},
        )  # fmt: skip
        for asked in questions:
            assert tcsim.plan(**asked).source == "table", asked


def test_short_k_is_a_rule() -> None:
    """Whole rows of 16 bytes, K up to a length that the rule says; one more, and a tree speaks."""
    for op, format, most in (("linear", "bf16", 2560), ("linear", "f16", 2560), ("scaled_mm", "e4m3", 5120)):
        plan = tcsim.plan(op, m=33, n=1040, k=most, format=format, strict=True)
        assert (plan.source, plan.split, plan.kernel) == ("rule", 1, "nvjet") and str(most) in plan.reason
        assert tcsim.plan(op, m=33, n=64, k=most * 3, format=format).split > 1
    assert (
        tcsim.plan("linear", m=33, n=1041, k=1024).source == "assumed"
        and not tcsim.plan("linear", m=33, n=1041, k=1024).modelled
    )
    assert tcsim.plan("matmul", m=64, n=64, k=1, layout="NT").source == "assumed"


def test_results_that_do_not_fit_twice_are_a_rule() -> None:
    """addmm and FP8 have 1 MiB of workspace, mm 32 MiB; a batch, and extents that were not recorded, are no case for it."""
    shape: dict[str, Any] = {"n": 1016, "k": 9000}
    sources = [
        tcsim.plan("linear", m=m, bias=bias, **shape).source
        for m, bias in ((129, True), (130, True), (130, False), (4200, False))
    ]
    assert sources == ["assumed", "rule", "assumed", "rule"]
    assert tcsim.plan("linear", m=4200, **shape).split == 1
    long = tcsim.plan("matmul", m=608, n=7312, k=516632, layout="TT")
    assert (long.source, long.split) == (
        "assumed",
        1,
    )  # the ranking, which learnt of smaller results, would cut it in three
    assert (
        tcsim.plan("bmm", m=4200, batch=2, **shape).source
        == tcsim.plan("linear", m=1 << 20, **shape).source
        == "assumed"
    )


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
    assert {chip(name)[1] for name in PRODUCTS} == set(tcsim.ARCHS) - {"sm_88", "sm_107"}


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
    question: dict[str, Any] = {"op": "linear", "m": 16, "n": 64, "k": 64} | asked
    with pytest.raises(tcsim.PlanError, match=words):
        tcsim.plan(**question)


def packed_file(**changes: Any) -> bytes:
    """A small file, with a header that is not what its parts are."""
    tree = Tree(
        Machine(132, 1 << 20, 64),
        *(np.array(x, kind) for x, kind in (([0, LEAF, LEAF], "u1"), ([64, 2, 1], "u4"))),
    )
    sweeps = [packed.Sweeps("mm bf16 TN", "m", 1, [(64, 2568, 1)], np.array([[0] * 8 + [1] * 8]))]
    header = {"profile": {}, "decisions": [["nvjet", 3, 64, 0, 0], ["nvjet", 1, 64, 0, 0]], "rules": {}}
    data = packed.pack(header, sweeps, {("mm bf16 TN",): (tree, [])})
    line, _, body = data.partition(b"\n")
    size = json.loads(line)["header"][0]
    fields = json.loads(lzma.decompress(body[:size]))
    for name, change in changes.items():
        fields[name] = change(fields[name])
    about = json.dumps(fields).encode()
    body = lzma.compress(about) + body[size:]
    head = {
        "version": packed.VERSION,
        "header": [len(lzma.compress(about)), len(about)],
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return json.dumps(head).encode() + b"\n" + body


def read_all() -> None:
    """Every part of the H200's plans, some through a question."""
    tcsim.plan("linear", m=9, n=64, k=2568)
    with record.reading("h200"):
        record.table("h200").trees["mm bf16 TN"][0]()
    tcsim.plans.table_answers()


def test_damaged_data_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, cut short, changed bytes, another version; and forged files whose digest is right: one error that names the file."""
    good = pkgutil.get_data("tcsim.plans", "h200.plans")
    assert good is not None
    changed = bytearray(good)
    changed[-1] ^= 1
    version = good.replace(b'"version":7', b'"version":9')
    assert version != good

    def first(index: int, value: Any) -> Any:
        return lambda items: [[*items[0][:index], value, *items[0][index + 1 :]], *items[1:]]

    forged = [
        packed_file(parts=first(1, "x")), packed_file(parts=first(2, 0)), packed_file(parts=first(4, [2])), packed_file(parts=first(4, [])), packed_file(parts=first(5, 2)),
        packed_file(parts=first(5, 1 << 40)), packed_file(parts=first(6, 3)), packed_file(parts=first(7, 9)), packed_file(calls=lambda _: [9]), packed_file(calls=lambda _: []), packed_file(decisions=lambda _: []),
        packed_file(decisions=lambda _: [["nvjet"]]), packed_file(trees=first(1, 4)), packed_file(trees=first(1, 0)), packed_file(trees=first(1, [3])), packed_file(trees=first(1, [1, 1, 1, 1, 1])), packed_file(parts=lambda _: 7),
        packed_file(trees=first(5, [2])), packed_file(rows=lambda x: [x[0] + 1, x[1]]), packed_file(rows=lambda x: [-1, x[1]]),
    ]  # fmt: skip
    for bad in (b"", good[: len(good) // 2], bytes(changed), version, b"no table", b"{}\n", *forged):
        record.table.cache_clear()
        monkeypatch.setattr(pkgutil, "get_data", lambda *_, bad=bad: bad)
        with pytest.raises(tcsim.PlanError, match=r"h200\.plans in tcsim\.plans\) are damaged"):
            read_all()
    record.table.cache_clear()


def test_packing_and_reading_are_inverse() -> None:
    """What was packed is found, by any classes of alignment, with its chunks; other shapes are not."""
    rng = np.random.default_rng(4)
    for axis, step in (("m", 1), ("k", 1), ("mn", 1), ("mk", 1), ("m", 8)):
        x = np.arange(1, 257)
        choices = np.stack([np.where(x % 8 == 0, x // 100, x // 60) % 3, rng.integers(-1, 2, 256)]) * (x != 77)
        header = {"profile": {}, "decisions": [["nvjet", i + 1, 64, 0, 0] for i in range(3)], "rules": {}}
        turned = choices[::-1]
        sweeps = [
            packed.Sweeps(key, axis, step, [(8, 200, 1), (16, 0, 3)], some)
            for key, some in (("w", turned), ("x", choices), ("x y", turned))  # the last two are compressed together
        ]
        assert packed.pack(header, sweeps, {}) == packed.pack(header, sweeps, {})
        table = packed.unpack(packed.pack(header, sweeps, {}))
        assert [table.parts[key][0].known for key in ("w", "x", "x y")] == [int((choices >= 0).sum())] * 3
        for row, (a, b, batch) in enumerate(sweeps[0].rows):
            for value in (*range(1, 257), 257):
                still = iter((a, b))
                m, n, k = (value * step if i in packed.AXES[axis] else next(still) for i in range(3))
                if b == 0 and len(packed.AXES[axis]) == 1:
                    continue
                found = table.find("x", m, n, k, batch)
                assert table.find("w", m, n, k, batch) == table.find("x y", m, n, k, batch)
                expected = (
                    int(choices[row, value - 1]) if value <= 256 and (b == 0) == (len(packed.AXES[axis]) == 2) else -1
                )
                assert (found is None) == (expected < 0) and (found is None or found.split == expected + 1)
        assert table.find("y", 1, 8, 200, 1) is None and table.find("x", 1, 9, 200, 1) is None
    assert packed.Decision("nvjet", 3, 64).chunk(200) == 128


def test_profile_and_names() -> None:
    about = tcsim.plans.profile("H200")
    assert about.arch == "sm_90" and about.torch.startswith("2.11") and about.shapes >= 100_000
    assert about.compared >= about.equal >= 2000 and about.held_out > 0 and about.driver
    assert about.shapes == sum(tcsim.plans.table_answers().values())
    with pytest.raises(tcsim.PlanError, match="valid: h200"):
        tcsim.plans.profile("b200")
    assert about.asked > 10**6
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
    asked = ("plan", "linear", "16x4096x14336", "bf16", "--gpus", "h200,b200,a100")
    found = data(*asked)
    plans = [tcsim.plan("linear", m=16, n=4096, k=14336, format="bf16", gpu=gpu) for gpu in ("h200", "b200", "a100")]
    assert found["plans"] == [plan.as_dict() for plan in plans]
    assert found["changes"] == {"b200": ["split", "chunk"], "a100": ["instruction", "split", "chunk"]}
    assert found["profiles"]["h200"]["workspace"] == 32 << 20
    text = " ".join(answer(*asked).split())
    assert "b200 does not sum as h200 does (assumed): parts of K: 1, not 4" in text
    assert "a100 does not sum as h200 does (assumed): mma.sync multiplies, not wgmma.mma_async" in text
    assert "MxNxK" in refusal("plan", "linear", "16x4096", "bf16")
    assert "no GPU" in refusal("plan", "linear", "16x64x64", "bf16", "--gpus", "h200,nothing")


@pytest.mark.parametrize("format", ["bf16", "e4m3"])
def test_the_command_says_that_gpus_sum_alike_exactly_where_their_bits_are_equal(format: str) -> None:
    """wgmma and tcgen05.mma: equal chains of bf16; of FP8 Hopper's accumulator is shorter."""
    m, n, k = 3, 64, 2048
    pair = [tcsim.plan("linear", m=m, n=n, k=k, format=format, gpu=gpu) for gpu in ("h200", "b200")]
    rng = np.random.default_rng(0)
    a, b = (tcsim.encode(rng.standard_normal(shape), format) for shape in ((m, k), (k, n)))
    equal = np.array_equal(*(product(plan, a, b) for plan in pair))
    text = " ".join(answer("plan", "linear", f"{m}x{n}x{k}", format, "--gpus", "h200,b200").split())
    assert [plan.split for plan in pair] == [1, 1] and equal == (format == "bf16")
    assert ("b200 sums as h200 does (assumed): tcgen05.mma has the bits of wgmma.mma_async" in text) == equal
    assert ("b200 does not sum as h200 does" in text) != equal


def test_the_command_compares_no_unknown_orders() -> None:
    assert "neither the order of a100 nor that of b200 is known" in answer(
        "plan", "linear", "8x8x8", "f32", "--gpus", "a100,b200"
    )


@pytest.mark.parametrize("gpu", ["h200", "b200", "a100"])
def test_sums_of_integers_are_a_rule(gpu: str) -> None:
    """Every order has the same bits, whatever was recorded."""
    plan = tcsim.plan("int_mm", m=17, n=64, k=96, format="s8", gpu=gpu, strict=True)
    assert plan.source == "rule" and plan.split == 1 and "every order" in plan.reason


def test_kinds_without_a_modelled_kernel_are_not_assumed_to_be_chains() -> None:
    """f32 and tf32 on an H200, of a shape that was not recorded: the order of the likeliest kernel in every layout, or none of a kind without a tree."""
    for format in ("f32", "tf32"):
        asked: dict[str, Any] = {"m": 17, "n": 4000, "k": 4000, "format": format}
        plan = tcsim.plan("bmm", batch=3, **asked)
        assert not plan.modelled and plan.source == "assumed" and "not recorded" in plan.reason
        for layout, bias in itertools.product(LAYOUTS, (False, True)):
            likely = tcsim.plan("linear", layout=layout, bias=bias, **asked)
            assert likely.order is not None and likely.source == "assumed" and "most recorded shapes" in likely.reason
        with pytest.raises(tcsim.PlanError, match="strict=False"):
            tcsim.plan("matmul", **asked, strict=True)
