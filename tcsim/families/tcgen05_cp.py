"""tcgen05.cp and tcgen05.shift: the rows the assembler accepts, what they move, machine code, how it is known.

Sources: PTX ISA 9.4, section Tensor Memory Data Movement Instructions; ptxas 13.5.37 (targets, versions, SASS). The
manual leaves three things open, which are inferred:
- Which half of the data each warp of a pair receives: see `tcsim.tmem_copy.ROW_MAPS`.
- Where the four rows of `.4x256b` go. ptxas and the manual's list of ordered pairs (shift before cp.4x256b) make it the copy
  that refills the row which a shift leaves over in each warp's 32 lanes.
- Which way is down in tcgen05.shift. A convolution whose next tap needs the next pixel moves row i + 1 to row i, and only
  then is the last row the one that "except the last" excepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from tcsim.evidence import Evidence
from tcsim.families.tcgen05_targets import ARCH_TARGETS, FAMILY_TARGETS
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch
from tcsim.tmem_copy import CopyToTensorMemory, SharedCopy, ShiftDown, ShiftTensorMemory, facts_of

COPY, SHIFT = "tcgen05.cp", "tcgen05.shift"


@dataclass(frozen=True)
class _Shape:
    """One spelling of the shape with its multicast."""

    name: str  # "64x128b"
    word: str  # ".warpx2::02_13", or nothing
    rows: int
    row_bytes: int
    multicast: str  # a key of tcsim.tmem_copy.ROW_MAPS
    opcode: str  # what SASS calls it
    evidence: Evidence


_MANUAL = Evidence("literature", "PTX ISA 9.4, section tcgen05.cp; CUTLASS, copy_sm100")
_PAIRS = Evidence(
    "literature", "PTX ISA 9.4, section tcgen05.cp; CUTLASS, copy_sm100, comments of the UTCCP operations"
)
_REFRESH = Evidence(
    "inferred", "probes by others on a GB200: lanes 32 apart, as a branch of Triton found; the manual is silent"
)
_DECOMPRESSED = Evidence(
    "inferred", "containers of fp6 and fp4 operands: bits 5:0 and 5:2; the manual shows them in figures only"
)
_SHIFTED = Evidence("inferred", "the section's words: the direction is not said, see tcsim/families/tcgen05_cp.py")

SHAPES = (
    _Shape("128x256b", "", 128, 32, "", "", _MANUAL),
    _Shape("4x256b", "", 4, 32, "4", ".4dp256bit", _REFRESH),
    _Shape("128x128b", "", 128, 16, "", ".128dp128bit", _MANUAL),
    _Shape("64x128b", ".warpx2::02_13", 64, 16, ".warpx2::02_13", ".2x64dp128bit_lw02_lw13", _PAIRS),
    _Shape("64x128b", ".warpx2::01_23", 64, 16, ".warpx2::01_23", ".2x64dp128bit_lw01_lw23", _PAIRS),
    _Shape("32x128b", ".warpx4", 32, 16, ".warpx4", ".4x32dp128bit", _MANUAL),
)
_FORMATS = {
    "": ("b8", ""),
    ".b8x16.b6x16_p32": ("b6x16_p32", ".U6x16P32"),
    ".b8x16.b4x16_p64": ("b4x16_p64", ".U4x16P64"),
}
"""By the end of the mnemonic: the format of a row, and what SASS calls it."""


def _copies() -> Iterator[Row]:
    for group, shape, (end, (source, _)) in product((1, 2), SHAPES, _FORMATS.items()):
        yield Row(
            f"{COPY}.cta_group::{group}.{shape.name}{shape.word}{end}",
            COPY,
            (shape.rows, shape.row_bytes, 0),  # rows and bytes: nothing is multiplied
            MappingProxyType({}),
            FAMILY_TARGETS,
            "8.6",
            source,
            modifiers=MappingProxyType(
                {"cta_group": f".cta_group::{group}", "shape": f".{shape.name}", "multicast": shape.word, "format": end}
            ),
            facts=SharedCopy(shape.rows, shape.row_bytes, shape.multicast, source, group),
        )


def copy_rows() -> tuple[Row, ...]:
    """tcgen05.cp."""
    return tuple(_copies())


def _shape_of(row: Row) -> _Shape:
    return next(s for s in SHAPES if (f".{s.name}", s.word) == (row.modifiers["shape"], row.modifiers["multicast"]))


def copy_lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction."""
    pair = ".2CTA" if facts_of(row).cta_group == 2 else ""
    return Lowering(
        "native", (), ((f"UTCCP.T.S{pair}{_shape_of(row).opcode}{_FORMATS[row.modifiers['format']][1]}", 1),)
    )


def copy_evidence(row: Row, arch: Arch) -> Evidence:
    """The manual and CUTLASS where they say it; no GPU was asked."""
    shape = _shape_of(row)
    return _DECOMPRESSED if row.modifiers["format"] and shape.evidence.level == "literature" else shape.evidence


def shift_rows() -> tuple[Row, ...]:
    """tcgen05.shift."""
    return tuple(
        Row(
            f"{SHIFT}.cta_group::{group}.down", SHIFT, (32, 8, 0), MappingProxyType({}), ARCH_TARGETS, "8.6", "down",
            modifiers=MappingProxyType({"cta_group": f".cta_group::{group}"}), facts=ShiftDown(group),
        )
        for group in (1, 2)
    )  # fmt: skip


def shift_lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction."""
    return Lowering("native", (), ((f"UTCSHIFT{'.2CTA' if facts_of(row).cta_group == 2 else ''}.DOWN", 1),))


def shift_evidence(row: Row, arch: Arch) -> Evidence:
    """Inferred."""
    return _SHIFTED


COPY_FAMILY = Family(COPY, copy_rows, copy_lowering, copy_evidence, CopyToTensorMemory)
SHIFT_FAMILY = Family(SHIFT, shift_rows, shift_lowering, shift_evidence, ShiftTensorMemory)
