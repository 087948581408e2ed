"""Mistakes with moves and conversions: another instruction, other addresses or strides, operands or results permuted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.catalog import instruction as find_instruction
from tcsim.catalog import on_arch
from tcsim.core.errors import OperandError, TcsimError
from tcsim.diagnosis.maps import TILES
from tcsim.diagnosis.operands import distinct, lane_orders, register_orders
from tcsim.diagnosis.report import Diagnosis, Explanation, described
from tcsim.layouts.swizzle import SWIZZLES
from tcsim.memory.tensor_memory import TensorMemory
from tcsim.model.instruction import Instruction

Arguments = dict[str, Any]
_ROW_BYTES = 16
_LANES = np.arange(32)


@dataclass(frozen=True)
class _Trial:
    mistake: str
    detail: str
    advice: str
    run: Callable[[], Any]  # the result with the mistake made


def diagnose_move(instruction: Any, call: str, observed: Any, given: Arguments) -> Diagnosis:
    """What `tcsim.diagnose` does for an instruction that multiplies nothing."""
    execute: Callable[..., Any] = instruction.execute
    right, seen = _bits(execute(**given), call), _bits(observed, call)
    if seen.dtype != right.dtype or seen.shape != right.shape:
        raise OperandError(f"{call}: observed is {seen.dtype} {seen.shape}; valid: {right.dtype} {right.shape}")
    before = _before(given, right)
    counted = np.ones(right.shape, bool) if before is None else (seen != before) | (right != before)
    outputs = max(1, int(counted.sum()))
    wrong = (seen != right) & counted
    if not wrong.any():
        return Diagnosis("correct", outputs, outputs, (), (), 0)
    matched = outputs - int(wrong.sum())
    found: list[Explanation] = []
    rest: list[Explanation] = []
    tried = 0
    for trial in _trials(instruction, given, right):
        try:
            result = _bits(trial.run(), call)
        except TcsimError:
            continue  # the mistake would have stopped the kernel
        if result.shape != seen.shape or result.dtype != seen.dtype:
            continue
        tried += 1
        same = result == seen
        item = Explanation(trial.mistake, trial.detail, trial.advice, int((same & counted).sum()))
        (found if same.all() else rest).append(item)
    rest.sort(key=lambda item: -item.matched)
    where = f"{int(wrong.sum())} of {outputs}"
    return described(outputs, matched, found, rest[:5], tried, where)


def _bits(result: Any, call: str) -> npt.NDArray[Any]:
    """A result as one array: Tensor Memory by its words, several results one after the other.

    Raises OperandError for a result that is not an array.
    """
    if isinstance(result, tuple):
        return np.concatenate([_bits(part, call).reshape(-1) for part in result])
    found = np.asarray(result.words if isinstance(result, TensorMemory) else result)
    if found.dtype.kind not in "biu":
        raise OperandError(f"{call}: it gives no bits to compare; valid: instructions whose result is an array")
    return found


def _before(given: Arguments, right: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Memory as it was before a store: bytes that neither is nor should be changed prove nothing."""
    if "registers" not in given:
        return None
    memory = next((given[name] for name in ("smem", "memory", "tmem") if given.get(name) is not None), None)
    return None if memory is None else np.broadcast_to(_bits(memory, "diagnose"), right.shape)


def _trials(instruction: Any, given: Arguments, right: npt.NDArray[Any]) -> Iterator[_Trial]:
    def again(**changed: Any) -> Callable[[], Any]:
        return lambda: instruction.execute(**{**given, **changed})

    yield from _others(instruction, given)
    if "address" in given and np.ndim(given["address"]) and np.shape(given["address"])[-1] == 32:
        address = np.asarray(given["address"])
        for detail, changed in _addresses(address):
            yield _Trial(
                "row addresses wrong", detail, "look at the address that each lane passes", again(address=changed)
            )
        for name, swizzle in SWIZZLES.items():
            if swizzle.bits:
                advice = "either the data or the addresses are swizzled, but not both alike"
                yield _Trial(
                    "swizzle wrong", f"addresses with swizzle {name} on top", advice, again(address=swizzle(address))
                )
    stride = given.get("stride")
    for name in ("memory", "registers"):
        if name in given and stride is not None:
            for detail, value in _strides(instruction, int(np.max(stride))):
                yield _Trial(
                    "stride wrong", detail, "the stride counts elements from one line to the next", again(stride=value)
                )
            break
    if "a" in given and "b" in given:
        swapped = again(a=given["b"], b=given["a"])
        yield _Trial("operands exchanged", "a and b", "a goes to the upper half of the result, b to the lower", swapped)
    if "registers" in given:
        registers = np.asarray(given["registers"])
        for mistake, detail, changed in _shuffled(registers):
            yield _Trial(f"registers: {mistake}", detail, _LAYOUT, again(registers=changed))
    elif right.dtype == np.uint32 and right.ndim >= 2 and right.shape[-2] == 32:
        for mistake, detail, changed in _shuffled(right):
            yield _Trial(f"d: {mistake}", detail, _LAYOUT, partial(np.asarray, changed))
    if set(given) == {"a"} and np.ndim(given["a"]) >= 2:
        yield _Trial("not transposed", "d is a", "the instruction was not run", lambda: np.asarray(given["a"]))


_LAYOUT = "compare with the layout of the fragment: which lane and register an element belongs to"


def _others(instruction: Any, given: Arguments) -> Iterator[_Trial]:
    """Other instructions of the family with the same operands."""
    for row in on_arch(instruction.arch.name, instruction.row.family):
        if row.mnemonic == instruction.mnemonic:
            continue

        def run(mnemonic: str = row.mnemonic) -> Any:
            return find_instruction(mnemonic, arch=instruction.arch.name).execute(**given)

        yield _Trial(
            "another instruction", row.mnemonic, "look at the modifiers of the instruction that was emitted", run
        )


def _addresses(address: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for bit in (1, 2, 4, 8, 16):
        yield f"lane i passes the address of lane i ^ {bit}", address[..., _LANES ^ bit]
    yield "lanes 8-15 and 16-23 exchanged: the second and third matrix", address[..., _second_and_third()]
    yield "in reverse", address[..., ::-1]
    first = address[..., :1]
    yield "rows packed: 16 bytes apart", first + _LANES * _ROW_BYTES
    for rows in TILES:
        yield f"rows {rows} bytes apart", first + _LANES * rows


def _second_and_third() -> npt.NDArray[np.int64]:
    return np.where((_LANES // 8 == 1) | (_LANES // 8 == 2), _LANES ^ 24, _LANES)


def _strides(instruction: Instruction, stride: int) -> Iterator[tuple[str, int]]:
    operand = next(iter(instruction.operands.values()))
    bits = operand.format.container_bits
    size = max(1, bits // 8)
    yield "in bytes", stride * size
    if stride % size == 0:
        yield "divided by the element size: elements taken for bytes", stride // size
    yield "twice", stride * 2
    if stride % 2 == 0:
        yield "half", stride // 2
    for extent in sorted(set(operand.shape)):
        yield f"{extent}, the tile's own", extent


def _shuffled(registers: npt.NDArray[Any]) -> Iterator[tuple[str, str, npt.NDArray[Any]]]:
    yield "halves swapped", "in each register", registers << np.uint32(16) | registers >> np.uint32(16)
    for detail, order in distinct(register_orders(registers.shape[-1], 128)):
        yield "registers permuted", detail, registers[..., order]
    for detail, order in distinct(lane_orders(len(_LANES))):
        yield "lanes permuted", detail, registers[..., order, :]
