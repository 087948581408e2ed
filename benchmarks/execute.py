"""How fast the model is: products per second in bulk, latency of one instruction, time to import and to replay.

python benchmarks/execute.py            print the table
python benchmarks/execute.py --check    exit status 1 if a target is missed
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tcsim

ROOT = Path(__file__).resolve().parent.parent
BULK_TARGET = 40.0  # million products a second
LATENCY_TARGET = 1.0  # milliseconds for one instruction on one warp
IMPORT_TARGET = 0.2  # seconds
REPLAY = ("-m", "pytest", "conformance/", "--arch", "sm_90", "--replay", "-q")

INSTRUCTIONS = (  # mnemonic, arch, instructions in a batch
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90", 20_000),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90", 20_000),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80", 20_000),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90", 20_000),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90", 10_000),
    ("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16", "sm_90", 10_000),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89", 10_000),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_90", 10_000),
    ("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "sm_90", 5_000),
    ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "sm_90", 2_000),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_90", 5_000),
    ("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", "sm_90", 5_000),
    ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", "sm_90", 1_000),
    ("mma.sync.aligned.m16n8k4.row.col.rm.f64.f64.f64.f64", "sm_90", 4_000),
)
DESCRIBED = ("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", "sm_90a", 32)  # operands in shared memory
PRODUCTS = (  # instruction, arch, M = N = K of a whole GEMM
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90", 384),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90", 384),
    ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", "sm_90", 128),
    ("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", "sm_90a", 384),
)
REPEAT = 7  # calls of a batch


class Figure(NamedTuple):
    """A measured value against its target."""

    value: float
    met: bool

    def __str__(self) -> str:
        text = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return text + ("" if self.met else " (missed)")


def seconds(call: Callable[[], object], repeat: int) -> list[float]:
    """Wall-clock times of `repeat` calls after one that is not counted."""
    call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def registers(instruction: Any, name: str, count: int, random: np.random.Generator) -> npt.NDArray[np.uint32]:
    """Registers of an operand: normally distributed values, or integers over the whole range of the format."""
    operand = instruction.operands[name]
    shape = (count, instruction.matrices, *operand.shape) if instruction.matrices > 1 else (count, *operand.shape)
    if operand.format.kind == "float":
        codes = tcsim.encode(random.standard_normal(shape), operand.format)
    else:
        codes = random.integers(0, 1 << operand.format.bits, shape).astype(operand.format.dtype)
    result: npt.NDArray[np.uint32] = instruction.registers(name, codes)
    return result


def measured(batch: Callable[[], object], one: Callable[[], object], products: int) -> tuple[Figure, Figure]:
    """Million products a second of a batch (median of 7), and milliseconds for one instruction (median of 51)."""
    rate = products / statistics.median(seconds(batch, REPEAT)) / 1e6
    latency = statistics.median(seconds(one, 51)) * 1e3
    return Figure(rate, rate >= BULK_TARGET), Figure(latency, latency <= LATENCY_TARGET)


def execute(mnemonic: str, arch: str, count: int) -> tuple[Figure, Figure]:
    """The figures of `execute` on registers."""
    instruction, random = tcsim.instruction(mnemonic, arch=arch), np.random.default_rng(0)
    batch = {name: registers(instruction, name, count, random) for name in "abc"}
    one = {name: array[0] for name, array in batch.items()}
    products = count * math.prod(instruction.shape) * instruction.matrices
    return measured(lambda: instruction.execute(**batch), lambda: instruction.execute(**one), products)


def execute_described(mnemonic: str, arch: str, count: int) -> tuple[Figure, Figure]:
    """The figures of a wgmma whose A and B lie in shared memory, behind descriptors."""
    instruction, random = tcsim.instruction(mnemonic, arch=arch), np.random.default_rng(0)
    m, n, k = instruction.shape
    places, images, address = [], [], 0
    for rows, format in ((m, instruction.formats["a"]), (n, instruction.formats["b"])):
        tile = tcsim.MatrixDescriptor.for_tile(rows, k, format, swizzle="NONE", start_address=address)
        images.append(tile.image(tcsim.encode(random.standard_normal((count, rows, k)), format)))
        places.append(tile.descriptor.encode())
        address += tile.bytes
    smem, c = np.concatenate(images, axis=-1), registers(instruction, "c", count, random)
    a, b = places
    return measured(
        lambda: instruction.execute(smem=smem, a=a, b=b, c=c),
        lambda: instruction.execute(smem=smem[0], a=a, b=b, c=c[0]),
        count * m * n * k,
    )


def gemm(mnemonic: str, arch: str, size: int) -> Figure:
    """Million products a second of a whole GEMM (median of 7)."""
    instruction, random = tcsim.instruction(mnemonic, arch=arch), np.random.default_rng(0)
    a, b = (tcsim.encode(random.standard_normal((size, size)), instruction.formats[name]) for name in "ab")
    rate = size**3 / statistics.median(seconds(lambda: tcsim.gemm(a, b, instruction=instruction), REPEAT)) / 1e6
    return Figure(rate, rate >= BULK_TARGET)


def python(*arguments: str) -> Callable[[], object]:
    """A call that runs this Python with arguments and waits for it."""
    return lambda: subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True)


def processor() -> str:
    """The processor's name and how many cores this process may use."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores of {names[0] if names else platform.processor() or 'an unknown processor'}"


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    if list(arguments) not in ([], ["--check"]):
        print("usage: python benchmarks/execute.py [--check]", file=sys.stderr)
        return 2
    print(
        f"{processor()}, Python {platform.python_version()}, NumPy {np.__version__}, ml_dtypes {ml_dtypes.__version__}"
    )
    bulk, latency = f"million products/s (>= {BULK_TARGET:g})", f"ms for one (<= {LATENCY_TARGET:g})"
    print(f"\n| `.execute` of | arch | batch | {bulk} | {latency} |")
    print("| --- | --- | ---: | ---: | ---: |")
    missed = 0
    for mnemonic, arch, count in (*INSTRUCTIONS, DESCRIBED):
        run = execute_described if mnemonic == DESCRIBED[0] else execute
        figures = run(mnemonic, arch, count)
        missed += sum(not figure.met for figure in figures)
        print(f"| `{mnemonic}` | {arch} | {count:,} | {figures[0]} | {figures[1]} |", flush=True)
    print(
        f"\n| `tcsim.gemm` with | arch | M = N = K | million products/s (>= {BULK_TARGET:g}) |\n| --- | --- | ---: | ---: |"
    )
    for mnemonic, arch, size in PRODUCTS:
        whole = gemm(mnemonic, arch, size)
        missed += not whole.met
        print(f"| `{mnemonic}` | {arch} | {size} | {whole} |", flush=True)
    imported = min(seconds(python("-c", "import tcsim"), 5))
    missed += imported > IMPORT_TARGET
    others = min(seconds(python("-c", "import numpy, ml_dtypes"), 5))
    print("\n| other | s |\n| --- | ---: |")
    print(f"| `python -c 'import tcsim'` (<= {IMPORT_TARGET:g}) | {Figure(imported, imported <= IMPORT_TARGET)} |")
    print(f"| the same for NumPy and ml_dtypes alone | {others:.3g} |")
    start = time.perf_counter()
    python(*REPLAY)()
    print(f"| `python {' '.join(REPLAY)}` | {time.perf_counter() - start:.3g} |")
    return 1 if arguments and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
