"""AdamW, Adam and SGD as PyTorch 2.11 steps on a GPU: a kernel an operation for each tensor ("loop") or for lists of them ("foreach"), or one kernel for all ("fused").

The first two round every operation to the parameters' type and differ in one: the list operation divides, where a tensor is multiplied by the inverse.
The fused kernels compute in f32 and round parameters and state once; bias corrections are powf's there, and Python's doubles in the others.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim import libdevice as cuda
from tcsim.aten import elementwise
from tcsim.aten.blocks import WARP
from tcsim.aten.elementwise import Operation
from tcsim.aten.formats import F32, rounded
from tcsim.aten.reductions import norm
from tcsim.aten.softmax import halves
from tcsim.core.errors import OperandError, listing
from tcsim.libdevice.operations import fma

Array = npt.NDArray[Any]
State = dict[str, Array]
"""exp_avg, exp_avg_sq and max_exp_avg_sq of Adam, momentum_buffer of SGD; changed in place by a step."""
Way = Literal["loop", "foreach", "fused"]
WAYS: tuple[Way, ...] = ("loop", "foreach", "fused")

CHUNK, LIST_THREADS, UNROLLED = 65536, 512, 4
"""Of kernels of lists of tensors: elements of a block, its threads, and elements that a thread has at once."""
_ONE = np.float32(1)


def _divided(x: F32, *, number: float) -> Any:
    return cuda.divide(x, np.float32(number))


foreach_div = Operation("foreach_div", 1, _divided, "exact")
"""x / number, one division: what `torch._foreach_div` does, where x / number of one tensor multiplies by the inverse."""


def adam(
    parameter: Array, grad: Array, state: State, step: int, *, way: Way = "foreach", decoupled: bool = True, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
    weight_decay: float = 1e-2, amsgrad: bool = False, maximize: bool = False,
) -> Array:  # fmt: skip
    """The parameter after a step of torch.optim.AdamW, or, if not decoupled, of Adam (whose weight_decay torch sets to 0 by default).

    parameter, grad: float32, bfloat16 or float16 of one shape; state: a dict, empty before the first step; step: from 1; way: torch's foreach=True or
    fused=True, or neither. The result is a new array. Raises OperandError for another way.

    >>> state = {}
    >>> adam(np.ones(2, np.float32), np.float32([1, -1]), state, 1, lr=0.5, weight_decay=0.0).round(3).tolist()
    [0.5, 1.5]
    """
    _known(way)
    names = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ()))
    state.update({name: np.zeros_like(parameter) for name in names if name not in state})
    if maximize:
        grad = -grad
    if way == "fused":
        return _fused_adam(parameter, grad, state, step, decoupled, lr, betas, eps, weight_decay, maximize)
    if weight_decay and decoupled:
        parameter = elementwise.mul_number(parameter, number=1 - lr * weight_decay)
    elif weight_decay:
        grad = elementwise.add(grad, parameter, alpha=weight_decay)
    state["exp_avg"] = mean = elementwise.lerp(state["exp_avg"], grad, weight=1 - betas[0])
    square = elementwise.mul_number(state["exp_avg_sq"], number=betas[1])
    state["exp_avg_sq"] = square = elementwise.addcmul(square, grad, grad, value=1 - betas[1])
    if amsgrad:
        state["max_exp_avg_sq"] = square = elementwise.maximum(state["max_exp_avg_sq"], square)
    divide = elementwise.div_number if way == "loop" else foreach_div
    root = divide(elementwise.sqrt(square), number=(1 - betas[1] ** step) ** 0.5)
    return elementwise.addcdiv(
        parameter, mean, elementwise.add_number(root, number=eps), value=-(lr / (1 - betas[0] ** step))
    )


def _known(way: str) -> None:
    if way not in WAYS:
        raise OperandError(f"optimizer: no way {way!r}; valid: {listing(WAYS)}")


def _fused_adam(
    parameter: Array, grad: Array, state: State, step: int, decoupled: bool, lr: float, betas: tuple[float, float], eps: float, weight_decay: float, maximize: bool
) -> Array:  # fmt: skip
    p, g, mean, square = (x.astype(np.float32) for x in (parameter, grad, state["exp_avg"], state["exp_avg_sq"]))
    rate, decay, epsilon, b1, b2 = (np.float32(x) for x in (lr, weight_decay, eps, *betas))
    with np.errstate(all="ignore"):
        if weight_decay and decoupled:
            p = fma(-(rate * decay), p, p)
        elif weight_decay:
            contracted = "max_exp_avg_sq" in state or (_slot(p.shape) > 0 if not maximize else np.False_)
            g = np.where(contracted, fma(p, decay, g), g + p * decay)
        mean = fma(b1, mean, fma(-b1, g, g))
        square = fma(b2, square, fma(-b2, g * g, g * g))
        largest = square
        if "max_exp_avg_sq" in state:
            before = state["max_exp_avg_sq"].astype(np.float32)
            largest = np.where(before < square, square, before)
            state["max_exp_avg_sq"] = rounded(largest, parameter.dtype)
        first, second = (_ONE - cuda.pow(b, np.float32(step)) for b in (b1, b2))
        root = cuda.divide(cuda.sqrt(largest), cuda.sqrt(second))
        p = p - cuda.divide(cuda.divide(rate, first) * mean, root + epsilon)
    state["exp_avg"], state["exp_avg_sq"] = (rounded(x, parameter.dtype) for x in (mean, square))
    return rounded(p, parameter.dtype)


def _slot(shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Which of the four elements that a thread has at once each is: neighbours, or, if the number of elements is not a multiple of four, 512 apart.

    nvcc contracts a product and a sum of some of the four, and not of others.
    """
    places = np.arange(prod(shape)).reshape(shape)
    return places % UNROLLED if places.size % UNROLLED == 0 else places // LIST_THREADS % UNROLLED


def sgd(
    parameter: Array, grad: Array, state: State, *, way: Way = "foreach", lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False,
    maximize: bool = False,
) -> Array:  # fmt: skip
    """The parameter after a step of torch.optim.SGD; arguments as `adam` takes them. The first step fills momentum_buffer with the gradient.

    >>> sgd(np.ones(2, np.float32), np.float32([1, -1]), {}, lr=0.5).tolist()
    [0.5, 1.5]
    """
    _known(way)
    if maximize:
        grad = -grad
    if way == "fused":
        return _fused_sgd(parameter, grad, state, lr, momentum, dampening, weight_decay, nesterov, maximize)
    if weight_decay:
        grad = elementwise.add(grad, parameter, alpha=weight_decay)
    if momentum:
        buffer = state.get("momentum_buffer")
        if buffer is not None:
            buffer = elementwise.add(elementwise.mul_number(buffer, number=momentum), grad, alpha=1 - dampening)
        state["momentum_buffer"] = buffer = grad if buffer is None else buffer
        grad = elementwise.add(grad, buffer, alpha=momentum) if nesterov else buffer
    return elementwise.add(parameter, grad, alpha=-lr)


def _fused_sgd(
    parameter: Array, grad: Array, state: State, lr: float, momentum: float, dampening: float, weight_decay: float, nesterov: bool, maximize: bool
) -> Array:  # fmt: skip
    p, g = parameter.astype(np.float32), grad.astype(np.float32)
    rate, decay, share, rest = (np.float32(x) for x in (lr, weight_decay, momentum, dampening))
    with np.errstate(all="ignore"):
        if weight_decay:
            g = fma(decay, p, g)
        if momentum:
            buffer = g
            if "momentum_buffer" in state:
                before = state["momentum_buffer"].astype(np.float32)
                if maximize and not weight_decay and p.size % UNROLLED == 0:
                    buffer = fma(share, before, (_ONE - rest) * g)
                else:
                    buffer = fma(_ONE - rest, g, share * before)
            state["momentum_buffer"] = rounded(buffer, parameter.dtype)
            g = fma(share, buffer, g) if nesterov else buffer
        return rounded(fma(-rate, g, p), parameter.dtype)


OPTIMIZERS: dict[str, Callable[..., Array]] = {
    "adamw": adam,
    "adam": lambda *given, weight_decay=0.0, **options: adam(
        *given, decoupled=False, weight_decay=weight_decay, **options
    ),
    "sgd": lambda parameter, grad, state, step, **options: sgd(parameter, grad, state, **options),
}
"""By torch's name a step of (parameter, grad, state, step, **options) with torch's defaults, but for lr of SGD."""


def clipped(grads: list[Array], max_norm: float, way: Way = "foreach") -> tuple[list[Array], Array]:
    """Gradients scaled so that their norm is at most max_norm, and their norm, as torch.nn.utils.clip_grad_norm_ (of order 2).

    >>> grads, total = clipped([np.float32([3, 4])], 1.0)
    >>> float(total), grads[0].astype(float).round(3).tolist()
    (5.0, [0.6, 0.8])
    """
    _known(way)
    norms = [foreach_norm(grad) if way == "foreach" else norm(grad) for grad in grads]
    total = norm(np.stack(norms))
    dtype = total.dtype
    small = elementwise.add_number(total, number=1e-6)
    share = elementwise.mul_number(elementwise.reciprocal(small), number=max_norm)
    share = elementwise.clamp(share, max=1.0)
    return [elementwise.mul(grad, np.broadcast_to(share, grad.shape).astype(dtype)) for grad in grads], total


def foreach_norm(x: Array) -> Array:
    """The norm of order 2 by torch._foreach_norm: chunks of 65,536 elements of 512 threads each, then the chunks.

    A thread has four sums: of the places of its vectors or, if the number of elements is not a multiple of four, of elements 512 apart.
    """
    wide = x.reshape(-1).astype(np.float32)
    chunks = max(1, -(-len(wide) // CHUNK))
    full = np.zeros(chunks * CHUNK, np.float32)
    full[: len(wide)] = wide
    if len(wide) % UNROLLED == 0:
        parts = full.reshape(chunks, -1, LIST_THREADS, UNROLLED).swapaxes(2, 3)
    else:
        parts = full.reshape(chunks, -1, UNROLLED, LIST_THREADS)
    total = np.zeros((chunks, UNROLLED, LIST_THREADS), np.float32)
    for i in range(parts.shape[1]):
        total = fma(parts[:, i], parts[:, i], total)
    own = total[:, 0]
    for k in range(1, UNROLLED):
        own = own + total[:, k]
    sums = np.zeros(-(-chunks // LIST_THREADS) * LIST_THREADS, np.float32)
    sums[:chunks] = halves(halves(own.reshape(chunks, -1, WARP)))
    last = np.zeros(LIST_THREADS, np.float32)
    for part in sums.reshape(-1, LIST_THREADS):
        last = last + part
    return rounded(np.sqrt(halves(halves(last.reshape(-1, WARP)))), x.dtype)
