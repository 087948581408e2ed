"""`python -m hwkernels.tune`: which tile width, cluster, ring, stagger and group of a persistent kernel is fastest here.

    python -m hwkernels.tune --format bf16 --size 4096 --block-n 256 192 --cluster 2x1 1x1 --stagger 0 2 --group 4 8 16

Every choice is a contender beside cuBLAS; the table is printed best last. It changes nothing: what it finds goes, by hand,
into `gemm_tiles.choose`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from hwkernels.bench import contenders, measure, parse_size
from hwkernels.bench_results import Result, summarise, to_json
from hwkernels.gemm_kernels import KERNELS, OPERAND_FORMATS

PERSISTENT = [name for name, row in KERNELS.items() if row.persistent and not row.ctas]


def parse_cluster(text: str) -> tuple[int, int]:
    """Blocks along M and N.

    >>> parse_cluster("2x1")
    (2, 1)
    """
    m, n = (int(part) for part in text.split("x"))
    return m, n


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every combination."""
    made = argparse.ArgumentParser(prog="python -m hwkernels.tune")
    made.add_argument("--format", default="bf16", choices=list(OPERAND_FORMATS))
    made.add_argument("--kernel", default="sm90_wgmma_persistent", choices=PERSISTENT)
    made.add_argument("--size", type=parse_size, nargs="+", default=[(4096, 4096, 4096)])
    made.add_argument("--block-n", type=int, nargs="+", default=[256])
    made.add_argument("--cluster", type=parse_cluster, nargs="+", default=[(2, 1)])
    made.add_argument("--stages", type=int, nargs="+", default=[0], help="0: as many as fit")
    made.add_argument("--stagger", type=int, nargs="+", default=[0, 2])
    made.add_argument("--group", type=int, nargs="+", default=[0], help="0: by the rule")
    made.add_argument("--promote", type=int, nargs="+", default=[0])
    made.add_argument("--mode", default="cold", choices=["cold", "sustained"])
    made.add_argument("--rounds", type=int, default=20)
    made.add_argument("--json", type=Path)
    options = made.parse_args(arguments)
    import torch

    from hwkernels.gemm_call import GemmError, Tuning

    results: list[Result] = []
    for size in options.size:
        runs = contenders(torch, options.format, size, [])
        choices = itertools.product(
            options.block_n, options.cluster, options.stages, options.stagger, options.group, options.promote
        )
        for block_n, cluster, stages, stagger, group, promote in choices:
            tuning = Tuning(block_n, cluster, stages or None, stagger, group or None, promote)
            label = (
                f"{block_n} {cluster[0]}x{cluster[1]} stages {stages} stagger {stagger} group {group} promote {promote}"
            )
            try:
                runs[label] = contenders(torch, options.format, size, [options.kernel], tuning)[options.kernel]
            except GemmError as error:
                print(f"{label}: {error}")
        times = measure(torch, runs, options.mode, options.rounds)
        part = summarise(times, options.format, OPERAND_FORMATS[options.format].outputs[0], size, options.mode)
        for item in sorted(part, key=lambda item: item.ratio):
            print(
                f"{size} {item.contender:<60}{item.median:>10.1f} us {item.tflops:>8.1f} TFLOP/s {item.ratio:.3f} ({item.noise:.3f})"
            )
        results += part
    if options.json:
        options.json.write_text(json.dumps(to_json(results, {}), indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
