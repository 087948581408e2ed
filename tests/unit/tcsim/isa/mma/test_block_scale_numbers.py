"""Block-scaled arithmetic: single steps by hand, the fast model against the slow one, registers against matrices."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from conformance.isa import testbench_of
from conformance.isa.mma.scale_mutants import matrices_of
from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.scaled_dot import scaled_dot_add
from tcsim.core.errors import FormatError, OperandError
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.numbers.formats import FORMATS
from tcsim.trace import trace
from tests.exact import block_scaling as exact
from tests.support.extent import examples
from tests.support.scale_cases import MX4, MX8, NV4, ROWS, SPARSE_MX4, SPARSE_MX8, SPARSE_NV4

MIXED = MX8.replace("e4m3.e4m3", "e4m3.e5m2")
EACH = [  # one of every kind, number of blocks, scale format and sparsity; mxf8f6f4 with several pairs of types
    MIXED,
    MX8,
    MX8.replace("e4m3.e4m3", "e2m1.e3m2"),
    MX8.replace("e4m3.e4m3", "e2m3.e2m1"),
    MX4,
    MX4.replace("mxf4", "mxf4nvf4"),
    NV4.replace("ue4m3", "ue8m0"),
    NV4,
    SPARSE_MX8,
    SPARSE_MX4,
    SPARSE_NV4,
]
SEED = 20_005


def instruction(mnemonic: str) -> ScaledMatrixMultiply:
    """An instruction of these families, on sm_120."""
    found = tcsim.instruction(mnemonic, arch="sm_120")
    assert isinstance(found, ScaledMatrixMultiply)
    return found


def dot(mnemonic: str, a: Any, b: Any, c: float = 0.0, scale_a: Any = 1.0, scale_b: Any = 1.0) -> str:
    """Row 0 of A times column 0 of B in values, scales as values or codes; the rest is zero."""
    mma = instruction(mnemonic)
    full: dict[str, Any] = {name: np.zeros(mma.operands[name].shape, np.float64) for name in "abc"}
    full["a"][0, : len(a)], full["b"][: len(b), 0], full["c"][0, 0] = a, b, c
    codes = {name: tcsim.encode(values, mma.operands[name].format) for name, values in full.items()}
    for name, given_scales in (("scale_a", scale_a), ("scale_b", scale_b)):
        operand = mma.scales[name]
        one = np.asarray(given_scales)
        one = one if one.dtype == np.uint8 else tcsim.encode(one, operand.format)
        codes[name] = np.broadcast_to(one if name == "scale_a" else one.reshape(-1, 1), operand.shape)
    return hex(mma.matmul(**codes)[0, 0])


# ---- by hand


@pytest.mark.parametrize(
    ("mnemonic", "operands", "result"),
    [
        (MIXED, {"a": [1.5], "b": [2.0], "scale_a": 4.0, "scale_b": 0.5}, 0x40C00000),  # 6
        (MIXED, {"a": [1], "b": [1], "scale_a": np.uint8(0), "scale_b": 1.0}, 0x00400000),  # 0x00 is 2**-127, no zero
        (MIXED, {"a": [0], "b": [0], "scale_a": np.uint8(0xFF)}, 0x7FFFFFFF),  # a NaN scale, though all it scales is zero
        (MIXED, {"a": [1], "b": [1], "c": np.inf, "scale_b": np.uint8(0xFF)}, 0x7FFFFFFF),
        (MIXED, {"a": [1, -1], "b": [1, 1], "c": 2.0**-26}, 0),  # products that cancel keep their exponents: F = 25
        (MIXED, {"a": [1, -1], "b": [1, 1], "c": 2.0**-25}, 0x33000000),
        (MIXED, {"a": [1, -1], "b": [1, 1], "c": 2.0**-25, "scale_a": 2.0}, 0),  # the scales' exponents count too
        (MIXED, {"a": [2], "b": [1], "scale_a": 2.0**127}, 0x7F800000),  # overflow is infinity
        (MIXED, {"a": [-1], "b": [1], "scale_a": 2.0**-127, "scale_b": 2.0**-127}, 0),  # a zero is +0
        (MX4, {"a": [6], "b": [6], "scale_a": [2.0, 1.0]}, 0x42900000),  # 72
        (MX4, {"a": [0] * 32 + [6], "b": [0] * 32 + [6], "scale_a": [2.0, 1.0]}, 0x42100000),  # 36: the second block
        (MX4, {"a": [1, -1], "b": [1, 1], "c": 2.0**-35}, 0x2E000000),  # F = 35
        (MX4, {"a": [1, -1], "b": [1, 1], "c": 2.0**-36}, 0),  # a group that cancels keeps its exponent ...
        (MX4, {"a": [0, -1], "b": [1, 0], "c": 2.0**-36}, 0x2D800000),  # ... and one of zeros has none
        (MX4, {"a": [6] * 16, "b": [6] * 16, "c": 2.0**-35}, 0x44100000),  # 576: no exponent but that of the scales
        (NV4, {"a": [1], "b": [1], "scale_a": np.uint8(0x81)}, 0x3B000000),  # 2**-9: the sign of a scale is ignored
        (NV4, {"a": [1], "b": [1], "scale_a": np.uint8(0xFF)}, 0x7FFFFFFF),
        (NV4, {"a": [1], "b": [1], "scale_a": np.uint8(0x7F)}, 0x7FFFFFFF),
        (NV4, {"a": [1], "b": [1], "scale_a": [1.75, 1, 1, 1], "scale_b": [1.875, 1, 1, 1]}, 0x40520000),  # 3.28125
        (NV4, {"a": [1, -1], "b": [1, 1], "scale_a": 0.0, "c": 2.0**-40}, 0x2B800000),  # a zero scale: no exponent
        (NV4, {"a": [1, -1], "b": [1, 1], "scale_a": 2.0**-9, "c": 2.0**-41}, 0x2B000000),  # a subnormal one: 2**-6
        (NV4, {"a": [1, -1], "b": [1, 1], "scale_a": 2.0**-9, "c": 2.0**-42}, 0),
    ],
)  # fmt: skip
def test_single_results(mnemonic: str, operands: dict[str, Any], result: int) -> None:
    """Each rule by one result that a reader can compute."""
    assert dot(mnemonic, **operands) == hex(result)


def test_any_leading_axes_broadcast() -> None:
    """Scales of one matrix serve a batch; a batch of scales serves one matrix."""
    mma, generator = instruction(NV4), np.random.default_rng(3)
    a = generator.integers(0, 16, (3, 1, 16, 64)).astype(np.uint8)
    b, c = generator.integers(0, 16, (64, 8)).astype(np.uint8), np.zeros((16, 8), np.float32)
    scale_a = generator.integers(0, 126, (2, 16, 4)).astype(np.uint8)
    scale_b = generator.integers(0, 126, (4, 8)).astype(np.uint8)
    d = mma.matmul(a, b, c, scale_a=scale_a, scale_b=scale_b)
    assert d.shape == (3, 2, 16, 8)
    for i in range(3):
        for j in range(2):
            assert (mma.matmul(a[i, 0], b, c, scale_a=scale_a[j], scale_b=scale_b) == d[i, j]).all()
    assert mma.matmul(a[:0], b, c, scale_a=scale_a[:1], scale_b=scale_b).shape == (0, 1, 16, 8)


def test_float_dtypes_are_codes() -> None:
    """ml_dtypes arrays, float8_e4m3fn among them for ue4m3."""
    import ml_dtypes

    mma = instruction(NV4)
    one = np.ones((16, 64), ml_dtypes.float4_e2m1fn)
    d = mma.matmul(
        one, one[:8].T, np.zeros((16, 8), np.float32),
        scale_a=np.full((16, 4), 0.5, ml_dtypes.float8_e4m3fn), scale_b=np.full((4, 8), -2, ml_dtypes.float8_e4m3fn),
    )  # fmt: skip
    assert (tcsim.decode(d, "f32") == 64).all()


def test_the_step_refuses_what_it_cannot_do_exactly() -> None:
    unit, f32 = Datapath(35, -139, "f32", "rz"), FORMATS["f32"]
    zeros = np.zeros((1, 1, 64), np.uint8)
    c, scale = np.zeros((1, 1, 1), np.uint32), np.zeros((1, 1, 4), np.uint8)
    e2m1, e4m3, ue8m0 = FORMATS["e2m1"], FORMATS["e4m3"], FORMATS["ue8m0"]
    args = (zeros, zeros.reshape(1, 64, 1), c, scale, scale.reshape(1, 4, 1))
    assert scaled_dot_add(*args, (e2m1, e2m1, f32, ue8m0), unit, 16).shape == (1, 1, 1)
    with pytest.raises(
        FormatError, match=r"scaling by groups of 16 is for small formats without NaN.*not e4m3 and e2m1"
    ):
        scaled_dot_add(*args, (e4m3, e2m1, f32, ue8m0), unit, 16)
    long = (
        np.zeros((1, 1, 65), np.uint8),
        np.zeros((1, 65, 1), np.uint8),
        c,
        scale[:, :, :1],
        scale.reshape(1, 4, 1)[:, :1],
    )
    with pytest.raises(FormatError, match="scaling by groups of 65 is for small formats"):
        scaled_dot_add(*long, (e2m1, e2m1, f32, ue8m0), unit, 65)
    with pytest.raises(OperandError, match="K = 64 with 4 scales a row: not a whole number of blocks and groups of 32"):
        scaled_dot_add(*args, (e2m1, e2m1, f32, ue8m0), unit, 32)


def test_scaling_by_product_takes_runs_of_k() -> None:
    """With several scales a row, and no groups, each covers a run of k: not every second or fourth product."""
    unit = Datapath(25, -133, "f32", "rz")
    formats = tuple(FORMATS[name] for name in ("e4m3", "e4m3", "f32", "ue8m0"))
    a = tcsim.encode(np.repeat([1.0, 2.0, 4.0, 8.0], 16).reshape(1, 1, 64), "e4m3")
    b = tcsim.encode(np.repeat([1.0, 3.0], 32).reshape(1, 64, 1), "e4m3")
    c = np.zeros((1, 1, 1), np.uint32)
    counted = 0
    for scales_a, scales_b in (
        ([1, 4], [1, 1]),
        ([1, 1], [0.5, 8]),
        ([2, 16], [0.25, 2]),
        ([1, 2, 4, 8], [8, 1, 2, 0.5]),
    ):
        blocks = len(scales_a)
        given = [tcsim.encode(scales, "ue8m0") for scales in (scales_a, scales_b)]
        d = scaled_dot_add(a, b, c, given[0].reshape(1, 1, blocks), given[1].reshape(1, blocks, 1), formats, unit)
        expected = 0.0
        for k in range(64):
            block = k * blocks // 64
            expected += (1, 2, 4, 8)[k // 16] * scales_a[block] * (1, 3)[k // 32] * scales_b[block]
        assert float(tcsim.decode(d, "f32")[0, 0, 0]) == expected
        counted += 1
    assert counted == 4


# ---- against the slow model


def words_of(inputs: dict[str, npt.NDArray[Any]], warp: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """What the slow model takes of one warp: registers, words, selectors."""
    registers = {name: inputs[name][warp].tolist() for name in "abc"}
    words = {name: inputs[name][warp].tolist() for name in ("scale_a", "scale_b", "metadata") if name in inputs}
    selectors = {name: int(inputs[name][warp]) for name in ("byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b")}
    return registers, words, selectors


@pytest.mark.parametrize("half", [0, 1])
def test_the_models_agree(half: int) -> None:
    """Every row with every class of inputs, from registers and selectors on: one element of two warps each."""
    compared, classes = 0, set()
    rows = list(ROWS.values())[half::2]
    for row in rows:
        mma = instruction(row.mnemonic)
        testbench = testbench_of(row.family)
        stream = random.Random(row.mnemonic)
        for name in testbench.classes(mma):
            inputs = testbench.inputs(mma, name, SEED, 2)
            fast = mma.matrix("d", testbench.model(mma, inputs))
            for warp in range(2):
                place = stream.randrange(16), stream.randrange(8)
                (slow,) = exact.execute(row.mnemonic, *words_of(inputs, warp), [place])
                assert int(fast[warp][place]) == slow, (row.mnemonic, name, warp, place)
                compared += 1
            classes.add(name)
    assert classes >= {"uniform", "scales", "cancelled", "tiny", "onehot"}
    assert len(rows) == 55
    assert compared == 2 * sum(len(testbench_of(row.family).classes(instruction(row.mnemonic))) for row in rows)


@pytest.mark.parametrize("mnemonic", EACH)
@examples(12)
@given(data=st.data())
def test_any_register_bits(mnemonic: str, data: st.DataObject) -> None:
    """Registers of any bits, those of eight lanes drawn and repeated; any selectors; scales of any or of near exponents."""
    mma = instruction(mnemonic)
    registers = {}
    for name in "abc":
        size = 4 * mma.operands[name].registers * 8
        drawn = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size), label=name), np.uint32)
        registers[name] = np.resize(drawn.reshape(8, -1), (32, mma.operands[name].registers))
    words, selectors = {}, {}
    near = data.draw(st.booleans(), label="near")
    for side in ("a", "b"):
        operand = mma.scales[f"scale_{side}"]
        drawn = np.frombuffer(data.draw(st.binary(min_size=128, max_size=128), label=f"scale_{side}"), np.uint8)
        one = operand.format.bias << operand.format.fraction_bits
        octets = (drawn % 17 + (one - 8)).astype(np.uint8) if near else drawn
        words[f"scale_{side}"] = octets.view(np.uint32)
        selectors[f"byte_id_{side}"] = data.draw(st.sampled_from(operand.layout.byte_ids))
        selectors[f"thread_id_{side}"] = data.draw(st.sampled_from(operand.layout.thread_ids))
    if exact.parse(mnemonic).sparse:
        valid = st.sampled_from((0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110))
        nibbles = np.array(data.draw(st.lists(valid, min_size=64, max_size=64), label="metadata"), np.uint64)
        groups = np.resize(nibbles, (32, 8)) << (4 * np.arange(8, dtype=np.uint64))
        words["metadata"] = groups.sum(-1).astype(np.uint32)
    fast = mma.matrix("d", mma.execute(**registers, **words, **selectors))
    places = [(0, 0), (1, 7), (15, 3), (8, 5)]
    lists = {name: array.tolist() for name, array in registers.items()}
    slow = exact.execute(mnemonic, lists, {name: array.tolist() for name, array in words.items()}, selectors, places)
    assert [int(fast[place]) for place in places] == slow


# ---- registers against matrices


@pytest.mark.parametrize("mnemonic", EACH)
def test_execute_is_matmul(mnemonic: str) -> None:
    """For all classes and random selectors; the testbench fills the bytes that are not named with random ones."""
    mma = instruction(mnemonic)
    testbench, compared = testbench_of(mma.row.family), 0
    seen: set[tuple[int, ...]] = set()
    for name in testbench.classes(mma):
        inputs = testbench.inputs(mma, name, SEED, 6)
        codes = matrices_of(mma, inputs)
        assert (mma.matrix("d", testbench.model(mma, inputs)) == mma.matmul(**codes)).all(), name
        seen |= {tuple(int(inputs[key][i]) for key in sorted(inputs) if "_id_" in key) for i in range(6)}
        compared += 6 * 128
    assert compared == 6 * 128 * len(testbench.classes(mma))
    assert len(seen) >= 6  # of the 8 that 4X has


def test_sparse_is_the_dense_product_of_the_expanded_matrix() -> None:
    """A sparse product is the dense one of its kept elements: every group keeps half, so blocks of scales stay blocks."""
    generator, compared = np.random.default_rng(11), 0
    dense, sparse = instruction(MX4), tcsim.instruction(SPARSE_MX4, arch="sm_120")
    groups = generator.choice(np.array(sparse.sparsity.valid, np.uint8), (16, 16))
    groups[:] = groups[0]  # all rows keep the same columns: one dense product
    positions = sparse.sparsity.positions_of(groups)
    columns = sparse.sparsity.columns(positions)[0]
    a, b = (generator.integers(0, 16, shape).astype(np.uint8) for shape in ((5, 16, 64), (5, 128, 8)))
    c = generator.standard_normal((5, 16, 8)).astype(np.float32)
    scale_a = generator.integers(120, 135, (5, 16, 2)).astype(np.uint8)
    scale_b = generator.integers(120, 135, (5, 2, 8)).astype(np.uint8)
    got = sparse.matmul(a, b, c, scale_a=scale_a, scale_b=scale_b, metadata=positions)
    want = dense.matmul(a, b[:, columns], c, scale_a=scale_a, scale_b=scale_b)
    assert (got == want).all()
    expanded = np.zeros((16, 128), np.uint8)
    expanded[:, columns] = a[0]
    kept, back = sparse.compress(expanded)
    again = sparse.matmul(kept, b[0], c[0], scale_a=scale_a[0], scale_b=scale_b[0], metadata=back)
    assert (again == got[0]).all()
    compared += got.size + again.size
    assert compared == 6 * 128


# ---- the testbench, without hardware


@pytest.mark.parametrize("mnemonic", EACH)
def test_every_mutant_is_contradicted(mnemonic: str) -> None:
    """The classes of inputs tell the model from every named wrong one that applies, with the samples a case has."""
    mma = instruction(mnemonic)
    testbench = testbench_of(mma.row.family)
    alive = {mutant.name: mutant for mutant in testbench.mutants if mutant.applies(mma)}
    assert {"F-1", "F+1", "scales of A ignored", "thread id of B ignored", "NaN scale is a number"} <= set(alive)
    assert len(alive) >= 26
    for name in testbench.classes(mma):
        inputs = testbench.inputs(mma, name, 0, testbench.samples(mma, name))
        right = testbench.model(mma, inputs)
        for mutant in list(alive.values()):
            if not np.array_equal(mutant.run(mma, inputs), right):
                del alive[mutant.name]
    assert sorted(alive) == []


def test_a_mismatch_says_everything() -> None:
    """One line with the scales of its row and column, and a trace that ends in the model's bits."""
    for mnemonic in (NV4, SPARSE_MX8):
        mma = instruction(mnemonic)
        testbench = testbench_of(mma.row.family)
        inputs = testbench.inputs(mma, "normal", 0, 2)
        right = testbench.model(mma, inputs)
        wrong = right.copy()
        wrong[1, 9, 2] ^= np.uint32(1)
        found = testbench.compare(mma, inputs, wrong, right)
        assert (found.outputs, found.mismatches) == (256, 1)
        (first,) = found.first
        line = first.line()
        assert line.startswith("MISMATCH warp 1 lane 9 register 2 (row 10, column 2): a=[0x")
        codes = matrices_of(mma, inputs)
        shown = " ".join(f"{code:#04x}" for code in codes["scale_a"][1, 10])
        assert f" scale_a=[{shown}] scale_b=[0x" in line
        assert line.endswith(f"hardware {wrong[1, 9, 2]:#010x} model {right[1, 9, 2]:#010x}")
        text = first.trace()
        assert f"d = {right[1, 9, 2]:#010x}" in text[-1]
        assert sum("scale_a=" in part for part in text) == mma.blocks


def test_a_trace_needs_the_scales() -> None:
    mma = instruction(NV4)
    row = np.zeros(64, np.uint8)
    with pytest.raises(FormatError, match="trace: scale_a"):
        trace(mma, row, row, np.zeros(1, np.uint32))
    with pytest.raises(OperandError, match="scale_a has 2 codes; valid: 4"):
        trace(mma, row, row, np.zeros(1, np.uint32), scale_a=row[:2], scale_b=row[:4])
    lines = trace(mma, row, row, np.zeros(1, np.uint32), scale_a=row[:4], scale_b=row[:4])
    assert "k=0-63 zero products" in lines[-4]
