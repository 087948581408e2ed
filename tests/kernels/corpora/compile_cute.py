"""CuTe DSL kernels to PTX: each in a process of its own, which the environment tells the target."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from tests.kernels.corpora.case import Source
from tests.kernels.corpora.pack import ROOT, Compiled

_TYPES = {"f16": "Float16", "f32": "Float32", "bf16": "BFloat16"}
_PROGRAM = """
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_ptr
from tests.kernels.corpora.cute import {file}

cute.compile({file}.{function}, {arguments})
"""


def compiled(source: Source, target: str) -> Compiled:
    """A kernel of tests/kernels/corpora/cute. Raises ValueError with what the compiler said."""
    arguments = ", ".join(_argument(kind) for kind in dict(source.options)["signature"].split())
    program = _PROGRAM.format(file=source.file, function=source.function, arguments=arguments)
    with tempfile.TemporaryDirectory(prefix="corpora-") as folder:
        environment = os.environ | {
            "CUTE_DSL_ARCH": target, "CUTE_DSL_KEEP": "ptx", "CUTE_DSL_DUMP_DIR": folder, "CUTE_DSL_NO_CACHE": "1",
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        found = list(Path(folder).glob("*.ptx"))
        if done.returncode or len(found) != 1:
            raise ValueError(f"{len(found)} files; error: {done.stderr}")
        text = found[0].read_text(encoding="utf-8").rstrip("\0")
    return Compiled(shortened(text), made_by=f"CuTe DSL {metadata.version('nvidia-cutlass-dsl')}")


def _argument(kind: str) -> str:
    if kind.startswith("*"):
        return f"make_ptr(cutlass.{_TYPES[kind[1:]]}, 16, cute.AddressSpace.gmem, assumed_align=16)"
    return f"cutlass.{_TYPES[kind]}(1.0)"


def shortened(text: str) -> str:
    """The PTX with its kernel called `kernel`: its name spells the types of all arguments."""
    name = re.search(r"\.entry\s+([\w$]+)", text)
    return text.replace(name[1], "kernel") if name else text
