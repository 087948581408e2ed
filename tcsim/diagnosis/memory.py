"""Mistakes with operand tiles in shared memory: descriptor fields, swizzles, majors, the advance from step to step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import TcsimError
from tcsim.descriptors.matrix import CanonicalTile, Major, MatrixDescriptor, element_addresses
from tcsim.diagnosis.operands import changed
from tcsim.diagnosis.problem import Attempt, Codes, Problem
from tcsim.layouts.swizzle import SWIZZLES

Addresses = npt.NDArray[np.int64]
_MAJORS: tuple[Major, ...] = ("K", "MN")
_UNIT = 16  # bytes that one step of a descriptor's offsets means
_LATE = (16, 128, 1024)  # bytes by which a start address is off
_OFFSETS = {"leading_byte_offset": "LBO", "stride_byte_offset": "SBO"}
_SCALES = (
    ("a sixteenth: bytes given in units of 16 were encoded twice", 1, 16),
    ("16 times: bytes were put where units of 16 belong", 16, 1),
    ("half", 1, 2),
    ("twice", 2, 1),
    ("0", 0, 1),
)
"""How offsets are mistaken: in words, and as the fraction of the right one that they become."""


def attempts(problem: Problem) -> Iterator[Attempt]:
    """Descriptors that are wrong in one respect: those given, else those of every canonical tile. Only for wgmma."""
    if not hasattr(problem.machine.instruction, "fetch"):
        return
    if problem.memory is not None:
        for name in problem.memory.descriptors:
            yield from _rereadings(problem, name)
        return
    for name in "ab":
        for major in _MAJORS:
            for swizzle in SWIZZLES:
                tile = _tile(problem, name, major, swizzle)
                if tile is not None:
                    yield from _readings(problem, name, tile)


def _tile(problem: Problem, name: str, major: Major, swizzle: str) -> CanonicalTile | None:
    rows, k = (problem.a.shape[1:]) if name == "a" else (problem.b.shape[2], problem.b.shape[1])
    try:
        return MatrixDescriptor.for_tile(rows, k, problem.machine.formats[name], major, swizzle)
    except TcsimError:
        return None  # no such tile


def _readings(problem: Problem, name: str, tile: CanonicalTile) -> Iterator[Attempt]:
    right = tile.descriptor
    mode = next(key for key, pattern in SWIZZLES.items() if pattern == tile.swizzle)
    place = f"{name} {tile.major}-major, swizzle {mode}"
    leading, stride = right.leading_byte_offset, right.stride_byte_offset
    image = cache(partial(_image, problem, name, tile))

    def attempt(mistake: str, detail: str, advice: str, descriptor: MatrixDescriptor, **other: object) -> Attempt:
        said = f"{place}: {detail}" if detail else place
        return Attempt(
            f"{name}: {mistake}", said, advice, partial(_read, problem, name, tile, image, descriptor, other),
            name, (mistake, tile.major, mode, detail),
        )  # fmt: skip

    fields = f"the descriptor of {name} should have LBO {leading}, SBO {stride} bytes and swizzle {mode}"
    for mistake, detail, change in _changes(_OFFSETS):
        if change(right) != right:
            yield attempt(mistake, detail, fields, change(right))
    for other in SWIZZLES:
        if other != mode:
            whole = _tile(problem, name, tile.major, other)
            if whole is not None and replace(right, swizzle=other) != whole.descriptor:
                said = f"read as {other}, with the offsets of that mode"
                yield attempt("swizzle wrong", said, fields, whole.descriptor)
    if tile.swizzle.bits:
        for off in range(tile.swizzle.span, tile.swizzle.period, tile.swizzle.span):
            said = f"the swizzle acts on shared addresses: the buffer of {name} must start at a multiple of {tile.swizzle.period}"
            yield attempt("start off the swizzle's period", f"by {off} bytes", said, right, off=off)
        plain = f"{name} was written without the swizzle that its descriptor names"
        yield attempt("swizzle not applied to the data", "", plain, right, unswizzled=True)
    for late in _LATE:
        said = f"by {late} bytes: compare the descriptor of {name} with where its tile begins in shared memory"
        yield attempt("start address wrong", f"{late} bytes late", said, right, late=late)
    if tile.bits == 16:
        flip = f"trans_{name} must be {int(tile.major == 'MN')}"
        yield attempt("major flipped", "", flip, right, major="K" if tile.major == "MN" else "MN")
    if len(tile.advances) > 1:
        size = tile.bits // 8
        said = f"the start address of {name} moves by {tile.advances[1]} bytes for the second K step: see CanonicalTile.advances"
        for detail, advances in (
            ("no advance", [0 for _ in tile.advances]),
            ("elements for bytes", [x // size if size else x for x in tile.advances]),
            ("bytes for units of 16", [x * _UNIT for x in tile.advances]),
            ("always by the first step's bytes", [i * tile.advances[1] for i in range(len(tile.advances))]),
            ("twice the right one", [2 * x for x in tile.advances]),
            ("by a whole swizzle span", [i * tile.swizzle.span for i in range(len(tile.advances))]),
            ("by a group of 8 lines", [i * 8 * tile.swizzle.span for i in range(len(tile.advances))]),
        ):
            if tuple(advances) != tile.advances:
                yield attempt("K advance wrong", detail, said, right, advances=advances)


def _image(problem: Problem, name: str, tile: CanonicalTile) -> npt.NDArray[np.uint8]:
    """The bytes of an operand in a tile."""
    return tile.image(problem.a if name == "a" else problem.b.swapaxes(1, 2))


def _read(
    problem: Problem,
    name: str,
    tile: CanonicalTile,
    right: Callable[[], npt.NDArray[np.uint8]],
    descriptor: MatrixDescriptor,
    other: dict[str, Any],
) -> Problem | None:
    """The problem with the codes that a wrong descriptor reads from the right image."""
    image = right()
    if other.get("unswizzled"):  # as the layout lies without its swizzle
        image = np.take(image, tile.swizzle(np.arange(tile.bytes)), axis=1)  # contiguous, which an index is not
    advances = other.get("advances", tile.advances)
    major: Major = other.get("major", tile.major)
    wide = (problem.kept if name == "a" else problem.step) // tile.step  # a sparse instruction takes two of B's steps
    off, late = int(other.get("off", 0)), int(other.get("late", 0))
    starts = np.array(advances[::wide]) // _UNIT * _UNIT + off + late
    if starts.max() >= 1 << 18:
        return None
    try:
        value = replace(descriptor, start_address=0).encode()
    except TcsimError:
        return None
    values = np.uint64(value) + (starts // _UNIT).astype(np.uint64)  # in its lowest bits
    steps = element_addresses(values, tile.rows, tile.step * wide, tile.format, major)
    address = steps.swapaxes(0, 1).reshape(tile.rows, -1) - off
    found, inside = _gather(image, address, tile)
    lines: npt.NDArray[np.bool_] = np.asarray(
        inside.all(axis=1)
    )  # rows of A or columns of B that are read from the image alone
    if not lines.any():
        return None
    known = np.broadcast_to(lines[:, None] if name == "a" else lines, problem.observed.shape)
    read = changed(problem, name, found if name == "a" else np.ascontiguousarray(found.swapaxes(1, 2)))
    return replace(read, known=known)


def _gather(
    image: npt.NDArray[np.uint8], address: Addresses, tile: CanonicalTile
) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """The codes at byte addresses, and which lie inside the image: nobody knows what was outside."""
    size = max(1, tile.bits // 8)
    inside: npt.NDArray[np.bool_] = np.logical_and(address >= 0, address + size <= tile.bytes)
    address = np.where(inside, address, 0)
    if tile.bits < 8:
        shift = (np.arange(address.shape[1]) * tile.bits % 8).astype(np.uint8)
        codes = image[:, address] >> shift & np.uint8(tile.format.code_mask)
    else:  # whole elements: descriptors address units of 16 bytes
        codes = image.view(f"<u{size}")[:, address // size]
    return codes.astype(tile.format.dtype, copy=False), inside


def _rereadings(problem: Problem, name: str) -> Iterator[Attempt]:
    """What was meant, if what was sent is given; what was sent, if what was meant is."""

    def attempt(mistake: str, detail: str, advice: str, change: _Change, flip: bool = False) -> Attempt:
        made = partial(_reread, problem, name, change, flip)
        return Attempt(f"{name}: {mistake}", detail, advice, made, name, (mistake, detail))

    look = f"compare the descriptor of {name} field by field: MatrixDescriptor.decode(...).describe()"
    for mistake, detail, change in _changes({"start_address": "start address"} | _OFFSETS):
        yield attempt(mistake, detail, look, change)
    if problem.machine.formats[name].container_bits == 16:
        yield attempt("major flipped", "", f"look at trans_{name}", lambda given: given, flip=True)


_Change = Callable[[MatrixDescriptor], MatrixDescriptor]


def _changes(offsets: dict[str, str]) -> Iterator[tuple[str, str, _Change]]:
    """What may be wrong in a descriptor, in which form, and the change that makes it. offsets: fields that count bytes, and their names."""
    yield "LBO and SBO swapped", "", _swapped
    for field, short in offsets.items():
        for detail, number, over in _SCALES:
            yield f"{short} wrong", detail, partial(_scaled, field, number, over)
    for swizzle in SWIZZLES:
        yield "swizzle wrong", f"read as {swizzle}", partial(_swizzled, swizzle)


def _swapped(given: MatrixDescriptor) -> MatrixDescriptor:
    leading, stride = given.leading_byte_offset, given.stride_byte_offset
    return replace(given, leading_byte_offset=stride, stride_byte_offset=leading)


def _scaled(field: str, number: int, over: int, given: MatrixDescriptor) -> MatrixDescriptor:
    value: dict[str, Any] = {field: getattr(given, field) * number // over // _UNIT * _UNIT % (1 << 18)}
    return replace(given, **value)


def _swizzled(swizzle: str, given: MatrixDescriptor) -> MatrixDescriptor:
    return replace(given, swizzle=swizzle)


def _reread(problem: Problem, name: str, change: _Change, flip: bool) -> Problem | None:
    memory, multiply = problem.memory, problem.machine.instruction
    if memory is None:
        return None
    given = memory.descriptors[name]
    try:
        values = [change(MatrixDescriptor.decode(int(value), arch="sm_90")).encode() for value in given]
        sent = memory.descriptors | {name: np.array(values, np.uint64)}
        trans = memory.trans | ({name: 1 - memory.trans[name]} if flip else {})
        majors = trans.get("a", 0), trans["b"]
        a, b = multiply.fetch(memory.smem, sent.get("a", sent["b"]), sent["b"], *majors, *memory.signs)
    except TcsimError:
        return None  # no such descriptor, or it reads outside
    return changed(problem, name, a if name == "a" else np.ascontiguousarray(b))
