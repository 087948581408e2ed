"""The GEMM kernels as data: where each runs, what it multiplies, how its tiles are cut, which machine code it must contain."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType

SPAN = 128  # bytes of K in a slot of shared memory: one row of the 128B swizzle


@dataclass(frozen=True)
class OperandFormat:
    """A format of A and B, and what comes with it."""

    name: str  # tcsim's
    bytes: int  # of one element
    accumulator: str  # tcsim's name of the format that a product is accumulated in
    outputs: tuple[str, ...]  # formats that d can have, the default first
    tma: str  # CUtensorMapDataType; the copy engine only moves bits

    @property
    def wgmma_k(self) -> int:
        """K of one wgmma: always 32 bytes."""
        return 32 // self.bytes


OPERAND_FORMATS = {
    item.name: item
    for item in (
        OperandFormat("f16", 2, "f32", ("f16", "f32"), "FLOAT16"),
        OperandFormat("bf16", 2, "f32", ("bf16", "f32"), "BFLOAT16"),
        OperandFormat("tf32", 4, "f32", ("f32",), "FLOAT32"),  # TFLOAT32 would round: tensor cores drop the low bits
        OperandFormat("e4m3", 1, "f32", ("bf16", "f16", "f32"), "UINT8"),
        OperandFormat("e5m2", 1, "f32", ("bf16", "f16", "f32"), "UINT8"),
        OperandFormat("s8", 1, "s32", ("s32",), "UINT8"),
    )
}
OUTPUT_BYTES = MappingProxyType({"f32": 4, "s32": 4, "f16": 2, "bf16": 2})
OUTPUT_TMA = MappingProxyType({"f32": "FLOAT32", "s32": "INT32", "f16": "FLOAT16", "bf16": "BFLOAT16"})

_HALF = ("f16", "bf16")
_HOPPER = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8")
_WGMMA = "wgmma.mma_async.sync.aligned.m64n{n}k{k}.{acc}.{a}.{b}"
_WGMMA_OPCODES = MappingProxyType(
    {"f16": "HGMMA", "bf16": "HGMMA", "tf32": "HGMMA", "e4m3": "QGMMA", "e5m2": "QGMMA", "s8": "IGMMA"}
)


@dataclass(frozen=True)
class GemmKernel:
    """One source file of hwkernels/kernels, and what must be known to compile and launch it."""

    name: str  # the file's name, without .cu
    adds: str  # what it has that the step before it lacks
    targets: tuple[str, ...]  # what it is compiled for; the first is its generation's
    formats: tuple[str, ...]
    instruction: str  # the tensor-core instruction: {n} {k} {acc} {a} {b} are filled in
    block_m: int
    block_n: tuple[int, ...]  # choices, the default first
    threads: int
    opcodes: tuple[str, ...]  # SASS opcodes (their beginnings) that every build contains, besides the multiplication
    multiply_opcodes: MappingProxyType[str, str] = field(repr=False)  # by format of A: the beginning of the opcode
    mn_major: tuple[str, ...] = ()  # formats whose A and B may lie MN-major; others are repacked
    stages: int = 0  # slots of the ring; 0: static shared memory, no ring
    tma: bool = False  # operands come through tensor maps
    persistent: bool = False  # cluster, tile order and epilogue can be chosen
    needs_aligned: bool = False  # rows of A and B must start at multiples of 16 bytes: others are repacked
    later: bool = True  # runs on later generations too
    span: int = SPAN  # bytes of K per slot
    k_order: str = "ascending"  # of the instruction's K blocks; the only one so far

    @property
    def target(self) -> str:
        """The generation's own target."""
        return self.targets[0]


def _hopper(name: str, adds: str, **facts: object) -> GemmKernel:
    return GemmKernel(
        name,
        adds,
        targets=("sm_90a",),
        formats=_HOPPER,
        instruction=_WGMMA,
        multiply_opcodes=_WGMMA_OPCODES,
        mn_major=_HALF,
        later=False,
        **facts,  # type: ignore[arg-type]
    )


KERNELS = {
    item.name: item
    for item in (
        _hopper(
            "sm90_wgmma_basic",
            "one warpgroup and one wgmma tile of 64 x N; ordinary loads",
            block_m=64,
            block_n=(64, 128),
            threads=128,
            opcodes=("WARPGROUP.ARRIVE", "FENCE.VIEW.ASYNC"),
        ),
        _hopper(
            "sm90_wgmma_128",
            "tiles 128 wide, two warpgroups",
            block_m=128,
            block_n=(128,),
            threads=256,
            opcodes=("WARPGROUP.ARRIVE", "FENCE.VIEW.ASYNC"),
        ),
        _hopper(
            "sm90_wgmma_tma",
            "TMA and a ring of slots with an mbarrier each",
            block_m=128,
            block_n=(128,),
            threads=256,
            stages=4,
            tma=True,
            needs_aligned=True,
            opcodes=("WARPGROUP.ARRIVE", "UTMALDG.2D", "SYNCS.PHASECHK", "SYNCS.ARRIVE"),
        ),
        _hopper(
            "sm90_wgmma_specialized",
            "a producer warpgroup and two consumers of 64 x 256, registers moved between them",
            block_m=128,
            block_n=(256, 128),
            threads=384,
            stages=4,
            tma=True,
            needs_aligned=True,
            opcodes=("WARPGROUP.ARRIVE", "UTMALDG.2D", "SYNCS.PHASECHK", "USETMAXREG.TRY_ALLOC", "USETMAXREG.DEALLOC"),
        ),
        _hopper(
            "sm90_wgmma_persistent",
            "persistent blocks, grouped tile order, multicast in clusters, TMA stores, warpgroups out of step",
            block_m=128,
            block_n=(256, 192, 128, 64),
            threads=384,
            stages=4,
            tma=True,
            needs_aligned=True,
            persistent=True,
            opcodes=("WARPGROUP.ARRIVE", "UTMALDG.2D", "SYNCS.PHASECHK", "USETMAXREG.TRY_ALLOC", "USETMAXREG.DEALLOC"),
        ),
    )
}
