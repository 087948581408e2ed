"""From a file of CUDA C++ to an answer: it is compiled, launched, and what is wrong in it is named by its own lines."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

import pytest

from tcsim.cli.app import app
from tests.support.cli_runs import RUNNER, refusal

SOURCE = """#include <cuda_fp16.h>
__global__ void other(float *x) { x[threadIdx.x] = 1; }
__global__ void scale(const float *in, __half *out, float by, int n) {
    __shared__ float tile[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) tile[threadIdx.x] = in[i] * by;
    SYNC;
    if (i < n) out[i] = __float2half(tile[threadIdx.x ^ 32]);
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "racy.cu").write_text(SOURCE.replace("SYNC", ""))
    (tmp_path / "right.cu").write_text(SOURCE.replace("SYNC", "__syncthreads()"))
    (tmp_path / "wrong.cu").write_text("__global__ void k() { return nothing; }\n")
    return tmp_path


@pytest.mark.parametrize("hosted", [True, False], ids=["nvcc", "NVRTC"])
def test_from_the_file_to_the_race(hosted: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hosted:
        find = shutil.which
        monkeypatch.setattr(shutil, "which", lambda name, path=None: find(name, path=path) if path else None)
    made = RUNNER.invoke(app, ["launch", "init", "racy.cu", "--kernel", "scale", "--output", "l.toml"])
    assert made.exit_code == 0, made.output
    text = (folder / "l.toml").read_text()
    assert 'format = "f16"' in text and 'kernel = "scale"' in text and '{ pointer = "out" },  # __half' in text
    found = RUNNER.invoke(app, ["check", "racy.cu", "--launch", "l.toml"])
    assert found.exit_code == 1 and "SMEM_RACE_RAW" in found.output and "racy.cu:8" in found.output
    for command in ("check", "exec", "profile"):
        right = RUNNER.invoke(app, [command, "right.cu", "--launch", "l.toml", "--arch", "h100"])
        assert right.exit_code == 0, right.output


def test_a_kernel_by_its_plain_name(folder: Path) -> None:
    assert "kernels; valid: the name of one" in refusal("launch", "init", "right.cu")
    assert "no kernel" in refusal("launch", "init", "right.cu", "--kernel", "scal")


@pytest.mark.parametrize("command", ["exec", "check", "profile", "step"])
def test_what_the_compiler_says(command: str, folder: Path) -> None:
    (folder / "l.toml").write_text('grid = 1\nblock = 32\narch = "sm_100"\n')
    said = refusal(command, "wrong.cu", "--launch", "l.toml")
    assert f"tcsim: {command}: " in said and "wrong.cu for sm_100a" in said and '"nothing" is undefined' in said


def test_without_a_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [])
    assert "no compiler is installed; valid: pip install 'tcsim[assemble]'" in refusal("launch", "init", "right.cu")


def test_ptx_that_quotes_its_source(folder: Path) -> None:
    """As `nvcc -src-in-ptx` writes it: it is PTX all the same."""
    (folder / "l.toml").write_text("grid = 1\nblock = 32\n")
    (folder / "k.ptx").write_text(
        "// __global__ void k()\n.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"
    )
    found = RUNNER.invoke(app, ["exec", "k.ptx", "--launch", "l.toml"])
    assert found.exit_code == 0, found.output
