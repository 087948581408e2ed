"""tcgen05.mma, .mma.sp, .mma.ws and .mma.ws.sp: matrix multiply-accumulate in Tensor Memory, what it becomes, how that is known.

What is done with the codes is in `tcsim.isa.tcgen05.products`, where the operands are found in
`tcsim.isa.tcgen05.multiply_operands`. Sources: MMA-Sim, arXiv 2511.10909 (dense products on sm_100); PTX ISA, tcgen05.mma and
its kin; ptxas 13.5 with nvdisasm (opcodes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.core.versions import PTX_MANUAL
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.isa.tcgen05.cells import TensorMemoryView, columns_of
from tcsim.isa.tcgen05.mma_lowering import steps_of
from tcsim.isa.tcgen05.mma_rows import MultiplyRow, plain_rows, weight_stationary_rows
from tcsim.isa.tcgen05.mma_text import constraints, execution
from tcsim.isa.tcgen05.multiply_operands import Given, Multiplication
from tcsim.isa.tcgen05.products import Codes, TensorMemoryProduct
from tcsim.isa.tcgen05.shared_matrices import shared_bytes
from tcsim.isa.tcgen05.targets import known
from tcsim.memory.tensor_memory import TensorMemory, require_tensor_memory
from tcsim.model.effects import Array, Effects, View
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.numbers.formats import FORMATS


@dataclass(frozen=True, eq=False, repr=False)
class TensorMemoryMultiply(TensorMemoryProduct):
    """D = A B + D, where D lies in Tensor Memory and the instruction descriptor says shape and formats.

    >>> mma = tcsim.instruction("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100a")
    >>> a = tcsim.MatrixDescriptor.for_tile(64, 16, "f16", arch="sm_100", swizzle="NONE")
    >>> b = tcsim.MatrixDescriptor.for_tile(8, 16, "f16", arch="sm_100", swizzle="NONE", start_address=a.bytes)
    >>> smem = np.concatenate([a.image(np.ones((64, 16), np.float16)), b.image(np.full((8, 16), 2, np.float16))])
    >>> idesc = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=64, n=8)
    >>> places = {"d": 0, "a": np.uint64(a.descriptor.encode()), "b": b.descriptor.encode()}
    >>> after = mma.execute(tcsim.TensorMemory.allocated(), smem, **places, idesc=idesc, enable_input_d=False)
    >>> after.read(0, [0, 7]).view(np.float32).tolist()
    [32.0, 32.0]
    """

    replicated = True

    @property
    def executed_by(self) -> tuple[str, ...]:
        """One thread."""
        return execution(self.row)

    @property
    def rules(self) -> tuple[str, ...]:
        """What the instruction descriptor may say, and where D lies."""
        return constraints(self)

    def execute(
        self,
        tmem: TensorMemory,
        smem: Any = None,
        *,
        d: int,
        a: Any,
        b: Any,
        idesc: int | InstructionDescriptor,
        enable_input_d: bool = True,
        scale_a: int | None = None,
        scale_b: int | None = None,
        metadata: int | None = None,
        lookup: int | None = None,
        disable_output_lane: Any = None,
        scale_input_d: int | None = None,
        zero_column_mask: int | None = None,
    ) -> TensorMemory:
        """The Tensor Memory after the instruction; the one that is given stays as it is.

        tmem: `tcsim.TensorMemory`, with ctas=2 for .cta_group::2. smem: uint8 (..., bytes), or (..., 2, bytes) for a pair
        of CTAs; its index the shared address. d, scale_a, scale_b, metadata, lookup: Tensor Memory addresses. a: a 64-bit matrix
        descriptor (uint64 array, or an int beyond 32 bits), or a Tensor Memory address. b: a matrix descriptor. The leading
        dimensions of tmem, smem and descriptors broadcast; the result has them all.
        disable_output_lane: 4 words of 32 lanes each, 8 for a pair. zero_column_mask: 64 bits (.ws).

        Raises OperandError for operands that the mnemonic does not have or that do not fit, TensorMemoryError for cells that are
        not allocated or were never written, or a memory used with another .cta_group.
        """
        given = Given(
            d, a, b, enable_input_d, scale_a, scale_b, metadata, lookup, disable_output_lane, scale_input_d, zero_column_mask
        )  # fmt: skip
        work, view = self._asked(given, idesc, tmem, smem, f"{self!r}.execute")
        view.apply((work.finish(work.fetch(view)),), f"{work.call}: d: write")
        return view.tmem

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The product goes on after the instruction: matrices are read when it is fetched, D is written when it is finished."""
        found = []
        for thread in range(len(operands["d"])):
            own: dict[str, Any] = {}
            for operand in form.operands:
                value = operands[operand.name]
                own[operand.name] = value if operand.kind == "immediate" else value[thread]
                if operand.kind != "vector":
                    own[operand.name] = (
                        np.uint64(own[operand.name]) if operand.type == ".b64" else int(own[operand.name])
                    )
            idesc, enable = own.pop("idesc"), bool(own.pop("enable_input_d"))
            given = Given(**own, enable_input_d=enable)
            found.append(Multiplication.of(self, idesc, given, view.rank, f"{self!r}.effects").pending(thread))
        return Effects(pending=tuple(found))

    def _asked(
        self, given: Given, idesc: Any, tmem: TensorMemory, smem: Any, call: str
    ) -> tuple[Multiplication, TensorMemoryView]:
        """The work, and a copy of the memories with the leading dimensions of all operands together."""
        require_tensor_memory(tmem, call)
        group = self.row.cta_group
        shapes = [tmem.batch, np.shape(smem)[: -1 - (group == 2)], np.shape(given.a), np.shape(given.b)]
        result = tmem.copy(broadcast(shapes, call))
        result.use_cta_group(group, call)
        if result.ctas != group:
            raise OperandError(
                f"{call}: tmem has {result.ctas} CTAs; valid: TensorMemory(ctas={group}) for .cta_group::{group}"
            )
        work = Multiplication.of(self, idesc, given, 0, call)
        memory = shared_bytes(smem, group, call)
        for name, shared in work.tiles.items():
            shared.tile.require_inside(memory.shape[-1], f"{call}: {name}")
        return work, TensorMemoryView(result, columns_of(self.arch), memory)

    def operands_of(
        self, row: int, column: int, tmem: TensorMemory, smem: Any = None, *, idesc: Any, **given: Any
    ) -> dict[str, Codes]:
        """The codes that make one element of D, read as `execute` with the same arguments reads them.

        a (..., K) of its row, b (..., K) of its column (of a sparse A the kept half, and what it meets; looked up), c (...), and
        the scales of both. Nothing is negated: `tcsim.trace` takes these codes, and negates them.

        Raises OperandError for an element that does not exist, and as `execute` does.
        """
        work, view = self._asked(Given(**given), idesc, tmem, smem, f"{self!r}.operands_of")
        return work.element(row, column, view)


_OPCODES = {
    "f16": "UTCHMMA",
    "tf32": "UTCHMMA",
    "ti16": "UTCHMMA",
    "f8f6f4": "UTCQMMA",
    "mxf8f6f4": "UTCQMMA",
    "i8": "UTCIMMA",
    "mxf4": "UTCOMMA",
    "mxf4nvf4": "UTCOMMA",
}
"""SASS by kind: H for 16 and 32 bits, Q for 8 and fewer, O for packed 4 bits, I for integers."""


def opcode(row: MultiplyRow, arch: Arch) -> str:
    """The machine instruction, as nvdisasm spells it."""
    words = [_OPCODES[row.kind.name]]
    words += ["LUTB"] * row.lookup + ["WS"] * row.weight_stationary + ["2CTA"] * (row.cta_group == 2)
    if row.block == 16:
        longer = any(depth.k == 96 for depth in row.kind.depths_on(arch))
        words.append("BLOCK16" if longer else "4X")
    words += ["ASHIFT"] * row.ashift
    return ".".join(words)


def lowering(row: MultiplyRow, arch: Arch) -> Lowering:
    """One instruction, one step: shown for the widest result of the kind and its smallest K."""
    opcodes = ((opcode(row, arch), 1),)
    d_format = "s32" if "s32" in row.kind.d_formats else "f32"
    products = row.k // 2 if row.sparse else row.k
    return Lowering("native", steps_of(row.kind.name, d_format, products, arch), opcodes)


_MODEL = "MMA-Sim, arXiv 2511.10909, for sm_100 (dense, one CTA); no hardware result was compared"


def evidence(row: MultiplyRow, arch: Arch) -> Evidence:
    """How what `lowering` says is known: never by a measurement of ours."""
    integers = "s32" in row.kind.d_formats
    base = "exact integers, by the PTX ISA; no hardware result was compared" if integers else _MODEL
    steps = []  # from the model that was published to this instruction
    if arch.name != "sm_100" and not integers:
        steps.append("the unit of sm_100")
    if row.sparse:
        steps.append("the kept products of a sparse A in one step" if not integers else "the kept products alone")
    if row.cta_group == 2 and not integers:
        steps.append("a pair of CTAs computes each output as one CTA does")
    if row.weight_stationary and not integers:
        steps.append(".ws computes each output as the plain instruction does")
    if row.ashift:
        steps.append(
            "row i of a shifted A is row i + 1, the last row of each CTA stays, and metadata stays where it is"
        )
    if row.lookup:
        steps.append(
            f"three-bit indices and tables of eight as the {PTX_MANUAL}, Triton's test on sm_107 and a simulator have them"
        )
    if any(FORMATS[name].sign_magnitude for name in row.kind.ab_formats):
        steps.append(
            f"a sign and eleven bits of magnitude, by the name and the range that the {PTX_MANUAL} gives; sums wrap"
        )
    if row.sparse and row.kind.unpaired_on(arch):
        steps.append(f"2:4 sparsity with the metadata of 8-bit kinds, as the {PTX_MANUAL} says of sm_107")
    if steps:
        return Evidence("inferred", f"{'; '.join(steps)}: from {base}")
    return known(arch, Evidence("literature", base))


def _family(name: str, rows: Callable[[str, bool], Iterator[MultiplyRow]], sparse: bool) -> Family[MultiplyRow]:
    return Family(name, lambda: tuple(rows(name, sparse)), lowering, evidence, TensorMemoryMultiply, "not modelled")


FAMILIES = (
    _family("tcgen05.mma", plain_rows, False),
    _family("tcgen05.mma.sp", plain_rows, True),
    _family("tcgen05.mma.ws", weight_stationary_rows, False),
    _family("tcgen05.mma.ws.sp", weight_stationary_rows, True),
)
