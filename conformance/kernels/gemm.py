"""Whole GEMMs under test: which cases there are, their inputs, and the bits that `tcsim.gemm` predicts for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.kernels.whole_outputs import Trial, blocks_of_64, frozen_inputs, matrix_place
from conformance.stimuli.codes import bell, finite_bits, random_bits, sign_bit, window
from conformance.stimuli.stream import Stream
from conformance.suite.whole_recordings import Part
from hwkernels.device.device_arrays import DTYPES
from hwkernels.gemm.build import Build
from hwkernels.gemm.call import Tuning, target_for, tuned
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS
from hwkernels.gemm.tiles import Shape, choose, formats_on
from hwkernels.gemm.worker import GemmCall
from tcsim.core.targets import ARCHS

Array = npt.NDArray[Any]
CLASSES = ("random", "wide", "specials")
SIZES = (
    (128, 256, 192),  # whole tiles
    (257, 301, 143),  # nothing fits: rows are repacked, every edge is ragged
    (70, 520, 1096),  # rows start at multiples of 16 bytes, tiles are ragged; a long chain
)
WAVES = (2700, 1700, 80)  # more tiles than multiprocessors have at once, for the widest tiles of a cluster
# Choices of the persistent kernel, beside widths and clusters: for outputs of 32 bits, and of 16
WHOLE_WORDS = (Tuning(stagger=0), Tuning(panels=4), Tuning(stream=True), Tuning(direct=True), Tuning(clusters=7))
SHORT_WORDS = (
    Tuning(),
    Tuning(stagger=2, group=3),
    Tuning(panels=4),
    Tuning(defer=False, stagger=3),
    Tuning(block_n=192, stream=True, promotion="L2_128B"),
)
SPARSE_WORDS = (Tuning(stagger=0), Tuning(direct=True), Tuning(clusters=7))
DEEP = (520, 1300, 400)  # with few clusters: several tiles for each, of more slots than the ring has
TABLE = 4096  # numbers near a normal distribution, of which a matrix takes its own
WIDEST = 56  # exponent of the wide class, where the format has more
SCALE = (0.5, -2.0)  # alpha and beta: powers of two, so that one f32 addition is what a fused multiply-add does


@dataclass(frozen=True)
class GemmCase:
    """One product by one kernel: reproducible from its id and the seed."""

    kernel: str
    a: str
    b: str
    out: str
    size: tuple[int, int, int]
    inputs: str  # one of CLASSES
    majors: tuple[bool, bool] = (False, False)  # whether A and B are MN-major
    tuning: Tuning = field(default_factory=Tuning)
    scaled: bool = False  # with alpha, beta and c

    @property
    def id(self) -> str:
        """Kernel, formats, majors, choices, size, class.

        >>> GemmCase("sm90_wgmma_tma", "f16", "f16", "f32", (1, 2, 3), "wide").id
        'gemm-sm90_wgmma_tma-f16.f16.f32-KK-1x2x3-wide'
        """
        majors = "".join("MN"[place] if mn_major else "K" for place, mn_major in enumerate(self.majors))
        choices = [f"{name}{value}" for name, value in vars(self.tuning).items() if value is not None]
        parts = [*choices, *(["scaled"] if self.scaled else []), "x".join(map(str, self.size)), self.inputs]
        text = "-".join(["gemm", self.kernel, f"{self.a}.{self.b}.{self.out}", majors, *parts])
        return text.replace("(", "").replace(")", "").replace(", ", "x")

    def build(self, arch: str) -> Build:
        """What is compiled for it on an arch with 132 multiprocessors; its instruction and promotion do not depend on that."""
        row = KERNELS[self.kernel]
        target = target_for(row, ARCHS[arch].number)
        build = choose(
            row, Shape(*self.size), (self.a, self.b, self.out), self.majors, target=target, scaled=self.scaled
        )
        return tuned(build, self.tuning)


def cases(arch: str) -> Iterator[GemmCase]:
    """Every case of the kernels that an arch runs: each kernel and format on each size and class, then each choice."""
    for name, row in KERNELS.items():
        for format_ in formats_on(row, ARCHS[arch].number):
            outputs = OPERAND_FORMATS[format_].outputs
            exact = "f32" if "f32" in outputs else outputs[0]  # shows every bit of the accumulator
            for size in SIZES:
                for inputs in CLASSES[: 2 if format_ == "s8" else 3]:
                    yield GemmCase(name, format_, format_, exact, size, inputs)
            base = GemmCase(name, format_, format_, exact, SIZES[2], "wide")
            yield from (replace(base, out=out) for out in outputs if out != exact)
            yield replace(base, scaled=True, inputs="random")
            if format_ in row.mn_major:
                majors = ((True, False), (False, True), (True, True))
                yield from (replace(base, majors=pair, size=(72, 520, 264)) for pair in majors)
            if format_ == "e4m3":
                yield replace(base, b="e5m2")
            if not row.persistent:
                continue
            yield replace(base, size=WAVES)
            yield from (replace(base, size=WAVES, tuning=Tuning(block_n=n)) for n in row.block_n)
            if row.ctas:
                continue
            if row.sparse:
                yield from (replace(base, size=WAVES, tuning=Tuning(cluster=shape)) for shape in ((1, 1), (4, 1)))
                yield from (replace(base, size=WAVES, tuning=tuning) for tuning in SPARSE_WORDS)
                continue
            yield from (
                replace(base, size=WAVES, tuning=Tuning(cluster=shape)) for shape in ((1, 1), (1, 2), (2, 2), (4, 1))
            )
            yield from (replace(base, size=WAVES, tuning=tuning) for tuning in WHOLE_WORDS)
            short = next((out for out in outputs if out in ("f16", "bf16")), None)
            if short:
                yield from (replace(base, size=WAVES, out=short, tuning=tuning) for tuning in SHORT_WORDS)
                few = (replace(tuning, clusters=4) for tuning in SHORT_WORDS)
                yield from (replace(base, size=DEEP, out=short, tuning=tuning) for tuning in few)
            if exact == "f32":
                yield from (replace(base, tuning=Tuning(block_n=128, promote=slots)) for slots in (1, 4))


OperandsKey = tuple[str, str, str, tuple[int, int, int], str, bool, int]
"""Formats of a, b and d, size, class, whether there is a c, and the group of neighbours of which a sparse a keeps half, or 0."""


def operands_key(case: GemmCase) -> OperandsKey:
    """All that the operands of a case depend on, besides the seed."""
    group = OPERAND_FORMATS[case.a].group if KERNELS[case.kernel].sparse else 0
    return case.a, case.b, case.out if case.scaled else "", case.size, case.inputs, case.scaled, group


def operands(case: GemmCase, seed: int) -> tuple[Array, Array, Array | None]:
    """Codes of a (M, K), b (K, N) and, if scaled, c (M, N): a pure function of `operands_key` and the seed.

    For a sparse kernel, a is `pruned`.
    """
    return operands_of(operands_key(case), seed)


def operands_of(key: OperandsKey, seed: int) -> tuple[Array, Array, Array | None]:
    """The operands of every case with this key."""
    format_a, format_b, out, (m, n, k), kind, scaled, group = key
    stream = Stream("gemm", *key, seed)
    a = _codes(format_a, (m, k), kind, stream)
    b = _codes(format_b, (k, n), kind, stream)
    if group:
        a = pruned(a, group, stream)
    return a, b, _codes(out, (m, n), "random", stream) if scaled else None


def pruned(a: Array, group: int, stream: Stream) -> Array:
    """A matrix (M, K) in which each `group` neighbours along K keep half, chosen at random; the others are zero.

    >>> pruned(np.ones((1, 8), np.uint8), 4, Stream(0)).reshape(2, 4).sum(1).tolist()
    [2, 2]
    """
    rows, k = a.shape
    groups = -(-k // group)
    rank = np.argsort(np.argsort(stream.words((rows, groups, group)), axis=-1), axis=-1).reshape(rows, -1)[:, :k]
    return np.where(rank < group // 2, a, np.zeros_like(a))


def _codes(format_: str, shape: tuple[int, int], kind: str, stream: Stream) -> Array:
    """random: near a normal distribution. wide: any finite bits, or 2^-56 .. 2^56. specials: normal, and a few of everything remarkable."""
    item = tcsim.FORMATS[format_]
    if item.kind == "integer":
        words = random_bits(item, stream, shape)
        return words if kind == "wide" else (words & item.dtype.type(15))
    if kind == "wide" and item.exponent_bits == 8:  # products that stay below 2^128
        return window(item, stream, shape, -WIDEST, WIDEST)
    if kind == "wide":
        return finite_bits(item, stream, shape)
    normal = stream.choice(tcsim.encode(bell(stream, (TABLE,)), format_), shape)
    if kind == "random":
        return normal
    # A special value in one row of 16 leaves outputs of every kind: NaN, infinities, and finite ones.
    remarkable = tcsim.encode(np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 2.0**-149, 2.0**-15, 2.0**-126]), format_)
    chosen = stream.choice(remarkable, shape)
    rare = stream.chance(1, 5 * max(shape), shape)
    zeros = np.where(stream.chance(1, 2, shape), item.dtype.type(0), sign_bit(item))
    return np.where(rare, chosen, np.where(stream.chance(3, 10, shape), zeros, normal))


def predicted(case: GemmCase, arch: str, a: Array, b: Array, c: Array | None) -> Array:
    """The codes of d: one chain over ascending K, or chains of `promote` slots added in f32; then alpha, beta; then rounded."""
    build = case.build(arch)
    if build.promote:
        length = build.promote * build.block_k
        total = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for start in range(0, a.shape[1], length):
            part = slice(start, start + length)
            chain = build.predict(a[:, part], b[part])
            with np.errstate(invalid="ignore", over="ignore"):
                total = total + chain.view(np.float32)
        codes = _canonical(total)
    else:
        codes = build.predict(a, b)
    if case.out == "s32":
        return codes if c is None else _scaled_integers(codes, c)
    return output_codes(codes, case.out, c, arch)


def output_codes(codes: Array, out: str, c: Array | None, arch: str) -> Array:
    """What the epilogue of a kernel makes of f32 accumulators: alpha and beta of SCALE if there is a c, one rounding to `out`."""
    if c is not None:
        addend = tcsim.decode(c, out).astype(np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            codes = _canonical(np.float32(SCALE[0]) * codes.view(np.float32) + np.float32(SCALE[1]) * addend)
    if out == "f32":
        return codes
    rounding = tcsim.instruction(f"cvt.rn.{out}x2.f32", arch=arch)
    pairs = rounding.execute(a=codes, b=codes)
    return (np.asarray(pairs) & 0xFFFF).astype(np.uint16).reshape(codes.shape)


def _canonical(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """Codes, with every NaN the one that f32 arithmetic of the GPU makes. Source: PTX ISA, NaN is 0x7fffffff."""
    return np.where(np.isnan(values), np.uint32(0x7FFFFFFF), values.view(np.uint32))


def _scaled_integers(codes: Array, c: Array) -> Array:
    alpha, beta = (np.int32(value) for value in WHOLE)
    with np.errstate(over="ignore"):
        return (alpha * codes.view(np.int32) + beta * c.view(np.int32)).view(codes.dtype)


WHOLE = (3, -2)  # alpha and beta of integers


def call_of(case: GemmCase, a: Array, b: Array, c: Array | None, repeat: int) -> GemmCall:
    """What runs on the GPU."""
    left, right = a.view(DTYPES[case.a]), b.view(DTYPES[case.b])
    if case.majors[0]:
        left = np.asfortranarray(left)
    if not case.majors[1]:  # K-major: neighbours along K
        right = np.asfortranarray(right)
    alpha, beta = (WHOLE if case.out == "s32" else SCALE) if case.scaled else (1.0, 1.0)
    addend = None if c is None else c.view(DTYPES[case.out])
    tuning = None if case.tuning == Tuning() else case.tuning
    return GemmCall(case.kernel, left, right, addend, alpha, beta, case.out, tuning, repeat)


def trial_of(case: GemmCase, arch: str, seed: int) -> Trial:
    """What runs, and what should come of it."""

    @cache  # made when they are asked for
    def inputs() -> tuple[Array, Array, Array | None]:
        return frozen_inputs("gemm", arch, case.id, seed, lambda: operands(case, seed))

    def part(block: Part) -> Array:
        a, b, c = inputs()
        return predicted(case, arch, a[block[0]], b[:, block[1]], None if c is None else c[block])

    return Trial(
        case.id,
        "test_gemm.py::test_gemm",
        "a whole GEMM",
        lambda repeat: call_of(case, *inputs(), repeat),
        lambda: predicted(case, arch, *inputs()),
        matrix_place,
        blocks_of_64,
        lambda: {name: codes for name, codes in zip("abc", inputs(), strict=True) if codes is not None},
        part,
    )
