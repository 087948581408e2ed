"""Every subcommand of the command line: its text and its JSON say what the library says."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim import catalog
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.inspection import listing
from tcsim.inspection.comparison import compare_archs
from tcsim.inspection.description import describe
from tcsim.inspection.feeds import feed_of
from tcsim.inspection.numbers import inspect_number
from tcsim.inspection.trace_steps import trace_steps
from tcsim.memory.mbarrier import MBarrier
from tcsim.memory.mbarrier_object import initial_barrier
from tcsim.numbers.rounding import Rounding
from tests.support.cli_runs import MMA, WGMMA, answer, data, refusal, run

# --- list and show


def test_list_is_the_registry() -> None:
    """All rows, and each filter; the text has one line for all that differ in N alone, with the first arch or the evidence."""
    everything = [row.mnemonic for row in catalog.rows().values() if not row.dropped]
    text = answer("list").splitlines()
    assert text[0].split() == ["since", "mnemonic", "N"]
    found = {line.split()[1]: line.split() for line in text[1:]}
    count = Counter(re.sub(r"(?<=\.m)(\d+)n\d+(?=k\d+\.)", r"\1nN", name) for name in everything)
    grouped = {name for name, own in count.items() if own > 1}
    assert len(text) - 1 == len(found) == len(count)
    assert all(len(own) > 2 for name, own in found.items() if name in grouped)
    single = {name: own for name, own in found.items() if name not in grouped}
    assert all(own == [catalog.rows()[name].first_arch.name, name] for name, own in single.items())
    assert found["wgmma.mma_async.sync.aligned.m64nNk16.f32.f16.f16"][2:] == [
        "8",
        "to",
        "256",
        "in",
        "steps",
        "of",
        "8",
    ]
    own = [
        row for row in catalog.on_arch("sm_90", "mma.sync") if "bf16" in {o.format.name for o in row.operands.values()}
    ]
    found = data("list", "--arch", "sm_90", "--family", "mma.sync", "--type", "bf16")
    assert found["count"] == len(own) == 2
    assert [entry["mnemonic"] for entry in found["instructions"]] == [row.mnemonic for row in own]
    assert found["instructions"][0]["evidence"] == {"sm_90": "measured"}
    assert found["instructions"][0]["formats"] == {"d": "f32", "a": "bf16", "b": "bf16", "c": "f32"}
    some = answer("list", "movmatrix", "--arch", "sm_80").splitlines()
    assert some[1].split() == ["literature", "movmatrix.sync.aligned.m8n8.trans.b16"]
    assert "no instruction matches" in run("list", "nothing.of.the.kind").stderr


def test_list_of_families() -> None:
    """As many instructions as the registry has."""
    found = {entry["family"]: entry for entry in data("list", "--families")["families"]}
    assert list(found) == [family.name for family in catalog.families()]
    for family in catalog.families():
        own = [row for row in family.rows() if not row.dropped]
        assert found[family.name]["instructions"] == len(own)
    assert re.search(r"^wgmma +546 +sm_90$", answer("list", "--families"), re.MULTILINE)
    assert "wgmma" not in answer("list", "--families", "--arch", "sm_80")


@pytest.mark.parametrize(
    "mnemonic",
    [MMA, WGMMA, "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
     "stmatrix.sync.aligned.m8n8.x2.shared.b16", "wmma.load.a.sync.aligned.row.m16n16k16.f16",
     "movmatrix.sync.aligned.m8n8.trans.b16", "cvt.rn.satfinite.e4m3x2.f32"],
)  # fmt: skip
def test_show_says_what_the_registry_says(mnemonic: str) -> None:
    """JSON is the description; the text has its facts, in at most 80 columns."""
    instruction = tcsim.instruction(mnemonic, arch="sm_90")
    found = data("show", mnemonic, "--arch", "sm_90")
    assert found == json.loads(json.dumps(describe(instruction).as_dict()))
    text = answer("show", mnemonic, "-a", "sm_90")
    assert text.startswith(f"{mnemonic} on sm_90\n")
    assert str(instruction.evidence) in " ".join(text.split())
    for opcode, times in instruction.lowering.opcodes:
        assert f"{times} {opcode}" in text
    for operand in instruction.operands.values():
        assert str(operand.layout) in text
    assert max(map(len, text.splitlines())) <= 80
    markdown = answer("show", mnemonic, "-a", "sm_90", "--format", "markdown")
    assert markdown.startswith(f"# {mnemonic} on sm_90\n") and "## Constraints" in markdown


def test_show_has_the_closed_formulas_and_the_ptx() -> None:
    """As in the manual."""
    text = answer("show", MMA)
    assert "row        = lane/4 + 8*(register%2)" in text
    assert "column     = 2*(lane%4) + 8*(register/2) + slot" in text
    assert f"{MMA} {{%d0, %d1, %d2, %d3}}, {{%a0, %a1, %a2, %a3}}, {{%b0, %b1}}" in " ".join(text.split())
    assert "d = dot-add of k 0-15 and c (F = 25, floor -133) to f32 RZ" in text


def test_the_default_arch_has_the_strongest_evidence() -> None:
    """Not better than any other arch's, and the earliest of equals."""
    checked = 0
    for row in list(catalog.rows().values())[::40]:
        if row.dropped:
            continue
        chosen = listing.default_arch(row.mnemonic)
        archs = [arch for arch in ARCHS if arch in {TARGETS[target].arch for target in row.targets}]
        levels = [listing.LEVELS.index(tcsim.instruction(row.mnemonic, arch=arch).evidence.level) for arch in archs]
        assert chosen == archs[levels.index(min(levels))]
        checked += 1
    assert checked > 40


# --- where, what, map, inputs


def test_where_and_what_are_inverse() -> None:
    """Over some elements of every operand; the text names register and lane."""
    mma = tcsim.instruction(MMA, arch="sm_90")
    for name, operand in mma.operands.items():
        for row, column in ((0, 0), (3, 5), (9, 2)):
            found = data("where", MMA, "--operand", name.upper(), "--element", f"{row},{column}")
            (place,) = found["places"]
            lane, register, slot = operand.layout.where(row, column)
            assert (place["lane"], place["register"], place["slot"]) == (lane, register, slot)
            text = answer("where", MMA, "-o", name, "-e", f"({row}, {column})")
            assert text == f"{name}({row}, {column}) is {place['name']} of lane {lane}\n"
            for spelled in ([register, "-o", name], [f"{name}{register}"], [f"%{name}{register}"]):
                back = data("what", MMA, "--lane", lane, "--register", *spelled)
                assert (row, column) in [(item["row"], item["column"]) for item in back["places"]]


def test_where_on_the_example_of_the_manual_page() -> None:
    """Text and JSON of a copy, of a matrix among several, and of a register pair."""
    assert answer("where", MMA, "--operand", "A", "--element", "8,6") == "a(8, 6) is a1[15:0] of lane 3\n"
    load = "wmma.load.a.sync.aligned.row.m16n16k16.f16"
    lines = answer("where", load, "--element", "3,5").splitlines()
    assert len(lines) == 2 and lines[1].strip().startswith("and a")
    several = answer("where", "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "-e", "3,5", "--matrix", 2)
    assert several == "d(3, 5), matrix 2 is d2[31:16] of lane 14\n"
    what = answer("what", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "-l", 5, "-r", "d1")
    assert "d1[63:0]" in what


def test_map_writes_every_format() -> None:
    """CSV by element is sorted, JSON has every place, SVG and Markdown are what they are, text fits."""
    places = data("map", MMA, "--operand", "B")["places"]
    assert len(places) == 128
    rows = answer("map", MMA, "-o", "b", "--format", "csv", "--by", "element").splitlines()
    assert rows[0] == "operand,matrix,row,column,lane,register,slot,high_bit,low_bit" and len(rows) == 129
    assert [tuple(map(int, row.split(",")[2:4])) for row in rows[1:]] == [(k, n) for k in range(16) for n in range(8)]
    text = answer("map", WGMMA, "-o", "a")
    assert max(map(len, text.splitlines())) <= 80
    assert len(re.findall(r"^ *\d+ ", text, re.MULTILINE)) >= 128
    assert answer("map", MMA, "-o", "d", "--format", "svg").startswith("<svg ")
    assert "| lane | c0 | c1 | c2 | c3 |" in answer("map", MMA, "-o", "c", "--format", "markdown")


def test_inputs_names_the_lanes() -> None:
    """JSON is the feed; the text has the lanes and a line for each k."""
    feed = feed_of(tcsim.instruction(MMA, arch="sm_90"), 8, 3)
    found = data("inputs", MMA, "--element", "8,3")
    assert {name: tuple(lanes) for name, lanes in found["lanes"].items()} == feed.lanes
    assert [product["a"]["places"][0]["name"] for product in found["products"]] == [
        a.places[0].name for _, a, _ in feed.products
    ]
    text = answer("inputs", MMA, "--element", "8,3")
    assert "lanes of a  0-3\n" in text and "lanes of b  12-15\n" in text
    assert len(re.findall(r"^ *\d+  a\(8, \d+\): ", text, re.MULTILINE)) == 16
    sparse = answer("inputs", "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "-e", "1,1", "--selector", "2")
    assert "metadata0[3:0] of lane 6" in sparse and max(map(len, sparse.splitlines())) <= 80


# --- descriptors, swizzles, barriers


def test_descriptors_go_round() -> None:
    """encode, decode, and the fields of both generations."""
    made = data("descriptor", "encode", "--start", "0x400", "--sbo", 1024, "--swizzle", "128b")
    own = tcsim.MatrixDescriptor(start_address=1024, stride_byte_offset=1024, swizzle="128B")
    assert int(made["value"], 16) == own.encode()
    assert data("descriptor", "decode", made["value"]) == made
    text = answer("descriptor", "decode", own.encode())
    assert re.search(r"^45:32 +stride_byte_offset +1024 ", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80
    newer = data("descriptor", "encode", "--start", 32, "--swizzle", "64B", "--arch", "sm_100a")
    assert int(newer["value"], 16) == tcsim.MatrixDescriptor(32, swizzle="64B", arch="sm_100").encode()
    assert {field["name"]: field["value"] for field in newer["fields"]}["swizzle"] == "64B"


def test_descriptor_tiles_and_checks() -> None:
    """The tile is the library's; a check that finds something ends with status 1."""
    made = tcsim.MatrixDescriptor.for_tile(128, 128, "f16", start_address=1024)
    found = data("descriptor", "tile", "--rows", 128, "--k", 128, "--type", "f16", "--start", 1024)
    assert found["advances"] == list(made.advances) and found["bytes"] == made.bytes
    assert [int(x, 16) for x in found["descriptors"]] == [descriptor.encode() for descriptor in made.descriptors]
    text = answer("descriptor", "tile", "--rows", 128, "--k", 128, "--type", "f16", "--start", 1024)
    assert str(made.layout) in text and f"{made.descriptors[-1].encode():#018x}" in text
    good, bad = made.descriptor, tcsim.MatrixDescriptor(stride_byte_offset=64, swizzle="128B")
    size = ("--rows", 64, "--k", 16, "--type", "f16")
    assert data("descriptor", "check", good.encode(), *size)["ok"] is True
    wrong = data("descriptor", "check", bad.encode(), *size, status=1)
    assert wrong["messages"] == list(bad.check(64, 16, "f16").messages) and wrong["ok"] is False
    assert bad.check(64, 16, "f16").messages[0] in " ".join(
        answer("descriptor", "check", bad.encode(), *size, status=1).split()
    )


def test_swizzle_grid_and_banks() -> None:
    """Addresses and conflict degrees, and one address by itself."""
    found = data("swizzle", "128B")
    assert found["addresses"][3][0] == tcsim.Swizzle(3, 4, 3)(3 * 128)
    assert found["conflict_degree"] == [1] * 8 and found["conflict_degree_unswizzled"] == [8] * 8
    text = answer("swizzle", "128B")
    assert re.search(r"^swizzled +1 +1 ", text, re.MULTILINE) and max(map(len, text.splitlines())) <= 80
    assert answer("swizzle", "3,4,3", "--address", "0x80") == "0x80 -> 0x90\n"
    assert data("swizzle", "64B", "--address", 256)["swizzled"] == tcsim.Swizzle(2, 4, 3)(256)


def test_mbarrier_decode() -> None:
    """Counts of an initialised barrier, with the evidence of each field."""
    found = data("mbarrier", "decode", initial_barrier(12))
    numbers = {field["name"]: field["value"] for field in found["fields"]}
    assert numbers == {"layout": 0, "expected": 12, "tx_count": 0, "error": 0, "pending": 12, "phase": 0}
    assert {field["evidence"] for field in found["fields"]} == {"literature"}
    text = answer("mbarrier", "decode", hex(initial_barrier(12)))
    assert re.search(r"^62:43 +pending +12 ", text, re.MULTILINE)
    waiting = MBarrier(1)
    waiting.arrive_expect_tx(4096)  # no arrival is pending any more, only bytes
    numbers = {
        field["name"]: field["value"] for field in data("mbarrier", "decode", waiting.encode(arch="sm_90"))["fields"]
    }
    assert (numbers["pending"], numbers["tx_count"]) == (0, 4096)
    unknown = answer("mbarrier", "decode", initial_barrier(1, "sm_80") | 1 << 31, "--arch", "sm_80")
    assert "bits 0x0000000080000000 are set and belong to no field" in " ".join(unknown.split())


# --- numbers


def test_number_of_codes_and_values() -> None:
    """JSON is the report; negative values are no options; infinities are words."""
    found = data("number", "e4m3", "0.3")
    assert found == json.loads(json.dumps(inspect_number("e4m3", "0.3").as_dict()))
    assert set(found["roundings"]) == set(get_args(Rounding))
    assert data("number", "e5m2", "-1e9")["code"] == {"code": 0xFC, "hex": "0xfc", "value": "-inf"}
    text = answer("number", "bf16", "0x3f81")
    assert "0x3f81 (1.0078125)" in text and "1.0000001 (binary) * 2^0" in text and "rounding" not in text
    assert re.search(r"^rz +toward zero +0x29 +0\.28125$", answer("number", "e4m3", "0.3"), re.MULTILINE)


def test_quantize_a_file(tmp_path: Path) -> None:
    """Codes and scale factors of the output file are the library's."""
    x = np.random.default_rng(4).normal(size=(8, 64)).astype(np.float32)
    source, target = tmp_path / "x.npy", tmp_path / "codes.npz"
    np.save(source, x)
    found = data("quantize", source, "--type", "e4m3", "--output", target)
    error = np.abs(tcsim.decode(tcsim.quantize(x, "e4m3"), "e4m3") - x)
    assert found["largest_error"] == error.max() and found["count"] == 512
    assert (np.load(target)["codes"] == tcsim.quantize(x, "e4m3")).all()
    answer("quantize", source, "-t", "e2m1", "--blocks", "nvfp4", "--output", target)
    codes, scales, tensor_scale = tcsim.quantize_nvfp4(x)
    written = np.load(target)
    assert (written["codes"] == codes).all() and (written["scales"] == scales).all()
    assert written["tensor_scale"] == tensor_scale
    assert "largest relative error" in answer("quantize", source, "-t", "e2m1", "--blocks", "mx")


def test_quantize_with_scales_squares_and_random_bits(tmp_path: Path) -> None:
    """--scale, --square, --rounding rs and --seed are the library's; what does not go together is refused."""
    x = np.random.default_rng(5).normal(size=(32, 64)).astype(np.float32)
    source, target = tmp_path / "x.npy", tmp_path / "codes.npz"
    np.save(source, x)
    for mode in ("floor", "rceil", "ceil", "even"):
        answer("quantize", source, "-t", "e4m3", "--blocks", "mx", "--scale", mode, "--output", target)
        assert (np.load(target)["scales"] == tcsim.quantize_mx(x, "e4m3", scale=mode)[1]).all()
    answer("quantize", source, "-t", "e2m1", "--blocks", "nvfp4", "--square", "--scale", "ue5m3", "--output", target)
    codes, scales, _ = tcsim.quantize_nvfp4(x, square=True, scale="ue5m3")
    assert (np.load(target)["codes"] == codes).all() and (np.load(target)["scales"] == scales).all()
    for blocks in ((), ("--blocks", "nvfp4")):
        found = []
        for seed in ("7", "7", "8"):
            answer("quantize", source, "-t", "e2m1", *blocks, "--rounding", "rs", "--seed", seed, "--output", target)
            found.append(np.load(target)["codes"])
        assert (found[0] == found[1]).all() and (found[0] != found[2]).any()
    drawn = np.random.default_rng(7).integers(0, 1 << 16, x.shape, dtype=np.uint32)
    answer("quantize", source, "-t", "e2m1", "--rounding", "rs", "--seed", "7", "--output", target)
    assert (np.load(target)["codes"] == tcsim.quantize(x, "e2m1", "rs", random=drawn)).all()
    for wrong, words in (
        (("--blocks", "mx", "--scale", "e4m3"), "valid: floor, rceil, ceil, even"), (("--scale", "floor"), "valid: none"),
        (("--blocks", "mx", "--rounding", "rs"), "blocks mx: rounding='rs'; valid: rne"), (("--square",), "blocks of 16 x 16 are NVFP4's"),
        (("--seed", "3"), "only stochastic rounding takes random bits"),
    ):  # fmt: skip
        assert words in refusal("quantize", source, "-t", "e2m1", *wrong)


# --- run, trace, compare


def test_run_on_matrices_and_registers(matrices: tuple[str, dict[str, np.ndarray]], tmp_path: Path) -> None:
    """The result in JSON, in text and in the output file is the model's."""
    path, arrays = matrices
    mma = tcsim.instruction(MMA, arch="sm_80")
    d = mma.matmul(**arrays)
    found = data("run", MMA, "--inputs", path, "--arch", "sm_80", "--output", tmp_path / "d.npz")
    assert found["call"] == "matmul" and np.array_equal(np.array(found["d"], np.uint32), d)
    assert np.array_equal(np.load(tmp_path / "d.npz")["d"], d)
    registers = {name: mma.registers(name, x) for name, x in arrays.items()}
    np.savez(tmp_path / "registers.npz", **registers)
    found = data("run", MMA, "--inputs", tmp_path / "registers.npz", "--arch", "sm_80")
    assert found["call"] == "execute" and np.array_equal(np.array(found["d"], np.uint32), mma.execute(**registers))
    text = answer("run", MMA, "--inputs", path, "--arch", "sm_80")
    assert f"{tcsim.decode(d, 'f32')[3, 2]:.9g}" in text and "published" in text


def test_run_of_moves_and_conversions(tmp_path: Path) -> None:
    """ldmatrix from a file of bytes; cvt on one-dimensional arrays, named types given back as codes."""
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16"
    arrays = {"smem": np.arange(256, dtype=np.uint8), "address": np.arange(32) % 8 * 16}
    np.savez(tmp_path / "load.npz", **arrays)
    found = data("run", load, "--inputs", tmp_path / "load.npz")
    assert np.array_equal(found["d"], tcsim.instruction(load, arch="sm_90").execute(**arrays))
    name = "cvt.rn.satfinite.e4m3x2.f32"
    np.savez(tmp_path / "cvt.npz", a=np.float32([1.0, 1000.0]), b=np.float32([-2.0, 0.0]))
    assert data("run", name, "--inputs", tmp_path / "cvt.npz", "-a", "sm_90")["d"] == [0x38C0, 0x7E00]
    assert "38c0" in answer("run", name, "--inputs", tmp_path / "cvt.npz", "-a", "sm_90")
    bf16 = MMA.replace("f32.f16.f16.f32", "f32.bf16.bf16.f32")
    one = np.ones((16, 16), ml_dtypes.bfloat16)
    np.savez(tmp_path / "bf16.npz", a=one, b=one[:, :8], c=np.zeros((16, 8), np.float32))
    assert set(np.array(data("run", bf16, "--inputs", tmp_path / "bf16.npz")["d"]).reshape(-1)) == {0x41800000}


def test_trace_of_an_element(matrices: tuple[str, dict[str, np.ndarray]]) -> None:
    """JSON has the steps of the element; the text draws them and ends with its result."""
    path, arrays = matrices
    mma = tcsim.instruction(MMA, arch="sm_80")
    d = mma.matmul(**arrays)
    found = data("trace", MMA, "-a", "sm_80", "--inputs", path, "--element", "3,4")
    steps = trace_steps(mma, arrays["a"][3], arrays["b"][:, 4], arrays["c"][3, 4])
    assert found["steps"] == json.loads(json.dumps([step.as_dict() for step in steps]))
    text = answer("trace", MMA, "-a", "sm_80", "--inputs", path, "--element", "3,4")
    assert f"d = {int(d[3, 4]):#010x}" in text.splitlines()[-1]
    assert len(re.findall(r"^k=\d+ +[+-][ 01]+", text, re.MULTILINE)) == 16
    assert max(map(len, text.splitlines())) <= 80
    assert answer("trace", MMA, "--seed", 1) == answer("trace", MMA, "--seed", 1) != answer("trace", MMA, "--seed", 2)


def tensor_memory_inputs(tmp_path: Path, mnemonic: str, **idesc: Any) -> tuple[str, dict[str, np.ndarray]]:
    """A file of what `matmul` of a tcgen05.mma takes, the descriptor as an integer."""
    mma, stream = tcsim.instruction(mnemonic, arch="sm_100a"), np.random.default_rng(5)
    desc = tcsim.InstructionDescriptor(**idesc)
    formats, arrays = mma.formats(desc), {}
    for name, shape in mma.shapes(desc).items():
        if name == "metadata":
            arrays[name] = mma.sparsity(desc).positions_of(np.full((shape[0], desc.k // 4), 0b1001, np.uint8))
            continue
        format = formats[name.partition("_")[0]]
        one = format.bias << format.fraction_bits
        codes = one + stream.integers(-1, 2, shape) if name.startswith("scale") else stream.integers(0, 1 << 4, shape)
        arrays[name] = np.zeros(shape, format.dtype) if name == "c" else codes.astype(format.dtype)
    arrays["idesc"] = np.uint32(desc.encode())
    path = tmp_path / "tcgen05.npz"
    np.savez(path, **arrays)
    return str(path), arrays


@pytest.mark.parametrize(
    ("mnemonic", "idesc"),
    [
        ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", {"kind": "mxf4nvf4", "scale_format": "ue4m3", "negate_a": True}),
        ("tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale", {"kind": "mxf8f6f4", "a_format": "e2m1", "b_format": "e5m2"}),
        ("tcgen05.mma.sp.cta_group::1.kind::f16", {"kind": "f16", "a_format": "f16", "sparse": True}),
    ],
)  # fmt: skip
def test_run_and_trace_of_tensor_memory_products(mnemonic: str, idesc: dict[str, Any], tmp_path: Path) -> None:
    file, arrays = tensor_memory_inputs(tmp_path, mnemonic, m=128, n=32, **idesc)
    d = tcsim.instruction(mnemonic, arch="sm_100a").matmul(**{**arrays, "idesc": int(arrays["idesc"])})
    found = data("run", mnemonic, "--arch", "sm_100a", "-i", file)
    assert found["call"] == "matmul" and found["d"] == d.tolist() and np.count_nonzero(d) > d.size // 2
    assert f"{tcsim.decode(d, 'f32')[0, 0]:.9g}" in answer("run", mnemonic, "--arch", "sm_100a", "-i", file)
    traced = data("trace", mnemonic, "--arch", "sm_100a", "-i", file, "--element", "77,9")
    assert int(traced["steps"][-1]["result"]["hex"], 16) == int(d[77, 9])
    assert f"0x{int(d[77, 9]):08x}" in answer("trace", mnemonic, "--arch", "sm_100a", "-i", file, "--element", "77,9")


def test_trace_of_block_scaled_products(tmp_path: Path) -> None:
    mnemonic = "mma.sync.aligned.kind::mxf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0"
    mma, stream = tcsim.instruction(mnemonic, arch="sm_120a"), np.random.default_rng(3)
    arrays = {name: stream.integers(0, 16, shape).astype(np.uint8) for name, shape in (("a", (16, 64)), ("b", (64, 8)))}
    arrays |= {"c": np.zeros((16, 8), np.uint32), "scale_a": stream.integers(120, 130, (16, 2)).astype(np.uint8)}
    arrays["scale_b"] = stream.integers(120, 130, (2, 8)).astype(np.uint8)
    want = int(mma.matmul(**arrays)[7, 5])
    registers = {name: mma.registers(name, arrays[name]) for name in "abc"}
    registers |= {f"scale_{x}": mma.scale_registers(x, arrays[f"scale_{x}"], 2, 1) for x in "ab"}
    ids = {f"{what}_{x}": np.int64(value) for what, value in (("byte_id", 2), ("thread_id", 1)) for x in "ab"}
    for number, given in enumerate((arrays, registers | ids)):
        path = tmp_path / f"{number}.npz"
        np.savez(path, **given)
        traced = data("trace", mnemonic, "--arch", "sm_120a", "-i", str(path), "--element", "7,5")
        assert int(traced["steps"][-1]["result"]["hex"], 16) == want
    assert len(data("trace", mnemonic, "--arch", "sm_120a", "--seed", "4")["steps"]) == 1


def test_show_says_how_b_is_looked_up() -> None:
    """Only what goes with a lookup table: K, M and the formats."""
    for kind in ("f8f6f4", "mxf8f6f4.block_scale"):
        text = " ".join(
            answer("show", f"tcgen05.mma.cta_group::1.kind::{kind}.decompress::lut::b", "--arch", "sm_107").split()
        )
        for line in ("each 8 columns have a table of 8 numbers in e4m3", "- K: 64 -", "- A in e4m3, e5m2; D in"):
            assert line in text, line
        assert "M 128: N a multiple" in text and "M 64" not in text


def test_show_says_where_tensor_memory_has_d() -> None:
    shown = answer("show", "tcgen05.mma.cta_group::2.kind::f16", "--arch", "sm_100a")
    assert "K 16; M and N from the instruction descriptor" in shown and "m0n0" not in shown
    shown = " ".join(shown.split())
    assert "D of M 128: layout B, row at lane r of CTA row/64, r = row%64, column n at lane + 64*(n/(N/2))" in shown
    assert "one thread issues it, for the Tensor Memory of a pair of CTAs" in shown
    assert "shape 16 x 4" in " ".join(
        answer("show", "tcgen05.ld.sync.aligned.16x64b.x2.b32", "--arch", "sm_100a").split()
    )


def test_trace_of_ordinary_arithmetic() -> None:
    """Steps that are no dot-adds are told in words: operands and result."""
    text = " ".join(answer("trace", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "--seed", 1).split())
    steps = data("trace", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "--seed", 1)["steps"]
    assert len(steps) == 4
    for step in steps:
        assert step["notes"][0] in text and f"{step['result']['name']} = {step['result']['hex']}" in text
    int4 = answer("trace", "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "-a", "sm_90", "--seed", 1)
    assert "integer dot product, addend +0" in int4 and max(map(len, int4.splitlines())) <= 80


def test_compare_finds_the_difference(tmp_path: Path) -> None:
    """JSON is the comparison; the saved example differs when run, and can be traced."""
    saved = tmp_path / "example.npz"
    found = data("compare", MMA, "--archs", "sm_80,sm_90", "--count", 256, "--save", saved)
    own = compare_archs(MMA, ("sm_80", "sm_90"), 256).as_dict()
    assert {**found, "saved": None} == {**json.loads(json.dumps(own)), "saved": None}
    results = {arch: data("run", MMA, "--inputs", saved, "-a", arch)["d"][0][0] for arch in ("sm_80", "sm_90")}
    assert results["sm_80"] != results["sm_90"]
    assert (
        answer("trace", MMA, "--inputs", saved, "-a", "sm_80")
        .splitlines()[-1]
        .startswith(f"d = {results['sm_80']:#010x}")
    )
    text = answer("compare", MMA, "--archs", "sm_80,sm_90,sm_100", "--count", 256)
    assert re.search(r"^sm_90, sm_100 +256 +0$", text, re.MULTILINE) and "Smallest example of sm_80 and sm_90" in text
    assert max(map(len, text.splitlines())) <= 80
