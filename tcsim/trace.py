"""One output, step by step: which terms were aligned where, what was cut, how the sum was rounded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.arithmetic.dot import AlignedTerms, aligned_terms
from tcsim.arithmetic.scaled_dot import scaled_terms
from tcsim.arithmetic.steps import (
    Arithmetic,
    BitDot,
    DotAdd,
    IntegerAdd,
    IntegerDot,
    ScaledDotAdd,
    Step,
    Values,
    Widen,
)
from tcsim.core.errors import OperandError
from tcsim.core.ranges import runs
from tcsim.model.instruction import Instruction
from tcsim.numbers.codec import as_codes, decode
from tcsim.numbers.formats import NO_EXPONENT, Format

if TYPE_CHECKING:
    from tcsim.isa.tcgen05.described import DescribedMultiply


def trace(
    instruction: Instruction | DescribedMultiply,
    a: Any,
    b: Any,
    c: Any,
    scale_a: Any = None,
    scale_b: Any = None,
) -> list[str]:
    """Lines of text that follow one result element through the lowering.

    a: the K codes of a row of A; b: the K codes of a column of B; c: one code. Of a sparse A, the K / 2 kept codes and
    those of B that they meet. A block-scaled instruction takes the scales of that row and that column too. A tcgen05.mma comes
    with its descriptor, as a `DescribedMultiply`, whose negations are applied.

    Raises OperandError for another number of codes, FormatError for another dtype.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> half = tcsim.encode([1.5, 2**-12, 0, 0, 0, 0, 0, 0], "f16")
    >>> print("\\n".join(trace(mma, half, half, tcsim.encode(1.0, "f32"))))
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 on sm_90: native, 1 step
    step 1: fused dot-add of k 0-7 and c, 25 fraction bits below the largest exponent, to f32 rz
      k=0   a=0x3e00 (1.5)  b=0x3e00 (1.5)  exponent 0  -> 75497472 * 2**-25
      k=1   a=0x0c00 (0.000244140625)  b=0x0c00 (0.000244140625)  exponent -24  -> 2 * 2**-25
      k=2-7 zero products
      c     0x3f800000 (1.0)  exponent 0  -> 33554432 * 2**-25
      largest exponent 0 (floor -133); sum 109051906 * 2**-25
      d = 0x40500000 (3.25)
    """
    formats = (instruction.formats["a"], instruction.formats["b"], instruction.formats["c"])
    row = as_codes(a, formats[0], "trace: a").reshape(1, 1, -1)
    column = as_codes(b, formats[1], "trace: b").reshape(1, -1, 1)
    addend = as_codes(c, formats[2], "trace: c").reshape(1, 1, -1)
    k = instruction.operands["a"].shape[1]
    for name, codes, length in (("a", row, k), ("b", column, k), ("c", addend, 1)):
        if codes.size != length:
            raise OperandError(f"trace of {instruction!r}: {name} has {codes.size} codes; valid: {length}")
    steps = instruction.lowering.steps
    count = f"{len(steps)} step" + ("s" if len(steps) > 1 else "")
    lines = [f"{instruction.mnemonic} on {instruction.arch.name}: {instruction.lowering.kind}, {count}"]
    row, column = instruction.negated("a", row), instruction.negated("b", column)
    values = Values({"a": row, "b": column, "c": addend}, dict(zip("abc", formats, strict=True)))
    for name, codes, format in scales_of(instruction, scale_a, scale_b):
        values.put(name, codes, format)
    for number, step in enumerate(steps, 1):
        text = _explain(step, values)
        step.run(values)
        lines.append(f"step {number}: {text[0]}")
        lines += [f"  {line}" for line in text[1:]]
        result = getattr(step, "result", None)
        if result is not None:
            codes, format = values.get(result)
            lines.append(f"  {result} = {_show(codes.reshape(-1)[0], format)}")
    return lines


def scales_of(instruction: Any, scale_a: Any, scale_b: Any) -> Iterator[tuple[str, Any, Format]]:
    """The scales of one result, of an instruction that has any: (1, 1, blocks) of A, (1, blocks, 1) of B.

    Raises OperandError for another number of scales, FormatError for another dtype.
    """
    formats: dict[str, Format] = getattr(instruction, "scale_formats", {})
    if not formats:
        return
    blocks = instruction.blocks
    for name, given, shape in (("scale_a", scale_a, (1, 1, blocks)), ("scale_b", scale_b, (1, blocks, 1))):
        format = formats[name]
        codes = as_codes([] if given is None else given, format, f"trace: {name}")
        if codes.size != blocks:
            raise OperandError(f"trace of {instruction!r}: {name} has {codes.size} codes; valid: {blocks}")
        yield name, codes.reshape(shape), format


def show_code(code: Any, format: Format) -> str:
    """A code in hexadecimal, as wide as its container or its bits.

    >>> show_code(60, tcsim.format("e4m3"))
    '0x3c'
    """
    digits = -(-(format.bits + format.ignored_low_bits) // 4)
    return f"0x{int(code):0{digits}x}"


def _show(code: Any, format: Format) -> str:
    value = decode(np.array([code], format.dtype), format)[0]
    return (
        f"{show_code(code, format)} ({value!r})"
        if isinstance(value, int)
        else f"{show_code(code, format)} ({value.item()!r})"
    )


@singledispatch
def _explain(step: Step, values: Values) -> list[str]:
    raise TypeError(f"no explanation of {type(step).__name__}")


@_explain.register
def _(step: Widen, values: Values) -> list[str]:
    return [f"a and b widened to {step.format}, exactly"]


@_explain.register
def _(step: DotAdd, values: Values) -> list[str]:
    a, b, c, formats = step.operands(values)
    unit = step.unit
    terms = aligned_terms(a, b, c, formats, unit)
    exponent = int(terms.exponent.reshape(-1)[0])
    scale = f"2**{exponent - unit.fraction_bits}"
    lines = [
        f"fused dot-add of k {runs(step.k)} and {step.addend}, {unit.fraction_bits} fraction bits below the largest "
        f"exponent, to {unit.output} {unit.rounding}"
    ]
    products = terms.products.reshape(len(step.k))
    zero: list[int] = []
    for place, k in enumerate(step.k):
        code_a, code_b = a[0, 0, place], b[0, place, 0]
        own = int(formats[0].exponents(a[:, :, place])[0, 0]) + int(formats[1].exponents(b[:, place, :])[0, 0])
        if own <= NO_EXPONENT // 2 and products[place] == 0:
            zero.append(k)
            continue
        lines.append(
            f"k={k:<3} a={_show(code_a, formats[0])}  b={_show(code_b, formats[1])}  {_where(own, products[place])}"
            f"  -> {_integer(products[place])} * {scale}"
        )
    if zero:
        lines.append(f"k={runs(tuple(zero))} zero products")
    return [*lines, *_end(step, terms, c, formats[2])]


def _end(step: DotAdd, terms: AlignedTerms, c: Any, format: Format) -> list[str]:
    """What is said of the addend and of the sum."""
    exponent = int(terms.exponent.reshape(-1)[0])
    scale = f"2**{exponent - step.unit.fraction_bits}"
    own, addend = int(format.exponents(c)[0, 0, 0]), terms.addend[0, 0, 0]
    with np.errstate(invalid="ignore"):
        total = terms.products.sum() + addend
    return [
        f"{step.addend:<5} {_show(c[0, 0, 0], format)}  {_where(own, addend)}  -> {_integer(addend)} * {scale}",
        f"largest exponent {exponent} (floor {step.unit.floor}); sum {_integer(total)} * {scale}",
    ]


@_explain.register
def _(step: ScaledDotAdd, values: Values) -> list[str]:
    a, b, c, scale_a, scale_b, formats = step.scaled_operands(values)
    terms = scaled_terms(a, b, c, scale_a, scale_b, formats, step.unit, step.group)
    unit, length = step.unit, len(step.k) // scale_a.shape[2]
    scale = f"2**{int(terms.exponent.reshape(-1)[0]) - unit.fraction_bits}"
    what = f"groups of {step.group} products of k" if step.group else "products of k"
    lines = [
        f"fused dot-add of scaled {what} {runs(step.k)} and {step.addend}, {unit.fraction_bits} fraction bits below the "
        f"largest exponent, to {unit.output} {unit.rounding}"
    ]
    for block in range(scale_a.shape[2]):
        shown = [
            f"scale_{side}={_show(codes.reshape(-1)[block], formats[3])}"
            for side, codes in (("a", scale_a), ("b", scale_b))
        ]
        lines.append(f"block {block}, k {runs(step.k[block * length : (block + 1) * length])}: {'  '.join(shown)}")
    run, zero = step.group or 1, []
    for place, product in enumerate(terms.products.reshape(-1)):
        at = slice(place * run, (place + 1) * run)
        block = place * run // length
        with np.errstate(invalid="ignore"):
            values_a, values_b = formats[0].values(a[0, 0, at]), formats[1].values(b[0, at, 0])
            summed = (values_a * values_b).sum()
        own = sum(int(formats[3].exponents(codes.reshape(-1)[block : block + 1])[0]) for codes in (scale_a, scale_b))
        if not step.group:
            own += int(formats[0].exponents(a[0, 0, at])[0]) + int(formats[1].exponents(b[0, at, 0])[0])
        if not (values_a * values_b).any() and product == 0:
            zero += list(step.k[at])
            continue
        factors = (
            "" if step.group else f"a={_show(a[0, 0, place], formats[0])}  b={_show(b[0, place, 0], formats[1])}  "
        )
        what = f"k={runs(step.k[at]):<3} " + (factors or f"sum of products {summed.item()!r}  ")
        lines.append(f"{what}{_where(own, product)}  -> {_integer(product)} * {scale}")
    if zero:
        lines.append(f"k={runs(tuple(zero))} zero products")
    return [*lines, *_end(step, terms, c, formats[2])]


def _where(exponent: int, value: float) -> str:
    """What is said of a term's exponent: infinities, NaN and zeros have none."""
    if not np.isfinite(value):
        return "not finite"
    return f"exponent {exponent}" if exponent > NO_EXPONENT // 2 else "zero"


def _integer(value: float) -> str:
    return str(int(value)) if np.isfinite(value) else str(value)


@_explain.register
def _(step: Arithmetic, values: Values) -> list[str]:
    shown = []
    for name in step.arguments:
        codes, format = values.get(name)
        shown.append(f"{name}={_show(codes.reshape(-1)[0], format)}")
    return [f"{step.op} of {', '.join(shown)} in {step.format}, {step.rounding}"]


@_explain.register
def _(step: IntegerDot, values: Values) -> list[str]:
    a, b = (decode(*values.get(name)).reshape(-1) for name in "ab")
    terms = " + ".join(f"{x}*{y}" for x, y in zip(a, b, strict=True) if x * y) or "0"
    end = "clamped to s32 once" if step.saturate else "modulo 2**32"
    return [f"integer dot product, addend {step.addend}, exact, then {end}", terms]


@_explain.register
def _(step: IntegerAdd, values: Values) -> list[str]:
    shown = ", ".join(f"{name}={int(decode(*values.get(name)).reshape(-1)[0])}" for name in ("acc", "c"))
    return [f"integer add of {shown}" + (", clamped to s32" if step.saturate else ", modulo 2**32")]


@_explain.register
def _(step: BitDot, values: Values) -> list[str]:
    a, b = (values.get(name)[0].reshape(-1).astype(bool) for name in "ab")
    both = a ^ b if step.op == "xor" else a & b
    return [
        f"popcount of a {step.op} b over k, plus c",
        f"set bits at k {runs(tuple(np.nonzero(both)[0].tolist())) or 'none'}",
    ]


explain = _explain
"""What one step does with values, before it is run, in sentences; the first says what the step is."""
