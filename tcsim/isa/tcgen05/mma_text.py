"""What `tcsim show` says of tcgen05.mma: shapes and formats that a descriptor may name, layouts of D, who issues it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tcsim.core.errors import listing
from tcsim.descriptors.kinds import LOOKUP_FORMAT, scale_vectors, shapes_of
from tcsim.isa.tcgen05.mma_rows import MultiplyRow
from tcsim.memory.tmem_layout import data_path

if TYPE_CHECKING:  # its rules are written here
    from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply


def execution(row: MultiplyRow) -> tuple[str, ...]:
    """Who issues a tcgen05.mma, and how its end is awaited."""
    where = "a pair of CTAs" if row.cta_group == 2 else "its CTA"
    return (
        f"one thread issues it, for the Tensor Memory of {where}",
        "asynchronous: tcgen05.commit and a wait on its mbarrier before D is read or operands are changed",
    )


def constraints(instruction: TensorMemoryMultiply) -> tuple[str, ...]:
    """What the instruction descriptor may say, and where D lies for each M.

    >>> mma = tcsim.instruction("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100a")
    >>> print(*constraints(mma), sep="\\n")
    M and N come with the instruction descriptor (tcsim idesc): M 64: N a multiple of 8 from 8 to 256; M 128: N a multiple of 8 from 8 to 256 with A in shared memory; M 128: N a multiple of 16 from 16 to 256 with A in Tensor Memory
    K: 16
    A and B in f16, bf16; D in f16, f32
    D of M 64: layout F, row r at lane r%16 + 32*(r/16), column n at column n; the address may begin at lane 0 or 16
    D of M 128: layout D, row r at lane r, column n at column n
    operands: desc, desc_scale, desc_lanes, desc_lanes_scale, tmem, tmem_scale, tmem_lanes, tmem_lanes_scale
    """
    return tuple(_lines(instruction))


def _lines(instruction: TensorMemoryMultiply) -> Iterator[str]:
    row, arch = instruction.row, instruction.arch.name
    kind = row.kind
    shapes = shapes_of(kind.name, row.cta_group, row.weight_stationary, row.sparse)
    places = {None: "", False: " with A in shared memory", True: " with A in Tensor Memory"}
    both = {m for shape in shapes if shape.a_in_tmem is False for m in shape.m}  # elsewhere the next row holds
    sizes = [
        (m, shape.rule + places[shape.a_in_tmem if shape.a_in_tmem is not None or m not in both else True])
        for shape in shapes
        for m in shape.m
        if m == 128 * row.cta_group or not (row.ashift or row.lookup)
    ]
    rules = "; ".join(f"M {m}: N {rule}" for m, rule in sizes)
    yield f"M and N come with the instruction descriptor (tcsim idesc): {rules}"
    depths = [depth.k for depth in kind.depths_on(arch, row.sparse)]
    if row.lookup:
        depths = [row.k]
        yield f"B: indices of three bits; each 8 columns have a table of 8 numbers in {LOOKUP_FORMAT}"
    yield f"K: {listing(depths)}" + (", zeros of A included" if row.sparse else "")
    own = "A" if row.lookup else "A and B"
    formats = (
        next(depth.formats for depth in kind.depths if (depth.k, depth.sparse) == (row.k, row.sparse))
        or kind.ab_formats
    )
    yield f"{own} in {listing(name for name in kind.ab_formats if name in formats)}; D in {listing(kind.d_formats)}"
    if row.block:
        yield f"a scale factor in {listing(scale_vectors(kind.name, arch)[row.block])} for each {row.block} elements along K"
    for m in dict.fromkeys(m for m, _ in sizes):
        yield f"D of M {m}: {_layout(row, m)}"
    forms = [form.name for form in row.forms if set(form.targets) & set(instruction.targets)]
    yield f"operands: {listing(forms, 30)}"


def _layout(row: MultiplyRow, m: int) -> str:
    """One layout of D in words; the places are those of `accumulator_layout`."""
    path = data_path(m, row.cta_group, ws=row.weight_stationary, sparse=row.sparse)
    own = m // row.cta_group
    lane = "r" if len(path.lanes) == 1 else "r%16 + 32*(r/16)"
    cta = f" of CTA row/{own}, r = row%{own}" if row.cta_group == 2 else ""
    name = "row r" if row.cta_group == 1 else "row"
    text = f"layout {path.name}, {name} at lane {lane}{cta}, "
    if path.banks == 1:
        text += "column n at column n"
    else:
        text += f"column n at lane + {path.bank_lanes}*(n/(N/{path.banks})), column n%(N/{path.banks})"
    bases = path.lane_bases
    return text + (f"; the address may begin at lane {' or '.join(map(str, bases))}" if len(bases) > 1 else "")
