"""The conformance suite live, with the model, or something worse, in the GPU's place."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import conformance.suite.hardware
import tcsim
from conformance import conftest as hooks
from conformance.suite import recordings, rerun
from conformance.suite.cases import Case, Settings, Suite
from conformance.suite.hardware import Hardware, Unassembled, Workshop
from hwkernels.device.driver import Launch
from hwkernels.device.toolchain import AssembleError, ToolchainError
from hwkernels.device.worker import ContextLost, GpuWorker, Hang
from hwkernels.probes import probe
from hwkernels.probes.probe import Probe
from tcsim import catalog
from tests.support.suite_runs import CLASSES, GPU, MNEMONIC, OUTPUTS, recorded, suite_run, table_rows, whole

Answer = Callable[[Probe, dict[str, npt.NDArray[Any]], int], list[npt.NDArray[np.uint32]]]


def the_model(made: Probe, given: dict[str, npt.NDArray[Any]], repeat: int) -> list[npt.NDArray[np.uint32]]:
    """Hardware that the model describes exactly."""
    answer: npt.NDArray[np.uint32] = tcsim.instruction(made.instruction.mnemonic, arch="sm_90").execute(**given)
    return [answer.copy() for _ in range(repeat)]


def one_bit_off(made: Probe, given: dict[str, npt.NDArray[Any]], repeat: int) -> list[npt.NDArray[np.uint32]]:
    """Hardware that the model does not describe."""
    results = the_model(made, given, repeat)
    for result in results:
        result[1, 2, 3] ^= np.uint32(1)
    return results


def forgetful(made: Probe, given: dict[str, npt.NDArray[Any]], repeat: int) -> list[npt.NDArray[np.uint32]]:
    """Hardware that answers differently the second time."""
    results = the_model(made, given, repeat)
    results[1][0, :2, 0] ^= np.uint32(1)
    return results


def hanging(made: Probe, given: dict[str, npt.NDArray[Any]], repeat: int) -> list[npt.NDArray[np.uint32]]:
    """Hardware that does not answer."""
    raise Hang("probe", 20.0)


def lost(made: Probe, given: dict[str, npt.NDArray[Any]], repeat: int) -> list[npt.NDArray[np.uint32]]:
    """Hardware whose context is gone."""
    raise ContextLost("CUDA_ERROR_ILLEGAL_INSTRUCTION")


class Imaginary(Hardware):
    """A GPU that answers as it is told to, one launch after the other; the last answer stays."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(GPU)
        self.answers = list(answers)
        self.repeats: list[int] = []

    def run(self, made: Probe, inputs: dict[str, npt.NDArray[Any]], repeat: int = 1) -> list[npt.NDArray[np.uint32]]:
        """Give the next answer."""
        self.repeats.append(repeat)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(made, inputs, repeat)


def live_suite(hardware: Hardware, **settings: Any) -> Suite:
    """A live suite whose workshop makes the probe of one instruction only."""
    suite = Suite(Settings("sm_90", "live", **settings), hardware)
    suite.__dict__["workshop"] = Workshop([suite.instruction(MNEMONIC)])
    return suite


WIDE = Case(MNEMONIC, "wide", 0)


def test_hardware_that_agrees_passes() -> None:
    """Every class; two runs are asked for, one result is compared."""
    hardware = Imaginary(the_model)
    suite = live_suite(hardware)
    cases = [case for case in suite.cases() if case.mnemonic == MNEMONIC]
    assert [case.name for case in cases] == CLASSES
    for case in cases:
        outcome = suite.run(case)
        assert outcome.verdict == "PASS", outcome.text
        assert (outcome.outputs, outcome.mismatches, outcome.text) == (2048, 0, "")
        assert outcome.how == "Imaginary GPU, driver 1.2.3"
    assert hardware.repeats == [2] * len(CLASSES)
    assert list(suite.unproven()) == []


@pytest.mark.parametrize(
    ("answer", "verdict", "complaint"),
    [
        (
            one_bit_off,
            "FAIL",
            r"-wide-0: 1 of 2048 outputs differ.*\nMISMATCH warp 1 lane 2 register 3 \(row 8, column 5\)",
        ),
        (forgetful, "UNSTABLE", r"two runs of mma\..*-wide-0 differ in 2 of 2048 registers"),
        (hanging, "HANG", "kernel 'probe' gave no answer in 20 s; its process was killed"),
        (lost, "CONTEXT_LOST", "the GPU process was lost: CUDA_ERROR_ILLEGAL_INSTRUCTION"),
    ],
)
def test_hardware_that_does_not(answer: Answer, verdict: str, complaint: str) -> None:
    """One verdict each, with the command that runs the case again; the next case runs as if nothing had been."""
    suite = live_suite(Imaginary(answer, the_model))
    outcome = suite.run(WIDE)
    assert outcome.verdict == verdict
    assert re.search(complaint, outcome.text), outcome.text
    again = rerun.command(f"test_cases.py::test_case[{WIDE.id}]", "--arch", "sm_90", "--live")
    assert f"rerun: {again}" in outcome.text.splitlines()
    assert outcome.how == "Imaginary GPU, driver 1.2.3"
    assert suite.run(WIDE).verdict == "PASS"


def test_a_rerun_command_repeats_the_settings(tmp_path: Path) -> None:
    """Seed, samples and folder, where they are not the defaults."""
    suite = live_suite(Imaginary(hanging), seed=5, samples=2, root=tmp_path)
    case = Case(MNEMONIC, "wide", 5)
    test, options = f"'{rerun.FOLDER}/test_cases.py::test_case[{MNEMONIC}-wide-5]'", "--arch sm_90 --live --seed 5"
    command = f"rerun: {sys.executable} -m pytest {test} {options} --samples 2 --recordings {tmp_path}"
    assert suite.rerun(case) == command
    assert suite.rerun(case) in suite.run(case).text


def executor_that_hangs(device: int) -> Callable[[Launch], Any]:
    """For a worker process: launches never end."""
    import time

    return lambda launch: time.sleep(3600)


def executor_that_dies(device: int) -> Callable[[Launch], Any]:
    """For a worker process: launches kill it."""
    return lambda launch: os._exit(7)


@pytest.mark.parametrize(
    ("executor", "verdict", "complaint"),
    [
        ("executor_that_hangs", "HANG", r"gave no answer in 0\.3 s; its process was killed"),
        ("executor_that_dies", "CONTEXT_LOST", "ended with exit code 7"),
    ],
)
def test_a_worker_process_that_is_lost_is_one_verdict(
    monkeypatch: pytest.MonkeyPatch, executor: str, verdict: str, complaint: str
) -> None:
    """The real Hardware with a real process behind it."""
    monkeypatch.setattr(conformance.suite.hardware, "TIMEOUT_S", 0.3)
    hardware = Hardware(GPU)
    hardware.__dict__["_worker"] = GpuWorker(0, f"{__name__}:{executor}")
    try:
        outcome = live_suite(hardware).run(WIDE)
    finally:
        hardware.close()
    assert outcome.verdict == verdict
    assert re.search(complaint, outcome.text)


def test_machine_code_that_is_not_as_claimed_is_not_run() -> None:
    """The real Hardware refuses the probe before any launch; the verdict is FAIL."""
    hardware = Hardware(GPU)
    suite = live_suite(hardware)
    instruction = suite.instruction(MNEMONIC)
    claim = replace(instruction.lowering, opcodes=(("HMMA.1688.F32", 3),))
    suite.__dict__["workshop"] = Workshop([replace(instruction, lowering=claim)])
    outcome = suite.run(WIDE)
    assert outcome.verdict == "FAIL"
    assert "is not as claimed: HMMA.1688.F32 1 times instead of 3" in outcome.text
    assert "_worker" not in hardware.__dict__ or hardware._worker.pid is None
    assert suite.assemble(MNEMONIC).verdict == "FAIL"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ToolchainError("no ptxas here"), "UNTESTED"),
        (AssembleError("refused", "ptxas: Unknown modifier", "sm_90"), "FAIL"),
    ],
)
def test_a_probe_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, error: RuntimeError, verdict: str) -> None:
    """No assembler: UNTESTED. One that refuses the probe: FAIL. Never a pass, live or not."""
    monkeypatch.setattr(probe, "build", lambda items, target: {item.mnemonic: error for item in items})
    suite = live_suite(Imaginary(the_model))
    for outcome in (suite.assemble(MNEMONIC), suite.run(WIDE)):
        assert outcome.verdict == verdict
        assert f"{MNEMONIC} for sm_90: {error}" in outcome.how + outcome.text
        assert (outcome.outputs, outcome.mismatches) == (0, 0)
    with pytest.raises(Unassembled, match="for sm_90: "):
        suite.workshop.probe(suite.instruction(MNEMONIC), "sm_90")


def test_recording_writes_whole_instructions_only(tmp_path: Path) -> None:
    """After some classes nothing is written; after all of them one file, that replays."""
    suite = live_suite(Imaginary(the_model), record=True, root=tmp_path)
    for name in CLASSES[:-1]:
        assert suite.run(Case(MNEMONIC, name, 0)).verdict == "PASS"
    assert suite.written == []
    assert list(tmp_path.iterdir()) == []
    suite.run(Case(MNEMONIC, CLASSES[-1], 0))
    assert suite.written == [recordings.path_of(MNEMONIC, "sm_90", tmp_path)]
    replay = Suite(Settings("sm_90", "replay", root=tmp_path))
    cases = list(replay.cases())
    assert [case.name for case in cases] == CLASSES
    outcomes = [replay.run(case) for case in cases]
    assert [outcome.verdict for outcome in outcomes] == ["REPLAYED"] * len(CLASSES)
    assert outcomes[0].how.startswith("recorded on Imaginary GPU, driver 1.2.3, ptxas ")
    origin = recorded(tmp_path).origin
    assert (origin.gpu, origin.driver, origin.target) == ("Imaginary GPU", "1.2.3", "sm_90")
    assert origin.ptx_sha256 == probe.ptx_sha256(catalog.rows()[MNEMONIC], "sm_90")


def test_what_is_recorded_is_what_the_hardware_said(tmp_path: Path) -> None:
    """A disagreement is recorded as it is, and fails when it is replayed; an unstable answer is not recorded."""
    suite = live_suite(Imaginary(one_bit_off, the_model), record=True, root=tmp_path)
    assert [suite.run(Case(MNEMONIC, name, 0)).verdict for name in CLASSES] == ["FAIL", *["PASS"] * (len(CLASSES) - 1)]
    replay = Suite(Settings("sm_90", "replay", root=tmp_path))
    assert replay.run(Case(MNEMONIC, CLASSES[0], 0)).verdict == "FAIL"
    unstable = live_suite(Imaginary(forgetful, the_model), record=True, root=tmp_path / "unstable")
    assert unstable.run(Case(MNEMONIC, CLASSES[0], 0)).verdict == "UNSTABLE"
    for name in CLASSES[1:]:
        unstable.run(Case(MNEMONIC, name, 0))
    assert unstable.written == []


@pytest.fixture
def imaginary_gpu(tmp_path: Path) -> Path:
    """A folder with a plugin that lets pytest see a GPU of sm_90 that answers as the model does."""
    (tmp_path / "imaginary_gpu.py").write_text(
        "import conformance.suite.hardware as hardware, hwkernels.device.driver as driver, tcsim\n"
        "INFO = driver.DeviceInfo(0, 'Imaginary GPU', 'sm_90', '1.2.3', '13.0', 1, 1)\n"
        "driver.device_available = lambda ordinal=0: (True, 'Imaginary GPU')\n"
        "driver.device_info = hardware.device_info = lambda ordinal=0: INFO\n"
        "class Imaginary(hardware.Hardware):\n"
        "    def run(self, made, inputs, repeat=1):\n"
        "        return [made.instruction.execute(**inputs) for _ in range(repeat)]\n"
        "hardware.Hardware = Imaginary\n"
    )
    return tmp_path


def test_record_then_replay_from_the_command_line(imaginary_gpu: Path, tmp_path: Path) -> None:
    """--record runs live, passes and says what it wrote; without a GPU the files replay."""
    root = tmp_path / "new"
    selection = (*whole(), "--recordings", str(root))
    run = suite_run("-p", "imaginary_gpu", *selection, "--record", path=imaginary_gpu)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "conformance: sm_90 live on Imaginary GPU, driver 1.2.3" in run.stdout
    ((_, _, cases, outputs, _, how),) = table_rows(run.stdout)
    assert (cases, outputs, how) == (
        str(len(CLASSES)),
        f"{OUTPUTS * len(CLASSES):,}",
        "PASS: Imaginary GPU, driver 1.2.3",
    )
    assert re.search(r"^recorded .*new", run.stdout, re.MULTILINE)
    again = suite_run(*selection, "--replay", "--arch", "sm_90")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "REPLAYED: recorded on Imaginary GPU, driver 1.2.3, ptxas " in again.stdout


class Options:
    """Of a pytest.Config what the hooks of the suite look at."""

    def __init__(self, **given: Any) -> None:
        defaults = {
            "arch": None,
            "live": False,
            "replay": False,
            "record": False,
            "samples": None,
            "seed": 0,
            "blocks": 1,
            "level": 1,
            "strict_verdicts": False,
        }
        self.args: list[str] = []
        self.given = {**defaults, "recordings": recordings.ROOT, **given}
        self.stash = pytest.Stash()

    def getoption(self, name: str, default: Any = None) -> Any:
        """The value of an option."""
        return self.given.get(name.removeprefix("--").replace("-", "_"), default)

    def getini(self, name: str) -> bool:
        """Of a setting."""
        return False


def header(options: Any) -> str:
    """The line that a run with these options begins with."""
    hooks.pytest_configure(options)
    return hooks.pytest_report_header(options)


def test_a_gpu_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live without a word; --replay and another --arch do not use it; --live on another arch is refused."""
    monkeypatch.setattr(hooks, "device_available", lambda: (True, GPU.name))
    monkeypatch.setattr(hooks, "device_info", lambda: GPU)
    monkeypatch.setattr(hooks, "Hardware", lambda: Imaginary(the_model))
    live = "conformance: sm_90 live on Imaginary GPU, driver 1.2.3"
    replay = "conformance: {} by replay of recorded hardware results (no GPU is used)"
    assert header(Options()) == live
    assert header(Options(live=True)) == header(Options(record=True)) == header(Options(arch="sm_90")) == live
    assert header(Options(replay=True)) == replay.format("sm_90")
    assert header(Options(arch="sm_80")) == replay.format("sm_80")
    for given in ({"live": True, "arch": "sm_120"}, {"record": True, "arch": "sm_120"}):
        with pytest.raises(pytest.UsageError, match=r"the GPU here is sm_90 .*; valid: --arch sm_90, or --replay"):
            header(Options(**given))


def test_without_a_gpu_results_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """sm_90 unless another arch is asked for; what needs a GPU says why there is none."""
    monkeypatch.setattr(hooks, "device_available", lambda: (False, "no driver"))
    assert header(Options()) == "conformance: sm_90 by replay of recorded hardware results (no GPU is used)"
    assert header(Options(arch="sm_89")).startswith("conformance: sm_89 by replay ")
    for given in ({"live": True}, {"record": True}, {"live": True, "arch": "sm_90"}):
        with pytest.raises(
            pytest.UsageError, match="--live needs a GPU and cuda-python; here: no driver; valid without"
        ):
            header(Options(**given))


def test_a_gpu_of_an_unknown_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not used, and asking for it is an error."""
    monkeypatch.setattr(hooks, "device_available", lambda: (True, GPU.name))
    monkeypatch.setattr(hooks, "device_info", lambda: replace(GPU, arch="sm_61"))
    monkeypatch.setattr(hooks, "Hardware", lambda: Imaginary(the_model))
    assert header(Options()).startswith("conformance: sm_90 by replay ")
    for given in ({"live": True}, {"record": True}, {"live": True, "arch": "sm_90"}):
        with pytest.raises(pytest.UsageError, match="sm_61"):
            header(Options(**given))


def test_recording_takes_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several would each write a part: a worker of pytest-xdist refuses and says what to leave out."""
    monkeypatch.setattr(hooks, "device_available", lambda: (True, GPU.name))
    monkeypatch.setattr(hooks, "device_info", lambda: GPU)
    monkeypatch.setattr(hooks, "Hardware", lambda: Imaginary(the_model))
    worker = Options(record=True)
    worker.__dict__["workerinput"] = {}
    with pytest.raises(pytest.UsageError, match="--record runs in one process: drop -n"):
        header(worker)
