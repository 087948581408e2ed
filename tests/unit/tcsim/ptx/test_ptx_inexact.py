"""`Run.inexact`: what a kernel computed whose bits are not known, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcsim.ptx import Memory, Run, parse
from tcsim.ptx.machine.ledger import Sums

HEAD = ".version 8.6\n.target {0}\n.address_size 64\n.visible .entry k(.param .u64 p)\n"
BEGIN = """{ .reg .pred %p<4>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .f32 %f<12>; .reg .f64 %d<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; ld.global.f32 %f1, [%rd3];
"""


def ran(body: str, values: Any = None, target: str = "sm_90", **options: Any) -> tuple[Run, Memory, int]:
    memory = Memory()
    given = np.linspace(0.1, 7, 64, dtype=np.float32) if values is None else np.asarray(values, np.float32)
    p = memory.allocate(given.view(np.uint8))
    run = parse(HEAD.format(target) + BEGIN + body + " st.global.f32 [%rd3], %f9; ret; }").kernel().launch(
        memory, [p], block=(32, 1, 1), **options
    )  # fmt: skip
    assert run.completed, run.hazards
    return run, memory, p


@pytest.mark.parametrize("name", ["ex2", "lg2", "sin", "cos", "rcp", "rsqrt", "sqrt", "tanh"])
def test_special_functions_are_exact_where_they_were_measured(name: str) -> None:
    body = f"{name}.approx.f32 %f9, %f1;"
    assert not ran(body)[0].inexact and not ran(body, target="sm_80", arch="sm_90")[0].inexact
    for arch in ("sm_80", "sm_120"):
        assert ran(body, target="sm_80", arch=arch)[0].inexact == {f"{name}.approx.f32": 32}


def test_only_threads_that_execute_are_counted() -> None:
    body = "mov.f32 %f9, %f1; setp.lt.u32 %p1, %r1, 5; @%p1 ex2.approx.f32 %f9, %f1;"
    assert ran(body, target="sm_80")[0].inexact == {"ex2.approx.f32": 5}


@pytest.mark.parametrize("name", ["clock", "clock64", "globaltimer", "smid", "warpid", "nwarpid"])
def test_special_registers_of_the_machine(name: str) -> None:
    wide = name in ("clock64", "globaltimer")
    body = f"mov.u{64 if wide else 32} {'%rd4' if wide else '%r4'}, %{name}; mov.f32 %f9, %f1;"
    assert list(ran(body)[0].inexact.values()) == [32] and name in next(iter(ran(body)[0].inexact))
    assert not ran("mov.u32 %r4, %ctaid.x; mov.u32 %r4, %laneid; mov.f32 %f9, %f1;")[0].inexact


TENTH, PRODUCT = "0f3DCCCCCD", "mul.f32 %f4, %f1, %f1; "
FUSED = [  # as ptxas 13.5 fuses them for sm_90a
    (PRODUCT + f"add.f32 %f9, %f4, {TENTH};", "add.f32"),
    (PRODUCT + f"add.f32 %f9, {TENTH}, %f4;", "add.f32"),
    (PRODUCT + f"sub.f32 %f9, %f4, {TENTH};", "sub.f32"),
    (PRODUCT + f"sub.f32 %f9, {TENTH}, %f4;", "sub.f32"),
    (PRODUCT + f"neg.f32 %f5, %f4; add.f32 %f9, %f5, {TENTH};", "add.f32"),
    (PRODUCT + f"mov.f32 %f5, %f4; add.f32 %f9, %f5, {TENTH};", "add.f32"),
    (PRODUCT + f"add.sat.f32 %f9, %f4, {TENTH};", "add.sat.f32"),
    (f"mul.ftz.f32 %f4, %f1, %f1; add.ftz.f32 %f9, %f4, {TENTH};", "add.ftz.f32"),
    (PRODUCT + f"add.f32 %f8, %f4, %f1; add.f32 %f9, %f4, {TENTH};", "add.f32"),
    (PRODUCT + f"abs.f32 %f5, %f4; add.f32 %f9, %f5, {TENTH};", "add.f32"),  # of a square
    (PRODUCT + f"bra L; L: add.f32 %f9, %f4, {TENTH};", "add.f32"),
    ("mov.f32 %f9, %f1; mov.u32 %r4, 0; L: mul.f32 %f4, %f9, %f1; add.f32 %f9, %f4, %f1; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 4; @%p2 bra L;", "add.f32"),
]  # fmt: skip
APART = [
    f"mul.rn.f32 %f4, %f1, %f1; add.f32 %f9, %f4, {TENTH};",
    PRODUCT + f"add.rn.f32 %f9, %f4, {TENTH};",
    f"mul.ftz.f32 %f4, %f1, %f1; add.f32 %f9, %f4, {TENTH};",
    PRODUCT + f"add.ftz.f32 %f9, %f4, {TENTH};",
    f"mul.sat.f32 %f4, %f1, %f1; add.f32 %f9, %f4, {TENTH};",
    f"mul.f32 %f4, %f1, {TENTH}; abs.f32 %f5, %f4; add.f32 %f9, %f5, {TENTH};",
    PRODUCT + f"add.f32 %f9, %f4, {TENTH}; st.global.f32 [%rd1+128], %f4;",
    PRODUCT + "add.f32 %f9, %f4, %f4;",
    f"mov.f32 %f4, %f1; setp.eq.u32 %p1, %r1, 99; @%p1 mul.f32 %f4, %f1, %f1; add.f32 %f9, %f4, {TENTH};",
    f"fma.rn.f32 %f9, %f1, %f1, {TENTH};",
]


@pytest.mark.parametrize(("body", "name"), FUSED)
def test_a_product_and_a_sum_that_the_assembler_fuses(body: str, name: str) -> None:
    run, _, _ = ran(body)
    assert set(run.inexact) <= {f"mul + {name}", "mul + add.f32"} and f"mul + {name}" in run.inexact
    assert 0 < run.inexact[f"mul + {name}"] <= 4 * 32


@pytest.mark.parametrize("body", APART)
def test_a_product_and_a_sum_that_stay_apart(body: str) -> None:
    assert not ran(body)[0].inexact


def test_only_sums_whose_bits_differ_are_counted() -> None:
    """Small integers have exact products and sums; of tenths, exactly the threads whose fused result differs are counted."""
    assert not ran(PRODUCT + "add.f32 %f9, %f4, 0f3F800000;", np.arange(64))[0].inexact
    given = np.linspace(0.1, 7, 64, dtype=np.float32)[:32]
    product, tenth = given.astype(np.float64) ** 2, np.float64(np.float32(0.1))
    expected = int(((product + tenth).astype(np.float32) != product.astype(np.float32) + np.float32(0.1)).sum())
    assert ran(PRODUCT + f"add.f32 %f9, %f4, {TENTH};")[0].inexact == {"mul + add.f32": expected} and expected > 3


@pytest.mark.parametrize(
    ("type", "letter", "width"),
    [("f64", "d", 8), ("f16", "h", 2), ("bf16", "h", 2), ("f16x2", "r", 4), ("bf16x2", "r", 4)],
)
def test_other_types_are_fused_too(type: str, letter: str, width: int) -> None:
    load = (
        f"ld.global.b{8 * width} %{letter}4, [%rd3]; "
        if width < 8
        else "cvt.f64.f32 %d4, %f1; mul.rn.f64 %d4, %d4, 0d3FB999999999999A; "
    )
    body = f"mul.{type} %{letter}5, %{letter}4, %{letter}4; add.{type} %{letter}6, %{letter}5, %{letter}4; mov.f32 %f9, %f1;"
    run, _, _ = ran(load + body, np.random.default_rng(3).normal(size=64) + 2)
    assert set(run.inexact) == {f"mul + add.{type}"} and 0 < run.inexact[f"mul + add.{type}"] <= 32


def test_sums_in_memory_that_depend_on_the_order() -> None:
    add = "red.global.add.f32 [%rd1+{0}], %f1; mov.f32 %f9, %f1;"
    assert ran(add.format(128))[0].inexact == {"atom.add.f32": 32}  # 32 different fractions to one address
    assert not ran(add.format(128), np.arange(64))[0].inexact  # integers: exact in any order
    own = "add.s64 %rd4, %rd3, 128; red.global.add.f32 [%rd4], %f1; mov.f32 %f9, %f1;"
    assert not ran(own)[0].inexact  # an address for each thread
    two = "setp.lt.u32 %p1, %r1, 2; @%p1 red.global.add.f32 [%rd1+128], %f1; mov.f32 %f9, %f1;"
    zero = np.concatenate([np.linspace(0.1, 7, 32), np.zeros(32)])
    assert not ran(two, zero)[0].inexact  # two numbers to a zero
    assert ran(two)[0].inexact == {"atom.add.f32": 2}
    old = "atom.global.add.f32 %f9, [%rd1+128], %f1;"
    assert ran(old, np.arange(64))[0].inexact == {"atom.add.f32": 32}  # who adds first sees another value
    shared = ".shared .f32 s; red.shared.add.f32 [s], %f1; mov.f32 %f9, %f1;"
    assert ran(shared, grid=(2, 1, 1))[0].inexact == {"atom.add.f32": 64}
    assert not ran("red.global.add.u32 [%rd1+128], %r1; mov.f32 %f9, %f1;")[0].inexact


def test_the_account_of_a_sum_is_exact_about_what_is_exact() -> None:
    """Against all orders of a few numbers: whatever the account calls exact has one result in every order."""
    from itertools import permutations

    rng, called_exact, depending = np.random.default_rng(0), 0, 0
    for _ in range(300):
        scale = rng.choice([1, 2**-3, 2**10, 2**22])
        numbers = (rng.integers(-9, 10, 4) * np.array([1, 1, scale, 1])).astype(np.float32)
        results = set()
        for order in permutations(numbers[1:]):
            total = numbers[0]
            for number in order:
                total = np.float32(total + number)
            results.add(float(total))
        sums = Sums()
        for number in numbers[1:]:
            sums.add(
                "a", "f32", "", np.array([0]), numbers[:1].view(np.uint32), np.array([number]).view(np.uint32), False
            )
        exact = not sums.inexact()
        assert len(results) == 1 or not exact, numbers
        called_exact += exact
        depending += len(results) > 1
    assert called_exact > 100 and depending > 3


@pytest.mark.parametrize(
    ("type", "numbers", "exact"),
    [
        ("f32", [0, 2**23, 2**23 - 1, 1], True),
        ("f32", [0, 2**23, 2**23, 1], False),
        ("f32", [2**-149, 2**-149, (2**24 - 2) * 2**-149], True),
        ("f64", [0, 2**52, 2**52 - 1, 1], True),
        ("f64", [0, 2**52, 2**52, 2**-1074], False),
        ("f64", [0, 0, 0, 2**1023], True),
        ("f32", [0, np.inf, np.inf, np.inf], False),
        ("f32", [0, 1, np.nan, 1], False),
    ],
)
def test_the_bound_of_exact_sums(type: str, numbers: list[float], exact: bool) -> None:
    """As many units of the lowest bit as a significand has places for; of infinities and NaN nothing is claimed."""
    codes = np.array(numbers, {"f32": np.float32, "f64": np.float64}[type])
    codes = codes.view(f"u{codes.itemsize}")
    sums = Sums()
    for code in codes[1:]:
        sums.add("a", type, "", np.array([0]), codes[:1], np.array([code]), False)
    assert sums.inexact() == ({} if exact else {"a": len(codes) - 1})


def test_matrix_products_of_archs_of_which_no_results_are_known() -> None:
    body = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2,%f3,%f4,%f5}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%f2,%f3,%f4,%f5}; mov.f32 %f9, %f1;"
    assert not ran(body)[0].inexact and not ran(body, target="sm_80")[0].inexact
    ((name, count),) = ran(body, target="sm_80", arch="sm_107")[0].inexact.items()
    assert name.startswith("mma.sync.aligned.m16n8k16") and count == 32
    move = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r5]; mov.f32 %f9, %f1;"
    assert not ran(".shared .b8 s[256]; mov.u32 %r5, s;" + move, target="sm_80", arch="sm_107")[0].inexact
