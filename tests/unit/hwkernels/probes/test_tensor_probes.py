"""Probes, testbenches and mutants of tensor copies, and the comparison with the driver's encoder, all without a GPU."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

import tcsim
from conformance.isa import slices, testbench_of
from conformance.isa.cp_async_bulk_tensor import inputs as tensor_inputs
from conformance.isa.cp_async_bulk_tensor.testbench import maps_of, run_loads, run_stores
from conformance.suite import encoded_maps
from conformance.suite.cases import Case, Settings, Suite
from conformance.suite.hardware import Workshop
from conformance.suite.recordings import RecordingError
from conformance.test_tensor_maps import outcome
from hwkernels.device import driver, map_bytes, tensor_map
from hwkernels.device.errors import CudaError
from hwkernels.device.sass import disassemble, opcode_counts
from hwkernels.device.toolchain import assemble
from hwkernels.probes import cp_async_bulk_tensor as body
from hwkernels.probes import probe
from hwkernels.probes.tensormap import BODY as UPDATE_BODY
from tcsim import catalog
from tcsim.isa.cp_async_bulk_tensor.semantics import TensorLoad
from tcsim.tma.types import DATA_TYPES, L2_PROMOTIONS, SWIZZLE_MODES
from tests.unit.conformance.suite.test_conformance_live import Imaginary

FAMILIES = [*slices()["cp_async_bulk_tensor"], *slices()["tensormap"]]


WIDE = [
    "cp.async.bulk.tensor.3d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes",
    "cp.async.bulk.tensor.5d.shared::cta.global.im2col::w::128.mbarrier::complete_tx::bytes",
    "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs::w.bulk_group",
    "cp.reduce.async.bulk.tensor.3d.global.shared::cta.min.im2col_no_offs::w.bulk_group",
    "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col::w",
]


def sample(arch: str, every: int) -> list:
    """Every so-manieth instruction of each family, and of the small one all that differ in their field."""
    return [
        tcsim.instruction(row.mnemonic, arch=arch)
        for family in FAMILIES
        for row in list(catalog.on_arch(arch, family))[:: 4 if family == "tensormap" else every]
    ]


# A step that has no factor in common with 2 (hints) and 5 (dimensions) goes through all of them.
@pytest.mark.parametrize(("target", "every"), [("sm_90", 11), ("sm_100a", 37), ("sm_107a", 47), ("sm_121a", 31)])
def test_probes_hold_the_opcodes_that_their_rows_claim(target, every):
    own = [item for item in sample(target, every) if target in item.row.targets]
    for name, made in probe.build(own, target).items():
        assert isinstance(made, probe.Probe), (name, made)
        assert not made.complaint, (name, made.complaint)
    assert {item.row.family for item in own} == set(FAMILIES)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_three_shapes_hold_their_instruction_once(target):
    names = {
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes": "UTMALDG.2D",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group": "UTMASTG.2D",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group": "UTMAREDG.2D.ADD",
    }
    rows = [catalog.rows()[name] for name in names]
    functions = disassemble(assemble(probe.emit(rows, target), target).cubin)
    assert len(functions) == 6
    for row in rows:
        own = [item for item in functions if item.name.startswith(probe.kernel_name(row))]
        assert [opcode_counts([item])[names[row.mnemonic]] for item in own] == [1, 1]


def drawn(ins, name: str):
    testbench = testbench_of(ins.row.family)
    return testbench, testbench.inputs(ins, name, 0, testbench.samples(ins, name))


def test_cases_are_what_the_probes_take_and_what_the_model_takes():
    seen, types, modes, slices, outside = Counter(), set(), set(), set(), 0
    for ins in sample("sm_90", 29):
        testbench = testbench_of(ins.row.family)
        for name in testbench.classes(ins):
            assert name.isalpha()
            testbench, given = drawn(ins, name)
            again = testbench.inputs(ins, name, 0, testbench.samples(ins, name))
            assert all((given[key] == again[key]).all() for key in given)
            model = testbench.model(ins, given)
            plan = probe.body_of(ins.row).plan(ins.row, given)
            assert model.shape == plan.output[0] and model.dtype == np.uint32
            assert model.nbytes == testbench.outputs(ins, len(model)) if hasattr(testbench, "outputs") else True
            comparison = testbench.compare(ins, given, model, model)
            assert comparison.outputs == model.nbytes and not comparison.mismatches
            wrong = model.copy()
            wrong[0, 3] ^= 1 << 9
            found = testbench.compare(ins, given, wrong, model)
            assert found.mismatches == 1 and "MISMATCH" in found.first[0].line() and found.first[0].trace()
            seen[name] += 1
            if isinstance(ins, TensorLoad):
                for tmap, at, expect in zip(maps_of(given), given["coordinates"], given["expect"], strict=True):
                    types.add(tmap.data_type)
                    modes.add(tmap.swizzle)
                    slices.add((tmap.interleave, tmap.im2col_mode))
                    outside += bool((at < 0).any())
                    assert expect == ins.transaction_bytes(tmap)
    assert {"tile", "bounds", "strides", "single", "convert", "numbers", "forma"} <= set(seen)
    assert types == {name for name, row in DATA_TYPES.items() if not row.packed}
    assert modes == {"NONE", "32B", "64B", "128B"}
    assert slices == {(name, kind) for name in ("NONE", "16B", "32B") for kind in ("", "im2col")}
    assert outside > 100


@pytest.mark.parametrize("mnemonic", WIDE)
def test_wide_maps_are_carried_to_the_driver(mnemonic, stand_in):
    """The bits of im2col-wide maps are not known: the driver makes them from what the inputs carry."""
    stand_in()
    ins = tcsim.instruction(mnemonic, arch="sm_107")
    seen = 0
    for name in testbench_of(ins.row.family).classes(ins):
        testbench, given = drawn(ins, name)
        maps = maps_of(given)
        assert {tmap.wide_mode for tmap in maps} == {ins.row.wide_mode}
        assert testbench.model(ins, given).size
        for tmap, sent in zip(maps, tensor_map.encoded_by_driver(given["maps"]), strict=True):
            assert map_bytes.carried_map(sent.tobytes()) == tmap
            seen += 1
    assert seen > 20


def test_every_mode_has_500_maps():
    """Over all spellings of sm_90: the maps of each class of each mode that is run by default."""
    counts = Counter()
    for family in FAMILIES[:2]:
        for row in catalog.on_arch("sm_90", family):
            ins = tcsim.instruction(row.mnemonic, arch="sm_90")
            testbench = testbench_of(family)
            for name in testbench.classes(ins):
                counts[row.operation, row.map_mode, row.op, name] += testbench.samples(ins, name)
    for name in ("tile", "bounds", "strides", "convert", "interleaved"):
        assert counts["load", "", "", name] >= 500 and counts["load", "im2col", "", name] >= 500
    for name in ("tile", "bounds", "strides", "interleaved"):
        assert counts["store", "", "", name] >= 500
        for op in ("add", "min", "max", "inc", "dec", "and", "or", "xor"):
            assert counts["reduce", "", op, name] >= 500


QUERY = "tensormap.query.alloc_class_large.global.b1024"


@pytest.mark.parametrize(
    ("arch", "every", "extra"), [("sm_90", 31, [QUERY, "prefetch.tensormap"]), ("sm_100", 211, WIDE[:2])]
)
def test_mutants_are_contradicted_by_the_cases(arch, every, extra):
    killed = Counter()
    column = "cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes"
    for ins in [*sample(arch, every), *(tcsim.instruction(name, arch=arch) for name in (column, *extra))]:
        testbench = testbench_of(ins.row.family)
        alive = {mutant.name: mutant for mutant in testbench.mutants if mutant.applies(ins)}
        for name in testbench.classes(ins):
            _, given = drawn(ins, name)
            right = testbench.model(ins, given)
            for mutant in list(alive.values()):
                if not np.array_equal(mutant.run(ins, given), right):
                    del alive[mutant.name]
                    killed[mutant.name] += 1
        assert not alive, (ins.mnemonic, list(alive))
    only_wide = {"load: wOffset ignored", "load: halos between", "load: halo by halo"}
    every_name = {mutant.name for family in FAMILIES for mutant in testbench_of(family).mutants}
    assert set(killed) == every_name - only_wide if arch == "sm_90" else set(killed) >= only_wide


def test_the_named_mistakes_of_the_field_are_among_them():
    names = {mutant.name for mutant in testbench_of("cp.async.bulk.tensor").mutants}
    assert {"load: late edge", "load: box order reversed", "load: offset swizzled", "load: rows packed"} <= names


def test_a_single_map_is_a_parameter_and_many_are_a_table():
    ins = tcsim.instruction("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", arch="sm_90")
    _, given = drawn(ins, "single")
    plan = body.BODY.plan(ins.row, given)
    assert (plan.variant, len(plan.tensor_maps), plan.tensor_map_buffers) == ("param", 1, (4,))
    _, given = drawn(ins, "tile")
    plan = body.BODY.plan(ins.row, given)
    assert (plan.variant, plan.driver_map_table, plan.inputs[0].shape) == ("table", 0, given["maps"].shape)
    with pytest.raises(ValueError, match="memory has shape"):
        body.BODY.plan(ins.row, given | {"memory": given["memory"][:, 1:]})
    row = catalog.rows()["tensormap.replace.tile.rank.global.b1024.b32"]
    maps = np.zeros((2, 128), np.uint8)
    with pytest.raises(ValueError, match="valid: one form"):
        UPDATE_BODY.plan(row, {"maps": maps, "value": np.zeros(2, np.uint64), "form": np.arange(2)})


def test_a_load_leaves_what_the_box_does_not_cover():
    ins = tcsim.instruction("cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes", arch="sm_90")
    _, given = drawn(ins, "tile")
    out = run_loads(ins, given).view(np.uint8)
    assert (out == driver.POISON).mean() > 0.8
    assert run_stores(
        tcsim.instruction("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group", arch="sm_90"),
        given | {"image": out},
    ).shape == (len(out), body.MEMORY_BYTES // 4)


RUN = {
    "cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes": 6,
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group": 5,
    "cp.reduce.async.bulk.tensor.1d.global.shared::cta.max.tile.bulk_group.L2::cache_hint": 5,
    "cp.async.bulk.prefetch.tensor.2d.L2.global": 2,
    "tensormap.replace.tile.box_dim.shared::cta.b1024.b32": 5,
}
"""Instructions, and how many cases each has."""


def test_a_live_run_is_recorded_small_and_replayed(tmp_path):
    """With hardware that the model describes; what the probes launch is checked, then thrown away."""

    def answer(made, given, repeat):
        testbench = testbench_of(made.instruction.row.family)
        assert made.launch(given, repeat).kernel.startswith("probe_")
        return [testbench.model(made.instruction, given)] * repeat

    suite = Suite(Settings("sm_90", "live", record=True, root=tmp_path), Imaginary(answer))
    suite.__dict__["workshop"] = Workshop([suite.instruction(name) for name in RUN])
    for name, count in RUN.items():
        classes = testbench_of(catalog.rows()[name].family).classes(suite.instruction(name))
        assert len(classes) == count
        assert {suite.run(Case(name, case, 0)).verdict for case in classes} == {"PASS"}
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.npz")) < 40_000
    replay = Suite(Settings("sm_90", "replay", root=tmp_path))
    cases = [case for case in replay.cases() if case.mnemonic in RUN]
    assert len(cases) == sum(RUN.values())
    assert {replay.run(case).verdict for case in cases} == {"REPLAYED"}


def test_hardware_that_moves_one_byte_elsewhere_fails():
    name = next(iter(RUN))

    def answer(made, given, repeat):
        right = testbench_of(made.instruction.row.family).model(made.instruction, given)
        right[2, 7] ^= 1
        return [right] * repeat

    suite = Suite(Settings("sm_90", "live"), Imaginary(answer))
    suite.__dict__["workshop"] = Workshop([suite.instruction(name)])
    failed = suite.run(Case(name, "tile", 0))
    assert (failed.verdict, failed.mismatches) == ("FAIL", 1)
    assert "sample 2 shared byte 0x1c" in failed.text and "rerun: " in failed.text and "TensorMap(" in failed.text


# --- the driver's encoder, played by a stand-in that encodes as the model does


class StandIn:
    """As much of cuda.bindings.driver as encoding needs. `fault` changes its bytes."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SimpleNamespace(name="CUDA_SUCCESS"))
    cuuint64_t = cuuint32_t = CUtensorMapDataType = CUtensorMapInterleave = staticmethod(int)
    CUtensorMapSwizzle = CUtensorMapL2promotion = CUtensorMapFloatOOBfill = staticmethod(int)

    def __init__(self, fault=lambda word: word) -> None:
        self.fault = fault

    def cuTensorMapEncodeTiled(self, kind, rank, address, dims, strides, box, every, *modes):
        """As cuda-python's."""
        return self._encode("", kind, address, dims, strides[: rank - 1], every, modes, box_dim=tuple(box))

    def cuTensorMapEncodeIm2col(self, kind, rank, address, dims, strides, low, high, channels, pixels, every, *modes):
        """As cuda-python's."""
        return self._encode(
            "im2col", kind, address, dims, strides[: rank - 1], every, modes, pixel_box_lower_corner=tuple(low),
            pixel_box_upper_corner=tuple(high), channels_per_pixel=channels, pixels_per_column=pixels,
        )  # fmt: skip

    CUtensorMapIm2ColWideMode = staticmethod(("W", "W128").__getitem__)

    def cuTensorMapEncodeIm2colWide(
        self, kind, rank, address, dims, strides, low, high, channels, pixels, every, interleave, mode, *modes
    ):
        """As cuda-python's; its bytes are a stand-in's, too."""
        return self._encode(
            "im2col_wide", kind, address, dims, strides[: rank - 1], every, (interleave, *modes), wide_mode=mode,
            pixel_box_lower_corner=(low,), pixel_box_upper_corner=(high,), channels_per_pixel=channels,
            pixels_per_column=pixels,
        )  # fmt: skip

    def _encode(self, mode, kind, address, dims, strides, every, modes, **others):
        interleave, swizzle, promotion, fill = modes
        try:
            tmap = tcsim.TensorMap(
                {row.driver: name for name, row in DATA_TYPES.items()}[kind], tuple(dims), tuple(strides),
                element_strides=tuple(every), interleave=("NONE", "16B", "32B")[interleave],
                swizzle={row.driver: name for name, row in SWIZZLE_MODES.items()}[swizzle],
                l2_promotion=list(L2_PROMOTIONS)[promotion], oob_fill=("NONE", "NAN_REQUEST_ZERO_FMA")[fill],
                im2col_mode=mode, **others,
            )  # fmt: skip
        except ValueError:
            return SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE"), None
        data = map_bytes.carried(tmap) if mode == "im2col_wide" else tmap.encode(address)
        word = self.fault(int.from_bytes(data, "little"))
        opaque = [word >> 64 * place & (1 << 64) - 1 for place in range(16)]
        return self.CUresult.CUDA_SUCCESS, SimpleNamespace(opaque=opaque)


@pytest.fixture
def stand_in(monkeypatch):
    def install(fault=lambda word: word):
        monkeypatch.setattr(tensor_map, "_driver", lambda: StandIn(fault))
        monkeypatch.setattr(encoded_maps, "ENCODED", 120)
        monkeypatch.setattr(encoded_maps, "BROKEN", 90)

    return install


def test_the_driver_is_asked_with_its_own_arguments(stand_in):
    stand_in()
    for tmap in (
        tcsim.TensorMap(
            "FLOAT16", (256, 128), (512,), (64, 64), (1, 3), swizzle="128B", oob_fill="NAN_REQUEST_ZERO_FMA"
        ),
        tcsim.TensorMap("UINT8", (1000,), (), (16,)),
        tcsim.TensorMap.im2col("FLOAT16", (64, 9, 3), (128, 1152), (-1,), (-2,), 32, 64, (1, 2, 1), swizzle="64B"),
    ):
        assert tensor_map.driver_encode(tmap, 0x1000) == tmap.encode(0x1000)
        table = np.frombuffer(tmap.encode(0), np.uint8)[None]
        assert (
            tensor_map.encoded_by_driver(table)[0] == np.frombuffer(tmap.encode(tensor_map.PLACEHOLDER), np.uint8)
        ).all()
    bad = vars(tcsim.TensorMap("UINT8", (1000,), (), (16,))) | {"box_dim": (257,)}
    with pytest.raises(CudaError, match="INVALID_VALUE"):
        tensor_map.encode_arguments(tensor_map.arguments_of(bad), 0)
    assert tensor_map.refuses(tensor_map.arguments_of(bad))


def test_a_launch_gets_the_drivers_maps(stand_in):
    stand_in(lambda word: word | 1 << 85)  # as a driver that chooses the large class
    tmap = tcsim.TensorMap("UINT8", (1000,), (), (16,))
    table = np.stack([np.frombuffer(tmap.encode(0), np.uint8)] * 3)
    launch = driver.Launch(
        b"x", "k", inputs=(table,), tensor_maps=(tmap.encode(0),), driver_maps=True, driver_map_table=0
    )
    changed = driver._with_driver_maps(launch)
    want = tmap.encode(tensor_map.PLACEHOLDER, "LARGE")
    assert changed.tensor_maps == (want,) and not changed.driver_maps
    assert changed.inputs[0].tobytes() == want * 3


@pytest.mark.parametrize("kind", encoded_maps.KINDS)
def test_an_agreeing_driver_passes_is_recorded_and_replayed(kind, stand_in, tmp_path):
    stand_in(lambda word: word | 1 << 85)  # what is not compared
    answers = encoded_maps.ask(kind, 90, 0)
    verdict = encoded_maps.judge(kind, 90, 0, answers)
    assert not verdict.lines and verdict.compared == 120 * 128 + 90
    assert "bit 85 (the driver's allocation class), which was set in 120 maps" in verdict.note
    encoded_maps.record(kind, "sm_90", 0, answers, "NVIDIA GPU of a test", tmp_path)
    suite = Suite(Settings("sm_90", "replay", root=tmp_path))
    found = outcome(kind, suite)
    assert found.verdict == "REPLAYED" and "GPU of a test" in found.how
    with pytest.raises(RecordingError, match="other maps"):
        encoded_maps.replay(kind, "sm_90", 5, tmp_path)
    assert outcome(kind, Suite(Settings("sm_90", "replay", root=tmp_path / "none"))).verdict == "UNVERIFIED"
    assert outcome(kind, Suite(Settings("sm_80", "replay", root=tmp_path))).verdict == "NOT_SUPPORTED"


@pytest.mark.parametrize("bit", [64, 69, 83, 96, 300, 424, 511, 516, 584, 1023])
def test_any_other_bit_is_found(bit, stand_in, tmp_path):
    stand_in(lambda word: word ^ 1 << bit)
    verdict = encoded_maps.judge("tiled", 90, 0, encoded_maps.ask("tiled", 90, 0))
    assert len(verdict.lines) == 120 and f"byte {bit // 8}," in verdict.lines[0]
    encoded_maps.record("tiled", "sm_90", 0, encoded_maps.ask("tiled", 90, 0), "a test", tmp_path)
    failed = outcome("tiled", Suite(Settings("sm_90", "replay", root=tmp_path)))
    assert failed.verdict == "FAIL" and failed.mismatches == 120 and "110 more" in failed.text


def test_a_driver_that_refuses_a_good_map_is_a_mismatch(stand_in, monkeypatch):
    """It is counted, and the other maps are compared all the same."""
    stand_in()
    real = tensor_map.refuses
    monkeypatch.setattr(
        tensor_map, "refuses", lambda given, *at: given["l2_promotion"] == 2 if at else real(given)
    )  # the good maps have an address
    answers = encoded_maps.ask("tiled", 90, 0)
    refused = [tmap for tmap, _ in encoded_maps.random_maps("tiled", 90, 0, 120) if tmap.l2_promotion == "L2_128B"]
    lines = encoded_maps.judge("tiled", 90, 0, answers).lines
    assert len(lines) == len(refused) > 5 and all("the driver refuses it, the rules take it" in line for line in lines)


def test_the_assemblers_bit_is_not_compared_and_no_other_is_spared():
    """Bit 85 of tensormap.replace.tile.global_address: ptxas 13.5 clears it, ptxas 13.0 does not."""
    ins = tcsim.instruction("tensormap.replace.tile.global_address.global.b1024.b64", arch="sm_90")
    testbench, given = drawn(ins, "forma")
    model, seen = testbench.model(ins, given), []
    for bit in range(64, 128):
        other = model ^ np.uint32([1 << bit % 32 if word == bit // 32 else 0 for word in range(32)])
        seen.append(testbench.compare(ins, given, other, model).mismatches)
    assert [64 + place for place, found in enumerate(seen) if not found] == [85]
    assert testbench.kept(ins, "forma") == testbench.samples(ins, "forma") and "ptxas 13.0" in ins.row.why_unsettled


def test_prefetch_of_parameter_space_gets_a_parameter():
    """Any other address is CUDA_ERROR_MISALIGNED_ADDRESS on an H200."""
    found = {}
    for name in ("prefetch.tensormap", "prefetch.param.tensormap"):
        ins = tcsim.instruction(name, arch="sm_90")
        _, given = drawn(ins, "forma")
        text = UPDATE_BODY.kernel(ins.row, "k", "")
        found[name] = (".param .align 64 .b8 map[128]" in text, f"mov.b64 %from, map;\n    {name} [%from];" in text)
        assert len(UPDATE_BODY.plan(ins.row, given).tensor_maps) == found[name][0]
    assert found == {"prefetch.tensormap": (False, False), "prefetch.param.tensormap": (True, True)}


def test_another_rule_is_found(stand_in, monkeypatch):
    stand_in()
    answers = encoded_maps.ask("tiled", 90, 0)
    assert 20 < answers.refused.sum() < 80
    changed = encoded_maps.Answers(answers.encoded, ~answers.refused)
    lines = encoded_maps.judge("tiled", 90, 0, changed).lines
    assert len(lines) == 90 and all("the driver" in line for line in lines)


def test_there_are_enough_random_maps():
    assert encoded_maps.ENCODED * len(encoded_maps.KINDS) >= 1000
    maps = [tmap for kind in encoded_maps.KINDS for tmap, _ in encoded_maps.random_maps(kind, 100, 3, 300)]
    assert {tmap.data_type for tmap in maps} == set(DATA_TYPES)
    assert {tmap.swizzle for tmap in maps} == set(SWIZZLE_MODES)
    assert {tmap.rank for tmap in maps} == {1, 2, 3, 4, 5}


def test_numbers_hold_every_edge():
    ins = tcsim.instruction("cp.reduce.async.bulk.tensor.1d.global.shared::cta.min.bulk_group", arch="sm_90")
    given = tensor_inputs.make(ins.row, 90, "numbers", tensor_inputs.Stream("edges"), 40)
    halves = [
        tmap_memory.view("<u2")
        for tmap, tmap_memory in zip(maps_of(given), given["memory"], strict=True)
        if tmap.data_type == "FLOAT16"
    ]
    assert halves
    assert set(tensor_inputs._edges("FLOAT16")) <= set(np.concatenate(halves).tolist())
