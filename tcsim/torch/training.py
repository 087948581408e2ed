"""What each aten operation of a backward pass and of an optimizer does with the bits of a GPU, as `tcsim.torch.operations` says of the others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from tcsim.aten import elementwise, evidence, loss, optimizers
from tcsim.aten.backward import attention as of_attention
from tcsim.aten.backward import elementwise as gradients
from tcsim.aten.backward import loss as of_loss
from tcsim.aten.backward import normalisation as of_norm
from tcsim.aten.backward import softmax as of_softmax
from tcsim.torch.arrays import array, tensor
from tcsim.torch.log import Run
from tcsim.torch.operations import DONE, NUMBER, TYPES, Handler, computed, format_of, known, misaligned

REDUCTIONS = ("none", "mean", "sum")


def _plain(*tensors: torch.Tensor | None) -> bool:
    """Whether all are of one type that is computed with."""
    dtypes = {own.dtype for own in tensors if own is not None}
    return len(dtypes) == 1 and dtypes <= set(TYPES)


# --- elementwise


def _of(name: str, *numbers: str, flag: int | None = None) -> Handler:
    """Of (grad, x, numbers...); flag: which further argument must be false."""

    def handler(run: Run, op: str, grad: Any, x: Any, *rest: Any, **given: Any) -> Any:
        if flag is not None and rest[flag]:
            return None
        numeric = {key: float(value) for key, value in zip(numbers, rest, strict=False)}
        return computed(run, op, name, grad, x, like=x, table=gradients.OPERATIONS, **numeric, **given)

    return handler


def _elu(run: Run, op: str, grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any) -> Any:
    numbers = {"alpha": float(alpha), "scale": float(scale), "input_scale": float(input_scale)}
    return None if is_result else computed(run, op, "elu", grad, x, like=x, table=gradients.OPERATIONS, **numbers)


def _log_sigmoid(run: Run, op: str, grad: Any, x: Any, buffer: Any) -> Any:
    return computed(run, op, "log_sigmoid", grad, x, like=x, table=gradients.OPERATIONS)


# --- along axes


def _softmax(run: Run, op: str, grad: Any, y: Any, dim: int, dtype: Any) -> Any:
    if not _plain(grad, y) or (dtype != y.dtype and (y.dtype, dtype) != (torch.float32, torch.float16)):
        return None
    return softmax(run, op, grad, y, dim, dtype)


def softmax(run: Run, op: str, grad: torch.Tensor, y: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """The gradient of softmax or log_softmax from its output; dtype: the input's."""
    name = "log_softmax" if "log" in op else "softmax"
    function = of_softmax.log_softmax if "log" in op else of_softmax.softmax
    row = evidence.evidence_of(f"{name}_backward", format_of(y), length=y.shape[dim])
    with run.timed(op, known(run, row.status)):
        out = None if dtype == y.dtype else "f16"
        grad = grad.contiguous()
        return tensor(function(array(grad), array(y.contiguous()), dim, out, misaligned(grad)))


def _layer_norm(
    run: Run, op: str, grad: Any, x: Any, shape: Sequence[int], mean: Any, rstd: Any, weight: Any = None, bias: Any = None, mask: Any = (True,) * 3
) -> Any:  # fmt: skip
    if not _plain(grad, x, weight) or mean.dtype != torch.float32:
        return None
    row = evidence.evidence_of("layer_norm_backward", format_of(x), length=prod(shape), rows=mean.numel())
    with run.timed(op, known(run, row.status)):
        scale = None if weight is None else array(weight)
        g, own, of_mean, of_rstd = (array(each.contiguous()) for each in (grad, x, mean, rstd))
        dx, dweight, dbias = of_norm.layer_norm(g, own, of_mean.reshape(-1), of_rstd.reshape(-1), scale)
        found = (tensor(dx), tensor(dweight).reshape(shape), tensor(dbias).reshape(shape))
        return tuple(own if wanted else None for own, wanted in zip(found, mask, strict=True))


def rms_norm(
    run: Run, grad: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of x and of weight, of torch.nn.functional.rms_norm."""
    rows = rstd.numel()
    row = evidence.evidence_of("rms_norm_backward", format_of(x), length=x.numel() // rows, rows=rows)
    with run.timed("_fused_rms_norm_backward", known(run, row.status)):
        scale = None if weight is None else array(weight)
        dx, dweight = of_norm.rms_norm(array(grad.contiguous()), array(x.contiguous()), array(rstd).reshape(-1), scale)
        return tensor(dx), tensor(dweight) if weight is None else tensor(dweight).reshape(weight.shape)


ATTENTION = "scaled_dot_product_attention_backward"


def attention(
    run: Run, backend: str, grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: Any, is_causal: bool, scale: float | None, enable_gqa: bool
) -> tuple[torch.Tensor, ...] | None:  # fmt: skip
    """The gradients of q, k and v by cuDNN; None where they are not modelled."""
    if backend != "cudnn" or not _plain(grad, q, k, v):
        return None
    share = q.shape[1] // k.shape[1]
    properties = {"backend": backend, "queries": q.shape[2], "keys": k.shape[2], "size": q.shape[3], "share": share}
    row = evidence.evidence_of("attention_backward", format_of(q), **properties)
    if row.status == "not modelled":
        return None
    with run.timed(ATTENTION, known(run, row.status)):
        mask = None if attn_mask is None else array(attn_mask.contiguous())
        g, *own = (array(x.contiguous()) for x in (grad, q, k, v))
        found = of_attention.scaled_dot_product_attention(g, own[0], own[1], own[2], mask, is_causal, scale)
        return tuple(tensor(x) for x in found)


# --- losses and tables


def _nll_loss(run: Run, op: str, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    if not _plain(x, weight) or x.ndim != 2:
        return None
    samples, classes = x.shape
    row = evidence.evidence_of("nll_loss", format_of(x), samples=samples, classes=classes)
    with run.timed(op, known(run, row.status)):
        given = (array(x), array(target), None if weight is None else array(weight))
        value, total = loss.nll_loss(*given, REDUCTIONS[reduction], ignore_index)
        return tensor(np.asarray(value)), tensor(np.asarray(total))


def _nll_loss_backward(
    run: Run, op: str, grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total: Any
) -> Any:
    if not _plain(grad, x, weight) or x.ndim != 2:
        return None
    samples, classes = x.shape
    row = evidence.evidence_of("nll_loss", format_of(x), samples=samples, classes=classes)
    with run.timed(op, known(run, row.status)):
        w = None if weight is None else array(weight)
        given = (array(grad), (samples, classes), array(target), w, REDUCTIONS[reduction], ignore_index)
        return tensor(of_loss.nll_loss(*given, total_weight=array(total)))


def _embedding(run: Run, op: str, grad: Any, index: Any, rows: int, padding: int, by_frequency: bool) -> Any:
    if not _plain(grad):
        return None
    row = evidence.evidence_of(
        "embedding_backward", format_of(grad), indices=index.numel(), by_frequency=str(bool(by_frequency))
    )
    if row.status == "not modelled":
        return None
    with run.timed(op, known(run, row.status)):
        return tensor(of_loss.embedding(array(grad), array(index), rows, padding, bool(by_frequency)))


# --- optimizers


def _lerp(run: Run, op: str, x: Any, end: Any, weight: Any) -> Any:
    if not isinstance(weight, NUMBER) or not _plain(x, end):
        return None
    return computed(run, op, "lerp", x, end, like=x, weight=float(weight))


def _addc(run: Run, op: str, x: Any, a: Any, b: Any, value: float = 1) -> Any:
    return computed(run, op, op, x, a, b, like=x, value=float(value)) if _plain(x, a, b) else None


_LISTS: dict[str, tuple[str, str, str]] = {
    "add": ("add_number", "add", "alpha"), "mul": ("mul_number", "mul", ""), "div": ("foreach_div", "div", ""), "sqrt": ("sqrt", "", ""), "neg": ("neg", "", ""),
    "reciprocal": ("reciprocal", "", ""), "maximum": ("", "maximum", ""), "lerp": ("", "lerp", "weight"), "addcmul": ("", "addcmul", "value"), "addcdiv": ("", "addcdiv", "value"),
}  # fmt: skip
"""By operation: the row of a tensor and a number, the row of tensors, and the name of its number."""
_TABLE = {**elementwise.OPERATIONS, "foreach_div": optimizers.foreach_div}


def _one_of_list(name: str, own: list[Any], alpha: float) -> tuple[str, list[Any], dict[str, float]] | None:
    """The row, operands and numbers of one tensor's part."""
    with_number, with_tensors, number = _LISTS[name]
    operands = [each for each in own if isinstance(each, torch.Tensor)]
    numbers = [float(each) for each in own if isinstance(each, NUMBER)]
    if len(operands) > 1 or not with_number:
        if not with_tensors or len(numbers) > 1 or (numbers and not number):
            return None
        value = numbers[0] if numbers else alpha
        return with_tensors, operands, {number: value} if number else {}
    return with_number, operands, {"number": numbers[0]} if numbers else {}


def _foreach(run: Run, op: str, first: Sequence[torch.Tensor], *rest: Any, alpha: float = 1, **given: Any) -> Any:
    """An operation for each tensor of a list; arguments are lists, one number, or a tensor with one element."""
    name = op.removeprefix("_foreach_").removesuffix("_")
    found = []
    for place, own in enumerate(first):
        some = [own, *(each[place] if isinstance(each, Sequence) else each for each in (*rest, *given.values()))]
        part = _one_of_list(name, some, float(alpha))
        if part is None or not _plain(*part[1]):
            return None
        found.append((own, part))
    results = [
        computed(run, op, row, *operands, like=own, table=_TABLE, **numbers) for own, (row, operands, numbers) in found
    ]
    if not op.endswith("_"):
        return results
    for (own, _), result in zip(found, results, strict=True):
        own.copy_(result)
    return DONE


def _foreach_norm(run: Run, op: str, tensors: Sequence[torch.Tensor], ord: Any = 2, dtype: Any = None) -> Any:
    if ord != 2 or dtype is not None or not all(_plain(own) and own.numel() for own in tensors):
        return None
    found = []
    for own in tensors:
        row = evidence.evidence_of("foreach_norm", format_of(own), length=own.numel())
        with run.timed(op, known(run, row.status)):
            found.append(tensor(np.asarray(optimizers.foreach_norm(array(own.contiguous())))))
    return found


def _fused(run: Run, op: str, name: str, lists: dict[str, Sequence[torch.Tensor]], given: dict[str, Any]) -> Any:
    """Parameters and state after a step, in place. lists: by name of the state, "parameter" and "grad" first."""
    if any(given.get(own) is not None for own in ("grad_scale", "found_inf")):
        return None
    parts = [dict(zip(lists, own, strict=True)) for own in zip(*lists.values(), strict=True)]
    if not all(_plain(*(own[key] for key in own if key != "step")) for own in parts):
        return None
    for own in parts:
        row = evidence.evidence_of(f"fused_{name}", format_of(own["parameter"]))
        with run.timed(op, known(run, row.status)):
            state = {key: array(x) for key, x in own.items() if key not in ("parameter", "grad", "step")}
            options = {key: value for key, value in given.items() if key not in ("grad_scale", "found_inf")}
            if options.pop("is_first_step", False):
                state = {}
            step = [round(float(own["step"]))] if "step" in own else []
            function = optimizers.adam if name == "adam" else optimizers.sgd
            result = function(array(own["parameter"]), array(own["grad"]), state, *step, way="fused", **options)
            own["parameter"].copy_(tensor(result))
            for key, x in state.items():
                if key in own:
                    own[key].copy_(tensor(x))
    return DONE


def _fused_adam(
    run: Run, op: str, parameters: Any, grads: Any, means: Any, squares: Any, largest: Any, steps: Any, *, lr: Any, beta1: float, beta2: float, amsgrad: bool, **given: Any
) -> Any:  # fmt: skip
    lists = {"parameter": parameters, "grad": grads, "exp_avg": means, "exp_avg_sq": squares, "step": steps}
    if amsgrad:
        lists["max_exp_avg_sq"] = largest
    options = {"lr": float(lr), "betas": (beta1, beta2), "amsgrad": amsgrad, "decoupled": "adamw" in op}
    return _fused(run, op, "adam", lists, {**given, **options})


def _fused_sgd(
    run: Run, op: str, parameters: Any, grads: Any, buffers: Any, *, lr: Any, momentum: float, **given: Any
) -> Any:
    lists = {"parameter": parameters, "grad": grads}
    if momentum:
        lists["momentum_buffer"] = buffers
    return _fused(run, op, "sgd", lists, {**given, "lr": float(lr), "momentum": momentum})


HANDLERS: dict[str, Handler] = {
    **{f"{name}_backward": _of(name) for name in ("gelu", "silu", "tanh", "sigmoid", "mish", "hardswish", "hardsigmoid")},
    "threshold_backward": _of("threshold", "threshold"), "softplus_backward": _of("softplus", "beta", "threshold"), "leaky_relu_backward": _of("leaky_relu", "slope", flag=1),
    "elu_backward": _elu, "log_sigmoid_backward": _log_sigmoid,
    "_softmax_backward_data": _softmax, "_log_softmax_backward_data": _softmax, "native_layer_norm_backward": _layer_norm,
    "nll_loss_forward": _nll_loss, "nll_loss_backward": _nll_loss_backward, "embedding_dense_backward": _embedding,
    "lerp": _lerp, "addcmul": _addc, "addcdiv": _addc, "_foreach_norm": _foreach_norm,
    **{f"_foreach_{name}{end}": _foreach for name in _LISTS for end in ("", "_")},
    "_fused_adam_": _fused_adam, "_fused_adamw_": _fused_adam, "_fused_sgd_": _fused_sgd,
}  # fmt: skip
"""As `operations.HANDLERS`; lists are changed in place where torch's are."""
