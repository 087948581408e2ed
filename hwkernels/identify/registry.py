"""The registry's row of an instruction in the words of `hwkernels.identification`, and a found machine as a row of the registry."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hwkernels.identification.machine import NOT_OBSERVABLE, OPEN, Machine, Signature
from hwkernels.identification.proof import alike
from hwkernels.identification.result import Identified
from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import Arithmetic, DotAdd, Lowering, ScaledDotAdd, Step, Widen
from tcsim.numbers.formats import FORMATS

_SIGNIFICAND = {"f16": 11, "f32": 24, "e8m13": 14}


def registered(lowering: Lowering, signature: Signature) -> Machine | None:
    """What a row says, as a hypothesis; None if its steps are not of the machines that are searched."""
    adds = [step for step in lowering.steps if isinstance(step, DotAdd)]
    ordinary = [step for step in lowering.steps if isinstance(step, Arithmetic)]
    nan = FORMATS[signature.d].canonical_nan or 0
    if not adds:
        chain = [step.op for step in ordinary] == ["fma"] * signature.k + ["add"]
        same = all(step.format == "f32" and step.rounding == "rne" for step in ordinary)
        steps = tuple((k,) for k in range(signature.k))
        return Machine(steps, "last", None, rounding="rne", nan=nan) if chain and same else None
    unit = adds[0].unit
    if (
        any(step.unit != unit for step in adds)
        or unit.addend_shift
        or [step.op for step in ordinary] not in ([], ["add"])
    ):
        return None
    widened = [step.format for step in lowering.steps if isinstance(step, Widen)]
    group = adds[0].group if isinstance(adds[0], ScaledDotAdd) else 0
    return Machine(
        tuple(step.k for step in adds),
        "last" if ordinary or unit.addend_last else "first",
        unit.fraction_bits,
        products="normalised" if unit.renormalise_products else "raw",
        floor=unit.floor,
        significand=_SIGNIFICAND[unit.output],
        rounding=unit.rounding,
        zero="ieee" if unit.keep_negative_zero else "+0",
        nan=nan,
        scaled=None if signature.scale is None else ("group", group) if group else "product",
        widened=widened[0] if widened else None,
    )


def differences(found: Identified, row: Machine | None) -> dict[str, tuple[Any, Any]]:
    """Keys whose found value is not the registry's: (found, registry).

    Keys that are open or not observable, or not alone, cannot differ, nor what is not told from the registry's; nor does a floor below all that can be seen from none.
    """
    if found.undecided:
        return {"row": ("undecided", "row" if row else "none")}
    if row is None or found.outside:
        return (
            {}
            if found.outside and row is None
            else {"row": ("outside" if found.outside else "found", "none" if row is None else "row")}
        )
    names = [field.name for field in fields(Machine)]
    pairs = {name: (found.found[name], getattr(row, name)) for name in names}
    hidden = {name for name, pair in pairs.items() if pair[0] in (NOT_OBSERVABLE, OPEN)} | set(found.tied)
    for rival in found.remaining:  # which explains every answer as well
        hidden |= set(rival) if all(getattr(row, name) == value for name, value in rival.items()) else set()
    if pairs["floor"][0] is None and alike(found.signature, row, replace(row, floor=None)):
        hidden.add("floor")
    return {name: pair for name, pair in pairs.items() if name not in hidden and pair[0] != pair[1]}


def steps_of(found: Identified) -> tuple[Step, ...]:
    """A found machine as the steps of a row.

    Raises ValueError for what the registry's datapath has no field for.
    """
    own, signature = found.nearest, found.signature
    wanted = {
        "truncation": "zero",
        "subnormal_in": "kept",
        "subnormal_c": "kept",
        "subnormal_out": "kept",
        "overflow": "infinity",
    }
    wrong = [name for name, value in wanted.items() if found.found.get(name) not in (value, NOT_OBSERVABLE, OPEN)]
    outputs = {value: name for name, value in _SIGNIFICAND.items() if (name == "f16") == (signature.d == "f16")}
    wrong += ["significand"] if own.significand not in outputs else []
    if found.outside or wrong:
        raise ValueError(
            "no row: " + ("outside the hypotheses" if found.outside else f"the datapath has no {', '.join(wrong)}")
        )
    last = own.addend == "last"
    if own.fraction_bits is None:
        if not last or own.rounding != "rne" or any(len(step) > 1 for step in own.step):
            raise ValueError("no row: sums without loss are rows only as chains of fma")
        chain = [
            Arithmetic("fma", "acc", (f"a[{k}]", f"b[{k}]", "acc" if place else "+0"), signature.d)
            for place, (k,) in enumerate(own.step)
        ]
        return (*chain, Arithmetic("add", "d", ("c", "acc"), signature.d))
    floor = own.floor if isinstance(found.found["floor"], int) and own.floor is not None else _unreachable(signature)
    unit = Datapath(
        own.fraction_bits,
        floor,
        outputs[own.significand],  # type: ignore[arg-type]
        own.rounding,  # type: ignore[arg-type]
        renormalise_products=own.products == "normalised",
        keep_negative_zero=own.zero == "ieee",
    )
    steps: list[Step] = [Widen(own.widened)] if own.widened else []
    for place, k in enumerate(own.step):
        addend = "acc" if place else "+0" if last else "c"
        result = "d" if place == len(own.step) - 1 and not last else "acc"
        if own.scaled is None:
            steps.append(DotAdd(k, addend, unit, result))
        else:
            steps.append(ScaledDotAdd(k, addend, unit, result, own.scaled[1] if isinstance(own.scaled, tuple) else 0))
    return (*steps, Arithmetic("add", "d", ("acc", "c"), signature.d)) if last else tuple(steps)


def _unreachable(signature: Signature) -> int:
    """A floor that no term lies below."""
    formats = FORMATS[signature.a], FORMATS[signature.b]
    return sum(format_.minimum_exponent - format_.fraction_bits for format_ in formats)


def row_text(mnemonic: str, found: Identified) -> str:
    """Python source of the steps, for the lowering of an instruction."""
    try:
        steps = steps_of(found)
    except ValueError as error:
        return f"# {mnemonic}: {error}"
    lines = [f"# {mnemonic}", "Lowering(", '    "native",', "    ("]
    lines += [f"        {step!r}," for step in steps]
    return "\n".join([*lines, "    ),", ")"])
