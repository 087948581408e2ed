"""tcgen05.cp, shift, alloc, dealloc, relinquish_alloc_permit, commit, fence, wait: the slow model, and wrong use."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim import MatrixDescriptor, OperandError, TensorMemory
from tcsim.core.addresses import AddressError
from tcsim.memory.mbarrier import BarrierError, MBarrier
from tcsim.memory.tensor_memory import (
    AllocationError,
    LaneAccessError,
    TensorMemoryError,
    UnallocatedError,
    UnwrittenError,
)
from tests.exact import tensor_memory as exact
from tests.support.tmem_cases import ROWS, anywhere, cells, filled, of_family, random_words

COPIES = of_family("tcgen05.cp")
BYTES = 24 * 1024
WORDS = random_words((2, 128, 32), 11)


def descriptors(rows: int, row_bytes: int) -> list[int]:
    """A packed tile, one with random offsets, and one of each swizzle."""
    found = [
        MatrixDescriptor(0, 128, 8 * row_bytes, arch="sm_100"),
        MatrixDescriptor(4096 + 16 * rows, 1168, 272, arch="sm_100"),
        MatrixDescriptor(16, 0, 0, arch="sm_100"),
    ]
    spans = {"32B": 32, "64B": 64, "128B": 128}
    found += [MatrixDescriptor(1024, 0, 8 * span, swizzle=name, arch="sm_100") for name, span in spans.items()]
    return [descriptor.encode() for descriptor in found]


@pytest.mark.parametrize("mnemonic", COPIES)
def test_copies_agree_with_the_slow_model(mnemonic: str) -> None:
    """Every cell of both CTAs, for several descriptors."""
    ins, compared = anywhere(mnemonic), 0
    group, tile = ins.row.cta_group, ins.row.tile
    smem = random_words((group, BYTES // 4), 12).view(np.uint8)
    tmem, slow = filled(WORDS[:group]), cells(WORDS[:group])
    shape = re.sub(r"^tcgen05\.cp\.cta_group::\d\.", "", mnemonic).split(".b8x16")[0]
    for number, descriptor in enumerate(descriptors(tile.rows, tile.row_bytes)):
        address = 4 * number % 24 | ((6 * number) << 16 if shape == "4x256b" else 0)
        if tile.rows > 32 and number not in (len(mnemonic) % 6, 0):
            continue
        got = ins.execute(tmem, address, smem if group == 2 else smem[0], descriptor)
        want = exact.copy(slow, shape, ins.row.source, address, smem.tolist(), descriptor)
        image = np.array([want[c, i, j] for c in range(group) for i in range(128) for j in range(32)], np.uint32)
        assert (got.words[..., :32].reshape(-1) == image).all()
        compared += int((image != WORDS[:group].reshape(-1)).sum())
    assert (tmem.words[..., :32] == WORDS[:group]).all()
    assert compared >= 30 * group


def test_decompression_keeps_every_code() -> None:
    """All 64 fp6 codes in bits 5:0, all 16 fp4 codes in bits 5:2, padding dropped."""
    from tcsim.isa.tcgen05.cp import expand

    for first in range(0, 64, 16):
        stream = sum(code << 6 * i for i, code in enumerate(range(first, first + 16))) | 0xDEAD << 96
        chunk = np.frombuffer(stream.to_bytes(16, "little"), np.uint8)
        assert expand(chunk, "b6x16_p32").tolist() == list(range(first, first + 16))
    chunk = np.frombuffer(
        (sum(code << 4 * i for i, code in enumerate(range(16))) | 0xBEEF << 64).to_bytes(16, "little"), np.uint8
    )
    assert expand(chunk, "b4x16_p64").tolist() == [4 * code for code in range(16)]
    kept = tcsim.decode(np.array(expand(chunk, "b4x16_p64")) >> 2, "e2m1")
    assert kept[:8].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def test_scale_factors_reach_all_warps() -> None:
    """.32x128b.warpx4: 32 rows of 16 bytes in the lanes of each warp."""
    ins = anywhere("tcgen05.cp.cta_group::1.32x128b.warpx4")
    smem = random_words((128,), 3)
    descriptor = MatrixDescriptor(0, 128, 128, arch="sm_100").encode()
    tmem = ins.execute(TensorMemory.allocated(), 0, smem.view(np.uint8), descriptor)
    seen = tmem.read(np.arange(128)[:, None], np.arange(4))
    assert (seen.reshape(4, 32, 4) == smem.reshape(32, 4)).all()


@pytest.mark.parametrize("group", [1, 2])
def test_shifts_agree_with_the_slow_model(group: int) -> None:
    """31 rows move, the last and all others stay."""
    ins, compared = anywhere(f"tcgen05.shift.cta_group::{group}.down"), 0
    for address in (0, 32 << 16 | 8, 96 << 16 | 24):
        tmem = filled(WORDS[:group])
        got = ins.execute(tmem, address)
        want = exact.shift(cells(WORDS[:group]), address, group)
        image = np.array([want[c, i, j] for c in range(group) for i in range(128) for j in range(32)], np.uint32)
        assert (got.words[..., :32].reshape(-1) == image).all()
        compared += int((image != WORDS[:group].reshape(-1)).sum())
    assert compared == 3 * group * 31 * 8


def test_a_shift_and_the_copy_that_refills_it() -> None:
    """shift then cp.4x256b: the row left over in each warp's lanes is the one that the copy writes."""
    shift, copy = anywhere("tcgen05.shift.cta_group::1.down"), anywhere("tcgen05.cp.cta_group::1.4x256b")
    tmem = filled(WORDS[:1])
    for warp in range(4):
        tmem = shift.execute(tmem, warp << 21)
    smem = random_words((64,), 5).view(np.uint8)
    tmem = copy.execute(tmem, 31 << 16, smem, MatrixDescriptor(0, 128, 0, arch="sm_100").encode())
    rows = np.delete(WORDS[0], [0, 32, 64, 96], axis=0)
    assert (np.delete(tmem.words[0, :, :8], [31, 63, 95, 127], axis=0) == rows[:, :8]).all()


# ---- wrong use of cp and shift


COPY = "tcgen05.cp.cta_group::1.128x256b"
PACKED = MatrixDescriptor(0, 128, 256, arch="sm_100").encode()


def test_wrong_copies_are_named() -> None:
    """Descriptors, shared memory, addresses, CTA groups."""
    ins, tmem = anywhere(COPY), TensorMemory.allocated()
    smem = np.zeros(4096, np.uint8)
    for wrong, text in (
        (PACKED & ~(1 << 46), r"version \(bits 48:46\) is 0; valid: 1"),
        (PACKED | 1 << 52, "leading_mode=1"),
        (PACKED | 1 << 61, "128B_ATOM_32B has MN-major tiles only"),
        (PACKED | 3 << 61, "swizzle mode that does not exist"),
        (PACKED | 1 << 14, "bits 0x4000 belong to no field"),
        (PACKED | 6 << 61 | 1 << 49, "base_offset=1.*not published; valid: 0"),
    ):
        with pytest.raises(OperandError, match=r"tcgen05\.cp.*" + text):
            ins.execute(tmem, 0, smem, wrong)
    with pytest.raises(OperandError, match=r"leading_mode=1 .* is for operands of tcgen05.mma"):
        tcsim.instruction(COPY, arch="sm_103").execute(tmem, 0, smem, PACKED | 1 << 52)
    with pytest.raises(AddressError, match="does not lie in the 4000 bytes of smem"):
        ins.execute(tmem, 0, smem[:4000], PACKED)
    for bad in (smem.astype(np.int8), np.uint8(3)):
        with pytest.raises(OperandError, match=r"valid: uint8 \(\.\.\., bytes\)"):
            ins.execute(tmem, 0, bad, PACKED)
    with pytest.raises(OperandError, match=r"valid: uint8 \(\.\.\., 2, bytes\)"):
        anywhere(COPY.replace("::1", "::2")).execute(TensorMemory.allocated(ctas=2), 0, smem, PACKED)
    with pytest.raises(OperandError, match="descriptor is float64"):
        ins.execute(tmem, 0, smem, 0.5)
    with pytest.raises(LaneAccessError, match="the address has lane 1; valid for this shape: 0 to 0"):
        ins.execute(tmem, 1 << 16, smem, PACKED)
    with pytest.raises(LaneAccessError, match="the address has lane 32; valid for this shape: 0 to 31"):
        anywhere("tcgen05.cp.cta_group::1.4x256b").execute(tmem, 32 << 16, smem, PACKED)
    with pytest.raises(TensorMemoryError, match="column 2; valid: multiples of 4"):
        ins.execute(tmem, 2, smem, PACKED)
    with pytest.raises(UnallocatedError, match="write of lane 0, column 0: that column is not allocated"):
        ins.execute(TensorMemory(), 0, smem, PACKED)
    with pytest.raises(AllocationError, match="cta_group 2 of a memory with 1 CTA"):
        anywhere(COPY.replace("::1", "::2")).execute(tmem, 0, np.zeros((2, 4096), np.uint8), PACKED)
    pair = TensorMemory(ctas=2)
    pair.alloc(32, cta_group=2)
    with pytest.raises(AllocationError, match=r"\.cta_group::1 after \.cta_group::2"):
        ins.execute(pair, 0, smem, PACKED)


def test_wrong_shifts_are_named() -> None:
    """Lanes off 32, cells that nothing has written."""
    ins = anywhere("tcgen05.shift.cta_group::1.down")
    with pytest.raises(LaneAccessError, match="the address has lane 16; valid: multiples of 32"):
        ins.execute(TensorMemory.allocated(), 16 << 16)
    with pytest.raises(UnwrittenError, match="lane 1, column 0: nothing has written"):
        ins.execute(TensorMemory.allocated(), 0)
    tmem = TensorMemory()
    tmem.alloc(32)
    with pytest.raises(UnallocatedError, match="column 32"):
        ins.execute(tmem, 28)


# ---- alloc, dealloc, relinquish_alloc_permit


@pytest.mark.parametrize("mnemonic", [name for name in of_family("tcgen05.alloc") if name.startswith("tcgen05.alloc")])
def test_an_alloc_writes_its_address(mnemonic: str) -> None:
    """To shared memory of one CTA or both; dealloc and the exit check follow."""
    ins = anywhere(mnemonic)
    group = ins.row.cta_group
    tmem, smem = TensorMemory(ctas=group), np.full((2, 64)[2 - group :] if group == 1 else (2, 64), 0xEE, np.uint8)
    sizes = (96,) if ins.row.exclusive else (128, 64, 64)
    addresses = []
    for number, columns in enumerate(sizes):
        tmem, smem = ins.execute(tmem, columns, smem, 8 + 4 * number)
        words = smem[..., 8 + 4 * number : 12 + 4 * number].view("<u4").reshape(-1)
        assert len(set(words.tolist())) == 1
        addresses.append(int(words[0]))
    assert addresses == [0, 128, 192][: len(sizes)]
    assert (smem[..., :8] == 0xEE).all()
    word = ".exclusive" if ins.row.exclusive else ""
    free = anywhere(f"tcgen05.dealloc{word}.cta_group::{group}.sync.aligned.b32")
    relinquish = anywhere(f"tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned")
    tmem = relinquish.execute(tmem)
    for address, columns in zip(addresses, sizes, strict=True):
        with pytest.raises(AllocationError, match="not freed"):
            tmem.check_exit()
        tmem = free.execute(tmem, address, columns)
    tmem.check_exit()
    with pytest.raises(AllocationError, match="relinquish_alloc_permit"):
        ins.execute(tmem, 32, smem, 8)


def test_every_size_of_the_inventory_is_one() -> None:
    """What ptxas takes as an immediate and the arch has: 544 and 576 exclusive columns on sm_107 only."""
    name = "tcgen05.alloc.exclusive.cta_group::1.sync.aligned.shared::cta.b32"
    for arch, most in (("sm_100", 512), ("sm_103", 512), ("sm_107", 576), ("sm_110", 512)):
        ins = tcsim.instruction(name, arch=arch)
        free = tcsim.instruction("tcgen05.dealloc.exclusive.cta_group::1.sync.aligned.b32", arch=arch)
        for columns in (32, 64, 96, 128, 256, 512, 544, 576, 1024):
            tmem = TensorMemory(columns=576 if arch == "sm_107" else 512)
            if columns <= most:
                free.execute(ins.execute(tmem, columns, np.zeros(4, np.uint8), 0)[0], 0, columns).check_exit()
            else:
                with pytest.raises(AllocationError, match=f"{columns} columns; {arch} has {most}"):
                    ins.execute(tmem, columns, np.zeros(4, np.uint8), 0)
                with pytest.raises(AllocationError, match=f"{arch} has {most}"):
                    free.execute(tmem, 0, columns)


def test_an_alloc_needs_a_word_of_shared_memory() -> None:
    """Aligned, inside, uint8, and for a pair one of each CTA."""
    one = anywhere("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32")
    two = anywhere("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32")
    smem = np.zeros(16, np.uint8)
    for address in (2, 16, -4):
        with pytest.raises(AddressError):
            one.execute(TensorMemory(), 32, smem, address)
    with pytest.raises(OperandError, match=r"valid: uint8 \(\.\.\., bytes\)"):
        one.execute(TensorMemory(), 32, smem.view(np.int8), 0)
    with pytest.raises(OperandError, match=r"valid: uint8 \(\.\.\., 2, bytes\)"):
        two.execute(TensorMemory(ctas=2), 32, smem, 0)


# ---- commit, fence, wait


@pytest.mark.parametrize("mnemonic", of_family("tcgen05.commit"))
def test_a_commit_arrives_where_its_mask_says(mnemonic: str) -> None:
    """At the own barrier, or at those of the CTAs in the mask; the barriers given stay as they were."""
    ins = anywhere(mnemonic)
    checked = 0
    for mask in range(16):
        barriers = [MBarrier(2) for _ in range(4)]
        if ins.row.mask_bits:
            after = ins.execute(barriers, mask=mask)
            wanted = [rank for rank in range(4) if mask >> rank & 1]
        else:
            after = ins.execute(barriers, cta=mask % 4)
            wanted = [mask % 4]
        assert [rank for rank, barrier in enumerate(after) if barrier.pending == 1] == wanted
        assert all(barrier.pending == 2 for barrier in barriers)
        checked += 1
    assert checked == 16


def test_wrong_commits_are_named() -> None:
    """Masks where there are none and none where there should be; CTAs and bits that do not exist; full barriers."""
    plain = anywhere("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64")
    cast = anywhere("tcgen05.commit.cta_group::1.mbarrier::arrive::one.multicast::cluster.b64")
    wide = anywhere("tcgen05.commit.cta_group::1.mbarrier::arrive::one.multicast::cluster::32b.b64")
    barriers = [MBarrier(1), MBarrier(1)]
    with pytest.raises(OperandError, match="mask=1; valid: None"):
        plain.execute(barriers, mask=1)
    with pytest.raises(OperandError, match="mask=None; valid: an integer"):
        cast.execute(barriers)
    with pytest.raises(OperandError, match="mask=0x10000; valid: 16 bits"):
        cast.execute(barriers, mask=1 << 16)
    with pytest.raises(OperandError, match="CTAs 2; valid, of a cluster with 2: 0, 1"):
        cast.execute(barriers, mask=4)
    with pytest.raises(OperandError, match="CTAs 16; valid, of a cluster with 2"):
        wide.execute(barriers, mask=1 << 16)
    with pytest.raises(OperandError, match="CTAs 5"):
        plain.execute(barriers, cta=5)
    waiting = MBarrier(1)
    waiting.expect_tx(16)
    waiting.arrive()
    with pytest.raises(BarrierError, match="all arrivals of this phase have come"):
        plain.execute([waiting])


@pytest.mark.parametrize("mnemonic", of_family("tcgen05.fence", "tcgen05.wait"))
def test_fences_and_waits_change_nothing(mnemonic: str) -> None:
    """The model is always in order: a copy of what was given."""
    tmem: Any = filled(WORDS)
    got = anywhere(mnemonic).execute(tmem)
    assert got is not tmem
    assert (got.words == tmem.words).all()
    assert (got.written == tmem.written).all()


def test_all_rows_are_covered_here() -> None:
    """The families of this file."""
    assert sum(row.family.startswith("tcgen05") for row in ROWS.values()) == 476
