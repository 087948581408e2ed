"""One GEMM kernel with all its compile-time choices made: macros, shared memory, instruction, and the cubin."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

import tcsim
from hwkernels.device.nvrtc import compile_cubin, digest_of
from hwkernels.gemm.instructions import multiply_header
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS, OUTPUT_BYTES, GemmKernel
from hwkernels.gemm.tensor_memory_constants import TensorMemoryConstants, constants_of
from tcsim.core.files import write_file
from tcsim.core.targets import TARGETS
from tcsim.isa.mma.sparse_operand import SparseOperand
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.model.instruction import Instruction

SOURCES = Path(__file__).parent.parent / "kernels"
ENTRY = "gemm"  # the entry point of every kernel
SHARED_LIMIT = 227 * 1024  # dynamic shared bytes of a block on sm_90
# The same of each generation, KiB. Source: CUDA C++ programming guide, technical specifications per compute capability
SHARED_KIB = {70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 88: 99, 89: 99} | {
    90: 227,
    100: 227,
    103: 227,
    110: 227,
}
TENSOR_MEMORY_BYTES = 64  # shared: at most four barriers more than the ring's, and the address of the allocation
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232  # 40 + 2 * 232 = 504 of 512: three warpgroups of 168 at launch
CACHE_VARIABLE = "HWKERNELS_CUBINS"  # a folder of cubins by digest: read before compiling, written after


@dataclass(frozen=True)
class Build:
    """Everything that the machine code of a kernel depends on."""

    kernel: str
    a: str  # formats of A, B and d
    b: str
    out: str
    target: str
    block_n: int
    block_m: int = 128
    stages: int = 0
    a_mn_major: bool = False
    b_mn_major: bool = False
    scaled: bool = False  # alpha, beta and c
    cluster: tuple[int, int] = (1, 1)  # blocks along M and N
    stagger: int = 0  # slots that the second consumer runs behind
    panels: int = 2  # 8 KiB of shared memory each, per consumer, through which d leaves with tma_store
    stream: bool = False  # B is marked as the first to leave L2
    defer: bool = False  # a tile is stored under the next one's multiplications, as far as it fits in registers
    promote: int = 0  # slots after which a chain is added to the sum in f32; 0: one chain
    tma_store: bool = False

    @property
    def row(self) -> GemmKernel:
        """The kernel's row in the table."""
        return KERNELS[self.kernel]

    @property
    def block_k(self) -> int:
        """Elements of K in a slot."""
        return self.row.span // OPERAND_FORMATS[self.a].bytes

    @property
    def instruction(self) -> Instruction:
        """The tensor-core instruction, on the arch that the target is of."""
        item = OPERAND_FORMATS[self.a]
        layouts = {"row": "col" if self.a_mn_major else "row", "col": "row" if self.b_mn_major else "col"}
        mnemonic = self.row.instructions.get(self.a, self.row.instruction).format(
            n=self.block_n, k=self.row.k_bytes // item.bytes, acc=item.accumulator, a=self.a, b=self.b, **layouts
        )
        return tcsim.instruction(mnemonic, arch=TARGETS[self.target].arch)

    @property
    def slot_bytes(self) -> int:
        """Shared bytes of one stage."""
        if self.row.padded:  # 64 bytes of K lie 80 apart; MN-major: 32 rows of K of 256 bytes, 272 apart
            return sum(32 * 272 if mn_major else 128 * 80 for mn_major in (self.a_mn_major, self.b_mn_major))
        if self.row.sparse:
            return (self.block_m // 2 + self.block_n) * self.row.span + self.metadata_bytes
        return (self.block_m + self.block_n // max(1, self.row.ctas)) * self.row.span  # a pair halves B

    @property
    def metadata_bytes(self) -> int:
        """Bytes of metadata of a slot, if A is sparse: a 4-bit group for each two elements kept (tf32: for each one)."""
        kept = self.row.span // 2 // OPERAND_FORMATS[self.a].bytes
        return self.block_m * kept // (1 if OPERAND_FORMATS[self.a].bytes == 4 else 2) // 2 if self.row.sparse else 0

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: alignment, ring, staging of stores, barriers."""
        if not self.stages:
            return 0
        if self.row.padded:
            return 32 + (self.stages if TARGETS[self.target].number >= 80 else 2) * self.slot_bytes
        panels = self.block_m // 64 * self.panels * 64 * SPAN_BYTES if self.tma_store else 0
        barriers = 16 * self.stages if self.row.tma else 0
        alignment = 1024 if self.row.tma else 0
        tensor_memory = TENSOR_MEMORY_BYTES if self.row.ctas else 0
        return alignment + self.stages * self.slot_bytes + panels + barriers + tensor_memory

    @property
    def defines(self) -> dict[str, int]:
        """The macros."""
        values = {
            f"OUT_{self.out.upper()}": 1,
            "ELEMENT_BYTES": OPERAND_FORMATS[self.a].bytes,
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "A_MN_MAJOR": int(self.a_mn_major),
            "B_MN_MAJOR": int(self.b_mn_major),
        }
        if self.scaled:
            values["SCALED"] = 1
        if self.stages:
            values["STAGES"] = self.stages
        if self.row.threads == 384:
            values |= {"PRODUCER_REGISTERS": PRODUCER_REGISTERS, "CONSUMER_REGISTERS": CONSUMER_REGISTERS}
        if self.row.persistent:
            values |= {
                "CLUSTER_M": self.cluster[0],
                "CLUSTER_N": self.cluster[1],
                "STAGGER": self.stagger,
                "PROMOTE": self.promote,
                "STORE_TMA": int(self.tma_store),
                "PANELS": self.panels,
                "STREAM": int(self.stream),
                "DEFER": int(self.deferred),
            }
        return values

    @property
    def deferred(self) -> bool:
        """Whether `defer` has an effect: TMA stores the outputs, one chain for each."""
        return self.defer and self.tma_store and not self.promote

    @property
    def multiply_opcode(self) -> str:
        """The beginning of the SASS opcode that multiplies. Outside sm_89 and sm_12x, fp8 mma.sync is emulated in f16."""
        number = TARGETS[self.target].number
        opcode = self.row.multiply_opcodes[self.a]
        if opcode.startswith("QMMA") and number != 89 and number < 120:
            return "HMMA.SP" if self.row.sparse else "HMMA"
        return opcode

    @property
    def opcodes(self) -> tuple[str, ...]:
        """The beginnings of SASS opcodes that the machine code must contain."""
        found: tuple[str, ...] = (self.multiply_opcode, *self.row.opcodes)
        if self.cluster != (1, 1) and not self.row.ctas:
            found += ("UTMALDG.2D.MULTICAST", "UCGABAR_ARV")
        if self.tma_store:
            found += ("UTMASTG.2D",) + (("STSM.16.M88.4",) if OUTPUT_BYTES[self.out] == 2 else ())
        return found

    @property
    def headers(self) -> dict[str, str]:
        """What the source includes."""
        texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.cuh"))}
        if self.row.ctas:
            return texts | {"multiply.cuh": self.constants.header()}
        return texts | {"multiply.cuh": multiply_header(self.instruction, self.a_mn_major, self.b_mn_major)}

    @property
    def constants(self) -> TensorMemoryConstants:
        """What a tcgen05 kernel is told: descriptors and Tensor Memory columns.

        Raises TypeError for a kernel of another instruction.
        """
        instruction = self.instruction
        if not isinstance(instruction, TensorMemoryMultiply):
            raise TypeError(f"{self.kernel} multiplies with {instruction!r}, not in Tensor Memory")
        formats = (self.a, self.b, OPERAND_FORMATS[self.a].accumulator)
        majors = (self.a_mn_major, self.b_mn_major)
        return constants_of(instruction, formats, self.block_n, majors=majors, buffers=self.row.buffers)

    def predict(self, a: Any, b: Any) -> npt.NDArray[Any]:
        """One chain of the instruction over ascending K, as `tcsim.gemm` computes it: codes of the accumulators.

        a: (M, K), dense even for a sparse kernel. Raises OperandError if that needs a sparsity which `a` has not.
        """
        instruction = self.instruction
        if isinstance(instruction, SparseOperand):
            kept, positions = instruction.sparsity.compress_matrix(a, self.a)
            return tcsim.gemm(kept, b, metadata=positions, instruction=instruction)
        idesc = self.constants.descriptors[0] if self.row.ctas else None
        return tcsim.gemm(a, b, instruction=instruction, idesc=idesc)


SPAN_BYTES = 128  # of a row of a staged panel


@cache
def cubin_of(build: Build) -> bytes:
    """The machine code of a build, compiled once in a process. Raises what `kept_cubin` raises."""
    return kept_cubin(build.row.file, build.target, build.headers, build.defines)


@cache
def pack_cubin(item_bytes: int, target: str) -> bytes:
    """The machine code of pack.cu for elements of 1, 2 or 4 bytes. Raises what `kept_cubin` raises."""
    headers = {"ptx.cuh": (SOURCES / "ptx.cuh").read_text(encoding="utf-8")}
    return kept_cubin("pack.cu", target, headers, {"ELEMENT_BYTES": item_bytes})


def kept_cubin(file: str, target: str, headers: dict[str, str], defines: dict[str, int]) -> bytes:
    """Compile a file of hwkernels/kernels.

    $HWKERNELS_CUBINS names a folder where cubins are kept between processes, by the digest of source and options: read
    before compiling, written after. Raises ToolchainError without an NVRTC for the target, AssembleError if the compiler
    complains of anything.
    """
    source = (SOURCES / file).read_text(encoding="utf-8")
    folder = os.environ.get(CACHE_VARIABLE)
    place = Path(folder, f"{digest_of(source, target, headers, defines)}.cubin") if folder else None
    if place and place.is_file():
        return place.read_bytes()
    made = compile_cubin(source, target, name=file, headers=headers, defines=defines)
    if place:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(place, made.cubin)
    return made.cubin
