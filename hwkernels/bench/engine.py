"""`python -m hwkernels.bench.engine`: products a second of the engine's kernels on large GEMMs, on data that is already on the GPU.

Times are medians of launches between events. With --compare every output of the fast kernel is compared with the other one's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import tcsim
from hwkernels.device.device_arrays import DeviceArray
from hwkernels.device.driver import call, device_info, shared_limit
from hwkernels.device.stream_launch import make_current
from hwkernels.engine import fast, run
from hwkernels.engine.source import UnsupportedError
from tcsim.core.files import write_file
from tcsim.engines.contract import Work

SUBJECTS = {
    "sm_90 f16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    "sm_90 f16 to f16": ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90"),
    "sm_90 bf16": ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90"),
    "sm_90 tf32": ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90"),
    "sm_90 wgmma e4m3": ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", "sm_90"),
    "sm_90 mma.sync e4m3": ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90"),
    "sm_80 f16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    "sm_80 tf32": ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"),
    "sm_89 e4m3": ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89"),
    "sm_70 f16": ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    "sm_120 e4m3": ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_120"),
    "sm_120 e2m1": ("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m1.f32", "sm_120"),
    "sm_120 mxf8f6f4": (
        "mma.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0",
        "sm_120",
    ),
    "sm_120 mxf4": ("mma.sync.aligned.kind::mxf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0", "sm_120"),
    "sm_120 nvf4": (
        "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
        "sm_120",
    ),
    "sm_75 f16": ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "sm_75"),
    "sm_80 bf16": ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80"),
    "sm_90 f64": ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", "sm_90"),
    "sm_90 f64 rz": ("mma.sync.aligned.m16n8k8.row.col.rz.f64.f64.f64.f64", "sm_90"),
    "sm_80 f64": ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80"),
    "sm_90 f16 m8n8k4 to f16": ("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", "sm_90"),
    "sm_90 f16 m8n8k4": ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_90"),
    "sm_80 f16 sparse": ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_80"),
    "sm_80 tf32 sparse": ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_80"),
    "sm_90 f16 sparse": ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90"),
    "sm_90 bf16 sparse": ("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", "sm_90"),
    "sm_90 tf32 sparse": ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_90"),
    "sm_90 mma.sp e4m3": ("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_90"),
    "sm_89 e4m3 sparse": ("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_89"),
    "sm_90 wgmma e4m3 sparse": ("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3", "sm_90"),
    "sm_120 e4m3 sparse": ("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_120"),
    "sm_120 mxf8f6f4 sparse": (
        "mma.sp::ordered_metadata.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k64.row.col.f32.e4m3.e4m3.f32.ue8m0",
        "sm_120",
    ),
    "sm_120 mxf4 sparse": (
        "mma.sp::ordered_metadata.sync.aligned.kind::mxf4.block_scale.m16n8k128.row.col.f32.e2m1.e2m1.f32.ue8m0",
        "sm_120",
    ),
}

_REPEATED = 509  # no multiple of a tile


def operands(
    work: Work, shape: tuple[int, int, int], seed: int, random_bits: bool, infinite: float = 0.0
) -> run.Operands:
    """Codes on the GPU: standard normal numbers, a share of them infinite, or random bits; blocks of 509 x 509 that repeat."""
    stream, (m, n, k) = np.random.default_rng(seed), shape
    kept, blocks = k // work.k * work.kept, k // work.k * work.blocks
    sizes = {"a": (m, kept), "b": (k, n), "c": (m, n)}
    formats = dict(zip("abc", work.formats, strict=True))
    if work.scale is not None:
        sizes |= {"scale_a": (m, blocks), "scale_b": (blocks, n)}
        formats |= {"scale_a": work.scale, "scale_b": work.scale}
    found: dict[str, Any] = {}
    for name, whole in sizes.items():
        format, size = formats[name], (min(whole[0], _REPEATED), min(whole[1], _REPEATED))
        if random_bits:
            codes = (
                stream.integers(0, 1 << format.container_bits, size, np.uint64) & np.uint64(format.code_mask)
            ).astype(format.dtype)
        elif name.startswith("scale"):
            codes = tcsim.encode(2.0 ** stream.integers(-3, 4, size), format.name)
        else:
            values = np.zeros(size, np.float32) if name == "c" else stream.standard_normal(size, np.float32)
            values[stream.random(size) < infinite] = np.inf  # NaN in formats that have no infinity
            codes = tcsim.encode(values, format.name)
        repeats = (-(-whole[0] // size[0]), -(-whole[1] // size[1]))
        found[name] = np.ascontiguousarray(np.tile(codes, repeats)[None, : whole[0], : whole[1]])
    if work.sparse:
        pattern = np.arange(kept) // 2 * 4 % work.k + np.where(np.arange(kept) % 2, 2, 1)
        found["columns"] = np.broadcast_to(pattern.astype(np.int32), (1, m, kept))
    return run.Operands({name: run.uploaded(codes, name) for name, codes in found.items()})


def seconds(launch: Any, times: int) -> float:
    """The median of some launches, each between two events."""
    launch()
    found = []
    for _ in range(times):
        start, end = call("cuEventCreate", 0), call("cuEventCreate", 0)
        call("cuEventRecord", start, 0)
        launch()
        call("cuEventRecord", end, 0)
        call("cuEventSynchronize", end)
        found.append(float(call("cuEventElapsedTime", start, end)) / 1000)
    return statistics.median(found)


def measure(work: Work, shape: tuple[int, int, int], tile: fast.Tile | None, asked: Any) -> dict[str, Any]:
    """Seconds and products a second of one work."""
    given = operands(work, shape, 1, asked.bits, asked.infinite)
    m, n, _ = shape
    products = m * n * given.arrays["a"].shape[2]
    kernel = "exact" if asked.exact else run.kernels_of(work)[-1]
    out: list[DeviceArray] = []

    def launch() -> None:
        out[:] = [run.multiply(work, given, 0, kernel, tile)]

    took = seconds(launch, asked.times)
    found: dict[str, Any] = {"kernel": kernel, "seconds": took, "products/s": products / took}
    if asked.compare and kernel != "exact":
        other = run.multiply(work, given, 0, "exact").get()
        found["outputs"], found["differing"] = other.size, int((out[0].get() != other).sum())
    return found


def _compiled(work: Work, kernel: str, tile: fast.Tile | None, target: str, shared: int) -> bytes:
    """A kernel's machine code; nothing if it cannot be."""
    try:
        return run.cubin_of(work, kernel, target, shared, tile, strict=False)
    except UnsupportedError:
        return b""


def compile_all(works: Sequence[Work], tiles: Sequence[fast.Tile | None], target: str, processes: int) -> None:
    """Compile the kernels of all works side by side."""
    keys = [
        (work, kernel, tile)
        for work in dict.fromkeys(works)
        for kernel in run.kernels_of(work)
        for tile in (tiles if kernel == "fast" else [None])
    ]
    if processes < 2:
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = [pool.submit(_compiled, *key, target, shared_limit()) for key in keys]
        run.CUBINS.update({key: found for key, future in zip(keys, futures, strict=True) if (found := future.result())})


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m hwkernels.bench.engine", description=__doc__)
    parser.add_argument("subjects", nargs="*", default=list(SUBJECTS), help=f"some of: {', '.join(SUBJECTS)}")
    parser.add_argument("--size", type=int, nargs=3, default=(4096, 4096, 4096), metavar=("M", "N", "K"))
    parser.add_argument("--tile", action="append", help="block_m,block_n,thread_m,thread_n,ring instead of a choice")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--bits", action="store_true", help="random bits, infinities and NaN among them")
    parser.add_argument("--infinite", type=float, default=0.0, help="the share of elements that are infinite")
    parser.add_argument("--exact", action="store_true", help="the kernel that computes everything")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--processes", type=int, default=min(16, os.cpu_count() or 1), help="that compile")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    make_current()
    tiles: list[fast.Tile | None] = [fast.Tile(*map(int, text.split(","))) for text in asked.tile or ()]
    tiles = tiles or [None]
    lines, info = [], device_info()
    works = {name: tcsim.instruction(mnemonic, arch=arch).work for name, (mnemonic, arch) in SUBJECTS.items()}
    compile_all([works[name] for name in asked.subjects], tiles, info.arch, asked.processes)
    for name in asked.subjects:
        (mnemonic, arch), work = SUBJECTS[name], works[name]
        for tile in tiles:
            try:
                found = measure(work, tuple(asked.size), tile, asked)
            except Exception as error:  # the others are still to be measured
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                continue
            lines.append({"subject": name, "mnemonic": mnemonic, "arch": arch, "tile": str(tile or ""), **found})
            compared = f", {found['differing']} of {found['outputs']} differ" if "differing" in found else ""
            print(
                f"{name:22} {found['kernel']} {tile or ''} {found['seconds'] * 1e3:9.3f} ms {found['products/s'] / 1e12:6.3f} T/s{compared}",
                flush=True,
            )
    if asked.json:
        write_file(
            asked.json,
            json.dumps({"gpu": info.name, "driver": info.driver_version, "size": asked.size, "lines": lines}, indent=1)
            + "\n",
        )
    return int(any(line.get("differing") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
