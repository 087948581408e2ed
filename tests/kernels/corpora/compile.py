"""`python -m tests.kernels.corpora.compile [PATTERN ...]`: the PTX of every case, without a GPU, into build/corpora.xz.

Needs the extra `corpora` (Triton, CuTe DSL) and nvcc. Patterns choose cases by parts of their names; what else the pack holds is
kept. The recording machine has CUDA 13.0: PTX of a target that it runs is of ISA 9.0 at most, or the case fails.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable

from tcsim.core.targets import TARGETS
from tests.kernels.corpora import compile_cuda, compile_cute, compile_gemm, compile_triton, pack
from tests.kernels.corpora.case import Source
from tests.kernels.corpora.cases import CASES

COMPILERS: dict[str, Callable[[Source, str], pack.Compiled]] = {
    "cuda": compile_cuda.compiled,
    "gemm": compile_gemm.compiled,
    "triton": compile_triton.compiled,
    "gluon": compile_triton.compiled,
    "cute": compile_cute.compiled,
}
NEWEST = (9, 0)  # PTX ISA of CUDA 13.0, which the recording machine has


def chosen(patterns: list[str]) -> list[str]:
    """Names of cases that contain one of the patterns; all without patterns."""
    return [name for name in CASES if not patterns or any(pattern in name for pattern in patterns)]


def shortened(text: str) -> str:
    """The lines of an error that say what is wrong; a compiler may print the whole module around them."""
    lines = [line for line in text.splitlines() if "error" in line.lower() or "fatal" in line.lower()]
    return " | ".join(lines[:6] or text.splitlines()[-6:])[:1500]


def main(arguments: list[str]) -> int:
    """Compile; the exit status is the number of failures, at most 1."""
    wanted = {(CASES[name].source, target) for name in chosen(arguments) for target in CASES[name].targets}
    made, failed = pack.read(pack.BUILT), 0
    for source, target in sorted(wanted, key=lambda item: (item[0].key, item[1])):
        start = time.perf_counter()
        try:
            own = COMPILERS[source.compiler](source, target)
            version = re.search(r"^\.version (\d+)\.(\d+)", own.ptx, re.MULTILINE)
            if not version or (TARGETS[target].number <= 90 and (int(version[1]), int(version[2])) > NEWEST):
                raise ValueError(f"PTX of version {version and version[0]}")
        except Exception as error:  # a compiler may raise anything; the next case is tried
            failed += 1
            print(f"FAILED {source.key}@{target}: {type(error).__name__}: {shortened(str(error))}", flush=True)
            continue
        made[pack.key_of(source.key, target)] = own
        print(f"{source.key}@{target}: {len(own.ptx)} characters, {time.perf_counter() - start:.1f} s", flush=True)
    pack.write(pack.BUILT, made)
    print(
        f"{len(wanted) - failed} compiled, {failed} failed, {pack.BUILT}: {pack.BUILT.stat().st_size} bytes, {len(made)} modules"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
