"""Screening: vectors, the kernels that say where they run, and reports, with the model or `tcsim.ptx` in the GPU's place."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcsim
from hwkernels.device.driver import Launch
from hwkernels.device.errors import CudaError
from hwkernels.device.worker import Hang
from hwkernels.screen.kernel import BLOCK, SLOTS, WORDS, Fault, agent_of, assembled, kernel_of, launch_of, screening
from hwkernels.screen.run import TRIES, Report, _of_workers, main, parse_fault, screen
from hwkernels.screen.vectors import Vectors, all_vectors, heating, screened, vectors
from tcsim.ptx import Memory, parse

MNEMONICS = (
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2",
    "wgmma.mma_async.sp.sync.aligned.m64n128k32.f16.f16.f16",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32",
)
MULTIPROCESSORS = 5


class Gpu:
    """Says what a launch would find: blocks lie on multiprocessors in turn, and one of them may flip a bit."""

    def __init__(self, fault: Fault | None = None, hangs: bool = False, multiprocessors: int = MULTIPROCESSORS) -> None:
        self.fault, self.hangs, self.multiprocessors, self.launches = fault, hangs, multiprocessors, 0

    def __call__(self, launch: Launch) -> list[Any]:
        """The outputs: records of wrong results, and of each block its multiprocessor and how many were wrong."""
        if self.hangs:
            raise Hang(launch.kernel, 1.0)
        self.launches += 1
        found, places = (np.zeros(shape, dtype) for shape, dtype in launch.outputs)
        places[:, 0] = np.arange(len(places)) * 3 % self.multiprocessors
        if self.fault is not None:
            hit = places[:, 0] == self.fault.multiprocessor
            places[hit, 1] = launch.block[0] * int(launch.scalars[-1])
            found[hit, :, 1] = np.arange(SLOTS)
            found[hit, :, WORDS] = 1 << self.fault.bit
        return [found, places]


@pytest.fixture(scope="module")
def batches() -> list[Vectors]:
    """Vectors of an instruction of each family, of wgmma with A in registers too, and of a chain of each kind."""
    found = all_vectors([tcsim.instruction(own, arch="sm_90") for own in MNEMONICS], 3)
    chains = [tcsim.instruction(own, arch="sm_90") for own in (MNEMONICS[0], MNEMONICS[2])]
    return [*found, *(vectors(own, 3, chain=3) for own in chains)]


def test_what_is_screened_is_every_product_of_a_chip() -> None:
    """All rows of the five families that a chip has, wgmma of one width."""
    found = [item.mnemonic for item in screened("sm_90", "sm_90a")]
    assert len(found) == len(set(found)) > 300 and set(MNEMONICS) <= set(found)
    assert {item.row.family for item in screened("sm_80", "sm_80")} == {"mma.sync", "mma.sp", "wmma.mma"}


def test_vectors_differ_by_seed_and_hold_close_numbers(batches: list[Vectors]) -> None:
    """Every other sample is of finite numbers; another seed gives others."""
    for given in batches:
        again, other = (vectors(given.instruction, seed, given.in_registers, given.chain) for seed in (3, 4))
        np.testing.assert_array_equal(given.expected, again.expected)
        assert (given.expected != other.expected).any(axis=(1, 2)).all()
        if given.chain > 1:
            continue
        name = given.instruction.formats["d"].name
        container = given.expected[1::2].view(np.uint16 if name == "f16" else np.uint32)
        assert np.isfinite(np.asarray(tcsim.decode(container, name))).all()


def test_the_kernels_assemble_and_fill_a_multiprocessor(batches: list[Vectors]) -> None:
    """One module of all, with a fault; a launch has a block for each multiprocessor, with all of its shared memory."""
    assert [own.name for own in batches if own.in_registers] == [f"{own}, A in registers" for own in MNEMONICS[2:4]]
    assert assembled([own for own in batches if own.chain == 1], "sm_90a", Fault(2, 9))
    assert assembled([own for own in batches if own.chain > 1], "sm_90a")
    for given in batches:
        launch = launch_of(given, b"-", 6, 7, 200_000)
        assert launch.grid == (6, 1, 1) and launch.shared_bytes == 200_000
        assert launch.scalars[-2:] == (len(given.expected), 7 * len(given.expected))


@pytest.mark.parametrize(
    ("place", "fault"),
    [(0, None), (0, Fault(0, 9)), (1, Fault(1, 9)), (2, None), (2, Fault(0, 31)), (3, None), (7, None), (8, None)],
)
def test_a_kernel_compares_every_sample(batches: list[Vectors], place: int, fault: Fault | None) -> None:
    """In `tcsim.ptx`, whose multiprocessor is 0: nothing wrong, or a planted bit in each sample; a vector that is changed is found."""
    given = batches[place]
    agent = agent_of(given.instruction.row)
    launch = replace(launch_of(given, b"-", 2, 1, 0), block=(128, 1, 1))
    text = screening(kernel_of(given, "sm_90a"), agent, fault)
    memory = Memory()
    expected = given.expected.copy()
    expected[5, 3, 1] ^= np.uint32(1 << 17)
    inputs = [
        memory.allocate(np.ascontiguousarray(own).reshape(-1).view(np.uint8)) for own in (*launch.inputs[:-1], expected)
    ]
    outputs = [memory.allocate(np.zeros(int(np.prod(shape)) * 4, np.uint8)) for shape, _ in launch.outputs]
    run = parse(f".version 8.5\n.target sm_90a\n.address_size 64\n{text}").kernel().launch(
        memory, [*inputs, *outputs, *map(int, launch.scalars)], grid=launch.grid, block=launch.block,
        dynamic_smem=launch.shared_bytes,
    )  # fmt: skip
    assert run.completed and not run.hazards
    (shape, _), _ = launch.outputs
    found = memory.read(outputs[0], int(np.prod(shape)) * 4).view(np.uint32).reshape(shape)
    places = memory.read(outputs[1], 16).view(np.uint32).reshape(2, 2)
    results = 128 * len(expected)  # of the threads of a block
    planted = fault is not None and fault.multiprocessor == 0
    assert places.tolist() == [[0, results if planted else 128 // agent]] * 2
    if not planted:
        records = found[0, : 128 // agent]
        assert (records[:, 0] == 5).all() and (records[:, 1] % agent == 3).all()
        assert sorted(records[:, 1] // agent) == list(range(128 // agent)) and len({*records[:, 2]}) == 128 // agent
        assert (records[:, WORDS + 1] == 1 << 17).all() and not np.delete(records[:, WORDS:], 1, axis=1).any()
    else:
        assert (found[:, :, WORDS] == 1 << fault.bit).all()  # type: ignore[union-attr]


def test_a_sound_gpu_is_found_sound(batches: list[Vectors]) -> None:
    """Every multiprocessor meets every vector; what is compared is counted."""
    for given in batches:
        report = Report("GPU", MULTIPROCESSORS)
        gpu = Gpu()
        screen(gpu, [given], b"-", report, repeats=2)
        agents = 1 if agent_of(given.instruction.row) == 128 else BLOCK // 32
        assert report.status == 0 and not report.wrong and gpu.launches == 1
        assert report.results == 2 * agents * MULTIPROCESSORS * given.expected.size
        assert "all right" in report.lines()[0]


def test_a_fault_is_found_and_located(batches: list[Vectors]) -> None:
    """Multiprocessor, instruction and bit; the first wrong results by lane and register."""
    for given in batches:
        report = Report("GPU", MULTIPROCESSORS)
        screen(Gpu(Fault(3, 21)), [given], b"-", report)
        assert report.status == 1 and set(report.by_multiprocessor) == {3} and set(report.by_bit) == {21}
        assert set(report.by_instruction) == {given.name}
        assert {own["register"] for own in report.wrong} == {0} and len(report.wrong) == 20
        assert re.search(r"multiprocessor 3: [\d,]+", "\n".join(report.lines()))


def test_what_was_not_screened_is_no_success(batches: list[Vectors]) -> None:
    """A hang, and a multiprocessor that no block reached."""
    report = Report("GPU", MULTIPROCESSORS)
    screen(Gpu(hangs=True), [batches[0]], b"-", report)
    assert report.status == 2 and report.failed

    def refuses(launch: Launch) -> list[Any]:
        raise CudaError("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", False)

    screen(refuses, [batches[1]], b"-", report)
    assert report.status == 2 and len(report.failed) == 2
    report, gpu = Report("GPU", MULTIPROCESSORS + 1), Gpu()
    screen(gpu, [batches[0]], b"-", report)
    assert report.status == 2 and report.unseen == {MNEMONICS[0]: 1} and gpu.launches == TRIES
    assert Report("GPU", 1).status == 2


def test_block_scales_of_chips_that_have_them() -> None:
    """sm_120 has them, and the kernels assemble; no GPU of that kind was here to run them."""
    found = [item for item in screened("sm_120", "sm_120a") if "block_scale" in item.row.family]
    assert len(found) == 110
    assert assembled(all_vectors(found[::10], 1), "sm_120a")


def test_what_heats_is_a_chain_of_each_format() -> None:
    """Warpgroups' products where there are any; d of all but the last is c of the next."""
    for arch, family, count in (("sm_90", "wgmma", 8), ("sm_80", "mma.sync", 8)):
        chosen = [item for item in screened(arch, arch + "a" * (arch == "sm_90")) if item.row.family == family]
        found = heating(chosen, 1, 2)
        assert len({own.instruction.formats["a"].name for own in found}) == len(found) == count
        for given in found[:2]:
            once = vectors(given.instruction, 1, chain=1)
            assert given.chain == 2 and given.expected.shape == once.expected.shape


def test_a_worker_without_a_gpu_has_a_report() -> None:
    """What a worker of a cluster raises is a report of status 2; the others keep theirs."""
    sound = Report("GPU 0", 1, results=1)
    found = _of_workers([("tcp://a", [sound]), ("tcp://b", CudaError("cuInit", "CUDA_ERROR_NO_DEVICE", False))])
    assert [report.status for report in found] == [0, 2] and "CUDA_ERROR_NO_DEVICE" in "".join(found[1].lines())


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """A fault that cannot be; a machine without a driver is status 2."""
    with pytest.raises(SystemExit):
        main(["--plant", "17:40"])
    assert "MULTIPROCESSOR:BIT" in capsys.readouterr().err
    assert parse_fault("3:31") == Fault(3, 31)
    assert main(["--gpus", "0"]) == 2
