"""The PTX of a file of CUDA C++: by nvcc where there is one and a host compiler, else by NVRTC, which takes device code alone."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from hwkernels.device.nvrtc import compile_cubin
from hwkernels.device.toolchain import AssembleError, ToolchainError, executables, places
from tcsim.core.targets import TARGETS

TIMEOUT_S = 300.0
_HOSTS = ("g++", "clang++", "c++")
"""Host compilers, one of which nvcc calls for the preprocessor."""
_OLD = ("sm_70", "sm_72")
"""Targets that nvcc 13 no longer has; the NVRTC of CUDA 12 does."""


def ptx_of(path: str, arch: str) -> str:
    """The PTX of a file for all that an arch has, with lines of the source. arch: "sm_90" is compiled for sm_90a.

    Raises AssembleError with what the compiler says where it does not take the file, ToolchainError where there is no compiler.
    """
    target = f"{arch}a" if f"{arch}a" in TARGETS else arch
    nvcc = next((found for _, found in executables("nvcc")), None)
    if nvcc is not None and any(map(shutil.which, _HOSTS)) and target not in _OLD:
        return _by_nvcc(nvcc, path, target)
    return _by_nvrtc(Path(path), target)


def _by_nvrtc(file: Path, target: str) -> str:
    headers = (folder.parent / "include" for _, folder in places())
    include = [str(file.resolve().parent)]
    include += [
        str(own) for folder in headers if (folder / "cuda_fp16.h").exists() for own in (folder, folder / "cccl")
    ]
    options = ("-lineinfo", *(f"--include-path={own}" for own in dict.fromkeys(include)))
    try:
        return compile_cubin(
            file.read_text(encoding="utf-8", errors="replace"), target, name=file.name, options=options, strict=False
        ).ptx
    except AssembleError as error:
        raise AssembleError(f"NVRTC does not compile {file} for {target}:", error.log, target) from None


def _by_nvcc(nvcc: Path, path: str, target: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "kernel.ptx")
        command: list[str | Path] = [
            nvcc,
            "-ptx",
            "-lineinfo",
            f"-arch={target}",
            "-std=c++17",
            "-x",
            "cu",
            "-o",
            out,
            f"./{path}" if path.startswith("-") else path,
        ]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(f"{nvcc}: {error}") from None
        if answer.returncode or not out.exists():
            raise AssembleError(f"nvcc does not compile {path} for {target}:", answer.stderr + answer.stdout, target)
        return out.read_text(encoding="utf-8")
