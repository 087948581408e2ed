"""The rules: every name that a run can report, with what it means, where that is said, and how it is mended. A new rule is a row here and a judge in `tcsim.ptx.check.rules`."""

from __future__ import annotations

from dataclasses import dataclass

from tcsim.core.versions import PTX_MANUAL


@dataclass(frozen=True)
class Rule:
    """A name that `Run.hazards` can have: what it means, where that is said, and how it is mended."""

    name: str
    severity: str  # "error": undefined, or a fault on hardware; "strict" and "repaired" are said in docs/hazards.md
    sentence: str
    section: str  # title of the section
    source: str  # the document
    fix: str  # how it is mended, in one sentence


_PTX = PTX_MANUAL
_CUDA = "CUDA C++ Programming Guide 13"
_OURS = "tcsim, docs/kernels.md"
_PTXAS = "ptxas 13.5.37"

_WAIT = "Wait for the mbarrier that the copy signals before the bytes are touched, in every warp that touches them."
_BARRIER = "put a barrier between the two: __syncthreads (bar.sync), an arrive and a wait on an mbarrier, or within a warp __syncwarp. If threads update one value, use an atomic."
_ADDRESS = "Print the address, or run `tcsim step` to the line: the index, base or bound of the access is wrong."

FAULTS = (
    Rule("DEADLOCK", "error", "No thread can go on: each waits for what no other thread will do.", "Barrier instructions: bar, barrier", _PTX, "Compare what each warp waits for with who arrives there: the count of the barrier, the parity of the wait, the bytes expected."),
    Rule("GMEM_UNMAPPED", "error", "A global access lies outside the memory that was mapped or allocated.", "State Spaces", _PTX, _ADDRESS),
    Rule("ADDRESS_MISALIGNED", "error", "An address is not a multiple of the size of the access.", "Addresses as Operands", _PTX, "Align the base to the size of the access, or use a narrower access."),
    Rule("SMEM_OUT_OF_RANGE", "error", "A shared access lies outside the block's static and dynamic shared memory.", "Shared State Space", _PTX, "Ask for more dynamic shared memory at the launch, or correct the offset."),
    Rule("LOCAL_OUT_OF_RANGE", "error", "A local access lies outside the thread's local memory.", "Local State Space", _PTX, _ADDRESS),
    Rule("PARAM_OUT_OF_RANGE", "error", "An access to parameters lies outside them.", "Parameter State Space", _PTX, _ADDRESS),
    Rule("INVALID_OPERAND", "error", "An operand has a value that the instruction does not accept.", "Instruction Set", _PTX, "Give the operand a value that the message lists."),
    Rule("TMEM_OUT_OF_RANGE", "error", "An access lies outside Tensor Memory.", "Tensor Memory", _PTX, "Stay inside the lanes and columns that tcgen05.alloc gave; lane in bits 31 to 16, column in bits 15 to 0."),
    Rule("MBARRIER_FAULT", "error", "An mbarrier gets a count that its object cannot hold, or something else is used as an mbarrier.", "Parallel Synchronization and Communication Instructions: mbarrier", _PTX, "Initialise the object with its number of arrivals, and keep pending arrivals and bytes within its range."),
    Rule("INVALID_PC", "error", "A call or an indexed branch goes to an address that is not one of its targets.", "Control Flow Instructions", _PTX, _ADDRESS),
    Rule("TRAP", "error", "A thread executed trap or brkpt.", "Miscellaneous Instructions: trap", _PTX, "Find the condition before the trap that did not hold."),
    Rule("ASSERT", "error", "A device-side assert did not hold.", "Assertion", _CUDA, "Find why the assertion does not hold: `tcsim step` stops at its line."),
    Rule("STACK_OVERFLOW", "error", "A thread's calls and alloca need more than its stack.", "Stack Manipulation Instructions", _PTX, "Bound the recursion or the alloca, or raise Limits(stack=)."),
    Rule("INTERNAL_ERROR", "error", "tcsim itself failed at this instruction: its mistake, not the kernel's.", "What a run says", _OURS, "Report the message with the PTX and how it is launched; the results of this launch say nothing."),
    Rule("LIMIT", "error", "The launch reached one of its limits; a real GPU would have gone on.", "Limits", _OURS, "Use a smaller problem, or raise the limit: [limits] of a launch file, Limits of a launch."),
)  # fmt: skip
"""What ends a run."""

RACES = (
    Rule("SMEM_RACE_RAW", "error", "Shared memory is read, and nothing orders the read after the write of another warp.", "Conflict and Data-races", _PTX, "Let the read wait for the write: " + _BARRIER),
    Rule("SMEM_RACE_WAR", "error", "Shared memory is written, and nothing orders the write after the read of another warp.", "Conflict and Data-races", _PTX, "Let the write wait for the read: " + _BARRIER),
    Rule("SMEM_RACE_WAW", "error", "Shared memory is written twice, and nothing orders the writes of two warps; one instruction may be both, where it stores different values to one place.", "Conflict and Data-races", _PTX, "Let the later write wait for the earlier one: " + _BARRIER),
    Rule("RED_NOT_ACQUIRE", "error", "Shared memory is accessed, and only a red and a fence order that after the earlier access: a reduction returns no value, so it cannot acquire.", "Release and Acquire Patterns", _PTX, "Read the flag with ld.acquire or atom, or with ld.relaxed and then a fence."),
    Rule("WARP_SYNC_MISSING", "error", "Lanes of one warp access the same shared memory and one of them writes, or one lane waits or arrives for the others, and neither bar.warp.sync nor a barrier orders them.", "Parallel Synchronization and Communication Instructions: bar.warp.sync", _PTX, "Put bar.warp.sync (__syncwarp) between the two, for all lanes that take part; before an arrival or after a wait that one lane executes for all."),
    Rule("WARP_SYNC_COLLECTIVE", "strict", "As WARP_SYNC_MISSING, but the lanes have executed an instruction together in between (shfl, vote, one that is .sync.aligned), or the later access is one: the lanes are in order, and the manual does not say that memory is; Triton relies on it.", "Parallel Synchronization and Communication Instructions: bar.warp.sync", _PTX, "Put bar.warp.sync (__syncwarp) between the two: shfl, vote and instructions that are .sync.aligned order no memory."),
    Rule("WARP_SYNC_VOLATILE", "strict", "As WARP_SYNC_MISSING, but both accesses are volatile or relaxed: that is not a data race, and either may come first; reductions from before sm_70 relied on lanes in lockstep.", "Parallel Synchronization and Communication Instructions: bar.warp.sync", _PTX, "Put bar.warp.sync (__syncwarp) between the two, unless one lane polls for what the other one stores."),
    Rule("GMEM_RACE", "error", "Two warps access the same global memory, one of them writes, and nothing orders them, or one instruction stores different values to one place in two warps; checked only on request (`--races`, `Kernel.launch(races=True)`), or if one is a bulk copy of the same cluster.", "Conflict and Data-races", _PTX, "If both update one value, make it one atomic (atomicAdd, red). Else let the later access wait for the earlier: a barrier within a block; between blocks __threadfence, an atomic flag, __threadfence."),
    Rule("SMEM_UNINITIALISED", "strict", "Shared memory is read that nothing has written in this launch.", "Shared State Space", _PTX, "Fill the array before it is read, or do not read what lies beyond what was filled."),
)  # fmt: skip
"""Ordinary accesses."""

GRID = (
    Rule("GMEM_RACE_UNUSED", "strict", "As GMEM_RACE, between warps of one block, but nothing depends on the value that is read: no branch, no address, and nothing that its warp stores. Triton gives threads copies of an element where a block has fewer elements than threads: all load it, one stores.", "Conflict and Data-races", _PTX, "Nothing, if they are copies of an element. Triton: num_warps of at most BLOCK / 32 makes none."),
    Rule("GMEM_RELEASE_MISSING", "error", "A block accesses global memory that another one has accessed, and acquires; the other one does not release its access: no fence of .gpu scope, no .release, or no barrier before the warp that has them. Checked only on request.", "Release and Acquire Patterns", _PTX, "Put bar.sync and then fence.acq_rel.gpu (__syncthreads, __threadfence) between the accesses and the store or atomic that signals the other block, or give that .release.gpu."),
    Rule("GMEM_ACQUIRE_MISSING", "error", "A block accesses global memory that another one has accessed and released, and does not acquire that: no fence of .gpu scope, no .acquire, or no barrier after the warp that has them. Checked only on request.", "Release and Acquire Patterns", _PTX, "Put fence.acq_rel.gpu (__threadfence) and then bar.sync after the load or atomic that sees the other block's signal, or give that .acquire.gpu."),
    Rule("GMEM_FENCE_APART", "strict", "As GMEM_RELEASE_MISSING or GMEM_ACQUIRE_MISSING, but the fences for the GPU are there, in other threads than the flag, with a barrier between: the manual counts a fence for the flags of its own thread; PyTorch's reductions fence so.", "Release and Acquire Patterns", _PTX, "Execute __threadfence (fence.acq_rel.gpu) in the thread that writes the flag, behind the barrier, and in the one that reads it, before the barrier."),
    Rule("GMEM_SCOPE", "error", "Blocks access the same global memory, and a fence, release, acquire or atomic between them has a scope that does not include the other block: .cta, or .cluster between two clusters. Checked only on request.", "Scope", _PTX, "Give it the scope .gpu: __threadfence, not __threadfence_block; atomicAdd, not atomicAdd_block."),
)  # fmt: skip
"""Global memory, between blocks or warps, where a launch asks for it."""

COPIES = (
    Rule("PROXY_FENCE_MISSING", "error", "What ordinary instructions wrote is read through the async proxy, by a bulk copy, wgmma or tcgen05, without a fence.proxy.async in between.", "Async Proxy", _PTX, "Let the threads that wrote execute fence.proxy.async.shared::cta after their last write and before the barrier that hands over to the issuer."),
    Rule("PROXY_FENCE_CP_ASYNC", "strict", "What cp.async copied is read through the async proxy, by a bulk copy, wgmma or tcgen05, without a fence.proxy.async between its wait and that; Triton omits it.", "Async Proxy", _PTX, "Let the threads that issued cp.async execute fence.proxy.async after their wait and before the barrier."),
    Rule("PROXY_FENCE_WAR", "strict", "What ordinary instructions read or wrote is overwritten through the async proxy, without a fence.proxy.async in between; CUTLASS omits it.", "Async Proxy", _PTX, "Let the threads that read or wrote the slot execute fence.proxy.async.shared::cta before they release it."),
    Rule("PROXY_FENCE_GLOBAL", "error", "What ordinary instructions wrote to global memory is read by a bulk copy, without a fence.proxy.async in between; for copies of other clusters checked only on request.", "Async Proxy", _PTX, "Let the threads that wrote execute fence.proxy.async.global after their last write and before the release, or the reader before the copy."),
    Rule("TMA_STORE_NOT_VISIBLE", "error", "What a bulk copy writes to global memory is read, or written again, before a wait for its group; one with .read is not enough.", "cp.async.bulk.wait_group", _PTX, "Execute cp.async.bulk.wait_group, without .read, in the thread that issued the copy, and then a barrier."),
    Rule("TENSORMAP_SPACE", "error", "A copy, a prefetch or a fence uses a tensor map in local or shared memory, where a kernel parameter without __grid_constant__ ends up; valid are parameters, constant and global memory.", "Tensor-map", _PTX, "Pass the map as a const __grid_constant__ parameter, or keep it in constant or global memory; one that is changed in shared memory is copied to global memory with tensormap.cp_fenceproxy first."),
    Rule("TENSORMAP_FENCE", "error", "A tensor map that the kernel wrote is used without fence.proxy.tensormap::generic.release and .acquire in between.", "membar / fence", _PTX, "Execute fence.proxy.tensormap::generic.release after the map was written, and ::generic.acquire on it in the warp that issues the copy."),
    Rule("TENSORMAP_MODIFIED", "error", "A tensor map is written while a copy that uses it is in flight.", "Completion Mechanisms for Asynchronous Copy Operations", _PTX, "Wait for the copies that use the map before it is changed, or use another map."),
    Rule("TMA_MISALIGNED", "error", "A bulk or tensor copy has an address that is not aligned: to 16 bytes, a box in shared memory to 128, a tensor map to 64.", "cp.async.bulk", _PTX, "Align the address: global and shared addresses of bulk copies to 16 bytes, boxes in shared memory to 128, or to where their swizzle begins anew, tensor maps to 64."),
    Rule("ASYNC_DST_READ", "error", "The destination of an asynchronous copy is read before its mbarrier was waited for.", "Completion Mechanisms for Asynchronous Copy Operations", _PTX, _WAIT),
    Rule("ASYNC_DST_WRITTEN", "error", "The destination of an asynchronous copy is written before its mbarrier was waited for.", "Completion Mechanisms for Asynchronous Copy Operations", _PTX, _WAIT),
    Rule("ASYNC_SRC_MODIFIED", "error", "The source of an asynchronous copy is written before its mbarrier was waited for.", "Completion Mechanisms for Asynchronous Copy Operations", _PTX, _WAIT),
    Rule("ASYNC_AT_EXIT", "error", "A thread ends while its bulk copy may still read shared memory, or a block while one may still read or write it.", "cp.async.bulk.wait_group", _PTX, "Execute cp.async.bulk.wait_group 0 in the thread that issued the copy, before it returns; wait for the mbarrier of a copy to shared memory."),
    Rule("CP_ASYNC_WAIT_MISSING", "error", "What cp.async copies is used before a wait covers its group.", "cp.async.wait_group / cp.async.wait_all", _PTX, "Lower N of cp.async.wait_group N until it covers the group, or add the wait; then a barrier if other threads read."),
    Rule("CP_ASYNC_UNCOMMITTED", "error", "What cp.async copies is used, but the copy is in no committed group.", "cp.async.commit_group", _PTX, "Execute cp.async.commit_group after the copy, before the wait."),
    Rule("CP_ASYNC_WAW", "error", "Two cp.async write the same bytes without a wait in between.", "cp.async.commit_group", _PTX, "Wait for the first copy before the second is issued, or copy to different bytes."),
    Rule("BULK_GROUP_UNCOMMITTED", "error", "The source of a bulk copy is written again, but the copy is in no committed group.", "cp.async.bulk.commit_group", _PTX, "Execute cp.async.bulk.commit_group in the thread that issued the copy, before its wait."),
    Rule("BULK_WAIT_WRONG_THREAD", "error", "The source of a bulk copy is written again after a wait of a thread that did not issue it.", "cp.async.bulk.wait_group", _PTX, "Let the thread that issued the copy execute cp.async.bulk.wait_group, and then a barrier."),
    Rule("TMA_STORE_SRC_REUSED", "error", "The source of a bulk copy is written again before a wait covers its group.", "cp.async.bulk.wait_group", _PTX, "Lower N of cp.async.bulk.wait_group.read N until it covers the group, before the source is written again."),
)  # fmt: skip
"""Asynchronous copies."""

MBARRIERS = (
    Rule("MBAR_USED_BEFORE_INIT", "error", "An mbarrier is used that mbarrier.init has not initialised.", "mbarrier.init", _PTX, "Execute mbarrier.init at this address first, or correct the address."),
    Rule("MBAR_USED_BEFORE_INIT_VISIBLE", "error", "An mbarrier is used, and nothing orders the use after its initialisation by another warp.", "mbarrier.init", _PTX, "Put bar.sync between mbarrier.init and the first use; for other blocks fence.mbarrier_init and a cluster barrier, by the thread that initialised."),
    Rule("MBAR_INIT_NOT_FENCED", "strict", "A copy signals an mbarrier, and the warp that initialised it has executed neither fence.mbarrier_init nor fence.proxy.async since, so nothing makes the object visible to the async proxy. The guide asks for it; the PTX manual lets copies reach mbarriers through the generic proxy; Gluon omits it.", "Asynchronous Data Copies using the Tensor Memory Accelerator (TMA)", _CUDA, "Let the thread that initialised it execute fence.mbarrier_init.release.cluster, or fence.proxy.async.shared::cta, before the barrier that publishes it."),
    Rule("MBAR_MISALIGNED", "error", "An mbarrier is at an address that is not a multiple of 8.", "Size and alignment of mbarrier object", _PTX, "Align the array of mbarriers to 8 bytes."),
    Rule("MBAR_REINIT", "error", "An mbarrier is initialised again without mbarrier.inval.", "mbarrier.init", _PTX, "Execute mbarrier.inval before the object is initialised again, or initialise it once."),
    Rule("MBAR_INVAL_IN_USE", "error", "mbarrier.inval ends an mbarrier that another warp may still use, or that work in flight will signal.", "mbarrier.inval", _PTX, "Put a barrier between the last use and mbarrier.inval, and wait for the phase of every copy that signals the mbarrier."),
    Rule("MBAR_OVERWRITTEN", "error", "The bytes of an mbarrier in use are read or written by something other than an mbarrier instruction.", "Size and alignment of mbarrier object", _PTX, "Move the mbarrier, or the array that overlaps it."),
    Rule("MBAR_COUNT", "error", "mbarrier.init with a number of arrivals that the object cannot expect: valid are 1 to 2**20 - 1.", "mbarrier.init", _PTX, "Initialise the object with the number of arrivals of a phase, 1 at least."),
    Rule("MBAR_TX_UNDER", "error", "A phase expects fewer bytes than its copies bring, so it ends before they are done, or never.", "Tracking asynchronous operations by the mbarrier object", _PTX, "Expect the bytes of every copy that signals the mbarrier, in the phase in which it was issued."),
    Rule("MBAR_TX_OVER", "error", "A phase expects more bytes than come, and never ends.", "Tracking asynchronous operations by the mbarrier object", _PTX, "Expect the bytes that the copies bring: box by box, whether parts of it lie outside the tensor or not."),
    Rule("TMA_BOX_BYTES", "error", "A phase that waits only for tensor copies expects a different number of bytes than their boxes have; what lies beyond the tensor is filled, and counts.", "cp.async.bulk.tensor", _PTX, "Expect the bytes of every box that is copied in the phase: elements of a box times their size, whether they lie in the tensor or not."),
    Rule("MBAR_TX_RANGE", "error", "The bytes of one operation, or the transaction count, exceed 2**20 - 1.", "Tracking asynchronous operations by the mbarrier object", _PTX, "Expect fewer bytes in a phase, in several mbarriers or phases."),
    Rule("MBAR_ARRIVE_MISSING", "error", "A phase has got bytes or arrivals, but not all arrivals, and never ends.", "Phase completion of the mbarrier object", _PTX, "Compare the count of mbarrier.init with who arrives: every thread, one of each warp, or one alone, and copies with .noinc."),
    Rule("MBAR_PARITY", "error", "A wait is for the wrong phase: one that was complete before, or one that nothing completes.", "mbarrier.test_wait / mbarrier.try_wait", _PTX, "Flip the parity each time the mbarrier's phase ends: of a ring that is when the index comes back to the slot."),
    Rule("MBAR_PHASE_ALIAS", "error", "A wait comes two phases late, or may come so late, since nothing orders it before the arrivals that end the next phase: the parity that it asks for is that of the phase under way again.", "mbarrier.test_wait / mbarrier.try_wait", _PTX, "Let every warp that waits for a phase arrive, or meet who arrives, before the next phase can end."),
    Rule("MBAR_PHASE_UNOBSERVED", "strict", "A thread arrives in a phase, and no wait has found the previous phase complete.", "Phase of the mbarrier object", _PTX, "Let one thread wait for the phase before anybody arrives in the next one."),
    Rule("MBAR_SCOPE", "strict", "A thread arrives at an mbarrier of another block with the scope .cta, the default, so it releases nothing to it; CUTLASS omits the scope.", "mbarrier.arrive", _PTX, "Write mbarrier.arrive.release.cluster.shared::cluster, and .acquire.cluster where it is waited for."),
    Rule("MBAR_RELAXED", "error", "Shared memory is used that only a .relaxed arrival or wait orders with the earlier access.", "mbarrier.arrive", _PTX, "Remove .relaxed, or put a fence.acq_rel before the arrival and after the wait."),
    Rule("MBAR_REMOTE_FORM", "error", "An mbarrier of another block is waited for, or signalled without .shared::cluster.", "mbarrier.arrive", _PTX, "Arrive with .shared::cluster at an address from mapa; wait only for mbarriers of your own block."),
)  # fmt: skip
"""mbarrier objects."""

WARPGROUPS = (
    Rule("WGMMA_NO_COMMIT_WAIT_BEFORE_REUSE", "error", "Shared memory that wgmma reads is written again before any wait for its group.", "wgmma.wait_group", _PTX, "Execute wgmma.commit_group and wgmma.wait_group before the slot is released."),
    Rule("WGMMA_WAIT_DEPTH", "error", "Shared memory that wgmma reads is written again after a wgmma.wait_group that leaves its group pending.", "wgmma.wait_group", _PTX, "Lower N of wgmma.wait_group N, or release the slot of an earlier stage."),
    Rule("WGMMA_WARPS_APART", "strict", "wgmma reads shared memory that one warp of its warpgroup wrote, and no barrier orders that before the other warps' reads: .sync waits for the threads of a warp; a warp that stores its own rows of A needs none.", "wgmma.mma_async", _PTX, "Put a barrier of the four warps (bar.sync with 128 threads) between fence.proxy.async and wgmma."),
    Rule("WGMMA_MISSING_FENCE", "repaired", "wgmma uses registers without a wgmma.fence since the last instruction that touched them, or since the beginning.", "wgmma.fence", _PTX, "Execute wgmma.fence.sync.aligned after the registers were last touched, before the first wgmma."),
    Rule("WGMMA_ACC_READ_IN_FLIGHT", "repaired", "An accumulator of wgmma is read before a wait for its group.", "wgmma.wait_group", _PTX, "Execute wgmma.wait_group for the group before the accumulator is read."),
    Rule("WGMMA_ACC_WRITE_IN_FLIGHT", "repaired", "An accumulator of wgmma is written before a wait for its group.", "wgmma.wait_group", _PTX, "Execute wgmma.wait_group for the group before the accumulator is written."),
    Rule("WGMMA_A_REG_HAZARD", "repaired", "A register from which wgmma reads A is written before a wait for its group.", "wgmma.wait_group", _PTX, "Execute wgmma.wait_group for the group before registers of A are written, or use others."),
    Rule("DESC_LBO_SBO", "error", "The tile that wgmma or tcgen05.mma reads does not match the matrix that was copied; LBO or SBO of the matrix descriptor is probably wrong.", "Matrix Descriptor Format", _PTX, "Compare the byte offsets with where the copy put rows and pieces of rows, or use the one that the message names; the field holds it divided by 16."),
    Rule("DESC_UNITS", "error", "The tile that wgmma or tcgen05.mma reads does not match the matrix that was copied; a field of the matrix descriptor is probably in bytes or elements instead of units of 16 bytes, or divided by 16 twice.", "Matrix Descriptor Format", _PTX, "Divide the byte offset, or the start address, by 16 once where the descriptor is made."),
    Rule("DESC_SWIZZLE_MODE", "error", "The tile that wgmma or tcgen05.mma reads does not match the matrix that was copied; the swizzle of the matrix descriptor is probably not the copy's.", "Matrix Descriptor Format", _PTX, "Give the descriptor the swizzle with which the tile was copied."),
    Rule("WGMMA_WAIT_OTHER_WARPGROUP", "error", "Shared memory that wgmma reads is written again after a wait, but nothing orders the write after the wait of the warpgroup that issued it.", "wgmma.wait_group", _PTX, "Let every warpgroup that reads the slot arrive at its barrier after its own wgmma.wait_group."),
    Rule("WGMMA_WARPGROUP_DIVERGED", "error", "Some warps of a warpgroup execute an instruction of wgmma, and the others never do.", "wgmma.mma_async", _PTX, "Let all four warps of the warpgroup execute the instruction, or none."),
)  # fmt: skip
"""wgmma."""

TENSOR_MEMORY = (
    Rule("TCGEN05_COMMIT_MISSING", "error", "What tcgen05.mma, cp or shift reads or writes is used before an mbarrier of tcgen05.commit was waited for.", "tcgen05 Memory Consistency Model: canonical synchronization patterns", _PTX, "Execute tcgen05.commit to an mbarrier after the work, and wait for its phase before this."),
    Rule("TMEM_WAIT_LD_MISSING", "error", "Tensor Memory is written or freed while a tcgen05.ld may still read it: there is no tcgen05.wait::ld in between.", "tcgen05.wait", _PTX, "Execute tcgen05.wait::ld in every warp that loaded, before the columns are released."),
    Rule("TMEM_WAIT_ST_MISSING", "error", "Tensor Memory is used while a tcgen05.st may still write it: there is no tcgen05.wait::st in between.", "tcgen05.wait", _PTX, "Execute tcgen05.wait::st in every warp that stored, before the columns are used."),
    Rule("TCGEN05_UNORDERED", "error", "Tensor Memory is used after a wait of another warp for its tcgen05.ld or tcgen05.st, and nothing orders the two.", "tcgen05 Memory Consistency Model: pipelined instructions", _PTX, "Put tcgen05.fence::before_thread_sync, a barrier and tcgen05.fence::after_thread_sync between the two warps."),
    Rule("TMEM_UNALLOCATED", "error", "Columns of Tensor Memory are used that no tcgen05.alloc has allocated.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Take the columns with tcgen05.alloc, or correct the address: it is the one that alloc left in shared memory."),
    Rule("TMEM_LEAK", "error", "A block ends without freeing its Tensor Memory.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Execute tcgen05.dealloc for all columns before the block ends."),
    Rule("TMEM_AFTER_RELINQUISH", "error", "A block allocates Tensor Memory after tcgen05.relinquish_alloc_permit.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Move tcgen05.relinquish_alloc_permit after the last tcgen05.alloc."),
    Rule("TMEM_ADDR_NOT_PUBLISHED", "error", "The address that tcgen05.alloc leaves in shared memory is read, and nothing orders the read after it.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Put a barrier between tcgen05.alloc and the load of its address."),
    Rule("TMEM_DEADLOCK", "error", "tcgen05.alloc waits for columns that nobody frees.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Take fewer columns, or free those that another block or an earlier tcgen05.alloc holds."),
    Rule("TCGEN05_FENCE_MISSING", "strict", "tcgen05 operations on the same Tensor Memory are ordered by what orders threads, without tcgen05.fence::before_thread_sync before it or ::after_thread_sync after it.", "tcgen05 Memory Consistency Model: canonical synchronization patterns", _PTX, "Execute tcgen05.fence::before_thread_sync before the arrival, and ::after_thread_sync after the wait."),
    Rule("TCGEN05_ORDERED_BY_EXIT", "strict", "Tensor Memory is used after a warp waited for its tcgen05.ld or tcgen05.st and ended, and only that released the barrier between: an end is not an arrival, and orders no memory.", "barrier.cluster", _PTX, "Let the warp arrive at the barrier before it ends, after tcgen05.fence::before_thread_sync."),
    Rule("TCGEN05_NOT_PIPELINED", "strict", "Two tcgen05 operations of one thread touch the same Tensor Memory without a wait in between, and are not a pair that executes in order.", "tcgen05 Memory Consistency Model: pipelined instructions", _PTX, "Commit the first to an mbarrier and wait for it, or use other columns."),
    Rule("TMEM_LD_NO_WAIT", "strict", "Tensor Memory is written after a tcgen05.ld whose registers were used without tcgen05.wait::ld: using them orders only the registers.", "tcgen05 Memory Consistency Model: register dependencies", _PTX, "Execute tcgen05.wait::ld before Tensor Memory is written."),
    Rule("TMEM_LD_UNINITIALISED", "strict", "tcgen05.ld reads Tensor Memory that nothing has written since it was allocated.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Load the lanes and columns that were written: with M = 64 that is half of the lanes."),
    Rule("TMEM_UNINITIALISED", "error", "tcgen05.mma, cp or shift reads, or accumulates to, Tensor Memory that nothing has written since it was allocated.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Issue the first tcgen05.mma with enable-input-d false, or fill the accumulator with tcgen05.st."),
    Rule("TMEM_ALLOC_SIZE", "error", "tcgen05.alloc or dealloc has an invalid number of columns: valid are powers of two from 32 to 512.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Ask for a power of two from 32 to 512 columns, and free the same number."),
    Rule("TMEM_PEER_ORDER", "error", "A block of a pair frees Tensor Memory, and nothing orders that after the other block's tcgen05.alloc.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Execute barrier.cluster.arrive and wait in both blocks between tcgen05.alloc and tcgen05.dealloc."),
    Rule("CTA_GROUP_MISMATCH", "error", "tcgen05 instructions of one kernel have different .cta_group.", "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", _PTX, "Use one .cta_group in the whole kernel."),
)  # fmt: skip
"""tcgen05."""

LAYOUTS = (
    Rule("DESC_START", "error", "The tile that wgmma or tcgen05.mma reads does not match the stored matrix; the start address is probably not the tile's.", "Matrix Descriptor Format", _PTX, "Compare where the descriptor begins with where the tile does; the field holds the address divided by 16."),
    Rule("SWIZZLE_PHASE_1024", "error", "A swizzled tile does not begin where its pattern does (with 128 bytes a multiple of 1024), and writer and reader differ: one counts rows from the tile's beginning, the other uses the bits of the address, as TMA does.", "Matrix Descriptor Format", _PTX, "Align the tile to 1024 bytes (64-byte swizzle: 512, 32-byte: 256), or count the rows of the swizzle from such an address everywhere."),
    Rule("DESC_MAJOR", "error", "wgmma or tcgen05.mma reads a K-major matrix as MN-major, or the reverse.", "Canonical Layouts", _PTX, "Set the transpose bits of the instruction or its descriptor to how the tile lies in shared memory."),
    Rule("FRAGMENT_LAYOUT", "error", "The fragment does not match the stored matrix, or A and B do not advance through k together: the addresses of the load, their order or .trans do not fit how the tile was stored.", "Matrix Fragments for mma.m16n8k16 with floating point type", _PTX, "Compare how the tile was stored with how it is loaded: the pitch, the swizzle, the order of the lanes' addresses, .trans; the message names a change that mends the launch, if one does."),
    Rule("K_ADVANCE", "error", "A and B of products that share an accumulator do not advance through k together, or take elements twice.", "Strides", _PTX, "Advance the start address, or the addresses of ldmatrix, by the bytes of k that one product takes, in A and in B."),
    Rule("IDESC_SHAPE", "error", "tcgen05.ld reads results that no product has written, and the product before takes fewer rows of A or B than lie in shared memory; M or N of the instruction descriptor is probably too small.", "Instruction descriptor", _PTX, "Set M or N of the instruction descriptor to the rows of the operands that the product is to take: N is divided by 8 there, and M by 16."),
    Rule("OPERANDS_EXCHANGED", "error", "wgmma or tcgen05.mma reads A through the descriptor of B, which has too few rows, and B through that of A.", "Matrix Descriptor Format", _PTX, "Give the descriptor of A first, then that of B."),
    Rule("SCALE_COLUMN", "error", "tcgen05.mma reads scale factors of the other operand, of two arrays or copies, or of none; the columns are probably not those where they were put.", "Scale Factor A ID, Scale Factor B ID", _PTX, "Read the factors from the columns to which tcgen05.cp or tcgen05.st put them; each operand has its own."),
    Rule("TMEM_COLUMN", "error", "A in Tensor Memory does not match the stored matrix, or does not go with B: tcgen05.mma reads it from the wrong column.", "tcgen05.mma", _PTX, "Read A from the column where tcgen05.st or tcgen05.cp put its first element."),
)  # fmt: skip
"""Operands of products: what is found only where elements are followed (`Kernel.launch(origins=True)`, `tcsim check`)."""

BLOCKS = (
    Rule("CLUSTER_LATE_START", "error", "Shared memory of another block of the cluster is used, and nothing ensures that the block has started.", "barrier.cluster", _PTX, "Execute barrier.cluster.arrive and barrier.cluster.wait in every block before the first access to another one."),
    Rule("SMEM_REMOTE_FORM", "error", "An instruction with .shared or .shared::cta has an address of another block of the cluster: loads, stores and atomics end the launch, as on an H200, where ldmatrix does too.", "Shared State Space", _PTX, "Use .shared::cluster, or a generic address from mapa."),
    Rule("CLUSTER_EARLY_EXIT", "error", "A block ends while another one may still use its shared memory.", "barrier.cluster", _PTX, "Execute barrier.cluster.arrive and barrier.cluster.wait in every block after the last access, before it returns."),
    Rule("SETMAXNREG_OVERSUBSCRIBED", "error", "setmaxnreg waits for registers that nobody frees.", "setmaxnreg", _PTX, "Give registers back with setmaxnreg.dec in the other warpgroups first, or ask for fewer."),
    Rule("PDL_WAIT_MISSING", "error", "A dependent grid reads what the grid before it writes, without griddepcontrol.wait first.", "griddepcontrol", _PTX, "Execute griddepcontrol.wait before the first read of what the grid before it writes."),
    Rule("PDL_WRITE_BEFORE_WAIT", "error", "A dependent grid writes what the grid before it uses, without griddepcontrol.wait first.", "griddepcontrol", _PTX, "Execute griddepcontrol.wait before the first write to what the grid before it uses."),
    Rule("CLC_AFTER_NO", "error", "clusterlaunchcontrol.try_cancel is issued again after a wait for an answer that was no.", "clusterlaunchcontrol.try_cancel", _PTX, "End the loop at the first answer for which clusterlaunchcontrol.query_cancel.is_canceled is false."),
    Rule("CLC_RESPONSE_REUSED", "error", "clusterlaunchcontrol.try_cancel writes an answer where the previous one is still read.", "clusterlaunchcontrol.try_cancel", _PTX, "Let all readers of the answer arrive at an mbarrier, and let the requesting thread wait for it."),
    Rule("CLUSTER_SMEM_REUSED", "error", "A copy writes shared memory of another block that this one still uses.", "Conflict and Data-races", _PTX, "Let the other block arrive at an mbarrier, or at the cluster's barrier, when it is done with its shared memory."),
    Rule("CLUSTER_BARRIER_RELAXED", "error", "Shared memory is used that only barrier.cluster.arrive.relaxed orders with the earlier access.", "barrier.cluster", _PTX, "Remove .relaxed, or execute fence.acq_rel.cluster before the arrival."),
    Rule("CLUSTER_BARRIER_TWICE", "error", "A thread arrives twice in one phase of the cluster's barrier.", "barrier.cluster", _PTX, "Execute barrier.cluster.wait between two arrivals."),
    Rule("SETMAXNREG_DIVERGED", "error", "The warps of a warpgroup execute different setmaxnreg, or some of them none.", "setmaxnreg", _PTX, "Let all four warps of the warpgroup execute setmaxnreg, with the same count."),
    Rule("SETMAXNREG_UNORDERED", "error", "A warp executes another setmaxnreg, and nothing orders it after the previous one in the other warps of its warpgroup.", "setmaxnreg", _PTX, "Put a barrier of the four warps between two setmaxnreg: bar.sync with 128 threads."),
    Rule("SETMAXNREG_DIRECTION", "error", "setmaxnreg.dec asks for more registers than the warp has, or .inc for fewer.", "setmaxnreg", _PTX, "Use .dec to give registers back and .inc to ask for more."),
    Rule("BARRIER_COUNT", "error", "A barrier's thread count differs between arrivals, is not a multiple of 32, is exceeded by the threads that arrive, or is more than the threads still running.", "Barrier instructions: bar, barrier", _PTX, "Give every bar.sync and bar.arrive of a phase the same number of threads, a multiple of 32."),
    Rule("BARRIER_PHASE_ALIAS", "error", "A warp arrives at a barrier again, or where others have met, and nothing orders that after the end of the previous phase: the arrival can count for that phase.", "Barrier instructions: bar, barrier", _PTX, "Let those who go on from the barrier arrive at a second one that the others wait at before they arrive here again, or use another barrier."),
    Rule("BARRIER_WARP_DIVERGENCE", "error", "Threads of one warp arrive at a barrier by different .aligned instructions.", "Barrier instructions: bar, barrier", _PTX, "Let all threads of the warp execute the same bar.sync, or use barrier.sync without .aligned."),
    Rule("BARRIER_ROLE_DIVERGENCE", "strict", "Warps meet at a barrier for the whole block at different instructions, as with __syncthreads in a branch that not all take, or wait forever at different ones.", "Synchronization Functions", _CUDA, "Move __syncthreads out of the branch, or use a named barrier for the warps that take it."),
    Rule("GUARD_IGNORED", "error", "testp, a set to a float or a set of 16 bits to an integer of 32 has a guard: ptxas 12.8 to 13.5 executes testp in any case, and converts the register's value where the guard of set is false.", "Predicated Execution", _PTX, "Let it write another register without a guard, and mov from there under the guard."),
    Rule("ACCUMULATOR_OVERWRITTEN", "error", "mma of FP8 where it runs as f16 (sm_90 to sm_110): a register of c is an earlier one of d. ptxas 12.9 to 13.5 adds c register by register, and takes the sum that it has just written.", "Multiply-and-Accumulate Instruction: mma", _PTX, "Let d be the registers of c in the same order, or others."),
    Rule("WARP_INCOMPLETE", "error", "A thread does not execute an instruction that all threads of its warp or warpgroup have to execute (.sync.aligned): it has ended, its predicate is false, or the block has too few threads for the fragments of a matrix.", "Multiply-and-Accumulate Instruction: mma", _PTX, "Let threads that are done skip the work and not return, so that whole warps execute the instruction; launch a multiple of 32 threads."),
    Rule("WARP_SYNC_MASK", "error", "Some lanes execute an instruction that other lanes of the warp must execute with them, and those never do; or a lane is not in its own member mask.", "Parallel Synchronization and Communication Instructions: bar.warp.sync", _PTX, "Give the member mask of the lanes that execute the instruction, or let the others execute it too."),
)  # fmt: skip
"""Blocks and clusters."""

PERFORMANCE = (
    Rule("BARRIER_ORDERS_NOTHING", "perf", "A barrier of the whole block never orders anything: no thread has touched memory, waited or fenced since the barrier before.", "Barrier instructions: bar, barrier", _PTX, "Remove the barrier, if it orders nothing with other inputs either."),
)  # fmt: skip
"""Synchronisation that orders nothing."""

ASSEMBLER = (
    Rule("WGMMA_SERIALISED", "repaired", "ptxas runs the wgmma of a function one after the other (C7510, C7514, C7518, C7520 and others).", "notes of ptxas", _PTXAS, "Keep accumulators and fragments in registers from wgmma.fence to wgmma.wait_group, in one function, without branches that divide the warpgroup."),
    Rule("WGMMA_INJECTED", "repaired", "ptxas adds a wait or a fence that wgmma lacks (C7517, C7519 and others).", "notes of ptxas", _PTXAS, "Write the wgmma.fence or wgmma.wait_group that the note names."),
    Rule("SETMAXNREG_IGNORED", "perf", "ptxas leaves setmaxnreg out (C7504, C7507, C7508).", "notes of ptxas", _PTXAS, "Give the entry .maxntid or .maxnreg, and compile it as a whole."),
)  # fmt: skip
"""What ptxas says that it changed (`tcsim.ptx.hazards.notes`)."""

RULES = (
    FAULTS + RACES + GRID + COPIES + MBARRIERS + WARPGROUPS + TENSOR_MEMORY + LAYOUTS + BLOCKS + PERFORMANCE + ASSEMBLER
)
"""All of them: each is looked for, and has a planted defect in tests/hazards (layouts: tests/hazards/layouts; faults: tests/unit/tcsim/ptx/test_ptx_wrong_use.py; notes: tests/unit/tcsim/ptx/test_ptx_notes.py)."""
