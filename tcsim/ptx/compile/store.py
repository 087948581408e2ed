"""Programs that were compiled, kept for the next launch: some in memory, all of them in files for other processes.

A file is named by what its program is made of: the PTX, the kernel, the arch, how it is compiled, the addresses of variables, and the
sources of tcsim. It is written aside and renamed; one that is damaged, or that cannot be read, is not there. It holds code that is executed, as
Python's own .pyc files do: one that belongs to somebody else, or that others may write, is not read. TCSIM_CACHE_DIR says where the files lie (else
where the system keeps caches); empty: nowhere.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import pickle
import sys
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from tcsim import catalog
from tcsim.isa.scalar.atomic import Atomic, atomics
from tcsim.isa.scalar.catalog import scalars
from tcsim.model.instruction import Instruction as Model
from tcsim.ptx.compile.compiled import Compiled

VARIABLE = "TCSIM_CACHE_DIR"
MOST_IN_MEMORY = 64
MOST_FILES = 2000
"""Files that are kept: of more the oldest go, now and then."""
_DIGEST = 32  # bytes in front of a file's content that say whether it is whole
_SOURCES = Path(__file__).resolve().parents[2]


class Store:
    """Programs by their keys, in memory and in a folder."""

    def __init__(self, folder: Path | None, most: int = MOST_IN_MEMORY) -> None:
        self.folder, self.most = folder, most
        self._programs: OrderedDict[str, Compiled] = OrderedDict()

    def get(self, key: str, make: Callable[[], Compiled]) -> Compiled:
        """The program of a key: from memory, from its file, or made and kept."""
        found = self._programs.pop(key, None)
        if found is None:
            found = self._read(key)
        if found is None:
            found = make()
            self._write(key, found)
        self._programs[key] = found
        if len(self._programs) > self.most:
            self._programs.popitem(last=False)
        return found

    def _path(self, key: str) -> Path | None:
        return self.folder / key[:2] / key[2:] if self.folder is not None else None

    def _read(self, key: str) -> Compiled | None:
        path = self._path(key)
        try:
            data = path.read_bytes() if path is not None and _own(path.stat()) else b""
        except OSError:
            return None
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            return None
        try:
            return _loaded(data[_DIGEST:])
        except Exception:  # whatever is wrong with it, it can be made anew
            return None

    def _write(self, key: str, program: Compiled) -> None:
        path = self._path(key)
        if path is None:
            return
        with suppress(OSError, pickle.PicklingError, AttributeError, TypeError):
            content = _dumped(program)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
            try:
                with open(handle, "wb") as aside:
                    aside.write(hashlib.sha256(content).digest() + content)
                os.replace(name, path)
            finally:
                Path(name).unlink(missing_ok=True)
            if key[:1] == "0":
                self._prune()

    def _prune(self) -> None:
        assert self.folder is not None
        files = [(own.stat().st_mtime, own) for own in self.folder.glob("??/*") if own.is_file()]
        for _, own in sorted(files)[: max(0, len(files) - MOST_FILES)]:
            own.unlink(missing_ok=True)


@cache
def store() -> Store:
    """The store of this process."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Store(Path(given) if given else None)
    home = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    with suppress(RuntimeError):
        return Store((Path(home) if home else Path.home() / ".cache") / "tcsim")
    return Store(None)


def key_of(digest: str, kernel: str, arch: str, how: tuple[bool, ...], addresses: Mapping[str, int]) -> str:
    """What a program is made of, as a name. digest: of the PTX."""
    parts = (_versions(), kernel, arch, how, sorted(addresses.items()), digest)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def _versions() -> str:
    """What makes programs: the interpreter, NumPy, and tcsim's sources, by their sizes and times."""
    found = [sys.implementation.cache_tag, sys.version, np.__version__]
    for folder, folders, files in os.walk(_SOURCES):
        folders[:] = sorted(own for own in folders if own != "__pycache__")
        for name in sorted(own for own in files if own.endswith((".py", ".xz", ".json"))):
            state = os.stat(os.path.join(folder, name))
            found.append(f"{folder}/{name} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(map(str, found)).encode()).hexdigest()


def _own(state: os.stat_result) -> bool:
    """Whether a file is this user's alone to write, where a system has users."""
    return not hasattr(os, "getuid") or (state.st_uid == os.getuid() and not state.st_mode & 0o022)


# --- programs as bytes


def _dumped(program: Compiled) -> bytes:
    """A program without its functions, and the code that makes them."""
    file = BytesIO()
    _Writer(file, 5).dump((program.kept(), marshal.dumps(program.code)))
    return zlib.compress(file.getvalue(), 1)


def _loaded(content: bytes) -> Compiled:
    kept, code = pickle.loads(zlib.decompress(content))  # a file of ours: `_own`
    made: CodeType = marshal.loads(code)
    return Compiled.of(kept, made)


@cache
def _functions() -> dict[int, tuple[str, str]]:
    """Where functions of scalar instructions stand in their table, by their ids."""
    rows = (
        (name, attribute, getattr(row, attribute))
        for name, row in scalars().items()
        for attribute in ("compute", "folded")
    )
    return {id(own): (name, attribute) for name, attribute, own in rows if own is not None}


def _function(name: str, attribute: str) -> Any:
    return getattr(scalars()[name], attribute)


def _atomic(mnemonic: str) -> Atomic:
    return atomics()[mnemonic]


class _Writer(pickle.Pickler):
    """Names what the catalog has instead of writing it down."""

    def reducer_override(self, value: Any) -> Any:
        """As pickle asks for it."""
        if isinstance(value, Model):
            return catalog.instruction, (value.mnemonic, value.arch.name)
        if isinstance(value, Atomic):
            return _atomic, (value.mnemonic,)
        place = _functions().get(id(value)) if callable(value) else None
        return (_function, place) if place is not None else NotImplemented
