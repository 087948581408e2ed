"""Probe kernels: for every target they assemble to the machine code that the registry claims.

Like the tests of the assemblers these need ptxas 13.5 or later, ptxas 12.9 and nvdisasm, and fail without them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import tcsim
from hwkernels.device.sass import SassError, SassFunction, disassemble
from hwkernels.device.toolchain import AssembleError, assemble
from hwkernels.probes import TENSOR_OPCODES, probe
from hwkernels.probes.probe import Probe
from tcsim import catalog
from tcsim.core.targets import TARGETS
from tcsim.model.instruction import Instruction

HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
COUNTS = {  # rows that each target accepts and that assemble to something
    "sm_70": 12, "sm_72": 12, "sm_75": 31, "sm_80": 79, "sm_86": 79, "sm_87": 79, "sm_88": 79, "sm_89": 95,
    "sm_90": 110, "sm_90a": 110, "sm_100": 110, "sm_100f": 126, "sm_100a": 126, "sm_103": 110, "sm_103f": 126,
    "sm_103a": 126, "sm_107": 110, "sm_107f": 126, "sm_107a": 126, "sm_110": 110, "sm_110f": 126, "sm_110a": 126,
    "sm_120": 110, "sm_120f": 168, "sm_120a": 168, "sm_121": 110, "sm_121f": 168, "sm_121a": 168,
}  # fmt: skip


def instructions(target: str) -> list[Instruction]:
    """Every mma.sync instruction of a target."""
    rows = [row for row in catalog.on_arch(target, "mma.sync") if target in row.targets]
    return [tcsim.instruction(row.mnemonic, arch=target) for row in rows]


@cache
def machine_code(target: str, *mnemonics: str) -> tuple[SassFunction, ...]:
    """The disassembled probes of some instructions."""
    rows = [catalog.rows()[mnemonic] for mnemonic in mnemonics]
    return disassemble(assemble(probe.emit(rows, target), target).cubin)


# ---- every target


@pytest.mark.parametrize("target", TARGETS)
def test_every_probe_of_a_target_does_what_its_row_claims(target: str) -> None:
    """One module with all of the target's instructions assembles without a note, and each one's SASS is as claimed."""
    wanted = instructions(target)
    assert len(wanted) == COUNTS[target]
    built = probe.build(wanted, target)
    assert list(built) == [item.mnemonic for item in wanted]
    unread = [made for made in built.values() if isinstance(made, SassError)]
    if unread:  # of sm_70 and sm_72 no nvdisasm wheel reads the code; ptxas 12.9 still makes it
        assert target in ("sm_70", "sm_72")
        assert len(unread) == len(built)
        assert all("no installed nvdisasm reads this cubin" in str(error) for error in unread)
        assembly = assemble(probe.emit([item.row for item in wanted], target), target)
        assert assembly.notes == ()
        assert all(probe.kernel_name(item.row).encode() in assembly.cubin for item in wanted)
        return
    checked = 0
    for made in built.values():
        assert isinstance(made, Probe), made
        assert made.complaint == "", made.instruction.mnemonic
        assert made.target == target
        assert re.fullmatch(r"ptxas \d+\.\d+\.\d+", made.assembler)
        assert re.fullmatch(r"[0-9a-f]{64}", made.code_sha256)
        checked += 1
    assert checked == COUNTS[target]


def test_every_claim_names_an_opcode() -> None:
    """No row passes because nothing is claimed of it, but on the CUDA cores, where no tensor opcode may occur."""
    checked = 0
    for target in TARGETS:
        for item in instructions(target):
            assert item.lowering.opcodes
            tensor = [name for name, _ in item.lowering.opcodes if name.startswith(TENSOR_OPCODES)]
            assert bool(tensor) == (item.lowering.kind != "cuda cores"), (item.mnemonic, target)
            checked += 1
    assert checked == sum(COUNTS.values())


# ---- wrong claims

HMMA, QMMA = "HMMA.16816.F32", "QMMA.16832.F32.E4M3.E4M3"


@pytest.mark.parametrize(
    ("mnemonic", "target", "claim", "complaint"),
    [
        (HALF, "sm_90", ((HMMA, 2),), f"{HMMA} 1 times instead of 2"),
        (HALF, "sm_90", (("HMMA.16816.F16", 1),), f"HMMA.16816.F16 0 times instead of 1; {HMMA} 1 times, which is not"),
        (HALF, "sm_90", (), f"{HMMA} 1 times, which is not claimed"),
        (FP8, "sm_90", ((QMMA, 1),), f"{QMMA} 0 times instead of 1; {HMMA} 2 times, which is not claimed"),
        (FP8, "sm_90", ((HMMA, 2), ("FADD", 3)), "FADD 4 times instead of 3"),
        (FP8, "sm_89", ((HMMA, 2),), f"{HMMA} 0 times instead of 2; {QMMA} 1 times, which is not claimed"),
    ],
)
def test_a_wrong_claim_is_found_out(
    mnemonic: str, target: str, claim: tuple[tuple[str, int], ...], complaint: str
) -> None:
    """Too few, too many, another opcode, or one that was not claimed."""
    right = tcsim.instruction(mnemonic, arch=target)
    functions = machine_code(target, mnemonic)
    assert probe.opcode_complaint(right, functions) == ""
    wrong = replace(right, lowering=replace(right.lowering, opcodes=claim))
    assert complaint in probe.opcode_complaint(wrong, functions)


def test_only_the_probe_s_own_machine_code_counts() -> None:
    """Other kernels of the module do not matter; a kernel that is not there does."""
    both = machine_code("sm_90", HALF, FP8)
    for mnemonic in (HALF, FP8):
        assert probe.opcode_complaint(tcsim.instruction(mnemonic, arch="sm_90"), both) == ""
    alone = machine_code("sm_90", HALF)
    complaint = probe.opcode_complaint(tcsim.instruction(FP8, arch="sm_90"), alone)
    assert "probe_mma_sync_aligned_m16n8k32_row_col_f32_e4m3_e4m3_f32 is not in the machine code" in complaint


def test_what_the_assembler_refuses_does_not_stop_the_others() -> None:
    """A module that does not assemble is taken apart: only the row at fault has no probe."""
    good = tcsim.instruction(HALF, arch="sm_90")
    bad = replace(good, row=replace(good.row, mnemonic=HALF.replace("m16n8k16", "m16n8k64")))
    built = probe.build([good, bad], "sm_90")
    made = built[HALF]
    assert isinstance(made, Probe)
    assert made.complaint == ""
    assert isinstance(built[bad.mnemonic], AssembleError)
    assert probe.build([], "sm_90") == {}


# ---- the text


def test_the_text_is_a_function_of_rows_and_target() -> None:
    """Emitted twice it is the same to the byte, and a module is its kernels one after the other."""
    rows = [item.row for item in instructions("sm_90")]
    text = probe.emit(rows, "sm_90a")
    assert text == probe.emit(rows, "sm_90a")
    assert text.startswith(".version 8.7\n.target sm_90a\n.address_size 64\n")
    kernels = text.split(".visible .entry ")[1:]
    assert len(kernels) == len(rows) == 110
    for row, kernel in zip(rows, kernels, strict=True):
        assert kernel.startswith(
            f"{probe.kernel_name(row)}(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, "
        )
        assert kernel.count(f"    {row.mnemonic} {{%d0") == 1
        assert kernel.count("ld.global") == sum(row.operands[name].count for name in "abc")
        assert kernel.count("st.global") == row.operands["d"].count
    assert len({probe.kernel_name(row) for row in rows}) == len(rows)


def test_one_row_is_a_module_of_one() -> None:
    """A row alone is the same as a list of it; its hash is of that text, and differs by row and target."""
    row, other = catalog.rows()[HALF], catalog.rows()[FP8]
    assert probe.emit(row, "sm_90") == probe.emit([row], "sm_90")
    hashes = {probe.ptx_sha256(item, target) for item in (row, other) for target in ("sm_90", "sm_90a", "sm_120")}
    assert len(hashes) == 6
    assert probe.ptx_sha256(row, "sm_90") in hashes


def test_the_version_is_the_lowest_that_will_do() -> None:
    """Of the target and of every row, compared as numbers."""
    rows = catalog.rows()
    assert probe.ptx_version([rows[HALF]], "sm_80") == "7.0"
    assert probe.ptx_version([rows[HALF]], "sm_90a") == "8.0"
    assert probe.ptx_version([rows[HALF], rows[FP8]], "sm_89") == "8.4"
    assert probe.ptx_version([replace(rows[HALF], ptx_version="7.10")], "sm_89") == "7.10"


@pytest.mark.parametrize(
    ("mnemonic", "target"), [(HALF, "sm_75"), (FP8, "sm_80"), (HALF, "sm_91"), (FP8, "compute_90")]
)
def test_a_row_is_emitted_for_its_targets_only(mnemonic: str, target: str) -> None:
    """The error lists the targets that the row has, also when another row of the module is fine."""
    row, fine = catalog.rows()[mnemonic], catalog.rows()["mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16"]
    complaint = f"{re.escape(mnemonic)} has no target {target}; valid: {', '.join(row.targets)}"
    for rows in ([row], [fine, row] if target in fine.targets else [row]):
        with pytest.raises(ValueError, match=complaint):
            probe.emit(rows, target)


# ---- the launch


@pytest.mark.parametrize(("warps", "blocks"), [(1, 1), (4, 1), (5, 2), (64, 16)])
def test_a_launch_covers_every_warp(warps: int, blocks: int) -> None:
    """Inputs in the order of the parameters, one output, the number of warps, and blocks of four warps for all."""
    item = tcsim.instruction(HALF, arch="sm_90")
    made = Probe(item, "sm_90", b"code", "ptxas 13.0.0", "", "0" * 64)
    inputs = {name: np.zeros((warps, 32, item.operands[name].registers), np.uint32) for name in "abc"}
    launch = made.launch(inputs, repeat=3)
    assert launch.kernel == probe.kernel_name(item.row)
    assert [array.shape for array in launch.inputs] == [(warps, 32, 4), (warps, 32, 2), (warps, 32, 4)]
    assert launch.outputs == (((warps, 32, 4), np.dtype(np.uint32)),)
    assert [int(scalar) for scalar in launch.scalars] == [warps]
    assert (launch.grid, launch.block, launch.repeat) == ((blocks, 1, 1), (128, 1, 1), 3)
