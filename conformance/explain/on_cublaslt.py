"""cuBLASLt through ctypes, so that the algorithm can be chosen: all that its heuristics offer, and splits of K.

The values of enumerations are those of cublasLt.h, cublas_api.h and library_types.h of CUDA 13. cuBLASLt is column-major: it is given b as its A and a as its B,
and writes D transposed.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
from collections.abc import Iterator
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import torch

from conformance.explain.inputs import Array
from conformance.explain.on_torch import TYPES, Given, Way, from_gpu, laid_out, to_gpu
from conformance.explain.products import Product

CUDA_TYPES = {"f32": 0, "tf32": 0, "f64": 1, "f16": 2, "s8": 3, "s32": 10, "bf16": 14, "e4m3": 28, "e5m2": 29}
COMPUTE = {
    "16f": 64, "32f": 68, "64f": 70, "32i": 72, "fast_16f": 74, "fast_16bf": 75, "fast_tf32": 77, "emulated_16bfx9": 78,
}  # fmt: skip
SCALE_TYPES = {"16f": "f16", "64f": "f64", "32i": "s32"}  # of alpha and beta; else f32
EPILOGUES = {"": 1, "relu": 2, "bias": 4, "relu bias": 6, "gelu": 32, "gelu bias": 36}
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER, FAST_ACCUMULATION, BIAS_TYPE = 3, 4, 7, 8, 25, 26
CONFIG = {
    "id": (0, c_int32), "tile": (1, c_uint32), "split": (2, c_int32), "reduction": (3, c_uint32), "swizzle": (4, c_uint32),
    "custom": (5, c_uint32), "stages": (6, c_uint32), "inner": (7, c_uint16), "cluster": (8, c_uint16),
}  # fmt: skip
REDUCTIONS = {"in place": 1, "compute type": 2, "output type": 4}
WORKSPACE = 64 << 20
_MOST = 6  # ways of one product


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = (("data", c_uint64 * 8),)


class Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", Algorithm), ("workspace", c_size_t), ("state", c_int), ("waves", c_float), ("reserved", c_int * 4),
    )  # fmt: skip


class LtError(RuntimeError):
    """A call that cuBLASLt refused."""


def library() -> Any:
    """The library that torch brought."""
    torch.cuda.current_stream()
    try:
        return ctypes.CDLL("libcublasLt.so.13")
    except OSError:
        beside = Path(torch.__file__).parent.parent / "nvidia"
        paths = glob.glob(str(beside / "**" / "libcublasLt.so.1*"), recursive=True)
        if not paths:
            raise
        return ctypes.CDLL(paths[0])


class Lt:
    """One product, described to cuBLASLt."""

    def __init__(self, product: Product) -> None:
        self.product, self.lib = product, library()
        self.handle = c_void_p()
        self.call("cublasLtCreate", byref(self.handle))
        compute = product.options["compute"]
        self.scale_format = SCALE_TYPES.get(compute, "f32")
        self.description = c_void_p()
        scale = CUDA_TYPES[self.scale_format]
        self.call("cublasLtMatmulDescCreate", byref(self.description), COMPUTE[compute], scale)
        (m, n, k), (left, right, out), layout = product.shape, product.formats, product.layout
        self.set(TRANSPOSE_A, c_int32(int(layout[1] == "T")))
        self.set(TRANSPOSE_B, c_int32(int(layout[0] == "T")))
        if "fast" in product.options:
            self.set(FAST_ACCUMULATION, ctypes.c_int8(product.options["fast"]))
        bias = "bias" if product.c == "row" else ""
        self.set(EPILOGUE, c_uint32(EPILOGUES[f"{product.activation} {bias}".strip()]))
        self.c_format = product.c_format or out
        if bias:
            self.set(BIAS_TYPE, c_int32(CUDA_TYPES[self.c_format]))
        b_size = (k, n, k) if layout[1] == "T" else (n, k, n)  # rows, columns and leading dimension, column-major
        a_size = (m, k, m) if layout[0] == "T" else (k, m, k)
        self.layouts = [self.matrix(f, s) for f, s in ((right, b_size), (left, a_size), (out, (n, m, n)))]
        self.workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")

    def call(self, name: str, *arguments: Any) -> None:
        """A function of the library.

        Raises LtError unless it answers 0.
        """
        status = getattr(self.lib, name)(*arguments)
        if status:
            raise LtError(f"{name}: status {status}")

    def set(self, attribute: int, value: Any) -> None:
        """An attribute of the description."""
        self.call(
            "cublasLtMatmulDescSetAttribute", self.description, attribute, byref(value), c_size_t(ctypes.sizeof(value))
        )

    def matrix(self, format: str, size: tuple[int, int, int]) -> Any:
        """A layout."""
        made = c_void_p()
        rows, columns, leading = size
        self.call(
            "cublasLtMatrixLayoutCreate",
            byref(made),
            CUDA_TYPES[format],
            c_uint64(rows),
            c_uint64(columns),
            c_int64(leading),
        )
        return made

    def offered(self, count: int = 64) -> list[Result]:
        """What the heuristics offer, best first."""
        preference, found, number = c_void_p(), (Result * count)(), c_int(0)
        self.call("cublasLtMatmulPreferenceCreate", byref(preference))
        size = c_uint64(WORKSPACE)
        self.call("cublasLtMatmulPreferenceSetAttribute", preference, 1, byref(size), c_size_t(8))
        b, a, d = self.layouts
        self.call(
            "cublasLtMatmulAlgoGetHeuristic",
            self.handle,
            self.description,
            b,
            a,
            d,
            d,
            preference,
            count,
            found,
            byref(number),
        )
        return [item for item in found[: number.value] if item.state == 0]

    def split(self, item: Result, split: int, reduction: int) -> Result | None:
        """An offered algorithm set to cut K into that many parts; None if it cannot."""
        changed, checked = Algorithm.from_buffer_copy(item.algorithm), Result()
        try:
            for name, value in (("split", split), ("reduction", reduction)):
                number, kind = CONFIG[name]
                word = kind(value)
                self.call(
                    "cublasLtMatmulAlgoConfigSetAttribute",
                    byref(changed),
                    number,
                    byref(word),
                    c_size_t(ctypes.sizeof(word)),
                )
            b, a, d = self.layouts
            self.call(
                "cublasLtMatmulAlgoCheck", self.handle, self.description, b, a, d, d, byref(changed), byref(checked)
            )
        except LtError:
            return None
        if checked.state or checked.workspace > WORKSPACE:
            return None
        checked.algorithm = changed
        return checked

    def about(self, item: Result) -> dict[str, Any]:
        """The fields of an algorithm."""
        found: dict[str, Any] = {}
        for name, (number, kind) in CONFIG.items():
            word, written = kind(0), c_size_t(0)
            size = c_size_t(ctypes.sizeof(word))
            status = self.lib.cublasLtMatmulAlgoConfigGetAttribute(
                byref(item.algorithm), number, byref(word), size, byref(written)
            )
            found[name] = word.value if status == 0 else None
        return found

    def run(self, operands: dict[str, Array], item: Result) -> Array:
        """The product by one algorithm: (1, M, N)."""
        product = self.product
        left, right, out = product.formats
        a, b = laid_out(operands["a"][0], left, product.layout[0]), laid_out(operands["b"][0], right, product.layout[1])
        m, n, _ = product.shape
        d = torch.zeros((m, n), dtype=TYPES[out], device="cuda")
        c = None
        if product.c:
            c = to_gpu(operands["c"][0] if product.c == "matrix" else operands["c"], self.c_format)
        if product.c == "row" and c is not None:
            self.set(BIAS_POINTER, c_void_p(c.data_ptr()))
        beta = product.beta if product.c == "matrix" else 0.0
        numbers = [_number(value, self.scale_format) for value in (product.alpha, beta)]
        torch.cuda.synchronize()
        b_layout, a_layout, d_layout = self.layouts
        addend = c.data_ptr() if product.c == "matrix" and c is not None else d.data_ptr()
        self.call(
            "cublasLtMatmul", self.handle, self.description, byref(numbers[0]), c_void_p(b.data_ptr()), b_layout,
            c_void_p(a.data_ptr()), a_layout, byref(numbers[1]), c_void_p(addend), d_layout, c_void_p(d.data_ptr()), d_layout,
            byref(item.algorithm), c_void_p(self.workspace.data_ptr()), c_size_t(WORKSPACE),
            c_void_p(torch.cuda.current_stream().cuda_stream),
        )  # fmt: skip
        torch.cuda.synchronize()
        return from_gpu(d[None], out)


def _number(value: float, format: str) -> Any:
    """Alpha or beta as the scale type wants it."""
    if format == "f16":
        return c_uint16(int(np.float16(value).view(np.uint16)))
    if format == "s32":
        return c_int32(int(value))
    return (ctypes.c_double if format == "f64" else c_float)(value)


def cublaslt(product: Product, given: Given) -> Iterator[Way]:
    """What a product asks for: the first algorithm offered, every algorithm whose bits differ, or given splits, each tried with all algorithms."""
    lt = Lt(product)
    offered = lt.offered()
    if not offered:
        raise LtError("the heuristics offer nothing")
    version = lt.lib.cublasLtGetVersion
    version.restype = c_size_t
    base = {"cublaslt": int(version()), "torch": torch.__version__, "offered": len(offered)}
    choose = product.options["choose"]
    if choose == "splits":
        candidates: list[tuple[str, Result]] = []
        for split in product.options["splits"]:
            for name, number in REDUCTIONS.items():
                changed = next((x for x in (lt.split(item, split, number) for item in offered) if x is not None), None)
                if changed is not None:
                    candidates.append((f"{split}-{name.replace(' ', '-')}", changed))
    else:
        candidates = [(str(place), item) for place, item in enumerate(offered[: 1 if choose == "first" else None])]
    telling = "cancelling" if "cancelling" in product.kinds else product.kinds[0]
    seen: set[str] = set()
    for mark, item in candidates:
        try:
            answer = lt.run(given[telling], item)
        except LtError:
            continue
        key = hashlib.sha256(answer.tobytes()).hexdigest()
        if key in seen or len(seen) >= 2 * _MOST:
            continue
        seen.add(key)
        if choose == "sweep" and len(seen) > _MOST:
            continue
        about = base | {"algorithm": lt.about(item)}
        yield Way("" if choose == "first" else mark, about, lambda kind, item=item: lt.run(given[kind], item))  # type: ignore[misc]
