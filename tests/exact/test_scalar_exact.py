"""Every scalar spelling against an independent model in Python integers: corner values, random ones, and wrong models that must not pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given as given_inputs
from hypothesis import strategies as st

from conformance.scalars.inputs import inputs, width
from tcsim.arithmetic import floating as arithmetic
from tcsim.isa.scalar import bits, compare, convert, floating, integer, special, video
from tcsim.isa.scalar.atomic import atomics, combination
from tcsim.isa.scalar.table import CONTAINERS, Scalar
from tests.exact import scalar as exact
from tests.support.extent import examples, part

EACH = 32
"""Inputs of each spelling beside the extremes: the first of the list that the GPU gets, corners and random ones mixed."""
PAIRS = 64
_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}  # bits of the exponent, of the fraction
OWN = tuple(item for module in (integer, bits, floating, compare, convert, video) for item in module.table())
INTACT = {"permute": bits.permute, "logic3": bits.logic3}
STEMS = sorted({item.mnemonic.split(".")[0] for item in OWN})


@cache
def given(types: tuple[str, ...]) -> list[np.ndarray[Any, Any]]:
    """Inputs of some types."""
    return [codes[: 4 * EACH] for codes in inputs(types)]


@cache
def extremes(type: str) -> list[int]:
    """Zeros, ones, subnormals, the ends of the range, infinities, NaN of both kinds, powers of two about the widths of integers; of integers the same.

    Of a packed type each part has another one.
    """
    parts = {
        "f16x2": "f16",
        "bf16x2": "bf16",
        "f32x2": "f32",
        "u16x2": "u16",
        "s16x2": "s16",
        "u8x4": "u8",
        "s8x4": "s8",
    }
    bits = width(type)
    if type == "pred":
        return [0, 1]
    if type in parts:
        own, part = extremes(parts[type]), width(parts[type])
        return [
            sum(own[(at + 3 * place) % len(own)] << part * place for place in range(bits // part))
            for at in range(len(own))
        ]
    if type in _FLOATS:
        exponent, fraction = _FLOATS[type]
        top, ones, bias = (1 << exponent) - 1, (1 << fraction) - 1, (1 << exponent - 1) - 1
        powers = [power for power in (-1, 0, 1, 8, 15, 16, 31, 32, 63, 64) if power + bias < top]
        sizes = [
            0,
            1,
            ones,
            1 << fraction,
            (top << fraction) - 1,
            top << fraction,
            top << fraction | 1,
            top << fraction | ones,
            top << fraction | ones // 2 + 1,
        ]
        sizes += [power + bias << fraction for power in powers] + [
            bias << fraction | 1 << fraction - 1,
            (31 + bias << fraction) - 1,
        ]
        return list(dict.fromkeys(size | sign << bits - 1 for size in sizes for sign in (0, 1) if size < 1 << bits - 1))
    sizes = [
        0,
        1,
        2,
        3,
        7,
        8,
        31,
        32,
        33,
        63,
        64,
        127,
        128,
        255,
        256,
        65535,
        65536,
        1 << bits - 2,
        (1 << bits - 1) - 1,
        1 << bits - 1,
        (1 << bits) - 1,
        1 << 31,
        1 << 32,
    ]
    return list(dict.fromkeys(value & (1 << bits) - 1 for size in sizes for value in (size, -size)))


@cache
def ends(types: tuple[str, ...]) -> list[np.ndarray[Any, Any]]:
    """Every extreme of every type; then pairs of the first two with another one of a third each time: some by default, all in the whole."""
    lists = [extremes(type) for type in types]
    longest, second = max(map(len, lists)), len(lists[1]) if len(lists) > 1 else 1
    once = [
        tuple((at + shift * place) % len(own) for place, own in enumerate(lists))
        for at in range(longest)
        for shift in (0, 1)
    ]
    pairs = [
        (i, j, *((i * 7 + j * 3 + place) % len(lists[place]) for place in range(2, len(lists))))
        for i in range(len(lists[0]))
        for j in range(second)
    ]
    rows = [*once, *part([row[: len(lists)] for row in pairs], PAIRS, types)]
    return [
        np.array([lists[place][row[place]] for row in rows], np.uint8 if type == "pred" else CONTAINERS[type])
        for place, type in enumerate(types)
    ]


def sources(item: Scalar) -> tuple[str, ...]:
    """Types of the operands that vary, the carry flag last."""
    own = tuple(type for place, type in enumerate(item.sources) if place not in item.immediates)
    return own + ("pred",) * item.reads_carry


def fast(item: Scalar, codes: Sequence[np.ndarray[Any, Any]], table: int) -> list[tuple[int, ...]]:
    """What the model computes."""
    arrays: list[Any] = [code != 0 if type == "pred" else code for code, type in zip(codes, sources(item), strict=True)]
    for place in item.immediates:
        arrays.insert(place, table)
    with np.errstate(all="ignore"):
        found = item.compute(*arrays)
    every = found if isinstance(found, tuple) else (found,)
    types = (*item.results, *(("pred",) if item.writes_carry else ()))
    shape = codes[0].shape
    columns = [np.broadcast_to(code, shape).astype(CONTAINERS[type]) for code, type in zip(every, types, strict=True)]
    return [tuple(int(value) for value in row) for row in zip(*columns, strict=True)]


def slow(item: Scalar, codes: Sequence[np.ndarray[Any, Any]], table: int) -> list[tuple[int, ...]]:
    """What the exact model computes."""
    rows = zip(*([int(code) for code in column] for column in codes), strict=True)
    if item.reads_carry:
        return [exact.compute(item.mnemonic, row[:-1], carry=row[-1]) for row in rows]
    return [exact.compute(item.mnemonic, row, table=table) for row in rows]


def compared(item: Scalar, count: int) -> int:
    """Compare a spelling on some inputs; how many."""
    types = sources(item)
    codes = [
        np.concatenate([end, column[:count].astype(end.dtype)])
        for end, column in zip(ends(types), given(types), strict=True)
    ]
    table = 0xE2
    own, other = fast(item, codes, table), slow(item, codes, table)
    for place, (one, two) in enumerate(zip(own, other, strict=True)):
        shown = " ".join(hex(int(column[place])) for column in codes)
        assert one == two, f"{item.mnemonic} of {shown}: {[hex(v) for v in one]}, exactly {[hex(v) for v in two]}"
    return len(own)


@pytest.mark.parametrize("stem", STEMS)
def test_every_spelling(stem: str) -> None:
    """The fast model and the exact one agree."""
    chosen = [item for item in OWN if item.mnemonic.split(".")[0] == stem]
    done = sum(compared(item, EACH) for item in chosen)
    assert done == sum(EACH + len(ends(sources(item))[0]) for item in chosen) > 0


@given_inputs(data=st.data())
@examples(300)
def test_any_operands(data: st.DataObject) -> None:
    """A spelling, and operands of any bits."""
    item = data.draw(st.sampled_from(OWN))
    types = sources(item)
    codes = [
        np.array([data.draw(st.integers(0, (1 << width(type)) - 1))], CONTAINERS[type] if type != "pred" else np.uint8)
        for type in types
    ]
    table = data.draw(st.integers(0, 255))
    assert fast(item, codes, table) == slow(item, codes, table), (item.mnemonic, [hex(int(code[0])) for code in codes])


def _off_by_one(operation: Any) -> Any:
    return lambda a, b, type, rounding="rne", ftz=False: operation(a, b, type, rounding, ftz) + a.dtype.type(1)


def _nearest(operation: Any) -> Any:
    return lambda *operands: operation(*operands[:-2], "rne", operands[-1])


def _unflushed(operation: Any) -> Any:
    return lambda *operands: operation(*operands[:-1], False)


MUTANTS: dict[str, tuple[Any, str, Any, tuple[str, ...]]] = {
    "sums one unit off": (arithmetic, "add", _off_by_one(arithmetic.add), ("add.",)),
    "products rounded to nearest": (arithmetic, "multiply", _nearest(arithmetic.multiply), ("mul.rz.", "mul.rm.", "mul.rp.")),
    "products keep subnormal numbers": (arithmetic, "multiply", _unflushed(arithmetic.multiply), ("mul.ftz",)),
    "fma rounded to nearest": (arithmetic, "fma", _nearest(arithmetic.fma), ("fma.rz.", "fma.rp.")),
    "quotients rounded to nearest": (arithmetic, "divide", _nearest(arithmetic.divide), ("div.rz.", "rcp.rp.")),
    "roots rounded to nearest": (arithmetic, "root", _nearest(arithmetic.root), ("sqrt.rz.",)),
    "saturation keeps NaN": (arithmetic, "saturated", lambda codes, format: np.minimum(codes, codes.dtype.type(0x3C00)), ("add.sat.f16",)),
    "-0 as large as +0": (arithmetic, "_ordered", lambda codes: codes.view(f"i{codes.dtype.itemsize}"), ("min.f", "max.f")),
    "relu lets negative numbers pass": (floating, "_relu", lambda codes: codes, ("fma.rn.relu",)),
    "NaN negated": (floating, "_kept_nan", lambda a, found, type: found, ("neg.f", "abs.f")),
    "f16 subnormals kept": (floating, "_flush_half", lambda codes: codes, ("add.ftz.f16", "abs.ftz.f16")),
    "oob of any NaN": (floating, "OUTSIDE", np.uint16(0x7E00), ("fma.rn.oob",)),
    "comparisons ordered": (floating, "_either_nan", lambda a, b, type: np.zeros(np.shape(a), bool), ("setp.gtu", "setp.num")),
    "fields with all bits of start and length": (bits, "_place", lambda bits, code: code.astype(np.int64), ("bfe.", "bfi.")),
    "clz one off": (bits, "bit_length", lambda codes: np.bitwise_count(codes).astype(np.uint32), ("clz.", "bfind.")),
    "prmt without signs": (bits, "permute", lambda a, b, c: INTACT["permute"](a, b, c & np.uint32(0x7777)), ("prmt.b32",)),
    "lop3 of other tables": (bits, "logic3", lambda a, b, c, table: INTACT["logic3"](a, b, c, table ^ 1), ("lop3.",)),
    "saturating sums wrap": (integer, "_saturate", lambda values, type="s32": values.astype(np.uint64).astype(CONTAINERS[type]), ("add.sat.s", "mad.hi.sat")),
    "24-bit products of 32 bits": (integer, "_multiply_24", integer.multiply, ("mul24.",)),
    "opposite predicates equal": (compare, "_with_opposite", lambda own, combine: lambda a, b, *p: (own(a, b),) * 2 if not p else (combine(own(a, b), *p),) * 2, ("setp.lt",)),
    "set gives one in integers": (compare, "_TRUE", {**compare._TRUE, "u32": 1}, ("set.lt.u32.s32",)),
    "integers clamped to 100": (convert, "_bounds", lambda type: (-100, 100), ("cvt.rni.s8", "cvt.sat")),
    "differences of unsigned bytes": (video, "_WORDS", {**video._WORDS, ("s32", 4): np.dtype(np.uint8)}, ("vabsdiff4.u32.s32",)),
    "conversions keep payloads": (convert, "_quiet", lambda codes, type: codes, ("cvt.ftz.f32.f32", "cvt.f32.f16")),
}  # fmt: skip
"""Wrong models: what is replaced by what, and the spellings of which one must differ."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_model_differs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is found by some of the inputs that every spelling is compared on."""
    module, attribute, replacement, stems = MUTANTS[name]
    monkeypatch.setattr(module, attribute, replacement)
    owners = (integer, bits, floating, compare, convert, special, video)
    chosen = [item for own in owners for item in own.table() if item.mnemonic.startswith(stems)]
    assert chosen
    assert any(
        fast(item, codes, 0xE2) != slow(item, codes, 0xE2)
        for item, codes in ((one, given(sources(one))) for one in chosen)
    )


@pytest.mark.parametrize("name", list(atomics()))
def test_every_atomic(name: str) -> None:
    """What stays in memory: in global memory, and in shared memory where that differs."""
    item = atomics()[name]
    if item.type == "b128":
        old = np.frombuffer(bytes(range(64)), item_type := np.dtype((np.void, 16)))
        other, same = old[::-1].copy(), old.copy()
        if item.operation == "exch":
            assert combination(item, "global")(old, other).tobytes() == other.tobytes()
        else:
            same[0] = other[0]
            found = combination(item, "global")(old, same, other)
            assert found.dtype == item_type
            assert found.tobytes() == old[:1].tobytes() + other[1:].tobytes()
        return
    types = (item.type,) * (1 + item.operands)
    columns = given(types)
    if item.operation == "cas":
        columns = [columns[0], np.where(np.arange(len(columns[0])) % 2 == 0, columns[0], columns[1]), columns[2]]
    for space in ("global", "shared") if "shared" in item.spaces else ("global",):
        with np.errstate(all="ignore"):
            own = combination(item, space)(*columns)
        rows = zip(*([int(code) for code in column] for column in columns), strict=True)
        exactly = [exact.atomic(item.operation, item.type, row, space, item.noftz) for row in rows]
        assert [int(code) for code in own] == exactly
        assert len(exactly) == 4 * EACH
