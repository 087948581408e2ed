"""wmma.load, wmma.store and wmma.mma: the inventory, a slow model, whole products, wrong use."""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from conformance.stimuli import classes as inputs
from tcsim import catalog
from tcsim.core.addresses import ContestedRowError, MisalignedAddressError, OutsideMemoryError
from tcsim.core.errors import InstructionError, OperandError
from tcsim.core.targets import TARGETS
from tcsim.isa.wmma.multiply import FragmentMultiply
from tcsim.isa.wmma.tile import FragmentLoad, FragmentMove, FragmentStore, MisalignedStrideError
from tcsim.model.row import Row
from tests.exact import wmma as slow
from tests.support.tables import TABLES

FAMILIES = {"wmma.load": (704, 352), "wmma.store": (208, 104), "wmma.mma": (138, 138)}  # lines of the inventory, rows
ROWS = {row.mnemonic: row for row in catalog.rows().values() if row.family in FAMILIES}
MOVES = [row for row in ROWS.values() if row.family != "wmma.mma"]
PRODUCTS = [row for row in ROWS.values() if row.family == "wmma.mma"]
GENERATIONS = ("sm_70", "sm_72", "sm_75", "sm_80", "sm_90", "sm_100", "sm_120")  # whose layouts or lowerings differ
SEED = 20_003  # of the inputs: not one that is recorded


def inventory(family: str) -> list[dict[str, str]]:
    """The lines of a family."""
    text = (TABLES / f"{family.replace('.', '_')}_inventory.csv").read_text()
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def runs_on(row: Row, arch: str) -> bool:
    """Some target of the arch takes the row."""
    return any(TARGETS[target].arch == arch for target in row.targets)


def shape_of(row: Row) -> str:
    """ "m16n16k16"."""
    return "m{}n{}k{}".format(*row.shape)


# ---- the inventory


@pytest.mark.parametrize("family", FAMILIES)
def test_the_registry_is_the_inventory(family: str) -> None:
    """Exactly the spellings that ptxas accepts, with their operand forms, targets, versions and place in the manual."""
    lines, own = inventory(family), {name: row for name, row in ROWS.items() if row.family == family}
    assert (len(lines), len(own)) == FAMILIES[family]
    assert set(own) == {line["mnemonic"] for line in lines}
    forms: dict[str, set[str]] = {name: set() for name in own}
    for line in lines:
        row = own[line["mnemonic"]]
        assert row.targets == tuple(line["targets"].split()), row.mnemonic
        assert row.ptx_version == line["min_ptx_isa"], row.mnemonic
        assert row.documented == bool(int(line["documented"]))
        assert not row.dropped
        forms[row.mnemonic].add(line["extra"])
    for name, row in own.items():
        assert forms[name] == set(extras(row)), name


def extras(row: Row) -> list[str]:
    """The operand forms of a row as the inventory writes them."""
    if row.family == "wmma.mma":
        value = row.modifiers.get("saturate", row.modifiers.get("rounding", ""))
        return [f"{'.'.join('row' if row_major else 'col' for row_major in row.row_major.values())}{value}"]
    move = tcsim.instruction(row.mnemonic, arch=row.first_arch.name)
    order, space = ("row" if move.row_major else "col"), move.space
    return [f"{move.operand.name}-frag;{order};{space};{form}" for form in ("stride", "nostride")]


def test_every_arch_takes_exactly_its_instructions() -> None:
    """The others are refused, with the reason."""
    counts = {}
    for arch in tcsim.ARCHS:
        taken = refused = 0
        for row in ROWS.values():
            if runs_on(row, arch):
                ins = tcsim.instruction(row.mnemonic, arch=arch)
                assert ins.evidence.level == ("measured" if arch == "sm_90" else ins.evidence.level)
                taken += 1
            else:
                if refused % 16 == 0:  # the search for the nearest spellings takes its time
                    with pytest.raises(InstructionError, match=f"needs {row.first_arch.name} or later"):
                        tcsim.instruction(row.mnemonic, arch=arch)
                refused += 1
        counts[arch] = (taken, refused)
    assert counts.pop("sm_70") == (192, 402)
    assert counts.pop("sm_72") == (384, 210)
    assert counts.pop("sm_75") == (445, 149)
    assert set(counts.values()) == {(594, 0)}


def test_evidence_is_no_better_than_that_of_the_parts() -> None:
    """Measured on sm_90 only; a product elsewhere is what its mma.sync is, or less."""
    levels = {
        (arch, row.family): Counter(
            tcsim.instruction(r.mnemonic, arch=arch).evidence.level
            for r in ROWS.values()
            if r.family == row.family and runs_on(r, arch)
        )
        for arch in tcsim.ARCHS
        for row in (ROWS[name] for name in (MOVES[0].mnemonic, PRODUCTS[0].mnemonic))
    }
    for (arch, family), found in levels.items():
        assert ("measured" in found) == (arch == "sm_90")
        assert "published" not in found
        if family == "wmma.load":
            assert len(found) == 1
    assert levels["sm_72", "wmma.mma"] == {"inferred": 96}
    assert levels["sm_103", "wmma.mma"] == {"inferred": 138}
    assert levels["sm_80", "wmma.mma"] == {"literature": 138}


# ---- loads and stores against the slow model


def moves(family: str) -> Iterator[tuple[FragmentMove, random.Random, dict[str, Any]]]:
    """Every load or store on two archs, with and without a stride, at random places."""
    for number, row in enumerate(row for row in MOVES if row.family == family):
        archs = [arch for arch in GENERATIONS if runs_on(row, arch)]
        for arch in ("sm_90", archs[number % len(archs)]):
            ins = tcsim.instruction(row.mnemonic, arch=arch)
            stream = random.Random(f"{row.mnemonic}/{arch}")
            step = 8 * ins.alignment // ins.operand.layout.element_bits
            for form in ("packed", "stride"):
                place: dict[str, Any] = {"address": ins.alignment * stream.randrange(8)}
                if form == "stride":
                    least = 0 if family == "wmma.load" else -(-ins.default_stride // step)
                    place["stride"] = step * stream.randrange(least, least + 4)
                yield ins, stream, place


def used_bytes(ins: FragmentMove, place: dict[str, Any]) -> int:
    """The end of the tile."""
    stride = place.get("stride", ins.default_stride)
    return place["address"] + (ins.lines - 1) * stride * ins.operand.layout.element_bits // 8 + ins.line_bytes


def test_loads() -> None:
    """Every wmma.load, random memory, memory that ends with the tile."""
    compared = 0
    for ins, stream, place in moves("wmma.load"):
        memory = stream.randbytes(used_bytes(ins, place))
        got = ins.execute(memory=np.frombuffer(memory, np.uint8), **place)
        sm = ins.arch.number
        want = slow.load(ins.mnemonic, sm, int.from_bytes(memory, "little"), place["address"], place.get("stride"))
        assert got.dtype == np.uint32
        assert got.tolist() == want, (ins, place)
        compared += got.size
    assert compared == 199_680


def test_stores() -> None:
    """Every wmma.store, random registers, random memory that ends with the tile; the memory given stays."""
    compared = 0
    for ins, stream, place in moves("wmma.store"):
        size = used_bytes(ins, place)
        memory = np.frombuffer(stream.randbytes(size), np.uint8)
        registers = np.frombuffer(stream.randbytes(4 * 32 * ins.operand.registers), np.uint32).reshape(32, -1)
        before = memory.copy()
        got = ins.execute(memory, registers=registers, **place)
        start = int.from_bytes(memory.tobytes(), "little")
        want = slow.store(
            ins.mnemonic, ins.arch.number, start, place["address"], place.get("stride"), registers.tolist()
        )
        assert got.tobytes() == want.to_bytes(size, "little"), (ins, place)
        assert (memory == before).all()
        compared += size
    assert compared > 340_000


def test_batches_broadcast() -> None:
    """Memories, addresses and strides of a batch, and one of each for all."""
    load = tcsim.instruction("wmma.load.b.sync.aligned.row.m8n32k16.global.s8", arch="sm_90")
    stream = np.random.default_rng(1)
    memory = stream.integers(0, 256, (3, 2048), np.uint8)
    address, stride = np.array([[0], [64]]), np.array([32, 48, 64])
    got = load.execute(memory=memory, address=address, stride=stride)
    assert got.shape == (2, 3, 32, 4)
    for i in range(2):
        for j in range(3):
            one = load.execute(memory=memory[j], address=int(address[i, 0]), stride=int(stride[j]))
            assert (got[i, j] == one).all()
    store = tcsim.instruction("wmma.store.d.sync.aligned.col.m8n32k16.shared.s32", arch="sm_90")
    registers = stream.integers(0, 2**32, (2, 1, 32, 8), np.uint32)
    written = store.execute(memory=np.zeros(4096, np.uint8), address=np.array([0, 32, 64]), registers=registers)
    assert written.shape == (2, 3, 4096)
    assert (written[1, 2] == store.execute(np.zeros(4096, np.uint8), 64, registers[1, 0])).all()
    back = tcsim.instruction("wmma.load.c.sync.aligned.col.m8n32k16.shared.s32", arch="sm_90")
    assert (back.execute(written, np.array([0, 32, 64])) == registers).all()


# ---- products


def test_products_element_by_element() -> None:
    """Every wmma.mma on every generation, several classes of inputs: a few results of each."""
    compared = 0
    for number, row in enumerate(PRODUCTS):
        for arch in GENERATIONS:
            if not runs_on(row, arch):
                continue
            ins: FragmentMultiply = tcsim.instruction(row.mnemonic, arch=arch)
            items = inputs.classes_for(ins)
            for turn in range(3):
                item = items[(number + 5 * turn) % len(items)]
                given = inputs.registers(ins, item, SEED, 1)
                a, b, c = (ins.matrix(name, given[name])[0] for name in "abc")
                d = ins.matrix("d", ins.execute(**given))[0]
                assert (ins.matmul(a, b, c) == d).all()
                stream = random.Random(f"{row.mnemonic}/{arch}/{turn}")
                for _ in range(4):
                    i, j = stream.randrange(row.shape[0]), stream.randrange(row.shape[1])
                    want = slow.element(row.mnemonic, arch, a[i].tolist(), b[:, j].tolist(), int(c[i, j]))
                    assert int(d[i, j]) == want, (ins, item.name, i, j)
                    compared += 1
    assert compared == 12 * sum(runs_on(row, arch) for row in PRODUCTS for arch in GENERATIONS)
    assert compared == 12 * (48 + 96 + 101 + 4 * 138)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_90"])
@pytest.mark.parametrize("shape", ["m16n16k16", "m8n32k16", "m32n8k16"])
@pytest.mark.parametrize("types", ["f16.f32", "f32.f16"])
def test_products_of_whole_fragments(arch: str, shape: str, types: str) -> None:
    """Registers in, registers out, against the slow model's own reading of the fragments."""
    ins = tcsim.instruction(f"wmma.mma.sync.aligned.col.row.{shape}.{types}", arch=arch)
    given = inputs.registers(ins, inputs.CLASSES["wide"], SEED, 1)
    a, b, c = (given[name][0] for name in "abc")
    assert ins.execute(a, b, c).tolist() == slow.execute(ins.mnemonic, arch, a.tolist(), b.tolist(), c.tolist())


def test_what_is_not_read_does_not_matter_since_turing() -> None:
    """Other codes in the later copies of f16 elements change nothing; in the first copy they do."""
    stream = np.random.default_rng(2)
    checked = 0
    for row in PRODUCTS:
        if row.operands["a"].format.name != "f16" or row.row_major != {"a": True, "b": False}:
            continue
        ins = tcsim.instruction(row.mnemonic, arch="sm_90")
        given = {name: array[0] for name, array in inputs.registers(ins, inputs.CLASSES["normal"], SEED, 1).items()}
        d = ins.execute(**given)
        for name in "ab":
            copies = ins.operands[name].layout.copies
            own = 8 // copies
            noise = stream.integers(0, 2**32, (32, 8), np.uint32)
            later = np.where(np.arange(8) < own, given[name], noise)
            assert (ins.execute(**{**given, name: later}) == d).all()
            if copies > 1:
                first = np.where(np.arange(8) < own, noise, given[name])
                assert (ins.execute(**{**given, name: first}) != d).any()
                checked += 1
    assert checked == 16


def test_volta_refuses_copies_that_differ() -> None:
    """There every copy is read, by another quad pair, and no one knows the result."""
    ins = tcsim.instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", arch="sm_70")
    given = {name: array[0] for name, array in inputs.registers(ins, inputs.CLASSES["normal"], SEED, 1).items()}
    ins.execute(**given)
    a = given["a"].copy()
    a[8, 0] ^= 1
    with pytest.raises(
        OperandError, match=r"a holds different codes of element \(0, 0\) in lanes 0 and 8; on sm_70 both"
    ):
        ins.execute(**{**given, "a": a})


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("shape", [(16, 16, 16), (8, 32, 16), (32, 8, 16)])
@pytest.mark.parametrize("layouts", ["row.row", "row.col", "col.row", "col.col"])
def test_load_multiply_store(arch: str, shape: tuple[int, int, int], layouts: str) -> None:
    """From memory to memory: the product of small integers, which every step holds exactly."""
    m, n, k = shape
    order_a, order_b = layouts.split(".")
    name = f"m{m}n{n}k{k}"
    stream = np.random.default_rng(3)
    a, b, c = (stream.integers(-4, 5, size) for size in ((m, k), (k, n), (m, n)))

    def fragment(letter: str, order: str, values: npt.NDArray[Any], dtype: type) -> npt.NDArray[np.uint32]:
        load = tcsim.instruction(
            f"wmma.load.{letter}.sync.aligned.{order}.{name}.{'f16' if dtype is np.float16 else 'f32'}", arch=arch
        )
        lines = (values if order == "row" else values.T).astype(dtype)
        return load.execute(memory=np.ascontiguousarray(lines).reshape(-1).view(np.uint8), address=0)

    mma = tcsim.instruction(f"wmma.mma.sync.aligned.{layouts}.{name}.f32.f32", arch=arch)
    d = mma.execute(
        a=fragment("a", order_a, a, np.float16),
        b=fragment("b", order_b, b, np.float16),
        c=fragment("c", "col", c, np.float32),
    )
    store = tcsim.instruction(f"wmma.store.d.sync.aligned.row.{name}.f32", arch=arch)
    memory = store.execute(memory=np.zeros(4 * m * (n + 8), np.uint8), address=0, registers=d, stride=n + 8)
    assert (memory.view(np.float32).reshape(m, n + 8)[:, :n] == a @ b + c).all()
    assert not memory.view(np.float32).reshape(m, n + 8)[:, n:].any()


# ---- alignment and wrong use


def test_the_default_stride_is_the_manual_s_and_always_allowed() -> None:
    """The table of the section Matrix Storage for WMMA; a packed tile at address 0 can be loaded and stored."""
    table = {
        "m16n16k16": (16, 16, 16, 16, 16, 16), "m8n32k16": (16, 8, 32, 16, 32, 8), "m32n8k16": (16, 32, 8, 16, 8, 32),
        "m8n8k32": (32, 8, 8, 32, 8, 8), "m8n8k128": (128, 8, 8, 128, 8, 8), "m16n16k8": (8, 16, 16, 8, 16, 16),
        "m8n8k4": (4, 8, 8, 4, 8, 8),
    }  # fmt: skip
    for row in MOVES:
        ins = tcsim.instruction(row.mnemonic, arch="sm_90")
        place = 2 * "abc".index(ins.operand.name.replace("d", "c")) + (not ins.row_major)
        assert ins.default_stride == table[shape_of(row)][place]
        line = ins.default_stride * ins.operand.layout.element_bits
        assert line % (8 * ins.alignment) == line % (8 * ins.documented_alignment) == 0
        assert ins.check(0) == ins.check(0, ins.default_stride) == ()
        assert ins.alignment <= max(16, 4 * ins.operand.registers)


def test_alignment() -> None:
    """What the hardware needs, which is one access; what the manual asks for, which is a lane's fragment, or a line."""
    for mnemonic, arch, alignment, documented in (
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", "sm_90", 4, 32),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", "sm_90", 16, 32),
        ("wmma.load.a.sync.aligned.col.m8n32k16.f16", "sm_90", 4, 16),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.s8", "sm_90", 4, 8),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.s8", "sm_72", 4, 8),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.s8", "sm_75", 16, 8),
        ("wmma.load.a.sync.aligned.col.m16n16k16.shared.s8", "sm_75", 1, 8),
        ("wmma.load.b.sync.aligned.col.m8n8k128.b1", "sm_90", 4, 4),
        ("wmma.load.b.sync.aligned.col.m8n8k128.shared::cta.b1", "sm_90", 16, 4),
        ("wmma.load.c.sync.aligned.row.m16n16k16.f32", "sm_90", 8, 32),
        ("wmma.store.d.sync.aligned.col.m16n16k16.f32", "sm_90", 4, 32),
        ("wmma.store.d.sync.aligned.row.m8n8k4.f64", "sm_90", 16, 16),
    ):
        ins = tcsim.instruction(mnemonic, arch=arch)
        assert (ins.alignment, ins.documented_alignment) == (alignment, documented), mnemonic


LOAD = "wmma.load.a.sync.aligned.row.m16n16k16.f16"
SHARED = "wmma.load.a.sync.aligned.row.m16n16k16.shared.s8"
STORE = "wmma.store.d.sync.aligned.col.m16n16k16.f32"
MEMORY = np.zeros(2048, np.uint8)
REGISTERS = np.zeros((32, 8), np.uint32)


@pytest.mark.parametrize(
    ("mnemonic", "arguments", "error", "complaint"),
    [
        (LOAD, {"address": 18}, MisalignedAddressError, "address=0x12: rows of a start at multiples of 4 bytes"),
        (LOAD, {"address": np.array([0, 7])}, MisalignedAddressError, r"address=0x7: rows of a .*\(LD.E needs that\)"),
        (SHARED, {"address": 0, "stride": 24}, MisalignedStrideError, "stride=24: .*; valid: multiples of 16 elements"),
        (LOAD, {"address": 0, "stride": -16}, OperandError, "stride=-16: it is an unsigned 32-bit number"),
        (LOAD, {"address": 0, "stride": 2**32}, OperandError, "stride=4294967296: it is an unsigned 32-bit number"),
        (LOAD, {"address": 0, "stride": 128}, OutsideMemoryError, "row 8 at 0x800: its 32 bytes do not lie in the 2048 b"),
        (LOAD, {"address": -32}, OutsideMemoryError, "row 0 at -0x20"),
        (LOAD, {"address": 0.0}, OperandError, "address is float64; valid: an integer"),
        (LOAD, {"address": 0, "memory": np.zeros(2048, np.int8)}, OperandError, "memory is int8 .2048,.; valid: uint8"),
        (LOAD, {"address": [0, 0], "stride": [16, 16, 16]}, OperandError, "do not broadcast"),
        (SHARED, {"address": 8}, MisalignedAddressError, r"multiples of 16 bytes \(LDSM.16.M88.2 needs that\)"),
        (STORE, {"address": 0, "stride": 8}, ContestedRowError, "columns of 16 elements overlap.*; valid: 16 and more"),
        (STORE, {"address": 0, "registers": np.zeros((32, 4), np.uint32)}, OperandError, r"valid: uint32 \(..., 32, 8\)"),
        (STORE, {"address": 1024 + 32}, OutsideMemoryError, "column 15 at 0x7e0|column 15"),
    ],
)  # fmt: skip
def test_wrong_places(mnemonic: str, arguments: dict[str, Any], error: type[Exception], complaint: str) -> None:
    """A named error that quotes the call, says why, and what would be valid."""
    ins = tcsim.instruction(mnemonic, arch="sm_90")
    given = {"memory": MEMORY} | ({"registers": REGISTERS} if mnemonic == STORE else {}) | arguments
    with pytest.raises(error, match=complaint) as caught:
        ins.execute(**given)
    assert issubclass(error, OperandError)
    assert str(caught.value).startswith(f'tcsim.instruction("{mnemonic}", arch="sm_90").execute: ')


def test_wrong_matrices_and_names() -> None:
    """Shapes, dtypes and spellings."""
    load = tcsim.instruction(LOAD, arch="sm_90")
    with pytest.raises(OperandError, match=r"registers: a has shape \(16, 8\); valid: \(..., 16, 16\)"):
        load.registers(np.zeros((16, 8), np.uint16))
    with pytest.raises(tcsim.FormatError, match="dtype float32 does not hold codes of f16"):
        load.registers(np.zeros((16, 16), np.float32))
    with pytest.raises(OperandError, match=r"a is uint32 \(32, 4\); valid: uint32 \(..., 32, 8\)"):
        load.matrix(np.zeros((32, 4), np.uint32))
    with pytest.raises(
        InstructionError, match=r"no such instruction; nearest: wmma\.load\.a\.sync\.aligned\.row\.m16n16k16\.u8"
    ):
        tcsim.instruction(LOAD.replace("f16", "e4m3"), arch="sm_90")
    with pytest.raises(InstructionError, match="needs sm_80 or later; sm_75 has"):
        tcsim.instruction(LOAD.replace("f16", "bf16"), arch="sm_75")


def test_the_public_api() -> None:
    """Names that other programs rely on."""
    load, store = tcsim.instruction(LOAD, arch="sm_90a"), tcsim.instruction(STORE, arch="sm_90")
    assert isinstance(load, FragmentLoad)
    assert isinstance(store, FragmentStore)
    assert (list(load.operands), list(store.operands)) == (["a"], ["d"])
    assert (load.operands["a"].format.name, load.operands["a"].registers, load.operands["a"].lanes) == ("f16", 8, 32)
    assert load.operands["a"].layout(3, 1, 0) == (8, 6)
    assert load.operands["a"].layout.where(8, 6) == (3, 1, 0)
    assert load.execute(memory=MEMORY, address=0).shape == (32, 8)
    assert store.execute(memory=MEMORY, address=0, registers=REGISTERS).shape == (2048,)
    assert load.lowering.opcodes == (("LD.E", 4),)
    mma = tcsim.instruction("wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32", arch="sm_90")
    assert list(mma.operands) == ["d", "a", "b", "c"]
    assert [step.k for step in mma.lowering.steps] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert mma.lowering.opcodes == (("HMMA.1684.F32.TF32", 4),)
    assert tcsim.instruction(load.mnemonic, arch="sm_75").operands["a"].layout == load.operands["a"].layout
    assert tcsim.instruction(load.mnemonic, arch="sm_70").operands["a"].layout != load.operands["a"].layout
