"""What a block takes and gives back: registers of the multiprocessor, columns of Tensor Memory, clusters that have not started."""

from __future__ import annotations

from tcsim.isa.clusterlaunchcontrol import encode_response
from tcsim.isa.setmaxnreg import RegisterPool
from tcsim.model.effects import Resource
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.inexact import Inexact
from tcsim.ptx.machine.tensor_memory import Columns
from tcsim.ptx.machine.threads import Threads
from tcsim.ptx.machine.view import ClusterView


class Resources:
    """The resources of a block. registers: of a thread at launch; 0: setmaxnreg does nothing, as ptxas leaves it out."""

    def __init__(
        self, threads: Threads, columns: Columns, registers: int, cluster: ClusterView, inexact: Inexact
    ) -> None:
        self.threads, self.columns, self.registers = threads, columns, registers
        self.cluster, self.inexact = cluster, inexact
        self.pool: RegisterPool | None = None  # of setmaxnreg

    def take(self, resource: Resource, warps: Array) -> int | None:
        """What some warps are granted, or None if it is not there."""
        if resource.kind == "registers":
            return 0 if self._registers(warps.tolist(), resource.delta) else None
        if resource.kind == "tmem":
            return self._columns(resource)
        if resource.kind == "launch":  # who comes first is the machine's own
            self.inexact.counts["clusterlaunchcontrol.try_cancel"] += self.cluster.others
            return encode_response(self.cluster.cancel())
        return 0

    def _registers(self, warps: list[int], count: int) -> bool:
        """Whether some warps get the registers that setmaxnreg asks for: each may execute an instruction of its own."""
        if not self.registers:
            return True
        pool = self.pool or RegisterPool.at_launch(self.threads.warps, self.registers)
        owned, free = list(pool.owned), pool.free - sum(count - pool.owned[warp] for warp in warps)
        if free < 0:
            return False
        for warp in warps:
            owned[warp] = count
        self.pool = RegisterPool(tuple(owned), free)
        return True

    def _columns(self, resource: Resource) -> int | None:
        """Columns of Tensor Memory; a pair of CTAs takes the same ones, when a warp of each has asked."""
        count, alone = resource.delta, resource.exclusive
        if count < 0:
            self.columns.free(resource.address & 0xFFFF, -count)
            return 0
        if not resource.pair:
            return self.columns.take(Columns.fitting([self.columns], count, alone), count)
        cluster, rank, other = self.cluster, self.threads.rank, self.threads.rank ^ 1
        if rank in cluster.granted:
            return cluster.granted.pop(rank)
        cluster.asking.add(rank)
        if other not in cluster.asking:
            return None
        both = [self.columns, cluster.blocks[other].spaces.columns]
        start = Columns.fitting(both, count, alone)
        if start is None:
            return None
        for own in both:
            own.take(start, count)
        cluster.asking -= {rank, other}
        cluster.granted[other] = start
        cluster.wake("resource")
        return start
