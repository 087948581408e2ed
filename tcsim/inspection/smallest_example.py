"""The smallest input on which two archs differ: one output, simplified as far as it still differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.inspection.products import Codes, Products, formats_of, joined, results
from tcsim.inspection.trace_steps import CodeValue
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import ZERO, Format
from tcsim.trace import show_code


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
    scales: dict[str, tuple[CodeValue, ...]]  # of the blocks of K, by name
    results: dict[str, CodeValue]  # of every arch compared
    codes: Products  # all K codes: one dot product
    place: tuple[int, ...] | None  # of given inputs: the output that it was simplified from

    @property
    def complexity(self) -> tuple[int, int]:
        """The number of products, then of set bits."""
        bits = sum(int(code).bit_count() for codes in self.codes.codes.values() for code in codes.reshape(-1))
        return len(self.products), bits

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "products": [product.as_dict() for product in self.products], "c": self.c.as_dict(),
            "scales": {name: [code.as_dict() for code in codes] for name, codes in self.scales.items()},
            "results": {arch: result.as_dict() for arch, result in self.results.items()},
            "place": list(self.place) if self.place is not None else None,
        }  # fmt: skip


def smallest_example(
    pair: tuple[str, str], instructions: Mapping[str, Any], one: Products, place: tuple[int, ...] | None
) -> Example:
    """Simplify one dot product greedily, as long as the pair of archs differs on it.

    Products and c are dropped, scales become 1, numbers become powers of two, then 1.

    >>> mma = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    >>> archs = {arch: tcsim.instruction(mma, arch=arch) for arch in ("sm_80", "sm_90")}
    >>> a = tcsim.encode([[[1, 3, 0, 0, 0, 0, 0, 5]]], "tf32")
    >>> b = tcsim.encode([[[2**-22], [0.25], [0], [0], [0], [0], [0], [0.125]]], "tf32")
    >>> one = Products(a, b, tcsim.encode([[[-11.0]]], "f32"))
    >>> example = smallest_example(("sm_80", "sm_90"), archs, one, None)
    >>> [(x.k, x.a.value, x.b.value) for x in example.products], example.c.value
    ([(0, 1.0, 2.384185791015625e-07)], -8.0)
    """
    two = [instructions[arch] for arch in pair]
    formats = formats_of(two[0])
    while True:
        candidates = list(_simpler(one, formats))
        if not candidates:
            break
        tried = joined([candidate.codes for candidate in candidates])
        differ = np.flatnonzero(results(two[0], tried) != results(two[1], tried))
        if not differ.size:
            break
        one = candidates[int(differ[0])]
    a, b = one.a[0, 0], one.b[0, :, 0]
    zero = _is_zero(a, formats["a"]) | _is_zero(b, formats["b"])
    products = tuple(
        Product(k, _shown("a", a[k], formats["a"]), _shown("b", b[k], formats["b"]))
        for k in map(int, np.flatnonzero(~zero))
    )
    scales = {
        name: tuple(_shown(name, code, formats[name]) for code in codes.reshape(-1))
        for name, codes in one.scales.items()
    }
    found = {arch: _shown("d", results(item, one)[0], formats["d"]) for arch, item in instructions.items()}
    return Example(products, _shown("c", one.c[0, 0, 0], formats["c"]), scales, found, one, place)


def _shown(name: str, code: Any, format: Format) -> CodeValue:
    return CodeValue(name, show_code(code, format), decode(np.array([code], format.dtype), format)[0].item())


def _is_zero(codes: Codes, format: Format) -> npt.NDArray[np.bool_]:
    return format.fields(codes).kind == ZERO if format.kind == "float" else codes == 0


def _simpler(one: Products, formats: Mapping[str, Format]) -> Iterator[Products]:
    """Products that are simpler in one respect, the simplest first."""
    used = np.flatnonzero((one.a[0, 0] != 0) | (one.b[0, :, 0] != 0)).tolist()
    for some in (used[: len(used) // 2], used[len(used) // 2 :], *([i] for i in used)):
        if some:
            yield one.changed("a", some, 0).changed("b", some, 0)
    if one.c[0, 0, 0] != 0:
        yield one.changed("c", 0, 0)
    for name, codes in one.scales.items():
        unit = int(encode(1.0, formats[name]))
        for place in np.flatnonzero(codes.reshape(-1) != unit):
            yield one.changed(name, int(place), unit)
    for name in "abc":
        if formats[name].kind != "float":
            continue
        flat = one.codes[name].reshape(-1)
        for place in np.flatnonzero(flat):
            for code in _rounder(int(flat[place]), formats[name]):
                yield one.changed(name, int(place), code)


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
