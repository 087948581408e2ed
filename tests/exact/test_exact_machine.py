"""The exact model's instructions: what each datapath keeps, what emulations compute, what exists where."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from tests.exact.exact_cases import (
    F16_NAN,
    F16_ONE,
    F32_LARGEST,
    F32_NAN,
    F32_ONE,
    code_of,
    exactly,
)
from tests.exact.machine import DATAPATHS, element, mma
from tests.exact.mnemonics import (
    FP6_FP4,
    FP8,
    GENERATION,
    INT4,
    INT8,
    Instruction,
    generation,
    parse,
)
from tests.exact.numbers import (
    INTEGER_FORMATS,
)

# ---- instructions and lowering ----


def row(values: dict[int, float], k: int, name: str) -> list[int]:
    """K codes that are zero except at the given positions."""
    return [exactly(values.get(position, 0.0), name) for position in range(k)]


def dense(shape: str, inputs: str, d: str, kind: str = "") -> str:
    """The mnemonic of a plain floating-point instruction whose C has the format of its D."""
    return f"mma.sync.aligned{kind}.{shape}.row.col.{d}.{inputs}.{inputs}.{d}"


def test_steps_are_chained_over_ascending_k() -> None:
    mnemonic = dense("m16n8k16", "f16", "f32")
    small, less_small = dict.fromkeys(range(8), 2.0**-13), dict.fromkeys(range(8), 2.0**-12)
    first = row({**small, 8: 1.0}, 16, "f16"), row({**less_small, 8: 1.0}, 16, "f16")
    last = first[0][8:] + first[0][:8], first[1][8:] + first[1][:8]
    for arch in ("sm_80", "sm_86", "sm_87", "sm_88", "sm_89"):  # F = 24: 2^-25 is lost beside a 1
        assert element(mnemonic, arch, *first, 0) == 0x3F80_0002  # 8 * 2^-25, then 1
        assert element(mnemonic, arch, *last, 0) == F32_ONE
    for arch in ("sm_90", "sm_100", "sm_103", "sm_107", "sm_110", "sm_120", "sm_121"):  # one step, F = 25
        assert element(mnemonic, arch, *first, 0) == element(mnemonic, arch, *last, 0) == 0x3F80_0002


@pytest.mark.parametrize(
    ("shape", "inputs", "arch", "products"),
    [
        ("m16n8k8", "f16", "sm_75", 8),
        ("m16n8k16", "f16", "sm_80", 8),
        ("m16n8k16", "bf16", "sm_89", 8),
        ("m16n8k8", "tf32", "sm_80", 4),
        ("m16n8k16", "f16", "sm_90", 16),
        ("m16n8k16", "bf16", "sm_103", 16),
        ("m16n8k8", "tf32", "sm_90", 8),
        ("m16n8k16", "e5m2", "sm_120", 16),
        ("m16n8k32", "e5m2", "sm_120", 32),
    ],
)
def test_products_of_one_step(shape: str, inputs: str, arch: str, products: int) -> None:
    """Two halves of an ulp beside a 1 make an ulp if they meet in one step; each alone is truncated."""
    mnemonic = dense(shape, inputs, "f32")
    k = parse(mnemonic).k
    for last in range(2, k):
        values = {0: 1.0, 1: 2.0**-12, last: 2.0**-12}
        codes_of_both = row(values, k, inputs)
        expected = 0x3F80_0001 if last < products else F32_ONE
        assert element(mnemonic, arch, codes_of_both, codes_of_both, 0) == expected
    assert products <= k


def test_f16_results_are_rounded_after_each_step() -> None:
    mnemonic = dense("m16n8k16", "f16", "f16")
    a, ones = row({0: 1.0, 1: 2.0**-11, 8: 2.0**-11}, 16, "f16"), [F16_ONE] * 16
    assert element(mnemonic, "sm_80", a, ones, 0) == 0x3C00  # each half ulp is a tie that goes back to 1
    assert element(mnemonic, "sm_90", a, ones, 0) == 0x3C01


@pytest.mark.parametrize(
    ("shape", "inputs", "arch", "last"),
    [
        ("m16n8k16", "bf16", "sm_80", -156),
        ("m16n8k8", "bf16", "sm_89", -156),
        ("m16n8k4", "tf32", "sm_86", -156),
        ("m16n8k8", "bf16", "sm_90", -158),
        ("m16n8k16", "bf16", "sm_100", -158),
        ("m16n8k4", "tf32", "sm_90", -158),
        ("m16n8k8", "tf32", "sm_121", -158),
    ],
)
def test_f32_floors_of_every_datapath(shape: str, inputs: str, arch: str, last: int) -> None:
    """2^last is the last bit beside the smallest f32; fp8 and f16 products are too large to show a floor of f32."""
    mnemonic = dense(shape, inputs, "f32")
    k = parse(mnemonic).k
    for exponent, expected in ((last, 0), (last - 1, 1)):
        a, b = row({0: 2.0**-75, 1: -(2.0**-80)}, k, inputs), row({0: 2.0**-74, 1: 2.0 ** (exponent + 80)}, k, inputs)
        assert element(mnemonic, arch, a, b, 0) == expected


@pytest.mark.parametrize(
    ("shape", "arch", "last"),
    [
        ("m8n8k4", "sm_70", -42),
        ("m8n8k4", "sm_75", -42),
        ("m16n8k8", "sm_75", -44),
        ("m16n8k8", "sm_80", -44),
        ("m16n8k16", "sm_89", -44),
        ("m16n8k8", "sm_90", -46),
        ("m16n8k16", "sm_100", -46),
        ("m16n8k16", "sm_120", -46),
    ],
)
def test_f16_floors_of_every_datapath(shape: str, arch: str, last: int) -> None:
    """2^last is the last bit that breaks the tie between 0 and the smallest f16; fp8 products are too large to."""
    mnemonic = dense(shape, "f16", "f16")
    k = parse(mnemonic).k
    for exponent, expected in ((last, 1), (last - 1, 0)):
        a, b = row({0: 2.0**-12, 1: 2.0**-23}, k, "f16"), row({0: 2.0**-13, 1: 2.0 ** (exponent + 23)}, k, "f16")
        assert element(mnemonic, arch, a, b, 0) == expected


@pytest.mark.parametrize(
    ("shape", "inputs", "arch", "bits"),
    [
        ("m8n8k4", "f16", "sm_70", 23),
        ("m8n8k4", "f16", "sm_72", 23),
        ("m8n8k4", "f16", "sm_75", 23),
        ("m16n8k8", "f16", "sm_75", 24),
        ("m16n8k8", "f16", "sm_80", 24),
        ("m16n8k8", "bf16", "sm_86", 24),
        ("m16n8k4", "tf32", "sm_87", 24),
        ("m16n8k8", "f16", "sm_89", 24),
        ("m16n8k16", "f16", "sm_90a", 25),
        ("m16n8k16", "bf16", "sm_100", 25),
        ("m16n8k8", "tf32", "sm_110", 25),
        ("m16n8k8", "f16", "sm_120", 25),
        ("m16n8k32", "e5m2", "sm_89", 13),
        ("m16n8k32", "e5m2", "sm_121", 25),
    ],
)
def test_kept_bits_of_every_datapath(shape: str, inputs: str, arch: str, bits: int) -> None:
    """1 - 1 + 2^-n is 2^-n down to n = F, where it is 0."""
    mnemonic = dense(shape, inputs, "f32")
    k = parse(mnemonic).k
    for n, expected in ((bits, 2.0**-bits), (bits + 1, 0.0)):
        half = n // 2
        a = row({0: 1.0, 1: -1.0, 2: 2.0**-half}, k, inputs)
        b = row({0: 1.0, 1: 1.0, 2: 2.0 ** (half - n)}, k, inputs)
        assert element(mnemonic, arch, a, b, 0) == exactly(expected, "f32")


def test_native_fp8_of_ada() -> None:
    mnemonic = dense("m16n8k32", "e4m3", "f32")
    early = row({0: 1.0, 16: 2.0**-7}, 32, "e4m3"), row({0: 1.0, 16: 2.0**-7}, 32, "e4m3")
    assert element(mnemonic, "sm_89", *early, 0) == F32_ONE  # 2^-14 beside a 1
    two_steps = row({0: 2.0**-7, 15: 2.0**-7, 16: 1.0}, 32, "e4m3"), row({0: 2.0**-7, 15: 2.0**-7, 16: 1.0}, 32, "e4m3")
    assert element(mnemonic, "sm_89", *two_steps, 0) == exactly(1 + 2.0**-13, "f32")  # summed before they meet the 1
    late = row({16: 1.0}, 32, "e4m3")  # 2 + 2^-13 in step 2, whose 14 significant bits end at 2^-12
    assert element(mnemonic, "sm_89", late, late, exactly(1 + 2.0**-13, "f32")) == exactly(2.0, "f32")
    one_step = row({1: 2.0**-7, 15: 2.0**-7, 0: 1.0}, 32, "e4m3"), row({1: 2.0**-7, 15: 2.0**-7, 0: 1.0}, 32, "e4m3")
    assert element(mnemonic, "sm_89", *one_step, 0) == F32_ONE


EMULATED_FP8 = [
    (dense(shape, "e4m3", "f32", kind), arch)
    for shape in ("m16n8k16", "m16n8k32")
    for arch in ("sm_90", "sm_90a", "sm_100", "sm_103", "sm_107", "sm_110")
    for kind in (("",) if arch.startswith("sm_90") else ("", ".kind::f8f6f4"))
]


@pytest.mark.parametrize(("mnemonic", "arch"), EMULATED_FP8)
def test_emulated_fp8(mnemonic: str, arch: str) -> None:
    k = parse(mnemonic).k
    big, tiny = 256.0, 2.0**-5  # big^2 = 2^16; tiny^2 = 2^-10 is lost in one step with it (F = 25)

    def run(a: dict[int, float], b: dict[int, float], c: float = 0.0) -> int:
        return element(mnemonic, arch, row(a, k, "e4m3"), row(b, k, "e4m3"), exactly(c, "f32"))

    def squares(at_big: int, at_minus_big: int, at_tiny: int) -> int:
        a = {at_big: big, at_minus_big: -big, at_tiny: tiny}
        return run(a, {at_big: big, at_minus_big: big, at_tiny: tiny})

    for first, second in ((0, 1), (0, 5), (k - 4, k - 3)):  # the big ones cancel within step 1
        assert squares(first, second, 2) == exactly(2.0**-10, "f32")
        assert squares(first, second, k - 1) == exactly(2.0**-10, "f32")
        assert squares(first, second, 8) == 0
    assert squares(2, 3, 0) == 0  # step 1 keeps 2^-10, and step 2 aligns it to 2^16
    assert squares(0, 2, 1) == squares(0, 2, 3) == squares(0, 2, 4) == 0

    # c comes last, by an f32 addition to nearest even: 1 + 2^-24 + 2^-26 is more than half an ulp above 1.
    assert run({0: 1.0}, {0: 1.0}, 2.0**-24 + 2.0**-26) == 0x3F80_0001
    assert run({0: 1.0}, {0: 1.0}, 2.0**-24) == F32_ONE
    assert run({0: big, 1: -big}, {0: big, 1: big}, 2.0**-60) == exactly(2.0**-60, "f32")
    assert element(mnemonic, arch, [0x80] * k, [0x38] * k, 0x8000_0000) == 0
    assert element(mnemonic, arch, [0x7F] + [0] * (k - 1), [0] * k, 0) == F32_NAN
    assert element(mnemonic, arch, [0] * k, [0] * k, 0xFFC0_0000) == F32_NAN
    assert element(mnemonic, arch, [0] * k, [0] * k, F32_LARGEST) == F32_LARGEST


def test_emulated_fp8_with_f16_accumulator_rounds_three_times() -> None:
    mnemonic = dense("m16n8k32", "e4m3", "f16")
    half_ulp = 2.0**-11
    a = row({0: 1.0, 1: 2.0**-5, 2: 2.0**-5}, 32, "e4m3")
    b = row({0: 1.0, 1: 2.0**-6, 2: 2.0**-6}, 32, "e4m3")
    c = exactly(half_ulp, "f16")
    assert element(mnemonic, "sm_90", a, b, c) == F16_ONE  # three ties, each back to 1
    assert element(mnemonic, "sm_120", a, b, c) == 0x3C02  # 1 + 3 * 2^-11: one tie, to the even neighbour
    assert element(mnemonic, "sm_89", a, b, c) == 0x3C02
    c_only = row({}, 32, "e4m3")
    assert element(mnemonic, "sm_90", c_only, c_only, 0x8000) == 0


def test_fp8_subnormals_are_normal_f16_numbers_in_the_emulation() -> None:
    # e4m3 2^-9 times e5m2 2^15: exponent 6 by way of f16, 9 natively (-6 + 15). 2^-19 is lost beside 9, kept beside 6.
    mnemonic = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"
    a = row({0: 2.0**-9, 4: -(2.0**-9), 1: 2.0**-9}, 32, "e4m3")
    b = row({0: 2.0**15, 4: 2.0**15, 1: 2.0**-10}, 32, "e5m2")
    assert element(mnemonic, "sm_90", a, b, 0) == exactly(2.0**-19, "f32")
    assert element(mnemonic, "sm_120", a, b, 0) == 0


M8N8K4 = "mma.sync.aligned.m8n8k4.row.col."


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_121"])
def test_m8n8k4_without_tensor_core(arch: str) -> None:
    ones = [F16_ONE] * 4
    tiny = exactly(2.0**-24, "f16")
    into_f32, from_f16, into_f16 = M8N8K4 + "f32.f16.f16.f32", M8N8K4 + "f32.f16.f16.f16", M8N8K4 + "f16.f16.f16.f16"
    up = [F16_ONE, tiny, tiny, 0]  # fma by fma, each 2^-24 is a tie that goes back to 1
    down = [tiny, tiny, F16_ONE, 0]  # 2^-23 first
    minus_one = 0xBF80_0000
    assert element(into_f32, arch, up, ones, minus_one) == 0
    assert element(into_f32, arch, down, ones, minus_one) == exactly(2.0**-23, "f32")
    assert element(from_f16, arch, up, ones, 0xBC00) == 0
    assert element(from_f16, arch, down, ones, 0xBC00) == exactly(2.0**-23, "f32")
    assert element(into_f32, arch, [F16_ONE, 0, 0, 0], ones, exactly(2.0**-24 + 2.0**-26, "f32")) == 0x3F80_0001  # RNE
    minus_zeros = [0x8000] * 4
    assert element(into_f32, arch, minus_zeros, ones, 0x8000_0000) == 0  # the chain starts from +0
    assert element(into_f16, arch, minus_zeros, ones, 0x8000) == 0x8000
    # (c + p01) + p23 in f32, then f16: 2^-25 is lost in f32 and the tie goes back to 1; exact it would be 0x3C01.
    a, b = [0, exactly(2.0**-11, "f16"), exactly(2.0**-12, "f16"), 0], [0, F16_ONE, exactly(2.0**-13, "f16"), 0]
    assert element(into_f16, arch, a, b, F16_ONE) == F16_ONE
    assert element(into_f16, arch, [exactly(32752.0, "f16")] * 2 + [0, 0], ones, exactly(16.0, "f16")) == 0x7C00
    assert element(into_f16, arch, [0x7C00, 0xFC00, 0, 0], ones, 0) == F16_NAN
    assert element(into_f32, arch, [0x7C00, 0, 0, 0], [0x8000] * 4, 0) == F32_NAN


def test_m8n8k4_f16_sums_in_pairs() -> None:
    # c = 0.375 and the products 2^22, 0.25, -2^22, 0. Beside 2^22 an f32 has steps of 0.5: p01 = 2^22,
    # c + p01 = 2^22 + 0.5. Products added to c one by one would give 1, c added last 0.375; the tensor core of sm_70
    # drops whatever is below 0.5 and gives 0.
    a = [exactly(value, "f16") for value in (2048.0, 0.25, 2048.0, 0.0)]
    b = [exactly(value, "f16") for value in (2048.0, 1.0, -2048.0, 0.0)]
    c = exactly(0.375, "f16")
    assert element(M8N8K4 + "f16.f16.f16.f16", "sm_90", a, b, c) == exactly(0.5, "f16")
    assert element(M8N8K4 + "f16.f16.f16.f16", "sm_70", a, b, c) == 0
    # Within a pair the second product is fused: a0*b0 = 1 + 2^-9 + 2^-20 and -(1 + 2^-9), exact both, leave 2^-20.
    a = [exactly(value, "f16") for value in (1 + 2.0**-10, 1 + 2.0**-9, 0.0, 0.0)]
    b = [exactly(value, "f16") for value in (1 + 2.0**-10, -1.0, 0.0, 0.0)]
    assert element(M8N8K4 + "f16.f16.f16.f16", "sm_90", a, b, 0) == exactly(2.0**-20, "f16")


def test_m8n8k4_of_volta_takes_an_f16_addend_as_it_is() -> None:
    mnemonic = M8N8K4 + "f32.f16.f16.f16"
    a = [0x0010, 0, 0, 0]  # 2^-20, whose square 2^-40 is lost beside the exponent -14 of a subnormal f16 addend
    assert element(mnemonic, "sm_70", a, a, 0x0001) == exactly(2.0**-24, "f32")
    assert element(mnemonic, "sm_80", a, a, 0x0001) == exactly(2.0**-24 + 2.0**-40, "f32")


def test_f64_is_a_chain_of_fma_over_ascending_k() -> None:
    one, tiny = code_of(1.0, "f64"), code_of(2.0**-53, "f64")
    ones = [one] * 4
    plain = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    assert element(plain, "sm_80", [tiny, tiny, 0, 0], ones, one) == one  # each 2^-53 is a tie that goes back to 1
    assert element(plain, "sm_80", [tiny, one, 0, 0], ones, tiny) == code_of(1 + 2.0**-52, "f64")
    expected = {"rn": 1.0, "rz": 1.0, "rm": 1.0, "rp": 1 + 2.0**-51}
    minus = {"rn": -1.0, "rz": -1.0, "rm": -1 - 2.0**-51, "rp": -1.0}
    for modifier in expected:
        mnemonic = f"mma.sync.aligned.m8n8k4.row.col.{modifier}.f64.f64.f64.f64"
        assert element(mnemonic, "sm_90", [tiny, tiny, 0, 0], ones, one) == code_of(expected[modifier], "f64")
        negative = [tiny | 1 << 63, tiny | 1 << 63, 0, 0]
        assert element(mnemonic, "sm_90", negative, ones, one | 1 << 63) == code_of(minus[modifier], "f64")
    x = code_of(1 + 2.0**-30, "f64")
    minus_square = code_of(-1 - 2.0**-29, "f64")  # all of x^2 but its 2^-60
    assert element(plain, "sm_90", [x, 0, 0, 0], [x, 0, 0, 0], minus_square) == code_of(2.0**-60, "f64")
    assert element(plain, "sm_90", [0] * 4, ones, 1 << 63) == 0
    assert element(plain, "sm_90", [1 << 63] * 4, ones, 1 << 63) == 1 << 63


def test_int4_and_int8_clamp_once_everywhere() -> None:
    compared = 0
    for arch in ("sm_80", "sm_90", "sm_100", "sm_120"):
        for shape, inputs in (("m16n8k32", "s8"), ("m16n8k32", "s4")):
            for modifier, expected in (("", 0x8000_0000), (".satfinite", 0x7FFF_FFFF)):
                mnemonic = f"mma.sync.aligned.{shape}.row.col{modifier}.s32.{inputs}.{inputs}.s32"
                ones = [1] * 32
                assert element(mnemonic, arch, ones, ones, 2**31 - 32) == expected
                assert element(mnemonic, arch, ones, ones, 2**31 - 33) == 0x7FFF_FFFF
                all_ones = (1 << INTEGER_FORMATS[inputs].bits) - 1  # -1
                low = element(mnemonic, arch, ones, [all_ones] * 32, 2**31)
                assert low == (0x8000_0000 if modifier else 2**31 - 32)
                compared += 3
    assert compared == 48


# ---- every instruction ----


def all_mnemonics() -> list[str]:
    """Every mma.sync mnemonic without block scaling, spelled out here a second time."""
    names = []
    for layouts in ("row.row", "row.col", "col.row", "col.col"):
        names += [f"m8n8k4.{layouts}.{d}.f16.f16.{c}" for d, c in (("f16", "f16"), ("f32", "f16"), ("f32", "f32"))]
    for shape in ("m16n8k8.row.col", "m16n8k16.row.col"):
        names += [f"{shape}.f16.f16.f16.f16", f"{shape}.f32.f16.f16.f32", f"{shape}.f32.bf16.bf16.f32"]
    names += ["m16n8k4.row.col.f32.tf32.tf32.f32", "m16n8k8.row.col.f32.tf32.tf32.f32"]
    for shape, modifier in itertools.product(
        ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"), ("", "rn", "rz", "rm", "rp")
    ):
        names.append(f"{shape}.row.col.{modifier + '.' if modifier else ''}f64.f64.f64.f64")
    integer_shapes = {INT8: ("m8n8k16", "m16n8k16", "m16n8k32"), INT4: ("m8n8k32", "m16n8k32", "m16n8k64")}
    for inputs, shapes in integer_shapes.items():
        for shape, a, b, modifier in itertools.product(shapes, inputs, inputs, ("", "satfinite.")):
            names.append(f"{shape}.row.col.{modifier}s32.{a}.{b}.s32")
    for shape, operation in itertools.product(("m8n8k128", "m16n8k128", "m16n8k256"), ("xor", "and")):
        names.append(f"{shape}.row.col.s32.b1.b1.s32.{operation}.popc")
    for a, b, d in itertools.product(FP8 + FP6_FP4, FP8 + FP6_FP4, ("f16", "f32")):
        names.append(f"kind::f8f6f4.m16n8k32.row.col.{d}.{a}.{b}.{d}")
        if a in FP8 and b in FP8:
            names.append(f"kind::f8f6f4.m16n8k16.row.col.{d}.{a}.{b}.{d}")
            names += [f"{shape}.row.col.{d}.{a}.{b}.{d}" for shape in ("m16n8k16", "m16n8k32")]
    return [f"mma.sync.aligned.{name}" for name in names]


def exists(instruction: Instruction, arch: str) -> bool:
    """Whether `arch` has the instruction."""
    try:
        generation(instruction, arch)
    except ValueError:
        return False
    return True


def test_every_mnemonic_parses_and_exists_where_it_should() -> None:
    names = all_mnemonics()
    assert len(set(names)) == 168
    count = {f"sm_{number}": sum(exists(parse(name), f"sm_{number}") for name in names) for number in GENERATION}
    ampere = {"sm_80": 79, "sm_86": 79, "sm_87": 79, "sm_88": 79}
    blackwell = {"sm_100": 126, "sm_103": 126, "sm_107": 126, "sm_110": 126}
    expected = {"sm_70": 12, "sm_72": 12, "sm_75": 31, **ampere, "sm_89": 95, "sm_90": 110, **blackwell}
    assert count == {**expected, "sm_120": 168, "sm_121": 168}


@pytest.mark.parametrize(
    ("mnemonic", "arch", "why"),
    [
        ("mma.sync.aligned.m8n8k4.row.col.f32.bf16.bf16.f32", "sm_80", "has the shapes"),
        ("mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", "sm_80", "layout"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16", "sm_80", "do not go with"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32", "sm_80", "no instruction multiplies"),
        ("mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32", "sm_80", "satfinite"),
        ("mma.sync.aligned.m16n8k16.row.col.rz.f32.f16.f16.f32", "sm_80", "rounding"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e3m2.e4m3.f32", "sm_120", "kind::f8f6f4"),
        ("mma.sync.aligned.kind::f8f6f4.m16n8k16.row.col.f32.f16.f16.f32", "sm_120", "kind::f8f6f4"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32", "sm_80", "popc"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32.xor.popc", "sm_80", "popc"),
        ("mma.sp.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", "not spelled"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_75", "needs sm_80"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_80", "needs sm_89"),
        ("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90", "needs sm_100"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc", "sm_75", "needs sm_80"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_99", "no arch"),
    ],
)
def test_what_does_not_exist_raises(mnemonic: str, arch: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        generation(parse(mnemonic), arch)


def small_operands(instruction: Instruction) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Matrices of small integers, different at every place, as values: A, B, C."""
    numbers = random.Random(instruction.mnemonic)

    def matrix(name: str, rows: int, columns: int) -> list[list[int]]:
        choices = {"b1": (0, 1), "u4": (0, 1, 2, 15), "u8": (0, 1, 2, 255)}.get(name, (-2, -1, 0, 1, 2))
        return [[numbers.choice(choices) for _ in range(columns)] for _ in range(rows)]

    m, n, k = instruction.m, instruction.n, instruction.k
    return matrix(instruction.a, m, k), matrix(instruction.b, k, n), matrix(instruction.c, m, n)


def codes(matrix: Sequence[Sequence[int]], name: str) -> list[list[int]]:
    """The codes of a matrix of integers."""
    return [[exactly(value, name) for value in line] for line in matrix]


def test_small_integers_are_exact_on_every_arch() -> None:
    compared = 0
    for mnemonic in all_mnemonics():
        instruction = parse(mnemonic)
        a, b, c = small_operands(instruction)
        combine: Callable[[int, int], int] = int.__mul__
        if instruction.bit_operation:
            combine = {"xor": int.__xor__, "and": int.__and__}[instruction.bit_operation]
        place = compared % instruction.m, compared % instruction.n
        column = [line[place[1]] for line in b]
        addend = c[place[0]][place[1]]
        truth = sum(combine(x, y) for x, y in zip(a[place[0]], column, strict=True)) + addend
        if truth == 0:  # whose sign is another test's question
            truth, addend = 1, addend + 1
        a_row, b_column = codes([a[place[0]]], instruction.a)[0], codes([column], instruction.b)[0]
        for number in GENERATION:
            if exists(instruction, f"sm_{number}"):
                result = element(mnemonic, f"sm_{number}", a_row, b_column, exactly(addend, instruction.c))
                assert result == exactly(truth, instruction.d), (mnemonic, number)
                compared += 1
    assert compared == 2 * 12 + 31 + 4 * 79 + 95 + 110 + 4 * 126 + 2 * 168


@pytest.mark.parametrize(
    ("mnemonic", "arch"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
        ("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", "sm_80"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80"),
    ],
)
def test_whole_matrices(mnemonic: str, arch: str) -> None:
    instruction = parse(mnemonic)
    a, b, c = small_operands(instruction)
    d = mma(mnemonic, arch, codes(a, instruction.a), codes(b, instruction.b), codes(c, instruction.c))
    compared = 0
    for i, j in itertools.product(range(instruction.m), range(instruction.n)):
        truth = sum(a[i][k] * b[k][j] for k in range(instruction.k)) + c[i][j]
        assert d[i][j] == exactly(truth, instruction.d)
        compared += 1
    assert compared == instruction.m * instruction.n


def test_operands_of_the_wrong_size_raise() -> None:
    mnemonic = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
    good = [[0] * 4] * 8, [[0] * 8] * 4, [[0] * 8] * 8
    assert mma(mnemonic, "sm_70", *good) == [[0] * 8] * 8
    for position, name in enumerate("ABC"):
        bad = [list(matrix) for matrix in good]
        bad[position] = bad[position][:-1]
        with pytest.raises(ValueError, match=f"{name} must be"):
            mma(mnemonic, "sm_70", *bad)
    with pytest.raises(ValueError, match="takes 4 elements"):
        element(mnemonic, "sm_70", [0] * 3, [0] * 4, 0)


def test_no_two_datapaths_overlap() -> None:
    keys = [key for path in DATAPATHS for key in itertools.product(path.generations, path.shapes, path.inputs)]
    assert len(keys) == len(set(keys)) == 2 + 1 + 8 + 4 + 4 + 12 + 6 + 10
