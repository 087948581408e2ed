"""What people type in their first hour, and what the answer names: the file, the way, the real choices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tcsim.cli.app import app
from tests.support.cli_runs import RUNNER, refusal

PTX = ".version 8.0\n.target sm_90\n.address_size 64\n{0}.visible .entry k() {{ ret; }}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = {
        "k.ptx": PTX.format("").encode(), "dynamic.ptx": PTX.format(".extern .shared .align 16 .b8 buf[];\n").encode(), "l.toml": b"grid = 1\nblock = 32\n",
        "gemm.cu": b"__global__ void k() {}\n", "renamed.ptx": b"// a kernel\nextern \"C\" __global__ void k() {}\n", "k.cubin": b"\x7fELF\x02\x01\x01\x33",
        "k.fatbin": b"\x50\xed\x55\xba\x01\x00\x10\x00", "script.py": b"print(1)\n", "wrong.toml": b"grid = 1\nblok = 32\n",
        "limits.toml": b"grid = 1\n[limits]\nsecond = 1\n", "shapes.toml": b"grid = 1\n[arrays.x]\nformat = \"f32\"\nshapes = [3]\n",
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "a.npy", np.ones(4, np.float32))
    return tmp_path


@pytest.mark.parametrize("command", ["exec", "check", "profile", "step"])
@pytest.mark.parametrize("launch", [True, False])
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("nothere.ptx", "no file 'nothere.ptx'; here are dynamic.ptx, k.ptx, renamed.ptx"),
        ("nothere.npz", "no file 'nothere.npz'"),
        ("k.cubin", "'k.cubin' is machine code: valid: PTX; `cuobjdump -ptx k.cubin` prints it if it is in there"),
        ("k.fatbin", "'k.fatbin' is machine code: valid: PTX; `cuobjdump -ptx k.fatbin`"),
        ("l.toml", "'l.toml' is a launch file: valid: the kernel, with --launch l.toml"),
    ],
)
def test_a_file_of_another_kind(command: str, launch: bool, file: str, words: str, folder: Path) -> None:
    said = refusal(command, file, *(["--launch", "l.toml"] if launch and not file.endswith(".npz") else []))
    assert said.startswith(f"tcsim: {command}: ") and words in said, said


def test_a_folder(folder: Path) -> None:
    for command in ("exec", "check", "profile", "step"):
        assert "'.' is not a regular file" in refusal(command, ".")


def test_a_launch_file_is_asked_for(folder: Path) -> None:
    for command in ("exec", "check", "profile", "step"):
        for file in ("k.ptx", "gemm.cu", "renamed.ptx"):
            words = f"{file!r} needs --launch with a launch file, which `tcsim launch init {file}` begins"
            assert words in refusal(command, file)
        assert "no file 'none.toml'; here are l.toml" in refusal(command, "k.ptx", "--launch", "none.toml")


def test_stepping_a_script(folder: Path) -> None:
    said = refusal("step", "script.py")
    assert (
        "'script.py' is a script" in said
        and "`tcsim exec script.py --arch sm_90 --save FOLDER`" in said
        and "tcsim step FOLDER/" in said
    )


def test_dynamic_shared_memory_that_is_missing(folder: Path) -> None:
    for command in ("exec", "check", "profile", "step"):
        said = refusal(command, "dynamic.ptx", "--launch", "l.toml")
        assert "l.toml: dynamic_smem is missing" in said and "buf" in said and "0 if" in said
    (folder / "l.toml").write_text("grid = 1\nblock = 32\ndynamic_smem = 0\n")
    assert RUNNER.invoke(app, ["exec", "dynamic.ptx", "--launch", "l.toml"]).exit_code == 0


def test_keys_that_there_are_not(folder: Path) -> None:
    for file, words in (
        ("wrong.toml", "unknown key 'blok'; nearest: block"),
        ("limits.toml", "unknown key 'limits.second'; nearest: seconds"),
        ("shapes.toml", "unknown key 'arrays.x.shapes'; nearest: shape"),
    ):
        assert f"{file}: {words}; valid: " in refusal("exec", "k.ptx", "--launch", file)


@pytest.mark.parametrize(
    ("words", "arch", "said"),
    [
        ("tcgen05.mma", "h100", "'tcgen05.mma' needs one of sm_100, sm_103, sm_107, sm_110; sm_90 is older"),
        ("tcgen05.mma", "b200", ""),
        ("tcgen05.mma", "rtx5090", "'tcgen05.mma' needs one of sm_100, sm_103, sm_107, sm_110; sm_120 is none of them"),
        ("wgmma", "a100", "'wgmma' needs sm_90; sm_80 is older"),
        ("wgmma", "b200", "'wgmma' needs sm_90; sm_100 is not"),
        ("ldmatrix", "v100", "'ldmatrix' needs sm_75 or later"),
        ("nothing", "h100", "no instruction matches 'nothing'"),
    ],
)
def test_an_instruction_that_the_arch_does_not_have(words: str, arch: str, said: str) -> None:
    found = RUNNER.invoke(app, ["show", words, "--arch", arch])
    assert found.exit_code in (1, 2) and said in " ".join(found.stderr.split()), found.stderr


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("fp8", "fp8 is e4m3 or e5m2"), ("FP8", "fp8 is e4m3 or e5m2"), ("float8_e4m3fn", "float8_e4m3fn is e4m3"), ("fp6", "fp6 is e3m2 or e2m3"), ("fp4", "fp4 is e2m1"),
        ("nvfp4", "nvfp4 is e2m1 with scale factors of ue4m3"), ("mxfp4", "mxfp4 is e2m1 with scale factors of ue8m0"),
        ("mxfp8", "mxfp8 is e4m3 or e5m2 with scale factors of ue8m0"), ("half", "half is f16"), ("fp16", "fp16 is f16"), ("bfloat16", "bfloat16 is bf16"),
        ("float", "float is f32"), ("float32", "float32 is f32"), ("double", "double is f64"), ("int8", "int8 is s8"), ("uint8", "uint8 is u8"), ("int4", "int4 is s4"),
    ],
)  # fmt: skip
def test_formats_as_others_call_them(name: str, choices: str, folder: Path) -> None:
    for arguments in (("number", name), ("number", name, "1"), ("quantize", "a.npy", "-t", name)):
        said = refusal(*arguments)
        assert f"no number format {name!r}: {choices}" in said, said
    blocks = {"nvfp4": "--blocks nvfp4", "mxfp4": "--blocks mx", "mxfp8": "--blocks mx"}.get(name)
    if blocks:
        assert blocks in refusal("quantize", "a.npy", "-t", name)


def test_a_format_that_nobody_calls_so(folder: Path) -> None:
    for arguments in (("number", "f17", "1"), ("quantize", "a.npy", "-t", "f17")):
        assert "no number format 'f17'; nearest: f16" in refusal(*arguments)
