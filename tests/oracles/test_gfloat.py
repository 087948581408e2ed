"""Number formats against gfloat: every code decoded, values rounded in every mode, MX blocks."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import tcsim
from tcsim.numbers.formats import CLASS_NAMES, NAN, NORMAL, SUBNORMAL, ZERO
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.values import around, codes_of

PROJECT = "gfloat"
SCRIPT = "ask_gfloat.py"
FORMATS = ("f16", "bf16", "f32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "ue8m0")
BLOCK_FORMATS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
ROUNDINGS = ("rne", "rna", "rz", "rm", "rp")
BLOCK = 32
CLASSES = {"ZERO": "zero", "SUBNORMAL": "subnormal", "NORMAL": "normal", "INFINITE": "infinity", "NAN": "nan"}


@pytest.mark.parametrize("name", FORMATS)
def test_codes_decode_alike(name: str, tmp_path: Path) -> None:
    """Values of every code, and the parts of its number: sign, exponent, significand, class."""
    format = tcsim.format(name)
    codes = codes_of(format)
    some = codes if format.bits <= 16 else codes[::16]
    (whole, parts) = ask(
        PROJECT,
        SCRIPT,
        [Question({"do": do, "format": name}, {"codes": c}) for do, c in (("decode", codes), ("fields", some))],
        tmp_path,
    )
    inputs = {"code": codes}
    with np.errstate(invalid="ignore"):  # decoding a signalling NaN of f32 warns
        values = tcsim.decode(codes, name)
    count = compare(Answers(PROJECT, f"{name} decode", inputs, whole["values"], values))
    assert count == len(codes)
    ours = format.fields(some)
    kinds = np.array([CLASS_NAMES.index(CLASSES[str(kind)]) for kind in parts["kind"]], np.uint8)
    inputs = {"code": some}
    count = compare(Answers(PROJECT, f"{name} class", inputs, kinds, ours.kind))
    numbers = (ours.kind == NORMAL) | (ours.kind == SUBNORMAL)
    signed = numbers | (ours.kind == ZERO)
    theirs = parts["significand"][numbers] * 2.0**format.fraction_bits
    inputs = {"code": some[numbers]}
    count += compare(
        Answers(
            PROJECT, f"{name} exponent", inputs, parts["exponent"][numbers].astype(np.int32), ours.exponent[numbers]
        ),
    )
    count += compare(
        Answers(PROJECT, f"{name} significand", inputs, theirs.astype(np.uint64), ours.significand[numbers])
    )
    inputs = {"code": some[signed]}
    count += compare(
        Answers(PROJECT, f"{name} sign", inputs, parts["sign"][signed].astype(np.uint8), ours.sign[signed])
    )
    assert count == len(some) + 2 * int(numbers.sum()) + int(signed.sum()) > 2 * len(some)


@pytest.mark.parametrize("name", FORMATS)
def test_values_round_alike(name: str, tmp_path: Path) -> None:
    """Values, middles and their neighbours, in five roundings, saturated and not.

    gfloat has no answer for an overflow of a format that has neither infinity nor NaN, unless it saturates.
    """
    format = tcsim.format(name)
    values = around(format)
    modes = [(r, s) for r, s in product(ROUNDINGS, (False, True)) if s or format.nan != "none"]
    questions = [
        Question({"do": "round", "format": name, "rounding": r, "saturate": s}, {"values": values}) for r, s in modes
    ]
    count = 0
    for (rounding, saturate), said in zip(modes, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        ours = tcsim.encode(values, name, rounding, saturate)
        theirs = said["codes"].astype(format.dtype)
        for codes in (theirs, ours):  # which NaN an overflow gives is a choice of each
            codes[format.fields(codes).kind == NAN] = format.canonical_nan or 0
        subject = f"{name} {rounding}{' saturated' if saturate else ''}"
        count += compare(Answers(PROJECT, subject, {"value": values}, theirs, ours))
    assert count == len(modes) * len(values) > 40_000


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_blocks_alike(name: str, tmp_path: Path) -> None:
    """MX blocks: a ue8m0 scale and 32 elements decoded; scales and values encoded."""
    format, random = tcsim.format(name), np.random.Generator(np.random.PCG64(1))
    elements = random.integers(0, 1 << format.bits, (2 * 256, BLOCK), np.uint8)
    scales = np.tile(np.arange(256, dtype=np.uint8), 2)[:, None]
    values = random.choice(around(format), (254, BLOCK))
    powers = np.exp2(np.arange(-127, 127).astype(np.float64))
    decoded, encoded = ask(
        PROJECT,
        SCRIPT,
        [
            Question({"do": "decode block", "format": name}, {"codes": np.concatenate([scales, elements], axis=1)}),
            Question({"do": "encode block", "format": name}, {"scales": powers, "values": values}),
        ],
        tmp_path,
    )
    with np.errstate(invalid="ignore"):
        ours = tcsim.decode(scales, "ue8m0") * tcsim.decode(elements, name)
    inputs = {"scale": np.broadcast_to(scales, elements.shape), "element": elements}
    count = compare(Answers(PROJECT, f"{name} block", inputs, decoded["values"], ours))
    codes = np.concatenate([tcsim.encode(powers, "ue8m0")[:, None], tcsim.encode(values, name, saturate=True)], axis=1)
    inputs = {"value": np.concatenate([powers[:, None], values], axis=1)}
    count += compare(Answers(PROJECT, f"{name} to block", inputs, encoded["codes"].astype(np.uint8), codes))
    assert count == elements.size + codes.size
