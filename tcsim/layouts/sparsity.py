"""Structured sparsity: where the kept elements of A belong, and the metadata words that say so.

A row of the M x K matrix A keeps half of its elements. Metadata is a string of 4-bit groups, one for each 64 bits (16-
and 32-bit formats) or 32 bits (8- and 4-bit formats) of the dense row: two 2-bit indices of the units that were kept,
the lower first. A unit is 16 bits wide (an f16 or bf16 element, or half a tf32) or 8 bits (an int8 or fp8 element, or
a pair of int4). Measured on an NVIDIA H200 for every shape, type and selector of mma.sp; PTX ISA, sections Sparse matrix
storage of mma.sp and of wgmma.mma_async.sp, whose warps each hold what a warp of mma.sp with the same K holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, listing
from tcsim.numbers.codec import as_codes
from tcsim.numbers.formats import FORMATS

Indices = npt.NDArray[np.int64]
_PAIRS = tuple(first | second << 2 for first, second in combinations(range(4), 2))  # 0b0100 ... 0b1110: increasing
_WHOLE_TF32 = (0b0100, 0b1110)  # both halves of the first or of the second element of a pair


@cache
def _kept_positions(units: int, unit: int) -> Indices:
    """For each set of used units, as bits: the positions of the elements kept, in order (sets, elements).

    All used units are kept, then the lowest unused ones until half of the units are kept.

    >>> _kept_positions(4, 1)[0b1000].tolist()
    [0, 3]
    """
    chosen = []
    for used in range(1 << units):
        order = sorted(range(units), key=lambda i: (not used >> i & 1, i))
        chosen.append([i * unit + j for i in sorted(order[: units // 2]) for j in range(unit)])
    return np.array(chosen, np.int64)


@dataclass(frozen=True)
class Sparsity:
    """How one instruction stores the sparsity of A."""

    rows: int  # M
    k: int  # K of the dense matrix
    element_bits: int  # of A in its registers
    selectors: tuple[int, ...]  # values of the selector operand that the hardware runs
    refused: tuple[int, ...] = ()  # values that the assembler accepts and the hardware stops at
    ordered: bool = False  # mma.sp::ordered_metadata promises increasing indices
    also: tuple[int, ...] = ()  # groups that an ordered instruction's manual lists beside the increasing ones

    @property
    def lanes(self) -> int:
        """Lanes that hold metadata: the 32 of a warp for every 16 rows."""
        return self.rows // 16 * 32

    @property
    def unit_bits(self) -> int:
        """The width of what a 2-bit index selects."""
        return 16 if self.element_bits >= 16 else 8

    @property
    def group(self) -> int:
        """Dense elements of one 4-bit group: 4 for 2:4, 2 for the 1:2 of tf32, 8 for the 4:8 of int4."""
        return 4 * self.unit_bits // self.element_bits

    @property
    def groups(self) -> int:
        """4-bit groups in a row."""
        return self.k // self.group

    @property
    def kept(self) -> int:
        """Kept elements of a row: K / 2."""
        return self.k // 2

    @cached_property
    def valid(self) -> tuple[int, ...]:
        """The 4-bit groups whose meaning the manual defines."""
        if self.element_bits == 32:
            return _WHOLE_TF32
        if self.ordered:
            return tuple(sorted((*_PAIRS, *self.also))) if self.also else _PAIRS
        return tuple(sorted((*_PAIRS, *((pair & 3) << 2 | pair >> 2 for pair in _PAIRS))))

    def places(self, selector: int) -> tuple[Indices, Indices]:
        """(lane, lowest bit) of every group's 4 bits: arrays (rows, groups).

        Each warp describes 16 rows, and four of its lanes share rows g and g + 8. With 16-bit units a word holds four groups
        of row g, then four of row g + 8; with 8-bit units it holds eight groups of one row.

        Raises OperandError for a selector that the instruction does not have.

        Pre-conditions:
            selector in self.selectors
        Post-conditions:
            all(x.shape == (self.rows, self.groups) for x in result)
            len({*zip(result[0].flat, result[1].flat)}) == self.rows * self.groups
            result[0].max() < self.lanes and result[1].max() <= 28 and not (result[1] % 4).any()
        """
        self.check_selector(selector)
        row, group = np.arange(self.rows)[:, None], np.arange(self.groups)[None, :]
        warp, quad, upper = row // 16, row % 8, row // 8 % 2
        if self.unit_bits == 16:
            lane = selector if self.groups == 4 else 2 * selector + group // 4
            bit = 16 * upper + 4 * (group % 4)
        else:
            lane = 2 * selector + upper if self.groups == 8 else upper + 2 * (group // 8)
            bit = 4 * (group % 8)
        shape = (self.rows, self.groups)
        return np.broadcast_to(32 * warp + 4 * quad + lane, shape), np.broadcast_to(bit, shape)

    def check_selector(self, selector: int) -> None:
        """Raise OperandError unless the hardware runs the selector."""
        if not isinstance(selector, (int, np.integer)):
            raise OperandError(f"selector {selector!r} is not one integer; valid: {listing(self.selectors)}")
        if selector in self.refused:
            raise OperandError(
                f"selector {selector}: the assembler accepts it, but the instruction stops with an illegal-instruction "
                f"error (measured on an H200); valid: {listing(self.selectors)}"
            )
        if selector not in self.selectors:
            raise OperandError(f"selector {selector!r} does not exist; valid: {listing(self.selectors)}")

    # --- words and 4-bit groups

    def groups_of(self, metadata: npt.NDArray[np.uint32], selector: int) -> npt.NDArray[np.uint8]:
        """The 4-bit groups in metadata words (..., lanes): (..., rows, groups).

        Post-conditions:
            result.shape == (*metadata.shape[:-1], self.rows, self.groups)
            self.words_of(result, selector) & ~metadata == 0
        """
        lane, bit = self.places(selector)
        return ((metadata[..., lane] >> bit.astype(np.uint32)) & np.uint32(15)).astype(np.uint8)

    def words_of(self, groups: npt.NDArray[np.uint8], selector: int) -> npt.NDArray[np.uint32]:
        """Metadata words (..., lanes) that hold 4-bit groups (..., rows, groups); all remaining bits are zero.

        Post-conditions:
            self.groups_of(result, selector) == groups
        """
        lane, bit = self.places(selector)
        nibbles = np.zeros((*groups.shape[:-2], self.lanes, 8), np.uint32)
        nibbles[..., lane, bit // 4] = groups
        return (nibbles << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32)

    # --- 4-bit groups and positions

    def positions_of(self, groups: npt.NDArray[np.uint8]) -> Indices:
        """The position inside its group of every kept element: (..., rows, K / 2).

        Post-conditions:
            result.shape == (*groups.shape[:-1], self.kept)
            not np.isin(groups, self.valid).all() or self.groups_for(result) == groups
        """
        first, second = (groups & 3).astype(np.int64), (groups >> 2).astype(np.int64)
        if self.element_bits == 32:
            return first // 2
        if self.element_bits == 4:
            kept = np.stack([2 * first, 2 * first + 1, 2 * second, 2 * second + 1], axis=-1)
        else:
            kept = np.stack([first, second], axis=-1)
        return kept.reshape(*groups.shape[:-1], self.kept)

    def groups_for(self, positions: Indices) -> npt.NDArray[np.uint8]:
        """The 4-bit groups that encode positions (..., rows, K / 2).

        Raises OperandError for positions that no group can encode.

        Post-conditions:
            self.positions_of(result) == positions
            np.isin(result, self.valid)
        """
        per_group = self.kept // self.groups
        split = np.asarray(positions, np.int64).reshape(*np.shape(positions)[:-1], self.groups, per_group)
        if ((split < 0) | (split >= self.group)).any():
            raise OperandError(f"positions must be 0 to {self.group - 1}, inside a group of {self.group} elements")
        if self.element_bits == 32:
            groups = np.where(split[..., 0] == 0, *_WHOLE_TF32)
        elif self.element_bits == 4:
            if (split[..., 0::2] % 2 != 0).any() or (split[..., 1::2] != split[..., 0::2] + 1).any():
                raise OperandError("4-bit elements are kept in pairs: positions must come as 2 p, 2 p + 1")
            groups = split[..., 0] // 2 | (split[..., 2] // 2) << 2
        else:
            groups = split[..., 0] | split[..., 1] << 2
        self.check_groups(groups.astype(np.uint8))
        return groups.astype(np.uint8)

    def check_groups(self, groups: npt.NDArray[np.uint8]) -> None:
        """Raise OperandError if some 4-bit group has no defined meaning."""
        wrong = ~np.isin(groups, self.valid)
        if wrong.any():
            *_, row, group = np.argwhere(wrong)[0]
            bits = int(groups[wrong][0])
            raise OperandError(
                f"metadata 0b{bits:04b} of row {row}, group {group} is undefined; valid: "
                + listing(f"0b{valid:04b}" for valid in self.valid)
            )

    def columns(self, positions: Indices) -> Indices:
        """The dense column of every kept element: (..., rows, K / 2).

        Post-conditions:
            result // self.group == np.arange(self.kept) // (self.kept // self.groups)
            result % self.group == positions
        """
        per_group = self.kept // self.groups
        return positions + np.arange(self.kept) // per_group * self.group

    def compress(
        self, dense: npt.NDArray[Any], is_zero: npt.NDArray[np.bool_], first_row: int = 0
    ) -> tuple[npt.NDArray[Any], Indices]:
        """The kept codes (..., rows, K / 2) of a dense matrix (..., rows, K), and their positions.

        Every nonzero is kept; zeros fill up, the lowest units first. first_row: the number that an error gives to the first row.

        Raises OperandError if a group has more nonzeros than can be kept.

        Post-conditions:
            result[0] == np.take_along_axis(dense, self.columns(result[1]), axis=-1)
            np.count_nonzero(result[0], axis=-1) == np.count_nonzero(dense, axis=-1)
        """
        shape = dense.shape[:-1]
        unit = max(1, self.unit_bits // self.element_bits)  # elements that are kept or dropped together
        units = self.group // unit
        used = ~is_zero.reshape(*shape, self.groups, units, unit).all(-1)
        keep = units // 2
        pattern = np.packbits(used, axis=-1, bitorder="little")[..., 0]
        wrong = np.isin(pattern, [p for p in range(1 << units) if p.bit_count() > keep])
        if wrong.any():
            *_, row, group = np.argwhere(wrong)[0]
            raise OperandError(
                f"row {first_row + row}, columns {group * self.group} to {(group + 1) * self.group - 1}: more than {keep} of {units} "
                f"{'pairs' if unit == 2 else 'elements'} are nonzero"
            )
        positions = _kept_positions(units, unit)[pattern].reshape(*shape, self.kept)
        return np.take_along_axis(dense, self.columns(positions), axis=-1), positions

    def compress_matrix(self, dense: Any, format: str, first_row: int = 0) -> tuple[npt.NDArray[Any], Indices]:
        """The same of a whole matrix (..., M, K) of any size, codes of `format`: (..., M, kept) and their positions.

        K is filled up with zeros to whole groups; kept is half of that. first_row as for `compress`.
        `tcsim.gemm(kept, b, metadata=positions)` takes both.

        Raises OperandError if a group has more nonzeros than can be kept or a dimension is missing, FormatError for a dtype that
        does not fit the format.

        >>> sparsity = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90").sparsity
        >>> kept, positions = sparsity.compress_matrix(np.float16([[0, 7, 0, 8, 9]]), "f16")
        >>> kept.view(np.float16).tolist(), positions.tolist()
        ([[7.0, 8.0, 9.0, 0.0]], [[1, 3, 0, 1]])
        """
        item = FORMATS[format]
        codes = as_codes(dense, item, "compress_matrix")
        if codes.ndim < 2:
            raise OperandError(f"compress_matrix: shape {codes.shape}; valid: (..., M, K)")
        fill = [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % self.group)]
        codes = np.pad(codes, fill)
        ignored = (1 << item.ignored_low_bits) - 1
        sign = 1 << item.sign_shift + item.ignored_low_bits if item.kind == "float" and item.signed else 0
        is_zero = codes & item.dtype.type(np.iinfo(item.dtype).max ^ ignored ^ sign) == 0
        return replace(self, rows=codes.shape[-2], k=codes.shape[-1]).compress(codes, is_zero, first_row)
