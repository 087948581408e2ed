"""What all instructions that multiply matrices in registers share: matrices of codes in fragments, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import broadcast, spread
from tcsim.core.errors import OperandError
from tcsim.engines.choice import execute, multiply
from tcsim.engines.contract import Matrices, Registers, Stored, Words, Work
from tcsim.engines.places import Places
from tcsim.model.fragment_codes import codes_of, places_of, registers_of
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Fragment
from tcsim.model.row import check_registers
from tcsim.numbers.codec import as_codes
from tcsim.numbers.formats import Format
from tcsim.numbers.packing import field_format

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class MatrixProduct(Instruction):
    """d = a * b + c, where d and c are fragments, and a and b may be.

    `execute` and `matmul` take `engine=` too: who computes ("numpy", "numba", "gpu"); None: chosen by the size of the work.
    """

    multiplies: ClassVar[bool] = True

    @cached_property
    def formats(self) -> dict[str, Format]:
        """The number formats of a, b, c and d."""
        return {name: operand.format for name, operand in self.operands.items()}

    @property
    def scale_formats(self) -> dict[str, Format]:
        """The number formats of scale_a and scale_b; empty if there are none."""
        return {}

    @property
    def blocks(self) -> int:
        """Scales of one row of A, and of one column of B."""
        return 0

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
        """The matrices that are multiplied of registers of operands, by name: codes of `_fields`."""
        arrays = {name: np.asarray(registers) for name, registers in given.items()}
        for name, registers in arrays.items():
            check_registers(registers, self.operands[name], call)
        broadcast([registers.shape[:-2] for registers in arrays.values()], call)
        return [codes_of(self._fields[name], registers, call) for name, registers in arrays.items()]

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

    @cached_property
    def work(self) -> Work:
        """What an engine is asked to compute."""
        _, _, k = self.row.shape
        formats = (self.formats["a"], self.formats["b"], self.formats["c"])
        scale = self.scale_formats.get("scale_a")
        kept = self.operands["a"].shape[1]
        return Work(self.lowering.steps, formats, self.operands["d"].format, k, kept, scale, self.blocks)

    @cached_property
    def _fields(self) -> dict[str, Fragment]:
        """The operands with the formats of their fields in registers, padding included."""
        formats = {name: field_format(own.format, own.layout.element_bits) for name, own in self.operands.items()}
        return {name: replace(own, format=formats[name]) for name, own in self.operands.items()}

    @cached_property
    def _work_of_fields(self) -> Work:
        """The same of operands in registers."""
        a, b, c = (self._fields[name].format for name in "abc")
        return replace(self.work, formats=(a, b, c))

    @cached_property
    def _places(self) -> tuple[Places, Places, Places, Places] | None:
        """Where the elements of a, b, c and d lie in registers; None where engines are not told."""
        found = [places_of(self._fields[name].layout, self._fields[name].format) for name in "abcd"]
        a, b, c, d = found
        if a is None or b is None or c is None or d is None or self.operands["d"].layout.copies > 1:
            return None
        return a, b, c, d

    def _executed(self, call: str, into: Registers | None = None, **given: Any) -> Any:
        """The registers of d of those of a, b and c; leading dimensions broadcast. into: where they go; then it is the answer."""
        arrays = {name: own if isinstance(own, Registers) else np.asarray(own) for name, own in given.items()}
        for name, registers in arrays.items():
            check_registers(registers, self.operands[name], call)
        batch = broadcast([registers.shape[:-2] for registers in arrays.values()], call)
        if self._places is None:
            return self.registers("d", self._product(self._fragments(call, **given), call, work=self._work_of_fields))
        a, b, c = (as_words(registers, batch) for registers in arrays.values())
        d = self.operands["d"]

        def matrices() -> Matrices:
            return matrices_of(self._fragments(call, **given), batch)

        def packed(codes: Array) -> Words:
            return self.registers("d", codes).reshape(-1, d.lanes * d.registers)

        stored = Stored((prod(batch), *d.shape), (a, b, c), self._places, matrices, packed, into)
        found = execute(self._work_of_fields, stored)
        return into if found is None else found.reshape(*batch, d.lanes, d.registers)

    def _product(
        self,
        arrays: Sequence[Array],
        call: str,
        columns: Array | None = None,
        order: Sequence[int] = (0,),
        work: Work | None = None,
    ) -> Array:
        """The result matrices of a batch of a, b, c, and scale_a and scale_b if there are scales; leading dimensions broadcast.

        `columns`, of a sparse A: the row of B that each kept element meets. `order`: of the instructions, where A and B are of several.
        `work`: if not that of matrices of codes.
        """
        batch = broadcast([x.shape[:-2] for x in (*arrays, *(() if columns is None else (columns,)))], call)
        d = multiply(work or self.work, matrices_of(arrays, batch, columns), order)
        return d.reshape(*batch, *self.operands["d"].shape)


def matrices_of(arrays: Sequence[Array], batch: tuple[int, ...], columns: Array | None = None) -> Matrices:
    """The operands of a product with one leading dimension."""
    given = dict(zip(("a", "b", "c", "scale_a", "scale_b"), arrays, strict=False))
    if columns is not None:
        given["columns"] = columns
    flat = {name: spread(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for name, x in given.items()}
    return Matrices(**flat)


def as_words(registers: Array | Registers, batch: tuple[int, ...]) -> Any:
    """Registers (..., lanes, registers) as (T, words); as (1, words) where all of the batch share them; where they lie, as they are."""
    if isinstance(registers, Registers):
        return registers
    size = registers.shape[-2] * registers.shape[-1]
    if registers.shape[:-2] != batch and registers.size != size:
        registers = np.broadcast_to(registers, (*batch, *registers.shape[-2:]))
    return np.require(registers, np.uint32, ("C", "A")).reshape(-1, size)
