"""How CUDA C++ becomes a cubin for one exact target: NVRTC, called through ctypes. Needs no GPU and no cuda-python.

The same strictness as `hwkernels.device.toolchain`: what ptxas changed on its own, or spilled, is an error.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hwkernels.device.toolchain import INSTALL_HINT, AssembleError, ToolchainError, notes_in

_NAME = re.compile(r"libnvrtc\.so(\.\d+)*$")
_COMMON = ("--std=c++17", "--ptxas-options=-v", "--device-as-default-execution-space")


@dataclass(frozen=True)
class Compiler:
    """One NVRTC library."""

    path: Path
    version: tuple[int, int]  # (13, 5)
    targets: tuple[str, ...] = field(repr=False)  # sm_NN without a suffix, as nvrtcGetSupportedArchs lists them

    def __str__(self) -> str:
        return f"NVRTC {self.version[0]}.{self.version[1]}"

    def takes(self, target: str) -> bool:
        """Whether it compiles for a target; those with an a or f suffix come with their number."""
        return target.rstrip("af") in self.targets


@dataclass(frozen=True)
class Compilation:
    """What NVRTC made of one source for one target."""

    cubin: bytes = field(repr=False)
    ptx: str = field(repr=False)
    log: str = field(repr=False)  # with ptxas's report: registers, shared memory, spills
    compiler: Compiler
    target: str
    source_sha256: str  # of the source, its headers and the options

    @property
    def registers(self) -> int:
        """Registers of a thread at launch. Source: ptxas's report."""
        match = re.search(r"Used (\d+) registers", self.log)
        return int(match[1]) if match else 0


def _libraries() -> Iterator[Path]:
    """Every libnvrtc that may be here: this interpreter's wheels, $HWKERNELS_NVRTC, $CUDA_HOME, $CUDA_PATH, /usr/local."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    for root in roots:
        yield from (path for path in sorted(root.glob("*/lib/libnvrtc.so*")) if _NAME.search(path.name))
    for entry in os.environ.get("HWKERNELS_NVRTC", "").split(os.pathsep):
        if entry:
            yield Path(entry)
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for place in filter(None, places):
        for lib in ("lib64", "targets/x86_64-linux/lib"):
            yield from (path for path in sorted(Path(place, lib).glob("libnvrtc.so*")) if _NAME.search(path.name))


@cache
def _load(path: Path) -> ctypes.CDLL:
    for builtins in sorted(
        path.parent.glob("libnvrtc-builtins.so*")
    ):  # NVRTC asks for it by name alone, and not always here
        ctypes.CDLL(str(builtins))
    return ctypes.CDLL(str(path))


@cache
def find_compilers() -> tuple[Compiler, ...]:
    """Every NVRTC of this machine, newest first, one of each version. Cached."""
    found: dict[tuple[int, int], Compiler] = {}
    for path in _libraries():
        try:
            library = _load(path)
            major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
            library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
            library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
            archs = (ctypes.c_int * count.value)()
            library.nvrtcGetSupportedArchs(archs)
        except (OSError, AttributeError):
            continue
        version = (major.value, minor.value)
        found.setdefault(version, Compiler(path, version, tuple(f"sm_{arch}" for arch in archs)))
    return tuple(found[version] for version in sorted(found, reverse=True))


def compiler_for(target: str) -> Compiler:
    """The newest NVRTC that compiles for `target`.

    Raises ToolchainError that says what was found. sm_70 and sm_72 need CUDA 12.
    """
    found = find_compilers()
    for compiler in found:
        if compiler.takes(target):
            return compiler
    here = "; ".join(f"{compiler} takes {' '.join(compiler.targets)}" for compiler in found) or "none was found"
    raise ToolchainError(f"no NVRTC compiles for {target!r}: {here}; {INSTALL_HINT} brings CUDA 12 and 13")


def compile_cubin(
    source: str,
    target: str,
    *,
    name: str = "kernel.cu",
    headers: Mapping[str, str] | None = None,
    defines: Mapping[str, int | str] | None = None,
    options: Sequence[str] = (),
    compiler: Compiler | None = None,
    strict: bool = True,
) -> Compilation:
    """CUDA C++ to the machine code of one target.

    `headers` are the texts of `#include "name"`; `defines` become -D. strict: spilled registers are an error. Raises ToolchainError if no NVRTC takes the target,
    AssembleError if the source is wrong, or if ptxas changed the code or spilled registers (`toolchain.notes_in`).
    """
    compiler = compiler or compiler_for(target)
    headers = dict(headers or {})
    arguments = _arguments(target, defines, options)
    digest = digest_of(source, target, headers, defines, options)
    library, program = _load(compiler.path), ctypes.c_void_p()
    names, texts = (_strings(values) for values in (headers.keys(), headers.values()))
    _check(
        library,
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), name.encode(), ctypes.c_int(len(headers)), texts, names
        ),
    )
    try:
        code = library.nvrtcCompileProgram(program, ctypes.c_int(len(arguments)), _strings(arguments))
        log = _text(library, program, "ProgramLog").decode(errors="replace")
        if code:
            raise AssembleError(f"{compiler} does not compile {name} for {target}", log, target)
        notes = notes_in(log)
        if notes and strict:
            summary = f"ptxas of {compiler} changed {name} for {target}: {'; '.join(notes)}"
            raise AssembleError(summary, log, target, notes)
        cubin = _text(library, program, "CUBIN", strip=False)
        ptx = _text(library, program, "PTX").decode()
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return Compilation(cubin, ptx, log, compiler, target, digest)


def _arguments(target: str, defines: Mapping[str, int | str] | None, options: Sequence[str]) -> list[str]:
    macros = [f"-D{key}={value}" for key, value in (defines or {}).items()]
    return [f"--gpu-architecture={target}", *_COMMON, *options, *macros]


def digest_of(
    source: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    defines: Mapping[str, int | str] | None = None,
    options: Sequence[str] = (),
) -> str:
    """SHA-256 of all that a compilation is given, the compiler excepted."""
    texts = [text for item in sorted((headers or {}).items()) for text in item]
    return hashlib.sha256("\0".join([source, *texts, *_arguments(target, defines, options)]).encode()).hexdigest()


def _strings(values: Iterable[object]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [str(value).encode() for value in values]
    return (ctypes.c_char_p * max(1, len(encoded)))(*encoded)


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str, strip: bool = True) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw.rstrip(b"\0") if strip else buffer.raw


def _check(library: ctypes.CDLL, code: int) -> None:
    if code:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise ToolchainError(f"NVRTC: {library.nvrtcGetErrorString(code).decode()}")
