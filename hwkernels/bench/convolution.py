"""`python -m hwkernels.bench.convolution`: forward convolutions against cuDNN, in the same rounds, on random normal data.

Five layers of ResNet-50 with a batch of 32, NHWC. Every result is compared with cuDNN's before it is timed; cuDNN chooses its
algorithm by measuring (torch.backends.cudnn.benchmark), and is there twice: how far it is from itself is the noise.
--tiles times every tile and cluster of the kernel, not only the one that `build_for` chooses.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hwkernels.bench.run import TORCH, Contender, machine_of, measure, wait_or_leave
from hwkernels.convolution.call import BLOCK_M, FORMATS, ConvolutionBuild, plan_conv, with_tile
from tcsim.core.files import write_file

IMAGES = 32
LAYERS = ((64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 256, 3, 1), (512, 7, 512, 3, 1), (256, 56, 512, 1, 2))
"""Channels, height and width, outputs, height and width of the filter, stride."""
TOLERANCE = 1e-2  # relative error, as a norm, that a right kernel stays under beside cuDNN
REFERENCE, AGAIN, OURS = "cudnn", "cudnn again", "hwkernels.conv"


def builds(format_: str) -> Iterator[ConvolutionBuild]:
    """Every tile and cluster."""
    for tile in itertools.product(BLOCK_M, (256, 192, 128, 64)):
        for cluster in ((1, 1), (1, 2), (2, 1)):
            yield with_tile((format_, format_), tile, cluster)


def contenders(torch: Any, format_: str, layer: tuple[int, int, int, int, int], tiles: bool) -> dict[str, Contender]:
    """cuDNN twice and the kernel, on the same operands. Raises RuntimeError if a result is wrong."""
    channels, size, outputs, filter_, stride = layer
    dtype, last = getattr(torch, TORCH[format_]), torch.channels_last
    x = torch.randn(IMAGES, channels, size, size, device="cuda").to(dtype).to(memory_format=last)
    filters = torch.randn(outputs, channels, filter_, filter_, device="cuda").to(dtype).to(memory_format=last)

    def reference() -> Any:
        return torch.nn.functional.conv2d(x, filters, stride=stride, padding=filter_ // 2)

    right = reference().permute(0, 2, 3, 1).double()
    found: dict[str, Contender] = {REFERENCE: reference, AGAIN: reference}
    for build in (None, *(builds(format_) if tiles else ())):
        plan = plan_conv(
            x.permute(0, 2, 3, 1), filters.permute(0, 2, 3, 1), stride=stride, padding=filter_ // 2, build=build
        )  # fmt: skip
        name = OURS if build is None else f"{build.block_m} x {build.block_n} {build.cluster}"
        plan.output.fill_(-77)
        plan()
        wait_or_leave(torch, f"{name} {format_} {layer}: {plan.build}")
        error = float((plan.output.double() - right).norm() / right.norm())
        if not error < TOLERANCE:
            raise RuntimeError(f"{name} {format_} {layer}: relative error {error} against cuDNN")
        found[name] = plan
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each layer and contender, write."""
    made = argparse.ArgumentParser(
        prog="python -m hwkernels.bench.convolution", description="Convolutions against cuDNN."
    )
    made.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    made.add_argument("--modes", nargs="+", default=["cold", "sustained"], choices=["cold", "sustained"])
    made.add_argument("--rounds", type=int, default=30, help="samples of each contender (default 30)")
    made.add_argument("--tiles", action="store_true", help="every tile and cluster")
    made.add_argument("--json", type=Path, help="write results here")
    options = made.parse_args(arguments)
    import torch  # a benchmark's extra: --help and tests need none

    torch.backends.cudnn.benchmark = True
    results, machine = [], machine_of(torch)
    for format_, layer in itertools.product(options.formats, LAYERS):
        runs = contenders(torch, format_, layer, options.tiles)
        for mode in options.modes:
            rounds = options.rounds if mode == "cold" else max(3, options.rounds // 6)
            times = measure(torch, runs, mode, rounds)
            for name, own in times.items():
                ratio = statistics.median(one / other for one, other in zip(times[REFERENCE], own, strict=True))
                middle = statistics.median(own)
                print(f"{format_:5} {layer!s:24} {mode:9} {name:24} {middle:7.2f} us {ratio:6.3f}", flush=True)
                results.append(
                    {"format": format_, "layer": layer, "mode": mode, "contender": name, "us": own, "ratio": ratio}
                )
            if options.json:
                write_file(options.json, json.dumps({"machine": machine, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
