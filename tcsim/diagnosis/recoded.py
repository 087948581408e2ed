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
    change: Callable[
        [Codes, Format, int], Codes | None
    ]  # with how many elements a sparse operand keeps of a group, else 1; None: it is none of these


def _bytes(codes: Codes, format: Format, kept: int) -> Codes | None:
    return codes.byteswap() if codes.dtype.itemsize > 1 else None


def _unsigned(codes: Codes, format: Format, kept: int) -> Codes | None:
    if format.kind == "bit" or not format.signed:
        return None
    top = 1 << (format.bits + format.ignored_low_bits - 1)
    return codes & codes.dtype.type(~top & ((1 << codes.dtype.itemsize * 8) - 1))


def _through(name: str, codes: Codes, format: Format, kept: int) -> Codes | None:
    if format.kind != "float" or format.bits <= FORMATS[name].bits or format.bits < 16:
        return None
    with np.errstate(all="ignore"):
        return encode(decode(encode(decode(codes, format), name, saturate=True), name), format)


def _twice(place: int, codes: Codes, format: Format, kept: int) -> Codes | None:
    """The other element of a pair also at a place that is zero."""
    if kept != 2:
        return None
    pairs = codes.reshape(*codes.shape[:-1], -1, 2).copy()
    pairs[..., place] = np.where(decode(pairs[..., place], format) == 0, pairs[..., 1 - place], pairs[..., place])
    return pairs.reshape(codes.shape)


_PAIRS = ("first", "second")
RECODINGS = {
    recoding.mistake + recoding.detail: recoding
    for recoding in (
        Recoding("{x}: bytes swapped", "the bytes of each element are in the other order", "big-endian data, or a byte permutation (prmt) of {x}", _bytes),
        Recoding("{x}: signs lost", "every element without its sign: its absolute value, if it is a float", "a mask or an unpacking of {x} that drops the sign bit", _unsigned),
        *(
            Recoding("{x}: the only nonzero of a group counted twice", f"where the {own} of the two elements that are kept is zero it is a copy of the {other}",
                     "look at how the compression of {x} fills the other place of a group with one nonzero: it must hold a zero", partial(_twice, place))
            for place, (own, other) in enumerate((_PAIRS, _PAIRS[::-1]))
        ),
        *(
            Recoding(f"{{x}} passed through {name}", "each element is rounded", f"{{x}} was stored or converted as {name} on the way", partial(_through, name))
            for name in _NARROWER
        ),
    )
}  # fmt: skip
"""By mistake and detail."""


def recoded(problem: Problem, name: str, which: str, always: bool = False) -> Problem | None:
    """The problem with an operand's codes changed; None if nothing changes (unless `always`), or the change is not one of this format."""
    codes = operand(problem, name)
    sparsity = problem.machine.sparsity if name == "a" else None
    kept = 1 if sparsity is None else sparsity.kept // sparsity.groups
    found = RECODINGS[which].change(codes, format_of(problem, name), kept)
    return None if found is None or (np.array_equal(found, codes) and not always) else changed(problem, name, found)


def recoding_rules() -> Iterator[Rule]:
    """The same as rules of an operand that leave its places alone."""
    for which, recoding in RECODINGS.items():
        yield Rule(recoding.mistake, recoding.detail, recoding.advice, _same, 3, recode=which)


def _same(r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    return r, k
