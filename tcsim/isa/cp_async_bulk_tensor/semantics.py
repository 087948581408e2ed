"""The tensor copy instructions: what each spelling of cp.async.bulk.tensor and its relatives does with a tensor map."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tcsim.core.addresses import Bytes
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row
from tcsim.tma.map import TensorMap
from tcsim.tma.types import SWIZZLE_MODES, NotModelledError, TensorMapError

_MAPS = {"": "tiled", "im2col": "im2col", "im2col_wide": "im2col-wide"}
_CONSTRUCTORS = {"": "TensorMap", "im2col": "TensorMap.im2col", "im2col_wide": "TensorMap.im2col_wide"}


@dataclass(frozen=True, kw_only=True)
class TensorCopyRow(Row):
    """A row of tensor copies; its operation is the direction: "load", "store", "reduce" or "prefetch"."""

    dim: int  # .1d to .5d
    mode: str  # the load mode without its dot: "tile", "tile::gather4", "im2col", "im2col_no_offs", ...
    map_mode: Literal["", "im2col", "im2col_wide"] = ""  # the kind of map it takes, as TensorMap.im2col_mode
    wide_mode: str = ""  # of the im2col-wide map that it takes, as TensorMap.wide_mode
    rows4: bool = False  # the coordinates are a column and four rows
    op: str = ""  # of a reduction
    unmodelled: str = ""  # why execution is not modelled

    @property
    def coordinates(self) -> int:
        """How many coordinates the instruction takes."""
        return self.forms[0]["tensor_map"].count

    @property
    def offsets(self) -> int:
        """How many 16-bit im2col numbers the instruction takes."""
        return self.forms[0]["offsets"].count if self.has("offsets") else 0


@dataclass(frozen=True, eq=False, repr=False)
class TensorCopy(Instruction):
    """An instruction that moves a box between global and shared memory."""

    row: TensorCopyRow

    def check_map(self, tensor_map: Any) -> TensorMap:
        """A map that the instruction takes on this arch; of .im2col::w::128 always one of mode W128.

        That it takes one of mode W for that: NumSim (mlc-ai/TIRx-harness), whose authors checked it on an sm_100.

        Raises TensorMapError for another rank or kind of map, or for a data type or swizzle of sm_100 on an earlier arch;
        NotModelledError for a spelling, or a spelling of such a map, whose effect is not documented.
        """
        call, row = self._call, self.row
        if row.unmodelled:
            raise NotModelledError(f"{call}: not modelled: {row.unmodelled}")
        if not isinstance(tensor_map, TensorMap):
            raise TensorMapError(f"{call}: tensor_map is a {type(tensor_map).__name__}; valid: a tcsim.TensorMap")
        if tensor_map.rank != row.dim:
            raise TensorMapError(f"{call}: {tensor_map} has {tensor_map.rank} dimensions; .{row.dim}d needs {row.dim}")
        if tensor_map.im2col_mode != row.map_mode:
            raise TensorMapError(
                f"{call}: {tensor_map} is a {_MAPS[tensor_map.im2col_mode]} map; .{row.mode} needs one of "
                f"{_CONSTRUCTORS[row.map_mode]}"
            )
        if (tensor_map.wide_mode, row.wide_mode) == ("W128", "W"):
            raise NotModelledError(
                f"{call}: not modelled: {tensor_map} of mode W128 with .{row.mode}: how many pixels it loads is not documented; "
                "known: a map of mode W"
            )
        if tensor_map.wide_mode != row.wide_mode:  # a map of mode W, whose pixels .im2col::w::128 ignores
            tensor_map = replace(tensor_map, wide_mode=row.wide_mode)
        new = tensor_map.type.packed or SWIZZLE_MODES[tensor_map.swizzle].atomicity
        if new and self.arch.number < 100:
            what = tensor_map.data_type if tensor_map.type.packed else f"swizzle {tensor_map.swizzle}"
            raise TensorMapError(f"{call}: {tensor_map}: {what} needs sm_100 or later")
        if new and self.arch.number >= 120 and row.operation == "load":
            raise TensorMapError(
                f"{call}: {tensor_map}: on {self.arch.name} loads take no sub-byte types and no swizzle atomicity (PTX ISA, "
                "restrictions on tensor copies)"
            )
        return tensor_map


@dataclass(frozen=True, eq=False, repr=False)
class TensorLoad(TensorCopy):
    """cp.async.bulk.tensor, global to shared."""

    def transaction_bytes(self, tensor_map: TensorMap, halo: int = 0) -> int:
        """Bytes that the mbarrier must expect: `TensorMap.transaction_bytes`, of .tile::gather4 four rows.

        halo: wHalo of .im2col::w and .im2col::w::128; each of its pixels adds `TensorMap.halo_bytes`.

        Raises as `check_map` does.
        """
        tmap = self.check_map(tensor_map)
        return tmap.transaction_bytes * (4 if self.row.rows4 else 1) + halo * tmap.halo_bytes

    def execute(
        self, tensor_map: TensorMap, memory: Any, coordinates: Any, smem: Any, address: Any = 0, offsets: Any = None
    ) -> Bytes:
        """The new shared memory of a destination CTA: with .multicast every CTA of the mask gets the same.

        Operands as for `TensorMap.load`; coordinates (..., 5) with .tile::gather4. Cache policy, CTA mask and mbarrier have
        no effect on bytes; `transaction_bytes` is what the mbarrier counts.

        Raises as `check_map` and `TensorMap.load` do.

        >>> load = tcsim.instruction("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes", arch="sm_90")
        >>> rows = tcsim.TensorMap("UINT16", (16, 4), (32,), (8, 2), swizzle="NONE")
        >>> memory = np.arange(64, dtype=np.uint16).view(np.uint8)
        >>> load.execute(rows, memory, (8, 1), np.zeros(128, np.uint8)).view(np.uint16)[6:10].tolist()
        [30, 31, 40, 41]
        """
        tmap = self.check_map(tensor_map)
        if self.row.rows4:
            return tmap.gather4(memory, coordinates, smem, address)
        return tmap.load(memory, coordinates, smem, address, offsets)


@dataclass(frozen=True, eq=False, repr=False)
class TensorStore(TensorCopy):
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor, shared to global."""

    def execute(self, tensor_map: TensorMap, memory: Any, coordinates: Any, smem: Any, address: Any = 0) -> Bytes:
        """The new global memory. Operands as for `TensorMap.store`; coordinates (..., 5) with .tile::scatter4.

        Raises as `check_map`, `TensorMap.store` and `TensorMap.reduce` do.

        >>> add = tcsim.instruction("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group", arch="sm_90")
        >>> smem = np.uint32([1, 2, 3, 4] * 8).view(np.uint8)
        >>> counts = tcsim.TensorMap("UINT32", (4,), (), (4,), swizzle="NONE")
        >>> add.execute(counts, np.uint32([5, 5, 5, 5]).view(np.uint8), (0,), smem).view(np.uint32).tolist()
        [6, 7, 8, 9]
        """
        tmap, row = self.check_map(tensor_map), self.row
        if row.op:
            return tmap.reduce(row.op, memory, coordinates, smem, address)
        return (tmap.scatter4 if row.rows4 else tmap.store)(memory, coordinates, smem, address)


@dataclass(frozen=True, eq=False, repr=False)
class TensorPrefetch(TensorCopy):
    """cp.async.bulk.prefetch.tensor and applypriority: hints to the L2 cache."""

    def execute(self, tensor_map: TensorMap) -> None:
        """Nothing: the instruction changes no memory.

        Raises as `check_map` does.

        >>> prefetch = tcsim.instruction("cp.async.bulk.prefetch.tensor.1d.L2.global", arch="sm_90")
        >>> prefetch.execute(tensor_map=tcsim.TensorMap("FLOAT16", (64,), (), (64,), swizzle="NONE"))
        """
        self.check_map(tensor_map)


CLASSES: dict[str, type[TensorCopy]] = {
    "load": TensorLoad,
    "store": TensorStore,
    "reduce": TensorStore,
    "prefetch": TensorPrefetch,
}
"""What executes a row, by its operation."""
