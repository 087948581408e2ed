"""Recorded hardware results: one file per instruction and arch, from which a CPU can replay what a GPU said.

A file is a NumPy .npz: `header`, JSON text as bytes, and for every case the raw result registers, uint32 (warps,
lanes, registers), under `<class>/<seed>`. Inputs are regenerated from the case (conformance/stimuli/classes.py); the header
keeps their digest, so that a change of the generator is noticed and not compared.
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


class RecordingError(ValueError):
    """A recording that is corrupt, of another instruction or arch, or of another schema."""


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
    """Write an LZMA-compressed .npz with a JSON header, moved into place when complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, npt.NDArray[Any]] = {"header": np.frombuffer(json.dumps(header, indent=1).encode(), np.uint8)}
    arrays |= content
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
            case = RecordedCase(**fields)
            recording.add(case, content[f"{case.name}.{case.seed}"])
    except Exception as error:  # any damage to the file: zip, NumPy or JSON structure, or content
        raise RecordingError(f"corrupt recording {path}: {type(error).__name__}: {error}; {advice}") from error
    if found != (SCHEMA, mnemonic, arch):
        raise RecordingError(
            f"foreign recording {path}: it holds {found[1]} on {found[2]}, schema {found[0]}; "
            f"valid: {mnemonic} on {arch}, schema {SCHEMA}; {advice}"
        )
    return recording
