"""CuTe DSL's functions on the model: what they compute, what is said of their launches, and what stops them."""

from __future__ import annotations

import io
from pathlib import Path

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack, make_ptr
from cutlass.testing import JitArguments, benchmark

import tcsim.launchers
from tcsim.launchers import recording
from tcsim.launchers.job import execute
from tcsim.launchers.launched import LaunchFailed
from tcsim.launchers.script import run_script
from tests.kernels.corpora.cute import kernels

BLOCK = 32


@cute.kernel
def _scaled(a: cute.Tensor, b: cute.Tensor, factor: cutlass.Constexpr):
    i = cute.arch.thread_idx()[0] + cute.arch.block_idx()[0] * BLOCK
    b[i] = a[i] * factor


@cute.jit
def scaled(a: cute.Tensor, b: cute.Tensor, factor: cutlass.Constexpr):
    """b = factor * a."""
    _scaled(a, b, factor).launch(grid=(cute.size(a) // BLOCK, 1, 1), block=(BLOCK, 1, 1))


def numbers(count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(count, dtype=torch.float32), torch.zeros(count)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_function_runs_on_the_arch(arch: str) -> None:
    """Compiled first or called as it is; the same kernel with another constant is another one."""
    a, b = numbers()
    log = io.StringIO()
    with tcsim.launchers.cute(arch=arch, log=log) as session:
        given = from_dlpack(a), from_dlpack(b)
        compiled = cute.compile(scaled, *given, 3)
        compiled(*given)
        assert torch.equal(b, 3 * a)
        scaled(*given, 5)
        assert torch.equal(b, 5 * a)
        compiled(*given)
        assert torch.equal(b, 3 * a)
    assert [own.run.arch for own in session.launches] == [arch] * 3 and all(own.clean for own in session.launches)
    assert session.launches[0].grid == (2, 1, 1) and log.getvalue().count("32") >= 3


def test_pointers_and_numbers_as_parameters() -> None:
    x, y = torch.randn(512), torch.randn(512)
    wanted = torch.addcmul(y, x, torch.tensor(2.5))
    with tcsim.launchers.cute(arch="sm_90", log=None) as session:
        pointers = [
            make_ptr(cutlass.Float32, own.data_ptr(), cute.AddressSpace.gmem, assumed_align=16) for own in (x, y)
        ]
        kernels.axpy(*pointers, cutlass.Float32(2.5))
    assert torch.allclose(y, wanted) and len(session.launches) == 1 and not session.launches[0].run.inexact


def test_a_launch_that_faults_raises() -> None:
    a, b = numbers()
    with tcsim.launchers.cute(arch="sm_90", log=None) as session:
        narrow = from_dlpack(torch.zeros(BLOCK))  # the function stores 64 numbers
        with pytest.raises(LaunchFailed, match="GMEM_UNMAPPED"):
            scaled(from_dlpack(a), narrow, 3)
        scaled(from_dlpack(a), from_dlpack(b), 3)
    assert torch.equal(b, 3 * a) and len(session.launches) == 2


def test_a_benchmark_calls_once() -> None:
    a, b = numbers()
    log = io.StringIO()
    with tcsim.launchers.cute(arch="sm_90", log=log) as session:
        import cutlass.testing as testing  # the function is replaced in its module

        given = from_dlpack(a), from_dlpack(b)
        compiled = cute.compile(scaled, *given, 2)
        assert np.isnan(testing.benchmark(compiled, kernel_arguments=JitArguments(*given), iterations=9))
        assert cutlass.utils.HardwareInfo().get_max_active_clusters(2) == 66
    assert len(session.launches) == 1 and torch.equal(b, 2 * a) and "nothing measured" in log.getvalue()
    assert cutlass.testing.benchmark is benchmark


def test_a_script_is_run_and_its_launches_are_saved(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nfrom cutlass.cute.runtime import from_dlpack\nfrom tests.on_cute.test_cute import scaled\n"
        'a, b = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")\n'
        "scaled(from_dlpack(a), from_dlpack(b), 7)\nassert b.sum() == 448\n"
    )
    status, session = run_script(str(script), [], "sm_90", log=None, save=tmp_path / "saved")
    assert status == 0 and len(session.launches) == 1
    (saved,) = (tmp_path / "saved").iterdir()
    found = execute(recording.read(saved).job())
    assert found.passed and found.equal


def test_outside_a_function_does_not_run() -> None:
    a, b = numbers()
    with tcsim.launchers.cute(arch="sm_90", log=None):
        given = from_dlpack(a), from_dlpack(b)
        compiled = cute.compile(scaled, *given, 3)
        compiled(*given)
    b[:] = 0
    with pytest.raises(Exception, match="999"):
        compiled(*given)
    assert not b.any()
