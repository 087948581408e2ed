"""Cases of which a recording keeps a digest of all results and some samples: what a replay compares of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.isa import testbench_of
from conformance.suite.cases import Case, Settings, Suite

STORE = "st.async.mbarrier::complete_tx::bytes.b32"
CASES = {
    STORE: "spread", "setmaxnreg.inc.sync.aligned.u32": "many", "barrier.cluster.arrive.aligned": "rounds", "discard.L2": "lines",
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16": "tile",
}  # fmt: skip
"""A case of each kind whose answer says which bytes went where."""


def suite(samples: int | None = None) -> Suite:
    return Suite(Settings("sm_90", "replay", samples=samples))


@pytest.mark.parametrize("mnemonic", CASES)
def test_a_digest_stands_for_all_that_is_compared(mnemonic: str) -> None:
    """As many outputs are counted as a comparison of all samples counts."""
    case, own = Case(mnemonic, CASES[mnemonic], 0), suite()
    recording = own.recording(mnemonic)
    assert recording is not None
    recorded, instruction = recording.cases[case.name, 0], own.instruction(mnemonic)
    assert recorded.result_sha256 and len(recording.results[case.name, 0]) < recorded.samples
    testbench = testbench_of(instruction.row.family)
    given = own.inputs(case, recorded.samples)
    model = testbench.model(instruction, given)
    everything = testbench.compare(instruction, given, model, model).outputs
    outcome = own.run(case)
    assert (outcome.verdict, outcome.outputs) == ("REPLAYED", everything) and everything > 0


@pytest.mark.parametrize(("samples", "outputs"), [(1, 1024), (3, 16 * 1024), (None, 16 * 1024)])
def test_more_samples_than_were_kept_are_all_compared(samples: int | None, outputs: int) -> None:
    """A sample that was kept is compared alone; beyond that the digest decides, for all of them."""
    outcome = suite(samples).run(Case(STORE, "spread", 0))
    assert (outcome.verdict, outcome.outputs) == ("REPLAYED", outputs)


@pytest.mark.parametrize(("sample", "samples", "verdict", "told"), [
    (0, None, "FAIL", "outputs differ"), (5, None, "FAIL", "the digest of"), (5, 3, "FAIL", "the digest of"), (5, 1, "REPLAYED", ""),
])  # fmt: skip
def test_a_wrong_bit_is_found(
    monkeypatch: pytest.MonkeyPatch, sample: int, samples: int | None, verdict: str, told: str
) -> None:
    """In a sample that was kept with its place, in another by the digest."""
    testbench = testbench_of("st.async")
    right = testbench.model

    def wrong(instruction: Any, inputs: Any) -> Any:
        out = right(instruction, inputs).copy()
        if len(out) > sample:
            out[sample, 7] ^= np.uint32(1)
        return out

    monkeypatch.setattr(testbench, "model", wrong)
    outcome = suite(samples).run(Case(STORE, "spread", 0))
    assert outcome.verdict == verdict and told in outcome.text
