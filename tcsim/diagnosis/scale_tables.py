"""Which table of scale factors a kernel used for each operand: the other's, one laid out otherwise, of another width, or its values changed.

The partial products of a scale block without factors are known, so any table of A and any of B are tried together on a few outputs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.candidate import taken
from tcsim.diagnosis.crossed_scales import crossing
from tcsim.diagnosis.hypothesis import Operands, WrongKernel
from tcsim.diagnosis.least_squares import in_parts
from tcsim.diagnosis.maps import Rule
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.rules import part_rules
from tcsim.diagnosis.some_tiles import holding
from tcsim.diagnosis.where import ranges
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import FORMATS, Format

_FEW = 4  # outputs that every pair of tables is tried on
_SAMPLES = 64  # outputs that those are tried on which give the few
_GAPS = (1, 2, 4, 8)  # bytes behind a row
_WORD = 4  # blocks of K whose factors lie in one word
_FIRST = 24  # pairs that are reckoned out in full
_LAYOUT = (
    "look at the layout of the scale factors of {x} in memory, and at the one that the instruction or the copy expects"
)
_ORDER = "look at the order of the arguments: which buffer of scale factors goes with which operand"
_VALUE = "look at what is done to the scale factors of {x} between the quantizer and the multiplication"

Table = Callable[[Numbers, Numbers], Numbers]  # (own, the other operand's), each (lines, blocks) -> (own lines, blocks)
Address = Callable[[Ints, Ints, int, int], Ints]  # (line, block, lines, blocks) -> where in memory


@dataclass(frozen=True)
class Reading:
    """One table of factors in the place of an operand's own; {x} is the operand, {y} the other one."""

    mistake: str
    detail: str
    advice: str
    table: Table
    rank: int = 3
    rule: Rule | None = None  # by which the table is read
    outside: float = 1.0  # what a rule finds behind the table's end

    def lines(self, which: Ints, own: Numbers, other: Numbers) -> Numbers:
        """The factors of some lines, (lines, blocks)."""
        if self.rule is None:
            return self.table(own, other)[which]
        block = np.arange(own.shape[1])[None]
        row, at = np.broadcast_arrays(*self.rule.where(which[:, None], block, 0 * block))
        return taken(own, row, at, self.outside)


def _own(own: Numbers, other: Numbers) -> Numbers:
    return own


OWN = Reading("", "", "", _own, 0)


def with_tables(a: Reading, b: Reading, lines: tuple[int, int], blocks: int) -> WrongKernel:
    """A kernel with a table of factors for A and one for B. lines: rows of A and columns of B that were given."""
    alike = (a.mistake, a.detail) == (b.mistake, b.detail)
    rank = max(a.rank, b.rank) if alike else a.rank + b.rank
    return WrongKernel(_names(a, b, alike), partial(_with_tables, (a, b), lines, blocks), rank=rank)


def _with_tables(readings: tuple[Reading, Reading], lines: tuple[int, int], blocks: int, given: Operands) -> Operands:
    """What is multiplied with these tables in the places of the factors."""
    if given.scales is None:
        raise ValueError("no factors")
    found = [x.copy() for x in given.scales]
    for place, (reading, table) in enumerate(zip(readings, found, strict=True)):
        own, other = (given.scales[one][:, : lines[one], :blocks] for one in (place, 1 - place))
        which = np.arange(own.shape[1])
        table[:, : lines[place], :blocks] = [reading.lines(which, *pair) for pair in zip(own, other, strict=True)]
    return given._replace(scales=(found[0], found[1]))


def _names(a: Reading, b: Reading, alike: bool) -> tuple[tuple[str, str, str], ...]:
    """(mistake, detail, advice)."""
    names = (
        {"x": "a", "y": "b", "line": "row", "other": "column"},
        {"x": "b", "y": "a", "line": "column", "other": "row"},
    )
    if a.mistake == b.mistake == FOREIGN:
        details = (one.detail.format(**of) for one, of in zip((a, b), names, strict=True))
        return (("scale_a and scale_b exchanged", "; ".join(details), _ORDER),)
    if alike:
        both = {"x": "a and scale_b", "y": "the other", "line": "line", "other": "line"}
        return ((a.mistake.format(**both), a.detail.format(**both), a.advice.format(x="both operands")),)
    return tuple(
        (one.mistake.format(**of), one.detail.format(**of), one.advice.format(**of))
        for one, of in zip((a, b), names, strict=True)
        if one is not OWN
    )


def scale_tables(problem: Problem, reals: Reals, open_: Mask) -> Iterator[WrongKernel]:
    """Tables of A and of B that give some outputs, simplest first."""
    if reals.factors is None or reals.bare is None:
        return
    lines = problem.sizes
    blocks = -(-(problem.length) // problem.machine.block)
    places = np.argwhere(open_ & reals.finite)
    places = some_of(places, _SAMPLES)
    format = problem.machine.formats["scale"]
    if not len(places):
        if open_.any():  # infinities alone: nothing to try tables on
            shifted = next((own for own in _values(format, 0) if own.mistake.endswith(SHIFTED)), OWN)
            yield from (with_tables(a, b, lines, blocks) for a, b in ((shifted, OWN), (OWN, shifted)))
        return
    t, i, j = places[places[:, 0] == places[0, 0]].T
    matrix = int(t[0])
    readings = [list(_readings(problem, blocks, *sizes)) for sizes in (lines, lines[::-1])]
    own = [x[matrix, :count, :blocks] for x, count in zip(reals.factors, lines, strict=True)]
    with np.errstate(all="ignore"):
        tables = [
            np.stack([reading.lines(at, own[place], own[1 - place]) for reading in readings[place]])
            for place, at in enumerate((i, j))
        ]  # (readings, samples, blocks)
    terms = reals.bare[0][t, i] * reals.bare[1][t, j]
    terms = terms.reshape(len(t), reals.factors[0].shape[2], -1)
    sums = [x.sum(axis=2)[:, :blocks] for x in (terms, np.abs(terms))]
    place = t, i, j
    if (np.abs((reals.observed - reals.c)[place]) <= reals.reach[place]).all():
        return  # nothing is added: lines that are zero say that more simply than tiny factors
    fits = np.ones((len(readings[0]), len(readings[1])), bool)
    for one in range(min(_FEW, len(t))):
        found, size = ((tables[0][:, one] * x[one]) @ tables[1][:, one].T for x in sums)
        at = t[one], i[one], j[one]
        fits &= reals.near(found + reals.c[at], at, size)
    items = []
    for a, b in np.argwhere(fits):
        found, size = ((x * tables[0][a] * tables[1][b]).sum(axis=1) for x in sums)
        if (a or b) and reals.near(found + reals.c[place], place, size).all():  # else as they should be
            items.append(with_tables(readings[0][a], readings[1][b], lines, blocks))
    if not items and len(t) > blocks:
        wanted = (reals.observed - reals.c)[place] - (sums[0] * tables[0][0] * tables[1][0]).sum(axis=1)
        for side in (0, 1):
            placed = [
                number
                for number, reading in enumerate(readings[side])
                if reading.rule is not None and reading.outside == 1
            ]
            changes = sums[0] * (tables[side][placed] - tables[side][0]) * tables[1 - side][0]
            far = reals.stretched(np.inf, place)
            for number, holds in holding(in_parts(changes, _WORD).sum(axis=3), wanted, far):
                held = np.repeat(holds, _WORD)[:blocks]
                part = _in_words(readings[side][placed[number]], held, problem.machine.block)
                items.append(with_tables(OWN if side else part, part if side else OWN, lines, blocks))
        items += crossing(reals, matrix, lines, blocks)
    yield from sorted(items, key=lambda item: item.rank)[:_FIRST]


def _in_words(reading: Reading, holds: Mask, block: int) -> Reading:
    """A reading that holds for some blocks of K alone."""

    def table(own: Numbers, other: Numbers) -> Numbers:
        return np.where(holds, reading.lines(np.arange(len(own)), own, other), own)

    said = f"{reading.detail}; in K {ranges(np.flatnonzero(np.repeat(holds, block)))} alone, blocks {ranges(np.flatnonzero(holds))}"
    advice = f"{reading.advice}; and at the strides from one word of {_WORD} blocks to the next"
    return Reading(reading.mistake, said, advice, table, reading.rank + 1)


FOREIGN = "scale_{x} is that of {y}"
SHIFTED = "decoded by shifting"
_ALIKE = "{line} i of {x} takes the factors of {other} i of {y}"


def _readings(problem: Problem, blocks: int, count: int, others: int) -> Iterator[Reading]:
    """Of an operand of `count` lines."""
    format = problem.machine.formats["scale"]
    yield OWN
    yield from _values(format, count)
    none = float(decode(np.zeros(1, format.dtype), format)[0])  # what code 0 counts as
    line, block = np.arange(count)[:, None], np.arange(blocks)[None]
    for rule in part_rules("scale", count, others, blocks, problem.machine.blocks):
        found = Reading(rule.mistake, rule.detail, rule.advice, _own, rule.rank, rule)
        row, at = rule.where(line, block, 0 * block)
        yield found
        inside = (at >= 0) & (at < blocks)  # blocks that count next to nothing are those that are not added
        if "none at" not in rule.detail and inside.all() and ((row < 0) | (row >= count)).any():
            yield replace(found, detail=f"{rule.detail}; what lies outside has code 0", outside=none)
    fills = {said: none if fill == 0 else fill for said, fill in _FILLS.items()}
    for said, ours, read in _layouts(blocks):
        for fill in fills:
            yield Reading(
                "scale_{x} in another layout", said + fill, _LAYOUT, partial(_laid, ours, read, fills[fill], 0)
            )
    for detail, ours, read in (("", _by_line, _by_line), *_MAJORS, *_layouts(blocks)):
        for fill in fills:
            kind = "scale_{x} is that of {y}, in another layout" if detail else FOREIGN
            said = f"{detail or _ALIKE}{fill}"
            advice = f"{_ORDER}; {_LAYOUT}" if detail else _ORDER
            yield Reading(kind, said, advice, partial(_laid, ours, read, fills[fill], 1), 3 + bool(detail))


_FILLS = {"": 1.0, "; what is not written has code 0": 0.0, "; behind the end the last one is taken again": None}
"""What is read behind the end of the memory, and where nothing was written."""


def _laid(written: Address, read: Address, fill: float | None, other: int, *tables: Numbers) -> Numbers:
    """The factors of one of two tables, written to memory at one address and read at another."""
    source, shape = tables[other], tables[0].shape
    line, block = _indexed(source.shape)
    at = written(line, block, *source.shape)
    memory = np.full(int(at.max()) + 1, 1.0 if fill is None else fill)
    memory[at] = source
    line, block = _indexed(shape)
    at = read(line, block, *shape)
    found: Numbers = memory[np.minimum(at, len(memory) - 1)]
    if written is read:  # the same place in a table that may be shorter
        beyond = line >= source.shape[0]
        found = source[np.minimum(line, source.shape[0] - 1), block]
    else:
        beyond = at >= len(memory)
    return found if fill is None else np.where(beyond, fill, found)


def _indexed(shape: tuple[int, ...]) -> tuple[Ints, Ints]:
    line, block = np.indices(shape).astype(np.int64)
    return line, block


def _tiled(height: int, width: int, pad: int, line: Ints, block: Ints, lines: int, blocks: int) -> Ints:
    """Tiles of height x width, those along K one after another; 0: as many as there are, padded to a multiple of `pad`."""
    height, width = (size or -(-extent // pad) * pad for size, extent in ((height, lines), (width, blocks)))
    tile = line // height * -(-blocks // width) + block // width
    return tile * height * width + line % height * width + block % width


def _pitched(pitch: int, line: Ints, block: Ints, lines: int, blocks: int) -> Ints:
    return line * pitch + block


def _interleaved(line: Ints, block: Ints, lines: int, blocks: int) -> Ints:
    tile = line // 128 * -(-blocks // 4) + block // 4
    return tile * 512 + line % 32 * 16 + line % 128 // 32 * 4 + block % 4


_by_line: Address = partial(_tiled, 1, 0, 1)
_by_block: Address = partial(_tiled, 0, 1, 1)
_padded: Address = partial(_tiled, 1, 0, 4)
_MAJORS: tuple[tuple[str, Address, Address], ...] = (
    ("they lie block by block along K and are read line by line", _by_block, _by_line),
    ("they lie line by line and are read block by block along K", _by_line, _by_block),
)


def _layouts(blocks: int) -> Iterator[tuple[str, Address, Address]]:
    """(in words, as written, as read)."""
    padded = -(-blocks // 4) * 4
    if padded != blocks:
        long = f"padded to {padded}, a multiple of 4"
        yield f"their rows are {blocks} long, and are read with a pitch of {padded} ({long})", _by_line, _padded
        yield f"their rows are {long}, and are read with a pitch of {blocks}", _padded, _by_line
        yield f"they lie block by block along K, and are read as if in rows {long}", _by_block, _padded
        yield f"their rows are {long}, and are read block by block along K", _padded, _by_block
    for pitch in sorted({*(blocks + more for more in _GAPS), 2 * blocks, -(-blocks // 16) * 16} - {blocks, padded}):
        rows = partial(_pitched, pitch)
        yield f"their rows are {blocks} long, and are read with a pitch of {pitch}", _by_line, rows
        yield f"their rows lie {pitch} apart, and are read with a pitch of {blocks}", rows, _by_line
    for unit in (4, 16, 128):
        long = f"block by block along K, each padded to a multiple of {unit} lines"
        padded_to = partial(_tiled, 0, 1, unit)
        yield f"they lie {long}, and are read without the padding: the pitch is wrong", padded_to, _by_block
        yield (
            f"they lie block by block along K, and are read as if padded to a multiple of {unit} lines: the pitch is wrong",
            _by_block,
            padded_to,
        )
    named: list[tuple[str, Address]] = [("interleaved in blocks of 128 x 4", _interleaved)]
    named += [
        (f"tile by tile of {height} x {width}", partial(_tiled, height, width, 1))
        for height, width in product((8, 16, 32, 64, 128), (2, 4, 8))
    ]
    named += [
        (f"in groups of {width} along K, line after line in each", partial(_tiled, 0, width, 1)) for width in (2, 4)
    ]
    for said, address in named:
        for plain, other in (("row by row", _by_line), ("block by block along K", _by_block)):
            yield f"they lie {plain}, and are read as if they were in the order: {said}", other, address
            yield f"they lie in the order: {said}, and are read {plain}, not interleaved", address, other


def _values(format: Format, count: int) -> Iterator[Reading]:
    def reading(mistake: str, detail: str, change: Callable[[Numbers], Any], rank: int = 2) -> Reading:
        return Reading(f"scale_{{x}} {mistake}", detail, _VALUE, lambda own, other: change(own), rank)

    yield reading("ignored", "every factor is 1", np.ones_like)
    yield reading("applied twice", "every factor is squared", np.square)
    yield reading("inverse", "every factor is 1 / its value: divided instead of multiplied", lambda x: 1 / x)
    for kind, said, whole in _POWERS if format.zero else ():
        read = partial(_powers, whole)
        yield Reading(f"scale_{{x}}: {kind}", f"every value is {said}", _VALUE, read, 2)
    for wave in (size for size in (16, 32, 64, 128) if size < count):
        said = f"those of {{line}} {wave} and on also by those of {wave} {{line}}s before, and so on: what they multiply is scaled in place"
        yield reading("multiplied with earlier ones", said, partial(_products, wave), 3)
    if not format.zero:
        said = "code 0 counts as 0, code 255 as infinity: codes are shifted to where f32 has its exponent"
        yield reading(SHIFTED, said, partial(_as_exponents, format), 1)
    else:
        least = 2.0**format.minimum_exponent
        said = "subnormal codes get the hidden one that only normal ones have"
        yield reading(
            "subnormals decoded as normal", said, lambda x: np.where((x > 0) & (x < least), (x + least) / 2, x)
        )
        said = "subnormal codes count as zero"
        yield reading("subnormals flushed", said, lambda x: np.where(x < least, 0.0, x))
    for name, turned, packed in product(("f32", "bf16"), (False, True), (False, True)):
        order = ("block by block along K" if turned else "line by line") + ", one after another" * packed
        said = f"they lie there as {name}, {order}, and their bytes are read as {format.name} codes"
        yield reading(f"bytes of {name}", said, partial(_bytes_of, name, format, turned, packed), 3)
    for name in ("ue8m0", "ue4m3", "e4m3", "e5m2"):
        if name != format.name:
            read = partial(_as, format=format, other=FORMATS[name])
            yield reading(f"codes read as {name}", f"they are {format.name}", read)
    for by in (2.0, 0.5, 4.0, 0.25, 2.0**7, 2.0**-7, 2.0**8, 2.0**-8, 2.0**127, 2.0**-127):
        said = f"every factor of scale_{{x}} counts {by:g} times, a bias of the exponent; or the product is scaled or added {by:g} times"
        advice = f"{_VALUE}; and at alpha, and at whether several blocks, slices or runs add to the same output"
        yield Reading("result scaled", said, advice, partial(_more, by), 3)


_POWERS = (
    ("fraction dropped", "cut to a power of two: its exponent is read, not its mantissa", np.floor),
    ("rounded up", "rounded up to a power of two", np.ceil),
    ("rounded to a power of two", "rounded to the nearest one", np.rint),
)


def _powers(whole: Callable[[Numbers], Numbers], own: Numbers, other: Numbers) -> Numbers:
    found: Numbers = 2.0 ** whole(np.log2(own))
    return found


def _products(wave: int, own: Numbers) -> Numbers:
    """The products of lines that are `wave` apart, up to each."""
    found = own.copy()
    for first in range(wave, len(own), wave):
        found[first : first + wave] *= found[first - wave : first][: len(own) - first]
    return found


def _more(by: float, own: Numbers, other: Numbers) -> Numbers:
    return by * own


def _as(values: Numbers, format: Format, other: Format) -> Numbers:
    found: Numbers = np.nan_to_num(decode(encode(values, format), other).astype(np.float64), posinf=0.0, neginf=0.0)
    return found


def _bytes_of(name: str, format: Format, turned: bool, packed: bool, own: Numbers) -> Numbers:
    """What the bytes of wider numbers are as codes, as many as there are factors: of each line, or of all one after another."""
    given = np.ascontiguousarray(own.T if turned else own)
    codes = encode(given, name).view(np.uint8)
    codes = codes.reshape(-1)[: own.size].reshape(given.shape) if packed else codes[:, : given.shape[1]]
    found: Numbers = decode((codes & format.code_mask).astype(format.dtype), format).astype(np.float64)
    return found.T if turned else found


def _as_exponents(format: Format, own: Numbers) -> Numbers:
    """Factors as f32 has them whose exponent is the code: the lowest is zero there, NaN infinity."""
    found: Numbers = np.where(own == 2.0**-format.bias, 0.0, np.where(np.isnan(own), np.inf, own))
    return found
