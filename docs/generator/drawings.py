"""The pictures of the documentation: what `tcsim map --format svg` draws, swizzles, layers. `docs/generate.py` writes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tcsim
from generator.import_graph import layers_picture
from tcsim.inspection.fragment_map import By, as_svg, map_of
from tcsim.inspection.svg import Cell, grid
from tcsim.inspection.swizzle_view import CHUNK, swizzle_view

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
VOLTA = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"


def fragment(mnemonic: str, arch: str, operand: str, by: By = "element") -> str:
    """Who holds each element of an operand, or what each register holds."""
    instruction = tcsim.instruction(mnemonic, arch=arch)
    return as_svg(map_of(instruction, instruction.operands[operand]), by)


def swizzle(name: str) -> str:
    """Shared memory as rows of the swizzle's span: which 16 bytes of each row of a tile lie where."""
    view = swizzle_view(name)
    cells = []
    for row, places in enumerate(view.lands):
        for chunk, address in enumerate(places):
            line, column = divmod(address // CHUNK, view.pitch // CHUNK)
            cells.append(Cell(line, column, f"{row}.{chunk}", chunk))
    labels = [f"{line * view.pitch:#x}" for line in range(len(view.lands))]
    columns = [f"+{column * CHUNK:#x}" for column in range(len(view.lands[0]))]
    return grid(f"{view.swizzle}: row.chunk of the tile in each 16 bytes", cells, labels, columns)


FIGURES: dict[str, Callable[[], str]] = {
    "mma-m16n8k16-a.svg": partial(fragment, MMA, "sm_90", "a"),
    "mma-m16n8k16-b.svg": partial(fragment, MMA, "sm_90", "b"),
    "mma-m16n8k16-d.svg": partial(fragment, MMA, "sm_90", "d"),
    "mma-m8n8k4-d.svg": partial(fragment, VOLTA, "sm_70", "d", "lane"),
    "ldmatrix-x4.svg": partial(fragment, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "sm_90", "d", "lane"),
    "layers.svg": layers_picture,
    "swizzle-128B.svg": partial(swizzle, "128B"),
}
"""By their names in docs/figures."""
