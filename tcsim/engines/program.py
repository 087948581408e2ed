"""The steps of an instruction as rows of integers, for compiled loops; and which steps they cover."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import Arithmetic, DotAdd, ScaledDotAdd, Widen
from tcsim.engines.contract import Work
from tcsim.numbers.formats import FORMATS, Format

DOT, ADD, WIDEN, NARROW = range(4)
"""Operations: a dot-add; c added to the accumulator as IEEE has it; c as the accumulator; the accumulator rounded to f16."""
FROM_C, FROM_ACCUMULATOR, FROM_ZERO = range(3)
"""What a dot-add adds."""
_ADDENDS = {"c": FROM_C, "acc": FROM_ACCUMULATOR, "+0": FROM_ZERO}
_MASKS = {"f32": -1, "e8m13": -1 << 10, "f16": -1}
_ROUNDINGS = {"f32": "rz", "e8m13": "rz", "f16": "rne"}
UNROLLED = 4
"""Products that the loops take at a time."""


class NotCovered(Exception):
    """A step that is not among those of a program; the message is for a person."""


@dataclass(frozen=True, eq=False)
class Program:
    """What one instruction computes, in the order in which its products are used."""

    order: npt.NDArray[np.int64]  # of A's k, within the instruction
    operations: npt.NDArray[np.int64]  # a row for each, with the columns of `_row`
    separate: bool  # whether c is needed after the first operation
    half: bool  # whether the result is f16
    narrow: (
        bool  # whether products and their cut terms are exact in float32 and int32, where exponents are within reach
    )
    most: int  # products whose cut terms are summed in int32, if narrow
    widened: str  # the format that A and B are converted to first; empty: none
    group: int  # products that are summed before they are scaled; 0: each is a term


def _row(
    operation: int,
    half: bool,
    unit: Datapath | None = None,
    first: int = 0,
    length: int = 0,
    addend: int = FROM_C,
    lowest: int = 0,
) -> list[int]:
    """operation, first product, products, addend, its minimum exponent, its shift, F, floor, bits of the result kept, is it f16."""
    if unit is None:
        return [operation, 0, 0, FROM_C, 0, 0, 0, 0, 0, half]
    shift, bits, floor = unit.addend_shift, unit.fraction_bits, unit.floor
    return [operation, first, length, addend, lowest, shift, bits, floor, _MASKS[unit.output], half]


@lru_cache(maxsize=256)
def program_of(work: Work) -> Program:
    """The program of an instruction's steps. Raises NotCovered for steps that have no operation here."""
    format_c, acc = work.formats[2], work.formats[2]
    if any(format.kind != "float" or format.bits > 32 for format in (*work.formats, work.result)):
        raise NotCovered("it computes products of float formats of at most 32 bits")
    if format_c.name not in ("f16", "f32") or work.result.name not in ("f16", "f32"):
        raise NotCovered("its accumulators are f16 and f32")
    rows: list[list[int]] = []
    order: list[int] = []
    units: list[Datapath] = []
    groups = set()
    separate, widened = False, ""
    for place, step in enumerate(work.steps):
        match step:
            case Widen():
                widened = step.format
            case DotAdd():
                unit = step.unit
                if (
                    unit.renormalise_products
                    or unit.keep_negative_zero
                    or unit.addend_last
                    or unit.rounding != _ROUNDINGS[unit.output]
                ):
                    raise NotCovered("it computes dot-adds as GPUs do: not this unit")
                if len(step.k) % UNROLLED:
                    raise NotCovered(f"it computes dot-adds of multiples of {UNROLLED} products")
                groups.add(step.group if isinstance(step, ScaledDotAdd) else 0)
                units.append(unit)
                own: Format = format_c if step.addend == "c" else acc
                rows.append(
                    _row(
                        DOT,
                        unit.output == "f16",
                        unit,
                        len(order),
                        len(step.k),
                        _ADDENDS[step.addend],
                        own.minimum_exponent,
                    )
                )
                order += step.k
                acc = step.output
                separate |= step.addend == "+0" or (step.addend == "c" and place > 0)
            case Arithmetic("add", arguments=("acc", "c"), rounding="rne", format=("f16" | "f32") as name) if (
                name == acc.name
            ):
                rows.append(_row(ADD, name == "f16"))
            case Arithmetic("convert", "acc", ("c",), "f32") if not rows:
                rows.append(_row(WIDEN, False))
                acc = FORMATS["f32"]
            case Arithmetic("convert", "d", ("acc",), "f16", "rne"):
                rows.append(_row(NARROW, True))
            case _:
                raise NotCovered(f"it computes dot-adds: not {type(step).__name__}")
    if sorted(order) != list(range(work.kept)) or len(groups) != 1:
        raise NotCovered("it takes each product once")
    (group,) = groups
    bits = sum(format.fraction_bits for format in work.formats[:2])
    narrow = bits <= 20 and not group and (work.scale is None or work.scale.fraction_bits == 0)
    narrow &= all(unit.fraction_bits <= 26 for unit in units)
    if group:
        if len(rows) != 1 or sum(format.bits for format in work.formats[:2]) > 8:
            raise NotCovered("it scales groups of products of formats of 4 bits, in one step")
        rows[0][2] = -(-work.kept // group // UNROLLED) * UNROLLED  # terms, and zeros
    finest = max(unit.fraction_bits for unit in units)
    most = (1 << 31) >> (finest + 2) if narrow else work.kept  # a term is below 2**(F + 2)
    return Program(np.array(order), np.array(rows), separate, work.result.name == "f16", narrow, most, widened, group)
