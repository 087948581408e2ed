"""Functions that are computed as a whole, with their place in torch's graph of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import _disable_current_modes

from tcsim.torch import training
from tcsim.torch.log import Run

Backward = Callable[[torch.Tensor], Sequence[torch.Tensor | None]]


class _Computed(torch.autograd.Function):
    """A result that is there already; its gradient is a function of the result's."""

    @staticmethod
    def forward(ctx: Any, result: tuple[torch.Tensor], backward: Backward, *inputs: torch.Tensor | None) -> Any:
        """The result."""
        ctx.computed, ctx.devices = backward, [None if own is None else own.device for own in inputs]
        return result[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradients of the inputs."""
        with _disable_current_modes():
            found = zip(ctx.computed(grads[0]), ctx.devices, strict=True)
            return (None, None, *(None if own is None else own.to(device) for own, device in found))


def wanted(*inputs: torch.Tensor | None) -> bool:
    """Whether a gradient of one of them is asked for."""
    return torch.is_grad_enabled() and any(own is not None and own.requires_grad for own in inputs)


def recorded(result: torch.Tensor, backward: Backward, *inputs: torch.Tensor | None) -> torch.Tensor:
    """The result of a function of inputs, in the graph if a gradient is asked for."""
    found: torch.Tensor = _Computed.apply((result,), backward, *inputs) if wanted(*inputs) else result
    return found


def rms_norm(run: Run, x: torch.Tensor, weight: torch.Tensor | None, rstd: torch.Tensor) -> Backward:
    """The gradients of x and weight."""

    def backward(grad: torch.Tensor) -> Sequence[torch.Tensor | None]:
        dx, dweight = training.rms_norm(run, grad, x.detach(), rstd, None if weight is None else weight.detach())
        return dx, None if weight is None else dweight

    return backward


def softmax(run: Run, y: torch.Tensor, dim: int, dtype: torch.dtype) -> Backward:
    """The gradient of the input of a type."""
    return lambda grad: (training.softmax(run, "_softmax_backward_data", grad, y, dim, dtype),)


def attention(run: Run, backend: str, inputs: Sequence[torch.Tensor], options: dict[str, Any]) -> Backward:
    """The gradients of query, key and value: as cuDNN computes them, or, not modelled, by the host's composite."""

    def backward(grad: torch.Tensor) -> Sequence[torch.Tensor | None]:
        own = [x.detach() for x in inputs]
        found = training.attention(run, backend, grad, *own, **options)
        return _by_host(run, grad, own, options) if found is None else found

    return backward


def _by_host(run: Run, grad: torch.Tensor, inputs: Sequence[torch.Tensor], options: dict[str, Any]) -> Any:
    with run.timed(training.ATTENTION, "not modelled"), torch.enable_grad():
        own = [x.requires_grad_() for x in inputs]
        with sdpa_kernel([SDPBackend.MATH]):
            y = functional.scaled_dot_product_attention(*own, **options)
        return torch.autograd.grad(y, own, grad)
