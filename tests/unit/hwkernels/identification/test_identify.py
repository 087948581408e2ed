"""Unknown instructions identified from their answers: the model of several archs, and machines that no hypothesis fits."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from hwkernels.identification.answers import answer
from hwkernels.identification.machine import NOT_OBSERVABLE, OPEN, Batch, Counted, Machine, Signature
from hwkernels.identification.order import Order, joined
from hwkernels.identification.proof import alike
from hwkernels.identification.questions import KINDS, Questions
from hwkernels.identification.search import Search, choices, plain, regular
from hwkernels.identification.solver import LIMIT, _fitting, identify
from hwkernels.identify import run
from hwkernels.identify.registry import differences, registered, steps_of
from hwkernels.identify.run import chosen, main
from hwkernels.identify.sources import GpuTiles, ModelTiles
from tcsim.arithmetic.steps import Lowering
from tcsim.numbers.formats import FORMATS
from tests.evaluation.identify_everything import ARCHS
from tests.support.extent import WHOLE

ROOT = Path(__file__).resolve().parents[4]
ALWAYS = (
    ("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", "sm_70"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e5m2.f16", "sm_90"),
)
"""A floor, chained steps, and inputs that are widened with an addend that comes last."""
on_model = cache(run.on_model)


class Known:
    """A hypothesis that plays the unknown."""

    def __init__(self, machine: Machine, signature: Signature) -> None:
        self.machine, self.signature = machine, signature

    def dot(self, a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None) -> Any:
        """Its answers."""
        return answer(self.machine, Batch(self.signature, a, b, c, scale_a, scale_b))


def everything() -> list[tuple[str, str]]:
    """Float instructions and archs: a few always, every one in the whole matrix."""
    if not WHOLE:
        return list(ALWAYS)
    return [(item.mnemonic, arch) for arch in ARCHS for item in chosen(arch, scaled=True)]


@pytest.mark.parametrize(("mnemonic", "arch"), everything())
def test_the_model_is_identified_as_its_rows_say(mnemonic: str, arch: str) -> None:
    """Every key that can be observed is the registry's; rows that are no machine of the hypotheses are refused."""
    result = on_model(mnemonic, arch)
    assert result.found is not None
    assert result.found.asked <= LIMIT
    assert not result.differs, "\n".join(result.lines())
    assert result.found.outside == (not result.row)


def test_a_found_machine_is_a_row() -> None:
    """The emitted steps, run as a lowering, give the instruction's own bits."""
    tiles = ModelTiles(tcsim.instruction(ALWAYS[2][0], arch="sm_90"))
    found = on_model(*ALWAYS[2]).found
    assert found is not None
    batch = Questions(tiles.signature, 7).ask("dense", 500, range(tiles.signature.k))
    formats = FORMATS[tiles.signature.a], FORMATS[tiles.signature.b], FORMATS[tiles.signature.c]
    d = Lowering("native", steps_of(found)).run(batch.a[:, None], batch.b[..., None], batch.c[:, None, None], formats)
    np.testing.assert_array_equal(d[:, 0, 0], batch.ask(tiles))


def test_each_conclusion_has_a_question_that_its_rival_answers_otherwise() -> None:
    """The evidence, asked again: the answer is the machine's, the rival's differs, as a machine with that value gives it."""
    tiles = ModelTiles(tcsim.instruction(ALWAYS[1][0], arch="sm_80"))
    found = on_model(*ALWAYS[1]).found
    assert found is not None
    keys = {item.key for item in found.evidence}
    observable = {key for key, value in found.found.items() if value not in (NOT_OBSERVABLE, OPEN)}
    assert keys >= observable - {"nan", "scaled", "widened"} and "floor" in keys
    for item in found.evidence:
        codes = (np.array([x]) for x in (item.question.a, item.question.b, item.question.c))
        batch = Batch(tiles.signature, *(c.astype(np.uint32) for c in codes))
        assert batch.ask(tiles)[0] == item.answer != item.rival_answer
        assert answer(replace(found.nearest, **{item.key: item.rival}), batch)[0] == item.rival_answer


@pytest.mark.parametrize("wrong", ["stuck bit", "lossy product", "order in pairs"] if WHOLE else ["stuck bit"])
def test_a_machine_outside_the_hypotheses_is_refused(wrong: str) -> None:
    """The smallest case is one that the nearest hypothesis really answers differently."""
    known = Known(Machine((tuple(range(4)),), fraction_bits=24), Signature(4, "bf16", "bf16", "f32", "f32"))

    class Strange(Known):
        def dot(self, a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None) -> Any:
            if wrong == "stuck bit":
                return super().dot(a, b, c) | np.uint32(4)
            if wrong == "lossy product":
                return super().dot(np.where((a & 0x7F) == 0x55, a & 0xFFFE, a).astype(a.dtype), b, c)
            zero = np.zeros_like(c)
            halves = [
                super(Strange, self).dot(
                    *(np.where(np.arange(4) // 2 == i, x, 0).astype(x.dtype) for x in (a, b)), zero
                )
                for i in (0, 1)
            ]
            return (halves[0].view(np.float32) + (halves[1].view(np.float32) + c.view(np.float32))).view(np.uint32)

    with np.errstate(all="ignore"):
        found = identify(Strange(known.machine, known.signature))
    assert found.outside and found.mismatch is not None and not found.found
    assert found.mismatch.answer != found.mismatch.predicted
    assert found.lines()[0].startswith("outside my hypotheses")


def test_the_solver_imports_no_instruction() -> None:
    """What `hwkernels.identification` loads is numbers and core alone; its sources name nothing else of the packages."""
    for path in (ROOT / "hwkernels/identification").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("tcsim", "hwkernels")):
                part = ".".join((node.module or "").split(".")[:2])
                assert part in ("hwkernels.identification", "tcsim.numbers", "tcsim.core"), (path, node.module)
            if isinstance(node, ast.Import):
                assert all(not item.name.startswith(("tcsim", "hwkernels", "conformance")) for item in node.names), path
    assert len(list((ROOT / "hwkernels/identification").glob("*.py"))) > 4


@pytest.mark.parametrize(
    "mnemonic",
    [
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
        "wgmma.mma_async.sync.aligned.m64n128k32.f16.e4m3.e5m2",
        "wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16",
    ],
)
def test_a_probe_is_asked_as_the_model_is(mnemonic: str) -> None:
    """What a probe of each family would be given holds the same dot products: the model executes it."""
    item: Any = tcsim.instruction(mnemonic, arch="sm_90")

    class Probe:
        instruction = item

        def launch(self, inputs: dict[str, Any]) -> dict[str, Any]:
            return inputs

    def answered(inputs: Any) -> list[Any]:
        given = {name: inputs[name] for name in ("a", "b", "c", "metadata") if name in inputs}
        if "image" in inputs:
            given["smem"] = inputs["image"]
        if "metadata" in given:
            lanes = 128 if "image" in inputs else 32
            given |= {"metadata": given["metadata"].reshape(-1, lanes), "selector": int(inputs["selector"][0])}
        return [item.execute(**given)]

    model = ModelTiles(item)
    gpu = GpuTiles(Probe(), answered)  # type: ignore[arg-type]
    batch = Questions(model.signature, 3).ask("bits", 150, range(model.signature.k))
    np.testing.assert_array_equal(batch.ask(gpu), batch.ask(model))


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The model of an arch, its row beside it, JSON and a row to commit; a part that no mnemonic has asks nothing."""
    path = tmp_path / "found.json"
    options = ["--model", "sm_80", "--only", "m16n8k8", "bf16", "--jobs", "1", "--full", "--rows", "--json", str(path)]
    assert main(options) == 0
    text = capsys.readouterr().out
    assert (
        "fraction_bits  24" in text
        and "registry 24" in text
        and "DotAdd(k=(0, 1, 2, 3, 4, 5, 6, 7), addend='c'" in text
    )
    assert '"verdict": "identified"' in path.read_text() and '"agrees": true' in path.read_text()
    assert main(["--model", "sm_80", "--only", "nothing"]) == 2


def test_a_group_of_negative_zeros_is_one() -> None:
    """A scaled group is -0 where each of its products is, so that a sum of nothing else can be -0."""
    signature = Signature(32, "e2m1", "e2m1", "f32", "f32", ("ue4m3", 32))
    machine = Machine((tuple(range(32)),), zero="ieee", scaled=("group", 8))
    batch = Questions(signature, 1).empty(2)
    batch.a[:], batch.b[:], batch.c[:] = 8, 2, 1 << 31
    batch.a[1, 5] = 0
    assert answer(machine, batch).tolist() == [1 << 31, 0]


def test_a_key_that_shows_only_with_another_is_not_called_hidden() -> None:
    """e4m3 as f16 has no subnormal numbers to lose, so one machine has two descriptions; flushed e4m3 is a third that differs."""
    signature = Signature(8, "e4m3", "e4m3", "f32", "f32")
    machine = Machine((tuple(range(8)),), products="normalised", widened="f16", subnormal_in="zero")
    found = identify(Known(machine, signature))
    assert (found.found["widened"], found.found["subnormal_in"]) == (None, "kept")
    assert found.tied == ("widened",)
    assert not differences(found, replace(machine, subnormal_in="kept"))
    assert set(differences(found, machine)) == {"subnormal_in"}


@pytest.mark.parametrize("limit", [1_000, 15_000])
def test_a_limit_of_questions_is_kept(limit: int) -> None:
    """No dot product more is asked; what was not reached is said."""

    class Counting(Known):
        asked = 0

        def dot(self, *operands: Any) -> Any:  # type: ignore[override]
            self.asked += len(operands[2])
            return super().dot(*operands)

    known = Counting(Machine((tuple(range(4)),), floor=-133), Signature(4, "bf16", "bf16", "f32", "f32"))
    found = identify(known, limit=limit)
    assert found.asked == known.asked <= limit
    assert found.spent and found.undecided == (limit == 1_000) and not found.outside
    assert ("limit of questions" in found.lines()[0]) and found.to_dict()["verdict"] == found.verdict


def test_not_observable_is_proven_and_what_is_not_is_open() -> None:
    """Pairs that the formats cannot tell, and pairs that a question does tell: a proof holds of the first ones only."""
    f16 = Signature(8, "f16", "f16", "f32", "f32")
    small = Signature(8, "e2m1", "e2m1", "f32", "f32")
    whole = Machine((tuple(range(8)),), "last", 24)
    same = [
        (f16, whole, {"floor": -133}),
        (f16, replace(whole, addend="first"), {"overflow": "largest"}),
        (small, whole, {"fraction_bits": 30}),
        (small, whole, {"products": "normalised", "truncation": "down"}),
        (small, whole, {"rounding": "rne", "overflow": "largest", "zero": "ieee", "subnormal_out": "zero"}),
        (small, replace(whole, widened="f16"), {"subnormal_in": "zero"}),
    ]
    different = [
        (f16, whole, {"floor": -20}),
        (f16, whole, {"fraction_bits": 25}),
        (f16, whole, {"rounding": "rne"}),
        (f16, replace(whole, addend="first", rounding="rne", significand=23), {"overflow": "largest"}),
        (small, whole, {"fraction_bits": 4}),
        (small, whole, {"subnormal_in": "zero"}),
        (small, replace(whole, addend="first"), {"zero": "ieee"}),
    ]
    for told, pairs in ((True, same), (False, different)):
        for signature, machine, change in pairs:
            other = replace(machine, **change)
            questions = Questions(signature, 5)
            batches = [questions.ask(kind, 1500, range(8), hint) for kind in KINDS for hint in (machine, other)]
            equal = all((answer(machine, batch) == answer(other, batch)).all() for batch in batches)
            assert (alike(signature, machine, other), equal) == (told, told), (signature, change)


def test_a_wrong_row_is_seen() -> None:
    """A row with one fraction bit more differs in just that key."""
    item: Any = tcsim.instruction(ALWAYS[1][0], arch="sm_80")
    found = on_model(*ALWAYS[1]).found
    assert found is not None
    row = registered(item.lowering, found.signature)
    assert row is not None
    bits = row.fraction_bits or 0
    assert set(differences(found, replace(row, fraction_bits=bits + 1))) == {"fraction_bits"}


def test_a_floor_below_all_that_can_be_seen_is_none() -> None:
    """Of f16 products no sum is as low as -133: the row's floor is as good as none, and one that cuts something is not."""
    item: Any = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    found = identify(ModelTiles(item))
    row = registered(item.lowering, found.signature)
    assert row is not None and (row.floor, found.found["floor"]) == (-133, None)
    assert not differences(found, row)
    assert set(differences(found, replace(row, floor=-20))) == {"floor"}


def searched(machine: Machine, rival: Machine, signature: Signature, each: int = 100) -> Search:
    """A search whose questions a rival answers as the machine does."""
    unknown = Counted(Known(machine, signature), LIMIT)
    questions = Questions(signature, 3)
    asked = joined([questions.ask(kind, each, range(signature.k), machine) for kind in KINDS])
    pool = asked[answer(rival, asked) == answer(machine, asked)]
    return Search(unknown, questions, pool, answer(machine, pool), choices(unknown))


def test_a_change_that_shows_nothing_alone_is_tried_with_others() -> None:
    """Products taken for normalised ones, where inputs are widened: neither key changed alone explains the answers, both do."""
    signature = Signature(32, "e2m3", "e2m1", "f32", "f32", ("ue8m0", 32))
    machine = Machine((tuple(range(32)),), fraction_bits=35, scaled="product", widened="f16")
    taken = replace(machine, products="normalised", widened=None)
    search = searched(machine, taken, signature)
    assert not search.wrong(taken) and search.wrong(replace(taken, products="raw"))
    assert machine in _fitting(search, taken)


def test_a_floor_that_means_nothing_hides_no_neighbour() -> None:
    """Where no bit was seen to be lost, fraction bits that lose some still fit; beside a floor left from the search they would not."""
    signature = Signature(4, "tf32", "tf32", "f16", "f16")
    steps = tuple((k,) for k in range(4))
    machine = Machine(steps, fraction_bits=25, floor=-20, significand=11, rounding="rne", nan=0x7FFF)
    taken = replace(machine, fraction_bits=None, floor=1)
    search = searched(machine, taken, signature)
    assert 25 not in {own.fraction_bits for own in _fitting(search, taken)}
    assert 25 in {own.fraction_bits for own in _fitting(search, plain(taken))}
    assert (answer(plain(taken), search.pool) == answer(taken, search.pool)).all()


def test_regular_steps_and_groups_are_found_where_few_products_are_known_to_be_apart() -> None:
    """From the right constants and a wrong order: two steps of groups that share scales; pairs known to be apart are kept so."""
    signature = Signature(16, "e2m3", "e3m2", "f32", "f32", ("ue8m0", 8))
    steps = tuple(range(8)), tuple(range(8, 16))
    machine = Machine(steps, fraction_bits=26, truncation="down", significand=18, scaled=("group", 4))
    guess = replace(machine, step=(tuple(range(16)),))
    search = searched(machine, machine, signature, each=40)
    order = Order(search.unknown, search.questions)
    order.known = {(0, 8), (3, 5)}
    assert search.wrong(guess)
    found = regular(search, order, guess, guess)
    assert found.step == machine.step and not search.wrong(found)


@pytest.mark.parametrize(
    ("kind", "machine", "rival", "formats"),
    [
        ("aimed", Machine((tuple(range(4)),), "last", 25, "down", floor=-132, subnormal_out="zero", zero="ieee"), {"floor": -133}, ("bf16", "f32")),
        ("heaped", Machine((tuple(range(32)),), rounding="rne", significand=11), {"addend": "last"}, ("e2m1", "f16")),
        ("cut", Machine((tuple(range(32)),), fraction_bits=25, rounding="rne", significand=11), {"fraction_bits": 26, "products": "normalised"}, ("e2m1", "f16")),
    ],
)  # fmt: skip
def test_questions_of_a_kind_tell_what_others_hardly_do(
    kind: str, machine: Machine, rival: dict[str, Any], formats: tuple[str, str]
) -> None:
    """The sign of a sum that vanishes tells a floor; sums of more bits than a result tell where c is added; a small c that no product hides, alignment."""
    signature = Signature(len(machine.step[0]), formats[0], formats[0], formats[1], formats[1])
    batch = Questions(signature, 1).ask(kind, 2000, range(signature.k), machine)
    assert (answer(machine, batch) != answer(replace(machine, **rival), batch)).sum() >= 4


def test_what_is_not_told_apart_is_said() -> None:
    """Sums that lose nothing hide their steps: the key is open, and other steps, which answer alike, are named."""
    signature = Signature(4, "e2m1", "e2m1", "f32", "f32")
    found = identify(Known(Machine(((0, 1), (2, 3)), "last", 14), signature))
    assert found.open == ("step",) and {"step": ((0,), (1,), (2,), (3,))} in found.remaining
    assert any(line.startswith("not told from  step ") for line in found.lines())
    asked = joined([Questions(signature, 9).ask(kind, 200, range(4)) for kind in KINDS])
    for rival in found.remaining:
        assert (answer(replace(found.nearest, **rival), asked) == answer(found.nearest, asked)).all()
    row = replace(found.nearest, **found.remaining[0])
    assert not differences(found, row) and set(differences(found, replace(row, subnormal_in="zero"))) == {
        "subnormal_in"
    }


def test_every_kind_of_question_is_asked() -> None:
    """Each kind makes questions that differ, for formats of every width, with and without scales."""
    for a, c, scale in (("f16", "f16", None), ("tf32", "f32", None), ("e2m1", "f32", ("ue4m3", 16))):
        questions = Questions(Signature(32, a, a, c, c, scale), 1)
        for kind in KINDS:
            batch = questions.ask(kind, 64, range(32))
            assert len(np.unique(batch.a, axis=0)) > 8 and batch.a.dtype == FORMATS[a].dtype, (a, kind)


def test_the_solver_loads_alone() -> None:
    """A fresh interpreter that identifies has loaded no family, no catalog and no arithmetic through it."""
    code = (
        "import sys, types\n"
        "for name in ('tcsim', 'hwkernels'):\n"
        "    sys.modules[name] = types.ModuleType(name); sys.modules[name].__path__ = [name]\n"
        "import hwkernels.identification.solver\n"
        "own = {'.'.join(m.split('.')[:2]) for m in sys.modules if m.startswith(('tcsim.', 'hwkernels.'))}\n"
        "assert own == {'hwkernels.identification', 'tcsim.numbers', 'tcsim.lowering', 'tcsim.core'}, own"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
