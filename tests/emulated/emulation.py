"""A kernel's own source as a program of the CPU, and one run of it: sources beside emulated wrappers, g++, parameters through a file."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwkernels.gemm.build import SOURCES
from hwkernels.gemm.tiles import TensorMapSpec

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 120
ELEMENT_BYTES = {"FLOAT16": 2, "BFLOAT16": 2, "FLOAT32": 4, "INT32": 4, "UINT8": 1}
MAP = np.dtype([(f"wide{i}", "<u8") for i in range(4)] + [(f"narrow{i}", "<u4") for i in range(4)])
REPLACED = {"ptx.cuh", "warp.cuh", "tcgen05.cuh"}  # wrappers of one instruction each: the emulation has others


class CompileError(RuntimeError):
    """The source is no C++ for the emulation: unlike a wrong run, nothing that a planted mistake may do."""


def compile_program(
    file: str, macros: dict[str, Any], multiply: str, folder: Path, change: tuple[str, str] | None = None
) -> Path:
    """A source of hwkernels/kernels as a program.

    multiply: the text of multiply.cuh. change: a text of the source, or of a header it includes, and what stands in its place (a
    planted mistake). Raises CompileError.
    """
    ptx = (SOURCES / "ptx.cuh").read_text(encoding="utf-8")
    shared_geometry = ptx[ptx.index("// ---- tiles of shared memory") :]  # the descriptors and swizzles under test
    texts = {path.name: path.read_text(encoding="utf-8") for path in SOURCES.glob("*.cuh") if path.name not in REPLACED}
    texts |= {"kernel.cpp": (SOURCES / file).read_text(encoding="utf-8")}
    if change is not None:
        places = [name for name, text in texts.items() if change[0] in text]
        count = sum(texts[name].count(change[0]) for name in places)
        assert count == 1, f"{change[0]!r} is {count} times in {places}"
        texts[places[0]] = texts[places[0]].replace(*change)
    source = texts["kernel.cpp"].replace(
        "extern __shared__ u8 dynamic[];", "u8* const dynamic = block->dynamic.data();"
    )
    source = re.sub(r"__shared__ alignas\(([^)]*)\)", r"alignas(\1) static", source)
    texts |= {
        "kernel.cpp": f'{source}\n#include "{HERE}/main.h"\n',
        "ptx.cuh": f'#pragma once\n#include "{HERE}/gpu.h"\n{shared_geometry}',
        "warp.cuh": "#pragma once\n",
        "tcgen05.cuh": f'#pragma once\n#include "ptx.cuh"\n#include "{HERE}/tcgen05.h"\n',
        "multiply.cuh": f"#pragma once\n{multiply}",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    program = folder / "kernel"
    command = ["g++", "-std=c++20", "-O2", "-w", "-pthread", f"-I{folder}", f"-I{HERE}"]
    command.append(
        "-ftrivial-auto-var-init=pattern"
    )  # g++ 12: what a kernel reads before it writes it, such as an accumulator, shows
    command += [f"-D{name}={value}" for name, value in macros.items()]
    made = subprocess.run([*command, str(folder / "kernel.cpp"), "-o", str(program)], capture_output=True, text=True)
    if made.returncode:
        raise CompileError(made.stderr[-4000:])
    return program


def constants(header: str) -> str:
    """The constants of a multiply.cuh, without the instructions."""
    return "\n".join(line for line in header.splitlines() if line.startswith("constexpr"))


class Memory:
    """Global memory of one run. Address 0 is no array's."""

    def __init__(self) -> None:
        self.bytes = bytearray(256)

    def put(self, array: np.ndarray) -> int:
        """Append an array; its address."""
        self.bytes.extend(bytes(-len(self.bytes) % 256))
        place = len(self.bytes)
        self.bytes.extend(array.tobytes())
        return place


def tensor_map(spec: TensorMapSpec, address: int) -> np.ndarray:
    """128 bytes as the emulated copy engine reads them."""
    row = np.zeros(128, np.uint8)
    fields = (
        address,
        *spec.dims,
        spec.pitch,
        *spec.box,
        ELEMENT_BYTES[spec.data_type],
        int(spec.swizzle.removesuffix("B")),
    )
    row[: MAP.itemsize] = np.array([fields], MAP).view(np.uint8)
    return row


def execute(
    program: Path,
    header: Sequence[int],
    problem: np.ndarray,
    maps: np.ndarray,
    memory: Memory,
    factors: bytes = b"",
    metadata: int = 0,
) -> bytes:
    """Global memory after a run. header: grid (x, y), threads, shared bytes, blocks of a cluster. metadata: where a sparse A's are."""
    head = np.array([*header, problem.nbytes], "<u4").tobytes()
    head += np.array([len(memory.bytes), metadata], "<u8").tobytes()
    head += factors + problem.tobytes() + maps.tobytes()
    exchange = program.with_name("product.bin")
    exchange.write_bytes(head + memory.bytes)
    subprocess.run([program, exchange], check=True, timeout=TIMEOUT_S)
    return exchange.read_bytes()[len(head) :]
