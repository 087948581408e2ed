"""The conversion kernel without a GPU: machine code, launch, and that its instruction is `tcsim.quantize`; live runs with a fake."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance import test_convert
from conformance.kernels import convert as convert_cases
from conformance.kernels.convert import ConvertCase, cases, inputs, predicted
from hwkernels.device.sass import disassemble, opcode_counts
from hwkernels.gemm.convert_call import FORMATS, THREADS, compiled, conversion, convert, grid_for

OPCODES = {
    "f16": r"F2FP\.SATFINITE\.F16|F2FP\.SATFINITE\.PACK_AB",
    "bf16": r"F2FP\.SATFINITE\.BF16",
    "e4m3": r"F2FP\.SATFINITE\.E4M3",
    "e5m2": r"F2FP\.SATFINITE\.E5M2",
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120"])
def test_the_machine_code_packs_pairs(target: str) -> None:
    """One cvt for two elements, loads and stores of 16 bytes, no local memory; no note, no spill (either raises)."""
    checked = 0
    for format_, saturate in FORMATS:
        if target == "sm_80" and format_ in ("e4m3", "e5m2"):
            continue
        counts = opcode_counts(disassemble(compiled(format_, saturate, target).cubin))
        wanted = OPCODES[format_] if saturate else OPCODES[format_].replace(r"SATFINITE\.", "")
        run = 16 // (tcsim.FORMATS[format_].bits // 8)
        assert sum(n for found, n in counts.items() if re.match(wanted, found)) >= run // 2, (format_, sorted(counts))
        assert counts.get("LDG.E.128", 0) >= run // 4 and counts.get("STG.E.128", 0) >= 1
        assert not [found for found in counts if found.startswith(("LDL", "STL"))]
        checked += 1
    assert checked == (4 if target == "sm_80" else 6)


@pytest.mark.parametrize(("format_", "saturate"), FORMATS)
def test_the_instruction_is_quantize(format_: str, saturate: bool) -> None:
    """convert_pair(high, low): the model of the kernel's cvt gives quantize's codes, the lower element in the low half."""
    checked = 0
    for kind in convert_cases.CLASSES:
        case = ConvertCase(format_, saturate, 1 << 14, kind)
        x = inputs(case, 0)
        pairs = np.asarray(conversion(format_, saturate).execute(a=x[1::2], b=x[0::2]))
        codes = pairs.view(tcsim.FORMATS[format_].dtype)
        np.testing.assert_array_equal(codes, predicted(case, x))
        checked += codes.size
        if kind == "ties" and format_ != "bf16":
            truncated = tcsim.quantize(x, format_, rounding="rz", saturate=saturate)
            assert (truncated != codes).mean() > 0.2
    assert checked == 3 << 14


@pytest.mark.parametrize("saturate", [True, False])
def test_saturation_is_seen(saturate: bool) -> None:
    """A large number becomes the largest one, or infinity."""
    case = ConvertCase("f16", saturate, 4, "bits")
    codes = predicted(case, np.array([1e6, -1e6, 65504, np.inf], np.float32))
    assert [hex(code) for code in codes] == (
        ["0x7bff", "0xfbff", "0x7bff", "0x7bff"] if saturate else ["0x7c00", "0xfc00", "0x7bff", "0x7c00"]
    )


def test_cases_of_an_arch() -> None:
    """fp8 from sm_89 on; ids are distinct; inputs depend on the seed."""
    assert [len(list(cases(arch))) for arch in ("sm_75", "sm_80", "sm_90", "sm_120")] == [0, 36, 54, 54]
    assert len({case.id for case in cases("sm_90")}) == 54
    case = ConvertCase("e4m3", True, 100, "bits")
    assert (inputs(case, 0).view(np.uint32) != inputs(case, 1).view(np.uint32)).any()
    np.testing.assert_array_equal(inputs(case, 0), inputs(case, 0))


@pytest.mark.parametrize("count", [1, 15, 16, 17, 5000, 1 << 20])
@pytest.mark.parametrize("format_", ["f16", "e4m3"])
def test_every_element_is_converted_once(format_: str, count: int) -> None:
    """Threads, runs and ends, as the kernel counts them."""
    size = tcsim.FORMATS[format_].bits // 8
    run, grid = 16 // size, grid_for(count, format_, multiprocessors=2)
    runs = -(-count // run)
    seen = np.zeros(count, int)
    for thread in range(grid * THREADS):
        for first in range(thread * run, runs * run, grid * THREADS * run):
            seen[first : first + run] += 1
    assert (seen == 1).all()


def test_other_inputs_are_refused() -> None:
    """Before a GPU is looked for."""
    with pytest.raises(tcsim.FormatError, match="x is float64"):
        convert(np.zeros(4), "f16")
    with pytest.raises(tcsim.FormatError, match=r"'e4m3' with saturate=False; valid: f16, bf16"):
        conversion("e4m3", saturate=False)
    with pytest.raises(tcsim.InstructionError, match="sm_89"):
        conversion("e4m3", target="sm_80")


class _FakeHardware:
    """Answers with what it is told to do to the prediction."""

    text = "a fake"

    def __init__(self, spoil: Any) -> None:
        self.spoil = spoil

    def run_whole(self, job: Any) -> list[np.ndarray]:
        """Both repetitions."""
        right = tcsim.quantize(job.x, job.format, saturate=job.saturate)
        return [self.spoil(right.copy(), number) for number in range(job.repeat)]


def _one_bit(codes: np.ndarray, _: int) -> np.ndarray:
    codes[7] ^= 1
    return codes


def _once(codes: np.ndarray, number: int) -> np.ndarray:
    codes[0] ^= number
    return codes


@pytest.mark.parametrize(
    ("spoil", "verdict", "text"),
    [
        (lambda codes, _: codes, "PASS", ""),
        (_one_bit, "FAIL", "1 of 65536 outputs differ\nMISMATCH element 7, input 0x"),
        (_once, "UNSTABLE", "differ in 1 outputs"),
    ],
)
def test_verdicts(spoil: Any, verdict: str, text: str) -> None:
    """What a case concludes from what the GPU says."""

    class FakeSuite:
        class settings:
            arch, seed, mode, record = "sm_90", 0, "live", False

        hardware = _FakeHardware(spoil)

    case = next(one for one in cases("sm_90") if one.size == 1 << 16 and one.inputs == "normal")
    outcome = test_convert.run(case, FakeSuite)  # type: ignore[arg-type]
    assert outcome.verdict == verdict and text in (outcome.text or "")
    assert (verdict == "UNSTABLE") or outcome.outputs == 1 << 16
