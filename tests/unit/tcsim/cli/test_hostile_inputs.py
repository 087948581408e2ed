"""Inputs that are made to hurt, of many kinds: no traceback, nothing that steers the terminal, little time and memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import numpy as np
import pytest

from tcsim.cli.app import app
from tests.support.cli_runs import MMA, RUNNER

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
SECONDS, BYTES = 4, 500 << 20
"""Of a processor, and more than there was before: one input may take that at the most."""


def kernel(body: str) -> str:
    return f"{HEAD}.visible .entry k() {{ {body} ret; }}\n"


ARRAY = "grid = 1\nblock = 1\n[arrays.a]\n"
PTX: dict[str, str | bytes] = {
    "brackets": kernel(f".reg .b32 %r; ld.global.u32 %r, {'[' * 200_000}%r{']' * 200_000};"),
    "braces": kernel(f".reg .b32 %r; mov.b64 %r, {'{' * 200_000}%r{'}' * 200_000};"),
    "scopes": kernel("{" * 200_000),
    "bangs": kernel(f".reg .pred %p; @{'!' * 200_000}%p ret;"),
    "digits": kernel(f".reg .b32 %r; mov.u32 %r, {'9' * 500_000};"),
    "a long name": kernel(f".reg .b32 {'a' * 1_000_000};"),
    "a file name of two lines": f'{HEAD}.file 1 "a\n\x1b[31mb"\n.visible .entry k() {{ .loc 1 1 1\n trap; ret; }}\n',
    "numbers of files": f'{HEAD}.file {"9" * 30} "a"\n.visible .entry k() {{ .loc {"9" * 30} {"9" * 30} 1\n trap; ret; }}\n',
    "a place inlined at itself": f'{HEAD}.file 1 "a"\n.visible .entry k() {{\nL: .loc 1 1 1, function_name L, inlined_at 1 1 1\n trap; ret; }}\n',
    "comments": HEAD + "/*" * 1_000_000,
    "quotes": f'{HEAD}.file 1 "' + '\\"' * 500_000,
    "a version": f".version {'9' * 5000}.{'9' * 5000}\n",
    "UTF-16": kernel("").encode("utf-16"),
    "NUL": kernel("").replace("k(", "k\0("),
    "dimensions": f"{HEAD}.global .b8 x{'[2]' * 50_000};\n",
    "an initialised gibibyte": f"{HEAD}.global .u32 g[268435456] = {{1}};\n.visible .entry k() {{ ret; }}\n",
    "a vector": kernel(f".reg .b32 %r<3>; ld.global.v4.u32 {{{','.join(['%r1'] * 100_000)}}}, [0];"),
    "a function that calls itself": f"{HEAD}.func f() {{ call f; ret; }}\n{kernel('call f;')[len(HEAD) :]}",
}
LAUNCHES: dict[str, str] = {
    "a shape of 2**60": f'{ARRAY}format = "f32"\nshape = [{2**60}]\ndistribution = "range"\n',
    "shapes whose product is 0": f'{ARRAY}format = "f32"\nshape = [0, {2**60}]\ndistribution = "zeros"\n',
    "a shape below zero": f'{ARRAY}format = "f32"\nshape = [-1]\ndistribution = "range"\n',
    "a date": "grid = 1979-05-27\nblock = 1\n",
    "infinity and NaN": "grid = inf\nblock = nan\n",
    "a device": f'{ARRAY}file = "/dev/zero"\n',
    "NUL in a name": f'{ARRAY}file = "a\\u0000b"\n',
    "a long file name": f'{ARRAY}file = "{"x" * 10_000}"\n',
    "an address at the end": f'{ARRAY}format = "f32"\nshape = [2]\ndistribution = "zeros"\naddress = {2**63 - 1}\n',
    "an ESC in a key": '"a\\nb\\u001b[31m" = 1\n',
    "100,000 digits": "grid = " + "9" * 100_000 + "\n",
    "values of all kinds": f'{ARRAY}values = [1, "a", [2, [3]], {{}}]\nformat = "f32"\n',
    "a key of 50,000 parts": ".".join(["a"] * 50_000) + " = 1\n",
    "shared memory": f"grid = 1\nblock = 1\ndynamic_smem = {2**63 - 1}\n",
    "limits": "grid = 1\nblock = 1\n[limits]\nseconds = nan\nmemory = 9223372036854775807\nprocesses = 1000000\n",
}
ARGUMENTS = (
    ("step", "k.ptx", "--launch", "l.toml", "-x", "step " + "9" * 30),
    ("step", "k.ptx", "--launch", "l.toml", "-x", "print " + "(" * 20_000),
    ("step", "k.ptx", "--launch", "l.toml", "--commands", "/dev/zero"),
    ("profile", "k.ptx", "--launch", "l.toml", "--compare", "/dev/zero"),
    ("check", "k.ptx", "--launch", "l.toml", "--timeline", "/nonexistent/x"),
    ("check", "k.ptx", "--launch", "l.toml", "--schedule", "late:" + "9" * 30),
    ("exec", "k.ptx", "--launch", "l.toml", "--output", "/dev/null/x"),
    ("exec", "pickled.npz"),
    ("exec", "outside.npz"),
    ("quantize", "nan.npz", "-t", "e4m3"),
    ("vectors", "make", MMA, "-o", "v", "--outputs", "9" * 25),
    ("vectors", "verify", ".", "."),
    ("vectors", "verify", "/dev/zero", "nan.npz"),
    ("compare", MMA, "--archs", "h100," * 3000 + "x"),
    ("plan", "linear", "9" * 30 + "x1x1"),
    ("number", "f32", "1e99999999999"),
    ("show", "(" * 5000),
)


def harmless(*arguments: str) -> None:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    result = RUNNER.invoke(app, list(arguments))
    assert time.process_time() - start < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < BYTES
    assert result.exit_code in (0, 1, 2) and (result.exception is None or isinstance(result.exception, SystemExit)), (
        result.exception
    )
    text = result.stdout + result.stderr
    assert "Traceback" not in text and all(one.isprintable() or one in "\n\t" for one in text)
    assert len(result.stderr) < 2000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.ptx").write_text(kernel(""))
    (tmp_path / "l.toml").write_text("grid = 1\nblock = 1\n")
    return tmp_path


@pytest.mark.parametrize("name", PTX)
def test_ptx(name: str, folder: Path) -> None:
    text = PTX[name]
    (folder / "k.ptx").write_bytes(text if isinstance(text, bytes) else text.encode())
    harmless("exec", "k.ptx", "--launch", "l.toml")


@pytest.mark.parametrize("name", LAUNCHES)
def test_launch_files(name: str, folder: Path) -> None:
    (folder / "l.toml").write_text(LAUNCHES[name])
    harmless("exec", "k.ptx", "--launch", "l.toml")


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda own: " ".join(own)[:60])
def test_arguments(arguments: tuple[str, ...], folder: Path) -> None:
    np.savez("nan.npz", x=np.array(np.nan))
    np.savez("pickled.npz", ptx=np.array([{}], object))
    np.savez(
        "outside.npz", ptx=np.array(kernel("")), entry=np.array("k"), grid=np.array([1, 1, 1]), block=np.array([1, 1, 1]), buf7_address=np.uint64(2**64 - 1),
        buf7_before=np.zeros(64, np.uint8), param9=np.zeros(8, np.uint8),
    )  # fmt: skip
    harmless(*arguments)
