"""Tensor copies that no source determines: what a GPU makes of them, reported beside candidates. Nothing here can pass.

Each question is a set of maps that `tcsim.TensorMap` has and the model refuses to copy (NotModelledError). A run says which
candidates agree with every byte, and `--record` keeps what the GPU answered; either is reason to write a model, and none is a
result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli.stream import Stream
from conformance.suite import recordings
from conformance.suite.recordings import RecordingError
from conformance.testbench import Inputs
from hwkernels.device.driver import POISON
from hwkernels.probes.cp_async_bulk_tensor import IMAGE_BYTES, MEMORY_BYTES
from tcsim.tma.map import TensorMap
from tcsim.tma.types import SWIZZLE_MODES

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
Candidate = Callable[[TensorMap, Bytes, int], Bytes]
"""What shared memory holds: the map, global memory, the shared address -> uint8 (IMAGE_BYTES,)."""

TILED = "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes"


@dataclass(frozen=True)
class Question:
    """One thing that is not known."""

    name: str  # letters and digits, "-" between them
    asked: str
    mnemonic: str
    maps: tuple[TensorMap, ...]
    candidates: tuple[tuple[str, Candidate], ...]
    counted: int  # bytes of a row, by which the barrier's count is tried: a wrong one hangs, or waits too little


def _placed(lines: npt.NDArray[np.uint8], pitch: int, address: int, swizzle: str) -> Bytes:
    """Lines (lines, bytes), `pitch` bytes apart, in poisoned shared memory, swizzled by their absolute address."""
    plain = address + np.arange(len(lines))[:, None] * pitch + np.arange(lines.shape[1])
    out = np.full(IMAGE_BYTES, POISON, np.uint8)
    out[np.asarray(SWIZZLE_MODES[swizzle](plain))] = lines  # type: ignore[arg-type]
    return out


def _contents(tmap: TensorMap, memory: Bytes, size: int) -> npt.NDArray[np.uint8]:
    """The rows (rows, bytes) that a modelled map would load from coordinates 0, in the order of the walk."""
    known = replace(tmap, swizzle="32B" if tmap.slice_bytes == 32 else "NONE")
    image = known.load(memory, (0,) * tmap.rank, np.zeros(IMAGE_BYTES, np.uint8))
    plain = np.arange(int(np.prod(tmap.loaded[1:])) * size)
    return image[np.asarray(SWIZZLE_MODES[known.swizzle](plain))].reshape(-1, size)  # type: ignore[arg-type]


def _slices(step: str, swizzled: bool) -> Candidate:
    """Interleaved: "packed" slices, each "slice" a span apart, or each "line" of slices along W a span apart."""

    def answer(tmap: TensorMap, memory: Bytes, address: int) -> Bytes:
        lines = _contents(tmap, memory, tmap.row_bytes)
        span, mode = SWIZZLE_MODES[tmap.swizzle].span, tmap.swizzle if swizzled else "NONE"
        if step == "line":
            return _placed(lines, max(span, tmap.row_bytes), address, mode)
        return _placed(
            lines.reshape(-1, tmap.slice_bytes), span if step == "slice" else tmap.slice_bytes, address, mode
        )

    return answer


def _interleaved(size: int, swizzle: str) -> tuple[TensorMap, ...]:
    """Lines of 1 to 16 slices along W, by the element stride: the box is a multiple of 16 bytes, which the driver wants."""
    return tuple(
        TensorMap(
            "UINT16",
            (16, 2, 6),
            (16 * size, 32 * size),
            (w, 1, n),
            (every, 1, 1),
            interleave=f"{size}B",
            swizzle=swizzle,
        )
        for w, every in ((8, 8), (8, 4), (8, 3), (8, 2), (8, 1), (16, 1))
        for n in (1, 2, 3)
    )


_SLICE_CANDIDATES = tuple(
    (f"{words}, {'swizzled' if swizzled else 'not swizzled'}", _slices(step, swizzled))
    for step, words in (
        ("packed", "slices packed"),
        ("slice", "slices a span apart"),
        ("line", "lines of W a span apart"),
    )
    for swizzled in (True, False)
)


def _questions() -> tuple[Question, ...]:
    return tuple(
        Question(f"interleave-{size}b-swizzle-{mode.lower()}", f"interleave {size}B with swizzle {mode}", TILED,
                 _interleaved(size, mode), _SLICE_CANDIDATES, size)
        for size, mode in ((16, "32B"), (16, "64B"), (16, "128B"), (32, "64B"), (32, "128B"))
    )  # fmt: skip


QUESTIONS: tuple[Question, ...] = _questions()
"""What an sm_90 could answer."""


def find(name: str) -> Question:
    """The question of a name.

    Raises ValueError if there is none.
    """
    for question in QUESTIONS:
        if question.name == name:
            return question
    raise ValueError(f"no question {name!r}; valid: {', '.join(item.name for item in QUESTIONS)}")


def inputs(question: Question) -> Inputs:
    """What hwkernels/probes/cp_async_bulk_tensor.py takes: coordinates 0, a shared address for each map."""
    count = len(question.maps)
    words = Stream("open question", question.name).words((count, MEMORY_BYTES // 8))
    rows = [int(np.prod(tmap.loaded)) for tmap in question.maps]
    return {
        "maps": np.stack([np.frombuffer(tmap.encode(0), np.uint8) for tmap in question.maps]),
        "coordinates": np.zeros((count, 5), np.int32),
        "offsets": np.zeros((count, 3), np.uint32),
        "address": np.arange(count, dtype=np.uint32) % 3 * 128,
        "memory": words.astype("<u8").view(np.uint8).reshape(count, MEMORY_BYTES),
        "expect": np.array(rows, np.uint32) * np.uint32(question.counted),
    }


def answers(question: Question) -> dict[str, Words]:
    """What each candidate says: words of shared memory (maps, IMAGE_BYTES // 4)."""
    given = inputs(question)
    return {
        name: np.stack(
            [
                candidate(tmap, memory, int(address))
                for tmap, memory, address in zip(question.maps, given["memory"], given["address"], strict=True)
            ]
        ).view("<u4")
        for name, candidate in question.candidates
    }


def report(question: Question, hardware: Words) -> str:
    """How many maps each candidate explains to the last byte."""
    found = {name: int((want == hardware).all(axis=1).sum()) for name, want in answers(question).items()}
    best = max(found.values())
    agree = [name for name, maps in found.items() if maps == best and best]
    return f"{question.asked}: of {len(hardware)} maps {best} are as {' or '.join(repr(name) for name in agree) or 'no candidate'}"


# --- recordings


def _path(question: Question, arch: str, root: Path) -> Path:
    return root / arch / f"open.{question.name}.npz"


def _digest(question: Question) -> str:
    given = inputs(question)
    return hashlib.sha256(b"".join(given[name].tobytes() for name in sorted(given))).hexdigest()


def record(question: Question, arch: str, hardware: Words, how: str, root: Path) -> Path:
    """Write what a GPU answered."""
    header: dict[str, Any] = {
        "schema": recordings.SCHEMA, "question": question.asked, "arch": arch, "how": how,
        "date": date.today().isoformat(), "inputs_sha256": _digest(question),
    }  # fmt: skip
    path = _path(question, arch, root)
    recordings.write_arrays(path, header, {"result": hardware})
    return path


def replay(question: Question, arch: str, root: Path) -> tuple[Words, str] | None:
    """A recorded answer and how it was made, or None.

    Raises RecordingError for a file that cannot be read, or one of other inputs.
    """
    path = _path(question, arch, root)
    if not path.exists():
        return None
    header, content = recordings.read_arrays(path)
    if header.get("inputs_sha256") != _digest(question):
        raise RecordingError(f"{path}: recorded with other inputs; record it again with --record")
    return content["result"], f"{header['how']}, {header['date']}"
