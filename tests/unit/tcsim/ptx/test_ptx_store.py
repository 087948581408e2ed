"""Compiled programs that are kept: a program from a file does what a new one does, and a file that is not right is not there."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcsim.core import files
from tcsim.core.files import Files
from tcsim.ptx import Memory, parse
from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.compile.pieces import first_piece
from tcsim.ptx.compile.store import Store, key_of
from tests.hazards import kernels, kernels_lanes, kernels_mbarriers, kernels_tensor
from tests.hazards.kernels import Kernel
from tests.hazards.test_planted import ran

KEY = "0f" * 32
ROOT = Path(__file__).resolve().parents[4]
PLANTED = [own for part in (kernels, kernels_lanes, kernels_mbarriers, kernels_tensor) for own in part.KERNELS]
PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry made(.param .u64 to) {
  .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [to]; mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1;
  mul.rn.f32 %f2, %f1, %f1; add.rn.f32 %f3, %f2, %f1;
  shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; atom.global.add.u32 %r3, [%d1], %r2; ret; }"""


def never() -> Compiled:
    """Nothing is compiled."""
    raise AssertionError("compiled again")


def compiled(text: str = PTX) -> Compiled:
    """A new program."""
    kernel = parse(text).kernel()
    return kernel._compile(Memory(), "sm_90", True, False, False)


def kept(folder: Path) -> Path:
    """The file of a program under a key."""
    Store(Files(folder)).get(KEY, compiled)
    (file,) = (own for own in folder.rglob("*") if own.is_file())
    return file


@pytest.mark.parametrize("kernel", PLANTED, ids=lambda own: own.name)
def test_a_program_from_a_file_does_the_same(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, hazards and counts of right and wrong kernels; every program is read, none is made."""
    sources = (kernel.source, kernel.without(kernel.defects[0]))
    first, made = Store(Files(tmp_path)), [ran(kernel, source, "late") for source in sources]
    monkeypatch.setattr("tcsim.ptx.kernel.store", lambda: first)
    for source in sources:
        ran(kernel, source, "late")
    second = Store(Files(tmp_path))
    monkeypatch.setattr("tcsim.ptx.kernel.store", lambda: second)
    monkeypatch.setattr("tcsim.ptx.kernel.link", lambda *given: never())
    for source, before in zip(sources, made, strict=True):
        run = ran(kernel, source, "late")
        assert (run.completed, run.hazards, run.inexact, run.instructions) == (
            before.completed, before.hazards, before.inexact, before.instructions,
        )  # fmt: skip


def test_it_is_the_same_program(tmp_path: Path) -> None:
    """Its source, what its lines belong to, and its pieces."""
    one = Store(Files(tmp_path)).get(KEY, compiled)
    two = Store(Files(tmp_path)).get(KEY, never)
    assert one is not two and one.source == two.source and one.registers == two.registers
    assert one.lines == two.lines and one.gathers == two.gathers
    pieces = [first_piece(one, block) for block in range(len(one.blocks))]
    assert any(pieces) and pieces == [first_piece(two, block) for block in range(len(pieces))]
    assert one.source == two.source


def _flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


def _whole(content: bytes) -> bytes:
    return hashlib.sha256(content).digest() + content


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "short": lambda data: data[: len(data) // 2],
    "a bit": _flipped,
    "other content": lambda data: _whole(b"something else"),
    "other objects": lambda data: _whole(pickle.dumps(({}, b""))),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_not_there(damage: str, tmp_path: Path) -> None:
    """It is made anew, and is right afterwards."""
    file = kept(tmp_path)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises(AssertionError, match="compiled again"):
        Store(Files(tmp_path)).get(KEY, never)
    made = Store(Files(tmp_path)).get(KEY, compiled)
    assert Store(Files(tmp_path)).get(KEY, never).source == made.source


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_not_read(mode: int, tmp_path: Path) -> None:
    """It is executed, so that it has to be the user's own."""
    file = kept(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(mode)
    with pytest.raises(AssertionError, match="compiled again"):
        Store(Files(tmp_path)).get(KEY, never)


def test_a_file_of_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the one above."""
    kept(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(AssertionError, match="compiled again"):
        Store(Files(tmp_path)).get(KEY, never)


@pytest.mark.parametrize("folder", [None, Path("/proc/nowhere")])
def test_no_folder_is_no_error(folder: Path | None) -> None:
    """Programs are kept in memory all the same."""
    store = Store(Files(folder), most=1)
    one = store.get("a", compiled)
    assert store.get("a", never) is one
    store.get("b", compiled)
    with pytest.raises(AssertionError, match="compiled again"):
        store.get("a", never)


def test_a_key_is_all_that_a_program_is_made_of() -> None:
    """Each part changes it."""
    base: dict[str, Any] = {"digest": "d", "kernel": "k", "arch": "sm_90", "how": (False,), "addresses": {"v": 1}}
    others = {"digest": "e", "kernel": "l", "arch": "sm_80", "how": (True,), "addresses": {"v": 2}}
    keys = {key_of(**base), *(key_of(**{**base, name: value}) for name, value in others.items())}
    assert len(keys) == 1 + len(others) and key_of(**base) in keys


def test_the_oldest_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When there are more than are kept."""
    monkeypatch.setattr(files, "MOST_FILES", 3)
    store, keys = Store(Files(tmp_path)), [f"{number:064x}" for number in range(6)]
    for number, key in enumerate(keys):
        store.get(key, compiled)
        os.utime(tmp_path / key[:2] / key[2:], (number, number))
    store.get("0" + "f" * 63, compiled)
    left = {own.parent.name + own.name for own in tmp_path.glob("??/*")}
    assert left == {*keys[-2:], "0" + "f" * 63}


def test_a_session_stands_at_a_program_of_another_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text read twice has one program; its registers can be asked for when it has ended."""
    one = Store(Files(None))
    monkeypatch.setattr("tcsim.ptx.kernel.store", lambda: one)
    for _ in range(2):
        memory = Memory()
        session = parse(PTX).kernel().session(memory, [memory.allocate(64)], block=(32, 1, 1))
        session.run()
        assert session.registers("%r1").codes == tuple(range(32))
        session.close()
    assert len(one._programs) == 1


def test_another_process_reads_what_one_has_compiled(tmp_path: Path) -> None:
    """The folder of the environment is used; two that write at once do not disturb each other."""
    program = (
        "import sys\nfrom tcsim.ptx import Memory, parse\nimport tcsim.ptx.kernel as own\n"
        "link, made = own.link, []\nown.link = lambda *given: made.append(1) or link(*given)\n"
        "memory = Memory()\nto = memory.allocate(64)\nrun = parse(sys.argv[1]).kernel().launch(memory, [to], block=(32, 1, 1))\n"
        "print(len(made), run.completed, memory.read(to, 4).tolist())"
    )
    environment = os.environ | {"TCSIM_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, PTX]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [own.communicate()[0].split(maxsplit=1) for own in both]
    third = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split(
        maxsplit=1
    )
    assert third[0] == "0" and {own[1] for own in (*answers, third)} == {third[1]}
