"""The ledger of a campaign: one JSON line for each span of samples that was compared, appended whole or not at all."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from conformance.campaign.subject import SHOWN
from tcsim.core.array_files import open_file
from tcsim.core.errors import OperandError, listing, shortened
from tcsim.core.texts import LARGEST, parsed_json


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
    def key(self) -> tuple[str, str, int, str]:
        """What lines of one campaign share: what a CPU, or another GPU, compared is not of it."""
        return self.mnemonic, self.arch, self.seed, self.gpu

    @property
    def end(self) -> int:
        """The first sample behind it."""
        return self.first + self.samples

    def joined(self, other: Line) -> Line:
        """Join the line that continues this one to it; the part stays this one's."""
        total = (int(self.digest, 16) + int(other.digest, 16)) % 2**64
        return replace(
            self, samples=self.samples + other.samples, outputs=self.outputs + other.outputs,
            mismatches=self.mismatches + other.mismatches, digest=f"{total:#018x}",
            seconds=round(self.seconds + other.seconds, 3), places=(*self.places, *other.places)[:SHOWN],
        )  # fmt: skip


class LedgerError(RuntimeError):
    """A line that could not be written, with the line in the text; or a ledger that no campaign wrote, with the number of the line."""


_DIGEST = re.compile("0x[0-9a-f]{16}")
_VALID: Mapping[str, tuple[tuple[type, ...], Callable[[Any], bool], str]] = {
    "mnemonic": ((str,), str.isprintable, "a mnemonic"),
    "arch": ((str,), str.isprintable, "an arch"),
    "seed": ((int,), lambda own: 0 <= own < 2**64, "an integer of 64 bits"),
    "first": ((int,), lambda own: 0 <= own < 2**63, "an integer from 0"),
    "samples": ((int,), lambda own: 0 < own < 2**63, "an integer from 1"),
    "outputs": ((int,), lambda own: own > 0, "an integer from 1"),
    "mismatches": ((int,), lambda own: own >= 0, "an integer from 0"),
    "digest": ((str,), lambda own: _DIGEST.fullmatch(own) is not None, "0x and 16 digits"),
    "part": ((int,), lambda own: own > 0, "an integer from 1"),
    "part_digest": ((str,), lambda own: _DIGEST.fullmatch(own) is not None, "0x and 16 digits"),
    "seconds": ((int, float), lambda own: 0 <= own < math.inf, "a number from 0"),
    "gpu": ((str,), lambda own: own.isprintable() and own == " ".join(own.split()) != "", "a name"),
    "places": ((list,), lambda own: all(type(place) is int and place >= 0 for place in own), "a list of integers from 0"),
}  # fmt: skip
"""Of each key the types, what is right, and what is said of a value that is not."""


def read(path: Path) -> list[Line]:
    """All whole lines. A last line without its end was cut off while it was written, and is left out.

    Raises LedgerError for a line that is not one of a ledger, or whose samples an earlier line of the same campaign has.
    """
    if not path.exists():
        return []
    try:
        with open_file(path) as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise LedgerError(f"{path} has more than {LARGEST} bytes, which is all that is read")
        whole = text[: text.rfind(b"\n") + 1]
        lines = [_line(line, f"{path}, line {number}") for number, line in enumerate(whole.split(b"\n")[:-1], 1)]
    except OperandError as error:
        raise LedgerError(str(error)) from None
    _check_apart(lines, path)
    return lines


def _line(text: bytes, where: str) -> Line:
    data = parsed_json(text, where)
    if not isinstance(data, dict):
        raise LedgerError(f"{where} is {shortened(text.decode())}; valid: an object")
    for key, (types, right, valid) in _VALID.items():
        if key not in data:
            raise LedgerError(f"{where} has no {key}")
        if type(data[key]) not in types or not right(data[key]):
            raise LedgerError(f"{where}: {key} is {shortened(data[key])}; valid: {valid}")
    if unknown := [key for key in data if key not in _VALID]:
        raise LedgerError(f"{where}: unknown key {shortened(unknown[0])}; valid: {listing(_VALID)}")
    return Line(**{**data, "places": tuple(data["places"])})


def _check_apart(lines: Sequence[Line], path: Path) -> None:
    """Raise LedgerError for samples that two lines of a campaign have."""
    numbers = sorted(range(len(lines)), key=lambda number: (lines[number].key, lines[number].first, number))
    for one, two in pairwise(numbers):
        if lines[one].key == lines[two].key and lines[two].first < lines[one].end:
            first, later = sorted((one, two))
            line = lines[later]
            raise LedgerError(
                f"{path}, line {later + 1}: samples {line.first} to {line.end - 1} overlap those of line {first + 1}; every sample counts once"
            )


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


def missing(
    lines: Iterable[Line], key: tuple[str, str, int, str], samples: int, span: int
) -> Iterator[tuple[int, int]]:
    """The spans (first, samples) of 0 to samples - 1 that no line of a campaign has, each of at most `span` samples.

    >>> list(missing([], ("a", "sm_90", 0, "NVIDIA H200"), 10, 4))
    [(0, 4), (4, 4), (8, 2)]
    """
    done = sorted((line.first, line.end) for line in lines if line.key == key)
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
    ordered = sorted(lines, key=lambda line: (line.key, line.first))
    for _, own in groupby(ordered, key=lambda line: line.key):
        last: Line | None = None
        for line in own:
            if last is not None and last.end == line.first:
                last = last.joined(line)
            else:
                found += [last] if last is not None else []
                last = line
        found += [last] if last is not None else []
    return found
