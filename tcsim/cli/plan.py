"""`tcsim plan`: the order in which a library sums a product, on one GPU or several."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from tcsim.arithmetic.steps import DotAdd
from tcsim.catalog import instruction
from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.inspection.report import Lines, Report, table
from tcsim.plans import Plan, PlanError, profile, recorded
from tcsim.plans import plan as find

SHAPE = re.compile(r"(\d{1,10})x(\d{1,10})x(\d{1,10})")


def plan(
    op: Annotated[
        str, typer.Argument(help="linear, matmul, addmm, bmm, scaled_mm, scaled_mm_rowwise or int_mm.", metavar="OP")
    ],
    shape: Annotated[str, typer.Argument(help="M x N x K: 16x4096x14336.", metavar="SHAPE")],
    format: Annotated[
        str,
        typer.Argument(help="Of the operands: f16, bf16, tf32, f32, e4m3, e5m2, e4m3.e5m2 or s8.", metavar="FORMAT"),
    ] = "bf16",
    gpus: Annotated[
        str, typer.Option("--gpus", "--gpu", help="Products or archs: h200,b200.", metavar="GPU,...")
    ] = "h200",
    out: Annotated[str | None, typer.Option("--out", help="Format of the result.", metavar="FORMAT")] = None,
    layout: Annotated[
        str, typer.Option("--layout", help="Of weight and activations, as cuBLAS names them: TN, NN, NT, TT.")
    ] = "TN",
    bias: Annotated[bool, typer.Option("--bias", help="With a bias.")] = False,
    batch: Annotated[int, typer.Option("--batch", help="Products of a bmm.")] = 1,
    accurate: Annotated[bool, typer.Option("--accurate", help="FP8 without fast accumulation.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse what is only assumed.")] = False,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Say in which order a library sums a product, how that is known, and what changes between GPUs."""
    parts = SHAPE.fullmatch(shape)
    if parts is None:
        raise PlanError(f"plan: no shape {shape[:40]!r}; valid: MxNxK, such as 16x4096x14336")
    m, n, k = map(int, parts.groups())
    plans = [
        find(op, m=m, n=n, k=k, format=format, gpu=gpu, out=out, layout=layout, bias=bias, batch=batch, fast=not accurate, strict=strict)
        for gpu in gpus.split(",")
    ]  # fmt: skip
    emit("plan", lambda: _data(plans), lambda: _report(plans), json=json, html=html)


def _changes(first: Plan, other: Plan) -> list[str]:
    """What another GPU does differently, of what fixes the bits."""
    return [
        name
        for name in _SAID
        if getattr(first, name) != getattr(other, name) and (name != "instruction" or _steps(first) != _steps(other))
    ]


def _steps(plan: Plan) -> set[Any]:
    """What a chain of the instruction adds at once, and on which datapath: chains of equal steps have equal bits."""
    if plan.instruction is None:
        return set()
    steps = instruction(plan.instruction, arch=plan.arch).lowering.steps
    return {(len(step.k), step.unit) if isinstance(step, DotAdd) else step for step in steps}


def _difference(first: Plan, other: Plan) -> str:
    """How another GPU sums, beside the first."""
    said = [
        _SAID[name].format(*(_short(getattr(own, name)) for own in (other, first))) for name in _changes(first, other)
    ]
    assumed = " (assumed)" if "assumed" in (first.source, other.source) else ""
    if said:
        return f"{other.gpu} does not sum as {first.gpu} does{assumed}: {'; '.join(said)}"
    if not first.modelled:
        return f"neither the order of {first.gpu} nor that of {other.gpu} is known"
    own = first.instruction != other.instruction
    words = f": {_short(other.instruction)} has the bits of {_short(first.instruction)}" if own else ""
    return f"{other.gpu} sums as {first.gpu} does{assumed}{words}"


def _short(value: object) -> object:
    return ".".join(value.split(".")[:2]) if isinstance(value, str) else value or "none"


_SAID = {
    "modelled": "modelled: {}, not {}",
    "instruction": "{} multiplies, not {}",
    "split": "parts of K: {}, not {}",
    "chunk": "elements of K in a part: {}, not {}",
    "promotion": "elements of K between additions to an f32 accumulator: {}, not {}",
}
"""What is said of a field of a plan that differs."""


def _data(plans: list[Plan]) -> dict[str, Any]:
    known = recorded()
    return {
        "plans": [item.as_dict() for item in plans],
        "changes": {item.gpu: _changes(plans[0], item) for item in plans[1:]},
        "profiles": {item.gpu: profile(item.gpu).as_dict() for item in plans if item.gpu in known},
    }


def _report(plans: list[Plan]) -> Report:
    rows = [
        (item.gpu, item.instruction or "not modelled", item.split, item.chunk, item.source, item.reason)
        for item in plans
    ]
    lines = [_difference(plans[0], item) for item in plans[1:]]
    lines += [
        f"{item.gpu}: recorded with torch {about.torch}, cuBLASLt {about.cublaslt}, workspace {about.workspace >> 20} MiB"
        for item, about in ((item, profile(item.gpu)) for item in plans if item.gpu in recorded())
    ]
    one = plans[0]
    title = f"{one.op} {one.m}x{one.n}x{one.k}, {one.format} to {one.out}"
    return Report(
        title,
        (
            table(("gpu", "instruction", "parts of K", "of elements", "source", "why"), rows),
            Lines(tuple(lines), wrap=True),
        ),
    )
