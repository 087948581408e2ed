"""The bits of a CUtensorMap: derived anew from the assembler, and from what CuTe DSL encodes."""

from __future__ import annotations

import csv
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given

import tcsim
from hwkernels.device.sass import disassemble
from hwkernels.device.toolchain import assemble
from tcsim.tma import bits
from tcsim.tma.rules import GlobalAddressError, GlobalDimError
from tcsim.tma.types import DATA_TYPES, INTERLEAVES, OOB_FILLS, SWIZZLE_MODES, NotModelledError, TensorMapError
from tests.support.extent import examples
from tests.support.tables import TABLES
from tests.support.tensor_cases import columns, tiled
from tests.unit.tcsim.tma.sass_machine import Machine

TARGETS = {"sm_90a": ("8.3", 0x210), "sm_100a": ("8.7", 0x380), "sm_103a": ("8.8", 0x380)}
"""PTX version that has every field of the target, and where its kernels' parameters begin."""

RANDOM = np.random.default_rng(90)
OLD = [bytes(128), bytes([255] * 128), RANDOM.bytes(128)]


def replacements(target: str) -> list[tuple[str, str, int | None, int | None]]:
    """Every tensormap.replace of a target: field, type, ordinal, immediate (None: a register)."""
    found: list[tuple[str, str, int | None, int | None]] = [
        ("global_address", "b64", None, None),
        ("rank", "b32", None, None),
    ]
    for name, count, kind in (
        ("box_dim", 5, "b32"),
        ("global_dim", 5, "b32"),
        ("global_stride", 4, "b64"),
        ("element_stride", 5, "b32"),
    ):
        found += [(name, kind, ordinal, None) for ordinal in range(count)]
    immediates = {
        "elemtype": 13 if target == "sm_90a" else 16,
        "interleave_layout": 3,
        "swizzle_mode": 5 if target == "sm_103a" else 4,
        "fill_mode": 2,
        "swizzle_atomicity": 0 if target == "sm_90a" else 4,
    }
    return found + [(name, "b32", None, value) for name, count in immediates.items() for value in range(count)]


@cache
def kernels(target: str) -> dict[tuple[str, int | None, int | None], tuple]:
    """Machine code of each replacement of a target, all assembled at once."""
    version, _ = TARGETS[target]
    text = f".version {version}\n.target {target}\n.address_size 64\n"
    names = {}
    for number, (name, kind, ordinal, value) in enumerate(replacements(target)):
        wide = kind == "b64"
        operand = str(value) if value is not None else "%wide" if wide else "%narrow"
        middle = f", {ordinal}" if ordinal is not None else ""
        register = "%wide" if wide else "%narrow"
        text += (
            f".visible .entry k{number}(.param .u32 at, .param .u{kind[1:]} value) {{\n"
            f".reg .b32 %at, %narrow; .reg .b64 %wide;\nld.param.u32 %at, [at];\nld.param.u{kind[1:]} {register}, [value];\n"
            f"tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [%at]{middle}, {operand};\nret; }}\n"
        )
        names[f"k{number}"] = (name, ordinal, value)
    functions = disassemble(assemble(text, target).cubin)
    return {names[item.name]: item.instructions for item in functions}


def replaced(target: str, key: tuple[str, int | None, int | None], old: bytes, value: int) -> bytes:
    """128 bytes after the machine code of one replacement."""
    base = TARGETS[target][1]
    wide = 8 if key[0] in ("global_address", "global_stride") else 4
    words = {base: 0, base + wide: value & 0xFFFFFFFF, base + wide + 4: value >> 32}
    return Machine(words, old).run(kernels(target)[key])


def expected(old: bytes, numbers: dict[str, int], rank: int = 5) -> bytes:
    """128 bytes with fields of the table set."""
    word = int.from_bytes(old, "little")
    fields = {item.name: item for item in bits.fields_of("", rank)}
    for name, number in numbers.items():
        word = word & ~fields[name].mask | fields[name].put(number)
    return word.to_bytes(128, "little")


@pytest.mark.parametrize("target", TARGETS)
def test_the_assembler_puts_numbers_where_the_table_does(target):
    numbers = {
        "global_address": [0, 0x7FFF12345670, (1 << 64) - 16],
        "rank": [0, 1, 2, 3, 4],  # one less than the rank
        "box_dim": [1, 2, 128, 255, 256],
        "global_dim": [1, 2, 1000, (1 << 32) - 1],
        "global_stride": [0, 16, 0x123456780, (1 << 40) - 16],
        "element_stride": [1, 2, 5, 8],
    }
    compared = 0
    for name, _, ordinal, immediate in replacements(target):
        if immediate is not None:
            continue
        field = {"global_stride": "global_strides", "element_stride": "element_strides"}.get(name, name)
        field += f"[{ordinal}]" if ordinal is not None else ""
        for old in OLD:
            for number in numbers[name]:
                want = {field: number + 1 if name == "rank" else number}
                if name == "global_address":
                    want["large_allocation"] = 0
                assert replaced(target, (name, ordinal, None), old, number) == expected(old, want), (name, ordinal)
                compared += 1
    assert compared == 3 * (3 + 5 + 5 * 5 + 5 * 4 + 4 * 4 + 5 * 4)


PTX_FIELDS = {
    "interleave_layout": ("interleave", INTERLEAVES.values()),
    "fill_mode": ("oob_fill", OOB_FILLS.values()),
    "swizzle_atomicity": ("swizzle_atomicity", {mode.atomicity for mode in SWIZZLE_MODES.values()}),
}


@pytest.mark.parametrize("target", TARGETS)
def test_the_assembler_encodes_types_and_modes_as_the_table_does(target):
    types = {row.ptx: bits.ELEMENT_CODES[name] for name, row in DATA_TYPES.items()}
    compared = 0
    for name, _, _, value in replacements(target):
        if value is None:
            continue
        for old in OLD:
            got = replaced(target, (name, None, value), old, 0)
            if name == "elemtype":
                code, rounding = types[value]
                # The assembler sets the rounding bit and never clears it: a map of tf32 made f16 keeps it.
                want = {"element_type": code} | ({"round_tf32": 1} if rounding else {})
            elif name == "swizzle_mode":
                want = {"swizzle_mode": value % 4, "swizzle_96": value // 4}
            else:
                field, values = PTX_FIELDS[name]
                assert value in values
                want = {field: value}
            assert got == expected(old, want), (name, value)
            compared += 1
    assert compared == 3 * {"sm_90a": 22, "sm_100a": 29, "sm_103a": 30}[target]


def test_every_field_of_the_table_is_someones():
    """Fields that say "machine code" are those that a replacement reaches."""
    reached = {
        {"global_stride": "global_strides", "element_stride": "element_strides", "elemtype": "element_type",
         "interleave_layout": "interleave", "fill_mode": "oob_fill"}.get(name, name)
        for name, *_ in replacements("sm_103a")
    } | {"round_tf32", "swizzle_96"}  # fmt: skip
    claimed = {re.sub(r"\[\d\]", "", item.name) for item in bits.fields_of("", 5) if "machine code" in item.source}
    assert claimed == reached


def test_fields_do_not_overlap():
    for kind, rank in (("", 5), ("im2col", 3), ("im2col", 4), ("im2col", 5)):
        used = 0
        for item in (*bits.fields_of(kind, rank), *bits.DERIVED):
            assert not used & item.mask, (kind, rank, item.name)
            used |= item.mask
            assert (item.low < 8 * bits.DESCRIBED) == (item not in bits.DERIVED)


DUMPS = list(csv.DictReader((TABLES / "cute_dsl_tensor_maps.csv").read_text().splitlines()))
"""What CuTe DSL 4.8.1 put into 64 bytes; `tox -e oracles` asks it again."""


def _tuple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split())


@pytest.mark.parametrize("dump", DUMPS, ids=[row["name"] for row in DUMPS])
def test_cute_dsl_encodes_the_same_bits(dump):
    if dump["pixels"]:
        tmap = tcsim.TensorMap.im2col(
            dump["data_type"], _tuple(dump["dims"]), _tuple(dump["strides"]), _tuple(dump["lower"]), _tuple(dump["upper"]),
            int(dump["channels"]), int(dump["pixels"]), _tuple(dump["every"]), swizzle=dump["swizzle"],
            l2_promotion="L2_128B",
        )  # fmt: skip
    else:
        tmap = tcsim.TensorMap(
            dump["data_type"], _tuple(dump["dims"]), _tuple(dump["strides"]), _tuple(dump["box"]), _tuple(dump["every"]),
            swizzle=dump["swizzle"], l2_promotion="L2_128B",
        )  # fmt: skip
    words = np.array([int(word, 16) for word in dump["words"].split()], "<u4")
    mine = tmap.encode(int(dump["address"], 16), dump["allocation"])[:64]
    assert (int.from_bytes(mine, "little") | 1 << 65).to_bytes(
        64, "little"
    ) == words.tobytes()  # a driver clears that bit
    assert tcsim.TensorMap.decode(words.tobytes()) == tmap
    assert tcsim.TensorMap.address_of(words.tobytes()) == int(dump["address"], 16)


@examples(300)
@given(tiled())
def test_tiled_maps_decode_to_themselves(case):
    address = 1 << 46 | 0x1230 << 5
    data = case.tmap.encode(address)
    assert (len(data), tcsim.TensorMap.decode(data), tcsim.TensorMap.address_of(data)) == (128, case.tmap, address)


@examples(150)
@given(columns())
def test_im2col_maps_decode_to_themselves(case):
    assert tcsim.TensorMap.decode(case.tmap.encode(0)[:64]) == case.tmap


MATRIX = tcsim.TensorMap("FLOAT16", (256, 128), (512,), (64, 64))


def test_what_cannot_be_encoded_or_decoded_is_named():
    with pytest.raises(GlobalAddressError, match="multiples of 16 bytes"):
        MATRIX.encode(0x1008)
    with pytest.raises(GlobalAddressError, match="multiples of 32 bytes"):
        tcsim.TensorMap("16U4_ALIGN16B", (128, 2), (64,), (128, 1)).encode(0x1010)
    with pytest.raises(TensorMapError, match="valid: SMALL, LARGE"):
        MATRIX.encode(0, "BIG")
    with pytest.raises(NotModelledError, match="im2col-wide"):
        tcsim.TensorMap.im2col_wide("FLOAT16", (64, 9, 3), (128, 1152), 0, 0, 64, 128).encode(0)
    data = bytearray(MATRIX.encode(0))
    with pytest.raises(TensorMapError, match="valid: 64 or 128"):
        tcsim.TensorMap.decode(bytes(data[:100]))
    data[63] = 1
    with pytest.raises(TensorMapError, match="bits 504 are set"):
        tcsim.TensorMap.decode(bytes(data))
    data[63], data[8] = 0, data[8] | 4
    with pytest.raises(TensorMapError, match="bits 66 are set"):
        tcsim.TensorMap.decode(bytes(data))
    data[8] ^= 4
    data[64] ^= 1
    with pytest.raises(TensorMapError, match="box_bytes is 8193: of this map it is 8192"):
        tcsim.TensorMap.decode(bytes(data))
    assert tcsim.TensorMap.decode(bytes(data), strict=False) == MATRIX
    with pytest.raises(TensorMapError, match="element type 15"):
        tcsim.TensorMap.decode(expected(MATRIX.encode(0), {"element_type": 15}))
    with pytest.raises(TensorMapError, match="atomicity 1"):
        tcsim.TensorMap.decode(expected(MATRIX.encode(0), {"swizzle_mode": 1, "swizzle_atomicity": 1}))
    with pytest.raises(GlobalDimError):
        tcsim.TensorMap.decode(expected(MATRIX.encode(0), {"element_type": 12, "global_dim[0]": 100}))
    for kind, rank, words in (
        (0, 6, "rank 6 of a map of kind tiled"),
        (1, 1, "rank 1 .* im2col"),
        (1, 2, "rank 2 .* im2col"),
    ):
        with pytest.raises(TensorMapError, match=words):
            tcsim.TensorMap.decode(expected(MATRIX.encode(0), {"im2col": kind, "rank": rank}))
    with pytest.raises(TensorMapError, match="swizzle_96=1: the driver has no enumerator"):
        tcsim.TensorMap.decode(expected(MATRIX.encode(0), {"swizzle_96": 1}))
    with pytest.raises(TensorMapError, match="interleave 3 does not exist"):
        tcsim.TensorMap.decode(expected(MATRIX.encode(0), {"interleave": 3}))


def test_every_bit_is_explained_or_reported():
    """Each of the 1,024 bits of a map, flipped: another map that encodes so, an error of a rule, or a line that names the bit."""
    maps = (
        MATRIX,
        tcsim.TensorMap("FLOAT32", (64,), (), (32,), swizzle="NONE"),
        tcsim.TensorMap.im2col(
            "FLOAT16", (64, 9, 14, 64), (128, 1152, 16128), (-1, -1), (-1, -1), 8, 64, swizzle="NONE"
        ),
    )
    free = {65, 85}  # what CuTe DSL sets, and the class of the allocation
    outcomes = {"map": 0, "refused": 0, "reported": 0, "free": 0}
    for tmap in maps:
        word = int.from_bytes(tmap.encode(0x10000), "little")
        for bit in range(1024):
            data = (word ^ 1 << bit).to_bytes(128, "little")
            try:
                found, lines = tcsim.TensorMap.decode(data, strict=False), tcsim.TensorMap.unexplained(data)
            except TensorMapError:
                outcomes["refused"] += 1
                continue
            if not lines:
                assert tcsim.TensorMap.decode(data) == found
                same = found.encode(tcsim.TensorMap.address_of(data)) == data
                assert same != (bit in free), bit
                outcomes["map" if same else "free"] += 1
                continue
            with pytest.raises(TensorMapError, match=re.escape(lines[0])):
                tcsim.TensorMap.decode(data)
            outcomes["reported"] += 1
    assert outcomes["free"] == len(maps) * len(free)
    assert sum(outcomes.values()) == len(maps) * 1024
    assert outcomes["reported"] > 1500 and outcomes["map"] > 200, outcomes


def test_bits_beyond_the_rank_are_reported():
    data = expected(
        MATRIX.encode(0), {"global_dim[2]": 9, "global_strides[1]": 32, "element_strides[4]": 2, "box_dim[3]": 5}
    )
    assert tcsim.TensorMap.unexplained(data) == tuple(
        f"{name}: the map has 2 dimensions"
        for name in ("global_strides[1] is 32", "global_dim[2] is 9", "element_strides[4] is 2", "box_dim[3] is 5")
    )
    stale = expected(MATRIX.encode(0), {"box_dim[1]": 32})  # as tensormap.replace leaves it
    assert tcsim.TensorMap.unexplained(stale) == ("box_bytes is 8192: of this map it is 4096",)
    assert tcsim.TensorMap.decode(stale[:64]) == tcsim.TensorMap.decode(stale, strict=False)
    first = MATRIX.encode(0)[:64]
    assert tcsim.TensorMap.unexplained(first + bytes(64)) == ()
    assert tcsim.TensorMap.unexplained(first + b"\1" + bytes(63))[0] == "box_bytes is 1: of this map it is 8192"
    assert bits.read(MATRIX.encode(0)).keys() - bits.read(first).keys() == {item.name for item in bits.DERIVED}
    other = (int.from_bytes(MATRIX.encode(0), "little") ^ 24 << 8 * 72 | 7 << 1000).to_bytes(128, "little")
    assert tcsim.TensorMap.unexplained(other) == (
        "shared_alignment is 1048: of this map it is 1024",
        "bits 1000-1002 are set, and what they mean is not known",
    )
    assert (
        "global address 0x8; valid: multiples of 16" in tcsim.TensorMap.unexplained(b"\x08" + MATRIX.encode(0)[1:])[0]
    )


DRIVER = list(csv.DictReader((TABLES / "driver_tensor_maps.csv").read_text().splitlines()))
"""What driver 580.159.04 made of maps on an NVIDIA H200 on 2026-11-20: the 128 bytes, or nothing for a map that it refused."""


def test_the_driver_encodes_and_refuses_the_same_maps():
    encoded = refused = 0
    for row in DRIVER:
        given = {
            name: _tuple(text) if name in _SEQUENCES else text
            for name, text in row.items()
            if name not in ("address", "data")
        }
        given |= {name: int(row[name]) for name in ("channels_per_pixel", "pixels_per_column")}
        if row["data"]:
            tmap = tcsim.TensorMap(**given)
            assert tmap.encode(int(row["address"], 16)) == bytes.fromhex(row["data"])
            assert tcsim.TensorMap.decode(bytes.fromhex(row["data"])) == tmap
            encoded += 1
        else:
            with pytest.raises(TensorMapError):
                tcsim.TensorMap(**given)
            refused += 1
    assert encoded >= 100 and refused >= 60


_SEQUENCES = (
    "global_dim",
    "global_strides",
    "box_dim",
    "element_strides",
    "pixel_box_lower_corner",
    "pixel_box_upper_corner",
)
