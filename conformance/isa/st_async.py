"""st.async and red.async under test: values of 32 threads written to another block's image of shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.images import IMAGE_BYTES, LANES
from hwkernels.probes.st_async import VALUE_WORDS
from tcsim.arithmetic.reduction import Reduction, reduce_codes
from tcsim.isa.st_async import RemoteInstruction, RemoteRow
from tcsim.memory.mbarrier import MBarrier

Codes = npt.NDArray[Any]
Words = npt.NDArray[np.uint32]
CROWDED = 4
"""Addresses of a sample in which several threads reduce at one address."""

Element = Callable[[RemoteRow, Codes, Codes], Codes]
"""(row, old codes, new codes) -> what a mistaken reduction would leave."""


def codes_of(row: RemoteRow, value: Array) -> Array:
    """What a row takes of the words (..., 4) of each thread: codes (...), or (..., words) of a vector."""
    used = np.ascontiguousarray(value[..., : row.bytes // 4]).view(f"<u{row.word_bits // 8}")
    return used[..., 0] if row.words == 1 else used


def _stored(name: str, mistake: str, applies: Callable[[RemoteRow], bool], change: Callable[[Codes], Codes]) -> Mutant:
    """A store of changed values: codes (samples, 32, words) in and out."""

    def answer(instruction: Any, given: Inputs) -> Array:
        row: RemoteRow = instruction.row
        codes = codes_of(row, given["value"])
        changed = change(codes[..., None] if row.words == 1 else codes)
        value = given["value"].copy()
        value[..., : row.bytes // 4] = np.ascontiguousarray(changed).view("<u4")
        return REMOTE.model(instruction, {**given, "value": value})

    return Mutant(name, mistake, lambda item: item.row.reduction is None and applies(item.row), answer)


def _reduced(name: str, mistake: str, applies: Callable[[RemoteRow], bool], element: Element) -> Mutant:
    """A reduction with a mistaken element, thread after thread."""

    def answer(instruction: Any, given: Inputs) -> Array:
        row: RemoteRow = instruction.row
        out, codes = given["smem"].copy(), codes_of(row, given["value"])
        words = out.view(codes.dtype)
        sample = np.arange(len(out))
        for lane in range(codes.shape[1]):
            at = given["address"][:, lane] // row.bytes
            words[sample, at] = element(row, words[sample, at], codes[:, lane])
        return out.view("<u4")

    return Mutant(name, mistake, lambda item: item.row.reduction is not None and applies(item.row), answer)


def _reduction(row: RemoteRow) -> Reduction:
    if row.reduction is None:
        raise TypeError("a store reduces nothing")
    return row.reduction


def _counts(item: Any) -> bool:
    """Reductions whose result changes if one of two threads is left out; the ends of types make min, and, or do so as well."""
    return item.row.reduction is not None


def _always(row: RemoteRow) -> bool:
    return True


def _vector(row: RemoteRow) -> bool:
    return row.words > 1


def _wide(row: RemoteRow) -> bool:
    return row.word_bits == 64


def _is(*operations: str, types: tuple[str, ...] = ()) -> Callable[[RemoteRow], bool]:
    def applies(row: RemoteRow) -> bool:
        own = row.reduction
        return own is not None and own.operation in operations and (not types or own.type in types)

    return applies


def _first_only(codes: Codes) -> Codes:
    return np.repeat(codes[..., :1], codes.shape[-1], axis=-1)


def _halves_swapped(codes: Codes) -> Codes:
    return codes >> np.uint64(32) | codes << np.uint64(32)


def _other_sign(row: RemoteRow, old: Codes, new: Codes) -> Codes:
    """min or max of the other signedness."""
    signed = row.type[0] == "s"
    kind = f"<{'u' if signed else 'i'}{row.word_bits // 8}"
    pick = np.minimum if _reduction(row).operation == "min" else np.maximum
    return pick(old.view(kind), new.view(kind)).view(old.dtype)


def _unbounded(row: RemoteRow, old: Codes, new: Codes) -> Codes:
    one = old.dtype.type(1)
    return old + one if _reduction(row).operation == "inc" else old - one


def _one_further(row: RemoteRow, old: Codes, new: Codes) -> Codes:
    """inc wraps after the bound instead of at it; dec takes a number above the bound for one to count down."""
    one, zero = old.dtype.type(1), old.dtype.type(0)
    if _reduction(row).operation == "inc":
        return np.where(old > new, zero, old + one)
    return np.where(old == 0, new, old - one)


def _no_carry(row: RemoteRow, old: Codes, new: Codes) -> Codes:
    parts = [np.ascontiguousarray(codes).view("<u4").reshape(-1, 2) for codes in (old, new)]
    return np.ascontiguousarray(parts[0] + parts[1]).view("<u8")[:, 0]


def _saturated(row: RemoteRow, old: Codes, new: Codes) -> Codes:
    total = old + new
    return np.where(total < old, ~np.zeros_like(total), total)


def _once(instruction: Any, given: Inputs) -> Array:
    row: RemoteRow = instruction.row
    out, codes = given["smem"].copy(), codes_of(row, given["value"])
    words = out.view(codes.dtype)
    for sample in range(len(out)):
        places, first = np.unique(given["address"][sample] // row.bytes, return_index=True)
        words[sample, places] = reduce_codes(_reduction(row), words[sample, places], codes[sample, first])
    return out.view("<u4")


def _nothing(instruction: Any, given: Inputs) -> Array:
    return given["smem"].copy().view("<u4")


MUTANTS = (
    Mutant("nothing arrives", "the other block's memory stays as it was", lambda item: True, _nothing),
    _stored("vector reversed", "the first element lies last", _vector, lambda codes: codes[..., ::-1]),
    _stored("first element only", "every element is the first", _vector, _first_only),
    _stored("halves swapped", "the high half of 64 bits comes first", _wide, _halves_swapped),
    _reduced("not combined", "the value replaces what is there", _always, lambda row, old, new: new),
    _reduced(
        "other signedness",
        "min and max of signed numbers as if unsigned, and the reverse",
        _is("min", "max"),
        _other_sign,
    ),
    _reduced("no bound", "inc and dec only count", _is("inc", "dec"), _unbounded),
    _reduced(
        "bound one further", "inc wraps above its operand; dec keeps what is above it", _is("inc", "dec"), _one_further
    ),
    _reduced(
        "no carry",
        "the halves of a 64-bit sum do not meet",
        lambda row: _wide(row) and _is("add")(row),
        _no_carry,
    ),
    _reduced(
        "sum saturated", "an unsigned sum stops at its largest number", _is("add", types=("u32", "u64")), _saturated
    ),
    Mutant("one thread heard", "of several threads at one address only the first counts", _counts, _once),
)


class RemoteStoreTestbench(Testbench):
    """Images and values in, images out."""

    count, bytewise = 16, True  # images
    mutants = MUTANTS

    def classes(self, instruction: RemoteInstruction) -> list[str]:
        """Random values at places of their own; of reductions also the ends of the type, and several threads at one place."""
        return ["spread"] if instruction.row.reduction is None else ["spread", "ends", "crowded"]

    def kept(self, instruction: RemoteInstruction, name: str) -> int | None:
        """One image of those that are stored, which hold nothing but their inputs; every sum."""
        return 1 if instruction.row.reduction is None else None

    def outputs(self, instruction: RemoteInstruction, samples: int) -> int:
        """Bytes."""
        return samples * IMAGE_BYTES

    def inputs(self, instruction: RemoteInstruction, name: str, seed: int, samples: int) -> Inputs:
        """smem uint8 (samples, 1024), address uint32 (samples, 32), value uint32 (samples, 32, 4)."""
        stream, row = Stream(instruction.mnemonic, name, seed), instruction.row
        image, value = self._words(stream, name, row, (samples, IMAGE_BYTES // 4)), (samples, LANES, VALUE_WORDS)
        words = self._words(stream, name, row, value)
        places = np.argsort(stream.words((samples, IMAGE_BYTES // row.bytes)), axis=1)[:, :LANES]
        if name == "crowded":
            places = np.take_along_axis(places, stream.below(CROWDED, (samples, LANES)), axis=1)
            if row.reduction is not None and row.reduction.ordered:
                words[:] = words[:, :1]  # one operand for all threads: then their order does not matter
        return {"smem": image.view(np.uint8), "address": (places * row.bytes).astype(np.uint32), "value": words}

    @staticmethod
    def _words(stream: Stream, name: str, row: RemoteRow, shape: tuple[int, ...]) -> Words:
        if name == "spread":
            return stream.words(shape).astype(np.uint32)
        top = (1 << row.word_bits) - 1
        ends = np.array([0, 1, 2, 3, 4, 5, top, top - 1, top >> 1, (top >> 1) + 1, 0xFFFF_FFFF], np.uint64)
        per = row.word_bits // 32
        chosen = stream.choice(ends, (*shape[:-1], shape[-1] // per)).astype(f"<u{4 * per}")
        return chosen.view("<u4").astype(np.uint32)

    def model(self, instruction: RemoteInstruction, inputs: Inputs) -> Words:
        """The images of the second block as words (samples, 256); zeros if its barrier's phase would not end."""
        row, barrier = instruction.row, MBarrier(1)
        state = barrier.arrive_expect_tx(LANES * row.bytes)
        codes = codes_of(row, inputs["value"])
        image, after = instruction.execute(inputs["smem"], inputs["address"].astype(np.int64), codes, barrier)
        ended = after.test_wait(state) and after.tx_count == 0
        return image.view("<u4") if ended else np.zeros((len(image), IMAGE_BYTES // 4), np.uint32)

    def explain(self, instruction: RemoteInstruction, inputs: Inputs, place: Place) -> Expected:
        """A byte of an image."""
        (sample, at), size = place, instruction.row.bytes
        lanes = np.flatnonzero(inputs["address"][sample] == at // size * size).tolist()
        source = f"byte {at % size} of {size}, by lanes {lanes}" if lanes else "no lane writes it"
        values = inputs["value"][sample]
        steps = tuple(f"lane {lane}: {[hex(word) for word in values[lane].tolist()]}" for lane in lanes)
        return Expected({"sample": sample, "address": hex(at)}, source, steps)


REMOTE = RemoteStoreTestbench()

TESTBENCHES = {"st.async": REMOTE, "red.async": REMOTE}
