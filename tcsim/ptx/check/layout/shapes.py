"""Products of tcgen05.mma that are smaller than what is read of their result: M or N of the instruction descriptor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError
from tcsim.descriptors.tile_bytes import TileBytes, tile_bytes
from tcsim.ptx.check.layout import descriptors
from tcsim.ptx.check.layout.origins import Origins
from tcsim.ptx.check.layout.tiles import step_of
from tcsim.ptx.check.layout.trials import Trial, Trials
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.tensor_memory import COLUMNS

_COLUMN = 4
_ROWS = {"M": (64, 128), "N": tuple(range(8, 257, 8))}
"""Values of the fields that are tried, of one CTA."""


@dataclass(frozen=True)
class Product:
    """One that was issued: where its result begins, and what it reads through descriptors, by the field that says how many rows."""

    line: int
    column: int
    tiles: dict[str, TileBytes]


class Shapes:
    """The products of each block whose results may be read."""

    def __init__(self, origins: Origins, trials: Trials) -> None:
        self.origins, self.trials, self.state = origins, trials, origins.state
        self.products: dict[tuple[int, int], Product] = {}  # the last, by rank and column

    def issued(self, flight: Flight, line: int) -> None:
        """A product is issued by one CTA for itself."""
        writes = flight.pending.writes
        tiles = {
            "M" if own.operand == "a" else "N": own.tile
            for own in flight.pending.reads
            if own.tile is not None and own.operand and own.tile.address.ndim == 1
        }
        if getattr(flight.bound.model.row, "cta_group", None) == 1 and "N" in tiles and writes:
            column = int(writes[0].address.min()) // _COLUMN % COLUMNS
            self.products[flight.block.rank, column] = Product(line, column, tiles)

    def loaded(self, flight: Flight) -> None:
        """tcgen05.ld reads results: those that nobody has written are of a product that was too small, if its operands go on."""
        rank = flight.block.rank
        words = self.state.words("tmem", rank)
        for access in flight.pending.reads:
            if access.space != "tmem":
                continue
            at, _ = words.words(access.address.reshape(-1), access.size)
            missing = at[words.who[at] == 0]
            if len(missing):
                self._missing(flight, rank, missing % COLUMNS)

    def _of(self, rank: int) -> list[Product]:
        return [own for (block, _), own in self.products.items() if block == rank]

    def _missing(self, flight: Flight, rank: int, columns: Array) -> None:
        before = [own for own in self._of(rank) if own.column <= columns.min()]
        if not before:
            return
        product = max(before, key=lambda own: own.column)
        width = product.tiles["N"].rows
        if columns.min() >= product.column + width:
            self._report(flight, product, "N", int(columns.max()) + 1 - product.column)
        elif columns.max() < product.column + width and "M" in product.tiles:
            self._report(flight, product, "M", product.tiles["M"].rows + 1)

    def _report(self, flight: Flight, product: Product, field: str, least: int) -> None:
        """A field is too small, if the operand has the rows that it leaves out."""
        tile, state = product.tiles[field], self.state
        longer = [own for own in _ROWS[field] if own > tile.rows and self._goes_on(flight.block.rank, tile, own)]
        rows = max(longer, default=0)
        if rows < least:
            return
        operand, line = "A" if field == "M" else "B", state.number(flight.block.here)
        mend = f"{field} {rows} instead of {tile.rows}"
        plain = (
            f"{state.opcode(line)} reads results that no product has written: {state.opcode(product.line)} takes {tile.rows} rows of "
            f"{operand}, of which {rows} lie in shared memory"
        )
        thread = int(flight.threads[0])
        finding = state.report("IDESC_SHAPE", flight.block, plain, product.line, line, thread, operand=operand)
        said = f"{plain}: with {mend} in the instruction descriptor it would have written them"
        self.trials.add(Trial(finding, "IDESC_SHAPE", mend, mend, said))

    def _goes_on(self, rank: int, tile: TileBytes, rows: int) -> bool:
        """Whether more rows are a matrix whose rows follow one another, and no other product takes them."""
        at = self.origins.at.get(rank)
        if at is None:
            return False
        major: Any = tile.major
        try:
            more = tile_bytes(tile.descriptor, rows, tile.k, tile.format, major, tile.arch, tile.kind)
        except OperandError:
            return False
        found = descriptors.origins_of(at, self.origins.unit, more.address, more)
        if found is None or not (found > 0).all():
            return False
        others = [own.address for product in self._of(rank) for own in product.tiles.values()]
        beyond = np.setdiff1d(more.address, tile.address)
        return (
            bool(step_of(found if major == "K" else found.T, 0, 0))
            and not np.isin(beyond, np.concatenate(others)).any()
        )
