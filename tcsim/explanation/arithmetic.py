"""The arithmetics that a product may have been computed with: how operands are read, and what one more block of K does to an accumulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import catalog
from tcsim.arithmetic import double, floating
from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.targets import accepting
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.kinds import tensor_arch
from tcsim.numbers.codec import encode
from tcsim.numbers.formats import FORMATS, Format

Codes = npt.NDArray[Any]
Advance = Callable[[Codes, Codes, Codes], Codes]
"""a (batch, M, L), b (batch, L, N) and accumulators (batch, M, N) to the next accumulators."""


@dataclass(frozen=True)
class Arithmetic:
    """One way to add products to an accumulator, block after block of `step` elements of K."""

    name: str  # for readers
    formats: tuple[str, str]  # that a and b are read in
    rounding: str  # of operands that are not given in those formats; empty if they are
    step: int
    accumulator: str
    advance: Advance = field(repr=False, compare=False)
    instructions: tuple[str, ...] = ()  # which have this arithmetic
    ordered: bool = True  # whether the order of K matters
    rival: bool = False  # of ordinary instructions where a tensor core takes the same formats
    blocks: bool = False  # a step is several instructions: nobody is known to take such steps in turn

    @property
    def output(self) -> Format:
        """The format of accumulators."""
        return FORMATS[self.accumulator]

    def read(self, codes: Codes, given: str, operand: int) -> Codes:
        """An operand's codes as they are multiplied."""
        target = self.formats[operand]
        if given == target or not self.rounding:
            return codes
        values = FORMATS[given].values(np.ascontiguousarray(codes)).reshape(codes.shape)
        return encode(values, target, self.rounding)  # type: ignore[arg-type]


def arithmetics(left: str, right: str, arch: str) -> Iterator[Arithmetic]:
    """Those for operands of two formats on an arch: the tensor core's first, then chains of ordinary instructions."""
    if FORMATS[left].kind != "float":
        yield from _of_tensor_cores(left, right, arch)
        return
    for inner, rounding in READ_AS.get((left, right), ()):
        yield from _of_tensor_cores(inner, inner, arch, rounding, f"operands rounded to {inner} ({rounding}), ")
    if (left, right) == ("f32", "f32"):
        yield from _in_three(arch)
    yield from (item for item in _of_tensor_cores(left, right, arch) if item.accumulator != "f64")  # an FMA chain too
    if {left, right} <= WIDENED:
        yield from _of_tensor_cores("f16", "f16", arch, "rne", "operands widened to f16, ")
    wide = "f64" if "f64" in (left, right) else "f32"
    rival = (left, right) not in READ_AS and wide == "f32"
    for name, add in (
        (f"one {wide} FMA after another", _fused),
        (f"one {wide} product and addition after another", _separate),
    ):
        yield _chain(name, (left, right), wide, add, rival)
    if (left, right) == ("f16", "f16"):
        yield _chain("one f16 FMA after another", (left, right), "f16", _fused, rival)


READ_AS: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("f32", "f32"): (("tf32", "rne"), ("tf32", "rna"), ("tf32", "rz"), ("bf16", "rne"), ("f16", "rne"))
}
"""What a library may round operands of other formats to, and how."""

WIDENED = {"e4m3", "e5m2"}
"""What a kernel may widen to f16, exactly, and multiply as f16: Triton does on small tiles (recorded on an H200)."""


def _of_tensor_cores(left: str, right: str, arch: str, rounding: str = "", read: str = "") -> Iterator[Arithmetic]:
    """The dense multiplies of the arch that take these formats, one for all that compute the same."""
    merged: dict[tuple[Any, ...], tuple[Lowering, list[str]]] = {}
    for mnemonic, accumulator, step, lowering in (
        *_of_tensor_memory(left, right, arch),
        *_of_registers(left, right, arch),
    ):
        merged.setdefault((accumulator, step, lowering.steps), (lowering, []))[1].append(mnemonic)
    for (accumulator, step, _), (lowering, names) in sorted(
        merged.items(), key=lambda item: (item[0][0] == "f16", -item[0][1])
    ):
        yield Arithmetic(
            f"{read}{_family(names)}, k{step}, {accumulator} accumulator", (left, right), rounding, step, accumulator,
            partial(_multiplied, lowering, (FORMATS[left], FORMATS[right], FORMATS[accumulator])), tuple(names),
            FORMATS[accumulator].kind == "float",
        )  # fmt: skip


Multiply = tuple[str, str, int, Lowering]
"""A mnemonic, the format of its accumulator, its K, and what runs."""


def _of_registers(left: str, right: str, arch: str) -> Iterator[Multiply]:
    """wgmma and mma.sync: accumulators in registers."""
    lowerings: dict[tuple[Any, ...], Lowering] = {}
    _, targets = accepting(arch)
    for family in ("wgmma", "mma.sync"):
        for row in catalog.family(family).rows():
            formats = {item.name: item.format.name for item in row.forms[0].operands if item.format is not None}
            if (formats["a"], formats["b"]) != (left, right) or row.dropped or not set(row.targets) & set(targets):
                continue
            accumulator = formats["d"]
            key = (accumulator, row.shape[2], row.arithmetic, family)
            if key not in lowerings:
                multiply: Any = catalog.instruction(row.mnemonic, arch=arch)
                if multiply.formats["c"].name != accumulator or getattr(multiply, "sparsity", None) is not None:
                    continue  # another row of the same arithmetic may fit
                lowerings[key] = multiply.lowering
            yield row.mnemonic, accumulator, row.shape[2], lowerings[key]


def _of_tensor_memory(left: str, right: str, arch: str) -> Iterator[Multiply]:
    """tcgen05.mma: accumulators in Tensor Memory; formats and K in its instruction descriptor."""
    chip, targets = accepting(arch)
    for row in catalog.family("tcgen05.mma").rows():
        kind = row.kind
        plain = not (row.collectors or row.ashift or row.lookup or row.sparse or kind.block_scaled)
        if not plain or {left, right} - set(kind.ab_formats) or not set(row.targets) & set(targets):
            continue
        multiply: Any = catalog.instruction(row.mnemonic, arch=arch)
        for depth in kind.depths_on(chip, sparse=False):
            if depth.formats and {left, right} - depth.formats:
                continue
            for accumulator in kind.d_formats:
                try:
                    words = InstructionDescriptor(
                        kind.name, 128 * row.cta_group, 64, accumulator, left, right, k=depth.k, arch=tensor_arch(chip)
                    )
                except OperandError:
                    continue  # an f16 accumulator takes f16 alone
                yield row.mnemonic, accumulator, depth.k, multiply.lowering_for(words)


THREES = ((8, False), *((block, fresh) for block in (16, 32, 64, 128) for fresh in (True, False)))
"""Elements of K in which three tf32 products are summed, and whether a fresh accumulator is added to the total after each.

Triton's input_precision="tf32x3" takes its BLOCK_K: older versions go on in one accumulator, 3.6 adds a fresh one
(lib/Dialect/TritonGPU/Transforms/F32DotTC.cpp). CUTLASS's OpMultiplyAddFastF32 takes each instruction's 8 in one accumulator.
"""


def _in_three(arch: str) -> Iterator[Arithmetic]:
    """f32 by three products of tf32: small by big, big by small, big by big. Sources: as of `THREES`."""
    tf32 = FORMATS["tf32"]
    for mnemonic, accumulator, step, lowering in _of_registers("tf32", "tf32", arch):
        if step != 8:
            continue
        for block, fresh in THREES:
            whole = (
                f"in blocks of {block}, each added to the total" if fresh else f"in turn every {block} elements of K"
            )
            yield Arithmetic(
                f"three products of operands split into tf32 (tf32x3), k8, {whole}", ("f32", "f32"), "", block, accumulator,
                partial(_three, lowering, (tf32, tf32, FORMATS[accumulator]), fresh), (mnemonic,), blocks=True,
            )  # fmt: skip
        return


def _three(
    lowering: Lowering, formats: tuple[Format, Format, Format], fresh: bool, a: Codes, b: Codes, c: Codes
) -> Codes:
    (big, small), (met, less) = _split(a), _split(b)
    total = np.zeros_like(c) if fresh else c
    for left, right in ((small, met), (big, less), (big, met)):
        for k in range(0, a.shape[2], 8):
            total = lowering.run(left[:, :, k : k + 8], right[:, k : k + 8], total, formats)
    if not fresh:
        return total
    with np.errstate(all="ignore"):
        return (c.view(np.float32) + total.view(np.float32)).view(c.dtype)


def _split(codes: Codes) -> tuple[Codes, Codes]:
    """f32 codes of finite numbers rounded to tf32, halves away from zero, and what is left of them."""
    big = (codes + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    with np.errstate(all="ignore"):
        return big, (codes.view(np.float32) - big.view(np.float32)).view(codes.dtype)


def _family(names: list[str]) -> str:
    """The families of some mnemonics, by their first word."""
    return " or ".join(dict.fromkeys(name.split(".")[0] for name in names))


def _multiplied(lowering: Lowering, formats: tuple[Format, Format, Format], a: Codes, b: Codes, c: Codes) -> Codes:
    return lowering.run(a, b, c, formats)


def _chain(name: str, formats: tuple[str, str], accumulator: str, add: Any, rival: bool = True) -> Arithmetic:
    return Arithmetic(name, formats, "", 1, accumulator, partial(add, formats, accumulator), rival=rival)


def _wide(codes: Codes, format: str) -> npt.NDArray[np.float64]:
    return FORMATS[format].values(codes)


def _fused(formats: tuple[str, str], accumulator: str, a: Codes, b: Codes, c: Codes) -> Codes:
    """Each column of a with each row of b, by fused multiply-adds."""
    if accumulator == "f64":
        left, right = (_wide(x, f).view(np.uint64) for x, f in zip((a, b), formats, strict=True))
        for k in range(a.shape[2]):
            c = double.fma(left[:, :, k, None], right[:, None, k], c)
        return c
    if accumulator == "f16":
        for k in range(a.shape[2]):
            c = floating.fma(a[:, :, k, None], b[:, None, k], c, "f16")
        return c
    wide = _wide(a, formats[0]), _wide(b, formats[1])
    for k in range(a.shape[2]):
        c = _fma32(wide[0][:, :, k, None] * wide[1][:, None, k], c)
    return c


def _fma32(product: npt.NDArray[np.float64], c: Codes) -> Codes:
    """An exact product plus an f32 addend, rounded once. Only where f64 lands on a tie of f32 can rounding twice differ."""
    addend = c.view(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        total = product + addend
        found = total.astype(np.float32)
        doubtful = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
        doubtful |= np.abs(total) < 2.0**-125
        if doubtful.any():
            part = total - product
            error = (product - (total - part)) + (addend - part)
            error = np.where(np.isfinite(error), error, 0.0)
            codes: Codes = floating.rounded(total, error, "f32", "rne")
            return np.where(doubtful, codes, found.view(np.uint32))
    return found.view(np.uint32)


def _separate(formats: tuple[str, str], accumulator: str, a: Codes, b: Codes, c: Codes) -> Codes:
    """The same with a rounded product and a rounded sum."""
    left, right = _wide(a, formats[0]), _wide(b, formats[1])
    kind: Any = np.float64 if accumulator == "f64" else np.float32
    total = c.view(kind)
    with np.errstate(all="ignore"):
        for k in range(a.shape[2]):
            total = total + (left[:, :, k, None] * right[:, None, k]).astype(kind)
    return total.view(c.dtype)


def exactly(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The product of a (P, K) and b (P, K) row by row, as good as exact: products and sums with their errors, in two f64.

    >>> exactly(np.array([[1e16, 1.0, -1e16]]), np.ones((1, 3)))
    array([1.])
    """
    with np.errstate(all="ignore"):
        product = a * b
        low = _product_errors(a, b, product).sum(axis=1)
        high = np.zeros(len(product))
        for term in np.ascontiguousarray(product.T):
            total = high + term
            part = total - high
            low += (high - (total - part)) + (term - part)
            high = total
        return high + low


def _product_errors(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], product: npt.NDArray[np.float64]) -> Any:
    """What f64 lost of each product; nothing if operands have at most 26 significant bits."""
    if all((x == x.astype(np.float32)).all() for x in (a, b)):
        return np.zeros_like(product)
    halves = []
    for x in (a, b):
        large = x * (2.0**27 + 1)
        high = large - (large - x)
        halves.append((high, x - high))
    (a_high, a_low), (b_high, b_low) = halves
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def rivals(formats: tuple[str, str], k: int) -> Iterator[Arithmetic]:
    """What any product is compared with, because on easy data it looks like a tensor core: the exact product, and a sum in f64."""
    if FORMATS[formats[0]].kind == "float":
        yield Arithmetic("the exact product, rounded once", formats, "", k, "f64", partial(_exact, formats))
        yield _chain("a sum in f64, rounded once", formats, "f64", _separate)


def _exact(formats: tuple[str, str], a: Codes, b: Codes, c: Codes) -> Codes:
    """The exact product as f64, for one row of a and one column of b each."""
    return exactly(_wide(a[:, 0], formats[0]), _wide(b[:, :, 0], formats[1]))[:, None, None].view(np.uint64)


def zeros(shape: tuple[int, ...], item: Arithmetic) -> Codes:
    """Accumulators of zero."""
    return np.zeros(shape, item.output.dtype)
