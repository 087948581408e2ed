"""The step-by-step trace of one result: its last line is the result, and its lines say what was aligned and cut."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import tcsim
from conformance.stimuli import classes as inputs
from tcsim import catalog
from tcsim.trace import show_code, trace

ARCHS = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
CLASSES = ("uniform", "wide", "zeros", "saturation", "floor")
RESULT = re.compile(r"  d = (0x[0-9a-f]+) \((.+)\)")


@pytest.mark.parametrize("arch", ARCHS)
def test_the_last_line_is_the_result(arch: str) -> None:
    """Every instruction of the arch, several classes of inputs: what the trace ends with is what execute answers."""
    compared, planned = 0, 0
    for row in catalog.on_arch(arch, "mma.sync"):
        instruction = tcsim.instruction(row.mnemonic, arch=arch)
        stream = random.Random(f"{row.mnemonic} {arch}")
        for item in inputs.classes_for(instruction):
            if item.name not in CLASSES:
                continue
            registers = inputs.registers(instruction, item, 5, 2)
            d = instruction.matrix("d", instruction.execute(**registers))
            d = d.reshape(-1, *instruction.operands["d"].shape)
            codes = {
                name: instruction.matrix(name, array).reshape(-1, *instruction.operands[name].shape)
                for name, array in registers.items()
            }
            number, m, n = (stream.randrange(extent) for extent in d.shape)
            lines = trace(instruction, codes["a"][number, m], codes["b"][number, :, n], codes["c"][number, m, n])
            result = RESULT.fullmatch(lines[-1])
            assert result is not None, lines[-1]
            format = instruction.operands["d"].format
            assert int(result[1], 16) == int(d[number, m, n]), (row.mnemonic, item.name)
            value = tcsim.decode(np.array([int(result[1], 16)], format.dtype), format)[0]
            assert float(result[2]) == value or np.isnan(value)
            steps = instruction.lowering.steps
            ending = "step" if len(steps) == 1 else "steps"
            assert lines[0] == f"{row.mnemonic} on {arch}: {instruction.lowering.kind}, {len(steps)} {ending}"
            assert [line.split(":")[0] for line in lines if line.startswith("step ")] == [
                f"step {number}" for number in range(1, len(steps) + 1)
            ]
            compared += 1
        planned += len([item for item in inputs.classes_for(instruction) if item.name in CLASSES])
    assert compared == planned
    assert (
        compared
        >= {"sm_70": 36, "sm_75": 90, "sm_80": 220, "sm_89": 280, "sm_90": 320, "sm_100": 370, "sm_120": 490}[arch]
    )


def lines_of(rest: str, arch: str, a: list[float], b: list[float], c: float) -> list[str]:
    """The trace of an instruction on values, zeros added to fill K."""
    instruction = tcsim.instruction(f"mma.sync.aligned.{rest}", arch=arch)
    k = instruction.shape[2]
    row, column = (np.array(x + [0.0] * (k - len(x))) for x in (a, b))
    formats = {name: operand.format for name, operand in instruction.operands.items()}
    codes = (tcsim.encode(row, formats["a"]), tcsim.encode(column, formats["b"]), tcsim.encode(c, formats["c"]))
    return trace(instruction, *codes)


def test_a_fused_dot_add() -> None:
    """Terms in units of the last bit kept, the zero products together, the largest exponent, the rounded sum."""
    assert lines_of("m16n8k8.row.col.f32.f16.f16.f32", "sm_90", [1.5, 2.0**-12], [1.5, -(2.0**-13)], -1.0) == [
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 on sm_90: native, 1 step",
        "step 1: fused dot-add of k 0-7 and c, 25 fraction bits below the largest exponent, to f32 rz",
        "  k=0   a=0x3e00 (1.5)  b=0x3e00 (1.5)  exponent 0  -> 75497472 * 2**-25",
        "  k=1   a=0x0c00 (0.000244140625)  b=0x8800 (-0.0001220703125)  exponent -25  -> -1 * 2**-25",
        "  k=2-7 zero products",
        "  c     0xbf800000 (-1.0)  exponent 0  -> -33554432 * 2**-25",
        "  largest exponent 0 (floor -133); sum 41943039 * 2**-25",
        "  d = 0x3f9fffff (1.2499998807907104)",
    ]


def test_a_term_below_the_cut_is_shown_as_nothing() -> None:
    """A product that alignment shifts out is a line with 0, not a zero product."""
    lines = lines_of("m16n8k8.row.col.f16.f16.f16.f16", "sm_75", [2.0**-14], [2.0**-14], 1.0)
    assert "  k=0   a=0x0400 (6.103515625e-05)  b=0x0400 (6.103515625e-05)  exponent -28  -> 0 * 2**-24" in lines
    assert lines[-2:] == ["  largest exponent 0 (floor -20); sum 16777216 * 2**-24", "  d = 0x3c00 (1.0)"]


def test_a_chain_of_steps_shows_every_accumulator() -> None:
    """sm_80 takes m16n8k16 as two steps: the second adds to the first one's rounded result."""
    lines = lines_of("m16n8k16.row.col.f32.f16.f16.f32", "sm_80", [1.0] * 16, [1.0] * 16, 0.5)
    assert lines[0].endswith(": native, 2 steps")
    assert "step 1: fused dot-add of k 0-7 and c, 24 fraction bits below the largest exponent, to f32 rz" in lines
    assert "  acc = 0x41080000 (8.5)" in lines
    assert "step 2: fused dot-add of k 8-15 and acc, 24 fraction bits below the largest exponent, to f32 rz" in lines
    assert "  acc   0x41080000 (8.5)  exponent 3  -> 17825792 * 2**-21" in lines
    assert lines[-1] == "  d = 0x41840000 (16.5)"


def test_an_emulated_instruction_shows_what_really_runs() -> None:
    """fp8 on sm_90: widened, two interleaved dot-adds from zero, an ordinary add."""
    lines = lines_of("m16n8k16.row.col.f32.e4m3.e5m2.f32", "sm_90", [2.0, 3.0, 5.0], [1.0, 1.0, 2.0], 0.25)
    assert lines[:3] == [
        "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e5m2.f32 on sm_90: emulated, 4 steps",
        "step 1: a and b widened to f16, exactly",
        "step 2: fused dot-add of k 0-1,4-5,8-9,12-13 and +0, 25 fraction bits below the largest exponent, to f32 rz",
    ]
    assert "  k=1   a=0x4200 (3.0)  b=0x3c00 (1.0)  exponent 1  -> 50331648 * 2**-24" in lines
    assert "  k=4-5,8-9,12-13 zero products" in lines
    assert "  +0    0x00000000 (0.0)  zero  -> 0 * 2**-24" in lines
    assert "  acc = 0x40a00000 (5.0)" in lines
    assert lines[-2:] == [
        "step 4: add of acc=0x41700000 (15.0), c=0x3e800000 (0.25) in f32, rne",
        "  d = 0x41740000 (15.25)",
    ]


def test_infinities_and_nan_are_shown() -> None:
    """They have no exponent and are no zero: no stand-in for one is printed; the result follows from them."""
    lines = lines_of("m16n8k8.row.col.f32.f16.f16.f32", "sm_90", [np.inf, 1.0, 2.0], [1.0, 1.0, np.nan], -np.inf)
    special = [line for line in lines if "(inf)" in line or "(-inf)" in line or "b=0x7fff (nan)" in line]
    assert [line.split()[0] for line in special] == ["k=0", "k=2", "c"]
    assert [line.split("-> ")[1].split(" *")[0] for line in special] == ["inf", "nan", "-inf"]
    assert lines[-1] == "  d = 0x7fffffff (nan)"
    for line in special:
        assert "zero" not in line
        assert not re.search(r"exponent -1[56]\d\d\d", line)


def test_ordinary_arithmetic() -> None:
    """f64: one fma a step, each with its operands and its mode."""
    lines = lines_of("m8n8k4.row.col.rm.f64.f64.f64.f64", "sm_80", [2.0, 1.0], [3.0, 1.0], 0.5)
    assert len(lines) == 1 + 2 * 4
    half, one, two, three = "0x3fe0000000000000", "0x3ff0000000000000", "0x4000000000000000", "0x4008000000000000"
    assert lines[1:5] == [
        f"step 1: fma of a[0]={two} (2.0), b[0]={three} (3.0), c={half} (0.5) in f64, rm",
        "  acc = 0x401a000000000000 (6.5)",
        f"step 2: fma of a[1]={one} (1.0), b[1]={one} (1.0), acc=0x401a000000000000 (6.5) in f64, rm",
        "  acc = 0x401e000000000000 (7.5)",
    ]
    assert lines[-1] == "  d = 0x401e000000000000 (7.5)"


def test_integers_and_bits() -> None:
    """Products in decimal, where clamping happens, and the set bits of b1."""
    assert lines_of("m8n8k16.row.col.satfinite.s32.s8.u8.s32", "sm_75", [-3.0, 0.0, 2.0], [5.0, 9.0, 7.0], 2.0**31 - 1)[
        1:
    ] == [
        "step 1: integer dot product, addend c, exact, then clamped to s32 once",
        "  -3*5 + 2*7",
        "  d = 0x7ffffffe (2147483646)",
    ]
    assert lines_of("m8n8k32.row.col.s32.s4.s4.s32", "sm_90", [7.0], [7.0], 2.0**31 - 1)[1:] == [
        "step 1: integer dot product, addend +0, exact, then modulo 2**32",
        "  7*7",
        "  acc = 0x00000031 (49)",
        "step 2: integer add of acc=49, c=2147483647, modulo 2**32",
        "  d = 0x80000030 (-2147483600)",
    ]
    assert lines_of("m8n8k128.row.col.s32.b1.b1.s32.xor.popc", "sm_75", [1.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0], -1.0)[
        1:
    ] == [
        "step 1: popcount of a xor b over k, plus c",
        "  set bits at k 0,2-3",
        "  d = 0x00000002 (2)",
    ]
    assert lines_of("m8n8k128.row.col.s32.b1.b1.s32.and.popc", "sm_80", [1.0], [0.0], 5.0)[2] == "  set bits at k none"


def test_codes_are_shown_as_wide_as_their_format() -> None:
    """Hexadecimal digits by the bits of a code, ignored ones included."""
    shown = {
        name: show_code(1, tcsim.format(name)) for name in ("f64", "f32", "tf32", "f16", "e4m3", "e3m2", "s4", "b1")
    }
    assert shown == {
        "f64": "0x0000000000000001", "f32": "0x00000001", "tf32": "0x00000001", "f16": "0x0001", "e4m3": "0x01",
        "e3m2": "0x01", "s4": "0x1", "b1": "0x1",
    }  # fmt: skip


def test_wrong_operands_are_refused() -> None:
    """The trace takes codes of the instruction's formats only."""
    instruction = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    with pytest.raises(tcsim.FormatError, match="trace: b: dtype float64 does not hold codes of f16"):
        trace(instruction, np.zeros(8, np.uint16), np.zeros(8), np.zeros(1, np.uint32))


@pytest.mark.parametrize(
    ("rest", "count"),
    [
        ("m16n8k8.row.col.f32.f16.f16.f32", 16),
        ("m16n8k8.row.col.f32.f16.f16.f32", 7),
        ("m8n8k16.row.col.s32.s8.s8.s32", 4),
    ],
)
def test_another_number_of_codes_than_k_is_refused(rest: str, count: int) -> None:
    """A row of A has K codes: nothing is left out, and nothing is added."""
    instruction = tcsim.instruction(f"mma.sync.aligned.{rest}", arch="sm_90")
    codes = np.zeros(count, instruction.operands["a"].format.dtype)
    with pytest.raises(tcsim.OperandError, match=f"{count}"):
        trace(instruction, codes, codes, np.zeros(1, np.uint32))
