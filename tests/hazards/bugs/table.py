"""The bugs: number, where it was found, what was wrong, its kernel, and the hazard that a run of it has to name."""

from __future__ import annotations

from dataclasses import dataclass

from tests.hazards.bugs import blocks, copies, tensor_memory, warpgroups
from tests.hazards.kernels import Kernel


@dataclass(frozen=True)
class Bug:
    """A bug that a project had."""

    mark: str  # in the kernel: B and its number; with a part where one thread is about two
    thread: str
    wrong: str
    kernel: Kernel
    rule: str
    before: str = ""  # the PTX of a launch that comes before


BUGS = (
    Bug("B1", "NVIDIA/Fuser#3561", "no wgmma.commit_group and wait_group before the slot is given back", copies.RING, "WGMMA_NO_COMMIT_WAIT_BEFORE_REUSE"),
    Bug("B2", "triton-lang/triton#8964", "no wait before the epilogue of a product with A in registers", warpgroups.REGISTERS, "WGMMA_ACC_READ_IN_FLIGHT"),
    Bug("B3", "triton-lang/triton#11047", "the wait covers one warpgroup; two read the tile", warpgroups.SHARED, "WGMMA_WAIT_OTHER_WARPGROUP"),
    Bug("B4", "tile-ai/tilelang#2613", "no barrier at the end of the loop: A is filled while the other warpgroup reads it", warpgroups.LOOP, "WGMMA_WAIT_OTHER_WARPGROUP"),
    Bug("B5", "facebookexperimental/triton#1278", "wait_group leaves a group pending before the slot is given back", copies.RING, "WGMMA_WAIT_DEPTH"),
    Bug("B6", "tile-ai/tilelang#2634", "no fence.proxy.async before wgmma.mma_async.sp", warpgroups.SPARSE, "PROXY_FENCE_MISSING"),
    Bug("B7", "MoonshotAI/FlashKDA#24", "no fence.proxy.async between st.shared and a TMA store", copies.STORE, "PROXY_FENCE_MISSING"),
    Bug("B7.2", "MoonshotAI/FlashKDA#24", "no fence after mbarrier.init", copies.RING, "MBAR_INIT_NOT_FENCED"),
    Bug("B8", "sgl-project/sglang#39124", "no fence.proxy.async before tcgen05 reads what threads stored", tensor_memory.STAGES, "PROXY_FENCE_MISSING"),
    Bug("B9", "deepseek-ai/DeepEP#621", "no fence.proxy.async between polled loads and a TMA load", copies.POLLED, "PROXY_FENCE_GLOBAL"),
    Bug("B10", "NVIDIA/TransformerEngine#2695", "no fence.proxy.async between ld.shared of a slot and the next TMA load into it", copies.RING, "PROXY_FENCE_WAR"),
    Bug("B11", "inclusionAI/cuLA#114", "no fence.proxy.async before TMA reductions", copies.STORE, "PROXY_FENCE_MISSING"),
    Bug("B12", "deepseek-ai/DeepEP#657", "wait_group 1 where the slot needs 0", copies.STORE, "TMA_STORE_SRC_REUSED"),
    Bug("B13", "NVIDIA/Fuser#5448", "commit_group and wait_group behind the loop instead of in it", copies.STORE, "TMA_STORE_SRC_REUSED"),
    Bug("B14", "facebookexperimental/triton#368", "the fence comes after the TMA store", copies.STORE, "PROXY_FENCE_MISSING"),
    Bug("B15", "vllm-project/flash-attention#182", "Tensor Memory is given back without tcgen05.wait::ld", tensor_memory.STAGES, "TMEM_WAIT_LD_MISSING"),
    Bug("B16", "NVIDIA/cutlass#3652", "no tcgen05.wait::ld before dealloc, and half of the lanes use nothing", tensor_memory.LAST, "TMEM_WAIT_LD_MISSING"),
    Bug("B17", "flashinfer-ai/flashinfer#5334", "tcgen05.wait::ld after the arrival instead of before", tensor_memory.STAGES, "TMEM_WAIT_LD_MISSING"),
    Bug("B18.1", "mlc-ai/TIRx-kernels#7", "tcgen05.alloc after the only barrier", tensor_memory.SCALES, "TMEM_ADDR_NOT_PUBLISHED"),
    Bug("B18.2", "mlc-ai/TIRx-kernels#7", "columns are written before the last tcgen05.commit was waited for", tensor_memory.SCALES, "TCGEN05_COMMIT_MISSING"),
    Bug("B19", "NVIDIA/cutlass#2835", "no barrier between tcgen05.alloc and the warp that reads the address", tensor_memory.LAST, "TMEM_ADDR_NOT_PUBLISHED"),
    Bug("B20", "NVIDIA/cutlass#2230", "no tcgen05.alloc", tensor_memory.STAGES, "TMEM_UNALLOCATED"),
    Bug("B21", "NVIDIA/cutlass#3435", "no barrier.cluster between alloc and dealloc of a pair", tensor_memory.PAIR, "TMEM_PEER_ORDER"),
    Bug("B22", "NVIDIA/cutlass#2760", "griddepcontrol.wait after the first dependent read", blocks.DEPENDENT, "PDL_WAIT_MISSING", blocks.FIRST),
    Bug("B23", "triton-lang/triton#10656", "no barrier.cluster before the end", blocks.EXIT, "CLUSTER_EARLY_EXIT"),
    Bug("B24", "inclusionAI/humming#56", "multicast does not wait for the other block's epilogue", blocks.MULTICAST, "CLUSTER_SMEM_REUSED"),
    Bug("B25", "tile-ai/tilelang#3087", "parity (k / stages) % 2 where the barrier's phase ends in every step", copies.RING, "MBAR_PARITY"),
    Bug("B26", "triton-lang/triton#11498", "fence.mbarrier_init by another thread than mbarrier.init", blocks.REMOTE, "MBAR_USED_BEFORE_INIT_VISIBLE"),
    Bug("B27", "facebookexperimental/triton#462", "two mbarrier.init of one address", copies.RING, "MBAR_REINIT"),
    Bug("B28", "NVIDIA/cutlass#2364", "expect_tx at an mbarrier that was never initialised", copies.RING, "MBAR_USED_BEFORE_INIT"),
    Bug("B29", "tile-ai/tilelang#3030", "mbarrier.init with count 0", copies.RING, "MBAR_COUNT"),
    Bug("B30", "tile-ai/tilelang#2559", "setmaxnreg asks for more than 512 threads can have", blocks.POOL, "SETMAXNREG_OVERSUBSCRIBED"),
    Bug("B31", "apache/tvm#20074", "mbarrier.arrive.shared::cta at another block's mbarrier", blocks.REMOTE, "MBAR_REMOTE_FORM"),
    Bug("B32.1", "ggml-org/llama.cpp#13438", "no __syncthreads between a store and another warp's load", blocks.ATTENTION, "SMEM_RACE_RAW"),
    Bug("B32.2", "ggml-org/llama.cpp#27678", "__syncthreads in a branch that not all warps take", blocks.ATTENTION, "BARRIER_ROLE_DIVERGENCE"),
    Bug("B33", "NVIDIA/cutlass#3597", "the scratch of a reduction is used again before all warps have read it", blocks.REDUCTION, "SMEM_RACE_WAR"),
    Bug("B34", "tile-ai/tilelang#2593", "the descriptor's stride is wrong for N = 24", warpgroups.WIDE, "DESC_LBO_SBO"),
    Bug("B35.1", "NVlabs/cuda-oxide#1066", "the mailbox of a scheduler is filled again without an acknowledgement", blocks.MAILBOX, "SMEM_RACE_WAR"),
    Bug("B35.2", "NVlabs/cuda-oxide#1066", "the same with the response of clusterlaunchcontrol", blocks.CANCEL, "CLC_RESPONSE_REUSED"),
)  # fmt: skip
"""In the order of their numbers."""

OPEN = frozenset[str]()
"""Those that are not named yet: the rule is not looked for."""
