"""What tests/house/test_conditions.py calls the functions with that state conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import tcsim
from tcsim.core.errors import TcsimError
from tcsim.descriptors.bit_field import Field
from tcsim.descriptors.forms import FORMS
from tcsim.layouts.block_scales import ScaleLayout
from tcsim.layouts.layout import Layout
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES, SWIZZLES, Swizzle
from tcsim.memory.mbarrier import MBarrier

Call = st.SearchStrategy[tuple[Any, ...]]
EXTENT, STRIDE = st.integers(1, 4), st.integers(0, 12)


@st.composite
def layouts(draw: st.DrawFn, modes: int = 3) -> Layout:
    """Small layouts, nested ones too."""
    extents = draw(st.lists(EXTENT, min_size=1, max_size=modes))
    if draw(st.booleans()):  # compact, in some order: those that have inverses and complements
        strides, step = [0] * len(extents), draw(st.integers(1, 2))
        for place in draw(st.permutations(range(len(extents)))):
            strides[place], step = step, step * extents[place]
    else:
        strides = [draw(STRIDE) for _ in extents]
    if len(extents) == 3 and draw(st.booleans()):
        return Layout((extents[0], tuple(extents[1:])), (strides[0], tuple(strides[1:])))
    return Layout(extents[0], strides[0]) if len(extents) == 1 else Layout(tuple(extents), tuple(strides))


FRAGMENTS = [
    tcsim.instruction(name, arch=arch).operands[operand].layout
    for name, arch, operand in (
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90", "a"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90", "b"),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_90", "b"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_90", "d"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70", "a"),
    )
]
SPARSITIES = [
    tcsim.instruction(name, arch="sm_90").sparsity
    for name in (
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
        "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
        "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    )
]
SCALES = [ScaleLayout("a", 16, 1), ScaleLayout("b", 8, 1), ScaleLayout("a", 16, 4), ScaleLayout("b", 8, 2)]
FIELDS = [
    Field("plain", 3, 5),
    Field("unit", 16, 14, 16, "bytes"),
    Field("less", 0, 3, less=1),
    Field("signed", 8, 8, signed=True),
    Field("negated", 1, 20, negated=True),
    Field("both", 21, 21, negated=True, signed=True),
    Field("split", 32, 8, 16, high=60, high_bits=4),
]
WORD = st.integers(0, (1 << 64) - 1)
ARCHS = st.sampled_from(["sm_75", "sm_80", "sm_90", "sm_100", "sm_107"])


def random(shape: tuple[int, ...], below: int, dtype: Any, seed: int) -> np.ndarray:
    """Integers from a seed."""
    return np.random.default_rng(seed).integers(0, below, shape, dtype=dtype)


@st.composite
def places(draw: st.DrawFn, layout: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """A layout, and one index for each of the named extents: at times one too large."""
    return (layout, *(draw(st.integers(-1, getattr(layout, name))) for name in names))


@st.composite
def tiles(draw: st.DrawFn) -> tuple[Any, ...]:
    """Arguments of MatrixDescriptor.for_tile."""
    arch = draw(st.sampled_from(["sm_90", "sm_100", "sm_107"]))
    name = draw(st.sampled_from(["f16", "e4m3", "tf32", "e2m1"]))
    swizzle = draw(st.sampled_from(list(FORMS[arch].modes)))
    kind = draw(st.sampled_from(["f8f6f4", "mxf4"])) if name == "e2m1" else ""
    start = 1024 * draw(st.integers(0, 8))
    major = draw(st.sampled_from(["K", "MN"]))
    return (
        8 * draw(st.integers(1, 16)),
        16 * draw(st.sampled_from([1, 2, 4, 8, 16])),
        name,
        major,
        swizzle,
        start,
        arch,
        kind,
    )


@st.composite
def made_tiles(draw: st.DrawFn) -> Any:
    """Tiles that exist."""
    while True:
        try:
            return tcsim.MatrixDescriptor.for_tile(*draw(tiles()))
        except TcsimError:
            continue


@st.composite
def descriptors(draw: st.DrawFn) -> tcsim.MatrixDescriptor:
    """Matrix descriptors: at times with an offset that does not fit."""
    arch = draw(st.sampled_from(["sm_90", "sm_100", "sm_107"]))
    start, leading, stride = (16 * draw(st.integers(0, 1 << 14)) for _ in range(3))
    base = draw(st.integers(0, 7)) if arch == "sm_90" else 0
    return tcsim.MatrixDescriptor(
        start, leading, stride, base, draw(st.sampled_from(list(FORMS[arch].modes))), arch=arch
    )


@st.composite
def readings(draw: st.DrawFn) -> tuple[Any, ...]:
    """A descriptor, and the tile that it reads: rows, k, format, major."""
    name = draw(st.sampled_from(["f16", "e4m3", "e3m2"]))
    kind = "f8f6f4" if name == "e3m2" else ""
    one = draw(descriptors())
    major = draw(st.sampled_from(["K", "MN"]))
    return one, 8 * draw(st.integers(1, 4)), 16 * draw(st.integers(1, 3)), name, major, kind


@st.composite
def barriers(draw: st.DrawFn) -> MBarrier:
    """Barriers in any state."""
    one = MBarrier(draw(st.integers(1, 4)))
    if draw(st.booleans()):  # all arrivals come, and the bytes have come before they were expected
        one.complete_tx(1)
        one.arrive(one.pending)
    for name, number in draw(
        st.lists(st.tuples(st.sampled_from(["arrive", "arrive_drop", "expect_tx", "complete_tx"]), st.integers(1, 3)))
    ):
        try:
            getattr(one, name)(number)
        except TcsimError:
            continue
    return one


BYTES = st.one_of(st.integers(-1, 4), st.sampled_from([(1 << 20) - 1, 1 << 20]))


def with_barrier(*rest: Call) -> Call:
    """A barrier and further arguments."""
    return st.tuples(barriers(), *rest)


def each(items: list[Any], *rest: Any) -> Call:
    """One of the items, and further arguments."""
    return st.tuples(st.sampled_from(items), *rest)


@st.composite
def scale_places(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[Any, ...]:
    """A scale layout, its selectors, and indices where it has names for them."""
    layout = draw(st.sampled_from(SCALES))
    indices = [draw(st.integers(-1, getattr(layout, name))) for name in names]
    return layout, *indices, {"byte_id": draw(st.integers(0, 3)), "thread_id": draw(st.integers(0, 3))}


@st.composite
def scale_bytes(draw: st.DrawFn) -> tuple[Any, ...]:
    """A scale layout, a byte of its lanes: one that is read, or any."""
    layout = draw(st.sampled_from(SCALES))
    ids = {"byte_id": draw(st.sampled_from(layout.byte_ids)), "thread_id": draw(st.sampled_from(layout.thread_ids))}
    read = draw(st.one_of(st.sampled_from(layout.places(**ids).reshape(-1).tolist()), st.integers(0, 127)))
    return layout, read // 4, draw(st.sampled_from([0, 0, 0, 1])), read % 4, ids


@st.composite
def scale_arrays(draw: st.DrawFn, words: bool) -> tuple[Any, ...]:
    """A scale layout, registers or scales, and selectors that it has."""
    layout, seed = draw(st.sampled_from(SCALES)), draw(st.integers(0, 99))
    array = (
        random((2, 32), 1 << 32, np.uint32, seed)
        if words
        else random((2, layout.rows, layout.columns), 256, np.uint8, seed)
    )
    return layout, array, draw(st.sampled_from(layout.byte_ids)), draw(st.sampled_from(layout.thread_ids))


@st.composite
def sparse(draw: st.DrawFn, what: str) -> tuple[Any, ...]:
    """A sparsity, and what one of its methods takes."""
    one, seed = draw(st.sampled_from(SPARSITIES)), draw(st.integers(0, 99))
    selector = draw(st.sampled_from(one.selectors))
    groups = np.array(one.valid, np.uint8)[random((2, one.rows, one.groups), len(one.valid), np.int64, seed)]
    if what == "metadata":
        return one, random((2, one.lanes), 1 << 32, np.uint32, seed), selector
    if what == "dense":
        dense = random((one.rows, one.k), 256, np.uint8, seed)
        dense[np.random.default_rng(seed).random(dense.shape) < 0.9] = 0
        return one, dense, dense == 0
    given = {"words": (groups, selector), "groups": (groups,), "positions": (one.positions_of(groups),)}
    return one, *given[what]


@st.composite
def swizzled(draw: st.DrawFn) -> tuple[Any, ...]:
    """A swizzle, an address, a base offset."""
    return (
        draw(st.sampled_from(list(DESCRIPTOR_SWIZZLES.values()))),
        draw(st.integers(0, 1 << 16)),
        draw(st.sampled_from([0, 0, 3])),
    )


@st.composite
def accesses(draw: st.DrawFn) -> tuple[Any, ...]:
    """Addresses of a warp, or of part of one."""
    width = draw(st.sampled_from([1, 2, 4, 8, 16, 3]))
    addresses = draw(st.lists(st.integers(0, 64), max_size=33))
    step = draw(st.sampled_from([width, width, width, 1]))
    active = draw(st.one_of(st.none(), st.just([place % 3 == 0 for place in addresses]))) if addresses else None
    return (
        [step * place for place in addresses],
        width,
        active,
        draw(st.sampled_from(["load", "store", "matrix", "turns"])),
    )


@st.composite
def memories(draw: st.DrawFn) -> tuple[Any, ...]:
    """Bytes, bit addresses in them and the format of what lies there."""
    form = tcsim.FORMATS[draw(st.sampled_from(["f16", "f32", "e4m3", "e2m1", "e3m2"]))]
    memory = random((24,), 256, np.uint8, draw(st.integers(0, 99)))
    unit = form.container_bits if form.bits >= 8 else form.bits
    places = draw(st.lists(st.integers(0, 200 // unit), min_size=4, max_size=4))
    return memory, np.array(places).reshape(2, 2) * unit, form, "a"


@st.composite
def rows_along_k(draw: st.DrawFn) -> tuple[Any, ...]:
    """Arguments of along_k."""
    kinds = [("f16", ""), ("e4m3", ""), ("e2m1", "mxf4"), ("e2m1", "f8f6f4"), ("e3m2", ""), ("e2m1", "")]
    name, kind = draw(st.sampled_from(kinds))
    return draw(st.integers(1, 70)), tcsim.FORMATS[name], kind, "sm_100" if name in ("e2m1", "e3m2") else "sm_90"


@st.composite
def read_by_descriptors(draw: st.DrawFn) -> tuple[Any, ...]:
    """Arguments of element_addresses."""
    one, rows, k, name, major, kind = draw(readings())
    try:
        value = one.encode()
    except TcsimError:
        value = 0x4000004000000040
        one = tcsim.MatrixDescriptor.decode(value)
    return np.array([value, value], np.uint64), rows, k, tcsim.FORMATS[name], major, one.arch, kind


@st.composite
def barrier_numbers(draw: st.DrawFn) -> tuple[Any, ...]:
    """Numbers of an mbarrier object's fields."""
    names = draw(st.lists(st.sampled_from(["expected", "pending", "phase", "tx_count", "layout"]), unique=True))
    largest = {"expected": 1 << 20, "pending": 1 << 20, "phase": 1, "tx_count": 1 << 19, "layout": 1}
    return {name: draw(st.integers(0, largest[name])) for name in names}, draw(
        st.sampled_from(["sm_80", "sm_90", "sm_107"])
    )


@st.composite
def encoded(draw: st.DrawFn) -> tuple[int, str]:
    """64 bits, most of them a matrix descriptor, and an arch."""
    try:
        one = draw(descriptors())
        return one.encode() ^ draw(st.sampled_from([0, 0, 0, 1 << 15, 1 << 46, 1 << 61, 1 << 64])), one.arch
    except TcsimError:
        return draw(WORD), "sm_90"


_A, _L, _S, _B = (
    "tcsim.layouts.algebra.",
    "tcsim.layouts.layout.",
    "tcsim.layouts.sparsity.Sparsity.",
    "tcsim.memory.mbarrier.MBarrier.",
)
_SCALE, _M, _C = (
    "tcsim.layouts.block_scales.ScaleLayout.",
    "tcsim.descriptors.matrix.MatrixDescriptor.",
    "tcsim.descriptors.canonical_tile.",
)
_BITS, _F = "tcsim.memory.mbarrier_bits.", "tcsim.descriptors.bit_field.Field."
CALLS: dict[str, Call] = {
    _A + "coalesce": st.tuples(layouts()),
    _A + "cosize": st.tuples(layouts()),
    _A + "composition": st.tuples(layouts(), st.one_of(layouts(2), st.just((Layout(2, 1),)))),
    _A + "complement": st.tuples(layouts(), st.integers(0, 24)),
    _A + "logical_divide": st.tuples(layouts(), st.one_of(layouts(1), st.just((2, 1)))),
    _A + "logical_product": st.tuples(layouts(2), st.one_of(layouts(1), st.integers(1, 3))),
    _A + "right_inverse": st.tuples(layouts()),
    _A + "left_inverse": st.tuples(layouts()),
    _L + "Layout.__call__": st.one_of(
        st.tuples(layouts(), st.integers(-1, 64)), st.sampled_from([(Layout((4, (2, 3)), (6, (1, 2))), 3, (1, 2))])
    ),
    _L + "FragmentLayout.__call__": st.sampled_from(FRAGMENTS).flatmap(lambda x: places(x, ("lanes", "registers", "slots"))),
    _L + "FragmentLayout.where": st.sampled_from(FRAGMENTS).flatmap(lambda x: places(x, ("rows", "columns", "matrices"))),
    _L + "FragmentLayout.holder": each(FRAGMENTS),
    _L + "FragmentLayout.flat_holder": each(FRAGMENTS),
    "tcsim.layouts.swizzle.Swizzle.__call__": swizzled(),
    "tcsim.layouts.swizzle.Swizzle.period": each([*DESCRIPTOR_SWIZZLES.values(), Swizzle(1, 3, 2)]),
    "tcsim.layouts.swizzle.swizzle": each([*SWIZZLES, "256B", 3]),
    "tcsim.layouts.banks.bank_conflicts": accesses(),
    _S + "places": each(SPARSITIES, st.integers(0, 4)),
    _S + "groups_of": sparse("metadata"),
    _S + "words_of": sparse("words"),
    _S + "positions_of": sparse("groups"),
    _S + "groups_for": sparse("positions"),
    _S + "columns": sparse("positions"),
    _S + "compress": sparse("dense"),
    _SCALE + "places": scale_places(()),
    _SCALE + "where": scale_places(("rows", "columns")),
    _SCALE + "__call__": scale_bytes(),
    _SCALE + "gather": scale_arrays(words=True),
    _SCALE + "scatter": scale_arrays(words=False),
    _F + "mask": each(FIELDS),
    _F + "take": each(FIELDS, WORD),
    _F + "take_array": each(FIELDS[:-1], st.lists(WORD, max_size=4).map(lambda words: np.array(words, np.uint64))),
    _F + "put": each(FIELDS, st.one_of(st.integers(-40, 300), st.integers(0, 1 << 19).map(lambda x: 16 * x))),
    "tcsim.descriptors.forms.form_of": each(["sm_90a", "sm_100", "sm_103", "sm_107a", "sm_80", "sm_120"]),
    _M + "decode": encoded(),
    _M + "encode": st.tuples(descriptors()),
    _M + "for_tile": tiles(),
    _M + "check": readings().map(lambda x: (*x[:5], {"kind": x[5]})),
    _M + "describe": st.tuples(descriptors()),
    _M + "addresses": readings(),
    _M + "bit_addresses": readings(),
    _C + "PlacedTile.advances": st.tuples(made_tiles()),
    _C + "PlacedTile.addresses": st.tuples(made_tiles()),
    _C + "PlacedTile.bit_addresses": st.tuples(made_tiles()),
    _C + "PlacedTile.image": st.tuples(made_tiles(), st.integers(0, 99)).map(
        lambda x: (x[0], random((2, x[0].rows, x[0].k), 1 << x[0].format.bits, x[0].format.dtype, x[1]))
    ),
    "tcsim.descriptors.elements.read_elements": memories(),
    "tcsim.descriptors.addresses.along_k": rows_along_k(),
    "tcsim.descriptors.addresses.element_addresses": read_by_descriptors(),
    "tcsim.descriptors.addresses.element_bit_addresses": read_by_descriptors(),
    _BITS + "unpack": st.tuples(st.one_of(st.integers(-1, 1 << 64), WORD.map(lambda x: x & ~1)), ARCHS),
    _BITS + "pack": barrier_numbers(),
    _BITS + "pending_count": st.tuples(st.one_of(WORD, st.sampled_from([-1, 1 << 64])), ARCHS),
    _BITS + "counts": st.tuples(st.one_of(WORD, st.sampled_from([-1, 1 << 64])), ARCHS),
    "tcsim.memory.mbarrier_object.decode_barrier": st.tuples(WORD, ARCHS),
    "tcsim.memory.mbarrier_object.initial_barrier": st.tuples(st.integers(0, 1 << 20), st.sampled_from(["sm_80", "sm_90"])),
    _B + "encode": with_barrier(st.sampled_from(["sm_80", "sm_90"])).map(lambda x: (x[0], {"arch": x[1]})),
    _B + "tx_count": with_barrier(),
    _B + "arrive": with_barrier(st.integers(0, 4), st.booleans()),
    _B + "arrive_drop": with_barrier(st.integers(0, 4), st.booleans()),
    _B + "expect_tx": with_barrier(BYTES),
    _B + "complete_tx": with_barrier(BYTES),
    _B + "arrive_expect_tx": with_barrier(BYTES),
    _B + "arrive_drop_expect_tx": with_barrier(BYTES),
    _B + "test_wait": with_barrier(st.integers(-1, 2)).map(lambda x: (x[0], tcsim.memory.mbarrier.BarrierState(x[1], 1))),
    _B + "test_wait_parity": with_barrier(st.integers(-1, 2)),
}  # fmt: skip
"""Function -> arguments; a dict at their end is keyword arguments."""
