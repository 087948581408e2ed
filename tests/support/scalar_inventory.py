"""Which spellings of scalar instructions ptxas accepts: tries every candidate for every target.

`python -m tests.support.scalar_inventory` writes scalar_inventory.csv of tests/data/tables.zip anew from the installed assemblers. The candidates are products of
everything that the PTX manual's grammars name for a stem, wider than the grammars themselves: what ptxas takes beyond them is found too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import NamedTuple

from tcsim.core.targets import TARGETS
from tcsim.core.versions import PTX_ISA
from tests.support import tables
from tests.support.ordinary_inventory import Candidate, accepted

INVENTORY = tables.TABLES / "scalar_inventory.csv"
_HEADER = """\
# Scalar spellings that ptxas 13.5.37 (sm_70, sm_72: 12.9.86) accepts: the types of the operands, the destination's first (a "|" behind the
# spelling: a predicate beside it), and which of the sets of targets above the table take it. Written by tests/support/scalar_inventory.py.
"""

ROUNDED = ("", "rn", "rz", "rm", "rp")
INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
BYTES = ("u8", "s8", "b8")
BITS = ("b16", "b32", "b64")
PACKED = ("u16x2", "s16x2", "u8x4", "s8x4")
FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2")
ALL = (*INTEGERS, *BITS, *PACKED, *FLOATS)
COMPARISONS = (
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
)  # fmt: skip


class Spelling(NamedTuple):
    """A mnemonic with the types of its operands, the destination's first."""

    mnemonic: str
    types: tuple[str, ...]
    second: bool = False  # a predicate beside the destination

    @property
    def key(self) -> str:
        """The name in the table: several lists of operands of one mnemonic are told apart by it."""
        return f"{self.mnemonic}{'|' * self.second}/{len(self.types) - 1}"


def register(type: str, place: int) -> str:
    """A register of the harness that has a type."""
    if type == "imm":
        return "0x96"
    if type == "pred":
        return "%q" if place else "%p"
    wide = {"f32": "f", "f64": "g", "f32x2": "d"}.get(type)
    if wide is None:
        bits = 32 if "x2" in type or "x4" in type or type == "tf32" else int(type.lstrip("bufs"))
        wide = {8: "h", 16: "h", 32: "r", 64: "d"}[bits]
    return f"%{wide}{place}"


def _spelled(stem: str, *choices: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for chosen in product(*choices):
        yield ".".join([stem, *(word for word in chosen if word)]), chosen


def _same(stem: str, sources: int, *choices: Iterable[str]) -> Iterator[Spelling]:
    """Spellings whose last word is the type of every operand."""
    for name, chosen in _spelled(stem, *choices):
        yield Spelling(name, (chosen[-1],) * (sources + 1))


def _sums() -> Iterator[Spelling]:
    for stem in ("add", "sub", "mul"):
        yield from _same(stem, 2, ROUNDED, ("", "ftz"), ("", "sat", "relu", "cc"), ALL)
        for name, chosen in _spelled(
            stem, ROUNDED, ("", "ftz"), ("", "sat"), ("f32", "f64"), ("f16", "bf16", "f32", "f16x2")
        ):
            yield Spelling(name, (chosen[3], chosen[4], chosen[3]))
    for stem in ("addc", "subc"):
        yield from _same(stem, 2, ("", "cc"), (*INTEGERS, *BITS))
    for stem in ("fma", "mad"):
        yield from _same(stem, 3, ROUNDED, ("", "ftz"), ("", "sat", "relu", "oob", "oob.relu"), FLOATS)
        for name, chosen in _spelled(
            stem, ROUNDED, ("", "ftz"), ("", "sat"), ("f32", "f64"), ("f16", "bf16", "f32", "f16x2")
        ):
            yield Spelling(name, (chosen[3], chosen[4], chosen[4], chosen[3]))
    for stem, part, cc, type in product(
        ("mul", "mad", "madc", "mul24", "mad24"), ("lo", "hi", "wide"), ("", "cc", "sat"), (*INTEGERS, *BITS)
    ):
        out = type[0] + str(2 * int(type[1:])) if part == "wide" else type
        if out.endswith("128"):
            continue
        name = ".".join(word for word in (stem, part, cc, type) if word)
        yield Spelling(name, (out, type, type) if stem.startswith("mul") else (out, type, type, out))


def _integers() -> Iterator[Spelling]:
    for stem in ("div", "rem"):
        yield from _same(stem, 2, (*INTEGERS, *BITS))
    yield from _same("sad", 3, (*INTEGERS, *PACKED))
    for stem in ("abs", "neg"):
        yield from _same(stem, 1, ("", "ftz", "sat"), ALL)
    for stem, sources in product(("min", "max"), (2, 3)):
        yield from _same(stem, sources, ("", "ftz"), ("", "NaN"), ("", "xorsign.abs", "relu", "abs"), ALL)
    for stem in ("popc", "clz", "brev", "bfind", "bfind.shiftamt", "not", "cnot"):
        for type in (*BITS, *INTEGERS, "pred"):
            out = type if stem in ("brev", "not", "cnot") else "u32"
            yield Spelling(f"{stem}.{type}", (out, type))
    for type in (*BITS, *INTEGERS):
        yield Spelling(f"bfe.{type}", (type, type, "u32", "u32"))
        yield Spelling(f"bfi.{type}", (type, type, type, "u32", "u32"))
        for stem in ("shl", "shr"):
            yield Spelling(f"{stem}.{type}", (type, type, "u32"))
        for mode in ("clamp", "wrap", ""):
            dot = f".{mode}" * bool(mode)
            yield Spelling(f"szext{dot}.{type}", (type, type, "u32"))
            yield Spelling(f"bmsk{dot}.{type}", (type, "u32", "u32"))
            for side in ("l", "r"):
                yield Spelling(f"shf.{side}{dot}.{type}", (type, type, type, "u32"))
        yield Spelling(f"fns.{type}", (type, type, "u32", "s32"))
        for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
            yield Spelling(f"prmt.{type}{mode}", (type, type, type, "u32"))
        for stem in ("and", "or", "xor"):
            yield Spelling(f"{stem}.{type}", (type,) * 3)
        yield Spelling(f"lop3.{type}", (*(type,) * 4, "imm"))
        for way in ("and", "or", "xor"):
            yield Spelling(f"lop3.{way}.{type}", (*(type,) * 4, "imm", "pred"), True)
    for stem in ("and", "or", "xor"):
        yield Spelling(f"{stem}.pred", ("pred",) * 3)
    for a, b in product(("u32", "s32", "b32"), repeat=2):
        out = "s32" if "s32" in (a, b) else "u32"
        yield Spelling(f"dp4a.{a}.{b}", (out, "b32", "b32", out))
        for half in ("lo", "hi"):
            yield Spelling(f"dp2a.{half}.{a}.{b}", (out, "b32", "b32", out))
    for part, type in product(("lo", "hi"), ("u64", "b64", "u32", "b32")):
        yield Spelling(f"clmad.{part}.{type}", (type,) * 4)


def _floats() -> Iterator[Spelling]:
    modes = (*ROUNDED, "approx", "full")
    yield from _same("div", 2, modes, ("", "ftz"), ("f32", "f64", "f16", "bf16"))
    for stem in ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"):
        yield from _same(stem, 1, modes, ("", "ftz"), FLOATS)
        yield from _same(stem, 1, modes, ("", "ftz"), ("2pi",), FLOATS)
    for word in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        for type in ("f32", "f64", "f16", "bf16"):
            yield Spelling(f"testp.{word}.{type}", ("pred", type))
    yield from _same("copysign", 2, ("f32", "f64", "f16", "bf16", "f16x2"))


def _comparisons() -> Iterator[Spelling]:
    for name, ftz, type in product(COMPARISONS, ("", "ftz"), ALL):
        if ftz and type[0] in "usb" and not type.startswith("bf"):
            continue
        packed = type in ("f16x2", "bf16x2")
        for way in ("", "and", "or", "xor"):
            end = ("pred",) * bool(way)
            mnemonic = ".".join(word for word in ("setp", name, way, ftz, type) if word)
            for second in (False, True):
                if not (packed and not second):
                    yield Spelling(mnemonic, ("pred", type, type, *end), second)
            for out in ("u16", "s16", "u32", "s32", "f32", "f16", "bf16", "f16x2", "bf16x2"):
                mnemonic = ".".join(word for word in ("set", name, way, ftz, out, type) if word)
                yield Spelling(mnemonic, (out, type, type, *end))
    for type in (*ALL, "pred"):
        yield Spelling(f"selp.{type}", (type, type, type, "pred"))
        for ftz, third in product(("", "ftz"), ("s32", "f32", "u32")):
            yield Spelling(".".join(word for word in ("slct", ftz, type, third) if word), (type, type, type, third))
        yield Spelling(f"mov.{type}", (type, type))


def _conversions() -> Iterator[Spelling]:
    types = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64")
    modes = (*ROUNDED, "rni", "rzi", "rmi", "rpi", "rna")
    for name, chosen in _spelled("cvt", modes, ("", "ftz"), ("", "sat", "relu"), types, types):
        yield Spelling(name, (chosen[3], chosen[4]))
    for to, source in product(("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"), ("s32", "u32")):
        yield Spelling(f"cvt.pack.sat.{to}.{source}", ("b32", source, source))
        yield Spelling(f"cvt.pack.sat.{to}.{source}.b32", ("b32", source, source, "b32"))


def _differences() -> Iterator[Spelling]:
    types = ("u32", "s32")
    for name, chosen in _spelled("vabsdiff", ("2", "4"), types, types, types, ("", "sat", "add")):
        yield Spelling(name.replace("vabsdiff.", "vabsdiff"), (*chosen[1:4], chosen[1]))


def spellings() -> tuple[Spelling, ...]:
    """Every spelling that is tried, once."""
    every = (one for part in (_sums, _integers, _floats, _comparisons, _conversions, _differences) for one in part())
    return tuple(dict.fromkeys(every))


def statement(one: Spelling) -> str:
    """Its operands as registers of the harness."""
    first = register(one.types[0], 0) + "|%q" * one.second
    return ", ".join([first, *(register(type, place) for place, type in enumerate(one.types) if place)])


def taken(tried: Iterable[Spelling], target: str) -> set[Spelling]:
    """Those that ptxas takes for a target."""
    old = TARGETS[target].number < 75
    asked = (
        one for one in tried if not (old and ".2pi" in one.mnemonic)
    )  # ptxas 12.9 reads no further: .2 is a number
    by_candidate = {Candidate("", one.mnemonic, one.key, statement(one)): one for one in asked}
    found = accepted(by_candidate, target, "8.8" if old else PTX_ISA[-1])
    return {by_candidate[one] for one in found}


def inventory(targets: Iterable[str] = tuple(TARGETS)) -> dict[Spelling, tuple[str, ...]]:
    """Each spelling that some target takes, and its targets."""
    tried = spellings()
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(targets, pool.map(lambda target: taken(tried, target), targets), strict=True))
    every = {one: tuple(target for target in found if one in found[target]) for one in tried}
    return {one: takers for one, takers in every.items() if takers}


def main() -> None:
    """Write the inventory."""
    found = inventory()
    sets = sorted(set(found.values()), key=lambda takers: -len(takers))
    lines = [f"# {place}: {' '.join(takers)}" for place, takers in enumerate(sets)]
    rows = [
        f"{one.mnemonic}{'|' * one.second},{' '.join(one.types)},{sets.index(takers)}" for one, takers in found.items()
    ]
    tables.write(INVENTORY.name, "\n".join([_HEADER.rstrip(), *lines, "mnemonic,operands,targets", *rows]) + "\n")


if __name__ == "__main__":
    main()
