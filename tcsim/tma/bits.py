"""The bits of a CUtensorMap: which field lies where, how its number is stored, and how we know.

The driver's manual calls the 128 bytes opaque. Three sources, which agree where two speak:

- the driver: all 128 bytes of 14,103 maps (4,701 tiled and im2col maps at three addresses each) that driver 580.159.04
  encoded on an NVIDIA H200 are what `encode` makes;
- the assembler: ptxas 13.5 turns every `tensormap.replace` into loads, masks, shifts and stores on the 128 bytes
  (`tests/unit/tcsim/tma/test_tensor_map_bits.py` assembles each and derives its bits anew);
- CuTe DSL 4.8.1 (nvidia-cutlass-dsl), whose `make_tiled_tma_atom` and `make_im2col_tma_atom` build the 64 bytes on a CPU
  (`tox -e oracles` asks it).

Two things only one of them does. Bit 65 is set in CuTe DSL's maps and clear in the driver's on an H200. Bytes 64 to 127
are written by the driver alone: the bytes of the box, and what its address in shared memory is to be a multiple of; the
rest is zeros. (For a 16U4_ALIGN16B map a driver was seen to write byte 73, NVIDIA/cutlass issue 3236: that is the latter.)
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy.typing as npt

from tcsim.tma.fields import TensorFields
from tcsim.tma.rules import CORNER_BITS, box_bytes, check_address
from tcsim.tma.types import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLE_MODES, NotModelledError, TensorMapError

Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]

BYTES = 128
DESCRIBED = 64
"""The bytes that describe the tensor: the first half. The second half follows from them."""

_PTXAS = "machine code of tensormap.replace"
_DSL = "CuTe DSL 4.8.1"
_DRIVER = "driver 580.159.04 on an NVIDIA H200"
_NOTES = "NVIDIA driver 595 release notes (clear bit 85 for small allocations); CuTe DSL 4.8.1"


@dataclass(frozen=True)
class MapField:
    """One field: the bit of the 1024 where it begins, and how a number is stored in it."""

    name: str
    low: int  # of the lowest bit; byte 8 begins at bit 64
    bits: int
    meaning: str
    source: str
    less: int = 0  # what is subtracted before it is stored
    unit: int = 1  # what it is divided by before it is stored
    high: int | None = None  # where further bits lie
    high_bits: int = 0

    def put(self, value: int) -> int:
        """The field's bits for a number."""
        stored = (value - self.less) // self.unit
        part = (stored & (1 << self.bits) - 1) << self.low
        if self.high is not None:
            part |= (stored >> self.bits & (1 << self.high_bits) - 1) << self.high
        return part

    def take(self, word: int) -> int:
        """The number that 1024 bits hold."""
        stored = word >> self.low & (1 << self.bits) - 1
        if self.high is not None:
            stored |= (word >> self.high & (1 << self.high_bits) - 1) << self.bits
        return stored * self.unit + self.less

    @property
    def mask(self) -> int:
        """The bits of the field."""
        return self.put((-1) * self.unit + self.less)


def _common() -> tuple[MapField, ...]:
    word = 8 * 8
    fields = [
        MapField("global_address", 0, 64, "address of the tensor", _PTXAS),
        MapField("im2col", word, 1, "0 tiled, 1 im2col", f"{_DRIVER}; {_DSL}"),
        MapField(
            "bit_65", word + 1, 1, "set by CuTe DSL 4.8.1, not by the driver; meaning not known", f"{_DRIVER}; {_DSL}"
        ),
        MapField("rank", word + 4, 3, "number of dimensions", _PTXAS, less=1),
        MapField("element_type", word + 7, 4, "number format: see ELEMENT_CODES", _PTXAS),
        MapField("interleave", word + 11, 2, "0 none, 1 16 bytes, 2 32 bytes", _PTXAS),
        MapField("swizzle_mode", word + 13, 2, "0 none, 1 32, 2 64, 3 128 bytes", _PTXAS),
        MapField("oob_fill", word + 15, 1, "1 fills with NaN", _PTXAS),
        MapField("round_tf32", word + 16, 1, "loads round to tf32", _PTXAS),
        MapField("l2_promotion", word + 17, 2, "0 none, 1 64, 2 128, 3 256 bytes", _DRIVER),
        MapField("swizzle_atomicity", word + 19, 2, "0 16, 1 32, 2 32 with flip, 3 64 bytes", _PTXAS),
        MapField("large_allocation", word + 21, 1, "the allocation has 128 KiB or more", _NOTES),
        MapField("swizzle_96", word + 22, 1, "swizzle of 96 bytes (sm_103)", _PTXAS),
    ]
    for place in range(4):
        fields.append(
            MapField(f"global_strides[{place}]", 8 * (12 + 4 * place), 32, "bytes", _PTXAS, unit=16,
                     high=8 * 28 + 4 * place, high_bits=4)
        )  # fmt: skip
    for place in range(5):
        fields.append(MapField(f"global_dim[{place}]", 8 * (32 + 4 * place), 32, "elements", _PTXAS, less=1))
    for place in range(5):
        fields.append(MapField(f"element_strides[{place}]", 8 * 52 + 3 * place, 3, "elements", _PTXAS, less=1))
    fields.append(MapField("box_dim[0]", 8 * 55, 8, "elements; channels per pixel of an im2col map", _PTXAS, less=1))
    return tuple(fields)


COMMON = _common()
"""The fields of every map."""

TILED = tuple(MapField(f"box_dim[{place}]", 8 * (55 + place), 8, "elements", _PTXAS, less=1) for place in range(1, 5))
"""The fields of tiled maps beside the common ones."""


def im2col_fields(rank: int) -> tuple[MapField, ...]:
    """The fields of im2col maps of a rank beside the common ones."""
    bits = CORNER_BITS[rank]
    fields = []
    for half, name in enumerate(("pixel_box_lower_corner", "pixel_box_upper_corner")):
        for place in range(rank - 2):
            low = 8 * 56 + 16 * half + bits * place
            fields.append(MapField(f"{name}[{place}]", low, bits, "signed, elements", f"{_DRIVER}; {_DSL}"))
    return (*fields, MapField("pixels_per_column", 8 * 60, 10, "pixels", f"{_DRIVER}; {_DSL}", less=1))


DERIVED = (
    MapField("box_bytes", 8 * 64, 32, "bytes of the box as the driver counts them: tcsim.tma.rules.box_bytes", _DRIVER),
    MapField("shared_alignment", 8 * 72, 32, "bytes: what the box's shared address is to be a multiple of", _DRIVER),
)
"""The fields of the second half, which the driver writes and CuTe DSL and tensormap.replace leave alone."""

SHARED_ALIGNMENTS: MappingProxyType[int, int] = MappingProxyType({0: 16, 32: 256, 64: 512, 128: 1024})
"""Field `shared_alignment` by the span of the swizzle: where its pattern begins anew."""

KINDS: MappingProxyType[str, int] = MappingProxyType({"": 0, "im2col": 1})
"""Field `im2col` by TensorMap.im2col_mode. How im2col-wide maps differ is not known."""

ELEMENT_CODES: MappingProxyType[str, tuple[int, int]] = MappingProxyType(
    {
        "UINT8": (0, 0),
        "UINT16": (1, 0),
        "UINT32": (2, 0),
        "INT32": (3, 0),
        "UINT64": (4, 0),
        "INT64": (5, 0),
        "FLOAT16": (6, 0),
        "FLOAT32": (7, 0),
        "FLOAT32_FTZ": (8, 0),
        "FLOAT64": (9, 0),
        "BFLOAT16": (10, 0),
        "TFLOAT32": (7, 1),  # FLOAT32, rounded
        "TFLOAT32_FTZ": (8, 1),  # FLOAT32_FTZ, rounded
        "16U4_ALIGN8B": (11, 0),
        "16U4_ALIGN16B": (12, 0),
        "16U6_ALIGN16B": (13, 0),
    }
)
"""Fields `element_type` and `round_tf32` by data type: neither the driver's numbers nor PTX's."""


def fields_of(kind: str, rank: int) -> tuple[MapField, ...]:
    """The fields of a map of a kind ("" is tiled) and rank."""
    return (*COMMON, *(im2col_fields(rank) if kind == "im2col" else TILED))


def encode(tmap: TensorFields, global_address: int, allocation: str = "SMALL") -> bytes:
    """See `TensorMap.encode`."""
    if tmap.im2col_mode not in KINDS:
        raise NotModelledError(f"{tmap}.encode: not modelled: the bits of im2col-wide maps are not known")
    if allocation not in ("SMALL", "LARGE"):
        raise TensorMapError(f"{tmap}.encode: allocation={allocation!r}; valid: SMALL, LARGE")
    check_address(tmap, global_address)
    numbers = _numbers(tmap) | {"global_address": global_address, "large_allocation": int(allocation == "LARGE")}
    word = 0
    for item in (*fields_of(tmap.im2col_mode, tmap.rank), *DERIVED):
        word |= item.put(numbers.get(item.name, item.less))
    return word.to_bytes(BYTES, "little")


def _numbers(tmap: TensorFields) -> dict[str, int]:
    """The numbers of the fields that a map fills, but for its address and allocation."""
    mode = SWIZZLE_MODES[tmap.swizzle]
    code, rounding = ELEMENT_CODES[tmap.data_type]
    numbers: dict[str, int] = {
        "im2col": KINDS[tmap.im2col_mode],
        "rank": tmap.rank,
        "element_type": code,
        "round_tf32": rounding,
        "interleave": INTERLEAVES[tmap.interleave],
        "swizzle_mode": mode.mode,
        "swizzle_atomicity": mode.atomicity,
        "oob_fill": OOB_FILLS[tmap.oob_fill],
        "l2_promotion": L2_PROMOTIONS[tmap.l2_promotion],
        "box_bytes": box_bytes(tmap),
        "shared_alignment": SHARED_ALIGNMENTS[mode.span],
    }
    lists: dict[str, tuple[int, ...]] = {
        "global_strides": tmap.global_strides,
        "global_dim": tmap.global_dim,
        "element_strides": tmap.element_strides,
    }
    if tmap.im2col_mode:
        lists |= {name: getattr(tmap, name) for name in ("pixel_box_lower_corner", "pixel_box_upper_corner")}
        numbers |= {"box_dim[0]": tmap.channels_per_pixel, "pixels_per_column": tmap.pixels_per_column}
    else:
        lists["box_dim"] = tmap.box_dim
    return numbers | {f"{name}[{place}]": value for name, values in lists.items() for place, value in enumerate(values)}


def read(data: Buffer) -> dict[str, int]:
    """Every field of 64 or 128 bytes by name; of 128 those of the second half, too.

    Raises TensorMapError for another length, or another kind of map.
    """
    raw = _raw(data)
    word = int.from_bytes(raw, "little")
    common = {item.name: item.take(word) for item in COMMON}
    kind, rank = "im2col" if common["im2col"] else "", common["rank"]
    if rank > 5 or (kind and rank < 3):
        raise TensorMapError(f"TensorMap.decode: rank {rank} of a map of kind {kind or 'tiled'}")
    known = (*fields_of(kind, rank), *(DERIVED if len(raw) == BYTES else ()))
    return {item.name: item.take(word) for item in known}


def _raw(data: Buffer) -> bytes:
    try:
        raw = memoryview(data).tobytes()  # type: ignore[arg-type]  # NumPy's arrays have a buffer; mypy knows from 3.12 on
    except TypeError:
        raise TensorMapError(
            f"TensorMap.decode: a {type(data).__name__}; valid: {DESCRIBED} or {BYTES} bytes, as bytes, bytearray or array"
        ) from None
    if len(raw) not in (DESCRIBED, BYTES):
        raise TensorMapError(
            f"TensorMap.decode: {len(raw)} bytes of {type(data).__name__}; valid: {DESCRIBED} or {BYTES} bytes"
        )
    return raw


def unexplained(tmap: TensorFields, data: Buffer) -> tuple[str, ...]:
    """What bytes that decode to a map say beyond it: one line for each field or group of bits.

    These are the bits in which the bytes differ from those that the driver makes of the map at their address. Bit 65 and the
    class of the allocation may be either; a second half of zeros says nothing, as CuTe DSL leaves it.
    """
    raw = _raw(data)
    word = int.from_bytes(raw, "little")
    numbers, lines = _numbers(tmap), []
    fields = fields_of(tmap.im2col_mode, tmap.rank)
    try:
        check_address(tmap, COMMON[0].take(word))
    except TensorMapError as error:
        lines.append(str(error))
    for item in fields:
        if item.name not in _EITHER and word & item.mask != item.put(numbers.get(item.name, item.less)):
            lines.append(f"{item.name} is {item.take(word)}: the map has {tmap.rank} dimensions")
    half = 8 * DESCRIBED
    known = sum(item.mask for item in fields)
    if word >> half:
        known |= sum(item.mask for item in DERIVED)
        for item in DERIVED:
            if item.take(word) != numbers[item.name]:
                lines.append(f"{item.name} is {item.take(word)}: of this map it is {numbers[item.name]}")
    if left := word & ~known:
        lines.append(f"bits {_ranges(left)} are set, and what they mean is not known")
    return tuple(lines)


_EITHER = ("global_address", "bit_65", "large_allocation")


def _ranges(bits: int) -> str:
    """The places of the set bits: "3, 5-7"."""
    found, place = [], 0
    while bits >> place:
        if not bits >> place & 1:
            place += 1
            continue
        first = place
        while bits >> place & 1:
            place += 1
        found.append(str(first) if place == first + 1 else f"{first}-{place - 1}")
    return ", ".join(found)


def decode(data: Buffer) -> dict[str, Any]:
    """The arguments of `TensorMap` that 64 or 128 bytes say. Raises as `TensorMap.decode`."""
    found = read(data)
    rank, im2col = found["rank"], bool(found["im2col"])
    codes = {code: name for name, code in ELEMENT_CODES.items()}
    modes = {(mode.mode, mode.atomicity): name for name, mode in SWIZZLE_MODES.items()}
    code, swizzle = (found["element_type"], found["round_tf32"]), (found["swizzle_mode"], found["swizzle_atomicity"])
    if code not in codes:
        raise TensorMapError(f"TensorMap.decode: element type {code[0]} with round_tf32={code[1]} is not a data type")
    if found["swizzle_96"] or swizzle not in modes:
        raise TensorMapError(
            f"TensorMap.decode: swizzle mode {swizzle[0]}, atomicity {swizzle[1]}, swizzle_96={found['swizzle_96']}: the driver has "
            "no enumerator for it"
        )
    if found["interleave"] == 3:
        raise TensorMapError("TensorMap.decode: interleave 3 does not exist")

    def several(name: str, count: int) -> tuple[int, ...]:
        return tuple(found[f"{name}[{place}]"] for place in range(count))

    arguments: dict[str, Any] = {
        "data_type": codes[code],
        "global_dim": several("global_dim", rank),
        "global_strides": several("global_strides", rank - 1),
        "element_strides": several("element_strides", rank),
        "interleave": list(INTERLEAVES)[found["interleave"]],
        "swizzle": modes[swizzle],
        "oob_fill": list(OOB_FILLS)[found["oob_fill"]],
        "l2_promotion": list(L2_PROMOTIONS)[found["l2_promotion"]],
    }
    if not im2col:
        return arguments | {"box_dim": several("box_dim", rank)}
    for name in ("pixel_box_lower_corner", "pixel_box_upper_corner"):
        arguments[name] = tuple(_signed(value, CORNER_BITS[rank]) for value in several(name, rank - 2))
    pixels = {"channels_per_pixel": found["box_dim[0]"], "pixels_per_column": found["pixels_per_column"]}
    return arguments | pixels | {"im2col_mode": "im2col"}


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
