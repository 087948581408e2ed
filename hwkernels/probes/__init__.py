"""What a probe kernel does around its one instruction, by family."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.versions import latest
from tcsim.model.form import Form
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


TENSOR_OPCODES = (
    "HMMA", "QMMA", "OMMA", "IMMA", "BMMA", "DMMA", "HGMMA", "QGMMA", "IGMMA", "BGMMA", "UTC", "LDTM", "STTM",
)  # fmt: skip
"""SASS opcodes (or their beginnings) that run on the tensor core or move its memory."""


class Body:
    """The probe of a family: the kernel of each form, and how a batch is launched. What is common to most is said here.

    `row` is a row of the family: a body annotates it with the family's subclass of Row.
    """

    ptx_version: str = "1.0"  # lowest `.version` of what a kernel needs around the instruction
    watched: tuple[str, ...] = TENSOR_OPCODES  # opcodes (or their beginnings) that occur only if claimed

    def variants(self, row: Any) -> tuple[str, ...]:
        """The entry points of a row: one for each of its forms, named after it."""
        return tuple(dict.fromkeys(variant_of(form) for form in row.forms))

    def forms_on(self, row: Any, target: str) -> tuple[str, ...]:
        """Those of its variants that a target has: all but the forms that it does not have."""
        own = {variant_of(form) for form in row.forms if target in form.targets}
        absent = {variant_of(form) for form in row.forms} - own
        return tuple(variant for variant in self.variants(row) if variant not in absent)

    def version_on(self, row: Any, target: str) -> str:
        """The lowest PTX ISA version of all its forms on a target, and of what the kernels need around them."""
        forms = [form.ptx_version for form in row.forms if target in form.targets]
        return latest(row.ptx_version, self.ptx_version, *forms)

    def kernel(self, row: Any, name: str, variant: str) -> str:
        """PTX of one entry point, called `name`."""
        raise NotImplementedError

    def kernel_on(self, row: Any, name: str, variant: str, target: str) -> str:
        """PTX of one entry point for a target; for a body whose kernels differ by target."""
        return self.kernel(row, name, variant)

    def plan(self, row: Any, inputs: dict[str, Array]) -> Plan:
        """The launch of a batch of inputs: arrays whose first axis is the warp (or the thread)."""
        raise NotImplementedError

    def scaffold(self, row: Any) -> dict[str, int]:
        """Opcodes that a kernel needs around the instruction, and how often; most need none."""
        return {}

    def claimed(self, instruction: Any, variant: str, target: str) -> Mapping[str, int]:
        """Opcodes of a kernel, and how often each occurs: the lowering's, and those around it."""
        claimed = Counter(dict(instruction.lowering.opcodes))
        claimed.update(self.scaffold(instruction.row))
        return claimed

    def complaint(self, instruction: Any, variant: str, target: str, counts: Mapping[str, int]) -> str:
        """What is wrong with the machine code of a kernel, whose opcodes occur this often; or nothing."""
        return opcode_differences(self.claimed(instruction, variant, target), counts, self.watched)


def opcode_differences(claimed: Mapping[str, int], counts: Mapping[str, int], watched: tuple[str, ...]) -> str:
    """How the opcodes of a kernel differ from those claimed; others matter only if they begin as one that is watched.

    >>> opcode_differences({"HMMA.16816.F32": 1}, {"HMMA.16816.F32": 2, "HMMA.1688.F32": 1, "MOV": 7}, ("HMMA",))
    'HMMA.16816.F32 2 times instead of 1; HMMA.1688.F32 1 times, which is not claimed'
    """
    wrong = [
        f"{opcode} {counts.get(opcode, 0)} times instead of {times}"
        for opcode, times in claimed.items()
        if counts.get(opcode, 0) != times
    ]
    wrong += [
        f"{opcode} {times} times, which is not claimed"
        for opcode, times in sorted(counts.items())
        if opcode.startswith(watched) and opcode not in claimed
    ]
    return "; ".join(wrong)


def variant_of(form: Form) -> str:
    """The name of a form as part of a kernel's name.

    >>> variant_of(Form((), ("sm_90",), "8.0", name="sink+count"))
    'sink_count'
    """
    return re.sub(r"\W+", "_", form.name.replace("=", ""))


def form_of(row: Row, variant: str) -> Form:
    """The form that an entry point uses.

    Raises ValueError if the row has none of that name.
    """
    for form in row.forms:
        if variant_of(form) == variant:
            return form
    valid = ", ".join(repr(variant_of(form)) for form in row.forms)
    raise ValueError(f"{row.mnemonic} has no form {variant!r}; valid: {valid}")


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


def grid_of(threads: int) -> tuple[int, int, int]:
    """Blocks of `BLOCK_THREADS` that cover a number of threads."""
    return (-(-threads // BLOCK_THREADS), 1, 1)
