"""Memory after a launch against what is expected: exactly, or within some units in the last place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.launchers.elements import APART, Array, Bytes, Elements


@dataclass(frozen=True)
class Difference:
    """One element that differs."""

    index: tuple[int, ...]
    got: int  # codes
    want: int
    ulps: int | None  # None: one of the two is NaN or not a code


@dataclass(frozen=True)
class Comparison:
    """An array compared with what is expected."""

    name: str
    elements: Elements
    shape: tuple[int, ...]
    ulp: int | None  # what is allowed; None: no bit may differ
    compared: int
    differing: int  # elements that differ by more than is allowed
    unequal: int  # elements whose bits differ
    largest: int | None  # the largest difference in ulps of numbers whose bits differ; None if there is none
    first: Difference | None

    @property
    def equal(self) -> bool:
        """Whether nothing differs by more than is allowed."""
        return not self.differing

    def lines(self) -> list[str]:
        """What to print of it."""
        allowed = "exact" if self.ulp is None else f"within {self.ulp} ulp of {self.elements.name}"
        said = f"{self.compared} elements of {self.elements.name}, {allowed}: {self.differing} differ"
        if self.unequal and self.largest is not None:
            said += f", {self.unequal} not equal, by up to {self.largest} ulp"
        found = [said]
        if self.first is not None:
            own, place = self.first, ", ".join(map(str, self.first.index))
            sides = (
                f"{self.elements.code_text(code)} = {self.elements.value_text(code)}" for code in (own.got, own.want)
            )
            got, want = sides
            found.append(f"first: [{place}] is {got}, expected {want}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        first = self.first
        return {
            "name": self.name, "format": self.elements.name, "shape": list(self.shape), "ulp": self.ulp,
            "compared": self.compared, "differing": self.differing, "unequal": self.unequal, "largest_ulp": self.largest,
            "first": None if first is None else {
                "index": list(first.index), "code": first.got, "expected_code": first.want,
                "value": self.elements.value_text(first.got), "expected_value": self.elements.value_text(first.want),
                "ulp": first.ulps,
            },
        }  # fmt: skip


def compare(
    name: str, elements: Elements, shape: tuple[int, ...], got: Bytes, want: Bytes, ulp: int | None = None
) -> Comparison:
    """Compare the bytes of two arrays of one shape, element by element.

    Pre-conditions: both have elements.size(shape) bytes.

    >>> one, two = (np.float32([x, 2]).view(np.uint8) for x in (1, 1.0000001))
    >>> compare("x", Elements("f32"), (2,), one, two).lines()[1]
    'first: [0] is 0x3f800000 = 1.0, expected 0x3f800001 = 1.0000001'
    >>> compare("x", Elements("f32"), (2,), one, two, ulp=1).equal
    True
    """
    return compare_codes(name, elements, shape, elements.to_codes(got), elements.to_codes(want), ulp)


def compare_codes(
    name: str, elements: Elements, shape: tuple[int, ...], first: Array, second: Array, ulp: int | None = None
) -> Comparison:
    """Compare codes in a row, of arrays of one shape."""
    places = np.flatnonzero(first != second)
    apart = elements.ulps(first[places], second[places]) if places.size else np.zeros(0, np.uint64)
    finite = apart[apart != np.uint64(APART)]
    beyond = np.arange(len(places)) if ulp is None else np.flatnonzero(apart > np.uint64(ulp))
    difference = None
    if beyond.size:
        at = int(places[beyond[0]])
        own = int(apart[beyond[0]])
        index = tuple(int(i) for i in np.unravel_index(at, shape or (1,)))
        difference = Difference(index, int(first[at]), int(second[at]), None if own == APART else own)
    largest = int(finite.max()) if finite.size else None
    return Comparison(name, elements, shape, ulp, len(first), len(beyond), len(places), largest, difference)
