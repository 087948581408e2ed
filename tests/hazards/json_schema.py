"""The part of JSON Schema that our schemas use: what is wrong with a value, as paths and words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)
}  # fmt: skip
_KNOWN = {
    "$schema", "$defs", "$ref", "title", "description", "type", "required", "additionalProperties", "properties", "items", "const", "enum",
    "anyOf", "minimum", "minItems", "maxItems",
}  # fmt: skip


def wrong(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None, path: str = "$") -> Iterator[str]:
    """What does not fit; nothing if all does. A keyword that is not known here is a LookupError."""
    root = root or schema
    unknown = set(schema) - _KNOWN
    if unknown:
        raise LookupError(f"{path}: {sorted(unknown)}")
    if "$ref" in schema:
        yield from wrong(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
        return
    if "anyOf" in schema and all(list(wrong(value, own, root, path)) for own in schema["anyOf"]):
        yield f"{path}: fits none of anyOf"
    types = schema.get("type", list(_TYPES))
    kinds = [types] if isinstance(types, str) else types
    if not any(isinstance(value, _TYPES[kind]) and (kind == "boolean" or value is not True) for kind in kinds):
        yield f"{path}: {type(value).__name__} is not {types}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: {value} is below {schema['minimum']}"
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{path}: {len(value)} items"
        for number, item in enumerate(value):
            yield from wrong(item, schema.get("items", {}), root, f"{path}[{number}]")
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        yield from (f"{path}: no {name}" for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            if name not in known and others is False:
                yield f"{path}: {name} is not known"
                continue
            own = known.get(name, others if isinstance(others, dict) else {})
            yield from wrong(item, own, root, f"{path}.{name}")
