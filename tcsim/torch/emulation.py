"""The two modes: one hears torch's functions before a CPU takes them apart, the other the aten operations that are left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import torch
from torch.nn import functional
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from tcsim.aten import evidence
from tcsim.aten.attention.sdpa import backend_of, scaled_dot_product_attention
from tcsim.core.errors import NotModelledError, OperandError
from tcsim.plans.lookup import chip
from tcsim.torch import autograd, training
from tcsim.torch.arrays import FORMATS, array, tensor
from tcsim.torch.log import Run
from tcsim.torch.operations import DONE, MOVES, floats, known, rms_norm, softmax
from tcsim.torch.operations import HANDLERS as FORWARD

HANDLERS = {**FORWARD, **training.HANDLERS}


@contextmanager
def emulate(gpu: str, strict: bool = False, engine: str | None = None, steps: bool = False) -> Iterator[Run]:
    """Compute torch's operations with the bits of a GPU: forward and backward passes, optimizers.

    Tensors lie on the CPU, or on any GPU since sm_80: products are computed there then by the engine "gpu", everything else by the host.

    gpu: a product ("H200", in any case) or an arch; of others than the H200 everything that computes is assumed. strict: raise NotModelledError where
    an operation is not exact. engine: of products, as of `tcsim.gemm`. steps: keep a digest of every operation's result, for `first_difference`.

    Raises PlanError for a GPU that does not exist, OperandError for tensors elsewhere.

    >>> with emulate("H200") as run, torch.inference_mode():
    ...     y = torch.nn.functional.silu(torch.tensor([1.0, 2.0], dtype=torch.bfloat16))
    >>> y, run.ops()[0]["op"], run.ops()[0]["status"]
    (tensor([0.7305, 1.7578], dtype=torch.bfloat16), 'silu', 'exact')
    """
    name, arch = chip(gpu)
    run = Run(name, arch, strict, engine, steps)
    with _Operations(run), _Functions(run), _lists_by_default():
        yield run


@contextmanager
def _lists_by_default() -> Iterator[None]:
    """Optimizers that are not told how to step take lists of tensors, as they do on a GPU and not on a CPU."""
    devices = optimizer._get_foreach_kernels_supported_devices
    optimizer._get_foreach_kernels_supported_devices = lambda: [*devices(), "cpu"]
    try:
        yield
    finally:
        optimizer._get_foreach_kernels_supported_devices = devices


class _Operations(TorchDispatchMode):
    """aten operations."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation: by its handler, as a move, or by the host; a subclass of tensors with operations of its own is asked first."""
        if any(own.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl for own in types):
            return NotImplemented
        given = dict(kwargs or {})
        name = func.overloadpacket.__name__
        device = _device(name, args, given)
        in_place = name.endswith("_") and name not in MOVES and not name.startswith("_")
        plain = name.removesuffix("_") if in_place else name
        handler = HANDLERS.get(plain)
        if (
            handler is None
            and name not in MOVES
            and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
        ):
            with self:
                return func.decompose(*args, **given)
        if handler is not None and floats(args, given):
            options = {key: value for key, value in given.items() if value is not None}
            found = handler(self.run, plain, *args, **options) if "out" not in options else None
            if found is DONE:
                _keep(self.run, plain, args[0])
                return None
            if found is not None:
                _keep(self.run, plain, found)
                return args[0].copy_(found) if in_place else _placed(found, device)
        result = func(*args, **given)
        if not floats(args, given) and not floats(result):
            return result
        if name == "_to_copy" and "float8" in str(given.get("dtype")):
            self.run.note(name, "assumed")
        elif name in MOVES and not ("index_put" in name and (given.get("accumulate") or True in args[3:])):
            self.run.note(name, "exact")
        else:
            self.run.note(name, "not modelled")
            _keep(self.run, plain, result)
        return result


class _Functions(TorchFunctionMode):
    """Functions that a GPU computes in one kernel, and a CPU in several operations."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One function: as a GPU does it, or passed on."""
        given = dict(kwargs or {})
        own = _FUNCTIONS.get(func)
        if own is not None:
            with torch._C.DisableTorchFunctionSubclass(), _disable_current_modes():
                found = own(self.run, *args, **given)
                if found is not None:
                    _keep(self.run, func.__name__, found)
                    return _placed(found, _device(func.__name__, args, given))
        before = len(self.run.steps or ())
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **given)
        if (
            own is not None and self.run.steps is not None
        ):  # one step on every GPU, of whatever operations it is made here
            del self.run.steps[before:]
            _keep(self.run, func.__name__, result)
        return result


def _device(name: str, args: Any, given: Any) -> torch.device | None:
    """The GPU on which the operands lie; None: the CPU. Raises OperandError for other devices."""
    places = {own.device for own in tree_leaves((args, given)) if isinstance(own, torch.Tensor)}
    if any(place.type not in ("cpu", "meta", "cuda") for place in places):
        raise OperandError(
            f"{name} of tensors on {', '.join(sorted(map(str, places)))}; valid under emulate: CPU and CUDA tensors"
        )
    return next((place for place in places if place.type == "cuda"), None)


def _keep(run: Run, op: str, found: Any) -> None:
    """Add a step of a result: the shape of its first tensor, a digest of all."""
    if run.steps is not None:
        tensors = [own for own in tree_leaves(found) if isinstance(own, torch.Tensor)]
        whole = blake2b(digest_size=12)
        for own in tensors:
            whole.update(array(own).tobytes())
        run.keep(op, tuple(tensors[0].shape), whole.hexdigest())


def _placed(found: Any, device: torch.device | None) -> Any:
    """Results where the operands lie."""
    return found if device is None else tree_map_only(torch.Tensor, lambda own: own.to(device), found)


def _attention(
    run: Run, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if (
        dropout_p
        or query.ndim != 4
        or query.dtype not in (torch.float16, torch.bfloat16)
        or (attn_mask is not None and attn_mask.dtype not in (torch.bool, query.dtype))
        or autograd.wanted(attn_mask)
    ):
        return None
    q, k, v = (array(own.contiguous()) for own in (query, key, value))
    mask = None if attn_mask is None else array(attn_mask.contiguous())
    backend = backend_of(q, k, mask is not None)
    properties = {"backend": backend, "queries": q.shape[2], "keys": k.shape[2], "size": q.shape[3]}
    status = known(run, evidence.evidence_of("attention", FORMATS[query.dtype], **properties).status)
    try:
        with run.timed("scaled_dot_product_attention", status):
            y = tensor(scaled_dot_product_attention(q, k, v, mask, is_causal, scale))
    except NotModelledError:
        run.note("scaled_dot_product_attention", "not modelled")
        return None
    options = {"attn_mask": attn_mask, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    inputs = (query, key, value)
    return autograd.recorded(y, autograd.attention(run, backend, inputs, options), *inputs)


def _softmax(run: Run, input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """softmax of float16 to float32, which a GPU does in one kernel."""
    if dim is None or (input.dtype, dtype) != (torch.float16, torch.float32):
        return None
    y = softmax(run, "_softmax", input, dim, True)
    return autograd.recorded(y, autograd.softmax(run, y.detach(), dim, input.dtype), input)


def _rms_norm(run: Run, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    found = rms_norm(run, "rms_norm", input, tuple(normalized_shape), weight, eps)
    if found is None:
        return None
    y, rstd = found
    return autograd.recorded(y, autograd.rms_norm(run, input, weight, rstd), input, weight)


_FUNCTIONS: dict[Any, Any] = {
    functional.scaled_dot_product_attention: _attention,
    functional.softmax: _softmax, torch.softmax: lambda run, x, dim, dtype=None: _softmax(run, x, dim, dtype=dtype),
    functional.rms_norm: _rms_norm, torch.rms_norm: _rms_norm,
}  # fmt: skip
"""By function: what a GPU does."""
