"""Packed indices and lookup tables of .decompress::lut::b, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from conformance.stimuli.stream import Stream
from tcsim.isa.tcgen05.lookup_table import INDEX_BITS, looked_up, packed
from tcsim.numbers.packing import unpacked_fields


def test_indices_are_three_bits_low_first() -> None:
    indices = Stream("indices").below(8, (5, 128)).astype(np.uint8)
    octets = packed(indices)
    assert octets.shape == (5, 48)
    for row in range(5):
        number = int.from_bytes(octets[row].tobytes(), "little")
        assert [number >> 3 * k & 7 for k in range(128)] == indices[row].tolist()
    np.testing.assert_array_equal(unpacked_fields(octets, INDEX_BITS), indices)


def test_each_eight_columns_have_a_table() -> None:
    stream = Stream("tables")
    indices, tables = stream.below(8, (3, 64, 24)), stream.words((3, 3, 8)).astype(np.uint8)
    found = looked_up(indices, tables)
    for place in np.ndindex(3, 64, 24):
        batch, k, n = place
        assert found[batch, k, n] == tables[batch, n // 8, indices[batch, k, n]]
    one = looked_up(indices[0], tables)  # the same indices in three tables
    assert one.shape == (3, 64, 24) and np.array_equal(one[0], found[0])


def test_what_cannot_be_packed() -> None:
    for array, text in (
        (np.full((2, 8), 8), "index 8; valid: 0 to 7"),
        (np.full((2, 8), -1), "index -1"),
        (np.zeros((2, 8)), "packed is float64; valid: integers"),
        (np.zeros((2, 12), int), "12 indices a row; valid: multiples of 8"),
    ):
        with pytest.raises(tcsim.OperandError, match=text):
            packed(array)
