"""Probes of block-scaled mma: machine code for every target, selectors as the assembler takes them, fp4 and fp6 from ldmatrix.

Like the tests of the assemblers these need ptxas 13.5 or later and nvdisasm, and fail without them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from conformance.isa import testbench_of
from conformance.suite.cases import Settings, Suite
from conformance.suite.hardware import Hardware, Workshop
from hwkernels.device.driver import DeviceInfo
from hwkernels.device.sass import disassemble, opcode_counts
from hwkernels.device.toolchain import AssembleError, Job, assemble, assemble_many
from hwkernels.probes import body_of, probe
from hwkernels.probes.probe import Probe
from tcsim.layouts.block_scales import BYTE_IDS, THREAD_IDS
from tests.support.scale_cases import MX4, MX8, NEAR_MISSES, NV4, ROWS, SPARSE_MX4, SPARSE_MX8, SPARSE_NV4

FORMS = {1: (MX8, SPARSE_MX8), 2: (MX4, SPARSE_MX4), 4: (NV4, SPARSE_NV4)}
"""By the number of blocks, one dense and one sparse spelling."""


@pytest.mark.parametrize(("target", "count"), [("sm_120f", 105), ("sm_120a", 110), ("sm_121f", 105), ("sm_121a", 110)])
def test_every_probe_of_a_target_does_what_its_row_claims(target: str, count: int) -> None:
    """One module with all of the target's instructions assembles without a note; each holds its one opcode."""
    wanted = [tcsim.instruction(row.mnemonic, arch=target) for row in ROWS.values() if target in row.targets]
    assert len(wanted) == count
    built = probe.build(wanted, target)  # refuses what the assembler has a note about
    opcodes = set()
    for item in wanted:
        made = built[item.mnemonic]
        assert isinstance(made, Probe), made
        assert made.complaint == "", item.mnemonic
        ((opcode, times),) = item.lowering.opcodes
        assert times == 1
        assert opcode.startswith(("QMMA.SF.", "OMMA.SF."))
        opcodes.add(opcode)
    # 25 pairs of types dense and 25 sparse, and three of fp4 each; spellings with and without .scale_vec share theirs
    assert len(opcodes) == (50 + 3 if target in ("sm_120f", "sm_121f") else 50 + 6)


def with_selectors(mnemonic: str, selectors: tuple[int, int, int, int]) -> str:
    """A module whose instruction has immediate selectors instead of the probe's registers."""
    row = ROWS[mnemonic]
    text = body_of(row).kernel(row, "immediates", "")
    for i, value in enumerate(selectors):
        text = text.replace(f"%half{i}, %half{i + 1}}}", f"{value}, {selectors[i + 1]}}}") if i % 2 == 0 else text
    return f".version 9.1\n.target sm_120a\n.address_size 64\n{text}"


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_the_assembler_takes_exactly_the_selectors_that_exist(blocks: int) -> None:
    """Immediate selectors 0 to 4 in each place: accepted where `execute` takes them, else refused; the same opcode."""
    places = (BYTE_IDS[blocks], THREAD_IDS["a"], BYTE_IDS[blocks], THREAD_IDS["b"])
    checked = 0
    for mnemonic in FORMS[blocks]:
        jobs, expected = [], []
        for place, valid in enumerate(places):
            for value in range(5):
                selectors = [0, 0, 0, 0]
                selectors[place] = value
                jobs.append(Job(with_selectors(mnemonic, (selectors[0], *selectors[1:])), "sm_120a"))  # type: ignore[arg-type]
                expected.append(value in valid)
        made = assemble_many(jobs)
        assert [not isinstance(item, AssembleError) for item in made] == expected
        checked += len(made)
        ((opcode, _),) = tcsim.instruction(mnemonic, arch="sm_120").lowering.opcodes
        last = assemble(with_selectors(mnemonic, tuple(valid[-1] for valid in places)), "sm_120a")  # type: ignore[arg-type]
        assert opcode_counts(disassemble(last.cubin))[opcode] == 1
    assert checked == 40


def test_the_assembler_refuses_the_near_misses() -> None:
    """What `tcsim.instruction` refuses in tests/unit/tcsim/isa/mma/test_block_scale.py, ptxas refuses with the operands of its neighbour."""
    right = {name: with_selectors(name, (0, 0, 0, 0)) for name, _, _ in NEAR_MISSES}
    assert not any(isinstance(item, Exception) for item in assemble_many((text, "sm_120a") for text in right.values()))
    wrong = [(right[name].replace(name, name.replace(old, new)), "sm_120a") for name, old, new in NEAR_MISSES]
    made = assemble_many(wrong)
    assert [type(item) for item in made] == [AssembleError] * 15


@pytest.mark.parametrize("mnemonic", [name for names in FORMS.values() for name in names])
def test_the_plan_of_a_launch(mnemonic: str) -> None:
    """The testbench's inputs go in as the kernel's parameters, in its order: fragments, metadata, scales, selectors."""
    row = ROWS[mnemonic]
    mma, testbench, body = tcsim.instruction(mnemonic, arch="sm_120"), testbench_of(row.family), body_of(row)
    inputs = testbench.inputs(mma, "uniform", 0, 3)
    plan = body.plan(row, inputs)
    names = ["a", "b", "c", *(["metadata"] if "mma.sp" in mnemonic else []), "scale_a", "scale_b"]
    names += ["byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b"]
    assert len(plan.inputs) == len(names)
    for name, array in zip(names, plan.inputs, strict=True):
        want = np.repeat(inputs[name], 32) if "_id_" in name else inputs[name].reshape(-1)
        assert array.dtype == np.uint32
        assert array.reshape(-1).tolist() == want.tolist()
    assert (plan.output, plan.grid, plan.block) == (((3, 32, 4), np.dtype(np.uint32)), (1, 1, 1), (128, 1, 1))
    text = body.kernel(row, "k", "")
    parameters = [line.split()[-1] for line in text.split("(")[1].split(")")[0].split(", ")]
    assert parameters == [*names, "d", "warps"]


class Imaginary(Hardware):
    """A GPU of sm_120 that answers what the model says of the launch's raw parameters; or with one bit turned."""

    def __init__(self, turned: int = 0) -> None:
        super().__init__(DeviceInfo(0, "Imaginary GPU", "sm_120", "1.2.3", "13.0", 1, 1))
        self.turned = turned

    def run(self, made: Probe, inputs: dict[str, npt.NDArray[Any]], repeat: int = 1) -> list[npt.NDArray[np.uint32]]:
        """Execute the launch."""
        launch = made.launch(inputs, repeat)
        mma, (output, dtype) = made.instruction, launch.outputs[0]
        selectors = ("byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b")
        names = [
            "a",
            "b",
            "c",
            *(["metadata"] if "mma.sp" in mma.mnemonic else []),
            "scale_a",
            "scale_b",
            *selectors,
        ]
        given: dict[str, npt.NDArray[Any]] = dict(zip(names, launch.inputs, strict=True))
        for name in selectors:
            assert (given[name] == given[name][:, :1]).all()
            given[name] = given[name][:, 0]
        answer = mma.execute(**given).reshape(output).astype(dtype)  # type: ignore[attr-defined]
        answer[0, 5, 1] ^= np.uint32(self.turned)
        return [answer.copy() for _ in range(repeat)]


@pytest.mark.parametrize("mnemonic", [NV4, SPARSE_MX8])
def test_the_suite_runs_live_and_replays(mnemonic: str, tmp_path: Path) -> None:
    """All classes on a GPU that the model describes pass, are recorded, and replay; one turned bit fails with its trace."""
    live = Suite(Settings("sm_120", "live", record=True, root=tmp_path), Imaginary())
    live.__dict__["workshop"] = Workshop([live.instruction(mnemonic)])
    cases = [case for case in live.cases() if case.mnemonic == mnemonic]
    assert [case.name for case in cases] == testbench_of(ROWS[mnemonic].family).classes(live.instruction(mnemonic))  # type: ignore[arg-type]
    for case in cases:
        outcome = live.run(case)
        assert (outcome.verdict, outcome.mismatches) == ("PASS", 0), outcome.text
        assert outcome.outputs >= 1024
    assert len(live.written) == 1
    replay = Suite(Settings("sm_120", "replay", root=tmp_path))
    again = [case for case in replay.cases() if case.mnemonic == mnemonic]
    assert [case.name for case in again] == [case.name for case in cases]
    assert {replay.run(case).verdict for case in again} == {"REPLAYED"}
    live.hardware = Imaginary(turned=1)
    outcome = live.run(cases[0])
    assert (outcome.verdict, outcome.mismatches) == ("FAIL", 1)
    assert "MISMATCH warp 0 lane 5 register 1 (row 1, column 3): a=[0x" in outcome.text
    assert " scale_a=[0x" in outcome.text
    assert "step 1: fused dot-add of scaled " in outcome.text


# ---- fp4 and fp6 from shared memory


def rows_in_shared(codes: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """Rows of 16 codes as ldmatrix reads them: packed from the lowest bit on, then padding up to 16 bytes."""
    flat = codes.reshape(-1, 16)
    octets = np.full((len(flat), 16), 0xEE, np.uint8)  # padding may hold anything
    for i, row in enumerate(flat.tolist()):
        number = sum(code << bits * place for place, code in enumerate(row))
        octets[i, : 2 * bits] = np.frombuffer(number.to_bytes(2 * bits, "little"), np.uint8)
    return octets


def loaded(
    load: Any, codes: npt.NDArray[np.uint8], bits: int, tiles: list[tuple[slice, slice]]
) -> npt.NDArray[np.uint32]:
    """The registers that ldmatrix fills from 8 x 16 tiles of a matrix, a tile for each register."""
    smem, address = np.zeros(2048, np.uint8), np.zeros(32, np.int64)
    for number, (rows, columns) in enumerate(tiles):
        octets = rows_in_shared(codes[rows, columns], bits)
        for row in range(8):
            at = 128 * number + 16 * row
            smem[at : at + 16] = octets[row]
            address[8 * number + row] = at
    registers: npt.NDArray[np.uint32] = load.execute(smem=smem, address=address)
    return registers


@pytest.mark.parametrize(
    ("format", "word", "shift"), [("e2m1", "b4x16_p64", 2), ("e3m2", "b6x16_p32", 0), ("e2m3", "b6x16_p32", 0)]
)
@pytest.mark.parametrize("kind", ["f8f6f4", "mxf8f6f4.block_scale"])
def test_ldmatrix_feeds_the_operands(format: str, word: str, shift: int, kind: str) -> None:
    """Tiles loaded with ldmatrix are the fragments of A and of B (stored by columns); fp4 after a shift by two bits."""
    scale = ".ue8m0" if "block_scale" in kind else ""
    mma = tcsim.instruction(
        f"mma.sync.aligned.kind::{kind}.m16n8k32.row.col.f32.{format}.{format}.f32{scale}", arch="sm_120"
    )
    bits, generator = tcsim.format(format).bits, np.random.default_rng(5)
    a = generator.integers(0, 1 << bits, (16, 32)).astype(np.uint8)
    b = generator.integers(0, 1 << bits, (32, 8)).astype(np.uint8)
    x4 = tcsim.instruction(f"ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.{word}", arch="sm_120")
    x2 = tcsim.instruction(f"ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.{word}", arch="sm_120")
    low, high, left, right = slice(0, 8), slice(8, 16), slice(0, 16), slice(16, 32)
    got_a = loaded(x4, a, bits, [(low, left), (high, left), (low, right), (high, right)]) << np.uint32(shift)
    got_b = loaded(x2, np.ascontiguousarray(b.T), bits, [(low, left), (low, right)]) << np.uint32(shift)
    assert (got_a == mma.registers("a", a)).all()
    assert (got_b == mma.registers("b", b)).all()
    if shift:  # without it the tensor core would read other numbers
        assert (mma.matrix("a", got_a >> np.uint32(shift)) != a).any()


def test_plain_ldmatrix_feeds_packed_fp4() -> None:
    """The kinds that pack two fp4 into a byte take what ldmatrix .b16 loads of packed rows."""
    mma = tcsim.instruction(FORMS[2][0], arch="sm_120")
    a = np.random.default_rng(6).integers(0, 16, (16, 64)).astype(np.uint8)
    packed = (a[:, 0::2] | a[:, 1::2] << 4).astype(np.uint8)  # 32 bytes a row
    smem = packed.reshape(-1)
    starts = [32 * row + 16 * half for half in (0, 1) for row in range(16)]
    load = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16", arch="sm_120")
    got = load.execute(smem=smem, address=np.array(starts))
    assert (got == mma.registers("a", a)).all()
