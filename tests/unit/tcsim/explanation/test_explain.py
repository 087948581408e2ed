"""tcsim.explain: products whose order is known are explained, and products of no tensor core are not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tcsim
from conformance.explain import recorded
from tcsim.core.errors import OperandError
from tcsim.explanation.arithmetic import arithmetics
from tcsim.explanation.epilogue import Extras
from tcsim.explanation.filters import filter_orders
from tcsim.explanation.orders import Order, contiguous
from tcsim.explanation.probes import MASKS, MOST
from tests.support.cli_runs import answer, data, refusal

WGMMA = "wgmma.mma_async.sync.aligned.m64n64k{}.f32.{}.{}"
STEP = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32}
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn}


def operands(format, m=24, n=16, k=256, seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal(size).astype(DTYPES[format]) for size in ((m, k), (k, n))]


def product(a, b, format):
    """One accumulator of wgmma, f32 values."""
    return tcsim.gemm(a, b, instruction=WGMMA.format(STEP[format], format, format)).view(np.float32)


def in_parts(a, b, format, length):
    """One accumulator for each part of K, in f32 values."""
    return [product(a[:, at : at + length], b[at : at + length], format) for at in range(0, a.shape[1], length)]


def added(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@pytest.mark.parametrize("format", ["f16", "bf16", "e4m3"])
def test_one_accumulator_is_explained(format):
    a, b = operands(format)
    found = tcsim.explain(a, b, product(a, b, format))
    assert (found.verdict, found.matching, found.compared) == ("explained", 384, 384)
    assert found.classes[0].order == "one accumulator"
    assert any(name.startswith("wgmma") for name in found.classes[0].instructions)
    assert all(matched < compared for matched, compared in found.rivals.values())
    again = operands(format, seed=1)
    assert (found.classes[0].predict(*again).view(np.float32) == product(*again, format)).all()


def test_a_split_of_k_is_explained_and_an_impossible_one_is_not():
    a, b = operands("bf16")
    parts = in_parts(a, b, "bf16", 64)
    found = tcsim.explain(a, b, added(parts))
    assert found.verdict == "explained"
    assert "64" in found.classes[0].order
    backwards = tcsim.explain(a, b, added(parts[::-1]))
    assert backwards.verdict == "explained"
    assert "descending" in backwards.classes[0].order
    wrong = added(parts).copy()
    wrong.view(np.uint32)[:, 3] ^= 1
    refused = tcsim.explain(a, b, wrong)
    assert refused.verdict == "not explained"
    assert 0 < refused.matching < refused.compared


def test_tf32_operands_are_rounded_to_nearest_even():
    a, b = operands("f32", k=64)
    read = [tcsim.encode(x, "tf32") for x in (a, b)]
    found = tcsim.explain(a, b, product(*read, "tf32"))
    assert found.verdict in ("explained", "consistent")
    assert "tf32 (rne)" in found.classes[0].arithmetic
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)) for x in (a, b)]
    assert "tf32 (rz)" in tcsim.explain(a, b, product(*cut, "tf32")).classes[0].arithmetic


def test_the_exact_product_is_a_rival_on_easy_data():
    """Every output of a short bf16 product is the exact one rounded: the answer must not be one order."""
    a, b = operands("bf16", k=32)
    exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(ml_dtypes.bfloat16)
    found = tcsim.explain(a, b, exact)
    assert found.verdict == "consistent"
    assert any("exact" in item.arithmetic for item in found.classes)
    for kind in ("cancelling", "tree"):
        left, right = found.settle(kind)
        assert left.shape == a.shape and right.shape == b.shape and left.dtype == a.dtype
    left, right = found.settle()
    outputs = [item.predict(left, right) for item in found.classes if item.instructions]
    settled = tcsim.explain(left, right, product(left, right, "bf16").astype(ml_dtypes.bfloat16))
    assert settled.verdict == "explained"
    assert len(outputs) >= 1


def test_c_relu_and_factors_are_recognised():
    a, b = operands("f16")
    bias = np.random.default_rng(2).standard_normal(16).astype(np.float32)
    sums = product(a, b, "f16")
    found = tcsim.explain(a, b, np.maximum(sums + bias, 0), bias)
    assert found.verdict == "explained"
    assert "C added" in found.classes[0].epilogue and "ReLU" in found.classes[0].epilogue
    scaled = tcsim.explain(a, b, sums * np.float32(0.7), alpha=0.7)
    assert scaled.verdict == "explained"


def test_integers_have_one_answer():
    a, b = (np.random.default_rng(3).integers(-128, 128, size, np.int8) for size in ((8, 40), (40, 8)))
    found = tcsim.explain(a, b, a.astype(np.int32) @ b.astype(np.int32))
    assert found.verdict == "explained" and len(found.classes) == 1


def test_arguments_that_do_not_fit():
    a, b = operands("f16")
    for given, said in (
        ((a, b, np.zeros((3, 3), np.float32)), "valid: observed"),
        ((a, b.T, product(a, b, "f16")), "valid: (..., M, K)"),
        ((a.view(np.uint16), b, product(a, b, "f16")), "the dtype is the format"),
        (("a", b, b), "the dtype is the format"),
    ):
        with pytest.raises(OperandError, match=r"tcsim\.explain") as caught:
            tcsim.explain(*given)
        assert said in str(caught.value)


@pytest.mark.parametrize(("format", "rival"), [("f16", True), ("e4m3", True), ("f32", False), ("f64", False)])
def test_ordinary_instructions_are_rivals_of_tensor_cores(format, rival):
    """Where these take the same formats; of f32 and f64 operands a chain of FMAs is as likely as anything."""
    assert {
        item.rival
        for item in arithmetics(format, format, "sm_90")
        if not item.instructions and " after another" in item.name
    } == {rival}


@pytest.mark.parametrize("batched", ["a", "b", "both"])
def test_matrices_of_a_batch_and_one_for_all(batched):
    """Either operand may be one matrix for all; C is of each output."""
    a, b = operands("f16", m=8, n=8, k=64)
    pair = [np.stack([x, x[::-1]]) if batched in (name, "both") else x for name, x in (("a", a), ("b", b))]
    c = np.arange(2 * 8 * 8, dtype=np.float32).reshape(2, 8, 8)
    both = [np.broadcast_to(x, (2, *x.shape[-2:])) for x in pair]
    bare = np.stack([product(*own, "f16") for own in zip(*both, strict=True)])
    seen = bare + c
    found = tcsim.explain(*pair, seen, c=c)
    assert found.verdict == "explained" and found.compared == 128
    best = found.classes[0]
    assert np.array_equal(best.predict(*pair).view(np.float32), seen)
    assert np.array_equal(best.predict(*pair, c=c[1]).view(np.float32), bare + c[1])


def test_the_output_in_f64():
    x = np.array([-2.0, 0.25, 3.0])
    assert Extras().reference(x).tolist() == x.tolist()
    assert Extras(alpha=2.0).reference(x, "relu").tolist() == [0.0, 0.5, 6.0]


@pytest.mark.parametrize(("channels", "blocks"), [(24, [8]), (8, []), (128, [64, 32, 16, 8]), (12, [])])
def test_orders_of_a_filter(channels, blocks):
    """In blocks of channels that divide them, and are not all of them."""
    names = [name for name, _ in filter_orders(9 * channels, 9)]
    assert names[2:] == [f"blocks of {own} channels, positions, channels of the block" for own in blocks]


@pytest.mark.parametrize("format", MASKS)
def test_masks_hide_units_and_counts_of_units_are_exact(format):
    """In f32; and an output of f16 holds every count of units, whose product is one of its own."""
    mask, unit = MASKS[format]
    assert float(np.float32(mask * unit) + np.float32(unit * unit)) == mask * unit or format in ("e4m3", "s8")
    assert all(float(np.float16(count * unit * unit)) == count * unit * unit for count in range(1, MOST + 1))


def test_orders_are_listed_once_and_cover_k():
    listed = list(contiguous(1001, 8))
    assert len({order.key for order in listed}) == len(listed) > 50
    for order in [*listed, Order((0, 1001), turn=3, block=16), Order((0, 1001), residue=64)]:
        places = np.concatenate(order.places(1001, 8))
        assert sorted(places[places >= 0]) == list(range(1001))


def test_the_subcommand(tmp_path):
    a, b = operands("bf16")
    np.savez(tmp_path / "ab.npz", a=a.view(np.uint16), b=b.view(np.uint16))
    np.save(tmp_path / "d.npy", product(a, b, "bf16"))
    files = (tmp_path / "ab.npz", f"observed={tmp_path / 'd.npy'}", "--formats", "bf16,bf16,f32")
    assert "explained: all of 384 outputs" in answer("explain", *files)
    found = data("explain", *files, "--settle", tmp_path / "probe.npz")
    assert found["verdict"] == "explained" and found["classes"][0]["matched"] == 384
    assert np.load(tmp_path / "probe.npz")["a"].shape == a.shape
    assert "the dtype is the format" in refusal("explain", *files[:2])
    np.save(tmp_path / "d.npy", product(a, b, "bf16")[::-1].copy())
    assert "not explained" in answer("explain", *files, status=1)


@pytest.mark.parametrize(("kind", "format"), [("f16", "bf16"), ("f8f6f4", "e4m3"), ("tf32", "tf32")])
@pytest.mark.parametrize("part", [256, 64])
def test_a_library_of_blackwell_is_explained(kind, format, part):
    """tcgen05.mma in known parts of K, as a library of sm_100 would run it: explained as such there."""
    name = "f32" if format == "tf32" else format
    random = np.random.default_rng(part)
    a, b = (
        (random.standard_normal(size) * 2.0 ** (random.integers(-4, 5, size) + 20 * (format == "tf32"))).astype(
            DTYPES[name]
        )
        for size in ((128, 256), (256, 16))  # beyond f16, which rounds as tf32 does
    )
    words = tcsim.InstructionDescriptor(kind, 128, 16, "f32", format, format)
    multiply = tcsim.instruction(f"tcgen05.mma.cta_group::1.kind::{kind}", arch="sm_100")
    read = [tcsim.encode(x.astype(np.float64), "tf32") if format == "tf32" else x for x in (a, b)]
    parts = []
    for start in range(0, 256, part):
        total = np.zeros((128, 16), np.uint32)
        for k in range(start, start + part, words.k):
            total = multiply.matmul(read[0][:, k : k + words.k], read[1][k : k + words.k], total, idesc=words.encode())
        parts.append(total.view(np.float32))
    found = tcsim.explain(a, b, added(parts), arch="sm_100")
    assert (found.verdict, found.matching) == ("explained", 2048)
    assert f"tcgen05.mma.cta_group::1.kind::{kind}" in found.classes[0].instructions
    assert (found.classes[0].order == "one accumulator") == (part == 256)


@pytest.mark.parametrize("name", ["normal", "cancelling"])
def test_triton_in_three_tf32_products(name):
    """Recorded on an H200: split operands, a fresh accumulator for each BLOCK_K of 32."""
    case = recorded.cases()[f"triton-f32-f32-f32-128x128x512-tf32x3.only.{name}"]
    given = case.operands()
    found = tcsim.explain(given["a"][:, :12], given["b"][:, :, :12], given["observed"][:, :12, :12])
    assert (found.verdict, found.matching) == ("explained", 144)
    assert "tf32x3" in found.classes[0].arithmetic and "blocks of 32, each added" in found.classes[0].arithmetic


def test_triton_widens_fp8_on_small_tiles() -> None:
    """Recorded on an H200: one of the 1,024 outputs needs rounding, and of the arithmetics of fp8 none truncates it as f16 does."""
    given = recorded.cases()["triton-e4m3-e4m3-f32-64x64x512-small.only.normal"].operands()
    found = tcsim.explain(given["a"][:, 27:], given["b"][:, :, 6:12], given["observed"][:, 27:, 6:12])
    assert found.verdict == "consistent" and found.matching == 30
    names = {(item.arithmetic, item.order) for item in found.classes}
    assert ("operands widened to f16, wgmma or mma, k16, f32 accumulator", "one accumulator") in names
    assert not any(name.startswith(("mma", "wgmma")) and order == "one accumulator" for name, order in names)


def test_every_k_of_a_chip_is_a_candidate() -> None:
    """Also where the first row of an arithmetic has an addend of another format: m8n8k4, whose f32 rows take f16 addends too."""
    for arch, depths in (("sm_70", {4}), ("sm_80", {4, 8, 16}), ("sm_90", {4, 8, 16})):
        found = {
            item.step for item in arithmetics("f16", "f16", arch) if item.instructions and item.accumulator == "f32"
        }
        assert found == depths, arch
