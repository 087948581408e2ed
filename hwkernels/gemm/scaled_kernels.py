"""The block-scaled GEMM kernels as data, and one of them with its choices made: macros, constants, shared memory, cubin.

d = alpha * sum over K of (a * scale_a) (b * scale_b) + beta * c: MXFP8, MXFP4 and NVFP4. None of these has run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy.typing as npt

import tcsim
from hwkernels.gemm.build import SHARED_KIB, SOURCES, kept_cubin
from hwkernels.gemm.tensor_memory_constants import SPAN, STEP_BYTES, TensorMemoryConstants, constants_of
from tcsim.core.targets import TARGETS
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.numbers.formats import FORMATS

OUTPUTS = ("bf16", "f16", "f32")
STEPS = SPAN // STEP_BYTES  # instructions along K in a slot


@dataclass(frozen=True)
class ScaledKernel:
    """One kernel: a source file of hwkernels/kernels with an instruction."""

    name: str
    source: str
    targets: tuple[str, ...]  # what it is compiled for, one a GPU; the first is its own
    formats: tuple[str, ...]  # of A and B, which may differ
    scale_format: str
    block: int  # elements of K that share a factor
    instruction: str  # {a} and {b} are filled in
    block_n: tuple[int, ...]  # the default first
    threads: int
    stages: int  # slots of 128 bytes of K
    opcodes: tuple[str, ...]  # beginnings of SASS opcodes that every build contains, besides the multiplication
    multiplications: tuple[str, ...]  # beginnings of all opcodes that multiply: a build contains those of its own only

    @property
    def file(self) -> str:
        """The source in hwkernels/kernels."""
        return f"{self.source}.cu"

    @property
    def target(self) -> str:
        """The generation's own target."""
        return self.targets[0]

    @property
    def archs(self) -> tuple[int, ...]:
        """The GPUs that run it: 100 for sm_100."""
        return tuple(TARGETS[target].number for target in self.targets)

    def target_on(self, arch: int) -> str:
        """The target for a GPU that runs it."""
        return self.targets[self.archs.index(arch)]

    @property
    def element_bits(self) -> int:
        """Bits that an element takes in memory."""
        return FORMATS[self.formats[0]].bits

    @property
    def slot_k(self) -> int:
        """Elements of K in a slot."""
        return SPAN * 8 // self.element_bits

    @property
    def factors(self) -> int:
        """Scale factors of a row of A, or a column of B, in a slot."""
        return self.slot_k // self.block

    @property
    def tensor_memory(self) -> bool:
        """Whether it multiplies in Tensor Memory: the factors lie in blocks of 128 rows then, else row after row."""
        return self.instruction.startswith("tcgen05.")


# How factors are spelled: name -> formats of the elements, format of the factors, elements that share one, kind
_FP8, _FP4 = ("e4m3", "e5m2"), ("e2m1",)
_SCHEMES = MappingProxyType(
    {
        "mxfp8": (_FP8, "ue8m0", 32, "mxf8f6f4"),
        "mxfp4": (_FP4, "ue8m0", 32, "mxf4"),
        "nvfp4": (_FP4, "ue4m3", 16, "mxf4nvf4"),
    }
)


def _tcgen05(scheme: str) -> ScaledKernel:
    formats, scale, block, kind = _SCHEMES[scheme]
    return ScaledKernel(
        f"sm100_{scheme}",
        "sm100_block_scaled",
        ("sm_100a", "sm_103a", "sm_110a"),
        formats,
        scale,
        block,
        f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.block{block}",
        block_n=(256, 128),
        threads=128,
        stages=4,
        opcodes=("UTCCP.T.S.4x32dp128bit", "UTMALDG.2D", "UBLKCP", "UTCBAR", "LDTM.x32", "UTCATOMSWS"),
        multiplications=("UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA"),
    )


def _mma_sync(scheme: str) -> ScaledKernel:
    formats, scale, block, kind = _SCHEMES[scheme]
    k = STEP_BYTES * 8 // FORMATS[formats[0]].bits
    types = f"f32.{{a}}.{{b}}.f32.{scale}"
    return ScaledKernel(
        f"sm120_{scheme}",
        "sm120_block_scaled",
        ("sm_120a", "sm_121a"),
        formats,
        scale,
        block,
        f"mma.sync.aligned.kind::{kind}.block_scale.scale_vec::{k // block}X.m16n8k{k}.row.col.{types}",
        block_n=(128,),
        threads=256,
        stages=3,
        opcodes=("LDSM.16.M88.4", "UTMALDG.2D", "SYNCS.PHASECHK"),
        multiplications=("HMMA", "QMMA", "OMMA", "IMMA"),
    )


SCALED_KERNELS = {item.name: item for make in (_tcgen05, _mma_sync) for item in map(make, _SCHEMES)}
_KIB = MappingProxyType({**SHARED_KIB, 120: 99, 121: 99})  # CUDA C++ programming guide, technical specifications


@dataclass(frozen=True)
class ScaledBuild:
    """Everything that the machine code of a block-scaled kernel depends on."""

    kernel: str
    a: str  # formats of A, B and d
    b: str
    out: str
    block_n: int
    scaled: bool = False  # alpha, beta and c
    block_m: int = 128
    target: str = ""  # one of the kernel's; empty: the first

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", self.target or self.row.target)

    @property
    def row(self) -> ScaledKernel:
        """The kernel's row in the table."""
        return SCALED_KERNELS[self.kernel]

    @property
    def instruction(self) -> Any:
        """The tensor-core instruction."""
        return tcsim.instruction(self.row.instruction.format(a=self.a, b=self.b), arch=self.target)

    @property
    def multiply_opcode(self) -> str:
        """The SASS opcode that multiplies, from tcsim's registry."""
        instruction = self.instruction
        scaled = isinstance(instruction, ScaledMatrixMultiply)
        lowering = instruction.lowering if scaled else instruction.lowering_for(self.constants.descriptors[0])
        ((opcode, _),) = lowering.opcodes
        return str(opcode)

    @property
    def opcodes(self) -> tuple[str, ...]:
        """The beginnings of SASS opcodes that the machine code must contain."""
        return (self.multiply_opcode, *self.row.opcodes)

    @property
    def foreign_opcodes(self) -> tuple[str, ...]:
        """The beginnings of those that it must not contain: other multiplications, local memory."""
        others = [other for other in self.row.multiplications if not self.multiply_opcode.startswith(other)]
        return (*others, "LDL", "STL")

    @property
    def constants(self) -> TensorMemoryConstants:
        """What a tcgen05 kernel is told.

        Raises TypeError for a kernel without Tensor Memory.
        """
        instruction = self.instruction
        if not isinstance(instruction, TensorMemoryMultiply):
            raise TypeError(f"{self.kernel} multiplies with {instruction!r}, not in Tensor Memory")
        return constants_of(
            instruction,
            (self.a, self.b, "f32"),
            self.block_n,
            scale_format=self.row.scale_format,
            stages=self.row.stages,
        )

    @property
    def slot_bytes(self) -> int:
        """Shared bytes of a slot's elements and factors."""
        elements = (self.block_m + self.block_n) * SPAN
        return elements + (self.constants.scale_bytes if self.row.tensor_memory else 0)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: alignment, ring, barriers, the address of the allocation."""
        return 1024 + self.row.stages * (self.slot_bytes + 16) + 16

    @property
    def shared_limit(self) -> int:
        """What the target gives a block."""
        return 1024 * _KIB[TARGETS[self.target].number]

    @property
    def defines(self) -> dict[str, int]:
        """The macros."""
        values = {
            f"OUT_{self.out.upper()}": 1,
            "ELEMENT_BYTES": 1,
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "A_MN_MAJOR": 0,
            "B_MN_MAJOR": 0,
            "STAGES": self.row.stages,
        }
        return values | ({"SCALED": 1} if self.scaled else {})

    @property
    def multiply_header(self) -> str:
        """The text of multiply.cuh."""
        instruction = self.instruction
        if isinstance(instruction, ScaledMatrixMultiply):
            return mma_scaled_header(instruction, self.row)
        return self.constants.header()

    def predict(self, a: Any, scale_a: Any, b: Any, scale_b: Any) -> npt.NDArray[Any]:
        """One chain of the instruction over ascending K, as `tcsim.gemm` computes it: f32 codes (M, N).

        Shapes as for `scaled_call.scaled_gemm`.
        """
        idesc = self.constants.descriptors[0] if self.row.tensor_memory else None
        return tcsim.gemm(a, b, scale_a=scale_a, scale_b=scale_b, instruction=self.instruction, idesc=idesc)

    @property
    def headers(self) -> dict[str, str]:
        """What the source includes."""
        texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.cuh"))}
        return texts | {"multiply.cuh": self.multiply_header}


@cache
def scaled_cubin_of(build: ScaledBuild) -> bytes:
    """The machine code of a build, compiled once in a process. Raises what `gemm_build.kept_cubin` raises."""
    return kept_cubin(build.row.file, build.target, build.headers, build.defines)


def step_places(kernel: ScaledKernel) -> list[tuple[int, int]]:
    """For each instruction along K in a slot, the word of a row's factors and the byte in it where its own begin.

    >>> step_places(SCALED_KERNELS["sm120_mxfp4"])
    [(0, 0), (0, 2), (1, 0), (1, 2)]
    """
    each = kernel.factors // STEPS
    return [divmod(step * each, 4) for step in range(STEPS)]


def mma_scaled_header(instruction: ScaledMatrixMultiply, kernel: ScaledKernel) -> str:
    """multiply.cuh of a kernel with block-scaled mma.sync: `mma_scaled<byte, thread_a, thread_b>`, and where factors are."""
    d, a, b = (instruction.operands[name].registers for name in "dab")
    vectors = [
        "{" + ", ".join(f"%{index}" for index in range(first, first + count)) + "}"
        for first, count in ((0, d), (d, a), (d + a, b))
    ]
    at = d + a + b
    selectors = f"%{at}, {{%{at + 2}, %{at + 3}}}, %{at + 1}, {{%{at + 2}, %{at + 4}}}"
    outputs = ", ".join(f'"+f"(d[{index}])' for index in range(d))
    inputs = ", ".join([f'"r"(a[{index}])' for index in range(a)] + [f'"r"(b[{index}])' for index in range(b)])
    places = step_places(kernel)
    words, bytes_ = (", ".join(str(place[part]) for place in places) for part in (0, 1))
    return f"""#pragma once
constexpr u32 SLOT_K = {kernel.slot_k};
constexpr u32 SCALE_WORDS = {kernel.factors // 4};
constexpr u32 SCALE_WORD[] = {{{words}}};
constexpr u32 SCALE_BYTE[] = {{{bytes_}}};
template <u32 BYTE, u32 THREAD_A, u32 THREAD_B>
__device__ __forceinline__ void mma_scaled(float (&d)[{d}], const u32 (&a)[{a}], const u32 (&b)[{b}], u32 scale_a, u32 scale_b) {{
    asm volatile("{instruction.mnemonic} {vectors[0]}, {vectors[1]}, {vectors[2]}, {vectors[0]}, {selectors};"
                 : {outputs}
                 : {inputs}, "r"(scale_a), "r"(scale_b), "n"(BYTE), "n"(THREAD_A), "n"(THREAD_B));
}}
"""
