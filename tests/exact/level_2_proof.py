"""Level 2 on every arch against the slow exact model: `python -m tests.exact.level_2_proof [FAMILY ...]`, from the root of the tree.

All pairs of corner values (conformance/stimuli/corners.py) through every float multiply: each arithmetic once, whatever shapes and spellings
share it. It prints a line for each with what it compared, and ends with status 1 at a mismatch. tests/unit/conformance/suite/test_level_2.py runs a share.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np

import tcsim
from conformance.isa.mma.sparse import KeptProblem
from conformance.isa.tcgen05.mma import _mixes
from conformance.isa.tcgen05.mma_inputs import Described
from conformance.isa.wgmma.images import FULL_N, problem
from conformance.stimuli.corners import count, pairs
from conformance.stimuli.problem import Problem
from conformance.stimuli.scaled import ScaledProblem, inverse
from conformance.stimuli.sparse import spread
from conformance.stimuli.stream import Stream
from tcsim import catalog
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.kinds import shapes_of
from tests.exact import block_scaling, machine, sparse_warpgroup, tensor_multiply, wmma
from tests.exact import sparse as exact_sparse
from tests.exact.steps import dot_add

Matrices = dict[str, np.ndarray]
Slow = Callable[[Matrices, int, int, int], int]
"""One output of matrix, row, column."""


@dataclass
class Task:
    """One arithmetic on one arch: its operands, the fast model's answer to some of the matrices, the slow model's."""

    name: str
    matrices: Matrices
    fast: Callable[[slice], np.ndarray]
    slow: Slow


def _codes(given: Matrices, matrix: int, row: int, column: int) -> tuple[list[int], list[int], int]:
    return (
        given["a"][matrix, row].tolist(),
        given["b"][matrix, :, column].tolist(),
        int(given["c"][matrix, row, column]),
    )


def _made(instruction: Any, one: Problem, whole: Callable[[int], Problem]) -> Matrices:
    return pairs(whole(count(one)), Stream(instruction.mnemonic, "proof"))


def dense(instruction: Any, arch: str, element: Callable[..., int]) -> Task:
    """mma.sync and wmma.mma."""
    given = _made(instruction, Problem(instruction, 1), lambda number: Problem(instruction, number))
    return Task(
        f"{instruction.mnemonic} on {arch}", given,
        lambda part: instruction.matmul(*(given[name][part] for name in "abc")),
        lambda m, *place: element(instruction.mnemonic, arch, *_codes(m, *place)),
    )  # fmt: skip


def sparse(
    instruction: Any, arch: str, one: Problem, whole: Callable[[int], Problem], element: Callable[..., int]
) -> Task:
    """The first groups that the metadata can say; all rows keep the same columns."""
    given, own = _made(instruction, one, whole), instruction.sparsity
    groups = np.full((len(given["a"]), own.rows, own.groups), own.valid[0], np.uint8)
    positions = own.positions_of(groups)
    columns = own.columns(positions)[:, 0]
    b = spread(given["b"], columns)
    return Task(
        f"{instruction.mnemonic} on {arch}", given,
        lambda part: instruction.matmul(given["a"][part], b[part], given["c"][part], metadata=positions[part]),
        lambda m, matrix, row, column: element(columns[matrix].tolist(), b[matrix, :, column].tolist(), *_codes(m, matrix, row, column)),
    )  # fmt: skip


def warpgroup(instruction: Any) -> Task:
    """wgmma: one step of all of K."""
    given = _made(instruction, problem(instruction, 1), lambda number: problem(instruction, number))
    names = {name: format.name for name, format in instruction.formats.items()}
    fp8, f16 = names["a"] in ("e4m3", "e5m2"), names["d"] == "f16"

    def slow(matrices: Matrices, *place: int) -> int:
        return dot_add(
            *_codes(matrices, *place), a_format=names["a"], b_format=names["b"], c_format=names["c"],
            fraction_bits=13 if fp8 else 25, floor=-21 if f16 else -133, output="f16" if f16 else "e8m13" if fp8 else "f32",
        )  # fmt: skip

    fast = lambda part: instruction.matmul(*(given[name][part] for name in "abc"))  # noqa: E731
    return Task(f"{instruction.mnemonic} on sm_90", given, fast, slow)


def block_scaled(instruction: Any, arch: str) -> Task:
    """Scales are powers of two and their inverses."""
    given = _made(instruction, ScaledProblem(instruction, 1), lambda number: ScaledProblem(instruction, number))
    given |= inverse(ScaledProblem(instruction, len(given["a"])), Stream(instruction.mnemonic, "scales"))

    def slow(m: Matrices, matrix: int, row: int, column: int) -> int:
        scales = m["scale_a"][matrix, row].tolist(), m["scale_b"][matrix, :, column].tolist()
        return block_scaling.element(instruction.mnemonic, *_codes(m, matrix, row, column), *scales)

    def fast(part: slice) -> np.ndarray:
        own = {name: codes[part] for name, codes in given.items()}
        return np.asarray(
            instruction.matmul(own["a"], own["b"], own["c"], scale_a=own["scale_a"], scale_b=own["scale_b"])
        )

    return Task(f"{instruction.mnemonic} on {arch}", given, fast, slow)


def described(instruction: Any, arch: str) -> Iterator[Task]:
    """tcgen05.mma: every mix of formats of a kind."""
    row = instruction.row
    shape = shapes_of(row.kind.name, row.cta_group, row.weight_stationary, row.sparse, a_in_tmem=True)[-1]
    for mix in _mixes(instruction):
        desc = InstructionDescriptor(
            kind=row.kind.name, m=shape.m[-1], n=shape.n[0], sparse=row.sparse, arch=arch, **mix
        )
        item = Described(instruction, desc)
        number = count(Problem(item, 1))  # type: ignore[arg-type]
        given = item.make("corners", Stream(instruction.mnemonic, "proof"), number)
        fields = asdict(desc)

        def fast(part: slice, desc: Any = desc, given: Matrices = given) -> np.ndarray:
            more = {name: codes[part] for name, codes in given.items() if name not in "abc"}
            return np.asarray(instruction.matmul(*(given[name][part] for name in "abc"), idesc=desc, **more))

        def slow(m: Matrices, matrix: int, row: int, column: int, fields: Any = fields) -> int:
            blocks = []
            if "scale_a" in m:
                scales = m["scale_a"][matrix, row].tolist(), m["scale_b"][matrix, :, column].tolist()
                blocks = list(zip(*scales, strict=True))
            return tensor_multiply.fused(*_codes(m, matrix, row, column), fields, blocks, 0)

        yield Task(f"{instruction.mnemonic} {mix} on {arch}", given, fast, slow)


def tasks(families: tuple[str, ...] = ()) -> Iterator[Task]:
    """One for each arithmetic: formats, steps and shape of K."""
    seen = set()
    for arch in tcsim.ARCHS:
        for row in catalog.on_arch(arch):
            if (families and row.family not in families) or row.family not in FAMILIES:
                continue
            instruction = tcsim.instruction(row.mnemonic, arch=arch)
            key = _arithmetic(instruction, arch)
            if key and key not in seen:
                seen.add(key)
                yield from FAMILIES[row.family](instruction, arch)


def _arithmetic(instruction: Any, arch: str) -> tuple[object, ...]:
    """What tells it from others; nothing if it is not of floats, or another row stands for it."""
    row = instruction.row
    if row.family == "tcgen05.mma":
        plain = not (
            row.sparse or row.lookup or row.ashift or row.collectors or row.weight_stationary or row.cta_group > 1
        )
        floats = "s32" not in row.kind.d_formats
        return (row.kind.name, row.block, row.kind.name.startswith("mx") and arch) if plain and floats else ()
    formats = {name: instruction.operands[name].format for name in "acd"}
    formats["b"] = getattr(instruction, "formats", {}).get("b") or instruction.operands["b"].format
    if formats["a"].kind != "float" or (row.family.startswith("wgmma") and instruction.shape[1] != FULL_N):
        return ()
    names = sorted((name, format.name) for name, format in formats.items())
    return row.family, *names, repr(instruction.lowering.steps)


FAMILIES: dict[str, Callable[[Any, str], Iterator[Task]]] = {
    "mma.sync": lambda item, arch: iter([dense(item, arch, machine.element)]),
    "wmma.mma": lambda item, arch: iter([dense(item, arch, wmma.element)]),
    "mma.sp": lambda item, arch: iter(
        [
            sparse(
                item, arch, KeptProblem(item, 1), lambda number: KeptProblem(item, number),
                lambda columns, met, a, b, c: exact_sparse.element(item.mnemonic, arch, a, columns, met, c),
            )
        ]
    ),
    "wgmma": lambda item, arch: iter([warpgroup(item)]),
    "wgmma.sp": lambda item, arch: iter(
        [
            sparse(
                item, arch, problem(item, 1), lambda number: problem(item, number),
                lambda columns, met, a, b, c: sparse_warpgroup.element(item.mnemonic, a, b, c),
            )
        ]
    ),
    "mma.sync.block_scale": lambda item, arch: iter([block_scaled(item, arch)]),
    "tcgen05.mma": described,
}  # fmt: skip


def differences(task: Task, share: int = 0) -> tuple[int, list[str]]:
    """How many outputs were compared, and what differs; `share`: places drawn of that many matrices, 0: every output."""
    number, (rows, columns) = len(task.matrices["a"]), task.matrices["c"].shape[1:]
    places = [(row, column) for row in range(rows) for column in range(columns)]
    if not share:
        return _compared(task, slice(0, number), places)
    drawn = random.Random(task.name)
    parts = [
        _compared(task, slice(matrix, matrix + 1), drawn.sample(places, 4))
        for matrix in sorted(drawn.sample(range(number), min(share, number)))
    ]
    return sum(compared for compared, _ in parts), [line for _, lines in parts for line in lines]


def _compared(task: Task, part: slice, places: Sequence[tuple[int, int]]) -> tuple[int, list[str]]:
    fast, wrong = task.fast(part), []
    asked = list(itertools.product(range(part.start, part.stop), places))
    for matrix, (row, column) in asked:
        want, got = task.slow(task.matrices, matrix, row, column), int(fast[matrix - part.start, row, column])
        if want != got:
            wrong.append(f"{task.name}: matrix {matrix}, row {row}, column {column}: fast {got:#x}, slow {want:#x}")
    return len(asked), wrong


AT_ONCE = 4096
"""Outputs that a process compares before it takes others: a second, so that none is left with long ones at the end."""


@cache
def _tasks(families: tuple[str, ...]) -> list[Task]:
    """Made once in each process: seven seconds."""
    return list(tasks(families))


def _part(families: tuple[str, ...], number: int, start: int) -> tuple[int, list[str]]:
    """Every output of some matrices of a task."""
    task = _tasks(families)[number]
    matrices, rows, columns = task.matrices["c"].shape
    places = list(itertools.product(range(rows), range(columns)))
    return _compared(task, slice(start, min(start + _step(task), matrices)), places)


def _step(task: Task) -> int:
    return max(1, AT_ONCE // task.matrices["c"][0].size)


def main(arguments: list[str]) -> int:
    """Compare every output of every task, with all processors: 33 million, 0.1 to 2 ms each."""
    families, began = tuple(arguments), time.monotonic()
    total = failed = 0
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        asked = [
            (task, [pool.submit(_part, families, number, start) for start in range(0, len(task.matrices["c"]), _step(task))])
            for number, task in enumerate(_tasks(families))
        ]  # fmt: skip
        for task, parts in asked:
            found = [part.result() for part in parts]
            compared, wrong = sum(number for number, _ in found), [line for _, lines in found for line in lines]
            total, failed = total + compared, failed + len(wrong)
            said = f"{time.monotonic() - began:5.0f} s {task.name}: {compared:,} outputs, {len(wrong)} differ"
            print("\n".join([said, *wrong[:5]]), flush=True)
    print(f"{total:,} outputs, {failed} differ")
    return int(failed > 0 or not total)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
