"""torch's calls for the cases, on views of one large buffer, so that asking costs no memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

TYPES = {
    "f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "s8": torch.int8,
    "s32": torch.int32,
}  # fmt: skip


class Buffers:
    """Three areas of device memory, and views of them as operands of a case."""

    def __init__(self, gigabytes: float = 10.0) -> None:
        self.size = int(gigabytes * 2**30)
        self.areas = [torch.empty(self.size, dtype=torch.uint8, device="cuda") for _ in range(3)]
        self.ones = torch.ones(1 << 20, dtype=torch.float32, device="cuda")
        self.bias = {name: torch.zeros(1 << 20, dtype=TYPES[name], device="cuda") for name in ("f32", "f16", "bf16")}
        self.one = torch.ones((), dtype=torch.float32, device="cuda")

    def fits(self, case: Any) -> bool:
        """Whether the operands of a case fit."""
        wide = 4
        return case.batch * wide * max(case.m * case.k, case.k * case.n, case.m * case.n) <= self.size

    def view(self, area: int, format: str, *shape: int) -> Any:
        """The head of an area as an array."""
        count = 1
        for extent in shape:
            count *= extent
        bytes_ = count * TYPES[format].itemsize
        return self.areas[area][:bytes_].view(TYPES[format]).view(*shape)

    def operands(self, case: Any) -> tuple[Any, Any, Any]:
        """(x, w, out): x (M, K), w (K, N), as the layout has them."""
        lead = (case.batch,) if case.op == "bmm" else ()
        m, n, k = case.m, case.n, case.k
        first, _, second = case.format.partition(".")
        w = (
            self.view(1, second or first, *lead, n, k).transpose(-1, -2)
            if case.layout[0] == "T"
            else self.view(1, second or first, *lead, k, n)
        )
        x = (
            self.view(0, first, *lead, k, m).transpose(-1, -2)
            if case.layout[1] == "T"
            else self.view(0, first, *lead, m, k)
        )
        return x, w, self.view(2, case.out, *lead, m, n)


def settings(case: Any) -> None:
    """The switch of torch that allows tf32."""
    torch.backends.cuda.matmul.allow_tf32 = case.format == "tf32"


def call(case: Any, x: Any, w: Any, out: Any, buffers: Any, bias: Any = None, scales: Any = None) -> Callable[[], Any]:
    """The call that torch makes for a case."""
    if case.op == "mm":
        if case.out != {"tf32": "f32"}.get(case.format, case.format):
            return lambda: torch.mm(x, w, out_dtype=TYPES[case.out])
        return lambda: torch.mm(x, w, out=out)
    if case.op == "bmm":
        return lambda: torch.bmm(x, w, out=out)
    if case.op == "addmm":
        b = buffers.bias[case.out][: case.n] if bias is None else bias
        return lambda: torch.addmm(b, x, w, out=out)
    if case.op == "int_mm":
        return lambda: torch._int_mm(x, w, out=out)
    if scales is None:
        sa, sb = (
            (buffers.ones[: case.m].view(-1, 1), buffers.ones[: case.n].view(1, -1))
            if case.op == "scaled_row"
            else (buffers.one, buffers.one)
        )
    else:
        sa, sb = scales
    return lambda: torch._scaled_mm(x, w, sa, sb, out_dtype=TYPES[case.out], use_fast_accum=bool(case.fast))
