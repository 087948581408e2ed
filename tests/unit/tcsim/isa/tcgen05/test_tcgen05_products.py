"""What `matmul` of tcgen05.mma computes: sums, scales, floors, K = 96 and metadata, against a slow model."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from conformance.isa.tcgen05.mma import descriptors
from conformance.isa.tcgen05.mma_inputs import Described
from conformance.stimuli.stream import Stream
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tests.exact import tensor_multiply as exact
from tests.exact.steps import integer_dot
from tests.support.extent import examples
from tests.support.tensor_multiply_cases import instruction, plain


@examples(40)
@given(st.integers(0, 2**32 - 1), st.data())
def test_products_are_those_of_the_slow_model(seed: int, data: st.DataObject) -> None:
    """Any codes, any mix of formats, any scales, any scale-input-d."""
    item = data.draw(st.sampled_from([one for one in plain("sm_100") if not one.row.ashift]))
    desc = data.draw(st.sampled_from(list(descriptors(item))))
    desc = replace(desc, transpose_a=False, transpose_b=False)
    described, stream = Described(item, desc), Stream("products", seed)
    name = data.draw(st.sampled_from(described.classes))
    matrices = {key: codes[0] for key, codes in described.make(name, stream, 1).items()}
    scaled = any("scale_input_d" in form for form in item.row.forms) and item.row.kind.name != "i8"
    scale_d = data.draw(st.integers(0, 15)) if scaled else None
    extra = {key: codes for key, codes in matrices.items() if key not in "abc"}
    d = item.matmul(matrices["a"], matrices["b"], matrices["c"], idesc=desc, scale_input_d=scale_d, **extra)
    assert _same_products(item, desc, matrices, d, scale_d or 0, stream) == 8


def test_k_of_96() -> None:
    """sm_103's K = 96 of the 4-bit kinds: six groups of 16."""
    compared = 0
    for vector, blocks, scale in ((".block16", 6, "ue4m3"), (".block32", 3, "ue8m0")):
        item = instruction(f"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale{vector}", "sm_103")
        desc = tcsim.InstructionDescriptor(kind="mxf4nvf4", m=128, n=16, scale_format=scale, k=96, arch="sm_103")
        assert item.shapes(desc)["scale_a"] == (128, blocks)
        assert item.evidence.level == "inferred"
        matrices = {key: x[0] for key, x in Described(item, desc).make("uniform", Stream("k96"), 1).items()}
        scales = {key: matrices[key] for key in ("scale_a", "scale_b")}
        d = item.matmul(matrices["a"], matrices["b"], matrices["c"], idesc=desc, **scales)
        compared += _same_products(item, desc, matrices, d, 0, Stream("places"))
    assert compared == 16


def _same_products(
    item: TensorMemoryMultiply,
    desc: tcsim.InstructionDescriptor,
    given_: dict[str, Any],
    d: Any,
    scale_d: int,
    stream: Stream,
) -> int:
    """Compare eight outputs of matmul with the slow model."""
    fields = asdict(desc)
    for row, column in zip(stream.below(desc.m, (8,)).tolist(), stream.below(desc.n, (8,)).tolist(), strict=True):
        a = [exact.negated(x, desc.a_format, desc.negate_a) for x in given_["a"][row].tolist()]
        met = item.sparsity(desc).columns(given_["metadata"])[row] if desc.sparse else slice(None)
        b = [exact.negated(x, desc.b_format, desc.negate_b) for x in given_["b"][met, column].tolist()]
        c = int(given_["c"][row, column])
        if desc.d_format == "s32":
            want = integer_dot(a, b, c, a_format=desc.a_format, b_format=desc.b_format, saturate=desc.saturate)
        else:
            blocks = []
            if "scale_a" in given_:
                blocks = list(zip(given_["scale_a"][row].tolist(), given_["scale_b"][:, column].tolist(), strict=True))
            want = exact.fused(a, b, c, fields, blocks, scale_d)
        assert int(d[row, column]) == want, (item.mnemonic, row, column)
    return 8


def test_ashift_keeps_the_last_row_of_each_cta() -> None:
    for group, kept in ((1, [127]), (2, [127, 255])):
        item = instruction(f"tcgen05.mma.cta_group::{group}.kind::tf32.ashift")
        desc = tcsim.InstructionDescriptor(kind="tf32", m=128 * group, n=32)
        a = np.zeros((desc.m, 8), np.float32)
        a[:, 0] = np.arange(desc.m)
        d = item.matmul(
            a.view(np.uint32),
            np.ones((8, 32), np.float32).view(np.uint32),
            np.zeros((desc.m, 32), np.float32),
            idesc=desc,
        )
        rows = d.view(np.float32)[:, 7].astype(int)
        assert rows.tolist() == [row if row in kept else row + 1 for row in range(desc.m)]


def two_terms(kind: str, low: int) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Fields of a descriptor and operands of a product of two terms, 2**-149 (2**-25 for f16) and a small one; and D's format.

    To f32, the small one is -2**low: it takes 2**-149 away if it is not cut. To f16, it is 2**low and breaks a tie upward.
    """
    power = {"f16": "f16"}.get(kind, "bf16")
    if kind in ("f16", "bf16"):
        high = -25 if kind == "f16" else -149
        a, b = np.zeros((128, 16)), np.zeros((16, 16))
        a[:, 0], b[0] = 2.0 ** (high // 2), 2.0 ** (high - high // 2)
        a[:, 1], b[1] = (1 if kind == "f16" else -1) * 2.0 ** (low // 2), 2.0 ** (low - low // 2)
        fields = {"kind": "f16", "a_format": power, "d_format": "f16" if kind == "f16" else "f32"}
        return fields, {"a": tcsim.encode(a, power), "b": tcsim.encode(b, power)}, fields["d_format"]
    if kind == "mxf8f6f4":
        a = np.zeros((128, 32))
        a[:, 0], a[:, 1] = 2.0**4, -(2.0 ** (low + 153))
        scales = {"scale_a": np.full((128, 1), 127 - 76, np.uint8), "scale_b": np.full((1, 16), 127 - 77, np.uint8)}
        operands = {"a": tcsim.encode(a, "e4m3"), "b": tcsim.encode(np.ones((32, 16)), "e4m3"), **scales}
        return {"kind": kind, "a_format": "e4m3"}, operands, "f32"
    a = np.zeros((128, 64))
    a[:, 0], a[:, 32] = 1, -1  # one of each block of 32
    exponents = np.array([-149, low])
    scales = {
        "scale_a": np.tile(127 + exponents // 2, (128, 1)),
        "scale_b": np.tile(127 + exponents - exponents // 2, (16, 1)).T,
    }
    operands = {"a": tcsim.encode(a, "e2m1"), "b": tcsim.encode(np.ones((64, 16)), "e2m1")}
    return {"kind": kind}, operands | {name: x.astype(np.uint8) for name, x in scales.items()}, "f32"


@pytest.mark.parametrize(("kind", "lowest"), [("f16", -46), ("bf16", -158), ("mxf8f6f4", -158), ("mxf4", -174)])
def test_the_floor_is_where_it_is_said_to_be(kind: str, lowest: int) -> None:
    """A term of 2**lowest, the last place below the floor, counts; half of it does not. The addend is zero."""
    for low, counts in ((lowest + 1, True), (lowest, True), (lowest - 1, False)):
        fields, operands, output = two_terms(kind, low)
        desc = tcsim.InstructionDescriptor(**fields, m=128, n=16)
        item = instruction(f"tcgen05.mma.cta_group::1.kind::{desc.kind}{'.block_scale' * ('scale_a' in operands)}")
        d = item.matmul(c=np.zeros((128, 16), item.formats(desc)["c"].dtype), idesc=desc, **operands)
        assert (d == (counts if output == "f16" else not counts)).all(), low


@pytest.mark.parametrize("kind", ["f16", "f8f6f4", "i8", "mxf4"])
def test_metadata_whose_indices_fall(kind: str) -> None:
    """The PTX ISA lists 0b0110 beside the six that rise: the first kept element is the third, the second the second."""
    scaled = ".block_scale" * (kind == "mxf4")
    item = instruction(f"tcgen05.mma.sp.cta_group::1.kind::{kind}{scaled}")
    formats = {"f16": "f16", "f8f6f4": "e4m3", "i8": "s8", "mxf4": "e2m1"}
    desc = tcsim.InstructionDescriptor(kind=kind, a_format=formats[kind], m=128, n=16, sparse=True)
    assert item.sparsity(desc).valid == (0b0100, 0b0110, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
    group = [2, 1] if kind != "mxf4" else [4, 5, 2, 3]
    kept = desc.k // 2
    positions = np.tile(group, (128, kept // len(group)))
    one = 1 if kind == "i8" else int(tcsim.encode(np.ones(1), formats[kind])[0])
    dtype = item.formats(desc)["a"].dtype
    a = np.zeros((128, kept), dtype)
    a[:, 0] = one  # belongs to dense column 2, or 4
    b = np.zeros((desc.k, 16), dtype)
    b[group[0]] = one
    c = np.zeros((128, 16), item.formats(desc)["c"].dtype)
    scales = {"scale_a": np.full((128, 2), 127, np.uint8), "scale_b": np.full((2, 16), 127, np.uint8)} if scaled else {}
    d = item.matmul(a, b, c, idesc=desc, metadata=positions, **scales)
    assert (d == (1 if kind == "i8" else 0x3F800000)).all()
