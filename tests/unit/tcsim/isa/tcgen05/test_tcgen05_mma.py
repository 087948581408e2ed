"""tcgen05.mma through its memories: every cell of Tensor Memory against a slow model written independently."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa.tcgen05 import TENSOR_MEMORY
from conformance.isa.tcgen05 import mma_tiles as tiles
from conformance.isa.tcgen05.memory_models import executed
from conformance.isa.tcgen05.mma import descriptors
from conformance.isa.tcgen05.mma_inputs import Described
from conformance.stimuli.stream import Stream
from tcsim.isa.tcgen05.mma_rows import MultiplyRow
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tests.exact import tensor_multiply as exact
from tests.support.extent import WHOLE
from tests.support.tensor_multiply_cases import instruction, plain


def slow(item: TensorMemoryMultiply, given: dict[str, Any], sample: int) -> exact.Run:
    """One sample as the slow model takes it."""
    operands = {name: int(given[name][sample]) for name in given if given[name].ndim == 1}
    operands["a_is_descriptor"] = given["a"].dtype == np.uint64
    operands["enable_input_d"] = bool(given["enable_d"][sample])
    fields = asdict(item.descriptor(int(given["idesc"][sample])))
    return exact.Run(item.mnemonic, fields, operands, exact.Memories(given["image"][sample], given["tmem"][sample]))


def check_against_the_slow_model(item: TensorMemoryMultiply, name: str, seed: int, samples: int, elements: int) -> int:
    """Run a class of the testbench; compare elements of D with the slow model, and every other cell with what it was."""
    given_ = TENSOR_MEMORY.inputs(item, name, seed, samples)
    after = TENSOR_MEMORY.model(item, given_)
    stream = Stream("test_tcgen05_mma", item.mnemonic, name)
    compared = 0
    for sample in range(samples):
        idesc = int(given_["idesc"][sample])
        layout, half = item.layout("d", idesc), item.formats(idesc)["d"].bits == 16
        run = slow(item, given_, sample)
        rows, columns = stream.below(layout.rows, (elements,)), stream.below(layout.columns, (elements,))
        last = layout.rows_of_cta * (1 + columns % layout.ctas)  # of either CTA: .ashift treats their last rows apart
        rows[: elements // 4] = (last - 1 - rows % 2)[: elements // 4]
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            (cta, lane, place), code = exact.element(run, row, column)
            word = int(after[sample, cta, lane, place])
            if "lanes" in given_ and int(given_["lanes"][sample][cta * 4 + lane // 32]) >> lane % 32 & 1:
                assert word == given_["tmem"][sample, cta, lane, place]
            else:
                assert word & (0xFFFF if half else 0xFFFFFFFF) == code, (item.mnemonic, name, sample, row, column)
            compared += 1
        untouched = np.ones(after.shape[1:], np.bool_)
        base = int(given_["d"][sample])
        cta, lane, column = (x[0, 0] for x in layout.cells[:3])
        untouched[cta, lane + (base >> 16), column + (base & 0xFFFF)] = False
        np.testing.assert_array_equal(after[sample][untouched], given_["tmem"][sample][untouched])
    return compared


@pytest.mark.parametrize("arch", ["sm_100", "sm_103", "sm_107", "sm_110"])
def test_execution_is_that_of_the_slow_model(arch: str) -> None:
    """Every family, kind, cta_group, block and .ashift: each operand form, and a class of numbers that hurts."""
    compared = cases = 0
    for turn, item in enumerate(plain(arch)):
        if arch != "sm_100" and turn % 4 != int(arch[-1]) % 4:  # the others differ in little; every fourth will do
            continue
        names = TENSOR_MEMORY.classes(item)
        forms = [name for name in names if name.startswith(("desc", "tmem"))]
        hard = [
            name
            for name in (
                "uniform",
                "tiny",
                "cancellation",
                "cancelled",
                "edges",
                "floor",
                "boundaries",
                "scales",
                "subnormals",
            )
            if name in names
        ]
        for name in [*forms, *hard[turn % 2 :: 2]]:
            compared += check_against_the_slow_model(item, name, turn, 1 if name in hard else 2, 4)
            cases += 1
    assert cases > (200 if arch == "sm_100" else 30)
    assert compared >= 4 * cases


NEWEST: dict[str, Callable[[MultiplyRow], bool]] = {
    "ti16": lambda facts: facts.kind.name == "ti16",
    "lookup": lambda facts: facts.lookup,
    "unpaired": lambda facts: facts.sparse and facts.kind.table == "mxf4",
    "deeper": lambda facts: facts.kind.block_scaled and not facts.lookup,
}


@pytest.mark.parametrize(("what", "least"), [("ti16", 800), ("lookup", 450), ("unpaired", 700), ("deeper", 1900)])
def test_what_only_sm_107_has_is_that_of_the_slow_model(what: str, least: int) -> None:
    """Every class of inputs, every K that a descriptor may ask for, both scale layouts."""
    compared, depths = 0, set()
    items = [one for one in plain("sm_107") if NEWEST[what](one.row)]
    for turn, item in enumerate(items if WHOLE else items[::2]):
        names = TENSOR_MEMORY.classes(item)
        for place, name in enumerate(names):
            compared += check_against_the_slow_model(item, name, turn + place, 1, 4)
        for seed in range(6):
            given_ = TENSOR_MEMORY.inputs(item, names[0], seed, 2)
            depths |= {(item.row.sparse, item.descriptor(int(idesc)).k) for idesc in given_["idesc"]}
            compared += check_against_the_slow_model(item, names[0], seed, 2, 4)
    assert compared > least / (1 if WHOLE else 2)
    assert (
        depths
        == {
            "ti16": {(False, 16), (True, 32)},
            "lookup": {(False, 64)},
            "unpaired": {(True, 128), (True, 192)},
            "deeper": {(False, 32), (False, 64), (False, 96), (False, 128), (True, 64), (True, 128), (True, 192)},
        }[what]
    )


def test_every_shape_and_every_mix_of_formats() -> None:
    compared = 0
    for item in plain("sm_100"):
        if item.row.ashift:
            continue
        for name in ("shapes", "formats"):
            count = TENSOR_MEMORY.samples(item, name)
            for seed, samples in ((0, min(count, 6)), (1, 1)):
                compared += check_against_the_slow_model(item, name, seed, samples, 2)
    assert compared > 500


def test_execution_is_matmul() -> None:
    """The same matrices through memories and descriptors, and directly."""
    outputs = 0
    for turn, item in enumerate(plain("sm_100")):
        stream = Stream("execution is matmul", item.mnemonic)
        desc = list(descriptors(item))[turn % 7]
        outputs += _both_ways(item, desc, stream, turn)
    assert outputs > 100_000


def _both_ways(item: TensorMemoryMultiply, desc: tcsim.InstructionDescriptor, stream: Stream, turn: int) -> int:
    simple = [form for form in item.row.forms if form.name in ("desc", "tmem")]
    form = simple[turn % len(simple)]
    described = tiles.placeable(Described(item, desc), form)
    captured: dict[str, Any] = {}
    make = Described.make

    def keep(self: Described, *arguments: Any) -> Any:
        captured.update(make(self, *arguments))
        return dict(captured)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Described, "make", keep)
        name = "wide" if item.formats(desc)["a"].kind == "float" else "uniform"
        given_ = {key: array[None] for key, array in tiles.filled(described, form, name, stream, turn).items()}
    given_["enable_d"] = np.ones(1, np.uint32)
    after = executed(item, given_)[0]
    layout = item.layout("d", described.desc.encode())
    base = int(given_["d"][0])
    cta, lane, column = (x[0, 0] for x in layout.cells[:3])
    found = after[cta, lane + (base >> 16), column + (base & 0xFFFF)]
    extra = {key: captured[key][0] for key in ("scale_a", "scale_b", "metadata") if key in captured}
    want = item.matmul(*(captured[key][0] for key in "abc"), idesc=described.desc, **extra)
    np.testing.assert_array_equal(found.astype(want.dtype), want)
    return int(want.size)


def test_each_bank_multiplies_its_own_copy() -> None:
    """Copies of A in Tensor Memory and of metadata that differ (layouts B, E and G), against the slow model."""
    compared = 0
    for mnemonic, sizes in (
        ("tcgen05.mma.cta_group::2.kind::f16", [(128, 32)]),
        ("tcgen05.mma.ws.cta_group::1.kind::f16", [(64, 64), (32, 64)]),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::f16", [(64, 64), (32, 64)]),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::f8f6f4", [(64, 64), (32, 64)]),
    ):
        item = instruction(mnemonic)
        kind = item.row.kind
        form = next(form for form in item.row.forms if form.name == "tmem")
        for turn, (m, n) in enumerate(sizes):
            desc = tcsim.InstructionDescriptor(
                kind=kind.name, a_format=next(iter(kind.ab_formats)), m=m, n=n, sparse=item.row.sparse
            )
            stream = Stream("copies", mnemonic, m)
            filled_ = tiles.filled(Described(item, desc), form, "wide", stream, turn)
            given_ = {name: array[None] for name, array in filled_.items()} | {"enable_d": np.ones(1, np.uint32)}
            base = int(given_["a"][0]) & 0xFFFF
            # another row of A and of the metadata in each bank: whole words of lanes change places
            area = given_["tmem"][0, :, :, base : base + 64]
            width = (item.row.cta_group == 2 and 64) or m
            for bank in range(1, 128 // width):
                lanes = slice(bank * width, (bank + 1) * width)
                area[:, lanes] = np.roll(area[:, lanes], 16 * bank, axis=1)
            after = executed(item, given_)[0]
            run = slow(item, given_, 0)
            for row, column in itertools.product((0, 9, m - 1), range(0, n, 5)):
                (cta, lane, place), code = exact.element(run, row, column)
                assert int(after[cta, lane, place]) == code, (mnemonic, m, row, column)
                compared += 1
    assert compared > 150


def test_collectors_change_nothing() -> None:
    base = instruction("tcgen05.mma.cta_group::1.kind::f16")
    given_ = TENSOR_MEMORY.inputs(base, "desc", 0, 2)
    want = executed(base, given_)
    kin = [f"{base.mnemonic}.collector::a::{use}" for use in ("fill", "use", "lastuse", "discard")]
    for name in kin:
        np.testing.assert_array_equal(executed(instruction(name), given_), want)
    newest = instruction(base.mnemonic + ".collector::a::fill.collector::b::use", "sm_107")
    np.testing.assert_array_equal(executed(newest, given_), want)


def test_batches_run_as_their_parts() -> None:
    item = instruction("tcgen05.mma.cta_group::1.kind::tf32")
    desc = tcsim.InstructionDescriptor(kind="tf32", m=64, n=8)
    tile_a, tile_b = (tcsim.MatrixDescriptor.for_tile(rows, 8, "tf32", arch="sm_100", swizzle="NONE", start_address=at)
                      for rows, at in ((64, 0), (8, 4096)))  # fmt: skip
    numbers = np.arange(3, dtype=np.float32)[:, None, None]
    smem = np.zeros((3, 8192), np.uint8)
    smem[:, : tile_a.bytes] = tile_a.image(np.broadcast_to(numbers, (3, 64, 8)).view(np.uint32))
    smem[:, 4096 : 4096 + tile_b.bytes] = tile_b.image(np.ones((8, 8), np.float32).view(np.uint32))
    operands = {"d": 0, "a": np.uint64(tile_a.descriptor.encode()), "b": tile_b.descriptor.encode(), "idesc": desc}
    after = item.execute(tcsim.TensorMemory.allocated((3,)), smem, **operands, enable_input_d=False)
    lane = np.arange(16)
    assert after.read(lane, 5).view(np.float32).tolist() == [[8.0 * i] * 16 for i in range(3)]
    # the same of one memory and three images, and of one memory and one image with descriptors of three tiles
    one = item.execute(tcsim.TensorMemory.allocated(), smem, **operands, enable_input_d=False)
    np.testing.assert_array_equal(one.read(lane, 5), after.read(lane, 5))
    operands["a"] = operands["a"] + np.arange(3, dtype=np.uint64) * np.uint64(8192 >> 4)
    operands["b"] = np.array(operands["b"], np.uint64)
    three = item.execute(tcsim.TensorMemory.allocated((2, 1)), smem.reshape(-1), **operands, enable_input_d=False)
    assert three.batch == (2, 3)
    np.testing.assert_array_equal(three.read(lane, 5), np.stack([after.read(lane, 5)] * 2))
