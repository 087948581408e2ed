"""Scalar instructions, special functions and conversions as compiled code against their NumPy functions: `python -m tests.unit.tcsim.lowering.lowered_rows [--inputs 1e7] [--processes 2] [PATTERN]`.

Inputs are numbers at random, bits at random, and corners of every type: zeros, NaN, infinities, subnormal numbers, the ends of each range, and shifts
by the width. A row whose code cannot be recorded is listed; it runs in NumPy.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import instruction
from tcsim.catalog import on_arch
from tcsim.isa.scalar.catalog import scalars
from tcsim.isa.scalar.table import CONTAINERS, Scalar
from tcsim.isa.special.rows import FUNCTIONS
from tcsim.lowering.calls import Calls
from tcsim.lowering.llvm import WIDTH
from tcsim.lowering.loop import Loop, Recording
from tcsim.lowering.traced import Node, Traced, Untraceable, traced

Array = npt.NDArray[Any]
LEFT = frozenset(("fns.b32",))
"""Rows that run in NumPy: a search over bits."""
_INTEGERS = (0, 1, 2, 3, 31, 32, 33, 63, 64, 65)
_FLOATS: dict[int, tuple[int, ...]] = {
    2: (0x3C00, 0x7C00, 0xFC00, 0x7C01, 0x0400, 0x03FF, 0x8001, 0x7BFF, 0x3F80, 0x7F80, 0x7F81, 0xFF80, 0x0080, 0x7FFF, 0x7FF7),
    4: (
        0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFC00001, 0x00800000, 0x007FFFFF, 0x80000001, 0x7F7FFFFF,
        0x33800000, 0x4F000000, 0x5F000000, 0x4F800000,
    ),
    8: (
        0x3FF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF0000000000001, 0x10000000000000, 0xFFFFFFFFFFFFF,
        0x7FEFFFFFFFFFFFFF, 0x43E0000000000000, 0x43F0000000000000,
    ),
}  # fmt: skip
"""Codes of f16 and bf16, f32, and f64, by their bytes."""


def corners(bits: int) -> list[int]:
    """Of a type of some bits."""
    ends = [(1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1]
    return [own for own in (*_INTEGERS, *ends, *_FLOATS.get(bits // 8, ())) if own < 1 << bits]


def inputs(type: str, count: int, rng: np.random.Generator) -> Array:
    """A third corners, a third numbers of ordinary size, a third bits at random."""
    dtype = CONTAINERS[type]
    if type == "pred":
        return rng.integers(0, 2, count).astype(bool)
    found = rng.integers(0, 256, (count, dtype.itemsize), dtype=np.uint8).view(dtype)[:, 0].copy()
    third = count // 3
    found[:third] = rng.choice(np.array(corners(8 * dtype.itemsize), np.uint64), third).astype(dtype)
    if type in ("f32", "f64"):
        numbers = rng.standard_normal(third) * 10.0 ** rng.integers(-3, 4, third)
        found[third : 2 * third] = numbers.astype(f"f{dtype.itemsize}").view(dtype)
    elif type in ("u32", "s32"):
        found[third : 2 * third] = rng.integers(0, 70, third)
    return found


@dataclass(frozen=True)
class Compared:
    """A row's results, both ways: how many inputs were compared, and the first that differs."""

    inputs: int
    different: str = ""


def compared(row: Scalar, count: int, seed: int = 0) -> Compared:
    """Compile a scalar row and compare it. count: inputs, a multiple of a loop's step. Raises Untraceable where it cannot be compiled."""
    sources: list[Any] = [0x96 if at in row.immediates else type for at, type in enumerate(row.sources)]
    return compared_function(row.mnemonic, row.compute, sources + ["pred"] * row.reads_carry, count, seed)


def converted(name: str, count: int, seed: int = 0) -> Compared:
    """As `compared`, of an instruction of the catalog that computes registers of one thread: a special function or a conversion."""
    model: Any = instruction(name, arch="sm_90")
    form = model.forms[0]
    names = [own.name for own in form.operands if own.role == "source"]
    sources = [f"u{model.registers[own].dtype.itemsize * 8}" for own in names]

    def compute(*given: Any) -> tuple[Any, ...]:
        return tuple(model.compute(form, dict(zip(names, given, strict=True))).values())

    return compared_function(name, compute, sources, count, seed)


def compared_function(name: str, compute: Any, sources: list[Any], count: int, seed: int = 0) -> Compared:
    """As `compared`, of any function. sources: types of operands, or numbers."""
    assert not count % WIDTH
    rng, given, named = np.random.default_rng(seed), list[Array](), list[Any]()
    for type in sources:
        if isinstance(type, int):
            named.append(type)
            continue
        dtype = CONTAINERS[type]
        node = Node("register", f"{dtype.kind}{dtype.itemsize}", (), len(given))
        named.append(Traced(np.array([node], object), dtype))
        given.append(inputs(type, count, rng))
    made = Calls().call(compute, *named)
    results = made if isinstance(made, tuple) else (made,)
    loop = Loop(Recording({len(given) + at: traced(own, own.dtype).nodes.flat[0] for at, own in enumerate(results)}))
    found = [np.zeros(count, own.dtype) for own in results]
    registers = np.array([own.ctypes.data for own in (*given, *found)], np.uint64)
    everyone, arrays = np.ones(count, bool), iter(given)
    loop(registers.ctypes.data, everyone.ctypes.data, count)
    values = [next(arrays) if isinstance(own, Traced) else own for own in named]
    with np.errstate(all="ignore"):
        right = compute(*values)
    for own, other in zip(found, right if isinstance(right, tuple) else (right,), strict=True):
        wrong = np.flatnonzero(own != other)
        if own.dtype != other.dtype or len(wrong):
            at = int(wrong[0]) if len(wrong) else 0
            codes = ", ".join(hex(int(array[at])) for array in given)
            return Compared(count, f"{name}({codes}): {int(own[at]):#x}, NumPy has {int(other[at]):#x}")
    return Compared(count)


def conversions() -> list[str]:
    """The special functions and conversions of sm_90."""
    return [
        row.mnemonic
        for family in (*FUNCTIONS, "cvt")
        for row in on_arch("sm_90", family)
        if all(own.kind == "register" for own in row.forms[0].operands)
    ]


def whole(name: str, count: int) -> Compared | str:
    """A row or conversion on many inputs, a million at a time up to the first difference; or why it cannot be compiled."""
    row = scalars().get(name)
    compare = partial(compared, row) if row else partial(converted, name)
    left = count
    try:
        while left > 0:
            found = compare(min(1 << 20, -(-left // WIDTH) * WIDTH), left)
            left -= found.inputs
            if found.different:
                return Compared(count - left, found.different)
    except Untraceable as error:
        return f"{name}: not compiled: {error}"
    return Compared(count - left)


def main() -> int:
    """Compare rows; the exit status is 1 if any differs, or if another one than those of LEFT cannot be compiled."""
    parser = ArgumentParser()
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--inputs", type=float, default=1e7)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    names = [name for name in (*scalars(), *conversions()) if re.search(asked.pattern, name)]
    total = rows = wrong = 0
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        for name, found in zip(names, pool.map(partial(whole, count=int(asked.inputs)), names), strict=True):
            if isinstance(found, str):
                sys.stdout.write(found + "\n")
                wrong += name not in LEFT
                continue
            rows, total, wrong = rows + 1, total + found.inputs, wrong + bool(found.different)
            if found.different:
                sys.stdout.write(found.different + "\n")
                sys.stdout.flush()
    sys.stdout.write(f"{rows} rows, {total:,} inputs compared, {wrong} wrong\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
