"""The second set of wrong kernels: every kind makes its cases from a seed, and the judge tells reports apart. docs/diagnosis-search.md says how they are judged."""

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tests.evaluation.second_wrong_kernels.__main__ import run, table
from tests.evaluation.second_wrong_kernels.cases import (
    CORRECT,
    EIGHTH,
    EIGHTH_CORRECT,
    ELEVENTH,
    ELEVENTH_CORRECT,
    FIFTH,
    FIFTH_CORRECT,
    FOURTH,
    FOURTH_CORRECT,
    HELD_OUT,
    NINTH,
    NINTH_CORRECT,
    ROUNDING,
    SEVENTH,
    SEVENTH_CORRECT,
    SIXTH,
    SIXTH_CORRECT,
    TENTH,
    TENTH_CORRECT,
    TWELFTH,
    TWELFTH_CORRECT,
    WRONG,
    Case,
    differs,
    make,
    twins,
)
from tests.evaluation.second_wrong_kernels.judge import EQUALS, HALF, RIGHT, UNEXPLAINED, judge
from tests.evaluation.second_wrong_kernels.judge import WRONG as CONFIDENT

SHARE = ("PitchOfA", "WarpOrder", "SwizzleWritten", "CTwice", "MetadataIgnored", "ScaleOfAForgotten")


def product(case: Case) -> np.ndarray:
    """The model's output."""
    p = case.problem
    idesc = {} if p.arithmetic.idesc is None else {"idesc": p.arithmetic.idesc}
    codes = tcsim.gemm(p.a, p.b, p.c, instruction=p.arithmetic.mnemonic, arch=p.arithmetic.arch, **p.extras, **idesc)
    return codes.view(np.int32 if p.arithmetic.d == "s32" else np.float32)


def test_there_are_kinds_enough() -> None:
    assert len(WRONG) >= 60
    assert len(CORRECT) >= 20
    assert all(
        kind.__doc__ and (kind.correct or (kind.needs and kind.half)) for kind in (*WRONG.values(), *CORRECT.values())
    )


@pytest.mark.parametrize("name", SHARE)
def test_a_wrong_kernel_is_wrong_and_comes_again_from_its_seed(name: str) -> None:
    case, again = make(WRONG[name], 3), make(WRONG[name], 3)
    assert np.array_equal(case.observed, again.observed, equal_nan=True)
    assert differs(case.observed, product(case))


def test_held_out_kinds_are_wrong_and_say_where_they_were_reported() -> None:
    assert len(HELD_OUT) >= 30
    assert not set(HELD_OUT) & set(WRONG)
    threads = [kind.thread for kind in HELD_OUT.values()]
    assert all(re.fullmatch(r"[\w-]+/[\w.-]+#\d+", thread) for thread in threads)
    assert len(set(threads)) == len(threads)
    for kind in HELD_OUT.values():
        assert kind.__doc__
        assert kind.needs
        assert kind.half
        case = make(kind, 3)
        assert differs(case.observed, product(case)), case.name


def test_the_fourth_set_says_where_its_kinds_were_met() -> None:
    assert len(FOURTH) >= 40
    assert len(FOURTH_CORRECT) >= 15
    assert not {*FOURTH, *FOURTH_CORRECT} & {*WRONG, *HELD_OUT, *CORRECT}
    for kind in (*FOURTH.values(), *FOURTH_CORRECT.values()):
        assert kind.__doc__
        assert re.fullmatch(r"textbook|forums\.[\w./-]+|[\w-]+/[\w.-]+(#\d+)?", kind.source), kind
        assert kind.correct or (kind.needs and kind.half)


@pytest.mark.parametrize("name", [*FOURTH][::6])
def test_a_kernel_of_the_fourth_set_is_wrong(name: str) -> None:
    case = make(FOURTH[name], 3)
    assert differs(case.observed, product(case)), case.name


@pytest.mark.parametrize("name", [*FOURTH_CORRECT][::3])
def test_a_right_kernel_of_the_fourth_set_is_right(name: str) -> None:
    case = make(FOURTH_CORRECT[name], 3)
    assert not differs(case.observed, product(case).astype(case.observed.dtype)), case.name


def test_the_fifth_set_says_where_its_kinds_were_met() -> None:
    assert len(FIFTH) == 45
    assert len(FIFTH_CORRECT) == 12
    assert not {*FIFTH, *FIFTH_CORRECT} & {*WRONG, *HELD_OUT, *FOURTH, *CORRECT, *FOURTH_CORRECT}
    for kind in (*FIFTH.values(), *FIFTH_CORRECT.values()):
        assert kind.__doc__
        assert re.fullmatch(r"textbook|[\w-]+/[\w.-]+#\d+", kind.source), kind
        assert kind.correct or (kind.needs and kind.half)


@pytest.mark.parametrize("name", [*FIFTH][::4])
def test_a_kernel_of_the_fifth_set_is_wrong(name: str) -> None:
    case = make(FIFTH[name], 3)
    assert differs(case.observed, product(case)) or name in ROUNDING, case.name
    assert "{" not in case.says
    for pattern in (*case.needs, *case.kind.half):
        assert not re.search(pattern, "")


@pytest.mark.parametrize("name", [*FIFTH_CORRECT][::2])
def test_a_right_kernel_of_the_fifth_set_is_right_within_its_rounding(name: str) -> None:
    case = make(FIFTH_CORRECT[name], 3)
    observed, right = case.observed.astype(float), product(case).astype(float)
    step = 0.0 if case.observed.dtype == np.int32 else float(ml_dtypes.finfo(case.observed.dtype).eps)
    assert np.isfinite(observed).all()
    assert (np.abs(observed - right) <= step * np.abs(right) + 1e-4 * np.abs(right).max()).all()


def test_the_sixth_set_says_where_its_kinds_were_met() -> None:
    assert len(SIXTH) >= 60
    assert len(SIXTH_CORRECT) >= 15
    assert not {*SIXTH, *SIXTH_CORRECT} & {
        *WRONG,
        *HELD_OUT,
        *FOURTH,
        *FIFTH,
        *CORRECT,
        *FOURTH_CORRECT,
        *FIFTH_CORRECT,
    }
    for kind in (*SIXTH.values(), *SIXTH_CORRECT.values()):
        assert kind.__doc__
        assert re.fullmatch(r"textbook|[\w-]+/[\w.-]+#\d+", kind.source), kind
        assert kind.correct or (kind.needs and kind.half)


@pytest.mark.parametrize("name", [*SIXTH][::6])
def test_a_kernel_of_the_sixth_set_is_wrong(name: str) -> None:
    case = make(SIXTH[name], 3)
    assert differs(case.observed, product(case)) or name in ROUNDING, case.name
    assert "{" not in case.says
    for pattern in (*case.needs, *case.equal, *case.kind.half):
        assert not re.search(pattern, "")
    report = {"verdict": "explained", "explanations": [{"text": case.says}]}
    assert judge(case, report) == RIGHT, case.says
    assert judge(case, {**report, "explanations": [{"text": "every output differs"}]}) != RIGHT


@pytest.mark.parametrize("name", [*SIXTH_CORRECT][::3])
def test_a_right_kernel_of_the_sixth_set_is_right_within_its_rounding(name: str) -> None:
    case = make(SIXTH_CORRECT[name], 3)
    observed, right = case.observed.astype(float), product(case).astype(float)
    step = 0.0 if case.observed.dtype == np.int32 else float(ml_dtypes.finfo(case.observed.dtype).eps)
    short = case.problem.arithmetic.a == "e4m3"  # sums of 8-bit products have fewer bits before sm_100
    assert np.isfinite(observed).all()
    assert (np.abs(observed - right) <= step * np.abs(right) + (1e-3 if short else 1e-4) * np.abs(right).max()).all()


def test_the_seventh_set_has_names_of_its_own() -> None:
    assert len(SEVENTH) >= 65
    assert len(SEVENTH_CORRECT) >= 10
    assert len({**WRONG, **HELD_OUT, **FOURTH, **FIFTH, **SIXTH, **SEVENTH}) == sum(
        map(len, (WRONG, HELD_OUT, FOURTH, FIFTH, SIXTH, SEVENTH))
    )
    assert not {*SEVENTH, *SEVENTH_CORRECT} & {*CORRECT, *FOURTH_CORRECT, *FIFTH_CORRECT, *SIXTH_CORRECT}
    for kind in (*SEVENTH.values(), *SEVENTH_CORRECT.values()):
        assert kind.__doc__
        assert kind.correct or (kind.needs and kind.half)


@pytest.mark.parametrize("name", ["CompressedAdvancesTooFar", "FactorOfTheRow"])
def test_a_kernel_of_the_seventh_set_is_wrong(name: str) -> None:
    case = make(SEVENTH[name], 3)
    assert differs(case.observed, product(case)), case.name
    report = {"verdict": "explained", "explanations": [{"text": case.says}]}
    assert judge(case, report) == RIGHT, case.says
    assert judge(case, {**report, "explanations": [{"text": "every output differs"}]}) != RIGHT


@pytest.mark.parametrize("name", ["RightStreamK", "RightStepsBackwards"])
def test_a_right_kernel_of_the_seventh_set_is_right(name: str) -> None:
    case = make(SEVENTH_CORRECT[name], 3)
    assert not differs(case.observed, product(case).astype(case.observed.dtype)), case.name


def test_the_eighth_set_has_names_of_its_own_and_says_where_its_kinds_were_met() -> None:
    assert len(EIGHTH) >= 115
    assert len(EIGHTH_CORRECT) >= 18
    before = (WRONG, HELD_OUT, FOURTH, FIFTH, SIXTH, SEVENTH)
    assert not {*EIGHTH, *EIGHTH_CORRECT} & set().union(
        CORRECT, FOURTH_CORRECT, FIFTH_CORRECT, SIXTH_CORRECT, SEVENTH_CORRECT, *before
    )
    for kind in (*EIGHTH.values(), *EIGHTH_CORRECT.values()):
        assert kind.__doc__
        assert re.fullmatch(r"textbook|[\w-]+/[\w.-]+#\d+", kind.source), kind
        assert kind.correct or (kind.needs and kind.half)


@pytest.mark.parametrize("name", ["MetadataOfTheSliceNotFound", "SerialSplitOverwrites"])
def test_a_kernel_of_the_eighth_set_is_wrong(name: str) -> None:
    case = make(EIGHTH[name], 3)
    assert differs(case.observed, product(case)), case.name
    report = {"verdict": "explained", "explanations": [{"text": case.says}]}
    assert judge(case, report) == RIGHT, case.says
    assert judge(case, {**report, "explanations": [{"text": "every output differs"}]}) != RIGHT


@pytest.mark.parametrize("name", ["FineTransposedProblem", "FineSparseInSlices"])
def test_a_right_kernel_of_the_eighth_set_is_right(name: str) -> None:
    case = make(EIGHTH_CORRECT[name], 3)
    assert not differs(case.observed, product(case).astype(case.observed.dtype)), case.name


def test_the_ninth_set_has_names_of_its_own_and_says_where_its_kinds_were_met() -> None:
    assert len(NINTH) >= 54
    assert len(NINTH_CORRECT) >= 11
    before = (WRONG, HELD_OUT, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH)
    assert not {*NINTH, *NINTH_CORRECT} & set().union(
        CORRECT, FOURTH_CORRECT, FIFTH_CORRECT, SIXTH_CORRECT, SEVENTH_CORRECT, EIGHTH_CORRECT, *before
    )
    for kind in (*NINTH.values(), *NINTH_CORRECT.values()):
        assert kind.__doc__
        assert re.fullmatch(r"textbook|[\w-]+/[\w.-]+#\d+", kind.source), kind
        assert kind.correct or (kind.needs and kind.half)


@pytest.mark.parametrize("name", ["ResidueFirstInA", "BReadBeforeItsBarrier"])
def test_a_kernel_of_the_ninth_set_is_wrong(name: str) -> None:
    case = make(NINTH[name], 3)
    assert differs(case.observed, product(case)), case.name
    report = {"verdict": "explained", "explanations": [{"text": case.says}]}
    assert judge(case, report) == RIGHT, case.says
    assert judge(case, {**report, "explanations": [{"text": "every output differs"}]}) != RIGHT


@pytest.mark.parametrize("name", ["SoundResidueFirst", "SoundEvenAndOddTiles"])
def test_a_right_kernel_of_the_ninth_set_is_right(name: str) -> None:
    case = make(NINTH_CORRECT[name], 3)
    assert not differs(case.observed, product(case).astype(case.observed.dtype)), case.name


def test_the_tenth_set_has_names_of_its_own_and_says_where_its_kinds_were_met() -> None:
    assert len(TENTH) >= 42
    assert len(TENTH_CORRECT) >= 6
    before = (WRONG, HELD_OUT, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, CORRECT)
    right = (FOURTH_CORRECT, FIFTH_CORRECT, SIXTH_CORRECT, SEVENTH_CORRECT, EIGHTH_CORRECT, NINTH_CORRECT)
    assert not {*TENTH, *TENTH_CORRECT} & set().union(*before, *right)
    for kind in (*TENTH.values(), *TENTH_CORRECT.values()):
        assert kind.__doc__
        assert re.fullmatch(r"textbook|[\w-]+/[\w.-]+#\d+", kind.source), kind
        assert kind.correct or (kind.needs and kind.half)


@pytest.mark.parametrize("name", ["SliceLostWithoutSemaphore", "NarrowSwizzleReadByRow"])
def test_a_kernel_of_the_tenth_set_is_wrong(name: str) -> None:
    case = make(TENTH[name], 3)
    assert differs(case.observed, product(case)), case.name
    report = {"verdict": "explained", "explanations": [{"text": case.says}]}
    assert judge(case, report) == RIGHT, case.says
    assert judge(case, {**report, "explanations": [{"text": "every output differs"}]}) != RIGHT


@pytest.mark.parametrize("name", ["ProperStreamK", "ProperSlicedK"])
def test_a_right_kernel_of_the_tenth_set_is_right(name: str) -> None:
    case = make(TENTH_CORRECT[name], 3)
    assert not differs(case.observed, product(case).astype(case.observed.dtype)), case.name


def test_the_eleventh_set_has_names_of_its_own_and_says_where_its_kinds_were_met() -> None:
    assert len(ELEVENTH) >= 48
    assert len(ELEVENTH_CORRECT) >= 8
    before = (WRONG, HELD_OUT, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH, CORRECT)
    right = (FOURTH_CORRECT, FIFTH_CORRECT, SIXTH_CORRECT, SEVENTH_CORRECT, EIGHTH_CORRECT, NINTH_CORRECT)
    assert not {*ELEVENTH, *ELEVENTH_CORRECT} & set().union(*before, *right, TENTH_CORRECT)
    for kind in (*ELEVENTH.values(), *ELEVENTH_CORRECT.values()):
        assert kind.__doc__
        assert re.fullmatch(r"textbook|[\w-]+/[\w.-]+#\d+", kind.source), kind
        assert kind.correct or (kind.needs and kind.half)


@pytest.mark.parametrize("name", ["OutputNotClearedBeforeAtomics", "BRegistersOfTheFirstTileTwice", "CInEverySlice"])
def test_a_kernel_of_the_eleventh_set_is_wrong(name: str) -> None:
    case = make(ELEVENTH[name], 3)
    assert differs(case.observed, product(case)), case.name
    assert "{" not in case.says
    report = {"verdict": "explained", "explanations": [{"text": case.says}]}
    assert judge(case, report) == RIGHT, case.says
    assert judge(case, {**report, "explanations": [{"text": "every output differs"}]}) != RIGHT


@pytest.mark.parametrize("name", ["ValidStaggeredK", "ValidColumnsMovedBack"])
def test_a_right_kernel_of_the_eleventh_set_is_right(name: str) -> None:
    case = make(ELEVENTH_CORRECT[name], 3)
    assert not differs(case.observed, product(case).astype(case.observed.dtype)), case.name


def test_the_twelfth_set_has_names_of_its_own_and_says_where_its_kinds_were_met() -> None:
    assert len(TWELFTH) >= 50
    assert len(TWELFTH_CORRECT) >= 8
    before = (WRONG, HELD_OUT, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH, ELEVENTH, CORRECT)
    right = (FOURTH_CORRECT, FIFTH_CORRECT, SIXTH_CORRECT, SEVENTH_CORRECT, EIGHTH_CORRECT, NINTH_CORRECT)
    assert not {*TWELFTH, *TWELFTH_CORRECT} & set().union(*before, *right, TENTH_CORRECT, ELEVENTH_CORRECT)
    for kind in (*TWELFTH.values(), *TWELFTH_CORRECT.values()):
        assert kind.__doc__
        assert re.fullmatch(r"textbook|[\w-]+/[\w.-]+#\d+", kind.source), kind
        assert kind.correct or (kind.needs and kind.half)


@pytest.mark.parametrize("name", ["LastGroupOfTilesNotClipped", "BReadFromTheNextStage", "ScaleOfBForTwoGroups"])
def test_a_kernel_of_the_twelfth_set_is_wrong(name: str) -> None:
    case = make(TWELFTH[name], 3)
    assert differs(case.observed, product(case)), case.name
    assert "{" not in case.says
    report = {"verdict": "explained", "explanations": [{"text": case.says}]}
    assert judge(case, report) == RIGHT, case.says
    assert judge(case, {**report, "explanations": [{"text": "every output differs"}]}) != RIGHT


@pytest.mark.parametrize("name", ["WellPartialsInATree", "WellCFirstThenTheLastSlice"])
def test_a_right_kernel_of_the_twelfth_set_is_right(name: str) -> None:
    case = make(TWELFTH_CORRECT[name], 3)
    assert not differs(case.observed, product(case).astype(case.observed.dtype)), case.name


def test_a_kind_that_does_the_same_is_found() -> None:
    class Again(SIXTH["RaggedKDropped"]):  # type: ignore[name-defined,misc]
        pass

    case = make(SIXTH["RaggedKDropped"], 3)
    kernel = SIXTH["RaggedKDropped"](case.problem, case.tiling, np.random.default_rng(3))
    others = {"Again": Again, "BoxOfHalfATile": SIXTH["BoxOfHalfATile"], "SignLost": SIXTH["SignLost"]}
    assert twins(kernel, kernel.launch(), 3, others) == ["Again"]


def test_an_equal_explanation_is_right() -> None:
    cases = (make(SIXTH["WaitOneGroupTooFew"], seed) for seed in range(50))
    case = next(case for case in cases if case.equal)
    report = {"verdict": "explained", "explanations": [{"text": "a b without k 128-255: the last K tiles are missing"}]}
    assert judge(case, report) == RIGHT
    assert judge(replace(case, equal=()), report) != RIGHT


@pytest.mark.parametrize("name", ["Plain", "Swizzled", "Sparse", "Scaled", "Blackwell", "SameOrderInBoth"])
def test_a_right_kernel_is_right(name: str) -> None:
    case = make(CORRECT[name], 0)
    right = product(case).astype(case.observed.dtype)
    assert not differs(case.observed, right)
    assert name == "SameOrderInBoth" or np.array_equal(case.observed, right)


@pytest.mark.parametrize(("text", "verdict", "expected"), [
    (["a: the pitch is 80, not 64"], "explained", RIGHT),
    (["c transposed", "a: leading dimension 80"], "explained", EQUALS),
    (["a transposed"], "explained", HALF),
    (["c transposed"], "explained", CONFIDENT),
    (["an explanation of a product in a block"], "explained", CONFIDENT),
    ([], "not explained", UNEXPLAINED),
    ([], "correct", CONFIDENT),
])  # fmt: skip
def test_the_judge(text: list[str], verdict: str, expected: str) -> None:
    case = make(WRONG["PitchOfA"], 0)
    report = {"verdict": verdict, "explanations": [{"name": line, "also": []} for line in text]}
    assert judge(case, report) == expected


def test_the_judge_of_right_kernels() -> None:
    case = make(CORRECT["Plain"], 0)
    assert [judge(case, {"verdict": verdict}) for verdict in ("correct", "not explained", "explained")] == [
        RIGHT,
        UNEXPLAINED,
        CONFIDENT,
    ]


def test_the_table_counts_every_case() -> None:
    results = [run((name, 0)) for name in ("Plain", "CTwice")]
    assert [line.split("|")[2].strip() for line in table(results).splitlines()[2:]] == ["1", "1", "1", "1"]
