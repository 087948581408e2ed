"""Matrix multiply-accumulate with a structured-sparse A: what mma.sp instructions do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.codec import as_codes
from tcsim.errors import OperandError
from tcsim.formats import ZERO
from tcsim.instruction import broadcast
from tcsim.multiply import MatrixMultiply
from tcsim.registry import check_registers
from tcsim.sparse import Indices, Sparsity


@contextmanager
def _quoting(call: str) -> Iterator[None]:
    """Put the call before what tcsim.sparse says of wrong metadata."""
    try:
        yield
    except OperandError as error:
        raise OperandError(f"{call}: {error}") from None


@dataclass(frozen=True, eq=False, repr=False)
class SparseMatrixMultiply(MatrixMultiply):
    """d = a * b + c where A holds the kept half of each row and metadata says where it belongs."""

    @property
    def sparsity(self) -> Sparsity:
        """How the metadata is stored."""
        facts = self.row.facts
        if not isinstance(facts, Sparsity):
            raise TypeError(f"{self!r} has no sparsity facts")
        return facts

    @property
    def takes_any_group(self) -> bool:
        """Whether 4-bit groups that the manual leaves undefined are computed: on sm_90, where they were measured.

        Each index of a group counts by itself there. Not for tf32, whose indices would mix the halves of two elements.
        """
        return self.arch.name == "sm_90" and self.sparsity.element_bits != 32

    def execute(self, a: Any, b: Any, c: Any, metadata: Any = None, selector: int = 0) -> npt.NDArray[np.uint32]:
        """Registers in, registers out: uint32 (..., 32, registers), metadata uint32 (..., 32), one selector for all.

        Metadata groups that the manual leaves undefined are computed as the H200 computes them (each index by itself)
        on sm_90, and refused elsewhere and for tf32.

        Raises OperandError for another dtype or shape, a selector the hardware does not run, or undefined metadata.

        >>> mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> one = np.full((32, 2), 0x3C003C00, np.uint32)
        >>> words = np.full(32, 0x44444444, np.uint32)  # the first two of every four
        >>> d = mma.execute(a=one, b=one, c=np.zeros((32, 4), np.uint32), metadata=words)
        >>> float(d.view(np.float32)[0, 0])
        8.0
        """
        arrays = {"a": np.asarray(a), "b": np.asarray(b), "c": np.asarray(c)}
        for name, registers in arrays.items():
            check_registers(registers, self.operands[name], f"{self!r}.execute")
        groups = self._groups_in(metadata, selector, f"{self!r}.execute", any_group=self.takes_any_group)
        batch = broadcast([*(x.shape[:-2] for x in arrays.values()), groups.shape[:-2]], f"{self!r}.execute")
        codes = {name: self.matrix(name, registers) for name, registers in arrays.items()}
        positions = self.sparsity.positions_of(groups)
        d = self._selected(codes["a"], codes["b"], codes["c"], positions, batch)
        return self._registers(d.reshape(-1, *self.operands["d"].shape), self.operands["d"]).reshape(
            *batch, 32, self.operands["d"].registers
        )

    def matmul(self, a: Any, b: Any, c: Any, metadata: Any = None) -> npt.NDArray[Any]:
        """Codes in, codes out: a (..., M, K / 2) kept elements, metadata (..., M, K / 2) their positions in their groups.

        b (..., K, N), c and the result (..., M, N). Positions as `compress` and `decode_metadata` give them.

        Raises OperandError for another shape or positions that metadata cannot say, FormatError for another dtype.

        >>> mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> dense = np.tile(np.float16([0, 2, 0, 3]), (16, 4))
        >>> a, positions = mma.compress(dense)
        >>> d = mma.matmul(a, np.ones((16, 8), np.float16), np.zeros((16, 8), np.float32), metadata=positions)
        >>> float(tcsim.decode(d, "f32")[0, 0])
        20.0
        """
        codes = {}
        for name, given in (("a", a), ("b", b), ("c", c)):
            operand = self.operands[name]
            codes[name] = as_codes(given, operand.format, f"{self!r}.matmul: {name}")
            if codes[name].shape[-2:] != operand.shape:
                raise OperandError(
                    f"{self!r}.matmul: {name} has shape {codes[name].shape}; "
                    f"valid: (..., {operand.shape[0]}, {operand.shape[1]})"
                )
        positions = self.sparsity.positions_of(self._groups_for("metadata", metadata, f"{self!r}.matmul"))
        batch = broadcast([*(x.shape[:-2] for x in codes.values()), positions.shape[:-2]], f"{self!r}.matmul")
        return self._selected(codes["a"], codes["b"], codes["c"], positions, batch)

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
        """The metadata registers (..., 32) that say positions (..., M, K / 2); lanes that are not read hold zeros.

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
        """The positions (..., M, K / 2) that metadata registers (..., 32) say.

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
        if words.dtype != np.uint32 or words.shape[-1:] != (32,):
            raise OperandError(f"{call}: metadata is {words.dtype} {words.shape}; valid: uint32 (..., 32)")
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

    def _selected(
        self, a: npt.NDArray[Any], b: npt.NDArray[Any], c: npt.NDArray[Any], positions: Indices, batch: tuple[int, ...]
    ) -> npt.NDArray[Any]:
        """Multiply the kept elements with the rows of B that they meet: each row of A is a problem of its own."""
        m, n, _ = self.shape
        kept = self.sparsity.kept
        columns = self.sparsity.columns(positions)
        flat = [np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (a, b, c, columns)]
        out = np.empty((len(flat[0]), m, n), self.operands["d"].format.dtype)
        for part in self._chunks(len(out), 1):
            part_a, part_b, part_c, part_k = (x[part] for x in flat)
            met = part_b[np.arange(len(part_b))[:, None, None], part_k]  # (count, M, K / 2, N)
            rows = self._run(part_a.reshape(-1, 1, kept), met.reshape(-1, kept, n), part_c.reshape(-1, 1, n))
            out[part] = rows.reshape(-1, m, n)
        return out.reshape(*batch, m, n)
