"""How each hazard is mended: one sentence for each name of `tcsim.ptx.HAZARDS`, for `tcsim check`, SARIF and whoever shows a hazard."""

from __future__ import annotations

from types import MappingProxyType

_WAIT = "Wait for the mbarrier that the copy signals before the bytes are touched, in every warp that touches them."
_RACE = "Put a barrier between the two: bar.sync for the block, an arrive and a wait on an mbarrier, or bar.warp.sync within a warp."
_ADDRESS = (
    "Print the address, or run `tcsim step` to the line: the index, the base or the bound of the access is wrong."
)

FIXES: MappingProxyType[str, str] = MappingProxyType({
    # what ends a run
    "DEADLOCK": "Compare what each warp waits for with who arrives there: the count of the barrier, the parity of the wait, the bytes expected.",
    "GMEM_UNMAPPED": _ADDRESS,
    "ADDRESS_MISALIGNED": "Align the base to the size of the access, or use a narrower access.",
    "SMEM_OUT_OF_RANGE": "Ask for more dynamic shared memory at the launch, or correct the offset.",
    "LOCAL_OUT_OF_RANGE": _ADDRESS,
    "PARAM_OUT_OF_RANGE": _ADDRESS,
    "INVALID_OPERAND": "Give the operand a value that the message lists.",
    "TMEM_OUT_OF_RANGE": "Stay inside the lanes and columns that tcgen05.alloc gave; lane in bits 31 to 16, column in bits 15 to 0.",
    "MBARRIER_FAULT": "Initialise the object with its number of arrivals, and keep pending arrivals and bytes within its range.",
    "INVALID_PC": _ADDRESS,
    "TRAP": "Find the condition before the trap that did not hold.",
    "ASSERT": "Find why the assertion does not hold: `tcsim step` stops at its line.",
    "STACK_OVERFLOW": "Bound the recursion or the alloca, or raise Limits(stack=).",
    "LIMIT": "Use a smaller problem, or raise the limit: [limits] of a launch file, Limits of a launch.",
    # ordinary accesses
    "SMEM_RACE_RAW": _RACE,
    "SMEM_RACE_WAR": _RACE,
    "SMEM_RACE_WAW": _RACE,
    # asynchronous copies
    "PROXY_FENCE_MISSING": "Let the threads that wrote execute fence.proxy.async.shared::cta after their last write and before the barrier that hands over to the issuer.",
    "PROXY_FENCE_CP_ASYNC": "Let the threads that issued cp.async execute fence.proxy.async after their wait and before the barrier.",
    "ASYNC_DST_READ": _WAIT,
    "ASYNC_DST_WRITTEN": _WAIT,
    "ASYNC_SRC_MODIFIED": _WAIT,
    "ASYNC_AT_EXIT": "Execute cp.async.bulk.wait_group 0 in the thread that issued the copy, before it returns.",
    "CP_ASYNC_WAIT_MISSING": "Lower N of cp.async.wait_group N until it covers the group, or add the wait; then a barrier if other threads read.",
    "CP_ASYNC_UNCOMMITTED": "Execute cp.async.commit_group after the copy, before the wait.",
    "CP_ASYNC_WAW": "Wait for the first copy before the second is issued, or copy to different bytes.",
    "BULK_GROUP_UNCOMMITTED": "Execute cp.async.bulk.commit_group in the thread that issued the copy, before its wait.",
    "BULK_WAIT_WRONG_THREAD": "Let the thread that issued the copy execute cp.async.bulk.wait_group, and then a barrier.",
    "TMA_STORE_SRC_REUSED": "Lower N of cp.async.bulk.wait_group.read N until it covers the group, before the source is written again.",
    # mbarriers
    "MBAR_USED_BEFORE_INIT": "Execute mbarrier.init at this address first, or correct the address.",
    "MBAR_USED_BEFORE_INIT_VISIBLE": "Put bar.sync between mbarrier.init and the first use; for other blocks fence.mbarrier_init and a cluster barrier, by the thread that initialised.",
    "MBAR_REINIT": "Execute mbarrier.inval before the object is initialised again, or initialise it once.",
    "MBAR_OVERWRITTEN": "Move the mbarrier, or the array that overlaps it.",
    # wgmma
    "WGMMA_NO_COMMIT_WAIT_BEFORE_REUSE": "Execute wgmma.commit_group and wgmma.wait_group before the slot is released.",
    "WGMMA_WAIT_DEPTH": "Lower N of wgmma.wait_group N, or release the slot of an earlier stage.",
    "WGMMA_MISSING_FENCE": "Execute wgmma.fence.sync.aligned after the registers were last touched, before the first wgmma.",
    "WGMMA_ACC_READ_IN_FLIGHT": "Execute wgmma.wait_group for the group before the accumulator is read.",
    "WGMMA_ACC_WRITE_IN_FLIGHT": "Execute wgmma.wait_group for the group before the accumulator is written.",
    "WGMMA_A_REG_HAZARD": "Execute wgmma.wait_group for the group before registers of A are written, or use others.",
    "WGMMA_WAIT_OTHER_WARPGROUP": "Let every warpgroup that reads the slot arrive at its barrier after its own wgmma.wait_group.",
    # Tensor Memory
    "TCGEN05_COMMIT_MISSING": "Execute tcgen05.commit to an mbarrier after the work, and wait for its phase before this.",
    "TMEM_WAIT_LD_MISSING": "Execute tcgen05.wait::ld in every warp that loaded, before the columns are released.",
    "TMEM_WAIT_ST_MISSING": "Execute tcgen05.wait::st in every warp that stored, before the columns are used.",
    "TCGEN05_UNORDERED": "Put tcgen05.fence::before_thread_sync, a barrier and tcgen05.fence::after_thread_sync between the two warps.",
    "TMEM_UNALLOCATED": "Take the columns with tcgen05.alloc, or correct the address: it is the one that alloc left in shared memory.",
    "TMEM_LEAK": "Execute tcgen05.dealloc for all columns before the block ends.",
    "TMEM_AFTER_RELINQUISH": "Move tcgen05.relinquish_alloc_permit behind the last tcgen05.alloc.",
    "TMEM_ADDR_NOT_PUBLISHED": "Put a barrier between tcgen05.alloc and the load of its address.",
    "TMEM_DEADLOCK": "Take fewer columns, or give those back that another block or an earlier tcgen05.alloc holds.",
    # blocks and clusters
    "CLUSTER_LATE_START": "Execute barrier.cluster.arrive and barrier.cluster.wait in every block before the first access to another one.",
    "CLUSTER_EARLY_EXIT": "Execute barrier.cluster.arrive and barrier.cluster.wait in every block after the last access, before it returns.",
    "SETMAXNREG_OVERSUBSCRIBED": "Give registers back with setmaxnreg.dec in the other warpgroups first, or ask for fewer.",
})  # fmt: skip
"""By name."""
