"""The frozen generators of inputs: a copy of the code that made the inputs of every recording, run in a process of its own.

The copy is `generators.zip`, of the version and hash that `generators.json` names, with the module of it that answers. It holds what generators
need of all three packages, so nothing that changes in the model of today changes an input: a wrong constant shows as a mismatch with what the
hardware answered.
`python -m conformance.kernels.freeze` makes the next version.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from conformance.stimuli import exchange

ARCHIVE = Path(__file__).parent / "generators.zip"
NOTE = Path(__file__).parent / "generators.json"

KEEP = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_TOP_PAD_": "64000000"}
"""For glibc: the process keeps the memory of one case's arrays for those of the next."""


class Note(NamedTuple):
    """What generators.json says of the archive."""

    version: int
    sha256: str
    module: str  # of the archive, what answers


class FrozenError(RuntimeError):
    """The frozen generators are not the locked ones, or ended."""


class UnknownCase(LookupError):
    """A case that the frozen generators do not know."""


class Generators:
    """The process, as long as somebody asks. module: of the archive, what answers; generators.json names that of `ARCHIVE`."""

    def __init__(self, archive: Path = ARCHIVE, module: str | None = None) -> None:
        command = [sys.executable, "-P", exchange.__file__, str(archive), module or _note().module]
        environment = {**KEEP, **os.environ}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                exchange.widen(pipe)
        self._expected: tuple[object, ...] | None = None  # a question that was sent, and not answered yet

    def expect(self, kind: str, *question: object) -> None:
        """Begin with the inputs of a case that will be asked for next, while the process that asks does something else.

        Raises FrozenError.
        """
        self._settle()
        self._send(kind, *question)
        self._expected = (kind, *question)

    def ask(self, kind: str, *question: object) -> Any:
        """The inputs of a case: `kind` and `question` are those of conformance/kernels/generating.py.

        Raises UnknownCase, FrozenError.
        """
        if self._expected != (kind, *question):
            self._settle()
            self._send(kind, *question)
        verdict, content = self._receive()
        if verdict == "unknown":
            raise UnknownCase(content)
        if verdict == "error":
            raise FrozenError(content)
        return content

    def _settle(self) -> None:
        """Take an answer that was expected and not asked for."""
        if self._expected is not None:
            self._receive()

    def _send(self, *question: object) -> None:
        if self._process.stdin is None:
            raise FrozenError("the frozen generators have no pipes")
        try:
            exchange.send(self._process.stdin, question)
        except OSError as error:
            raise FrozenError(f"the frozen generators ended with status {self._process.wait()}") from error

    def _receive(self) -> tuple[str, Any]:
        if self._process.stdout is None:
            raise FrozenError("the frozen generators have no pipes")
        self._expected = None
        try:
            verdict, content = exchange.receive(self._process.stdout)
        except (EOFError, OSError) as error:
            raise FrozenError(f"the frozen generators ended with status {self._process.wait()}") from error
        return verdict, content

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._settle()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


def _note() -> Note:
    try:
        note = json.loads(NOTE.read_text())
        return Note(int(note["version"]), str(note["sha256"]), str(note["module"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FrozenError(f"cannot read {NOTE}: {error}") from error


def version() -> int:
    """Of the frozen generators.

    Raises FrozenError if they are not those that generators.json locks.
    """
    note = _note()
    try:
        found = hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()
    except OSError as error:
        raise FrozenError(f"cannot read {ARCHIVE}: {error}") from error
    if found != note.sha256:
        raise FrozenError(f"{ARCHIVE} is not version {note.version} that {NOTE.name} locks: its hash is {found}")
    return note.version


@cache
def generators() -> Generators:
    """The process of this one, started when it is first asked for."""
    version()
    made = Generators()
    atexit.register(made.close)
    return made
