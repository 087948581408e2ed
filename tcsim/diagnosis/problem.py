"""A multiply with its observed result, as matrices; a mistake is a change of one of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.engines.choice import multiply
from tcsim.engines.contract import Matrices
from tcsim.multiplication import Machine
from tcsim.numbers.codec import decode, encode

Codes = npt.NDArray[Any]


@dataclass(frozen=True)
class Part:
    """Some outputs: a matrix of the batch, and the rows and columns that cross in them."""

    matrix: int
    rows: npt.NDArray[np.intp]
    columns: npt.NDArray[np.intp]


@dataclass(frozen=True)
class Memory:
    """The shared memory and the descriptors of one wgmma."""

    smem: npt.NDArray[np.uint8]  # (batch, bytes)
    descriptors: dict[str, npt.NDArray[np.uint64]]  # of a and b, or of b alone: (batch,)
    trans: dict[str, int]  # 1: MN-major
    signs: tuple[int, int] = (1, 1)  # scale_a, scale_b: -1 turns the sign


Finish = Callable[["Problem", Part, Codes], Codes]  # (problem, part, codes of d) -> codes of d


@dataclass(frozen=True)
class Problem:
    """d = a b + c in steps of the instruction's K, and what was observed. All arrays hold codes.

    M, N and K are multiples of the instruction's shape. Of a sparse instruction, `a` holds the kept half of each row.
    """

    machine: Machine
    a: Codes  # (batch, M, K), of a sparse instruction (batch, M, K / 2)
    b: Codes  # (batch, K, N)
    c: Codes  # (batch, M, N)
    observed: Codes  # (batch, M, N)
    positions: npt.NDArray[np.int64] | None = None  # (batch, M, K / 2): sparse only
    scales: tuple[Codes, Codes] | None = None  # (batch, M, blocks) of A and (batch, blocks, N) of B: block scaling only
    scale_words: dict[str, tuple[Codes, int, int]] | None = None  # the registers they came in, their byte and thread id
    metadata: npt.NDArray[np.uint32] | None = None  # (batch, 32): the registers that the positions came in, if they did
    selector: int = 0  # of the metadata
    order: tuple[int, ...] = ()  # the K blocks in the order they are accumulated
    finish: Finish | None = None  # what is done to each output at the end
    known: npt.NDArray[np.bool_] | None = None  # (batch, M, N): outputs that can be predicted; None: all
    memory: Memory | None = None  # where wgmma found its operands
    size: tuple[int, int] | None = None  # M and N that were given, if they were padded to the instruction's shape
    depth: int | None = None  # K that was given, if it was padded
    after: Codes | None = None  # a C that is added after a clamp at zero; `c` is zero then
    output: str | None = None  # the narrower float type that the result was given in

    @property
    def kept(self) -> int:
        """Elements of A's K that one instruction takes: half of its K if it is sparse."""
        return self.machine.kept

    @property
    def step(self) -> int:
        """K of one instruction."""
        return self.machine.shape[2]

    @property
    def blocks(self) -> int:
        """Instructions that lie behind one output."""
        return self.a.shape[2] // self.kept

    @property
    def sizes(self) -> tuple[int, int]:
        """M and N that were given."""
        return self.size or (self.observed.shape[1], self.observed.shape[2])

    @property
    def length(self) -> int:
        """K that was given."""
        return self.depth or self.b.shape[1]

    @cached_property
    def bare(self) -> Problem:
        """Without what the epilogue does."""
        return self if self.finish is None else replace(self, finish=None)

    @property
    def note(self) -> str:
        """What is to be said of a right result."""
        return f"rounded to nearest even {self.output}" if self.output else ""

    def inside(self) -> npt.NDArray[np.bool_]:
        """Which outputs were given: (batch, M, N)."""
        inside = np.ones(self.observed.shape, bool)
        if self.size is not None:
            inside[:, self.size[0] :], inside[:, :, self.size[1] :] = False, False
        return inside

    def parts(self) -> Iterator[Part]:
        """All outputs."""
        rows, columns = (np.arange(size) for size in self.observed.shape[1:])
        for matrix in range(len(self.observed)):
            yield Part(matrix, rows, columns)

    def of(self, part: Part) -> Problem:
        """The problem of a part's outputs alone."""
        at, here = part.matrix, np.ix_(part.rows, part.columns)
        c, observed = (x[at][here][None] for x in (self.c, self.observed))
        scales = self.scales and (self.scales[0][at][part.rows][None], self.scales[1][at][:, part.columns][None])
        return replace(
            self,
            a=self.a[at][part.rows][None],
            b=self.b[at][:, part.columns][None],
            c=c,
            observed=observed,
            positions=None if self.positions is None else self.positions[at][part.rows][None],
            scales=scales,
            known=None if self.known is None else self.known[at][here][None],
            after=None if self.after is None else self.after[at][here][None],
            size=None,
        )

    @property
    def every(self) -> Part:
        """All outputs of the first matrix."""
        return Part(0, *(np.arange(size) for size in self.observed.shape[1:]))

    def seen(self, part: Part) -> Codes:
        """What was observed of a part."""
        return self.observed[part.matrix][np.ix_(part.rows, part.columns)]

    def knows(self, part: Part) -> npt.NDArray[np.bool_]:
        """Which outputs of a part can be predicted."""
        known = np.ones((len(part.rows), len(part.columns)), bool)
        if self.size is not None:
            known &= (part.rows < self.size[0])[:, None] & (part.columns < self.size[1])
        return known if self.known is None else known & self.known[part.matrix][np.ix_(part.rows, part.columns)]

    def predict(self, part: Part) -> Codes:
        """What the model gives for a part: (rows, columns)."""
        machine, at = self.machine, part.matrix
        order = np.array(self.order, np.int64)[:, None]

        def taken(x: Codes, axis: int, size: int) -> Codes:  # instruction after instruction, `size` elements of each
            return np.take(x, (order * size + np.arange(size)).reshape(-1), axis)[None]

        a, b = taken(self.a[at][part.rows], 1, self.kept), taken(self.b[at][:, part.columns], 0, self.step)
        scales: tuple[Codes | None, Codes | None] = (None, None)
        if self.scales is not None:
            own, other = self.scales[0][at][part.rows], self.scales[1][at][:, part.columns]
            scales = taken(own, 1, machine.blocks), taken(other, 0, machine.blocks)
        met = None
        if self.positions is not None and machine.sparsity is not None:
            steps = taken(self.positions[at][part.rows], 1, self.kept).reshape(1, len(part.rows), -1, self.kept)
            met = machine.sparsity.columns(steps).reshape(1, len(part.rows), -1)
        c = self.c[at][np.ix_(part.rows, part.columns)][None]
        found = multiply(machine.work, Matrices(a, b, c, *scales, met), range(len(order)))[0]
        out = found.astype(machine.formats["d"].dtype, copy=False)
        return out if self.finish is None else self.finish(self, part, out)

    @cached_property
    def computed(self) -> dict[Any, Any]:
        """What was computed of all outputs last, by what it was computed from."""
        return {}

    @cached_property
    def outputs(self) -> Codes:
        """What the model gives for all outputs: (batch, M, N)."""
        found = np.stack([self.predict(part) for part in self.parts()])
        found.setflags(write=False)
        return found

    def after_clamp(self, codes: Codes, place: Any = ...) -> Codes:
        """Codes of outputs, all or those at a place, clamped at zero, and then the C that is added after it; the codes, if there is none."""
        if self.after is None:
            return codes
        d, c = self.machine.formats["d"], self.machine.formats["c"]
        total = decode(clamped(codes), d).astype(np.float64) + decode(self.after[place], c).astype(np.float64)
        return encode(total, d)


def clamped(codes: Codes) -> Codes:
    """Negative codes as zeros."""
    return np.where(codes >> (codes.dtype.itemsize * 8 - 1) == 1, codes.dtype.type(0), codes)


@dataclass(frozen=True)
class Attempt:
    """One mistake in one of its forms, tried on a problem."""

    mistake: str  # its name
    detail: str  # which of its forms; may be empty
    advice: str  # what to look at
    change: Callable[[], Problem | None]  # the problem with the mistake made; None if it cannot be made here
    operand: str = ""  # "a" or "b", of a mistake that the other operand can have too
    form: tuple[str, ...] = ()  # what it is, in either operand
