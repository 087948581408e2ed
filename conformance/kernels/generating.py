"""What the frozen generators answer: `ANSWERS` runs in a process of its own (conformance/stimuli/exchange.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import tcsim
from conformance.isa import testbench_of
from conformance.kernels import convert, gemm
from conformance.stimuli.frozen import UnknownCase

KEPT = 32  # operands of whole GEMMs: many kernels run on the same


def case(mnemonic: str, arch: str, name: str, seed: int, samples: int) -> dict[str, Any]:
    """Inputs of one instruction: (mnemonic, arch, class, seed, samples)."""
    try:
        instruction = tcsim.instruction(mnemonic, arch=arch)
    except ValueError as error:
        raise UnknownCase(str(error)) from error
    testbench = testbench_of(instruction.row.family)
    if name not in (*testbench.every_class(instruction), *testbench.level_2(instruction)):
        raise UnknownCase(f"{mnemonic} has no class {name}")
    return testbench.inputs(instruction, name, seed, samples)


def whole_gemm(arch: str, id: str, seed: int) -> tuple[Any, ...]:
    """Operands of a whole GEMM."""
    found = _gemms(arch).get(id)
    if found is None:
        raise UnknownCase(id)
    return _operands(gemm.operands_key(found), seed)


def whole_conversion(arch: str, id: str, seed: int) -> Any:
    """The array of a whole conversion."""
    found = {item.id: item for item in convert.cases(arch)}.get(id)
    if found is None:
        raise UnknownCase(id)
    return convert.inputs(found, seed)


@cache
def _gemms(arch: str) -> dict[str, gemm.GemmCase]:
    return {item.id: item for item in gemm.cases(arch)}


@lru_cache(KEPT)
def _operands(key: gemm.OperandsKey, seed: int) -> tuple[Any, ...]:
    return gemm.operands_of(key, seed)


ANSWERS: dict[str, Callable[..., Any]] = {"case": case, "gemm": whole_gemm, "convert": whole_conversion}
