"""A launch file to begin with: the parameters of a kernel as its PTX and its C++ name declare them, with guesses to correct."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from tcsim.core.errors import printable
from tcsim.isa.scalar.table import CONTAINERS

ELEMENTS = 1024
"""Of an array whose size nothing says."""
_CODES = {
    "f": "f32", "d": "f64", "i": "s32", "j": "u32", "l": "s64", "m": "u64", "x": "s64", "y": "u64", "c": "s8", "a": "s8", "h": "u8", "s": "s16",
    "t": "u16", "b": "u8", "v": "u8",
}  # fmt: skip
"""Types by their letters in the names of C++ functions. Source: Itanium C++ ABI, 5.1.5, Type encodings."""
_NAMED = {
    "__half": "f16", "__nv_bfloat16": "bf16", "__nv_fp8_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2", "CUtensorMap": "map", "CUtensorMap_st": "map",
    "__half2": "f16", "__nv_bfloat162": "bf16", "float4": "f32", "float2": "f32", "int4": "s32", "uint4": "u32", "int2": "s32", "uint2": "u32",
}  # fmt: skip
"""Types of CUDA's headers by name."""
_TOKEN = re.compile(r"(?P<how>[PKVrRO])|S(?P<again>[0-9A-Z]*)_|(?P<letter>[a-z])|(?P<length>[1-9]\d*)")


def parameters(name: str) -> list[tuple[bool, str]] | None:
    """What the mangled name of a C++ function says of its parameters: whether each is a pointer, and the format; None where it says nothing.

    >>> parameters("_Z5scalePKfPfi")
    [(True, 'f32'), (True, 'f32'), (False, 's32')]
    >>> parameters("_Z4gemm11CUtensorMapS_P6__half")
    [(False, 'map'), (False, 'map'), (True, 'f16')]
    """
    head = re.match(r"_Z(\d+)", name)
    if head is None:
        return None
    at, kept, found = head.end() + int(head[1]), list[tuple[bool, str]](), list[tuple[bool, str]]()
    while at < len(name):
        began, how = at, list[bool]()  # where each word before the type itself begins
        while (token := _TOKEN.match(name, at)) and token["how"]:
            how.append(token["how"] in "PRO")
            at = token.end()
        if token is None:
            return None
        at = token.end()
        if token["again"] is not None:
            place = int(token["again"], 36) + 1 if token["again"] else 0
            if place >= len(kept):
                return None
            pointer, kind = kept[place]
        elif token["letter"]:
            pointer, kind = False, _CODES.get(token["letter"], "")
        else:
            word = name[at : at + int(token["length"])]
            at += len(word)
            pointer, kind = False, _NAMED.get(word, "")
            kept.append((pointer, kind))
        for own in reversed(how):
            pointer = pointer or own
            kept.append((pointer, kind))
        if began == at:
            return None
        found.append((pointer, kind))
    return found


def template(kernel: Any, file: str) -> str:
    """A launch file for a kernel of `tcsim.ptx`, in TOML. file: how the comment calls the kernel's file."""
    told = parameters(kernel.name)
    params = kernel.function.params
    known: Sequence[tuple[bool, str] | None] = (
        told if told is not None and len(told) == len(params) else [None] * len(params)
    )
    block = kernel.function.directives.get("reqntid") or kernel.function.directives.get("maxntid") or (128,)
    lines = [
        f"# A launch of {kernel.name} in {printable(file)}. Guesses are marked with ?: correct them.",
        f'kernel = "{kernel.name}"',
        "grid = 1  # ?",
    ]
    lines.append(f"block = {list(block)}" + ("" if "reqntid" in kernel.function.directives else "  # ?"))
    if kernel.dynamic_smem:
        lines.append("dynamic_smem = 0  # ? bytes")
    arrays, entries, names = list[str](), list[str](), _names()
    for variable, own in zip(params, known, strict=True):
        entry, array = _parameter(variable, own, names)
        entries.append(f"    {entry}")
        arrays += array
    return "\n".join([*lines, "params = [", *entries, "]", *arrays, ""])


def _names() -> Iterator[str]:
    return (f"a{number}" for number in count())


def _parameter(variable: Any, own: tuple[bool, str] | None, names: Iterator[str]) -> tuple[str, list[str]]:
    """The line of a parameter, and those of its array."""
    size = CONTAINERS[variable.type].itemsize * max(variable.count or 1, 1)
    said = f"  # {variable.name}, .{variable.type}" + (f" [{variable.count}]" if (variable.count or 1) > 1 else "")
    if size == 128 and variable.align >= 64:
        name = next(names)
        shape = (
            'data_type = "FLOAT16", global_dim = [64, 64], global_strides = [128], box_dim = [64, 64], swizzle = "128B"'
        )
        return f'{{ tensor_map = "{name}", {shape} }},{said} ?', _array(name, "f16", "[64, 64]")
    pointer = own[0] if own is not None else variable.type in ("u64", "b64", "s64")
    if pointer and size == 8:
        name, kind = next(names), own[1] if own is not None and own[1] != "map" else ""
        return f'{{ pointer = "{name}" }},{said}' + ("" if own is not None else " ?"), _array(
            name, kind, f"[{ELEMENTS}]"
        )
    if (variable.count or 1) > 1:
        return f'{{ bytes = "{"00" * size}" }},{said} ?', []
    return f"{{ value = {'1.0' if variable.type in ('f32', 'f64') else ELEMENTS} }},{said} ?", []


def _array(name: str, kind: str, shape: str) -> list[str]:
    numbers = 'distribution = "normal"' if kind[:1] in ("", "f", "b", "e") else 'distribution = "range"'
    return [
        "",
        f"[arrays.{name}]",
        f'format = "{kind}"' if kind else 'format = "f32"  # ?',
        f"shape = {shape}  # ?",
        numbers,
    ]
