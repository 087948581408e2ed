"""The fast model against the exact one: every instruction, on every arch, with every class of inputs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from conformance.stimuli import classes as inputs
from tcsim import catalog
from tcsim.isa.mma.multiply import MatrixMultiply
from tests.exact import machine
from tests.support.extent import WHOLE, examples, part

MNEMONICS = [row.mnemonic for row in catalog.rows().values() if row.family == "mma.sync" and not row.dropped]
ELEMENTS = 8  # result elements compared of each (instruction, arch, class)
SEED = 20_001  # of the inputs: not one that is recorded


class Task(NamedTuple):
    """One class of inputs on one instruction."""

    instruction: MatrixMultiply
    arch: str
    item: inputs.InputClass


SIBLINGS = 2  # classes of inputs on an arch whose lowering an earlier arch has


def tasks(mnemonic: str) -> Iterator[Task]:
    """What there is to compare of a mnemonic: every class of inputs for each lowering, and some on the other archs that share it."""
    seen = set[str]()
    for arch in tcsim.ARCHS:
        if mnemonic not in on_arch(arch):
            continue
        instruction = tcsim.instruction(mnemonic, arch=arch)
        classes, lowering = inputs.classes_for(instruction), repr(instruction.lowering)
        chosen = part(classes, SIBLINGS, (mnemonic, arch)) if lowering in seen else classes
        seen.add(lowering)
        yield from (Task(instruction, arch, item) for item in chosen)


@lru_cache
def on_arch(arch: str) -> frozenset[str]:
    """The mnemonics of an arch."""
    return frozenset(row.mnemonic for row in catalog.on_arch(arch))


def matrices(task: Task) -> dict[str, npt.NDArray[Any]]:
    """The operands of a case as the conformance suite makes them: (products, rows, columns) of a, b and c."""
    instruction = task.instruction
    samples = inputs.default_samples(instruction, task.item)
    registers = inputs.registers(instruction, task.item, SEED, samples)
    return {
        name: instruction.matrix(name, array).reshape(-1, *instruction.operands[name].shape)
        for name, array in registers.items()
    }


@pytest.mark.parametrize("mnemonic", MNEMONICS)
def test_the_models_agree(mnemonic: str) -> None:
    """A few random elements of the result of every class of inputs, on every arch that has the instruction."""
    compared, planned = 0, 0
    for task in tasks(mnemonic):
        instruction, operands = task.instruction, matrices(task)
        m, n, _ = instruction.shape
        stream = random.Random(f"{mnemonic} {task.arch} {task.item.name}")
        places = [
            (stream.randrange(len(operands["a"])), stream.randrange(m), stream.randrange(n)) for _ in range(ELEMENTS)
        ]
        product = np.array([place[0] for place in places])
        fast = instruction.matmul(*(operands[name][product] for name in "abc"))
        for index, (number, row, column) in enumerate(places):
            a, b = operands["a"][number, row].tolist(), operands["b"][number, :, column].tolist()
            c = int(operands["c"][number, row, column])
            exact = machine.element(mnemonic, task.arch, a, b, c)
            assert int(fast[index, row, column]) == exact, (task.arch, task.item.name, a, b, c)
            compared += 1
        planned += ELEMENTS
    assert compared == planned > 0


def test_what_is_compared_covers_everything() -> None:
    """Every arch, instruction and class of inputs takes part, and more than 40,000 elements are compared, in the whole 100,000."""
    plan = [task for mnemonic in MNEMONICS for task in tasks(mnemonic)]
    assert {task.arch for task in plan} == set(tcsim.ARCHS)
    assert {task.item.name for task in plan} == set(inputs.CLASSES)
    pairs = {(task.arch, task.instruction.mnemonic) for task in plan}
    assert len(pairs) == 2 * 12 + 31 + 4 * 79 + 95 + 110 + 4 * 126 + 2 * 168
    assert len(plan) * ELEMENTS > (100_000 if WHOLE else 40_000)


def test_whole_tiles_agree() -> None:
    """Every element of one tile of each arithmetic, also through registers: a transposed operand could not pass."""
    compared = 0
    for arch, shape in (
        ("sm_70", "m8n8k4.col.row.f32.f16.f16.f16"),
        ("sm_75", "m8n8k32.row.col.satfinite.s32.s4.u4.s32"),
        ("sm_80", "m8n8k4.row.row.f16.f16.f16.f16"),
        ("sm_80", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("sm_89", "m16n8k32.row.col.f16.e4m3.e5m2.f16"),
        ("sm_90", "m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("sm_90", "m16n8k16.row.col.rm.f64.f64.f64.f64"),
        ("sm_100", "m16n8k32.row.col.f32.e5m2.e4m3.f32"),
        ("sm_100", "m16n8k64.row.col.satfinite.s32.u4.s4.s32"),
        ("sm_120", "kind::f8f6f4.m16n8k32.row.col.f32.e3m2.e2m1.f32"),
        ("sm_120", "m16n8k128.row.col.s32.b1.b1.s32.and.popc"),
    ):
        instruction = tcsim.instruction(f"mma.sync.aligned.{shape}", arch=arch)
        registers = inputs.registers(instruction, inputs.CLASSES["uniform"], SEED, 1)
        flat = {
            name: instruction.matrix(name, array).reshape(-1, *instruction.operands[name].shape)
            for name, array in registers.items()
        }
        result = instruction.matrix("d", instruction.execute(**registers)).reshape(-1, *instruction.operands["d"].shape)
        for number in range(instruction.matrices):
            exact = machine.mma(instruction.mnemonic, arch, *(flat[name][number].tolist() for name in "abc"))
            assert result[number].tolist() == exact, (arch, shape)
            compared += result[number].size
    assert compared == 2 * 4 * 64 + 64 + 8 * 128


# ---- raw register bits

RAW = [
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    ("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", "sm_90"),
    ("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", "sm_75"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_120"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e5m2.f16", "sm_90"),
    ("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f16.e2m3.e2m1.f16", "sm_120"),
    ("mma.sync.aligned.m16n8k4.row.col.rp.f64.f64.f64.f64", "sm_100"),
    ("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.s8.s32", "sm_80"),
    ("mma.sync.aligned.m8n8k32.row.col.satfinite.s32.s4.s4.s32", "sm_90"),
    ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "sm_100"),
]


@pytest.mark.parametrize(("mnemonic", "arch"), RAW)
@examples(30)
@given(data=st.data())
def test_any_register_bits(mnemonic: str, arch: str, data: st.DataObject) -> None:
    """Registers of any bits, those of eight lanes drawn and repeated over the warp; several elements of each result.

    A byte that holds an e2m1 is read as e2m3: the slow model computes that instruction.
    """
    instruction = tcsim.instruction(mnemonic, arch=arch)
    mnemonic = mnemonic.replace("e2m1", "e2m3")
    read = tcsim.instruction(mnemonic, arch=arch)
    registers = {}
    for name in "abc":
        operand = instruction.operands[name]
        size = 4 * operand.registers * 8
        drawn = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size), label=name), np.uint32)
        registers[name] = np.resize(drawn.reshape(8, operand.registers), (32, operand.registers))
    codes = {
        name: read.matrix(name, array).reshape(-1, *instruction.operands[name].shape)
        for name, array in registers.items()
    }
    fast = instruction.matrix("d", instruction.execute(**registers)).reshape(-1, *instruction.operands["d"].shape)
    for number in range(instruction.matrices):
        for row, column in ((0, 0), (1, 7), (instruction.shape[0] - 1, 3)):
            a, b = codes["a"][number, row].tolist(), codes["b"][number, :, column].tolist()
            c = int(codes["c"][number, row, column])
            assert int(fast[number, row, column]) == machine.element(mnemonic, arch, a, b, c), (a, b, c)
