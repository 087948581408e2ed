"""Which work the kernel for grouped products computes (hwkernels/kernels/engine_grouped.cu), and the constants that it is compiled with."""

from __future__ import annotations

from hwkernels.engine.source import headers_of
from tcsim.arithmetic.steps import ScaledDotAdd
from tcsim.engines.contract import Work
from tcsim.numbers.formats import Format

GROUP = 16  # products whose sum the kernel scales
TILE = 64  # rows and columns of a block's outputs
SCALING_BYTES = 8


def _largest(item: Format) -> int:
    """The largest number in units of the smallest."""
    whole = (2 << item.fraction_bits) - 1
    top = (1 << item.exponent_bits) - 1 - item.bias
    return whole << (top - item.minimum_exponent)


def why_not(work: Work) -> str:
    """Why the kernel does not compute this; empty if it does."""
    if work.scale is None or len(work.steps) != 1:
        return "it is not scaled, or of several steps"
    (step,) = work.steps
    if not isinstance(step, ScaledDotAdd) or step.group != GROUP or step.addend != "c":
        return f"its products are not summed in groups of {GROUP}"
    if step.k != tuple(range(work.kept)) or work.formats[2] != work.result or work.kept // work.blocks % GROUP:
        return "its groups do not lie as the factors do, or its result is not its addend"
    a, b, _ = work.formats
    if any(item.infinity or item.nan != "none" or _largest(item) > 127 for item in (a, b)):
        return "its elements are not small integers"
    if GROUP * _largest(a) * _largest(b) * ((2 << work.scale.fraction_bits) - 1) ** 2 >= 1 << 31:
        return "its sums have more than 31 bits"
    return ""


def headers(work: Work) -> dict[str, str]:
    """All headers that the kernel includes."""
    a, b, c = (item.name for item in work.formats)
    scale = work.scale.name if work.scale else ""
    text = (
        f"#pragma once\ntypedef Read<{a}, {a}> ReadA;\ntypedef Read<{b}, {b}> ReadB;\ntypedef Unit0 TheUnit;\n"
        f"typedef {c} CFormat;\ntypedef {scale} ScaleFormat;\n"
    )
    return {**headers_of(work), "constants.cuh": text}
