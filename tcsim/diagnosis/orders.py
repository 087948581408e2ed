"""Orders of summation that a right kernel may use: splits of K, fresh accumulators, C at the end, another instruction, a plain chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tcsim.catalog import instruction as find_instruction
from tcsim.catalog import on_arch
from tcsim.core.errors import TcsimError
from tcsim.diagnosis.arithmetic import attempts
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.reals import Numbers
from tcsim.gemm import machine_of
from tcsim.numbers.codec import decode, encode

_SIDE = 8  # rows and columns of the outputs that each order is tried on first


@dataclass(frozen=True)
class Order:
    """One order of summation."""

    said: str
    run: Callable[[Part], Codes]


def reproducing(problem: Problem, end: Callable[[Codes], Codes], random: np.random.Generator) -> tuple[str, int] | None:
    """The order that gives most outputs bit for bit, and how many; `end` is what the epilogue does. None if no order gives any."""
    shape = problem.observed.shape
    sample = Part(
        int(random.integers(shape[0])),
        *(np.sort(random.permutation(size)[:_SIDE]) for size in shape[1:]),
    )
    best: tuple[int, Order] | None = None
    for order in _orders(problem):
        same = int((end(order.run(sample)) == problem.seen(sample)).sum())
        if best is None or same > best[0]:
            best = same, order
        if same == problem.seen(sample).size:
            whole = sum(int((end(order.run(part)) == problem.seen(part)).sum()) for part in problem.parts())
            if whole == problem.observed.size:
                return order.said, whole
    if best is None:
        return None
    whole = sum(int((end(best[1].run(part)) == problem.seen(part)).sum()) for part in problem.parts())
    return best[1].said, whole


def _orders(problem: Problem) -> Iterator[Order]:
    float_sum = problem.machine.formats["d"].name == problem.machine.formats["c"].name == "f32"
    has_c = bool(problem.c.any())
    count = problem.blocks
    if float_sum and has_c:
        yield Order("C added at the end", partial(_chunks, problem, count, True))
    sizes = sorted({-(-count // parts) for parts in range(2, 65)} | {1, 2, 4, 8, 16}, reverse=True)
    for size in sizes if float_sum else ():
        if size < count:
            parts = -(-count // size)
            for late in (False, True) if has_c else (False,):
                said = f"K in {parts} parts of {size * problem.step}, each from zero, added in f32" + ", C last" * late
                yield Order(said, partial(_chunks, problem, size, late))
    for size in (1, 2, 4, 8):
        own = np.arange(count)
        turned = (own // size)[::-1]
        if size < count:
            order = tuple(int(i) for block in dict.fromkeys(turned.tolist()) for i in own[own // size == block])
            yield Order(f"K blocks of {size * problem.step} descending", replace(problem, order=order).predict)
            pairs = sorted(own.tolist(), key=lambda i, size=size: ((i // size) ^ 1, i))  # type: ignore[misc]
            yield Order(
                f"K blocks of {size * problem.step} exchanged in pairs", replace(problem, order=tuple(pairs)).predict
            )
    yield from _other_steps(problem)
    if problem.machine.formats["d"].kind == "float" and problem.positions is None and problem.scales is None:
        yield Order("the exact sum, rounded once: a reference in wider arithmetic", partial(_exact, problem))
        if float_sum:
            yield Order("a chain of f32 fused multiply-adds, k ascending", partial(_chain, problem, True))
            yield Order("a chain of f32 multiplications and additions, k ascending", partial(_chain, problem, False))
    for attempt in attempts(problem):
        if attempt.mistake == "rounding of another arch":
            changed = attempt.change()
            if changed is not None:
                yield Order(f"the rounding of {attempt.detail}", changed.predict)


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
        blocks = problem.b.shape[1] // made.shape[2]
        changed = replace(problem, machine=made, order=tuple(range(blocks)))
        yield Order(f"steps of K = {made.shape[2]}: {other.mnemonic}", changed.predict)


def _chunks(problem: Problem, size: int, late: bool, part: Part) -> Codes:
    """Chunks of the K blocks, each from zero, added one after the other; C first or last."""
    total: Numbers | None = None
    c = decode(problem.c[part.matrix][np.ix_(part.rows, part.columns)], "f32")
    zero = replace(problem, c=np.zeros_like(problem.c))
    for start in range(0, problem.blocks, size):
        own = problem if start == 0 and not late else zero
        codes = replace(own, order=problem.order[start : start + size]).predict(part)
        values = decode(codes, "f32")
        total = values if total is None else decode(encode(total + values, "f32"), "f32")
    if total is None:
        raise ValueError("a problem without K")
    return encode(total + c if late else total, "f32")


def _exact(problem: Problem, part: Part) -> Codes:
    formats = problem.machine.formats
    a = decode(problem.a[part.matrix][part.rows], formats["a"]).astype(np.float64)
    b = decode(problem.b[part.matrix][:, part.columns], formats["b"]).astype(np.float64)
    c = decode(problem.c[part.matrix][np.ix_(part.rows, part.columns)], formats["c"])
    return encode(a @ b + c, formats["d"])


def _chain(problem: Problem, fused: bool, part: Part) -> Codes:
    formats = problem.machine.formats
    a = decode(problem.a[part.matrix][part.rows], formats["a"]).astype(np.float64)
    b = decode(problem.b[part.matrix][:, part.columns], formats["b"]).astype(np.float64)
    total = decode(problem.c[part.matrix][np.ix_(part.rows, part.columns)], formats["c"]).astype(np.float64)
    for k in range(a.shape[1]):
        product = a[:, k, None] * b[k]
        total = (total + (product if fused else product.astype(np.float32))).astype(np.float32).astype(np.float64)
    return encode(total, "f32")
