"""What an engine is: it multiplies matrices of codes by the steps of an instruction, and gives the bits that NumPy gives.

The arithmetic is data: `Work` holds the steps that an instruction lowers to (`tcsim.arithmetic.steps`), each with the constants of its
unit, and the formats. An engine reads them; it knows no instruction by name. `Engine.multiply` is for matrices of codes: a
batch of fragments, one GEMM, a batch of GEMMs; `Engine.execute` for a batch of one instruction whose operands lie in registers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Step
from tcsim.core.errors import TcsimError
from tcsim.engines.places import Places
from tcsim.numbers.formats import Format

Codes = npt.NDArray[Any]
Words = npt.NDArray[np.uint32]


class EngineError(TcsimError):
    """An engine that does not exist, cannot be used here, or does not compute what was asked of it."""


class EngineWarning(UserWarning):
    """An engine that would have been chosen and could not be used; the result is the same, and took longer."""


@dataclass(frozen=True)
class Work:
    """What one instruction computes, as data.

    Steps count k along A's own K: of a sparse A, along the kept elements.
    """

    steps: tuple[Step, ...]  # they read a, b, c, scale_a, scale_b and write d, as `Lowering.run` has it
    formats: tuple[Format, Format, Format]  # of a, b and c
    result: Format  # of d; that of c where instructions are chained
    k: int  # rows of B that one instruction takes
    kept: int  # columns of A that one instruction takes: k, or half of it if A is sparse
    scale: Format | None = None  # of scale_a and scale_b; None: no block scaling
    blocks: int = 0  # scale factors of a row of A in one instruction

    @property
    def sparse(self) -> bool:
        """Whether each row of A meets rows of B of its own."""
        return self.kept != self.k


@dataclass(frozen=True)
class Matrices:
    """The codes of one multiplication, a batch T of them. Arrays may be broadcast views; none is written to.

    With I instructions along K: I = `instructions(work)`.
    """

    a: Codes  # (T, M, I * kept)
    b: Codes  # (T, I * k, N)
    c: Codes  # (T, M, N)
    scale_a: Codes | None = None  # (T, M, I * blocks)
    scale_b: Codes | None = None  # (T, I * blocks, N)
    columns: Codes | None = (
        None  # (T, M, I * kept): of a sparse A, the row of B that each element meets, within its instruction's k
    )

    @property
    def shape(self) -> tuple[int, int, int]:
        """T, M, N."""
        batch, m, n = self.c.shape
        return batch, m, n

    def instructions(self, work: Work) -> int:
        """How many instructions there are along K."""
        return int(self.b.shape[1]) // work.k

    def products(self) -> int:
        """Products of all outputs."""
        return int(self.c.size * self.a.shape[2])

    def of_columns(self) -> dict[str, Codes | None]:
        """What has a column for each of D's."""
        return {"b": self.b, "c": self.c, "scale_b": self.scale_b}

    def part(self, **arrays: Codes | None) -> Matrices:
        """The same with some arrays replaced."""
        return Matrices(**{field.name: arrays.get(field.name, getattr(self, field.name)) for field in fields(self)})


@dataclass(frozen=True, eq=False)
class Registers:
    """Registers of whole warps where a machine has them, of several instructions: for others an array uint32 (instructions, warps, 32, n), a copy.

    >>> held = Registers(np.arange(96, dtype=np.uint32).reshape(3, 32), np.array([[0, 2]]))
    >>> held.shape, np.asarray(held)[0, 0, 5].tolist()
    ((1, 1, 32, 2), [5, 69])
    """

    matrix: Words  # (registers, threads), contiguous
    rows: npt.NDArray[np.int64]  # (instructions, n)
    dtype = np.dtype(np.uint32)

    @property
    def warps(self) -> int:
        """Of one instruction."""
        return self.matrix.shape[1] // 32

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return len(self.rows), self.warps, 32, self.rows.shape[1]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        found = np.ascontiguousarray(self.matrix[self.rows].swapaxes(-1, -2)).reshape(self.shape)
        return found if dtype is None else found.astype(dtype, copy=False)

    def put(self, words: Words) -> None:
        """Words (instructions * warps, 32 * n) into the registers."""
        count, threads = len(self.rows), self.matrix.shape[1]
        self.matrix[self.rows] = words.reshape(count, threads, self.rows.shape[1]).swapaxes(-1, -2)


@dataclass(frozen=True, eq=False)
class Lanes:
    """Registers of a batch of groups of lanes where a machine has them: for others an array uint32 (T, lanes, n), a copy.

    >>> held = Lanes(np.arange(12, dtype=np.uint32).reshape(2, 6), np.array([1, 0]), np.array([0, 4]), 2)
    >>> held.shape, np.asarray(held)[1].tolist()
    ((2, 2, 2), [[10, 4], [11, 5]])
    """

    matrix: Words  # (registers, threads), contiguous
    rows: npt.NDArray[np.int64]  # (n,)
    first: npt.NDArray[np.int64]  # (T,): the first lane of each
    lanes: int
    dtype = np.dtype(np.uint32)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the array."""
        return len(self.first), self.lanes, len(self.rows)

    @property
    def _threads(self) -> npt.NDArray[np.int64]:
        return self.first[:, None, None] + np.arange(self.lanes)[:, None]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        found = self.matrix[self.rows, self._threads]
        return found if dtype is None else found.astype(dtype, copy=False)

    def put(self, words: Words) -> None:
        """Words (T, lanes, n) into the registers."""
        self.matrix[self.rows, self._threads] = words


@dataclass(frozen=True, eq=False)
class Accumulators:
    """C and D of a batch of products, which lie in the same registers, and how to get at their codes."""

    lanes: Lanes
    places: Places  # of the elements, lane by lane
    codes: Callable[[], Codes]
    put: Callable[[Codes], None]


@dataclass(frozen=True, eq=False)
class Stored:
    """The operands of a batch T of one instruction where they lie, in words, and how to get at their codes."""

    shape: tuple[int, int, int]  # T, M, N
    words: tuple[Words | Registers, Words | Registers, Words | Registers]
    """Of a, b and c, contiguous: (T, words), or (1, words) for one that all share."""
    places: tuple[Places, Places, Places, Places]  # of the elements of a, b, c and d
    matrices: Callable[[], Matrices]  # their codes
    packed: Callable[[Codes], Words]  # the words of D (T, M, N)
    into: Registers | None = None  # where D goes; they may be those of C


class Engine(ABC):
    """Something that multiplies. Bits do not depend on which."""

    name: str
    least: int  # products of one call from which it is faster than NumPy, once it has started
    start: int  # products that NumPy computes in the time that starting takes

    @abstractmethod
    def missing(self) -> str:
        """What is not there that it needs (a package, a GPU), for a person; empty if nothing is. Quick, and no error."""

    @abstractmethod
    def takes(self, work: Work) -> str:
        """Why it does not compute this work; empty if it does."""

    def worth(self, work: Work, given: Matrices | Stored) -> bool:
        """Whether it is faster than NumPy for operands of these shapes, if there are `least` products."""
        return True

    def execute(self, work: Work, stored: Stored) -> Words | None:
        """The words (T, words) of D of one instruction; None where they are in its registers already. Raises as `multiply` does."""
        return stored.packed(self.multiply(work, stored.matrices(), (0,)))

    def accumulate(self, work: Work, matrices: Matrices, order: Sequence[int], held: Accumulators) -> None:
        """As `multiply`, with C and D in registers; of the C of `matrices` only the shape counts."""
        held.put(self.multiply(work, matrices.part(c=held.codes()), order))

    def on_device(self, work: Work, **arrays: Any) -> Any:
        """D of codes that lie on the engine's own device already, left there: a, b, c, scale_a, scale_b as `Matrices` has them, without copies.

        Raises EngineError, which an engine without a device always does.
        """
        raise EngineError(f"the engine {self.name} has no device of its own; valid: engine='gpu'")

    @abstractmethod
    def multiply(self, work: Work, matrices: Matrices, order: Sequence[int]) -> Codes:
        """D (T, M, N) in the format `work.result`: the instructions along K one after another, in this order.

        Each takes its k of A and B, its scale factors, and the result of the one before it; the first takes c.

        Raises EngineError where what is there does not work.
        """
