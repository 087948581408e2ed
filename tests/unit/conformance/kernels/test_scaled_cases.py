"""The conformance suite's block-scaled GEMM cases: they tell mutants apart, and a GPU that walks through the kernels passes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.kernels import gemm_direct, precompile
from conformance.kernels import scaled as scaled_cases
from conformance.kernels.scaled import CLASSES, SIZES, ScaledCase, operands, predicted
from conformance.suite.cases import Outcome, Settings, Suite
from conformance.suite.hardware import Hardware
from conformance.test_scaled import run
from hwkernels.device import stream_launch
from hwkernels.device.plan import run_call
from hwkernels.gemm.scaled_kernels import SCALED_KERNELS
from tests.support.suite_runs import GPU, suite_run
from tests.unit.hwkernels.gemm import test_scaled_call
from tests.unit.hwkernels.gemm.test_scaled_call import Blackwell

gpu = test_scaled_call.gpu  # a fixture of that module

ARCHS = {"sm_100": (10, 0), "sm_103": (10, 3), "sm_110": (11, 0), "sm_120": (12, 0), "sm_121": (12, 1)}


@pytest.mark.parametrize("arch", ARCHS)
def test_there_is_a_case_for_every_kernel_format_size_and_class(arch: str) -> None:
    """And ids are unique, and every build is for the arch's own target."""
    found = list(scaled_cases.cases(arch))
    assert len({case.id for case in found}) == len(found) >= 130
    kernels = {name for name, row in SCALED_KERNELS.items() if int(arch[3:]) in row.archs}
    assert len(kernels) == 3 and {case.kernel for case in found} == kernels
    for name in kernels:
        mine = [case for case in found if case.kernel == name]
        row = SCALED_KERNELS[name]
        assert {(c.a, c.b, c.size, c.inputs) for c in mine} >= {
            (a, b, size, kind) for a in row.formats for b in row.formats for size in SIZES for kind in CLASSES
        }
        assert {(c.out, c.scaled) for c in mine} == {(o, s) for o in ("bf16", "f16", "f32") for s in (False, True)}
        assert {c.block_n for c in mine} == {None, *row.block_n}
    assert {build.target for build in precompile.scaled_builds(arch)} == {f"{arch}a"}
    assert not list(scaled_cases.cases("sm_90"))


def test_inputs_depend_on_the_seed_and_hold_what_they_promise() -> None:
    """Every class makes outputs of the kinds that it is for."""
    shares = {}
    for name, row in SCALED_KERNELS.items():
        arch = f"sm_{row.archs[0]}"
        for kind in CLASSES:
            case = ScaledCase(name, row.formats[-1], row.formats[-1], "f32", (70, 130, 300), kind)
            codes, again, other = operands(case, 0), operands(case, 0), operands(case, 1)
            assert all(np.array_equal(codes[part], again[part]) for part in codes)
            assert (codes["a"] != other["a"]).mean() > 0.5 and (codes["scale_b"] != other["scale_b"]).mean() > 0.5
            d = predicted(case, arch, codes).view(np.float32)
            shares[name, kind] = [float(x.mean()) for x in (np.isnan(d), np.isinf(d), np.isfinite(d))]
            assert len(np.unique(d)) > 1000
        for kind in ("random", "wide"):
            assert shares[name, kind] == [0, 0, 1], (name, kind)
        for kind in ("extremes", "specials"):
            has_nan = kind == "extremes" or row.formats[-1] == "e5m2"
            assert shares[name, kind][2] > 0.05 and (shares[name, kind][0] > 0.01) == has_nan, (name, kind)
    assert shares["sm100_mxfp8", "specials"][1] > 0.001


def mutants(case: ScaledCase, arch: str) -> dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]]:
    """Mistakes that a kernel or a model could make, each a prediction."""
    build = case.build(arch)
    desc = build.constants.descriptors[0] if build.row.tensor_memory else None
    blocks = -(-case.size[2] // (build.row.slot_k // 4))

    def gemm(codes: dict[str, np.ndarray], **more: Any) -> np.ndarray:
        return tcsim.gemm(**codes, instruction=build.instruction, idesc=desc, **more)

    def changed(codes: dict[str, np.ndarray], **parts: np.ndarray) -> np.ndarray:
        return gemm(codes | parts)

    top = 0x80 if build.row.scale_format == "ue4m3" else 0xFF
    one = {"ue8m0": 127, "ue4m3": 0x38}[build.row.scale_format]
    return {
        "K descending": lambda x: gemm(x, k_order=range(blocks)[::-1]),
        "the factors of the block before": lambda x: changed(x, scale_a=np.roll(x["scale_a"], 1, 1)),
        "the factors of the row before": lambda x: changed(x, scale_a=np.roll(x["scale_a"], 1, 0)),
        "the factors of the other 128 columns": lambda x: changed(x, scale_b=np.roll(x["scale_b"], 128, 1)),
        "factors of B left out": lambda x: changed(x, scale_b=np.full_like(x["scale_b"], one)),
        "a NaN factor is a number": lambda x: changed(
            x,
            scale_a=np.where(x["scale_a"] == top - (top == 0x80), top - 1 - (top == 0x80), x["scale_a"]).astype(
                np.uint8
            ),
        ),
        "the least factor is zero": lambda x: changed(
            x,
            a=np.where(np.repeat(x["scale_a"] == 1, build.row.block, 1)[:, : x["a"].shape[1]], 0, x["a"]).astype(
                np.uint8
            ),
        ),
    }


@pytest.mark.parametrize("name", SCALED_KERNELS)
def test_mutants_are_contradicted(name: str) -> None:
    """By one case at least of the classes."""
    row = SCALED_KERNELS[name]
    arch, killed = f"sm_{row.archs[0]}", dict[str, set[str]]()
    for kind in CLASSES:
        case = ScaledCase(name, row.formats[0], row.formats[-1], "f32", (40, 140, 520), kind)
        codes = operands(case, 0)
        right = predicted(case, arch, codes)
        for mistake, wrong in mutants(case, arch).items():
            killed.setdefault(mistake, set())
            if (wrong(codes) != right).any():
                killed[mistake].add(kind)
    assert len(killed) == 7 and all(killed.values()), killed


class Walking(Hardware):
    """A GPU that runs a call in this process, on a driver that walks through the kernel in the model; or spoils what it gets."""

    def __init__(self, spoil: Callable[[np.ndarray, int], None] | None = None) -> None:
        super().__init__(GPU)
        self.spoil = spoil

    def run_whole(self, job: Any) -> list[np.ndarray]:
        """From arrays to arrays: packing, maps, launch, kernel, output."""
        results = run_call(job)
        for number, result in enumerate(results):
            if self.spoil:
                self.spoil(result.view(f"u{result.dtype.itemsize}"), number)
        return results


SMALLER = {SIZES[0]: (20, 140, 1024), SIZES[1]: (129, 133, 143), SIZES[2]: (7, 130, 300)}


def sampled(arch: str) -> list[ScaledCase]:
    """Smaller sizes: each kernel, class, output, epilogue and width of tiles; of pairs of formats two."""
    found = [replace(case, size=SMALLER.get(case.size, (20, 140, 143))) for case in scaled_cases.cases(arch)]
    chosen = {(c.kernel, c.inputs, c.out, c.scaled, c.block_n): c for c in found if c.a == c.b or c.inputs == "wide"}
    return list(chosen.values())


@pytest.mark.parametrize("arch", ["sm_100", "sm_121"])
def test_cases_pass_where_the_kernels_are_walked_through(gpu: Blackwell, arch: str) -> None:
    """The whole way of a live case, to the bit."""
    gpu.capability = ARCHS[arch]
    stream_launch.arch_number.cache_clear()
    outcomes = [run(case, Suite(Settings(arch, "live"), Walking())) for case in sampled(arch)]
    assert [one.verdict for one in outcomes] == ["PASS"] * len(outcomes) and len(outcomes) >= 30
    assert sum(one.outputs for one in outcomes) > 30 * 1000
    assert len(gpu.configs) == 2 * len(outcomes)


def _one_bit(codes: np.ndarray, _: int) -> None:
    codes[7, 39] ^= 1


def _once(codes: np.ndarray, number: int) -> None:
    codes[0, 0] ^= number


@pytest.mark.parametrize(
    ("spoil", "verdict", "text"),
    [
        (_one_bit, "FAIL", "1 of 2800 outputs differ\nMISMATCH row 7, column 39: hardware 0x"),
        (_once, "UNSTABLE", "differ in 1 outputs"),
    ],
)
def test_verdicts(gpu: Blackwell, spoil: Any, verdict: str, text: str) -> None:
    """One wrong bit, two different runs; how to run it again."""
    case = ScaledCase("sm100_nvfp4", "e2m1", "e2m1", "f32", (20, 140, 70), "random")
    outcome: Outcome = run(case, Suite(Settings("sm_100", "live", seed=3), Walking(spoil)))
    assert outcome.verdict == verdict and text in outcome.text
    assert f"conformance/test_scaled.py::test_scaled[{case.id}]' --arch sm_100 --live --seed 3" in outcome.text


def test_offline_nothing_is_claimed() -> None:
    """Without a GPU the cases are UNTESTED, and a run of nothing else fails."""
    done = suite_run("conformance/test_scaled.py", "-q", "-k", "nvfp4 and 70x520", "--arch", "sm_100", "--replay")
    assert done.returncode == 1 and "nothing was compared" in done.stdout
    assert "UNTESTED" in done.stdout and " passed" not in done.stdout


def test_a_debugger_finds_them() -> None:
    """gemm_direct offers dense and block-scaled cases."""
    ids = [trial.id for trial in gemm_direct.trials("sm_100", 0, ["257x301x143-random"])]
    assert sum("scaled-sm100" in name for name in ids) == 6 and sum("gemm-sm100" in name for name in ids) >= 15
