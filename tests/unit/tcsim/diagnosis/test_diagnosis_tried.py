"""Rules that the diagnosis tries: sizes, maps of elements and of lines, orders."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.diagnosis import (
    arithmetic,
    groups,
    maps,
    misread,
    moved,
    moves,
    operands,
    orders,
    pipelines,
    rules,
    scale_tables,
    shared_maps,
    some_tiles,
    where,
)
from tcsim.diagnosis import memory as shared
from tcsim.diagnosis import problem as problems
from tcsim.diagnosis.addresses import _affine
from tcsim.diagnosis.pipelines import counts
from tcsim.explanation.filters import BLOCKS
from tcsim.numbers.formats import FORMATS
from tests.support.diagnosis_parts import problem, read

# --- sizes


def test_usual_sizes_double() -> None:
    """Tiles, steps, parts, blocks and groups are powers of two; shifts go both ways; stages are all of a range."""
    for table in (
        maps.TILES,
        maps.STEPS,
        maps.PARTS,
        maps._PACKED,
        maps._WORDS,
        groups._GROUPS[::-1],
        rules._SIZES,
        where._GROUPS,
        BLOCKS[::-1],
        moved._SHIFTS[::2],
    ):
        assert all(later == 2 * before for before, later in itertools.pairwise(table)), table
    assert sorted(moved._SHIFTS) == sorted(-own for own in moved._SHIFTS) and sorted(rules._SHIFTS) == sorted(
        -own for own in rules._SHIFTS
    )
    assert tuple(range(1, 7)) == misread._STAGES and some_tiles._STAGES == pipelines._STAGES == tuple(range(2, 7))
    factors = [own.table.args for own in scale_tables._values(FORMATS["ue4m3"], 0) if own.mistake == "result scaled"]  # type: ignore[attr-defined]
    assert sorted(by for (by,) in factors) == sorted(1 / by for (by,) in factors) and len(factors) == 10


# --- what is tried


def test_lines_that_begin_at_a_pitch() -> None:
    """Of most lines, though one of them begins elsewhere, too."""
    begins = {line: np.array([40 * line + 3, 1000 + line * line]) for line in range(6)}
    assert _affine(begins, 32)[0] == (40, 3)
    assert _affine({2: np.array([67])}, 32) == [(32, 3)]


def test_the_same_codes_on_another_machine() -> None:
    """Only where it computes something else; its formats say which bits count."""
    own = problem()
    (volta, hopper) = (replace(own.machine, lowering=replace(own.machine.lowering, steps=())), own.machine)
    other = arithmetic._on(own, volta)
    assert other is not None and other.machine is volta and np.array_equal(other.a, own.a)
    assert arithmetic._on(own, hopper) is None
    for name, mask in (("f16", 0xFFFF), ("tf32", 0xFFFFFFFF), ("e2m1", 0xF)):
        assert arithmetic._mask(SimpleNamespace(formats={"a": FORMATS[name]}), "a") == mask  # type: ignore[arg-type]


def test_advances_of_k_that_are_tried() -> None:
    """By none, a half and a quarter of the right one, twice and four times it."""
    said = {own.detail for own in maps.depth_rules(64, 16) if own.mistake == maps.ADVANCE}
    assert {"no advance: K block 0 of 16 every time", *(f"{by} for every 16" for by in (8, 4, 32, 64))} <= said


def test_steps_of_k_that_are_left_out_or_taken_twice() -> None:
    found = [own.weights.tolist() for own in counts(64, 16, 64)]
    for block in range(4):
        for weight in (0.0, 2.0):
            assert np.repeat([weight if at == block else 1.0 for at in range(4)], 16).tolist() in found
    found = [own.weights.tolist() for own in counts(128, 16, 128)]
    for taken in ([1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1], [0, 1, 1, 1]):  # of every four steps
        assert np.repeat(taken * 2, 16).tolist() in found


def test_rules_of_lines() -> None:
    said = [own.detail for own in maps.line_rules(64, 64)]
    assert "the block of 16 is always the first, repeated: 16-31 are 0-15" in said
    starts = [own.split()[4:] for own in said if "that start every" in own]
    assert starts and all(int(own[-1]) < int(own[own.index("of") + 1]) for own in starts)


def test_matrices_of_ldmatrix_that_are_tried() -> None:
    """Rows at a given pitch in bytes, after the first lane's."""
    address = np.arange(32) * 80 + 512
    found = dict(moves._addresses(address))
    assert found["rows 64 bytes apart"].tolist() == (512 + 64 * np.arange(32)).tolist()
    assert found["rows packed: 16 bytes apart"].tolist() == (512 + 16 * np.arange(32)).tolist()


@pytest.mark.parametrize(("major", "other"), [("K", "MN"), ("MN", "K")])
def test_majors_that_are_tried(major: str, other: str) -> None:
    """The other one, of elements of 16 bits."""
    right = tcsim.MatrixDescriptor(0, leading_byte_offset=16, stride_byte_offset=1024, swizzle="128B")
    tile: Any = SimpleNamespace(descriptor=right, swizzle=shared.SWIZZLES["128B"], major=major, bits=16, advances=(0,))
    (found,) = (own for own in shared._readings(problem(), "a", tile) if own.mistake == "a: major flipped")
    assert found.change.args[-1] == {"major": other} and found.advice == f"trans_a must be {int(major == 'MN')}"  # type: ignore[attr-defined]


def test_orders_of_registers_that_are_tried() -> None:
    """Each permutation once, and not the identity."""
    for count in (2, 4, 8, 16):
        found = [tuple(order) for _, order in operands.distinct(operands.register_orders(count))]
        assert found and len(set(found)) == len(found) and tuple(range(count)) not in found
        assert all(sorted(order) == list(range(count)) for order in found)
    said = [own for own, _ in operands.register_orders(16)]
    assert said[:4] == [f"register i with i ^ {bit}" for bit in (1, 2, 4, 8)]


def test_blocks_that_are_transposed() -> None:
    """Each 8 x 8 by itself."""
    codes = np.arange(128).reshape(8, 16)
    (rule,) = (own for own in maps.memory_rules(8, 16, 8, 8, 16) if own.detail == "each 8 x 8 block")
    found = codes[read(rule, 8, 16)]
    assert np.array_equal(found[:, :8], codes[:, :8].T) and np.array_equal(found[:, 8:], codes[:, 8:].T)


def test_steps_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines take each instruction of what they are given once: steps that are missing or repeated are gathered first."""
    own = problem(m=16, n=8, k=32)
    again = [*range(16, 32)] * 2
    wanted = replace(own, a=own.a[:, :, again], b=own.b[:, again], order=(0, 1)).outputs
    multiply, asked = problems.multiply, []
    monkeypatch.setattr(problems, "multiply", lambda *given: asked.append([*given[2]]) or multiply(*given))
    assert np.array_equal(replace(own, order=(1, 1)).outputs, wanted) and asked == [[0, 1]]


@pytest.mark.parametrize("along_k", [False, True])
def test_a_table_whose_index_is_off_or_of_another_size(along_k: bool) -> None:
    """The same of lines and of blocks of K; -1 where the table has none."""
    at = np.arange(8)
    found = {
        rule.detail: (rule.where(0 * at, at, at)[1] if along_k else rule.where(at, 0 * at, at)[0]).tolist()
        for rule in rules.index_rules(8, along_k)
    }
    assert found["i takes that of i + 2, off by 2 (early), and none at the end"] == [2, 3, 4, 5, 6, 7, -1, -1]
    assert found["i takes that of i - 1, off by 1 (late), and none at the start"] == [-1, 0, 1, 2, 3, 4, 5, 6]
    assert found["one is used for 4: i takes number i / 4"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found["one is taken for 1 / 4: i takes number 4 i"] == [0, 4, -1, -1, -1, -1, -1, -1]
    assert found["always the first of every 2, as if each were twice as large" + " along K" * along_k] == [
        0,
        0,
        2,
        2,
        4,
        4,
        6,
        6,
    ]
    assert found["always the last of every 4"] == [3, 3, 3, 3, 7, 7, 7, 7]
    assert found["always the first, as of a stride of 0"] == [0] * 8


def test_a_swizzle_on_one_side() -> None:
    """Chunks lie where a row's number says; nothing is taken off again."""
    rules = {rule.detail: rule for rule in shared_maps.shared_rules(64, 64, 8, 16)}
    row, column = np.indices((16, 64))
    found = read(rules["rows of 128 bytes: chunk ^ (row % 8) on one side only, none on the other"], 16, 64)
    assert np.array_equal(found[0], row) and np.array_equal(found[1], column ^ (row % 8 * 8))


def test_bytes_that_are_transposed_in_pairs() -> None:
    """The second eight lines and the second register are 16 and 8 further on along K, or the other way round: each byte is read once."""
    rules = [rule for rule in shared_maps.shared_rules(64, 64, 16, 32) if "pairs of bytes" in rule.mistake]
    assert len(rules) == 2
    for rule in rules:
        row, column = read(rule, 16, 32)
        assert sorted((row * 32 + column).reshape(-1).tolist()) == list(range(512))


def test_lines_turned_back() -> None:
    """A matrix whose columns follow one another, taken for rows: each element once, the first line first."""
    _, back = (own for own in maps.memory_rules(4, 3, 4, 8, 16) if own.detail.startswith("the whole matrix"))
    found = read(back, 4, 3)
    assert sorted(zip(*(own.reshape(-1).tolist() for own in found), strict=True)) == [
        (r, c) for r in range(4) for c in range(3)
    ]
    assert [own[0, 1] for own in found] == [1, 0]


def test_bytes_that_are_missing() -> None:
    """Halves and a last quarter... of every 16 bytes along K."""
    found = {
        rule.detail.split(" are ")[0]: read(rule, 1, 16)[1][0]
        for rule in shared_maps._chunk_rules(8)
        if "missing" in rule.mistake
    }
    assert [*found] == [
        "the last 8 of every 16 bytes along K",
        "the first 8 of every 16 bytes along K",
        "the last 12 of every 16 bytes along K",
    ]
    assert found["the last 8 of every 16 bytes along K"].tolist() == [
        0,
        1,
        2,
        3,
        -1,
        -1,
        -1,
        -1,
        8,
        9,
        10,
        11,
        -1,
        -1,
        -1,
        -1,
    ]
    assert found["the first 8 of every 16 bytes along K"].tolist() == [
        -1,
        -1,
        -1,
        -1,
        4,
        5,
        6,
        7,
        -1,
        -1,
        -1,
        -1,
        12,
        13,
        14,
        15,
    ]


def test_strides_that_a_descriptor_should_have() -> None:
    """Core matrices of 8 x 16 bytes: along K the next lies 128 bytes on, the next 8 lines behind all of them; or the other way round."""
    advice = [rule.advice for rule in shared_maps._core_rules(64, 64, 8)]
    assert {own[own.index("LBO") :] for own in advice} == {"LBO 128 and SBO 1024 bytes", "LBO 1024 and SBO 128 bytes"}


def test_parts_of_k_with_c_last() -> None:
    """Other instructions' steps in parts, C first and last; without C once."""
    texts = [own.said for own in orders._other_steps(problem(k=64, c=True))]
    assert any(own.endswith(", C last") for own in texts) and len(set(texts)) == len(texts)
    assert not any(own.endswith(", C last") for own in (item.said for item in orders._other_steps(problem(k=64))))


def test_parts_of_k_start_from_c_once() -> None:
    own = problem(k=64, c=True)
    part = next(own.parts())
    once, each = (
        tcsim.decode(orders._chunks(1, False, "ascending", own, part, **more), "f32") for more in ({}, {"each": True})
    )
    c = tcsim.decode(own.c[0], "f32")
    assert np.allclose(each - once, 3 * c, atol=1e-3) and np.abs(c).max() > 1
    assert orders.OVERLAPPING.parts and all(order.parts for order in orders.from_c(own, 2))


def test_tiles_that_every_iteration_takes() -> None:
    """The first again and again is one of them; nothing at all, and what is right, are not."""
    found = {own.tiles for own in pipelines.sequences(64, 16)}
    assert (0, 0, 0, 0) in found and (0, 1, 2, 3) not in found and not any(set(tiles) == {-1} for tiles in found)


def test_what_else_takes_each_k_so_often() -> None:
    """Sequences of both operands that do; an accumulator that is cleared in every tile if the last one alone is left."""
    weights = np.repeat([0, 0, 0, 1], 16)
    assert (
        pipelines.causes(weights, 64, 16)[1]
        == "the accumulators are cleared in every tile of 16 (scale_d 0): only the last is left"
    )
    assert pipelines.causes(weights, 64, 16)[0] == []
    (found,), said = pipelines.causes(np.repeat([4, 0, 0, 0], 16), 64, 16)
    assert found.tiles == (0, 0, 0, 0) and said == f"in a and b alike, {found.said}"
    assert "cleared" not in pipelines.causes(np.repeat([1, 0, 0, 1], 16), 64, 16)[1]
    assert "cleared" not in pipelines.causes(np.ones(64), 64, 16)[1]


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
def test_lbo_and_sbo_of_mn_major_tiles_exchanged(swizzle: str) -> None:
    """The rule reads what the descriptors do, where that is inside the tile."""
    tile = tcsim.MatrixDescriptor.for_tile(128, 64, "f16", "MN", swizzle, arch="sm_100")
    place = np.full(1 << 16, -1)
    place[tile.addresses // 2] = np.arange(128 * 64).reshape(128, 64)
    exchanged = (replace(own, leading_byte_offset=own.stride_byte_offset, stride_byte_offset=own.leading_byte_offset)
                 for own in tile.descriptors)  # fmt: skip
    read = place[np.hstack([own.addresses(128, 16, "f16", "MN") // 2 for own in exchanged])]
    rule = next(rule for rule in shared_maps._panel_rules(128, 64, 8) if f"swizzle {swizzle}" in rule.detail)
    line, k = rule.where(*np.indices((128, 64)), np.zeros((1, 1), int))
    assert np.array_equal(np.where(line < 0, -1, line * 64 + k), read)
