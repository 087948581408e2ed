"""Whole block-scaled GEMMs under test: which cases there are, their inputs, and the bits that `tcsim.gemm` predicts for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.kernels.gemm import SCALE, output_codes
from conformance.kernels.whole_outputs import Trial, blocks_of_64, matrix_place
from hwkernels.device.device_arrays import DTYPES
from hwkernels.gemm.scaled_call import ScaledCall, scaled_build
from hwkernels.gemm.scaled_kernels import OUTPUTS, SCALED_KERNELS, ScaledBuild
from hwkernels.gemm.tiles import Shape
from tcsim.core.targets import ARCHS

Array = npt.NDArray[Any]
Operands = dict[str, Array]  # a (M, K), scale_a (M, blocks), b (K, N), scale_b (blocks, N), perhaps c (M, N): codes
CLASSES = ("random", "wide", "extremes", "specials")
SIZES = (
    (128, 256, 1024),  # whole tiles, whole slots of every kernel, more of them than a ring has
    (257, 301, 143),  # nothing fits: the last block of K is cut, 4-bit rows end inside a byte
    (70, 520, 1096),  # ragged tiles, a long chain
    (1, 1, 1),
)
MANY = (700, 1100, 200)  # tiles in every direction
# For each format of scale factors: the code of 1, and how far from it random and wide factors reach. Products of the widest
# e5m2 numbers and factors, 2^(2 * 15.8 + 2 * 40), still have finite sums. An ue4m3 step is an eighth of a power of two.
_ONE = MappingProxyType({"ue8m0": 127, "ue4m3": 0x38})
_REACH = MappingProxyType({"ue8m0": (3, 40), "ue4m3": (0x18, 0x37)})
# Everything remarkable. ue8m0: 2^-127, 2^127, NaN, 1. ue4m3: zero, the least, the greatest subnormal, 448, NaN, 1; the top bit does not count
_EXTREMES = MappingProxyType(
    {"ue8m0": (0x00, 0x01, 0xFE, 0xFF, 0x7F), "ue4m3": (0x00, 0x01, 0x07, 0x7E, 0x7F, 0x38, 0x80, 0xB8, 0xFF)}
)


@dataclass(frozen=True)
class ScaledCase:
    """One product by one kernel: reproducible from its id and the seed."""

    kernel: str
    a: str
    b: str
    out: str
    size: tuple[int, int, int]
    inputs: str  # one of CLASSES
    block_n: int | None = None  # columns of a tile; None: chosen
    scaled: bool = False  # with alpha, beta and c

    @property
    def id(self) -> str:
        """Kernel, formats, choices, size, class.

        >>> ScaledCase("sm100_mxfp8", "e4m3", "e5m2", "f32", (1, 2, 3), "wide", block_n=128).id
        'scaled-sm100_mxfp8-e4m3.e5m2.f32-block_n128-1x2x3-wide'
        """
        choices = [f"block_n{self.block_n}"] * (self.block_n is not None) + ["scaled"] * self.scaled
        formats = f"{self.a}.{self.b}.{self.out}"
        return "-".join(["scaled", self.kernel, formats, *choices, "x".join(map(str, self.size)), self.inputs])

    def build(self, arch: str) -> ScaledBuild:
        """What is compiled for it on an arch."""
        target = SCALED_KERNELS[self.kernel].target_on(ARCHS[arch].number)
        formats = (self.a, self.b, self.out)
        return scaled_build(self.kernel, *formats, Shape(*self.size), self.scaled, block_n=self.block_n, target=target)


def cases(arch: str) -> Iterator[ScaledCase]:
    """Every case of the kernels that an arch runs: each pair of formats on each size and class, then each choice."""
    for row in SCALED_KERNELS.values():
        if ARCHS[arch].number not in row.archs:
            continue
        for a, b in itertools.product(row.formats, repeat=2):
            for size, inputs in itertools.product(SIZES, CLASSES):
                yield ScaledCase(row.name, a, b, "f32", size, inputs)  # f32 shows every bit of the accumulator
            base = ScaledCase(row.name, a, b, "f32", MANY, "random")
            yield from (
                replace(base, out=out, size=SIZES[2], scaled=scaled)
                for out in OUTPUTS
                for scaled in (False, True)
                if out != "f32" or scaled
            )
            yield from (replace(base, block_n=width) for width in row.block_n)


def operands(case: ScaledCase, seed: int) -> Operands:
    """Codes of everything: a pure function of the case's kernel, size, formats, class and the seed.

    random: elements and factors of middling size. wide: any finite elements, factors far apart. extremes: as random, but a few
    factors are the least, the greatest, zero or NaN. specials: a few elements are, and infinities.
    """
    row, (m, n, k) = SCALED_KERNELS[case.kernel], case.size
    kind = CLASSES.index(case.inputs)
    stream = np.random.Generator(np.random.Philox(key=[seed, kind + 10 * (1000 * m + n)]))
    blocks = -(-k // row.block)
    shapes = {"a": (m, k), "scale_a": (m, blocks), "b": (k, n), "scale_b": (blocks, n)}
    found = {name: _elements(getattr(case, name), shapes[name], case.inputs, stream) for name in "ab"}
    found |= {name: _factors(row.scale_format, shapes[name], case.inputs, stream) for name in ("scale_a", "scale_b")}
    if case.scaled:
        found["c"] = tcsim.encode(stream.standard_normal((m, n)), case.out)
    return found


def _elements(format_: str, shape: tuple[int, int], kind: str, stream: np.random.Generator) -> Array:
    item = tcsim.FORMATS[format_]
    codes = stream.integers(0, 1 << item.bits, shape).astype(item.dtype)
    normal = tcsim.encode(2 * stream.standard_normal(shape), format_)
    if kind == "wide":
        return np.where(np.isfinite(tcsim.decode(codes, format_)), codes, normal)
    if kind != "specials":
        return normal
    every = np.arange(1 << item.bits, dtype=item.dtype)
    remarkable = every[
        ~np.isfinite(tcsim.decode(every, format_)) | (every & (item.code_mask >> 1) < 2)
    ]  # and 0, the least
    rare = stream.random(shape) < 0.2 / max(shape)
    return np.where(rare, remarkable[stream.integers(0, len(remarkable), shape)], normal)


def _factors(format_: str, shape: tuple[int, int], kind: str, stream: np.random.Generator) -> Array:
    one, reach = _ONE[format_], _REACH[format_][kind == "wide"]
    codes = stream.integers(one - reach, one + reach + 1, shape).astype(np.uint8)
    if kind != "extremes":
        return codes
    extremes = np.array(_EXTREMES[format_], np.uint8)
    rare = stream.random(shape) < 1 / max(shape)
    return np.where(rare, extremes[stream.integers(0, len(extremes), shape)], codes)


def predicted(case: ScaledCase, arch: str, codes: Operands) -> Array:
    """The codes of d: one chain over ascending K; then alpha, beta; then rounded."""
    factors = codes["scale_a"], codes["scale_b"]
    accumulators = case.build(arch).predict(codes["a"], factors[0], codes["b"], factors[1])
    return output_codes(accumulators, case.out, codes.get("c"), arch)


def call_of(case: ScaledCase, codes: Operands, repeat: int) -> ScaledCall:
    """What runs on the GPU."""
    alpha, beta = SCALE if case.scaled else (1.0, 1.0)
    addend = codes["c"].view(DTYPES[case.out]) if case.scaled else None
    a, scale_a, b, scale_b = (codes[name] for name in ("a", "scale_a", "b", "scale_b"))
    formats = (case.a, case.b, case.out)
    return ScaledCall(case.kernel, a, scale_a, b, scale_b, addend, formats, alpha, beta, case.block_n, repeat)


def trial_of(case: ScaledCase, arch: str, seed: int) -> Trial:
    """What runs, and what should come of it."""
    inputs = cache(lambda: operands(case, seed))  # made when they are asked for
    return Trial(
        case.id,
        "test_scaled.py::test_scaled",
        "a whole GEMM",
        lambda repeat: call_of(case, inputs(), repeat),
        lambda: predicted(case, arch, inputs()),
        matrix_place,
        blocks_of_64,
    )
