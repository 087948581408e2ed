"""tcgen05.mma in a live run, with the model, or something a bit worse, in the GPU's place."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from conformance.isa.tcgen05 import TENSOR_MEMORY
from conformance.suite.cases import Case, Settings, Suite
from conformance.suite.hardware import Hardware, Workshop
from hwkernels.device.driver import DeviceInfo
from hwkernels.probes.probe import Probe

GPU = DeviceInfo(0, "Imaginary GPU", "sm_100", "1.2.3", "13.0", 1, 1)
ROWS = (
    "tcgen05.mma.cta_group::2.kind::f16.collector::a::use",
    "tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16.collector::a::fill",
    "tcgen05.mma.ws.cta_group::1.kind::tf32.collector::b2::fill",
)


class Imaginary(Hardware):
    """A GPU that computes what the model does, but for one bit of one cell if it is told to; its launches are kept."""

    def __init__(self, wrong: bool) -> None:
        super().__init__(GPU)
        self.wrong, self.launches = wrong, []  # type: ignore[var-annotated]

    def run(self, made: Probe, inputs: dict[str, npt.NDArray[Any]], repeat: int = 1) -> list[npt.NDArray[np.uint32]]:
        """The memory afterwards, once a repetition."""
        assert made.complaint == ""
        self.launches.append(made.launch(inputs, repeat))
        answer = TENSOR_MEMORY.model(tcsim.instruction(made.instruction.mnemonic, arch="sm_100"), inputs)
        if self.wrong:
            answer[0, 0, 5, 7] ^= np.uint32(1)
        return [answer.copy() for _ in range(repeat)]


def live(mnemonic: str, wrong: bool = False) -> tuple[Suite, Imaginary]:
    """A live suite of one instruction."""
    hardware = Imaginary(wrong)
    suite = Suite(Settings("sm_100", "live"), hardware)
    suite.__dict__["workshop"] = Workshop([suite.instruction(mnemonic)])
    return suite, hardware


@pytest.mark.parametrize("mnemonic", ROWS)
def test_hardware_that_agrees_passes(mnemonic: str) -> None:
    suite, hardware = live(mnemonic)
    names = TENSOR_MEMORY.classes(suite.instruction(mnemonic))
    assert len(names) >= 2
    for name in names:
        outcome = suite.run(Case(mnemonic, name, 0))
        assert outcome.verdict == "PASS", outcome.text
        assert outcome.outputs >= 2 * 128 * 128 and outcome.mismatches == 0
    assert [launch.cluster for launch in hardware.launches] == [(2, 1, 1) if "::2" in mnemonic[:30] else None] * len(
        names
    )
    assert all(launch.repeat == 2 and launch.kernel.startswith("probe_tcgen05_mma") for launch in hardware.launches)


def test_one_wrong_bit_fails_and_says_where() -> None:
    suite, _ = live(ROWS[0], wrong=True)
    outcome = suite.run(Case(ROWS[0], "desc", 0))
    assert (outcome.verdict, outcome.mismatches) == ("FAIL", 1)
    first = outcome.text.splitlines()
    assert "1 of" in first[0] and "evidence inferred" in first[0]
    assert re.match(
        r"MISMATCH sample 0 CTA 0 lane 5 column 7 \(row 5, column 7 of D\): before 0x\w+ hardware 0x\w+ model", first[1]
    )
    assert first[2].startswith("rerun: ") and "/test_cases.py::test_case[tcgen05.mma.cta_group::2" in first[2]
    assert any("kind" in line or "m " in line for line in first[3:])


def test_no_row_is_refused() -> None:
    suite = Suite(Settings("sm_107", "live"), Imaginary(False))
    rows = [row for row in suite.rows if row.family.startswith("tcgen05.mma")]
    assert len(rows) == 826 and not [row for row in rows if suite.why_refused(row)]
    assert not [row for row in suite.refused() if row.mnemonic.startswith("tcgen05.mma")]
