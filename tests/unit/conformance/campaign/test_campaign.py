"""Campaigns without a GPU: the same inputs by the kernel and by NumPy, a ledger that survives, mismatches found and made small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.campaign import campaign as campaigns
from conformance.campaign import cluster, ledger, on_cpu, on_gpu
from conformance.campaign.campaign import Campaign, CampaignError, run, verified
from conformance.campaign.ledger import LedgerError
from conformance.campaign.on_gpu import HERE, GpuSide
from conformance.campaign.progress import Progress
from conformance.campaign.shrink import smallest
from conformance.campaign.stimulus import CLASSES, OPERANDS, philox
from conformance.campaign.subject import Subject
from conformance.campaign.tasks import Question, Task
from hwkernels.device.nvrtc import compile_cubin
from hwkernels.device.worker import GpuWorker, Hang
from hwkernels.engine.source import KERNELS
from tcsim.engines.contract import Matrices
from tcsim.ptx import Memory, parse
from tests.unit.conformance.campaign import campaign_devices

MMA = Subject("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "sm_90")
SPARSE = Subject("mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90")
SAMPLES, SPAN = 128, 32


class OnCpu:
    """The device of this process, with another model in the place of the hardware if there is one."""

    def __init__(self, hardware: Any = on_cpu.answer_of) -> None:
        self.hardware = hardware

    def run(self, launch: Any, timeout_s: float = 20.0) -> list[Any]:
        """As a `GpuWorker`."""
        if isinstance(launch, Question):
            return [self.hardware(launch.subject, launch.subject.matrices_of(launch.arrays))]
        return list(on_cpu.compared(launch, self.hardware))


def asked(path: Path, subject: Subject = MMA) -> Campaign:
    outputs = subject.outputs
    return Campaign(subject, 5, SAMPLES * outputs, path, "model", SPAN * outputs)


def test_the_kernel_makes_what_numpy_makes() -> None:
    """Codes of b, the columns of a sparse A, and the words of its metadata: NVRTC's PTX, run by `tcsim.ptx`."""
    headers = SPARSE.headers() | {"stimulus.cuh": (HERE / "stimulus.cuh").read_text(encoding="utf-8")}
    headers["engine_numbers.cuh"] = (KERNELS / "engine_numbers.cuh").read_text(encoding="utf-8")
    text = (HERE / "campaign.cu").read_text(encoding="utf-8")
    module = parse(compile_cubin(text, "sm_90", headers=headers).ptx)
    first, samples, seed = 11, 4, 2**40 + 7
    want = SPARSE.operands(seed, first, samples)
    matrices = SPARSE.matrices_of(want)
    metadata = SPARSE.inputs[3]
    memory, compared = Memory(), 0
    table, constant = (memory.allocate(array.view(np.uint8)) for array in (metadata.table, metadata.constant))
    for name, expected, more in (
        ("b", want["b"], []),
        ("columns", matrices.columns, []),
        ("words", SPARSE.plan_of(want).inputs[3], [table, constant, len(metadata.constant), metadata.bits]),
    ):
        assert expected is not None
        out = memory.allocate(expected.nbytes)
        kernel = module.kernel(f"campaign_{name}")
        found = kernel.launch(
            memory, [out, *more, first, samples, seed], grid=(2, 1, 1), block=(256, 1, 1), arch="sm_90"
        )
        assert found.completed and not found.hazards
        got = memory.read(out, expected.nbytes).view(expected.dtype).reshape(expected.shape)
        np.testing.assert_array_equal(got, expected)
        compared += got.size
    assert compared == samples * (128 + 128 + 32)
    words, *_ = philox(0, OPERANDS.index("sample"), np.arange(first, first + 64, dtype=np.uint64), 0, seed)
    assert set((words % np.uint64(len(CLASSES))).tolist()) == set(range(len(CLASSES)))


def test_kill_minus_nine_loses_nothing(tmp_path: Path) -> None:
    whole = run(asked(tmp_path / "whole"), OnCpu())
    path = tmp_path / "ledger"
    command = [sys.executable, "-m", "conformance.campaign", "run", str(path), "--cpu", "--seed", "5"]
    command += ["--outputs", str(SAMPLES * MMA.outputs), "--span", "2048", "--only", MMA.mnemonic]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(ledger.read(path)) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = ledger.read(path)
    assert before
    with path.open("ab") as file:
        file.write(b'{"mnemonic": "mma.sy')  # as if it had been killed while it wrote
    again = run(asked(path), OnCpu())
    assert ledger.read(path)[: len(before)] == before
    assert [(line.samples, line.outputs, line.digest) for line in _one(again)] == [
        (line.samples, line.outputs, line.digest) for line in whole
    ]


def _one(lines: list[ledger.Line]) -> list[ledger.Line]:
    """Joined whatever ran them."""
    return ledger.merged(replace(line, gpu="") for line in lines)


def test_a_hung_kernel_and_a_lost_context_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "TIMEOUT_S", 3.0)
    monkeypatch.setenv(campaign_devices.ONCE, str(tmp_path))
    with GpuWorker(executor="tests.unit.conformance.campaign.campaign_devices:troubled") as worker:
        lines = run(asked(tmp_path / "ledger"), worker)
        assert worker.starts == 3
    assert (tmp_path / "hung").exists() and (tmp_path / "died").exists()
    assert [line.digest for line in lines] == [line.digest for line in run(asked(tmp_path / "whole"), OnCpu())]


def test_a_kernel_that_hangs_again_ends_the_campaign_and_the_ledger_stays(tmp_path: Path) -> None:
    class Hanging(OnCpu):
        """From the third span on no task ends."""

        def run(self, launch: Any, timeout_s: float = 20.0) -> list[Any]:
            """As a `GpuWorker`."""
            if launch.first >= 2 * SPAN:
                raise Hang(launch.kernel, timeout_s)
            return super().run(launch, timeout_s)

    path = tmp_path / "ledger"
    with pytest.raises(CampaignError, match="2 tries"):
        run(asked(path), Hanging())
    assert [(line.first, line.samples) for line in ledger.read(path)] == [(0, SPAN), (SPAN, SPAN)]
    assert sum(line.samples for line in run(asked(path), OnCpu())) == SAMPLES


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger"
    run(Campaign(MMA, 5, SPAN * MMA.outputs, path, "model"), OnCpu())
    before, write = path.read_bytes(), os.write

    def half(file: int, text: bytes) -> int:
        write(file, text[: len(text) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(LedgerError, match=r"No space left on device; the line that is not there: \{.*\}"):
            run(asked(path), OnCpu())
    assert path.read_bytes() == before
    assert sum(line.samples for line in run(asked(path), OnCpu())) == SAMPLES
    if Path("/dev/full").exists():
        with pytest.raises(LedgerError, match="No space left"):
            ledger.append(Path("/dev/full"), ledger.read(path)[0])


def test_a_planted_fault_is_counted_and_made_small(tmp_path: Path) -> None:
    def faulty(subject: Subject, given: Matrices) -> Any:
        """An addend whose lowest bits are lost where the fourth product is negative."""
        negative = ((given.a[:, :, 3, None] >> 15) ^ (given.b[:, 3, None, :] >> 15)) & 1
        kept = np.where(negative == 1, given.c & np.uint32(0xFFFFF000), given.c)
        return on_cpu.answer_of(subject, Matrices(given.a, given.b, kept))

    device = OnCpu(faulty)
    (line,) = run(asked(tmp_path / "ledger"), device)
    assert 0 < line.mismatches < line.outputs and line.places
    case = smallest(MMA, 5, line.places[0], lambda arrays: device.run(Question(MMA, arrays))[0])
    assert case is not None and case.hardware != case.model
    assert np.count_nonzero(case.operands["c"]) == 1
    assert np.count_nonzero(case.operands["a"]) + np.count_nonzero(case.operands["b"]) <= 2
    assert "c 0x" in case.lines()[1]
    assert not verified(line)


def test_a_ledger_is_verified_in_part_and_whole(tmp_path: Path) -> None:
    (line,) = run(asked(tmp_path / "ledger", SPARSE), OnCpu())
    assert line.samples == SAMPLES and line.part == campaigns.PART
    assert verified(line) and verified(line, whole=True)
    assert line.mnemonic in campaigns.table([line])


def test_a_task_says_what_it_is() -> None:
    assert Task(MMA, 0, 7, 1, 1).kernel.endswith("samples from 7")


def test_over_an_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of two campaigns come to one ledger; what a worker loses is said, and left for the next run, which asks nothing else."""
    tried: list[int] = []

    class Lossy(OnCpu):
        def run(self, launch: Any, timeout_s: float = 20.0) -> list[Any]:
            tried.append(launch.first)
            if len(tried) in (2, 3):  # both tries of the second span
                raise Hang(launch.kernel, timeout_s)
            if len(tried) == 5:
                raise OSError("the worker is gone")
            return super().run(launch)

    device = Lossy()
    monkeypatch.setattr(cluster, "_device", lambda opens: device)
    both = [asked(tmp_path / "ledger.jsonl", subject) for subject in (MMA, SPARSE)]
    with ThreadPoolExecutor(1) as pool:
        failed = cluster.run_over(pool, both, "of no module:open")
        assert len(failed) == 2 and "2 tries" in failed[0] and "the worker is gone" in failed[1]
        lines = ledger.read(both[0].path)
        assert len(lines) == 2 * SAMPLES // SPAN - 2
        tried[:] = [0] * 10
        assert cluster.run_over(pool, both, "of no module:open") == []
    assert len(tried) == 10 + 2
    for campaign in both:
        (line,) = campaign.lines()
        assert line.samples == SAMPLES and line.mismatches == 0
    assert len(ledger.read(both[0].path)) == 2 * SAMPLES // SPAN


@pytest.mark.parametrize("subject", [MMA, SPARSE], ids=["f32", "sparse"])
def test_where_each_output_lies(subject: Subject) -> None:
    """An element by itself, of a result in registers, has its number at its place and zeros elsewhere."""
    m, n, _ = subject.shape
    assert sorted(subject.places.tolist()) == list(range(m * n))
    codes = np.arange(1, m * n + 1, dtype=subject.work.result.dtype).reshape(1, m, n)
    units = np.asarray(subject.instruction.registers("d", codes)).reshape(-1)
    assert units[subject.places].tolist() == codes.reshape(-1).tolist()


def test_a_task_goes_to_the_gpu_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many samples as there is room for, then the rest; its part is of the first ones, and compared once."""
    made: list[list[Any]] = []

    class Array:
        def __init__(self, shape: Any, dtype: Any) -> None:
            self.found: list[Any] = []
            made.append(self.found)

        def fill(self, value: int) -> None:
            self.found.append("cleared")

        def get(self) -> list[Any]:
            return self.found

    monkeypatch.setattr(on_gpu, "DeviceArray", Array)
    monkeypatch.setattr(on_gpu, "call", lambda name: None)
    own: Any = SimpleNamespace(
        most=10,
        _round=lambda task, first, samples, found: found.found.append((first, samples)),
        _compare=lambda first, samples, found: found.found.append((first, samples)),
    )
    whole, part = GpuSide.compared(own, Task(MMA, 5, 100, 25, 4))
    assert whole == ["cleared", (100, 10), (110, 10), (120, 5)] and part == ["cleared", (100, 4)] and len(made) == 2


def test_a_process_of_a_cluster_has_the_first_gpu_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "GpuWorker", lambda *given: given)
    cluster._device.cache_clear()
    assert cluster._device("x:y") == (0, "x:y")
    cluster._device.cache_clear()


def test_a_bar_is_shown_where_rich_is_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the error output; without it nothing is, and counting goes on."""
    pytest.importorskip("rich")
    with Progress() as progress:
        more = progress.begin("mma", 10, 2)
        more(3)
        (task,) = progress._bar.tasks
        assert (task.completed, task.total) == (5, 10)
    assert progress._bar.finished is False and not progress._bar.live.is_started
    shown = capsys.readouterr()
    assert shown.out == "" and "mma" in shown.err
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with Progress() as silent:
        silent.begin("mma", 10, 2)(3)
    assert capsys.readouterr() == ("", "")
