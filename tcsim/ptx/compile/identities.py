"""Instructions that give one of their sources back, or that negated: the assembler looks through them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tcsim.core.samples import repeatable
from tcsim.isa.scalar.catalog import scalar
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.ptx.text.syntax import Immediate

SIGNS = {
    "f32": 1 << 31, "f64": 1 << 63, "f16": 1 << 15, "bf16": 1 << 15, "f16x2": 0x80008000, "bf16x2": 0x80008000, "f32x2": 0x80000000_80000000,
}  # fmt: skip
EXPONENTS = {"f32": 0x7F800000, "f64": 0x7FF << 52, "f16": 0x7C00, "bf16": 0x7F80}
_SAMPLES = 64


@lru_cache(maxsize=1 << 12)
def identity(opcode: str, pattern: tuple[Any, ...], number: int) -> int | None:
    """1 or -1 if a scalar instruction gives one of its registers or that negated, whatever the others hold; None if it does not.

    pattern: of each source the number of its register, or the immediate. 0: it gives the magnitude.
    """
    row = scalar(opcode, len(pattern))
    places = [place for place, own in enumerate(pattern) if own == number]
    if row is None or row.reads_carry or row.writes_carry or row.immediates:
        return None
    type = row.sources[places[0]]
    container, random = CONTAINERS[type], repeatable()
    if container != CONTAINERS[row.results[0]] or type == "pred":
        return None

    def some(own: str) -> Any:
        codes = random.integers(0, 256, _SAMPLES * CONTAINERS[own].itemsize, np.uint8)
        return codes.astype(bool) if own == "pred" else codes.view(CONTAINERS[own])

    value, registers = some(type), dict[int, Any]()
    if type in EXPONENTS:  # numbers: what becomes of NaN is the same in both ways
        value &= ~container.type(1 << EXPONENTS[type].bit_length() - 1)
    registers[number] = value
    try:
        sources = [
            registers.setdefault(own, some(at))
            if isinstance(own, int)
            else np.full(_SAMPLES, code_of(own, at), CONTAINERS[at])
            for own, at in zip(pattern, row.sources, strict=True)
        ]
        with np.errstate(all="ignore"):
            found = np.asarray(row.compute(*sources))
    except (ValueError, TypeError, OverflowError):
        return None
    if found.shape != value.shape or found.dtype != value.dtype:
        return None
    if np.array_equal(found, value):
        return 1
    for sign in {value.dtype.type(own) for name, own in SIGNS.items() if CONTAINERS[name] == container}:
        if np.array_equal(found, value ^ sign):
            return -1
        if np.array_equal(found, value & ~sign):
            return 0
    return None


def code_of(operand: Any, type: str) -> int:
    """The code of an immediate as a type. Raises ValueError for what is not one."""
    if not isinstance(operand, Immediate):
        raise ValueError(operand)
    container = CONTAINERS[type]
    if operand.kind == "f64" and type == "f32":
        return int(np.uint64(operand.value).view(np.float64).astype(np.float32).view(np.uint32))
    return int(operand.value) & ((1 << 8 * container.itemsize) - 1)
