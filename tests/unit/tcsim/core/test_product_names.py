"""Wherever an arch is taken, a product is, in any case: in Python, on the command line, in launch files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.testing.checking import assert_clean
from tcsim import catalog
from tcsim.core.errors import TargetError
from tcsim.core.targets import ARCHS, PRODUCTS, TARGETS, accepting, named
from tcsim.descriptors.instruction import bit_table
from tcsim.plans.lookup import chip
from tcsim.ptx import LaunchError, Memory, parse
from tests.support.cli_runs import data, refusal

NAMES = {
    "h100": "sm_90", "H200": "sm_90", "b200": "sm_100", "B300": "sm_103", "A100": "sm_80", "a10g": "sm_86", "V100": "sm_70", "t4": "sm_75",
    "rtx5090": "sm_120", "RTX 5090": "sm_120", "5090": "sm_120", "RTX-4090": "sm_89", "rtx_3090": "sm_86", "L40S": "sm_89", "GH200": "sm_90", "gb200": "sm_100",
    "NVIDIA H100 80GB HBM3": "sm_90", "NVIDIA A100-SXM4-80GB": "sm_80", "Tesla V100-SXM2-16GB": "sm_70", "NVIDIA GeForce RTX 4090": "sm_89",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "sm_120", "jetson thor": "sm_110", "GB10": "sm_121", "DGX Spark": "sm_121", "h100-pcie": "sm_90",
    "Hopper": "sm_90", "blackwell": "sm_100", "ampere": "sm_80", "rubin": "sm_107",
    "SM_90": "sm_90", "sm90a": "sm_90a", "90": "sm_90", "compute_100f": "sm_100f", "Sm_100A": "sm_100a",
}  # fmt: skip
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
A, B = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)


@pytest.mark.parametrize("name", NAMES)
def test_a_name(name: str) -> None:
    assert named(name) == NAMES[name]
    assert accepting(name) == accepting(NAMES[name])


def test_the_table() -> None:
    """Every arch has a product of its own, but those that were never sold under one; no product has two archs."""
    assert set(PRODUCTS.values()) >= set(ARCHS) - {"sm_88", "sm_107"}
    assert all(name == name.lower() and name.isalnum() and arch in ARCHS for name, arch in PRODUCTS.items())
    for name in (*ARCHS, *TARGETS):
        assert named(name) == name
    for arch in ARCHS.values():
        for product in arch.example.split(", "):
            assert named(product) == arch.name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "h900",
        "sm_91",
        "sm_90x",
        "100h",
        "h 100",
        "h100 h200",
        "nvidia",
        "80GB",
        90,
        None,
        "h100" * 500,
        "h\u0031\u0661",
    ],
)
def test_what_is_no_name_is_refused_with_what_is_near(name: Any) -> None:
    with pytest.raises(TargetError, match="nearest: ") as caught:
        accepting(name)
    assert len(str(caught.value)) < 900


def test_the_nearest_of_a_product_are_products() -> None:
    for name, near in (("h101", "h100"), ("b20", "b200"), ("rtx 5091", "5090"), ("sm_99", "sm_90")):
        with pytest.raises(TargetError) as caught:
            accepting(name)
        assert near in str(caught.value).partition("nearest: ")[2].partition(";")[0].split(", ")


def launched(arch: str) -> Any:
    return parse(PTX).kernel("k").launch(Memory(), [], arch=arch).arch


CALLS: dict[str, Callable[[str], Any]] = {
    "instruction": lambda arch: repr(tcsim.instruction(MMA, arch=arch)),
    "instruction.evidence": lambda arch: tcsim.instruction(MMA, arch=arch).evidence,
    "find": lambda arch: [own.mnemonic for own in tcsim.find("mma f16 m16n8k16", arch=arch)],
    "gemm": lambda arch: tcsim.gemm(A, B, instruction=MMA, arch=arch).tolist(),
    "explain": lambda arch: tcsim.explain(A, B, (A @ B).astype(np.float32), arch=arch).classes,
    "diagnose": lambda arch: tcsim.diagnose(MMA, a=A, b=B, c=np.zeros((16, 8), np.float32), observed=np.zeros((16, 8), np.float32), arch=arch).verdict,
    "launch": launched,
    "session": lambda arch: parse(PTX).kernel("k").session(Memory(), [], arch=arch).launch.arch,
    "on_arch": lambda arch: [row.mnemonic for row in catalog.on_arch(arch, "wgmma")],
    "MBarrier": lambda arch: tcsim.MBarrier(1).encode(arch=arch),
    "plan": lambda arch: tcsim.plan("linear", m=16, n=64, k=64, gpu=arch).arch,
    "chip": lambda arch: chip(arch)[1],
    "check": lambda arch: assert_clean("f", arch, PTX).launches[0][1].arch,
}  # fmt: skip
"""What is called with an arch, and what is compared of it."""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("name", "arch"), [("h100", "sm_90"), ("H200", "sm_90"), ("SM_90", "sm_90"), ("a100", "sm_80")]
)
def test_python(call: str, name: str, arch: str) -> None:
    assert CALLS[call](name) == CALLS[call](arch)


@pytest.mark.parametrize(("name", "arch"), [("b200", "sm_100"), ("B200", "sm_100"), ("B300", "sm_103")])
def test_descriptors_have_the_arch(name: str, arch: str) -> None:
    one, two = (tcsim.InstructionDescriptor(kind="f16", a_format="bf16", m=64, n=8, arch=own) for own in (name, arch))
    assert one == two and one.arch == arch and one.encode() == two.encode()
    assert tcsim.InstructionDescriptor.decode(one.encode(), kind="f16", arch=name) == two
    assert bit_table("f16", name) == bit_table("f16", arch)


@pytest.mark.parametrize(
    ("name", "arch"), [("b200", "sm_100"), ("B300", "sm_103"), ("H100", "sm_90"), ("sm_90a", "sm_90")]
)
def test_matrix_descriptors_have_the_arch(name: str, arch: str) -> None:
    matrix, other = (tcsim.MatrixDescriptor(stride_byte_offset=1024, swizzle="128B", arch=own) for own in (name, arch))
    assert matrix == other and matrix.arch == arch and matrix.encode() == other.encode()
    assert tcsim.MatrixDescriptor.decode(matrix.encode(), arch=name) == tcsim.MatrixDescriptor.decode(
        other.encode(), arch=arch
    )
    one, two = (tcsim.MatrixDescriptor.for_tile(64, 64, "f16", "K", "128B", arch=own) for own in (name, arch))
    assert one == two


COMMANDS = (
    ("show", WGMMA, "--arch"),
    ("list", "--family", "wgmma", "--arch"),
    ("where", MMA, "-o", "a", "--element", "3,7", "--arch"),
    ("descriptor", "decode", "0x4000004000000040", "--arch"),
    ("mbarrier", "decode", "0x1", "--arch"),
    ("compare", MMA, "--seed", "1", "--archs"),
    ("plan", "linear", "16x64x64", "--gpu"),
    ("exec", "k.ptx", "--launch", "l.toml", "--arch"),
    ("check", "k.ptx", "--launch", "l.toml", "--arch"),
    ("profile", "k.ptx", "--launch", "l.toml", "--arch"),
)
"""Subcommands whose last option takes an arch."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda own: own[0])
def test_the_command_line(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.ptx").write_text(PTX)
    (tmp_path / "l.toml").write_text("grid = 1\nblock = 32\n")
    names = ("sm_90,sm_100", "H100,b200") if command[-1] == "--archs" else ("sm_90", "H100")
    one, two = (data(*command, name) for name in names)
    for found in (one, two):
        found.pop("seconds", None)
    assert str(two).replace("h100", "sm_90").replace("H100", "sm_90") == str(one)
    if command[0] != "plan":
        assert "nearest: h100" in refusal(*command, "h101")


def test_launch_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.ptx").write_text(PTX)
    for name in ("h200", "H200", "sm_90"):
        (tmp_path / "l.toml").write_text(f'arch = "{name}"\ngrid = 1\nblock = 32\n')
        assert data("exec", "k.ptx", "--launch", "l.toml")["arch"] == "sm_90"
    with pytest.raises(LaunchError, match="does not run code for sm_80"):
        launched("v100")
