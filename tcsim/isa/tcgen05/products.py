"""What tcgen05.mma instructions do with matrices of codes, wherever those come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import as_array, broadcast, spread
from tcsim.core.errors import InstructionError, OperandError
from tcsim.descriptors.addresses import PACKED_KINDS
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.limits import check_spelling
from tcsim.engines.choice import multiply
from tcsim.engines.contract import Matrices, Work
from tcsim.isa.tcgen05.lookup_table import check_indices, looked_up
from tcsim.isa.tcgen05.mma_lowering import steps_of
from tcsim.isa.tcgen05.mma_rows import MultiplyRow
from tcsim.layouts.sparsity import Indices, Sparsity
from tcsim.memory.tmem_layout import (
    LOOKUP_COLUMNS,
    LOOKUP_ENTRIES,
    a_layout,
    accumulator_layout,
    lookup_layout,
    metadata_layout,
    scale_layout,
)
from tcsim.memory.tmem_matrix import TmemLayout
from tcsim.model.instruction import Instruction
from tcsim.numbers.codec import as_codes, as_scale_codes, decode, negated
from tcsim.numbers.formats import FORMATS, ZERO, Format

Codes = npt.NDArray[Any]
_UNORDERED = (0b0110,)
"""The metadata whose indices fall, 2 and 1, that the PTX ISA (Sparse Matrices) lists as meaningful beside those that rise."""


@dataclass(frozen=True, eq=False, repr=False)
class TensorMemoryProduct(Instruction):
    """D = A B + D of codes, whose shape and formats the instruction descriptor says.

    `execute` and `matmul` take `engine=` too: who computes ("numpy", "numba", "gpu"); None: chosen by the size of the work.
    """

    multiplies: ClassVar[bool] = True
    reads_tiles: ClassVar[bool] = True
    row: MultiplyRow

    def descriptor(self, idesc: int | InstructionDescriptor) -> InstructionDescriptor:
        """The instruction descriptor, decoded if it is an integer, and checked against the mnemonic.

        Raises OperandError if it means nothing in this kind or disagrees with the mnemonic.
        """
        row = self.row
        if not isinstance(idesc, InstructionDescriptor):
            if not isinstance(idesc, (int, np.integer)):
                raise OperandError(f"{self!r}: idesc={idesc!r}; valid: a tcsim.InstructionDescriptor or its 32 bits")
            idesc = InstructionDescriptor.decode(int(idesc), row.kind.name, self.arch.name)
        if idesc.arch != self.arch.name and idesc.kind == row.kind.name:
            idesc = replace(idesc, arch=self.arch.name)  # raises for what this arch does not have
        check_spelling(
            idesc, row.mnemonic, row.kind.name, row.cta_group, row.weight_stationary, row.sparse, row.block, row.lookup
        )
        if row.ashift and idesc.m // row.cta_group != 128:
            group = row.cta_group
            why = ": the manual allows it, and leaves open which of a CTA's 64 rows stays" if idesc.m == 128 else ""
            raise OperandError(
                f"{self!r}: .ashift with M = {idesc.m}{why}; valid with .cta_group::{group}: M = {128 * group}"
            )
        return idesc

    def lowering_for(self, idesc: int | InstructionDescriptor, scale_input_d: int = 0) -> Lowering:
        """What runs for a descriptor: `lowering` shows that of the widest result and the smallest K."""
        desc = self.descriptor(idesc)
        return replace(self.lowering, steps=self._steps(desc, scale_input_d))

    def formats(self, idesc: int | InstructionDescriptor) -> dict[str, Format]:
        """The number formats of a, b, c and d, and of the scales if there are any, under `scale`."""
        desc = self.descriptor(idesc)
        names = {"a": desc.a_format, "b": desc.b_format, "c": desc.d_format, "d": desc.d_format}
        if desc.scale_format:
            names["scale"] = desc.scale_format
        return {name: FORMATS[format] for name, format in names.items()}

    def shapes(self, idesc: int | InstructionDescriptor) -> dict[str, tuple[int, int]]:
        """Rows and columns of what `matmul` takes: a and metadata (the kept half of a sparse A), b, c, scales, lookup tables."""
        desc = self.descriptor(idesc)
        kept = desc.k // 2 if desc.sparse else desc.k
        shapes = {"a": (desc.m, kept), "b": (desc.k, desc.n), "c": (desc.m, desc.n)}
        if self.row.sparse:
            shapes["metadata"] = (desc.m, kept)
        if self.row.block:
            blocks = desc.scale_vectors(self.row.block)
            shapes |= {"scale_a": (desc.m, blocks), "scale_b": (blocks, desc.n)}
        if self.row.lookup:
            shapes["lookup"] = (desc.n // LOOKUP_COLUMNS, LOOKUP_ENTRIES)
        return shapes

    def layout(self, name: str, idesc: int | InstructionDescriptor) -> TmemLayout:
        """Where d, a, metadata, scale_a, scale_b or lookup lies in Tensor Memory."""
        row, desc = self.row, self.descriptor(idesc)
        group, ws, sparse = row.cta_group, row.weight_stationary, row.sparse
        match name:
            case "d":
                return accumulator_layout(desc.m, desc.n, group, ws=ws, sparse=sparse)
            case "a":
                return a_layout(desc.m, desc.k, desc.a_format, group, kind=desc.kind, ws=ws, sparse=sparse)
            case "metadata":
                unpaired = row.kind.unpaired_on(self.arch)
                selector = desc.sparsity_selector
                return metadata_layout(desc.kind, desc.m, desc.k, group, ws=ws, selector=selector, unpaired=unpaired)
            case "scale_a":
                vectors, lanes = desc.scale_vectors(row.block), desc.scale_a_lanes
                return scale_layout("a", desc.m, vectors, scale_id=desc.scale_a_id, cta_group=group, lanes=lanes)
            case "scale_b":
                vectors = desc.scale_vectors(row.block)
                return scale_layout("b", desc.n, vectors, scale_id=desc.scale_b_id, cta_group=group, m=desc.m)
            case "lookup":
                return lookup_layout(desc.n, group)
        raise OperandError(f"{self!r}.layout: {name}; valid: d, a, metadata, scale_a, scale_b, lookup")

    def sparsity(self, idesc: int | InstructionDescriptor) -> Sparsity:
        """How positions of kept elements and 4-bit groups of metadata belong together.

        Raises InstructionError for an instruction without .sp.
        """
        desc = self.descriptor(idesc)
        if not self.row.sparse:
            raise InstructionError(f"{self!r} is dense: it has no metadata")
        format = FORMATS[desc.a_format]
        pairs = self.row.kind.name in PACKED_KINDS and not self.row.kind.unpaired_on(self.arch)
        bits = format.bits if pairs else max(8, format.container_bits)
        return Sparsity(desc.m, desc.k, bits, (0,), ordered=True, also=_UNORDERED)

    def compress(self, dense: Any, idesc: int | InstructionDescriptor) -> tuple[Codes, Indices]:
        """Kept codes (..., M, K / 2) and positions of a dense A (..., M, K) that has the instruction's sparsity.

        Raises OperandError for another shape or a group with more nonzeros than are kept, FormatError for another dtype.
        """
        desc = self.descriptor(idesc)
        format = FORMATS[desc.a_format]
        codes = as_codes(dense, format, f"{self!r}.compress")
        if codes.shape[-2:] != (desc.m, desc.k):
            raise OperandError(f"{self!r}.compress: shape {codes.shape}; valid: (..., {desc.m}, {desc.k})")
        zero = format.fields(codes).kind == ZERO if format.kind == "float" else decode(codes, format) == 0
        return self.sparsity(desc).compress(codes, zero)

    def matmul(
        self,
        a: Any,
        b: Any,
        c: Any,
        *,
        idesc: int | InstructionDescriptor,
        scale_a: Any = None,
        scale_b: Any = None,
        metadata: Any = None,
        lookup: Any = None,
        scale_input_d: int | None = None,
    ) -> Codes:
        """Codes in, codes out: a (..., M, K), b (..., K, N), c and the result (..., M, N); leading dimensions broadcast.

        Shapes and formats are those that `shapes` and `formats` give for the instruction descriptor. Block scaling:
        scale_a (..., M, K / block), scale_b (..., K / block, N). Sparse: a and metadata (..., M, K / 2), the positions of
        the kept elements in their groups, as `compress` gives them. With .decompress::lut::b, b holds indices from 0 to 7 of
        lookup (..., N / 8, 8), a table for each 8 columns. The descriptor's negations are applied, and .ashift.

        Raises OperandError for another shape, operands that the mnemonic does not have, or a descriptor that disagrees with it;
        FormatError for another dtype.

        >>> mma = tcsim.instruction("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100a")
        >>> idesc = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=64, n=8)
        >>> a, b = np.ones((64, 16), np.float16), np.ones((16, 8), np.float16)
        >>> d = mma.matmul(a, b, np.zeros((64, 8), np.float32), idesc=idesc)
        >>> float(tcsim.decode(d, "f32")[0, 0])
        16.0
        """
        call = f"{self!r}.matmul"
        desc = self.descriptor(idesc)
        given = {"a": a, "b": b, "c": c, "scale_a": scale_a, "scale_b": scale_b, "metadata": metadata, "lookup": lookup}
        shapes = self.shapes(desc)
        for name, value in given.items():
            if (value is None) == (name in shapes):
                raise OperandError(f"{call}: {name} is {'missing' if value is None else 'not an operand of it'}")
        formats = self.formats(desc)
        arrays = {}
        for name, shape in shapes.items():
            array = as_array(given[name], f"{call}: {name}")
            if name == "b" and self.row.lookup:
                check_indices(array, f"{call}: b")
            elif name != "metadata":
                take = as_scale_codes if name.startswith("scale_") else as_codes
                format = formats["b" if name == "lookup" else name.partition("_")[0]]
                array = take(given[name], format, f"{call}: {name}")
            elif array.dtype.kind not in "iu":
                raise OperandError(f"{call}: metadata is {array.dtype}; valid: integers, positions in their groups")
            if array.shape[-2:] != shape:
                raise OperandError(f"{call}: {name} has shape {array.shape}; valid: (..., {shape[0]}, {shape[1]})")
            arrays[name] = array
        if "metadata" in arrays:
            sparsity = self.sparsity(desc)
            try:
                groups = sparsity.groups_for(arrays["metadata"])
            except OperandError as error:
                raise OperandError(f"{call}: metadata: {error}") from None
            arrays["metadata"] = sparsity.columns(sparsity.positions_of(groups))
        if self.row.lookup:
            arrays["b"] = looked_up(arrays["b"], arrays.pop("lookup"))
        self._check_scale_d(scale_input_d, call)
        return self._product(arrays, desc, scale_input_d or 0)

    def _check_scale_d(self, scale_input_d: int | None, call: str) -> None:
        if scale_input_d is None:
            return
        if not any("scale_input_d" in form for form in self.row.forms):
            raise OperandError(f"{call}: scale_input_d={scale_input_d!r}: the instruction has no such operand")
        valid = 0 if "s32" in self.row.kind.d_formats else 15
        if not isinstance(scale_input_d, (int, np.integer)) or not 0 <= scale_input_d <= valid:
            text = (
                "0; the assembler takes others for kind::i8, the manual says f16 and tf32 only"
                if not valid
                else "0 to 15"
            )
            raise OperandError(f"{call}: scale_input_d={scale_input_d!r}; valid: {text}")

    def _steps(self, desc: InstructionDescriptor, scale_d: int) -> tuple[Any, ...]:
        products = desc.k // 2 if desc.sparse else desc.k
        return steps_of(desc.kind, desc.d_format, products, self.arch, saturate=desc.saturate, scale_d=scale_d)

    def work(self, desc: InstructionDescriptor, scale_d: int = 0) -> Work:
        """What an engine is asked to compute."""
        formats = self.formats(desc)
        triple = (formats["a"], formats["b"], formats["c"])
        blocks = desc.scale_vectors(self.row.block) if self.row.block else 0
        kept = desc.k // 2 if desc.sparse else desc.k
        return Work(self._steps(desc, scale_d), triple, formats["d"], desc.k, kept, formats.get("scale"), blocks)

    def _product(
        self, arrays: dict[str, Codes], desc: InstructionDescriptor, scale_d: int, order: Sequence[int] = (0,)
    ) -> Codes:
        """D of checked codes, of some of its columns at least; `metadata`, if there, holds the dense column of every kept element.

        order: of several products along K, which comes when.
        """
        formats = self.formats(desc)
        batch = broadcast([x.shape[:-2] for x in arrays.values()], f"{self!r}")
        arrays = dict(arrays)
        for name in "ab":
            if getattr(desc, f"negate_{name}"):
                arrays[name] = negated(arrays[name], formats[name])
        if self.row.ashift:
            arrays["a"] = shifted(arrays["a"], self.row.cta_group)
        flat = {name: spread(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for name, x in arrays.items()}
        given = Matrices(
            flat["a"], flat["b"], flat["c"], flat.get("scale_a"), flat.get("scale_b"), flat.get("metadata")
        )
        return multiply(self.work(desc, scale_d), given, order).reshape(*batch, desc.m, arrays["b"].shape[-1])


def shifted(a: Codes, ctas: int) -> Codes:
    """A with its rows one up, as .ashift has them: row i is row i + 1, and the last row of each CTA stays.

    Inferred: the manual says that the rows go down by one row except for the last, as it says of tcgen05.shift.
    """
    m = a.shape[-2]
    rows = np.arange(m)
    per_cta = m // ctas
    return a[..., np.where(rows % per_cta == per_cta - 1, rows, rows + 1), :]
