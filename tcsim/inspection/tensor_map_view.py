"""A tensor map as something to read: its fields, and the bytes of the driver's object, linked with the fields that they hold."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tcsim.inspection.report import Facts, Lines, Mark, Report, Table, table
from tcsim.tma.bits import BYTES, DERIVED, MapField, fields_of
from tcsim.tma.map import TensorMap

SHOWN_AS = MappingProxyType(
    {
        "element_type": "data_type", "round_tf32": "data_type", "rank": "global_dim", "swizzle_mode": "swizzle",
        "swizzle_atomicity": "swizzle", "swizzle_96": "swizzle", "shared_alignment": "swizzle", "box_bytes": "transaction_bytes",
        "im2col": "im2col_mode",
    }
)  # fmt: skip
"""The name that a reader sees for a field of the bytes, where it is another."""
_WORD, _LINE = 4, 16


def tensor_map_report(
    found: TensorMap, facts: Mapping[str, Any], raw: bytes = b"", unexplained: tuple[str, ...] = ()
) -> Report:
    """facts: names and what is said of them; raw: the bytes, if they are known; unexplained: what the bytes hold beside the map."""
    shown = tuple(
        (name, ", ".join(map(str, x)) if isinstance(x, tuple) else str(x))
        for name, x in facts.items()
        if x not in ("", ()) and (found.im2col_mode or x != 0)
    )
    fields = (*fields_of(found.im2col_mode, found.rank), *DERIVED) if raw else ()
    marks = tuple(_fact(name, text, fields) for name, text in shown) if raw else ()
    parts: list[Facts | Lines | Table] = [Facts(shown, marks=marks)]
    if raw:
        parts.append(_words(raw, fields))
    if unexplained:
        parts.append(Lines(unexplained, "Not explained by the map", style="bad", wrap=True))
    return Report(str(found), tuple(parts))


def _name(field: MapField) -> str:
    """What a reader sees of a field: the whole list for one of its numbers."""
    return SHOWN_AS.get(field.name, field.name.partition("[")[0])


def _places(field: MapField) -> list[int]:
    """The words that hold bits of a field."""
    return [place for place in range(BYTES // _WORD) if field.mask >> (32 * place) & 0xFFFFFFFF]


def _fact(name: str, text: str, fields: tuple[MapField, ...]) -> Mark:
    own = [field for field in fields if _name(field) == name]
    links = " ".join(f"word{place}" for place in sorted({place for field in own for place in _places(field)}))
    said = "; ".join(_bits(field) for field in own)
    return Mark(f"fact-{name}", f"{name} = {text}" + (f": {said}" if said else ": follows from the others"), links)


def _bits(field: MapField) -> str:
    last = field.low + field.bits - 1
    bits = f"bit {field.low}" if field.bits == 1 else f"bits {last}:{field.low}"
    return f"{field.name} in {bits}" + (f" and from bit {field.high}" if field.high is not None else "")


def _words(raw: bytes, fields: tuple[MapField, ...]) -> Table:
    number = int.from_bytes(raw, "little")
    rows, marks = [], []
    for line in range(0, len(raw), _LINE):
        places = range(line // _WORD, min(line + _LINE, len(raw)) // _WORD)
        rows.append((f"{line:#04x}", *(raw[_WORD * place : _WORD * (place + 1)].hex() for place in places)))
        marks.append((Mark(), *(_word(place, number, fields) for place in places)))
    return table(("byte", "+0", "+4", "+8", "+12"), rows, "Bytes", marks=tuple(marks))


def _word(place: int, number: int, fields: tuple[MapField, ...]) -> Mark:
    own = [field for field in fields if place in _places(field)]
    said = ", ".join(f"{field.name} = {field.take(number)}" for field in own) or "no field that is known"
    links = " ".join(dict.fromkeys(f"fact-{_name(field)}" for field in own))
    return Mark(f"word{place}", f"bytes {_WORD * place}-{_WORD * place + _WORD - 1}: {said}", links)
