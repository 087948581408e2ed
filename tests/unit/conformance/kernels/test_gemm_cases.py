"""The conformance suite's GEMM cases: they tell mutants apart, and what comes back from a GPU is judged on bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.kernels import gemm as gemm_cases
from conformance.kernels import precompile
from conformance.kernels.gemm import GemmCase, call_of, operands, predicted
from conformance.suite.cases import Settings, Suite
from conformance.suite.hardware import Hardware
from conformance.test_gemm import run
from hwkernels.device.worker import ContextLost, ExecutorError, Hang
from hwkernels.gemm.call import Tuning
from hwkernels.gemm.kernels import KERNELS
from tests.support.suite_runs import GPU, suite_run

CASES = list(gemm_cases.cases("sm_90"))
SMALL = GemmCase("sm90_wgmma_persistent", "f16", "f16", "f32", (33, 40, 100), "wide")


def test_there_is_a_case_for_every_kernel_format_size_and_class() -> None:
    """And ids are unique, and say what they are."""
    assert len({case.id for case in CASES}) == len(CASES) > 500
    kernels = {name for name, row in KERNELS.items() if row.name != "sm70_mma_m8n8k4" and not row.ctas}
    assert {case.kernel for case in CASES} == kernels
    persistent = [case for case in CASES if case.kernel == "sm90_wgmma_persistent"]
    assert {case.a for case in persistent} == set(KERNELS["sm90_wgmma_persistent"].formats)
    assert {case.size for case in persistent} >= {*gemm_cases.SIZES, gemm_cases.WAVES}
    assert {case.tuning.cluster for case in persistent} >= {(1, 1), (1, 2), (2, 2), (4, 1)}
    assert "gemm-sm90_wgmma_persistent-f16.f16.f32-KK-257x301x143-specials" in {case.id for case in CASES}
    assert not [case for case in gemm_cases.cases("sm_80") if "sm90" in case.kernel]
    assert len(precompile.builds("sm_90")) > 200


def test_inputs_depend_on_the_seed_and_hold_what_they_promise() -> None:
    """Wide: exponents far apart and finite. Specials: NaN, infinities and zeros in, outputs of every kind out."""
    for case in (replace(SMALL, a=f, b=f) for f in ("f16", "bf16", "tf32", "e4m3", "e5m2")):
        a, b, _ = operands(case, 0)
        values = np.abs(tcsim.decode(a, case.a).astype(float))
        assert np.isfinite(values).all()
        spread = np.log2(values[values > 0])
        assert np.ptp(spread) > (14 if case.a == "e4m3" else 25)
        again, other = operands(case, 0)[0], operands(case, 1)[0]
        np.testing.assert_array_equal(a, again)
        assert (a != other).mean() > 0.5
    for format_ in ("f16", "bf16", "tf32"):
        case = replace(SMALL, a=format_, b=format_, inputs="specials", size=(128, 128, 100))
        d = predicted(case, "sm_90", *operands(case, 0)).view(np.float32)
        kinds = np.isnan(d).mean(), np.isinf(d).mean(), np.isfinite(d).mean()
        assert all(share > 0.005 for share in kinds), (format_, kinds)


@pytest.mark.parametrize("inputs", ["random", "wide"])
@pytest.mark.parametrize("format_", ["f16", "bf16", "tf32", "e4m3"])
def test_mutants_are_contradicted(format_: str, inputs: str) -> None:
    """K descending, two chains added, K blocks of another instruction: each differs in some output."""
    case = GemmCase("sm90_wgmma_persistent", format_, format_, "f32", (70, 520, 1096), inputs)
    a, b, _ = operands(case, 0)
    a, b = a[:32], b[:, :64]
    instruction = case.build("sm_90").instruction
    right = predicted(case, "sm_90", a, b, None)
    blocks = -(-1096 // instruction.shape[2])
    down = tcsim.gemm(a, b, instruction=instruction, k_order=range(blocks)[::-1])
    halves = [
        tcsim.gemm(a[:, part], b[part], instruction=instruction).view(np.float32)
        for part in (slice(0, 544), slice(544, None))
    ]
    warp = {"f16": "k16", "bf16": "k16", "tf32": "k8", "e4m3": "k32"}[format_]
    other = tcsim.gemm(
        a,
        b,
        instruction=f"mma.sync.aligned.m16n8{warp}.row.col.f32.{format_}.{format_}.f32",
        arch="sm_80" if format_ != "e4m3" else "sm_90",
    )
    promoted = predicted(replace(case, tuning=Tuning(block_n=128, promote=1)), "sm_90", a, b, None)
    for name, wrong in (
        ("descending", down),
        ("split", (halves[0] + halves[1]).view(np.uint32)),
        ("another instruction", other),
        ("promoted", promoted),
    ):
        assert (wrong != right).sum() > 0, name


def test_the_epilogue_of_the_model() -> None:
    """alpha and beta in f32, then one rounding; integers wrap; NaN is canonical."""
    case = replace(SMALL, scaled=True, inputs="random")
    a, b, c = operands(case, 0)
    assert c is not None
    plain = predicted(replace(case, scaled=False), "sm_90", a, b, None).view(np.float32)
    want = 0.5 * plain.astype(np.float64) - 2.0 * c.view(np.float32).astype(np.float64)
    np.testing.assert_array_equal(predicted(case, "sm_90", a, b, c).view(np.float32), want.astype(np.float32))
    half = predicted(replace(case, out="f16"), "sm_90", a, b, tcsim.encode(c.view(np.float32), "f16"))
    assert half.dtype == np.uint16
    whole = replace(case, a="s8", b="s8", out="s32")
    a, b, c = operands(whole, 0)
    assert c is not None
    want_s32 = 3 * (a.view(np.int8).astype(int) @ b.view(np.int8).astype(int)) - 2 * c.view(np.int32).astype(int)
    np.testing.assert_array_equal(predicted(whole, "sm_90", a, b, c).view(np.int32), want_s32)


def test_majors_of_a_case_are_the_order_in_memory() -> None:
    """A Fortran-ordered array is MN-major for a, K-major for b."""
    for majors in ((False, False), (True, False), (False, True), (True, True)):
        job = call_of(replace(SMALL, majors=majors), *operands(SMALL, 0), repeat=2)
        assert (job.a.flags.f_contiguous, job.b.flags.c_contiguous) == majors
        assert job.a.dtype == np.float16 and job.repeat == 2


class Imaginary(Hardware):
    """A GPU that answers as it is told to."""

    def __init__(self, answer: Any) -> None:
        super().__init__(GPU)
        self.answer = answer

    def run_whole(self, job: Any) -> list[Any]:
        """Answer."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return [item.copy() for item in self.answer]


def test_verdicts() -> None:
    """Equal bits pass; one wrong bit, two different runs, a hang, a lost context and a Python error do not."""
    right = predicted(SMALL, "sm_90", *operands(SMALL, 0)).view(np.float32)
    wrong = right.copy()
    wrong.view(np.uint32)[7, 39] ^= 1

    def verdict(answer: Any) -> tuple[str, str]:
        outcome = run(SMALL, Suite(Settings("sm_90", "live"), Imaginary(answer)))
        return outcome.verdict, outcome.text

    assert verdict([right, right]) == ("PASS", "")
    failed, text = verdict([wrong, wrong])
    assert failed == "FAIL" and "1 of 1320 outputs differ" in text and "MISMATCH row 7, column 39" in text
    assert f"test_gemm[{SMALL.id}]" in text
    assert verdict([right, wrong])[0] == "UNSTABLE"
    assert verdict(Hang("gemm", 60))[0] == "HANG"
    assert verdict(ContextLost("gone"))[0] == "CONTEXT_LOST"
    assert verdict(ExecutorError("broken"))[0] == "FAIL"
    assert run(SMALL, Suite(Settings("sm_90", "replay"))).verdict == "UNTESTED"


def test_offline_nothing_is_claimed() -> None:
    """Without a GPU cases that no recording holds are UNTESTED, and a run of nothing else fails."""
    options = ("-q", "-k", "sm90_wgmma_basic-f16", "--arch", "sm_90", "--replay", "--seed", "9")
    done = suite_run("conformance/test_gemm.py", *options)
    assert done.returncode == 1 and "nothing was compared" in done.stdout
    assert "UNTESTED" in done.stdout and " passed" not in done.stdout
