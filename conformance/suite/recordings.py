"""Recorded hardware results of each instruction and arch, from which a CPU can replay what a GPU said.

A file of one instruction, which `packs.py` packs with others, is a NumPy .npz: `header`, JSON text as bytes, and for every case the raw result registers, uint32 (warps,
lanes, registers), under `<class>/<seed>`. Inputs are regenerated from the case by frozen code (conformance/stimuli/frozen.py); the
header keeps their digest, so that other inputs are noticed and not compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.suite import packs
from conformance.suite.files import ROOT as ROOT
from conformance.suite.files import SCHEMA as SCHEMA
from conformance.suite.files import RecordingError as RecordingError
from conformance.suite.files import Unwritable as Unwritable
from conformance.suite.files import check_writable as check_writable
from conformance.suite.files import read_arrays as read_arrays
from conformance.suite.files import read_header as read_header
from conformance.suite.files import write_arrays as write_arrays

MOST_SAMPLES = 1 << 17  # of a case: twice those of the largest, every value of a 16-bit number
MOST_SEED = (1 << 63) - 1
ADVICE = "record it again on a GPU with `pytest --pyargs conformance --record`, or restore the committed file"


@dataclass(frozen=True)
class Origin:
    """Where and how a recording was made."""

    gpu: str  # "NVIDIA H200"
    driver: str  # "580.159.04"
    assembler: str  # "ptxas 13.0.88"
    target: str  # the PTX target assembled for
    ptx_sha256: str  # of the probe's PTX text
    code_sha256: str  # of the machine code
    date: str  # ISO 8601

    def __str__(self) -> str:
        return f"{self.gpu}, driver {self.driver}, {self.assembler}, {self.date}"


@dataclass(frozen=True)
class RecordedCase:
    """One input class of a recording."""

    name: str  # the input class
    seed: int
    samples: int  # warps
    inputs_sha256: str
    result_sha256: str = ""  # of all samples' results, where only the first few are kept


@dataclass
class Recording:
    """All recorded cases of one instruction on one GPU."""

    mnemonic: str
    arch: str
    origin: Origin
    cases: dict[tuple[str, int], RecordedCase] = field(default_factory=dict)
    results: dict[tuple[str, int], npt.NDArray[np.uint32]] = field(default_factory=dict)
    others: dict[tuple[str, int], Origin] = field(default_factory=dict)
    """Of cases that were recorded elsewhere than `origin` says."""

    def add(self, case: RecordedCase, registers: npt.NDArray[np.uint32]) -> None:
        """Add (or replace) a case."""
        self.cases[case.name, case.seed] = case
        self.results[case.name, case.seed] = np.asarray(registers, np.uint32)

    def join(self, other: Recording) -> None:
        """Add the cases of another recording of the same instruction; they replace those of the same class and seed."""
        for key, case in other.cases.items():
            self.add(case, other.results[key])
            self.others[key] = other.origin

    def origin_of(self, name: str, seed: int) -> Origin:
        """Where and how a case was recorded."""
        return self.others.get((name, seed), self.origin)


def checked(case: RecordedCase) -> RecordedCase:
    """A case as a header lists it, if it can be one.

    Raises ValueError otherwise.
    """
    for name, limit in (("samples", MOST_SAMPLES), ("seed", MOST_SEED)):
        value, least = getattr(case, name), int(name == "samples")
        if type(value) is not int or not least <= value <= limit:
            raise ValueError(f"class {case.name!r} has {name} {value!r}; valid: {least} to {limit}")
    for name in ("inputs_sha256", "result_sha256"):
        digest = getattr(case, name)
        if not isinstance(digest, str) or len(digest) not in (0, 64):
            raise ValueError(f"class {case.name!r} has {name} {digest!r}; valid: 64 hexadecimal digits")
    return case


def result_digest(result: npt.NDArray[Any]) -> str:
    """SHA-256 of a result."""
    array = np.ascontiguousarray(result)
    return hashlib.sha256(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()).hexdigest()


def path_of(mnemonic: str, arch: str, root: Path = ROOT) -> Path:
    """Where the recording of an instruction lives."""
    return root / arch / (mnemonic.replace("::", "-") + ".npz")


def write(recording: Recording, root: Path = ROOT) -> Path:
    """Write a recording: to a temporary file, then moved into place; the bytes depend on the content alone."""
    path = path_of(recording.mnemonic, recording.arch, root)
    header = {
        "schema": SCHEMA,
        "mnemonic": recording.mnemonic,
        "arch": recording.arch,
        "origin": asdict(recording.origin),
        "cases": [asdict(case) for case in recording.cases.values()],
    }
    write_arrays(path, header, {f"{name}.{seed}": result for (name, seed), result in recording.results.items()})
    return path


def read(mnemonic: str, arch: str, root: Path = ROOT) -> Recording | None:
    """The recording of an instruction on an arch, or None if there is none: what packs and its own file hold of it.

    Raises RecordingError if a file cannot be read or is not what its name says.
    """
    found = None
    try:
        for path, header, content in packs.held(path_of(mnemonic, arch, root).stem, arch, root):
            part = _parsed(path, mnemonic, arch, header, content)
            if found is None:
                found = part
            else:
                found.join(part)
    except RecordingError as error:
        raise RecordingError(f"{error}; {ADVICE}") from error
    return found


def listed(mnemonics: Iterable[str], arch: str, root: Path = ROOT) -> dict[str, list[tuple[str, int]]]:
    """The (class, seed) of the recorded cases of instructions, in order, of those that are recorded: from the headers alone.

    Raises RecordingError if a header cannot be read or is not what its name says.
    """
    names = {path_of(mnemonic, arch, root).stem: mnemonic for mnemonic in mnemonics}
    found: dict[str, dict[tuple[str, int], None]] = {}
    try:
        for name, path, header in packs.headers(names, arch, root):
            part = _parsed(path, names[name], arch, header)
            found.setdefault(names[name], {}).update(dict.fromkeys(part.cases))
    except RecordingError as error:
        raise RecordingError(f"{error}; {ADVICE}") from error
    return {mnemonic: list(cases) for mnemonic, cases in found.items()}


def _parsed(
    path: Path, mnemonic: str, arch: str, header: dict[str, Any], content: dict[str, npt.NDArray[Any]] | None = None
) -> Recording:
    """A recording, without results if there is no content."""
    try:
        found = (header["schema"], header["mnemonic"], header["arch"])
        recording = Recording(header["mnemonic"], header["arch"], Origin(**header["origin"]))
        for fields in header["cases"]:
            case = checked(RecordedCase(**fields))
            if content is None:
                recording.cases[case.name, case.seed] = case
            else:
                recording.add(case, content[f"{case.name}.{case.seed}"])
    except Exception as error:  # any damage to the structure or the content
        raise RecordingError(f"corrupt recording {path}: {type(error).__name__}: {error}") from error
    if found != (SCHEMA, mnemonic, arch):
        raise RecordingError(
            f"foreign recording {path}: it holds {found[1]} on {found[2]}, schema {found[0]}; "
            f"valid: {mnemonic} on {arch}, schema {SCHEMA}"
        )
    return recording
