"""Recorded whole outputs of kernels: a digest of every block of what the hardware wrote, and a few of its codes.

Recorded one file for each case, and packed. The replay computes some of the blocks again and compares their digests; the codes that were kept show the bits
of a disagreement. A block is 64 x 64 of a matrix, or 4,096 elements of an array.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli.stream import Stream
from conformance.suite import packs, recordings
from conformance.suite.recordings import RecordingError

Array = npt.NDArray[Any]
Part = tuple[slice, ...]
EXTENTS = {1: (4096,), 2: (64, 64)}  # of a block, by dimensions
KEPT = 8  # codes of the last block, from the end along each axis; of an array KEPT * KEPT
DTYPES = ("uint8", "uint16", "uint32", "int32")
MOST = 1 << 24  # outputs


@dataclass(frozen=True)
class WholeOutput:
    """What a recording says of one output."""

    shape: tuple[int, ...]
    dtype: str
    inputs_sha256: str
    gpu: str
    driver: str
    compiler: str
    date: str
    digests: npt.NDArray[np.uint64]
    codes: Array  # of `kept_part`

    @property
    def how(self) -> str:
        """On which GPU."""
        return f"{self.gpu}, driver {self.driver}, {self.compiler}, {self.date}"


def blocks(shape: tuple[int, ...]) -> list[Part]:
    """The blocks of an output, the last axis fastest.

    >>> blocks((70, 64))
    [(slice(0, 64, None), slice(0, 64, None)), (slice(64, 70, None), slice(0, 64, None))]
    """
    axes = [
        [slice(start, min(start + step, size)) for start in range(0, size, step)]
        for size, step in zip(shape, EXTENTS[len(shape)], strict=True)
    ]
    return list(itertools.product(*axes))


def kept_part(shape: tuple[int, ...]) -> Part:
    """The elements whose codes are kept: the end of the last block."""
    count = KEPT if len(shape) == 2 else KEPT * KEPT
    return tuple(slice(max(part.start, part.stop - count), part.stop) for part in blocks(shape)[-1])


def chosen(shape: tuple[int, ...], count: int, *key: object) -> list[int]:
    """Which blocks a replay computes: the last one, whose codes are kept, then others at random; 0: all.

    >>> chosen((128, 128), 1, "case"), chosen((128, 128), 0, "case")
    ([3], [0, 1, 2, 3])
    """
    number = len(blocks(shape))
    if not 0 < count < number:
        return list(range(number))
    order = np.argsort(Stream("blocks", *key).words((number - 1,)), kind="stable")
    return [number - 1, *order[: count - 1].tolist()]


def digest(codes: Array) -> int:
    """64 bits of the SHA-256 of a block."""
    array = np.ascontiguousarray(codes)
    data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little")


def digests(output: Array) -> npt.NDArray[np.uint64]:
    """Of every block."""
    return np.array([digest(output[part]) for part in blocks(output.shape)], np.uint64)


def path_of(id: str, arch: str, root: Path) -> Path:
    """Where the recording of a case lives."""
    return root / arch / f"{id}.npz"


def write(id: str, arch: str, seed: int, output: Array, about: dict[str, str], root: Path) -> Path:
    """Write one output; other seeds of the same case stay. `about`: inputs_sha256, gpu, driver, compiler, date.

    Raises Unwritable; RecordingError if the file that is there cannot be read.
    """
    path = path_of(id, arch, root)
    found = _parsed(path, id, arch, *recordings.read_arrays(path)) if path.exists() else {}
    found[seed] = WholeOutput(
        output.shape, output.dtype.name, **about, digests=digests(output), codes=output[kept_part(output.shape)]
    )
    cases = []
    content: dict[str, Array] = {}
    for number, item in sorted(found.items()):
        fields = asdict(item)
        content |= {f"digests.{number}": fields.pop("digests"), f"codes.{number}": fields.pop("codes")}
        cases.append({"name": "whole", "seed": number, **fields})
    recordings.write_arrays(path, {"schema": recordings.SCHEMA, "whole": id, "arch": arch, "cases": cases}, content)
    return path


def read(id: str, arch: str, seed: int, root: Path) -> WholeOutput | None:
    """What was recorded of a case with a seed, or None.

    Raises RecordingError for a file that is damaged, or of another case.
    """
    found = None
    for path, header, content in packs.held(id, arch, root):
        found = _parsed(path, id, arch, header, content).get(seed, found)
    return found


def _parsed(
    path: Path, id: str, arch: str, header: dict[str, Any], content: dict[str, Array]
) -> dict[int, WholeOutput]:
    found = {}
    try:
        if (header["schema"], header["whole"], header["arch"]) != (recordings.SCHEMA, id, arch):
            raise ValueError(f"it holds {header['whole']} on {header['arch']}, schema {header['schema']}")
        for fields in header["cases"]:
            fields = {key: value for key, value in fields.items() if key != "name"}
            seed, shape = fields.pop("seed"), tuple(fields.pop("shape"))
            found[seed] = _checked(
                WholeOutput(shape, **fields, digests=content[f"digests.{seed}"], codes=content[f"codes.{seed}"])
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordingError(f"corrupt recording {path}: {type(error).__name__}: {error}") from error
    return found


def _checked(item: WholeOutput) -> WholeOutput:
    shape = item.shape
    if len(shape) not in EXTENTS or not all(type(size) is int and 0 < size <= MOST for size in shape):
        raise ValueError(f"no output has shape {shape!r}")
    if int(np.prod(shape)) > MOST or item.dtype not in DTYPES:
        raise ValueError(f"no output is {item.dtype} of shape {shape!r}")
    kept = tuple(part.stop - part.start for part in kept_part(shape))
    if item.digests.shape != (len(blocks(shape)),) or item.codes.shape != kept or item.codes.dtype.name != item.dtype:
        raise ValueError(f"{item.digests.shape} digests and {item.codes.shape} codes do not fit a shape of {shape}")
    return item
