"""What a benchmark's times mean: medians, ratios to the reference measured in the same rounds, and how much of that is noise."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hwkernels.bench.sparse import VENDORS
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS, OUTPUT_BYTES

REFERENCE = "cublas"  # the contender that the others are compared with
AGAIN = "cublas again"  # the same once more, interleaved like any other: its ratio is the noise floor

# Dense peak of an H200 (SXM), TFLOP/s by format. Source: NVIDIA H200 datasheet, without sparsity.
PEAK_TFLOPS = {"f16": 989.5, "bf16": 989.5, "tf32": 494.7, "e4m3": 1979.0, "e5m2": 1979.0, "s8": 1979.0}


@dataclass(frozen=True)
class Result:
    """One contender at one size in one mode."""

    contender: str  # a kernel's name, "cublas" or "cublas again", one of bench_sparse.VENDORS
    format: str
    out: str
    m: int
    n: int
    k: int
    mode: str  # "cold": L2 flushed before each launch; "sustained": launches back to back
    samples: tuple[float, ...]  # microseconds of one launch, one per round
    median: float  # microseconds
    tflops: float  # at the median
    ratio: float  # time of the reference / this time, the median over rounds: above 1 is faster
    ratio_low: float  # quartiles of the rounds' ratios
    ratio_high: float
    noise: float  # |ratio - 1| of the reference against itself in these rounds

    @property
    def size(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.m, self.n, self.k

    @property
    def sparse(self) -> bool:
        """Whether A keeps half of each row."""
        return KERNELS[self.contender].sparse if self.contender in KERNELS else self.contender in VENDORS.values()

    @property
    def peak(self) -> float:
        """TFLOP/s of an H200 at best, counting the dense product's operations: twice as many with a sparse A."""
        return PEAK_TFLOPS[self.format] * (2 if self.sparse else 1)

    @property
    def intensity(self) -> float:
        """Operations (of the dense product) per byte that must move: A and B read once, d written once.

        Of a sparse A, half the elements and 4 bits of metadata for each group.
        """
        item = OPERAND_FORMATS[self.format]
        of_a = item.bytes / 2 + 0.5 / item.group if self.sparse else item.bytes
        a_b = (of_a * self.m + item.bytes * self.n) * self.k
        return 2 * self.m * self.n * self.k / (a_b + OUTPUT_BYTES[self.out] * self.m * self.n)


def summarise(
    times: Mapping[str, Sequence[float]], format_: str, out: str, size: tuple[int, int, int], mode: str
) -> list[Result]:
    """Results of one set of interleaved rounds: by contender, microseconds of each round.

    A ratio is taken within a round, so that a clock that drifts over the run cancels.

    Raises ValueError if the reference, its repetition, or a round is missing.

    >>> times = {"cublas": [10.0, 12.0, 10.0], "cublas again": [10.0, 12.0, 10.1], "mine": [8.0, 10.0, 8.0]}
    >>> [(r.contender, round(r.ratio, 3), round(r.noise, 3)) for r in summarise(times, "f16", "f16", (64, 64, 64), "cold")]
    [('cublas', 1.0, 0.0), ('cublas again', 1.0, 0.0), ('mine', 1.25, 0.0)]
    """
    missing = [name for name in (REFERENCE, AGAIN) if name not in times]
    if missing:
        raise ValueError(f"no times of {missing}; measured: {', '.join(times)}")
    rounds = len(times[REFERENCE])
    if rounds == 0 or any(len(samples) != rounds for samples in times.values()):
        raise ValueError(f"rounds differ: { ({name: len(samples) for name, samples in times.items()}) }")
    ratios = {
        name: [one / other for one, other in zip(times[REFERENCE], samples, strict=True)]
        for name, samples in times.items()
    }
    noise = abs(statistics.median(ratios[AGAIN]) - 1)
    found = []
    for name, samples in times.items():
        median = statistics.median(samples)
        low, middle, high = quartiles(ratios[name])
        tflops = 2 * size[0] * size[1] * size[2] / median / 1e6
        found.append(Result(name, format_, out, *size, mode, tuple(samples), median, tflops, middle, low, high, noise))
    return found


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile.

    >>> quartiles([4.0, 1.0, 3.0, 2.0, 5.0])
    (2.0, 3.0, 4.0)
    """
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def to_json(results: Sequence[Result], machine: Mapping[str, Any]) -> dict[str, Any]:
    """What is written to a file."""
    return {"machine": dict(machine), "results": [asdict(result) for result in results]}


def from_json(data: Mapping[str, Any]) -> tuple[list[Result], dict[str, Any]]:
    """The results and the machine of a file.

    Raises TypeError for a result with other fields.
    """
    rows = [Result(**{**row, "samples": tuple(row["samples"])}) for row in data["results"]]
    return rows, dict(data["machine"])


def table(results: Sequence[Result]) -> list[str]:
    """One line a result: what, size, mode, time, rate, ratio with quartiles, noise."""
    lines = [
        f"{'contender':<26}{'format':>7}{'M x N x K':>22}{'mode':>11}{'us':>11}{'TFLOP/s':>9}  ratio (quartiles), noise"
    ]
    for item in results:
        size = " x ".join(str(extent) for extent in item.size)
        lines.append(
            f"{item.contender:<26}{item.format:>7}{size:>22}{item.mode:>11}{item.median:>11.1f}{item.tflops:>9.1f}"
            f"  {item.ratio:.3f} ({item.ratio_low:.3f} .. {item.ratio_high:.3f}), {item.noise:.3f}"
        )
    return lines
