"""The pages of number formats and of archs."""

from __future__ import annotations

import tcsim
from generator.markdown import NOTICE, code, table
from tcsim.core.targets import ARCHS, TARGETS

FORMATS_INTRODUCTION = """\
One row per number format (`tcsim.FORMATS`). A *code* is the bit pattern of one value; an array of codes has the
unsigned dtype of the container. "NaN written" is the NaN that `tcsim.encode` writes, and the tensor core too where a
result has this format.
"""

TARGETS_INTRODUCTION = """\
An *arch* is a chip generation, as `--arch` and `tcsim.instruction(..., arch=)` take it. It runs the code of all its
*targets*. The PTX versions were found by trying every version with ptxas 12.9.86 (sm_70, sm_72) and 13.5.37 (the
others). Where nothing is known of an arch's arithmetic, the last column names the arch that it is taken from.
"""


def formats_page() -> str:
    """Every number format."""
    rows = [
        (
            code(f.name), f.kind, f.bits, f.container_bits, f.exponent_bits or "", f.fraction_bits or "", f.bias or "",
            "yes" if f.signed else "no", "yes" if f.infinity else "no",
            {"ieee": "yes", "all_ones": "all ones only", "none": "no"}[f.nan], f"{f.largest:.10g}",
            "" if f.canonical_nan is None else f"`{f.canonical_nan:#x}`", f.source,
        )
        for f in tcsim.FORMATS.values()
    ]  # fmt: skip
    head = (
        "format", "kind", "bits", "container bits", "exponent bits", "fraction bits", "bias", "sign", "infinity", "NaN",
        "largest", "NaN written", "source",
    )  # fmt: skip
    return f"# Number formats\n\n{NOTICE}\n\n{FORMATS_INTRODUCTION}\n{table(head, rows, (2, 3, 4, 5, 6))}\n"


def targets_page() -> str:
    """Every arch and its targets."""
    rows = []
    for arch in ARCHS.values():
        own = [f"{code(t.name)} ({t.ptx_version})" for t in TARGETS.values() if t.arch == arch.name]
        stands_in = "" if arch.relative == arch.name else arch.relative
        rows.append((code(arch.name), arch.generation, arch.example, ", ".join(own), stands_in))
    head = ("arch", "generation", "example", "targets (lowest PTX `.version`)", "arithmetic taken from")
    return f"# Archs and targets\n\n{NOTICE}\n\n{TARGETS_INTRODUCTION}\n{table(head, rows)}\n"
