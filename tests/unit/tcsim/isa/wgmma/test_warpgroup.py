"""wgmma: its rows against the assembler, its descriptors and sums against slow models written independently."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from conformance.isa import testbench_of
from hwkernels.probes import probe
from tcsim import catalog
from tcsim.core.errors import InstructionError, OperandError, TargetError
from tcsim.descriptors.matrix import FORMS, MatrixDescriptor, element_addresses
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.layouts.swizzle import SWIZZLES, Swizzle, swizzle
from tcsim.numbers.formats import FORMATS
from tests.exact.descriptors import element_address
from tests.exact.steps import bit_dot, dot_add, integer_dot
from tests.support.tables import TABLES

INVENTORY = TABLES / "wgmma_inventory.csv"
ROWS = {name: row for name, row in catalog.rows().items() if row.family == "wgmma"}
F16 = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"


def wgmma(mnemonic: str) -> WarpgroupMultiply:
    """An instruction of this family."""
    found = tcsim.instruction(mnemonic, arch="sm_90a")
    assert isinstance(found, WarpgroupMultiply)
    return found


def test_the_registry_is_the_inventory() -> None:
    lines = [line for line in INVENTORY.read_text().splitlines() if not line.startswith("#")]
    inventory = {line["mnemonic"]: line for line in csv.DictReader(lines)}
    assert set(ROWS) == set(inventory)
    assert len(inventory) == 546
    for mnemonic, line in inventory.items():
        row = ROWS[mnemonic]
        assert (row.targets, row.ptx_version, row.documented) == (
            tuple(line["targets"].split()),
            line["min_ptx_isa"],
            line["documented"] == "1",
        )


def test_other_targets_are_refused() -> None:
    for target in ("sm_90", "sm_100a", "sm_80"):
        if target == "sm_90":  # the arch runs sm_90a code
            assert tcsim.instruction(F16, arch=target).targets == ("sm_90a",)
            continue
        with pytest.raises(InstructionError, match="sm_90a"):
            tcsim.instruction(F16, arch=target)


def test_fragments_are_those_of_four_warps_of_mma() -> None:
    mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    big = wgmma(F16)
    compared = 0
    for lane in range(128):
        for register in range(big.operands["d"].registers):
            row, column = mma.operands["d"].layout(lane % 32, register % 4, 0)
            assert big.operands["d"].layout(lane, register, 0) == (row + lane // 32 * 16, column + register // 4 * 8)
            compared += 1
        for register in range(4):
            for slot in range(2):
                row, k = mma.operands["a"].layout(lane % 32, register, slot)
                assert big.operands["a"].layout(lane, register, slot) == (row + lane // 32 * 16, k)
                compared += 1
    assert compared == 128 * (32 + 8)


descriptors = st.builds(
    lambda start, leading, stride, mode: start | leading << 16 | stride << 32 | mode << 62,
    st.integers(0, 2**14 - 1),
    st.integers(0, 2**14 - 1),
    st.integers(0, 2**14 - 1),
    st.integers(0, 3),
)


@given(descriptors, st.sampled_from([(16, "f16"), (8, "tf32"), (32, "e4m3"), (32, "s8"), (256, "b1")]), st.booleans())
def test_addresses_are_those_of_the_slow_model(descriptor: int, shape: tuple[int, str], mn_major: bool) -> None:
    k, name = shape
    format = FORMATS[name]
    mn_major = mn_major and name == "f16"
    bits = 1 if name == "b1" else format.container_bits
    fast = element_addresses(np.array(descriptor, np.uint64), 64, k, format, "MN" if mn_major else "K")
    slow = [[element_address(descriptor, row, column, bits, mn_major) for column in range(k)] for row in range(64)]
    np.testing.assert_array_equal(fast, slow)


@given(descriptors)
def test_descriptors_decode_and_encode(value: int) -> None:
    descriptor = MatrixDescriptor.decode(value, arch="sm_90a")
    assert descriptor.encode() == value
    assert descriptor.start_address == (value & 0x3FFF) * 16
    assert len(descriptor.describe()) == len(FORMS["sm_90"].fields)


def test_blackwell_descriptors_have_their_own_form() -> None:
    descriptor = MatrixDescriptor(start_address=256, stride_byte_offset=1024, swizzle="128B", arch="sm_100")
    value = descriptor.encode()
    assert value >> 46 & 7 == 1
    assert value >> 61 == 2
    assert MatrixDescriptor.decode(value, arch="sm_100a") == descriptor


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: MatrixDescriptor(start_address=8).encode(), "multiples of 16"),
        (lambda: MatrixDescriptor(start_address=1 << 18).encode(), r"multiples of 16 from 0 to 262128 \(bits 13:0\)"),
        (lambda: MatrixDescriptor(swizzle="256B").encode(), "valid: NONE"),
        (lambda: MatrixDescriptor(leading_mode=1).encode(), "no field leading_mode"),
        (lambda: MatrixDescriptor.decode(1 << 14), "belong to no field"),
        (lambda: MatrixDescriptor.decode(0, arch="sm_100"), "must be set"),
        (lambda: MatrixDescriptor().addresses(8, 16, "e4m3", "MN"), "only 16-bit"),
        (lambda: swizzle("129B"), "nearest: 128B"),
        (lambda: Swizzle(4, 4, 3), "shift must be at least bits"),
    ],
)
def test_wrong_descriptors(call: Any, text: str) -> None:
    with pytest.raises(OperandError, match=text):
        call()


def test_an_arch_without_descriptors() -> None:
    with pytest.raises(TargetError, match="sm_80 has no matrix descriptors"):
        MatrixDescriptor.decode(0, arch="sm_80")


@given(st.sampled_from(sorted(SWIZZLES)), st.integers(0, 2**18 - 1))
def test_a_swizzle_is_its_own_inverse_and_stays_in_its_period(name: str, address: int) -> None:
    pattern = SWIZZLES[name]
    assert pattern(pattern(address)) == address
    assert pattern(address) // pattern.period == address // pattern.period
    assert int(pattern(np.array([address]))[0]) == pattern(address)


def exact_element(instruction: WarpgroupMultiply, a: list[int], b: list[int], c: int) -> int:
    """One result of a wgmma by the slow model: docs/numerics.md, sections 1 and 2."""
    names = {name: format.name for name, format in instruction.formats.items()}
    if names["a"] == "b1":
        return bit_dot(a, b, c, operation="and")
    if names["d"] == "s32":
        saturate = "satfinite" in instruction.mnemonic
        return integer_dot(a, b, c, a_format=names["a"], b_format=names["b"], saturate=saturate)
    fp8 = names["a"] in ("e4m3", "e5m2")
    return dot_add(
        a,
        b,
        c,
        a_format=names["a"],
        b_format=names["b"],
        c_format=names["c"],
        fraction_bits=13 if fp8 else 25,
        floor=-21 if names["d"] == "f16" else -133,
        output="f16" if names["d"] == "f16" else "e8m13" if fp8 else "f32",
    )


def test_the_fast_model_is_the_slow_one() -> None:
    """Every type, every class: fetched through descriptors, summed exactly."""
    testbench, compared = testbench_of("wgmma"), 0
    for row in ROWS.values():
        if row.shape[1] not in (24, 64):
            continue
        instruction = wgmma(row.mnemonic)
        generator = np.random.default_rng(len(row.mnemonic))
        for name in testbench.classes(instruction):
            inputs = testbench.inputs(instruction, name, 3, 2)
            d = instruction.matrix("d", testbench.model(instruction, inputs))
            trans = int(inputs["trans_a"][0]), int(inputs["trans_b"][0])
            a, b = instruction.fetch(inputs["image"], inputs["a"], inputs["b"], *trans)
            c = instruction.matrix("c", inputs["c"])
            flip = {key: instruction.formats[key] for key in "ab"}
            for _ in range(12):
                sample, m, n = generator.integers(2), generator.integers(64), generator.integers(row.shape[1])
                codes = {"a": [int(x) for x in a[sample, m]], "b": [int(x) for x in b[sample, :, n]]}
                for key in "ab":
                    if int(inputs[f"scale_{key}"][0]) < 0:
                        sign = 1 << (flip[key].sign_shift + flip[key].ignored_low_bits)
                        codes[key] = [code ^ sign for code in codes[key]]
                addend = int(c[sample, m, n]) if inputs["scale_d"][sample] else 0
                assert exact_element(instruction, codes["a"], codes["b"], addend) == int(d[sample, m, n]), (
                    row.mnemonic,
                    name,
                )
                compared += 1
    assert compared > 5_000


def test_a_tile_of_each_swizzle_gives_the_matrix_product() -> None:
    """The canonical 64 x 16 tile under every swizzle reads what was written where the descriptor says."""
    instruction = wgmma(F16)
    codes = np.arange(64 * 16, dtype=np.uint16).reshape(64, 16)
    for name in SWIZZLES:
        span = {"NONE": 16, "32B": 32, "64B": 64, "128B": 128}[name]
        descriptor = MatrixDescriptor(1024, 128, 256 if name == "NONE" else 8 * span, swizzle=name)
        memory = np.zeros(16384, np.uint8)
        memory.view(np.uint16)[descriptor.addresses(64, 16, "f16") // 2] = codes
        a, _ = instruction.fetch(memory, np.uint64(descriptor.encode()), np.uint64(descriptor.encode()))
        np.testing.assert_array_equal(a, codes)


def test_wrong_use() -> None:
    instruction = wgmma(F16)
    memory = np.zeros(1024, np.uint8)
    c = np.zeros((128, 32), np.uint32)
    tile = MatrixDescriptor(0, 128, 256).encode()
    good = {"smem": memory, "a": tile, "b": tile, "c": c}
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "outside the 1024 bytes of smem"),
        ({"smem": memory.astype(np.int8)}, r"valid: uint8 \(\.\.\., bytes\)"),
        ({"c": c[:32]}, r"valid: uint32 \(\.\.\., 128, 32\)"),
        ({"scale_a": 2}, "valid: 1, -1"),
        ({"trans_b": 2}, "valid: 0, 1"),
        ({"smem": np.zeros(4096, np.uint8), "a": 1.5}, "a 64-bit descriptor"),
        ({"smem": np.zeros(4096, np.uint8), "a": np.zeros((128, 4), np.uint32), "trans_a": 1}, "no trans_a"),
    ]
    for change, text in cases:
        with pytest.raises(OperandError, match=text):
            instruction.execute(**{**good, **change})
    eight = wgmma("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8")
    with pytest.raises(OperandError, match="scale_a=-1; valid: 1"):
        eight.execute(np.zeros(4096, np.uint8), tile, tile, np.zeros((128, 32), np.uint32), scale_a=-1)


def test_probes_assemble_with_the_claimed_instruction() -> None:
    """A few N of every type, every operand form: no C75xx note, one warpgroup instruction."""
    instructions = [wgmma(name) for name, row in ROWS.items() if row.shape[1] in (8, 64)]
    forms = 0
    for start in range(0, len(instructions), 21):
        made = probe.build(instructions[start : start + 21], "sm_90a")
        for name, item in made.items():
            assert not isinstance(item, RuntimeError), f"{name}: {item}"
            assert not item.complaint, f"{name}: {item.complaint}"
            forms += len(probe.body_of(ROWS[name]).variants(ROWS[name]))
    assert len(instructions) == 42
    assert forms == 21 * 2 + 3 * 24 + 9 * 8 + 9 * 2  # N = 8; N = 64 of 16-bit, of tf32 and fp8, of integers and bits
