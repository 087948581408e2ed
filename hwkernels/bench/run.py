"""`python -m hwkernels.bench`: the GEMM kernels against cuBLAS, in the same rounds, on random normal data.

    python -m hwkernels.bench --formats bf16 --sizes 2048 4096 --kernels sm90_wgmma_persistent --json run.json --svg run.svg
    python -m hwkernels.bench --plot run.json --svg run.svg          # no GPU: draw what was measured

Every round times every contender once; cuBLAS (through torch) is there twice, and how far it is from itself is the noise.
Cold: 512 MiB are written before each launch, which empties L2; the launch is timed alone. Sustained: launches back to back for
some 100 ms, which lets the clocks settle under load. K-major operands (b is the transpose of a row-major matrix).

A sparse kernel multiplies a pruned a (the half of each group that is largest in magnitude); cuBLAS, the reference, the whole
one. With it comes what torch.sparse has for the same product, cuSPARSELt where torch has it. Rates count the operations of
the dense product.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hwkernels.bench import sparse as bench_sparse
from hwkernels.bench.plot import svg_of
from hwkernels.bench.results import AGAIN, REFERENCE, Result, from_json, summarise, table, to_json
from hwkernels.device.driver import device_info
from hwkernels.gemm.call import compress, plan_gemm
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS
from hwkernels.gemm.tiles import formats_on
from tcsim.core.files import write_file
from tcsim.core.texts import parsed_json

SQUARES = (1024, 2048, 4096, 8192, 16384)
RECTANGLES = ((8192, 1024, 4096), (1024, 16384, 8192))  # two shapes of a transformer's layers
FLUSH_BYTES = 512 << 20  # written between cold launches: several times the L2 of any GPU so far
SUSTAINED_MS = 100.0
# Relative error, as a norm, that a right kernel stays under beside cuBLAS. Of fp8 on normal data, tcsim.gemm says 0.3 % at
# K = 16384 for the accumulator alone; rounding to bf16 adds as much.
TOLERANCE = {"e4m3": 2e-2, "e5m2": 2e-2}
TORCH = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "s8": "int8",
}

Contender = Callable[[], Any]


class Bench:
    """One product: operands on the GPU, cuBLAS's result, and a place for ours."""

    def __init__(self, torch: Any, format_: str, size: tuple[int, int, int]) -> None:
        m, n, k = size
        self.torch, self.format, self.size = torch, format_, size
        dtype = getattr(torch, TORCH[format_])
        if format_ == "s8":
            a, b = (torch.randint(-128, 128, (rows, k), device="cuda", dtype=torch.int8) for rows in (m, n))
        else:
            a, b = (torch.randn((rows, k), device="cuda").to(dtype) for rows in (m, n))
        self.a, self.b = a, b
        out = OPERAND_FORMATS[format_].outputs[0]
        out_dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "s32": torch.int32}[out]
        self.d = torch.empty((m, n), device="cuda", dtype=out_dtype)
        reference = torch.empty_like(self.d)
        if format_ in ("e4m3", "e5m2"):
            one = torch.ones((), device="cuda")

            def product(left: Any) -> Any:
                return torch._scaled_mm(
                    left, b.t(), scale_a=one, scale_b=one, out_dtype=out_dtype, use_fast_accum=False
                )
        elif format_ == "s8":

            def product(left: Any) -> Any:
                return torch._int_mm(left, b.t(), out=reference)
        else:
            torch.backends.cuda.matmul.allow_tf32 = True

            def product(left: Any) -> Any:
                return torch.mm(left, b.t(), out=reference)

        self._product: Callable[[Any], Any] = product
        self.cublas: Contender = lambda: product(a)
        self._right = product(a).clone()

    @cached_property
    def sparse(self) -> tuple[Any, Any, Any]:
        """A pruned a, what `hwkernels.compress` makes of it, and cuBLAS's result with it."""
        left = bench_sparse.pruned(self.torch, self.a, OPERAND_FORMATS[self.format].group)
        return left, compress(left), self._product(left).clone()

    def contender(self, kernel: str, tuning: Any = None) -> Contender:
        """A kernel on these operands, whose result has been compared with cuBLAS's. All write the same output.

        Raises RuntimeError if it is wrong, GemmError for choices that do not go together.
        """
        left, right = self.sparse[1:] if KERNELS[kernel].sparse else (self.a, self._right)
        self.d.fill_(-77)
        plan = plan_gemm(left, self.b.t(), kernel=kernel, out=self.d, tuning=tuning)
        plan()
        wait_or_leave(self.torch, f"{kernel} {self.format} {self.size}: {plan.build}")
        self._check(kernel, self.d, right, plan.build)
        return plan

    def vendor(self) -> dict[str, Contender]:
        """torch's own product with the pruned a, by its name; none, and a line that says why, where torch has none."""
        left, _, right = self.sparse
        theirs = bench_sparse.vendor(self.torch, left, self.b)
        if isinstance(theirs, str):
            print(theirs)
            return {}
        name, run = theirs
        try:
            self._check(name, run(), right, self.torch.__version__)
        except RuntimeError as error:  # an output of 8 bits, say: no contender, and no failure of ours
            print(error)
            return {}
        return {name: run}

    def _check(self, name: str, d: Any, right: Any, what: Any) -> None:
        self.torch.cuda.synchronize()
        right = right.double()
        error = float((d.double() - right).norm() / right.norm())
        if not error < TOLERANCE.get(self.format, 1e-2):
            raise RuntimeError(f"{name} {self.format} {self.size}: relative error {error} against cuBLAS; {what}")


def wait_or_leave(torch: Any, what: str, seconds: float = 20.0) -> None:
    """Wait for the GPU; a kernel that hangs ends the process (status 3), because nothing else can stop it."""
    event, limit = torch.cuda.Event(), time.monotonic() + seconds
    event.record()
    while not event.query():
        if time.monotonic() > limit:
            print(f"HANG after {seconds:g} s: {what}", flush=True)
            os._exit(3)
        time.sleep(1e-3)
    torch.cuda.synchronize()


def contenders(torch: Any, format_: str, size: tuple[int, int, int], kernels: Sequence[str]) -> dict[str, Contender]:
    """cuBLAS twice and each kernel, on the same operands. Every kernel is checked against cuBLAS first.

    Sparse kernels have a pruned a, and the vendor's sparse product beside them. Raises RuntimeError if a result is wrong.
    """
    bench = Bench(torch, format_, size)
    found: dict[str, Contender] = {REFERENCE: bench.cublas, AGAIN: bench.cublas}
    found |= {name: bench.contender(name) for name in kernels}
    if any(KERNELS[name].sparse for name in kernels):
        found |= bench.vendor()
    return found


def measure(torch: Any, runs: dict[str, Contender], mode: str, rounds: int, warm_up: int = 3) -> dict[str, list[float]]:
    """Microseconds of one launch, by contender: one sample a round, contenders in turn, each round another first."""
    flush = torch.empty(FLUSH_BYTES // 4, device="cuda", dtype=torch.int32) if mode == "cold" else None
    names = list(runs)
    repeats = dict.fromkeys(names, 1)
    for name in names:
        for _ in range(warm_up):
            runs[name]()
        if mode == "sustained":
            repeats[name] = max(1, math.ceil(SUSTAINED_MS / max(1e-3, _timed(torch, runs[name], 3) / 1e3)))
    events: dict[str, list[Any]] = {name: [] for name in names}
    for turn in range(rounds):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            if flush is not None:
                flush.fill_(turn)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(repeats[name]):
                runs[name]()
            end.record()
            events[name].append((start, end))
        torch.cuda.synchronize()
    return {name: [1e3 * start.elapsed_time(end) / repeats[name] for start, end in events[name]] for name in names}


def _timed(torch: Any, run: Contender, times: int) -> float:
    """Microseconds of one launch, roughly."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        run()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * float(start.elapsed_time(end)) / times


class Watch:
    """Samples clocks and power of a GPU (all, without its PCI bus id) with nvidia-smi while something runs."""

    def __init__(self, pci_bus_id: str = "") -> None:
        query = "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu"
        command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "-lms", "200"]
        command += ["-i", pci_bus_id] if pci_bus_id else []
        try:
            self._process: subprocess.Popen[str] | None = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        except OSError:
            self._process = None

    def stop(self) -> dict[str, Any]:
        """Medians of the samples under load (the upper half by power), and the highest."""
        if self._process is None:
            return {}
        self._process.terminate()
        text, _ = self._process.communicate()
        return clocks_in(text)


def clocks_in(text: str) -> dict[str, Any]:
    """What nvidia-smi's samples say: clocks, power and temperature under load.

    >>> clocks_in("345, 3201, 75.1, 30\\n1500, 3201, 690.0, 55\\n1480, 3201, 699.0, 56\\n")["sm_mhz"]
    1500
    """
    rows = []
    for line in text.splitlines():
        try:
            rows.append([float(part) for part in line.split(",")])
        except ValueError:
            continue  # a line cut short, or a field that this GPU does not tell
    rows = sorted((row for row in rows if len(row) == 4), key=lambda row: row[2])
    if not rows:
        return {}
    loaded = rows[len(rows) // 2 :]
    middle = loaded[len(loaded) // 2 - (len(loaded) % 2 == 0)]
    names = ("sm_mhz", "memory_mhz", "power_w", "celsius")
    found = {name: round(sorted(row[i] for row in loaded)[len(loaded) // 2]) for i, name in enumerate(names)}
    return found | {"power_w_highest": round(loaded[-1][2]), "samples": len(rows), "power_w_middle": round(middle[2])}


def machine_of(torch: Any) -> dict[str, Any]:
    """The GPU, driver and libraries, and the bandwidth of a large copy (bytes read and written)."""
    info = device_info()
    source = torch.empty(2 << 30, device="cuda", dtype=torch.int8)
    target = torch.empty_like(source)
    target.copy_(source)
    micro = min(_timed(torch, lambda: target.copy_(source), 5) for _ in range(3))
    return {
        "name": info.name,
        "arch": info.arch,
        "driver": info.driver_version,
        "cuda": info.cuda_version,
        "multiprocessors": info.multiprocessors,
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "copy_tb_s": round(2 * source.numel() / micro / 1e6, 3),
    }


def parse_size(text: str) -> tuple[int, int, int]:
    """A size: one number for a square, or MxNxK.

    >>> parse_size("4096"), parse_size("8192x1024x4096")
    ((4096, 4096, 4096), (8192, 1024, 4096))
    """
    numbers = [int(part) for part in text.lower().split("x")]
    if len(numbers) == 1:
        numbers *= 3
    if len(numbers) != 3 or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; valid: 4096, 8192x1024x4096")
    return numbers[0], numbers[1], numbers[2]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m hwkernels.bench", description="GEMM kernels against cuBLAS.")
    made.add_argument("--formats", nargs="+", default=["bf16"], choices=list(OPERAND_FORMATS))
    made.add_argument("--sizes", nargs="+", type=parse_size, default=[*((n, n, n) for n in SQUARES), *RECTANGLES])
    made.add_argument("--kernels", nargs="+", default=["sm90_wgmma_persistent"], choices=[*KERNELS, "all"])
    made.add_argument("--modes", nargs="+", default=["cold", "sustained"], choices=["cold", "sustained"])
    made.add_argument("--rounds", type=int, default=30, help="samples of each contender (default 30)")
    made.add_argument("--json", type=Path, help="write results here")
    made.add_argument("--svg", type=Path, help="draw them here")
    made.add_argument("--plot", type=Path, metavar="JSON", help="measure nothing: read results of an earlier run")
    return made


def run(options: argparse.Namespace) -> tuple[list[Result], dict[str, Any]]:
    """Measure all that the command line asked for. A kernel without a format is left out of it, by the table."""
    import torch  # a benchmark's extra: --help and tests need none

    machine = machine_of(torch)
    number = int(machine["arch"].removeprefix("sm_"))
    names = list(KERNELS) if "all" in options.kernels else options.kernels
    watch, results = Watch(), []
    try:
        for format_ in options.formats:
            kernels = [name for name in names if format_ in formats_on(KERNELS[name], number)]
            for size in options.sizes:
                runs = contenders(torch, format_, size, kernels)
                for mode in options.modes:
                    times = measure(
                        torch, runs, mode, options.rounds if mode == "cold" else max(3, options.rounds // 6)
                    )
                    part = summarise(times, format_, OPERAND_FORMATS[format_].outputs[0], size, mode)
                    print(*table(part), sep="\n", flush=True)
                    results += part
                    if options.json:  # what was measured is kept if the rest is not
                        write_file(options.json, json.dumps(to_json(results, machine), indent=1))
                del runs
                torch.cuda.empty_cache()
    finally:
        machine |= watch.stop()
    return results, machine


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or read, print, write."""
    options = parser().parse_args(arguments)
    if options.plot:
        results, machine = from_json(parsed_json(options.plot.read_bytes(), options.plot.name))
        print(*table(results), sep="\n")
    else:
        results, machine = run(options)
    print(json.dumps(machine))
    if options.json:
        write_file(options.json, json.dumps(to_json(results, machine), indent=1))
    if options.svg:
        mode = "cold" if any(item.mode == "cold" for item in results) else "sustained"
        write_file(options.svg, svg_of(results, machine, mode))
    return 0


if __name__ == "__main__":
    sys.exit(main())
