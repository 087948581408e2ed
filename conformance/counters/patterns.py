"""Kernels of one instruction, and the addresses that their lanes get.

A kernel loads an address for each lane (0xFFFFFFFF: the lane takes no part), a second one where the instruction has two, and executes
the instruction once. What it loads is used by a store that is never executed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType

LANES = 32
AWAY = 0xFFFFFFFF
"""In place of an address: the lane takes no part."""
GLOBAL_BYTES = 1 << 21
SEED = 40
_HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
_BEGIN = """.visible .entry {name}(.param .u64 pa, .param .u64 pb, .param .u64 pg, .param .u64 out)
.maxntid 32, 1, 1
{{
 .reg .pred %p, %q; .reg .b32 %t, %a, %b, %sm, %r<16>; .reg .b64 %pa, %pb, %pg, %o, %w, %ga, %d<8>; .reg .b16 %h<8>; .reg .f32 %f<16>;
 .shared .align 1024 .b8 smem[33792];
 mov.u32 %t, %tid.x; ld.param.u64 %pa, [pa]; ld.param.u64 %pb, [pb]; ld.param.u64 %pg, [pg]; ld.param.u64 %o, [out];
 mul.wide.u32 %w, %t, 4; add.u64 %pa, %pa, %w; ld.global.u32 %a, [%pa]; mov.u32 %sm, smem; setp.ne.u32 %p, %a, 0xffffffff;
"""
_SHARED, _GLOBAL = " add.u32 %sm, %sm, %a;", " cvt.u64.u32 %ga, %a; add.u64 %ga, %ga, %pg;"
_BOTH = " add.u64 %pb, %pb, %w; ld.global.u32 %b, [%pb]; add.u32 %sm, %sm, %b;" + _GLOBAL
_WIDTHS = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}


@dataclass(frozen=True)
class Pattern:
    """A kernel."""

    body: str
    width: int
    sides: str  # "shared", "global", "both"
    whole: bool = False  # whether all lanes take part

    def text(self, name: str) -> str:
        """Its PTX."""
        return f"{_BEGIN.format(name=name)}{self.body}\n ret;\n}}\n"


def _use(count: int, pair: str = "") -> str:
    """A store, never executed, of what is in registers."""
    low = "".join(f" cvt.u32.u64 %r{number}, {pair}{number};" for number in range(count)) if pair else ""
    folded = "".join(f" xor.b32 %r15, %r15, %r{number};" for number in range(1, count))
    return f"{low} mov.u32 %r15, %r0;{folded} setp.eq.u32 %q, %r15, 0x13572468; @%q st.global.u32 [%o], %r15;"


def _registers(count: int) -> str:
    names = [f"%r{number}" for number in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def _plain(space: str) -> Iterator[tuple[str, Pattern]]:
    """Loads, stores and atomics of a state space."""
    before, at = (_SHARED, "[%sm]") if space == "shared" else (_GLOBAL, "[%ga]")
    for width, type in _WIDTHS.items():
        count = max(1, width // 4)
        zeros = "".join(f" mov.u32 %r{number}, 0;" for number in range(count))
        yield (
            f"ld.{space}.{8 * width}",
            Pattern(f"{before}{zeros} @%p ld.{space}.{type} {_registers(count)}, {at};{_use(count)}", width, space),
        )
        stored = "%h0" if width == 2 else "%t" if width < 8 else "{" + ", ".join(["%t", "%a", "%t", "%t"][:count]) + "}"
        yield (
            f"st.{space}.{8 * width}",
            Pattern(f"{before} cvt.u16.u32 %h0, %t; @%p st.{space}.{type} {at}, {stored};", width, space),
        )
    for operation in (
        "add.u32",
        "max.s32",
        "and.b32",
        "inc.u32",
        "exch.b32",
        "add.u64",
        "min.s64",
        "exch.b64",
        "or.b64",
    ):
        wide = operation.endswith("64")
        to, what = ("%d0", "%w") if wide else ("%r0", "%t")
        body = f"{before} mov.u32 %r0, 0; mov.u64 %d0, 0; @%p atom.{space}.{operation} {to}, {at}, {what};{_use(1, '%d' * wide)}"
        yield f"atom.{space}.{operation}", Pattern(body, 8 if wide else 4, space)
    yield (
        f"atom.{space}.cas.b32",
        Pattern(f"{before} mov.u32 %r0, 0; @%p atom.{space}.cas.b32 %r0, {at}, %a, %t;{_use(1)}", 4, space),
    )
    yield (
        f"atom.{space}.cas.b64",
        Pattern(f"{before} mov.u64 %d0, 0; @%p atom.{space}.cas.b64 %d0, {at}, %w, %pa;{_use(1, '%d')}", 8, space),
    )
    floating = " mov.f32 %f0, 0f00000000; cvt.rn.f32.u32 %f1, %t;"
    yield (
        f"atom.{space}.add.f32",
        Pattern(f"{before}{floating} @%p atom.{space}.add.f32 %f0, {at}, %f1; mov.b32 %r0, %f0;{_use(1)}", 4, space),
    )
    yield f"red.{space}.add.f32", Pattern(f"{before}{floating} @%p red.{space}.add.f32 {at}, %f1;", 4, space)
    yield f"red.{space}.add.u32.one", Pattern(f"{before} @%p red.{space}.add.u32 {at}, 1;", 4, space)
    for operation, what, width in (
        ("add.u32", "%t", 4),
        ("add.u64", "%w", 8),
        ("or.b32", "%t", 4),
        ("add.noftz.f16x2", "%t", 4),
    ):
        yield f"red.{space}.{operation}", Pattern(f"{before} @%p red.{space}.{operation} {at}, {what};", width, space)


def _every() -> Iterator[tuple[str, Pattern]]:
    for space in ("shared", "global"):
        yield from _plain(space)
    for count in (2, 4):
        each = ", ".join(["%f1"] * count)
        yield (
            f"red.global.add.v{count}.f32",
            Pattern(
                f"{_GLOBAL} cvt.rn.f32.u32 %f1, %t; @%p red.global.add.v{count}.f32 [%ga], {{{each}}};",
                4 * count,
                "global",
            ),
        )
    for count in (1, 2, 4):
        for way in ("", ".trans"):
            shape, registers = (
                f"sync.aligned.m8n8.x{count}{way}.shared.b16",
                "{" + ", ".join(f"%r{number}" for number in range(count)) + "}",
            )
            yield (
                f"ldmatrix.x{count}{way}",
                Pattern(f"{_SHARED} ldmatrix.{shape} {registers}, [%sm];{_use(count)}", 16, "shared", True),
            )
            moved = "".join(f" mov.u32 %r{number}, %t;" for number in range(count))
            yield (
                f"stmatrix.x{count}{way}",
                Pattern(f"{_SHARED}{moved} stmatrix.{shape} [%sm], {registers};", 16, "shared", True),
            )
    for cache, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        copy = f"@%p cp.async.{cache}.shared.global [%sm], [%ga], {size}"
        yield f"cp.async.{cache}.{size}", Pattern(f"{_BOTH} {copy}; cp.async.wait_all;", size, "both")
        if size == 16:
            half = " and.b32 %r0, %t, 1; mul.lo.u32 %r0, %r0, 16;"
            yield (
                f"cp.async.{cache}.{size}.zfill",
                Pattern(f"{_BOTH}{half} {copy}, %r0; cp.async.wait_all;", size, "both"),
            )


PATTERNS: Mapping[str, Pattern] = MappingProxyType(dict(_every()))
"""By name."""


def module(names: Iterator[str] | list[str]) -> str:
    """The PTX of some kernels: `k0`, `k1` and so on, in the order of `PATTERNS`."""
    order = list(PATTERNS)
    return _HEAD + "".join(PATTERNS[name].text(f"k{order.index(name)}") for name in names)


def addresses(pattern: Pattern, generator: random.Random) -> Iterator[tuple[list[int], list[int]]]:
    """What lanes get: addresses of the first side, and of the second."""
    width, lanes = pattern.width, range(LANES)

    def anywhere(span: int, alike: int = 0) -> list[int]:
        drawn = [generator.randrange(span // width) * width for _ in lanes]
        return [drawn[lane & ~alike] for lane in lanes]

    def strided() -> list[int]:
        stride = max(1, generator.choice([4, 8, 16, 36, 64, 80, 128, 132, 144, 256, 272, 512]) // width) * width
        return [lane * stride for lane in lanes]

    def shuffled() -> list[int]:
        return generator.sample([lane * width for lane in lanes], LANES)

    def some(values: list[int], part: float = 0.6) -> list[int]:
        return values if pattern.whole else [value if generator.random() < part else AWAY for value in values]

    makers: list[Callable[[], list[int]]] = [
        lambda: anywhere(512), lambda: anywhere(4096), lambda: anywhere(32768), strided, strided, shuffled, lambda: anywhere(2048, 1),
        lambda: anywhere(2048, 2), lambda: anywhere(2048, 3), lambda: some(anywhere(2048)), lambda: some(anywhere(1024, generator.choice([1, 2]))),
    ]  # fmt: skip
    if pattern.sides == "global":
        makers += [lambda: anywhere(1 << 20), lambda: [lane << 15 for lane in lanes]]
    for make in makers:
        first = make()
        yield first, generator.choice(makers[:9])() if pattern.sides == "both" else first


def cases(seed: int = SEED) -> list[tuple[str, list[int], list[int]]]:
    """Every launch: pattern, addresses of the first side and of the second; the first ones of all patterns come first."""
    generator = random.Random(seed)
    each = [[(name, *own) for own in addresses(pattern, generator)] for name, pattern in PATTERNS.items()]
    return [own for turn in zip_longest(*each) for own in turn if own is not None]
