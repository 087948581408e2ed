"""cp.async, cp.async.bulk, cp.reduce.async.bulk: the inventory, a slow model, wrong use."""

from __future__ import annotations

import csv
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from conformance.isa import testbench_of
from hwkernels.probes import cp_async_bulk as bulk_copy
from tcsim.arithmetic.reduction import Reduction, reduce_codes
from tcsim.core.addresses import ContestedRowError, MisalignedAddressError, OutsideMemoryError
from tcsim.core.errors import InstructionError, NotModelledError, OperandError
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.memory.mbarrier import BarrierError, MBarrier
from tests.exact import copies as exact
from tests.support.async_copy_cases import FILES, LOAD, MASKED, ROWS, STORE, image, last_arch
from tests.support.tables import TABLES

# ---- the inventory


@pytest.mark.parametrize(
    ("family", "spellings", "forms"),
    [("cp.async", 41, 203), ("cp.async.bulk", 88, 94), ("cp.reduce.async.bulk", 68, 68)],
)
def test_the_registry_is_the_inventory(family: str, spellings: int, forms: int) -> None:
    """Exactly the spellings and operand lists that ptxas accepts, with their targets and versions."""
    path = TABLES / f"{FILES[family]}_inventory.csv"
    text = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    lines = {(line["mnemonic"], line["extra"]): line for line in csv.DictReader(text)}
    assert len(lines) == forms
    rows = [row for row in ROWS.values() if row.family == family]
    assert len(rows) == spellings
    found = {(row.mnemonic, form.name): form for row in rows for form in row.forms}
    assert set(found) == set(lines)
    for key, line in lines.items():
        form = found[key]
        assert list(form.targets) == list(ROWS[key[0]].targets) == line["targets"].split(), key
        assert form.ptx_version == line["min_ptx_isa"], key
        assert form.documented == bool(int(line["documented"])), key
    for row in rows:
        assert row.ptx_version == min((form.ptx_version for form in row.forms), key=float)


def test_accepted_on_exactly_their_targets() -> None:
    """`tcsim.instruction` takes a spelling on the targets of the inventory and on no other (every fourth is refused)."""
    accepted = 0
    for place, (name, row) in enumerate(ROWS.items()):
        for target in TARGETS:
            if target in row.targets:
                tcsim.instruction(name, arch=target)
                accepted += 1
            elif place % 4:
                continue
            elif target not in ARCHS or not {t for t in row.targets if TARGETS[t].arch == target}:
                with pytest.raises(InstructionError, match="needs"):
                    tcsim.instruction(name, arch=target)
    assert accepted == sum(len(row.targets) for row in ROWS.values())


# ---- against the slow model


@given(data=st.data(), cache=st.sampled_from(["ca", "cg"]), kind=st.sampled_from(["", "source_size", "ignore"]))
def test_cp_async(data: Any, cache: str, kind: str) -> None:
    """Every byte of shared memory after the copies of a few threads."""
    size = data.draw(st.sampled_from([4, 8, 16] if cache == "ca" else [16]))
    lines = data.draw(st.lists(st.integers(0, 256 // size - 1), min_size=1, max_size=5, unique=True))
    sources = [data.draw(st.integers(0, 512 // size - 1)) * size for _ in lines]
    memory, smem = image(1, 512), image(2, 256)
    reads, given_kind = [size] * len(lines), {}
    if kind == "source_size":
        reads = [data.draw(st.integers(0, size)) for _ in lines]
        given_kind = {"source_size": reads}
    if kind == "ignore":
        skip = [data.draw(st.booleans()) for _ in lines]
        reads, given_kind = [0 if gone else size for gone in skip], {"ignore": skip}
    item = tcsim.instruction(f"cp.async.{cache}.shared.global", arch="sm_80")
    destinations = [line * size for line in lines]
    found = item.execute(memory=memory, smem=smem, source=sources, destination=destinations, size=size, **given_kind)
    want = smem.tolist()
    for source, destination, read in zip(sources, destinations, reads, strict=True):
        exact.copy(memory.tolist(), want, source, destination, size, read)
    assert found.tolist() == want


@given(data=st.data(), name=st.sampled_from([LOAD, LOAD + ".ignore_oob", STORE, MASKED]))
def test_cp_async_bulk(data: Any, name: str) -> None:
    """Every byte of the memory that is written, but for the undefined ones."""
    memory, smem = image(3, 256), image(4, 256)
    size = 16 * data.draw(st.integers(1, 8))
    source, destination = (16 * data.draw(st.integers(0, (256 - size) // 16)) for _ in range(2))
    options = {}
    if name == MASKED:
        options["byte_mask"] = data.draw(st.integers(0, 0xFFFF))
    if name.endswith("oob"):
        options = {side: data.draw(st.integers(0, min(15, size // 2))) for side in ("ignore_left", "ignore_right")}
    item = tcsim.instruction(name, arch="sm_100")
    found = item.execute(memory=memory, smem=smem, source=source, destination=destination, size=size, **options)
    read, written = (smem, memory) if ".global.shared" in name else (memory, smem)
    want: list[int | None] = written.tolist()
    ends = options.get("ignore_left", 0), options.get("ignore_right", 0)
    exact.bulk(read.tolist(), want, source, destination, size, options.get("byte_mask", 0xFFFF), *ends)
    undefined = [place for place, byte in enumerate(want) if byte is exact.UNDEFINED]
    assert [byte for place, byte in enumerate(found.tolist()) if place not in undefined] == [
        b for b in want if b is not None
    ]
    if ends != (0, 0) or undefined:
        assert sorted(item.undefined_bytes(destination, size, *ends).tolist()) == undefined


REDUCTIONS = sorted({(row.reduction.operation, row.reduction.type)
                     for row in ROWS.values() if row.reduction})  # fmt: skip


def test_there_are_all_reductions() -> None:
    """Eight operations; the types of the manual's table."""
    assert len(REDUCTIONS) == 27
    assert Counter(name for name, _ in REDUCTIONS) == {
        "add": 7,
        "min": 6,
        "max": 6,
        "and": 2,
        "or": 2,
        "xor": 2,
        "inc": 1,
        "dec": 1,
    }


def test_which_reductions_depend_on_the_order_of_their_operands() -> None:
    """Sums of floats round; inc and dec wrap."""
    found = {key for key in REDUCTIONS if Reduction(*key).ordered}
    assert found == {("add", "f16"), ("add", "bf16"), ("add", "f32"), ("add", "f64"), ("inc", "u32"), ("dec", "u32")}


@pytest.mark.parametrize(("operation", "type"), REDUCTIONS)
def test_reductions(operation: str, type: str) -> None:
    """Every pair of codes at the ends of the type, and random ones."""
    reduction = Reduction(operation, type)
    bits = reduction.bits
    top = (1 << bits) - 1
    ends = [0, 1, 2, 3, top, top - 1, top >> 1, (top >> 1) + 1, (top >> 1) - 1, (top >> 1) + 2]
    if reduction.float:
        format = tcsim.FORMATS[type]
        infinity, one = format.infinity_code, format.bias << format.fraction_bits
        near = [
            infinity,
            infinity - 1,
            infinity + 1,
            one,
            one + 1,
            1 << format.fraction_bits,
            (1 << format.fraction_bits) - 1,
        ]
        ends += [code | sign << (bits - 1) for code in near for sign in (0, 1)]
    generator = np.random.default_rng(bits)
    old, new = (np.array(codes, np.uint64) for codes in zip(*[(a, b) for a in ends for b in ends], strict=True))
    noise = generator.integers(0, 1 << 32, (2, 300), np.uint64) << np.uint64(32) | generator.integers(
        0, 1 << 32, (2, 300), np.uint64
    )
    pairs = np.concatenate([np.stack([old, new]), noise >> np.uint64(64 - bits)], axis=1).astype(f"<u{bits // 8}")
    found = reduce_codes(reduction, pairs[0], pairs[1]).tolist()
    want = [exact.element(operation, type, int(a), int(b)) for a, b in pairs.T]
    assert len(want) >= 400
    wrong = [
        (hex(int(a)), hex(int(b)), hex(f), hex(w)) for (a, b), f, w in zip(pairs.T, found, want, strict=True) if f != w
    ]
    assert wrong == []


def test_every_reduction_row_executes() -> None:
    """The elements in the range are reduced, the others stay; both memories stay as they were."""
    executed = 0
    for name, row in ROWS.items():
        reduction = row.reduction
        if reduction is None:
            continue
        memory, smem = image(5, 128), image(6, 128)
        before = memory.copy(), smem.copy()
        found = tcsim.instruction(name, arch="sm_90").execute(
            memory=memory, smem=smem, source=16, destination=48, size=64
        )
        kind = f"<u{reduction.bits // 8}"
        want = memory.copy()
        pairs = zip(memory[48:112].view(kind).tolist(), smem[16:80].view(kind).tolist(), strict=True)
        want[48:112].view(kind)[:] = [exact.element(reduction.operation, reduction.type, a, b) for a, b in pairs]
        assert np.array_equal(found, want), name
        assert np.array_equal(memory, before[0]) and np.array_equal(smem, before[1])
        executed += 1
    assert executed == 68


def test_every_copy_row_executes() -> None:
    """Each spelling of a copy, with each of its operand lists, on its last arch."""
    executed, refused = 0, 0
    extra = {"source_size": 4, "ignore": False, "byte_mask": 0xFFFF, "ignore_left": 0, "ignore_right": 0, "cta_mask": 1}
    for name, row in ROWS.items():
        item = tcsim.instruction(name, arch=last_arch(name))
        if row.operation != "copy":
            continue
        for form in row.forms:
            memory, smem = image(7, 64), image(8, 64)
            size = (*form["size"].values, 16)[0]
            options = {key: extra[key] for key in form.names if key in extra}
            if row.reports:
                with pytest.raises(NotModelledError, match="validity of the data is not modelled"):
                    item.execute(memory=memory, smem=smem, source=16, destination=32, size=size, **options)
                refused += 1
                continue
            own = smem[None, :] if row.has("cta_mask") else smem
            found = item.execute(memory=memory, smem=own, source=16, destination=32, size=size, **options).reshape(-1)
            outward = row.outward
            read, want = (smem, memory.copy()) if outward else (memory, smem.copy())
            taken = options.get("source_size", size)
            want[32 : 32 + size] = 0
            want[32 : 32 + taken] = read[16 : 16 + taken]
            assert np.array_equal(found, want), (name, form.name)
            executed += 1
    assert (executed, refused) == (192 + 60, 20)


# ---- batches, several copies, blocks


def test_batches() -> None:
    """Leading dimensions broadcast; each batch is as if alone."""
    memory, smem = np.stack([image(9, 64), image(10, 64)]), image(11, 64)
    item = tcsim.instruction(LOAD, arch="sm_90")
    found = item.execute(memory=memory, smem=smem, source=[[0, 16], [16, 32]], destination=[[32, 0], [0, 48]], size=16)
    for place, (sources, destinations) in enumerate([([0, 16], [32, 0]), ([16, 32], [0, 48])]):
        alone = item.execute(memory=memory[place], smem=smem, source=sources, destination=destinations, size=16)
        assert np.array_equal(found[place], alone)
    copy = tcsim.instruction("cp.async.cg.shared.global", arch="sm_80")
    assert copy.execute(memory=memory, smem=smem, source=[0, 16], destination=[0, 16], size=16).shape == (2, 64)


def test_multicast() -> None:
    """The blocks of the mask get the bytes."""
    item = tcsim.instruction(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster", arch="sm_90"
    )
    memory, smem = image(12, 64), np.stack([image(seed, 32) for seed in (13, 14, 15)])
    found = item.execute(memory=memory, smem=smem, source=16, destination=0, size=16, cta_mask=0b101)
    assert np.array_equal(found[1], smem[1])
    for rank in (0, 2):
        assert np.array_equal(found[rank], np.concatenate([memory[16:32], smem[rank, 16:]]))
    batch = item.execute(memory=memory, smem=np.stack([smem, ~smem]), source=16, destination=0, size=16, cta_mask=0b101)
    alone = item.execute(memory=memory, smem=~smem, source=16, destination=0, size=16, cta_mask=0b101)
    assert np.array_equal(batch, [found, alone])
    for mask in (0, 8):
        with pytest.raises(OperandError, match="smem has 3 blocks, the mask 16 bits; valid: 1 to 0x7"):
            item.execute(memory=memory, smem=smem, source=16, destination=0, size=16, cta_mask=mask)


def test_arrivals_of_cp_async() -> None:
    """With .noinc an arrival, without it nothing in the end."""
    for space in ("", ".shared", ".shared::cta"):
        plain, counted = (
            tcsim.instruction(f"cp.async.mbarrier.arrive{n}{space}.b64", arch="sm_80") for n in ("", ".noinc")
        )
        assert plain.execute(MBarrier(2)) == MBarrier(2)
        barrier = counted.execute(MBarrier(2))
        assert (barrier.pending, counted.execute(barrier).phase) == (1, 1)
    with pytest.raises(BarrierError, match="the pending count would be beyond 511"):
        plain.execute(MBarrier(511, layout="v1"))
    with pytest.raises(OperandError, match="valid: an MBarrier"):
        plain.execute(3)
    gone = MBarrier(2)
    gone.inval()
    for item in (plain, counted):
        with pytest.raises(BarrierError, match="was invalidated"):
            item.execute(gone)


UNORDERED = sorted(name for name, row in ROWS.items() if (own := row.reduction) and not own.ordered)


@given(data=st.data(), name=st.sampled_from(UNORDERED))
def test_overlapping_reductions(data: Any, name: str) -> None:
    """Elements are combined one by one (.relaxed, atomic): where the order cannot show, copies may overlap, in any order."""
    reduction = ROWS[name].reduction
    assert reduction is not None
    memory, smem = image(23, 64), image(24, 64)
    copies = [(16 * data.draw(st.integers(0, 2)), 16 * data.draw(st.integers(0, 2))) for _ in range(3)]
    sources, destinations = zip(*copies, strict=True)
    found = tcsim.instruction(name, arch="sm_90").execute(memory, smem, list(sources), list(destinations), 32)
    kind, width = f"<u{reduction.bits // 8}", reduction.bits // 8
    want, codes = memory.view(kind).tolist(), smem.view(kind).tolist()
    for source, destination in data.draw(st.permutations(copies)):
        for place in range(32 // width):
            at = destination // width + place
            want[at] = exact.element(reduction.operation, reduction.type, want[at], codes[source // width + place])
    assert found.view(kind).tolist() == want


def test_a_size_of_zero_changes_nothing() -> None:
    """Zero is a multiple of 16: of copies and of reductions the memory that would be written comes back as it was."""
    memory, smem = image(27, 64), image(28, 64)
    checked = 0
    for row in ROWS.values():
        if (
            row.family == "cp.async"
            or row.operation not in ("copy", "reduce")
            or row.reports
            or row.forms[0].sources != ("size",)
        ):
            continue
        item = tcsim.instruction(row.mnemonic, arch=last_arch(row.mnemonic))
        found = item.execute(memory=memory, smem=smem, source=[0, 16], destination=[32, 32], size=0)
        assert np.array_equal(found, memory if row.outward else smem), row.mnemonic
        checked += 1
    assert checked > 45


def test_masks_have_the_width_of_their_spelling() -> None:
    """16 bits, or 32 with ::32b, however many blocks there are."""
    stem = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
    call = {"memory": image(25, 16), "smem": np.zeros((20, 16), np.uint8), "source": 0, "destination": 0, "size": 16}
    for width in ("", "::16b"):
        item = tcsim.instruction(stem + width, arch="sm_107")
        assert item.execute(**call, cta_mask=1 << 15).any(axis=1).nonzero()[0].tolist() == [15]
        with pytest.raises(OperandError, match="smem has 20 blocks, the mask 16 bits; valid: 1 to 0xffff"):
            item.execute(**call, cta_mask=1 << 16)
    wide = tcsim.instruction(stem + "::32b", arch="sm_107")
    assert wide.execute(**call, cta_mask=1 << 19).any(axis=1).nonzero()[0].tolist() == [19]
    with pytest.raises(OperandError, match="valid: 1 to 0xfffff"):
        wide.execute(**call, cta_mask=1 << 20)


def test_applypriority_needs_128_bytes() -> None:
    """PTX ISA: its address is a multiple of 128, its size of 16; the testbench asks for no other."""
    item = tcsim.instruction("applypriority.async.bulk.global.bulk_group.L2::evict_normal", arch="sm_107")
    memory = image(26, 256)
    assert np.array_equal(item.execute(memory=memory, source=128, size=16), memory)
    with pytest.raises(MisalignedAddressError, match=r"source = 0x10: .* starts at a multiple of 128 bytes"):
        item.execute(memory=memory, source=16, size=16)
    testbench = testbench_of(item.row.family)
    starts = testbench.inputs(item, "uniform", 0, 64)["source"]
    assert (starts % 128 == 0).all() and starts.any()


def test_another_block_waits_with_the_scope_of_the_cluster() -> None:
    """complete-tx releases at the scope of the cluster: a wait for what another block did must acquire with it."""
    checked = 0
    for row in ROWS.values():
        if row.outward and row.has("barrier"):
            text = bulk_copy.BODY.kernel(row, "k", "")
            assert "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64" in text
            assert "mbarrier.test_wait.parity.shared" not in text
            checked += 1
    assert checked == 4 + 12


# ---- wrong use


@pytest.mark.parametrize(
    ("name", "change", "error", "words"),
    [
        ("cp.async.ca.shared.global", {"size": 12}, OperandError, "size=12: valid: 4, 8, 16 bytes"),
        ("cp.async.cg.shared.global", {"size": 8}, OperandError, "size=8: valid: 16 bytes"),
        ("cp.async.ca.shared.global", {"source": 8}, MisalignedAddressError, "source = 0x8: a copy of cp.async starts at a multiple of 16"),
        ("cp.async.ca.shared.global", {"source_size": 17}, OperandError, "source_size=17: valid: 0 to size, 16"),
        ("cp.async.ca.shared.global", {"source_size": [16, -1]}, OperandError, "source_size=-1: valid: 0 to size, 16"),
        ("cp.async.ca.shared.global", {"source_size": 1, "ignore": True}, OperandError, "has one of them at most"),
        ("cp.async.ca.shared.global", {"ignore": 1}, OperandError, "valid: a bool"),
        ("cp.async.ca.shared.global", {"source": 256}, OutsideMemoryError, "source = 0x100: a copy of 16 bytes does not lie in the 256 bytes of memory"),
        ("cp.async.ca.shared.global", {"destination": [0, 0], "source": [0, 16]}, ContestedRowError, "different bytes to 0x0"),
        (LOAD, {"size": 24}, OperandError, "size=24: valid: multiples of 16 bytes"),
        (LOAD, {"size": -16}, OperandError, "size=-16: valid: multiples of 16 bytes"),
        (LOAD, {"destination": 8}, MisalignedAddressError, "destination = 0x8: a copy of cp.async.bulk starts at a multiple of 16"),
        (LOAD, {"destination": 256}, OutsideMemoryError, "a copy of 16 bytes does not lie in the 256 bytes of memory"),
        (LOAD, {"byte_mask": 1}, OperandError, "byte_mask=1: this instruction takes none; valid operands: none"),
        (MASKED, {}, OperandError, "byte_mask=None: it is missing; valid operands: byte_mask"),
        (MASKED, {"byte_mask": 1 << 16}, OperandError, "valid: 16 bits"),
        (MASKED, {"byte_mask": -1}, OperandError, "valid: 16 bits"),
        (f"{LOAD}.ignore_oob", {"ignore_left": 16, "ignore_right": 0}, OperandError, "ignore_left=16: valid: 0 to 15"),
        (f"{LOAD}.ignore_oob", {"ignore_left": 0, "ignore_right": -1}, OperandError, "ignore_right=-1: valid: 0 to 15"),
        (STORE, {"memory": np.zeros(4)}, OperandError, r"memory is float64 \(4,\); valid: uint8"),
        (STORE, {"source": 0.5}, OperandError, "source is float64"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", {"destination": [0, 0]}, ContestedRowError, "two reductions of 16 bytes overlap, and the order of add f32 shows"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.u32", {"destination": [0, 0]}, ContestedRowError, "the order of inc u32 shows"),
    ],
)  # fmt: skip
def test_wrong_use_is_named(name: str, change: dict[str, Any], error: type[Exception], words: str) -> None:
    """The error quotes the call and says what would be valid."""
    call = {"memory": image(16, 256), "smem": image(17, 256), "source": 0, "destination": 0, "size": 16} | change
    with pytest.raises(error, match=words) as caught:
        tcsim.instruction(name, arch=last_arch(name)).execute(**call)
    assert isinstance(caught.value, tcsim.TcsimError)
    assert name in str(caught.value)


def test_reductions_of_one_call_may_touch_but_not_overlap() -> None:
    """In any order of their destinations."""
    item = tcsim.instruction("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", arch="sm_90")
    memory, smem = np.zeros(128, np.uint8), np.arange(32, dtype=np.float32).view(np.uint8)
    found = item.execute(memory, smem, [0, 32, 64], [64, 0, 32], 32).view(np.float32)
    assert found.tolist() == [*range(8, 24), *range(8), *[0] * 8]
    for destinations in ([64, 0, 16], [0, 16, 64], [16, 64, 0]):
        with pytest.raises(ContestedRowError, match="two reductions of 32 bytes overlap"):
            item.execute(memory, smem, [0, 32, 64], destinations, 32)


def test_nothing_read_may_be_anywhere() -> None:
    """An address that nothing is read from need only be aligned: ignored sources, and bytes left out at the ends."""
    item = tcsim.instruction("cp.async.ca.shared.global", arch="sm_80")
    found = item.execute(memory=image(18, 16), smem=image(19, 16), source=1 << 20, destination=0, size=16, ignore=True)
    assert found.tolist() == [0] * 16
    item = tcsim.instruction(f"{LOAD}.ignore_oob", arch="sm_90")
    memory = image(20, 27)
    found = item.execute(memory, image(21, 32), 0, 0, 32, ignore_left=0, ignore_right=5)
    assert np.array_equal(found[:27], memory)


def test_what_changes_nothing() -> None:
    """Groups and prefetches."""
    assert tcsim.instruction("cp.async.wait_group", arch="sm_80").execute(groups=2) is None
    with pytest.raises(OperandError, match="groups=-1"):
        tcsim.instruction("cp.async.bulk.wait_group.read", arch="sm_90").execute(groups=-1)
    item = tcsim.instruction("cp.async.bulk.prefetch.L2.global", arch="sm_90")
    memory = image(22, 64)
    assert np.array_equal(item.execute(memory=memory, source=16, size=32), memory)
    with pytest.raises(OutsideMemoryError):
        item.execute(memory=memory, source=48, size=32)
    with pytest.raises(OperandError, match="size=8"):
        item.execute(memory=memory, source=48, size=8)
