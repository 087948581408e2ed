"""Recorded hardware results: one file per instruction and arch, from which a CPU can replay what a GPU said.

A file is a NumPy .npz: `header`, JSON text as bytes, and for every case the raw result registers, uint32 (warps,
lanes, registers), under `<class>/<seed>`. Inputs are regenerated from the case by frozen code (conformance/stimuli/frozen.py); the
header keeps their digest, so that other inputs are noticed and not compared.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SCHEMA = 1
ROOT = Path(__file__).parent.parent / "recordings"
MOST_SAMPLES = 1 << 17  # of a case: twice those of the largest, every value of a 16-bit number
MOST_SEED = (1 << 63) - 1


class RecordingError(ValueError):
    """A recording that is corrupt, of another instruction or arch, or of another schema."""


class Unwritable(RecordingError, OSError):
    """A folder that recordings cannot be written to, or a disk that is full."""


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

    def add(self, case: RecordedCase, registers: npt.NDArray[np.uint32]) -> None:
        """Add (or replace) a case."""
        self.cases[case.name, case.seed] = case
        self.results[case.name, case.seed] = np.asarray(registers, np.uint32)


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


def write_arrays(path: Path, header: dict[str, Any], content: dict[str, npt.NDArray[Any]]) -> None:
    """Write an LZMA-compressed .npz with a JSON header, moved into place when complete.

    Raises Unwritable if the disk is full or the folder may not be written.
    """
    arrays: dict[str, npt.NDArray[Any]] = {"header": np.frombuffer(json.dumps(header, indent=1).encode(), np.uint8)}
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
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
                archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getvalue(), zipfile.ZIP_LZMA)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_header(path: Path) -> dict[str, Any]:
    """The header alone of a file that `write_arrays` wrote.

    Raises RecordingError if it cannot be read.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
        if not isinstance(header, dict):
            raise TypeError(f"the header is a {type(header).__name__}")
        return header
    except Exception as error:  # any damage to the file: zip, NumPy or JSON structure
        raise RecordingError(f"corrupt recording {path}: {type(error).__name__}: {error}") from error


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """The header and the arrays of a file that `write_arrays` wrote.

    Raises RecordingError if it cannot be read.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            content = {name: archive[name] for name in archive.files}
        return json.loads(content.pop("header").tobytes()), content
    except Exception as error:  # any damage to the file: zip, NumPy or JSON structure
        raise RecordingError(f"corrupt recording {path}: {type(error).__name__}: {error}") from error


def read(mnemonic: str, arch: str, root: Path = ROOT) -> Recording | None:
    """The recording of an instruction on an arch, or None if there is none.

    Raises RecordingError if the file cannot be read or is not what its name says.
    """
    path = path_of(mnemonic, arch, root)
    if not path.exists():
        return None
    advice = "record it again on a GPU with `pytest --pyargs conformance --record`, or restore the committed file"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            content = {name: archive[name] for name in archive.files}
        header = json.loads(content.pop("header").tobytes())
        found = (header["schema"], header["mnemonic"], header["arch"])
        origin = Origin(**header["origin"])
        recording = Recording(header["mnemonic"], header["arch"], origin)
        for fields in header["cases"]:
            case = checked(RecordedCase(**fields))
            recording.add(case, content[f"{case.name}.{case.seed}"])
    except Exception as error:  # any damage to the file: zip, NumPy or JSON structure, or content
        raise RecordingError(f"corrupt recording {path}: {type(error).__name__}: {error}; {advice}") from error
    if found != (SCHEMA, mnemonic, arch):
        raise RecordingError(
            f"foreign recording {path}: it holds {found[1]} on {found[2]}, schema {found[0]}; "
            f"valid: {mnemonic} on {arch}, schema {SCHEMA}; {advice}"
        )
    return recording
