"""The process of the frozen generators, and what it says to the one that asks: messages through pipes.

`python exchange.py ARCHIVE MODULE` runs in it: MODULE, of the archive, has `ANSWERS` and `UnknownCase`. The process imports nothing of the tree
but what lies in the archive; the standard library aside, neither does this module, so that both sides can have it.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import pickle
import sys
import zipimport
from collections.abc import Callable
from importlib import import_module
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import CodeType
from typing import IO, Any, ClassVar

_PIPE = 1 << 20  # bytes: what a kernel gives to anybody who asks


def widen(stream: IO[bytes]) -> None:
    """Let a pipe hold a case's inputs, where the system can: fewer turns of the two processes."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import fcntl  # Unix has it

        fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)


def send(stream: IO[bytes], content: object) -> None:
    """One message: the lengths of its parts, then the parts, which are the pickled content and the bytes of its arrays as they lie."""
    buffers: list[pickle.PickleBuffer] = []
    parts = [memoryview(pickle.dumps(content, protocol=5, buffer_callback=buffers.append))]
    parts += [buffer.raw() for buffer in buffers]
    stream.write(b"".join(number.to_bytes(8, "little") for number in (len(parts), *(part.nbytes for part in parts))))
    for part in parts:
        stream.write(part)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message.

    Raises EOFError if there is none, or not all of it.
    """
    sizes = [_number(stream) for _ in range(_number(stream))]
    content, *buffers = (_filled(stream, size) for size in sizes)
    return pickle.loads(content, buffers=buffers)


def _number(stream: IO[bytes]) -> int:
    return int.from_bytes(_filled(stream, 8), "little")


def _filled(stream: IO[bytes], size: int) -> bytearray:
    found = bytearray(size)
    if stream.readinto(found) < size:  # type: ignore[attr-defined]
        raise EOFError
    return found


# --- in the process


class Archive(zipimport.zipimporter):
    """Imports from the archive; `known` is the code of modules that were compiled before."""

    known: ClassVar[dict[str, CodeType]] = {}

    def get_code(self, fullname: str) -> CodeType:
        """Of a module, compiled once."""
        if fullname not in self.known:
            self.known[fullname] = super().get_code(fullname)
        return self.known[fullname]

    def get_filename(self, fullname: str) -> str:
        """Without compiling the module, as zipimport would."""
        end = f"{os.sep}__init__.py" if self.is_package(fullname) else ".py"
        return os.path.join(self.archive, self.prefix + fullname.rpartition(".")[2]) + end


def _kept(archive: Path) -> tuple[Path, bytes]:
    """Where an archive's compiled code is kept, as Python keeps that of a module, and what the file begins with."""
    return Path(cache_from_source(str(archive.with_suffix(".py")))), (
        MAGIC_NUMBER + hashlib.sha256(archive.read_bytes()).digest()
    )


def _take(archive: Path) -> int:
    """Have the code that an earlier process compiled, if it is there: of how many modules."""
    path, head = _kept(archive)
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        content = path.read_bytes()
        if content.startswith(head):
            Archive.known.update(marshal.loads(content[len(head) :]))
    return len(Archive.known)


def _keep(archive: Path) -> None:
    if sys.dont_write_bytecode:
        return
    path, head = _kept(archive)
    own = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(head + marshal.dumps(Archive.known))
        own.replace(path)


def _answer(answers: dict[str, Callable[..., Any]], unknown: type[Exception], question: list[Any]) -> tuple[str, Any]:
    kind, *rest = question
    try:
        return "inputs", answers[kind](*rest)
    except unknown as error:
        return "unknown", str(error)
    except Exception as error:  # said by the process that asked
        return "error", f"{kind} {rest}: {type(error).__name__}: {error}"


def serve(archive: Path, module: str) -> None:
    """Answer until the other side closes, as a module of the archive does. Nothing else may write to the pipe: what prints goes to standard error."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path_hooks.insert(0, Archive)
    sys.path.insert(0, str(archive))
    compiled = _take(archive)
    generating = import_module(module)  # the archive's own, as all that it imports
    while True:
        try:
            question = receive(source)
        except EOFError:
            return
        answer = _answer(generating.ANSWERS, generating.UnknownCase, question)
        send(sink, answer)
        if len(Archive.known) > compiled:
            _keep(archive)
            compiled = len(Archive.known)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
