"""Whether two truths are the same machine as far as the signature's formats can tell.

`observable` replaces a key by None (or by the value that stands for all of its equals) where no input can show it. It is cautious: what
it leaves alone may still be unobservable. `compare` therefore looks for a witness where two truths differ, and says so when it finds none.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .formats import FORMATS, Format
from .machine import Machine, Signature, Truth
from .stimuli import Inputs, inputs


@dataclass(frozen=True)
class Verdict:
    """`answer`: "same" (nothing can tell), "different" (the witness does), or "not told apart" by the inputs tried."""

    answer: str
    keys: tuple[str, ...] = ()  # those that differ and are not known to be unobservable
    witness: Inputs | None = None  # a batch of one
    tried: int = 0


def compare(signature: Signature, first: Truth, second: Truth, tries: int = 40_000, seed: int = 0) -> Verdict:
    """Compare two truths: by what can be observed, then by up to `tries` inputs made to tell machines apart."""
    x, y = observable(signature, first), observable(signature, second)
    keys = tuple(key for key in x if x[key] != y[key])
    if not keys:
        return Verdict("same")
    one, other = Machine(signature, first), Machine(signature, second)
    tried = 0
    while tried < tries:
        batch = inputs(signature, min(4000, tries - tried), seed + tried)
        tried += len(batch.c)
        wrong = np.flatnonzero(one.dot(*batch) != other.dot(*batch))
        if len(wrong):
            row = slice(wrong[0], wrong[0] + 1)
            return Verdict("different", keys, Inputs(*(None if v is None else v[row] for v in batch)), tried)  # type: ignore[arg-type]
    return Verdict("not told apart", keys, None, tried)


def agrees(signature: Signature, truth: Truth, answer: Truth, tries: int = 40_000) -> bool:
    """Is an answer right? Its values may be NOT_OBSERVABLE: then no other value of the key may be told from the true one."""
    known = {key: truth[key] if value == NOT_OBSERVABLE else value for key, value in answer.items()}
    others = [
        truth | {key: other}
        for key in answer
        if answer[key] == NOT_OBSERVABLE
        for other in _others(key, truth[key], signature)
    ]
    return all(compare(signature, truth, other, tries).answer != "different" for other in (known, *others))


def _others(key: str, value: object, signature: Signature) -> list[object]:
    """Other values of a key, the nearest for numbers."""
    if key in _CHOICES:
        return [choice for choice in _CHOICES[key] if choice != value]
    if key in ("fraction_bits", "floor"):
        return [value - 1, value + 1, None] if isinstance(value, int) else [25 if key == "fraction_bits" else -133]
    if key == "significand" and isinstance(value, int):
        full = FORMATS[signature.d].fraction_bits + 1
        return [bits for bits in (value - 1, value + 1) if bits <= full]
    every = tuple(range(signature.k))
    return [(every,), tuple((k,) for k in every)] if key == "step" else []


NOT_OBSERVABLE = "not observable"
_CHOICES: dict[str, tuple[object, ...]] = {
    "truncation": ("zero", "down"),
    "products": ("raw", "normalised"),
    "rounding": ("rz", "rne"),
    "overflow": ("infinity", "largest"),
    "subnormal_in": ("kept", "zero"),
    "subnormal_c": ("kept", "zero"),
    "subnormal_out": ("kept", "zero"),
    "zero": ("+0", "ieee"),
    "as": (None, "f16"),
}


def observable(signature: Signature, truth: Truth) -> Truth:
    """The truth with each key that no input of these formats can show replaced by one value for all of its equals."""
    seen = dict(truth)
    seen["step"] = tuple(tuple(sorted(step)) for step in truth["step"])
    group = isinstance(truth["scaled"], tuple)
    if signature.scale is not None and not group and signature.scale[0] != "ue8m0":
        raise ValueError("scales with a significand multiply runs of products: scaled must be ('group', g)")
    seen["subnormal_in"], seen["as"] = _flushed(signature, truth), _widened(signature, truth)
    if group:
        seen["products"] = None
        seen["as"] = None
    if signature.scale is None:
        _bounds(signature, truth, seen)
    if seen["fraction_bits"] is None:
        seen["truncation"] = seen["products"] = seen["floor"] = seen["as"] = None
    return seen


def _flushed(signature: Signature, truth: Truth) -> tuple[int | None, ...] | None:
    """Exponents of a and b below which numbers become zeros; None where there are none. A widened format may have none."""
    if truth["subnormal_in"] == "kept":
        return None
    forms = FORMATS[signature.a], FORMATS[signature.b]
    lowest = [FORMATS[truth["as"]].lowest if truth["as"] else form.lowest for form in forms]
    lost = tuple(limit if form.unit < limit else None for form, limit in zip(forms, lowest, strict=True))
    return lost if any(limit is not None for limit in lost) else None


def _widened(signature: Signature, truth: Truth) -> str | None:
    """Widening is seen in the alignment of subnormal numbers: there must be some that are kept, and products aligned as they are."""
    forms = FORMATS[signature.a], FORMATS[signature.b]
    kept = truth["as"] is not None or truth["subnormal_in"] == "kept"
    changed = kept and any(form.lowest != FORMATS["f16"].lowest for form in forms)
    return truth["as"] if changed and truth["products"] == "raw" else None


def _bounds(signature: Signature, truth: Truth, seen: Truth) -> None:
    """What the ranges of products, c and results leave to be seen. Without scales: those reach everywhere."""
    a, b, c, d = (FORMATS[name] for name in (signature.a, signature.b, signature.c, signature.d))
    first, floor, fraction_bits, bits = (
        truth["addend"] == "first",
        truth["floor"],
        truth["fraction_bits"],
        truth["significand"],
    )
    unit = min(a.unit + b.unit, c.unit if first else 0)  # every term of every step is a multiple of 2**unit
    largest = signature.k * _largest(a) * _largest(b) + (_largest(c) if first else 0)
    highest = max(a.highest + b.highest + 1, c.highest if first else 0, min(_exponent(largest) + 2, d.highest))
    raw = truth["products"] == "raw" and truth["as"] is None
    lowest = min(a.lowest + b.lowest if raw else a.unit + b.unit, c.lowest if first else 0, d.lowest)
    if fraction_bits is not None:
        if floor is not None and (floor <= lowest or floor - fraction_bits <= unit):
            floor = seen["floor"] = None
        if (highest if floor is None else max(highest, floor)) - fraction_bits <= unit:
            fraction_bits = seen["fraction_bits"] = None
    if unit >= d.lowest:
        seen["subnormal_out"] = None
    if largest < Fraction(2) ** (d.highest - 2):
        seen["overflow"] = None
    representable = unit >= d.lowest - bits + 1  # no result is below the smallest code
    if not first and representable and seen["subnormal_out"] != "zero":
        seen["zero"] = None  # the start is +0, so only an underflow could make -0
        if fraction_bits is None and _exponent(largest) - unit < bits and seen["overflow"] is None:
            seen.update(_EXACT, step=(tuple(range(signature.k)),), significand=d.fraction_bits + 1)
    if fraction_bits is not None:
        terms = max(len(step) for step in truth["step"])
        quantum = (lowest if floor is None else max(lowest, floor)) - fraction_bits
        if (4 * terms + 2 << fraction_bits).bit_length() <= bits and quantum >= d.lowest - bits + 1:
            seen["significand"] = seen["rounding"] = None  # alignment leaves nothing to round


# Steps that lose nothing before an IEEE addition of c are one exact sum of everything.
_EXACT = {"addend": "first", "rounding": "rne", "overflow": "infinity", "subnormal_out": "kept", "zero": "+0"}


def _largest(form: Format) -> Fraction:
    top = (2 << form.fraction_bits) - 1 - (form.specials == "nan")
    return top * Fraction(2) ** (form.highest - form.fraction_bits)


def _exponent(value: Fraction) -> int:
    """The largest e with 2**e <= value."""
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if Fraction(2) ** e <= value else e - 1
