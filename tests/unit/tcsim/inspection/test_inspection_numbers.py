"""Numbers, quantisation, swizzles and barriers as data: against the library, exact rationals and machine code."""

from __future__ import annotations

import re
import time
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tcsim
from hwkernels.device.sass import disassemble
from hwkernels.device.toolchain import assemble
from tcsim.inspection.numbers import inspect_number
from tcsim.inspection.quantization import quantization
from tcsim.inspection.swizzle_view import swizzle_view
from tcsim.memory.mbarrier_object import decode_barrier, initial_barrier
from tcsim.numbers.rounding import Rounding

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FLOATS = [format for format in tcsim.FORMATS.values() if format.kind == "float"]


# --- numbers


@given(st.sampled_from(FLOATS), st.floats(allow_nan=False, allow_infinity=True))
@example(tcsim.FORMATS["f64"], -0.0)
def test_roundings_are_those_of_encode(format: tcsim.Format, value: float) -> None:
    """Of values that float64 holds."""
    if not format.signed and value < 0:
        return
    exact = str(value) if np.isinf(value) else str(Fraction(value))
    report = inspect_number(format, "-0" if value == 0 and np.signbit(value) else exact)  # a Fraction has one zero
    for mode in get_args(Rounding):
        assert report.roundings[mode].code == int(tcsim.encode(value, format, rounding=mode)), mode
    assert report.saturated is not None
    assert report.saturated.code == int(tcsim.encode(value, format, saturate=True))


@given(st.sampled_from(FLOATS), st.fractions(min_value=Fraction(1, 10**6), max_value=Fraction(400)))
def test_a_fraction_is_rounded_once(format: tcsim.Format, value: Fraction) -> None:
    """Of values that no float holds: down and up are neighbours, to nearest is the nearer of them."""
    report = inspect_number(format, str(value))
    down, up, near = (report.roundings[mode] for mode in ("rm", "rp", "rne"))
    if not (np.isfinite(up.value) and np.isfinite(near.value)) or not format.zero:
        return
    low, high = Fraction(down.value), Fraction(up.value)
    if value > Fraction(format.largest):
        return
    assert low <= value <= high
    assert up.code - down.code in (0, 1 << format.ignored_low_bits)
    assert abs(Fraction(near.value) - value) == min(value - low, high - value)


def test_one_tenth_is_not_rounded_twice() -> None:
    """0.1 in f64 lies above 1/10, so a decimal just above a tie must go up though its float64 is the tie."""
    assert inspect_number("f16", "1.00048828125").code.hex == "0x3c00"
    assert inspect_number("f16", "1.000488281250000000000000000000001").code.hex == "0x3c01"
    assert int(tcsim.encode(float("1.000488281250000000000000000000001"), "f16")) == 0x3C00
    assert inspect_number("f16", f"1.00048828125{'0' * 80}1").code.hex == "0x3c01"  # far below 120 bits
    assert inspect_number("f16", f"-1.00048828125{'0' * 80}1").roundings["rm"].hex == "0xbc01"
    assert inspect_number("f32", f"1{'0' * 20}.{'0' * 80}1").roundings["rp"].code - 1 == (
        inspect_number("f32", f"1{'0' * 20}.{'0' * 80}1").roundings["rz"].code
    )


@pytest.mark.parametrize("format", FLOATS, ids=lambda f: f.name)
def test_numbers_beyond_every_format(format: tcsim.Format) -> None:
    """They round as infinity and zero's neighbours do: 1e1000 was a number of f64 once."""
    for text, near in (
        ("1e1000", "1e310"),
        ("9" * 1999, "1e310"),
        ("1e-1000", "1e-330"),
        (f"1/{'9' * 1900}", "1e-330"),
    ):
        huge, large = inspect_number(format, text), inspect_number(format, near)
        assert {mode: found.hex for mode, found in huge.roundings.items()} == {
            mode: found.hex for mode, found in large.roundings.items()
        }
        assert huge.saturated is not None and large.saturated is not None
        assert huge.saturated.hex == large.saturated.hex
    if format.infinity:
        assert inspect_number(format, "1e1000").roundings["rne"].value == np.inf


@pytest.mark.parametrize(
    "text",
    [
        "1e1000000",
        "1e5000",
        "-1e-1001",
        "-+inf",
        "+-nan",
        "0x",
        "0x_",
        "0b",
        "1_0",
        "1/0",
        "",
        "5" * 2001,
        "1e" + "9" * 99,
    ],
)
def test_texts_that_are_no_numbers(text: str) -> None:
    """Each is refused at once, in one short line that says what is valid."""
    for format in ("e4m3", "f64", "s8"):
        began = time.thread_time()
        with pytest.raises(tcsim.FormatError, match="neither a code nor a value; valid: ") as caught:
            inspect_number(format, text)
        assert time.thread_time() - began < 1
        assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


def test_whole_numbers() -> None:
    """Zero has one sign, and what is out of range is said with the range."""
    assert inspect_number("s8", "-0").code.code == 0
    with pytest.raises(tcsim.FormatError, match="is outside s8; valid: -128 to 127"):
        inspect_number("s8", "1e30")


@pytest.mark.parametrize("format", [f for f in tcsim.FORMATS.values() if f.bits <= 8], ids=lambda f: f.name)
def test_every_code_of_a_small_format(format: tcsim.Format) -> None:
    """Value, fields and neighbours of each code: neighbours are next to it in the sorted values."""
    codes = np.arange(1 << format.bits, dtype=format.dtype)
    values = tcsim.decode(codes, format)
    finite = sorted({float(x) for x in values if np.isfinite(x)})
    for code, value in zip(codes.tolist(), values.tolist(), strict=True):
        report = inspect_number(format, hex(code))
        assert report.code.code == code and report.roundings == {}
        assert report.code.value == value or np.isnan(value)
        assert report.bits.replace(" ", "") == f"{code:0{format.bits}b}"
        if np.isfinite(value):
            place = finite.index(value)
            for neighbour, index in ((report.below, place - 1), (report.above, place + 1)):
                if 0 <= index < len(finite):
                    assert neighbour is not None
                    assert float(neighbour.value) == finite[index] or (value == 0 and neighbour.value != 0)
                else:
                    assert neighbour is None
        if format.kind == "float":
            whole = report.fields.get("sign", 0)
            whole = whole << format.exponent_bits | report.fields["exponent"]
            assert whole << format.fraction_bits | report.fields.get("fraction", 0) == code


def test_numbers_that_cannot_be() -> None:
    """Each says what is valid."""
    for format, text, message in (
        ("e4m3", "0x100", "valid codes are 0x0 to 0xff"),
        ("e4m3", "abc", "valid: a code like 0x3c"),
        ("e4m3", "1/0", "valid: a code"),
        ("s8", "1.5", "whole numbers only"),
        ("s8", "300", "-128 to 127"),
        ("e2m1", "nan", "formats with NaN"),
        ("f17", "1", "all: f16"),
    ):
        with pytest.raises(tcsim.FormatError, match=re.escape(message)):
            inspect_number(format, text)
    assert inspect_number("f16", "-0").code.hex == "0x8000"


# --- quantisation, swizzles, barriers


def test_quantisation_is_measured() -> None:
    """The figures, against the arrays themselves."""
    x = np.float32([0.0, 1.0, 1.06, 1e-9, 1000.0, np.inf])
    found = quantization(x, "e4m3")
    assert found.codes.tolist() == tcsim.quantize(x, "e4m3").tolist()
    assert (found.count, found.exact, found.to_zero, found.beyond, found.not_finite) == (6, 2, 1, 1, 1)
    assert found.largest_error == 552.0
    blocks = quantization(np.arange(64, dtype=np.float32), "e2m1", blocks="mx")
    codes, scales = tcsim.quantize_mx(np.arange(64, dtype=np.float32), "e2m1")
    assert (blocks.arrays["codes"] == codes).all() and (blocks.arrays["scales"] == scales).all()
    with pytest.raises(tcsim.OperandError, match="valid: e2m1"):
        quantization(x, "e4m3", blocks="nvfp4")


def test_a_swizzle_removes_the_conflicts_of_its_own_rows() -> None:
    """Every hardware swizzle at its own pitch; the address is that of the swizzle itself."""
    for name, chunks in (("32B", 2), ("64B", 4), ("128B", 8)):
        view = swizzle_view(name)
        assert [len(row) for row in view.lands] == [chunks] * 8
        assert set(view.degrees) == {1}
        assert max(view.plain_degrees) == {"32B": 2, "64B": 4, "128B": 8}[name]
        for row, lands in enumerate(view.lands):
            for chunk, address in enumerate(lands):
                assert address == view.swizzle(row * view.pitch + chunk * 16)
                assert view.banks[row][chunk] == address // 4 % 32
    with pytest.raises(tcsim.OperandError, match="multiples of 16"):
        swizzle_view("128B", start=8)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_barrier_bits_are_those_of_the_machine_code(target: str) -> None:
    """mbarrier.init computes what is missing to 2**bits, shifted to the field; pending_count takes it out again."""
    version = {"sm_80": "8.0", "sm_90": "8.0"}.get(target, "8.8")
    statements = {
        "init": "mbarrier.init.shared.b64 [bar], %r0;",
        "count": "mbarrier.pending_count.b64 %r1, %rd1;\n st.global.u32 [%rd0], %r1;",
    }
    body = "".join(
        f"""
.visible .entry {name}(.param .u64 out, .param .u64 state, .param .u32 n)
{{
 .shared .align 8 .b64 bar;
 .reg .b64 %rd<4>;
 .reg .b32 %r<4>;
 ld.param.u64 %rd0, [out];
 ld.param.u64 %rd1, [state];
 ld.param.u32 %r0, [n];
 {statement}
 ret;
}}
"""
        for name, statement in statements.items()
    )
    module = f".version {version}\n.target {target}\n.address_size 64\n{body}"
    code = {
        function.section: " ".join(f"{item.opcode} {item.operands}" for item in function.instructions)
        for function in disassemble(assemble(module, target).cubin)
    }
    fields = {field.name: field for field in decode_barrier(0, target).fields}
    pending, expected = fields["pending"], fields["expected"]
    init, count = code[".text.init"], code[".text.count"]
    if target == "sm_80":  # the two words are computed each by itself
        assert (pending.low, pending.bits, expected.low, expected.bits) == (32, 31, 0, 30)
        assert f"{1 << expected.bits:#x}" in init and f"-{1 << pending.bits:#x}" in init
        assert f"{(1 << pending.bits) - 1:#x}" in count
        return
    assert pending.bits == expected.bits
    assert f"{1 << pending.bits:#x}" in init
    assert re.search(rf"SHF\.L\.U32 UR\d+, UR\d+, {pending.low - 32:#x}, URZ", init)
    assert re.search(rf"SHF\.L\.U32 UR\d+, UR\d+, {expected.low:#x}, URZ", init)
    assert re.search(rf"SHF\.R\.U32\.HI R\d+, RZ, {pending.low - 32:#x},", count)
    assert f"{(1 << pending.bits) - 1:#x}" in count and f"{1 << pending.bits:#x}" in count


def test_barriers_of_every_count() -> None:
    """What init stores decodes to its count, parity 0, and no bits that belong to nothing."""
    for arch in ("sm_80", "sm_90", "sm_120"):
        for count in (1, 2, 128, 1023, (1 << 20) - 1):
            found = decode_barrier(initial_barrier(count, arch), arch)
            counts = {name: number for name, number in found.numbers.items() if number}
            assert counts == {"expected": count, "pending": count}
            assert found.unknown == 0
    assert decode_barrier(3 << 30, "sm_80").unknown == 3 << 30
    with pytest.raises(tcsim.TargetError, match="sm_80 and later"):
        decode_barrier(0, "sm_75")
    with pytest.raises(tcsim.OperandError, match="valid are 64 bits"):
        decode_barrier(1 << 64)
