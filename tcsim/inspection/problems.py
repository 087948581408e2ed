"""Inputs of an instruction as a file holds them: which call they are for, and that call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, listing
from tcsim.isa.tcgen05.described import DescribedMultiply
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.memory.tensor_memory import TensorMemory
from tcsim.numbers.formats import Format

Call = Literal["execute", "matmul"]
Arrays = Mapping[str, Any]
Codes = npt.NDArray[Any]


def call_of(instruction: Any, arrays: Arrays) -> Call:
    """Which method takes the arrays: `matmul` if a and b are matrices of the instruction's shape, else `execute`.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> call_of(mma, {"a": np.ones((16, 8), np.float16), "b": np.ones((8, 8), np.float16), "c": np.zeros((16, 8), np.float32)})
    'matmul'
    """
    if isinstance(instruction, (TensorMemoryMultiply, DescribedMultiply)):  # Tensor Memory is not an array
        return "execute" if "tmem" in arrays else "matmul"
    if not hasattr(instruction, "matmul") or not {"a", "b"} <= set(arrays):
        return "execute"
    m, n, k = instruction.shape
    depth = instruction.operands["a"].shape[1] if "a" in instruction.operands else k
    matrices = np.shape(arrays["a"])[-2:] == (m, depth) and np.shape(arrays["b"])[-2:] == (k, n)
    return "matmul" if matrices else "execute"


def run_call(instruction: Any, arrays: Arrays, call: Call | None = None) -> tuple[Call, dict[str, Codes]]:
    """Execute the instruction, or multiply matrices, with named inputs; zero-dimensional arrays are numbers.

    Results come by name, one alone as d. Tensor Memory, as `tmem` and as a result, is an array of its words.

    Raises OperandError for a name that the call does not take or one that it lacks, for a
    result that is not an array, and what the call itself raises.
    """
    chosen = call or call_of(instruction, arrays)
    method = getattr(instruction, chosen, None)
    if method is None:
        raise OperandError(f"{instruction!r} has no {chosen}; valid: execute")
    parameters = inspect.signature(method).parameters
    wrong = [name for name in arrays if name not in parameters]
    needed = [name for name, own in parameters.items() if own.default is inspect.Parameter.empty]
    missing = [name for name in needed if name not in arrays]
    if wrong or missing:
        what = f"no input {listing(wrong)}" if wrong else f"{listing(missing)} is missing"
        optional = [name for name in parameters if name not in needed]
        also = f"; optional {listing(optional)}" if optional else ""
        raise OperandError(f"{instruction!r}.{chosen}: {what}; valid: {listing(needed)}{also}")
    given = {name: _plain(value) for name, value in arrays.items()}
    if "tmem" in given:
        given["tmem"] = tensor_memory(given["tmem"], f"{instruction!r}.{chosen}")
    found = method(**given)
    names: tuple[str, ...] = ("d",)
    if isinstance(found, tuple):
        names = result_names(instruction)
    results = {}
    for name, value in zip(names, found if isinstance(found, tuple) else (found,), strict=True):
        array = np.asarray(value.words if isinstance(value, TensorMemory) else value)
        if array.dtype.kind not in "biu":
            raise OperandError(f"{instruction!r}.{chosen} gives no array; valid: the call from Python")
        results[name] = array
    return chosen, results


def result_names(instruction: Any) -> tuple[str, ...]:
    """The names of what `execute` gives, where that is several arrays.

    >>> result_names(tcsim.instruction("tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32", arch="sm_103"))
    ('d', 'redval')
    """
    names: tuple[str, ...] = instruction.RESULTS or tuple(instruction.operands)
    return names


def tensor_memory(words: Any, call: str) -> TensorMemory:
    """A Tensor Memory that holds words uint32 (..., ctas, 128, 512), or (128, 512) of one CTA; all of it is allocated and written.

    Raises OperandError for another shape or dtype.

    >>> tensor_memory(np.zeros((128, 512), np.uint32), "run").ctas
    1
    """
    array = np.asarray(words)
    ctas = 1 if array.ndim == 2 else array.shape[-3] if array.ndim > 2 else 0
    if array.dtype != np.uint32 or array.shape[-2:] != (TensorMemory.LANES, TensorMemory.COLUMNS) or ctas not in (1, 2):
        raise OperandError(
            f"{call}: tmem is {array.dtype} {array.shape}; valid: uint32 (128, 512) or (..., ctas, 128, 512) with 1 or 2 CTAs"
        )
    memory = TensorMemory.allocated(array.shape[:-3], ctas=ctas)
    memory.words[...] = array
    memory.written[...] = True
    return memory


def formats_for(instruction: Any, arrays: Arrays) -> Mapping[str, Format]:
    """The number formats of an instruction's matrices; those of tcgen05.mma come with `idesc`."""
    found: Mapping[str, Format] = described(instruction, arrays).formats
    return found


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array


def described(instruction: Any, arrays: Arrays) -> Any:
    """The instruction; a tcgen05.mma with the descriptor that is among its inputs.

    Raises OperandError if there is none, or it disagrees with the mnemonic.
    """
    if not isinstance(instruction, TensorMemoryMultiply):
        return instruction
    if "idesc" not in arrays:
        raise OperandError(
            f"{instruction!r}: idesc is missing; valid: its instruction descriptor, 32 bits that `tcsim idesc encode` makes"
        )
    return DescribedMultiply(
        instruction, instruction.descriptor(_plain(arrays["idesc"])), int(arrays.get("scale_input_d", 0))
    )
