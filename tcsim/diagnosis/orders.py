"""Orders of summation that a right kernel may use: splits of K, fresh accumulators, C at the end, another instruction, a plain chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from tcsim.catalog import instruction as find_instruction
from tcsim.catalog import on_arch
from tcsim.core.errors import TcsimError
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.reals import lines_of
from tcsim.explanation.orders import SUMS
from tcsim.multiplication import Machine, machine_of
from tcsim.numbers.codec import decode, encode

_SIDE = 8  # rows and columns of the outputs that each order is tried on first


@dataclass(frozen=True)
class Order:
    """One order of summation of a problem whose blocks of K come in `problem.order`."""

    said: str
    run: Callable[[Problem, Part], Codes]
    parts: bool = False  # it cuts the blocks that there are, also if some are missing or repeated
    late: bool = False  # C comes last


ASCENDING = Order("", lambda problem, part: problem.predict(part), parts=True)


def chained(problem: Problem) -> bool:
    """Whether sums of parts of K are numbers of the type of C and D."""
    formats = problem.machine.formats
    return formats["d"].name == formats["c"].name and formats["d"].name in ("f32", "f16")


def reproducing(problem: Problem, end: Callable[[Codes], Codes], random: np.random.Generator) -> tuple[str, int] | None:
    """The order that gives most outputs bit for bit, and how many; `end` is what the epilogue does. None if no order gives any."""
    shape = problem.observed.shape
    inside = problem.inside()
    sample = Part(
        int(random.integers(shape[0])),
        *(np.sort(random.permutation(size)[:_SIDE]) for size in problem.sizes),
    )
    best: tuple[int, Order] | None = None
    for order in orders(problem):
        same = int((end(order.run(problem, sample)) == problem.seen(sample)).sum())
        if same == problem.seen(sample).size:
            whole = _count(problem, order, end, inside)
            if whole == inside.sum():
                return order.said, whole
        if best is None or same > best[0]:
            best = same, order
    return None if best is None else (best[1].said, _count(problem, best[1], end, inside))


def _count(problem: Problem, order: Order, end: Callable[[Codes], Codes], inside: npt.NDArray[np.bool_]) -> int:
    """Outputs that an order gives bit for bit."""
    same = np.stack([end(order.run(problem, part)) == problem.seen(part) for part in problem.parts()])
    return int((same & inside).sum())


def orders(problem: Problem) -> Iterator[Order]:
    """The likeliest first; those of another arch last."""
    formats = problem.machine.formats
    chains = chained(problem)
    has_c = bool(problem.c.any())
    count = problem.blocks
    if chains and has_c:
        yield Order("C added at the end", partial(_chunks, count, True, "ascending"), parts=True, late=True)
    sizes = sorted({-(-count // parts) for parts in range(2, 65)} | {1, 2, 4, 8, 16}, reverse=True)
    for size in sizes if chains else ():
        if size < count:
            parts = -(-count // size)
            for late in (False, True) if has_c else (False,):
                for sums in ("ascending", "descending", "pairs", "halves") if parts > 2 else ("ascending",):
                    said = f"K in {parts} parts of {size * problem.step}, each from zero, added in f32"
                    said += ("" if sums == "ascending" else f" ({sums})") + ", C last" * late
                    yield Order(said, partial(_chunks, size, late, sums), parts=True, late=late)
    for turn in (2, 3, 4, 8) if chains else ():
        for size in (1, 2, 4, 8):
            if turn * size < count + size:
                for late in (False, True) if has_c else (False,):
                    said = f"{turn} accumulators that take blocks of {size * problem.step} in turn" + ", C last" * late
                    yield Order(said, partial(_in_turn, turn, size, late), late=late)
    own = np.arange(count)
    for size in (1, 2, 4, 8, 16):
        if size < count:
            blocks = own // size
            for said, key in (
                ("descending", -blocks),
                ("exchanged in pairs", blocks ^ 1),
                ("rotated by one", (blocks - 1) % (blocks[-1] + 1)),
                ("even ones first", blocks % 2),
            ):
                order = tuple(int(step) for step in np.lexsort((own, key)))
                yield Order(f"K blocks of {size * problem.step} {said}", partial(_ordered, order))
    yield from _other_steps(problem)
    if formats["d"].kind == "float":
        yield Order("the exact sum, rounded once: a reference in wider arithmetic", _exact)
        if formats["d"].name == "f32":
            yield Order("a chain of f32 fused multiply-adds, k ascending", partial(_chain, True, False))
            yield Order("a chain of f32 multiplications and additions, k ascending", partial(_chain, False, False))
            if has_c:
                yield Order("a chain of f32 fused multiply-adds, k ascending, C last", partial(_chain, True, True))
                said = "a chain of f32 multiplications and additions, k ascending, C last"
                yield Order(said, partial(_chain, False, True))


def from_c(problem: Problem, parts: int) -> Iterator[Order]:
    """K in parts that all start from C: it is added so often."""
    size = -(-problem.blocks // parts)
    while size * (parts - 1) < problem.blocks:
        said = f"K in {parts} parts of {size * problem.step}, each from C, added in f32"
        yield Order(said, partial(_chunks, size, False, "ascending", each=True), parts=True)
        size += 1


def _other_steps(problem: Problem) -> Iterator[Order]:
    """Instructions of the same formats with another K."""
    own = problem.machine
    row = own.instruction.row
    if not row.operands or own.sparsity is not None or own.blocks:
        return
    names = {name: format.name for name, format in own.instruction.formats.items()}
    for other in on_arch(own.instruction.arch.name, row.family):
        if other.shape[2] == own.shape[2] or own.shape[2] * problem.blocks % other.shape[2]:
            continue
        if {name: item.format.name for name, item in other.operands.items() if name in names} != names:
            continue
        try:
            made = machine_of(find_instruction(other.mnemonic, arch=own.instruction.arch.name), "tcsim.diagnose")
        except TcsimError:
            continue
        said = f"steps of K = {made.shape[2]}: {other.mnemonic}"
        yield Order(said, partial(_stepped, made, ASCENDING))
        blocks = problem.b.shape[1] // made.shape[2]
        for parts in (1, 2, 3, 4, 6, 8):
            size = -(-blocks // parts)
            for late in (False, True) if problem.c.any() else (False,):
                if size < blocks or late:
                    again = Order("", partial(_chunks, size, late, "ascending"))
                    cut = f"{said}, K in {parts} parts" + ", C last" * late
                    yield Order(cut, partial(_stepped, made, again))


def _stepped(made: Machine, order: Order, problem: Problem, part: Part) -> Codes:
    """An order of an instruction with another K."""
    blocks = problem.b.shape[1] // made.shape[2]
    return order.run(replace(problem, machine=made, order=tuple(range(blocks))), part)


def _ordered(order: tuple[int, ...], problem: Problem, part: Part) -> Codes:
    return replace(problem, order=order).predict(part)


def _chunks(size: int, late: bool, sums: str, problem: Problem, part: Part, each: bool = False) -> Codes:
    """Chunks of the K blocks, each from zero, added up; C first or last. A chunk that comes again counts again."""
    chunks: list[list[int]] = []
    for block in problem.order:
        if not chunks or block // size != chunks[-1][0] // size or block <= chunks[-1][-1]:
            chunks.append([])
        chunks[-1].append(block)
    return _added(chunks, late, sums, problem, part, each)


def _in_turn(turn: int, size: int, late: bool, problem: Problem, part: Part) -> Codes:
    """Accumulators that take blocks in turn."""
    chunks = [[block for block in problem.order if block // size % turn == own] for own in range(turn)]
    return _added([chunk for chunk in chunks if chunk], late, "ascending", problem, part)


def _added(chunks: list[list[int]], late: bool, sums: str, problem: Problem, part: Part, each: bool = False) -> Codes:
    format = problem.machine.formats["d"]
    c = decode(problem.c[part.matrix][np.ix_(part.rows, part.columns)], problem.machine.formats["c"])
    zero = replace(problem, c=np.zeros_like(problem.c))
    if not chunks:
        raise ValueError("a problem without K")
    kind = np.float16 if format.name == "f16" else np.float32
    values = [
        decode(
            replace(zero if (number and not each) or late else problem, order=tuple(chunk)).predict(part), format
        ).astype(kind)
        for number, chunk in enumerate(chunks)
    ]
    with np.errstate(all="ignore"):
        total = SUMS[sums](values)
        return encode(total + c.astype(kind) if late else total, format)


def _exact(problem: Problem, part: Part) -> Codes:
    formats = problem.machine.formats
    a, b = lines_of(problem)
    c = decode(problem.c[part.matrix][np.ix_(part.rows, part.columns)], formats["c"])
    return encode(a[part.matrix][part.rows] @ b[part.matrix][part.columns].T + c, formats["d"])


@np.errstate(over="ignore", invalid="ignore")
def _chain(fused: bool, late: bool, problem: Problem, part: Part) -> Codes:
    formats = problem.machine.formats
    lines = lines_of(problem)
    a, b = lines[0][part.matrix][part.rows], lines[1][part.matrix][part.columns].T
    c = decode(problem.c[part.matrix][np.ix_(part.rows, part.columns)], formats["c"]).astype(np.float64)
    total = np.zeros_like(c) if late else c
    for k in range(a.shape[1]):
        product = a[:, k, None] * b[k]
        total = (total + (product if fused else product.astype(np.float32))).astype(np.float32).astype(np.float64)
    return encode(total + c if late else total, "f32")


_ENDLESS = 1 << 30  # a part ends where the blocks of K start again
OVERLAPPING = Order(
    "parts of K that overlap, each from zero, added in f32", partial(_chunks, _ENDLESS, False, "ascending"), parts=True
)
