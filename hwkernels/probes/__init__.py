"""What a probe kernel does around its one instruction, by family."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tcsim.model.instruction import Instruction
from tcsim.model.row import Row

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
    cluster: tuple[int, int, int] | None = None  # CTAs of a cluster
    tensor_maps: tuple[bytes, ...] = ()  # parameters after the scalars
    tensor_map_buffers: tuple[int | None, ...] = ()  # as in `hwkernels.device.driver.Launch`
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


@runtime_checkable
class ByTarget(Protocol):
    """A body some of whose operand forms not every target of the row has."""

    def forms_on(self, row: Row, target: str) -> tuple[str, ...]:
        """Those of its variants that a target has."""
        ...


@runtime_checkable
class FormBody(ByTarget, Protocol):
    """A body whose operand forms differ by target, and in the machine code that they must hold."""

    def version_on(self, row: Row, target: str) -> str:
        """The lowest PTX ISA version that has them."""
        ...

    def kernel_on(self, row: Row, name: str, variant: str, target: str) -> str:
        """PTX of one entry point for a target."""
        ...

    def complaint(self, instruction: Instruction, variant: str, target: str, counts: Mapping[str, int]) -> str:
        """What is wrong with the machine code of a form, of which these opcodes occur so often; or nothing."""
        ...


@cache
def bodies() -> dict[str, Body]:
    """The probe body of each family: what the modules of this package say in `BODIES`."""
    found: dict[str, Body] = {}
    for item in pkgutil.iter_modules(__path__, f"{__name__}."):
        found |= getattr(importlib.import_module(item.name), "BODIES", {})
    return found


def body_of(row: Row) -> Body:
    """The probe body of a row's family.

    Raises ValueError if the family has none.
    """
    if row.family not in bodies():
        raise ValueError(f"no probe for family {row.family}; valid: {', '.join(bodies())}")
    return bodies()[row.family]


def scaffold_of(row: Row) -> dict[str, int]:
    """Opcodes that a row's probe needs around the instruction, and how often; most need none.

    A body whose kernels need some has a method `scaffold(row)`.
    """
    scaffold: dict[str, int] = getattr(body_of(row), "scaffold", lambda _: {})(row)
    return scaffold


def grid_of(threads: int) -> tuple[int, int, int]:
    """Blocks of `BLOCK_THREADS` that cover a number of threads."""
    return (-(-threads // BLOCK_THREADS), 1, 1)
