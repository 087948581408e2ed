"""Traces, drawings, inputs from files and comparisons as data: against the model and exact rationals."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.stimuli import classes as inputs
from tcsim import catalog
from tcsim.inspection.bit_columns import LABEL, bit_columns
from tcsim.inspection.comparison import compare_archs
from tcsim.inspection.outputs import example_arrays, output_problem
from tcsim.inspection.problems import call_of, run_call
from tcsim.inspection.random_inputs import random_problems
from tcsim.inspection.trace_steps import TracedStep, exact_sum, trace_steps
from tcsim.trace import trace

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


# --- traces


def problems(arch: str) -> list[tuple[Any, Any, Any, Any]]:
    """(instruction, a, b, c) of one output of several dense instructions of every arithmetic, and random inputs."""
    found = []
    for row in list(catalog.on_arch(arch, "mma.sync"))[::3]:
        instruction = tcsim.instruction(row.mnemonic, arch=arch)
        k = instruction.operands["a"].shape[1]
        a, b, c = random_problems(instruction.formats, k, 3, 7)
        found += [(instruction, a[i, 0], b[i, :, 0], c[i, 0, 0]) for i in range(3)]
        registers = inputs.registers(instruction, inputs.CLASSES["uniform"], 5, 1)
        codes = [instruction.matrix(name, registers[name]) for name in "abc"]
        codes = [x.reshape(-1, *x.shape[-2:])[0] for x in codes]
        found.append((instruction, codes[0][1], codes[1][:, 2], codes[2][1, 2]))
    return found


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_89", "sm_90", "sm_120"])
def test_traces_end_with_the_result_and_add_up(arch: str) -> None:
    """The last result is the model's; kept terms are the exact ones cut towards zero; their sum is the total."""
    dots = 0
    for instruction, a, b, c in problems(arch):
        steps = trace_steps(instruction, a, b, c)
        formats = tuple(instruction.formats[name] for name in "abc")
        d = instruction.lowering.run(a.reshape(1, 1, -1), b.reshape(1, -1, 1), np.reshape(c, (1, 1, 1)), formats)
        assert steps[-1].result is not None
        assert int(steps[-1].result.hex, 16) == int(d.reshape(-1)[0])
        assert trace(instruction, a, b, c)[-1] == f"  d = {steps[-1].result.hex} ({steps[-1].result.value!r})"
        for step in steps:
            assert bool(step.terms) != bool(step.notes)
            if not step.terms or not isinstance(step.total, int):
                continue
            assert step.unit is not None and step.exponent is not None and step.fraction_bits is not None
            kept = 0
            for term in step.terms:
                exact = Fraction(term.magnitude) * Fraction(2) ** (term.low - step.unit)
                cut = exact.numerator // exact.denominator
                assert term.kept == (-cut if term.negative else cut), (instruction, term)
                kept += int(term.kept)
                if len(term.factors) == 2 and term.exponent is not None:
                    product = Fraction(term.factors[0].value) * Fraction(term.factors[1].value)
                    assert abs(product) == Fraction(term.magnitude) * Fraction(2) ** term.low
            assert kept == step.total
            assert len(step.terms) - 1 + len(step.zero_products) == len(step.k)
            assert abs(exact_sum(step) / Fraction(2) ** step.unit - step.total) < len(step.terms)
            dots += 1
    assert dots >= 8


def column_of(line: str, weight: int, top: int) -> str:
    """The character of a weight in a line of a drawing; weights below the bar are one column further."""
    return line.ljust(200)[LABEL + 2 + top - weight]


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_89", "sm_90"])
def test_drawings_say_what_the_trace_says(arch: str) -> None:
    """Every digit of a drawing is the bit of its weight; the bar stands right behind the last kept bit."""
    digits = 0
    for instruction, a, b, c in problems(arch):
        for step in trace_steps(instruction, a, b, c):
            lines = bit_columns(step, 80)
            if not step.terms:
                assert lines == ()
                continue
            assert max(map(len, lines)) <= 80
            digits += check_drawing(step, lines)
    assert digits > 500


def check_drawing(step: TracedStep, lines: tuple[str, ...]) -> int:
    """Compare the digits of a drawing with the terms; returns how many there were."""
    found = re.match(r" +2\^(-?\d+) +2\^(-?\d+) cut$", lines[0])
    assert found is not None
    top, unit = int(found[1]), int(found[2])
    assert unit == step.unit
    digits = 0
    by_name = {line.split()[0]: line for line in lines[1:] if not line.startswith(" ")}
    for term in step.terms:
        line = by_name[term.name]
        if not term.magnitude:
            continue
        assert line[LABEL + 1] == ("-" if term.negative else "+")
        for weight in range(top, unit - 1, -1):
            character = column_of(line, weight, top)
            inside = term.low <= weight < term.low + term.magnitude.bit_length()
            assert character == (str(term.magnitude >> (weight - term.low) & 1) if inside else " "), (term, weight)
            digits += inside
        if term.low < unit:
            assert column_of(line, unit - 1, top) == "|"
    if isinstance(step.total, int) and step.total:
        line = by_name["sum"]
        shown = int(line[LABEL + 2 : line.index("|")].replace(" ", "0"), 2)
        assert (line[LABEL + 1], shown) == ("-" if step.total < 0 else "+", abs(step.total))
    return digits


# --- inputs from files


def test_one_output_of_registers_and_of_matrices() -> None:
    """The codes found in the inputs of execute and of matmul are those of the output that the model gives."""
    compared = 0
    for mnemonic, matrix in ((MMA, 0), ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", 2)):
        mma = tcsim.instruction(mnemonic, arch="sm_90")
        registers = inputs.registers(mma, inputs.CLASSES["uniform"], 5, 3)
        assert call_of(mma, registers) == "execute"
        call, d = run_call(mma, registers)
        codes = mma.matrix("d", d["d"])[1]
        wanted = codes if mma.matrices == 1 else codes[matrix]
        a, b, c = output_problem(mma, registers, (5, 6), batch=1, matrix=matrix)
        assert int(trace_steps(mma, a, b, c)[-1].result.hex, 16) == int(wanted[5, 6])  # type: ignore[union-attr]
        matrices = {name: mma.matrix(name, registers[name]).reshape(-1, *mma.operands[name].shape) for name in "abc"}
        index = mma.matrices + matrix
        assert [x.tolist() for x in output_problem(mma, matrices, (5, 6), batch=index)] == [
            x.tolist() for x in (a, b, c)
        ]
        assert call_of(mma, matrices) == "matmul" and call == "execute"
        compared += 1
    assert compared == 2


def test_one_output_of_sparse_and_of_warpgroup_inputs() -> None:
    """The codes of B that the kept elements meet; operands behind descriptors."""
    stream = np.random.default_rng(3)
    sparse = tcsim.instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", arch="sm_90")
    dense = stream.normal(size=(16, 32)).astype(np.float16)
    dense.reshape(16, 8, 4)[..., [0, 2]] = 0
    a, positions = sparse.compress(dense)
    b, c = stream.normal(size=(32, 8)).astype(np.float16), stream.normal(size=(16, 8)).astype(np.float32)
    d = sparse.matmul(a, b, c, metadata=positions)
    words = {"metadata": sparse.encode_metadata(positions, 1), "selector": np.int64(1)}
    registers = {name: sparse.registers(name, x) for name, x in (("a", a), ("b", b), ("c", c))} | words
    for arrays in ({"a": a, "b": b, "c": c, "metadata": positions}, registers):
        steps = trace_steps(sparse, *output_problem(sparse, arrays, (9, 4)))
        assert int(steps[-1].result.hex, 16) == int(d[9, 4])  # type: ignore[union-attr]
    wgmma = tcsim.instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", arch="sm_90a")
    tile_a = tcsim.MatrixDescriptor.for_tile(64, 16, "f16", swizzle="32B")
    tile_b = tcsim.MatrixDescriptor.for_tile(8, 16, "f16", swizzle="32B", start_address=4096)
    smem = np.zeros(8192, np.uint8)
    x, y = stream.normal(size=(64, 16)).astype(np.float16), stream.normal(size=(8, 16)).astype(np.float16)
    smem[: tile_a.bytes], smem[4096 : 4096 + tile_b.bytes] = tile_a.image(x), tile_b.image(y)
    arrays = {
        "smem": smem, "a": np.uint64(tile_a.descriptor.encode()), "b": np.uint64(tile_b.descriptor.encode()),
        "c": np.zeros((128, 4), np.uint32),
    }  # fmt: skip
    out = run_call(wgmma, arrays)[1]["d"]
    steps = trace_steps(wgmma, *output_problem(wgmma, arrays, (40, 3)))
    assert int(steps[-1].result.hex, 16) == int(wgmma.matrix("d", out)[40, 3])  # type: ignore[union-attr]
    assert int(wgmma.matrix("d", out)[40, 3]) != 0


def test_inputs_that_a_call_does_not_take() -> None:
    """Names, items and elements that do not exist, each with what does."""
    mma = tcsim.instruction(MMA, arch="sm_90")
    good = {"a": np.ones((16, 16), np.float16), "b": np.ones((16, 8), np.float16), "c": np.zeros((16, 8), np.float32)}
    for arrays, message in (({**good, "q": 1}, "no input q; valid: a, b, c"), ({"a": good["a"]}, "b, c is missing")):
        with pytest.raises(tcsim.OperandError, match=re.escape(message)):
            run_call(mma, arrays)
    for element, batch, message in (((16, 0), 0, "rows 0 to 15, columns 0 to 7"), ((0, 0), 1, "valid: items 0 to 0")):
        with pytest.raises(tcsim.OperandError, match=re.escape(message)):
            output_problem(mma, good, element, batch)
    with pytest.raises(tcsim.OperandError, match="has no matmul"):
        run_call(tcsim.instruction("movmatrix.sync.aligned.m8n8.trans.b16", arch="sm_90"), {}, "matmul")


# --- comparisons

PAIRS = (
    (MMA, ("sm_80", "sm_90")),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", ("sm_86", "sm_100")),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", ("sm_89", "sm_90", "sm_120")),
    ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ("sm_80", "sm_90")),
)


@pytest.mark.parametrize(("mnemonic", "archs"), PAIRS)
def test_examples_show_the_difference_and_are_minimal(mnemonic: str, archs: tuple[str, ...]) -> None:
    """The example differs when it is run by itself, and dropping any product of it makes it agree or changes nothing."""
    found = compare_archs(mnemonic, archs, count=512)
    assert {len(found.differences)} == {len(archs) * (len(archs) - 1) // 2}
    shown = 0
    for own in found.differences:
        assert own.outputs == 512 and 0 < own.differing <= 512
        assert sum(own.by_units.values()) == own.differing
        example = own.example
        assert example is not None
        results = {}
        for arch in (own.first, own.second):
            instruction = tcsim.instruction(mnemonic, arch=arch)
            d = instruction.matmul(**example_arrays(instruction, example.codes))
            results[arch] = int(d[0, 0])
            assert int(example.results[arch].hex, 16) == results[arch]
        assert results[own.first] != results[own.second]
        for product in example.products:
            without = example.codes.changed("a", product.k, 0).changed("b", product.k, 0)
            values = set()
            for arch in (own.first, own.second):
                instruction = tcsim.instruction(mnemonic, arch=arch)
                values.add(int(instruction.matmul(**example_arrays(instruction, without))[0, 0]))
            assert len(values) == 1, product
        shown += 1
    assert shown == len(found.differences)


def test_given_matrices_are_compared_everywhere() -> None:
    """As many outputs as the matrices have; the place of the example is one that differs; integers never differ."""
    stream = np.random.default_rng(1)
    a, b = stream.normal(size=(2, 16, 16)).astype(np.float16), stream.normal(size=(16, 8)).astype(np.float16)
    c = stream.normal(size=(16, 8)).astype(np.float32)
    (own,) = compare_archs(MMA, ("sm_80", "sm_90"), inputs={"a": a, "b": b, "c": c}).differences
    d = [tcsim.instruction(MMA, arch=arch).matmul(a, b, c) for arch in ("sm_80", "sm_90")]
    assert (own.outputs, own.differing) == (256, int((d[0] != d[1]).sum()))
    assert own.example is not None and own.example.place is not None
    assert (d[0] != d[1])[own.example.place]
    int8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
    assert compare_archs(int8, ("sm_80", "sm_90"), count=256).differences[0].differing == 0
    with pytest.raises(tcsim.TargetError, match="at least two"):
        compare_archs(MMA, ("sm_80", "sm_80"))
    with pytest.raises(tcsim.InstructionError, match="needs sm_89"):
        compare_archs("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", ("sm_80", "sm_90"))
    with pytest.raises(tcsim.OperandError, match=re.escape("valid: (..., 16, 16)")):
        compare_archs(MMA, ("sm_80", "sm_90"), inputs={"a": a[..., :8], "b": b, "c": c}, call="matmul")
