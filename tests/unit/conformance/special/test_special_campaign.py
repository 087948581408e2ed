"""The campaign over all inputs: its kernels run by `tcsim.ptx`, its control, its ledger, and what a GPU answered, replayed in part."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.special import __main__ as campaign
from conformance.special.source import SHOWN, WORDS, chosen, domain_of, name_of, source, summed
from hwkernels.device.driver import Launch
from hwkernels.device.nvrtc import compile_cubin
from tcsim.arithmetic import mufu
from tcsim.isa.special.semantics import computed
from tcsim.ptx import Memory, parse

RUN = (
    "ex2.approx.ftz.f32", "lg2.approx.f32", "rcp.approx.f32", "rsqrt.approx.f64", "sqrt.rm.f32", "sin.approx.f32",
    "tanh.approx.bf16x2", "div.full.f32", "div.rn.ftz.f32", "rcp.approx.ftz.f64", "cos.approx.ftz.2pi.f32",
)  # fmt: skip
FIRST = {"every_f32": 0x3F7FFFC0, "every_high": 0x3FEFFFC0, "pair_f32": 5, "pair_f64": 5}


def on_the_machine(mnemonics: tuple[str, ...], first: int | None, count: int, bias: int = 0) -> dict[str, Any]:
    """What each kernel writes, run by `tcsim.ptx` from NVRTC's PTX."""
    module, found = parse(compile_cubin(source(mnemonics, bias), "sm_90", options=("--fmad=false",)).ptx), {}
    for mnemonic in mnemonics:
        row, memory = chosen()[mnemonic], Memory()
        out = memory.allocate(np.zeros(8 * WORDS, np.uint8))
        start = FIRST[domain_of(row)] if first is None else first
        kernel = module.kernel(f"compare_{name_of(row)}")
        run = kernel.launch(memory, [out, start, count, 1], grid=(2, 1, 1), block=(64, 1, 1), arch="sm_90")
        assert run.completed and not run.inexact
        found[mnemonic] = memory.read(out, 8 * WORDS).view(np.uint64)
    return found


def test_kernels_agree_with_the_executor() -> None:
    """The integers of the kernel and the model that stands for the instruction: two codes of one specification."""
    for mnemonic, words in on_the_machine(RUN, None, 256).items():
        assert words[0] == 256 and words[1] == 0, (mnemonic, words.tolist())
        assert words[2] != 0


def test_the_sum_is_that_of_the_model() -> None:
    """Of the first inputs, whose results are small and special."""
    (words,) = on_the_machine(("ex2.approx.ftz.f32",), 0, 200).values()
    row = chosen()["ex2.approx.ftz.f32"]
    results = computed(row, row.steps, {"a": np.arange(200, dtype=np.uint32)}, mufu.unit())
    assert summed(results.astype(np.uint64)) == words[2]


def test_the_control_is_found() -> None:
    """A bias that is 2 less: at an input where one unit decides, the kernel counts and keeps it; the instruction is right."""
    bad = 0x3F900D42  # of the list in conformance/isa/special/close.py
    (words,) = on_the_machine((campaign.CONTROL,), bad - 3, 8, campaign.OFF).values()
    assert words[0] == 8 and words[1] == 1
    a, _, hardware, model = words[3:7].tolist()
    assert a == bad and hardware == model + 1
    assert not words[3 + 4 :].any() and SHOWN == 8


def test_how_many_the_control_changes() -> None:
    """The number that a GPU must find, from the model: every mantissa, and every exponent that is not flushed."""
    right, own = mufu.unit(), mufu.FUNCTIONS["rcp"]
    wrong = replace(right, functions={**mufu.FUNCTIONS, "rcp": replace(own, bias=own.bias + campaign.OFF)})
    mantissas = np.arange(1 << 23, dtype=np.uint32)
    total = 0
    for exponent, times in ((127, 250), (1, 1), (252, 1), (253, 1), (254, 1)):  # inside, and both ends
        codes = mantissas | np.uint32(exponent << 23)
        total += 2 * times * int((right.rcp(codes) != wrong.rcp(codes)).sum())
    assert total == campaign.PREDICTED


class FakeContext:
    """Answers a launch as kernels would that find one mismatch in the control, and none elsewhere."""

    def __init__(self, ordinal: int) -> None:
        self.launches = 0

    def __enter__(self) -> FakeContext:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def run(self, launch: Launch) -> list[Any]:
        """Every input compared."""
        words = np.zeros(WORDS, np.uint64)
        words[0], words[2] = launch.scalars[1], 7
        if launch.cubin == b"control":
            words[1], words[3:7] = 1, (1, 2, 3, 4)
        return [words]


def cubin_of(names: Any, target: str, bias: int = 0) -> bytes:
    """A cubin of nothing."""
    return b"control" if bias else b"kernels"


def ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str, compiled: Any = cubin_of
) -> tuple[int, dict[str, Any]]:
    """A run of the command without a GPU."""
    info = SimpleNamespace(name="a GPU", driver_version="1", multiprocessors=2)
    monkeypatch.setattr(campaign, "device_info", lambda: info)
    monkeypatch.setattr(campaign, "Context", FakeContext)
    monkeypatch.setattr(campaign, "compiled", compiled)
    status = campaign.main([str(tmp_path), "--share", "1048576", *options])
    return status, json.loads((tmp_path / campaign.NAME).read_text())


def test_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, found = ledger(tmp_path, monkeypatch)
    assert status == 0 and list(found["spellings"]) == list(chosen())
    assert found["spellings"]["div.full.f32"]["inputs"] == 10**10 // 2**20
    assert found["control"]["mismatches"] == 1 and found["control"]["first"] == [["0x1", "0x2", "0x3", "0x4"]]
    status, found = ledger(tmp_path, monkeypatch, "--limit", "0")
    assert status == 1 and not found["spellings"]


def test_what_does_not_compile_is_left_out_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(names: Any, target: str, bias: int = 0) -> bytes:
        if "tanh.approx.f32" in names:
            raise RuntimeError("spilled")
        return cubin_of(names, target, bias)

    status, found = ledger(tmp_path, monkeypatch, compiled=refuses)
    assert status == 1 and 60 < len(found["spellings"]) < 70 and "tanh.approx.f32" not in found["spellings"]


def test_every_input_is_asked() -> None:
    """2**32 of each f32 function, pair and high word; 2**16 of 16 bits; 10**10 pairs of each f32 division."""
    counts = {name: campaign.INPUTS[domain_of(row)] for name, row in chosen().items()}
    assert {counts[name] for name in counts if name.startswith("div") and name.endswith("f32")} == {10**10}
    assert {name for name in counts if counts[name] == 1 << 16} == {
        "ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16",
    }  # fmt: skip
    assert sum(counts.values()) == 360_518_430_720
    assert {domain_of(chosen()[f"{name}.approx.ftz.f64"]) for name in ("rcp", "rsqrt")} == {"every_high"}


if campaign.RECORDED.exists():
    MEASURED = json.loads(campaign.RECORDED.read_text())

    def test_what_a_gpu_answered() -> None:
        """No input of any spelling differed, and the control was found as often as the model says."""
        assert list(MEASURED["spellings"]) == list(chosen())
        for mnemonic, found in MEASURED["spellings"].items():
            assert found["mismatches"] == 0 and found["inputs"] == campaign.INPUTS[domain_of(chosen()[mnemonic])], (
                mnemonic
            )
        assert MEASURED["control"]["mismatches"] == MEASURED["control"]["expected"] == campaign.PREDICTED

    @pytest.mark.parametrize(
        "mnemonic", [name for name, row in chosen().items() if domain_of(row).startswith("every_f")]
    )
    def test_the_first_answers_again(mnemonic: str) -> None:
        """The sum over the hardware's answers to inputs 0 to 65535 is the model's."""
        row = chosen()[mnemonic]
        codes = np.arange(campaign.SHORT).astype(row.registers["a"].dtype)
        results = computed(row, row.steps, {"a": codes}, mufu.unit()).astype(np.uint64)
        assert f"{summed(results):#018x}" == MEASURED["spellings"][mnemonic]["short"]

    @pytest.mark.parametrize(("mnemonic", "part"), [(name, part) for name in ("sin", "cos") for part in (0x3E, 0xBF)])
    def test_a_part_again(mnemonic: str, part: int) -> None:
        """Of sin and cos of revolutions the sum of every 2**24 inputs is kept: 1/8 to 1/2, and -2 to -1/2."""
        spelling = f"{mnemonic}.approx.ftz.2pi.f32"
        sums = MEASURED["spellings"][spelling]["parts"].split()
        assert len(sums) == 256 and sum(int(own, 16) for own in sums) % 2**64 == int(
            MEASURED["spellings"][spelling]["sum"], 16
        )
        row, first = chosen()[spelling], part * campaign.PART
        results = computed(row, row.steps, {"a": np.arange(first, first + campaign.PART, dtype=np.uint32)}, mufu.unit())
        assert f"{summed(results.astype(np.uint64), first):016x}" == sums[part]
