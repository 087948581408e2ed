"""What a probe kernel does around its one instruction, by family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tcsim.registry import Row

Array = npt.NDArray[Any]
BLOCK_THREADS = 128  # four warps a block, where nothing else is needed


@dataclass(frozen=True)
class Plan:
    """How a batch is launched: the kernel's parameters are the inputs, the output, then the scalars."""

    inputs: tuple[Array, ...]
    output: tuple[tuple[int, ...], np.dtype[Any]]  # shape and dtype
    scalars: tuple[np.generic, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    variant: str = ""  # which operand form
    shared_bytes: int = 0  # dynamic shared memory of a block
    tensor_maps: tuple[bytes, ...] = ()  # parameters after the scalars
    tensor_map_buffers: tuple[int | None, ...] = ()  # as in `hwkernels.driver.Launch`
    driver_map_table: int | None = None  # which input is a table of tensor maps
    driver_maps: bool = False  # the driver encodes tensor maps anew


class Body(Protocol):
    """The probe of a family."""

    def variants(self, row: Row) -> tuple[str, ...]:
        """The operand forms of a row, each an entry point of its own; ("",) if there is one."""
        ...

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of one entry point."""
        ...

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """The launch of a batch of inputs: arrays whose first axis is the warp (or the thread)."""
        ...


def body_of(row: Row) -> Body:
    """The probe body of a row's family.

    Raises ValueError if the family has none.
    """
    from hwkernels.probes import elementwise, matrix_move, memory_tile, registers, tensor_copy, tensormap, warpgroup

    bodies: dict[str, Body] = {
        "mma.sync": registers.BODY,
        "mma.sp": registers.SPARSE,
        "wgmma": warpgroup.BODY,
        "ldmatrix": matrix_move.LOAD,
        "stmatrix": matrix_move.STORE,
        "movmatrix": matrix_move.TRANSPOSE,
        "wmma.load": memory_tile.LOAD,
        "wmma.store": memory_tile.STORE,
        "wmma.mma": registers.BODY,
        "cvt": elementwise.BODY,
        "cp.async.bulk.tensor": tensor_copy.BODY,
        "cp.reduce.async.bulk.tensor": tensor_copy.BODY,
        "cp.async.bulk.prefetch.tensor": tensor_copy.BODY,
        "tensormap": tensormap.BODY,
    }
    if row.family not in bodies:
        raise ValueError(f"no probe for family {row.family}; valid: {', '.join(bodies)}")
    return bodies[row.family]


def grid_of(threads: int) -> tuple[int, int, int]:
    """Blocks of `BLOCK_THREADS` that cover a number of threads."""
    return (-(-threads // BLOCK_THREADS), 1, 1)
