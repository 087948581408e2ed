"""Effects of every tensor-core instruction: asked row by row and form by form, and applied by a machine that knows none of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from conformance.isa.tcgen05 import TENSOR_MEMORY
from conformance.isa.tcgen05.memory_models import executed
from tcsim import catalog
from tcsim.core.addresses import MisalignedAddressError
from tcsim.core.targets import TARGETS
from tcsim.isa.tcgen05.cells import columns_of
from tcsim.isa.tcgen05.mma_rows import MultiplyRow
from tcsim.memory.tensor_memory import AllocationError, LaneAccessError
from tcsim.model.effects import GroupOp, Memories
from tcsim.model.form import Form
from tcsim.model.row import Row
from tests.exact import tensor_memory as exact_memory
from tests.exact import tensor_multiply as exact_multiply
from tests.support.tensor_multiply_cases import plain
from tests.support.tmem_cases import filled, random_words
from tests.unit.tcsim.isa.tcgen05.test_tcgen05_mma import slow
from tests.unit.tcsim.model.effects_machine import ByteMachine

Array = npt.NDArray[Any]
FIRST_TWO = 0x44444444
"""Metadata of every group: the first two of four; for tf32 the first of two."""


def rows_of(*families: str) -> list[Row]:
    """The rows of families, those that newer assemblers dropped left out."""
    return [row for row in catalog.rows().values() if row.family in families and not row.dropped]


def asked(row: Row) -> list[tuple[Any, Form]]:
    """The instruction on its last arch, with each of its forms."""
    item = tcsim.instruction(row.mnemonic, arch=TARGETS[row.targets[-1]].arch)
    assert item.forms
    return [(item, form) for form in item.forms]


# --- registers alone


def registers_for(item: Any, form: Form, warps: int, seed: int) -> dict[str, Array]:
    """Operands of warps: random registers, metadata and selectors that every instruction takes."""
    found: dict[str, Array] = {}
    for place, operand in enumerate(operand for operand in form.operands if operand.role == "source"):
        random = np.random.default_rng((seed, place))
        if operand.kind == "immediate":
            found[operand.name] = np.array(operand.values[0])
        elif operand.parts:
            found[operand.name] = np.zeros((warps, 32, len(operand.parts)), np.uint16)
        elif operand.name == "metadata":
            found["metadata"] = np.full((warps, 32), FIRST_TWO, np.uint32)
        elif operand.name.startswith("scale_"):
            found[operand.name] = random.integers(0, 1 << 32, (warps, 32), np.uint64).astype(np.uint32)
        else:
            shape = (warps, 32, item.operands[operand.name].registers)
            found[operand.name] = random.integers(0, 1 << 32, shape, np.uint64).astype(np.uint32)
    return found


def lane_copies(item: Any, operands: dict[str, Array]) -> None:
    """Where lanes share elements they hold the same ones, as wmma.load leaves them."""
    for name in "ab":
        if item.operands[name].layout.copies > 1:
            codes = item.matrix(name, operands[name])
            operands[name] = item.registers(name, codes)


@pytest.mark.parametrize("family", ["mma.sync", "mma.sp", "mma.sync.block_scale", "mma.sp.block_scale", "wmma.mma"])
def test_warps_are_a_batch(family: str) -> None:
    """Every row and form of the families: three warps at once are each warp alone, and the view is never asked."""
    compared = 0
    for item, form in (pair for row in rows_of(family) for pair in asked(row)):
        operands, machine = registers_for(item, form, 3, 1), ByteMachine({})
        lane_copies(item, operands)
        effects, found = machine.run(item, form, operands)
        assert list(found) == ["d"] and found["d"].shape == (3, 32, item.operands["d"].registers)
        assert not (effects.reads or effects.pending or effects.groups or effects.now.writes)
        for warp in range(3):
            own = {name: x if form[name].kind == "immediate" else x[warp] for name, x in operands.items()}
            _, alone = machine.run(item, form, own)
            np.testing.assert_array_equal(alone["d"], found["d"][warp])
        assert not np.array_equal(found["d"][0], found["d"][1])
        compared += found["d"].size
    assert compared >= 3 * 32 * 2 * len(rows_of(family))


def test_selectors_are_each_warps_own() -> None:
    """Byte and thread ids in registers may differ from warp to warp."""
    name = "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0"
    mma = tcsim.instruction(name, arch="sm_120")
    (form,) = mma.forms
    operands = registers_for(mma, form, 4, 2)
    operands["ids_a"] = np.repeat(np.uint16([[0, 0], [1, 0], [2, 1], [3, 1]])[:, None], 32, axis=1)
    d = mma.effects(form, operands, Memories({})).now.registers["d"]
    for warp in range(4):
        given = {key: operands[key][warp] for key in ("a", "b", "c", "scale_a", "scale_b")}
        byte, thread = (int(x) for x in operands["ids_a"][warp, 0])
        np.testing.assert_array_equal(d[warp], mma.execute(**given, byte_id_a=byte, thread_id_a=thread))


@pytest.mark.parametrize("row", rows_of("spcompress"), ids=lambda row: row.mnemonic)
def test_threads_are_a_batch(row: Row) -> None:
    """spcompress and spdecompress: threads with descriptors of their own."""
    ((item, form),) = asked(row)
    random = np.random.default_rng(3)
    operands = {
        operand.name: random.integers(0, 1 << 32, (6, operand.count), np.uint64).astype(np.uint32)
        for operand in form.operands
        if operand.kind == "vector" and operand.role == "source"
    }
    if "mdata" in operands and row.source == 2 and row.target == 4:  # type: ignore[attr-defined]
        operands["mdata"] = np.full_like(operands["mdata"], 0x44444444 if row.index_bits == 2 else 0x10101010)  # type: ignore[attr-defined]
    if "mdata" in operands:
        operands["mdata"] &= np.uint32(0)
        operands["mdata"] |= np.uint32(_rising(row))
    extra = {"spdesc": np.array([0, 1, 0, 4, 5, 1], np.uint32)} if "spdesc" in form else {}
    _, found = ByteMachine({}).run(item, form, operands | extra)
    for thread in range(6):
        own = {name: x[thread] for name, x in operands.items()} | {name: int(x[thread]) for name, x in extra.items()}
        want = item.execute(**own)
        for name, one in zip(form.results, want if isinstance(want, tuple) else (want,), strict=True):
            np.testing.assert_array_equal(found[name][thread], one)


def _rising(row: Any) -> int:
    """A word of metadata whose groups say 0, 1, ..., source - 1."""
    group = sum(place << row.index_bits * place for place in range(row.source))
    width = row.index_bits * row.source
    return sum(group << first for first in range(0, 32, width)) if width <= 32 else group


# --- wmma.load, wmma.store


@pytest.mark.parametrize("family", ["wmma.load", "wmma.store"])
def test_fragments_of_two_warps(family: str) -> None:
    """Every row and form: each warp with an address and a stride of its own, against `execute` of each."""
    compared = 0
    memory = np.random.default_rng(4).integers(0, 256, 1 << 15, np.uint8)
    for item, form in (pair for row in rows_of(family) for pair in asked(row)):
        address = np.repeat(np.int64([[256], [16384]]), 32, axis=1)
        strides = item.default_stride + np.int64([0, 2 * 128 // item.operand.layout.element_bits])
        operands: dict[str, Array] = {"address": address}
        if "stride" in form:
            operands["stride"] = np.repeat(strides[:, None], 32, axis=1).astype(np.uint32)
        space = "shared" if item.space == "shared::cta" else item.space
        machine = ByteMachine({space: memory.copy()})
        name = item.operand.name
        given: dict[str, Any] = {}
        if family == "wmma.store":
            operands[name] = random_words((2, 32, item.operand.registers), 5)
        _, found = machine.run(item, form, operands)
        for warp in range(2):
            own = {"address": int(address[warp, 0]), "stride": int(strides[warp]) if "stride" in form else None}
            if family == "wmma.load":
                np.testing.assert_array_equal(found[name][warp], item.execute(memory, **own))
                compared += found[name][warp].size
            else:
                given["memory"] = item.execute(given.get("memory", memory), registers=operands[name][warp], **own)
        if family == "wmma.store":
            np.testing.assert_array_equal(machine.memories[space], given["memory"])
            assert not np.array_equal(machine.memories[space], memory)
            compared += memory.size
    assert compared > 100_000


def test_a_place_at_which_wmma_faults_is_named() -> None:
    load = tcsim.instruction("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", arch="sm_90")
    operands = {"address": np.full((1, 32), 8), "stride": np.full((1, 32), 16, np.uint32)}
    with pytest.raises(
        MisalignedAddressError, match=r"\.effects: address=0x8: rows of a start at multiples of 16 bytes"
    ):
        load.effects(load.forms[0], operands, ByteMachine({"shared": np.zeros(4096, np.uint8)}))


# --- wgmma


@pytest.mark.parametrize("family", ["wgmma", "wgmma.sp"])
def test_two_warpgroups_multiply_at_once(family: str) -> None:
    """Every row and form: descriptors and predicates of their own, against `execute` of each warpgroup."""
    compared = 0
    image = np.random.default_rng(6).integers(0, 256, 1 << 17, np.uint8)
    for turn, row in enumerate(rows_of(family)):
        for item, form in asked(row):
            m, n, k = item.shape
            operands: dict[str, Array] = {}
            tile_b = tcsim.MatrixDescriptor.for_tile(n, k, item.row.format_b, swizzle="128B" if turn % 2 else "NONE")
            wide = {"a": item.operands["a"].shape[1], "b": k}
            first = {"a": (0, 16384), "b": (32768, 65536)}
            tiles = {"b": tile_b}
            if form["a"].kind == "register":
                tiles["a"] = tcsim.MatrixDescriptor.for_tile(m, wide["a"], item.operands["a"].format, swizzle="NONE")
            else:
                operands["a"] = random_words((2, 128, item.operands["a"].registers), turn)
            for name, tile in tiles.items():
                bits = np.array([tile.descriptor.encode() + (at >> 4) for at in first[name]], np.uint64)
                operands[name] = np.repeat(bits[:, None], 128, axis=1)
            operands["scale_d"] = np.repeat(np.array([[True], [False]]), 128, axis=1)
            if turn % 8:
                operands = {name: x[:1] for name, x in operands.items()}
            for name in ("scale_a", "scale_b"):
                if name in form:
                    operands[name] = np.array((1, -1)[turn // 2 % 2])
            for name in ("trans_a", "trans_b", "selector"):
                if name in form:
                    operands[name] = np.array(0)
            if "metadata" in form:
                operands["metadata"] = np.full((len(operands["scale_d"]), 128), FIRST_TWO, np.uint32)
            c = random_words((len(operands["scale_d"]), 128, item.operands["d"].registers), turn + 1)
            effects, found = ByteMachine({"shared": image}, {"d": c}).run(item, form, operands)
            (work,) = effects.pending
            assert work.group == "wgmma" and work.holds["d"] == "write" and not work.writes
            assert (work.holds.get("a") == "read") == (form["a"].kind != "register")
            for group in range(2) if turn % 8 == 0 else ():  # the rest was held to the contract
                own: dict[str, Any] = {name: int(x) for name, x in operands.items() if x.ndim == 0}
                own |= {name: x[group] for name, x in operands.items() if x.ndim}
                own |= {name: np.uint64(operands[name][group, 0]) for name in tiles} | {"scale_d": group == 0}
                np.testing.assert_array_equal(found["d"][group], item.execute(smem=image, c=c[group], **own))
                compared += found["d"][group].size
    assert compared > 1_000_000


# --- tcgen05: loads and stores


def memory_bytes(words: npt.NDArray[np.uint32], columns: int) -> npt.NDArray[np.uint8]:
    """Cells (CTAs, 128, some columns) as the bytes of Tensor Memory."""
    whole = np.full((*words.shape[:-1], columns), 0xA5A5A5A5, "<u4")
    whole[..., : words.shape[-1]] = words
    return whole.reshape(len(words), -1).view(np.uint8)


LOADS = ("tcgen05.ld", "tcgen05.ld.red", "tcgen05.ld.spcompress")


@pytest.mark.parametrize("family", [*LOADS, "tcgen05.st"])
def test_four_warps_reach_their_own_lanes(family: str) -> None:
    """Every row: four warps at once, against the slow model where it has the cells, and `execute` of each warp."""
    compared = 0
    for item, form in (pair for row in rows_of(family) for pair in asked(row)):
        words = random_words((1, 128, 512), 7)
        columns, start = columns_of(item.arch), 3 if item.row.layout.columns < 512 else 0
        warps = np.array([4, 1, 6, 3])
        address = ((warps % 4) << 21) + start
        operands: dict[str, Array] = {"address": np.repeat(address[:, None], 32, axis=1)}
        split: dict[str, int] = {}
        if "half_split_offset" in form:
            split = {"half_split_offset": item.row.half_columns + (start and 2)}
            operands |= {name: np.array(value) for name, value in split.items()}
        machine = ByteMachine({"tmem": memory_bytes(words, columns)}, warp=warps)
        if family == "tcgen05.st":
            operands["registers"] = random_words((4, 32, item.operands["registers"].registers), 8)
        effects, found = machine.run(item, form, operands)
        (work,) = effects.pending
        assert work.group == ("tcgen05.st" if family == "tcgen05.st" else "tcgen05.ld")
        tmem = filled(words)
        for place, warp in enumerate(warps.tolist()):
            own = {"address": int(address[place]), "warp": warp, **split}
            if family == "tcgen05.st":
                tmem = item.execute(tmem, registers=operands["registers"][place], **own)
                continue
            want = item.execute(tmem, **own)
            for name, one in zip(form.results, want if isinstance(want, tuple) else (want,), strict=True):
                got = found[name][place]
                np.testing.assert_array_equal(got, one[..., 0] if form[name].kind == "register" else one)
                compared += got.size
            if family == "tcgen05.ld" and item.row.layout.columns <= 32:
                shape, second = item.row.movement, own["address"] + split.get("half_split_offset", 0)
                count = item.operands["d"].registers // shape.registers
                held = {(0, lane, column): int(words[0, lane, column]) for lane in range(128) for column in range(128)}
                slow = exact_memory.load(held, shape.name, count, item.row.packed, (own["address"], second))
                assert found["d"][place].tolist() == slow
        if family == "tcgen05.st":
            np.testing.assert_array_equal(machine.memories["tmem"], memory_bytes(tmem.words, columns))
            compared += words.size
    assert compared > 50_000


def test_a_warp_is_kept_from_the_lanes_of_others() -> None:
    load = tcsim.instruction("tcgen05.ld.sync.aligned.32x32b.x1.b32", arch="sm_100")
    machine = ByteMachine({"tmem": np.zeros((1, 128 * 512 * 4), np.uint8)}, warp=np.array([0, 2]))
    with pytest.raises(LaneAccessError, match="warp 2"):
        load.effects(load.forms[0], {"address": np.zeros((2, 32), np.int64)}, machine)


# --- tcgen05: copies, shifts, products


@pytest.mark.parametrize("family", ["tcgen05.cp", "tcgen05.shift"])
def test_copies_and_shifts(family: str) -> None:
    """Every row, by the second CTA of a pair or alone, against `execute`."""
    compared = 0
    for item, form in (pair for row in rows_of(family) for pair in asked(row)):
        group = item.row.cta_group
        words, columns = random_words((2, 128, 64), 9), columns_of(item.arch)
        smem = random_words((2, 2048), 10).view(np.uint8)
        tile = tcsim.MatrixDescriptor(leading_byte_offset=128, stride_byte_offset=256, arch="sm_100").encode()
        machine = ByteMachine({"tmem": memory_bytes(words, columns), "shared": smem.copy()}, rank=1)
        operands: dict[str, Array] = {"address": np.array([8])}
        own: dict[str, Any] = {"address": 8}
        if family == "tcgen05.cp":
            operands["descriptor"] = np.array([tile], np.uint64)
            own |= {"smem": smem if group == 2 else smem[1], "descriptor": tile}
        effects, _ = machine.run(item, form, operands)
        assert [work.group for work in effects.pending] == ["tcgen05"]
        after = item.execute(filled(words if group == 2 else words[1:]), **own).words[..., :64]
        want = words.copy()
        want[2 - len(after) :] = after
        np.testing.assert_array_equal(machine.memories["tmem"], memory_bytes(want, columns))
        assert not np.array_equal(want, words)
        compared += want.size
    assert compared >= 128 * 64 * 2


def multiplication(item: Any, form: Form, given: dict[str, Array]) -> tuple[ByteMachine, dict[str, Array]]:
    """One sample of the testbench as effects take it."""
    columns = columns_of(item.arch)
    machine = ByteMachine({"tmem": memory_bytes(given["tmem"][0], columns), "shared": given["image"][0].copy()})
    names = {"enable_input_d": "enable_d", "disable_output_lane": "lanes", "zero_column_mask": "mask"}
    operands: dict[str, Array] = {}
    for operand in form.operands:
        if operand.name == "scale_input_d":
            operands[operand.name] = np.array(int(given["scale_d"][0]) if "scale_d" in given else 0)
        else:
            operands[operand.name] = given[names.get(operand.name, operand.name)]
    operands["enable_input_d"] = operands["enable_input_d"] != 0
    return machine, operands


def agreeing(item: Any, given: dict[str, Array], memory: npt.NDArray[np.uint8]) -> int:
    """Elements in the corners of D whose bits are those of the slow model: how many were compared."""
    run, idesc = slow(item, given, 0), int(given["idesc"][0])
    layout, mask = item.layout("d", idesc), (1 << item.formats(idesc)["d"].bits) - 1
    words = memory.view("<u4").reshape(item.row.cta_group, 128, -1)
    for row, column in ((0, layout.columns - 1), (layout.rows - 1, 0)):
        (cta, lane, place), code = exact_multiply.element(run, row, column)
        word = int(words[cta, lane, place])
        if "lanes" in given and int(given["lanes"][0][cta * 4 + lane // 32]) >> lane % 32 & 1:
            assert word == given["tmem"][0, cta, lane, place]
        else:
            assert word & mask == code, (item.mnemonic, row, column)
    return 2


@pytest.mark.parametrize("arch", ["sm_100", "sm_103", "sm_107", "sm_110"])
def test_products_in_tensor_memory(arch: str) -> None:
    """Every kind, group, block, sparsity and form: Tensor Memory after the effects is that after `execute`, cell by cell.

    Some elements of each also with the slow model; test_tcgen05_mma compares `execute` with it.
    """
    seen: Counter[str] = Counter()
    elements = 0
    for turn, item in enumerate(plain(arch)):
        if arch != "sm_100" and turn % 3:
            continue
        for name, case in TENSOR_MEMORY.cases(item).items():
            if not name.startswith(("desc", "tmem")):
                continue
            given = TENSOR_MEMORY.inputs(item, name, turn, 1)
            machine, operands = multiplication(item, case.form, given)
            effects, _ = machine.run(item, case.form, operands)
            assert [work.group for work in effects.pending] == ["tcgen05"]
            want = memory_bytes(executed(item, given)[0], columns_of(item.arch))
            np.testing.assert_array_equal(machine.memories["tmem"], want)
            elements += agreeing(item, given, machine.memories["tmem"])
            seen[case.form.name] += 1
    assert elements >= 2 * sum(seen.values())
    assert sum(seen.values()) > (200 if arch == "sm_100" else 50)
    assert arch != "sm_100" or set(seen) >= {
        "desc",
        "tmem",
        "desc_lanes",
        "desc_scale",
        "tmem_lanes_scale",
        "desc_mask",
    }


def test_every_row_of_products_answers() -> None:
    """Every row with each of its forms, collectors too: extents and group of the row without collectors."""
    rows = [row for row in catalog.rows().values() if isinstance(row, MultiplyRow)]
    asked_forms = 0
    samples: dict[Any, dict[str, Array]] = {}
    for row in rows:
        item = tcsim.instruction(row.mnemonic, arch=TARGETS[row.targets[-1]].arch)
        for name, case in TENSOR_MEMORY.cases(item).items():
            if not name.startswith(("desc", "tmem")) or (case.scale_d or 0) not in (0, 3):
                continue
            key = (row.family, row.kind.name, row.cta_group, row.vector, row.ashift, row.lookup, name, item.arch.name)
            if key not in samples:
                samples[key] = TENSOR_MEMORY.inputs(item, name, 1, 1)
            machine, operands = multiplication(item, case.form, samples[key])
            (work,) = item.effects(case.form, operands, machine).pending
            assert work.group == "tcgen05" and not work.holds
            assert {access.space for access in work.writes} == {"tmem"}
            assert {access.space for access in work.reads} == {"tmem", "shared"}
            asked_forms += 1
    assert len(rows) == 892 and asked_forms > 2000


# --- tcgen05: who owns Tensor Memory, and when work is done


@pytest.mark.parametrize("row", rows_of("tcgen05.alloc"), ids=lambda row: row.mnemonic)
def test_columns_are_resources(row: Any) -> None:
    """alloc asks, and writes the address that it is granted; dealloc and relinquish_alloc_permit give back."""
    for item, form in asked(row):
        machine = ByteMachine({"shared": np.zeros((2, 64), np.uint8), "generic": np.zeros((2, 64), np.uint8)}, rank=1)
        operands: dict[str, Array] = {"address": np.full((1, 32), 16)}
        if "columns" in form:
            many = 64 if form["columns"].kind == "immediate" else np.full((1, 32), 64, np.uint32)
            operands["columns"] = np.asarray(many)
        (resource,) = item.effects(form, operands, machine).resources
        assert (resource.cta, resource.pair, resource.exclusive) == (1, row.cta_group == 2, row.exclusive)
        kind, delta = {"alloc": ("tmem", 64), "dealloc": ("tmem", -64)}.get(row.operation, ("tmem.permit", -1))
        assert (resource.kind, resource.delta) == (kind, delta)
        assert resource.address == (16 if row.operation == "dealloc" else 0)
        if row.operation == "alloc":
            assert resource.then is not None
            machine.apply(resource.then(0x140))
            space = "generic" if form["address"].space == "generic" else "shared"
            assert machine.memories[space][1, 16:20].view("<u4").tolist() == [0x140]
        else:
            assert resource.then is None
        if "columns" in form and not row.exclusive:
            with pytest.raises(AllocationError, match="48 columns; valid: 32, 64"):
                item.effects(form, operands | {"columns": operands["columns"] * 0 + 48}, machine)


@pytest.mark.parametrize("row", rows_of("tcgen05.commit"), ids=lambda row: row.mnemonic)
def test_a_commit_signals_when_earlier_work_is_done(row: Any) -> None:
    """One arrival, or one in each CTA of the mask."""
    for item, form in asked(row):
        operands: dict[str, Array] = {"mbar": np.array([0x0200_0040])}
        if row.mask_bits:
            operands["mask"] = np.array([0b1011], np.uint32)
        (group,) = item.effects(form, operands, ByteMachine({})).groups
        assert (group.kind, group.op, group.reads_only) == ("tcgen05", "track", row.restricted)
        (signal,) = group.then
        assert signal.kind == "arrive" and signal.at.size == 8 and (signal.count == 1).all()
        assert signal.at.space == ("shared" if form["mbar"].space == "shared::cluster" else "generic")
        cta = signal.at.cta
        assert (None if cta is None else cta.tolist()) == ([0, 1, 3] if row.mask_bits else None)
        assert len(signal.count) == len(signal.at.address) == (3 if row.mask_bits else 1)


def test_waits_and_fences() -> None:
    """tcgen05.wait is for the loads or the stores, tcgen05.fence and wgmma.fence order, wgmma's groups are groups."""
    answers = {}
    for row in rows_of("tcgen05.wait", "tcgen05.fence", "wgmma.sync"):
        for item, form in asked(row):
            operands = {"groups": np.array(2)} if "groups" in form else {}
            effects = item.effects(form, operands, ByteMachine({}))
            answers[row.mnemonic] = effects.groups or tuple(order.kind for order in effects.orders)
    assert answers == {
        "tcgen05.wait::ld.sync.aligned": (GroupOp("tcgen05.ld", "wait"),),
        "tcgen05.wait::st.sync.aligned": (GroupOp("tcgen05.st", "wait"),),
        "tcgen05.fence::before_thread_sync": ("tcgen05.fence::before_thread_sync",),
        "tcgen05.fence::after_thread_sync": ("tcgen05.fence::after_thread_sync",),
        "wgmma.fence.sync.aligned": ("wgmma.fence",),
        "wgmma.commit_group.sync.aligned": (GroupOp("wgmma", "commit"),),
        "wgmma.wait_group.sync.aligned": (GroupOp("wgmma", "wait", 2),),
    }
