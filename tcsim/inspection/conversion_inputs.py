"""One result of a cvt or a special function as a trace: its registers among the inputs of a file, or random ones.

`trace` asks it. `tcsim.isa.cvt.trace` and `tcsim.isa.special.trace` say what happens to each element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, listing
from tcsim.inspection.trace_steps import TracedStep
from tcsim.isa.cvt.semantics import Convert
from tcsim.isa.cvt.trace import trace_conversion
from tcsim.isa.special.semantics import SpecialFunction
from tcsim.isa.special.trace import trace_special

Elementwise = Convert | SpecialFunction
"""Instructions in which every lane works on registers of its own."""


def conversion_steps(instruction: Elementwise, arrays: Mapping[str, Any], item: int = 0) -> tuple[TracedStep, ...]:
    """One result, told element by element; arrays: the registers by name, one for each result or one for all.

    Raises OperandError for registers that are missing or not the instruction's, and an item that does not exist.

    >>> cvt = tcsim.instruction("cvt.rn.satfinite.e4m3x2.f32", arch="sm_90")
    >>> (step,) = conversion_steps(cvt, {"a": np.float32([1.0625, 500]), "b": np.float32([0, 0])}, item=1)
    >>> step.notes[0]
    'd[15:8]: 0x43fa0000 (500.0) between 0x7e (448.0) and no larger number, to nearest, ties to even -> 0x7e (448.0)'
    """
    names = [name for name in instruction.registers if name != "d"]
    missing, wrong = [name for name in names if name not in arrays], [name for name in arrays if name not in names]
    if missing or wrong:
        what = f"{listing(missing)} is missing" if missing else f"no input {listing(wrong)}"
        raise OperandError(f"{instruction!r}: {what}; valid: {listing(names)}")
    instruction.execute(**arrays)  # refuses other types and shapes
    words = np.broadcast_arrays(*(np.asarray(arrays[name]) for name in names))
    if not 0 <= item < words[0].size:
        raise OperandError(f"{instruction!r}: batch item {item} does not exist; valid: items 0 to {words[0].size - 1}")
    codes = {
        name: int(array.reshape(-1)[item : item + 1].view(instruction.registers[name].dtype)[0])
        for name, array in zip(names, words, strict=True)
    }
    head, *notes = (
        trace_conversion(instruction, codes) if isinstance(instruction, Convert) else trace_special(instruction, codes)
    )
    return (TracedStep(head.partition(": ")[2], None, tuple(notes)),)


def random_registers(instruction: Elementwise, seed: int) -> dict[str, Any]:
    """Registers of one result: any bits where an element is, zeros elsewhere.

    >>> cvt = tcsim.instruction("cvt.rn.f16x2.f32", arch="sm_90")
    >>> sorted(random_registers(cvt, 1))
    ['a', 'b']
    """
    stream = np.random.default_rng(seed)
    return {
        name: np.frombuffer(stream.bytes(own.dtype.itemsize), own.dtype)[0]
        & own.dtype.type(~own.padding & _ones(own.dtype))
        for name, own in instruction.registers.items()
        if name != "d"
    }


def _ones(dtype: np.dtype[Any]) -> int:
    return int((1 << 8 * dtype.itemsize) - 1)
