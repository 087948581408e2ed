"""Files that are damaged or made to harm: run, diagnose, quantize and tensormap decode refuse each in one line, and read little."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcsim.cli.app import app
from tcsim.core import array_files
from tcsim.core.array_files import ArrayFile, ArrayFileError, check_stored
from tests.support.cli_runs import MMA, RUNNER

GOOD = np.ones((16, 16), np.float16)


def npy(array: np.ndarray = GOOD) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=array.dtype.hasobject)
    return buffer.getvalue()


def declared(header: str, content: bytes = b"", version: int = 1) -> bytes:
    """A file of NumPy's format with any header."""
    text = header.encode("latin-1") + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + content


def shaped(shape: str, descr: str = "'<f2'", order: str = "False") -> bytes:
    return declared(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}", bytes(512))


def archive(member: bytes, method: int = zipfile.ZIP_STORED, name: str = "a.npy") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr(name, member)
    return buffer.getvalue()


def _bad_crc() -> bytes:
    data = bytearray(archive(npy()))
    data[data.index(b"NUMPY") + 300] ^= 1
    return bytes(data)


def _encrypted() -> bytes:
    data = bytearray(archive(npy()))
    for place in (data.index(b"PK\1\2") + 8, 6):
        data[place] |= 1
    return bytes(data)


def _twice() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a.npy", npy())
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a.npy", npy())
    return buffer.getvalue()


def _bomb() -> bytes:
    """2 MB that unpack to 2 GB: as np.savez_compressed would write zeros."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file, file.open("a.npy", "w") as member:
        member.write(declared("{'descr': '<f4', 'fortran_order': False, 'shape': (131072, 1024), }"))
        for _ in range(512):
            member.write(bytes(1 << 20))
    return buffer.getvalue()


MEMBERS: dict[str, Callable[[], bytes]] = {
    "pickled": lambda: npy(np.array([{}], object)),
    "not an array": lambda: b"hello",
    "empty": lambda: b"",
    "short magic": lambda: b"\x93NUM",
    "version 9": lambda: b"\x93NUMPY\x09" + npy()[7:],
    "cut in its header": lambda: npy()[:40],
    "cut in its data": lambda: npy()[:-7],
    "too long": lambda: npy() + b"\0",
    "long header": lambda: declared("{" + " " * 5000 + "}"),
    "header of 4 GiB": lambda: b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + npy()[12:],
    "negative size": lambda: shaped("(-1, 16)"),
    "NaN size": lambda: shaped("(nan, 16)"),
    "float size": lambda: shaped("(16.0, 16)"),
    "bool size": lambda: shaped("(True, 16)"),
    "text size": lambda: shaped("'16'"),
    "10 GB": lambda: shaped("(50000, 100000)"),
    "2**100": lambda: shaped(f"({2**100}, 0)"),
    "digits": lambda: shaped(f"(0x{'f' * 3900},)"),
    "dimensions": lambda: shaped("(" + "1," * 40 + ")"),
    "nested": lambda: shaped("(" * 1000 + ")" * 1000),
    "not a dict": lambda: declared("[1, 2]"),
    "other keys": lambda: declared("{'descr': '<f2', 'shape': (16, 16)}"),
    "code": lambda: declared("__import__('os').getcwd()"),
    "order": lambda: shaped("(16, 16)", order="1"),
    "structure": lambda: shaped("(16, 16)", "[('x', '<f2')]"),
    "text": lambda: shaped("(16, 16)", "'<U4'"),
    "wide bytes": lambda: shaped("(16, 16)", "'|V3'"),
    "no size": lambda: shaped("(16, 16)", "'|V'"),
    "list of types": lambda: shaped("(16, 16)", "'f2,f2'"),
}

FILES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"no archive",
    "end cut": lambda: b"PK\5\6" + bytes(17),
    "cut archive": lambda: archive(npy())[:-30],
    "bad CRC": _bad_crc,
    "encrypted": _encrypted,
    "bad deflate": lambda: archive(npy(), zipfile.ZIP_DEFLATED).replace(b"\x93", b"\x94", 1)[:60] + archive(npy())[60:],
    "LZMA": lambda: archive(npy(), zipfile.ZIP_LZMA),
    "two of a name": _twice,
    **{f"member: {name}": (lambda make=make: archive(make())) for name, make in MEMBERS.items()},  # type: ignore[misc]
    **{f"npy: {name}": make for name, make in MEMBERS.items() if name not in ("not an array", "empty", "short magic")},
}


BY_EVERY_SUBCOMMAND = ("text", "bad CRC", "member: pickled", "member: not an array", "member: NaN size", "npy: 10 GB")
"""The other files are given to one subcommand: all read through `ArrayFile`."""


def refused(*arguments: object) -> str:
    """The one line on standard error of a refusal with status 2."""
    result = RUNNER.invoke(app, [str(item) for item in arguments])
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("tcsim: "), result.stderr
    assert len(result.stderr) < 1000
    return result.stderr


@pytest.mark.parametrize("name", FILES)
def test_hostile_files_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(FILES[name]())
    refused("quantize", path, "--type", "e4m3")
    if name in BY_EVERY_SUBCOMMAND:
        refused("run", MMA, "--inputs", path)
        refused("diagnose", MMA, "--inputs", path, "--observed", path)
    tracemalloc.start()
    try:
        with pytest.raises(ArrayFileError):
            dict(ArrayFile(path))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    path.write_bytes(_bomb())
    assert path.stat().st_size < 4 << 20
    tracemalloc.start()
    try:
        assert "more than 268435456 bytes" in refused("quantize", path, "--type", "e4m3")
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_the_limits_are_of_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "some.npz", a=GOOD, b=GOOD)
    np.savez_compressed(tmp_path / "packed.npz", a=GOOD, b=GOOD)
    monkeypatch.setattr(array_files, "LARGEST", 1000)
    monkeypatch.setattr(array_files, "LARGEST_UNPACKED", 1000)
    for name in ("some.npz", "packed.npz"):
        found = ArrayFile(tmp_path / name)
        assert found["a"].shape == (16, 16)
        with pytest.raises(ArrayFileError, match="more than 1000 bytes"):
            found["b"]


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    """A damaged member beside the one that is asked for does no harm; a name that no operand has is refused unread."""
    path = tmp_path / "some.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("good.npy", npy())
        file.writestr("bad.npy", b"hello")
    result = RUNNER.invoke(app, ["quantize", str(path), "--type", "e4m3", "--name", "good"])
    assert result.exit_code == 0, result.output
    assert "not an array" in refused("quantize", path, "--type", "e4m3", "--name", "bad")
    assert "no input good, bad" in refused("run", MMA, "--inputs", path)
    assert "holds good, bad; valid: a, b," in refused("diagnose", MMA, "--inputs", path, "--observed", path)


def test_very_many_members_and_none(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "many.npz", "w") as file:
        for number in range(1001):
            file.writestr(f"{number}.npy", b"")
    (tmp_path / "none.npz").write_bytes(b"PK\5\6" + bytes(18))
    assert "holds no arrays" in refused("quantize", tmp_path / "none.npz", "--type", "e4m3")
    assert "is missing" in refused("run", MMA, "--inputs", tmp_path / "none.npz")
    assert "at most 1000" in refused("run", MMA, "--inputs", tmp_path / "many.npz")


def test_what_numpy_writes_is_read(tmp_path: Path) -> None:
    """Every kind of array that NumPy writes and an instruction may take, in both orders and of every rank."""
    stream = np.random.default_rng(12)
    arrays: dict[str, Any] = {"zero": np.float32(3), "none": np.zeros((0, 5), np.uint8), "yes": np.array([True, False])}
    for dtype in ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", ">u2", ">f4", "c8"]:
        arrays[dtype.strip(">") + "b" * (">" in dtype)] = stream.integers(0, 100, (3, 4, 5)).astype(dtype)
    arrays["turned"] = np.asfortranarray(stream.integers(0, 100, (3, 4, 5)))
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "some.npz", **arrays)
        found = ArrayFile(tmp_path / "some.npz")
        assert list(found) == list(arrays) and len(found) == len(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype and found[name].shape == np.shape(array)
            assert np.array_equal(found[name], array)
    np.save(tmp_path / "one.npy", arrays["turned"])
    assert np.array_equal(ArrayFile(tmp_path / "one.npy")["x"], arrays["turned"])
    for version in (1, 2, 3):
        data = declared("{'shape': (2,), 'fortran_order': False, 'descr': '<u2'}", b"\1\0\2\0", version)
        (tmp_path / "own.npy").write_bytes(data)
        assert ArrayFile(tmp_path / "own.npy")["x"].tolist() == [1, 2]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_devices_pipes_and_folders_are_refused(tmp_path: Path) -> None:
    """Nothing is read of them: a FIFO without a writer would wait for ever, /dev/zero would never end."""
    os.mkfifo(tmp_path / "fifo.npz")
    for path in (tmp_path / "fifo.npz", Path("/dev/zero"), tmp_path):
        for arguments in (
            ("tensormap", "decode", path),
            ("quantize", path, "--type", "e4m3"),
            ("run", MMA, "--inputs", path),
            ("diagnose", MMA, "--inputs", path),
        ):
            assert "is not a regular file" in refused(*arguments)


def test_files_that_are_no_maps(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    assert "more than 1024 bytes; valid: 64 or 128" in refused("tensormap", "decode", tmp_path / "large")
    assert "0 bytes of bytes; valid: 64 or 128" in refused("tensormap", "decode", "")
    refused("tensormap", "decode", "a\0b")
    refused("tensormap", "decode", "x" * 5000)


def test_archives_of_tensors_are_stored(tmp_path: Path) -> None:
    """What torch.save writes is not compressed: an archive that is, or no archive at all, is not given to PyTorch."""
    for name, data in {
        "packed": archive(npy(), zipfile.ZIP_DEFLATED),
        "text": b"hello",
        "pickle": b"\x80\x02}.",
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ArrayFileError, match="valid: "):
            check_stored(tmp_path / name)
    (tmp_path / "good").write_bytes(archive(npy()))
    check_stored(tmp_path / "good")


def test_hostile_numbers_on_the_command_line() -> None:
    """Thousands of digits, exponents beyond all, signs twice, sizes beyond memory: one line each."""
    many = "7" * 5000
    for arguments in (
        ("number", "e4m3", "1e1000000"),
        ("number", "e4m3", "1e5000"),
        ("number", "e4m3", "-+inf"),
        ("number", "e4m3", "0x_"),
        ("where", MMA, "-o", "a", "--element", f"{many},0"),
        ("what", MMA, "--lane", "0", "--register", many),
        ("descriptor", "decode", many),
        ("idesc", "decode", many, "--kind", "f16"),
        ("swizzle", f"{many},4,3"),
        ("swizzle", "900000000,4,900000000"),
        ("swizzle", "28,4,28"),
        ("swizzle", "128B", "--start", hex(1 << 200)),
        ("swizzle", "128B", "--pitch", 1 << 62),
        ("swizzle", "128B", "--address", many),
        ("tensormap", "check", "--type", "FLOAT16", "--dim", f"{many},8", "--box", "8,8"),
    ):
        refused(*arguments)
    unknown = RUNNER.invoke(app, ["show", "mma." + "x" * 100_000])  # a name that nothing has: near ones, and status 1
    assert unknown.exit_code == 1 and unknown.stdout == "" and len(unknown.stderr) < 1000, unknown.stderr[:2000]
