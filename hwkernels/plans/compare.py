"""torch's outputs beside the chains of a decision, every bit."""

from __future__ import annotations

from typing import Any

import torch

from hwkernels.plans.calls import TYPES, Buffers, call, settings
from hwkernels.plans.cases import Case, score
from hwkernels.plans.chain import chain
from tcsim.plans.packed import Decision
from tcsim.plans.record import Kind


def operand(shape: tuple[int, ...], format: str, generator: Any) -> Any:
    """Normal numbers of seven binades, or all integers of 8 bits."""
    if format == "s8":
        return torch.randint(-128, 128, shape, generator=generator, device="cuda", dtype=torch.int8)
    spread = torch.exp2(torch.randint(-3, 4, shape, generator=generator, device="cuda").float())
    numbers = torch.randn(shape, generator=generator, device="cuda") * spread
    return (numbers.clamp(-448, 448) if format == "e4m3" else numbers).to(TYPES[format])


def differing(case: Case, decision: Decision, buffers: Buffers) -> tuple[int, int]:
    """How many outputs of torch differ from the decision's chains, and of how many."""
    generator = torch.Generator(device="cuda")
    generator.manual_seed(int(score(case, "seed") * 2**31))
    lead = (case.batch,) if case.op == "bmm" else ()
    formats = Kind(case.op, case.format, case.out, case.layout, bool(case.fast)).formats
    x0, w0 = (
        operand((*lead, rows, case.k), format, generator)
        for rows, format in zip((case.m, case.n), formats, strict=True)
    )
    x = x0 if case.layout[1] == "N" else x0.transpose(-1, -2).contiguous().transpose(-1, -2)
    w = w0.transpose(-1, -2) if case.layout[0] == "T" else w0.transpose(-1, -2).contiguous()
    out = torch.empty((*lead, case.m, case.n), dtype=TYPES[case.out], device="cuda")
    bias = operand((case.n,), case.out, generator) if case.op == "addmm" else None
    scales = None
    if case.op.startswith("scaled"):
        shapes = ((case.m, 1), (1, case.n)) if case.op == "scaled_row" else ((), ())
        scales = tuple(torch.rand(s, generator=generator, device="cuda") * 1.7 + 0.1 for s in shapes)
    settings(case)
    observed = call(case, x, w, out, buffers, bias, scales)()
    chunk, fast = decision.chunk(case.k), bool(case.fast)
    pairs = zip(x0, w0, strict=True) if lead else [(x0, w0)]
    sums = [chain(left, right, chunk, case.format, fast) for left, right in pairs]
    total = torch.stack(sums) if lead else sums[0]
    if scales is not None:
        total = (total * scales[1]) * scales[0] if case.op == "scaled_row" else total * (scales[0] * scales[1])
    if bias is not None:
        total = total + bias.float()
    words = {2: torch.int16, 4: torch.int32}[observed.element_size()]
    return int((total.to(observed.dtype).view(words) != observed.view(words)).sum()), observed.numel()
