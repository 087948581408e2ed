"""CUDA C++ to PTX, by nvcc."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.kernels.corpora.case import Source
from tests.kernels.corpora.pack import Compiled

FOLDER = Path(__file__).parent / "cuda"


@cache
def nvcc() -> tuple[str, str]:
    """The path of nvcc and its version. Raises FileNotFoundError if there is none."""
    places = [os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin"), os.environ.get("PATH", "")]
    found = shutil.which("nvcc", path=os.pathsep.join(places))
    if found is None:
        raise FileNotFoundError("no nvcc in $CUDA_HOME/bin, /usr/local/cuda/bin and PATH")
    version = re.search(r"\bV([\d.]+)", subprocess.run([found, "--version"], capture_output=True, text=True).stdout)
    return found, f"nvcc {version[1] if version else '?'}"


def to_ptx(source: str, target: str, headers: dict[str, str], options: list[str]) -> Compiled:
    """The PTX of a text that includes headers. Raises CalledProcessError with nvcc's words."""
    path, version = nvcc()
    with tempfile.TemporaryDirectory(prefix="corpora-") as folder:
        for name, text in (headers | {"kernel.cu": source}).items():
            Path(folder, name).write_text(text, encoding="utf-8")
        command = [path, "-ptx", f"-arch={target}", "-std=c++17", *options, "kernel.cu", "-o", "kernel.ptx"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr)
        return Compiled(Path(folder, "kernel.ptx").read_text(encoding="utf-8"), made_by=version)


def compiled(source: Source, target: str) -> Compiled:
    """A file of tests/kernels/corpora/cuda; options are flags of nvcc."""
    text = (FOLDER / source.file).read_text(encoding="utf-8")
    return to_ptx(text, target, {}, [f"{name}={value}" if value else name for name, value in source.options])
