"""Compiled code: made by llvmlite for this processor, kept in files by what it was made from, and called through a pointer.

A file is written aside and renamed; one that is damaged, of another processor or another LLVM, or that cannot be read or written, is not there. Without
llvmlite, which comes with Numba, nothing is compiled.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from tcsim.core.files import kept

_ENGINES: list[Any] = []
"""Owners of code that may be called until the process ends."""
Entry = Callable[[int, int, int, int, int, int], int]
_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
NAME = "entry"
_OLDEST = 20
"""LLVM's version whose passes and assembly are used."""


@cache
def llvm() -> Any:
    """llvmlite's binding, ready to compile for this processor; None where there is none, or one before LLVM 20."""
    try:
        from llvmlite import binding  # of the extra "fast"
    except ImportError:
        return None
    if binding.llvm_version_info[0] < _OLDEST:
        return None
    with suppress(RuntimeError):  # those that need none say so
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def _machine() -> Any:
    binding = llvm()
    target = binding.Target.from_default_triple()
    features = binding.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features, opt=2, jit=True)


@cache
def _processor() -> str:
    binding = llvm()
    return f"{binding.llvm_version_info} {binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"


def compiled(text: str) -> Entry:
    """The function `NAME` of LLVM's assembly. Raises RuntimeError where LLVM does not take it."""
    key = hashlib.sha256(f"{_processor()}\n{text}".encode()).hexdigest()
    data = kept().read(key)
    if data is None:
        data = _made(text)
        kept().write(key, data)
    binding = llvm()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())
    engine.add_object_file(binding.ObjectFileRef.from_data(data))
    engine.finalize_object()
    _ENGINES.append(engine)
    return _ENTRY(engine.get_function_address(NAME))


def _made(text: str) -> bytes:
    """Object code."""
    binding = llvm()
    module = binding.parse_assembly(text)
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=1)
    passes = binding.create_pass_builder(_machine(), options)
    passes.getModulePassManager().run(module, passes)
    return bytes(_machine().emit_object(module))
