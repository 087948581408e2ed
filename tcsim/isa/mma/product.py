"""What all instructions that multiply matrices in registers share: matrices of codes in fragments, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import broadcast
from tcsim.core.chunks import PRODUCTS, chunks
from tcsim.core.errors import OperandError
from tcsim.model.fragment_codes import codes_of, registers_of
from tcsim.model.instruction import Instruction
from tcsim.model.row import check_registers
from tcsim.numbers.codec import as_codes
from tcsim.numbers.formats import Format

Array = npt.NDArray[Any]
WIDE = 32
"""Columns from which each product of a batch is computed by itself: NumPy's inner loops run along them, not along the batch."""


@dataclass(frozen=True, eq=False, repr=False)
class MatrixProduct(Instruction):
    """d = a * b + c, where d and c are fragments, and a and b may be."""

    @cached_property
    def formats(self) -> dict[str, Format]:
        """The number formats of a, b, c and d."""
        return {name: operand.format for name, operand in self.operands.items()}

    @property
    def scale_formats(self) -> dict[str, Format]:
        """The number formats of scale_a and scale_b; empty if there are none."""
        return {}

    @cached_property
    def matrices(self) -> int:
        """Independent matrix products of one instruction: 4 for m8n8k4 f16 (one a quad pair), else 1."""
        return self.operands["d"].layout.matrices

    def matrix(self, name: str, registers: Any) -> Array:
        """The codes that registers (..., lanes, registers) hold of an operand: (..., [matrices,] rows, columns).

        Of an element that several lanes or registers hold, the first.
        """
        return codes_of(self.operands[name], registers, f"{self!r}.matrix")

    def registers(self, name: str, codes: Any) -> npt.NDArray[np.uint32]:
        """The registers that hold the codes (..., [matrices,] rows, columns) of an operand: inverse of `matrix`."""
        return registers_of(self.operands[name], codes, f"{self!r}.registers")

    def negated(self, name: str, codes: Array) -> Array:
        """The codes of an operand as they are multiplied: as they are, where no descriptor negates them."""
        return codes

    # --- taking operands

    def _fragments(self, call: str, **given: Any) -> list[Array]:
        """The matrices that registers of operands hold, by name."""
        arrays = {name: np.asarray(registers) for name, registers in given.items()}
        for name, registers in arrays.items():
            check_registers(registers, self.operands[name], call)
        broadcast([registers.shape[:-2] for registers in arrays.values()], call)
        return [self.matrix(name, registers) for name, registers in arrays.items()]

    def _codes(self, call: str, **given: Any) -> list[Array]:
        """The codes of operands by name, of the right shapes."""
        found = []
        for name, array in given.items():
            codes, (rows, columns) = as_codes(array, self.formats[name], f"{call}: {name}"), self._shape(name)
            if codes.shape[-2:] != (rows, columns):
                raise OperandError(f"{call}: {name} has shape {codes.shape}; valid: (..., {rows}, {columns})")
            found.append(codes)
        return found

    def _shape(self, name: str) -> tuple[int, int]:
        """Rows and columns of what `matmul` takes."""
        return self.operands[name].shape

    # --- computing

    def _product(self, arrays: Sequence[Array], call: str) -> Array:
        """The result matrices of a batch of a, b, c, and scale_a and scale_b if there are scales."""
        return self._batched(self._run, arrays, call)

    def _batched(self, run: Callable[..., Array], arrays: Sequence[Array], call: str) -> Array:
        """What `run` makes of arrays (..., rows, columns), whose leading dimensions broadcast: some of the batch at a time."""
        batch = broadcast([x.shape[:-2] for x in arrays], call)
        flat = [np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in arrays]
        d = self.operands["d"]
        out = np.empty((len(flat[0]), *d.shape), d.format.dtype)
        m, n, k = self.shape
        for part in chunks(len(out), PRODUCTS if n >= WIDE else m * n * k):
            out[part] = run(*(x[part] for x in flat))
        return out.reshape(*batch, *d.shape)

    def _run(self, a: Array, b: Array, c: Array, *scales: Array) -> Array:
        """The results of one chunk."""
        named = {
            name: (codes, format) for (name, format), codes in zip(self.scale_formats.items(), scales, strict=True)
        }
        return self.lowering.run(a, b, c, (self.formats["a"], self.formats["b"], self.formats["c"]), named)
