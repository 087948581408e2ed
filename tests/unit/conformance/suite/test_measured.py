"""What claims to be measured has a recording, and what was recorded is what the registry has."""

from __future__ import annotations

import tcsim
from conformance.isa import testbench_of
from conformance.suite import packs, recordings
from tcsim import catalog
from tcsim.core.targets import ARCHS


def names(arch: str) -> list[str]:
    """Recordings of instructions: not those of the driver's encoder, of open questions or of whole outputs."""
    others = ("CUtensorMap.", "open.", "gemm-", "convert-")
    return sorted(name for name in packs.names(arch, recordings.ROOT) if not name.startswith(others))


def test_measured_rows_have_recordings_and_recordings_have_measured_rows() -> None:
    claimed, recorded = set(), set()
    for arch in ARCHS:
        for row in catalog.on_arch(arch):
            if tcsim.instruction(row.mnemonic, arch=arch).evidence.level == "measured":
                claimed.add((arch, recordings.path_of(row.mnemonic, arch).stem))
        recorded |= {(arch, name) for name in names(arch)}
    assert claimed == recorded
    assert len(claimed) > 1_400


def test_recordings_hold_every_class_of_their_instruction() -> None:
    cases = 0
    for row in list(catalog.on_arch("sm_90"))[::7]:  # a seventh: reading them all is the replay's work
        mnemonic = row.mnemonic
        recording = recordings.read(mnemonic, "sm_90")
        if recording is None:
            continue
        instruction = tcsim.instruction(mnemonic, arch="sm_90")
        testbench = testbench_of(instruction.row.family)
        recorded = {name for name, _ in recording.cases} - {*testbench.level_2(instruction)}
        assert set(testbench.classes(instruction)) <= recorded <= set(testbench.every_class(instruction))
        assert recording.origin.gpu == "NVIDIA H200"
        cases += len(recording.cases)
    assert cases > 900
