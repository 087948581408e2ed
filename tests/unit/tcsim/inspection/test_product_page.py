"""The page of a product, without a browser: its sums are the layouts, its bytes what descriptors read; the size of all pages."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.catalog import rows
from tcsim.inspection.memory_places import tensor_memory_operand
from tcsim.inspection.product_page import Tile, has_picture, product_page
from tcsim.inspection.report_html import report_html
from tcsim.layouts.swizzle import Swizzle
from tests.support.cli_runs import answer

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
UMMA = "tcgen05.mma.cta_group::2.kind::f16"
LIMIT = 500_000


def data_of(page: str) -> Any:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    assert found is not None and len(page.encode()) <= LIMIT
    return json.loads(found[1])


def summed(at: Any, rows: int, columns: int) -> Any:
    """What the page computes of a row and a column."""
    return (
        np.array(at["all"]).reshape(rows, columns)
        if "all" in at
        else np.array(at["row"])[:, None] + np.array(at["column"])
    )


def read(own: Any, home: Any) -> Any:
    """Bit addresses with the swizzle."""
    bit = summed(home["at"], own["rows"], own["columns"])
    return Swizzle(*home["swizzle"])(bit // 8) * 8 + bit % 8


def test_registers_are_those_of_the_layouts() -> None:
    """Every dense mma.sync and some wgmma: every element of A, B and D."""
    compared = 0
    seen = set()
    for name, row in rows().items():
        if row.family != "mma.sync" or row.dropped:
            continue
        ins = tcsim.instruction(name, arch=row.targets[-1])
        key = tuple(str(operand.layout) for operand in ins.operands.values())
        if key in seen or not has_picture(ins):
            continue
        seen.add(key)
        for own in data_of(product_page(ins))["operands"]:
            layout, home = ins.operands[own["name"]].layout, own["homes"][0]
            at = summed(home["at"], own["rows"], own["columns"])
            row_, column = np.indices(at.shape)
            lane, value = np.divmod(at, home["values"])
            register, slot = (2 * value, 0 * value) if home["bits"] == 64 else np.divmod(value, home["slots"])
            for got, want in zip((lane, register, slot), layout.where(row_, column), strict=True):
                np.testing.assert_array_equal(got, want)
            compared += at.size
    assert len(seen) >= 8 and compared > 3000
    quads = tcsim.instruction("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", arch="sm_70")
    assert "the first of its 4 products" in data_of(product_page(quads))["title"]


@pytest.mark.parametrize("swizzle", ["NONE", "32B", "64B", "128B"])
@pytest.mark.parametrize(("major_a", "major_b"), [("K", "K"), ("MN", "K"), ("K", "MN")])
def test_bytes_are_those_that_descriptors_read(swizzle: str, major_a: Any, major_b: Any) -> None:
    """A and B of a wgmma tile, step by step through the descriptors that the page names; arrows end where LBO and SBO say."""
    ins = tcsim.instruction("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", arch="sm_90a")
    data = data_of(product_page(ins, Tile(64, swizzle, major_a, major_b)))
    a, b, _ = data["operands"]
    compared = 0
    for own, major, which in ((a, major_a, 0), (b, major_b, 1)):
        home = own["homes"][0]
        bits = read(own, home) if own is a else read(own, home).T
        for step, pair in enumerate(data["steps"]):
            one = tcsim.MatrixDescriptor.decode(int(pair[which], 0))
            np.testing.assert_array_equal(
                bits[:, 16 * step : 16 * step + 16] // 8, one.addresses(64, 16, "bf16", major)
            )
            compared += 1024
        plain = summed(home["at"], own["rows"], own["columns"]) // 8
        for arrow in home["arrows"]:
            assert plain[tuple(arrow["to"])] - plain[0, 0] == home[arrow["name"].split()[0].lower()] > 0
        assert {arrow["name"].split()[0] for arrow in home["arrows"]} <= {"LBO", "SBO"} and home["arrows"]
    assert compared == 8 * 1024


def test_lanes_whose_addresses_ldmatrix_takes() -> None:
    """ldmatrix.x4 at the page's addresses gives A's registers, .x2 gives B's."""
    ins = tcsim.instruction(MMA, arch="sm_90")
    for own, count in zip(data_of(product_page(ins))["operands"][:2], (4, 2), strict=True):
        home = own["homes"][1]
        lanes, bits = summed(home["ldmatrix"], own["rows"], own["columns"]), read(own, home)
        address = np.zeros(32, np.uint32)
        for lane in range(8 * count):
            address[lane] = bits[lanes == lane].min() // 8
        codes = np.arange(own["rows"] * own["columns"], dtype=np.uint16).reshape(own["rows"], own["columns"])
        smem = np.zeros(8192, np.uint8)
        smem.view(np.uint16)[bits // 16] = codes
        move = tcsim.instruction(f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16", arch="sm_90")
        registers = move.execute(smem=smem, address=address)
        np.testing.assert_array_equal(ins.matrix(own["name"], registers), codes)  # type: ignore[attr-defined]


def test_tensor_memory_of_a_pair() -> None:
    idesc = tcsim.InstructionDescriptor("f16", 256, 128, a_format="bf16").encode()
    ins = tcsim.instruction(UMMA, arch="sm_100a")
    d = data_of(product_page(ins, Tile(idesc=idesc)))["operands"][2]
    home = d["homes"][0]
    at, cta = (summed(home[name], 256, 128) for name in ("at", "cta"))
    row, column = np.indices((256, 128))
    assert (at // 65536 == row % 128).all() and (at % 65536 == column).all() and (cta == row // 128).all()
    with pytest.raises(tcsim.OperandError, match="--idesc"):
        product_page(ins)
    with pytest.raises(tcsim.OperandError, match=r"valid: mma\.sync, mma\.sp"):
        product_page(tcsim.instruction("movmatrix.sync.aligned.m8n8.trans.b16", arch="sm_90"))


@pytest.mark.parametrize(
    ("mnemonic", "arch"),
    [
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90"),
        ("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90"),
        ("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", "sm_80"),
        ("mma.sp.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32", "sm_80"),
        ("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16", "sm_90a"),
        ("mma.sp::ordered_metadata.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k64.row.col.f32.e4m3.e4m3.f32.ue8m0", "sm_120"),
    ],
)  # fmt: skip
def test_metadata_and_what_it_keeps(mnemonic: str, arch: str) -> None:
    """The example's groups, put where the page says, are words that the instruction decodes to the k that the page links."""
    ins = tcsim.instruction(mnemonic, arch=arch)
    data = data_of(product_page(ins))
    own = next(one for one in data["extras"] if one["name"] == "metadata")
    home, groups = own["homes"][0], np.array(data["groups"], np.uint32)
    lane, field = np.divmod(summed(home["at"], own["rows"], own["columns"]), home["values"])
    words = np.zeros(home["lanes"], np.uint32)
    np.bitwise_or.at(words, lane, groups << (home["bits"] * field).astype(np.uint32))
    kept, span = np.array(data["kept"]), own["span"]
    m, n, k = ins.shape
    assert kept.shape == (m, k // 2) and span * own["columns"] == k and (np.diff(kept) > 0).all()
    np.testing.assert_array_equal(ins.decode_metadata(words), kept % span)
    assert {pair for pair in ins.row.sparsity.valid if pair & 3 < pair >> 2} == set(groups.flat)  # type: ignore[attr-defined]
    random = np.random.default_rng(0)
    dense = np.zeros((m, k), np.uint8)  # what the links say, multiplied: D is the sum over the k that are kept
    values = random.integers(1, 3, kept.shape)
    np.put_along_axis(dense, kept, values.astype(np.uint8), 1)
    a, b = ins.formats["a"], ins.formats["b"]
    right = random.integers(0, 2, (k, n))
    scales = (
        {
            f"scale_{side}": np.full(operand.shape, 0x7F, np.uint8)
            for side, operand in (("a", ins.scales["scale_a"]), ("b", ins.scales["scale_b"]))
        }
        if "block_scale" in mnemonic
        else {}
    )  # type: ignore[attr-defined]
    c = np.zeros((m, n), ins.operands["d"].format.dtype)
    d = ins.matmul(tcsim.encode(values, a), tcsim.encode(right, b), c, metadata=kept % span, **scales)
    np.testing.assert_array_equal(tcsim.decode(d, ins.operands["d"].format), dense.astype(int) @ right)


@pytest.mark.parametrize(
    ("kind", "form", "m", "ctas", "selector"),
    [("f16", "bf16", 128, 1, 0), ("f16", "f16", 64, 1, 1), ("tf32", "tf32", 128, 1, 0), ("f8f6f4", "e4m3", 256, 2, 0), ("i8", "s8", 128, 2, 0)],
)  # fmt: skip
def test_metadata_in_tensor_memory(kind: str, form: str, m: int, ctas: int, selector: int) -> None:
    """Groups, A and B put where the page says, and multiplied by the descriptors that it names: D, where it says, is the sum over the k that it links."""
    result = "s32" if kind == "i8" else "f32"
    desc = tcsim.InstructionDescriptor(
        kind, m, 32, result, form, form, sparse=True, sparsity_selector=selector, arch="sm_100a"
    )
    ins = tcsim.instruction(f"tcgen05.mma.sp.cta_group::{ctas}.kind::{kind}", arch="sm_100a")
    data = data_of(product_page(ins, Tile(idesc=desc.encode())))
    (metadata,), (a, b, d) = data["extras"], data["operands"]
    kept, groups = np.array(data["kept"]), np.array(data["groups"], np.uint32)
    assert kept.shape == (m, desc.k // 2) and metadata["span"] * metadata["columns"] == desc.k
    assert (np.diff(kept) > 0).all() and len(set(map(tuple, kept))) > 1
    random = np.random.default_rng(2)
    left, right = random.integers(1, 4, kept.shape), random.integers(0, 3, (desc.k, 32))
    smem = np.zeros((ctas, 1 << 15), np.uint8)
    for own, values in ((a, left), (b, right)):
        home = own["homes"][0]
        codes = tcsim.encode(values, form).astype(np.uint64)
        row, column = np.indices(values.shape)
        cta = (column if own is b else row) // (home["rowsOfCta"] or len(kept))
        for octet in range(home["bits"] // 8):
            smem[cta, read(own, home) // 8 + octet] = codes >> np.uint64(8 * octet) & np.uint64(255)
    tmem = tcsim.TensorMemory(ctas=ctas)
    for rank in range(ctas):
        tmem.alloc(64, cta_group=ctas, cta=rank)
    words, written = np.zeros((ctas, 128, 4), np.uint32), np.zeros((ctas, 128, 4), bool)
    home, shape = metadata["homes"][0], groups.shape
    at, cta, low = (summed(home[name], *shape) for name in ("at", "cta", "low"))
    np.bitwise_or.at(words, (cta, at // 65536, at % 65536), groups << low.astype(np.uint32))
    written[cta, at // 65536, at % 65536] = True
    for rank, lane, column in np.argwhere(written):
        tmem.write(lane, 32 + column, words[rank, lane, column], cta=int(rank))
    one, other = (int(word, 0) for word in data["steps"][0])
    done = ins.execute(  # type: ignore[attr-defined]
        tmem, smem if ctas > 1 else smem[0], d=0, a=one, b=other, idesc=desc, metadata=32, enable_input_d=False
    )
    home = d["homes"][0]
    at, cta = (summed(home[name], m, 32) for name in ("at", "cta"))
    found = done.words[cta, at // 65536, at % 65536]
    dense = np.zeros((m, desc.k), np.int64)
    np.put_along_axis(dense, kept, left, 1)
    np.testing.assert_array_equal(tcsim.decode(found, result), dense @ right)


@pytest.mark.parametrize("vectors", [("mxf8f6f4.block_scale.scale_vec::1X.m16n8k32", "e4m3", "ue8m0"), ("mxf4nvf4.block_scale.scale_vec::4X.m16n8k64", "e2m1", "ue4m3")])  # fmt: skip
def test_scale_factors_in_registers(vectors: tuple[str, str, str]) -> None:
    head, kind, scale = vectors
    ins = tcsim.instruction(f"mma.sync.aligned.kind::{head}.row.col.f32.{kind}.{kind}.f32.{scale}", arch="sm_120")
    random = np.random.default_rng(1)
    for own in data_of(product_page(ins))["extras"]:
        lane, byte = np.divmod(summed(own["homes"][0]["at"], own["rows"], own["columns"]), 4)
        codes = random.integers(1, 100, lane.shape).astype(np.uint32)
        words = np.zeros(32, np.uint32)
        np.bitwise_or.at(words, lane, codes << (8 * byte).astype(np.uint32))
        np.testing.assert_array_equal(ins.scale_matrix(own["of"], words), codes)
        along = own["columns"] if own["of"] == "a" else own["rows"]
        assert along * own["span"] == ins.shape[2]


def test_scale_factors_in_tensor_memory() -> None:
    idesc = tcsim.InstructionDescriptor("mxf8f6f4", 128, 64, a_format="e4m3").encode()
    ins = tcsim.instruction("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale", arch="sm_100a")
    for own in data_of(product_page(ins, Tile(idesc=idesc)))["extras"]:
        home, layout = own["homes"][0], tensor_memory_operand(ins, own["name"], idesc)
        row, column = np.indices((own["rows"], own["columns"]))
        _, lane, at, slot = layout.where(*((row, column) if own["of"] == "a" else (column, row)))
        np.testing.assert_array_equal(summed(home["at"], *row.shape), lane * 65536 + at)
        np.testing.assert_array_equal(summed(home["low"], *row.shape), 8 * slot)
    with pytest.raises(tcsim.OperandError, match="one instruction"):
        product_page(ins, Tile(128, idesc=idesc))


def test_pages_of_every_kind_are_small_and_stand_alone() -> None:
    pages = [
        answer("picture", MMA), answer("picture", "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", "--k", 128),
        answer("swizzle", "64B", "--html", "-"), answer("trace", MMA, "--seed", 1, "--html", "-"),
        answer("tensormap", "encode", "--type", "FLOAT16", "--dim", "256,128", "--box", "64,64", "--html", "-"),
        answer("idesc", "encode", "--kind", "f16", "--a", "bf16", "--m", 128, "--n", 256, "--html", "-"),
        answer("tmem", "--m", 128, "--n", 256, "--html", "-"), answer("descriptor", "decode", "0x4000004000000040", "--html", "-"),
    ]  # fmt: skip
    for page in pages:
        assert page.startswith("<!doctype html>") and len(page.encode()) <= LIMIT
        assert "http://" not in page and "https://" not in page
    assert "0x8400490" not in pages[5] and "0x08400490" in pages[5]


def test_what_notebooks_show() -> None:
    idesc = tcsim.InstructionDescriptor("f16", 128, 64, a_format="bf16")
    shown = {
        "product": tcsim.instruction(MMA, arch="sm_90")._repr_html_(), "0x90": tcsim.Swizzle(3, 4, 3)._repr_html_(),
        f"{idesc.encode():#010x}": idesc._repr_html_(),
        "box_dim": tcsim.TensorMap("FLOAT16", (64, 64), (128,), (64, 64))._repr_html_(),
    }  # fmt: skip
    assert all(text in str(html) for text, html in shown.items())
    assert report_html.__doc__ and "&lt;" in str(shown["product"])
