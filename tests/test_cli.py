"""Every verb of the command line: its text and its JSON say what the library says, wrong arguments list the valid ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import tcsim
from tcsim import registry
from tcsim.cli import output
from tcsim.cli.app import app
from tcsim.cli.group import ORDER
from tcsim.inspection import catalog
from tcsim.inspection.comparison import compare_archs
from tcsim.inspection.description import describe
from tcsim.inspection.feeds import feed_of
from tcsim.inspection.numbers import inspect_number
from tcsim.inspection.trace_steps import trace_steps
from tcsim.mbarrier_object import initial_barrier
from tcsim.rounding import Rounding
from tcsim.targets import ARCHS, TARGETS

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
RUNNER = CliRunner()


def answer(*arguments: object, status: int = 0) -> str:
    """What the verb writes; nothing may stand on standard error."""
    result = RUNNER.invoke(app, [str(item) for item in arguments], env={"COLUMNS": None})
    assert result.exit_code == status, result.output
    assert result.stderr == ""
    return result.stdout


def data(*arguments: object, status: int = 0) -> Any:
    """What the verb writes as JSON, without the verb's own name."""
    found = json.loads(answer(*arguments, "--json", status=status))
    words = [str(item) for item in arguments[:2]]
    assert found.pop("verb") in (words[0], " ".join(words))
    return found


def refusal(*arguments: object) -> str:
    """What stands on standard error after a wrong argument: status 2, no traceback, nothing on standard output."""
    result = RUNNER.invoke(app, [str(item) for item in arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


@pytest.fixture
def matrices(tmp_path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """A file with a, b, c of m16n8k16, and what is in it."""
    stream = np.random.default_rng(2)
    arrays = {
        "a": stream.normal(size=(16, 16)).astype(np.float16),
        "b": stream.normal(size=(16, 8)).astype(np.float16),
        "c": stream.normal(size=(16, 8)).astype(np.float32),
    }
    path = tmp_path / "matrices.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path), arrays


# --- list and show


def test_list_is_the_registry() -> None:
    """All rows, and each filter; the text has one line for each, with the first arch or the evidence."""
    everything = [row.mnemonic for row in registry.rows().values() if not row.dropped]
    text = answer("list").splitlines()
    assert text[0].split() == ["since", "mnemonic"]
    assert [line.split()[1] for line in text[1:]] == everything
    assert all(line.split()[0] == registry.rows()[line.split()[1]].first_arch.name for line in text[1:])
    own = [
        row for row in registry.on_arch("sm_90", "mma.sync") if "bf16" in {o.format.name for o in row.operands.values()}
    ]
    found = data("list", "--arch", "sm_90", "--family", "mma.sync", "--type", "bf16")
    assert found["count"] == len(own) == 2
    assert [entry["mnemonic"] for entry in found["instructions"]] == [row.mnemonic for row in own]
    assert found["instructions"][0]["evidence"] == {"sm_90": "measured"}
    assert found["instructions"][0]["formats"] == {"d": "f32", "a": "bf16", "b": "bf16", "c": "f32"}
    some = answer("list", "movmatrix", "--arch", "sm_80").splitlines()
    assert some[1].split() == ["literature", "movmatrix.sync.aligned.m8n8.trans.b16"]
    assert "no such instruction" in answer("list", "nothing.of.the.kind")


def test_list_of_families() -> None:
    """As many instructions as the registry has."""
    found = {entry["family"]: entry for entry in data("list", "--families")["families"]}
    assert list(found) == [family.name for family in registry.families()]
    for family in registry.families():
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
    for row in list(registry.rows().values())[::40]:
        if row.dropped:
            continue
        chosen = catalog.default_arch(row.mnemonic)
        archs = [arch for arch in ARCHS if arch in {TARGETS[target].arch for target in row.targets}]
        levels = [catalog.LEVELS.index(tcsim.instruction(row.mnemonic, arch=arch).evidence.level) for arch in archs]
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
    assert numbers == {"expected": 12, "pending": 12, "phase_parity": 0}
    assert {field["evidence"] for field in found["fields"]} == {"literature", "inferred"}
    text = answer("mbarrier", "decode", hex(initial_barrier(12)))
    assert re.search(r"^62:43 +pending +12 ", text, re.MULTILINE)
    unknown = answer("mbarrier", "decode", initial_barrier(1) | 1 << 30)
    assert "the transaction count must be among them" in " ".join(unknown.split())


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


# --- what every verb does


def test_every_verb_takes_json_and_explains_itself() -> None:
    """`--json` is an option of each, and `--help` is short of 80 columns."""
    verbs = 0
    groups = {"descriptor": ("decode", "encode", "tile", "check"), "mbarrier": ("decode",)}
    for name in ORDER:
        for words in [(name, verb) for verb in groups.get(name, ())] or [(name,)]:
            text = answer(*words, "--help")
            assert "--json" in text and max(map(len, text.splitlines())) <= 80, words
            verbs += 1
    assert verbs == 12 + 5
    listed = re.findall(r"^  (\w+)  +\S", answer("--help").split("Commands:")[1], re.MULTILINE)
    assert tuple(listed) == ORDER
    assert answer("--version") == f"tcsim {tcsim.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("frobnicate",), "valid: list, show, where"),
        (("descriptor", "frobnicate"), "valid: decode, encode, tile, check"),
        (("show", MMA[:-1]), f"nearest: {MMA}"),
        (("show", MMA, "--arch", "sm_99"), "all: sm_70, sm_72"),
        (("show", MMA, "--arch", "sm_75"), "needs sm_80 or later"),
        (("show", MMA, "--format", "pdf"), "'text', 'markdown', 'json'"),
        (("list", "--family", "mma"), "valid: mma.sync, mma.sp"),
        (("list", "--type", "f17"), "nearest: f16, bf16"),
        (("where", MMA, "--element", "0,0"), "valid: d, a, b, c"),
        (("where", MMA, "-o", "e", "--element", "0,0"), "valid: d, a, b, c"),
        (("where", WGMMA, "-o", "b", "--element", "0,0"), "valid: d, a, c"),
        (("where", MMA, "-o", "a", "--element", "0,16"), "valid are 0 to 15"),
        (("where", MMA, "-o", "a", "--element", "seven"), "valid: ROW,COLUMN"),
        (("where", "cvt.rn.satfinite.e4m3x2.f32", "--element", "0,0"), "has no fragments"),
        (("what", MMA, "-l", "32", "-r", "a0"), "valid: 0 to 31"),
        (("what", MMA, "-l", "0", "-r", "a4"), "valid: 0 to 3"),
        (("what", MMA, "-l", "0", "-r", "a-1"), "a0 to a3"),
        (("map", MMA, "-o", "a", "--format", "html5"), "'svg'"),
        (("inputs", MMA, "--element", "16,0"), "valid are 0 to 15"),
        (("descriptor", "decode", "many"), "valid: an integer"),
        (("descriptor", "decode", "0x8000"), "belong to no field"),
        (("descriptor", "encode", "--start", "8"), "multiples of 16"),
        (("descriptor", "encode", "--swizzle", "16B"), "valid: NONE, 128B, 64B, 32B"),
        (("descriptor", "encode", "--arch", "sm_80"), "sm_90 (wgmma)"),
        (("descriptor", "tile", "--rows", "12", "--k", "16", "--type", "f16"), "multiples of 8"),
        (("swizzle", "16B"), "valid: NONE, 32B, 64B, 128B"),
        (("mbarrier", "decode", "0", "--arch", "sm_75"), "sm_80 and later"),
        (("number", "e4m4", "1"), "nearest: e4m3"),
        (("number", "e4m3", "0x1ff"), "0x0 to 0xff"),
        (("quantize", "nowhere.npy", "--type", "e4m3"), "no file"),
        (("run", MMA, "--inputs", "nowhere.npz"), "no file"),
        (("trace", MMA), "--inputs FILE.npz, or --seed N"),
        (("trace", "movmatrix.sync.aligned.m8n8.trans.b16", "--seed", "1"), "computes no products"),
        (("compare", MMA, "--archs", "sm_80"), "at least two"),
        (("compare", MMA, "--archs", "sm_80,sm_91"), "nearest: sm_90"),
        (("compare", "cvt.rn.satfinite.e4m3x2.f32", "--archs", "sm_90,sm_100"), "computes no products"),
    ],
)  # fmt: skip
def test_wrong_arguments_list_the_valid_ones(arguments: tuple[str, ...], message: str) -> None:
    """Status 2, one message on standard error."""
    assert message in refusal(*arguments)


def test_files_that_are_no_inputs(tmp_path: Path, matrices: tuple[str, dict[str, np.ndarray]]) -> None:
    """Another kind of file, a missing array, an output that cannot be."""
    (tmp_path / "text.npz").write_text("no archive")
    assert "no .npz or .npy" in refusal("run", MMA, "--inputs", tmp_path / "text.npz")
    np.savez(tmp_path / "some.npz", a=np.ones((16, 16), np.float16), q=np.ones(1))
    assert "has no b, c" in refusal("compare", MMA, "--archs", "sm_80,sm_90", "--inputs", tmp_path / "some.npz")
    assert "--name one of a, q" in refusal("quantize", tmp_path / "some.npz", "--type", "e4m3")
    assert "end in .npz" in refusal("run", MMA, "--inputs", matrices[0], "--output", "d.txt")
    assert "no array 'z'; valid: a, q" in refusal("quantize", tmp_path / "some.npz", "--type", "e4m3", "--name", "z")
    assert "no input q" in refusal("run", MMA, "--inputs", tmp_path / "some.npz")


def documented_keys() -> dict[str, set[str]]:
    """The keys of JSON by verb, from the table of docs/command-line.md."""
    page = (Path(__file__).resolve().parent.parent / "docs/command-line.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", page.split("## JSON")[1].split("## ")[0], re.MULTILINE)
    return {verb: set(re.findall(r"`(\w+)`", keys)) for verb, keys in rows}


def test_json_has_the_documented_keys(matrices: tuple[str, dict[str, np.ndarray]], tmp_path: Path) -> None:
    """No key more and none less, for every verb."""
    np.save(tmp_path / "x.npy", np.ones(4, np.float32))
    tile = ("--rows", 64, "--k", 16, "--type", "f16")
    commands: dict[str, tuple[object, ...]] = {
        "list": ("movm",),
        "list --families": (),
        "show": (MMA,),
        "where": (MMA, "-o", "a", "-e", "0,0"),
        "what": (MMA, "-l", 0, "-r", "a0"),
        "map": (MMA, "-o", "a"),
        "inputs": (MMA, "-e", "0,0"),
        "descriptor decode": (0,),
        "descriptor encode": (),
        "descriptor tile": tile,
        "descriptor check": (tcsim.MatrixDescriptor.for_tile(64, 16, "f16").descriptor.encode(), *tile),
        "swizzle": ("128B",),
        "swizzle --address": ("128", "64B"),
        "mbarrier decode": (0,),
        "number": ("e4m3", "1"),
        "quantize": (tmp_path / "x.npy", "-t", "e4m3"),
        "run": (MMA, "-i", matrices[0]),
        "trace": (MMA, "--seed", 1),
        "compare": (MMA, "--archs", "sm_80,sm_90", "--count", 16),
    }
    documented = documented_keys()
    assert set(documented) == set(commands)
    for verb, arguments in commands.items():
        found = json.loads(answer(*verb.split(), *arguments, "--json"))
        assert set(found) == documented[verb] | {"verb"}, verb
    assert set(data("where", MMA, "-o", "a", "-e", "0,0")["places"][0]) == {
        "operand", "matrix", "row", "column", "lane", "register", "slot", "high", "low", "words", "name",
    }  # fmt: skip


# --- how it is written


def test_json_has_words_for_what_json_has_not() -> None:
    """Infinities and NaN, NumPy numbers and arrays."""
    given = {"a": [float("inf"), float("nan"), -float("inf")], "b": np.uint32(7), "c": np.arange(2)}
    assert output.plain(given) == {"a": ["inf", "nan", "-inf"], "b": 7, "c": [0, 1]}


class Terminal:
    """Standard output that says it is a terminal."""

    def __init__(self) -> None:
        self.text = ""
        self.encoding = "utf-8"

    def isatty(self) -> bool:
        """As terminals do."""
        return True

    def write(self, text: str) -> int:
        """Keep what is written."""
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool) -> None:
    """The same text, with and without the escapes; NO_COLOR and dumb terminals have none."""
    from tcsim.inspection.report import Line, Report, table, text_lines

    for name in ("NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    report = Report("title [not markup]", (table(("a", "b"), [(1, 2)], "heading"),))
    output.emit("show", dict, lambda: report)
    assert ("\x1b[" in terminal.text) == coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text)
    assert plain == "".join(f"{line.text}\n" for line in text_lines(report))
    assert Line("title [not markup]", "title") in list(text_lines(report))


# --- completion


def completions(text: str) -> list[str]:
    """What bash offers for a command line whose last word is begun."""
    words = text.split(" ")
    environment = {"_TCSIM_COMPLETE": "complete_bash", "COMP_WORDS": text, "COMP_CWORD": str(len(words) - 1)}
    result = RUNNER.invoke(app, [], env=environment, prog_name="tcsim")
    assert result.exit_code == 0, result.output
    return result.stdout.split()


def test_the_shell_completes_verbs_mnemonics_and_archs() -> None:
    """Also families, types, formats, operands, swizzles, and the last of several archs."""
    assert completions("tcsim sw") == ["swizzle"]
    movable = [row.mnemonic for row in registry.rows().values() if row.mnemonic.startswith("movm")]
    assert completions("tcsim show movm") == movable
    wanted = [row.mnemonic for row in registry.on_arch("sm_90") if row.mnemonic.startswith("mma.sync.aligned.m16n8k8")]
    assert completions("tcsim show --arch sm_90 mma.sync.aligned.m16n8k8") == wanted
    assert completions("tcsim show --arch sm_9") == ["sm_90", "sm_90a"]
    assert completions("tcsim compare x --archs sm_80,sm_8") == [f"sm_80,sm_8{n}" for n in (0, 6, 7, 8, 9)]
    assert completions("tcsim list --family wg") == ["wgmma"]
    assert completions("tcsim list --type bf") == ["bf16"]
    assert completions("tcsim number e4") == ["e4m3"]
    assert completions("tcsim swizzle 1") == ["128B"]
    assert completions(f"tcsim where {WGMMA} --operand ") == ["d", "a", "c"]
    assert completions("tcsim quantize f --rounding rn") == ["rne", "rna"]
