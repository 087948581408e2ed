"""Where the results of an instruction differ between archs, by how much, and the smallest input that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from tcsim.codec import as_codes, decode
from tcsim.errors import OperandError, TargetError
from tcsim.formats import ZERO, Format
from tcsim.inspection.random_inputs import random_problems
from tcsim.inspection.trace_steps import CodeValue
from tcsim.trace import show_code

Codes = npt.NDArray[Any]
_CHUNK = 1 << 17  # products at a time
_STARTS = 8  # differing outputs that are simplified, to show the simplest


@dataclass(frozen=True)
class Product:
    """One product of an example that is not zero."""

    k: int
    a: CodeValue
    b: CodeValue

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {"k": self.k, "a": self.a.as_dict(), "b": self.b.as_dict()}


@dataclass(frozen=True)
class Example:
    """One output on which two archs differ, simplified as far as it still differs."""

    products: tuple[Product, ...]
    c: CodeValue
    results: dict[str, CodeValue]  # of every arch compared
    a: Codes  # all K codes
    b: Codes
    c_code: Codes  # one code
    place: tuple[int, ...] | None  # of given inputs: the output that it was simplified from

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "products": [product.as_dict() for product in self.products], "c": self.c.as_dict(),
            "results": {arch: result.as_dict() for arch, result in self.results.items()},
            "place": list(self.place) if self.place is not None else None,
        }  # fmt: skip


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

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "mnemonic": self.mnemonic, "archs": list(self.archs), "evidence": self.evidence, "seed": self.seed,
            "differences": [difference.as_dict() for difference in self.differences],
        }  # fmt: skip


def compare_archs(
    mnemonic: str,
    archs: tuple[str, ...],
    count: int = 4096,
    seed: int = 1,
    matrices: tuple[Any, Any, Any] | None = None,
) -> Comparison:
    """Compare the results of one instruction on several archs, bit by bit.

    On `count` random dot products, or on given matrices of codes a (..., M, K), b (..., K, N), c (..., M, N); of a sparse
    instruction the K / 2 kept elements of A, and b of as many rows, those that they meet.

    Raises TargetError for fewer than two archs, InstructionError where the instruction does not exist, OperandError for
    one that computes no products or for matrices of other shapes, FormatError for another dtype.

    >>> mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> found = compare_archs(mma, ("sm_80", "sm_90"), count=512).differences[0]
    >>> found.outputs, found.differing > 0, len(found.example.products) <= 3
    (512, True, True)
    """
    if len(set(archs)) < 2:
        raise TargetError(f"compare {mnemonic}: {len(set(archs))} arch is named; valid: at least two different ones")
    instructions = {arch: tcsim.instruction(mnemonic, arch=arch) for arch in dict.fromkeys(archs)}
    reference = next(iter(instructions.values()))
    formats: dict[str, Format] = getattr(reference, "formats", {})
    if callable(formats) or not {"a", "b", "c"} <= set(formats):
        raise OperandError(
            f"compare {mnemonic}: it computes no products in registers; valid: instructions with a, b and c"
        )
    if getattr(reference, "scales", None):
        raise OperandError(f"compare {mnemonic}: its scales are not compared; valid: instructions without .block_scale")
    k = reference.operands["a"].shape[1]
    if matrices is None:
        a, b, c = random_problems(formats, k, count, seed)
    else:
        a, b, c = _problems(mnemonic, matrices, formats, k)
    results = {arch: _run(item, a, b, c) for arch, item in instructions.items()}
    given = None if matrices is None else matrices
    differences = tuple(
        _difference(pair, results, instructions, (a, b, c), given) for pair in combinations(instructions, 2)
    )
    evidence = {arch: item.evidence.level for arch, item in instructions.items()}
    return Comparison(mnemonic, tuple(instructions), evidence, seed if matrices is None else None, differences)


def _problems(mnemonic: str, matrices: tuple[Any, Any, Any], formats: dict[str, Format], k: int) -> tuple[Codes, ...]:
    """One dot product for each output: (count, 1, K), (count, K, 1), (count, 1, 1)."""
    call = f"compare {mnemonic}"
    a, b, c = (as_codes(x, formats[name], f"{call}: {name}") for name, x in zip("abc", matrices, strict=True))
    if a.ndim < 2 or b.ndim < 2 or c.ndim < 2 or a.shape[-1] != k or b.shape[-2] != k:
        raise OperandError(
            f"{call}: a {a.shape}, b {b.shape}, c {c.shape}; valid: (..., M, {k}), (..., {k}, N), (..., M, N)"
        )
    if c.shape[-2:] != (a.shape[-2], b.shape[-1]):
        raise OperandError(f"{call}: c is {c.shape}; valid: (..., {a.shape[-2]}, {b.shape[-1]})")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    m, n = c.shape[-2:]
    rows = np.broadcast_to(a[..., :, None, :], (*batch, m, n, k)).reshape(-1, 1, k)
    columns = np.broadcast_to(b.swapaxes(-1, -2)[..., None, :, :], (*batch, m, n, k)).reshape(-1, k, 1)
    return rows, columns, np.broadcast_to(c, (*batch, m, n)).reshape(-1, 1, 1)


def _run(instruction: Any, a: Codes, b: Codes, c: Codes) -> Codes:
    """The results of many dot products: (count,)."""
    formats = tuple(instruction.formats[name] for name in "abc")
    step = max(1, _CHUNK // a.shape[2])
    parts = [
        instruction.lowering.run(a[at : at + step], b[at : at + step], c[at : at + step], formats).reshape(-1)
        for at in range(0, len(a), step)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def _difference(
    pair: tuple[str, str],
    results: dict[str, Codes],
    instructions: dict[str, Any],
    problems: tuple[Codes, Codes, Codes],
    given: tuple[Any, Any, Any] | None,
) -> Difference:
    first, second = (results[arch] for arch in pair)
    where = np.flatnonzero(first != second)
    if not where.size:
        return Difference(*pair, len(first), 0, None, {}, None)
    format = instructions[pair[0]].formats["d"]
    apart = _units(first[where], second[where], format)
    counts = {"1": int((apart == 1).sum()), "2-9": int(((apart > 1) & (apart < 10)).sum())}
    counts |= {"10 and more": int((apart >= 10).sum()), "NaN": len(where) - len(apart)}
    shape: tuple[int, ...] | None = None
    if given is not None:
        shape = (*np.broadcast_shapes(*(np.shape(x)[:-2] for x in given)), *np.shape(given[2])[-2:])
    examples = []
    for chosen in map(int, where[:_STARTS]):
        parts = tuple(x[chosen : chosen + 1] for x in problems)
        place = None if shape is None else tuple(int(i) for i in np.unravel_index(chosen, shape))
        examples.append(_example(pair, instructions, parts, place))
    smallest = min(examples, key=_complexity)
    return Difference(*pair, len(first), len(where), int(apart.max()) if apart.size else None, counts, smallest)


def _complexity(example: Example) -> tuple[int, int]:
    """The number of products, then of set bits."""
    codes = (*example.a.reshape(-1), *example.b.reshape(-1), example.c_code)
    return len(example.products), sum(int(code).bit_count() for code in codes)


def _units(first: Codes, second: Codes, format: Format) -> npt.NDArray[np.int64]:
    """How many codes lie between results that are no NaN."""
    if format.kind != "float":
        return np.abs(decode(first, format) - decode(second, format))
    numbers = ~(np.isnan(decode(first, format)) | np.isnan(decode(second, format)))
    top = 1 << (format.bits + format.ignored_low_bits - 1)
    places = []
    for codes in (first[numbers], second[numbers]):
        wide = codes.astype(object)  # 64-bit codes too
        places.append(np.array([top - int(x) if int(x) >= top else int(x) for x in wide], object))
    return np.abs(places[0] - places[1])


# --- the smallest example


def _example(
    pair: tuple[str, str], instructions: dict[str, Any], problem: tuple[Codes, ...], place: tuple[int, ...] | None
) -> Example:
    """Simplify greedily: drop products, drop c, make numbers powers of two, then 1, as long as the pair differs."""
    a, b, c = (x.copy() for x in problem)
    two = [instructions[arch] for arch in pair]
    formats = two[0].formats
    while True:
        candidates = list(_simpler(a, b, c, formats))
        if not candidates:
            break
        tried = tuple(np.concatenate([candidate[i] for candidate in candidates]) for i in range(3))
        differ = np.flatnonzero(_run(two[0], *tried) != _run(two[1], *tried))
        if not differ.size:
            break
        a, b, c = candidates[int(differ[0])]
    kinds = {name: formats[name] for name in "abcd"}
    products = tuple(
        Product(k, _shown("a", a[0, 0, k], kinds["a"]), _shown("b", b[0, k, 0], kinds["b"]))
        for k in range(a.shape[2])
        if not (_is_zero(a[:, :, k], kinds["a"]).all() or _is_zero(b[:, k, :], kinds["b"]).all())
    )
    results = {arch: _shown("d", _run(item, a, b, c)[0], kinds["d"]) for arch, item in instructions.items()}
    return Example(products, _shown("c", c[0, 0, 0], kinds["c"]), results, a[0, 0], b[0, :, 0], c[0, 0, 0], place)


def _shown(name: str, code: Any, format: Format) -> CodeValue:
    return CodeValue(name, show_code(code, format), decode(np.array([code], format.dtype), format)[0].item())


def _is_zero(codes: Codes, format: Format) -> npt.NDArray[np.bool_]:
    return format.fields(codes).kind == ZERO if format.kind == "float" else codes == 0


def _simpler(a: Codes, b: Codes, c: Codes, formats: dict[str, Format]) -> Iterator[tuple[Codes, Codes, Codes]]:
    """Problems that are simpler in one respect, the simplest first."""
    k = a.shape[2]
    used = [i for i in range(k) if a[0, 0, i] != 0 or b[0, i, 0] != 0]
    for some in (used[: len(used) // 2], used[len(used) // 2 :], *([i] for i in used)):
        if some:
            fewer_a, fewer_b = a.copy(), b.copy()
            fewer_a[0, 0, some], fewer_b[0, some, 0] = 0, 0
            yield fewer_a, fewer_b, c
    if c[0, 0, 0] != 0:
        yield a, b, np.zeros_like(c)
    for name, own in (("a", a), ("b", b), ("c", c)):
        if formats[name].kind != "float":
            continue
        flat = own.reshape(-1)
        for place in np.flatnonzero(flat):
            for code in _rounder(int(flat[place]), formats[name]):
                changed = own.copy()
                changed.reshape(-1)[place] = code
                yield tuple(changed if part == name else x for part, x in (("a", a), ("b", b), ("c", c)))  # type: ignore[misc]


def _rounder(code: int, format: Format) -> Iterator[int]:
    """Simpler codes of the same sign: 1, then the power of two below, then one fraction bit fewer."""
    shift = format.fraction_bits + format.ignored_low_bits
    one = format.bias << shift
    sign = 1 << (format.sign_shift + format.ignored_low_bits) if format.signed else 0
    magnitude = code & ~sign
    if magnitude == one or magnitude >> format.ignored_low_bits > format.largest_code:
        return
    simpler = [one, magnitude >> shift << shift, magnitude & (magnitude - 1)]
    for candidate in simpler:
        if candidate and candidate != magnitude:
            yield candidate | (code & sign)
