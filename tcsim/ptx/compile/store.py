"""Programs that were compiled, kept for the next launch: some in memory, all of them in files for other processes.

A file (`tcsim.core.files`) is named by what its program is made of: the PTX, the kernel, the arch, how it is compiled, the addresses of variables,
and the sources of tcsim.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import pickle
import sys
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
from tcsim.core.files import Files, kept
from tcsim.isa.scalar.atomic import Atomic, atomics
from tcsim.isa.scalar.catalog import scalars
from tcsim.model.instruction import Instruction as Model
from tcsim.ptx.compile.compiled import Compiled

MOST_IN_MEMORY = 64
_SOURCES = Path(__file__).resolve().parents[2]


class Store:
    """Programs by their keys, in memory and in files."""

    def __init__(self, files: Files, most: int = MOST_IN_MEMORY) -> None:
        self.files, self.most = files, most
        self._programs: OrderedDict[str, Compiled] = OrderedDict()

    def get(self, key: str, make: Callable[[], Compiled]) -> Compiled:
        """The program of a key: from memory, from its file, or made and kept."""
        found = self._programs.pop(key, None)
        if found is None:
            found = self._read(key)
        if found is None:
            found = make()
            if self.files.folder is not None:
                with suppress(pickle.PicklingError, AttributeError, TypeError, RecursionError):
                    self.files.write(key, _dumped(found))
        self._programs[key] = found
        if len(self._programs) > self.most:
            self._programs.popitem(last=False)
        return found

    def _read(self, key: str) -> Compiled | None:
        content = self.files.read(key)
        try:
            return None if content is None else _loaded(content)
        except Exception:  # whatever is wrong with it, it can be made anew
            return None


@cache
def store() -> Store:
    """The store of this process."""
    return Store(kept())


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
