"""Screening: vectors, the kernels that say where they run, and reports, with the model or `tcsim.ptx` in the GPU's place."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsim
from hwkernels.device.driver import Launch
from hwkernels.device.worker import Hang
from hwkernels.probes import body_of
from hwkernels.probes.probe import kernel_name
from hwkernels.screen.kernel import Fault, assembled, launch_of, marked, variant_of
from hwkernels.screen.run import Report, main, parse_fault, screen
from hwkernels.screen.vectors import Vectors, screened, vectors
from tcsim.ptx import Memory, parse

MNEMONICS = (
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2",
    "wgmma.mma_async.sp.sync.aligned.m64n128k32.f16.f16.f16",
)
MULTIPROCESSORS = 5


class Gpu:
    """Runs a launch as the model says: blocks lie on multiprocessors in turn, and one of them may flip a bit."""

    def __init__(self, given: Vectors, fault: Fault | None = None, hangs: bool = False) -> None:
        self.given, self.fault, self.hangs, self.launches = given, fault, hangs, 0

    def __call__(self, launch: Launch) -> list[Any]:
        """The outputs: registers, and places."""
        if self.hangs:
            raise Hang(launch.kernel, 1.0)
        self.launches += 1
        blocks = launch.grid[0]
        places = (np.arange(blocks) * 3 % MULTIPROCESSORS).astype(np.uint32)
        expected = self.given.expected
        each = launch.outputs[0][0][0] // blocks
        asked = launch.inputs[2 + ("image" in self.given.inputs)].reshape(blocks, -1)
        own = self.given.inputs["c"].reshape(-1, each, *expected.shape[1:]).reshape(len(expected) // each, -1)
        groups = np.array([int(np.flatnonzero((own == one).all(1))[0]) for one in asked])
        found = expected.reshape(-1, each, *expected.shape[1:])[groups].copy()
        if self.fault is not None:
            found[places == self.fault.multiprocessor, :, :, 0] ^= np.uint32(1 << self.fault.bit)
        return [found.reshape(launch.outputs[0][0]), places]


@pytest.fixture(scope="module")
def batches() -> list[Vectors]:
    """Vectors of an instruction of each family."""
    return [vectors(tcsim.instruction(own, arch="sm_90"), 3) for own in MNEMONICS]


def test_what_is_screened_is_every_product_of_a_chip() -> None:
    """All rows of the four families that a chip has, wgmma of one width."""
    found = [item.mnemonic for item in screened("sm_90", "sm_90a")]
    assert len(found) == len(set(found)) > 200 and set(MNEMONICS) <= set(found)
    assert {item.row.family for item in screened("sm_80", "sm_80")} == {"mma.sync", "mma.sp"}


def test_vectors_differ_by_seed_and_hold_close_numbers(batches: list[Vectors]) -> None:
    """Every other sample is of finite numbers; another seed gives others."""
    for given in batches:
        again, other = (vectors(given.instruction, seed) for seed in (3, 4))
        np.testing.assert_array_equal(given.expected, again.expected)
        assert (given.expected != other.expected).any(axis=(1, 2)).all()
        name = given.instruction.formats["d"].name
        container = given.expected[1::2].view(np.uint16 if name == "f16" else np.uint32)
        assert np.isfinite(np.asarray(tcsim.decode(container, name))).all()


def test_the_kernels_assemble_and_say_where_they_run(batches: list[Vectors]) -> None:
    """One module of all four, with a fault; each launch fits its kernel."""
    variants = {own.instruction.mnemonic: variant_of(own) for own in batches}
    cubin = assembled([own.instruction for own in batches], "sm_90a", variants, Fault(2, 9))
    for given in batches:
        launch = launch_of(given, cubin, np.arange(6) % 2)
        assert launch.grid == (6, 1, 1) and launch.outputs[1] == ((6,), np.uint32)


@pytest.mark.parametrize("fault", [None, Fault(0, 9)])
def test_a_marked_kernel_computes_as_before(batches: list[Vectors], fault: Fault | None) -> None:
    """In `tcsim.ptx`: the model's bits, and a planted bit where it was planted."""
    given = batches[0]
    row = given.instruction.row
    launch = launch_of(given, b"-", np.array([1, 0]))
    text = marked(body_of(row).kernel(row, kernel_name(row), ""), fault)
    memory = Memory()
    places = [memory.allocate(own.reshape(-1).view(np.uint8)) for own in launch.inputs]
    outputs = [memory.allocate(np.zeros(int(np.prod(shape)) * 4, np.uint8)) for shape, _ in launch.outputs]
    run = parse(f".version 8.0\n.target sm_90a\n.address_size 64\n{text}").kernel().launch(
        memory, [*places, *outputs, *map(int, launch.scalars)], grid=launch.grid, block=launch.block
    )  # fmt: skip
    assert run.completed and not run.hazards
    shape = launch.outputs[0][0]
    found = memory.read(outputs[0], int(np.prod(shape)) * 4).view(np.uint32).reshape(shape)
    where = memory.read(outputs[1], 8).view(np.uint32)
    expected = given.expected[[4, 5, 6, 7, 0, 1, 2, 3]].copy()
    if fault is not None:
        expected[np.repeat(where == fault.multiprocessor, 4), :, 0] ^= np.uint32(1 << fault.bit)
        assert (where == fault.multiprocessor).any()
    np.testing.assert_array_equal(found, expected)


def test_a_sound_gpu_is_found_sound(batches: list[Vectors]) -> None:
    """Every multiprocessor meets every vector; what is compared is counted."""
    for given in batches:
        report = Report("GPU", MULTIPROCESSORS)
        screen(Gpu(given), [given], b"-", report)
        assert report.status == 0 and report.results >= MULTIPROCESSORS * given.expected.size and not report.wrong
        assert "all right" in report.lines()[0]


def test_a_fault_is_found_and_located(batches: list[Vectors]) -> None:
    """Multiprocessor, instruction and bit; the first wrong results by lane and register."""
    for given in batches:
        report = Report("GPU", MULTIPROCESSORS)
        screen(Gpu(given, Fault(3, 21)), [given], b"-", report)
        assert report.status == 1 and set(report.by_multiprocessor) == {3} and set(report.by_bit) == {21}
        assert set(report.by_instruction) == {given.instruction.mnemonic}
        assert {own["register"] for own in report.wrong} == {0} and len(report.wrong) == 20
        assert re.search(r"multiprocessor 3: [\d,]+", "\n".join(report.lines()))


def test_what_was_not_screened_is_no_success(batches: list[Vectors]) -> None:
    """A hang, and a multiprocessor that no block reached."""
    report = Report("GPU", MULTIPROCESSORS)
    screen(Gpu(batches[0], hangs=True), [batches[0]], b"-", report)
    assert report.status == 2 and report.failed
    report = Report("GPU", MULTIPROCESSORS + 1)
    screen(Gpu(batches[0]), [batches[0]], b"-", report)
    assert report.status == 2 and report.unseen == {MNEMONICS[0]: len(batches[0].expected) // 4}
    assert Report("GPU", 1).status == 2


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """A fault that cannot be; a machine without a driver is status 2."""
    with pytest.raises(SystemExit):
        main(["--plant", "17:40"])
    assert "MULTIPROCESSOR:BIT" in capsys.readouterr().err
    assert parse_fault("3:31") == Fault(3, 31)
    assert main(["--gpus", "0"]) == 2
