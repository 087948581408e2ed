"""The random machines of tests/evaluation/random_machines against fractions, against ml_dtypes and against instructions known from hardware."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tests.evaluation.random_machines import (
    Inputs,
    Machine,
    Signature,
    agrees,
    compare,
    inputs,
    observable,
    outside_machines,
    random_machines,
    slow,
)
from tests.evaluation.random_machines.formats import FORMATS, unpack
from tests.evaluation.random_machines.known import KNOWN, machine
from tests.evaluation.random_machines.outside import KINDS
from tests.support.extent import examples

KEYS = (
    "step", "addend", "fraction_bits", "truncation", "products", "floor", "significand", "rounding", "overflow", "subnormal_in", "subnormal_c",
    "subnormal_out", "zero", "nan", "scaled", "as",
)  # fmt: skip
ML_DTYPES = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "e5m2": ml_dtypes.float8_e5m2, "e4m3": ml_dtypes.float8_e4m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m3": ml_dtypes.float6_e2m3fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
VALUES = (
    ("fraction_bits", None), ("fraction_bits", 40), ("floor", None), ("truncation", "zero"), ("truncation", "down"), ("products", "raw"),
    ("products", "normalised"), ("as", None), ("as", "f16"), ("rounding", "rz"), ("rounding", "rne"), ("overflow", "infinity"),
    ("overflow", "largest"), ("subnormal_in", "kept"), ("subnormal_in", "zero"), ("subnormal_out", "kept"), ("subnormal_out", "zero"),
    ("zero", "+0"), ("zero", "ieee"),
)  # fmt: skip


@pytest.mark.parametrize("name", ML_DTYPES)
def test_codes_mean_what_they_mean_elsewhere(name: str) -> None:
    form = FORMATS[name]
    codes = np.arange(1 << form.bits) if form.bits <= 16 else np.random.default_rng(1).integers(0, 1 << 32, 50_000)
    codes = codes.astype(form.container)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = codes.view(ML_DTYPES[name]).astype(np.float64)
    numbers = unpack(codes, name)
    value = np.ldexp(numbers.magnitude.astype(np.float64), numbers.unit)
    value = np.where(numbers.nan, np.nan, np.where(numbers.infinite, np.inf, value))
    np.testing.assert_array_equal(
        np.where(numbers.negative, -value, value), np.where(np.isnan(expected), np.nan, expected)
    )
    assert np.array_equal(np.signbit(expected)[~numbers.nan], numbers.negative[~numbers.nan])


def _rows(x: Inputs, row: int) -> list[Any]:
    return [v[row].tolist() for v in x if v is not None]


def test_arrays_and_fractions_agree() -> None:
    compared = 0
    for index, unknown in enumerate(random_machines(60, seed=5)):
        x = inputs(unknown.signature, 20, index)
        expected = [slow.dot(unknown.signature, unknown.truth, *_rows(x, row)) for row in range(20)]
        assert unknown.dot(*x).tolist() == expected, unknown.truth
        compared += 20
    assert compared == 1200


@examples(60)
@given(st.integers(0, 10**6), st.data())
def test_any_codes_at_all_agree_with_fractions(index: int, data: st.DataObject) -> None:
    (unknown,) = random_machines(1, seed=index)
    s = unknown.signature

    def codes(name: str, count: int) -> list[int]:
        form = FORMATS[name]
        special = [
            x << form.unused for x in (0, 1, 1 << (form.bits - 1), (1 << (form.bits - 1)) - 1, (1 << form.bits) - 1)
        ]
        every = st.integers(0, (1 << (form.bits + form.unused)) - 1)
        return data.draw(st.lists(st.sampled_from(special) | every, min_size=count, max_size=count))

    arguments = [codes(s.a, s.k), codes(s.b, s.k), codes(s.c, 1)[0]]
    if s.scale is not None:
        scale = st.lists(st.integers(0, 255), min_size=s.k // s.scale[1], max_size=s.k // s.scale[1])
        arguments += [data.draw(scale), data.draw(scale)]
    dtypes = [FORMATS[s.a].container, FORMATS[s.b].container, FORMATS[s.c].container, np.uint8, np.uint8]
    arrays = [np.array([x], dtype) for x, dtype in zip(arguments, dtypes, strict=False)]
    assert unknown.dot(*arrays).tolist() == [slow.dot(s, unknown.truth, *arguments)]


@pytest.mark.parametrize(("arch", "mnemonic"), KNOWN)
def test_known_instructions(arch: str, mnemonic: str) -> None:
    known = KNOWN[arch, mnemonic]
    rows, columns, batch = (8 if "m8n8" in mnemonic else 16), 8, 40
    x = inputs(known.signature, batch * rows, 11)
    a, c = x.a.reshape(batch, rows, -1), x.c.reshape(batch, rows)
    b = x.b.reshape(batch, rows, -1)[
        :, :columns
    ]  # row i of a stands with its own row of b in column i, else with another's
    pairs = [np.repeat(a[:, :, None], columns, 2), np.repeat(b[:, None], rows, 1), np.repeat(c[:, :, None], columns, 2)]
    scales = {}
    if x.scale_a is not None and x.scale_b is not None:
        scale_a, scale_b = x.scale_a.reshape(batch, rows, -1), x.scale_b.reshape(batch, rows, -1)[:, :columns]
        scales = {"scale_a": scale_a, "scale_b": scale_b.swapaxes(1, 2)}
        pairs += [np.repeat(scale_a[:, :, None], columns, 2), np.repeat(scale_b[:, None], rows, 1)]
    expected = tcsim.instruction(mnemonic, arch=arch).matmul(a, b.swapaxes(1, 2), pairs[2], **scales)
    got = known.dot(*(p.reshape(-1, *p.shape[3:]) for p in pairs))
    assert got.dtype == expected.dtype
    assert got.size == batch * rows * columns
    assert np.array_equal(got.reshape(expected.shape), expected)


def test_every_key_varies() -> None:
    truths = [unknown.truth for unknown in random_machines(300)]
    assert all(tuple(truth) == KEYS for truth in truths)
    seen = {key: {str(truth[key]) for truth in truths} for key in KEYS}
    assert all(len(seen[key]) >= 2 for key in KEYS)
    assert len(seen["fraction_bits"]) >= 30
    assert len(seen["floor"]) >= 30
    assert {unknown.signature.k for unknown in random_machines(300)} == {4, 8, 16, 32, 64}
    assert {unknown.signature.a for unknown in random_machines(300)} == set(FORMATS) - {"f32", "ue4m3"}


def test_steps_are_a_partition() -> None:
    for unknown in random_machines(300):
        assert sorted(k for step in unknown.truth["step"] for k in step) == list(range(unknown.signature.k))


def test_ten_thousand_dots_are_quick() -> None:
    known = machine(Signature(16, "f16", "f16", "f32", "f32"), 16, 25, -133)
    x = inputs(known.signature, 10_000)
    times = []
    for _ in range(10):
        start = time.process_time()
        known.dot(*x)
        times.append(time.process_time() - start)
    assert min(times) < 0.05  # of one processor


@pytest.mark.parametrize("name", [kind.__name__ for kind in KINDS])
def test_a_machine_outside_differs_from_the_one_it_was_made_of(name: str) -> None:
    odd = outside_machines()[name]
    right = Machine(odd.signature, odd.truth)
    x = inputs(odd.signature, 4000)
    assert (odd.dot(*x) != right.dot(*x)).any()
    again = np.array_equal(odd.dot(*x), odd.dot(*x))
    assert again == (name != "StochasticRounding")


def test_what_cannot_be_observed_changes_nothing() -> None:
    """Each key that `observable` drops is changed to other values: no input may show it."""
    compared = 0
    for index, unknown in enumerate(random_machines(60, seed=9)):
        seen = observable(unknown.signature, unknown.truth)
        x = inputs(unknown.signature, 1000, index)
        expected = unknown.dot(*x)
        full = FORMATS[unknown.signature.d].fraction_bits + 1
        for key, value in (*VALUES, ("significand", full)):
            other = unknown.truth | {key: value}
            if value != unknown.truth[key] and observable(unknown.signature, other) == seen:
                got = Machine(unknown.signature, other).dot(*x)
                assert np.array_equal(got, expected), (unknown.signature, unknown.truth, key, value)
                compared += 1
    assert compared >= 50


def test_known_machines_are_told_apart_and_floors_too_low_are_not() -> None:
    hopper = KNOWN["sm_90", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    s, truth = hopper.signature, hopper.truth
    assert compare(s, truth, truth | {"floor": -126}).answer == "same"
    assert compare(s, truth, truth | {"nan": 0x7FC00000}).answer == "different"
    for change in (
        {"fraction_bits": 24},
        {"rounding": "rne"},
        {"truncation": "down"},
        {"step": (tuple(range(8)), tuple(range(8, 16)))},
    ):
        verdict = compare(s, truth, truth | change)
        assert verdict.answer == "different"
        assert verdict.keys == tuple(change)
        assert verdict.witness is not None
        assert hopper.dot(*verdict.witness) != Machine(s, truth | change).dot(*verdict.witness)
    assert agrees(s, truth, truth | {"floor": "not observable"})
    assert not agrees(s, truth, truth | {"zero": "not observable"})
    wide = replace(s, a="bf16", b="bf16")
    assert compare(wide, truth, truth | {"floor": -134}).answer == "different"
