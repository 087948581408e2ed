"""Probes of tcgen05.cp and tcgen05.shift: Tensor Memory is filled, one thread issues the instruction, all cells come out.

Inputs by name, first axis the sample, one CTA or pair of CTAs each: `tmem` uint32 (samples, ctas, 128, columns),
`offset` uint32 (samples,) that is added to the address of the allocation, and for cp `smem` uint8 (samples, ctas, bytes) and
`descriptor` uint64 (samples,), which counts addresses from the start of the image; that lies at a multiple of 1024 bytes.
Output: all cells.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes import tmem_kernel as kernel
from tcsim.isa.tcgen05.cp import CopyRow, PairRow

COLUMNS = 32
IMAGE_BYTES = 24576


class CopyBody(Body):
    """tmem = tcgen05.cp(tmem, address, smem, descriptor)."""

    def scaffold(self, row: CopyRow) -> dict[str, int]:
        """Opcodes around the instruction."""
        return _scaffold(row.cta_group)

    def kernel(self, row: CopyRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        group = row.cta_group
        image = f"image_{name}"
        body = [
            ".reg .u32 %image, %to;",
            ".reg .u64 %descriptor, %base;",
            *kernel.barrier(),
            *kernel.allocate(COLUMNS, group),
            *kernel.fill("tmem", COLUMNS),
            f"mov.u32 %image, {image};",
            f"mul.wide.u32 %here, %cta, {IMAGE_BYTES};",
            "add.u64 %here, %here, %at_smem;",
            "mad.wide.u32 %here, %lane, 16, %here;",
            "mad.lo.u32 %to, %lane, 16, %image;",
            *(
                line
                for step in range(0, IMAGE_BYTES, 16 * kernel.THREADS)
                for line in (
                    f"ld.global.v4.b32 {{%block0, %block1, %block2, %block3}}, [%here+{step}];",
                    f"st.shared.v4.b32 [%to+{step}], {{%block0, %block1, %block2, %block3}};",
                )
            ),
            "fence.proxy.async.shared::cta;",
            *_address(group),
            "mad.wide.u32 %here, %column, 8, %at_descriptor;",
            "ld.global.u64 %descriptor, [%here];",
            "shr.u32 %image, %image, 4;",
            "cvt.u64.u32 %base, %image;",
            "add.u64 %descriptor, %descriptor, %base;",
            *kernel.meet(group),
            *kernel.first_thread(group),
            row.forms[0].statement(row.mnemonic, {"address": "%at"}),
            *kernel.signal_and_wait(group),
            *kernel.read_back("d", COLUMNS),
            *kernel.free(COLUMNS, group),
        ]
        shared = f".extern .shared .align 1024 .b8 {image}[];\n"
        return kernel.entry(name, ("tmem", "offset", "smem", "descriptor", "d"), body, group, shared)

    def plan(self, row: CopyRow, inputs: dict[str, Array]) -> Plan:
        """One CTA, or one pair, a sample."""
        smem = np.ascontiguousarray(inputs["smem"], np.uint8)
        if smem.shape[-1] != IMAGE_BYTES:
            raise ValueError(f"an image has {IMAGE_BYTES} bytes, not {smem.shape[-1]}")
        extra = (smem, np.ascontiguousarray(inputs["descriptor"], np.uint64))
        return _plan(row, inputs, extra, IMAGE_BYTES + 1024)


class ShiftBody(Body):
    """tmem = tcgen05.shift(tmem, address)."""

    def scaffold(self, row: PairRow) -> dict[str, int]:
        """Opcodes around the instruction."""
        return _scaffold(row.cta_group)

    def kernel(self, row: PairRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        group = row.cta_group
        body = [
            *kernel.barrier(),
            *kernel.allocate(COLUMNS, group),
            *kernel.fill("tmem", COLUMNS),
            *_address(group),
            *kernel.meet(group),
            *kernel.first_thread(group),
            row.forms[0].statement(row.mnemonic, {"address": "%at"}),
            *kernel.signal_and_wait(group),
            *kernel.read_back("d", COLUMNS),
            *kernel.free(COLUMNS, group),
        ]
        return kernel.entry(name, ("tmem", "offset", "d"), body, group)

    def plan(self, row: PairRow, inputs: dict[str, Array]) -> Plan:
        """One CTA, or one pair, a sample."""
        return _plan(row, inputs, (), 0)


COPY = CopyBody()
SHIFT = ShiftBody()


def _scaffold(group: int) -> dict[str, int]:
    return kernel.SCAFFOLD[group] | kernel.FILL | kernel.READ | kernel.SIGNAL[group]


def _address(group: int) -> list[str]:
    """%column is the sample, %at the address with the sample's offset."""
    return [
        f"shr.u32 %column, %cta, {group - 1};",
        "mad.wide.u32 %here, %column, 4, %at_offset;",
        "ld.global.u32 %at, [%here];",
        "add.u32 %at, %at, %taddr;",
    ]


def _plan(row: PairRow, inputs: dict[str, Array], extra: tuple[Array, ...], shared: int) -> Plan:
    group = row.cta_group
    tmem = np.ascontiguousarray(inputs["tmem"], np.uint32)
    if tmem.shape[1:] != (group, kernel.LANES, COLUMNS):
        raise ValueError(f"tmem is {tmem.shape}; valid: (samples, {group}, {kernel.LANES}, {COLUMNS})")
    return Plan(
        inputs=(tmem, np.ascontiguousarray(inputs["offset"], np.uint32), *extra),
        output=(tmem.shape, np.dtype(np.uint32)),
        scalars=(),
        grid=(len(tmem) * group, 1, 1),
        block=(kernel.THREADS, 1, 1),
        shared_bytes=shared,
        cluster=(2, 1, 1) if group == 2 else None,
    )


BODIES = {"tcgen05.cp": COPY, "tcgen05.shift": SHIFT}
