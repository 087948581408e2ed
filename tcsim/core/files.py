"""What was made once and is kept in files for other processes, by the digest of what it was made from.

A file is written aside and renamed; one that is damaged, or that cannot be read or written, is not there. It may hold code that is executed, as
Python's own .pyc files do: one that belongs to somebody else, or that others may write, is not read. TCSIM_CACHE_DIR says where the files lie (else
where the system keeps caches); empty: nowhere.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VARIABLE = "TCSIM_CACHE_DIR"
MOST_FILES = 2000
"""Files that are kept: of more the oldest go, now and then."""
_DIGEST = 32  # bytes in front of a file's content that say whether it is whole


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
