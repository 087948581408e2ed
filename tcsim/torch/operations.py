"""What each aten operation does with the bits of a GPU: by name a function of its arguments, or None where the host's kernels give the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from tcsim.aten import elementwise, evidence, normalisation, reductions
from tcsim.aten import softmax as softmaxes
from tcsim.torch import products, scaled
from tcsim.torch.arrays import FORMATS, array, tensor
from tcsim.torch.log import Run, Status

Handler = Callable[..., torch.Tensor | tuple[torch.Tensor, ...] | None]
"""Of the run and the operation's arguments: its results; None where the case is not modelled."""

MOVES = frozenset((
    "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "as_strided", "cat", "chunk", "clone", "constant_pad_nd", "copy", "copy_", "detach", "diagonal",
    "embedding", "empty", "empty_like", "empty_strided", "expand", "fill", "fill_", "flip", "full", "full_like", "gather", "index", "index_copy", "index_copy_", "index_put",
    "index_put_", "index_select", "lift_fresh", "masked_fill", "masked_fill_", "masked_select", "narrow", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "ones",
    "ones_like", "permute", "repeat", "repeat_interleave", "reshape", "resolve_conj", "resolve_neg", "roll", "scalar_tensor", "select", "set_", "slice", "slice_scatter",
    "split", "split_with_sizes", "squeeze", "stack", "t", "transpose", "tril", "triu", "unbind", "unfold", "unsqueeze", "view", "where", "zero_", "zeros", "zeros_like",
    "detach_", "slice_backward", "select_backward", "abs", "neg", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "any", "all", "maximum", "minimum", "max", "min", "amax", "amin", "item", "_local_scalar_dense",
    "logical_and", "logical_or", "logical_not", "is_nonzero", "equal",
))  # fmt: skip
"""Operations that compute no value of their own: copies, choices, comparisons, signs. NaN keeps the bits that the host gives it."""
CHOICES = frozenset(("relu", "clamp", "floor", "ceil", "trunc"))
"""Operations that compute and cannot round: a result is an operand, a limit or an integer. As MOVES they have the same bits on every GPU."""
UNARY = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "erfinv", "lgamma", "sqrt", "rsqrt", "reciprocal",
    "sigmoid", "silu", "mish", "relu", "floor", "ceil", "trunc",
))  # fmt: skip
"""Operations of one tensor without numbers."""
TYPES = (torch.float32, torch.float16, torch.bfloat16)
"""What is computed with; other types are left to the host."""
DONE = object()
"""What a handler returns that has changed its arguments and has no result."""
NUMBER = int | float


def measured(run: Run) -> bool:
    """Whether what was recorded of operations was recorded on the GPU that is asked for."""
    return run.gpu == "h200"


def known(run: Run, status: str, row: str = "") -> Status:
    """A status of the H200's as that of the GPU that is asked for; row: of an elementwise operation."""
    return "exact" if status == "exact" and (measured(run) or row in CHOICES) else "assumed"


def computed(
    run: Run,
    op: str,
    row: str,
    *operands: Any,
    like: torch.Tensor,
    table: Mapping[str, elementwise.Operation] = elementwise.OPERATIONS,
    **numbers: Any,
) -> torch.Tensor | None:
    """An elementwise operation of a table on tensors, which are widened to one type, as torch promotes them."""
    own = table[row]
    dtype = torch.result_type(*operands) if len(operands) == 2 else like.dtype
    if dtype not in TYPES:
        return None
    with run.timed(op, known(run, own.known, row)):
        arrays = [array(each if each.dtype == dtype else each.to(dtype)) for each in operands]
        return tensor(own(*arrays, **numbers))


def _sum_of(sign: float) -> Handler:
    def handler(run: Run, op: str, x: Any, other: Any, alpha: float = 1) -> Any:
        if isinstance(other, NUMBER):
            return computed(run, op, "add_number", x, like=x, number=float(sign * alpha * other))
        return computed(run, op, "add", x, other, like=x, alpha=float(sign * alpha))

    return handler


def _mul(run: Run, op: str, x: Any, other: Any) -> Any:
    if isinstance(other, NUMBER):
        return computed(run, op, "mul_number", x, like=x, number=float(other))
    return computed(run, op, "mul", x, other, like=x)


def _div(run: Run, op: str, x: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is not None:
        return None
    if isinstance(other, NUMBER):
        return computed(run, op, "div_number", x, like=x, number=float(other))
    return computed(run, op, "div", x, other, like=x)


def _rsub(run: Run, op: str, x: Any, other: Any, alpha: float = 1) -> Any:
    if not isinstance(other, NUMBER) or alpha != 1:
        return None
    return computed(run, op, "add_number", tensor(-array(x)), like=x, number=float(other))


def _pow(run: Run, op: str, x: Any, exponent: Any) -> Any:
    return (
        computed(run, op, "pow_number", x, like=x, exponent=float(exponent)) if isinstance(exponent, NUMBER) else None
    )


def _gelu(run: Run, op: str, x: Any, approximate: Any = "none") -> Any:
    return computed(run, op, "gelu", x, like=x, approximate=approximate)


def _clamp(run: Run, op: str, x: Any, min: Any = None, max: Any = None) -> Any:
    if not all(own is None or isinstance(own, NUMBER) for own in (min, max)):
        return None
    return computed(run, op, "clamp", x, like=x, min=min, max=max)


def _softplus(run: Run, op: str, x: Any, beta: float = 1, threshold: float = 20) -> Any:
    return computed(run, op, "softplus", x, like=x, beta=float(beta), threshold=float(threshold))


def _one(name: str) -> Handler:
    return lambda run, op, x: computed(run, op, name, x, like=x)


# --- along axes


def format_of(x: torch.Tensor) -> str:
    """The format of its elements."""
    return FORMATS[x.dtype]


def misaligned(x: torch.Tensor) -> int:
    """Elements between the last 16-byte boundary of its storage and its first one: a GPU's allocations begin at such a boundary."""
    return x.storage_offset() % (16 // x.itemsize)


def _axes(x: torch.Tensor, dim: Any) -> tuple[int, ...]:
    every = tuple(range(x.ndim))
    if dim is None or dim == []:
        return every
    return tuple(own % max(x.ndim, 1) for own in (dim if isinstance(dim, Sequence) else [dim]))


def _over(name: str, op: str, run: Run, x: torch.Tensor, dim: Any, keepdim: bool, **given: Any) -> torch.Tensor:
    axes = _axes(x, dim)
    length = prod(x.shape[own] for own in axes)
    with run.timed(op, known(run, evidence.evidence_of(name, format_of(x), length=length).status)):
        found = tensor(np.asarray(getattr(reductions, name)(array(x), axes, misaligned=misaligned(x), **given)))
        shape = (
            [1 if own in axes else size for own, size in enumerate(x.shape)]
            if keepdim
            else [size for own, size in enumerate(x.shape) if own not in axes]
        )
        return found.reshape(shape)


def _reduction(name: str) -> Handler:
    def handler(run: Run, op: str, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        if x.dtype not in TYPES or (dtype is not None and dtype not in (x.dtype, torch.float32)):
            return None
        given = {} if dtype in (None, x.dtype) else {"out": "f32"}
        return _over(name, op, run, x, dim, keepdim, **given)

    return handler


def softmax(run: Run, op: str, x: torch.Tensor, dim: int, widens: bool = False) -> torch.Tensor:
    """softmax or log_softmax; widens: to float32, from float16."""
    function = softmaxes.log_softmax if "log" in op else softmaxes.softmax
    name = "log_softmax" if "log" in op else "softmax"
    with run.timed(op, known(run, evidence.evidence_of(name, format_of(x), length=x.shape[dim]).status)):
        return tensor(function(array(x), dim, "f32" if widens else None, misaligned(x)))


def _softmax(run: Run, op: str, x: Any, dim: int, half_to_float: bool) -> Any:
    return softmax(run, op, x, dim, half_to_float) if x.dtype in TYPES else None


def _layer_norm(run: Run, op: str, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    given = [own for own in (weight, bias) if own is not None]
    if x.dtype not in TYPES or any(own.dtype != x.dtype for own in given):
        return None
    with run.timed(op, known(run, evidence.evidence_of("layer_norm", format_of(x), length=prod(shape)).status)):
        scale, shift = (None if own is None else array(own) for own in (weight, bias))
        offsets = tuple(misaligned(own) for own in (x, *given))
        y, *statistics = normalisation.layer_norm_statistics(array(x), len(shape), scale, shift, eps, offsets)
        rest = x.shape[: x.ndim - len(shape)] + (1,) * len(shape)
        return tensor(y), *(tensor(own).reshape(rest) for own in statistics)


def rms_norm(
    run: Run, op: str, x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, eps: float | None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """torch.nn.functional.rms_norm, in one kernel, and 1 / sqrt(mean of squares + eps) of each row."""
    if x.dtype not in TYPES or (weight is not None and weight.dtype != x.dtype):
        return None
    with run.timed(op, known(run, evidence.evidence_of("rms_norm", format_of(x), length=prod(shape)).status)):
        given = () if weight is None else (weight,)
        offsets = tuple(misaligned(own) for own in (x, *given))
        scale = None if weight is None else array(weight)
        y, rstd = normalisation.rms_norm_statistics(array(x), len(shape), scale, eps, offsets)
        return tensor(y), tensor(rstd)


def _norm(run: Run, op: str, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if x.dtype not in TYPES or ord not in (1, 2) or dtype not in (None, x.dtype):
        return None
    axes = _axes(x, dim)
    length = prod(x.shape[own] for own in axes)
    row = evidence.evidence_of("norm", format_of(x), length=length, order=int(ord))
    with run.timed(op, known(run, row.status)):
        found = tensor(np.asarray(reductions.norm(array(x), ord, axes, misaligned(x))))
        return found.reshape([1 if d in axes else n for d, n in enumerate(x.shape)]) if keepdim else found


# --- products


def _mm(run: Run, op: str, a: Any, b: Any) -> Any:
    return products.multiplied(run, "mm", a, b)


def _bmm(run: Run, op: str, a: Any, b: Any) -> Any:
    return products.multiplied(run, "bmm", a, b)


def _addmm(run: Run, op: str, bias: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    if (beta, alpha) != (1, 1) or bias.ndim != 1 or bias.dtype != a.dtype:
        return None
    return products.multiplied(run, "addmm", a, b, bias)


def linear(run: Run, op: str, x: Any, weight: Any, bias: Any = None) -> Any:
    """x @ weight.T + bias, of all rows of x at once."""
    flat = x.reshape(-1, x.shape[-1])
    found = products.multiplied(run, "addmm" if bias is not None else "linear", flat, weight.t(), bias)
    return None if found is None else found.reshape(*x.shape[:-1], weight.shape[0])


HANDLERS: dict[str, Handler] = {
    **{name: _one(name) for name in UNARY},
    "add": _sum_of(1), "sub": _sum_of(-1), "rsub": _rsub, "mul": _mul, "div": _div, "pow": _pow, "gelu": _gelu, "clamp": _clamp, "softplus": _softplus,
    "sum": _reduction("sum"), "mean": _reduction("mean"), "_softmax": _softmax, "_log_softmax": _softmax, "native_layer_norm": _layer_norm, "linalg_vector_norm": _norm,
    "mm": _mm, "bmm": _bmm, "addmm": _addmm, "linear": linear, "_scaled_mm": scaled.scaled_mm, "_scaled_mm_v2": scaled.scaled_mm_v2,
}  # fmt: skip
"""Operations that compute, by the name of the aten operator; of those in place ("add_") the name is that without the stroke."""


def floats(*given: Any) -> bool:
    """Whether anything is a tensor of floating-point numbers, or of complex ones."""
    return any(
        isinstance(own, torch.Tensor) and (own.is_floating_point() or own.is_complex()) for own in tree_leaves(given)
    )
