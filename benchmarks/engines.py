"""How fast engines multiply: products per second and per processor of each, and against NumPy in the same run.

python benchmarks/engines.py                       print the table
python benchmarks/engines.py --engines numba gpu   of these engines
python benchmarks/engines.py --mmasim PYTHON       beside mmasim, which that interpreter has (torch, ninja and a C++ compiler)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tcsim
from conformance.engines.operands import matrices
from tcsim.engines import choice
from tcsim.engines.contract import Matrices, Work

GEMMS = (  # instruction, arch, M = N = K
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90", 1024),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", 1024),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90", 1024),
    ("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", "sm_90a", 1024),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90", 1024),
    ("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e3m2.e2m3.f32", "sm_120a", 1024),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90", 1024),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90", 1024),
    ("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", "sm_120a", 1024),
    ("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3", "sm_120a", 1024),
    ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90", 1024),
)  # fmt: skip
FRAGMENTS = (  # instruction, arch, instructions in a batch
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90", 50_000),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90", 50_000),
)
DESCRIBED = ("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", "sm_90a", 256)
SMALL = 4  # NumPy's batches, and sides of matrices, are this many times smaller


class Rate(NamedTuple):
    """Products per second."""

    processor: float  # of processor time
    clock: float


class Case(NamedTuple):
    """A call of an engine."""

    name: str
    run: Callable[[str, bool], int]  # engine, whether a smaller batch will do -> products
    mmasim: tuple[Any, ...] | None = (
        None  # what mmasim calls it: architecture, name, shape and formats; None: it has no such thing
    )


def measured(case: Case, engine: str, repeat: int) -> Rate:
    """The best of some calls, after one that is not counted."""
    slow = engine == "numpy"
    case.run(engine, slow)
    best = Rate(0.0, 0.0)
    for _ in range(1 if slow else repeat):
        start, clock = time.process_time(), time.perf_counter()
        products = case.run(engine, slow)
        now = Rate(products / (time.process_time() - start), products / (time.perf_counter() - clock))
        best = Rate(max(best.processor, now.processor), max(best.clock, now.clock))
    return best


def gemm(mnemonic: str, arch: str, size: int) -> Case:
    """A square product of normal numbers, whose scales and kept elements are random."""
    instruction = tcsim.instruction(mnemonic, arch=arch)
    work: Work = instruction.work

    def run(engine: str, slow: bool) -> int:
        side = size // SMALL if slow else size
        given = _operands(work, side)
        order = range(side // work.k)
        choice.multiply(work, given, order, engine)
        return side * side * side // work.k * work.kept

    return Case(f"gemm `{mnemonic}` {arch}", run, _in_mmasim(instruction))


ARCHITECTURES = {"sm_80": "Ampere", "sm_90": "Hopper", "sm_120": "RTX Blackwell"}  # mmasim's names
KINDS = {"f6f4": "kind::f8f6f4."}  # by the arithmetic of the row


def _in_mmasim(instruction: Any) -> tuple[Any, ...] | None:
    """mmasim's name of a dense instruction; its Hopper has no fp8 mma.sync, which is emulated with f16 there."""
    row, work = instruction.row, instruction.work
    if work.sparse or work.scale is not None or instruction.lowering.kind != "native":
        return None
    formats = [instruction.formats[name].name for name in "dabc"]
    m, n, k = instruction.shape
    name = f"m{m}n{n}k{k}.{KINDS.get(row.arithmetic, '')}" + ".".join(formats[:3] if row.family == "wgmma" else formats)
    return ARCHITECTURES[instruction.arch.name], name, (m, n, k), formats[1:]


_KEPT: dict[tuple[Work, int], Matrices] = {}


def _operands(work: Work, side: int) -> Matrices:
    if (work, side) not in _KEPT:
        given = matrices(work, (1, side, side), side // work.k, "middle", 1)
        stream = np.random.default_rng(2)
        a, b = (
            tcsim.encode(np.clip(stream.standard_normal(x.shape), -format.largest, format.largest), format)
            for x, format in zip((given.a, given.b), work.formats, strict=False)
        )
        _KEPT.clear()
        _KEPT[work, side] = given.part(a=a, b=b, c=np.zeros_like(given.c))
    return _KEPT[work, side]


def fragments(mnemonic: str, arch: str, count: int, registers: bool) -> Case:
    """`matmul` of fragments, or `execute` of their registers."""
    instruction: Any = tcsim.instruction(mnemonic, arch=arch)
    m, n, k = instruction.shape
    given = _numbers(instruction, ((m, k), (k, n), (m, n)), count)
    if registers:
        given = [instruction.registers(name, codes) for name, codes in zip("abc", given, strict=True)]
    call = instruction.execute if registers else instruction.matmul

    def run(engine: str, slow: bool) -> int:
        part = count // SMALL if slow else count
        call(*(x[:part] for x in given), engine=engine)
        return part * m * n * k

    return Case(f"{'execute' if registers else 'matmul'} `{mnemonic}` {arch}", run)


def _numbers(instruction: Any, shapes: Sequence[tuple[int, int]], count: int) -> list[Any]:
    stream = np.random.default_rng(3)
    return [
        tcsim.encode(stream.standard_normal((count, *shape)), instruction.formats[name])
        for name, shape in zip("abc", shapes, strict=True)
    ]


def described(mnemonic: str, arch: str, count: int) -> Case:
    """wgmma with both operands behind descriptors, tiles of 32-byte swizzle."""
    instruction: Any = tcsim.instruction(mnemonic, arch=arch)
    m, n, k = instruction.shape
    stream = np.random.default_rng(4)
    a = tcsim.MatrixDescriptor.for_tile(m, k, "f16", swizzle="32B")
    b = tcsim.MatrixDescriptor.for_tile(n, k, "f16", swizzle="32B", start_address=a.bytes)
    values = (stream.standard_normal((m, k)).astype(np.float16), stream.standard_normal((n, k)).astype(np.float16))
    smem = np.concatenate([tile.image(x) for tile, x in zip((a, b), values, strict=True)])
    smem = np.broadcast_to(smem, (count, len(smem))).copy()
    c = np.zeros((count, 128, instruction.operands["d"].registers), np.uint32)

    def run(engine: str, slow: bool) -> int:
        part = count // SMALL if slow else count
        at = {"a": a.descriptor.encode(), "b": b.descriptor.encode()}
        instruction.execute(smem=smem[:part], **at, c=c[:part], engine=engine)
        return part * m * n * k

    return Case(f"execute `{mnemonic}` {arch}, descriptors", run)


def _mmasim(interpreter: str, case: tuple[Any, ...]) -> float:
    """Products per second of mmasim."""
    script = Path(__file__).with_name("mmasim_rates.py")
    found = subprocess.run([interpreter, str(script), json.dumps([case])], capture_output=True, text=True, check=True)
    rates: list[float] = json.loads(found.stdout.splitlines()[-1])
    return rates[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=["numba"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--mmasim", metavar="PYTHON", help="an interpreter that has mmasim")
    asked = parser.parse_args(arguments)
    makers: list[tuple[Callable[..., Case], tuple[Any, ...]]] = [(gemm, one) for one in GEMMS]
    makers += [(fragments, (*one, registers)) for registers in (False, True) for one in FRAGMENTS]
    makers.append((described, DESCRIBED))
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, NumPy {np.__version__}"
    )
    beside = " mmasim, 10^9/s |" if asked.mmasim else ""
    print(
        f"| call | NumPy, 10^9/s |{beside} "
        + " | ".join(f"{name}, 10^9/s of a processor (x NumPy) | by the clock" for name in asked.engines)
        + " |"
    )
    print("| --- | ---: |" + " ---: |" * bool(beside) + " ---: | ---: |" * len(asked.engines))
    for make, row in makers:
        if asked.only not in row[0]:
            continue
        case = make(*row)
        reference = measured(case, "numpy", 1).processor
        cells = []
        if asked.mmasim:
            other = _mmasim(asked.mmasim, case.mmasim) if case.mmasim else None
            cells.append(f"{other / 1e9:.4f} (NumPy {reference / other:.0f}x)" if other else "")
        for name in asked.engines:
            found = measured(case, name, asked.repeat)
            cells += [f"{found.processor / 1e9:.2f} ({found.processor / reference:.1f}x)", f"{found.clock / 1e9:.2f}"]
        print(f"| {case.name} | {reference / 1e9:.3f} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
