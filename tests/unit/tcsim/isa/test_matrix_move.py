"""ldmatrix, stmatrix and movmatrix: the inventory, the manual's fragments, CUTLASS's layouts, a slow model, wrong use."""

from __future__ import annotations

import csv
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from tcsim import InstructionError, OperandError, catalog
from tcsim.core.addresses import AddressError, ContestedRowError, MisalignedAddressError, OutsideMemoryError
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.isa.matrix.semantics import LoadMatrix, SharedMatrix, StoreMatrix, TransposeMatrix
from tcsim.layouts.layout import Layout
from tcsim.memory.shared import ROW_FORMATS, unpack_rows
from tcsim.model.row import Row
from tests.exact import matrix_move as exact
from tests.support.tables import TABLES

FAMILIES = {"ldmatrix": 63, "stmatrix": 27, "movmatrix": 1}
ROWS = {name: row for name, row in catalog.rows().items() if row.family in FAMILIES}
LOADS = [name for name, row in ROWS.items() if row.family == "ldmatrix"]
STORES = [name for name, row in ROWS.items() if row.family == "stmatrix"]
MOVE = "movmatrix.sync.aligned.m8n8.trans.b16"
LANES = np.arange(32)


def anywhere(mnemonic: str) -> Any:
    """The instruction on an arch that does not ask for more than others do."""
    return tcsim.instruction(mnemonic, arch=TARGETS[ROWS[mnemonic].targets[-1]].arch)


def random_bytes(shape: tuple[int, ...], seed: int) -> npt.NDArray[np.uint8]:
    """Random memory."""
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 256, shape, np.uint8)


def random_words(shape: tuple[int, ...], seed: int) -> npt.NDArray[np.uint32]:
    """Random registers."""
    return random_bytes((*shape[:-1], 4 * shape[-1]), seed).view("<u4")


# ---- the inventory


def inventory(family: str) -> list[dict[str, str]]:
    """The lines of a family."""
    text = (TABLES / f"{family}_inventory.csv").read_text()
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_registry_is_the_inventory(family: str) -> None:
    """Exactly the spellings that ptxas accepts, with their targets, versions, and place in the manual."""
    lines = inventory(family)
    assert len(lines) == FAMILIES[family]
    own = {name: row for name, row in ROWS.items() if row.family == family}
    assert set(own) == {line["mnemonic"] for line in lines}
    for line in lines:
        row = own[line["mnemonic"]]
        assert row.mnemonic == line["mnemonic"]
        assert set(row.targets) == set(line["targets"].split()), row.mnemonic
        assert len(row.targets) == len(set(row.targets))
        assert row.ptx_version == line["min_ptx_isa"], row.mnemonic
        assert row.documented == bool(int(line["documented"]))
        assert extra(row) == line["extra"], row.mnemonic
        assert not row.dropped


def extra(row: Row) -> str:
    """The operand form of a row as the inventory writes it."""
    if row.family == "movmatrix":
        return row.modifiers["trans"][1:]
    form = row.modifiers["count"][1:] + row.modifiers["trans"]
    return f"{form};{row.modifiers['space'][1:] or 'generic'}"


@pytest.mark.parametrize("name", dict.fromkeys((*ARCHS, *TARGETS)))
def test_every_target_takes_exactly_its_instructions(name: str) -> None:
    """On an arch what any of its targets takes, on another target what that one takes; the rest is refused."""
    own = {target for target in TARGETS if TARGETS[target].arch == name} if name in ARCHS else {name}
    taken = 0
    for mnemonic, row in ROWS.items():
        if own & set(row.targets):
            ins = tcsim.instruction(mnemonic, arch=name)
            assert set(ins.targets) == own & set(row.targets)
            assert ins.lowering.kind == "native"
            assert ins.lowering.steps == ()
            taken += 1
        else:
            with pytest.raises(InstructionError) as caught:
                tcsim.instruction(mnemonic, arch=name)
            text = str(caught.value)
            assert text.startswith(f'tcsim.instruction("{mnemonic}", arch="{name}"): {mnemonic} needs ')
            first = row.first_arch.name
            later = f"needs {first} or later; {name} has"
            assert (later if row.targets[0] == first else f"needs one of {row.targets[0]}, ") in text
    counts = {
        "sm_70": 0, "sm_72": 0, "sm_75": 19, "sm_80": 19, "sm_86": 19, "sm_87": 19, "sm_88": 19, "sm_89": 19, "sm_90": 46,
        "sm_90a": 46,
    }  # fmt: skip
    full = name in ARCHS or name[-1] in "fa"
    assert taken == counts.get(name, 91 if full else 37)


def test_evidence() -> None:
    """Measured on sm_90, all of it; nothing looks better than it is."""
    levels = {
        arch: {name: tcsim.instruction(name, arch=arch).evidence.level for name in ROWS if _runs(name, arch)}
        for arch in ("sm_75", "sm_90", "sm_100")
    }
    assert set(levels["sm_75"].values()) == set(levels["sm_100"].values()) == {"literature"}
    assert set(levels["sm_90"].values()) == {"measured"}
    assert len(levels["sm_90"]) == 46


def _runs(mnemonic: str, arch: str) -> bool:
    return any(TARGETS[target].arch == arch for target in ROWS[mnemonic].targets)


# ---- who holds what: the manual's figures

FIGURES: dict[str, Any] = {
    # shape: (group, thread in group, register of the matrix, slot) -> (row, column)
    "m8n8": lambda g, t, r, i: (g, 2 * t + i),
    "m8n16": lambda g, t, r, i: (g, 4 * t + i),
    "m16n16": lambda g, t, r, i: (g + 8 * r, 4 * t + i),
    "m16n8": lambda g, t, r, i: (g + 8 * (i // 2), 2 * t + i % 2),
}


@pytest.mark.parametrize("mnemonic", ROWS)
def test_every_element_is_where_the_manual_puts_it(mnemonic: str) -> None:
    """Both directions, for every lane, register and slot of every matrix."""
    word = next(word for word in mnemonic.split(".") if re.fullmatch(r"m\d+n\d+", word))
    figure, checked = FIGURES[word], 0
    for operand in ROWS[mnemonic].operands.values():
        layout, count = operand.layout, int(ROWS[mnemonic].modifiers.get("count", ".x1")[2:])
        rows, columns = (int(part) for part in re.findall(r"\d+", word))
        assert (layout.rows, layout.columns, layout.matrices, layout.lanes) == (rows, columns, count, 32)
        each = layout.registers // count
        assert operand.registers == operand.count == count * (2 if word == "m16n16" else 1)
        for lane in range(32):
            for register in range(layout.registers):
                matrix, within = divmod(register, each)
                assert layout.matrix_of(register) == matrix
                for slot in range(layout.slots):
                    place = figure(lane // 4, lane % 4, within, slot)
                    assert layout(lane, register, slot) == place
                    assert layout.where(*place, matrix) == (lane, register, slot)
                    checked += 1
        assert checked % (rows * columns * count) == 0
    assert checked


def test_layouts_answer_for_arrays_and_refuse_what_is_not_there() -> None:
    """Arrays in, arrays out; errors name what exists."""
    layout = tcsim.instruction("ldmatrix.sync.aligned.m16n16.x2.trans.b8", arch="sm_100").operands["d"].layout
    assert str(layout) == "((4,8),(4,2,2)):((64,1),(16,8,256))"
    assert layout.matrix_of(np.arange(4)).tolist() == [0, 0, 1, 1]
    row, column = layout(LANES, 3, 2)
    lane, register, slot = layout.where(row, column, 1)
    assert (lane == LANES).all()
    assert (register == 3).all()
    assert (slot == 2).all()
    with pytest.raises(OperandError, match=r"matrix 2 does not exist: valid are 0 to 1"):
        layout.where(0, 0, 2)
    with pytest.raises(OperandError, match=r"register 4 does not exist: valid are 0 to 3"):
        layout.matrix_of(4)


# ---- CUTLASS: (thread, bit) layouts of the rows behind the addresses and of the registers, in one space of bits

WARP = Layout((4, 8), (256, 8))
CUTLASS: dict[str, tuple[Layout, Layout, Layout, Layout]] = {
    # mnemonic: thread and bit layout of the addressed rows, thread and bit layout of the registers
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16": (Layout((8, 4), (128, 0)), Layout(128, 1), Layout(32, 32), Layout(32, 1)),
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16": (
        Layout((16, 2), (128, 0)), Layout(128, 1), Layout(32, 32), Layout((32, 2), (1, 1024))),
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": (
        Layout(32, 128), Layout(128, 1), Layout(32, 32), Layout((32, 4), (1, 1024))),
    "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16": (
        Layout((8, 4), (128, 0)), Layout(128, 1), Layout((4, 8), (256, 16)), Layout((16, 2), (1, 128))),
    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16": (
        Layout((16, 2), (128, 0)), Layout(128, 1), Layout((4, 8), (256, 16)), Layout((16, 2, 2), (1, 128, 1024))),
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16": (
        Layout(32, 128), Layout(128, 1), Layout((4, 8), (256, 16)), Layout((16, 2, 4), (1, 128, 1024))),
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8": (
        Layout((2, 2, 4, 2), (128, 1024, 256, 0)), Layout(128, 1), WARP, Layout((8, 2, 2, 2), (1, 128, 64, 1024))),
    "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8": (
        Layout((2, 2, 4, 2), (128, 1024, 256, 2048)), Layout(128, 1), WARP, Layout((8, 2, 2, 4), (1, 128, 64, 1024))),
    "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64": (
        Layout((8, 4), (128, 0)), Layout(128, 1), Layout(32, 32), Layout(32, 1)),
    "ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b6x16_p32": (
        Layout((16, 2), (128, 0)), Layout(128, 1), Layout(32, 32), Layout((32, 2), (1, 1024))),
    "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64": (
        Layout(32, 128), Layout(128, 1), Layout(32, 32), Layout((32, 4), (1, 1024))),
    "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8": (
        Layout((8, 4), (128, 0)), Layout(128, 1), WARP, Layout((8, 2, 2), (1, 128, 64))),
    "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8": (
        Layout((16, 2), (128, 0)), Layout(128, 1), WARP, Layout((8, 2, 2, 2), (1, 128, 64, 1024))),
    "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8": (
        Layout(32, 128), Layout(128, 1), WARP, Layout((8, 2, 2, 4), (1, 128, 64, 1024))),
}  # fmt: skip
"""copy_traits_sm75.hpp and copy_traits_sm100.hpp, SrcLayout and DstLayout (for a store the other way round)."""


def as_cutlass_permutes(registers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """What SM100_U8x8_LDSM_T::copy() makes of ldmatrix's registers: {0.x 0.y 1.x 1.y} and {0.z 0.w 1.z 1.w} of each pair."""
    octets = registers.view(np.uint8).reshape(*registers.shape[:-1], -1, 2, 2, 2)  # pair, register, half, byte
    return np.ascontiguousarray(octets.swapaxes(-3, -2)).reshape(*registers.shape[:-1], -1).view("<u4")


@pytest.mark.parametrize("mnemonic", CUTLASS)
def test_cutlass_says_the_same(mnemonic: str) -> None:
    """Random rows; bit (thread, value) of the registers is the bit of the rows that CUTLASS's layouts name."""
    row_thread, row_bit, register_thread, register_bit = CUTLASS[mnemonic]
    ins = anywhere(mnemonic)
    format = ins.row.stored
    elements = random_bytes((32, 16), 5) & np.uint8((1 << min(format.bits, 8)) - 1)
    logical = np.zeros(32 * 128, np.uint8)
    bits = np.unpackbits(elements, axis=-1, bitorder="little")
    used = ins.address_lanes
    place = row_thread(np.arange(used))[:, None] + row_bit(np.arange(128))
    logical[place] = bits[:used]
    expected = logical[register_thread(LANES)[:, None] + register_bit(np.arange(register_bit.size))]
    registers = np.packbits(expected, axis=-1, bitorder="little").view("<u4")
    if ins.row.family == "stmatrix":
        assert (ins.stored_rows(registers) == elements[:used]).all()
        return
    stored = np.unpackbits(elements.reshape(32, 16, 1), axis=-1, count=min(format.bits, 8), bitorder="little")
    packed = np.packbits(stored.reshape(32, -1), axis=-1, bitorder="little")
    smem = np.pad(packed, ((0, 0), (0, 16 - packed.shape[1])), constant_values=0xA5).reshape(-1)
    loaded = ins.execute(smem=smem, address=LANES * 16)
    assert ((as_cutlass_permutes(loaded) if ".m16n16." in mnemonic else loaded) == registers).all()


# ---- the slow model


def scattered(ins: SharedMatrix, memory: int, batch: int, seed: int) -> npt.NDArray[np.int64]:
    """Different random row addresses; those of lanes that do not count lie outside the memory."""
    random, unit = np.random.Generator(np.random.PCG64(seed)), ins.row.stored.row_bytes
    address = np.array([random.permutation(memory // unit)[:32] for _ in range(batch)]) * unit
    address[:, ins.address_lanes :] = -1
    return address


@pytest.mark.parametrize("mnemonic", LOADS)
def test_loads_agree_with_the_slow_model(mnemonic: str) -> None:
    """Random memory, random rows: every register of every lane, five times."""
    ins = anywhere(mnemonic)
    smem, address = random_bytes((5, 2048), 1), scattered(ins, 2048, 5, 2)
    found = ins.execute(smem=smem, address=address)
    assert found.dtype == np.uint32
    assert found.shape == (5, 32, ins.operands["d"].registers)
    wanted = [exact.ldmatrix(mnemonic, m.tolist(), a.tolist()) for m, a in zip(smem, address, strict=True)]
    assert found.tolist() == wanted


@pytest.mark.parametrize("mnemonic", STORES)
def test_stores_agree_with_the_slow_model(mnemonic: str) -> None:
    """Random memory, rows and registers: every byte of the memory, five times; the memory that was given stays."""
    ins = anywhere(mnemonic)
    smem, address = random_bytes((5, 2048), 1), scattered(ins, 2048, 5, 2)
    registers, before = random_words((5, 32, ins.operands["registers"].registers), 3), smem.copy()
    found = ins.execute(smem=smem, address=address, registers=registers)
    assert found.dtype == np.uint8
    assert (smem == before).all()
    for i in range(5):
        wanted = exact.stmatrix(mnemonic, smem[i].tolist(), address[i].tolist(), registers[i].tolist())
        assert found[i].tolist() == wanted


def test_movmatrix_agrees_with_the_slow_model() -> None:
    """200 random matrices; twice is nothing."""
    move = anywhere(MOVE)
    a = random_words((200, 32, 1), 1)
    d = move.execute(a=a)
    assert d.tolist() == [exact.movmatrix(registers) for registers in a.tolist()]
    assert (move.execute(a=d) == a).all()


@pytest.mark.parametrize("name", ["b6x16_p32", "b4x16_p64", "s4"])
def test_every_code_in_every_place_is_unpacked(name: str) -> None:
    """All codes of all 16 elements among ones and among zeros; the padding never shows."""
    format, checked = ROW_FORMATS[name], 0
    mask = (1 << format.bits) - 1
    for rest in (0, (1 << 8 * format.row_bytes) - 1):
        for index in range(16):
            for code in range(1 << format.bits):
                row = rest & ~(mask << index * format.bits) | code << index * format.bits
                octets = np.frombuffer(row.to_bytes(format.row_bytes, "little"), np.uint8)
                value = unpack_rows(octets, format)
                sign = 0xF0 if format.signed and code & 8 else 0
                assert value[index] == code | sign
                other = 0 if rest == 0 else mask | (0xF0 if format.signed else 0)
                assert set(np.delete(value, index).tolist()) == {other}
                checked += 1
    assert checked == 2 * 16 * 2**format.bits


# ---- what the instructions are to each other


def test_a_store_undoes_a_load_and_a_transposition_is_a_movmatrix() -> None:
    """m8n8 with and without .trans, one to four matrices."""
    move, checked = anywhere(MOVE), 0
    for count in (1, 2, 4):
        smem, address = random_bytes((512,), count), LANES * 16
        load, load_t, store, store_t = (
            tcsim.instruction(f"{name}.sync.aligned.m8n8.x{count}{trans}.shared.b16", arch="sm_90")
            for name in ("ldmatrix", "stmatrix")
            for trans in ("", ".trans")
        )
        plain, turned = (ins.execute(smem=smem, address=address) for ins in (load, load_t))
        each = [move.execute(a=plain[:, i : i + 1]) for i in range(count)]
        assert (np.concatenate(each, axis=1) == turned).all()
        blank = np.zeros(512, np.uint8)
        for ins, registers in ((store, plain), (store_t, turned)):
            again = ins.execute(smem=blank, address=address, registers=registers)
            assert (again[: 128 * count] == smem[: 128 * count]).all()
            assert not again[128 * count :].any()
            checked += 1
    assert checked == 6


@pytest.mark.parametrize("mnemonic", ROWS)
def test_matrix_and_registers_are_inverse(mnemonic: str) -> None:
    """Registers to codes and back, for every operand."""
    ins = anywhere(mnemonic)
    for name, operand in ins.operands.items():
        registers = random_words((3, 32, operand.registers), 4)
        codes = ins.matrix(name, registers)
        inner = (operand.layout.matrices, *operand.shape) if operand.layout.matrices > 1 else operand.shape
        assert codes.shape == (3, *inner)
        assert codes.dtype == operand.format.dtype
        assert (ins.registers(name, codes) == registers).all()


def test_ldmatrix_feeds_mma() -> None:
    """A 16 x 16 f16 tile row after row in memory, loaded with x4, is operand A of m16n8k16."""
    tile = np.arange(256, dtype=np.uint16).reshape(16, 16)
    load = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16", arch="sm_80")
    mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_80")
    a = load.execute(smem=tile.view(np.uint8).reshape(-1), address=LANES % 16 * 32 + LANES // 16 * 16)
    assert (mma.matrix("a", a) == tile).all()


def test_batches_broadcast() -> None:
    """One memory for many addresses, many memories for one set of registers."""
    load = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x2.shared.b16", arch="sm_90")
    store = tcsim.instruction("stmatrix.sync.aligned.m8n8.x2.shared.b16", arch="sm_90")
    smem, address = random_bytes((2, 1, 1024), 1), scattered(load, 1024, 3, 2)
    loaded = load.execute(smem=smem, address=address)
    assert loaded.shape == (2, 3, 32, 2)
    for i in range(2):
        for j in range(3):
            assert (loaded[i, j] == load.execute(smem=smem[i, 0], address=address[j])).all()
    stored = store.execute(smem=smem, address=address, registers=loaded[0, 0])
    assert stored.shape == (2, 3, 1024)
    assert (stored[1, 2] == store.execute(smem=smem[1, 0], address=address[2], registers=loaded[0, 0])).all()
    assert load.execute(smem=smem[:0], address=address).shape == (0, 3, 32, 2)
    assert load.execute(smem=smem[0, 0], address=address[0].astype(np.uint64)).shape == (32, 2)


# ---- addresses


def test_which_addresses_count() -> None:
    """8 lanes a matrix, 16 of m16n16; the addresses of the others may be anything, but not on sm_75."""
    counts: dict[tuple[str, int], int] = {}
    for name in (*LOADS, *STORES):
        spelling = exact.parse(name)
        assert anywhere(name).address_lanes == spelling.addresses
        counts[spelling.shape, spelling.count] = spelling.addresses
    assert counts == {
        ("m8n8", 1): 8, ("m8n8", 2): 16, ("m8n8", 4): 32, ("m8n16", 1): 8, ("m8n16", 2): 16, ("m8n16", 4): 32,
        ("m16n16", 1): 16, ("m16n16", 2): 32, ("m16n8", 1): 8, ("m16n8", 2): 16, ("m16n8", 4): 32,
    }  # fmt: skip
    address = np.where(LANES < 8, LANES * 16, 0xDEADBEEF)
    name = "ldmatrix.sync.aligned.m8n8.x1.shared.b16"
    tcsim.instruction(name, arch="sm_80").execute(smem=np.zeros(128, np.uint8), address=address)
    turing = tcsim.instruction(name, arch="sm_75")
    with pytest.raises(MisalignedAddressError, match="on sm_75 the address of every lane must be valid"):
        turing.execute(smem=np.zeros(128, np.uint8), address=address)
    turing.execute(smem=np.zeros(128, np.uint8), address=LANES % 8 * 16)


LOAD = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
STORE = "stmatrix.sync.aligned.m8n8.x1.shared.b16"
SMEM = np.zeros(512, np.uint8)


@pytest.mark.parametrize(
    ("mnemonic", "arguments", "error", "text"),
    [
        (LOAD, {"smem": SMEM, "address": LANES * 16 + 8}, MisalignedAddressError,
         "address[0] = 0x8 (lane 0): a column of b16 starts at a multiple of 16 bytes (31 more like it)"),
        (LOAD, {"smem": SMEM, "address": LANES * 16 + 16}, OutsideMemoryError,
         "address[31] = 0x200 (lane 31): a column of b16 of 16 bytes does not lie in the 512 bytes of smem; "
         "valid: 0 to 0x1f0"),
        (LOAD, {"smem": SMEM, "address": [LANES * 16, LANES * 16 - 16]}, OutsideMemoryError, "address[1, 0] = -0x10 (lane 0)"),
        (LOAD, {"smem": SMEM[:8], "address": LANES * 0}, OutsideMemoryError, "valid: none, the memory is smaller than that"),
        (LOAD, {"smem": SMEM, "address": LANES[:16] * 16}, OperandError,
         "address has shape (16,); valid: (..., 32), one for each lane"),
        (LOAD, {"smem": SMEM, "address": LANES * 16.0}, OperandError, "address is float64; valid: integers"),
        (LOAD, {"smem": SMEM.view(np.uint16), "address": LANES * 16}, OperandError,
         "smem is uint16 (256,); valid: uint8 (..., bytes)"),
        (LOAD, {"smem": np.zeros((2, 512), np.uint8), "address": np.zeros((3, 32), int)}, OperandError,
         "leading dimensions [(2,), (3,)] do not broadcast"),
        (STORE, {"smem": SMEM, "address": LANES * 16, "registers": np.zeros((32, 2), np.uint32)}, OperandError,
         "registers is uint32 (32, 2); valid: uint32 (..., 32, 1)"),
        (STORE, {"smem": SMEM, "address": LANES * 0, "registers": LANES[:, None].astype(np.uint32)}, ContestedRowError,
         "lanes 0 and 1 store different bytes to 0x0: which of them stays is not defined; valid: one row for an address, "
         "or rows with the same bytes"),
        (MOVE, {"a": np.zeros((32, 1), np.int32)}, OperandError, "a is int32 (32, 1); valid: uint32 (..., 32, 1)"),
    ],
)  # fmt: skip
def test_wrong_use(mnemonic: str, arguments: dict[str, Any], error: type[OperandError], text: str) -> None:
    """The error quotes the call, says what is wrong and what would be valid."""
    ins = tcsim.instruction(mnemonic, arch="sm_90")
    with pytest.raises(error) as caught:
        ins.execute(**arguments)
    assert type(caught.value) is error
    assert str(caught.value).startswith(f'tcsim.instruction("{mnemonic}", arch="sm_90").execute: ')
    assert text in str(caught.value)
    assert issubclass(error, AddressError) == (error is not OperandError)


def test_rows_of_eight_bytes() -> None:
    """s8.s4 takes addresses at multiples of 8, and reads no further."""
    ins = tcsim.instruction("ldmatrix.sync.aligned.m8n16.x4.shared.s8.s4", arch="sm_90")
    smem = random_bytes((256,), 1)
    wanted = exact.ldmatrix(ins.mnemonic, smem.tolist(), (LANES * 8).tolist())
    assert ins.execute(smem=smem, address=LANES * 8).tolist() == wanted
    with pytest.raises(MisalignedAddressError, match="a row of s4 starts at a multiple of 8 bytes"):
        ins.execute(smem=smem, address=LANES * 4)


def test_rows_with_equal_bytes_may_share_an_address() -> None:
    """Nothing is undefined about them."""
    store = tcsim.instruction(STORE, arch="sm_90")
    registers = store.registers("registers", np.tile(np.arange(8, dtype=np.uint16), (8, 1)))
    found = store.execute(smem=SMEM, address=LANES * 0, registers=registers)
    assert found.view(np.uint16)[:8].tolist() == list(range(8))
    assert not found[16:].any()


# ---- what an address vector costs


def test_bank_conflicts_of_rows() -> None:
    """One phase a matrix; m16n16 has two; s8.s4 fits 16 rows into one; lanes that do not count cost nothing."""
    pitches = {16: 1, 32: 2, 48: 1, 64: 4, 80: 1, 128: 8, 144: 1}
    for name in ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"):
        ins = tcsim.instruction(name, arch="sm_90")
        for pitch, degree in pitches.items():
            found = ins.bank_conflicts(LANES * pitch)
            assert (found.degree, found.wavefronts, found.ideal) == (degree, 4 * degree, 4)
    one = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x1.shared.b16", arch="sm_90")
    assert one.bank_conflicts(np.where(LANES < 8, LANES * 16, 3)).wavefronts == 1
    wide = tcsim.instruction("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8", arch="sm_100")
    assert wide.bank_conflicts(LANES * 16).degrees.tolist() == [1, 1]
    narrow = tcsim.instruction("ldmatrix.sync.aligned.m8n16.x4.shared.s8.s4", arch="sm_90")
    assert narrow.bank_conflicts(LANES * 8).degrees.tolist() == [1, 1]
    slot = LANES >> 2 & 3  # rows of 32 bytes, slots exchanged as a kernel for int4 weights does
    assert narrow.bank_conflicts(LANES * 32).degree == 4
    assert narrow.bank_conflicts(LANES * 32 + slot * 8).degree == 1
    assert one.bank_conflicts(np.stack([LANES * 16, LANES * 128])).degree.tolist() == [1, 8]
    with pytest.raises(MisalignedAddressError, match="a row of b16 starts at a multiple of 16 bytes"):
        one.bank_conflicts(LANES * 8)
    with pytest.raises(OperandError, match=r"address has shape \(8,\)"):
        one.bank_conflicts(LANES[:8] * 16)


def test_classes_and_names() -> None:
    """What binds to what, and how it prints."""
    kinds = {"ldmatrix": LoadMatrix, "stmatrix": StoreMatrix, "movmatrix": TransposeMatrix}
    for mnemonic, row in ROWS.items():
        ins = anywhere(mnemonic)
        assert type(ins) is kinds[row.family]
        assert repr(ins) == f'tcsim.instruction("{mnemonic}", arch="{ins.arch.name}")'
        assert ins.shape[2] == 0
