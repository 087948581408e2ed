"""One HTML page of a product as people draw it: A left, B above, D in the corner, and where every element of the three lies.

All layouts here are sums of what the row and what the column adds, before a swizzle; the page holds these two lists for each operand,
and stays small whatever the tile. What is not such a sum goes in whole. Metadata and scale factors are drawn beside the product: an element of
them is linked to the k that it describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.descriptors.forms import Major
from tcsim.descriptors.matrix import CanonicalTile, MatrixDescriptor
from tcsim.inspection.memory_places import instruction_format
from tcsim.inspection.page_file import filled
from tcsim.inspection.product_parts import cells, metadata_cells, scale_cells, scale_parts, sparse_parts, sum_of
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.isa.tcgen05.multiply_operands import described
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES, Swizzle
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Fragment
from tcsim.numbers.formats import Format
from tcsim.numbers.packing import field_shift

MOST_ELEMENTS = 1 << 17
"""Elements of one operand that a page shows."""
CHUNK_BITS = 128
"""What a lane's address of ldmatrix names, and a row of a core matrix."""


@dataclass(frozen=True)
class Tile:
    """How A and B are staged in shared memory."""

    k: int = 0  # of the tile; 0: of four instructions behind descriptors, of one of mma.sync
    swizzle: str = "128B"
    major_a: Major = "K"
    major_b: Major = "K"
    idesc: int | None = None  # of tcgen05.mma


def product_page(instruction: Instruction, tile: Tile = Tile()) -> str:
    """The page of a product: mma.sync, wgmma or, with its instruction descriptor, tcgen05.mma; sparse or not, with scale factors or not.

    A sparse one is drawn with an example of metadata, in which every pair of increasing indices occurs.

    Raises OperandError for another instruction, and as `MatrixDescriptor.for_tile` does.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> len(product_page(mma)) < 100_000
    True
    """
    if isinstance(instruction, MatrixMultiply):
        made = _warp(instruction, tile)
    elif isinstance(instruction, WarpgroupMultiply):
        made = _warpgroup(instruction, tile)
    elif isinstance(instruction, TensorMemoryMultiply) and not instruction.row.lookup:
        made = _tensor_memory(instruction, tile)
    else:
        raise OperandError(
            f"{instruction!r}: no picture of a product; valid: mma.sync, mma.sp, wgmma.mma_async, and tcgen05.mma without a lookup table"
        )
    largest = max(one["rows"] * one["columns"] for one in made["operands"])
    if largest > MOST_ELEMENTS:
        raise OperandError(
            f"a picture of {largest} elements: valid are at most {MOST_ELEMENTS}; show a shorter tile (--k)"
        )
    evidence = f"evidence {instruction.evidence.level}: {instruction.evidence.source}"
    title = f"{instruction.mnemonic} on {instruction.arch.name}"
    if isinstance(instruction, MatrixMultiply) and instruction.matrices > 1:
        title += f": the first of its {instruction.matrices} products"
    data = {
        "title": title, "hint": "Point at an element of D: its row of A and column of B light up.",
        "forms": "search for an element: d 8,6", "evidence": evidence, **made,
    }  # fmt: skip
    return filled(data, ("page", "product"), "product")


def has_picture(instruction: Instruction) -> bool:
    """Whether `product_page` draws it without being told more."""
    return isinstance(instruction, (MatrixMultiply, WarpgroupMultiply))


# --- the three kinds


def _warp(instruction: MatrixMultiply, tile: Tile) -> dict[str, Any]:
    m, n, k = instruction.shape
    own = {name: _registers(instruction.operands[name]) for name in ("a", "b", "d")}
    homes: dict[str, list[dict[str, Any]]] = {name: [home] for name, home in own.items()}
    if (found := _staged(instruction, tile)) is not None:
        homes["a"].append(found[0])
        homes["b"].append(found[1])
    formats = {name: instruction.operands[name].format for name in "abd"}
    made = {
        "step": k,
        "operands": _operands((m, n, k), formats, homes, instruction.operands["a"].shape[1]),
        "steps": [],
    }
    sparse, scales = sparse_parts(instruction), scale_parts(instruction)
    return made | sparse | scales | {"extras": [*sparse.get("extras", ()), *scales.get("extras", ())]}


def _staged(instruction: MatrixMultiply, tile: Tile) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """A and B in shared memory, rows of the swizzle's span, as ldmatrix fetches them; None where ldmatrix does not fit."""
    m, n, k = instruction.shape
    a, b = (instruction.operands[name].format for name in "ab")
    bits = a.container_bits
    if (
        instruction.operands["a"].shape != (m, k)
        or (m, n) != (16, 8)
        or bits not in (8, 16, 32)
        or a.bits < 8
        or b.container_bits != bits
        or k * bits % CHUNK_BITS
        or k * bits > 256
    ):
        return None
    span = 128
    pattern = DESCRIPTOR_SWIZZLES[tile.swizzle]
    homes = []
    for rows, start in ((m, 0), (n, 2048)):
        row = (start + np.arange(rows) * span) * 8
        chunk = np.arange(k) * bits // CHUNK_BITS
        address = row[:, None] + (np.arange(k) * bits)[None]
        lane = np.arange(rows)[:, None] % 8 + 8 * (np.arange(rows)[:, None] // 8 + (rows // 8) * chunk[None])
        home = _shared(address if rows == m else address.T, bits, pattern, start, span * rows)
        home["ldmatrix"] = sum_of(lane if rows == m else lane.T)
        homes.append(home)
    return homes[0], homes[1]


def _warpgroup(instruction: WarpgroupMultiply, tile: Tile) -> dict[str, Any]:
    m, n, step = instruction.shape
    stored = instruction.operands["a"].shape[1]  # of one instruction's row of A
    k = tile.k or (4 * step if stored == step else step)
    if stored < step and k != step:
        raise OperandError(f"{instruction!r}: K = {k}; valid: {step}, one instruction, whose metadata is drawn")
    formats = {"a": instruction.formats["a"], "b": instruction.formats["b"], "d": instruction.operands["d"].format}
    homes, steps = _tiles(instruction, tile, (m, n, k), formats, 1, "", k * stored // step)
    homes["d"] = [_registers(instruction.operands["d"])]
    if k == step:
        homes["a"].append(_registers(instruction.operands["a"]))
    made = {"step": step, "operands": _operands((m, n, k), formats, homes, k * stored // step), "steps": steps}
    return made | sparse_parts(instruction)


def _tensor_memory(instruction: TensorMemoryMultiply, tile: Tile) -> dict[str, Any]:
    if tile.idesc is None:
        raise OperandError(
            f"{instruction.mnemonic}: its shape is in the instruction descriptor; valid: --idesc VALUE, from tcsim idesc encode"
        )
    plan = described(instruction, tile.idesc)
    desc, ctas = plan.desc, instruction.row.cta_group
    scaled, sparse = bool(instruction.row.block), instruction.row.sparse
    k = tile.k or (desc.k if scaled or sparse else 4 * desc.k)
    if (scaled or sparse) and k != desc.k:
        drawn = "metadata is" if sparse else "scale factors are"
        raise OperandError(f"{instruction!r}: K = {k}; valid: {desc.k}, one instruction, whose {drawn} drawn")
    stored = k // 2 if sparse else k
    formats = {name: instruction_format(instruction, name, tile.idesc) for name in "abd"}
    lies = Tile(k, tile.swizzle, "MN" if desc.transpose_a else "K", "MN" if desc.transpose_b else "K", tile.idesc)
    homes, steps = _tiles(instruction, lies, (desc.m, desc.n, k), formats, ctas, desc.kind, stored)
    homes["d"] = [cells(plan.layout("d"))]
    made = {"step": desc.k, "operands": _operands((desc.m, desc.n, k), formats, homes, stored), "steps": steps}
    kept = metadata_cells(plan) if sparse else {}
    return made | kept | {"extras": [*kept.get("extras", ()), *(scale_cells(plan) if scaled else ())]}


def _operands(
    shape: tuple[int, int, int], formats: dict[str, Format], homes: dict[str, list[dict[str, Any]]], stored: int = 0
) -> list[dict[str, Any]]:
    """A, B and D; of a sparse A, `stored` elements of each row are kept."""
    m, n, k = shape
    sizes = {"a": (m, stored or k), "b": (k, n), "d": (m, n)}
    return [
        {
            "name": name,
            "rows": sizes[name][0],
            "columns": sizes[name][1],
            "format": formats[name].name,
            "homes": homes[name],
        }
        for name in ("a", "b", "d")
    ]


# --- where elements are


def _registers(operand: Fragment) -> dict[str, Any]:
    layout = operand.layout
    row, column = np.indices((layout.rows, layout.columns))
    lane, register, slot = layout.where(row, column)
    each = 1 if layout.element_bits == 64 else layout.slots
    value = register // 2 if layout.element_bits == 64 else register * each + slot
    shift = field_shift(operand.format, layout.element_bits) if layout.element_bits < 32 else 0
    return {
        "kind": "registers", "at": sum_of(lane * layout.value.size + value), "values": layout.value.size, "lanes": layout.lanes,
        "slots": each, "bits": layout.element_bits, "shift": shift,
        "width": min(layout.element_bits, operand.format.bits + operand.format.ignored_low_bits),
    }  # fmt: skip


def _shared(bit: npt.NDArray[Any], bits: int, pattern: Swizzle, start: int, size: int) -> dict[str, Any]:
    return {
        "kind": "shared", "at": sum_of(bit), "bits": bits, "swizzle": [pattern.bits, pattern.base, pattern.shift],
        "start": start, "bytes": size,
    }  # fmt: skip


def _tiles(
    instruction: Instruction,
    tile: Tile,
    shape: tuple[int, int, int],
    formats: dict[str, Format],
    ctas: int,
    kind: str,
    stored: int = 0,
) -> tuple[dict[str, list[dict[str, Any]]], list[tuple[str, str]]]:
    """A and B as canonical tiles, B after A; the descriptors of each K step. Of a sparse A `stored` elements of a row are kept."""
    m, n, k = shape
    a = MatrixDescriptor.for_tile(
        m // ctas, stored or k, formats["a"], tile.major_a, tile.swizzle, 0, instruction.arch.name, kind
    )
    start = -(-a.bytes // 1024) * 1024
    b = MatrixDescriptor.for_tile(
        n // ctas, k, formats["b"], tile.major_b, tile.swizzle, start, instruction.arch.name, kind
    )
    homes = {"a": [_described(a, ctas, False)], "b": [_described(b, ctas, True)]}
    pairs = zip(a.descriptors, b.descriptors[:: len(b.descriptors) // len(a.descriptors)], strict=True)
    return homes, [(f"{one.encode():#018x}", f"{other.encode():#018x}") for one, other in pairs]


def _described(tile: CanonicalTile, ctas: int, turned: bool) -> dict[str, Any]:
    """A tile behind descriptors; of a pair of CTAs each has one, at the same addresses."""
    own = tile.swizzle(tile.bit_addresses // 8) * 8 + tile.bit_addresses % 8  # twice swizzled: as without
    plain = np.concatenate([own] * ctas)
    bits = tile.format.container_bits if tile.format.bits >= 8 else tile.format.bits
    home = _shared(plain.T if turned else plain, bits, tile.swizzle, tile.start_address, tile.bytes)
    first = tile.descriptor
    offsets = {"LBO": first.leading_byte_offset, "SBO": first.stride_byte_offset}
    arrows = []
    for name, offset in offsets.items():
        to = np.argwhere((own == own[0, 0] + 8 * offset) & bool(offset))
        if len(to):
            row, k = map(int, to[0])
            arrows.append({"name": f"{name} {offset}", "to": [k, row] if turned else [row, k]})
    chunk = max(1, CHUNK_BITS // tile.bits)
    core = [8, chunk] if tile.major == "K" else [chunk, 8]
    return home | {
        **{name.lower(): offset for name, offset in offsets.items()}, "arrows": arrows, "core": core[::-1] if turned else core,
        "major": tile.major, "mode": first.swizzle, "rowsOfCta": tile.rows if ctas > 1 else 0,
    }  # fmt: skip
