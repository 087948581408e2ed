"""Every subcommand of the command line on an instruction of every family: an answer, or a refusal for a reason that is stated here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import slices
from conformance.isa.tcgen05 import TENSOR_MEMORY
from tcsim import catalog
from tcsim.core.targets import TARGETS
from tcsim.inspection.conversion_inputs import conversion_steps, random_registers
from tcsim.inspection.feeds import feed_of
from tcsim.inspection.problems import run_call
from tcsim.isa.special.rows import FUNCTIONS
from tests.support.cli_runs import answer, data, refusal

FIRST = {family.name: next(row for row in family.rows() if not row.dropped) for family in catalog.families()}
FRAGMENTS = {name for name, row in FIRST.items() if row.operands}
PRODUCTS = {name for name in FRAGMENTS if "c" in FIRST[name].operands}
CHOOSING = {name for name in FRAGMENTS if "mdata" in FIRST[name].operands}  # what they hold depends on its values
DESCRIBED = {name for name, testbench in slices()["tcgen05"].items() if testbench is TENSOR_MEMORY}
ONE_ARCH = {  # there is nothing to compare with
    family.name
    for family in catalog.families()
    if len({TARGETS[target].arch for row in family.rows() for target in row.targets}) == 1
}
ANSWERS = {
    "map": FRAGMENTS,
    "where": FRAGMENTS,
    "what": FRAGMENTS,
    "inputs": FRAGMENTS - CHOOSING,
    "trace": PRODUCTS | DESCRIBED | {"cvt", *FUNCTIONS},
    "compare": (PRODUCTS | DESCRIBED) - ONE_ARCH,
}
"""The families that a subcommand answers for."""
REASONS = {
    "map": "has no fragments",  # control, memory to memory, tcgen05.mma: no matrix in registers
    "where": (
        "has no fragments",
        "its shape is in the instruction descriptor",
    ),  # of tcgen05.mma with one: in Tensor Memory
    "what": ("has no fragments", "its shape is in the instruction descriptor"),
    "inputs": "not fed by fragments that tcsim follows",
    "trace": "computes no products",
    "compare": ("computes no products", "no instruction of this family", "needs one of"),
}
"""What it says of the others."""


def words_of(subcommand: str, family: str) -> tuple[str, ...]:
    """A call of the subcommand on the family's first instruction."""
    row = FIRST[family]
    operand = next(iter(row.operands), "d")
    archs = list(dict.fromkeys([*(TARGETS[target].arch for target in row.targets), "sm_90", "sm_100"]))
    idesc: tuple[str, ...] = ()
    if family in DESCRIBED:
        one = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=64, n=64, sparse=family.endswith(".sp"))
        idesc = ("--idesc", hex(one.encode()))
    arguments = {
        "map": ("-o", operand),
        "where": ("-o", operand, "-e", "0,0"),
        "what": ("-o", operand, "-l", "0", "-r", f"{operand}0"),
        "inputs": ("-e", "0,0"),
        "trace": ("--seed", "1", *idesc),
        "compare": ("--archs", ",".join(archs[:2]), "--count", "8", *idesc),
    }
    return (subcommand, row.mnemonic, *arguments[subcommand])


@pytest.mark.parametrize("family", FIRST)
def test_every_verb_answers_or_says_why_not(family: str) -> None:
    assert data("show", FIRST[family].mnemonic)["family"] == family
    for subcommand, families in ANSWERS.items():
        if family in families:
            assert data(*words_of(subcommand, family))
        else:
            reasons = REASONS[subcommand] if isinstance(REASONS[subcommand], tuple) else (REASONS[subcommand],)
            text = refusal(*words_of(subcommand, family))
            assert any(reason in text for reason in reasons), text


def test_every_conversion_is_traced() -> None:
    """What is told last of each element of d is what the instruction gives, for any registers."""
    told = 0
    for row in [row for row in catalog.rows().values() if row.family == "cvt"][::3]:
        cvt: Any = tcsim.instruction(row.mnemonic, arch=TARGETS[row.targets[-1]].arch)
        registers = random_registers(cvt, told)
        (step,) = conversion_steps(cvt, registers)
        codes = cvt.registers["d"].unpack(np.atleast_1d(cvt.execute(**registers)))
        assert [int(line.rpartition("-> ")[2].split()[0], 16) for line in step.notes[: len(codes)]] == codes[
            :, 0
        ].tolist()
        told += len(codes)
    assert told > 200


def test_conversions_of_a_file(tmp_path: Path) -> None:
    name = "cvt.rn.satfinite.e4m3x2.f32"
    np.savez(tmp_path / "x.npz", a=np.float32([1, 2, 500]), b=np.float32([0.5]))
    steps = data("trace", name, "--inputs", tmp_path / "x.npz", "--batch", 2)["steps"]
    assert "(500.0)" in steps[0]["notes"][0] and "0x30 (0.5)" in steps[0]["notes"][1]
    assert "items 0 to 2" in refusal("trace", name, "--inputs", tmp_path / "x.npz", "--batch", 3)
    np.savez(tmp_path / "y.npz", a=np.float32([1]))
    assert "b is missing; valid: a, b" in refusal("trace", name, "--inputs", tmp_path / "y.npz")


@pytest.mark.parametrize("shape", ["32x32b.x4", "16x64b.x2", "16x32bx2.x2"])
@pytest.mark.parametrize("pack", ["", ".pack::16b"])
def test_cells_that_feed_a_load(shape: str, pack: str) -> None:
    """The cell that is named is the one that decides the element."""
    load: Any = tcsim.instruction(f"tcgen05.ld.sync.aligned.{shape}{pack}.b32", arch="sm_100")
    offset = {"half_split_offset": 100} if "x2.x" in shape else {}
    tmem = tcsim.TensorMemory.allocated()
    tmem.write(np.arange(128)[:, None], np.arange(512), np.arange(128 * 512, dtype=np.uint32).reshape(128, 512))
    d, named = load.execute(tmem, 0, **offset), 0
    operand = load.operands["d"]
    for row in range(operand.shape[0]):
        for column in range(operand.shape[1]):
            (source,) = feed_of(load, row, column).others
            words = source.memory.replace(",", "").split()
            lane, cell = (int(words[words.index(word) + 1]) for word in ("lane", "column"))
            code = lane * 512 + cell + (offset.get("half_split_offset", 0) if "half_split_offset" in words else 0)
            own_lane, register, slot = operand.layout.where(row, column)
            word = int(d[own_lane, register]) >> (16 * slot if pack else 0)
            assert word & (0xFFFF if pack else 0xFFFFFFFF) == code & (0xFFFF if pack else 0xFFFFFFFF), (row, column)
            named += 1
    assert named == operand.shape[0] * operand.shape[1] >= 64


def test_tensor_memory_in_files(tmp_path: Path) -> None:
    """Its words are an array, before and after; several results have names."""
    words = np.arange(128 * 512, dtype=np.uint32).reshape(128, 512)
    np.savez(tmp_path / "tmem.npz", tmem=words, address=np.int64(3))
    load = "tcgen05.ld.sync.aligned.32x32b.x2.b32"
    assert data("run", load, "--inputs", tmp_path / "tmem.npz")["d"][1] == [512 + 3, 512 + 4]
    least = "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32"
    found = data("run", least, "--inputs", tmp_path / "tmem.npz")
    assert found["d"]["redval"][1] == [512 + 3] and found["shape"] == {"d": [32, 2], "redval": [32, 1]}
    assert "redval" in answer("run", least, "--inputs", tmp_path / "tmem.npz", "--output", tmp_path / "d.npz")
    assert sorted(np.load(tmp_path / "d.npz").files) == ["d", "redval"]
    np.savez(tmp_path / "st.npz", tmem=words[None], address=np.int64(3), registers=np.zeros((32, 2), np.uint32))
    store = tcsim.instruction("tcgen05.st.sync.aligned.32x32b.x2.b32", arch="sm_100")
    _, results = run_call(store, dict(np.load(tmp_path / "st.npz")))
    assert results["d"].shape == (1, 128, 512) and int((results["d"] != words).sum()) == 64
    text = answer("run", store.mnemonic, "--inputs", tmp_path / "st.npz")
    assert "64 rows more" in text and "384 columns more" in text
    np.savez(tmp_path / "small.npz", tmem=words[:64], address=np.int64(3))
    assert "valid: uint32 (128, 512)" in refusal("run", load, "--inputs", tmp_path / "small.npz")
    np.savez(tmp_path / "barrier.npz", barrier=np.int64(0))
    assert "valid: an MBarrier" in refusal("run", "mbarrier.inval.b64", "--inputs", tmp_path / "barrier.npz")
    np.savez(tmp_path / "nothing.npz")
    assert "gives no array" in refusal("run", "fence.proxy.async", "--inputs", tmp_path / "nothing.npz")


def test_moves_of_tensor_memory_are_diagnosed(tmp_path: Path) -> None:
    """Registers exchanged on the way from it, to it, and beside a reduction; a fence gives nothing to compare."""
    random = np.random.default_rng(3)
    words = random.integers(0, 1 << 32, (128, 512), np.uint64).astype(np.uint32)
    np.savez(tmp_path / "in.npz", tmem=words, address=np.int64(0))
    for name, results in (("tcgen05.ld.sync.aligned.32x32b.x4.b32", ("d",)),
                          ("tcgen05.ld.red.sync.aligned.32x32b.x4.min.u32", ("d", "redval"))):  # fmt: skip
        answer("run", name, "--inputs", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
        found = data("diagnose", name, "--inputs", tmp_path / "in.npz", "--observed", tmp_path / "out.npz")
        assert found["verdict"] == "correct" and found["outputs"] == 32 * (4 + len(results) - 1)
    load: Any = tcsim.instruction("tcgen05.ld.sync.aligned.32x32b.x4.b32", arch="sm_100")
    tmem = tcsim.TensorMemory.allocated()
    tmem.write(np.arange(128)[:, None], np.arange(512), words)
    d = load.execute(tmem, 0)
    assert tcsim.diagnose(load, tmem=tmem, address=0, observed=d[:, [1, 0, 2, 3]]).verdict in ("explained", "ambiguous")
    store: Any = tcsim.instruction("tcgen05.st.sync.aligned.32x32b.x4.b32", arch="sm_100")
    wrong = store.execute(tmem, 64, d[:, [0, 2, 1, 3]])
    found = tcsim.diagnose(store, tmem=tmem, address=64, registers=d, observed=wrong)
    assert found.verdict in ("explained", "ambiguous") and "registers" in str(found) and found.outputs == 128
    with pytest.raises(tcsim.OperandError, match="gives no bits to compare"):
        tcsim.diagnose("fence.proxy.async", arch="sm_90", observed=np.zeros(1, np.uint32))
