"""Where the results of an instruction differ between archs, by how much, and the smallest input that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from tcsim.core.errors import OperandError, TargetError
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.inspection.outputs import outputs_of
from tcsim.inspection.problems import Arrays, Call, described
from tcsim.inspection.products import Codes, Products, formats_of, results
from tcsim.inspection.random_inputs import random_products
from tcsim.inspection.smallest_example import Example, smallest_example
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import Format

_STARTS = 8  # differing outputs that are simplified, to show the simplest


@dataclass(frozen=True)
class Difference:
    """How the results of two archs differ."""

    first: str
    second: str
    outputs: int
    differing: int
    largest_units: int | None  # of those that differ: the largest number of codes between the two; None if NaN or none
    by_units: dict[str, int]  # how many differ by 1 code, by 2 to 9, by 10 and more, and by NaN
    example: Example | None

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "first": self.first, "second": self.second, "outputs": self.outputs, "differing": self.differing,
            "largest_units": self.largest_units, "by_units": self.by_units,
            "example": self.example.as_dict() if self.example else None,
        }  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """All pairs of archs."""

    mnemonic: str
    archs: tuple[str, ...]
    evidence: dict[str, str]
    seed: int | None  # None: given inputs
    differences: tuple[Difference, ...]
    reference: Any  # the instruction on the first arch, of tcgen05.mma with its descriptor

    @property
    def descriptor(self) -> InstructionDescriptor | None:
        """The instruction descriptor of tcgen05.mma."""
        return getattr(self.reference, "desc", None)

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "mnemonic": self.mnemonic, "archs": list(self.archs), "evidence": self.evidence, "seed": self.seed,
            "idesc": self.descriptor.encode() if self.descriptor else None,
            "differences": [difference.as_dict() for difference in self.differences],
        }  # fmt: skip


def compare_archs(
    mnemonic: str,
    archs: tuple[str, ...],
    count: int = 4096,
    seed: int = 1,
    inputs: Arrays | None = None,
    call: Call | None = None,
    idesc: int | None = None,
) -> Comparison:
    """Compare the results of one instruction on several archs, bit by bit.

    On `count` random dot products, or on all outputs of `inputs`: the arguments of `matmul` or `execute` by name, as
    `tcsim.inspection.problems.run_call` takes them. tcgen05.mma needs its descriptor: `idesc`, or an input of that name.

    Raises TargetError for fewer than two archs, InstructionError where the instruction does not exist, OperandError for
    one that computes no products or for matrices of other shapes, FormatError for another dtype.

    >>> mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> found = compare_archs(mma, ("sm_80", "sm_90"), count=512).differences[0]
    >>> found.outputs, found.differing > 0, len(found.example.products) <= 3
    (512, True, True)
    """
    if len(set(archs)) < 2:
        raise TargetError(f"compare {mnemonic}: {len(set(archs))} arch is named; valid: at least two different ones")
    given = {**(inputs or {}), **({} if idesc is None else {"idesc": idesc})}
    instructions = {arch: described(tcsim.instruction(mnemonic, arch=arch), given) for arch in dict.fromkeys(archs)}
    reference = next(iter(instructions.values()))
    if not formats_of(reference):
        raise OperandError(
            f"compare {mnemonic}: it computes no products, whose sums archs round differently; valid: instructions with a, b and c"
        )
    shape: tuple[int, ...] | None = None
    if inputs is None:
        products = random_products(reference, count, seed)
    else:
        outputs = outputs_of(reference, given, call)
        products, shape = outputs.products(), outputs.shape
    found = {arch: results(item, products) for arch, item in instructions.items()}
    differences = tuple(
        _difference(pair, found, instructions, products, shape) for pair in combinations(instructions, 2)
    )
    evidence = {arch: item.evidence.level for arch, item in instructions.items()}
    return Comparison(mnemonic, tuple(instructions), evidence, seed if inputs is None else None, differences, reference)


def _difference(
    pair: tuple[str, str],
    found: Mapping[str, Codes],
    instructions: Mapping[str, Any],
    products: Products,
    shape: tuple[int, ...] | None,
) -> Difference:
    first, second = (found[arch] for arch in pair)
    where = np.flatnonzero(first != second)
    if not where.size:
        return Difference(*pair, len(first), 0, None, {}, None)
    apart = _units(first[where], second[where], formats_of(instructions[pair[0]])["d"])
    counts = {"1": int((apart == 1).sum()), "2-9": int(((apart > 1) & (apart < 10)).sum())}
    counts |= {"10 and more": int((apart >= 10).sum()), "NaN": len(where) - len(apart)}
    examples = []
    for chosen in map(int, where[:_STARTS]):
        place = None if shape is None else tuple(int(i) for i in np.unravel_index(chosen, shape))
        examples.append(smallest_example(pair, instructions, products[chosen : chosen + 1], place))
    smallest = min(examples, key=lambda example: example.complexity)
    return Difference(*pair, len(first), len(where), int(apart.max()) if apart.size else None, counts, smallest)


def _units(first: Codes, second: Codes, format: Format) -> npt.NDArray[np.int64]:
    """How many codes lie between results that are not NaN."""
    if format.kind != "float":
        return np.abs(decode(first, format) - decode(second, format))
    numbers = ~(np.isnan(decode(first, format)) | np.isnan(decode(second, format)))
    top = 1 << (format.bits + format.ignored_low_bits - 1)
    places = []
    for codes in (first[numbers], second[numbers]):
        wide = codes.astype(object)  # 64-bit codes too
        places.append(np.array([top - int(x) if int(x) >= top else int(x) for x in wide], object))
    return np.abs(places[0] - places[1])
