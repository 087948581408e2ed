"""The GEMM kernels of hwkernels to PTX, by NVRTC."""

from __future__ import annotations

from hwkernels.device.nvrtc import compile_cubin, find_compilers
from hwkernels.device.toolchain import ToolchainError
from hwkernels.gemm.build import SOURCES
from tests.kernels.corpora.case import Source
from tests.kernels.corpora.gemm.cases import build_of
from tests.kernels.corpora.pack import Compiled

NEWEST = (13, 0)  # the recording machine's driver knows no later PTX


def compiled(source: Source, target: str) -> Compiled:
    """The kernel of a build. Raises ToolchainError without an NVRTC for the target that is old enough."""
    build = build_of(source, target)
    text = (SOURCES / build.row.file).read_text(encoding="utf-8")
    for compiler in find_compilers():
        if compiler.version <= NEWEST and compiler.takes(target):
            made = compile_cubin(
                text, target, name=build.row.file, headers=build.headers, defines=build.defines, compiler=compiler
            )
            return Compiled(made.ptx, made_by=str(compiler))
    raise ToolchainError(f"no NVRTC up to {NEWEST} for {target}")
