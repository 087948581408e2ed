"""Effects of bulk and tensor copies against the slow model: maps in memory, absolute addresses, multicast, halves of a store."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim import catalog
from tcsim.core.addresses import MisalignedAddressError
from tcsim.core.errors import NotModelledError, OperandError
from tcsim.model.effects import Effects, Memories, Outcome
from tcsim.tma.types import DATA_TYPES, TensorMapError
from tests.exact import copies as exact_copies
from tests.exact import tensor_copy as exact
from tests.support.extent import examples
from tests.support.tensor_cases import Case, columns, interleaved, interleaved_columns, tiled

BASE = 0x4000
"""The address of the tensor."""
MAPS = 0x200
"""Where its map lies."""
LOADS = {"": "", "rows4": ".tile::gather4", "im2col": ".im2col"}
STORES = {"": ".tile", "rows4": ".tile::scatter4", "im2col": ".im2col_no_offs"}
STORABLE = tuple(name for name, facts in DATA_TYPES.items() if not facts.load_only)
PLAIN = tuple(name for name, facts in DATA_TYPES.items() if facts.bits >= 8)


def view_of(case: Case) -> Memories:
    """Global memory with the tensor at its address and the map at its own; shared memory as in the case."""
    image = np.full(BASE + len(case.memory) + 64, 0x5A, np.uint8)
    image[MAPS : MAPS + 128] = np.frombuffer(case.tmap.encode(BASE), np.uint8)
    image[BASE : BASE + len(case.memory)] = case.memory
    return Memories({"global": image, "generic": image, "shared": case.smem})


def asked(case: Case, mnemonic: str, **more: Any) -> tuple[Effects, Memories]:
    """The effects of a copy of a case."""
    item = tcsim.instruction(mnemonic, arch="sm_100")
    operands: dict[str, Any] = {
        "tensor_map": np.array([MAPS]),
        "coordinates": np.array([case.coordinates], np.int64).astype(np.uint32),
        "address": np.array([case.address]),
        "barrier": np.array([8]),
        **more,
    }
    if ".im2col." in mnemonic:
        spatial = len(case.tmap.global_dim) - 2
        operands["offsets"] = np.array([case.offsets or (0,) * spatial], np.uint16)
    view = view_of(case)
    return item.effects(item.forms[0], operands, view), view


def kind_of(case: Case) -> str:
    """The mode that a case needs."""
    return "im2col" if case.tmap.im2col_mode else "rows4" if len(case.coordinates) > case.tmap.rank else ""


def load_of(case: Case, ending: str = "", space: str = "shared::cta") -> str:
    """The spelling that loads a case."""
    dim, mode = case.tmap.rank, LOADS[kind_of(case)]
    return f"cp.async.bulk.tensor.{dim}d.{space}.global{mode}.mbarrier::complete_tx::bytes{ending}"


def store_of(case: Case, op: str = "") -> str:
    """The spelling that stores or reduces a case."""
    family = "cp.reduce.async.bulk.tensor" if op else "cp.async.bulk.tensor"
    return f"{family}.{case.tmap.rank}d.global.shared::cta{'.' * bool(op)}{op}{STORES[kind_of(case)]}.bulk_group"


def agree_on_load(case: Case) -> None:
    effects, view = asked(case, load_of(case))
    (work,) = effects.pending
    outcome = work.finish(work.fetch(view))
    want = exact.load(case.slow, case.memory.tolist(), case.coordinates, case.smem.tolist(), case.address)
    assert view.after((outcome,))["shared"].tolist() == want, (case.tmap, case.coordinates)
    (signal,) = outcome.signals
    assert (signal.kind, signal.at.address.tolist(), signal.at.cta) == ("complete_tx", [8], None)
    assert 8 * signal.count.tolist()[0] == exact.payload_bits(case.slow, case.coordinates)
    assert work.group is None and effects.now == Outcome()
    assert [read.space for read in effects.reads] == ["generic"]
    assert all(read.space == "global" and (read.address >= BASE).all() for read in work.reads)


@examples(300)
@given(tiled())
def test_tiled_loads(case: Case) -> None:
    """Every type and swizzle, boxes across the edges; the barrier gets all bytes of the box, those outside the tensor too."""
    agree_on_load(case)


@examples(100)
@given(st.one_of(columns(), interleaved(), interleaved_columns(), tiled(rows4=True)))
def test_loads_of_other_modes(case: Case) -> None:
    """im2col, interleaved layouts, gather4."""
    agree_on_load(case)


def agree_on_store(case: Case, op: str = "") -> None:
    effects, view = asked(case, store_of(case, op))
    (work,) = effects.pending
    data = work.fetch(view)
    later = replace(view, images={**view.images, "shared": np.zeros_like(case.smem)})  # the source may be used again
    after = later.after((work.finish(data),))["global"]
    want = exact.store(case.slow, case.memory.tolist(), case.coordinates, case.smem.tolist(), case.address, op)
    assert after[BASE : BASE + len(want)].tolist() == want, (case.tmap, case.coordinates, op)
    assert np.array_equal(after[:BASE], view.images["global"][:BASE])
    assert (work.group, work.finish(data).signals) == ("bulk", ())
    (source,), unit = work.reads, case.tmap.unit
    read = np.broadcast_to(True if source.mask is None else source.mask, data.shape)
    outcomes = (work.finish(own).writes for own in (data, np.where(read, data, ~data)))
    for one, other in zip(*outcomes, strict=True):  # only what is read counts
        assert np.array_equal(one.data, other.data)
    written = sum(own.address.size * own.size if own.mask is None else own.mask.sum() for own in work.writes)
    assert read.sum() * unit.global_bytes == written * unit.shared_bytes  # and all of that does


@examples(200)
@given(tiled(types=STORABLE, direction="store"))
def test_tiled_stores(case: Case) -> None:
    """Shared memory is read at `fetch` alone; bytes outside the tensor stay."""
    agree_on_store(case)


@examples(60)
@given(
    st.one_of(
        columns(direction="store", types=("UINT16", "FLOAT32", "INT64")),
        interleaved(direction="store"),
        tiled(types=("FLOAT16", "UINT8", "UINT64"), direction="store", rows4=True),
    )
)
def test_stores_of_other_modes(case: Case) -> None:
    """im2col_no_offs, interleaved layouts, scatter4."""
    agree_on_store(case)


@examples(80)
@given(
    tiled(types=("UINT32",), direction="store"),
    st.sampled_from(("add", "min", "max", "inc", "dec", "and", "or", "xor")),
)
def test_reductions(case: Case, op: str) -> None:
    """What lands is combined with what is there when it lands."""
    agree_on_store(case, op)


@examples(30)
@given(tiled(types=("FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64"), direction="store"))
def test_float_additions(case: Case) -> None:
    """Of each type that is added."""
    agree_on_store(case, "add")


# --- what else a tensor copy says


def plain_case(seed: int = 0, swizzle: str = "128B") -> Case:
    """A box of 64 x 8 f16 of a matrix of 64 x 16."""
    tmap = tcsim.TensorMap("FLOAT16", (64, 16), (128,), (64, 8), swizzle=swizzle)
    slow = exact.Map("FLOAT16", (64, 16), (128,), (64, 8), (1, 1), swizzle, False)
    random = np.random.default_rng(seed)
    memory, smem = (random.integers(0, 256, size, np.uint8) for size in (2048, 4096))
    return Case(tmap, slow, (0, 4), None, 1024, memory, smem)


@pytest.mark.parametrize(
    ("ending", "barrier", "told"),
    [
        (".multicast::cluster", 8, [0, 2, 3]),
        (".multicast::cluster.cta_group::1", 8, [0, 2, 3]),
        (".multicast::cluster.cta_group::2", 8, [0, 2, 2]),  # of each pair the even CTA
        (".multicast::cluster.cta_group::2", 8 | 1 << 24, [1, 3, 3]),
    ],
)
def test_multicast(ending: str, barrier: int, told: list[int]) -> None:
    """The box in every CTA of the mask; the barrier of each, or with .cta_group::2 the one of its pair, gets its bytes."""
    case = plain_case()
    more = {"cta_mask": np.array([0b1101], np.uint16), "barrier": np.array([barrier])}
    effects, view = asked(case, load_of(case, ending, "shared::cluster"), **more)
    (work,) = effects.pending
    outcome = work.finish(work.fetch(view))
    clusters = replace(view, images={**view.images, "shared": np.tile(case.smem, 4)}, cta_bytes=len(case.smem))
    after = clusters.after((outcome,))["shared"].reshape(4, -1)
    want = exact.load(case.slow, case.memory.tolist(), case.coordinates, case.smem.tolist(), case.address)
    assert [after[rank].tolist() == want for rank in range(4)] == [True, False, True, True]
    assert after[1].tolist() == case.smem.tolist()
    (signal,) = outcome.signals
    assert signal.at.cta is not None and signal.at.cta.tolist() == told and signal.count.tolist() == [1024] * 3
    assert (signal.at.address % (1 << 24)).tolist() == [8] * 3
    with pytest.raises(OperandError, match="cta_mask=0x0"):
        asked(case, load_of(case, ending, "shared::cluster"), cta_mask=np.array([0], np.uint16))


def test_a_remote_destination() -> None:
    """An address of mapa keeps its rank; the swizzle acts on the offset."""
    case = plain_case()
    effects, view = asked(case, load_of(case, "", "shared::cluster"), address=np.array([case.address | 3 << 24]))
    (work,) = effects.pending
    (write,) = work.finish(work.fetch(view)).writes
    assert write.at.address.tolist() == [case.address | 3 << 24] and write.at.cta is None
    own, here = asked(case, load_of(case))
    (plain,) = own.pending[0].finish(own.pending[0].fetch(here)).writes
    assert np.array_equal(write.data, plain.data)


def test_long_runs() -> None:
    """A box whose rows fill the span of the swizzle is one write; one that does not is written in chunks; no masks at the edges."""
    case = plain_case()
    effects, _ = asked(case, load_of(case))
    (target,), (source,) = effects.pending[0].writes, effects.pending[0].reads
    assert (target.address.shape, target.size, source.address.shape, source.size) == ((1,), 1024, (8,), 128)
    edge, _ = asked(replace(case, coordinates=(-8, 12)), load_of(case))
    (source,) = edge.pending[0].reads
    assert (source.address.tolist(), source.size, source.mask) == (
        [BASE + 128 * row for row in range(12, 16)],
        112,
        None,
    )
    outside, view = asked(replace(case, coordinates=(64, 0)), load_of(case))
    (work,) = outside.pending
    assert work.reads == ()
    (write,) = work.finish(work.fetch(view)).writes
    assert not write.data.any()


def test_lanes_have_maps_and_boxes_of_their_own() -> None:
    """Each lane's copy is one piece of work, which says whose it is."""
    case = plain_case()
    more = {
        "tensor_map": np.array([MAPS] * 3), "coordinates": np.array([(0, 0), (0, 4), (0, 8)], np.uint32),
        "address": np.array([0, 1024, 2048]), "barrier": np.array([8, 16, 8]),
    }  # fmt: skip
    effects, view = asked(case, load_of(case), **more)
    assert [work.threads.tolist() for work in effects.pending if work.threads is not None] == [[0], [1], [2]]
    outcomes = tuple(work.finish(work.fetch(view)) for work in effects.pending)
    assert [outcome.signals[0].at.address.tolist() for outcome in outcomes] == [[8], [16], [8]]
    want = case.smem.tolist()
    for at, address in (((0, 0), 0), ((0, 4), 1024), ((0, 8), 2048)):
        want = exact.load(case.slow, case.memory.tolist(), at, want, address)
    assert view.after(outcomes)["shared"].tolist() == want


def test_a_changed_map_is_another_map() -> None:
    """tensormap.replace in memory, then a copy: the map counts as it is when the copy is issued."""
    case = plain_case(swizzle="NONE")
    view = view_of(case)
    item: Any = tcsim.instruction("tensormap.replace.tile.global_dim.global.b1024.b32", arch="sm_90")
    operands = {"tensor_map": np.array([MAPS]), "ordinal": np.asarray(1), "new_value": np.array([6], np.uint32)}
    effects = item.effects(item.forms[0], operands, view)
    ((write,), (read,)) = effects.now.writes, effects.reads
    assert write.at == read and read.size == 4  # the one word that holds it
    image = view.after((effects.now,))["global"]
    shorter = replace(case.slow, dims=(64, 6))
    load: Any = tcsim.instruction(load_of(case), arch="sm_90")
    given_operands = {
        "tensor_map": np.array([MAPS]), "coordinates": np.array([case.coordinates], np.uint32),
        "address": np.array([case.address]), "barrier": np.array([8]),
    }  # fmt: skip
    now = replace(view, images={"global": image, "generic": image, "shared": case.smem})
    (work,) = load.effects(load.forms[0], given_operands, now).pending
    want = exact.load(shorter, case.memory.tolist(), case.coordinates, case.smem.tolist(), case.address)
    assert now.after((work.finish(work.fetch(now)),))["shared"].tolist() == want


def test_wrong_tensor_copies() -> None:
    """Bytes that are no map, a map of another kind, misaligned addresses, maps whose bits are not known."""
    case = plain_case()
    with pytest.raises(TensorMapError, match=r"has 2 dimensions; \.3d needs 3"):
        asked(case, load_of(case).replace("2d", "3d"), coordinates=np.zeros((1, 3), np.uint32))
    with pytest.raises(MisalignedAddressError, match="0x440: in shared memory a box starts at a multiple of 128"):
        asked(case, load_of(case), address=np.array([0x440]))
    broken = view_of(case)
    broken.images["global"][MAPS + 8] |= 0x80
    broken.images["global"][MAPS + 9] |= 0x07
    item: Any = tcsim.instruction(load_of(case), arch="sm_100")
    operands = {"tensor_map": np.array([MAPS]), "coordinates": np.zeros((1, 2), np.uint32), "address": np.array([0])}
    with pytest.raises(TensorMapError, match="element type 15"):
        item.effects(item.forms[0], operands | {"barrier": np.array([8])}, broken)
    wide: Any = tcsim.instruction(
        load_of(case).replace("2d", "3d").replace("global", "global.im2col::w"), arch="sm_100"
    )
    with pytest.raises(NotModelledError, match="the bits of im2col-wide maps are not known"):
        wide.effects(wide.forms[0], operands, broken)


# --- bulk copies

BULK = [
    row
    for row in catalog.rows().values()
    if row.family in ("cp.async.bulk", "cp.reduce.async.bulk") and row.operation in ("copy", "reduce")
]
KINDS: dict[tuple[str, ...], list[Any]] = {}
for _row in BULK:
    if not getattr(_row, "reports", False):
        KINDS.setdefault((_row.operation, *_row.forms[0].names), []).append(_row)
"""Those that are modelled, by their operands: each list is drawn as often."""


@examples(150)
@given(st.data())
def test_bulk_copies(data: Any) -> None:
    """Any row, sizes and masks of their own for each lane: what the slow model copies, and who is told."""
    row: Any = data.draw(st.sampled_from(data.draw(st.sampled_from(list(KINDS.values())))))
    item: Any = tcsim.instruction(row.mnemonic, arch=tcsim.core.targets.TARGETS[row.targets[-1]].arch)
    (form,) = item.forms
    lanes = data.draw(st.integers(1, 3))
    sizes = [16 * data.draw(st.integers(0, 6)) for _ in range(lanes)]
    starts = [128 * lane for lane in data.draw(st.permutations(range(4)))[:lanes]]
    sources = [16 * data.draw(st.integers(0, 26)) for _ in range(lanes)]
    seed = data.draw(st.integers(0, 1 << 16))
    images = {
        name: np.random.default_rng((seed, place)).integers(0, 256, 512, np.uint8) for place, name in enumerate("ab")
    }
    masks = [data.draw(st.integers(0, 0xFFFF)) for _ in range(lanes)]
    ends = [tuple(data.draw(st.integers(0, min(15, size // 2))) for _ in range(2)) for size in sizes]
    operands = {
        "source": np.array(sources), "destination": np.array(starts), "size": np.array(sizes, np.uint32),
        "barrier": 8 * np.arange(lanes), "byte_mask": np.array(masks, np.uint16), "cta_mask": np.full(lanes, 0b10, np.uint16),
        "ignore_left": np.array([left for left, _ in ends], np.uint32),
        "ignore_right": np.array([right for _, right in ends], np.uint32),
    }  # fmt: skip
    space = {name: "global" if form[name].space == "global" else "shared" for name in ("source", "destination")}
    read, target = Memories({space["source"]: images["a"]}), Memories({space["destination"]: images["b"]})
    effects = item.effects(form, {name: operands[name] for name in operands if name in form}, read)
    assert sorted(lane for work in effects.pending for lane in work.threads.tolist()) == list(range(lanes))
    outcomes = tuple(work.finish(work.fetch(read)) for work in effects.pending)
    want: list[Any] = images["b"].tolist()
    for lane in range(lanes):
        own = masks[lane] if "byte_mask" in form else 0xFFFF
        cut = ends[lane] if "ignore_left" in form else (0, 0)
        if row.reduction is None:
            exact_copies.bulk(images["a"].tolist(), want, sources[lane], starts[lane], sizes[lane], own, *cut)
            continue
        reduction, width = row.reduction, row.reduction.bits // 8
        for at in range(0, sizes[lane], width):
            old, new = (int.from_bytes(bytes(memory[place + at : place + at + width]), "little")
                        for memory, place in ((want, starts[lane]), (images["a"].tolist(), sources[lane])))  # fmt: skip
            code = exact_copies.element(reduction.operation, reduction.type, old, new)
            want[starts[lane] + at : starts[lane] + at + width] = list(code.to_bytes(width, "little"))
    found = target.after(outcomes)[space["destination"]].tolist()
    lost = {
        place
        for outcome in outcomes
        for access in outcome.undefined
        for start in access.address.tolist()
        for place in range(start, start + access.size)
    }
    assert lost == {place for place, byte in enumerate(want) if byte is exact_copies.UNDEFINED}
    assert [byte for place, byte in enumerate(found) if place not in lost] == [
        byte for byte in want if byte is not None
    ]
    assert {work.group for work in effects.pending} == {row.group}
    told = Counter[int]()
    for signal in (signal for outcome in outcomes for signal in outcome.signals):
        assert signal.kind == "complete_tx" and (signal.at.cta is None) == ("cta_mask" not in form)
        told.update(dict(zip(signal.at.address.tolist(), signal.count.tolist(), strict=True)))
    assert dict(told) == ({} if row.group else {8 * lane: size for lane, size in enumerate(sizes)})


def test_there_are_all_bulk_rows() -> None:
    """What is drawn above."""
    kinds = Counter((row.family, getattr(row, "reports", False)) for row in BULK)
    assert kinds == {("cp.async.bulk", False): 60, ("cp.async.bulk", True): 20, ("cp.reduce.async.bulk", False): 68}
