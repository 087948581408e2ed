"""What a block takes and gives back: registers of the multiprocessor, columns of Tensor Memory, clusters that have not started."""

from __future__ import annotations

from tcsim.isa.clusterlaunchcontrol import encode_response
from tcsim.isa.setmaxnreg import RegisterPool
from tcsim.model.effects import Resource
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.faults import Unbatchable
from tcsim.ptx.machine.inexact import Inexact
from tcsim.ptx.machine.spaces import Spaces
from tcsim.ptx.machine.tensor_memory import Columns
from tcsim.ptx.machine.threads import Threads
from tcsim.ptx.machine.view import ClusterView


class Resources:
    """The resources of a block, or of each of a batch. registers: of a thread at launch; 0: setmaxnreg does nothing, as ptxas leaves it out."""

    def __init__(
        self, threads: Threads, spaces: Spaces, registers: int, cluster: ClusterView, inexact: Inexact
    ) -> None:
        self.threads, self.spaces, self.registers = threads, spaces, registers
        self.cluster, self.inexact = cluster, inexact
        self.pools: dict[int, RegisterPool] = {}  # of setmaxnreg

    def take(self, resource: Resource, warps: Array, block: int) -> int | None:
        """What some warps of a block are granted, or None if it is not there."""
        if resource.kind == "registers":
            return 0 if self._registers(warps.tolist(), resource.delta, block) else None
        if resource.kind == "tmem":
            return self._columns(resource, block)
        if resource.kind == "launch":  # who comes first is the machine's own
            if self.threads.batch > 1:
                raise Unbatchable("blocks cancel others")
            self.inexact.counts["clusterlaunchcontrol.try_cancel"] += self.cluster.others
            return encode_response(self.cluster.cancel())
        return 0

    def _registers(self, warps: list[int], count: int, block: int) -> bool:
        """Whether some warps get the registers that setmaxnreg asks for: each may execute an instruction of its own."""
        if not self.registers:
            return True
        pool = self.pools.get(block) or RegisterPool.at_launch(self.threads.warps, self.registers)
        owned, free = list(pool.owned), pool.free - sum(count - pool.owned[warp] for warp in warps)
        if free < 0:
            return False
        for warp in warps:
            owned[warp] = count
        self.pools[block] = RegisterPool(tuple(owned), free)
        return True

    def _columns(self, resource: Resource, block: int) -> int | None:
        """Columns of Tensor Memory; a pair of CTAs takes the same ones, when a warp of each has asked."""
        count, alone, columns = resource.delta, resource.exclusive, self.spaces.columns_of[block]
        if count < 0:
            columns.free(resource.address & 0xFFFF, -count)
            return 0
        if not resource.pair:
            return columns.take(Columns.fitting([columns], count, alone), count)
        cluster, own, other = self.cluster, (block, self.threads.rank), (block, self.threads.rank ^ 1)
        if own in cluster.granted:
            return cluster.granted.pop(own)
        cluster.asking.add(own)
        if other not in cluster.asking:
            return None
        both = [columns, cluster.blocks[other[1]].spaces.columns_of[block]]
        start = Columns.fitting(both, count, alone)
        if start is None:
            return None
        for each in both:
            each.take(start, count)
        cluster.asking -= {own, other}
        cluster.granted[other] = start
        cluster.wake("resource", None, block)
        return start
