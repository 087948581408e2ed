"""Mistakes that are no rules of an operand: signs, types, registers and lanes, selectors; and the same mistake in both operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations, product

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import TcsimError
from tcsim.diagnosis.problem import Attempt, Codes, Problem
from tcsim.isa.mma.scaled_multiply import Side
from tcsim.model.operand import Fragment
from tcsim.numbers.codec import decode, encode, negated
from tcsim.numbers.formats import FORMATS, Format


def attempts(problem: Problem) -> Iterator[Attempt]:
    """What can go wrong with a matrix as a whole, and is not a rule of an operand."""
    for name in "abcd":
        advice = f"look at the signs that {name} is given with (scale_a, scale_b, negate)"
        yield Attempt(f"{name} negated", "", advice, partial(_negated, problem, name))
    for held, read in permutations(("f32", "f16", "bf16"), 2):
        for order, said in ((False, "row by row"), (True, "column by column")):
            yield Attempt(
                "c read as another type",
                f"it lies there as {held}, {said}, and is read as {read}",
                "look at the types of C and of the output in the epilogue: a pointer to one is cast to the other",
                partial(_c_as, problem, held, read, order),
            )
    yield Attempt("a and b exchanged", "", "look at the order of the operands", partial(_exchanged, problem))
    yield Attempt(
        "stale accumulator",
        "the product is added to an earlier run's result",
        "clear the accumulator, or set scale_d to 0 for the first instruction",
        partial(_run_twice, problem),
    )
    if problem.blocks > 1:
        yield Attempt(
            "accumulator restarted",
            "each instruction starts from zero: the last K block alone is left",
            "zero the accumulator once, before the loop over K (wgmma, tcgen05: scale_d 0 in the first instruction alone)",
            partial(replace, problem, order=problem.order[-1:], c=np.zeros_like(problem.c)),
        )


def changed(problem: Problem, name: str, codes: Codes) -> Problem:
    """The problem with other codes for an operand; those of d are what would have been observed without the mistake."""
    if name == "a":
        return replace(problem, a=codes)
    if name == "b":
        return replace(problem, b=codes)
    return replace(problem, c=codes) if name == "c" else replace(problem, observed=codes)


def _where_given(problem: Problem, inside: Codes | None) -> Problem:
    """The problem with outputs that are known where c or d was given: what pads them to the instruction's shape is not."""
    return replace(problem, known=None if inside is None else inside != 0)


def operand(problem: Problem, name: str) -> Codes:
    """The codes of an operand."""
    given: Codes = getattr(problem, "observed" if name == "d" else name)
    return given


def format_of(problem: Problem, name: str) -> Format:
    """The number format of an operand."""
    return problem.machine.formats[name]


def _negated(problem: Problem, name: str) -> Problem | None:
    format = format_of(problem, name)
    if format.kind == "bit":
        return None
    codes = operand(problem, name)
    if format.kind == "float" or format.sign_magnitude:
        if not format.signed:
            return None
        return changed(problem, name, negated(codes, format))
    return changed(problem, name, (np.zeros_like(codes) - codes) & format.dtype.type(format.code_mask))


def _exchanged(problem: Problem) -> Problem | None:
    a, b = problem.a, problem.b
    if a.shape != b.shape or a.dtype != b.dtype:
        return None
    return replace(problem, a=b, b=a)


def _c_as(problem: Problem, held: str, read: str, by_column: bool) -> Problem | None:
    """C with each element made of the bits at its place in a memory that holds another type; zeros behind the end."""
    own = format_of(problem, "c")
    rows, columns = problem.sizes
    given = problem.c[:, :rows, :columns]
    values = decode(given, own)
    if own.kind != "float" or not given.any() or not np.array_equal(values, decode(encode(values, held), held)):
        return None
    memory = encode(values.swapaxes(1, 2) if by_column else values, held).reshape(len(values), -1)
    seen = np.zeros((len(values), rows * columns), FORMATS[read].dtype)
    found = np.ascontiguousarray(memory).view(seen.dtype)[:, : rows * columns]
    seen[:, : found.shape[1]] = found
    wide = encode(decode(seen, read), own)
    c = np.zeros_like(problem.c)
    c[:, :rows, :columns] = (
        wide.reshape(-1, columns, rows).swapaxes(1, 2) if by_column else wide.reshape(-1, rows, columns)
    )
    return replace(problem, c=c)


def _run_twice(problem: Problem) -> Problem | None:
    if format_of(problem, "c") is not format_of(problem, "d"):
        return None
    return replace(problem, order=problem.order * 2)


Registers = npt.NDArray[np.uint32]
Permutation = npt.NDArray[np.intp]


def of_registers(problem: Problem) -> Iterator[Attempt]:
    """Every operand that registers hold, each of the permutations below."""
    for name, given in problem.machine.instruction.operands.items():
        for mistake, detail, forward, backward in (*_permutations(given), *(() if name == "d" else _repeated(given))):
            advice = f"compare with instruction.operands[{name!r}].layout: where an element of {name} belongs"
            change = backward if name == "d" else forward
            both = name if name in ("a", "b") else ""
            made = partial(_permuted, problem, given, change)
            yield Attempt(f"{name} {mistake}", detail, advice, made, both, (mistake, detail))


_Change = Callable[[Registers], Registers]


def _permutations(given: Fragment) -> Iterator[tuple[str, str, _Change, _Change]]:
    """(mistake, detail, the change that makes it, the change that undoes it)."""
    if given.layout.element_bits <= 16:
        turn = partial(_rotated, bits=16)
        yield "register halves swapped", "bits 15:0 of each register with bits 31:16", turn, turn
    if given.layout.element_bits <= 8:
        yield "register bytes reversed", "byte 0 with 3, 1 with 2", _reversed_bytes, _reversed_bytes
    if given.layout.element_bits == 4:
        yield "register nibbles swapped", "in each byte", _swapped_nibbles, _swapped_nibbles
    words = 2 if given.layout.element_bits == 64 else 1
    for detail, order in distinct(register_orders(given.registers // words)):
        whole = (order[:, None] * words + np.arange(words)).reshape(-1)
        forward, backward = (partial(np.take, indices=x, axis=-1) for x in (whole, np.argsort(whole)))
        yield "registers permuted", detail, forward, backward
    for detail, order in distinct(lane_orders(given.lanes)):
        forward, backward = (partial(np.take, indices=x, axis=-2) for x in (order, np.argsort(order)))
        yield "lanes permuted", detail, forward, backward


def _repeated(given: Fragment) -> Iterator[tuple[str, str, _Change, _Change]]:
    """One register in the place of another: what the other holds is read nowhere."""
    words = 2 if given.layout.element_bits == 64 else 1
    count = given.registers // words
    for place, taken in permutations(range(count), 2) if count <= 8 else ():
        order = np.arange(count)
        order[place] = taken
        whole = (order[:, None] * words + np.arange(words)).reshape(-1)
        change = partial(np.take, indices=whole, axis=-1)
        yield "register used twice", f"register {taken} where {place} belongs", change, change


def distinct(orders: Iterator[tuple[str, Permutation]]) -> Iterator[tuple[str, Permutation]]:
    """Each permutation once, under its first description; never the identity."""
    seen: set[tuple[int, ...]] = set()
    for detail, order in orders:
        key = tuple(order.tolist())
        if key not in seen and key != tuple(range(len(order))):
            seen.add(key)
            yield detail, order


def register_orders(count: int, most: int = 8) -> Iterator[tuple[str, Permutation]]:
    """Orders of registers. most: up to how many registers every pair is exchanged."""
    own = np.arange(count)
    if count <= most:
        for first, second in combinations(range(count), 2):
            order = own.copy()
            order[[first, second]] = second, first
            yield f"register {first} with {second}", order
    for bit in range(count.bit_length()):
        if count % (2 << bit) == 0 and count > 2:
            yield f"register i with i ^ {1 << bit}", own ^ (1 << bit)
    for first, second in combinations(range(4), 2) if count > most and count % 4 == 0 else ():
        fours = own.reshape(-1, 4).copy()
        fours[:, [first, second]] = fours[:, [second, first]]
        yield f"register {first} with {second} of every four", fours.reshape(-1)
    if count > 2:
        yield "register i with the i-th from the end", own[::-1]
        if count % 2 == 0:
            yield "even ones first, then the odd ones", np.concatenate([own[::2], own[1::2]])
            yield "the two halves interleaved", own.reshape(2, -1).T.reshape(-1)


def lane_orders(count: int) -> Iterator[tuple[str, Permutation]]:
    """Orders of the lanes of a warp or of a warpgroup."""
    own = np.arange(count)
    bit = 1
    while bit < count:
        yield f"lane i with i ^ {bit}", own ^ bit
        bit *= 2
    warp, lane = own // 32 * 32, own % 32
    yield "lane / 4 exchanged with lane % 4: column of quads first", warp + lane % 4 * 8 + lane // 4
    yield "lane % 8 exchanged with lane / 8: row of quads first", warp + lane % 8 * 4 + lane // 8
    yield "lane i with 31 - i", own ^ 31


def _rotated(registers: Registers, bits: int) -> Registers:
    return registers << np.uint32(bits) | registers >> np.uint32(32 - bits)


def _reversed_bytes(registers: Registers) -> Registers:
    return registers.byteswap()


def _swapped_nibbles(registers: Registers) -> Registers:
    low = np.uint32(0x0F0F0F0F)
    return (registers & low) << np.uint32(4) | (registers >> np.uint32(4)) & low


def _permuted(problem: Problem, given: Fragment, change: _Change) -> Problem | None:
    codes = _moved(problem, given, operand(problem, given.name), change)
    if codes is None or given.name in "ab" or problem.size is None:
        return None if codes is None else changed(problem, given.name, codes)
    inside = _moved(problem, given, problem.inside().astype(codes.dtype), change)
    return _where_given(changed(problem, given.name, codes), inside)


def _moved(problem: Problem, given: Fragment, codes: Codes, change: _Change) -> Codes | None:
    """Codes with the registers that hold them changed."""
    multiply = problem.machine.instruction
    rows, columns = given.shape
    batch, tall, wide = codes.shape
    tiles = codes.reshape(batch, tall // rows, rows, wide // columns, columns).swapaxes(2, 3)
    flat = tiles.reshape(-1, rows, columns)
    matrices = given.layout.matrices
    if len(flat) % matrices:
        return None  # the matrices of a warp are not all known
    grouped = flat.reshape(-1, matrices, rows, columns) if matrices > 1 else flat
    registers = multiply.registers(given.name, grouped)
    moved = multiply.matrix(given.name, change(registers)).reshape(tiles.shape)
    result: Codes = moved.swapaxes(2, 3).reshape(codes.shape)
    return result


_SIDES: tuple[Side, ...] = ("a", "b")


_CONSTANT = ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3))  # pairs of positions; 0 and 1 is a rule
_NIBBLES = (4, 8)  # groups of metadata in half a word and in a word


def of_metadata(problem: Problem) -> Iterator[Attempt]:
    """One pair of positions for every group of four, and the groups of a word in reverse."""
    sparsity, positions = problem.machine.sparsity, problem.positions
    if sparsity is None or positions is None or sparsity.group != 4:
        return
    advice = (
        "look at the words of metadata: what is loaded into them, and in which order their four bits belong to groups"
    )
    for pair in _CONSTANT:
        other = np.broadcast_to(np.resize(np.array(pair, positions.dtype), positions.shape[2]), positions.shape)
        said = f"every group counts as positions {pair[0]} and {pair[1]}, as of one constant word"
        yield Attempt("metadata not read", said, advice, partial(replace, problem, positions=other))
    for count in (count for count in _NIBBLES if positions.shape[2] % (2 * count) == 0):
        other = positions[:, :, np.arange(positions.shape[2]) ^ 2 * (count - 1)]
        said = f"in each {count} groups along K they are in reverse order"
        yield Attempt("metadata of another group", said, advice, partial(replace, problem, positions=other))


def of_selectors(problem: Problem) -> Iterator[Attempt]:
    """Every other selector of what came in registers, and metadata in another order."""
    yield from of_metadata(problem)
    sparsity = problem.machine.sparsity
    if problem.metadata is not None and sparsity is not None:
        for selector in sparsity.selectors:
            if selector != problem.selector:
                said = "look at the last immediate of the instruction: which lanes' metadata it reads"
                yield Attempt("metadata selector wrong", f"{selector}", said, partial(_metadata, problem, selector))
    words = problem.scale_words or {}
    for side, byte, thread in product(_SIDES if words else (), range(4), range(4)):
        if (byte, thread) != words[side][1:]:
            detail = f"byte_id_{side} {byte}, thread_id_{side} {thread}"
            advice = f"look at the selectors of scale_{side}: which bytes of which lanes are read"
            made = partial(_scale, problem, side, byte, thread)
            yield Attempt(f"scale_{side} selector wrong", detail, advice, made)


def _metadata(problem: Problem, selector: int) -> Problem | None:
    if problem.metadata is None:
        return None
    try:
        multiply = problem.machine.instruction
        return replace(problem, positions=multiply.decode_metadata(problem.metadata, selector))
    except TcsimError:
        return None  # what those lanes hold is not metadata


def _scale(problem: Problem, side: Side, byte: int, thread: int) -> Problem | None:
    if problem.scale_words is None or problem.scales is None:
        return None
    try:
        own = problem.machine.instruction.scale_matrix(side, problem.scale_words[side][0], byte, thread)
    except TcsimError:
        return None  # no such selector
    return replace(problem, scales=(own, problem.scales[1]) if side == "a" else (problem.scales[0], own))


Source = Callable[[Problem], Iterator[Attempt]]


def in_both(source: Source, problem: Problem) -> Iterator[Attempt]:
    """Of what a source tries in one operand alone, what it can try in both."""
    waiting: dict[tuple[str, ...], Attempt] = {}
    for own in source(problem):
        if own.operand == "a":
            waiting[own.form] = own
        elif own.operand and (other := waiting.pop(own.form, None)) is not None:
            detail = f"{other.mistake}: {other.detail}; {own.mistake}: the same" if own.detail else ""
            made = partial(_made, problem, other, own)
            yield Attempt(f"{other.mistake} + {own.mistake}", detail, f"in both operands: {other.advice}", made)


def _made(problem: Problem, a: Attempt, b: Attempt) -> Problem | None:
    one, other = a.change(), b.change()
    if one is None or other is None:
        return None
    known = [own.known for own in (one, other) if own.known is not None]
    both = replace(problem, a=one.a, b=other.b)
    return replace(both, known=known[0] & known[-1]) if known else both
