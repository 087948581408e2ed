"""The campaign over all inputs of conversions: its kernels run by `tcsim.ptx`, its inputs, its control, and what a GPU answered, replayed in part."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from conformance.conversions import __main__ as campaign
from conformance.conversions.source import (
    chosen,
    conversion_of,
    domains_of,
    expected,
    inputs_of,
    kernel_of,
    operands,
    source,
)
from conformance.special.source import WORDS, summed
from hwkernels.device.nvrtc import compile_cubin
from tcsim.numbers.conversion import convert
from tcsim.ptx import Memory, parse

RUN = (
    "cvt.rn.satfinite.relu.e4m3x2.f32", "cvt.rz.relu.bf16x2.f32", "cvt.rna.satfinite.tf32.f32", "cvt.rm.f16.f32",
    "cvt.rn.f16x2.e5m2x2", "cvt.rn.bf16.f64", "cvt.rpi.sat.s8.f32", "cvt.rn.f16.s8",
)  # fmt: skip


def on_the_machine(mnemonics: tuple[str, ...], count: int, direction: str = "") -> dict[tuple[str, str], np.ndarray]:
    """What each kernel writes of its first inputs, run by `tcsim.ptx` from NVRTC's PTX."""
    module, found = parse(compile_cubin(source(mnemonics, direction), "sm_90a").ptx), {}
    for mnemonic in mnemonics:
        for domain in domains_of(chosen()[mnemonic]):
            memory = Memory()
            out = memory.allocate(np.zeros(8 * WORDS, np.uint8))
            kernel = module.kernel(f"compare_{kernel_of(chosen()[mnemonic], domain)}")
            run = kernel.launch(memory, [out, 0, count, 1], grid=(2, 1, 1), block=(64, 1, 1), arch="sm_90")
            assert run.completed and set(run.inexact) <= {"atom.add.u64"}  # which mismatches are kept
            found[mnemonic, domain] = memory.read(out, 8 * WORDS).view(np.uint64)
    return found


def test_kernels_agree_with_the_executor() -> None:
    """The integers of the kernel and the model that stands for the instruction; the sum is that of NumPy's inputs and results."""
    for (mnemonic, domain), words in on_the_machine(RUN, 256).items():
        assert words[0] == 256 and words[1] == 0, (mnemonic, words.tolist())
        assert words[2] == summed(expected(chosen()[mnemonic], domain, 0, 256, 1)), mnemonic


def test_the_control_is_found() -> None:
    """Rounded towards zero: the mismatches are those that NumPy counts, and of all inputs as many as are predicted."""
    row = chosen()[campaign.CONTROL]
    (((_, domain), words),) = on_the_machine((campaign.CONTROL,), 256, "rz").items()
    own = conversion_of(row)
    codes = np.arange(1 << 16, dtype=np.uint16)
    changed = convert(codes, own) != convert(codes, replace(own, rounding="rz"))
    pairs = operands(domain, 0, 256, 1)[0].astype(np.uint32)
    assert words[1] == (changed[pairs & 0xFFFF] | changed[pairs >> 16]).sum() > 50
    assert 2**32 - int((~changed).sum()) ** 2 == campaign.PREDICTED


def test_every_input_is_asked() -> None:
    """All codes of one register; all of each of two. Numbers i begin everywhere and repeat nothing."""
    assert len(chosen()) == 108
    total = sum(inputs_of(domain) for row in chosen().values() for domain in domains_of(row))
    assert total == 92 * 2**32 + 32 * 2**16 + 4 * 2**8
    spread = operands("every_32", 0, 1 << 16, 1)[0]
    assert len(np.unique(spread)) == 1 << 16 and len(np.unique(spread >> np.uint64(20))) == 1 << 12


if campaign.RECORDED.exists():
    MEASURED = json.loads(campaign.RECORDED.read_text())

    def test_what_a_gpu_answered() -> None:
        """No input of any conversion differed, and the control was found as often as the model says."""
        assert list(MEASURED["conversions"]) == list(chosen())
        for mnemonic, answers in MEASURED["conversions"].items():
            assert tuple(answers) == domains_of(chosen()[mnemonic])
            for domain, found in answers.items():
                assert found["mismatches"] == 0 and found["inputs"] == inputs_of(domain), mnemonic
        assert MEASURED["control"]["mismatches"] == MEASURED["control"]["expected"] == campaign.PREDICTED

    @pytest.mark.parametrize("mnemonic", list(chosen())[::9])
    def test_the_first_answers_again(mnemonic: str) -> None:
        """The sum over the hardware's answers to the first 65,536 inputs is the model's."""
        row = chosen()[mnemonic]
        for domain, found in MEASURED["conversions"][mnemonic].items():
            count = min(campaign.SHORT, inputs_of(domain))
            assert f"{summed(expected(row, domain, 0, count, MEASURED['seed'])):#018x}" == found["short"]
