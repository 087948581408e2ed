"""Which products the GEMM kernels are asked for: each kernel with its formats, outputs, majors and choices, on each target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from conformance.kernels.gemm import SHORT_WORDS, SPARSE_WORDS, WHOLE_WORDS, GemmCase
from conformance.kernels.scaled import ScaledCase
from hwkernels.gemm.call import Tuning
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS, GemmKernel
from hwkernels.gemm.scaled_kernels import OUTPUTS, SCALED_KERNELS, ScaledKernel
from hwkernels.gemm.tiles import formats_on
from tcsim.core.targets import TARGETS
from tests.kernels.corpora.gemm.products import Case, Schedule

SCHEDULES: tuple[Schedule, ...] = ("late", "early", 20261122)
RAGGED = (69, 139, 200)  # every edge of a tile and of a slot is cut; rows are not aligned
TILES = (264, 296, 136)  # several tiles in each direction, of more than one slot
ONE_OF_A_KIND = ("f16", "e4m3", "s8", "tf32")
SHARED = ("f16", "e4m3", "s8")


def products(target: str = "") -> Iterator[tuple[Case, str]]:
    """Every product with the target that it is compiled for: all choices on a kernel's own target, one a kind of format on others."""
    for kernel in KERNELS.values():
        for own in kernel.targets:
            if target in ("", own):
                yield from ((case, own) for case in _plain(kernel, own))
    for scaled in SCALED_KERNELS.values():
        for own in scaled.targets:
            if target in ("", own):
                yield from ((case, own) for case in _scaled(scaled, own))


def _plain(kernel: GemmKernel, target: str) -> Iterator[GemmCase]:
    tiled = kernel.tma or kernel.ctas or kernel.persistent
    for format_ in formats_on(kernel, TARGETS[target].number):
        outputs = OPERAND_FORMATS[format_].outputs
        exact = "f32" if "f32" in outputs else outputs[0]
        base = GemmCase(kernel.name, format_, format_, exact, TILES if tiled else RAGGED, "wide")
        if target != kernel.targets[0]:
            if format_ in ONE_OF_A_KIND:
                yield base
            continue
        yield base
        yield replace(base, size=RAGGED, inputs="random" if format_ == "s8" else "specials")
        yield from (replace(base, out=out, size=RAGGED) for out in outputs if out != exact)
        yield replace(base, scaled=True, inputs="random", size=RAGGED)
        if format_ in kernel.mn_major:
            yield from (replace(base, majors=pair) for pair in ((True, False), (False, True), (True, True)))
        if format_ == "e4m3":
            yield replace(base, b="e5m2")
        if kernel.persistent and format_ in ("f16", "e4m3"):
            yield from _chosen(kernel, base, outputs)


def _chosen(kernel: GemmKernel, base: GemmCase, outputs: tuple[str, ...]) -> Iterator[GemmCase]:
    """What a persistent kernel lets one choose."""
    widths = [Tuning(block_n=n) for n in kernel.block_n]
    clusters = [(1, 1), (4, 1)] if kernel.sparse else [(1, 1), (1, 2), (2, 2), (4, 1)]
    if kernel.ctas:
        choices = widths
    elif kernel.sparse:
        choices = [*widths, *(Tuning(cluster=shape) for shape in clusters), *SPARSE_WORDS]
    else:
        choices = [*widths, *(Tuning(cluster=shape) for shape in clusters), *WHOLE_WORDS]
        choices += [Tuning(block_n=128, promote=slots) for slots in (1, 2)]
        short = next((out for out in outputs if out in ("f16", "bf16")), None)
        if short:
            yield from (replace(base, out=short, tuning=replace(tuning, clusters=2)) for tuning in SHORT_WORDS)
    yield from (replace(base, tuning=tuning) for tuning in choices)


def _scaled(kernel: ScaledKernel, target: str) -> Iterator[ScaledCase]:
    for a, b in product(kernel.formats, repeat=2):
        base = ScaledCase(kernel.name, a, b, "f32", (136, 264, 520), "wide")
        yield base
        if target != kernel.targets[0]:
            return
        yield from (replace(base, size=(69, 139, 200), inputs=inputs) for inputs in ("extremes", "specials"))
        yield from (replace(base, out=out, size=RAGGED, scaled=out == "f16") for out in OUTPUTS if out != "f32")
        yield from (replace(base, block_n=width) for width in kernel.block_n)


def share() -> list[tuple[Case, str, Schedule]]:
    """A part for each run of the tests: of each kernel on its own target one product a kind of format, the schedules in turn."""
    found: list[tuple[Case, str, Schedule]] = []
    seen: set[tuple[str, str]] = set()
    for case, target in products():
        row = SCALED_KERNELS[case.kernel] if isinstance(case, ScaledCase) else KERNELS[case.kernel]
        key = case.kernel, case.a
        if target == row.targets[0] and key not in seen and (case.a in SHARED or isinstance(case, ScaledCase)):
            seen.add(key)
            found.append((case, target, SCHEDULES[len(found) % len(SCHEDULES)]))
    return found
