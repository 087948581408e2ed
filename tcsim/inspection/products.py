"""Single dot products: the codes behind each output of a call, and what an instruction makes of them.

Whose question: `compare`, which runs the same outputs on several archs, and `trace`, which follows one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.chunks import chunks
from tcsim.numbers.formats import Format

Codes = npt.NDArray[Any]


@dataclass(frozen=True)
class Products:
    """So many dot products: of each the codes along K (of a sparse A the kept ones, and those of B that they meet), and C's."""

    a: Codes  # (count, 1, K)
    b: Codes  # (count, K, 1)
    c: Codes  # (count, 1, 1)
    scales: Mapping[str, Codes] = field(default_factory=dict)  # scale_a (count, 1, blocks), scale_b (count, blocks, 1)

    def __len__(self) -> int:
        return len(self.c)

    def __getitem__(self, where: slice) -> Products:
        return joined([{name: codes[where] for name, codes in self.codes.items()}])

    @property
    def codes(self) -> dict[str, Codes]:
        """All arrays by name: a, b, c, and the scales if there are any."""
        return {"a": self.a, "b": self.b, "c": self.c, **self.scales}

    def changed(self, name: str, place: int | Iterable[int], code: int) -> Products:
        """A copy in which some codes of the first product are another one.

        >>> one = Products(np.ones((1, 1, 4), np.uint16), np.ones((1, 4, 1), np.uint16), np.zeros((1, 1, 1), np.uint32))
        >>> one.changed("a", [1, 2], 0).a.tolist()
        [[[1, 0, 0, 1]]]
        """
        codes = {own: array.copy() if own == name else array for own, array in self.codes.items()}
        codes[name][0].reshape(-1)[place] = code  # an int or several
        return joined([codes])


def joined(parts: Iterable[Mapping[str, Codes]]) -> Products:
    """One after the other, each as the dictionary that `Products.codes` gives."""
    all_parts = list(parts)
    codes = {name: np.concatenate([part[name] for part in all_parts]) for name in all_parts[0]}
    return Products(codes.pop("a"), codes.pop("b"), codes.pop("c"), codes)


def formats_of(instruction: Any) -> dict[str, Format]:
    """The number formats by name: a, b, c, d, and scale_a and scale_b where there are scales; none without products.

    >>> sorted(formats_of(tcsim.instruction("movmatrix.sync.aligned.m8n8.trans.b16", arch="sm_90")))
    []
    """
    formats = getattr(instruction, "formats", {})
    if callable(formats) or not {"a", "b", "c"} <= set(formats):
        return {}
    own = {name: format for name, format in formats.items() if name in "abcd"}
    return {**own, "d": instruction.operands["d"].format, **getattr(instruction, "scale_formats", {})}


def results(instruction: Any, products: Products) -> Codes:
    """What the instruction makes of each: codes of D (count,). A and B are negated where a descriptor says so."""
    formats = formats_of(instruction)
    triple = (formats["a"], formats["b"], formats["c"])
    parts = []
    for part in chunks(len(products), products.a.shape[2]):
        one = products[part]
        a, b = instruction.negated("a", one.a), instruction.negated("b", one.b)
        scales = {name: (codes, formats[name]) for name, codes in one.scales.items()}
        parts.append(instruction.lowering.run(a, b, one.c, triple, scales).reshape(-1))
    return np.concatenate(parts) if parts else np.empty(0, formats["d"].dtype)
