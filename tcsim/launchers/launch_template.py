"""A launch file to begin with: the parameters of a kernel as its PTX, its C++ name and its source declare them, with guesses to correct."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

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
_WRITTEN = {
    "float": "f32", "double": "f64", "half": "f16", "nv_bfloat16": "bf16", "bool": "u8",
    "char": "s8", "signed char": "s8", "int8_t": "s8", "unsigned char": "u8", "uint8_t": "u8",
    "short": "s16", "int16_t": "s16", "unsigned short": "u16", "uint16_t": "u16",
    "int": "s32", "int32_t": "s32", "unsigned": "u32", "unsigned int": "u32", "uint32_t": "u32",
    "long": "s64", "long long": "s64", "int64_t": "s64", "unsigned long": "u64", "unsigned long long": "u64", "uint64_t": "u64", "size_t": "u64",
    **_NAMED,
}  # fmt: skip
"""Types as source writes them, on Linux."""
_NOT_TYPES = re.compile(r"\b(?:const|volatile|struct|__restrict__|__restrict|__grid_constant__|std::)(?:\b|(?<=::))")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARED = re.compile(r"(?P<type>[\w ]+?)\s*(?P<stars>[*\s]*)\b(?P<name>\w+)\s*(?P<array>(?:\[\w*\])?)", re.ASCII)
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


class Declared(NamedTuple):
    """What CUDA C++ says of a parameter."""

    text: str
    name: str
    pointer: bool
    format: str  # empty for a type that is not a number


def declared(source: str, name: str) -> list[Declared]:
    """The parameters of a kernel as its declaration in CUDA C++ has them.

    Empty if there is no such declaration, or one of its parameters is more than a type and a name.

    >>> declared('extern "C" __global__ void axpy(float a, const __half *__restrict__ x, unsigned n) {', "axpy")
    [Declared(text='float a', name='a', pointer=False, format='f32'), Declared(text='const __half *__restrict__ x', name='x', pointer=True, format='f16'), Declared(text='unsigned n', name='n', pointer=False, format='u32')]
    >>> declared("template <typename T> __global__ void f(Matrix<T> a)", "f"), declared("__global__ void g()", "f")
    ([], [])
    """
    found = re.search(rf"__global__[^;{{}}]{{0,1000}}?\b{re.escape(name)}\s*\(([^()]*)\)", _COMMENT.sub(" ", source))
    every = []
    for text in found[1].split(",") if found is not None and found[1].strip() else ():
        own = _DECLARED.fullmatch(_NOT_TYPES.sub(" ", text).strip())
        if own is None:
            return []
        kind = _WRITTEN.get(" ".join(own["type"].split()), "")
        every.append(Declared(" ".join(text.split()), own["name"], bool(own["stars"].strip() or own["array"]), kind))
    return every


def template(kernel: Any, file: str, source: str = "") -> str:
    """A launch file for a kernel of `tcsim.ptx`, in TOML. file: how the comment calls the kernel's file; source: its CUDA C++."""
    params = kernel.function.params
    mangled = re.match(r"_Z(\d+)", kernel.name)
    plain = kernel.name[mangled.end() :][: int(mangled[1])] if mangled else kernel.name
    alone = sum(own == plain or own.startswith(f"_Z{len(plain)}{plain}") for own in kernel.module.kernels) == 1
    written: list[Declared | None] = [*declared(source, plain)]
    told = parameters(kernel.name) or [(one.pointer, one.format) for one in written if one is not None]
    known: Sequence[tuple[bool, str] | None] = told if len(told) == len(params) else [None] * len(params)
    written = written if len(written) == len(params) else [None] * len(params)
    block = kernel.function.directives.get("reqntid") or kernel.function.directives.get("maxntid") or (128,)
    lines = [
        f"# A launch of {plain} in {printable(file)}. Guesses are marked with ?: correct them.",
        f'kernel = "{plain if alone else kernel.name}"',
        "grid = 1  # ?",
    ]
    lines.append(f"block = {list(block)}" + ("" if "reqntid" in kernel.function.directives else "  # ?"))
    if kernel.dynamic_smem:
        lines.append("dynamic_smem = 0  # ? bytes")
    arrays, entries, names = list[str](), list[str](), _names()
    for variable, own, one in zip(params, known, written, strict=True):
        entry, array = _parameter(variable, own, one, names)
        entries.append(f"    {entry}")
        arrays += array
    return "\n".join([*lines, "params = [", *entries, "]", *arrays, ""])


def _names() -> Iterator[str]:
    return (f"a{number}" for number in count())


def _parameter(
    variable: Any, own: tuple[bool, str] | None, written: Declared | None, names: Iterator[str]
) -> tuple[str, list[str]]:
    """The line of a parameter, and those of its array."""
    name = written.name if written is not None else ""
    size = CONTAINERS[variable.type].itemsize * max(variable.count or 1, 1)
    said = (
        f"  # {written.text}"
        if written is not None
        else f"  # {variable.name}, .{variable.type}" + (f" [{variable.count}]" if (variable.count or 1) > 1 else "")
    )
    if size == 128 and variable.align >= 64:
        name = name or next(names)
        shape = (
            'data_type = "FLOAT16", global_dim = [64, 64], global_strides = [128], box_dim = [64, 64], swizzle = "128B"'
        )
        return f'{{ tensor_map = "{name}", {shape} }},{said} ?', _array(name, "f16", "[64, 64]")
    pointer = own[0] if own is not None else variable.type in ("u64", "b64", "s64")
    if pointer and size == 8:
        name, kind = name or next(names), own[1] if own is not None and own[1] != "map" else ""
        return f'{{ pointer = "{name}" }},{said}' + ("" if own is not None else " ?"), _array(
            name, kind, f"[{ELEMENTS}]"
        )
    if (variable.count or 1) > 1:
        return f'{{ bytes = "{"00" * size}" }},{said} ?', []
    return f"{{ value = {'1.0' if variable.type in ('f32', 'f64') else ELEMENTS} }},{said} ?", []


def _array(name: str, kind: str, shape: str) -> list[str]:
    numbers = 'distribution = "normal"' if kind[:1] in ("", "f", "b", "e") else 'distribution = "integers"\nhigh = 100'
    return [
        "",
        f"[arrays.{name}]",
        f'format = "{kind}"' if kind else 'format = "f32"  # ?',
        f"shape = {shape}  # ?",
        numbers,
    ]
