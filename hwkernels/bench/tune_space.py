"""What `hwkernels.bench.tune` may choose from, for a format and a size: axes of choices, and every build that they can lead to. No GPU here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hwkernels.gemm.build import Build
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS, OUTPUT_BYTES
from hwkernels.gemm.tiles import Shape, choose, grid_of_tiles, group_height, launch_grid
from hwkernels.gemm.tuning import GemmError, Tuning, tuned

KERNELS_TUNED = tuple(name for name, row in KERNELS.items() if row.persistent and not row.ctas)
KERNEL = "sm90_wgmma_persistent"
WIDTHS = (256, 192, 128)
CLUSTERS = ((2, 1), (1, 2), (2, 2), (4, 1), (1, 1))
PANELS = (2, 4)  # the ring takes what they leave: 4 and 3 slots of 128 x 256 with outputs of 16 bits
STAGGERS = (0, 1, 2, 3)
GROUPS = (1, 2, 4, 8, 16, 32)
PROMOTIONS = ("L2_256B", "L2_128B", "NONE")
# In the order in which they are searched: what moves most data first. Each is a set of changes to the choices so far.
AXES = ("defer", "direct", "cluster", "block_n", "panels", "stagger", "group", "clusters", "stream", "promotion")
AGAIN = ("stagger", "group", "cluster")  # searched once more at the end: they depend on the others


def start(format_: str, size: tuple[int, int, int], multiprocessors: int = 132, kernel: str = KERNEL) -> Tuning:
    """The choices that `choose` makes, spelt out.

    >>> start("bf16", (4096, 4096, 4096)).group
    8
    """
    build = base(format_, size, multiprocessors, kernel)
    return Tuning(
        block_n=build.block_n,
        cluster=build.cluster,
        stagger=build.stagger,
        group=group_height(build, multiprocessors),
        panels=build.panels,
        stream=build.stream,
        defer=build.deferred,
        direct=not build.tma_store,
    )


def base(format_: str, size: tuple[int, int, int], multiprocessors: int = 132, kernel: str = KERNEL) -> Build:
    """The build that `choose` makes of K-major operands and the format's first output."""
    formats = (format_, format_, OPERAND_FORMATS[format_].outputs[0])
    return choose(KERNELS[kernel], Shape(*size), formats, multiprocessors=multiprocessors)


def alternatives(
    axis: str,
    now: Tuning,
    format_: str,
    size: tuple[int, int, int],
    multiprocessors: int = 132,
    kernel: str = KERNEL,
) -> list[Tuning]:
    """What an axis offers from the present choices, those first; only what fits, and what would launch something else.

    >>> [item.cluster for item in alternatives("cluster", start("bf16", (4096,) * 3), "bf16", (4096,) * 3)]
    [(2, 1), (1, 2), (2, 2), (4, 1), (1, 1)]
    >>> [item.clusters for item in alternatives("clusters", start("bf16", (16384,) * 3), "bf16", (16384,) * 3)]
    [None, 64]
    """
    cluster = now.cluster or (1, 1)
    values: dict[str, tuple[Any, ...]] = {
        "block_n": WIDTHS,
        "cluster": CLUSTERS,
        "panels": PANELS,
        "stagger": STAGGERS,
        "group": GROUPS,
        "clusters": (None, 128 // math.prod(cluster)),  # a power of two: waves that fit a square of tiles
        "stream": (False, True),
        "defer": (False, True),
        "direct": () if OUTPUT_BYTES[OPERAND_FORMATS[format_].outputs[0]] == 2 else (False, True),
        "promotion": PROMOTIONS,
    }
    found: dict[tuple[object, ...], Tuning] = {}
    for item in (now, *(replace(now, **{axis: value}) for value in values[axis])):
        try:
            build = tuned(base(format_, size, multiprocessors, kernel), item)
        except GemmError:
            continue
        if item.defer and item.direct:
            continue
        resident = multiprocessors // math.prod(build.cluster)
        grid = launch_grid(build, Shape(*size), min(resident, item.clusters or resident))
        rows, _ = grid_of_tiles(build, Shape(*size))
        promotion = item.promotion or PROMOTIONS[0]
        found.setdefault((build, grid, min(item.group or rows, rows), promotion), item)
    return list(found.values())


def every_build(format_: str, sizes: list[tuple[int, int, int]], kernel: str = KERNEL) -> Iterator[Build]:
    """Each machine code that a search can ask for, once: to compile beforehand."""
    found: dict[Build, None] = {}
    for size in sizes:
        first = base(format_, size, kernel=kernel)
        widths = dict.fromkeys((*WIDTHS, first.block_n))
        stores = [(False, False), (True, False)] + [(False, True)] * (OUTPUT_BYTES[first.out] == 4)  # defer, direct
        for width, cluster, panels, stagger, stream, (defer, direct) in itertools.product(
            widths, CLUSTERS, PANELS, STAGGERS, (False, True), stores
        ):
            tuning = Tuning(width, cluster, stagger=stagger, panels=panels, stream=stream, defer=defer, direct=direct)
            try:
                found[tuned(first, tuning)] = None
            except GemmError:
                continue
    yield from found
