"""Launch files: a launch in TOML, for `tcsim exec`. docs/exec.md has every key."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.core.array_files import open_file
from tcsim.core.errors import OperandError, TcsimError, listing, nearest, shortened
from tcsim.core.texts import parsed_toml
from tcsim.launchers.elements import NAMES, elements
from tcsim.launchers.factors import factors_of
from tcsim.launchers.job import Dim3, Job, MapOf, Pointer, Region
from tcsim.launchers.sources import source
from tcsim.launchers.toml_table import Table
from tcsim.ptx import Limits
from tcsim.tma.map import TensorMap

LARGEST_FILE = 1 << 20
MOST_BYTES = 1 << 30
"""Of all arrays of a launch, and what is expected of them."""
KEYS = (
    "kernel", "grid", "block", "cluster", "cooperative", "dynamic_smem", "arch", "schedule", "limits", "arrays", "params", "expected", "output",
    "product",
)  # fmt: skip
_DYNAMIC = re.compile(rb"\.extern\s++\.shared\s[^;]{0,200}?([\w$%.]{1,200})\s*\[\s*\]\s*;")
_MAPS: dict[str, Callable[..., TensorMap]] = {
    "tiled": TensorMap,
    "im2col": TensorMap.im2col,
    "im2col_wide": TensorMap.im2col_wide,
}


def read(path: str | os.PathLike[str], ptx: bytes) -> Job:
    """The launch that a file says, of a kernel of this PTX. Files that it names are looked for in its own folder.

    Raises OperandError, which names the key, for anything that is wrong in it, and FileNotFoundError if there is none.
    """
    table = _table(path)
    if (array := _DYNAMIC.search(ptx)) and not table.has("dynamic_smem"):
        valid = f"the bytes of {array[1].decode()}, whose size the PTX leaves to the launch; 0 if the kernel does not use it"
        raise table.wrong("dynamic_smem", valid, " is missing")
    return _job(table, Path(path).parent, ptx)


def arch_of(path: str | os.PathLike[str]) -> str | None:
    """The arch that a launch file says, if it does. Raises as `read`."""
    table = _table(path)
    return table.text("arch") if table.has("arch") else None


def _table(path: str | os.PathLike[str]) -> Table:
    name = shortened(Path(path).name, 100).strip("'")
    with open_file(path) as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise OperandError(f"{name} has more than {LARGEST_FILE} bytes; valid: numbers in .npy files beside it")
    return Table(parsed_toml(data, name), "", name)


def _job(table: Table, folder: Path, ptx: bytes) -> Job:
    table.only(KEYS)
    arrays = table.table("arrays")
    expected = table.table("expected")
    regions, left = [], MOST_BYTES
    for name in arrays.values:
        regions.append(_region(arrays.table(name), expected.table(name) if expected.has(name) else None, name, folder))
        left -= sum(len(own) for own in (regions[-1].before, regions[-1].expected) if own is not None)
        if left < 0:
            raise arrays.wrong(name, f"up to {MOST_BYTES} bytes in all arrays", " is too large")
    expected.only(arrays.values)
    names = [own.name for own in regions]
    sizes = {own.name: len(own.before) for own in regions}
    _are_tables(table)
    params = tuple(_param(own, names, sizes) for own in table.tables("params"))
    schedule = table.values.get("schedule", "late")
    if schedule not in ("late", "early") and (
        isinstance(schedule, bool) or not isinstance(schedule, int) or schedule < 0
    ):
        raise table.wrong("schedule", '"late", "early", or an integer seed from 0')
    return Job(
        ptx, params, tuple(regions), table.text("kernel") if table.has("kernel") else None, "", _dim3(table, "grid"), _dim3(table, "block"),
        _dim3(table, "cluster"), table.integer("dynamic_smem", 0), table.text("arch") if table.has("arch") else None, schedule,
        _limits(table.table("limits")), table.text("output") if table.has("output") else None, cooperative=_flag(table, "cooperative"),
        product=_product(table, names),
    )  # fmt: skip


def _product(table: Table, arrays: list[str]) -> str:
    text = table.text("product") if table.has("product") else ""
    names = [own.name for own in factors_of(text).values()]
    if text and (not names or not set(names) <= set(arrays)):
        raise table.wrong(
            "product", f'"d = a @ b", a .T behind what lies transposed, + c; arrays are {listing(arrays)}'
        )
    return text


def _flag(table: Table, key: str) -> bool:
    value = table.values.get(key, False)
    if not isinstance(value, bool):
        raise table.wrong(key, "true or false")
    return value


def _dim3(table: Table, key: str) -> Dim3:
    x, y, z = (*table.sizes(key, (1,), most=3), 1, 1)[:3]
    return x, y, z


def _limits(table: Table) -> Limits:
    table.only(own.name for own in fields(Limits))
    try:
        return Limits(**table.values)
    except TcsimError as error:
        raise OperandError(f"{table.file}: {error}") from None


def _region(table: Table, expected: Table | None, name: str, folder: Path) -> Region:
    kind, shape, codes = source(table, folder, ("address",))
    address = table.integer("address", None, 1) if table.has("address") else None
    if expected is None:
        return Region(name, kind, shape, kind.to_bytes(codes), address)
    wanted, size, want = source(expected, folder, ("ulp",), kind)
    if wanted.size(size) != kind.size(shape):
        raise expected.wrong("", f"{kind.size(shape)} bytes, as arrays.{name} has", f" has {wanted.size(size)} bytes")
    ulp = expected.integer("ulp", None, 0, 2**63 - 1) if expected.has("ulp") else None
    return Region(
        name, wanted, size if wanted != kind else shape, kind.to_bytes(codes), address, wanted.to_bytes(want), ulp
    )


# --- parameters


def _are_tables(table: Table) -> None:
    """The error for a bare number or name shows how to write it as a parameter."""
    given = table.values.get("params", [])
    for number, own in enumerate(given if isinstance(given, list) else ()):
        if isinstance(own, int | float | str):
            key, said = ("pointer", f'"{own}"') if isinstance(own, str) else ("value", str(own).lower())
            raise table.wrong(
                f"params[{number}]", f"{{ {key} = {shortened(said).strip(chr(39))} }}", f" is {shortened(own)}"
            )


def _param(table: Table, arrays: list[str], sizes: dict[str, int]) -> Any:
    kinds = [key for key in ("pointer", "value", "tensor_map", "bytes") if table.has(key)]
    if len(kinds) != 1:
        raise table.wrong("", "one of pointer, value, tensor_map, bytes", f" has {listing(kinds) or 'none of them'}")
    if kinds == ["value"]:
        return _scalar(table)
    if kinds == ["bytes"]:
        table.only(("bytes",))
        try:
            return bytes.fromhex(table.text("bytes"))
        except ValueError:
            raise table.wrong("bytes", "two hexadecimal digits for each byte") from None
    name = table.text(kinds[0])
    if name not in arrays:
        raise table.wrong(
            kinds[0],
            f"an array: nearest: {listing(nearest(name, arrays, 1)) or 'there is none'}; there are {listing(arrays) or 'none'}",
        )
    offset = table.integer("offset", 0, 0, sizes[name])
    if kinds == ["pointer"]:
        table.only(("pointer", "offset"))
        return Pointer(name, offset)
    make = _MAPS[table.text("kind", "tiled", _MAPS)]
    keys = list(signature(make).parameters)
    table.only(("tensor_map", "offset", "kind", *(key for key in keys if not key.startswith("im2col_"))))
    try:
        return MapOf(make(**{key: value for key, value in table.values.items() if key in keys}), name, offset)
    except TcsimError as error:
        raise OperandError(f"{table.file}: {table.where}: {error}") from None


def _scalar(table: Table) -> Any:
    table.only(("value", "type"))
    value = table.number("value")
    if not table.has("type"):
        return value
    kind = elements(table.text("type", None, NAMES), f"{table.file}: {table.place('type')}")
    try:
        return (
            kind.encoded(np.array([value], object if isinstance(value, int) and abs(value) >= 2**63 else None))
            .view(np.uint8)
            .tobytes()
        )
    except TcsimError as error:
        raise OperandError(f"{table.file}: {table.place('value')}={shortened(value)}: {error}") from None
