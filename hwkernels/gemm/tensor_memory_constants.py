"""What a tcgen05 GEMM kernel must know as constants: descriptors, their steps along K, Tensor Memory columns. From tcsim, by the host.

A kernel does no descriptor arithmetic but adding its slot's address: everything else is computed here and passed in the
header multiply.cuh, whose text `TensorMemoryConstants.header` is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

import tcsim
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.matrix import CanonicalTile, MatrixDescriptor
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.memory.tmem_layout import TmemLayout, scale_layout

UNIT = 16  # bytes that the address field of a descriptor counts in
SPAN = 128  # bytes of K in a slot: one row of the 128B swizzle
STEP_BYTES = 32  # of K that one instruction multiplies
TMEM_COLUMNS = 512
SCALE_ROWS = 128  # rows of a block of scale factors
SCALE_BLOCK = 512  # its bytes: 128 rows and four factors of each
SCALE_COPY = "tcgen05.cp.cta_group::1.32x128b.warpx4"


@dataclass(frozen=True)
class TensorMemoryConstants:
    """The constants of one build."""

    instruction: TensorMemoryMultiply
    a: CanonicalTile  # of one block, in a slot whose address is 0
    b: CanonicalTile  # behind it
    descriptors: tuple[InstructionDescriptor, ...]  # one for each K step
    buffers: int = 1  # accumulators in Tensor Memory
    stages: int = 0  # slots that have scale factors in Tensor Memory

    @property
    def factors(self) -> int:
        """Scale factors along K that one instruction takes; 0 without block scaling."""
        block = self.instruction.row.block
        return self.descriptors[0].scale_vectors(block) if block else 0

    @property
    def slot_k(self) -> int:
        """Elements of K in a slot."""
        return self.a.k

    @property
    def scale_blocks(self) -> int:
        """Blocks of four scale factors along K in a slot."""
        return len(self.descriptors) * self.factors // 4

    @property
    def scale_bytes(self) -> int:
        """Shared bytes of a slot's scale factors."""
        groups = (self.descriptors[0].m + self.descriptors[0].n) // SCALE_ROWS
        return groups * self.scale_blocks * SCALE_BLOCK

    @property
    def used_columns(self) -> int:
        """Columns of Tensor Memory that the kernel writes: accumulators, then each slot's scale factors of A and of B."""
        return self.buffers * self.descriptors[0].n + self.stages * self.scale_bytes // SCALE_BLOCK * 4

    @property
    def tmem_columns(self) -> int:
        """Columns that it allocates: a power of two.

        Raises ValueError if there are fewer.
        """
        if self.used_columns > TMEM_COLUMNS:
            raise ValueError(f"{self.used_columns} columns of Tensor Memory; valid: up to {TMEM_COLUMNS}")
        return max(32, 1 << (self.used_columns - 1).bit_length())

    def scale_columns(self, side: str) -> tuple[int, ...]:
        """For each K step, the column of its scale factors, counted from those of its slot's side ("a" or "b")."""
        groups = (self.descriptors[0].m if side == "a" else self.descriptors[0].n) // SCALE_ROWS
        return tuple(step * self.factors // 4 * 4 * groups for step in range(len(self.descriptors)))

    @cached_property
    def scale_descriptor(self) -> MatrixDescriptor:
        """Of the 32 rows of 16 bytes that one tcgen05.cp copies, at address 0."""
        return MatrixDescriptor(stride_byte_offset=8 * 16, arch=self.instruction.arch.name)

    def header(self) -> str:
        """The C++ text of multiply.cuh."""
        steps = len(self.descriptors)
        numbers = [
            ("u32", "TMEM_COLUMNS", str(self.tmem_columns)),
            ("u32", "K_STEPS", str(steps)),
            ("u32", "SLOT_K", str(self.slot_k)),
            ("u64", "DESCRIPTOR_A", f"{self.a.descriptor.encode():#x}"),
            ("u64", "DESCRIPTOR_B", f"{self.b.descriptor.encode():#x}"),
            ("u32", "ADVANCE_A[]", _list(advance // UNIT for advance in self.a.advances)),
            ("u32", "ADVANCE_B[]", _list(advance // UNIT for advance in self.b.advances)),
            ("u32", "INSTRUCTION_DESCRIPTOR[]", _list(f"{one.encode():#x}" for one in self.descriptors)),
        ]
        if self.factors:
            numbers += [
                ("u32", "SCALE_BLOCKS", str(self.scale_blocks)),
                ("u64", "DESCRIPTOR_SCALES", f"{self.scale_descriptor.encode():#x}"),
                ("u32", "SCALE_COLUMN_A[]", _list(self.scale_columns("a"))),
                ("u32", "SCALE_COLUMN_B[]", _list(self.scale_columns("b"))),
            ]
        lines = ["#pragma once", *(f"constexpr {kind} {name} = {value};" for kind, name, value in numbers)]
        return "\n".join([*lines, _multiply(self.instruction), _COPY if self.factors else ""])


def _list(values: Iterable[object]) -> str:
    return "{" + ", ".join(str(value) for value in values) + "}"


def _multiply(instruction: TensorMemoryMultiply) -> str:
    scaled = bool(instruction.row.block)
    parameters = "u32 d, u64 a, u64 b, u32 descriptor, " + ("u32 scale_a, u32 scale_b, " if scaled else "")
    places = "[%0], %1, %2, %3, " + ("[%5], [%6], " if scaled else "")
    scales = ', "r"(scale_a), "r"(scale_b)' if scaled else ""
    return f"""__device__ __forceinline__ void tcgen05_mma({parameters}bool accumulate) {{
    asm volatile(
        "{{\\n.reg .pred p;\\nsetp.ne.u32 p, %4, 0;\\n"
        "{instruction.mnemonic} {places}p;\\n}}"
        :: "r"(d), "l"(a), "l"(b), "r"(descriptor), "r"(static_cast<u32>(accumulate)){scales} : "memory");
}}"""


_COPY = f"""__device__ __forceinline__ void tcgen05_copy(u32 to, u64 from) {{
    asm volatile("{SCALE_COPY} [%0], %1;" :: "r"(to), "l"(from) : "memory");
}}"""


def constants_of(
    instruction: TensorMemoryMultiply,
    formats: tuple[str, str, str],
    block_n: int,
    *,
    majors: tuple[bool, bool] = (False, False),
    scale_format: str = "",
    buffers: int = 1,
    stages: int = 0,
) -> TensorMemoryConstants:
    """The constants of a kernel whose blocks have 128 rows each.

    formats: of A, B and the accumulator. majors: whether A and B are MN-major. scale_format: of the scale factors, if the
    instruction takes any. Raises OperandError for what the instruction does not have.

    >>> mma = tcsim.instruction("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100a")
    >>> made = constants_of(mma, ("bf16", "bf16", "f32"), 256)
    >>> hex(made.descriptors[0].encode()), hex(made.b.descriptor.encode()), made.a.advances, made.tmem_columns
    ('0x8400490', '0x4000404000000400', (0, 32, 64, 96), 256)
    """
    row, arch = instruction.row, instruction.arch.name
    a_format, b_format, accumulator = formats
    common = {"kind": row.kind.name, "arch": arch}
    one = InstructionDescriptor(
        **common,  # type: ignore[arg-type]
        m=128 * row.cta_group,
        n=block_n,
        d_format=accumulator,
        a_format=a_format,
        b_format=b_format,
        transpose_a=majors[0],
        transpose_b=majors[1],
        scale_format=scale_format,
    )
    one.check(cta_group=row.cta_group, sparse=False, block=row.block)
    tile_a = _tile(128, a_format, majors[0], 0, one)
    tile_b = _tile(block_n // row.cta_group, b_format, majors[1], tile_a.bytes, one)
    factors = one.scale_vectors(row.block) if row.block else 0
    steps = []
    for step in range(len(tile_a.advances)):
        first = step * factors % 4
        steps.append(replace(one, scale_a_id=first, scale_b_id=first) if factors else one)
    return TensorMemoryConstants(instruction, tile_a, tile_b, tuple(steps), buffers, stages)


def _tile(rows: int, format: str, mn_major: bool, start: int, one: InstructionDescriptor) -> CanonicalTile:
    k = one.k * (SPAN // STEP_BYTES)
    return tcsim.MatrixDescriptor.for_tile(
        rows,
        k,
        format,
        major="MN" if mn_major else "K",
        swizzle="128B",
        start_address=start,
        arch=one.arch,
        kind=one.kind,
    )


def scale_block_layout() -> TmemLayout:
    """Where 128 rows' four factors lie in Tensor Memory, and so, 16 bytes a lane, in a block of 512 bytes."""
    return scale_layout("a", SCALE_ROWS, 4)


def scale_block_offsets() -> npt.NDArray[np.int64]:
    """The byte (128, 4) in its block of 512 of every scale factor: row of A or B, factor along K.

    >>> scale_block_offsets()[[0, 1, 32, 127], 3].tolist()
    [3, 19, 7, 511]
    """
    row, factor = np.indices((SCALE_ROWS, 4))
    _, lane, column, slot = scale_block_layout().where(row, factor)
    return np.asarray(lane * 16 + column * 4 + slot, np.int64)
