"""The driver's own encoder against `TensorMap.encode`, `TensorMap.decode` and the rules: random maps, and broken ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli.stream import Stream
from conformance.suite import recordings
from conformance.suite.recordings import RecordingError
from hwkernels.device import tensor_map as driver
from tcsim.tma.bits import BYTES, COMMON, DESCRIBED
from tcsim.tma.map import TensorMap
from tcsim.tma.rules import CORNER_BITS, stride_multiple
from tcsim.tma.types import DATA_TYPES, INTERLEAVES, L2_PROMOTIONS, SWIZZLE_MODES, TensorMapError

ENCODED, BROKEN = 1000, 600
"""Maps of each kind: to encode, and to break one rule of."""
KINDS = ("tiled", "im2col")

UNCOMPARED = "bit 85 (the driver's allocation class)"
"""What of the 128 bytes is not compared: it is the driver's promise on memory."""
MASK = np.full(BYTES, 0xFF, np.uint8)
_LARGE = next(item for item in COMMON if item.name == "large_allocation")
MASK[_LARGE.low // 8] &= ~(1 << _LARGE.low % 8) & 0xFF


@dataclass(frozen=True)
class Answers:
    """What a driver said: 128 bytes for each map, and which broken ones it refused."""

    encoded: npt.NDArray[np.uint8]  # (maps, 128); zeros for a map that it refused, though the rules take it
    refused: npt.NDArray[np.bool_]  # (broken maps,)


@dataclass(frozen=True)
class Verdict:
    """How answers compare with the model's."""

    compared: int
    lines: tuple[str, ...]  # one for each disagreement
    note: str


def random_maps(kind: str, arch: int, seed: int, count: int) -> list[tuple[TensorMap, int]]:
    """Maps that the rules take, with addresses that they can have."""
    stream = Stream("CUtensorMap", kind, arch >= 100, seed)
    out: list[tuple[TensorMap, int]] = []
    while len(out) < count:
        try:
            tmap = _map(kind, arch, stream)
        except TensorMapError:  # drawn beyond what goes together: draw again
            continue
        out.append((tmap, stride_multiple(tmap) * _below(stream, 1 << 40)))
    return out


def _below(stream: Stream, limit: int) -> int:
    """Numbers of every size below a limit, small and large ones alike."""
    word = int(stream.words((1,))[0])
    bits = 1 + int(stream.below(max(1, (limit - 1).bit_length()), (1,))[0])
    return word % min(limit, 1 << bits)


def _one(stream: Stream, low: int, high: int) -> int:
    return int(stream.between(low, high, (1,))[0])


def _pick(stream: Stream, values: Any) -> Any:
    values = list(values)
    return values[_one(stream, 0, len(values) - 1)]


def _map(kind: str, arch: int, stream: Stream) -> TensorMap:
    row = DATA_TYPES[_pick(stream, [name for name, t in DATA_TYPES.items() if arch >= 100 or not t.packed])]
    swizzle = _pick(stream, [name for name, mode in SWIZZLE_MODES.items() if arch >= 100 or not mode.atomicity])
    interleave = "NONE" if _one(stream, 0, 3) else _pick(stream, INTERLEAVES)
    span = SWIZZLE_MODES[swizzle].span or 256 * row.bits // 8
    rank = _one(stream, 3 if kind == "im2col" else 1, 5)
    multiple = row.dim_multiple
    dims = [
        multiple * (1 + _below(stream, (1 << 31) // multiple)),
        *(1 + _below(stream, 1 << 16) for _ in range(rank - 1)),
    ]
    unit, size = (32 if interleave == "32B" else row.address_multiple), -(-dims[0] * row.bits // 8)
    strides = []
    for extent in dims[1:]:
        stride = -(-size // unit) * unit + unit * _below(stream, 1 << 10)
        strides.append(stride)
        size = stride * extent
    step = 128 // row.bits
    width = row.box or step * _one(stream, 1, max(1, min(256, span * 8 // row.bits) // step))
    common: dict[str, Any] = {
        "data_type": row.name, "global_dim": dims, "global_strides": strides, "interleave": interleave, "swizzle": swizzle,
        "l2_promotion": _pick(stream, L2_PROMOTIONS),
        "oob_fill": "NAN_REQUEST_ZERO_FMA" if row.floating and _one(stream, 0, 1) else "NONE",
        "element_strides": [1, *(_one(stream, 1, 8) for _ in range(rank - 1))],
    }  # fmt: skip
    if kind == "tiled":
        most = 256 if _one(stream, 0, 1) else 256 >> rank  # half of them small, so that many fit into shared memory
        return TensorMap(**common, box_dim=(width, *(_one(stream, 1, most) for _ in range(rank - 1))))
    bits = CORNER_BITS[rank]
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    corners = [[_one(stream, low, high) for _ in range(rank - 2)] for _ in range(2)]
    return TensorMap.im2col(
        **common, pixel_box_lower_corner=corners[0], pixel_box_upper_corner=corners[1], channels_per_pixel=width,
        pixels_per_column=_one(stream, 1, 1024),
    )  # fmt: skip


# --- maps that break a rule

Change = Callable[[dict[str, Any], Stream], None]


def _set(name: str, *values: Any) -> Change:
    def change(given: dict[str, Any], stream: Stream) -> None:
        given[name] = _pick(stream, values)

    return change


def _entry(name: str, *values: int, first: int = 0, last: int | None = None) -> Change:
    def change(given: dict[str, Any], stream: Stream) -> None:
        entries = list(given[name])
        places = range(first, len(entries) if last is None else min(last, len(entries)))
        if places:
            entries[_pick(stream, places)] = _pick(stream, values)
        given[name] = tuple(entries)

    return change


def _dense(given: dict[str, Any], stream: Stream) -> None:
    given["element_strides"] = (1,) * len(given["global_dim"])


CHANGES: dict[str, tuple[Change, ...]] = {
    "tiled": (
        _entry("global_dim", 0, 1, (1 << 31) + 8, 1 << 32, (1 << 32) + 1),
        _entry("global_strides", 0, 8, 24, 16, 1 << 40, (1 << 40) - 16),
        _entry("box_dim", 0, 1, 256, 257, 1024),
        _entry("box_dim", 1, 3, 7, 9, 20, 100, last=1),
        _entry("element_strides", 0, 8, 9, 16, first=1),
        _set("swizzle", "32B", "64B", "128B", "NONE"),
        _set("interleave", "16B", "32B"),
        _set("oob_fill", "NAN_REQUEST_ZERO_FMA"),
        _set("data_type", "UINT8", "INT32", "FLOAT64", "BFLOAT16"),
        _dense,  # more elements, and perhaps too many
    ),
    "im2col": (
        _set("channels_per_pixel", 0, 1, 3, 256, 257),
        _set("pixels_per_column", 0, 1, 1024, 1025),
        _entry("pixel_box_lower_corner", -32769, -32768, -129, -128, -17, -16, 15, 16, 127, 128, 32767, 32768),
        _entry("pixel_box_upper_corner", -32769, -32768, -129, -128, -17, -16, 15, 16, 127, 128, 32767, 32768),
        _entry("global_strides", 0, 8, 1 << 40),
        _entry("element_strides", 0, 9, first=1),
        _set("swizzle", "32B", "64B", "128B", "NONE"),
        _set("oob_fill", "NAN_REQUEST_ZERO_FMA"),
    ),
}
"""What is changed in a good map, by kind; what comes out may be good still."""


def broken_maps(kind: str, arch: int, seed: int, count: int) -> list[dict[str, Any]]:
    """The fields of maps with one thing changed."""
    stream = Stream("CUtensorMap broken", kind, arch >= 100, seed)
    out = []
    for place, (tmap, _) in enumerate(random_maps(kind, arch, seed + 1, count)):
        given = dict(vars(tmap))
        CHANGES[kind][place % len(CHANGES[kind])](given, stream)
        out.append(given)
    return out


def refusal(given: dict[str, Any]) -> str:
    """Why TensorMap refuses fields, or nothing."""
    try:
        TensorMap(**given)
    except TensorMapError as error:
        return str(error)
    return ""


# --- asking and comparing


def ask(kind: str, arch: int, seed: int) -> Answers:
    """What the driver of this machine says; a context must be current.

    Raises hwkernels' CudaError or DriverUnavailable.
    """
    encoded = [_encoded(tmap, address) for tmap, address in random_maps(kind, arch, seed, ENCODED)]
    refused = [driver.refuses(driver.arguments_of(given)) for given in broken_maps(kind, arch, seed, BROKEN)]
    return Answers(np.stack(encoded), np.array(refused))


def _encoded(tmap: TensorMap, address: int) -> npt.NDArray[np.uint8]:
    """The driver's 128 bytes, or zeros if it refuses the map."""
    if driver.refuses(driver.arguments_of(vars(tmap)), address):
        return np.zeros(BYTES, np.uint8)
    return np.frombuffer(driver.driver_encode(tmap, address), np.uint8)


def judge(kind: str, arch: int, seed: int, answers: Answers) -> Verdict:
    """Compare a driver's answers with the model's, bit for bit but for what `UNCOMPARED` says."""
    maps = random_maps(kind, arch, seed, ENCODED)
    lines = []
    for place, ((tmap, address), data) in enumerate(zip(maps, answers.encoded, strict=True)):
        if not data.any():  # even a map of zeros has a size in bytes 72 to 75
            lines.append(f"MISMATCH map {place}: the driver refuses it, the rules take it: {tmap!r}, {address:#x}")
            continue
        want = np.frombuffer(tmap.encode(address), np.uint8)
        different = np.flatnonzero((data ^ want) & MASK)
        if different.size:
            first = int(different[0])
            lines.append(
                f"MISMATCH map {place}: byte {first}, driver {data[first]:#04x} model {want[first]:#04x}: {tmap!r}, {address:#x}"
            )
        elif (found := _decoded(data)) != tmap:
            lines.append(f"MISMATCH map {place}: the driver's bytes decode to {found}, not {tmap!r}")
    for place, (given, refused) in enumerate(
        zip(broken_maps(kind, arch, seed, BROKEN), answers.refused.tolist(), strict=True)
    ):
        why = refusal(given)
        if bool(why) != refused:
            lines.append(
                f"MISMATCH broken map {place}: the driver {'refuses' if refused else 'takes'} it; TensorMap: {why or given}"
            )
    large = sum(_LARGE.take(int.from_bytes(data[:DESCRIBED].tobytes(), "little")) for data in answers.encoded)
    note = f"not compared: {UNCOMPARED}, which was set in {large} maps"
    return Verdict(len(maps) * BYTES + len(answers.refused), tuple(lines), note)


def _decoded(data: npt.NDArray[np.uint8]) -> TensorMap | str:
    try:
        return TensorMap.decode(data.tobytes())
    except TensorMapError as error:
        return str(error)


# --- recordings


def _path(kind: str, arch: str, root: Path) -> Path:
    return root / arch / f"CUtensorMap.{kind}.npz"


def _digest(kind: str, arch: int, seed: int) -> str:
    text = repr((random_maps(kind, arch, seed, ENCODED), broken_maps(kind, arch, seed, BROKEN)))
    return hashlib.sha256(text.encode()).hexdigest()


def record(kind: str, arch: str, seed: int, answers: Answers, how: str, root: Path) -> Path:
    """Write a driver's answers."""
    header = {
        "schema": recordings.SCHEMA, "kind": kind, "arch": arch, "seed": seed, "how": how, "date": date.today().isoformat(),
        "inputs_sha256": _digest(kind, _number(arch), seed),
    }  # fmt: skip
    path = _path(kind, arch, root)
    refused = answers.refused.astype(np.uint8)
    recordings.write_arrays(path, header, {"encoded": answers.encoded, "refused": refused})
    return path


def replay(kind: str, arch: str, seed: int, root: Path) -> tuple[Answers, str] | None:
    """Recorded answers and how they were made, or None if there are none.

    Raises RecordingError for a file that cannot be read, or one of other maps.
    """
    path = _path(kind, arch, root)
    if not path.exists():
        return None
    header, content = recordings.read_arrays(path)
    if header.get("inputs_sha256") != _digest(kind, _number(arch), seed):
        raise RecordingError(
            f"{path}: recorded with other maps (seed {header.get('seed')}); record it again with --record"
        )
    return Answers(content["encoded"], content["refused"].astype(bool)), f"{header['how']}, {header['date']}"


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_"))


def arch_has_maps(arch: str) -> bool:
    """Tensor maps came with sm_90."""
    return _number(arch) >= 90
