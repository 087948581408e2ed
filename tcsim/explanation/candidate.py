"""One hypothesis: an arithmetic, an order and an epilogue; what it gives for chosen outputs, and for whole products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcsim.core import chunks
from tcsim.explanation.arithmetic import Arithmetic, Codes
from tcsim.explanation.epilogue import Epilogue, Extras, through
from tcsim.explanation.orders import Chains, Order, add, run
from tcsim.explanation.question import codes_of
from tcsim.numbers.formats import FORMATS

_ROWS = 64  # of a tile


@dataclass(frozen=True)
class Candidate:
    """A hypothesis."""

    arithmetic: Arithmetic
    order: Order
    epilogue: Epilogue
    formats: tuple[str, str, str]  # of the product
    extras: Extras = field(default_factory=Extras, compare=False, repr=False)

    @property
    def rank(self) -> int:
        """How unlikely: plain orders first."""
        return self.order.rank

    def __str__(self) -> str:
        return "; ".join(text for text in (self.arithmetic.name, self.order.name, self.epilogue.name) if text)

    def accumulators(self, chains: Chains) -> Codes:
        """The sums of chosen outputs."""
        name = self.arithmetic.accumulator
        return add(chains.parts(self.order), self.order, name, through(self.formats[2], name))

    def outputs(self, chains: Chains, extras: Extras) -> Codes:
        """The outputs chosen."""
        return self.epilogue.outputs(self.accumulators(chains), self.arithmetic.accumulator, extras, self.formats[2])

    def whole(self, a: Codes, b: Codes, extras: Extras) -> Codes:
        """Every output of codes a (M, K) and b (K, N), with extras of (M, N)."""
        m, k, n = *a.shape, b.shape[1]
        work = self.arithmetic
        a, b = (work.read(x, self.formats[place], place) for place, x in enumerate((a, b)))
        a, b = np.pad(a, ((0, 0), (0, 1))), np.pad(b, ((0, 1), (0, 0)))
        places = self.order.places(k, work.step)
        out = np.empty((m, n), FORMATS[self.formats[2]].dtype)
        rows = min(m, _ROWS)
        columns = chunks.step(rows * min(work.step, 32))
        for top in range(0, m, rows):
            for left in range(0, n, columns):
                part = np.s_[top : top + rows, left : left + columns]
                parts = [run(work, a[None, part[0]], b[None, :, part[1]], item)[0] for item in places]
                total = add(parts, self.order, work.accumulator, through(self.formats[2], work.accumulator))
                out[part] = self.epilogue.outputs(total, work.accumulator, extras.at(part), self.formats[2])
        return out

    def predict(self, a: Any, b: Any, c: Any = None) -> Codes:
        """The output for other operands of the same formats and K: codes (..., M, N). c takes the place of the C that was given.

        Raises OperandError for other shapes or dtypes.
        """
        left, right = codes_of(a, "a", (self.formats[0],))[0], codes_of(b, "b", (self.formats[1],))[0]
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        size = (*batch, left.shape[-2], right.shape[-1])
        extras = self.extras.like(size, c)
        flat = [np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (left, right)]
        found = [self.whole(x, y, extras.at(place)) for place, (x, y) in enumerate(zip(*flat, strict=True))]
        return np.stack(found).reshape(size)
