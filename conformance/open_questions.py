"""Tensor copies that no source determines: what a GPU makes of them, told next to candidates. Nothing here can pass.

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

from conformance import recordings
from conformance.exercises import Inputs
from conformance.recordings import RecordingError
from conformance.stream import Stream
from hwkernels.driver import POISON
from hwkernels.probes.tensor_copy import IMAGE_BYTES, MEMORY_BYTES
from tcsim.tensor_map import TensorMap
from tcsim.tensor_types import SWIZZLE_MODES

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
Candidate = Callable[[TensorMap, Bytes, int], Bytes]
"""What shared memory holds: the map, global memory, the shared address -> uint8 (IMAGE_BYTES,)."""

TILED = "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
IM2COL = "cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes"


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
    """Lines (lines, bytes) so many bytes apart in poisoned shared memory, swizzled by their absolute address."""
    plain = address + np.arange(len(lines))[:, None] * pitch + np.arange(lines.shape[1])
    out = np.full(IMAGE_BYTES, POISON, np.uint8)
    out[np.asarray(SWIZZLE_MODES[swizzle](plain))] = lines  # type: ignore[arg-type]
    return out


def _contents(tmap: TensorMap, memory: Bytes, size: int) -> Bytes:
    """The rows (rows, bytes) that a modelled map would load from coordinates 0 into packed shared memory."""
    rows = tmap.loaded[1] if tmap.im2col_mode else int(np.prod(tmap.loaded[1:]))
    image = tmap.load(memory, (0,) * tmap.rank, np.zeros(IMAGE_BYTES, np.uint8))
    return image[: rows * size].reshape(rows, size)


def _slices(step: str, swizzled: bool) -> Candidate:
    """Interleaved: "packed" slices, each "slice" a span apart, or each "line" of slices along W a span apart."""

    def answer(tmap: TensorMap, memory: Bytes, address: int) -> Bytes:
        lines = _contents(replace(tmap, swizzle="NONE"), memory, tmap.row_bytes)
        span, mode = SWIZZLE_MODES[tmap.swizzle].span, tmap.swizzle if swizzled else "NONE"
        if step == "line":
            return _placed(lines, max(span, tmap.row_bytes), address, mode)
        return _placed(
            lines.reshape(-1, tmap.slice_bytes), span if step == "slice" else tmap.slice_bytes, address, mode
        )

    return answer


def _short(pitch: int, filled: bool) -> Candidate:
    """im2col rows of no multiple of 16 bytes: packed (0) or at a pitch, with the next channels behind them or without."""

    def answer(tmap: TensorMap, memory: Bytes, address: int) -> Bytes:
        size = tmap.channels_per_pixel * tmap.type.bits // 8
        most = -(-size // 16) * 16
        whole = _contents(replace(tmap, channels_per_pixel=most * 8 // tmap.type.bits), memory, most)
        return _placed(
            whole if filled else whole[:, :size], (-(-size // pitch) * pitch) if pitch else size, address, "NONE"
        )

    return answer


def _interleaved(swizzle: str) -> tuple[TensorMap, ...]:
    return tuple(
        TensorMap("UINT8", (16, 2, 6), (256, 512), (w, 1, n), interleave="16B", swizzle=swizzle)
        for w in (1, 2, 3, 4, 8, 16)
        for n in (1, 2, 3)
    )


def _short_rows(data_type: str, channels: int) -> tuple[TensorMap, ...]:
    return tuple(
        TensorMap.im2col(data_type, (64, 8, 3), (256, 2048), (0,), (0,), channels, pixels, swizzle="NONE")
        for pixels in (1, 2, 3, 5, 8, 16)
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
_ROW_CANDIDATES = (
    ("rows packed", _short(0, False)),
    ("rows at multiples of 16 bytes, gaps kept", _short(16, False)),
    ("rows rounded up to 16 bytes of channels", _short(16, True)),
)


def _questions() -> tuple[Question, ...]:
    out = [
        Question(f"interleave-16b-swizzle-{mode.lower()}", f"interleave 16B with swizzle {mode}", TILED, _interleaved(mode),
                 _SLICE_CANDIDATES, 16)
        for mode in ("32B", "64B", "128B")
    ]  # fmt: skip
    for data_type, channels, size in (("UINT8", 3, 3), ("FLOAT16", 4, 8), ("FLOAT32", 5, 20)):
        for counted in (size, -(-size // 16) * 16):
            out.append(
                Question(f"im2col-rows-{size}-bytes-counted-{counted}",
                         f"im2col rows of {size} bytes, of which the barrier expects {counted}", IM2COL,
                         _short_rows(data_type, channels), _ROW_CANDIDATES, counted)
            )  # fmt: skip
    return tuple(out)


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
    """What hwkernels/probes/tensor_copy.py takes: coordinates 0, a shared address for each map."""
    count = len(question.maps)
    words = Stream("open question", question.name).words((count, MEMORY_BYTES // 8))
    rows = [int(np.prod(tmap.loaded[0 if tmap.slice_bytes else 1 :])) for tmap in question.maps]
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


def told(question: Question, hardware: Words) -> str:
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
