"""Two accesses to one word that nothing orders, by name: what is missing follows from what the two are."""

from __future__ import annotations

from dataclasses import dataclass

from tcsim.ptx.check.operations import READ, WRITTEN, Operation, Operations

RACES = {(False, "written"): "SMEM_RACE_RAW", (True, "written"): "SMEM_RACE_WAW", (True, "read"): "SMEM_RACE_WAR"}
"""By whether the access now writes, and what came before."""


@dataclass(frozen=True)
class Name:
    """A rule, and what is missing, in words."""

    rule: str
    missing: str
    line: int = 0  # of another instruction than the access, where that is what is wrong


_FENCE = "no fence.proxy.async is between"
_LANES = {
    "": "no bar.warp.sync or barrier is between the lanes",
    "unheard ": "another lane waited for what orders them, and no bar.warp.sync or barrier is behind the wait",
    "untold ": "another lane arrived for the one that did it, and no bar.warp.sync or barrier is before the arrival",
}
"""What lanes of one warp lack, by how the two accesses are ordered apart from that."""
_APART = {"apart": "WARP_SYNC_MISSING", "joined": "WARP_SYNC_COLLECTIVE"}
BY_INSTRUCTION = (
    "written", "read", "parted", "unfenced", "unfenced write", "unfenced read",
    *(f"{how} {name}{does}" for how in _APART for name in _LANES for does in ("written", "read")),
)  # fmt: skip
"""Kinds of conflict with what an instruction of a warp did, not an operation."""
PLAIN = {
    **{
        f"{how} {name}{does}": Name(_APART[how], _LANES[name])
        for how in _APART
        for name in _LANES
        for does in ("written", "read")
    },
    **{
        f"{how} {does}": Name(_APART[how], "another lane waited for it, and no bar.warp.sync or barrier is between")
        for how in _APART
        for does in ("landed", "fetched")
    },
    "parted": Name("WGMMA_WARPS_APART", "no barrier is between that and the other warps of the warpgroup"),
    "unfenced": Name("PROXY_FENCE_MISSING", _FENCE),
    "unfenced write": Name("PROXY_FENCE_WAR", _FENCE),
    "unfenced read": Name("PROXY_FENCE_WAR", _FENCE),
    "unfenced operation": Name("PROXY_FENCE_CP_ASYNC", "no fence.proxy.async is between its wait and this"),
    "depended": Name("TMEM_LD_NO_WAIT", "its registers were needed, but no tcgen05.wait::ld is between"),
    "unpipelined": Name("TCGEN05_NOT_PIPELINED", "no wait is between, and the two are no pipelined pair"),
}
"""By kind: what needs no look at the two accesses."""
GLOBAL = {
    "unfenced": Name("PROXY_FENCE_GLOBAL", _FENCE),
    "written": Name("GMEM_RACE", "nothing orders them"),
    "read": Name("GMEM_RACE", "nothing orders them"),
    "landed": Name("TMA_STORE_NOT_VISIBLE", "no cp.async.bulk.wait_group, without .read, is between"),
    "fetched": Name("TENSORMAP_MODIFIED", "it is a tensor map in use until the copy is done"),
}
"""In global memory, by kind."""
TENSOR_FENCE = Name(
    "TCGEN05_FENCE_MISSING", "no tcgen05.fence::before_thread_sync and ::after_thread_sync are around what orders them"
)
EXIT = Name("TCGEN05_ORDERED_BY_EXIT", "its warp waited for it and ended, and only that released the barrier between")
WAITED = ("tcgen05.ld", "tcgen05.st")
"""Kinds of work that is complete once its warp has waited for it, whoever else knows."""
_UNDEFINED = "what is there is not defined"


def uninitialised(space: str, by: Operation | None) -> Name:
    """Of a read of what nobody wrote; by: the operation that reads, if it is one."""
    if space != "tmem":
        return Name("SMEM_UNINITIALISED", _UNDEFINED)
    loads = by is not None and by.kind == "tcgen05.ld"
    return Name("TMEM_LD_UNINITIALISED" if loads else "TMEM_UNINITIALISED", _UNDEFINED)


def race(writes: bool, kind: str, address: bool = False) -> Name:
    """Of two ordinary accesses. address: the earlier one is where tcgen05.alloc leaves what it took."""
    if address:
        return Name("TMEM_ADDR_NOT_PUBLISHED", "no barrier is between")
    return Name(RACES[writes, kind], "nothing orders them: no barrier is between")


def against_landing(
    earlier: Operation, operations: Operations, committed: bool, given_back: bool, by: Operation | None, writes: bool
) -> Name:
    """Of an access to what an operation writes. by: the operation that accesses it, if it is one.

    given_back: whether who issued the operation told this one something afterwards: then a wait that came later was too late.
    """
    waited = operations.is_seen(earlier, WRITTEN) and not given_back
    kind = earlier.kind
    if kind == "mbarrier":
        return Name("MBAR_OVERWRITTEN", "the object is in use until mbarrier.inval")
    if kind == "cp.async":
        if waited:
            return race(writes, "written")
        if by is not None and by.kind == "cp.async":
            return Name("CP_ASYNC_WAW", "no cp.async.wait_group is between")
        if not committed:
            return Name(
                "CP_ASYNC_UNCOMMITTED", "no cp.async.commit_group follows the copy, so that no wait_group waits for it"
            )
        return Name("CP_ASYNC_WAIT_MISSING", "no wait covers its group")
    if kind == "tcgen05":
        return Name("TCGEN05_COMMIT_MISSING", "no mbarrier that tcgen05.commit arrived at was waited for")
    if kind == "tcgen05.st":
        return Name("TCGEN05_UNORDERED" if waited else "TMEM_WAIT_ST_MISSING", _ordered(waited, "tcgen05.wait::st"))
    if writes:
        return Name("ASYNC_DST_WRITTEN", "its mbarrier was not waited for")
    return Name("ASYNC_DST_READ", "its mbarrier was not waited for")


def against_fetch(earlier: Operation, operations: Operations, committed: bool, given_back: bool) -> Name:
    """Of a write to what an operation reads. given_back: as of `against_landing`."""
    waited = operations.is_seen(earlier, READ) and not given_back
    kind = earlier.kind
    if kind == "wgmma":
        if waited:
            return Name("WGMMA_WAIT_OTHER_WARPGROUP", "only the warpgroup that issued it waited; no barrier is between")
        if earlier.passed_over and committed:
            return Name("WGMMA_WAIT_DEPTH", "wgmma.wait_group leaves its group pending")
        return Name("WGMMA_NO_COMMIT_WAIT_BEFORE_REUSE", "no wgmma.commit_group and wgmma.wait_group are between")
    if kind == "bulk":
        if waited:
            return Name("SMEM_RACE_WAR", "only the thread that issued it waited; no barrier is between")
        if not committed and earlier.passed_over:
            return Name(
                "BULK_GROUP_UNCOMMITTED", "no cp.async.bulk.commit_group follows, so that no wait_group waits for it"
            )
        if earlier.elsewhere and not earlier.passed_over:
            return Name("BULK_WAIT_WRONG_THREAD", "a thread waited for its own groups, not the one that issued it")
        return Name("TMA_STORE_SRC_REUSED", "no cp.async.bulk.wait_group that covers its group is between")
    if kind == "tcgen05":
        return Name("TCGEN05_COMMIT_MISSING", "no mbarrier that tcgen05.commit arrived at was waited for")
    if kind == "tcgen05.ld":
        return Name("TCGEN05_UNORDERED" if waited else "TMEM_WAIT_LD_MISSING", _ordered(waited, "tcgen05.wait::ld"))
    return Name("ASYNC_SRC_MODIFIED", "its mbarrier was not waited for")


def _ordered(waited: bool, wait: str) -> str:
    return "no barrier follows its wait, or a relaxed one without tcgen05.fence" if waited else f"no {wait} is between"
