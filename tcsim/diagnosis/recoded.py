"""Operands whose codes a kernel changes on the way: bytes in the other order, signs lost, a narrower type in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from tcsim.diagnosis.maps import Ints, Rule
from tcsim.diagnosis.operands import changed, format_of, operand
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import FORMATS, Format

_NARROWER = ("f16", "bf16", "e4m3", "e5m2")


@dataclass(frozen=True)
class Recoding:
    """One function of codes; `mistake` without the operand's name."""

    mistake: str
    detail: str
    advice: str
    change: Callable[[Codes, Format], Codes | None]  # None: it is not one of this format


def _bytes(codes: Codes, format: Format) -> Codes | None:
    return codes.byteswap() if codes.dtype.itemsize > 1 else None


def _unsigned(codes: Codes, format: Format) -> Codes | None:
    if format.kind == "bit" or not format.signed:
        return None
    top = 1 << (format.bits + format.ignored_low_bits - 1)
    return codes & codes.dtype.type(~top & ((1 << codes.dtype.itemsize * 8) - 1))


def _through(name: str, codes: Codes, format: Format) -> Codes | None:
    if format.kind != "float" or format.bits <= FORMATS[name].bits or format.bits < 16:
        return None
    with np.errstate(all="ignore"):
        return encode(decode(encode(decode(codes, format), name, saturate=True), name), format)


RECODINGS = {
    recoding.mistake: recoding
    for recoding in (
        Recoding("{x}: bytes swapped", "the bytes of each element are in the other order", "big-endian data, or a byte permutation (prmt) of {x}", _bytes),
        Recoding("{x}: signs lost", "every element without its sign: its absolute value, if it is a float", "a mask or an unpacking of {x} that drops the sign bit", _unsigned),
        *(
            Recoding(f"{{x}} passed through {name}", "each element is rounded", f"{{x}} was stored or converted as {name} on the way", partial(_through, name))
            for name in _NARROWER
        ),
    )
}  # fmt: skip
"""By mistake."""


def recoded(problem: Problem, name: str, mistake: str, always: bool = False) -> Problem | None:
    """The problem with an operand's codes changed; None if nothing changes (unless `always`), or the change is not one of this format."""
    codes = operand(problem, name)
    found = RECODINGS[mistake].change(codes, format_of(problem, name))
    return None if found is None or (np.array_equal(found, codes) and not always) else changed(problem, name, found)


def recoding_rules() -> Iterator[Rule]:
    """The same as rules of an operand that leave its places alone."""
    for mistake, recoding in RECODINGS.items():
        yield Rule(mistake, recoding.detail, recoding.advice, _same, 3, recode=mistake)


def _same(r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    return r, k
