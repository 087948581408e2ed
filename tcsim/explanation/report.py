"""What explains the bits of a product, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.core.display import Shown
from tcsim.core.errors import OperandError, listing
from tcsim.explanation.candidate import Candidate
from tcsim.explanation.probes import PROBES

Verdict = Literal["explained", "consistent", "not explained"]
"""One order of summation is left; several are, which this data cannot tell apart; none reproduces every output."""


@dataclass(frozen=True)
class Summation:
    """Hypotheses that give the same bits for any operands, the likeliest first, and what they reproduce."""

    arithmetic: str  # the instruction, or the chain of ordinary ones, and how it reads operands
    order: str  # accumulators and how they are added
    epilogue: str  # from the accumulator to the output
    also: tuple[str, ...]  # other names of the same bits
    instructions: tuple[str, ...]  # mnemonics that have the arithmetic
    matched: int  # outputs reproduced, of those compared
    compared: int
    candidate: Candidate = field(repr=False, compare=False)

    def __str__(self) -> str:
        return "; ".join(text for text in (self.arithmetic, self.order, self.epilogue) if text)

    def predict(self, a: Any, b: Any, c: Any = None) -> npt.NDArray[Any]:
        """The output that this order gives for other operands of the same K, as codes: (..., M, N)."""
        return self.candidate.predict(a, b, c)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "arithmetic": self.arithmetic, "order": self.order, "epilogue": self.epilogue, "also": list(self.also),
            "instructions": list(self.instructions), "matched": self.matched, "compared": self.compared,
        }  # fmt: skip


@dataclass(frozen=True)
class Explanation(Shown):
    """The answer of `tcsim.explain`.

    >>> a, b = np.ones((2, 16, 16), np.float16)
    >>> found = tcsim.explain(a, b, np.full((16, 16), 16, np.float32))  # every order gives 16
    >>> found.verdict, found.matching, found.compared
    ('consistent', 256, 256)
    >>> found.lines()[0]
    'f16 x f16 -> f32, 16x16x16: consistent with 12 orders, each of which reproduces all of 256 outputs; this data cannot tell them apart'
    >>> found.as_dict()["verdict"]
    'consistent'
    >>> [operand.shape for operand in found.settle("tree")]
    [(16, 16), (16, 16)]
    """

    verdict: Verdict
    classes: tuple[Summation, ...]  # that reproduce every output compared, likeliest first
    nearest: tuple[Summation, ...]  # where there is none: the best of the others
    rivals: Mapping[str, tuple[int, int]]  # what every product is compared with: outputs reproduced, and compared
    hypotheses: int  # tried
    shape: tuple[int, ...]  # of the output
    formats: tuple[str, str, str]
    seconds: float = field(default=0.0, compare=False)
    k: int = 0

    @property
    def outputs(self) -> int:
        """Outputs given."""
        return int(np.prod(self.shape))

    @property
    def matching(self) -> int:
        """Outputs that the best order reproduces."""
        best = (*self.classes, *self.nearest)
        return best[0].matched if best else 0

    @property
    def compared(self) -> int:
        """Outputs that the best order was compared with."""
        best = (*self.classes, *self.nearest)
        return best[0].compared if best else 0

    def settle(self, kind: str = "cancelling", seed: int = 0) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Operands of the same shape and formats whose output tells orders apart: run them through the library, and ask again.

        kind: "cancelling": half of K repeats the other half with the sign of a turned, so that the output is the rounding error
        alone; "tree": masks, whose outputs count what was added after two places of K had met.

        Raises OperandError for another kind.
        """
        if kind not in PROBES:
            raise OperandError(f"tcsim.explain: settle({kind!r}); valid: {listing(PROBES)}")
        return PROBES[kind](self.shape, self.k, self.formats[:2], seed)

    def lines(self) -> list[str]:
        """For readers."""
        left, right, out = self.formats
        size = "x".join(map(str, (*self.shape, self.k)))
        head = f"{left} x {right} -> {out}, {size}: "
        if self.verdict == "explained":
            found = [
                head + f"explained: all of {self.compared:,} outputs{self._of()} reproduced in every bit",
                *_said(self.classes[0]),
            ]
        elif self.verdict == "consistent":
            found = [
                head
                + f"consistent with {len(self.classes)} orders, each of which reproduces all of {self.compared:,} outputs{self._of()}; "
                "this data cannot tell them apart"
            ]
            for number, item in enumerate(self.classes[:_SHOWN], 1):
                found += [f"{number}.", *_said(item)]
            if len(self.classes) > _SHOWN:
                found.append(f"... and {len(self.classes) - _SHOWN} more")
            found.append(
                "settle it: run the operands of settle() (--settle FILE) through the library, and ask again with its output"
            )
        else:
            found = [head + f"not explained: none of {self.hypotheses:,} hypotheses reproduces every output"]
            for item in self.nearest:
                found += [f"nearest: {item.matched:,} of {item.compared:,} outputs", *_said(item)]
        for name, (matched, compared) in self.rivals.items():
            found.append(f"rival: {name}: {matched:,} of {compared:,}")
        found.append(f"{self.hypotheses:,} hypotheses, {self.seconds:.1f} s")
        return found

    def _of(self) -> str:
        return "" if self.compared == self.outputs else f" compared (of {self.outputs:,})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "verdict": self.verdict, "formats": list(self.formats), "shape": list(self.shape), "k": self.k,
            "outputs": self.outputs, "compared": self.compared, "matching": self.matching,
            "classes": [item.as_dict() for item in self.classes], "nearest": [item.as_dict() for item in self.nearest],
            "rivals": {name: {"matched": matched, "compared": compared} for name, (matched, compared) in self.rivals.items()},
            "hypotheses": self.hypotheses, "seconds": round(self.seconds, 3),
        }  # fmt: skip


_SHOWN = 6  # orders in the text


def _said(item: Summation) -> list[str]:
    found = [f"  {item.arithmetic}", f"  {item.order}"]
    found += [f"  {item.epilogue}"] if item.epilogue else []
    found += [f"  the same bits: {text}" for text in item.also[:3]]
    return found
