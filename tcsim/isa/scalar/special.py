"""Special functions of PTX as the executor takes them: the rows of `tcsim.isa.special`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tcsim.arithmetic import mufu
from tcsim.isa.scalar.table import Array, Scalar
from tcsim.isa.special import folding
from tcsim.isa.special.rows import FUNCTIONS, SpecialRow, rows
from tcsim.isa.special.semantics import computed


def _of(row: SpecialRow, *sources: Array) -> Array:
    return computed(row, row.steps, dict(zip(("a", "b"), sources, strict=False)), mufu.unit())


def table() -> Iterator[Scalar]:
    """Every spelling."""
    for name in FUNCTIONS:
        for row in rows(name):
            types = (row.type,) * (len(row.registers) - 1)
            yield Scalar(
                row.mnemonic,
                (row.type,),
                types,
                partial(_of, row),
                inexact=row.unit is not None,
                targets=frozenset(row.targets),
                subroutine=row.unit is None,
                factors=partial(folding.factors, row) if folding.product(row) else None,
                folded=partial(folding.folded, row) if folding.folds(row) else None,
            )
