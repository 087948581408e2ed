"""The GEMM kernels as data: where each runs, what it multiplies, how its tiles are cut, which machine code it must contain."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from tcsim.core.targets import TARGETS

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
    def group(self) -> int:
        """Neighbours along K of which a sparse A keeps half: 2:4, and 1:2 of tf32."""
        return 2 if self.bytes == 4 else 4

    def kept(self, k: int) -> int:
        """Elements that a row of a sparse A keeps of k: half of whole groups.

        >>> OPERAND_FORMATS["f16"].kept(101)
        52
        """
        return -(-k // self.group) * self.group // 2

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
    instruction: (
        str  # the tensor-core instruction: {n} {k} {acc} {a} {b} are filled in; {row} and {col} are the layouts
    )
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
    later: bool = True  # runs on later generations too; if not, on those of its targets
    padded: bool = False  # rows in shared memory are padded, not swizzled
    span: int = SPAN  # bytes of K per slot
    instructions: MappingProxyType[str, str] = field(
        default_factory=lambda: MappingProxyType({})
    )  # of formats whose spelling is another
    since: MappingProxyType[str, int] = field(
        default_factory=lambda: MappingProxyType({})
    )  # formats that need a later generation than the kernel
    lacking: MappingProxyType[str, tuple[int, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # formats -> generations without their instruction
    too_wide: MappingProxyType[int, tuple[int, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # tile width -> generations for which ptxas would spill registers
    source: str = ""  # the file, if it is another kernel's
    k_bytes: int = 32  # of one instruction
    k_order: str = "ascending"  # of the instruction's K blocks; the only one so far
    ctas: int = 0  # tcgen05: blocks that multiply a tile together, the cluster of a launch; 0: no Tensor Memory
    buffers: int = 1  # tcgen05: accumulators in Tensor Memory
    overlaps: bool = False  # begins while the kernel before it ends, and waits for that by griddepcontrol
    sparse: bool = (
        False  # A is compressed along K, and has metadata; its rows in a slot are half of `span`; B alone is MN-major
    )

    @property
    def file(self) -> str:
        """The source in hwkernels/kernels."""
        return f"{self.source or self.name}.cu"

    @property
    def target(self) -> str:
        """The generation's own target."""
        return self.targets[0]

    @property
    def archs(self) -> tuple[int, ...]:
        """The generations of its targets: 90 for sm_90a."""
        return tuple(TARGETS[target].number for target in self.targets)


_KINDS = MappingProxyType({"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4", "s8": "i8"})
_UTC = MappingProxyType({"f16": "UTCHMMA", "tf32": "UTCHMMA", "f8f6f4": "UTCQMMA", "i8": "UTCIMMA"})  # by kind
_HMMA = MappingProxyType({"f16": "HMMA.16816", "bf16": "HMMA.16816", "tf32": "HMMA.1688", "s8": "IMMA.16832"})
_HMMA_SP = MappingProxyType(
    {"f16": "HMMA.SP.16832", "bf16": "HMMA.SP.16832", "tf32": "HMMA.SP.16816", "s8": "IMMA.SP.16864"}
)

# ---- what the rows of a family have in common

_wmma = partial(
    GemmKernel,
    targets=("sm_70", "sm_75", "sm_80", "sm_90"),
    formats=_HALF,
    since=MappingProxyType({"bf16": 80}),
    instruction="wmma.mma.sync.aligned.{row}.{col}.m16n16k16.f32.f32",
    instructions=MappingProxyType({"bf16": "wmma.mma.sync.aligned.{row}.{col}.m16n16k16.f32.bf16.bf16.f32"}),
    mn_major=_HALF,
    multiply_opcodes=MappingProxyType({"f16": "HMMA", "bf16": "HMMA"}),
)
_multistage = partial(
    GemmKernel,
    instruction="mma.sync.aligned.m16n8k{k}.row.col.{acc}.{a}.{b}.{acc}",
    block_m=128,
    threads=256,
    stages=4,
    needs_aligned=True,
    opcodes=("LDGSTS", "LDGDEPBAR", "LDSM.16.M"),
)
_multistage_sparse = partial(
    _multistage,
    instruction="mma.sp::ordered_metadata.sync.aligned.m16n8k{k}.row.col.{acc}.{a}.{b}.{acc}",
    k_bytes=64,
    sparse=True,
)
_wgmma = partial(
    GemmKernel,
    targets=("sm_90a",),
    formats=_HOPPER,
    instruction=_WGMMA,
    multiply_opcodes=_WGMMA_OPCODES,
    mn_major=_HALF,
    later=False,
)
_LOADS = ("WARPGROUP.ARRIVE", "FENCE.VIEW.ASYNC")
_RING = ("WARPGROUP.ARRIVE", "UTMALDG.2D", "SYNCS.PHASECHK")
_PRODUCER = (*_RING, "USETMAXREG.TRY_ALLOC", "USETMAXREG.DEALLOC")
_wgmma_ring = partial(_wgmma, block_m=128, stages=4, tma=True, needs_aligned=True)


def _tcgen05(ctas: int, opcodes: tuple[str, ...]) -> partial[GemmKernel]:
    pair = ".2CTA" if ctas == 2 else ""
    mnemonics = {item: f"tcgen05.mma.cta_group::{ctas}.kind::{kind}" for item, kind in _KINDS.items()}
    return partial(
        GemmKernel,
        targets=("sm_100a", "sm_103a", "sm_110a"),
        formats=_HOPPER,
        lacking=MappingProxyType({"s8": (103,)}),
        instruction="",
        instructions=MappingProxyType(mnemonics),
        multiply_opcodes=MappingProxyType({item: _UTC[kind] + pair for item, kind in _KINDS.items()}),
        opcodes=("LDTM.x32", "UTCATOMSWS", "SYNCS.PHASECHK", *opcodes),
        mn_major=_HALF,
        block_m=128,
        block_n=(256, 128),
        tma=True,
        needs_aligned=True,
        later=False,
        ctas=ctas,
    )


_tcgen05_block = _tcgen05(1, ("UTMALDG.2D", "UTCBAR"))
_tcgen05_pair = _tcgen05(2, ("UTMALDG.2D.2CTA", "UTCBAR.2CTA.MULTICAST", "UCGABAR_ARV"))

KERNELS = {
    item.name: item
    for item in (
        _wmma(
            "sm70_wmma_naive",
            "one warp a tile of 16 x 16, wmma straight from global memory",
            block_m=16,
            block_n=(64,),
            threads=128,
            opcodes=(),
        ),
        GemmKernel(
            "sm70_mma_m8n8k4",
            "mma.sync of quad pairs, Volta's own shape",
            targets=("sm_70",),
            formats=("f16",),
            instruction="mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
            block_m=64,
            block_n=(64,),
            threads=128,
            opcodes=("LDS.U.128", "BAR.SYNC"),
            multiply_opcodes=MappingProxyType({"f16": "HMMA.884"}),
            later=False,
        ),
        _wmma(
            "sm70_wmma_shared",
            "wmma with tiles of 128 x 128 in shared memory, 8 warps; cp.async from sm_80 on",
            block_m=128,
            block_n=(128,),
            threads=256,
            stages=3,
            padded=True,
            needs_aligned=True,
            span=64,
            opcodes=("BAR.SYNC",),
        ),
        GemmKernel(
            "sm75_mma_ldmatrix",
            "mma.sync with 16 bytes of K and ldmatrix; f16 and s8",
            targets=("sm_75", "sm_80", "sm_90"),
            formats=("f16", "s8"),
            instruction="mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
            instructions=MappingProxyType({"s8": "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"}),
            k_bytes=16,
            block_m=128,
            block_n=(128,),
            threads=256,
            span=64,
            opcodes=("LDSM.16.M", "BAR.SYNC"),
            multiply_opcodes=MappingProxyType({"f16": "HMMA.1688", "s8": "IMMA"}),
        ),
        _multistage(
            "sm80_mma_multistage",
            "mma.sync with 32 bytes of K, a ring filled by cp.async, swizzled rows",
            targets=("sm_80", "sm_86", "sm_90"),
            formats=("f16", "bf16", "tf32", "s8"),
            mn_major=_HALF,
            block_n=(256, 128),
            too_wide=MappingProxyType({256: (80, 86, 87, 88, 89)}),
            multiply_opcodes=_HMMA,
        ),
        _multistage(
            "sm89_mma_multistage",
            "the same file with e4m3 and e5m2; sm_90 and sm_100 emulate these in f16",
            targets=("sm_89", "sm_90"),
            source="sm80_mma_multistage",
            formats=("e4m3", "e5m2"),
            block_n=(128, 64),
            too_wide=MappingProxyType({128: (90, 100, 103)}),
            multiply_opcodes=MappingProxyType({"e4m3": "QMMA", "e5m2": "QMMA"}),
        ),
        _multistage_sparse(
            "sm80_mma_sparse",
            "2:4 sparse A (tf32: 1:2): mma.sp with 64 bytes of K, metadata in the ring",
            targets=("sm_80", "sm_86", "sm_90"),
            formats=("f16", "bf16", "tf32", "s8"),
            mn_major=_HALF,
            block_n=(256, 128, 64),
            multiply_opcodes=_HMMA_SP,
        ),
        _multistage_sparse(
            "sm89_mma_sparse",
            "the same file with e4m3 and e5m2; sm_90 and sm_100 emulate these in f16",
            targets=("sm_89", "sm_90"),
            source="sm80_mma_sparse",
            formats=("e4m3", "e5m2"),
            block_n=(128, 64),
            too_wide=MappingProxyType({128: (90, 100, 103)}),
            multiply_opcodes=MappingProxyType({"e4m3": "QMMA.SP.16864", "e5m2": "QMMA.SP.16864"}),
        ),
        _wgmma(
            "sm90_wgmma_basic",
            "one warpgroup and one wgmma tile of 64 x N; ordinary loads",
            block_m=64,
            block_n=(64, 128),
            threads=128,
            opcodes=_LOADS,
        ),
        _wgmma(
            "sm90_wgmma_128",
            "tiles 128 wide, two warpgroups",
            block_m=128,
            block_n=(128,),
            threads=256,
            opcodes=_LOADS,
        ),
        _wgmma_ring(
            "sm90_wgmma_tma",
            "TMA and a ring of slots with an mbarrier each",
            block_n=(128,),
            threads=256,
            opcodes=(*_RING, "SYNCS.ARRIVE"),
        ),
        _wgmma_ring(
            "sm90_wgmma_specialized",
            "a producer warpgroup and two consumers of 64 x 256, registers moved between them",
            block_n=(256, 128),
            threads=384,
            opcodes=_PRODUCER,
        ),
        _wgmma_ring(
            "sm90_wgmma_persistent",
            "persistent blocks, grouped tile order, multicast in clusters, TMA stores, warpgroups out of step",
            block_n=(256, 192, 128, 64),
            threads=384,
            persistent=True,
            overlaps=True,
            opcodes=(*_PRODUCER, "ACQBULK"),
        ),
        _wgmma_ring(
            "sm90_wgmma_sparse",
            "the persistent kernel with a 2:4 sparse A (tf32: 1:2): wgmma.mma_async.sp",
            instruction="wgmma.mma_async.sp.sync.aligned.m64n{n}k{k}.{acc}.{a}.{b}",
            multiply_opcodes=MappingProxyType({name: f"{opcode}.SP" for name, opcode in _WGMMA_OPCODES.items()}),
            k_bytes=64,
            sparse=True,
            block_n=(256, 192, 128, 64),
            threads=384,
            persistent=True,
            opcodes=(*_PRODUCER, "UBLKCP"),
        ),
        _tcgen05_block(
            "sm100_tcgen05_basic",
            "tcgen05.mma from one thread, accumulators in Tensor Memory",
            threads=128,
            stages=4,
        ),
        _tcgen05_pair(
            "sm100_tcgen05_2cta",
            "two blocks multiply 256 x 256 together: each loads half of B",
            threads=128,
            stages=6,
        ),
        _tcgen05_pair(
            "sm100_tcgen05_persistent",
            "persistent pairs; warps that load, multiply and store; two accumulators",
            buffers=2,
            threads=192,
            stages=6,
            persistent=True,
        ),
    )
}
