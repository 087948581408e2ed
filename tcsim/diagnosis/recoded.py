"""Operands whose codes a kernel changes on the way: bytes in the other order, signs lost, a narrower type in between, bits of neighbours."""

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
from tcsim.numbers.rounding import RoundingName

_NARROWER: tuple[tuple[str, RoundingName, str], ...] = (
    *((name, "rne", "each element is rounded") for name in ("f32", "tf32", "f16", "bf16", "e4m3", "e5m2")),
    *((name, "rz", "each element is cut: its low bits are lost") for name in ("tf32", "bf16", "e5m2")),
)
"""(a format, how elements become numbers of it, that in words)."""


@dataclass(frozen=True)
class Recoding:
    """One function of codes (..., K); `mistake` without the operand's name."""

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


def _unsigned_of(place: int, codes: Codes, format: Format, kept: int) -> Codes | None:
    found = _unsigned(codes, format, kept) if format.bits <= 8 and kept == 1 else None
    return None if found is None else np.where(np.arange(codes.shape[-1]) % 2 == place, found, codes)


def _through(name: str, rounding: RoundingName, codes: Codes, format: Format, kept: int) -> Codes | None:
    if format.kind != "float" or format.name == name or format.bits < max(FORMATS[name].bits, 16):
        return None
    held = FORMATS["f32"] if format.ignored_low_bits else format  # tf32 lies in memory as f32
    with np.errstate(all="ignore"):
        return encode(decode(encode(decode(codes, held), name, rounding, saturate=True), name), format)


def _twice(place: int, codes: Codes, format: Format, kept: int) -> Codes | None:
    """The other element of a pair also at a place that is zero."""
    if kept != 2:
        return None
    pairs = codes.reshape(*codes.shape[:-1], -1, 2).copy()
    pairs[..., place] = np.where(decode(pairs[..., place], format) == 0, pairs[..., 1 - place], pairs[..., place])
    return pairs.reshape(codes.shape)


def _borrowed(codes: Codes, format: Format, kept: int) -> Codes | None:
    """Signed elements as one word's sum has them: a negative one takes 1 from the next."""
    each = 32 // format.bits
    if format.kind == "float" or not format.signed or format.bits > 8 or codes.shape[-1] % each or kept != 1:
        return None
    shifts = format.bits * np.arange(each)
    words = (decode(codes, format).astype(np.int64).reshape(*codes.shape[:-1], -1, each) << shifts).sum(axis=-1)
    return (words[..., None] >> shifts & format.code_mask).astype(codes.dtype).reshape(codes.shape)


def _ored(many: int, codes: Codes, format: Format, kept: int) -> Codes | None:
    """Each byte of two 4-bit elements with the bits of those before it, of `many`."""
    if format.bits != 4 or codes.shape[-1] % (2 * many) or kept != 1:
        return None
    found = np.bitwise_or.accumulate(codes.reshape(*codes.shape[:-1], -1, many, 2), axis=-2)
    return found.reshape(codes.shape)


_PAIRS = ("first", "second")
_SIGN = "a mask or an unpacking of {x} that drops the sign bit"
RECODINGS = {
    recoding.mistake + recoding.detail: recoding
    for recoding in (
        Recoding("{x}: bytes swapped", "the bytes of each element are in the other order", "big-endian data, or a byte permutation (prmt) of {x}", _bytes),
        Recoding("{x}: signs lost", "every element without its sign: its absolute value, if it is a float", _SIGN, _unsigned),
        *(Recoding("{x}: signs lost", f"of the {own} of each two elements along K alone", _SIGN, partial(_unsigned_of, place)) for place, own in enumerate(_PAIRS)),
        *(
            Recoding("{x}: the only nonzero of a group counted twice", f"where the {own} of the two elements that are kept is zero it is a copy of the {other}",
                     "look at how the compression of {x} fills the other place of a group with one nonzero: it must hold a zero", partial(_twice, place))
            for place, (own, other) in enumerate((_PAIRS, _PAIRS[::-1]))
        ),
        Recoding("{x}: a borrow from the next element", "elements lie in one word and are added or subtracted as one number: where one is negative the next along K is 1 too small",
                 "unpack {x} element by element, or with operations that keep bytes apart", _borrowed),
        *(
            Recoding("{x}: bytes not cleared", f"each byte of two elements along K is ORed with those before it, of {many} bytes that one variable collects",
                     "look at what packs two elements of {x} into a byte: clear it before the next |=", partial(_ored, many))
            for many in (2, 4)
        ),
        *(
            Recoding(f"{{x}} passed through {name}", said, f"look for what stores or converts {{x}} as {name} on the way", partial(_through, name, rounding))
            for name, rounding, said in _NARROWER
        ),
    )
}  # fmt: skip
"""By mistake and detail."""


def recoded(problem: Problem, name: str, which: str, always: bool = False) -> Problem | None:
    """The problem with an operand's codes changed; None if nothing changes (unless `always`), or the change is not one of this format."""
    codes = operand(problem, name)
    lines = codes.swapaxes(1, 2) if name == "b" else codes
    sparsity = problem.machine.sparsity if name == "a" else None
    kept = 1 if sparsity is None else sparsity.kept // sparsity.groups
    found = RECODINGS[which].change(lines, format_of(problem, name), kept)
    if found is None or (np.array_equal(found, lines) and not always):
        return None
    return changed(problem, name, np.ascontiguousarray(found.swapaxes(1, 2)) if name == "b" else found)


def recoding_rules() -> Iterator[Rule]:
    """The same as rules of an operand that leave its places alone."""
    for which, recoding in RECODINGS.items():
        yield Rule(recoding.mistake, recoding.detail, recoding.advice, _same, 3, recode=which)


def _same(r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    return r, k
