"""The compiled engine: numba's loops on the processors of this machine, for all float formats of at most 32 bits.

It needs numba: `pip install 'tcsim[fast]'`. Its loops are compiled once and kept in numba's cache (NUMBA_CACHE_DIR).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import conversion_table
from tcsim.engines.contract import Accumulators, Codes, Engine, EngineError, Matrices, Registers, Stored, Words, Work
from tcsim.engines.places import Places, in_order
from tcsim.engines.program import NotCovered, Program, program_of
from tcsim.engines.threads import share
from tcsim.numbers.formats import FORMATS, Format

_COLUMNS = 32  # or fragments, from which a loop over them is worth while
_SHARED = 1 << 19  # products of a thread's part, at least
_PIECE = 1 << 20  # elements of B that are prepared at once
_CHUNK = (
    1 << 22
)  # products between two times that operands are fetched from registers and memory: their codes stay in the cache


@cache
def _loops() -> Any:
    """The compiled functions. Raises EngineError where numba is there and does not work."""
    try:
        parts = [import_module(f"tcsim.engines.{name}") for name in ("kernels", "columns", "decoding", "fragments")]
    except Exception as error:  # what numba raises where NumPy is too new for it, or LLVM cannot be loaded
        raise EngineError(f"the engine numba cannot be used: {error}") from error
    return SimpleNamespace(**{name: value for part in parts for name, value in vars(part).items()})


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None  # which looks through folders


class CompiledEngine(Engine):
    """numba on CPUs."""

    name = "numba"
    least = 1 << 15
    start = 1 << 27  # 0.4 seconds of NumPy

    def missing(self) -> str:
        """The package."""
        return "" if _has_numba() else "numba is not installed (pip install 'tcsim[fast]')"

    def takes(self, work: Work) -> str:
        """Dot-adds of float formats."""
        try:
            program_of(work)
        except NotCovered as why:
            return str(why)
        return ""

    def multiply(self, work: Work, matrices: Matrices, order: Sequence[int]) -> Codes:
        """As the contract says."""
        if _are_fragments(work, matrices):
            return _fragments_of_codes(work, matrices)
        program, places, (batch, rows, width) = program_of(work), np.asarray(order, np.int64), matrices.shape
        piece = max(_PIECE // max(1, matrices.b.shape[1] * batch), rows // 8) // _COLUMNS * _COLUMNS or _COLUMNS
        if width <= piece:
            return _gemm(_loops(), work, program, matrices, places)
        out = np.empty(matrices.c.shape, work.result.dtype)
        for start in range(0, width, piece):
            part = slice(start, start + piece)
            own = {name: x if x is None else x[:, :, part] for name, x in matrices.of_columns().items()}
            out[:, :, part] = _gemm(_loops(), work, program, matrices.part(**own), places)
        return out

    def accumulate(self, work: Work, matrices: Matrices, order: Sequence[int], held: Accumulators) -> None:
        """As the contract says."""
        batch, _, width = matrices.shape
        cut = matrices.b.shape[1] * batch * width > _PIECE  # then B is prepared in pieces
        if cut or _are_fragments(work, matrices) or held.places.shift.any() or work.formats[2] != work.result:
            super().accumulate(work, matrices, order, held)
            return
        _gemm(_loops(), work, program_of(work), matrices, np.asarray(order, np.int64), held)

    def execute(self, work: Work, stored: Stored) -> Words | None:
        """As the contract says."""
        if _are_fragments(work, stored) and all(one.words <= one.word.size for one in stored.places):
            return _fragments(work, stored.shape, stored.words, stored.places, stored.into)
        batch, m, n = stored.shape
        words = [_copied(own) for own in stored.words]
        out = np.empty((batch, stored.places[3].words), np.uint32)
        step = max(_COLUMNS if n < _COLUMNS else 1, _CHUNK // (m * n * work.k))

        def loop(first: int, last: int) -> None:
            for start in range(first * step, min(last * step, batch), step):
                part = slice(start, start + step)
                codes = self.multiply(work, _gathered(work, words, stored.places, range(batch)[part]), (0,))
                _scattered(codes, stored.places[3], out[part])

        share(loop, -(-batch // step))
        return out

    def worth(self, work: Work, given: Matrices | Stored) -> bool:
        """Columns, or fragments, that are enough for a loop."""
        return given.shape[2] >= _COLUMNS or _are_fragments(work, given)


ENGINE = CompiledEngine()


def _are_fragments(work: Work, given: Matrices | Stored) -> bool:
    """Whether a batch is computed fragment beside fragment, rather than column beside column."""
    batch, _, n = given.shape
    if batch < _COLUMNS or n >= _COLUMNS:
        return False
    if isinstance(given, Stored):
        return True
    return given.b.shape[1] == work.k and given.columns is None and given.scale_a is None


def _widened(work: Work, program: Program, given: Matrices) -> tuple[Codes, Codes, tuple[Format, Format, Format]]:
    """A and B, and the formats of a, b and c, after the conversion that a program begins with."""
    if not program.widened:
        return given.a, given.b, work.formats
    wide = FORMATS[program.widened]
    a, b = (
        conversion_table(format.name, wide.name)[codes]
        for format, codes in zip(work.formats, (given.a, given.b), strict=False)
    )
    return a, b, (wide, wide, work.formats[2])


@lru_cache(maxsize=256)
def _tables(work: Work, places: tuple[Places, ...]) -> tuple[list[npt.NDArray[np.int32]], npt.NDArray[np.int64]]:
    """The words and shifts of the elements in the order in which the loops take them; words of a, b, c and d."""
    a, b, c, d = (np.stack([one.word, one.shift], axis=-1) for one in places)
    order = program_of(work).order
    found = a[:, order], b[order].swapaxes(0, 1), c, d
    return [np.ascontiguousarray(x.reshape(-1, 2)) for x in found], np.array([one.words for one in places])


def _types(program: Program) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any], int]]:
    """What products and their sums are computed in (empty arrays), and how many terms are summed so: to be tried in this order."""
    wide = np.empty(0, np.float64), np.empty(0, np.float64), len(program.order)
    return [(np.empty(0, np.float32), np.empty(0, np.int32), program.most), wide] if program.narrow else [wide]


def _fragments(
    work: Work,
    shape: tuple[int, int, int],
    words: Sequence[Words | Registers],
    places: tuple[Places, ...],
    into: Registers | None = None,
) -> Words | None:
    """Fragments side by side: the words of D; None where they are in their registers."""
    loops, program = _loops(), program_of(work)
    in_words, sizes = _tables(work, places)
    target = FORMATS[program.widened] if program.widened else None
    fields = [loops.fields(format, to) for format, to in zip(work.formats, (target, target, None), strict=True)]
    batch, m, n = shape
    left_out = np.ones(-(-batch // loops.F), np.bool_)
    out = into if _whole(into) else np.empty((batch, places[3].words), np.uint32)
    stored = loops.Fragments(*(_lying(loops, own) for own in (*words, out)), left_out)
    tables = loops.Tables(sizes, *in_words, *fields)
    for like, sums, most in _types(program):
        if left_out.any():
            does = loops.FragmentSteps((batch, m, n, work.k), program.operations, program.separate, most, program.half)
            share(
                partial(loops.fragments, stored, tables, does, sums, like),
                len(left_out),
                1 + _SHARED // (loops.F * m * n * work.k),
            )
    return None if isinstance(out, Registers) else out


@lru_cache(maxsize=256)
def _order(places: Places, shape: tuple[int, int], width: int) -> npt.NDArray[np.int32]:
    """Of each register of each lane (registers, lanes) its element's place where columns lie in blocks of a width."""
    (lanes, registers), (m, n) = shape, places.word.shape
    row, column = np.indices((m, n))
    found = np.empty(lanes * registers, np.int32)
    found[places.word] = (column // width * m + row) * width + column % width
    return np.ascontiguousarray(found.reshape(lanes, registers).T)


def _whole(given: Words | Registers | None) -> TypeGuard[Registers]:
    """Whether registers lie so that loops take them as they are: of 16 warps at a time."""
    return isinstance(given, Registers) and given.warps % 16 == 0 and given.matrix.flags.c_contiguous


def _copied(given: Words | Registers) -> Words:
    """Words (T, words) of an operand that loops cannot take as it lies."""
    return np.asarray(given).reshape(-1, given.shape[-2] * given.shape[-1]) if isinstance(given, Registers) else given


def _lying(loops: Any, given: Words | Registers) -> Any:
    """The words of an operand as loops take them."""
    if _whole(given):
        return loops.Lying(given.matrix.reshape(-1), 0, given.rows * given.matrix.shape[1], given.warps)
    words = _copied(given)
    return loops.Lying(words.reshape(-1), 0 if len(words) == 1 else words.shape[1], np.empty((0, 0), np.int64), 0)


def _gathered(work: Work, words: Sequence[Words], places: Sequence[Places], part: range) -> Matrices:
    """The codes of operands that lie in words, of a part of the batch."""
    loops, found = _loops(), []
    for every, where, format in zip(words, places, work.formats, strict=False):
        own = every if len(every) == 1 else every[part.start : part.stop]
        codes = np.empty((len(own), *where.word.shape), np.uint32)
        mask = (1 << (format.sign_shift + format.ignored_low_bits + 1)) - 1
        loops.gathered(own, where.table, mask, codes.reshape(len(own), -1))
        found.append(np.broadcast_to(codes, (len(part), *where.word.shape)))
    return Matrices(*found)


def _scattered(codes: Codes, places: Places, out: Words) -> None:
    """Put matrices of codes into words."""
    _loops().scattered(codes.astype(np.uint32, copy=False).reshape(len(codes), -1), places.table, out)


def _fragments_of_codes(work: Work, given: Matrices) -> Codes:
    """The same on codes."""
    batch, m, n = given.shape
    operands = [_stored(x) for x in (given.a, given.b, given.c)]
    dtype = work.result.dtype if m * n * work.result.dtype.itemsize % 4 == 0 else np.dtype(np.uint32)
    places = (*(place for _, place in operands), in_order(m, n, dtype.itemsize * 8))
    a, b, c = (words for words, _ in operands)
    out = _fragments(work, given.shape, (a, b, c), places)
    assert out is not None
    return out.view(dtype).reshape(given.shape).astype(work.result.dtype, copy=False)


def _stored(codes: Codes) -> tuple[Words, Places]:
    """Codes (T, rows, columns) as words, and where they are."""
    _, rows, columns = codes.shape
    if codes.strides[0] == 0 and len(codes):
        codes = codes[:1]
    if rows * columns * codes.itemsize % 4:
        codes = codes.astype(np.uint32)
    words = np.ascontiguousarray(codes).reshape(len(codes), rows * columns).view(np.uint32)
    return words, in_order(rows, columns, codes.itemsize * 8)


def _scales(codes: Codes | None, format: Format | None) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int16]]:
    """Values and exponents of scale factors; empty if there are none."""
    if codes is None or format is None:
        return np.empty((0, 0, 0)), np.empty((0, 0, 0), np.int16)
    return format.values(codes), format.exponents(codes)


def _any_nan(scales: npt.NDArray[np.float64], axis: int, places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether an instruction has a scale that is NaN: scales (T, M, S) to (T, M, I); (T, S, N) to (T, I), for all columns."""
    wrong: Any = np.isnan(scales if axis == 2 else scales.swapaxes(1, 2))
    each: Any = wrong.reshape(*wrong.shape[:2], len(places), -1).any(axis=3)[:, :, places]
    found: npt.NDArray[np.bool_] = each if axis == 2 else each.any(axis=1)
    return found


def _gemm(
    loops: Any, work: Work, program: Program, given: Matrices, places: npt.NDArray[np.int64], held: Accumulators | None = None
) -> Codes:  # fmt: skip
    """Blocks of columns side by side. held: where C and D lie, if not in arrays: then the answer is empty."""
    batch, m, n = given.c.shape
    codes_a, codes_b, formats = _widened(work, program, given)
    kept, k, sparse = work.kept, work.k, given.columns is not None
    order_a = (places[:, None] * kept + program.order).reshape(-1)
    order_b = (places[:, None] * k + np.arange(k)).reshape(-1) if sparse else order_a
    width, depth, blocks = len(order_a), len(order_b), -(-n // loops.W)
    ae, be = np.empty((batch * m, width), np.int16), np.empty((batch, blocks, depth * loops.W), np.int16)
    odd_a, odd_b = np.zeros((batch * m, len(places)), np.bool_), np.zeros((batch, blocks, len(places)), np.bool_)
    d = np.empty((batch, blocks, m, loops.W), np.float32)
    fields = [loops.fields(format) for format in formats]
    (sva, sea), (svb, seb) = _scales(given.scale_a, work.scale), _scales(given.scale_b, work.scale)
    length_a = length_b = 0  # elements whose values and exponents take up one factor: none, if groups do
    if work.blocks and not program.group:
        length_a, length_b = kept // work.blocks, k // work.blocks
    if program.group:
        odd_a |= _any_nan(sva, 2, places).reshape(odd_a.shape)
        odd_b |= _any_nan(svb, 1, places)[:, None]
    rows_sva, rows_sea = (x.reshape(x.shape[0] * x.shape[1], x.shape[2]) for x in (sva, sea))
    a, b = (np.ascontiguousarray(x, np.uint32) for x in (codes_a, codes_b))  # one loop for all formats
    a = a.reshape(batch * m, a.shape[2])
    met = np.empty((0, 0, 0), np.int64)
    if given.columns is not None:
        met = np.ascontiguousarray(given.columns[:, :, order_a], np.int64)
    for types in _types(program):
        av, bv = np.empty(ae.shape, types[0].dtype), np.empty(be.shape, types[0].dtype)
        far = np.zeros(1, np.bool_)
        given_a = a, fields[0], order_a, rows_sva, rows_sea, length_a, kept, av, ae, odd_a, far
        share(partial(loops.pack_a, *given_a), batch * m, 1 + (1 << 17) // max(width, 1))
        given_b = b, fields[1], order_b, svb, seb, length_b, k, bv, be, odd_b, far
        share(partial(loops.pack_b, *given_b), batch * blocks, 1 + (1 << 10) // max(depth, 1))
        if not far[0]:
            break
    _, sums, most = types
    rows = 1 + (1 << 17) // max(n, 1)
    if held is not None:
        lanes, products = held.lanes, 1 + (1 << 17) // (m * n)
        lying = lanes.matrix, lanes.rows, lanes.first, _order(held.places, lanes.shape[1:], loops.W)
        share(partial(loops.pack_held, *lying, fields[2], d.reshape(batch, -1)), batch, products)
    else:
        c = np.ascontiguousarray(given.c, np.uint32)
        share(partial(loops.pack_c, c, fields[2], d), batch * m, rows)
    shape_a, shape_odd = (batch, m, width), (batch, m, len(places))
    units = batch * blocks * -(-m // loops.ROWS)
    columns = loops.Columns(
        av.reshape(shape_a), ae.reshape(shape_a), odd_a.reshape(shape_odd), bv, be, odd_b, met, d,
    )  # fmt: skip
    steps = loops.ColumnSteps(program.operations, program.separate, kept, k, n, most)
    factors = loops.Factors(program.group, places, sva, sea, svb, seb)
    share(
        partial(loops.gemm, columns, steps, factors, sums),
        units,
        1 + _SHARED // max(1, loops.ROWS * loops.W * width),
    )
    if held is not None:
        share(partial(loops.unpack_held, d.reshape(batch, -1), *lying, program.half), batch, products)
        return np.empty(0, work.result.dtype)
    out = np.empty(given.c.shape, np.uint32)
    share(partial(loops.unpack_d, d, program.half, out), batch * m, rows)
    return out.astype(work.result.dtype, copy=False)
