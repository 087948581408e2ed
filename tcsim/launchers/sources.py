"""Where the numbers of an array in a launch file come from: a file, a list, or a generator with a seed."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path

import numpy as np

from tcsim.core.array_files import ArrayFile
from tcsim.core.errors import OperandError, TcsimError, listing, shortened
from tcsim.launchers.elements import NAMES, Array, Elements, elements, elements_of
from tcsim.launchers.toml_table import Table

MOST_GENERATED = 1 << 24
"""Elements of an array that is generated: rounding them to a format takes microseconds each."""
Stream = np.random.Generator


def _integers(table: Table, stream: Stream, count: int, _: Elements) -> Array:
    low, high = table.integer("low", 0, -(2**63), 2**63 - 1), table.integer("high", None, -(2**63), 2**63 - 1)
    if high < low:
        raise table.wrong("high", f"an integer from low={low}")
    return stream.integers(low, high, count, endpoint=True)


def _codes(table: Table, stream: Stream, count: int, kind: Elements) -> Array:
    width = kind.format.bits if kind.format else kind.bits
    codes = stream.integers(0, (1 << width) - 1, count, np.uint64, endpoint=True)
    return (codes << np.uint64(kind.format.ignored_low_bits if kind.format else 0)).astype(kind.dtype)


def _uniform(table: Table, stream: Stream, count: int, _: Elements) -> Array:
    low, high = table.number("low", -1.0), table.number("high", 1.0)
    return low + (high - low) * stream.random(count)


def _normal(table: Table, stream: Stream, count: int, _: Elements) -> Array:
    return table.number("mean", 0.0) + table.number("deviation", 1.0) * stream.standard_normal(count)


def _range(table: Table, stream: Stream, count: int, _: Elements) -> Array:
    start, step = table.number("start", 0), table.number("step", 1)
    if any(isinstance(own, float) or abs(own) >= 1 << 62 for own in (start, step, start + step * count)):
        return float(start) + float(step) * np.arange(count)
    return start + step * np.arange(count)


def _constant(table: Table, stream: Stream, count: int, _: Elements) -> Array:
    return np.full(count, table.number("value"))


DISTRIBUTIONS: dict[str, tuple[Callable[[Table, Stream, int, Elements], Array], tuple[str, ...]]] = {
    "zeros": (lambda table, stream, count, kind: np.zeros(count, np.int64), ()),
    "constant": (_constant, ("value",)),
    "range": (_range, ("start", "step")),
    "integers": (_integers, ("low", "high")),
    "uniform": (_uniform, ("low", "high")),
    "normal": (_normal, ("mean", "deviation")),
    "codes": (_codes, ()),
}
"""Generators by name, and the keys that each takes besides format, shape and seed. The stream is NumPy's default_rng(seed)."""


_EVERY = (
    "file",
    "values",
    "distribution",
    "format",
    "shape",
    "name",
    "seed",
    *dict.fromkeys(key for _, keys in DISTRIBUTIONS.values() for key in keys),
)
Source = tuple[Elements, tuple[int, ...], Array]
"""The elements, the shape, and the codes in a row."""


def source(table: Table, folder: Path, also: tuple[str, ...] = (), default: Elements | None = None) -> Source:
    """The array that a table of a launch file says.

    also: other keys that the table may have. default: the elements if the table names none.

    Raises OperandError for a key or a value that is wrong, and for files as `ArrayFile` does.
    """
    given = [key for key in ("file", "values", "distribution") if table.has(key)]
    if not given:
        table.only((*_EVERY, *also))
    if len(given) != 1:
        said = f" has {listing(given)}" if given else " has no numbers"
        raise table.wrong("", "one of file, values, distribution", said)
    if given == ["file"]:
        table.only(("file", "name", "format", *also))
        return _of_file(table, folder, default)
    name = table.text("distribution", None, DISTRIBUTIONS) if table.has("distribution") else ""
    make, keys = DISTRIBUTIONS.get(name, (None, ()))
    own = ("values", "format", "shape") if make is None else ("distribution", "format", "shape", "seed", *keys)
    table.only((*own, *also))
    kind = (
        default
        if default is not None and not table.has("format")
        else elements(table.text("format", None, NAMES), table.place("format"))
    )
    if make is None:
        values = _listed(table)
        shape = table.sizes("shape", values.shape, least=0)
        if prod(shape) != values.size:
            raise table.wrong("shape", f"what has {values.size} elements, as values has")
        return _checked(table, kind, shape, _encoded(table, kind, values.reshape(-1)))
    shape = table.sizes("shape", least=0)
    if prod(shape) > MOST_GENERATED:
        raise table.wrong("shape", f"up to {MOST_GENERATED} elements; more in a file")
    with np.errstate(all="ignore"):  # infinities are numbers too
        numbers = make(table, np.random.default_rng(table.integer("seed", 0)), prod(shape), kind)
    return _checked(table, kind, shape, numbers if name == "codes" else _encoded(table, kind, numbers))


def _encoded(table: Table, kind: Elements, values: Array) -> Array:
    try:
        return kind.encoded(values)
    except TcsimError as error:
        raise OperandError(f"{table.file}: {table.where}: {error}") from None


def _listed(table: Table) -> Array:
    try:
        values = np.array(table.values["values"])
        big = values.dtype == object and all(isinstance(own, int) for own in values.reshape(-1))
        if values.dtype.kind not in "iuf" and not big:
            raise ValueError
        return values
    except ValueError:
        raise table.wrong("values", "a list of numbers, or of lists of one length") from None


def _of_file(table: Table, folder: Path, default: Elements | None) -> Source:
    path = folder / table.text("file")
    try:
        file = ArrayFile(path)
    except FileNotFoundError:
        raise table.wrong("file", "an .npy or .npz file; names are taken from the folder of the launch file") from None
    names = list(file)
    name = table.text("name", names[0] if len(names) == 1 else None, names)
    array = file[name]
    natural = elements_of(array.dtype, f"{table.file}: {table.place('file')}")
    kind = (
        elements(table.text("format", None, NAMES), table.place("format"))
        if table.has("format")
        else default or natural
    )
    both_integers = natural.natural.kind in "iu" and kind.natural.kind in "iu"
    codes_of_it = natural.name.startswith("u") or both_integers
    if natural != kind and not (codes_of_it and natural.dtype == kind.dtype):
        raise table.wrong(
            "file", f"an array of {kind.natural}, or of {kind.dtype} codes", f" holds {array.dtype}, not {kind.name}"
        )
    return _checked(table, kind, array.shape, np.ascontiguousarray(array).reshape(-1).view(kind.dtype))


def _checked(table: Table, kind: Elements, shape: tuple[int, ...], codes: Array) -> Source:
    """What was read, if its codes are codes and fill their bytes."""
    if prod(shape) * kind.bits % 8:
        raise table.wrong(
            "shape",
            f"a multiple of {8 // kind.bits} elements, which fill a byte",
            f" {shortened(shape)} of {kind.name}",
        )
    mask = kind.format.code_mask if kind.format else -1
    if kind.format is not None and codes.size and kind.format.bits < 8 and int(codes.max()) & ~mask:
        raise table.wrong(
            "", f"codes from 0 to {mask:#x}", f" has a code {int(codes.max()):#x}, which {kind.name} does not have"
        )
    return kind, shape, codes
