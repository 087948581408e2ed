"""Packs: one file that holds what thousands of small ones would, in `recordings/<arch>/packed/`.

A pack is an .npz of two arrays: `header`, JSON text as bytes, which has the header of every file that it stands for and says where
each of their arrays lies in `content`, the bytes of all arrays, equal ones once. A pack is never written again: what is recorded later, of another
seed or level, comes as a file of its own or in a pack of a subfolder, and is read together with it.

`python -m conformance.suite.packs --recordings FOLDER` packs what a run with --record wrote, by family.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.suite import files
from conformance.suite.files import ROOT, SCHEMA, RecordingError
from tcsim import catalog
from tcsim.core.targets import arch_named

FOLDER = "packed"
MOST = 3 << 20  # bytes of arrays in a pack: what reading one recording unpacks
DTYPES = ("uint8", "uint16", "uint32", "int32", "uint64")

Arrays = dict[str, npt.NDArray[Any]]
Content = tuple[Path, dict[str, Any], Arrays]
"""Of one recording: the file it lies in, its header and its arrays."""


@dataclass
class Pack:
    """A pack, its arrays unpacked when they are first asked for."""

    path: Path

    @cached_property
    def headers(self) -> dict[str, dict[str, Any]]:
        """Of each file that it stands for: its header, and `arrays`, the place of each.

        Raises RecordingError if the pack cannot be read.
        """
        header = files.read_header(self.path)
        found = header.get("files")
        if header.get("schema") != SCHEMA or not isinstance(found, dict):
            raise RecordingError(f"corrupt recording {self.path}: it is not a pack of schema {SCHEMA}")
        return found

    @cached_property
    def _content(self) -> npt.NDArray[np.uint8]:
        return files.read_array(self.path, "content")

    def arrays(self, name: str) -> Arrays:
        """The arrays of a file.

        Raises RecordingError if they are not there.
        """
        try:
            return {key: self._array(*place) for key, place in self.headers[name]["arrays"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordingError(f"corrupt recording {self.path}: {name}: {type(error).__name__}: {error}") from error

    def _array(self, start: int, dtype: str, shape: list[int]) -> npt.NDArray[Any]:
        if dtype not in DTYPES or not all(type(size) is int and size >= 0 for size in (start, *shape)):
            raise ValueError(f"no array is {dtype} of shape {shape} at {start}")
        kind = np.dtype(dtype).newbyteorder("<")
        end = start + math.prod(shape) * kind.itemsize
        if end > len(self._content):
            raise ValueError(f"an array ends at byte {end} of {len(self._content)}")
        found = np.frombuffer(self._content[start:end].tobytes(), kind).reshape(shape)
        return found.astype(kind.newbyteorder("="))


def paths(root: Path, arch: str) -> list[Path]:
    """Every pack: those of the first recording, then those of subfolders."""
    folder = root / arch / FOLDER
    return sorted(folder.glob("**/*.npz"), key=lambda path: (path.parent != folder, path))


def held(name: str, arch: str, root: Path) -> Iterator[Content]:
    """What is recorded under the name of a file: in packs, then in the file itself.

    Raises RecordingError for a pack or a file that cannot be read.
    """
    folder = root / arch / FOLDER
    if folder.exists():
        for pack in _index(root, arch, _stamps(folder)).get(name, ()):
            yield pack.path, _header(pack, name, arch), pack.arrays(name)
    path = root / arch / f"{name}.npz"
    if path.exists():
        yield path, *files.read_arrays(path)


def headers(names: Iterable[str], arch: str, root: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """The same of many names without the arrays, which stay packed: name, file and header.

    Raises RecordingError for a pack or a file that cannot be read.
    """
    folder = root / arch / FOLDER
    packed = _index(root, arch, _stamps(folder)) if folder.exists() else {}
    own = {path.stem: path for path in (root / arch).glob("*.npz")}
    for name in names:
        for pack in packed.get(name, ()):
            yield name, pack.path, _header(pack, name, arch)
        if name in own:
            yield name, own[name], files.read_header(own[name])


def cases(name: str, arch: str, root: Path) -> set[tuple[str, int]]:
    """The (class, seed) of what is recorded under the name of a file, by its headers alone.

    Raises RecordingError for a pack or a file that cannot be read.
    """
    return {
        (case["name"], case["seed"]) for *_, header in headers([name], arch, root) for case in header.get("cases", ())
    }


def _header(pack: Pack, name: str, arch: str) -> dict[str, Any]:
    own = {key: value for key, value in pack.headers[name].items() if key != "arrays"}
    return {"schema": SCHEMA, "arch": arch, **own}


def names(arch: str, root: Path) -> set[str]:
    """Of all recordings, packed or not."""
    packed = {name for path in paths(root, arch) for name in Pack(path).headers}
    return packed | {path.stem for path in (root / arch).glob("*.npz")}


def _stamps(folder: Path) -> tuple[int, ...]:
    with os.scandir(folder) as items:
        inner = sorted(item.path for item in items if item.is_dir())
    return tuple(os.stat(path).st_mtime_ns for path in (str(folder), *inner))


@lru_cache(8)
def _index(root: Path, arch: str, stamps: tuple[int, ...]) -> dict[str, list[Pack]]:
    found: dict[str, list[Pack]] = defaultdict(list)
    for path in paths(root, arch):
        pack = Pack(path)
        for name in pack.headers:
            found[name].append(pack)
    return dict(found)


def write(path: Path, contents: Iterable[tuple[str, dict[str, Any], Arrays]]) -> None:
    """Write a pack of (name, header, arrays).

    Raises Unwritable.
    """
    headers: dict[str, dict[str, Any]] = {}
    places: dict[bytes, int] = {}
    parts, end = [], 0
    for name, header, arrays in contents:
        listed = {}
        for key, array in arrays.items():
            data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            digest = hashlib.sha256(data).digest()
            if digest not in places:
                places[digest] = end
                parts.append(data)
                end += len(data)
            listed[key] = [places[digest], array.dtype.name, list(array.shape)]
        own = {key: value for key, value in header.items() if key not in ("schema", "arch")}
        headers[name] = own | {"arrays": listed}
    content = np.frombuffer(b"".join(parts), np.uint8)
    files.write_arrays(path, {"schema": SCHEMA, "files": headers}, {"content": content}, indent=None)


def group_of(header: dict[str, Any]) -> str:
    """The family of a recorded instruction, or the kind of a whole output; nothing for what is not packed."""
    if "mnemonic" in header:
        return str(catalog.rows()[header["mnemonic"]].family)
    return f"whole-{header['whole'].partition('-')[0]}" if "whole" in header else ""


def pack(root: Path, arch: str, label: str = "") -> list[Path]:
    """Pack the files of an arch that are not packed yet, and remove them; the packs, in a subfolder if it has a name.

    Raises RecordingError if a file cannot be read, or a pack is already there.
    """
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((root / arch).glob("*.npz")):
        if group := group_of(files.read_header(path)):
            groups[group].append(path)
    written = []
    for group, members in groups.items():
        chunks = list(_chunks(members))
        for number, chunk in enumerate(chunks, 1):
            suffix = f"-{number}" if len(chunks) > 1 else ""
            target = root / arch / FOLDER / label / f"{group}{suffix}.npz"
            if target.exists():
                raise RecordingError(f"{target} is there already: packs are not written again; say another --label")
            write(target, ((path.stem, *content) for path, content in chunk))
            written.append(target)
    for members in groups.values():
        for path in members:
            path.unlink()
    return written


def _chunks(members: list[Path]) -> Iterator[list[tuple[Path, tuple[dict[str, Any], Arrays]]]]:
    chunk: list[tuple[Path, tuple[dict[str, Any], Arrays]]] = []
    size = 0
    for path in members:
        header, arrays = files.read_arrays(path)
        more = sum(array.nbytes for array in arrays.values())
        if chunk and size + more > MOST:
            yield chunk
            chunk, size = [], 0
        chunk.append((path, (header, arrays)))
        size += more
    if chunk:
        yield chunk


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m conformance.suite.packs", description=__doc__)
    parser.add_argument("--arch", type=arch_named, default="sm_90")
    parser.add_argument("--recordings", type=Path, default=ROOT)
    parser.add_argument("--label", default="", help="subfolder of the packs, such as seed-1")
    options = parser.parse_args(arguments)
    try:
        written = pack(options.recordings, options.arch, options.label)
    except (RecordingError, OSError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(written)} packs, {sum(path.stat().st_size for path in written):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
