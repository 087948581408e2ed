"""Bank conflicts: against a model that counts words with sets, and against the cases everybody knows."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim import OperandError
from tcsim.core.addresses import MisalignedAddressError
from tests.exact.matrix_move import bank_degrees

LANES = np.arange(32)


@pytest.mark.parametrize("access", ["load", "store", "matrix", "turns"])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_random_accesses_agree_with_the_counting_model(width: int, access: str) -> None:
    """400 accesses of one to 32 lanes in memories of several sizes, lanes left out at random."""
    random = np.random.Generator(np.random.PCG64(width))
    compared = 0
    for _ in range(400):
        lanes = int(random.integers(1, 33))
        words = int(random.choice([8, 40, 256, 8192]))
        address = random.integers(0, words, lanes) * 16 // width * width
        address = address[np.arange(lanes) & ~random.choice([0, 0, 1, 2, 3])]  # lanes alike, by which loads are merged
        active = random.random(lanes) < random.choice([0.3, 0.9, 1.1])
        found = tcsim.bank_conflicts(address, width, active, access)
        wanted = bank_degrees([int(a) if on else None for a, on in zip(address, active, strict=True)], width, access)
        assert found.degrees.tolist() == wanted
        assert (found.degree, found.wavefronts) == (max(wanted), sum(wanted))
        assert found.ideal == sum(degree > 0 for degree in wanted)
        compared += len(wanted)
    assert compared >= 400


def test_a_batch_is_every_access_by_itself() -> None:
    """Leading dimensions of addresses and of the mask."""
    random = np.random.Generator(np.random.PCG64(1))
    address = random.integers(0, 512, (3, 5, 32)) * 16
    active = random.random((5, 32)) < 0.7
    found = tcsim.bank_conflicts(address, 16, active)
    assert found.degrees.shape == (3, 5, 4)
    assert found.words.shape == (3, 5, 4, 32)
    assert found.degree.shape == found.wavefronts.shape == found.ideal.shape == (3, 5)
    for i in range(3):
        for j in range(5):
            one = tcsim.bank_conflicts(address[i, j], 16, active[j])
            assert one.degrees.tolist() == found.degrees[i, j].tolist()
            assert one.words.tolist() == found.words[i, j].tolist()
            assert (one.degree, one.wavefronts) == (found.degree[i, j], found.wavefronts[i, j])


@pytest.mark.parametrize(
    ("address", "width", "degree", "wavefronts"),
    [
        (LANES * 4, 4, 1, 1),  # neighbouring words
        (LANES * 0, 4, 1, 1),  # one word for all: shared
        (LANES * 128, 4, 32, 32),  # one bank for all
        (LANES * 8, 4, 2, 2),  # every other word
        (LANES * 132, 4, 1, 1),  # a column of 33 words: the padded tile
        (LANES, 1, 1, 1),  # bytes of eight words
        (LANES * 8, 8, 1, 2),  # two half warps of 128 bytes
        (LANES * 16, 8, 2, 4),  # every other pair of words
        (LANES % 16 * 8, 8, 1, 2),  # both halves alike: still two phases
        (LANES // 2 * 8, 8, 1, 1),  # pairs alike: one phase for two
        (LANES * 16, 16, 1, 4),  # four quarter warps of 128 bytes
        (LANES * 32, 16, 2, 8),
        (LANES * 64, 16, 4, 16),
        (LANES * 128, 16, 8, 32),
        (LANES * 128 + (LANES % 8) * 16, 16, 1, 4),  # the 128-byte swizzle
        (LANES % 8 * 128 + LANES // 8 * 16, 16, 8, 32),  # rows of 128 bytes without it
    ],
)
def test_known_patterns(address: Any, width: int, degree: int, wavefronts: int) -> None:
    """Strides, broadcasts, padding and swizzles."""
    found = tcsim.bank_conflicts(address, width)
    assert (found.degree, found.wavefronts) == (degree, wavefronts)


def test_cutlass_s_condition() -> None:
    """Conflict-free exactly if no two lanes of a quarter warp want the same 128-bit bank (but the same 16 bytes)."""
    random = np.random.Generator(np.random.PCG64(2))
    address = random.integers(0, 24, (4000, 32)) * 16
    free = np.ones(4000, bool)
    for quarter in range(4):
        rows = address[:, 8 * quarter : 8 * quarter + 8]
        for i in range(8):
            for j in range(i):
                clash = (rows[:, i] // 16 % 8 == rows[:, j] // 16 % 8) & (rows[:, i] != rows[:, j])
                free &= ~clash
    found = tcsim.bank_conflicts(address, access="matrix")
    assert ((found.degree == 1) == free).all()
    assert ((found.wavefronts == found.ideal) == free).all()
    assert 0 < free.sum() < 4000


def test_lanes_left_out_cost_nothing() -> None:
    """A phase without lanes takes no pass; stray addresses of inactive lanes do not count."""
    address = np.where(LANES < 8, LANES * 16, 7)
    found = tcsim.bank_conflicts(address, 16, LANES < 8)
    assert found.degrees.tolist() == [1, 0, 0, 0]
    assert (found.degree, found.wavefronts, found.ideal) == (1, 1, 1)
    assert tcsim.bank_conflicts([0, 16, 32]).degrees.tolist() == [1]
    assert tcsim.bank_conflicts([0, 0], 4, [False, False]).degree == 0


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((LANES * 16, 12), OperandError, "width=12: no access of that many bytes; valid: 1, 2, 4, 8, 16"),
        ((LANES * 1.0,), OperandError, "address is float64; valid: integers, byte addresses in shared memory"),
        ((5,), OperandError, "address has shape (); valid: (..., lanes) with 1 to 32 lanes"),
        ((np.arange(33) * 16,), OperandError, "address has shape (33,); valid: (..., lanes) with 1 to 32 lanes"),
        ((LANES * 8,), MisalignedAddressError,
         "address[1] = 0x8 (lane 1): an access of 16 bytes starts at a multiple of 16 bytes (15 more like it)"),
        ((LANES * 16, 16, None, "read"), OperandError, "access='read'; valid: load, store, matrix, turns"),
        ((LANES * 16, 16, LANES), OperandError, "active is int64 (32,); valid: bool (32,), or its last dimensions"),
        ((LANES * 16, 16, [True]), OperandError, "active is bool (1,); valid: bool (32,), or its last dimensions"),
    ],
)  # fmt: skip
def test_wrong_use(arguments: tuple[Any, ...], error: type[OperandError], text: str) -> None:
    """What was asked, why it cannot be, what would be valid."""
    with pytest.raises(error, match=re.escape(f"tcsim.bank_conflicts: {text}")):
        tcsim.bank_conflicts(*arguments)
