"""The pytest plugin: what assert_bits says, where `launch` runs kernels and how it says so, and that others do not notice it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsim
from conformance.testing import assert_bits, checking_triton, launching
from conformance.testing.launching import Launcher, LaunchFailure
from hwkernels.device import kernel_launch, toolchain
from hwkernels.device.errors import CudaError
from tcsim.core.errors import FormatError, OperandError
from tcsim.launchers.launched import Launched
from tcsim.ptx import Hazard, Run
from tests.support import launcher_fakes as fakes
from tests.support.launcher_fakes import SCALE

pytest_plugins = ["pytester"]
MMA = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")


def failure(*arguments: Any, **named: Any) -> list[str]:
    """The lines of a failure."""
    with pytest.raises(AssertionError) as found:
        assert_bits(*arguments, **named)
    return str(found.value).splitlines()


# --- assert_bits


@pytest.mark.parametrize(
    "array",
    [
        np.float32([[1, -0.0], [np.nan, 3]]), np.arange(4, dtype=np.int64), np.uint16([1, 2]), np.array([True, False]),
        np.array([1, 2, 0.5], ml_dtypes.bfloat16), np.array([1, 2], ml_dtypes.float8_e4m3fn), np.float64(3),
    ],
)  # fmt: skip
def test_equal_arrays_are_equal(array: Any) -> None:
    assert_bits(array, array.copy())


def test_bits_are_compared_not_values() -> None:
    assert failure(np.float32([1, 0.0]), np.float32([1, -0.0])) == [
        "1 of 2 elements of f32 differ", "  first      [1]", "  actual     0x00000000 = 0.0", "  expected   0x80000000 = -0.0", "  apart      0 ulp",
    ]  # fmt: skip
    quiet, other = (np.uint32([code]).view(np.float32) for code in (0x7FC00000, 0x7FC00001))
    assert failure(quiet, other)[0] == "1 of 1 elements of f32 differ"
    assert_bits(quiet, other, ulp=0)
    assert failure(np.float32([1]), np.float32([np.nan]), ulp=1 << 40)[-1] == "  apart      one is NaN, or not a code"


def test_units_in_the_last_place() -> None:
    got, want = np.uint8([0x38, 0x3A, 0x50]), np.uint8([0x38, 0x38, 0x40])
    assert_bits(got, want, format="e4m3", ulp=16)
    assert failure(got, want, format="e4m3", ulp=1)[0] == "2 of 3 elements of e4m3 differ by more than 1 ulp"
    assert failure(got, want, format="e4m3")[-1] == "  apart      2 ulp; the largest difference is 16 ulp"
    assert failure(got, want)[2] == "  actual     0x3a = 58"


def test_a_fragment_has_lane_register_slot_and_trace() -> None:
    """Every element of every operand, one after the other: where the failure says it is, the layout says so too."""
    stream = np.random.default_rng(1)
    inputs = {
        "a": stream.integers(0, 1 << 32, (3, 32, 4), np.uint32),
        "b": stream.integers(0, 1 << 32, (3, 32, 2), np.uint32),
    }
    inputs = {name: own & np.uint32(0xBFFFBFFF) for name, own in inputs.items()} | {
        "c": np.zeros((3, 32, 4), np.uint32)
    }
    d = MMA.execute(**inputs)
    wrong = d.copy()
    wrong[1, 13, 2] ^= 1
    lines = failure(wrong, d, instruction=MMA, inputs=inputs)
    row, column = MMA.operands["d"].layout(13, 2, 0)
    assert lines[:2] == [
        "1 of 384 elements of f32 differ",
        f"  element    row {row}, column {column}: lane 13, register 2, slot 0",
    ]
    assert (
        lines[6] == "  trace"
        and lines[7] == "  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 on sm_90: native, 1 step"
    )
    assert lines[-1].startswith(f"    d = 0x{int(d[1, 13, 2]):08x}")
    matrix, changed = MMA.matrix("d", d), MMA.matrix("d", wrong)
    assert failure(changed, matrix, instruction=MMA, inputs=inputs)[1] == lines[1]
    assert "no trace: " in failure(changed, matrix, instruction=MMA, inputs={"a": inputs["a"]})[-1]
    assert_bits(d, d, instruction=MMA, inputs=inputs)
    counted = 0
    for name in "ab":
        layout, registers = MMA.operands[name].layout, inputs[name][0]
        for lane, register in np.ndindex(*registers.shape):
            for slot in range(2):
                changed = registers.copy()
                changed[lane, register] ^= np.uint32(1 << 16 * slot)
                row, column = layout(lane, register, slot)
                said = failure(changed, registers, instruction=MMA, operand=name)
                assert (
                    said[1] == f"  element    row {row}, column {column}: lane {lane}, register {register}, slot {slot}"
                )
                again = failure(changed, registers, layout=layout, format="f16")
                assert again == said
                counted += 1
    assert counted == 2 * 32 * (4 + 2)


def test_doubles_take_two_registers() -> None:
    double = tcsim.instruction("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", arch="sm_90")
    registers = np.zeros((32, 4), np.uint32)
    changed = registers.copy()
    changed[7, 3] = 1
    row, column = double.operands["d"].layout(7, 2, 0)
    assert (
        failure(changed, registers, instruction=double)[1]
        == f"  element    row {row}, column {column}: lane 7, register 2, slot 0"
    )


def test_wrong_use_of_assert_bits() -> None:
    assert failure(np.zeros(3), np.zeros(4)) == ["the shapes differ: (3,), expected (4,)"]
    with pytest.raises(OperandError, match="no operand 'e'; valid: "):
        assert_bits([0], [0], instruction=MMA, operand="e")
    with pytest.raises(OperandError, match="layout without format"):
        assert_bits([0], [0], layout=MMA.operands["d"].layout)
    with pytest.raises(OperandError, match="format='f33'; nearest"):
        assert_bits([0], [0], format="f33")
    with pytest.raises(FormatError, match="does not hold codes of f16"):
        assert_bits(np.float32([0]), np.float32([0]), format="f16")
    with pytest.raises(OperandError, match="valid: integers"):
        assert_bits(["a"], ["b"])


def test_arrays_of_other_libraries() -> None:
    values = np.float32([1, 2])
    assert_bits(SimpleNamespace(__cuda_array_interface__={}, get=lambda: values), values)


# --- the plugin in a pytest of its own

TEST = f'''
import numpy as np
PTX = """{SCALE}"""

def test_scale(launch, assert_bits):
    x = np.arange(40, dtype=np.float32)
    found = launch(PTX, "scale", [np.zeros(40, np.float32), x, np.float32(FACTOR), COUNT], grid=2, block=32)
    assert_bits(found[0], 2 * x)
    assert x.tolist() == list(range(40)) and found.arrays[1].tolist() == x.tolist()
'''


def ran(
    pytester: pytest.Pytester, factor: str = "2", count: str = "np.uint32(40)", *options: str, text: str = TEST
) -> pytest.RunResult:
    """A pytest of one test."""
    pytester.makepyfile(test_it=text.replace("FACTOR", factor).replace("COUNT", count))
    return pytester.runpytest("-p", "no:tcsim", "-p", "conformance.testing.plugin", "-p", "no:cacheprovider", *options)


def test_a_launch_on_the_model(pytester: pytest.Pytester) -> None:
    result = ran(
        pytester, "2", "np.uint32(40)", "--tcsim-device", "model", "--tcsim-arch", "sm_100", "--junit-xml", "report.xml"
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["tcsim: 1 launch on tcsim, the model of sm_100"])
    assert 'name="tcsim ran on" value="tcsim, the model of sm_100"' in (pytester.path / "report.xml").read_text()


def test_the_page_shows_what_happens(pytester: pytest.Pytester) -> None:
    page = (Path(__file__).parents[4] / "docs" / "pytest.md").read_text(encoding="utf-8")
    text = page.partition("```python file=test_kernel.py\n")[2].partition("```")[0]
    result = ran(pytester, "", "", "--tcsim-device", "model", text=text)
    result.assert_outcomes(passed=1, failed=1)
    said = page.partition("$ pytest test_kernel.py\n")[2].partition("```")[0].splitlines()
    assert len(said) > 5
    result.stdout.fnmatch_lines([line.replace("[", "[[]") for line in said])


def test_a_wrong_result_says_what_and_where_it_ran(pytester: pytest.Pytester) -> None:
    result = ran(pytester, "2.0000002", "np.uint32(40)", "--tcsim-device", "model")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*39 of 40 elements of f32 differ", "*first * [[]1[]]*", "*scale ran on tcsim, the model of sm_90"]
    )


def test_a_fault_is_a_failure(pytester: pytest.Pytester) -> None:
    result = ran(pytester, "2", "np.uint32(64)", "--tcsim-device", "model")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*scale on tcsim, the model of sm_90: it did not end", "*GMEM_UNMAPPED*line*"])


def test_there_must_be_a_gpu_if_one_is_asked_for(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "device_available", lambda: (False, "no GPU here"))
    result = ran(pytester, "2", "np.uint32(40)", "--tcsim-device", "gpu")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--tcsim-device gpu: no GPU here"])


def test_a_fixture_of_the_users_own_wins(pytester: pytest.Pytester) -> None:
    own = "import pytest\n@pytest.fixture\ndef launch(): return 7\ndef test_own(launch): assert launch == 7\n"
    result = ran(pytester, text=own)
    result.assert_outcomes(passed=1)
    assert "tcsim:" not in result.stdout.str()


def test_the_plugin_costs_nothing_until_it_is_used(tmp_path: Path) -> None:
    """It imports pytest alone; its own tests aside, no pytest imports NumPy because of it."""
    program = "import sys, conformance.testing.plugin; print(sorted({'numpy', 'tcsim', 'hwkernels', 'conformance.testing.bits', 'ml_dtypes'} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"


# --- the check

CHECKED = """
import numpy as np
from tests.hazards.kernels import LOAD, RACES

def test_check(assert_clean):
    memory = np.zeros(1024, np.uint32)
    found = assert_clean(KERNEL, "k", [memory, memory.copy()], block=64, schedules=("late", 3), allow=ALLOW)
    assert found.schedules == ("late", 3) and len(found.launches) == 2 and found.passed is not bool(ALLOW)
"""


@pytest.mark.parametrize(
    ("kernel", "allow", "said"),
    [
        ("RACES.source", (), ""), ("RACES.without('SMEM_RACE_WAR')", ("SMEM_RACE_WAR",), ""),
        ("RACES.without('SMEM_RACE_WAR')", (), "*mend*put a barrier between the two*"), ("LOAD.without('MBAR_REINIT')", (), "*MBAR_REINIT*"),
        ("LOAD.source", ("MBAR_REINITT",), "*no severity or rule*"),
    ],
)  # fmt: skip
def test_assert_clean(pytester: pytest.Pytester, kernel: str, allow: tuple[str, ...], said: str) -> None:
    result = ran(pytester, text=CHECKED.replace("KERNEL", kernel).replace("ALLOW", repr(allow)))
    result.assert_outcomes(**{"failed" if said else "passed": 1})
    if said:
        result.stdout.fnmatch_lines([said])


def test_a_sample_of_the_blocks(pytester: pytest.Pytester) -> None:
    """A line at the end says which test watched some blocks only."""
    result = ran(pytester, text=SAMPLED)
    result.assert_outcomes(passed=3)
    said = [line for line in result.outlines if "were watched" in line]
    assert [line.split("::")[1] for line in said] == [
        "test_some: only 16 of 40 blocks were watched", "test_launch: only 8 of 20 blocks were watched",
    ]  # fmt: skip


SAMPLED = """
import numpy as np

PTX = ".version 8.0 .target sm_80 .address_size 64 .visible .entry k() { ret; }"

def test_some(assert_clean):
    assert_clean(PTX, grid=20, check="sample")

def test_every(assert_clean):
    assert_clean(PTX, grid=20)

def test_launch(launch):
    launch(PTX, grid=20, check="sample")
"""


def test_a_failure_has_a_timeline(pytester: pytest.Pytester) -> None:
    """With --tcsim-timeline a page of what fails, and none of what passes."""
    text = CHECKED.replace("ALLOW", "()")
    wrong = ran(
        pytester, "", "", "--tcsim-timeline", "pages", text=text.replace("KERNEL", "RACES.without('SMEM_RACE_WAR')")
    )
    wrong.stdout.fnmatch_lines(["*timeline: pages*.html"])
    (page,) = (pytester.path / "pages").glob("*.html")
    assert "test_check" in page.name and "SMEM_RACE_WAR" in page.read_text()
    page.unlink()
    ran(pytester, "", "", "--tcsim-timeline", "pages", text=text.replace("KERNEL", "RACES.source")).assert_outcomes(
        passed=1
    )
    assert not list((pytester.path / "pages").glob("*.html"))


@pytest.mark.parametrize(
    ("hazard", "marker", "said"),
    [
        ("", "'sm_90'", ""), ("SMEM_RACE_RAW", "'sm_90'", "*SMEM_RACE_RAW*"), ("SMEM_RACE_RAW", "arch='sm_90', allow=['SMEM_RACE_RAW']", ""),
        ("WGMMA_MISSING_FENCE", "'sm_90'", ""), ("WGMMA_MISSING_FENCE", "'sm_90', severity='repaired'", "*WGMMA_MISSING_FENCE*"),
        ("nothing", "'sm_90'", "*Triton launched nothing*"), ("", "", "*the marker tcsim needs arch=*"), (None, None, ""),
    ],
)  # fmt: skip
def test_the_marker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, hazard: str | None, marker: str | None, said: str
) -> None:
    """A test that launches something with Triton, which a stand-in says was launched; tests/on_triton has the real one."""

    @contextmanager
    def session(arch: str, **options: Any) -> Iterator[Any]:
        assert (arch, options) == ("sm_90", {"log": None, "timeline": False})
        run = Run(True, [Hazard(hazard, "a mistake", 1)] if hazard else [], Counter(), kernel="k")
        launched = Launched("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 0, run, 0.0)
        yield SimpleNamespace(
            schedule="late", shown=None, launches=[] if hazard == "nothing" else [launched], kept=[], races=False
        )

    monkeypatch.setattr(checking_triton, "triton", session)
    mark = f"@pytest.mark.tcsim({marker})" if marker is not None else ""
    result = ran(pytester, "", "", "--strict-markers", text=f"import pytest\n{mark}\ndef test_it(): pass\n")
    result.assert_outcomes(**{"failed" if said else "passed": 1})
    if said:
        result.stdout.fnmatch_lines([said])


# --- on a GPU


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """A launcher with an imaginary GPU, whose driver runs kernels on the model; what ptxas would assemble stays PTX."""
    device = fakes.Device()
    fakes.modules(
        monkeypatch, cuda=fakes.module("cuda"), cuda__bindings=fakes.module("cuda.bindings"), cuda__bindings__driver=fakes.cuda_bindings(device)
    )  # fmt: skip
    info = SimpleNamespace(name="imaginary", arch="sm_90", driver_version="1.2")
    monkeypatch.setattr(launching, "device_available", lambda: (True, "imaginary"))
    monkeypatch.setattr(launching, "device_info", lambda: info)

    def none(*_: Any, **__: Any) -> Any:
        raise toolchain.ToolchainError("no ptxas")

    monkeypatch.setattr(toolchain, "assemble", none)
    worker = SimpleNamespace(run=lambda launch: kernel_launch.open_executor(0)(launch), close=lambda: None)
    monkeypatch.setattr(launching, "GpuWorker", lambda executor: worker)
    made = Launcher()
    made.memory = device.memory  # type: ignore[attr-defined]
    return made


def test_a_launch_on_a_gpu(launcher: Launcher) -> None:
    x = np.arange(40, dtype=np.float32)
    found = launcher.launch(SCALE, None, [np.zeros(40, np.float32), x, 2.0, np.uint32(40)], 2, (32,), (2, 1, 1), 16, {})
    assert found.where == "imaginary (sm_90), driver 1.2" and found.run is None
    assert_bits(found[0], 2 * x)
    assert not launcher.memory.segments  # type: ignore[attr-defined]
    with pytest.raises(tcsim.TcsimError, match="3 parameters; valid: 4"):
        launcher.launch(SCALE, None, [x, x, 2.0], 2, 32, (1, 1, 1), 0, {})


def test_what_the_gpu_cannot_run_goes_to_the_model(launcher: Launcher) -> None:
    text = SCALE.replace("sm_90", "sm_100a").replace(".version 8.0", ".version 8.6")
    x = np.arange(40, dtype=np.float32)
    found = launcher.launch(
        text, "scale", [np.zeros(40, np.float32), x, 2.0, 40], 2, 32, (1, 1, 1), 0, {"schedule": "early"}
    )
    assert found.where == "tcsim, the model of sm_100" and found.run is not None and found.run.completed
    assert_bits(found[0], 2 * x)


def test_a_failure_of_the_gpu_is_one_of_the_test(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(launch: Any) -> Any:
        raise CudaError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", True)

    monkeypatch.setattr(launching, "GpuWorker", lambda executor: SimpleNamespace(run=fail, close=lambda: None))
    with pytest.raises(LaunchFailure, match="scale on imaginary"):
        launcher.launch(SCALE, None, [np.zeros(40), np.zeros(40), 2.0, 40], 1, 1, (1, 1, 1), 0, {})


MAP = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u8 first, .param .align 64 .b8 map[128], .param .u64 to)
{
  .reg .b64 %a<3>;
  ld.param.u64 %a0, [to];
  ld.param.u64 %a1, [map];
  ld.global.u64 %a2, [%a1];
  st.global.u64 [%a0], %a2;
  ret;
}
"""


@pytest.mark.parametrize("device", ["auto", "model"])
def test_tensor_maps_have_the_address_of_their_array(launcher: Launcher, device: str) -> None:
    used = launcher if device == "auto" else Launcher("model")
    tensor_map = tcsim.TensorMap("FLOAT16", (16, 4), (32,), (16, 4), swizzle="NONE")
    values = np.arange(64, dtype=np.float16).reshape(4, 16)
    found = used.launch(MAP, None, [3, (tensor_map, values), np.zeros(1, np.uint64)], 1, 1, (1, 1, 1), 0, {})
    assert_bits(found[1], values.view(np.uint64)[0, :1])
    assert_bits(found[0], values)
