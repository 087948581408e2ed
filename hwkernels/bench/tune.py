"""`python -m hwkernels.bench.tune`: which tile, cluster, ring, order of a persistent kernel are fastest on this GPU, beside cuBLAS.

    python -m hwkernels.bench.tune --formats bf16 --sizes 2048 4096 8192 16384 --json tune.json --picks picks.json

For each format and size one axis of choices after another is searched (`tune_space`): all its values and cuBLAS are timed in
the same rounds, and the fastest stays if it beats the present one by more than the noise. At the end the outcome is measured
against the start with more rounds. Both files are written after every size: what was measured is kept if the rest is not.
`HWKERNELS_PICKS=picks.json` makes every later call use the picks; a `picks.json` in this package is read by default.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hwkernels.bench.results import AGAIN, REFERENCE, Result, summarise, to_json
from hwkernels.bench.run import Bench, Contender, measure, parse_size
from hwkernels.bench.tune_space import AGAIN as SECOND_PASS
from hwkernels.bench.tune_space import AXES, KERNEL, KERNELS_TUNED, alternatives, base, start
from hwkernels.device.stream_launch import arch_number, make_current, multiprocessors
from hwkernels.gemm.kernels import OPERAND_FORMATS
from hwkernels.gemm.picks import Product, merge, product_of
from hwkernels.gemm.tiles import Shape
from hwkernels.gemm.tuning import Tuning
from tcsim.core.files import write_file

Timer = Callable[[Sequence[Tuning], int], list[Result]]


def name_of(tuning: Tuning) -> str:
    """The choices that were made, on one line.

    >>> name_of(Tuning(block_n=256, cluster=(2, 1), stream=False))
    'block_n=256 cluster=2x1 stream=0'
    """
    made = {name: value for name, value in vars(tuning).items() if value is not None}
    words = {
        name: "x".join(map(str, value)) if isinstance(value, tuple) else str(int(value) if name == "stream" else value)
        for name, value in made.items()
    }
    return " ".join(f"{name}={word}" for name, word in words.items())


def descend(
    timer: Timer,
    format_: str,
    size: tuple[int, int, int],
    rounds: int,
    *,
    multiprocessors: int = 132,
    kernel: str = KERNEL,
    axes: Sequence[str] = (*AXES, *SECOND_PASS),
    until: float = float("inf"),
) -> tuple[Tuning, list[Result]]:
    """The choices at the end of a search along the axes, and all that was measured.

    timer: measures choices beside cuBLAS in the same rounds. until: `time.monotonic()` after which no axis is begun.
    A value replaces the present one if it is faster by more than cuBLAS differs from itself in the same rounds.
    """
    now = start(format_, size, multiprocessors, kernel)
    results: list[Result] = []
    for axis in axes:
        choices = alternatives(axis, now, format_, size, multiprocessors, kernel)
        if len(choices) < 2:
            continue
        if time.monotonic() > until:
            print(f"{format_} {size}: out of time before {axis}", flush=True)
            break
        found = timer(choices, rounds)
        results += found
        by_name = {item.contender: item for item in found}
        ranked = sorted(
            (item for item in choices if name_of(item) in by_name), key=lambda item: -by_name[name_of(item)].ratio
        )
        present = by_name[name_of(now)]
        best = by_name[name_of(ranked[0])]
        if best.ratio > present.ratio * (1 + present.noise):
            now = ranked[0]
        values = ", ".join(f"{getattr(item, axis)}: {by_name[name_of(item)].ratio:.3f}" for item in ranked)
        print(f"{format_} {size[0]}x{size[1]}x{size[2]} {axis}: {values}  noise {present.noise:.3f}", flush=True)
    return now, results


def gpu_timer(torch: Any, bench: Bench, mode: str, kernel: str = KERNEL) -> Timer:
    """Times choices on this GPU. Those whose results are wrong are left out, and said."""
    ready: dict[Tuning, Contender] = {}

    def timer(choices: Sequence[Tuning], rounds: int) -> list[Result]:
        runs: dict[str, Contender] = {REFERENCE: bench.cublas, AGAIN: bench.cublas}
        for item in choices:
            if item not in ready:
                try:
                    ready[item] = bench.contender(kernel, item)
                except RuntimeError as error:
                    if item is choices[0]:
                        raise
                    print(f"left out: {error}", flush=True)
                    continue
            runs[name_of(item)] = ready[item]
        times = measure(torch, runs, mode, rounds)
        return summarise(times, bench.format, OPERAND_FORMATS[bench.format].outputs[0], bench.size, mode)

    return timer


def search(torch: Any, options: argparse.Namespace) -> list[Result]:
    """Every format and size of the command line; files are written after each."""
    make_current()
    arch, count = arch_number(), multiprocessors()
    results: list[Result] = []
    for format_ in options.formats:
        for size in options.sizes:
            begun = time.monotonic()
            timer = gpu_timer(torch, Bench(torch, format_, size), options.mode, options.kernel)
            best, part = descend(
                timer,
                format_,
                size,
                options.rounds,
                multiprocessors=count,
                kernel=options.kernel,
                axes=options.axes or (*AXES, *SECOND_PASS),
                until=begun + options.seconds,
            )
            first = start(format_, size, count, options.kernel)
            final = timer([first] if best == first else [first, best], 3 * options.rounds)
            by_name = {item.contender: item for item in final}
            chosen, before = by_name[name_of(best)], by_name[name_of(first)]
            print(
                f"{format_} {size[0]}x{size[1]}x{size[2]}: {name_of(best)}\n    ratio {chosen.ratio:.3f} "
                f"({chosen.ratio_low:.3f} .. {chosen.ratio_high:.3f}), started at {before.ratio:.3f}, noise {chosen.noise:.3f}, "
                f"{time.monotonic() - begun:.0f} s",
                flush=True,
            )
            results += [*part, *final]
            if options.json:
                write_file(options.json, json.dumps(to_json(results, {}), indent=1))
            if options.picks:
                product: Product = product_of(base(format_, size, count, options.kernel), Shape(*size), arch, count)
                how = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "mode": options.mode}
                how |= {name: round(getattr(chosen, name), 4) for name in ("median", "ratio", "noise")}
                merge(options.picks, {product: (best, how)})
            del timer
            torch.cuda.empty_cache()
    return results


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m hwkernels.bench.tune")
    made.add_argument("--formats", nargs="+", default=["bf16"], choices=list(OPERAND_FORMATS))
    made.add_argument("--kernel", default=KERNEL, choices=KERNELS_TUNED)
    made.add_argument("--sizes", type=parse_size, nargs="+", default=[(n, n, n) for n in (2048, 4096, 8192, 16384)])
    made.add_argument("--axes", nargs="+", choices=AXES, help="search these only, in this order")
    made.add_argument("--mode", default="cold", choices=["cold", "sustained"])
    made.add_argument(
        "--rounds", type=int, default=10, help="samples of each choice (default 10; the outcome has three times that)"
    )
    made.add_argument(
        "--seconds", type=float, default=60.0, help="for a format and size (default 60): no axis is begun later"
    )
    made.add_argument("--json", type=Path, help="write all results here")
    made.add_argument("--picks", type=Path, help="write the outcomes here, beside what the file has for other products")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, print, write."""
    options = parser().parse_args(arguments)
    import torch  # a benchmark's extra: --help and tests need none

    search(torch, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
