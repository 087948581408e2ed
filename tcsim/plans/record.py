"""Types of plans: what was asked, what is summed in which order, how that is known, and on which machine it was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, NamedTuple

from tcsim.core.errors import TcsimError, listing
from tcsim.core.targets import product_named
from tcsim.plans.orders import Order
from tcsim.plans.packed import Table, read

RECORDED = {"h200": "h200.plans"}
"""The GPUs with a table, and the file in this package."""
MIXED = ("e4m3.e5m2", "e5m2.e4m3")
"""Products of two formats, the activations' first."""
FP8 = ("e4m3", "e5m2", *MIXED)
OUT = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "f32": "f32", "s8": "s32"} | dict.fromkeys(FP8, "bf16")
"""The format of the result, unless another is asked for."""


class PlanError(TcsimError):
    """A product without a plan: unknown names, shapes or GPUs, damaged data, or only an assumption where none is accepted."""


class Kind(NamedTuple):
    """What is looked up: one call of a library with one choice of types and layouts."""

    call: str  # mm, addmm, bmm, scaled, scaled_row, int_mm
    format: str
    out: str
    layout: str  # of w and x as cuBLAS sees them: TN is x @ w.T, NN is x @ w
    fast: bool

    @property
    def formats(self) -> tuple[str, str]:
        """Of the activations and of the weight."""
        first, _, second = self.format.partition(".")
        return first, second or first

    @property
    def plain(self) -> bool:
        """Whether the result has the format that it has unless another is asked for."""
        return self.out == OUT[self.format]

    @property
    def key(self) -> str:
        """As tables spell it: what the choice depends on. mm cuts K the same way for a result in f32 as for one in 16 bits, and FP8 of two formats as e4m3."""
        shared = self.plain or (self.call == "mm" and self.out == "f32") or self.call == "scaled_row"
        words = [
            self.call,
            "e4m3" if self.format in MIXED else self.format,
            *([] if shared else [self.out]),
            self.layout,
        ]
        return " ".join([*words, *([] if self.fast or self.call == "scaled_row" else ["accurate"])])


@dataclass(frozen=True)
class Profile:
    """The machine on which a table was recorded."""

    gpu: str
    arch: str
    torch: str
    cuda: str
    cublaslt: str
    driver: str
    workspace: int  # bytes that cuBLAS may use; another size may change the plan
    asked: int  # shapes that the library's heuristic was asked for
    shapes: int  # that the table answers: asked, or between two of equal answers
    held_out: int  # asked and kept out of the table: they judge it and the rules
    compared: int  # products of which every output was compared with the plan
    equal: int  # those of them with all outputs equal
    launches: (
        int  # calls of torch that launched what the library's heuristic answers, of as many captured; 0: not looked at
    )

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """The order of summation of one product.

    K is cut into `split` chunks of `chunk` elements, the last perhaps shorter. Each chunk is one chain: every step of the instruction takes the previous
    result as its accumulator, from zero. Chunks are added in f32 in ascending order; then scales, bias, and one rounding to `out`.

    >>> plan = tcsim.plan("linear", m=16, n=4096, k=14336, format="bf16", gpu="H200")
    >>> plan.chunks[:2]
    ((0, 3584), (3584, 7168))
    >>> plan.as_dict()["source"]
    'table'
    """

    op: str
    m: int
    n: int
    k: int
    batch: int
    kind: Kind
    bias: bool
    gpu: str
    arch: str
    instruction: str | None  # None: `order` says it, or the kernel's order of summation is not modelled
    split: int
    chunk: int
    promotion: int  # elements of k after which a chain's sum is added to an f32 accumulator; 0: never
    source: str  # "table", "rule" or "assumed"
    kernel: str  # the family of the kernel; empty where it is assumed
    reason: str
    order: Order | None = None  # of kernels whose sum is not chunks of one instruction's chain

    @property
    def format(self) -> str:
        """The format of the operands."""
        return self.kind.format

    @property
    def out(self) -> str:
        """The format of the result."""
        return self.kind.out

    @property
    def modelled(self) -> bool:
        """Whether `product` can compute it."""
        return self.instruction is not None or self.order is not None

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """The first element of each chunk along K, and the one behind its last."""
        return tuple((start, min(start + self.chunk, self.k)) for start in range(0, self.k, max(self.chunk, 1)))

    def __str__(self) -> str:
        shape = f"{self.m}x{self.n}x{self.k}" + (f", batch {self.batch}" if self.batch > 1 else "")
        title = f"{self.op} {shape}, {self.format} to {self.out}, on {self.gpu}"
        if not self.modelled:
            return f"{title}: not modelled ({self.reason})"
        if self.order is not None:
            return f"{title}: {self.order} ({self.source})"
        order = (
            "one chain" if self.split == 1 else f"{self.split} chunks of {self.chunk}, added in f32 in ascending order"
        )
        return f"{title}: {order} of {self.instruction} ({self.source})"

    def as_dict(self) -> dict[str, Any]:
        """What JSON holds."""
        return {
            "op": self.op, "m": self.m, "n": self.n, "k": self.k, "batch": self.batch, "format": self.format, "out": self.out, "layout": self.kind.layout,
            "bias": self.bias, "fast": self.kind.fast, "gpu": self.gpu, "arch": self.arch, "modelled": self.modelled, "instruction": self.instruction,
            "split": self.split, "chunk": self.chunk, "promotion": self.promotion, "source": self.source, "kernel": self.kernel, "reason": self.reason,
            "order": None if self.order is None else asdict(self.order),
        }  # fmt: skip


@cache
def table(gpu: str) -> Table:
    """The recorded plans of a GPU, read at their first use.

    Raises PlanError if the file is missing or damaged, or the GPU has none.
    """
    if gpu not in RECORDED:
        raise PlanError(f"no recorded plans of {gpu!r}; valid: {listing(RECORDED)}")
    with reading(gpu):
        return read(RECORDED[gpu])


@contextmanager
def reading(gpu: str) -> Iterator[None]:
    """Turn errors of recorded plans into PlanError: a file is read piece by piece, so they may come late."""
    try:
        yield
    except (OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, ArithmeticError) as error:
        raise PlanError(
            f"the recorded plans of {gpu} ({RECORDED[gpu]} in tcsim.plans) are damaged: {error}; install tcsim again"
        ) from None


def profile(gpu: str) -> Profile:
    """The machine on which the plans of a GPU were recorded.

    Raises PlanError for a GPU without recorded plans, or damaged data.

    >>> tcsim.plans.profile("h200").arch
    'sm_90'
    """
    name = product_named(gpu) or gpu.lower()
    try:
        return Profile(**table(name).profile)
    except TypeError as error:
        raise PlanError(f"the recorded plans of {gpu} are damaged: {error}; install tcsim again") from None


def recorded() -> tuple[str, ...]:
    """The GPUs with recorded plans.

    >>> tcsim.plans.recorded()
    ('h200',)
    """
    return tuple(RECORDED)
