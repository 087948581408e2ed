"""Planted mistakes with moves and conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tcsim
from tests.support.planted import Planted, Random


def _move(mistake: str, change: Callable[[Random, Any, dict[str, Any]], Any]) -> Any:
    """Arguments of the right call, and the result of the wrong one."""

    def plant(random: Random, ins: Any) -> Planted | None:
        given = _arguments(random, ins)
        try:
            right = ins.execute(**given)
            observed = change(random, ins, given)
        except tcsim.TcsimError:
            return None
        if observed is None or observed.shape != right.shape or np.array_equal(observed, right):
            return None
        return Planted(ins, {**given, "observed": observed}, mistake)

    return plant


def _arguments(random: Random, ins: Any) -> dict[str, Any]:
    family = ins.row.family
    smem = random.integers(0, 256, 1 << 13, dtype=np.uint8)
    if family in ("ldmatrix", "stmatrix"):
        address = random.permutation(256)[:32] * 32
        if family == "ldmatrix":
            return {"smem": smem, "address": address}
        registers = random.integers(0, 1 << 32, (32, ins.operands["registers"].registers), dtype=np.uint32)
        return {"smem": smem, "address": address, "registers": registers}
    if family == "movmatrix":
        return {"a": random.integers(0, 1 << 32, (32, 1), dtype=np.uint32)}
    if family.startswith("wmma"):
        memory = random.integers(0, 256, 1 << 14, dtype=np.uint8)
        given = {"memory": memory, "address": 0, "stride": 64}
        if family == "wmma.store":
            operand = next(iter(ins.operands.values()))
            given["registers"] = random.integers(0, 1 << 32, (32, operand.registers), dtype=np.uint32)
        return given
    return {  # cvt
        name: (
            random.integers(0, 1 << 62, 512, dtype=np.uint64)
            & np.uint64(~register.padding & (2 ** (8 * register.dtype.itemsize) - 1))
        ).astype(register.dtype)
        if register.format.name != "f32"
        else random.standard_normal(512).astype(np.float32) * 4
        for name, register in ins.registers.items()
        if name != "d"
    }


def _other_row(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    """The first instruction of the family, in random order, that takes the arguments and gives something else."""
    right = ins.execute(**given)
    rows = [row for row in tcsim_rows(ins) if row.mnemonic != ins.mnemonic]
    for place in random.permutation(len(rows)):
        try:
            got = tcsim.instruction(rows[place].mnemonic, arch=ins.arch.name).execute(**given)
        except tcsim.TcsimError:
            continue
        if got.shape == right.shape and got.dtype == right.dtype and not np.array_equal(got, right):
            return got
    return None


def tcsim_rows(ins: Any) -> list[Any]:
    """The rows of an instruction's family on its arch."""
    from tcsim.catalog import on_arch

    return list(on_arch(ins.arch.name, ins.row.family))


def _addresses_exchanged(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    if "address" not in given or np.ndim(given["address"]) == 0:
        return None
    address = list(given["address"])
    wrong = address[:8] + address[16:24] + address[8:16] + address[24:]
    return ins.execute(**{**given, "address": np.array(wrong)})


def _stride_in_bytes(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    if "stride" not in given:
        return None
    size = next(iter(ins.operands.values())).format.container_bits // 8
    return ins.execute(**{**given, "stride": given["stride"] * size}) if size > 1 else None


def _exchanged(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    if not {"a", "b"} <= given.keys():
        return None
    return ins.execute(**{**given, "a": given["b"], "b": given["a"]})


def _lanes(random: Random, ins: Any, given: dict[str, Any]) -> Any:
    right = ins.execute(**given)
    if right.ndim < 2 or right.shape[-2] != 32:
        return None
    return np.stack([right[..., lane ^ 4, :] for lane in range(32)], axis=-2)


MOVES = (
    _move("another instruction", _other_row),
    _move("row addresses wrong", _addresses_exchanged),
    _move("stride wrong", _stride_in_bytes),
    _move("operands exchanged", _exchanged),
    _move("d: lanes permuted", _lanes),
)
