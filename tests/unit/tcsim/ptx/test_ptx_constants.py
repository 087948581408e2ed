"""Functions of constants: what ptxas puts into the machine code in their place is what the model of a kernel computes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

import tcsim.ptx
from hwkernels.device.sass import listing_of
from hwkernels.device.toolchain import assemble

ROW = ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 o, .param .f32 x)\n{\n"
ROW += ".reg .f32 %f<999>; .reg .b64 %o;\nld.param.u64 %o, [o]; ld.param.f32 %f0, [x];\n"
COUNT = 30
FLOATS = {"sqrt", "rsqrt", "lg2"}
SPECIAL = [0x00000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F000000, 0x7E800001, 0x3F800000, 0x40800000, 0x41F9852D]
FUNCTIONS = [
    f"{stem}.approx{ftz}.f32" for stem in ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos") for ftz in ("", ".ftz")
]
HALF = r"(-?[\d.]+(?:e[-+]\d+)?|[-+]INF)"
MOVE = re.compile(
    rf"(?:HFMA2\.MMA|HFMA2) (R\d+), -RZ, RZ, {HALF}, {HALF}|(?:MOV|IMAD\.MOV\.U32) (R\d+), (?:RZ, RZ, )?(-?)(0x[0-9a-f]+)"
)
STORE = re.compile(r"STG\.E desc\[UR\d+\]\[R\d+\.64(?:\+(0x[0-9a-f]+))?\], (R\d+|RZ)")
PRODUCT = re.compile(r"FMUL(?:\.FTZ)? (R\d+), R\d+, (-?[\d.]+(?:e[-+]\d+)?)")


def module(lines: Sequence[str]) -> str:
    """A kernel that stores the value of each line's %fN behind the others."""
    stores = (f"{line}; st.global.f32 [%o+{4 * n}], %f{n + 1};" for n, line in enumerate(lines))
    return ROW + "\n".join(stores) + "\nret;\n}\n"


def folded(text: str) -> dict[int, int]:
    """The constants that the machine code stores, or multiplies by before it stores, by their place."""
    held: dict[str, int | None] = {}
    found: dict[int, int] = {}
    for line in listing_of(assemble(text, "sm_90a").cubin).splitlines():
        if move := MOVE.search(line):
            first, high, low, second, sign, word = move.groups()
            if first:
                codes = [int(np.float16(own.replace("INF", "inf")).view(np.uint16)) for own in (high, low)]
                held[first] = codes[0] << 16 | codes[1]
            else:
                held[second] = (-1 if sign else 1) * int(word, 16) & 0xFFFFFFFF
        elif factor := PRODUCT.search(line):
            held[factor[1]] = int(np.float32(factor[2]).view(np.uint32))
        elif (store := STORE.search(line)) and (value := 0 if store[2] == "RZ" else held.get(store[2])) is not None:
            found[int(store[1] or "0", 16) // 4] = value
        elif other := re.search(r"\*/\s+(?:@!?\S+ )?[A-Z][\w.]* (R\d+)", line):
            held.pop(other[1], None)
    return found


def computed(text: str, count: int, x: float = 1.0) -> npt.NDArray[np.uint32]:
    """What the model of the kernel stores."""
    memory = tcsim.ptx.Memory()
    out = memory.allocate(np.zeros(4 * count, np.uint8))
    run = tcsim.ptx.parse(text).kernel().launch(memory, [out, np.float32(x)])
    assert run.completed, run.hazards
    return np.asarray(memory.read(out, 4 * count)).view(np.uint32)


def constants(stem: str) -> list[int]:
    rng = np.random.default_rng(len(stem))
    given = rng.uniform(0.01, 100, COUNT) if stem in FLOATS else rng.uniform(-10, 10, COUNT)
    return SPECIAL + np.float32(given).view(np.uint32).tolist()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_constants(name: str) -> None:
    given = constants(name.partition(".")[0])
    text = module([f"{name} %f{n + 1}, 0f{code:08X}" for n, code in enumerate(given)])
    known, model = folded(text), computed(text, len(given))
    wrong = {hex(given[n]): (hex(code), hex(model[n])) for n, code in known.items() if code != model[n]}
    assert not wrong and len(known) > COUNT
    moved = module(
        [f"mov.f32 %f{n + 400}, 0f{code:08X}; {name} %f{n + 1}, %f{n + 400}" for n, code in enumerate(given)]
    )
    assert (computed(moved, len(given)) == model).all()


@pytest.mark.parametrize("name", ["div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"])
def test_quotients_by_constants(name: str) -> None:
    """The machine code multiplies by a constant where the divisor needs no scaling: that of one is the model's quotient."""
    given = [code for code in constants("rcp") if 0x01000000 < code & 0x7FFFFFFF <= 0x7E800000]
    text = module([f"{name} %f{n + 1}, %f0, 0f{code:08X}" for n, code in enumerate(given)])
    known, model = folded(text), computed(text, len(given))
    wrong = {hex(given[n]): (hex(code), hex(model[n])) for n, code in known.items() if code != model[n]}
    assert not wrong and len(known) > 15


def test_the_unit_would_give_other_bits() -> None:
    """Of a register that is no constant the reciprocal of 31.19... is another."""
    fixed, asked = (
        computed(module([f"rcp.approx.ftz.f32 %f1, {a}"]), 1, x)[0]
        for a, x in (("0f41F9852D", 1.0), ("%f0", np.uint32(0x41F9852D).view(np.float32)))
    )
    assert (hex(fixed), hex(asked)) == ("0x3d0352f3", "0x3d0352f4")


def test_a_quotient_is_fused_with_its_sum() -> None:
    """x / 3 - 1 with one rounding, as FFMA; a rounding modifier keeps them apart. The difference is counted."""
    text = module(
        [
            "div.full.f32 %f300, %f0, 0f40400000; sub.f32 %f1, %f300, 0f3F800000",
            "div.full.f32 %f301, %f0, 0f40400000; sub.rn.f32 %f2, %f301, 0f3F800000",
        ]
    )
    third, x = np.float32(1) / np.float32(3), np.float32(3.1)
    once = np.float32(np.float64(x) * np.float64(third) - 1)
    twice = np.float32(x * third) - np.float32(1)
    assert once != twice and computed(text, 2, x).view(np.float32).tolist() == [once, twice]


@pytest.mark.parametrize(
    "between",
    [
        "div.rn.f32 %f302, %f0, %f1",
        ".reg .pred %p1; setp.gt.f32 %p1, %f0, %f0; @%p1 bra L; st.global.f32 [%o], %f0; L:",
    ],
)
def test_what_is_not_fused(between: str) -> None:
    """A subroutine or a branch keeps a quotient of registers and its sum apart; one by a number is a product by a constant, and is fused."""
    x, dots = np.float32(3.1), "" if between.endswith(":") else ";"
    for divisor, fuses in (("%f303", False), ("0f40400000", True)):
        first = f"mov.f32 %f1, %f0; add.rn.f32 %f303, %f0, 0f40000000; div.full.f32 %f300, %f0, {divisor}"
        once, twice = (
            computed(module([first, f"{between}{dots} sub{rounding}.f32 %f2, %f300, 0f3F800000"]), 2, x)[1]
            for rounding in ("", ".rn")
        )
        assert (once != twice) == fuses, divisor
