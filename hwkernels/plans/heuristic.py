"""cuBLASLt's heuristic through ctypes: what it answers for a product described as torch describes it."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

CUDA_TYPES = {"f32": 0, "tf32": 0, "f16": 2, "s8": 3, "s32": 10, "bf16": 14, "e4m3": 28, "e5m2": 29}
COMPUTE = {"tf32": 77, "s8": 72}  # else 68
CONFIG = {
    "id": (0, c_int32), "tile": (1, c_uint32), "split": (2, c_int32), "reduction": (3, c_uint32), "swizzle": (4, c_uint32),
    "custom": (5, c_uint32), "stages": (6, c_uint32), "inner": (7, c_uint16), "cluster": (8, c_uint16),
}  # fmt: skip


class Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class Heuristic:
    """A handle, and the preferences that torch gives."""

    def __init__(self, workspace: int = 32 << 20, alignment: int = 256) -> None:
        self.lib = ctypes.CDLL("libcublasLt.so.13")
        self.handle, self.preference = c_void_p(), c_void_p()
        self.call("cublasLtCreate", byref(self.handle))
        self.call("cublasLtMatmulPreferenceCreate", byref(self.preference))
        self.prefer(1, c_uint64(workspace))
        for number in (5, 6, 7, 8):
            self.prefer(number, c_uint32(alignment))
        self.layouts: dict[tuple[Any, ...], c_void_p] = {}
        self.descriptions: dict[tuple[Any, ...], c_void_p] = {}

    def call(self, name: str, *arguments: Any) -> None:
        """A function of cuBLASLt; RuntimeError unless it answers 0."""
        status = getattr(self.lib, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {status}")

    def version(self) -> str:
        """As the library says it."""
        self.lib.cublasLtGetVersion.restype = c_size_t
        number = int(self.lib.cublasLtGetVersion())
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def prefer(self, number: int, value: Any) -> None:
        """Set a preference."""
        self.call(
            "cublasLtMatmulPreferenceSetAttribute",
            self.preference,
            number,
            byref(value),
            c_size_t(ctypes.sizeof(value)),
        )

    def layout(self, format: str, rows: int, columns: int, leading: int, batch: int = 1, stride: int = 0) -> c_void_p:
        """A matrix, column-major."""
        made = c_void_p()
        self.call(
            "cublasLtMatrixLayoutCreate",
            byref(made),
            CUDA_TYPES[format],
            c_uint64(rows),
            c_uint64(columns),
            c_int64(leading),
        )
        if batch > 1:
            for number, value in ((5, c_int32(batch)), (6, c_int64(stride))):
                self.call(
                    "cublasLtMatrixLayoutSetAttribute", made, number, byref(value), c_size_t(ctypes.sizeof(value))
                )
        return made

    def description(self, case: Any, pointer: int) -> c_void_p:
        """The operation, as torch describes it."""
        key = (case.op, case.format, case.out, case.layout, case.fast)
        if key not in self.descriptions:
            made = c_void_p()
            self.call(
                "cublasLtMatmulDescCreate", byref(made), COMPUTE.get(case.format, 68), 10 if case.format == "s8" else 0
            )
            attributes: list[tuple[int, Any]] = [
                (3, c_int32(int(case.layout[0] == "T"))),
                (4, c_int32(int(case.layout[1] == "T"))),
            ]
            if case.op.startswith("scaled"):
                attributes += [(25, c_int8(case.fast)), (17, c_uint64(pointer)), (18, c_uint64(pointer))]
                if case.op == "scaled_row":
                    attributes += [(31, c_int32(3)), (32, c_int32(3))]
            if case.op == "addmm":
                attributes += [(7, c_uint32(4)), (8, c_uint64(pointer)), (26, c_int32(CUDA_TYPES[case.out]))]
            for number, value in attributes:
                self.call("cublasLtMatmulDescSetAttribute", made, number, byref(value), c_size_t(ctypes.sizeof(value)))
            self.descriptions[key] = made
        return self.descriptions[key]

    def ask(self, case: Any, pointer: int) -> tuple[Any, ...]:
        """(description, layouts, Result) of the first answer."""
        m, n, k = case.m, case.n, case.k
        first = (k, n, k) if case.layout[0] == "T" else (n, k, n)
        second = (m, k, m) if case.layout[1] == "T" else (k, m, k)
        x, _, w = case.format.partition(".")
        a = self.layout(w or x, *first, case.batch, n * k)
        b = self.layout(x, *second, case.batch, m * k)
        d = self.layout(case.out, n, m, n, case.batch, m * n)
        result, count = Result(), c_int()
        description = self.description(case, pointer)
        self.call(
            "cublasLtMatmulAlgoGetHeuristic",
            self.handle,
            description,
            a,
            b,
            d,
            d,
            self.preference,
            1,
            byref(result),
            byref(count),
        )
        return description, (a, b, d), result

    def free(self, layouts: tuple[c_void_p, ...]) -> None:
        """Destroy the layouts of a question."""
        for item in layouts:
            self.lib.cublasLtMatrixLayoutDestroy(item)

    def about(self, result: Result) -> dict[str, int]:
        """The fields of an algorithm, and the bytes of its workspace."""
        found = {"workspace": int(result.workspace)}
        for name, (number, kind) in CONFIG.items():
            word, written = kind(0), c_size_t(0)
            self.lib.cublasLtMatmulAlgoConfigGetAttribute(
                byref(result.algorithm), number, byref(word), c_size_t(ctypes.sizeof(word)), byref(written)
            )
            found[name] = word.value
        return found

    def launch(
        self,
        asked: tuple[Any, ...],
        a: int,
        b: int,
        d: int,
        workspace: int,
        size: int,
        stream: int,
        integer: bool = False,
    ) -> None:
        """Launch the product that was asked for."""
        description, (la, lb, ld), result = asked
        one, zero = (c_int32(1), c_int32(0)) if integer else (c_float(1), c_float(0))
        self.call(
            "cublasLtMatmul", self.handle, description, byref(one), c_void_p(a), la, c_void_p(b), lb, byref(zero), c_void_p(d), ld, c_void_p(d), ld,
            byref(result.algorithm), c_void_p(workspace), c_size_t(size), c_void_p(stream),
        )  # fmt: skip
