"""A matrix product in the order of summation of a plan, with the bits of its GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tcsim.core.errors import NotModelledError, OperandError
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.multiplication import gemm
from tcsim.numbers.codec import as_codes
from tcsim.numbers.formats import FORMATS
from tcsim.plans.orders import Order, total
from tcsim.plans.record import Plan

Array = npt.NDArray[Any]
TYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "s32": np.int32}


def product(
    plan: Plan, a: Any, b: Any, *, bias: Any = None, scale_a: Any = None, scale_b: Any = None, engine: Any = None
) -> Array:
    """a b by a plan: a (..., M, K), b (..., K, N), codes or arrays of the plan's format; the result (..., M, N) in the plan's `out`.

    bias: (N,), added to the f32 sum before its one rounding. scale_a, scale_b of FP8: numbers, or (M, 1) and (1, N) of scaled_mm_rowwise.

    Raises NotModelledError for a plan without an instruction or an order, OperandError for shapes that are not the plan's.

    >>> plan = tcsim.plan("linear", m=8, n=16, k=64, format="f16", gpu="h200")
    >>> tcsim.plans.product(plan, np.ones((8, 64), np.float16), np.ones((64, 16), np.float16))[0, 0]
    np.float16(64.0)
    """
    if not plan.modelled:
        raise NotModelledError(f"{plan}; valid: plans with an instruction or an order")
    a, b = (
        _operand(x, FORMATS["f32" if format == "tf32" else format], name)
        for x, format, name in zip((a, b), plan.kind.formats, "ab", strict=True)
    )
    if a.shape[-2:] != (plan.m, plan.k) or b.shape[-2:] != (plan.k, plan.n):
        raise OperandError(
            f"product: a is {a.shape} and b {b.shape}; valid for this plan: (..., {plan.m}, {plan.k}) and (..., {plan.k}, {plan.n})"
        )
    if (scale_a is not None or scale_b is not None) and not plan.kind.call.startswith("scaled"):
        raise OperandError(f"product: scales for {plan.op}; valid: scaled_mm and scaled_mm_rowwise")
    if plan.order is not None:
        return _ordered(plan, plan.order, a, b, bias, engine)
    assert plan.instruction is not None
    idesc = descriptor_of(plan)
    summed: Any = None
    for first, last in plan.chunks:
        chunk: Any = None
        for start, stop in _spans(first, last, plan.promotion):
            part = gemm(
                a[..., start:stop],
                b[..., start:stop, :],
                instruction=plan.instruction,
                arch=plan.arch,
                idesc=idesc,
                engine=engine,
            )
            part = part.view(np.int32 if plan.format == "s8" else np.float32)
            chunk = part if chunk is None else chunk + part
        summed = chunk if summed is None else summed + chunk
    if plan.format == "s8":
        return summed
    return _epilogue(plan, summed, bias, scale_a, scale_b)


def _ordered(plan: Plan, order: Order, a: Array, b: Array, bias: Any, engine: Any) -> Array:
    """The product of a kernel with an order of its own."""
    if not order.instruction:
        a, b = (x.view(TYPES[plan.format]).astype(np.float32) if plan.format in ("f16", "bf16") else x for x in (a, b))
    added = _bias(plan, bias)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return total(order, a, b, TYPES[plan.out], added, plan.arch, engine).astype(TYPES[plan.out])


def _bias(plan: Plan, bias: Any) -> npt.NDArray[np.float32] | None:
    if (bias is not None) != plan.bias:
        raise OperandError(f"product: the plan has bias={plan.bias}; valid: the bias (N,) exactly then")
    if bias is None:
        return None
    found: npt.NDArray[np.float32] = (
        as_codes(bias, FORMATS[plan.out], "product: bias").view(TYPES[plan.out]).astype(np.float32)
    )
    return found


def descriptor_of(plan: Plan) -> InstructionDescriptor | None:
    """The instruction descriptor of a plan whose instruction is tcgen05.mma."""
    if plan.instruction is None or not plan.instruction.startswith("tcgen05"):
        return None
    kind, d = plan.instruction.split("kind::")[1], "s32" if plan.format == "s8" else "f32"
    a, b = plan.kind.formats
    return InstructionDescriptor(kind=kind, a_format=a, b_format=b, d_format=d, m=128, n=64)


def _operand(x: Any, format: Any, name: str) -> Array:
    codes: Array = as_codes(x, format, f"product: {name}")
    if codes.ndim < 2:
        raise OperandError(f"product: {name} is {codes.shape}; valid: at least two dimensions")
    return codes.view(np.float32) if format.name == "f32" else codes  # tf32: the instruction drops the low bits


def _spans(first: int, last: int, size: int) -> list[tuple[int, int]]:
    """Pieces of a chunk whose sums are added in f32."""
    return [(start, min(start + size, last)) for start in range(first, last, size)] if size else [(first, last)]


def _epilogue(plan: Plan, result: Array, bias: Any, scale_a: Any, scale_b: Any) -> Array:
    """Scales and bias in f32, then one rounding."""
    added = _bias(plan, bias)
    left, right = (np.float32(1) if x is None else np.asarray(x, np.float32) for x in (scale_a, scale_b))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if plan.kind.call == "scaled":
            result = result * (left * right)
        elif plan.kind.call == "scaled_row":
            result = (result * right) * left
        if added is not None:
            result = result + added
        return np.asarray(result, np.float32).astype(TYPES[plan.out])
