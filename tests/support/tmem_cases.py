"""The rows on Tensor Memory and their lines of the inventory, for the tests that go through them."""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from tcsim import catalog
from tcsim.core.targets import TARGETS
from tests.support.tables import TABLES

FAMILIES = {
    "tcgen05.alloc": (96, 14), "tcgen05.commit": (32, 32), "tcgen05.fence": (2, 2), "tcgen05.wait": (2, 2),
    "tcgen05.ld": (74, 74), "tcgen05.st": (74, 74), "tcgen05.ld.red": (168, 168), "tcgen05.ld.spcompress": (72, 72),
    "tcgen05.cp": (36, 36), "tcgen05.shift": (2, 2), "spcompress": (171, 171),
}  # fmt: skip
"""Lines of the inventory, and spellings among them: the columns of an alloc may be an immediate or a register."""
ROWS = {name: row for name, row in catalog.rows().items() if row.family in FAMILIES}


def of_family(*names: str) -> list[str]:
    """The mnemonics of families."""
    return [name for name, row in ROWS.items() if row.family in names]


def inventory() -> dict[str, list[dict[str, str]]]:
    """The lines of the inventory by mnemonic."""
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for file in ("tcgen05_memory_inventory.csv", "spcompress_inventory.csv"):
        text = (TABLES / file).read_text()
        for line in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
            found[line["mnemonic"]].append(line)
    return found


def anywhere(mnemonic: str) -> Any:
    """The instruction on an arch that has it."""
    return tcsim.instruction(mnemonic, arch=TARGETS[ROWS[mnemonic].targets[-1]].arch)


def random_words(shape: tuple[int, ...], seed: int) -> npt.NDArray[np.uint32]:
    """Random registers or cells."""
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 1 << 32, shape, np.uint32)


def filled(words: npt.NDArray[np.uint32]) -> tcsim.TensorMemory:
    """A memory, all allocated, whose first columns hold uint32 (..., ctas, 128, columns)."""
    tmem = tcsim.TensorMemory.allocated(words.shape[:-3], ctas=words.shape[-3])
    for cta in range(words.shape[-3]):
        tmem.write(np.arange(128)[:, None], np.arange(words.shape[-1]), words[..., cta, :, :], cta=cta)
    return tmem


def cells(words: npt.NDArray[np.uint32]) -> dict[tuple[int, int, int], int]:
    """The same for the slow model."""
    return {(int(c), int(i), int(j)): int(word) for (c, i, j), word in np.ndenumerate(words)}
