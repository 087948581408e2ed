"""Probes that say on which multiprocessor each of their blocks ran, and, to test the screening itself, flip a bit there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwkernels.device.driver import Launch
from hwkernels.device.toolchain import assemble
from hwkernels.probes import Array, body_of
from hwkernels.probes.probe import kernel_name, ptx_version
from hwkernels.screen.vectors import Vectors
from tcsim.model.instruction import Instruction

_PLACE = "screen_places"  # a parameter: for each block, its multiprocessor
_HEAD = f"""
    .reg .u32 %screen_sm, %screen_block;
    .reg .u64 %screen_at;
    .reg .pred %screen_here;
    mov.u32 %screen_sm, %smid;
    mov.u32 %screen_block, %ctaid.x;
    ld.param.u64 %screen_at, [{_PLACE}];
    mad.wide.u32 %screen_at, %screen_block, 4, %screen_at;
    st.global.u32 [%screen_at], %screen_sm;
"""


@dataclass(frozen=True)
class Fault:
    """A bit that is flipped in the first register of d, in the kernels' own code: what a broken multiprocessor would do."""

    multiprocessor: int
    bit: int  # of 32

    @property
    def ptx(self) -> str:
        """Before a store: `{register}` is its name."""
        return (
            f"    setp.eq.u32 %screen_here, %screen_sm, {self.multiprocessor};\n"
            f"    @%screen_here xor.b32 {{register}}, {{register}}, {1 << self.bit};\n"
        )


def pointers(text: str) -> int:
    """How many of an entry's parameters are addresses: those of the inputs and of d."""
    (parameters,) = re.findall(r"\.entry \w+\(([^)]*)\)", text)
    return sum(".u64" in item for item in parameters.split(","))


def marked(text: str, fault: Fault | None = None) -> str:
    """An entry that stores where its blocks run, at the address after d's.

    >>> print(marked(".visible .entry f(.param .u64 d, .param .u32 n)\\n{\\n}").splitlines()[0])
    .visible .entry f(.param .u64 d, .param .u64 screen_places, .param .u32 n)
    """
    parts = re.split(r"(\.entry \w+\()([^)]*)(\)[^{]*\{)", text, maxsplit=1)
    parameters = [item.strip() for item in parts[2].split(",")]
    parameters.insert(pointers(text), f".param .u64 {_PLACE}")
    body = parts[4]
    if fault is not None:
        store = re.search(r"^ *st\.global\.\w+ \[[^\]]*\], (%\w+);", body, re.MULTILINE)
        if store is None:
            raise ValueError("the kernel stores no register")
        body = body[: store.start()] + fault.ptx.format(register=store[1]) + body[store.start() :]
    return "".join([parts[0], parts[1], ", ".join(parameters), parts[3], _HEAD, body])


def assembled(
    instructions: Sequence[Instruction], target: str, variants: Mapping[str, str], fault: Fault | None = None
) -> bytes:
    """The machine code of all marked probes. variants: the form of each, by mnemonic. Raises ToolchainError, AssembleError."""
    rows = [item.row for item in instructions]
    head = f".version {ptx_version(rows, target)}\n.target {target}\n.address_size 64\n"
    kernels = (
        body_of(row).kernel_on(row, kernel_name(row, variants[row.mnemonic]), variants[row.mnemonic], target)
        for row in rows
    )
    return assemble(head + "".join(marked(text, fault) for text in kernels), target).cubin


def variant_of(given: Vectors) -> str:
    """The form of the probe that a batch needs."""
    row = given.instruction.row
    return body_of(row).plan(row, given.inputs).variant


def launch_of(given: Vectors, cubin: bytes, groups: Array) -> Launch:
    """A launch whose blocks take these groups of vectors: (blocks,), numbers of groups."""
    row = given.instruction.row
    each = per_block(given)
    samples = (np.asarray(groups)[:, None] * each + np.arange(each)).reshape(-1)
    plan = body_of(row).plan(row, {name: array[samples] for name, array in given.inputs.items()})
    launch = Launch(
        cubin=cubin, kernel=kernel_name(row, plan.variant), inputs=plan.inputs,
        outputs=(plan.output, ((len(groups),), np.uint32)), scalars=plan.scalars, grid=plan.grid, block=plan.block,
        shared_bytes=plan.shared_bytes,
    )  # fmt: skip
    if launch.grid != (len(groups), 1, 1):
        raise ValueError(f"{row.mnemonic}: {len(groups)} groups in a grid of {launch.grid}")
    return replace(launch, cubin=cubin)


def per_block(given: Vectors) -> int:
    """Samples of one block: a warpgroup's, or four warps'."""
    return 1 if "image" in given.inputs else 4
