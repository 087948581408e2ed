"""Effects of movmatrix, cvt, ldmatrix and stmatrix: applied by a machine that knows no instruction, they are what execute gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from tcsim import catalog
from tcsim.core.addresses import MisalignedAddressError
from tcsim.core.errors import NotModelledError
from tcsim.core.targets import TARGETS
from tcsim.isa.cvt.registers import registers_of
from tcsim.model.effects import Access, Effects, completed
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction

Array = npt.NDArray[Any]
MOVE = "movmatrix.sync.aligned.m8n8.trans.b16"
SPACES = {"": "generic", ".shared": "shared", ".shared::cta": "shared"}
CONVERSIONS = (
    "cvt.rn.satfinite.e4m3x2.f32",
    "cvt.rn.f16.u8",  # two forms
    "cvt.f64.bf16",
    "cvt.rs.satfinite.e2m1x4.f32",  # a vector of four sources, random bits
    "cvt.rn.scaled::n2::ue8m0.bf16x2.e4m3x2",
    "cvt.pack.sat.s4.s32.b32",
)


@dataclass
class Machine:
    """A view of one memory that notes every access, and applies effects one byte at a time."""

    memory: npt.NDArray[np.uint8]
    accesses: list[Access] = field(default_factory=list)

    def read(self, access: Access) -> npt.NDArray[np.uint8]:
        """The bytes of an access."""
        self.accesses.append(access)
        return np.array([self.memory[at : at + access.size] for at in access.address.tolist()])

    def run(
        self, instruction: Instruction, form: Form, operands: Mapping[str, Array]
    ) -> tuple[Effects, dict[str, Array]]:
        """Ask for the effects, apply them: also the registers that are written."""
        effects = instruction.effects(form, operands, self)
        registers: dict[str, Array] = {}
        for outcome in completed(effects, self):
            registers |= outcome.registers
            for write in outcome.writes:
                for at, data in zip(write.at.address.tolist(), write.data, strict=True):
                    self.memory[at : at + write.at.size] = data
        return effects, registers


def last_arch(mnemonic: str) -> Instruction:
    """The instruction on the last arch that has it."""
    return tcsim.instruction(mnemonic, arch=TARGETS[catalog.rows()[mnemonic].targets[-1]].arch)


def words(shape: tuple[int, ...], seed: int) -> npt.NDArray[np.uint32]:
    """Random registers."""
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 1 << 32, shape, np.uint64).astype(np.uint32)


def rows_at(instruction: Any, seed: int) -> npt.NDArray[np.int64]:
    """An address for each lane, those that count all different."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(64)[:32]
    return order.astype(np.int64) * instruction.row.stored.row_bytes


# --- registers alone


def test_movmatrix_writes_one_register() -> None:
    """The view is never asked, and a batch of warps is computed at once."""
    move: Any = tcsim.instruction(MOVE, arch="sm_90")
    a, machine = words((5, 32, 1), 1), Machine(np.zeros(0, np.uint8))
    (form,) = move.forms
    for warp in a:
        effects, registers = machine.run(move, form, {"a": warp})
        assert np.array_equal(registers["d"], move.execute(a=warp))
        assert (effects.now.writes, effects.now.signals, effects.reads, effects.pending) == ((), (), (), ())
    assert np.array_equal(move.compute(form, {"a": a})["d"], move.execute(a=a))
    assert machine.accesses == []


@pytest.mark.parametrize("mnemonic", CONVERSIONS)
def test_cvt_writes_one_register(mnemonic: str) -> None:
    """In each of its forms; four sources are one operand, whose last axis tells them apart."""
    item: Any = last_arch(mnemonic)
    for form in item.forms:
        sources = {name: register for name, register in registers_of(form).items() if name != "d"}
        given = {
            name: words((32, 2), seed).view(register.dtype).reshape(32, -1)[:, 0]
            & ~register.dtype.type(register.padding)
            for seed, (name, register) in enumerate(sources.items())
        }
        operands = {
            operand.name: np.stack([given[part] for part in operand.parts], -1)
            if operand.parts
            else given[operand.name]
            for operand in form.operands
            if operand.role == "source"
        }
        effects, registers = Machine(np.zeros(0, np.uint8)).run(item, form, operands)
        assert list(registers) == ["d"]
        assert registers["d"].dtype == item.registers["d"].dtype
        assert np.array_equal(registers["d"], item.execute(**given))
        assert effects.reads == effects.now.writes == ()
    assert [form.name for form in item.forms] == (["", "b8"] if mnemonic.endswith(".u8") else [""])


# --- shared memory


@pytest.mark.parametrize("mnemonic", [name for name, row in catalog.rows().items() if row.family == "ldmatrix"])
def test_ldmatrix_reads_the_rows_that_count(mnemonic: str) -> None:
    """Every row of the family: what was read is what the effects say, in the space that the spelling names."""
    load: Any = last_arch(mnemonic)
    memory, address = words((256,), 3).view(np.uint8), rows_at(load, 4)
    machine, (form,) = Machine(memory.copy()), load.forms
    effects, registers = machine.run(load, form, {"address": address})
    assert np.array_equal(registers["d"], load.execute(smem=memory, address=address))
    assert tuple(machine.accesses) == effects.reads
    (access,) = effects.reads
    assert access.address.tolist() == address[: load.address_lanes].tolist()
    assert (access.size, access.space) == (load.row.stored.row_bytes, SPACES[load.row.modifiers["space"]])
    assert np.array_equal(machine.memory, memory)


@pytest.mark.parametrize("mnemonic", [name for name, row in catalog.rows().items() if row.family == "stmatrix"])
def test_stmatrix_writes_the_rows_that_count(mnemonic: str) -> None:
    """Every row of the family, and it reads nothing."""
    store: Any = last_arch(mnemonic)
    memory, address = words((256,), 5).view(np.uint8), rows_at(store, 6)
    given = words((32, store.operands["registers"].registers), 7)
    machine, (form,) = Machine(memory.copy()), store.forms
    effects, registers = machine.run(store, form, {"address": address, "registers": given})
    assert np.array_equal(machine.memory, store.execute(smem=memory, address=address, registers=given))
    assert not np.array_equal(machine.memory, memory)
    assert (dict(registers), machine.accesses, effects.reads) == ({}, [], ())
    (write,) = effects.now.writes
    assert write.at.address.tolist() == address[: store.address_lanes].tolist()
    assert write.at.space == SPACES[store.row.modifiers["space"]]


def test_a_machine_that_knows_no_instruction_runs_three() -> None:
    """A matrix is loaded, transposed and stored; registers go by the operands' names."""
    lanes = np.arange(32)
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    machine = Machine(np.concatenate([matrix.view(np.uint8).reshape(-1), np.zeros(128, np.uint8)]))
    file: dict[str, Array] = {"from": lanes % 8 * 16, "to": lanes % 8 * 16 + 128}
    program = (
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16", {"address": "from", "d": "x"}),
        (MOVE, {"a": "x", "d": "y"}),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16", {"address": "to", "registers": "y"}),
    )
    for mnemonic, names in program:
        instruction = tcsim.instruction(mnemonic, arch="sm_90")
        (form,) = instruction.forms
        taken = [operand.name for operand in form.operands if operand.role == "source" or operand.kind == "address"]
        _, registers = machine.run(instruction, form, {name: file[names[name]] for name in taken})
        file |= {names[name]: array for name, array in registers.items()}
    assert np.array_equal(machine.memory[128:].view(np.uint16).reshape(8, 8), matrix.T)


# --- what is refused


def test_addresses_that_the_hardware_refuses() -> None:
    """A row in the middle of another; on sm_75 of a lane that does not count too."""
    address = np.arange(32) * 16
    for arch, lane in (("sm_90", 3), ("sm_75", 30)):
        load: Any = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x1.shared.b16", arch=arch)
        wrong = np.where(np.arange(32) == lane, 8, address)
        call = re.escape(f"{load!r}.effects: address[{lane}] = 0x8")
        with pytest.raises(MisalignedAddressError, match=call):
            load.effects(load.forms[0], {"address": wrong}, Machine(np.zeros(512, np.uint8)))


def test_every_family_answers() -> None:
    """One row of each family and operation; what a class does not say is refused by name."""
    kinds = {(row.family, row.operation): name for name, row in catalog.rows().items() if not row.dropped}
    silent = [name for name in kinds.values() if type(last_arch(name)).effects is Instruction.effects]
    assert len(kinds) > 60 and silent == []
    item = last_arch(MOVE)
    with pytest.raises(NotModelledError, match=r"\.effects: not modelled"):
        Instruction.effects(item, item.forms[0], {}, Machine(np.zeros(0, np.uint8)))
