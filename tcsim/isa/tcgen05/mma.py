"""tcgen05.mma, .mma.sp, .mma.ws and .mma.ws.sp: what each becomes on each arch, and how that is known.

Sources: MMA-Sim, arXiv 2511.10909 (dense products on sm_100); PTX ISA, tcgen05.mma and its kin; ptxas 13.5 with nvdisasm
(opcodes).
"""

from __future__ import annotations

from typing import Any

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.isa.tcgen05.mma_form import MultiplyForm
from tcsim.isa.tcgen05.mma_lowering import steps_of
from tcsim.isa.tcgen05.mma_rows import plain_rows, weight_stationary_rows
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.model.family import Family
from tcsim.model.row import Row
from tcsim.numbers.formats import FORMATS

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


def facts_of(row: Row) -> MultiplyForm:
    """What a row's spelling says.

    Raises TypeError for a row of another family.
    """
    if not isinstance(row.facts, MultiplyForm):
        raise TypeError(f"{row.mnemonic} has no tcgen05.mma facts")
    return row.facts


def opcode(facts: MultiplyForm, arch: Arch) -> str:
    """The machine instruction, as nvdisasm spells it."""
    words = [_OPCODES[facts.kind.name]]
    words += ["LUTB"] * facts.lookup + ["WS"] * facts.weight_stationary + ["2CTA"] * (facts.cta_group == 2)
    if facts.block == 16:
        words.append("BLOCK16" if arch.number in (103, 107) else "4X")  # the generations that know K = 96
    words += ["ASHIFT"] * facts.ashift
    return ".".join(words)


def lowering(row: Row, arch: Arch) -> Lowering:
    """One instruction, one step: shown for the widest result of the kind and its smallest K."""
    facts = facts_of(row)
    opcodes = ((opcode(facts, arch), 1),)
    d_format = "s32" if "s32" in facts.kind.d_formats else "f32"
    products = facts.k // 2 if facts.sparse else facts.k
    return Lowering("native", steps_of(facts.kind.name, d_format, products, arch), opcodes)


_MODEL = "MMA-Sim, arXiv 2511.10909, for sm_100 (dense, one CTA); no hardware result was compared"


def evidence(row: Row, arch: Arch) -> Evidence:
    """How what `lowering` says is known: never by a measurement of ours."""
    facts = facts_of(row)
    integers = "s32" in facts.kind.d_formats
    base = "exact integers, by the PTX ISA; no hardware result was compared" if integers else _MODEL
    steps = []  # from the model that was published to this instruction
    if arch.name != "sm_100" and not integers:
        steps.append("the unit of sm_100")
    if facts.sparse:
        steps.append("the kept products of a sparse A in one step" if not integers else "the kept products alone")
    if facts.cta_group == 2 and not integers:
        steps.append("a pair of CTAs computes each output as one CTA does")
    if facts.weight_stationary and not integers:
        steps.append(".ws computes each output as the plain instruction does")
    if facts.ashift:
        steps.append(
            "row i of a shifted A is row i + 1, the last row of each CTA stays, and metadata stays where it is"
        )
    if facts.lookup:
        steps.append(
            "three-bit indices and tables of eight as the PTX ISA 9.4, Triton's test on sm_107 and a simulator have them"
        )
    if any(FORMATS[name].sign_magnitude for name in facts.kind.ab_formats):
        steps.append(
            "a sign and eleven bits of magnitude, by the name and the range that the PTX ISA 9.4 gives; sums wrap"
        )
    if facts.sparse and arch.name in facts.kind.unpaired:
        steps.append("2:4 sparsity with the metadata of 8-bit kinds, as the PTX ISA 9.4 says of sm_107")
    if steps:
        return Evidence("inferred", f"{'; '.join(steps)}: from {base}")
    return Evidence("literature", base)


def _family(name: str) -> Family[Any]:
    sparse = name.endswith(".sp")
    make = weight_stationary_rows if ".ws" in name else plain_rows
    return Family(name, lambda: tuple(make(name, sparse)), lowering, evidence, TensorMemoryMultiply, "not modelled")


FAMILIES = tuple(_family(name) for name in ("tcgen05.mma", "tcgen05.mma.sp", "tcgen05.mma.ws", "tcgen05.mma.ws.sp"))
