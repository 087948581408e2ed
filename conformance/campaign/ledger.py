"""The ledger of a campaign: one JSON line for each span of samples that was compared, appended whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """Samples first to first + samples - 1 of an instruction, all compared."""

    mnemonic: str
    arch: str
    seed: int
    first: int
    samples: int
    outputs: int
    mismatches: int
    digest: str  # of the hardware's outputs: sums of lines add up modulo 2**64
    part: int  # samples from the first on that have a digest of their own
    part_digest: str
    seconds: float
    gpu: str
    places: tuple[int, ...] = ()  # outputs that differ, the first of them: sample * outputs of a sample + output

    @property
    def subject(self) -> tuple[str, str, int]:
        """What lines of one campaign share."""
        return self.mnemonic, self.arch, self.seed

    def joined(self, other: Line) -> Line:
        """Join the line that continues this one to it; the part stays this one's."""
        total = (int(self.digest, 16) + int(other.digest, 16)) % 2**64
        return replace(
            self, samples=self.samples + other.samples, outputs=self.outputs + other.outputs,
            mismatches=self.mismatches + other.mismatches, digest=f"{total:#018x}",
            seconds=round(self.seconds + other.seconds, 3), places=(*self.places, *other.places)[:16],
        )  # fmt: skip


class LedgerError(RuntimeError):
    """A line that could not be written; the text holds the line."""


def read(path: Path) -> list[Line]:
    """All whole lines. A last line without its end was cut off while it was written, and is left out."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    return [Line(**{**json.loads(line), "places": tuple(json.loads(line)["places"])}) for line in whole.splitlines()]


def append(path: Path, line: Line) -> None:
    """Write a line and wait until it lies on the disk. A line that does not fit is taken back.

    Raises LedgerError, with the line in its text: what was compared is not lost.
    """
    text = json.dumps(asdict(line)).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        before = os.fstat(file).st_size
        try:
            if os.write(file, text) != len(text):
                raise OSError("not all of the line was written")
            os.fsync(file)
        except OSError as error:
            with suppress(OSError):  # a device, not a file
                os.ftruncate(file, before)
            raise LedgerError(f"{path}: {error}; the line that is not there: {text.decode().strip()}") from error
    finally:
        os.close(file)


def repair(path: Path) -> None:
    """Cut off a last line without its end: the next one is to begin a line of its own."""
    if path.is_file():
        text = path.read_bytes()
        end = text.rfind(b"\n") + 1
        if end < len(text):
            os.truncate(path, end)


def missing(lines: Iterable[Line], subject: tuple[str, str, int], samples: int, span: int) -> Iterator[tuple[int, int]]:
    """The spans (first, samples) of 0 to samples - 1 that no line has, each of at most `span` samples.

    >>> list(missing([], ("a", "sm_90", 0), 10, 4))
    [(0, 4), (4, 4), (8, 2)]
    """
    done = sorted((line.first, line.first + line.samples) for line in lines if line.subject == subject)
    at = 0
    for first, end in [*done, (samples, samples)]:
        while at < min(first, samples):
            yield at, min(span, min(first, samples) - at)
            at += min(span, min(first, samples) - at)
        at = max(at, end)


def merged(lines: Iterable[Line]) -> list[Line]:
    """Lines that follow one another joined: the shortest ledger that says the same.

    >>> from dataclasses import replace
    >>> one = Line("a", "sm_90", 0, 0, 4, 8, 0, "0x1", 1, "0x1", 0.5, "NVIDIA H200")
    >>> both = merged([replace(one, first=4, digest="0x2"), one])
    >>> len(both), both[0].samples, both[0].digest
    (1, 8, '0x0000000000000003')
    """
    found: list[Line] = []
    ordered = sorted(lines, key=lambda line: (line.subject, line.first))
    for _, own in groupby(ordered, key=lambda line: line.subject):
        last: Line | None = None
        for line in own:
            if last is not None and last.first + last.samples == line.first and last.gpu == line.gpu:
                last = last.joined(line)
            else:
                found += [last] if last is not None else []
                last = line
        found += [last] if last is not None else []
    return found
