"""What tcgen05 has in Tensor Memory: whether scale factors are those of one operand, and whether products are as large as what is read of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.descriptors.tile_bytes import TileBytes, tile_bytes
from tcsim.model.effects import Access
from tcsim.ptx.check.layout.descriptors import origins_of, valid
from tcsim.ptx.check.layout.mends import Trial, Trials
from tcsim.ptx.check.layout.origins import Origins, places_of
from tcsim.ptx.check.layout.tiles import FILL, View, step_of
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.tensor_memory import COLUMNS

NAMES = ("scale_a", "scale_b")
_COLUMN = 4
_LANES = 32
_GROUPS = 4
"""Groups of 32 rows that lie side by side in a copy of 16 bytes a lane; further ones come from another copy."""
_STEPS = tuple(sign * step for step in range(1, 65) for sign in (-1, 1))
"""Columns by which other places are tried."""


@dataclass(frozen=True)
class Factors:
    """The scale factors of one operand."""

    name: str
    place: Array  # bytes of Tensor Memory (rows, blocks of k)
    found: Array  # their origins; FILL of what was computed
    column: int  # the first

    def at(self, cells: Origins, rank: int, step: int) -> Array:
        """The origins some columns further on."""
        return cells.of(rank, self.place + _COLUMN * step)


class Scales:
    """The scale factors of the products of one cluster."""

    def __init__(self, origins: Origins, cells: Origins, trials: Trials) -> None:
        self.origins, self.cells, self.trials, self.state = origins, cells, trials, origins.state

    def factors(self, name: str, accesses: Sequence[Access], rank: int) -> Factors | None:
        """Those that a product reads; None if nothing is known of them, as of what threads computed."""
        layout: Any = accesses[0].cells
        if rank not in self.cells.at or layout.element_bits != 8:
            return None
        place = places_of(accesses)
        found = self.cells.of(rank, place)
        written = self.state.words("tmem", rank).who[place // _COLUMN] != 0
        if written.any() and not (found > 0).any():
            return None
        found = np.where((found == 0) & written, FILL, found)
        return Factors(name, place, found, int(place.flat[0]) // _COLUMN % COLUMNS)

    def judge(
        self, flight: Flight, cells: Mapping[str, Sequence[Access]], views: Mapping[str, View], line: int
    ) -> None:
        """Look at the factors of one product, whose operands in shared memory are `views`."""
        a, b = views.get("A"), views.get("B")
        apart = a is not None and b is not None and not self._one_array(a.found, b.found)
        found = {name: self.factors(name, cells[name], flight.block.rank) for name in NAMES if name in cells}
        for name, other in (NAMES, NAMES[::-1]):
            own = found.get(name)
            said = None if own is None else self._wrong(own, found.get(other), apart, flight.block.rank)
            if said is None:
                continue
            reads, mend = said
            plain = f"{self.state.opcode(line)} reads {name} {reads}"
            thread = int(flight.threads[0])
            finding = self.state.report("SCALE_COLUMN", flight.block, plain, line, 0, thread, operand=name)
            message = f"{plain}: with {mend} all would be factors of one operand"
            self.trials.add(Trial(finding, "SCALE_COLUMN", mend, mend, message))
            return

    def _one_array(self, found: Array, other: Array) -> bool:
        """Whether two operands begin in one array in global memory."""
        return self.origins.in_one_array(np.stack([found.flat[:1], other.flat[:1]]))

    def _wrong(self, own: Factors, other: Factors | None, apart: bool, rank: int) -> tuple[str, str] | None:
        """What is wrong with scale factors, and the column from which they would be right, in words; None if nothing is known to be.

        apart: A and B are of different arrays, so that no factor belongs to both.
        """
        both = apart and other is not None and _shared(own, other)
        if both:
            said = "from the columns of the other operand's"
        elif not (own.found != 0).all():
            said = "from where no factors were put, or not all"
        elif not self.origins.in_one_array(own.found):
            said = "from two arrays"
        elif not _even(own.found):
            said = "from two copies, of which each has other blocks of k"
        else:
            return None
        columns = []
        for step in _STEPS:
            if not 0 <= own.column + step < COLUMNS:
                continue
            found = own.at(self.cells, rank, step)
            right = (found > 0).all() and self.origins.in_one_array(found) and _even(found)
            taken = other is not None and bool(np.isin(own.place + _COLUMN * step, other.place).any())
            same = other is not None and apart and self._one_array(found, other.found)
            if right and not taken and not same:
                before = own.at(self.cells, rank, step - 1)
                begins = not before.flat[0] or not self._one_array(found, before)
                columns.append((not begins, abs(step), own.column + step))
        if not columns:
            return None
        return said, f"column {min(columns)[2]} instead of {own.column}" + " for one of them" * both


def _shared(own: Factors, other: Factors) -> bool:
    """Whether one byte is a factor of both."""
    return bool(np.isin(own.place[own.found > 0], other.place).any())


def _even(found: Array) -> bool:
    """Whether the way from 32 rows to the next 32 is always the same, where one copy has them all."""
    groups = len(found) // _LANES
    if groups < 3 or groups > _GROUPS or not (found > 0).all():
        return True
    steps = np.diff(found[: groups * _LANES].reshape(groups, -1), axis=0)
    return bool((steps == steps[0]).all())


# --- M and N of the instruction descriptor

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
        takes = f"takes {tile.rows} of the {rows} rows of {operand} that lie in shared memory"
        plain = f"{state.opcode(line)} reads results that no product has written: {state.opcode(product.line)} {takes}"
        thread = int(flight.threads[0])
        finding = state.report("IDESC_SHAPE", flight.block, plain, product.line, line, thread, operand=operand)
        said = f"{plain}: with {mend} in the instruction descriptor it would have written them"
        self.trials.add(Trial(finding, "IDESC_SHAPE", mend, mend, said))

    def _goes_on(self, rank: int, tile: TileBytes, rows: int) -> bool:
        """Whether more rows are a matrix whose rows follow one another, and no other product takes them."""
        at = self.origins.at.get(rank)
        if at is None:
            return False
        more = valid(tile_bytes, tile.descriptor, rows, tile.k, tile.format, tile.major, tile.arch, tile.kind)
        if more is None:
            return False
        found = origins_of(at, self.origins.unit, more.address, more)
        if found is None or not (found > 0).all():
            return False
        others = [own.address for product in self._of(rank) for own in product.tiles.values()]
        beyond = np.setdiff1d(more.address, tile.address)
        follow = step_of(found if tile.major == "K" else found.T, 0, 0)
        return bool(follow) and not np.isin(beyond, np.concatenate(others)).any()
