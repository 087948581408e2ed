"""spcompress and spdecompress of sm_107a: the rows the assembler accepts.

Sources: PTX ISA 9.4, sections spcompress and spdecompress (grammar, sizes and conditions of validity); ptxas 13.5.37.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import MappingProxyType

from tcsim.evidence import Evidence
from tcsim.families.tcgen05_targets import SM_107A
from tcsim.register_compression import CompressionForm, compression, compression_of
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch

NAME = "spcompress"
COUNTS = (1, 2, 4, 8, 16, 32, 64)
FACTORS = ((1, 2), (1, 4), (1, 8), (1, 16), (2, 4), (2, 8), (2, 16), (4, 8), (4, 16))
MOST_DATA = 128  # registers of the dense vector
MOST_REGISTERS = 253  # of all vectors together


def _registers(bits: int) -> int:
    return -(-bits // 32)


def _row(word: str, arithmetic: str, form: CompressionForm) -> Row:
    factor = f"{form.source}:{form.target}"
    return Row(
        f"{word}.b{form.bits}.b{form.index_bits}.sp::{factor}.x{form.count}",
        NAME,
        (0, 0, 0),
        MappingProxyType({}),
        SM_107A,
        "9.4",
        arithmetic,
        modifiers=MappingProxyType(
            {
                "elements": f".b{form.bits}",
                "index": f".b{form.index_bits}",
                "factor": factor,
                "count": f".x{form.count}",
            }
        ),
        facts=form,
    )


def _rows() -> Iterator[Row]:
    for bits, index, count in product((8, 16), (2, 4), COUNTS):
        widths = {"data": 2 * count, "cdata": count, "mdata": -(-count * index // bits)}
        yield _row("spcompress", "compress", CompressionForm(bits, index, 2, 4, count, widths))
    for bits, index, (source, target), count in product((8, 16), (2, 4), FACTORS, COUNTS):
        widths = {
            "data": _registers(target * bits * count),
            "mdata": _registers(source * index * count),
            "cdata": _registers(source * bits * count),
        }
        whole = source * bits <= 32 and target <= 1 << index and target * bits * count >= 32
        if whole and widths["data"] <= MOST_DATA and sum(widths.values()) <= MOST_REGISTERS:
            yield _row("spdecompress", "decompress", CompressionForm(bits, index, source, target, count, widths))


def rows() -> tuple[Row, ...]:
    """Every spelling."""
    return tuple(_rows())


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction, for which nvdisasm 13.5 prints a name that is none."""
    form = compression_of(row)
    if row.arithmetic == "compress":
        opcode = f"__HIR0X1C0.{form.bits}.U{form.index_bits}.2TO4.X{form.count}"
    else:
        opcode = f"__HIR0X1D0.{form.bits}.U{form.index_bits}.N{form.source}.M{form.target}.X{form.count}"
    return Lowering("native", (), ((opcode, 1),))


def evidence(row: Row, arch: Arch) -> Evidence:
    """The manual."""
    return Evidence("literature", f"PTX ISA 9.4, section {row.mnemonic.split('.')[0]}")


FAMILY = Family(NAME, rows, lowering, evidence, compression, "none: it selects elements")
