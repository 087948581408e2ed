"""Files are written aside and renamed: a full disk, an error or a second writer leaves the old one or the new one, whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tcsim.core.files import exclusive, replacing, write_file

ROOT = Path(__file__).resolve().parents[4]
FULL = f"""
import resource, signal, sys
sys.path.insert(0, {str(ROOT)!r})
import tcsim.cli, tcsim.catalog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))
"""
"""A process in which no file may have more than 900 bytes, as if the disk were full."""


def on_a_full_disk(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TCSIM_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", FULL + code], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_a_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    write_file(path, "one\n")
    assert path.read_bytes() == b"one\n" and path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    path.chmod(0o640)
    write_file(path, b"two\n")
    assert path.read_bytes() == b"two\n" and path.stat().st_mode & 0o777 == 0o640
    (tmp_path / "link").symlink_to(path)
    write_file(tmp_path / "link", "three\n")
    assert (tmp_path / "link").is_symlink() and path.read_text() == "three\n"
    assert sorted(own.name for own in tmp_path.iterdir()) == ["link", "some.txt"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    write_file(path, "old")

    def wrong() -> None:
        with replacing(path) as file:
            file.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        wrong()
    assert path.read_text() == "old" and [own.name for own in tmp_path.iterdir()] == ["some.txt"]
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "nowhere" / "x", "")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    code = "from tcsim.core.files import write_file; write_file('some.txt', 'x' * 5000)"
    (tmp_path / "some.txt").write_text("old")
    run = on_a_full_disk(code, tmp_path)
    assert "File too large" in run.stderr
    assert [(own.name, own.read_text()) for own in tmp_path.iterdir()] == [("some.txt", "old")]


def test_devices_are_written_to() -> None:
    write_file("/dev/null", "x")
    assert not Path("/dev/null").is_file()
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tcsim.core.files import write_file; write_file('/dev/stdout', 'said')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "said"


def test_one_at_a_time(tmp_path: Path) -> None:
    """Eight threads add one hundred times each to a number in a file."""

    def add() -> None:
        for _ in range(100):
            with exclusive(tmp_path):
                write_file(tmp_path / "number", str(int((tmp_path / "number").read_text()) + 1))

    write_file(tmp_path / "number", "0")
    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "number").read_text() == "800"


PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 data)
{
  .reg .b64 %d; .reg .b32 %r<3>;
  ld.param.u64 %d, [data];
  mov.u32 %r1, 7;
  st.global.u32 [%d], %r1;
  trap;
}
"""
LAUNCH = """
grid = 1
block = 1
params = [{ pointer = "data" }]
[arrays.data]
format = "u32"
shape = [2048]
distribution = "range"
"""
COMMANDS = {
    "page": (("check", "k.ptx", "--launch", "l.toml", "--timeline", "out"), "out"),
    "SARIF": (("check", "k.ptx", "--launch", "l.toml", "--sarif", "out"), "out"),
    "array": (("exec", "k.ptx", "--launch", "l.toml", "--output", "."), "data.npy"),
    "vectors": (("vectors", "make", "cvt.rn.f16.f32", "--arch", "sm_90", "--classes", "edges", "--form", "jsonl", "-o", "."), "manifest.json"),
    "lines": (("vectors", "make", "cvt.rn.f16.f32", "--arch", "sm_90", "--classes", "edges", "--form", "hex", "-o", "."), "cvt.rn.f16.f32.sm_90.edges.0.hex"),
    "arrays": (("vectors", "make", "cvt.rn.f16.f32", "--arch", "sm_90", "--classes", "edges", "-o", "."), "cvt.rn.f16.f32.sm_90.edges.0.0.npz"),
}  # fmt: skip
"""What writes a file of more than 900 bytes, and that file."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_on_a_full_disk(name: str, tmp_path: Path) -> None:
    """The old file stays, nothing else is left, and one sentence says why."""
    arguments, out = COMMANDS[name]
    (tmp_path / "k.ptx").write_text(PTX)
    (tmp_path / "l.toml").write_text(LAUNCH)
    old = '{"files": []}'
    (tmp_path / out).write_text(old)
    run = on_a_full_disk(f"sys.argv = ['tcsim', *{arguments!r}]; tcsim.cli.main()", tmp_path)
    assert run.returncode == 2, run.stderr
    assert (
        run.stderr.startswith("tcsim: ")
        and run.stderr.count("\n") == 1
        and re.search("File too large|requested", run.stderr)
    )
    assert (tmp_path / out).read_text() == old
    assert {own.name for own in tmp_path.iterdir() if not own.name.startswith(".")} <= {"k.ptx", "l.toml", out}
