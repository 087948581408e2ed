"""The subcommands diagnose, idesc and tensormap, and pages from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tcsim
from tcsim.descriptors.kinds import KINDS
from tcsim.inspection.html_page import descriptor_page, instruction_page, tile_page
from tests.support.cli_runs import MMA, WGMMA, answer, data, refusal


@pytest.fixture
def wrong(tmp_path: Path) -> tuple[str, str]:
    """Inputs, and the result of A read transposed."""
    mma = tcsim.instruction(MMA, arch="sm_90")
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    observed = mma.matmul(np.ascontiguousarray(a.T), b, np.zeros((16, 8), np.float32))
    np.savez(tmp_path / "in.npz", a=a, b=b)
    np.save(tmp_path / "d.npy", observed)
    np.savez(tmp_path / "all.npz", a=a, b=b, observed=observed)
    return str(tmp_path / "in.npz"), str(tmp_path / "d.npy")


def test_diagnose_names_the_mistake(wrong: tuple[str, str]) -> None:
    """Text and JSON; the result in a file of its own or among the inputs."""
    inputs, observed = wrong
    text = answer("diagnose", MMA, "--inputs", inputs, "--observed", observed, status=1)
    assert "explained: this mistake reproduces every output bit for bit" in text and "a transposed" in text
    assert max(map(len, text.splitlines())) <= 80
    for arguments in ((inputs, "--observed", observed), (inputs.replace("in.npz", "all.npz"),)):
        found = data("diagnose", MMA, "--inputs", *arguments, status=1)
        assert (found["verdict"], found["mistake"], found["outputs"]) == ("explained", "a transposed", 128)
        assert found["explanations"][0]["matched"] == 128 and found["arch"] == "sm_90"


def test_the_exit_status_of_a_diagnosis(tmp_path: Path, wrong: tuple[str, str]) -> None:
    """0: right; 1: explained; 2: not."""
    inputs, observed = wrong
    mma, given = tcsim.instruction(MMA, arch="sm_90"), np.load(inputs)
    right = tcsim.gemm(given["a"], given["b"], instruction=mma)
    np.save(tmp_path / "right.npy", right)
    np.save(tmp_path / "noise.npy", np.random.default_rng(1).standard_normal(right.shape).astype(np.float32))
    for name, status in ((str(tmp_path / "right.npy"), 0), (observed, 1), (str(tmp_path / "noise.npy"), 2)):
        answer("diagnose", MMA, "-i", inputs, "--observed", name, status=status)


def test_diagnose_says_what_is_missing(wrong: tuple[str, str]) -> None:
    """Status 2, and what would be valid."""
    inputs, observed = wrong
    assert "valid: --observed FILE, or an array named observed" in refusal("diagnose", MMA, "--inputs", inputs)
    assert "holds a, b; valid: one array" in refusal("diagnose", MMA, "-i", inputs, "--observed", inputs)
    assert "observed is (16, 5)" in refusal("diagnose", MMA, "-i", inputs, "--observed", _other_shape(observed))
    assert "no.pt" in refusal("diagnose", MMA, "-i", inputs, "--observed", observed.replace("d.npy", "no.pt"))


def _other_shape(path: str) -> str:
    other = path.replace("d.npy", "other.npy")
    np.save(other, np.load(path)[:, :5])
    return other


@pytest.mark.parametrize("kind", KINDS)
def test_idesc_bits_are_the_kinds_own(kind: str) -> None:
    """Every field once, 32 bits in all."""
    arch = "sm_107" if kind == "ti16" else "sm_100"
    found = data("idesc", "bits", "--kind", kind, "--arch", arch)
    assert (found["kind"], found["arch"]) == (kind, arch)
    spans = [tuple(map(int, f"{field['bits']}:{field['bits']}".split(":")))[:2] for field in found["fields"]]
    assert sum(max(span) - min(span) + 1 for span in spans) == 32
    text = answer("idesc", "bits", "--kind", kind, "--arch", arch)
    assert all(field["field"] in text for field in found["fields"])


def test_idesc_encode_and_decode() -> None:
    """There and back, as the library says."""
    own = tcsim.InstructionDescriptor(kind="mxf4nvf4", m=128, n=64, scale_format="ue4m3", scale_b_id=2)
    asked = ("--kind", "mxf4nvf4", "--m", 128, "--n", 64, "--scale", "ue4m3", "--scale-b-id", 2)
    made = data("idesc", "encode", *asked)
    assert made["value"] == own.encode() and made["hex"] == f"{own.encode():#010x}"
    back = data("idesc", "decode", made["hex"], "--kind", "mxf4nvf4")
    assert back == made and back["scale_format"] == "ue4m3" and back["k"] == 64
    text = answer("idesc", "decode", made["hex"], "--kind", "mxf4nvf4")
    assert f"{own.encode():#010x}: instruction descriptor of kind::mxf4nvf4" in text and "scale_b_id" in text
    assert "must be a multiple of 8 from" in refusal(
        "idesc", "encode", "--kind", "f16", "--a", "f16", "--m", 128, "--n", 20
    )
    assert "nearest: f16; all:" in refusal("idesc", "decode", "0", "--kind", "f17")


def test_pages_from_the_command_line(tmp_path: Path) -> None:
    """--html writes the library's page, beside the answer or in its place."""
    ins = tcsim.instruction(MMA, arch="sm_90")
    assert answer("show", MMA, "--html", "-") == instruction_page(ins)
    assert answer("map", MMA, "--operand", "a", "--html", "-") == instruction_page(ins)
    tile = tcsim.MatrixDescriptor.for_tile(64, 64, "f16")
    asked = ("--rows", 64, "--k", 64, "--type", "f16")
    assert answer("descriptor", "tile", *asked, "--html", "-") == tile_page(tile)
    value = f"{tile.descriptor.encode():#x}"
    page = answer("descriptor", "check", value, "--rows", 64, "--k", 16, "--type", "f16", "--html", "-")
    assert page == descriptor_page(tile.descriptor, 64, 16, "f16")
    assert json.loads(answer("show", WGMMA, "--html", tmp_path / "page.html", "--json"))["verb"] == "show"
    assert (tmp_path / "page.html").read_text() == instruction_page(tcsim.instruction(WGMMA, arch="sm_90"))
    assert "no fragments to show" in refusal("show", "cvt.rn.f16.f32", "--html", "-")


def test_tensormap_encode_decode_and_check(tmp_path: Path) -> None:
    """The library's bytes, from digits and from a file; a broken rule is refused with what would be valid."""
    own = tcsim.TensorMap("FLOAT16", (256, 100), (512,), (64, 8))
    asked = ("--type", "float16", "--dim", "256,100", "--box", "64,8")
    made = data("tensormap", "encode", *asked, "--address", "0x7fff00010000")
    raw = own.encode(0x7FFF00010000)
    assert made["bytes"] == raw.hex() and made["global_strides"] == [512] and made["transaction_bytes"] == 1024
    (tmp_path / "map.bin").write_bytes(raw)
    for given in (raw.hex(), str(tmp_path / "map.bin")):
        assert data("tensormap", "decode", given) == made | {"unexplained": []}
    odd = raw[:64] + b"\1" + raw[65:]
    why = f"box_bytes is {raw[64] & ~255 | 1 | raw[65] << 8}: of this map it is {raw[65] << 8 | raw[64]}"
    assert data("tensormap", "decode", odd.hex(), status=1)["unexplained"] == [why]
    assert why in answer("tensormap", "decode", odd.hex(), status=1)
    text = answer("tensormap", "decode", raw.hex())
    assert "TensorMap(FLOAT16, (256, 100))" in text and raw[:4].hex() in text and max(map(len, text.splitlines())) <= 80
    assert data("tensormap", "check", *asked)["loaded"] == [64, 8]
    assert "valid: multiples of 16 bytes" in refusal("tensormap", "check", *asked, "--strides", 520)
    assert "neither hexadecimal digits nor a file" in refusal("tensormap", "decode", "xyz")
