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
    "SMEM_UNINITIALISED": "Fill the array before it is read, or do not read what lies beyond what was filled.",
    "GMEM_RACE": _RACE,
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
    "PROXY_FENCE_WAR": "Let the threads that read or wrote the slot execute fence.proxy.async.shared::cta before they release it.",
    "PROXY_FENCE_GLOBAL": "Let the threads that wrote execute fence.proxy.async.global after their last write and before the release, or the reader before the copy.",
    "TMA_STORE_NOT_VISIBLE": "Execute cp.async.bulk.wait_group, without .read, in the thread that issued the copy, and then a barrier.",
    "TENSORMAP_FENCE": "Execute fence.proxy.tensormap::generic.release after the map was written, and ::generic.acquire on it in the warp that issues the copy.",
    "TENSORMAP_MODIFIED": "Wait for the copies that use the map before it is changed, or use another map.",
    # mbarriers
    "MBAR_USED_BEFORE_INIT": "Execute mbarrier.init at this address first, or correct the address.",
    "MBAR_USED_BEFORE_INIT_VISIBLE": "Put bar.sync between mbarrier.init and the first use; for other blocks fence.mbarrier_init and a cluster barrier, by the thread that initialised.",
    "MBAR_REINIT": "Execute mbarrier.inval before the object is initialised again, or initialise it once.",
    "MBAR_OVERWRITTEN": "Move the mbarrier, or the array that overlaps it.",
    "MBAR_COUNT": "Initialise the object with the number of arrivals of a phase, 1 at least.",
    "MBAR_TX_UNDER": "Expect the bytes of every copy that tells the mbarrier, in the phase in which it was issued.",
    "MBAR_TX_OVER": "Expect the bytes that the copies bring: box by box, whether parts of it lie outside the tensor or not.",
    "MBAR_TX_RANGE": "Expect fewer bytes in a phase, in several mbarriers or phases.",
    "MBAR_ARRIVE_MISSING": "Compare the count of mbarrier.init with who arrives: every thread, one of each warp, or one alone, and copies with .noinc.",
    "MBAR_PARITY": "Flip the parity each time the mbarrier's phase ends: of a ring that is when the index comes back to the slot.",
    "MBAR_PHASE_ALIAS": "Wait for each phase before anybody can complete the next one.",
    "MBAR_PHASE_UNOBSERVED": "Let one thread wait for the phase before anybody arrives in the next one.",
    "MBAR_SCOPE": "Write mbarrier.arrive.release.cluster.shared::cluster, and .acquire.cluster where it is waited for.",
    "MBAR_RELAXED": "Leave .relaxed out, or put a fence.acq_rel before the arrival and after the wait.",
    "MBAR_REMOTE_FORM": "Arrive with .shared::cluster at an address from mapa; wait only for mbarriers of the own block.",
    # wgmma
    "WGMMA_NO_COMMIT_WAIT_BEFORE_REUSE": "Execute wgmma.commit_group and wgmma.wait_group before the slot is released.",
    "WGMMA_WAIT_DEPTH": "Lower N of wgmma.wait_group N, or release the slot of an earlier stage.",
    "WGMMA_MISSING_FENCE": "Execute wgmma.fence.sync.aligned after the registers were last touched, before the first wgmma.",
    "WGMMA_ACC_READ_IN_FLIGHT": "Execute wgmma.wait_group for the group before the accumulator is read.",
    "WGMMA_ACC_WRITE_IN_FLIGHT": "Execute wgmma.wait_group for the group before the accumulator is written.",
    "WGMMA_A_REG_HAZARD": "Execute wgmma.wait_group for the group before registers of A are written, or use others.",
    "DESC_LBO_SBO": "Use the byte offset that the message names; the field holds it divided by 16.",
    "DESC_SWIZZLE_MODE": "Give the descriptor the swizzle with which the tile was copied.",
    "WGMMA_WAIT_OTHER_WARPGROUP": "Let every warpgroup that reads the slot arrive at its barrier after its own wgmma.wait_group.",
    "WGMMA_WARPGROUP_DIVERGED": "Let all four warps of the warpgroup execute the instruction, or none.",
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
    "TCGEN05_FENCE_MISSING": "Execute tcgen05.fence::before_thread_sync before the arrival, and ::after_thread_sync after the wait.",
    "TCGEN05_NOT_PIPELINED": "Commit the first to an mbarrier and wait for it, or use other columns.",
    "TMEM_LD_NO_WAIT": "Execute tcgen05.wait::ld before Tensor Memory is written.",
    "TMEM_LD_UNINITIALISED": "Load the lanes and columns that were written: with M = 64 that is half of the lanes.",
    "TMEM_UNINITIALISED": "Issue the first tcgen05.mma with enable-input-d false, or fill the accumulator with tcgen05.st.",
    "TMEM_ALLOC_SIZE": "Ask for a power of two from 32 to 512 columns, and give the same number back.",
    "TMEM_PEER_ORDER": "Execute barrier.cluster.arrive and wait in both blocks between tcgen05.alloc and tcgen05.dealloc.",
    "CTA_GROUP_MISMATCH": "Use one .cta_group in the whole kernel.",
    # blocks and clusters
    "CLUSTER_LATE_START": "Execute barrier.cluster.arrive and barrier.cluster.wait in every block before the first access to another one.",
    "CLUSTER_EARLY_EXIT": "Execute barrier.cluster.arrive and barrier.cluster.wait in every block after the last access, before it returns.",
    "SETMAXNREG_OVERSUBSCRIBED": "Give registers back with setmaxnreg.dec in the other warpgroups first, or ask for fewer.",
    "PDL_WAIT_MISSING": "Execute griddepcontrol.wait before the first read of what the grid before writes.",
    "PDL_WRITE_BEFORE_WAIT": "Execute griddepcontrol.wait before the first write to what the grid before uses.",
    "CLC_RESPONSE_REUSED": "Let all readers of the answer arrive at an mbarrier that the thread that asks waits for.",
    "CLUSTER_SMEM_REUSED": "Let the other block arrive at an mbarrier, or at the cluster's barrier, when it is done with its shared memory.",
    "CLUSTER_BARRIER_RELAXED": "Leave .relaxed out, or execute fence.acq_rel.cluster before the arrival.",
    "CLUSTER_BARRIER_TWICE": "Execute barrier.cluster.wait between two arrivals.",
    "SETMAXNREG_DIRECTION": "Use .dec to give registers back and .inc to ask for more.",
    "BARRIER_COUNT": "Give every bar.sync and bar.arrive of a phase the same number of threads, a multiple of 32.",
    "BARRIER_WARP_DIVERGENCE": "Let all threads of the warp execute the same bar.sync, or use barrier.sync without .aligned.",
    "BARRIER_ROLE_DIVERGENCE": "Move __syncthreads out of the branch, or use a named barrier for the warps that take it.",
    "WARP_SYNC_MASK": "Give the member mask of the lanes that execute the instruction, or let the others execute it too.",
    # performance, and what ptxas changed
    "BARRIER_ORDERS_NOTHING": "Leave the barrier out, if it orders nothing with other inputs either.",
    "WGMMA_SERIALISED": "Keep accumulators and fragments in registers from wgmma.fence to wgmma.wait_group, in one function, without branches that divide the warpgroup.",
    "WGMMA_INJECTED": "Write the wgmma.fence or wgmma.wait_group that the note names.",
    "SETMAXNREG_IGNORED": "Give the entry .maxntid or .maxnreg, and compile it as a whole.",
})  # fmt: skip
"""By name."""
