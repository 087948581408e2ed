"""Named classes of operand values, each made to catch particular mutants.

Inputs are a pure function of (mnemonic, class, seed, count): raw words of a Philox generator, whose stream NumPy
guarantees not to change, and integer arithmetic. No floating-point library function is involved, so every machine
makes the same bits. The classes themselves are in values.py, rounding.py and integers.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli.codes import lowest_exponent, window
from conformance.stimuli.corners import count, pairs
from conformance.stimuli.integers import extremes, saturation, small
from conformance.stimuli.problem import Codes, Matrices, Problem
from conformance.stimuli.rounding import cancellation, edges, floor, floor_matters, subnormals, underflow
from conformance.stimuli.stream import Stream
from conformance.stimuli.values import boundaries, finite, normal, onehot, sparse, uniform, wide, zeros
from tcsim.isa.mma.multiply import MatrixMultiply


@dataclass(frozen=True)
class InputClass:
    """A named way to fill the operands."""

    name: str
    make: Callable[[Problem, Stream], Matrices]
    kinds: tuple[str, ...]  # formats' `kind` it makes sense for
    per_k: int = 0  # matrix products per unit of K instead of the default count
    applies: Callable[[Problem], bool] = lambda problem: True  # a further condition
    count: Callable[[Problem], int] | None = None  # matrix products, where it says how many itself


CLASSES = {
    item.name: item
    for item in (
        InputClass("uniform", uniform, ("float", "integer", "bit")),
        InputClass("finite", finite, ("float",)),
        InputClass("normal", normal, ("float",)),
        InputClass("wide", wide, ("float",)),
        InputClass("cancellation", cancellation, ("float",)),
        InputClass("subnormals", subnormals, ("float",)),
        InputClass("underflow", underflow, ("float",)),
        InputClass("sparse", sparse, ("float", "integer", "bit")),
        InputClass("zeros", zeros, ("float", "integer", "bit")),
        InputClass("boundaries", boundaries, ("float", "integer", "bit")),
        InputClass("edges", edges, ("float",)),
        InputClass("floor", floor, ("float",), applies=floor_matters),
        InputClass("small", small, ("integer",)),
        InputClass("extremes", extremes, ("integer", "bit")),
        InputClass("saturation", saturation, ("integer", "bit")),
        InputClass("onehot", onehot, ("float", "integer", "bit"), per_k=2),
    )
}
"""Every input class by name, in the order they run."""

LEVEL_2 = {item.name: item for item in (InputClass("corners", pairs, ("float",), count=count),)}
"""The input classes of `--level 2`."""
EVERY = CLASSES | LEVEL_2
OUTPUTS_PER_CASE = 2048
"""Result elements of a case when the number of samples is not given."""


def classes_for(instruction: MatrixMultiply) -> list[InputClass]:
    """The classes that apply to an instruction's multiplicands."""
    kind, problem = instruction.operands["a"].format.kind, Problem(instruction, 1)
    return [item for item in CLASSES.values() if kind in item.kinds and item.applies(problem)]


def level_2_for(instruction: MatrixMultiply) -> list[str]:
    """The names of the classes of level 2 that apply."""
    return [item.name for item in LEVEL_2.values() if instruction.operands["a"].format.kind in item.kinds]


def default_samples(instruction: MatrixMultiply, item: InputClass) -> int:
    """Instructions (warps) in a case: enough for `OUTPUTS_PER_CASE` results, or for every k to be hot once."""
    m, n, k = instruction.shape
    if item.count:
        return -(-item.count(Problem(instruction, 1)) // instruction.matrices)
    if item.per_k:
        return -(-item.per_k * k // instruction.matrices)
    return -(-OUTPUTS_PER_CASE // (m * n * instruction.matrices))


def registers(
    instruction: MatrixMultiply, item: InputClass, seed: int, samples: int
) -> dict[str, npt.NDArray[np.uint32]]:
    """The operands of a case: registers (samples, lanes, registers) of a, b and c."""
    problem = Problem(instruction, samples * instruction.matrices)
    stream = Stream(instruction.mnemonic, item.name, seed)
    matrices = item.make(problem, stream)
    out = {}
    for name, codes in matrices.items():
        inner = codes.shape[1:]
        grouped = codes.reshape(samples, instruction.matrices, *inner) if instruction.matrices > 1 else codes
        out[name] = instruction.registers(name, grouped)
    return out


def digest(arrays: dict[str, npt.NDArray[Any]]) -> str:
    """SHA-256 of the input arrays, by which a recording knows its inputs."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        total.update(f"{name}{array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


__all__ = [
    "CLASSES", "EVERY", "LEVEL_2", "Codes", "InputClass", "Matrices", "Problem", "classes_for", "default_samples", "digest", "floor_matters",
    "level_2_for", "lowest_exponent", "registers", "window",
]  # fmt: skip
