"""What instructions with a structured-sparse A share: compressing it, its metadata words, and the rows of B that it meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.engines.contract import Work
from tcsim.isa.mma.product import Array, MatrixProduct
from tcsim.layouts.sparsity import Indices, Sparsity
from tcsim.model.row import Row
from tcsim.numbers.codec import as_codes
from tcsim.numbers.formats import ZERO


@contextmanager
def _quoting(call: str) -> Iterator[None]:
    """Put the call before what tcsim.layouts.sparsity says of wrong metadata."""
    try:
        yield
    except OperandError as error:
        raise OperandError(f"{call}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class SparseRow(Row):
    """A row whose A may hold only the kept elements."""

    sparsity: Sparsity | None = None  # how the metadata of a sparse A is stored; None: A is dense


@dataclass(frozen=True, eq=False, repr=False)
class SparseOperand(MatrixProduct):
    """An instruction whose A holds the kept half of each row, and whose metadata says where it belongs."""

    row: SparseRow

    @property
    def sparsity(self) -> Sparsity:
        """How the metadata is stored.

        Raises TypeError if A is dense.
        """
        if self.row.sparsity is None:
            raise TypeError(f"{self!r} has no metadata")
        return self.row.sparsity

    @property
    def takes_any_group(self) -> bool:
        """Whether 4-bit groups that the manual leaves undefined are computed: on sm_90, where mma.sp was measured.

        Each index of a group counts by itself there. Not for tf32, whose indices would mix the halves of two elements.
        """
        return self.arch.name == "sm_90" and self.sparsity.element_bits != 32

    def compress(self, dense: Any) -> tuple[npt.NDArray[Any], Indices]:
        """Kept codes (..., M, K / 2) and positions of a dense matrix (..., M, K) that has the instruction's sparsity.

        Every nonzero is kept, and zeros where there are fewer.

        Raises OperandError for another shape or a group with more nonzeros than are kept, FormatError for another dtype.

        >>> mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> kept, positions = mma.compress(np.tile(np.float16([0, 2, 0, 3]), (16, 4)))
        >>> kept.view(np.float16)[0, :4], positions[0, :4]
        (array([2., 3., 2., 3.], dtype=float16), array([1, 3, 1, 3]))
        """
        format = self.operands["a"].format
        codes = as_codes(dense, format, f"{self!r}.compress")
        m, _, k = self.shape
        if codes.shape[-2:] != (m, k):
            raise OperandError(f"{self!r}.compress: shape {codes.shape}; valid: (..., {m}, {k})")
        is_zero = format.fields(codes).kind == ZERO if format.kind == "float" else codes == 0
        with _quoting(f"{self!r}.compress"):
            return self.sparsity.compress(codes, is_zero)

    def encode_metadata(self, positions: Any, selector: int = 0) -> npt.NDArray[np.uint32]:
        """The metadata registers (..., lanes) that say positions (..., M, K / 2); lanes that are not read hold zeros.

        Raises OperandError for another dtype or shape, positions that metadata cannot say, or a selector the hardware
        does not run.

        >>> mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> words = mma.encode_metadata(np.tile([1, 3], (16, 4)), selector=2)
        >>> [hex(word) for word in words[:4]]
        ['0x0', '0x0', '0xdddddddd', '0x0']
        """
        call = f"{self!r}.encode_metadata"
        groups = self._groups_for("positions", positions, call)
        with _quoting(call):
            return self.sparsity.words_of(groups, selector)

    def decode_metadata(self, metadata: Any, selector: int = 0) -> Indices:
        """The positions (..., M, K / 2) that metadata registers (..., lanes) say.

        Raises OperandError for another dtype or shape, metadata whose meaning is undefined, or a selector the hardware
        does not run.

        >>> mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> mma.decode_metadata(np.full(32, 0x4444DDDD, np.uint32))[[0, 8], :4].tolist()
        [[1, 3, 1, 3], [0, 1, 0, 1]]
        """
        return self.sparsity.positions_of(self._groups_in(metadata, selector, f"{self!r}.decode_metadata"))

    def _groups_in(self, metadata: Any, selector: int, call: str, any_group: bool = False) -> npt.NDArray[np.uint8]:
        """The 4-bit groups (..., M, groups) in metadata registers."""
        words = np.asarray(metadata)
        lanes = self.sparsity.lanes
        if words.dtype != np.uint32 or words.shape[-1:] != (lanes,):
            raise OperandError(f"{call}: metadata is {words.dtype} {words.shape}; valid: uint32 (..., {lanes})")
        with _quoting(call):
            groups = self.sparsity.groups_of(words, selector)
            if not any_group:
                self.sparsity.check_groups(groups)
        return groups

    def _groups_for(self, name: str, positions: Any, call: str) -> npt.NDArray[np.uint8]:
        """The 4-bit groups (..., M, groups) that say positions, which the call takes under a name."""
        given = np.asarray(positions)
        if given.shape[-2:] != self.operands["a"].shape or given.dtype.kind not in "iu":
            raise OperandError(
                f"{call}: {name} is {given.dtype} {given.shape}; valid: integers, the position of every kept element in its "
                f"group of {self.sparsity.group}, (..., {self.sparsity.rows}, {self.sparsity.kept})"
            )
        with _quoting(call):
            return self.sparsity.groups_for(given)

    def _kept(self, arrays: Sequence[Array], positions: Indices, call: str, work: Work | None = None) -> Array:
        """The result matrices of a batch of a, b, c, and scale_a and scale_b if there are scales."""
        return self._product(arrays, call, self.sparsity.columns(positions), work=work)
