"""Whole outputs of kernels, recorded as digests of blocks: what is replayed, what a difference looks like, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.kernels import convert, gemm
from conformance.kernels.convert import ConvertCase
from conformance.kernels.gemm import GemmCase
from conformance.kernels.whole_outputs import Trial, judge
from conformance.suite import recordings, whole_recordings
from conformance.suite.cases import Settings, Suite
from conformance.suite.hardware import Hardware
from conformance.suite.recordings import RecordingError
from tests.support.suite_runs import GPU

GEMM = GemmCase("sm90_wgmma_persistent", "f16", "f16", "f32", (128, 256, 192), "wide")
CASES: list[Callable[[], Trial]] = [
    lambda: gemm.trial_of(GEMM, "sm_90", 0),
    lambda: convert.trial_of(ConvertCase("e4m3", True, 65536, "ties"), "sm_90", 0),
]


class Answering(Hardware):
    """A GPU whose outputs are the model's, with one bit changed in the element at `wrong`."""

    def __init__(self, trial: Trial, wrong: tuple[int, ...] | None = None) -> None:
        super().__init__(GPU)
        self.trial, self.wrong = trial, wrong

    def run_whole(self, job: Any) -> list[np.ndarray]:
        """Both repetitions."""
        output = self.trial.predicted().copy()
        if self.wrong is not None:
            output[self.wrong] ^= output.dtype.type(1)
        return [output, output]


def record(trial: Trial, root: Path, wrong: tuple[int, ...] | None = None) -> Suite:
    """A live run that records one case."""
    suite = Suite(Settings("sm_90", "live", record=True, root=root, blocks=0), Answering(trial, wrong))
    judge(trial, suite)
    return suite


def replay(trial: Trial, root: Path, blocks: int = 0) -> Any:
    """The outcome of a replay."""
    return judge(trial, Suite(Settings("sm_90", "replay", root=root, blocks=blocks)))


@pytest.mark.parametrize("make", CASES, ids=["gemm", "convert"])
def test_what_was_recorded_replays(make: Callable[[], Trial], tmp_path: Path) -> None:
    """Without a file UNTESTED; then one block by default, or all."""
    trial = make()
    assert replay(trial, tmp_path).verdict == "UNTESTED"
    assert record(trial, tmp_path).written == [whole_recordings.path_of(trial.id, "sm_90", tmp_path)]
    whole, one = replay(trial, tmp_path), replay(trial, tmp_path, 1)
    assert (whole.verdict, one.verdict) == ("REPLAYED", "REPLAYED")
    assert (whole.outputs, one.outputs) == ((32768, 4096) if "gemm" in trial.id else (65536, 4096))
    assert whole.how.startswith("recorded on Imaginary GPU, driver 1.2.3, NVRTC 1")


def test_one_wrong_bit_is_found_where_its_block_is_computed(tmp_path: Path) -> None:
    """Among the codes that were kept it is shown; elsewhere its block is named."""
    trial = CASES[0]()
    record(trial, tmp_path, (127, 250))
    outcome = replay(trial, tmp_path, 1)
    assert (outcome.verdict, outcome.mismatches) == ("FAIL", 1)
    assert "MISMATCH row 127, column 250: hardware 0x" in outcome.text
    record(trial, tmp_path, (3, 70))
    assert replay(trial, tmp_path, 1).verdict == "REPLAYED"
    outcome = replay(trial, tmp_path)
    assert outcome.verdict == "FAIL"
    assert "MISMATCH in block 1 of 8" in outcome.text


def test_a_live_recording_that_disagrees_fails(tmp_path: Path) -> None:
    """The element is named, as all codes are known."""
    trial = CASES[0]()
    suite = Suite(Settings("sm_90", "live", record=True, root=tmp_path, blocks=0), Answering(trial, (3, 70)))
    outcome = judge(trial, suite)
    assert outcome.verdict == "FAIL"
    assert "MISMATCH row 3, column 70: hardware 0x" in outcome.text


def test_other_inputs_are_not_compared(tmp_path: Path) -> None:
    """A digest that does not fit."""
    trial = CASES[1]()
    record(trial, tmp_path)
    outcome = replay(replace(trial, inputs=lambda: {"x": np.zeros(3)}), tmp_path)
    assert (outcome.verdict, outcome.outputs) == ("FAIL", 0)
    assert outcome.text.startswith("the inputs of convert-e4m3")


def test_seeds_share_a_file(tmp_path: Path) -> None:
    """Both are read back."""
    about = {"inputs_sha256": "a" * 64, "gpu": "G", "driver": "1", "compiler": "c", "date": "2026-01-01"}
    for seed in (0, 5):
        whole_recordings.write("x", "sm_90", seed, np.full(10, seed, np.uint8), about, tmp_path)
    for seed in (0, 5):
        found = whole_recordings.read("x", "sm_90", seed, tmp_path)
        assert found is not None and (found.codes == seed).all() and found.shape == (10,)
    assert whole_recordings.read("x", "sm_90", 1, tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [{"shape": [-1]}, {"shape": [1 << 40]}, {"shape": [10, 10, 10]}, {"dtype": "object"}, {"shape": [5000]}],
    ids=str,
)
def test_headers_that_lie_are_corruption(tmp_path: Path, change: dict[str, Any]) -> None:
    """Negative and absurd sizes, types that no output has, digests that do not fit."""
    about = {"inputs_sha256": "a" * 64, "gpu": "G", "driver": "1", "compiler": "c", "date": "2026-01-01"}
    path = whole_recordings.write("x", "sm_90", 0, np.zeros(10, np.uint8), about, tmp_path)
    header, content = recordings.read_arrays(path)
    header["cases"][0] |= change
    recordings.write_arrays(path, header, content)
    with pytest.raises(RecordingError, match=r"corrupt recording .*x\.npz: "):
        whole_recordings.read("x", "sm_90", 0, tmp_path)
