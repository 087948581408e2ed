"""Arrays of .npy and .npz files that nobody vouches for: what a header declares is checked before anything is allocated.

A member is read when it is asked for, and no other. Two limits hold for all that is read of one file: `LARGEST` bytes, and
`LARGEST_UNPACKED` bytes of compressed members, whose size on disk says nothing about them.
"""

from __future__ import annotations

import ast
import os
import re
import stat
import struct
import warnings
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from math import prod
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, shortened

Array = npt.NDArray[Any]

LARGEST = 1 << 30
"""The most bytes that are read of one file."""
LARGEST_UNPACKED = 256 << 20
"""The most bytes among them that come from compressed members."""
MOST_MEMBERS = 1000
MOST_DIMENSIONS = 32
LONGEST_HEADER = 4096
"""Bytes of a header: NumPy writes 128 for a few dimensions."""

_MAGIC = b"\x93NUMPY"
_DESCR = re.compile(r"[<>|=]?[biufcV?][0-9]{0,2}")
_TEXT = re.compile(r"<U[0-9]{1,8}")
_ITEM_SIZES = {"V": (1, 2, 4, 8)}  # NumPy's name of ml_dtypes types
_TAIL = 22 + 0xFFFF  # the longest end of an archive
_LONGEST_DIRECTORY = 1 << 20
_PIECE = 1 << 20
_DAMAGE = (
    ValueError,
    EOFError,
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    struct.error,
)


class ArrayFileError(OperandError):
    """A file that is damaged, is not a file of arrays, or declares more than is read."""


def open_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """A regular file, opened for reading; devices, FIFOs and directories are refused before they are read.

    Raises FileNotFoundError if there is none, ArrayFileError for anything else that cannot be opened.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ArrayFileError(f"{_named(path)} cannot be opened: {why}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ArrayFileError(f"{_named(path)} is not a regular file; valid: files, not devices, pipes or directories")
    return os.fdopen(handle, "rb")


def header_of(file: IO[bytes], what: str, texts: bool = False) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """The dtype, the shape, whether the first index runs fastest, and the bytes of the header of an array in NumPy's format.

    texts: take a text too. Raises ArrayFileError for anything but numbers or bytes of 1, 2, 4 or 8 in an array of at most 32
    dimensions and `LARGEST` bytes.
    """
    start = file.read(8)
    if start[:6] != _MAGIC or len(start) != 8:
        raise ArrayFileError(f"{what} is not an array in NumPy's format")
    if start[6] not in (1, 2, 3):
        raise ArrayFileError(f"{what}: version {start[6]} of NumPy's format; valid: 1, 2, 3")
    width, order = (2, "<H") if start[6] == 1 else (4, "<I")
    field = file.read(width)
    size = struct.unpack(order, field)[0] if len(field) == width else 0
    if not 0 < size <= LONGEST_HEADER:
        raise ArrayFileError(f"{what}: a header of {size} bytes; valid: 1 to {LONGEST_HEADER}")
    text = file.read(size)
    if len(text) != size:
        raise ArrayFileError(f"{what} ends within its header")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the text as Python
            said = ast.literal_eval(text.decode("latin-1" if start[6] < 3 else "utf-8").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ArrayFileError(f"{what}: its header cannot be read") from None
    if not isinstance(said, dict) or set(said) != {"descr", "fortran_order", "shape"}:
        raise ArrayFileError(f"{what}: its header has other keys than descr, fortran_order and shape")
    shape, fortran = said["shape"], said["fortran_order"]
    dtype = _dtype(said["descr"], what, texts)
    if not isinstance(fortran, bool):
        raise ArrayFileError(f"{what}: fortran_order={shortened(fortran)}; valid: True, False")
    if not isinstance(shape, tuple) or any(type(size) is not int or size < 0 for size in shape):
        raise ArrayFileError(f"{what}: shape={shortened(shape)}; valid: integers from 0 on")
    if len(shape) > MOST_DIMENSIONS:
        raise ArrayFileError(f"{what}: {len(shape)} dimensions; valid: at most {MOST_DIMENSIONS}")
    if prod(max(size, 1) for size in shape) * dtype.itemsize > LARGEST:
        raise ArrayFileError(f"{what}: {dtype} {shortened(shape)} is more than is read: {LARGEST} bytes")
    return dtype, shape, fortran, 8 + width + size


def _dtype(descr: Any, what: str, texts: bool) -> np.dtype[Any]:
    if texts and isinstance(descr, str) and _TEXT.fullmatch(descr):
        return np.dtype(descr)
    if isinstance(descr, str) and _DESCR.fullmatch(descr):
        try:
            found = np.dtype(descr)
        except TypeError:
            found = None
        if found is not None and found.itemsize in _ITEM_SIZES.get(found.kind, (1, 2, 4, 8, 16)):
            return found
    raise ArrayFileError(f"{what}: descr={shortened(descr)}; valid: numbers, such as <f4, or bytes of 1, 2, 4 or 8")


class ArrayFile(Mapping[str, Array]):
    """The arrays of an .npz file by name, each read when it is first asked for; of an .npy file one, named "x".

    texts: a member may be one text, which is read as the bytes of its UTF-8.

    Raises FileNotFoundError if there is no such file, ArrayFileError for one that is not a file of arrays; and, of an
    array that is asked for, if it is damaged or beyond the limits.
    """

    def __init__(self, path: str | os.PathLike[str], texts: bool = False) -> None:
        self._what = _named(path)
        self._texts = texts
        self._held: dict[str, Array] = {}
        self._left = LARGEST
        self._left_unpacked = LARGEST_UNPACKED
        self._members: dict[str, zipfile.ZipInfo] = {}
        self._file = open_file(path)
        weakref.finalize(self, self._file.close)
        self._archive = self._opened()

    def _opened(self) -> zipfile.ZipFile | None:
        start = self._file.read(len(_MAGIC))
        if start == _MAGIC:
            self._file.seek(0)
            size = os.fstat(self._file.fileno()).st_size
            self._held["x"] = self._array(self._file, self._what, size)
            return None
        if not start.startswith(b"PK"):
            raise ArrayFileError(f"{self._what} is no .npz or .npy file")
        _check_directory(self._file, self._what)
        try:
            archive = zipfile.ZipFile(self._file)
        except _DAMAGE as error:
            raise ArrayFileError(f"{self._what} is damaged: {error}") from None
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in self._members:
                raise ArrayFileError(f"{self._what} has two members {shortened(name)}")
            self._members[name] = member
        return archive

    def __iter__(self) -> Iterator[str]:
        return iter(self._members or self._held)

    def __len__(self) -> int:
        return len(self._members or self._held)

    def __contains__(self, name: object) -> bool:
        return name in (self._members or self._held)  # Mapping's own would read the array

    def __getitem__(self, name: str) -> Array:
        if name not in self._held:
            self._held[name] = self._read(self._members[name])
        return self._held[name]

    def _read(self, member: zipfile.ZipInfo) -> Array:
        what = f"{self._what}: {shortened(member.filename)}"
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArrayFileError(f"{what} is compressed with method {member.compress_type}; valid: stored or deflated")
        if member.flag_bits & 1:
            raise ArrayFileError(f"{what} is encrypted")
        if member.compress_type == zipfile.ZIP_DEFLATED:
            self._left_unpacked -= member.file_size
            if self._left_unpacked < 0:
                raise ArrayFileError(
                    f"{what}: its compressed members have more than {LARGEST_UNPACKED} bytes, which is all that is unpacked; "
                    "valid: larger ones as np.savez writes them"
                )
        assert self._archive is not None
        try:
            with self._archive.open(member) as file:
                return self._array(file, what, member.file_size)
        except ArrayFileError:
            raise
        except _DAMAGE as error:
            raise ArrayFileError(f"{what} is damaged: {shortened(str(error))}") from None

    def _array(self, file: IO[bytes], what: str, size: int) -> Array:
        """An array from a stream that holds it and nothing else, `size` bytes in all."""
        dtype, shape, fortran, used = header_of(file, what, self._texts)
        count = prod(shape) * dtype.itemsize
        if used + count != size:
            raise ArrayFileError(f"{what}: {dtype} {shape} is {count} bytes, but {size - used} follow its header")
        self._left -= count
        if self._left < 0:
            raise ArrayFileError(f"{what}: the arrays have more than {LARGEST} bytes, which is all that is read")
        raw = np.empty(count, np.uint8)
        view, at = raw.data, 0
        while at < count:
            piece = file.read(min(_PIECE, count - at))
            if not piece:
                raise ArrayFileError(f"{what} ends after {at} of {count} bytes")
            view[at : at + len(piece)] = piece
            at += len(piece)
        if file.read(1):  # reading to the end is what checks the CRC of a member
            raise ArrayFileError(f"{what} goes on after its array")
        if dtype.kind == "U":
            return _text(raw, shape, what)
        array = raw.view(dtype if dtype.kind != "V" else f"u{dtype.itemsize}")
        return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def _text(raw: npt.NDArray[np.uint8], shape: tuple[int, ...], what: str) -> Array:
    """NumPy's text, four bytes a letter, as the bytes of its UTF-8."""
    try:
        if shape:
            raise ValueError(f"its shape is {shape}; valid: one text")
        return np.frombuffer(raw.tobytes().decode("utf-32-le").rstrip("\0").encode(), np.uint8)
    except ValueError as error:
        raise ArrayFileError(f"{what} is not a text: {shortened(str(error), 200)}") from None


def _check_directory(file: IO[bytes], what: str) -> None:
    """Raise ArrayFileError for an archive of very many members, which `zipfile` would list before one can ask."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL - 20))
    tail = file.read()
    place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) < place + 22:
        raise ArrayFileError(f"{what} is damaged: it has no directory at its end")
    count, directory = struct.unpack("<HI", tail[place + 10 : place + 16])
    zip64 = place >= 20 and tail[place - 20 : place - 16] == b"PK\6\7"  # needed beyond 65,535 members or 2 GiB only
    if zip64 or count > MOST_MEMBERS or directory > _LONGEST_DIRECTORY:
        raise ArrayFileError(f"{what} has too many members or is too large; valid: at most {MOST_MEMBERS}, below 2 GiB")
    file.seek(0)


def check_stored(path: str | os.PathLike[str]) -> None:
    """Check that an archive, such as torch.save writes, unpacks to no more than its own size and `LARGEST` bytes.

    Raises FileNotFoundError if there is none, ArrayFileError for another kind of file, or one with compressed members.
    """
    what = _named(path)
    with open_file(path) as file:
        if not zipfile.is_zipfile(file):
            raise ArrayFileError(f"{what} is not an archive of tensors; valid: files of torch.save, as of PyTorch 1.6")
        if file.seek(0, os.SEEK_END) > LARGEST:
            raise ArrayFileError(f"{what} has more than {LARGEST} bytes, which is all that is read")
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
        except _DAMAGE as error:
            raise ArrayFileError(f"{what} is damaged: {shortened(str(error))}") from None
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ArrayFileError(f"{what} has compressed members; valid: as torch.save writes them")


def _named(path: str | os.PathLike[str]) -> str:
    return shortened(os.fspath(path), 200)
