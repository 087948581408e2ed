"""cvt: the inventory, a slow model, the operands and their arrays, NaN, random bits, wrong use."""

from __future__ import annotations

import csv
import re
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from conformance.isa import testbench_of
from tcsim import FormatError, InstructionError, OperandError, TcsimError, catalog
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.isa.cvt.registers import Packed, registers_of
from tcsim.isa.cvt.semantics import Convert
from tcsim.isa.cvt.trace import trace_conversion
from tcsim.numbers.conversion import OTHER_FORMATS, Conversion, conversion_format, convert, nan_code, numbers
from tests.exact import conversions as exact
from tests.support.tables import TABLES

INVENTORY = TABLES / "cvt_inventory.csv"
ROWS = {name: row for name, row in catalog.rows().items() if row.family == "cvt"}
TESTBENCH = testbench_of("cvt")
E4M3 = "cvt.rn.satfinite.e4m3x2.f32"
PARTS = 8  # tests that share the rows


def anywhere(mnemonic: str) -> Convert:
    """The instruction on the last arch that has it."""
    instruction: Convert = tcsim.instruction(mnemonic, arch=TARGETS[ROWS[mnemonic].targets[-1]].arch)
    return instruction


def every_code(instruction: Convert) -> npt.NDArray[Any]:
    """Each code of a 16-bit (or narrower) register of a."""
    register = instruction.registers["a"]
    codes = np.arange(1 << (8 * register.dtype.itemsize), dtype=np.uint32)
    return codes[(codes & register.padding) == 0].astype(register.dtype)


def disagreements(instruction: Convert, given: dict[str, npt.NDArray[Any]]) -> list[str]:
    """Where the fast model and the slow one differ."""
    fast = instruction.execute(**given)
    found = []
    for place, got in enumerate(fast.tolist()):
        registers = {name: int(array[place]) for name, array in given.items()}
        want = exact.convert(instruction.mnemonic, registers)
        if got != want:
            found.append(f"{instruction.mnemonic} {registers}: {got:#x}, the slow model says {want:#x}")
    return found


# ---- the inventory


def test_the_registry_is_the_inventory() -> None:
    """Exactly the spellings that ptxas accepts, with their targets, versions, registers, and place in the manual."""
    text = INVENTORY.read_text(encoding="utf-8").splitlines()
    lines = list(csv.DictReader(line for line in text if not line.startswith("#")))
    assert len(lines) == 525
    assert {line["mnemonic"] for line in lines} == set(ROWS)
    assert len(ROWS) == 524
    types: dict[str, list[str]] = {name: [] for name in ROWS}
    for line in lines:
        row = ROWS[line["mnemonic"]]
        assert list(row.targets) == line["targets"].split(), row.mnemonic
        assert row.ptx_version == line["min_ptx_isa"], row.mnemonic
        assert row.documented == bool(int(line["documented"]))
        assert not row.dropped
        types[row.mnemonic].append(line["extra"])
    for name, row in ROWS.items():
        assert [" ".join(r.type for r in registers_of(form).values()) for form in row.forms] == types[name], name


@pytest.mark.parametrize("name", dict.fromkeys((*ARCHS, *TARGETS)))
def test_every_target_takes_exactly_its_instructions(name: str) -> None:
    """On an arch what any of its targets takes, on another target what that one takes; the rest is refused."""
    own = {target for target in TARGETS if TARGETS[target].arch == name} if name in ARCHS else {name}
    taken = [mnemonic for mnemonic, row in ROWS.items() if own & set(row.targets)]
    assert [row.mnemonic for row in catalog.on_arch(name, "cvt")] == taken
    for mnemonic in taken:
        assert set(tcsim.instruction(mnemonic, arch=name).targets) == own & set(ROWS[mnemonic].targets)
    for mnemonic in [mnemonic for mnemonic in ROWS if mnemonic not in taken][::40]:
        with pytest.raises(InstructionError) as caught:
            tcsim.instruction(mnemonic, arch=name)
        text = str(caught.value)
        assert text.startswith(f'tcsim.instruction("{mnemonic}", arch="{name}"): {mnemonic} needs ')
        assert f"; {name} has cvt" in text


def test_evidence() -> None:
    """Measured on sm_90 alone, published of sm_120; what nothing is known of is called inferred."""
    levels: dict[str, set[str]] = {}
    for mnemonic, row in ROWS.items():
        for arch in {TARGETS[target].arch for target in row.targets}:
            item = tcsim.instruction(mnemonic, arch=arch)
            levels.setdefault(item.evidence.level, set()).add(arch)
            assert (item.evidence.level == "measured") == (arch == "sm_90")
            fp6 = ".rs." in mnemonic and item.row.conversion.target.bits == 6
            unread = mnemonic.endswith("satfinite.f16.f32") and arch in ("sm_70", "sm_72", "sm_75")
            assert (item.evidence.level == "inferred") == (fp6 or unread), mnemonic
    assert set(levels) == {"measured", "published", "literature", "inferred"} and levels["published"] == {"sm_120"}


# ---- the slow model


@pytest.mark.parametrize("part", range(PARTS))
def test_every_row_agrees_with_the_slow_model(part: int) -> None:
    """All input classes of all rows, with another seed than the recorded one: 141,750 registers."""
    compared = 0
    for mnemonic in list(ROWS)[part::PARTS]:
        item = anywhere(mnemonic)
        for name in TESTBENCH.classes(item):
            given = TESTBENCH.inputs(item, name, 1, 150)
            assert disagreements(item, given) == []
            compared += 150
    assert compared > 14_000


@pytest.mark.parametrize(
    ("mnemonic", "step"),
    [
        ("cvt.rn.f16x2.e4m3x2", 37),
        ("cvt.rn.relu.f16x2.e5m2x2", 37),
        ("cvt.rn.f16x2.e3m2x2", 5),
        ("cvt.rn.bf16x2.ue8m0x2", 37),
        ("cvt.rn.f16x2.ue5m3x2", 37),
        ("cvt.f32.f16", 3),
        ("cvt.f64.bf16", 3),
        ("cvt.rn.bf16.f16", 3),
        ("cvt.f16.bf16", 3),
        ("cvt.rni.s8.f16", 3),
        ("cvt.rmi.sat.u8.f16", 5),
        ("cvt.rzi.s32.bf16", 5),
        ("cvt.rn.f16.u8", 5),
    ],
)
def test_all_codes_agree_with_the_slow_model(mnemonic: str, step: int) -> None:
    """Every third or fifth code of 16 bits; every code of both fields of a packed register, in many combinations."""
    item = anywhere(mnemonic)
    codes = every_code(item)[::step]
    if item.registers["a"].elements == 2:  # two fields of a byte
        every = 1 << item.registers["a"].format.bits
        assert len(np.unique(codes & 0xFF)) == len(np.unique(codes >> 8)) == every
    assert disagreements(item, {"a": codes}) == []


@pytest.mark.parametrize(("format", "half"), [("e4m3", "f16"), ("e5m2", "f16"), ("e4m3", "bf16"), ("e2m1", "f16")])
def test_halves_to_narrow_formats_for_all_codes(format: str, half: str) -> None:
    """All 65,536 codes in the lower half, and all in the upper."""
    item = anywhere(f"cvt.rn.satfinite.{format}x2.{half}x2")
    codes = np.arange(1 << 16, dtype=np.uint32)
    given = item.execute(a=codes | (codes[::-1] << 16))
    step, mask = (4, 0xF) if format == "e2m1" else (8, 0xFF)
    spelling = exact.parse(item.mnemonic)
    want = np.array([exact.element(spelling, code, None, None) for code in range(1 << 16)])
    assert np.array_equal(given & mask, want)
    assert np.array_equal(given >> step & mask, want[::-1])


def test_float_to_float_agrees_with_ml_dtypes() -> None:
    """Where nothing is saturated and nothing is NaN, a third opinion."""
    values = np.random.Generator(np.random.PCG64(5)).integers(0, 1 << 32, 200_000, np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    for mnemonic, dtype in (("cvt.rn.f16.f32", np.float16), ("cvt.rn.bf16.f32", ml_dtypes.bfloat16)):
        with np.errstate(over="ignore"):
            want = values.astype(dtype).view(np.uint16)
        assert np.array_equal(tcsim.instruction(mnemonic, arch="sm_80").execute(a=values), want)
    near = values[np.abs(values) <= 448]
    fp8 = tcsim.instruction(E4M3, arch="sm_90").execute(a=near, b=near) & 0xFF
    assert np.array_equal(fp8, near.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


# ---- operands and arrays


def test_the_first_operand_is_the_upper_half() -> None:
    """Packed results, packed sources, four sources, and cvt.pack."""
    f32 = np.float32
    e4m3 = tcsim.instruction(E4M3, arch="sm_90")
    assert e4m3.execute(a=f32(1.0), b=f32(-2.0)) == 0x38C0
    assert tcsim.instruction("cvt.rn.f16x2.f32", arch="sm_90").execute(a=f32(1.0), b=f32(-2.0)) == 0x3C00C000
    assert tcsim.instruction("cvt.rn.f16x2.e4m3x2", arch="sm_90").execute(a=np.uint16(0x38C0)) == 0x3C00C000
    assert tcsim.instruction("cvt.rn.satfinite.e2m1x2.f32", arch="sm_100a").execute(a=f32(1.0), b=f32(-6.0)) == 0x2F
    four = tcsim.instruction("cvt.rs.satfinite.e2m1x4.f32", arch="sm_100a")
    given = dict(zip("abef", (f32(1.0), f32(2.0), f32(3.0), f32(-6.0)), strict=True))
    assert four.execute(**given, rbits=np.uint32(0)) == 0x245F
    pack = tcsim.instruction("cvt.pack.sat.s8.s32.b32", arch="sm_90")
    assert pack.execute(a=np.int32(300), b=np.int32(-2), c=np.uint32(0xABCD1234)) == 0x12347FFE
    pack = tcsim.instruction("cvt.pack.sat.u16.s32", arch="sm_90")
    assert pack.execute(a=np.int32(-5), b=np.int32(70_000)) == 0x0000FFFF


def test_narrow_integers_fill_their_register() -> None:
    """s8 with the sign, u8 with zeros; of an integer source the low 8 bits count."""
    x = np.float32([-1.0, 300.0, np.nan, -np.inf])
    signed, unsigned = (tcsim.instruction(f"cvt.rni.{t}.f32", arch="sm_90").execute(a=x) for t in ("s8", "u8"))
    assert signed.dtype == unsigned.dtype == np.uint16
    assert signed.tolist() == [0xFFFF, 0x7F, 0, 0xFF80]
    assert unsigned.tolist() == [0, 0xFF, 0, 0]
    item = tcsim.instruction("cvt.rn.f32.s8", arch="sm_90")
    assert item.execute(a=np.uint16([0x12FF, 0x80])).view(np.float32).tolist() == [-1.0, -128.0]
    both = tcsim.instruction("cvt.rn.f16.u8", arch="sm_90")
    assert both.execute(a=np.uint16([0x1203])) == both.execute(a=np.uint8([3])) == 0x4200


def test_arrays_of_a_registers_own_type_are_taken() -> None:
    """NumPy and ml_dtypes values where the register is one number, and operands that broadcast."""
    item = tcsim.instruction("cvt.f32.bf16", arch="sm_90")
    x = np.array([[1.0, -2.5], [0.0, 3.0]], ml_dtypes.bfloat16)
    assert np.array_equal(item.execute(a=x).view(np.float32), x.astype(np.float32))
    assert np.array_equal(item.execute(a=x), item.execute(a=x.view(np.uint16)))
    wide = tcsim.instruction("cvt.rn.f16.f64", arch="sm_90").execute(a=np.float64([1 / 3, -0.0]))
    assert wide.tolist() == [0x3555, 0x8000]
    out = tcsim.instruction(E4M3, arch="sm_90").execute(a=np.float32([[1.0], [2.0]]), b=np.float32([0.5, 4.0, 8.0]))
    assert out.shape == (2, 3)
    assert out[1].tolist() == [0x4030, 0x4048, 0x4050]
    assert tcsim.instruction(E4M3, arch="sm_90").execute(a=np.float32([]), b=np.float32([])).shape == (0,)
    large = np.arange(100_000, dtype=np.float32).reshape(10, -1)
    half = tcsim.instruction("cvt.rz.f16.f32", arch="sm_90")
    assert np.array_equal(half.execute(a=large)[7], half.execute(a=large[7]))


def test_wrong_operands_are_refused() -> None:
    """Errors quote the call and list what is valid."""
    item = tcsim.instruction(E4M3, arch="sm_90")
    call = re.escape(f'tcsim.instruction("{E4M3}", arch="sm_90").execute: ')
    x = np.float32([1.0])
    with pytest.raises(OperandError, match=call + r"operands a; valid: a, b$"):
        item.execute(a=x)
    with pytest.raises(OperandError, match=call + r"operands a, b, rbits; valid: a, b$"):
        item.execute(a=x, b=x, rbits=np.uint32([0]))
    with pytest.raises(OperandError, match=call + r"b is float64 \(1,\); valid: uint32, float32$"):
        item.execute(a=x, b=np.float64([1.0]))
    with pytest.raises(OperandError, match=call + r"leading dimensions .* do not broadcast"):
        item.execute(a=np.zeros(2, np.float32), b=np.zeros(3, np.float32))
    six = tcsim.instruction("cvt.rn.f16x2.e3m2x2", arch="sm_100f")
    with pytest.raises(OperandError, match=r"a is 0x4001, which sets padding; valid: 2 fields of 6 bits, 8 apart"):
        six.execute(a=np.uint16([0x0001, 0x4001]))
    with pytest.raises(OperandError, match=r"a is float16 \(1,\); valid: uint16$"):
        six.execute(a=np.float16([1.0]))
    with pytest.raises(OperandError, match=r"a is int64 \(\); valid: uint16, int16, uint8, int8$"):
        tcsim.instruction("cvt.rn.f16.u8", arch="sm_90").execute(a=3)
    with pytest.raises(InstructionError, match=r"cvt\.rn\.e4m3x2\.f32.*no such instruction; nearest: cvt"):
        tcsim.instruction("cvt.rn.e4m3x2.f32", arch="sm_90")
    assert issubclass(OperandError, TcsimError)


# ---- NaN, infinity, saturation, zero


def converted(mnemonic: str, bits: int, arch: str = "sm_100a", **more: int) -> int:
    """The result of one register."""
    item = tcsim.instruction(mnemonic, arch=arch)
    given = {name: np.array([value], item.registers[name].dtype) for name, value in {"a": bits, **more}.items()}
    return int(item.execute(**given)[0])


@pytest.mark.parametrize(
    ("mnemonic", "bits", "result"),
    [
        ("cvt.rn.f16.f32", 0xFFC12345, 0x7FFF),
        ("cvt.rn.tf32.f32", 0xFFC12345, 0x7FFFE000),
        ("cvt.f32.f16", 0xFD01, 0x7FFFFFFF),
        ("cvt.f32.bf16", 0xFF81, 0xFF810000),
        ("cvt.f64.bf16", 0xFF81, 0xFFF8200000000000),
        ("cvt.rn.f16.f64", 0xFFF0040000000000, 0xFE01),
        ("cvt.rna.tf32.f32", 0x7F801FFF, 0x7F800000),
        ("cvt.rna.tf32.f32", 0xFFFFFFFF, 0xFFFFE000),
        ("cvt.rna.satfinite.tf32.f32", 0x7F800000, 0x7F7FE000),
        ("cvt.rna.satfinite.tf32.f32", 0x7FFFFFFF, 0x7FFFC000),
        ("cvt.rni.s8.f32", 0xFFC00000, 0),
        ("cvt.rz.f16.f32", 0x47800000, 0x7BFF),
        ("cvt.rn.f16.f32", 0x477FF000, 0x7C00),
        ("cvt.rn.f16.f32", 0x477FEFFF, 0x7BFF),
        ("cvt.rz.f16.f32", 0x7F800000, 0x7C00),
        ("cvt.rn.satfinite.f16.f32", 0xFF800000, 0xFBFF),
        ("cvt.rn.relu.f16.f32", 0x80000000, 0),
        ("cvt.rn.relu.f16.f32", 0xFFC00000, 0x7FFF),
        ("cvt.rn.f16.f32", 0x80000001, 0x8000),
        ("cvt.rm.f16.f32", 0x80000001, 0x8001),
        ("cvt.rn.bf16.f32", 0x00000001, 0),
        ("cvt.rp.bf16.f32", 0x00000001, 1),
        ("cvt.rn.f16.s32", 65_520, 0x7C00),
        ("cvt.rn.f16.s32", 65_519, 0x7BFF),
    ],
)
def test_single_results(mnemonic: str, bits: int, result: int) -> None:
    """One value for each rule."""
    assert converted(mnemonic, bits) == result


def test_pairs_of_results() -> None:
    """NaN and overflow of the packed formats, scale factors, fixed point."""
    nan, inf, one = 0xFFC00001, 0xFF800000, 0x3F800000
    assert converted("cvt.rn.satfinite.e5m2x2.f32", nan, b=inf) == 0x7FFB
    assert converted("cvt.rn.satfinite.e2m3x2.f32", nan, b=inf) == 0x1F3F
    assert converted("cvt.rp.ue8m0x2.f32", nan, b=inf) == 0xFFFF
    assert converted("cvt.rp.satfinite.ue8m0x2.f32", 0x3F800001, b=inf) == 0x80FE
    assert converted("cvt.rz.ue8m0x2.f32", 0x80000000, b=0xBFFFFFFF) == 0x007F
    assert converted("cvt.rn.satfinite.s2f6x2.f32", nan, b=0xC0400000) == 0x7F80
    assert converted("cvt.rn.satfinite.s2f6x2.f32", one, b=0x3C000000) == 0x4000
    scaled = "cvt.rn.satfinite.scaled::n1::ue8m0.e4m3x2.f32"
    assert converted(scaled, one, "sm_107a", b=0x40000000, scale=0x80) == 0x3038
    assert converted(scaled, one, "sm_107a", b=0x40000000, scale=0xFF) == 0x7F7F
    up = "cvt.rn.scaled::n2::ue8m0.bf16x2.e4m3x2"
    assert converted(up, 0x3838, scale=0x807E) == 0x40003F00
    assert converted("cvt.rn.satfinite.pzo.e4m3x2.f32", 0x80000001, "sm_107a", b=0xBF800000) == 0x00B8


@pytest.mark.parametrize(
    ("source", "target", "options", "code", "result"),
    [
        ("f32", "f16", {}, 0x7149F2CA, 0x7C00),  # 1e30
        ("f32", "f16", {"saturate": True}, 0x7149F2CA, 0x7BFF),
        ("f32", "bf16", {}, 0x00010000, 0x0001),  # a subnormal number
        ("f32", "bf16", {"flush_source": True}, 0x00010000, 0),
        ("f32", "f16", {}, 0x80000000, 0x8000),
        ("f32", "f16", {"positive_zero": True}, 0x80000000, 0),
        ("f32", "f16", {"relu": True}, 0xBF800000, 0),
        ("f32", "ue8m0", {"relu": True}, 0x40800000, 0x81),  # 4.0: no code of the target is negative
    ],
)
def test_a_conversion_does_what_it_names(source: str, target: str, options: Any, code: int, result: int) -> None:
    """Each option by itself; without it numbers overflow to infinity, subnormal ones count, and a zero keeps its sign."""
    conversion = Conversion(tcsim.FORMATS[source], tcsim.FORMATS[target], **options)
    assert convert(np.uint32([code]), conversion).tolist() == [result]


# ---- random bits


def test_which_random_bits_round_which_source() -> None:
    """A word whose hexadecimal digits are all different, seen by each of four sources."""
    register = {"abef"[place]: place for place in range(4)}
    word = np.uint32(0x12345678)
    wanted = {
        "e4m3x4": [0x2C48, 0x1234, 0x1E6A, 0x5678],
        "e2m1x4": [0x6A48, 0x1256, 0x1E2C, 0x3478],
        "e3m2x4": [0x2C48, 0x1234, 0x1E6A, 0x5678],
    }
    for target, values in wanted.items():
        item = tcsim.instruction(f"cvt.rs.satfinite.{target}.f32", arch="sm_100a")
        step = item.registers["d"].field_bits
        discarded = 23 - item.row.conversion.target.fraction_bits
        for name, place in register.items():
            short = (1 << 16) - values[place]  # the least bits that carry
            for bits, carry in ((short, 1), (short - 1, 0)):
                code = np.uint32(0x3F800000 | bits << (discarded - 16))
                given = {other: np.array([code if other == name else 0x3F800000], np.uint32) for other in "abef"}
                out = int(item.execute(**given, rbits=np.array([word]))[0])
                fields = [out >> (step * (3 - at)) & ((1 << step) - 1) for at in range(4)]
                one = fields[(place + 1) % 4]
                assert fields[place] == one + carry, (target, name)


def test_random_bits_round_up_as_often_as_they_should() -> None:
    """Over all random words of 16 bits the result is a third of a last place up in a third of the cases."""
    item = tcsim.instruction("cvt.rs.bf16x2.f32", arch="sm_100a")
    value = np.array([0x3F800000 + 0x10000 // 3], np.uint32)
    low = np.arange(1 << 16, dtype=np.uint32)
    out = item.execute(a=value, b=value, rbits=low | (low[::-1] << 16))
    assert set(np.unique(out & 0xFFFF).tolist()) == {0x3F80, 0x3F81}
    assert int((out & 1).sum()) == int((out >> 16 & 1).sum()) == 0x10000 // 3


# ---- formats, trace


def test_formats_of_conversions() -> None:
    """What is not among the formats of tensor cores; what a NaN becomes."""
    assert not set(OTHER_FORMATS) & set(tcsim.FORMATS)
    assert numbers(np.uint8([0xFE, 0x7F, 1]), conversion_format("ue5m3")).tolist() == [114688.0, 1.875, 2.0**-17]
    assert numbers(np.uint8([0x80, 0xFF, 0x40]), conversion_format("s2f6")).tolist() == [-2.0, -1 / 64, 1.0]
    assert {name: nan_code(conversion_format(name)) for name in exact.NAN} == exact.NAN
    with pytest.raises(FormatError, match="no number format 's2f6'"):
        tcsim.format("s2f6")


def test_registers_pack_what_they_unpack() -> None:
    """Highest field first; padding stays zero."""
    register = Packed("a", type=".b16", format=conversion_format("e3m2"), elements=2, field_bits=8)
    codes = register.unpack(np.uint16([0x3F01, 0x2A15]))
    assert codes.tolist() == [[0x3F, 0x2A], [0x01, 0x15]]
    assert register.pack(codes).tolist() == [0x3F01, 0x2A15]
    assert register.padding == 0xC0C0


def test_a_result_can_be_followed() -> None:
    """The value, its neighbours, the decision."""
    item = tcsim.instruction("cvt.rn.satfinite.scaled::n1::ue8m0.e2m1x2.f32", arch="sm_107a")
    lines = trace_conversion(item, {"a": 0x40A00000, "b": 0xFF800000, "scale": 0x80})
    assert lines[0].startswith(f"{item.mnemonic} on sm_107: native, F2FP.")
    assert lines[1].startswith("d[7:4]: 0x40a00000 (5.0)")
    assert "between 0x4 (2.0) and 0x5 (3.0), to nearest, ties to even -> 0x4 (2.0)" in lines[1]
    assert lines[2].endswith("-> 0xf (-6.0)")
    stochastic = tcsim.instruction("cvt.rs.f16x2.f32", arch="sm_100a")
    text = trace_conversion(stochastic, {"a": 0x3F800001, "b": 0x7FC00000, "rbits": 0x1FFF0000})
    assert "random bits" in text[1]
    assert "by the carry out of the random bits -> " in text[1]


def test_every_step_says_what_it_does() -> None:
    """The one step of a lowering in words, different for different conversions."""
    texts = {repr(anywhere(name).lowering.steps[0]) for name in ROWS}
    conversions = {anywhere(name).lowering.conversion for name in ROWS}
    assert len(texts) == len(conversions)
    step = tcsim.instruction("cvt.rn.relu.tf32.f32", arch="sm_90").lowering.steps[0]
    assert repr(step) == "f32 to tf32 to nearest, ties to even; negative is +0; NaN is 0x7fffe000"


def test_roundings_bracket_the_value() -> None:
    """Down, to zero, to nearest and up are in order, and never more than one code apart."""
    x = TESTBENCH.inputs(anywhere("cvt.rm.f16.f32"), "edges", 3, 4_000)["a"].view(np.float32)
    x = x[np.isfinite(x)]
    results = {
        mode: tcsim.decode(anywhere(f"cvt.{mode}.f16.f32").execute(a=x), "f16") for mode in ("rm", "rz", "rn", "rp")
    }
    for lower, upper in pairwise((results["rm"], x.astype(np.float64), results["rp"])):
        assert (lower <= upper).all()
    for mode in ("rz", "rn"):
        assert ((results[mode] == results["rm"]) | (results[mode] == results["rp"])).all()
