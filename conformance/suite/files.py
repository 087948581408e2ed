"""Files of recordings: LZMA-compressed .npz with a JSON header, written whole or not at all."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.files import replacing
from tcsim.core.texts import parsed_json

LARGEST = 1 << 30
"""Bytes that are unpacked of one file."""
SCHEMA = 1
ROOT = Path(__file__).parent.parent / "recordings"


class RecordingError(ValueError):
    """A recording that is corrupt, of another instruction or arch, or of another schema."""


class Unwritable(RecordingError, OSError):
    """A folder that recordings cannot be written to, or a disk that is full."""


def write_arrays(
    path: Path, header: dict[str, Any], content: dict[str, npt.NDArray[Any]], indent: int | None = 1
) -> None:
    """Write an LZMA-compressed .npz with a JSON header, moved into place when complete.

    Raises Unwritable if the disk is full or the folder may not be written.
    """
    arrays: dict[str, npt.NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header, indent=indent).encode(), np.uint8)
    }
    try:
        _write_archive(path, arrays | content)
    except OSError as error:
        raise Unwritable(f"cannot write recordings to {path.parent}: {error.strerror or error}") from error


def check_writable(folder: Path) -> None:
    """Before a GPU works for nothing: make the folder, and a file in it.

    Raises Unwritable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        raise Unwritable(f"cannot write recordings to {folder}: {error.strerror or error}") from error


def _write_archive(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getvalue(), zipfile.ZIP_LZMA)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The arrays of a file by name, each read when it is asked for. Raises ValueError for one that unpacks to more than `LARGEST` bytes."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        size = sum(member.file_size for member in archive.zip.infolist())
        if size > LARGEST:
            raise ValueError(f"it unpacks to {size} bytes; valid: up to {LARGEST}")
        yield archive


def header_of(archive: Any) -> dict[str, Any]:
    """The JSON header. Raises ValueError for one that is something else."""
    header = parsed_json(archive["header"].tobytes(), "its header")
    if not isinstance(header, dict):
        raise TypeError(f"the header is a {type(header).__name__}")
    return header


def read_header(path: Path) -> dict[str, Any]:
    """The header alone of a file that `write_arrays` wrote.

    Raises RecordingError if it cannot be read.
    """
    try:
        with opened(path) as archive:
            return header_of(archive)
    except Exception as error:  # any damage to the file: zip, NumPy or JSON structure
        raise RecordingError(f"corrupt recording {path}: {type(error).__name__}: {error}") from error


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """The header and the arrays of a file that `write_arrays` wrote.

    Raises RecordingError if it cannot be read.
    """
    try:
        with opened(path) as archive:
            return header_of(archive), {name: archive[name] for name in archive.files if name != "header"}
    except Exception as error:  # any damage to the file: zip, NumPy or JSON structure
        raise RecordingError(f"corrupt recording {path}: {type(error).__name__}: {error}") from error


def read_array(path: Path, name: str) -> npt.NDArray[Any]:
    """One array of a file that `write_arrays` wrote.

    Raises RecordingError if it cannot be read.
    """
    try:
        with opened(path) as archive:
            return np.asarray(archive[name])
    except Exception as error:  # any damage to the file: zip or NumPy
        raise RecordingError(f"corrupt recording {path}: {type(error).__name__}: {error}") from error
