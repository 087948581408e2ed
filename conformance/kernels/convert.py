"""Whole arrays converted by hwkernels' kernel: which cases there are, their inputs, and the bits that `tcsim.quantize` predicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.kernels.whole_outputs import Trial, frozen_inputs
from conformance.stimuli.codes import bell
from conformance.stimuli.stream import Stream
from hwkernels.gemm.convert_call import FORMATS, ConvertCall, conversion
from tcsim.core.errors import InstructionError
from tcsim.core.targets import ARCHS

Floats = npt.NDArray[np.float32]
CLASSES = ("normal", "bits", "ties")
SIZES = (1, 1 << 16, 100_003)  # one element; whole runs of 16 bytes; an end inside a run


@dataclass(frozen=True)
class ConvertCase:
    """One array: reproducible from its id and the seed."""

    format: str
    saturate: bool
    size: int
    inputs: str  # one of CLASSES

    @property
    def id(self) -> str:
        """Format, overflow, size, class.

        >>> ConvertCase("e4m3", True, 1, "bits").id
        'convert-e4m3-satfinite-1-bits'
        """
        return f"convert-{self.format}-{'satfinite' if self.saturate else 'infinity'}-{self.size}-{self.inputs}"


def cases(arch: str) -> Iterator[ConvertCase]:
    """Every format that an arch converts to, with every way to overflow, on each size and class."""
    for format_, saturate in FORMATS:
        try:
            conversion(format_, saturate, ARCHS[arch].name)
        except InstructionError:
            continue  # the arch has no such instruction
        yield from (ConvertCase(format_, saturate, size, kind) for size in SIZES for kind in CLASSES)


def inputs(case: ConvertCase, seed: int) -> Floats:
    """The array: a pure function of the case and the seed.

    normal: near a normal distribution. bits: any 32 bits, NaNs and infinities too. ties: numbers of the format, the middles between
    neighbours, and what lies one f32 step beside a middle.
    """
    stream = Stream("convert", case.format, case.size, case.inputs, seed)
    shape = (case.size,)
    if case.inputs == "normal":
        return bell(stream, shape).astype(np.float32)
    if case.inputs == "bits":
        return stream.words(shape).astype(np.uint32).view(np.float32)
    item = tcsim.FORMATS[case.format]
    codes = stream.below(1 << item.bits, shape).astype(item.dtype)
    low, high = (tcsim.decode(part, item.name).astype(np.float64) for part in (codes, codes + item.dtype.type(1)))
    with np.errstate(invalid="ignore", over="ignore"):
        middle = ((low + high) / 2).astype(np.float32)
    beside = middle.view(np.uint32) + stream.between(-1, 1, shape).astype(np.int32).view(np.uint32)
    exact = stream.chance(1, 10, shape)
    return np.where(exact, low.astype(np.float32).view(np.uint32), beside).astype(np.uint32).view(np.float32)


def predicted(case: ConvertCase, x: Floats) -> npt.NDArray[Any]:
    """The codes."""
    return tcsim.quantize(x, case.format, saturate=case.saturate)


def call_of(case: ConvertCase, x: Floats, repeat: int) -> ConvertCall:
    """What runs on the GPU."""
    return ConvertCall(x, case.format, case.saturate, repeat)


def trial_of(case: ConvertCase, arch: str, seed: int) -> Trial:
    """What runs, and what should come of it."""

    @cache  # made when it is asked for
    def x() -> Floats:
        return frozen_inputs("convert", arch, case.id, seed, lambda: inputs(case, seed))

    return Trial(
        case.id,
        "test_convert.py::test_convert",
        "a whole array",
        lambda repeat: call_of(case, x(), repeat),
        lambda: predicted(case, x()),
        lambda index: f"element {index[0]}, input {int(x().view(np.uint32)[index]):#010x}",
        inputs=lambda: {"x": x()},
        part=lambda block: predicted(case, x()[block]),
    )
