"""`python -m conformance.kernels.precompile FOLDER --arch sm_90`: the kernels of all GEMM cases, compiled ahead into a folder of cubins.

With HWKERNELS_CUBINS=FOLDER a live run reads them instead of compiling: no minute of a GPU is spent on the compiler, and the
machine code is that of this machine's NVRTC. `--tune bf16 e4m3` adds every build that `hwkernels.bench.tune` can ask for.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from conformance.kernels import scaled as scaled_cases
from conformance.kernels.gemm import cases
from hwkernels.bench.tune_space import every_build
from hwkernels.gemm.build import CACHE_VARIABLE, Build, cubin_of, pack_cubin
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS
from hwkernels.gemm.scaled_kernels import ScaledBuild, scaled_cubin_of
from hwkernels.gemm.tiles import Shape, choose, formats_on
from tcsim.core.targets import ARCHS, arch_named

EXTENTS = (1024, 2048, 4096, 8192, 16384)  # of the benchmark


def builds(arch: str) -> list[Build]:
    """Every build of the cases, and those that `hwkernels.bench` chooses for its sizes, each once."""
    found = dict.fromkeys(case.build(arch) for case in cases(arch))
    for row in KERNELS.values():
        for format_ in formats_on(row, ARCHS[arch].number):
            formats = (format_, format_, OPERAND_FORMATS[format_].outputs[0])
            for extent in EXTENTS:
                build = choose(row, Shape(extent, extent, extent), formats, target=next(iter(found)).target)
                found[replace(build, target=next(b.target for b in found if b.kernel == row.name))] = None
    return list(found)


def scaled_builds(arch: str) -> list[ScaledBuild]:
    """The same of the block-scaled kernels' cases."""
    return list(dict.fromkeys(case.build(arch) for case in scaled_cases.cases(arch)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile them, several at a time."""
    parser = argparse.ArgumentParser(prog="python -m conformance.kernels.precompile")
    parser.add_argument("folder")
    parser.add_argument("--arch", type=arch_named, default="sm_90")
    parser.add_argument("--tune", nargs="+", default=[], choices=list(OPERAND_FORMATS), help="formats to tune (sm_90)")
    parser.add_argument("--only-tune", action="store_true", help="leave out the cases and the benchmark")
    options = parser.parse_args(arguments)
    os.environ[CACHE_VARIABLE] = options.folder
    wanted = dict.fromkeys([] if options.only_tune else builds(options.arch))
    for format_ in options.tune:
        wanted |= dict.fromkeys(every_build(format_, [(extent,) * 3 for extent in EXTENTS]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = list(pool.map(lambda build: len(cubin_of(build)), wanted))
        sizes += pool.map(lambda build: len(scaled_cubin_of(build)), scaled_builds(options.arch))
    sizes += [len(pack_cubin(item_bytes, options.arch)) for item_bytes in (1, 2, 4)]
    print(f"{len(sizes)} cubins, {sum(sizes)} bytes, in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
