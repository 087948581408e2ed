"""Triton on the model: what its driver interface answers, autotuning, benchmarks, torch's "cuda", scripts, and what stands after it."""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

import tcsim.launchers
from tcsim.launchers.host_memory import HostArray
from tcsim.launchers.launched import LaunchFailed
from tcsim.launchers.triton_session import SUPPORTED

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "triton.md").read_text(encoding="utf-8")


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@triton.autotune(
    [triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((1 << 17, 4), (64, 2), (32, 1))], key=["n"]
)
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 1 << 17)
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + 1, at < n)


@triton.jit
def told(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.device_print("value", value)
    tl.device_assert(value < 40, "too large")


@triton.jit
def meet(count, out, N: tl.constexpr):
    tl.atomic_add(count, 1)
    while tl.atomic_add(count, 0) < N:
        pass
    tl.store(out + tl.program_id(0), 1)


def arrays(*sizes: int) -> list[HostArray]:
    return [HostArray(np.arange(size, dtype=np.float32)) for size in sizes]


def test_each_arch_has_its_own_kernel() -> None:
    """One function, compiled for each; and everything is as before afterwards."""
    backends, active = dict(triton.backends.backends), triton.runtime.driver._active
    for arch, target in (("sm_80", "sm_80"), ("sm_90", "sm_90a"), ("sm_100a", "sm_100a")):
        x, y, out = arrays(100, 100, 100)
        with tcsim.launchers.triton(arch=arch, log=None) as session:
            kernel = add[(2,)](x, y, out, 100, BLOCK=64)
        assert (out.array == 2 * x.array).all() and f".target {target}\n" in kernel.asm["ptx"]
        assert session.launches[0].run.arch == arch.rstrip("a") and kernel.n_regs > 8
    assert triton.backends.backends == backends and triton.runtime.driver._active is active


def test_what_lies_behind_a_tensor_stops_a_launch() -> None:
    """With the line of the script; the next launch runs."""
    x, y, out = arrays(100, 100, 90)
    with tcsim.launchers.triton(arch="sm_90", log=None) as session:
        with pytest.raises(LaunchFailed, match=r"GMEM_UNMAPPED: .*test_launcher\.py:\d+"):
            add[(2,)](x, y, out, 100, BLOCK=64)
        add[(2,)](x, y, out, 90, BLOCK=64)
    assert [own.clean for own in session.launches] == [False, True]


def test_autotuning_takes_the_first_that_compiles() -> None:
    """Nothing is launched to find it, and the launch says so; the next one has nothing to say."""
    log = io.StringIO()
    for _ in range(2):
        x, out = arrays(50, 50)
        with tcsim.launchers.triton(arch="sm_90", log=log) as session:
            tuned[(1,)](x, out, 50)
            tuned[(1,)](x, out, 50)
        assert (out.array == x.array + 1).all() and [own.block for own in session.launches] == [(64, 1, 1)] * 2
    assert [own.notes for own in session.launches] == [(), ()]  # kept by Triton from the first time
    assert log.getvalue().count("autotuning: configuration 2 of 3") == 1


def test_benchmarks_call_once_and_measure_nothing() -> None:
    """NaN in the form that was asked for; Triton's own functions are back afterwards."""
    before, calls, log = triton.testing.do_bench, [], io.StringIO()
    with tcsim.launchers.triton(arch="sm_90", log=log):
        assert math.isnan(triton.testing.do_bench(lambda: calls.append(1)))
        found = triton.testing.do_bench(lambda: calls.append(1), quantiles=[0.5, 0.2, 0.8])
        assert len(found) == 3 and all(map(math.isnan, found))
        assert math.isnan(triton.testing.do_bench_cudagraph(lambda: calls.append(1), quantiles=[0.5]))
        assert len(triton.testing.do_bench(lambda: calls.append(1), return_mode="all")) == 1
        assert math.isnan(triton.runtime.driver.active.get_benchmarker()(lambda: calls.append(1)))
    assert len(calls) == 5 and log.getvalue().count("nothing measured: NaN") == 5
    assert triton.testing.do_bench is before


def test_prints_and_assertions(capsys: pytest.CaptureFixture[str]) -> None:
    """A print is on standard output; an assertion that fails is a hazard."""
    (x,) = arrays(32)
    with tcsim.launchers.triton(arch="sm_90", log=None):
        told[(1,)](x, BLOCK=32, num_warps=1)
        assert "value: 31" in capsys.readouterr().out
        x.array[7] = 40
        with pytest.raises(LaunchFailed, match=r"ASSERT: .*assertion `too large` failed"):
            told[(1,)](x, BLOCK=32, num_warps=1, debug=True)


def test_a_cooperative_grid_waits_for_all_of_it() -> None:
    count, out = HostArray(np.zeros(1, np.int32)), HostArray(np.zeros(4, np.int32))
    with tcsim.launchers.triton(arch="sm_90", log=None):
        meet[(4,)](count, out, 4, launch_cooperative_grid=True, num_warps=1)
    assert out.array.tolist() == [1] * 4


def test_the_device_is_the_arch() -> None:
    """Its limits are those of the arch; what would say how fast it is says nothing."""
    with tcsim.launchers.triton(arch="sm_80", multiprocessors=3, log=None):
        driver = triton.runtime.driver.active
        properties = driver.utils.get_device_properties(driver.get_current_device())
        assert (properties["multiprocessor_count"], properties["max_shared_mem"]) == (3, 163 << 10)
        assert math.isnan(properties["mem_clock_rate"])
        target = driver.get_current_target()
        assert (target.backend, target.arch, target.warp_size) == ("cuda", 80, 32)


def test_a_kernel_outlives_its_session_but_does_not_run() -> None:
    """A clear error, not a crash."""
    x, y, out = arrays(64, 64, 64)
    with tcsim.launchers.triton(arch="sm_90", log=None):
        kernel = add[(1,)](x, y, out, 64, BLOCK=64)
    with pytest.raises(RuntimeError, match="not active any more"):
        kernel.run(1, 1, 1, 0, kernel.function, kernel.packed_metadata, None, None, None, x, y, out, 64, 64)


# --- the page, with torch


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def masked(text: str) -> list[str]:
    """Lines without what differs from run to run: seconds, addresses; and what the compiler makes of it: the page has the newest's PTX."""
    newest = triton.__version__.startswith(SUPPORTED[-1])
    varies = r"\d+\.\d\d s|0x[0-9a-f]+" + ("" if newest else r"|\d+(?= instructions)|(?<=\(PTX line )\d+")
    return sorted(re.sub(varies, "#", line) for line in text.splitlines())


def ran(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    (folder / "add.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "tcsim", "exec", "--arch", "sm_90", "add.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_pages_script_prints_what_the_page_says(tmp_path: Path) -> None:
    """And without its mask it stops as the page says."""
    pytest.importorskip("torch")
    script, consoles = blocks("py")[0], blocks("console")
    whole = ran(tmp_path, script)
    assert whole.returncode == 0 and masked(whole.stdout + whole.stderr) == masked(consoles[1].partition("\n")[2])
    wrong = script.replace("tl.load(y + i, inside), inside)", "tl.load(y + i, inside))")
    assert wrong != script
    stopped = ran(tmp_path, wrong)
    assert stopped.returncode == 1 and masked(stopped.stdout + stopped.stderr) == masked(consoles[2].partition("\n")[2])


def test_the_pages_session_runs(tmp_path: Path) -> None:
    """The second block, after the kernel of the first."""
    torch: Any = pytest.importorskip("torch")
    namespace: dict[str, Any] = {"add": add, "x": torch.rand(1003), "y": torch.rand(1003), "out": torch.empty(1003)}
    exec(blocks("py")[1], namespace)
    assert torch.equal(namespace["out"], namespace["x"] + namespace["y"])


def test_cuda_is_the_cpu_for_a_while() -> None:
    """In calls of torch and in torch.cuda; not afterwards, and not where it is not wanted."""
    torch: Any = pytest.importorskip("torch")
    before = torch.cuda.get_device_capability
    with tcsim.launchers.triton(arch="sm_103", log=None):
        tensor = torch.zeros(3, device="cuda:0").to("cuda").cuda()
        assert tensor.device.type == "cpu" and tensor.is_cuda and torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (10, 3)
        torch.cuda.synchronize()
    assert not torch.zeros(1).is_cuda and torch.cuda.get_device_capability is before
    with tcsim.launchers.triton(arch="sm_90", cuda=False, log=None):
        assert not torch.zeros(1).is_cuda
