"""Small programs with products and sums, and what ptxas 13.5 makes of them: read from the machine code, of sm_75 to sm_120a alike.

Where ptxas 12.9 and 13.0 do something else, the case says so.

Each case is a body with PRODUCT and SUM, and four letters: whether they are fused ("F") or apart (".") for a product by a number, by a
parameter, of a register with itself, and of two registers. `python -m tests.unit.tcsim.ptx.fused_cases` prints what the assembler at hand makes of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hwkernels.device.sass import SassFunction, disassemble
from hwkernels.device.toolchain import Toolchain, assemble

FACTORS = {"number": "%f0, 0f3F7FFF58", "parameter": "%f0, %f7", "square": "%f0, %f0", "registers": "%f0, %f10"}


class Case(NamedTuple):
    """A program, and what ptxas makes of it."""

    body: str
    fused: str  # by factor, in the order of FACTORS
    before: str = ""  # the same with ptxas 12.9 and 13.0, if different; nothing between 13.0 and 13.5 was tried


_SPLIT = "setp.gt.f32 %p1, %f1, %f11; @%p1 bra X; st.global.f32 [%d5+2048], %f1; X:"
_LOOP = "mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; mad.wide.u32 %d7, %r4, 4, %d1; ld.global.f32 %f12, [%d7]; {0} setp.lt.u32 %p1, %r4, %r5; @%p1 bra L; {1}"
CASES = {
    "side by side": Case("PRODUCT SUM", "FFFF"),
    "branch": Case(f"PRODUCT {_SPLIT} SUM", "FF.."),
    "loop": Case("PRODUCT " + _LOOP.format("add.rn.f32 %f1, %f1, %f12;", "") + "SUM", "FF.."),
    "sum in a loop": Case("PRODUCT " + _LOOP.format("add.f32 %f1, %f1, %f2;", "mov.f32 %f9, %f1;"), "FF.."),
    "both in a loop": Case(_LOOP.format("PRODUCT add.f32 %f1, %f1, %f2;", "mov.f32 %f9, %f1;"), "FFFF"),
    "square root": Case("PRODUCT sqrt.rn.f32 %f1, %f1; SUM", "FF.."),
    "quotient": Case("PRODUCT div.rn.f32 %f1, %f1, %f11; SUM", "FF.."),
    "reciprocal": Case("PRODUCT rcp.rn.f32 %f1, %f1; SUM", "FF.."),
    "approximate quotient": Case("PRODUCT div.approx.f32 %f12, %f1, %f11; st.global.f32 [%d5+2048], %f12; SUM", "FFFF"),
    "signed integer division": Case("PRODUCT div.s32 %r6, %r0, %r5; st.global.u32 [%d5+2048], %r6; SUM", "FF.."),
    "unsigned integer division": Case("PRODUCT div.u32 %r6, %r0, %r5; st.global.u32 [%d5+2048], %r6; SUM", "FFFF"),
    "remainder of 16 bits": Case("PRODUCT cvt.u16.u32 %h0, %r0; rem.u16 %h0, %h0, %h0; st.global.u16 [%d5+2048], %h0; SUM", "FF.."),
    "barrier": Case("PRODUCT bar.sync 0; SUM", "FFFF"),
    "warp barrier": Case("PRODUCT bar.warp.sync -1; SUM", "FFFF"),
    "membar": Case("PRODUCT membar.gl; SUM", "FF.."),
    "fence": Case("PRODUCT fence.acq_rel.gpu; SUM", "FF.."),
    "shuffle": Case("PRODUCT shfl.sync.bfly.b32 %r6, %r0, 1, 31, -1; st.global.u32 [%d5+2048], %r6; SUM", "FFFF"),
    "atomic": Case("PRODUCT atom.global.add.u32 %r6, [%d5+2048], 1; st.global.u32 [%d5+4], %r6; SUM", "FFFF"),
    "predicated store": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; @%p1 st.global.f32 [%d5+2048], %f1; SUM", "FF.."),
    "predicated load": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; @%p1 ld.global.f32 %f1, [%d5+64]; SUM", "FF.."),
    "predicated sum": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; @%p1 add.rn.f32 %f1, %f1, %f11; SUM", "FFFF"),
    "predicated move": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; @%p1 mov.f32 %f1, %f11; SUM", "FFFF"),
    "some threads end": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; @%p1 exit; SUM", "FF.."),
    "sum is predicated": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; mov.f32 %f9, %f11; @%p1 SUM", "FFFF"),
    "sum on one of two ways": Case(
        "mov.f32 %f9, %f11; PRODUCT setp.gt.f32 %p1, %f1, %f11; @%p1 bra X; SUM X:", "FF.."
    ),
    "product is predicated": Case("mov.f32 %f2, %f11; setp.gt.f32 %p1, %f1, %f11; @%p1 PRODUCT SUM", "...."),
    "product on one of two ways": Case("setp.gt.f32 %p1, %f1, %f11; @%p1 bra X; PRODUCT bra Y; X: ld.global.f32 %f2, [%d5+64]; Y: SUM", "...."),
    "products on both ways": Case("setp.gt.f32 %p1, %f1, %f11; PRODUCT @%p1 bra X; mul.f32 %f2, %f10, %f11; X: SUM", "...."),
    "factor written again": Case("PRODUCT mov.f32 %f0, 0f00000000; SUM st.global.f32 [%d5+2048], %f0;", "FFFF"),
    "factor written again on one way": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; @%p1 bra X; ld.global.f32 %f0, [%d5+64]; X: SUM st.global.f32 [%d5+2048], %f0;", "FF.."),
    "magnitude": Case("PRODUCT abs.f32 %f3, %f2; add.f32 %f9, %f3, %f1;", "..F."),
    "negated magnitude of the negated": Case(
        "PRODUCT neg.f32 %f3, %f2; abs.f32 %f3, %f3; neg.f32 %f3, %f3; add.f32 %f9, %f3, %f1;", "...."
    ),
    "stored": Case("PRODUCT st.global.f32 [%d5+2048], %f2; SUM", "...."),
    "stored on one way": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; @%p1 bra X; st.global.f32 [%d5+2048], %f2; X: SUM", "...."),
    "multiplied on": Case("PRODUCT mul.rn.f32 %f3, %f2, %f11; st.global.f32 [%d5+2048], %f3; SUM", "...."),
    "used in vain": Case("PRODUCT abs.f32 %f3, %f2; SUM", "FFFF"),
    "two sums": Case("PRODUCT add.f32 %f3, %f2, %f11; st.global.f32 [%d5+2048], %f3; SUM", "FFFF"),
    "two sums, one behind a branch": Case(f"PRODUCT add.f32 %f3, %f2, %f11; st.global.f32 [%d5+64], %f3; {_SPLIT} SUM", "FF.."),
    "a sum on each way": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; @%p1 bra X; add.f32 %f9, %f2, %f11; bra Y; X: SUM Y:", "FF.."),
    "also in a sum with .rn": Case("PRODUCT add.rn.f32 %f3, %f2, %f11; st.global.f32 [%d5+2048], %f3; SUM", "...."),
    "twice itself": Case("PRODUCT add.f32 %f9, %f2, %f2;", "...."),
    "twice itself through mov": Case("PRODUCT mov.f32 %f3, %f2; add.f32 %f9, %f2, %f3;", "...."),
    "moved": Case("PRODUCT mov.f32 %f3, %f2; add.f32 %f9, %f3, %f1;", "FFFF"),
    "moved through integers": Case("PRODUCT mov.b32 %r6, %f2; mov.b32 %f3, %r6; add.f32 %f9, %f3, %f1;", "FFFF"),
    "packed and unpacked": Case("PRODUCT mov.b64 %d9, {%f2, %f11}; mov.b64 {%f3, %f4}, %d9; add.f32 %f9, %f3, %f1; st.global.f32 [%d5+2048], %f4;", "FFFF"),
    "negated": Case("PRODUCT neg.f32 %f3, %f2; add.f32 %f9, %f3, %f1;", "FFFF"),
    "negated twice": Case("PRODUCT neg.f32 %f3, %f2; neg.f32 %f4, %f3; add.f32 %f9, %f4, %f1;", "FFFF"),
    "negated across a branch": Case(f"PRODUCT neg.f32 %f3, %f2; {_SPLIT} add.f32 %f9, %f3, %f1;", "FF.."),
    "sign changed as an integer": Case("PRODUCT mov.b32 %r6, %f2; xor.b32 %r6, %r6, 0x80000000; mov.b32 %f3, %r6; add.f32 %f9, %f3, %f1;", "FFFF", "...."),
    "times one": Case("PRODUCT mul.f32 %f3, %f2, 0f3F800000; add.f32 %f9, %f3, %f1;", "FFFF"),
    "minus zero": Case("PRODUCT sub.f32 %f3, 0f80000000, %f2; add.f32 %f9, %f3, %f1;", "FFFF"),
    "smaller of itself": Case("PRODUCT min.f32 %f3, %f2, %f2; add.f32 %f9, %f3, %f1;", "FFFF"),
    "chosen from itself": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; selp.f32 %f3, %f2, %f2, %p1; add.f32 %f9, %f3, %f1;", "FFFF"),
    "chosen": Case("PRODUCT setp.gt.f32 %p1, %f1, %f11; selp.f32 %f3, %f2, %f10, %p1; add.f32 %f9, %f3, %f1;", "...."),
    "through another lane": Case("PRODUCT mov.b32 %r6, %f2; shfl.sync.idx.b32 %r6, %r6, %r0, 31, -1; mov.b32 %f3, %r6; add.f32 %f9, %f3, %f1;", "...."),
    "difference": Case("PRODUCT sub.f32 %f9, %f2, %f1;", "FFFF"),
    "difference the other way": Case("PRODUCT sub.f32 %f9, %f1, %f2;", "FFFF"),
    "saturated sum": Case("PRODUCT add.sat.f32 %f9, %f2, %f1;", "FFFF"),
    "sum with .rn": Case("PRODUCT add.rn.f32 %f9, %f2, %f1;", "...."),
    "flushed sum": Case("PRODUCT add.ftz.f32 %f9, %f2, %f1;", "...."),
}  # fmt: skip
FACTORS_ACROSS = {  # what sets %f8, and whether a product by it is fused across a branch
    "mov": ("mov.f32 %f8, 0f3F7FFF58;", True),
    "bits": ("mov.u32 %r9, 0x3F7FFF58; mov.b32 %f8, %r9;", True),
    "negated number": ("mov.f32 %f8, 0f3F7FFF58; neg.f32 %f8, %f8;", True),
    "parameter loaded here": ("ld.param.f32 %f8, [k];", True),
    "parameter as bits": ("ld.param.b32 %r9, [k]; mov.b32 %f8, %r9;", True),
    "part of a parameter": ("ld.param.u64 %d9, [pair]; mov.b64 {%f12, %f8}, %d9;", True),
    "vector of a parameter": ("ld.param.v2.f32 {%f12, %f8}, [pair];", True),
    "negated parameter": ("neg.f32 %f8, %f7;", True),
    "constant": ("ld.const.f32 %f8, [table+4];", True),
    "sum of parameters": ("add.rn.f32 %f8, %f7, %f7;", False),
    "integer parameter": ("cvt.rn.f32.u32 %f8, %r5;", False),
    "one value for all": ("ld.global.f32 %f8, [%d0];", False),
    "block": ("mov.u32 %r9, %ctaid.x; cvt.rn.f32.u32 %f8, %r9;", False),
    "number or another": ("mov.f32 %f8, 0f3F7FFF58; setp.gt.f32 %p2, %f1, %f11; @%p2 mov.f32 %f8, 0f40400000;", False),
}
SEVERAL = {  # sums of the products p, q, r and the numbers x, y, in their order, and which product ptxas fuses with each: "." for none
    "two products": ("p+q", "p"),
    "two products, the second first": ("q+p", "q"),
    "sum and difference": ("p+q p-q", "pp"),
    "sum and difference the other way": ("q-p p+q", "qq"),
    "difference and sum": ("p-q q+p", "pp"),
    "the first in another sum": ("p+q p+x", "q."),
    "the first in another sum before": ("p+x p+q", ".q"),
    "the second in another sum": ("p+q q+x", "p."),
    "the second in another sum before": ("x-q p+q", ".p"),
    "each in another sum": ("p+q p+x q+y", "pp."),
    "each in another sum before": ("p+x q+y p+q", "pqp"),
    "the first in more sums": ("p+q q-p p-x", "qq."),
    "a circle": ("p+q q+r r+p", "prr"),
    "a circle the other way": ("q+p r+q p+r", "qrr"),
    "a chain": ("p+q q+r", "pr"),
    "a product in three sums": ("x+q r-q r+q p+x p-y", "qrrpp"),
    "negated": ("p+q x-q -q+y", "p.."),
    "negated in a sum with another one": ("-q+p q+x p+y", "qq."),
    "real and imaginary part": ("p-q r+x", "pr"),
}


def several(sums: str, factor: str, chosen: str = "") -> str:
    """A body with sums of products of registers, or by a number. chosen: of each sum the product that is fused, everything else rounded on its own."""
    rounding, number = ".rn" if chosen else "", "0f3F7FFF58"
    factors = {"p": ("%f0", "%f10"), "q": ("%f1", "%f11"), "r": ("%f0", "%f11")}
    if factor == "number":
        factors = {name: (own, number) for name, own in zip("pqr", ("%f0", "%f1", "%f10"), strict=True)}
    registers = {"p": "%f2", "q": "%f3", "r": "%f4", "x": "%f12", "y": "%f13"}
    lines = ["ld.global.f32 %f12, [%d5+512]; ld.global.f32 %f13, [%d5+640]; mov.f32 %f9, 0f3F800000;"]
    lines += [f"mul{rounding}.f32 {registers[own]}, {a}, {b};" for own, (a, b) in factors.items() if own in sums]
    for place, text in enumerate(sums.split()):
        first, operation, second = text[:-2], text[-2], text[-1]
        signs = {first[-1]: "-" if first[0] == "-" else "", second: "-" if operation == "-" else ""}
        own = (chosen or "." * 9)[place]
        if own == ".":
            a = registers[first[-1]]
            if signs[first[-1]]:
                lines.append(f"neg.f32 %f14, {a};")
                a = "%f14"
            lines.append(f"{'sub' if operation == '-' else 'add'}{rounding}.f32 %f15, {a}, {registers[second]};")
        else:
            (other,) = set(signs) - {own}
            lines += [f"{'neg' if signs[own] else 'mov'}.f32 %f14, {factors[own][0]};"]
            lines += [f"{'neg' if signs[other] else 'mov'}.f32 %f16, {registers[other]};"]
            lines += [f"fma.rn.f32 %f15, %f14, {factors[own][1]}, %f16;"]
        lines.append(f"mul.rn.f32 %f9, %f9, %f15; st.global.f32 [%d5+{1024 + 128 * place}], %f15;")
    return "\n".join(lines)


def kernel(body: str, name: str = "k") -> str:
    """An entry with a body: %f0, %f1, %f10, %f11 are loaded, %f7 is a parameter, %f9 is stored."""
    return f"""
.visible .entry {name}(.param .u64 a, .param .u64 out, .param .f32 k, .param .u32 n, .param .align 8 .b8 pair[8])
{{
  .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<10>; .reg .f32 %f<20>; .reg .b64 %d<12>;
  ld.param.u64 %d1, [a]; ld.param.u64 %d2, [out]; ld.param.f32 %f7, [k]; ld.param.u32 %r5, [n]; mov.u64 %d0, %d1;
  mov.u32 %r0, %tid.x; mad.wide.u32 %d5, %r0, 4, %d1; mad.wide.u32 %d6, %r0, 4, %d2;
  ld.global.f32 %f0, [%d5]; ld.global.f32 %f1, [%d5+128]; ld.global.f32 %f10, [%d5+256]; ld.global.f32 %f11, [%d5+384];
  {body}
  st.global.f32 [%d6], %f9; ret;
}}
"""


def module(kernels: Sequence[str], target: str = "sm_90a") -> str:
    return (
        f".version 8.7\n.target {target}\n.address_size 64\n.const .align 4 .f32 table[2] = {{0f3F000000, 0f3F7FFF58}};\n"
        + "".join(kernels)
    )


def written(body: str, factor: str, product: str = "", sum: str = "") -> str:
    """A body with its product and sum; product, sum: a rounding modifier of theirs."""
    made = body.replace("PRODUCT", f"mul{product}.f32 %f2, {FACTORS.get(factor, factor)};")
    return made.replace("SUM", f"add{sum}.f32 %f9, %f2, %f1;").replace("; ", ";\n").replace(": ", ":\n")


def fma_count(function: SassFunction) -> int:
    """The FFMA of a function."""
    return Counter(item.opcode.partition(".")[0] for item in function.instructions)["FFMA"]


def bodies(before: bool = False) -> Iterator[tuple[str, str, str, bool]]:
    """(name, body, factor, whether ptxas fuses). before: ptxas 12.9 and 13.0."""
    for name, case in CASES.items():
        for factor, letter in zip(FACTORS, (before and case.before) or case.fused, strict=True):
            yield f"{name}, {factor}", case.body, factor, letter == "F"
    for name, (setting, fuses) in FACTORS_ACROSS.items():
        yield f"{name}, across", f"{setting} PRODUCT {_SPLIT} SUM", "%f0, %f8", fuses


def listing(function: SassFunction) -> list[str]:
    """The instructions of a function, without where it ends; of a product by a number the sign is the number's."""
    texts = [f"{item.opcode} {item.operands}" for item in function.instructions if item.opcode not in ("BRA", "NOP")]
    return [re.sub(r"-(R[\w.]+), (\d)", r"\1, -\2", own) for own in texts]


def assembled(target: str = "sm_90a", toolchain: Toolchain | None = None) -> dict[str, bool]:
    """What an assembler, or the newest at hand, makes of every case: an FFMA more than with .rn."""
    every = list(bodies())
    texts = [
        kernel(written(body, factor, rounding), f"e{number}{rounding[1:]}")
        for number, (_, body, factor, _) in enumerate(every)
        for rounding in ("", ".rn")
    ]
    found = {
        own.name: fma_count(own)
        for own in disassemble(assemble(module(texts, target), target, toolchain, allow_notes=True).cubin)
    }
    return {name: found[f"e{number}"] > found[f"e{number}rn"] for number, (name, *_) in enumerate(every)}


if __name__ == "__main__":
    for name, fuses in assembled().items():
        print(f"{name:50} {'fused' if fuses else 'apart'}")
