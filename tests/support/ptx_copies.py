"""Small PTX kernels of barriers and copies, and a launch that gives what they wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.ptx import Memory, Run, parse

Bytes = npt.NDArray[np.uint8]
SCHEDULES = ("late", "early", 1, 7)

REGISTERS = """
    .reg .pred %p<16>; .reg .b16 %h<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<16>;
    mov.u32 %r0, %tid.x;
"""
"""Declarations of every kernel; its registers from %r0, the thread's number, on."""


def text(params: str, body: str, target: str = "sm_90a", shared: int = 16384, directives: str = "") -> str:
    """A module of one kernel `k`, with an array `smem` of shared memory aligned to 1024 bytes."""
    return f""".version 8.8
.target {target}
.address_size 64
.visible .entry k({params}) {directives}
{{
    .shared .align 1024 .b8 smem[{shared}];
{REGISTERS}{body}
    ret;
}}
"""


def wait(name: str, barrier: str, parity: str, predicate: str = "%p15") -> str:
    """A loop that waits for a phase of a barrier."""
    return f"""
    {name}:
    mbarrier.try_wait.parity.shared::cta.b64 {predicate}, [{barrier}], {parity};
    @!{predicate} bra {name};
"""


def run(
    source: str, memory: Mapping[int, Any], params: Sequence[Any], schedule: str | int, block: int = 32,
    grid: int = 1, cluster: int = 1, after: Run | None = None,
) -> tuple[Run, dict[int, Bytes]]:  # fmt: skip
    """Launch a kernel over mapped memory: the run, and the memory after it by address."""
    image = Memory()
    arrays = {address: np.ascontiguousarray(data).view(np.uint8).reshape(-1) for address, data in memory.items()}
    for address, data in arrays.items():
        image.map(address, data)
    found = parse(source).kernel().launch(
        image, params, grid=(grid, 1, 1), block=(block, 1, 1), cluster=(cluster, 1, 1), schedule=schedule, after=after
    )  # fmt: skip
    return found, {address: image.read(address, len(data)) for address, data in arrays.items()}
