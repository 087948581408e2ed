"""Arrays to a GPU and back through torch, and products of cuBLAS and cuDNN as torch asks for them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from conformance.explain.inputs import DTYPES, Array
from conformance.explain.products import Product

TYPES = {
    "f64": torch.float64, "f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "s8": torch.int8, "s32": torch.int32,
}  # fmt: skip
WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
Given = dict[str, dict[str, Array]]
"""The operands of each kind of inputs."""


class Way(NamedTuple):
    """One way to compute a product: what tells it from others, and the call for a kind of inputs."""

    mark: str
    about: dict[str, Any]
    run: Callable[[str], Array]


def to_gpu(array: Array, format: str) -> Any:
    """A contiguous tensor of a format."""
    words = np.ascontiguousarray(array).view(WORDS[array.dtype.itemsize])
    return torch.from_numpy(words.copy()).cuda().view(TYPES[format])


def laid_out(array: Array, format: str, layout: str) -> Any:
    """A tensor (..., rows, columns), row-major for N and column-major for T."""
    if layout == "N":
        return to_gpu(array, format)
    return to_gpu(np.ascontiguousarray(array.swapaxes(-1, -2)), format).transpose(-1, -2)


def from_gpu(tensor: Any, format: str) -> Array:
    """A tensor as an array of the format's type."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype != TYPES[format]:
        raise TypeError(f"the library answered {tensor.dtype} for {format}")
    words: Any = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}[tensor.element_size()]
    found: npt.NDArray[Any] = tensor.view(words).cpu().numpy()
    return found.view(DTYPES[format])


def kernels(run: Callable[[], object]) -> list[dict[str, Any]]:
    """Names and grids of the kernels that a call launches; empty if the profiler does not work here."""
    try:
        activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities) as profile:
            run()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
    except Exception as error:  # a profiler that fails costs names only
        return [{"error": str(error)[:200]}]
    found = []
    for event in sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"]):
        about = event.get("args", {})
        found.append({"name": event["name"][:400], "grid": about.get("grid"), "block": about.get("block")})
    return found


def settings(product: Product) -> None:
    """The switches of torch that choose cuBLAS's arithmetic."""
    single = product.formats[0] == "tf32"
    options = product.options
    torch.backends.cuda.matmul.allow_tf32 = single
    torch.backends.cudnn.allow_tf32 = single
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = options.get("reduced_precision", True)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = options.get("reduced_precision", True)
    torch.backends.cuda.matmul.allow_fp16_accumulation = options.get("f16_accumulation", False)


def cublas(product: Product, given: Given) -> Iterator[Way]:
    """torch's own choice of an algorithm."""
    (left, right, out), layout = product.formats, product.layout

    def run(kind: str) -> Array:
        settings(product)
        found = given[kind]
        batched = product.call == "bmm"
        a, b = found["a"] if batched else found["a"][0], found["b"] if batched else found["b"][0]
        tensors = [laid_out(a, left, layout[0]), laid_out(b, right, layout[1])]
        c = None
        if "c" in found:
            c = to_gpu(found["c"][0] if product.c == "matrix" else found["c"], product.c_format or out)
        numbers = {"alpha": product.alpha, "beta": product.beta}
        if product.call == "mm" and "out" in product.options:
            d = torch.mm(*tensors, out_dtype=TYPES[out])
        elif product.call == "mm":
            d = torch.mm(*tensors)
        elif product.call == "bmm":
            d = torch.bmm(*tensors)
        elif product.call == "addmm":
            d = torch.addmm(c, *tensors, **numbers)
        elif product.call == "addmm_activation":
            d = torch._addmm_activation(c, *tensors, use_gelu=product.activation == "gelu")
        elif product.call == "int_mm":
            d = torch._int_mm(*tensors)
        elif product.call == "scaled_mm":
            scales = [to_gpu(found[name], "f32") for name in ("scale_a", "scale_b")]
            if product.scales == "tensor":
                scales = [scale.reshape(()) for scale in scales]
            d = torch._scaled_mm(
                *tensors, *scales, bias=c, out_dtype=TYPES[out], use_fast_accum=product.options["fast"]
            )
        else:
            raise ValueError(f"cublas: unknown call {product.call}")
        return from_gpu(d if batched else d[None], out)

    yield Way("", {"torch": torch.__version__, "cuda": torch.version.cuda}, run)


def cudnn(product: Product, given: Given) -> Iterator[Way]:
    """Convolutions, channels last."""
    (m, n, k), (left, right, out) = product.shape, product.formats

    def pixels(matrix: Array, format: str) -> Any:
        """(pixels, channels) as an image of 16 columns, channels last."""
        tensor = to_gpu(matrix, format).reshape(1, matrix.shape[0] // 16, 16, matrix.shape[1])
        return tensor.permute(0, 3, 1, 2)

    def run(kind: str) -> Array:
        settings(product)
        a, b = given[kind]["a"][0], given[kind]["b"][0]
        if product.call == "pointwise":  # filters (N, K, 1, 1)
            filters = to_gpu(b.T, right).reshape(n, 1, 1, k).permute(0, 3, 1, 2)
            d = torch.nn.functional.conv2d(pixels(a, left), filters)
            d = d.permute(0, 2, 3, 1).reshape(m, n)
        elif product.call == "three":
            middle = a.reshape(m, 9, k // 9)[:, 4]
            filters = to_gpu(b.T, right).reshape(n, 3, 3, k // 9).permute(0, 3, 1, 2)
            d = torch.nn.functional.conv2d(pixels(middle, left), filters, padding=1)
            d = d.permute(0, 2, 3, 1).reshape(m, n)
        elif product.call == "weights":  # the gradient of filters (M, N, 1, 1), K is the pixels
            gradient, image = pixels(a.T, left), pixels(b, right)
            filters = torch.zeros(m, n, 1, 1, dtype=TYPES[out], device="cuda").contiguous(
                memory_format=torch.channels_last
            )
            found = torch.ops.aten.convolution_backward(
                gradient, image, filters, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]
            )
            d = found[1].reshape(m, n)
        else:
            raise ValueError(f"cudnn: unknown call {product.call}")
        return from_gpu(d[None], out)

    yield Way("", {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}, run)
