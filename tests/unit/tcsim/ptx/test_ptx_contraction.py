"""Products fused with sums: the table of what ptxas does, the model against it, and random programs."""

from __future__ import annotations

import re
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from hwkernels.device.sass import disassemble
from hwkernels.device.toolchain import assemble, find_toolchains
from tcsim.ptx import Memory, Run, parse
from tcsim.ptx.compile.contraction import choices, handed_over
from tcsim.ptx.compile.guarded import branched
from tests.unit.tcsim.ptx.fused_cases import (
    CASES,
    SEVERAL,
    assembled,
    bodies,
    fma_count,
    kernel,
    listing,
    module,
    several,
    written,
)

EVERY = list(bodies())
SCHEDULES = ("late", "early", 0, 1, 2)


def ran(text: str, schedule: Any = "late") -> tuple[np.ndarray, Run]:
    """What the threads of a warp store."""
    memory, values = Memory(), np.random.default_rng(5).normal(size=4096).astype(np.float32)
    a, out = memory.allocate(values.view(np.uint8)), memory.allocate(128)
    pair = np.array([0.7, 0.99999], np.float32).tobytes()
    run = (
        parse(module([text]))
        .kernel()
        .launch(memory, [a, out, np.float32(0.99999), 5, pair], block=(32, 1, 1), schedule=schedule)
    )
    assert run.completed, run.hazards
    return memory.read(out, 128).view(np.uint32), run


def apart(body: str) -> str:
    """A body whose products and sums are rounded each."""
    return re.sub(r"\b(mul|add|sub)(|\.sat|\.ftz)\.f32", r"\1.rn\2.f32", body)


@pytest.mark.parametrize(("name", "body", "factor", "fuses"), EVERY, ids=[own[0] for own in EVERY])
def test_as_the_assembler_does(name: str, body: str, factor: str, fuses: bool) -> None:
    """One rounding where ptxas fuses, else two; and where one rounding gives different bits `inexact` says so."""
    text = written(body, factor)
    found, run = ran(kernel(text))
    twice, _ = ran(kernel(apart(text)))
    if not fuses:
        assert np.array_equal(found, twice)
        return
    assert (found != twice).any(), "the inputs do not tell one rounding from two"
    assert sum(run.inexact.values()) >= (found != twice).sum() and all(own.startswith("mul + ") for own in run.inexact)


EVERY_SEVERAL = [(name, factor) for name in SEVERAL for factor in ("registers", "number")]


@pytest.mark.parametrize(("name", "factor"), EVERY_SEVERAL)
def test_which_of_several_products(name: str, factor: str) -> None:
    """The bits of the program that says which product is fused; where the other one, or none, gives different bits `inexact` says so."""
    sums, chosen = SEVERAL[name]
    for schedule in SCHEDULES:
        found, run = ran(kernel(several(sums, factor)), schedule)
        wanted, explicit = ran(kernel(several(sums, factor, chosen)), schedule)
        assert np.array_equal(found, wanted) and run.inexact and not explicit.inexact


def test_a_product_of_numbers_is_a_number() -> None:
    for body in (
        "mul.f32 %f2, 0f3F7FFF58, 0f3DCCCCCD;",
        "mov.f32 %f3, 0f3F7FFF58; mov.f32 %f4, 0f3DCCCCCD; mul.f32 %f2, %f3, %f4;",
    ):
        found, run = ran(kernel(body + "add.f32 %f9, %f2, %f1;"))
        assert np.array_equal(found, ran(kernel(apart(body + "add.f32 %f9, %f2, %f1;")))[0]) and not run.inexact


def test_what_the_assembler_may_do_is_counted() -> None:
    """Fused or not as far as is known: the threads that it matters for are counted."""
    bodies = [
        CASES["branch"].body, CASES["square root"].body, CASES["membar"].body, CASES["product on one of two ways"].body, CASES["products on both ways"].body,
        "PRODUCT setp.eq.u32 %p1, %r5, 5; @%p1 bra X; st.global.f32 [%d5+2048], %f1; X: SUM",
        "mov.f32 %f2, %f11; mov.u32 %r4, 0; L: add.f32 %f1, %f1, %f2; add.u32 %r4, %r4, 1; PRODUCT setp.lt.u32 %p1, %r4, %r5; @%p1 bra L; mov.f32 %f9, %f1;",
        ".local .align 4 .b8 l[4]; PRODUCT st.local.f32 [l], %f2; ld.local.f32 %f3, [l]; add.f32 %f9, %f3, %f1;",
        "mul.f32 %f2, %f0, %f0; abs.f32 %f3, %f2; add.f32 %f9, %f3, %f1;",
        "mul.f32 %f2, %f0, %f0; neg.f32 %f3, %f2; abs.f32 %f3, %f3; neg.f32 %f3, %f3; mov.f32 %f0, %f10; add.f32 %f9, %f3, %f1;",
    ]  # fmt: skip
    for body in bodies:
        _, run = ran(kernel(written(body, "registers")))
        assert run.inexact and all(own.startswith("mul + ") for own in run.inexact), body
        assert not ran(kernel(apart(written(body, "registers"))))[1].inexact, body


def test_what_stays_apart_for_certain_is_not_counted() -> None:
    for name in (
        "stored",
        "stored on one way",
        "multiplied on",
        "twice itself",
        "also in a sum with .rn",
        "through another lane",
    ):
        _, run = ran(kernel(written(CASES[name].body, "registers")))
        assert not run.inexact, name


CALLED = """
.func (.reg .f32 %r) added(.reg .f32 %x, .reg .f32 %y) { add.f32 %r, %x, %y; ret; }
.func (.reg .f32 %r) multiplied(.reg .f32 %x, .reg .f32 %y) { mul.f32 %r, %x, %y; ret; }
.func (.param .f32 r) passed(.param .f32 x, .param .f32 y)
{ .reg .f32 %a<3>; ld.param.f32 %a0, [x]; ld.param.f32 %a1, [y]; add.f32 %a2, %a0, %a1; st.param.f32 [r], %a2; ret; }
"""


@pytest.mark.parametrize(
    "body",
    [
        "mul.f32 %f2, %f0, %f7; call (%f9), added, (%f2, %f1);",
        "call (%f2), multiplied, (%f0, %f7); add.f32 %f9, %f2, %f1;",
        "{ .param .f32 x; .param .f32 y; .param .f32 z; mul.f32 %f2, %f0, %f7; st.param.f32 [x], %f2; st.param.f32 [y], %f1; call (z), passed, (x, y); ld.param.f32 %f9, [z]; }",
    ],
)  # fmt: skip
def test_products_that_functions_hand_to_each_other(body: str) -> None:
    """The assembler takes calls apart: where a product may come from another function, the sum is counted."""
    assert ran(CALLED + kernel(body))[1].inexact
    assert not ran(CALLED.replace("mul.f32", "mul.rn.f32") + kernel(apart(body)))[1].inexact


def test_nothing_is_fused_for_a_debugger() -> None:
    text = module([kernel(written(CASES["side by side"].body, "registers"))]).replace(
        ".target sm_90a", ".target sm_90a, debug"
    )
    memory = Memory()
    a, out = (
        memory.allocate(np.random.default_rng(5).normal(size=4096).astype(np.float32).view(np.uint8)),
        memory.allocate(128),
    )
    run = parse(text).kernel().launch(memory, [a, out, np.float32(1), 5, bytes(8)], block=(32, 1, 1))
    twice, _ = ran(kernel(apart(written(CASES["side by side"].body, "registers"))))
    assert np.array_equal(memory.read(out, 128).view(np.uint32), twice) and not run.inexact


# --- against the assembler


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_the_table_is_what_ptxas_makes(target: str) -> None:
    found = assembled(target)
    assert len(found) == len(EVERY) > 240
    wrong = [name for name, _, _, fuses in EVERY if found[name] != fuses]
    assert not wrong, wrong


@pytest.mark.parametrize("version", ["12.9", "13.0"])
def test_the_table_says_what_an_older_ptxas_makes(version: str) -> None:
    toolchain = next((own for own in find_toolchains() if own.version.startswith(version)), None)
    if toolchain is None:
        pytest.skip(f"no ptxas {version} here")
    found, wanted = assembled("sm_90a", toolchain), list(bodies(before=True))
    wrong = [name for name, _, _, fuses in wanted if found[name] != fuses]
    assert not wrong and sum(own != new for own, new in zip(wanted, EVERY, strict=True)) == 4, wrong


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_the_table_of_several_is_what_ptxas_makes(target: str) -> None:
    """Written out, the choices of the table give the machine code of the program that leaves them open, and no other choice for a sum does."""
    texts, others = list[str](), 0
    for number, (name, factor) in enumerate(EVERY_SEVERAL):
        sums, chosen = SEVERAL[name]
        made = ["", chosen]
        for place, text in enumerate(sums.split()):
            letters = {".", *re.findall("[pqr]", text)} - {chosen[place]}
            made += [chosen[:place] + letter + chosen[place + 1 :] for letter in sorted(letters)]
        texts += [kernel(several(sums, factor, own), f"e{number}_{place}") for place, own in enumerate(made)]
        others += len(made) - 2
    found = {
        own.name: listing(own) for own in disassemble(assemble(module(texts, target), target, allow_notes=True).cubin)
    }
    same = {name for name, own in found.items() if own == found[name.split("_")[0] + "_0"] and not name.endswith("_0")}
    assert same == {f"e{number}_1" for number in range(len(EVERY_SEVERAL))} and others > 100


def test_random_sums_of_products() -> None:
    """In one basic block the model's choices, written out, give ptxas's machine code."""
    random, texts, made = Random(2), list[str](), list[tuple[str, str]]()
    for number in range(150):
        sums = dict.fromkeys(
            random.choice(("", "", "", "-")) + a + random.choice("+-") + b
            for a, b in (random.sample("pppqqqrrrxy", 2) for _ in range(random.randrange(2, 7)))
            if a != b and {a, b} != {"x", "y"}
        )  # fmt: skip
        text, factor = " ".join(sums), random.choice(("registers", "number"))
        function = parse(module([kernel(several(text, factor))])).kernel().function
        own = [at for at, item in enumerate(function.body) if item.opcode in ("add.f32", "sub.f32")]
        found = choices(function).sums
        places = [next((source.place for source in found[at].sources if source.fused), None) for at in own]
        chosen = "".join("." if at is None else sum[-1 if at else -3] for at, sum in zip(places, sums, strict=True))
        texts += [
            kernel(several(text, factor, own), f"e{number}{letter}") for own, letter in (("", "a"), (chosen, "b"))
        ]
        made.append((text, chosen))
    code = {own.name: listing(own) for own in disassemble(assemble(module(texts), "sm_90a", allow_notes=True).cubin)}
    wrong = [own for number, own in enumerate(made) if code[f"e{number}a"] != code[f"e{number}b"]]
    assert not wrong, wrong


def program(random: Random) -> tuple[str, int]:
    """A random body with branches, and the number of its sums; the n-th is written with @n before its type."""
    values, products, free = (
        ["%f0", "%f1", "%f10", "%f11", "%f7"],
        ["%f0"],
        [f"%f{own}" for own in (2, 3, 4, 5, 6, 8, 12, 13, 14)],
    )
    lines, labels, sums = [f"mov.f32 {own}, %f11;" for own in free], list[int](), 0
    for number in range(random.randrange(6, 14)):
        to, a = random.choice(free), random.choice(products if random.random() < 0.7 else values)
        b, kind, guard = random.choice(values[-4:]), random.random(), "@%p1 " if random.random() < 0.1 else ""
        if kind < 0.35:
            b = "0f3F7FFF58" if random.random() < 0.3 else b
            lines.append(f"{guard}mul.f32 {to}, {random.choice(values)}, {b};")
            products.append(to)
        elif kind < 0.65:
            a, b = (a, b) if random.random() < 0.6 else (b, a)
            lines.append(f"{guard}{random.choice(('add', 'sub'))}@{sums}.f32 {to}, {a}, {b};")
            sums += 1
        elif kind < 0.75:
            lines.append(f"{guard}{random.choice(('neg', 'mov', 'abs'))}.f32 {to}, {a};")
            products.append(to)
        elif kind < 0.85:
            lines.append(f"setp.gt.f32 %p1, {random.choice(values)}, %f11; @%p1 bra L{number};")
            labels.append(number)
            continue
        else:
            own = (
                "sqrt.rn.f32 %f15, %f16; st.global.f32 [%d5+1024], %f15;",
                "bar.warp.sync -1;",
                "membar.gl;",
                f"st.global.f32 [%d5+{512 + 64 * number}], {a};",
            )
            lines.append(random.choice(own))
            continue
        values.append(to)
        if labels and random.random() < 0.4:
            lines.append(f"L{labels.pop()}:")
    lines += [f"L{own}:" for own in reversed(labels)]
    kept = [own for own in dict.fromkeys(values) if own in free and random.random() < 0.6]
    lines += [f"st.global.f32 [%d6+{4096 * (place + 1)}], {own};" for place, own in enumerate(kept)]
    return "\n".join(
        ["ld.global.f32 %f16, [%d5+512]; setp.gt.f32 %p1, %f16, %f11;", *lines, f"mov.f32 %f9, {values[-1]};"]
    ), sums


def _rounded(number: int, match: re.Match[str]) -> str:
    return ".rn" if int(match[1]) == number else ""


def test_random_programs() -> None:
    """Of every sum that ptxas fuses, fused as the model has it or counted; of a sum that the model leaves out, two roundings."""
    random, texts, made, count = Random(1), list[str](), list[tuple[str, int]](), 0
    for number in range(200):
        body, sums = program(random)
        made.append((re.sub(r"@\d+", "", body), sums))
        for rounded in range(-1, sums):
            text = re.sub(r"@(\d+)", partial(_rounded, rounded), body)
            texts.append(kernel(text, f"e{number}_{rounded + 1}"))
    found = {own.name: fma_count(own) for own in disassemble(assemble(module(texts), "sm_90a", allow_notes=True).cubin)}
    silent, fused_sums, guessed = [], 0, 0
    for number, (body, sums) in enumerate(made):
        function = branched(parse(module([kernel(body)])).kernel().function)
        own = choices(function, handed_over([function])).sums
        places = [at for at, item in enumerate(function.body) if item.opcode in ("add.f32", "sub.f32")]
        assert len(places) == sums
        for place, at in enumerate(places):
            fuses = found[f"e{number}_0"] > found[f"e{number}_{place + 1}"]
            chosen = at in own and any(source.fused for source in own[at].sources)
            silent += [(number, place)] if fuses and at not in own else []
            count, fused_sums, guessed = count + 1, fused_sums + fuses, guessed + (fuses != chosen)
    assert count > 400 and fused_sums > 40 and not silent, (count, fused_sums, silent)
    assert guessed <= 0.05 * count, guessed
