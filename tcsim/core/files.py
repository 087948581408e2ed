"""Files are written aside and renamed: whatever ends a process, and on a full disk, the old file stays or the new one is whole.

`Files` keeps what was made once for other processes, by the digest of what it was made from. One that is damaged, or that cannot be read or written, is not there. It may hold code that is executed, as
Python's own .pyc files do: one that belongs to somebody else, or that others may write, is not read. TCSIM_CACHE_DIR says where the files lie (else
where the system keeps caches); empty: nowhere.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

VARIABLE = "TCSIM_CACHE_DIR"
MOST_FILES = 2000
"""Files that are kept: of more the oldest go, now and then."""
_DIGEST = 32  # bytes in front of a file's content that say whether it is whole
_LOCK = ".lock"


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when the block ends without an error. A device is written to as it is.

    mode: the permissions of a file that is not there yet, less the process's mask. Raises OSError, and leaves the old file.
    """
    target = Path(os.path.realpath(path))
    if os.fspath(path).startswith(("/dev/", "/proc/")) or (target.exists() and not target.is_file()):
        with open(path, "wb") as device:
            yield device
        return
    aside = target.with_name(f".{secrets.token_hex(8)}.partial")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        with open(handle, "wb") as file:
            yield file
        if target.exists():
            os.chmod(aside, stat.S_IMODE(target.stat().st_mode))
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a whole file; a text as UTF-8. Raises OSError, and leaves the old file."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def exclusive(folder: str | os.PathLike[str]) -> Iterator[None]:
    """No other process, or thread, is inside for this folder: it waits."""
    handle = os.open(Path(folder) / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if sys.platform == "win32":
            import msvcrt  # Windows has it alone

            msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
        else:
            import fcntl  # all others have it

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Files:
    """The files of a folder; of None there are none."""

    folder: Path | None

    def path(self, key: str) -> Path | None:
        """Where the file of a key lies. key: hexadecimal digits."""
        return self.folder / key[:2] / key[2:] if self.folder is not None else None

    def read(self, key: str) -> bytes | None:
        """What was kept, or None."""
        path = self.path(key)
        try:
            data = path.read_bytes() if path is not None and _own(path.stat()) else b""
        except OSError:
            return None
        whole = len(data) > _DIGEST and hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]
        return data[_DIGEST:] if whole else None

    def write(self, key: str, content: bytes) -> None:
        """Keep something, if that is possible."""
        path = self.path(key)
        if path is None:
            return
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(path, 0o600) as file:
                file.write(hashlib.sha256(content).digest() + content)
            if key[:1] == "0":
                self._prune()

    def _prune(self) -> None:
        assert self.folder is not None
        files = [(own.stat().st_mtime, own) for own in self.folder.glob("??/*") if own.is_file()]
        for _, own in sorted(files)[: max(0, len(files) - MOST_FILES)]:
            own.unlink(missing_ok=True)


@cache
def kept() -> Files:
    """The files of this process."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Files(Path(given) if given else None)
    home = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    with suppress(RuntimeError):
        return Files((Path(home) if home else Path.home() / ".cache") / "tcsim")
    return Files(None)


def _own(state: os.stat_result) -> bool:
    """Whether a file is this user's alone to write, where a system has users."""
    return not hasattr(os, "getuid") or (state.st_uid == os.getuid() and not state.st_mode & 0o022)
