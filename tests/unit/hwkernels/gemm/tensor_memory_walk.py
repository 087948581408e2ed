"""A tcgen05 GEMM kernel walked through in the model: TMA, tcgen05.cp, tcgen05.mma, tcgen05.ld, with the constants of its header.

What a kernel does with addresses is written again here, from the kernels' text: which boxes go where in a slot, what is
added to a descriptor, which columns of Tensor Memory hold what. The memories and the instructions are tcsim's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import tcsim
from hwkernels.gemm.tensor_memory_constants import SCALE_COPY

SPAN = 128
PANEL = 64  # rows of an MN-major box
FIRST_SLOT = 1024  # shared address: not 0, so that forgetting it shows


def constants_in(header: str) -> dict[str, Any]:
    """The constants of a header, as the compiler reads them."""
    found: dict[str, Any] = {}
    for name, many, value in re.findall(r"constexpr u\d+ (\w+)(\[\])? = ([^;]+);", header):
        numbers = [int(text, 0) for text in value.strip("{}").split(",")]
        found[name] = numbers if many else numbers[0]
    return found


def box(rows: np.ndarray, x: int, y: int, height: int) -> np.ndarray:
    """What TMA writes: 128 bytes of `height` rows of bytes, zeros beyond the ends, 16-byte chunks swizzled with the row."""
    out = np.zeros((height, SPAN), np.uint8)
    inside = rows[y : y + height, x : x + SPAN]
    out[: inside.shape[0], : inside.shape[1]] = inside
    chunks = out.reshape(height, 8, 16)
    row = np.arange(height)[:, None]
    swizzled = np.empty_like(chunks)
    swizzled[row, np.arange(8) ^ row % 8] = chunks
    return swizzled.reshape(-1)


def operand_boxes(rows: np.ndarray, size: int, start: int, k: int, extent: int, mn_major: bool) -> np.ndarray:
    """tma_load_operand: one box, or one for each 64 of M or N. `start` and `k` in elements of `size` bytes."""
    if not mn_major:
        return box(rows, k * size, start, extent)
    return np.concatenate([box(rows, (start + p) * size, k, PANEL) for p in range(0, extent, PANEL)])


def walk_dense(build: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The accumulators (M, N), f32 or s32 codes, of codes a (M, K) and b (K, N)."""
    ins, names = build.instruction, constants_in(build.constants.header())
    ctas, size = build.row.ctas, a.dtype.itemsize
    majors = build.a_mn_major, build.b_mn_major
    block_k, half = names["SLOT_K"], build.block_n // ctas
    left = np.ascontiguousarray(a.T if majors[0] else a).view(np.uint8)
    right = np.ascontiguousarray(b if majors[1] else b.T).view(np.uint8)
    a_bytes = build.block_m * SPAN
    slot_bytes = a_bytes + half * SPAN
    assert slot_bytes == build.slot_bytes
    out = np.zeros((a.shape[0], b.shape[1]), np.uint32)
    for m, n in tiles(build.block_m * ctas, build.block_n, out.shape):
        smem = np.full((ctas, FIRST_SLOT + build.stages * slot_bytes), 0xA5, np.uint8)
        tmem = tcsim.TensorMemory(ctas=ctas)
        accumulator = tmem.alloc(names["TMEM_COLUMNS"], cta_group=ctas) + (build.row.buffers - 1) * build.block_n
        for step in range(-(-a.shape[1] // block_k)):
            slot = FIRST_SLOT + step % build.stages * slot_bytes
            for rank in range(ctas):
                parts = (
                    operand_boxes(left, size, m + rank * build.block_m, step * block_k, build.block_m, majors[0]),
                    operand_boxes(right, size, n + rank * half, step * block_k, half, majors[1]),
                )
                smem[rank, slot : slot + slot_bytes] = np.concatenate(parts)
            at = slot >> 4 & 0x3FFF
            for j in range(names["K_STEPS"]):
                tmem = ins.execute(
                    tmem,
                    smem if ctas == 2 else smem[0],
                    d=accumulator,
                    a=np.uint64(names["DESCRIPTOR_A"] + at + names["ADVANCE_A"][j]),
                    b=np.uint64(names["DESCRIPTOR_B"] + at + names["ADVANCE_B"][j]),
                    idesc=names["INSTRUCTION_DESCRIPTOR"][j],
                    enable_input_d=step > 0 or j > 0,
                )
        store_rows(tmem, accumulator, build.block_n, m, n, out)
    return out


def walk_scaled(build: Any, codes: tuple[np.ndarray, np.ndarray], factors: Any, slot_k: int, k: int) -> np.ndarray:
    """The same of a block-scaled kernel: packed elements of A and of B's columns, packed factors (of each: array)."""
    ins, names = build.instruction, constants_in(build.constants.header())
    copy = tcsim.instruction(SCALE_COPY, arch=build.target)
    run = names["SCALE_BLOCKS"] * 512
    groups = build.block_n // 128
    a_bytes, elements = build.block_m * SPAN, (build.block_m + build.block_n) * SPAN
    scales, stages = (1 + groups) * run, build.row.stages
    assert elements + scales == build.slot_bytes and slot_k == names["SLOT_K"]
    columns_a = 4 * names["SCALE_BLOCKS"]
    out = np.zeros((codes[0].shape[0], codes[1].shape[0]), np.uint32)
    first_scales = FIRST_SLOT + stages * elements
    for m, n in tiles(build.block_m, build.block_n, out.shape):
        smem = np.full(first_scales + stages * scales, 0xA5, np.uint8)
        tmem = tcsim.TensorMemory()
        accumulator = tmem.alloc(names["TMEM_COLUMNS"])
        for step in range(-(-k // slot_k)):
            slot = FIRST_SLOT + step % stages * elements
            smem[slot : slot + a_bytes] = box(codes[0], step * SPAN, m, build.block_m)
            smem[slot + a_bytes : slot + elements] = box(codes[1], step * SPAN, n, build.block_n)
            at_scales = first_scales + step % stages * scales
            whole = [factors[0][m // 128, step], *(factors[1][n // 128 + g, step] for g in range(groups))]
            smem[at_scales : at_scales + scales] = np.concatenate([x.reshape(-1) for x in whole])
            scale_a = accumulator + build.block_n + step % stages * (1 + groups) * columns_a
            scale_b = scale_a + columns_a
            source = names["DESCRIPTOR_SCALES"] + (at_scales >> 4 & 0x3FFF)
            for block in range(names["SCALE_BLOCKS"]):
                tmem = copy.execute(tmem, scale_a + 4 * block, smem, np.uint64(source + (block * 512 >> 4)))
                for group in range(groups):
                    from_ = source + ((1 + group) * run + block * 512 >> 4)
                    tmem = copy.execute(tmem, scale_b + 4 * (block * groups + group), smem, np.uint64(from_))
            at = slot >> 4 & 0x3FFF
            for j in range(names["K_STEPS"]):
                tmem = ins.execute(
                    tmem,
                    smem,
                    d=accumulator,
                    a=np.uint64(names["DESCRIPTOR_A"] + at + names["ADVANCE_A"][j]),
                    b=np.uint64(names["DESCRIPTOR_B"] + at + names["ADVANCE_B"][j]),
                    idesc=names["INSTRUCTION_DESCRIPTOR"][j],
                    scale_a=scale_a + names["SCALE_COLUMN_A"][j],
                    scale_b=scale_b + names["SCALE_COLUMN_B"][j],
                    enable_input_d=step > 0 or j > 0,
                )
        store_rows(tmem, accumulator, build.block_n, m, n, out)
    return out


def tiles(height: int, width: int, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The first row and column of every tile."""
    for m in range(0, shape[0], height):
        for n in range(0, shape[1], width):
            yield m, n


def store_rows(tmem: Any, accumulator: int, width: int, m: int, n: int, out: np.ndarray) -> None:
    """store_tmem_rows: lane i of warp w has row 32 w + i of its block, 32 columns at a time."""
    load = tcsim.instruction("tcgen05.ld.sync.aligned.32x32b.x32.b32", arch="sm_100a")
    for cta in range(tmem.ctas):
        for warp in range(4):
            for part in range(0, width, 32):
                words = load.execute(tmem, accumulator + (32 * warp << 16) + part, warp=warp, cta=cta)
                row, column = m + 128 * cta + 32 * warp, n + part
                place = out[row : row + 32, column : column + 32]
                place[:] = words[: place.shape[0], : place.shape[1]]
