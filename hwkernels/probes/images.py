"""What the probes of asynchronous copies share: an image of memory in and out, checked inputs, a wait that ends."""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array

LANES = 32
IMAGE_BYTES = 1024
"""Bytes of shared memory, and of the memory that a bulk copy reads or writes: all of it is recorded."""
TRIES = 1 << 20
"""How often a kernel tests a barrier before it gives up: then it stores nothing, and the poison stays in the result."""
CLUSTER_WAIT = "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64"
"""A wait for what another block of the cluster did; without a scope it is that of the block."""
_VECTOR = 16  # bytes of one access


def moves(source: str, destination: str, image_bytes: int = IMAGE_BYTES) -> list[str]:
    """Copy an image between state spaces, 16 bytes a thread at a time: `global %from` to `shared %to`, say.

    Each side is a state space and the register with its address; %lane is the thread.
    """
    (space_in, start), (space_out, end) = source.split(), destination.split()
    wide = {"global": "u64", "shared": "u32"}
    lines = ["{", ".reg .b32 %word<4>;", ".reg .u32 %step;", ".reg .u64 %wide;"]
    lines += [f".reg .{wide[space_in]} %read;", f".reg .{wide[space_out]} %write;"]
    for offset in range(0, image_bytes, _VECTOR * LANES):
        lines += [f"mad.lo.u32 %step, %lane, {_VECTOR}, {offset};", "cvt.u64.u32 %wide, %step;"]
        for space, base, name in ((space_in, start, "%read"), (space_out, end, "%write")):
            lines.append(f"add.{wide[space]} {name}, {base}, {'%wide' if space == 'global' else '%step'};")
        lines.append(f"ld.{space_in}.v4.b32 {{%word0, %word1, %word2, %word3}}, [%read];")
        lines.append(f"st.{space_out}.v4.b32 [%write], {{%word0, %word1, %word2, %word3}};")
    return [*lines, "}"]


def wait(barrier: str, spelling: str = "mbarrier.test_wait.parity.shared.b64") -> list[str]:
    """Test a barrier until its first phase ends, at most `TRIES` times; then give up and exit."""
    return [
        "{",
        ".reg .pred %over, %again;",
        ".reg .u32 %tries;",
        "mov.u32 %tries, 0;",
        "TRY:",
        f"{spelling} %over, [{barrier}], 0;",
        "@%over bra ARRIVED;",
        "add.u32 %tries, %tries, 1;",
        f"setp.lt.u32 %again, %tries, {TRIES};",
        "@%again bra TRY;",
        "exit;",
        "ARRIVED:",
        "}",
    ]


def entry(name: str, parameters: tuple[str, ...], body: list[str]) -> str:
    """PTX of an entry point whose parameters are pointers."""
    head = ", ".join(f".param .u64 {parameter}" for parameter in parameters)
    text = "\n".join(f"    {line}" for line in body)
    return f"\n.visible .entry {name}({head})\n{{\n{text}\n}}\n"


def pointer(parameter: str, stride: int, index: str = "%sample") -> list[str]:
    """%PARAMETER: the address of this sample's part of a parameter."""
    return [
        f".reg .u64 %{parameter};",
        f"ld.param.u64 %{parameter}, [{parameter}];",
        f"cvta.to.global.u64 %{parameter}, %{parameter};",
        f"mad.wide.u32 %{parameter}, {index}, {stride}, %{parameter};",
    ]


def checked(name: str, array: Array, shape: tuple[int, ...], dtype: type[np.generic]) -> Array:
    """The array as the kernel reads it.

    Raises ValueError for another shape or dtype.
    """
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{name} is {array.dtype} {array.shape}; this probe takes {np.dtype(dtype).name} {shape}")
    return np.ascontiguousarray(array)
