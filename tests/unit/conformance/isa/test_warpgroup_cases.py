"""The cases of dense wgmma: what the recordings cover, which mutants die, and which errors wrong use raises."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from conformance.isa.wgmma.dense import WARPGROUP
from conformance.isa.wgmma.images import MODES
from conformance.isa.wgmma.mutants import WARPGROUP_MUTANTS
from conformance.isa.wgmma.tiles import described
from conformance.stimuli.classes import LEVEL_2
from conformance.suite import recordings
from conformance.suite.cases import Case, Settings, Suite
from conformance.suite.hardware import Hardware, Workshop
from conformance.suite.recordings import result_digest
from hwkernels.device.toolchain import AssembleError, assemble
from hwkernels.probes import probe
from hwkernels.probes import wgmma as warpgroup
from hwkernels.probes.probe import Probe, kernel_name
from tcsim import InstructionError, MatrixDescriptor, OperandError, catalog
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.layouts.swizzle import SWIZZLES
from tests.support.suite_runs import GPU

PREFIX = "wgmma.mma_async.sync.aligned."
F16, TF32 = PREFIX + "m64n64k16.f32.f16.f16", PREFIX + "m64n64k8.f32.tf32.tf32"
FP8, INT8 = PREFIX + "m64n64k32.f32.e4m3.e5m2", PREFIX + "m64n64k32.s32.s8.u8"
FULL = [name for name, row in catalog.rows().items() if row.family == "wgmma" and row.shape[1] == 64]


def wgmma(mnemonic: str) -> WarpgroupMultiply:
    """A dense instruction."""
    found = tcsim.instruction(mnemonic, arch="sm_90a")
    assert isinstance(found, WarpgroupMultiply)
    return found


def field(value: npt.NDArray[np.uint64], low: int, bits: int) -> npt.NDArray[np.int64]:
    """Some bits of descriptors."""
    return (value >> np.uint64(low) & np.uint64((1 << bits) - 1)).astype(np.int64)


# ---- what was measured


def test_the_recorded_descriptors_answer_two_questions() -> None:
    """Under each swizzle: start addresses off its phase, and K-major with every kind of LBO. base_offset was always 0."""
    off_phase: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for mnemonic in FULL:
        ins, recording = wgmma(mnemonic), recordings.read(mnemonic, "sm_90")
        assert recording is not None
        for (name, seed), case in recording.cases.items():
            if seed or not name.startswith("descriptors"):
                continue
            inputs = WARPGROUP.inputs(ins, name, seed, case.samples)
            mode, majors = described(name)
            total[name, ins.row.arithmetic] += case.samples
            for operand, major in zip("ab", majors, strict=True):
                value = inputs[operand]
                assert not field(value, 49, 3).any()
                off_phase[mode] += int((field(value, 0, 14) * 16 % SWIZZLES[MODES[mode]].period != 0).sum())
                unread[mode] += int((field(value, 16, 14) > 127).sum()) if major == 0 else 0
    assert min(count for (_, kind), count in total.items() if kind == "half") == 216
    assert min(total.values()) == 72
    for mode in ("small", "medium", "large"):
        assert off_phase[mode] > 3_000
        assert unread[mode] > 3_000
    assert off_phase["none"] == unread["none"] == 0


ISSUE = {  # mutants and to how many of the instructions with N = 64 each applies
    "LBO and SBO swapped": 21, "swizzle ignored": 21, "next swizzle": 21, "previous swizzle": 21, "32B swizzle assumed": 21,
    "64B swizzle assumed": 21, "128B swizzle assumed": 21, "swizzle before start": 21, "core rows of 32 bytes": 21,
    "K in elements": 5, "transposes ignored": 3,
}  # fmt: skip


def test_descriptor_mistakes_are_contradicted_by_what_the_gpu_said() -> None:
    """Each mutant, on one instruction of each kind of elements that it applies to: some recorded case differs from it.

    All instructions: conformance/test_mutants.py.
    """
    mutants = {mutant.name: mutant for mutant in WARPGROUP_MUTANTS}
    assert {name: sum(mutants[name].applies(wgmma(row)) for row in FULL) for name in ISSUE} == ISSUE
    dead: Counter[str] = Counter()
    for mnemonic in (F16, TF32, FP8):
        ins, recording = wgmma(mnemonic), recordings.read(mnemonic, "sm_90")
        assert recording is not None
        for name in ISSUE:
            if not mutants[name].applies(ins):
                continue
            for (case, seed), recorded in recording.cases.items():
                if case.startswith("descriptors"):
                    inputs = WARPGROUP.inputs(ins, case, seed, recorded.samples)
                    if result_digest(mutants[name].run(ins, inputs)) != recorded.result_sha256:
                        dead[name] += 1
                        break
    assert dead == {name: 1 if name == "transposes ignored" else 2 if name == "K in elements" else 3 for name in ISSUE}


# ---- what waits for a GPU


class Obedient(Hardware):
    """A GPU that answers as the model does."""

    def __init__(self) -> None:
        super().__init__(GPU)

    def run(self, made: Probe, inputs: dict[str, npt.NDArray[Any]], repeat: int = 1) -> list[npt.NDArray[np.uint32]]:
        """The model's answer."""
        return [WARPGROUP.model(made.instruction, inputs) for _ in range(repeat)]  # type: ignore[arg-type]


def more(ins: Any) -> list[str]:
    """Classes of many descriptors and of base_offset."""
    return [name for name in WARPGROUP.classes(ins) if name.startswith(("many", "baseoffset"))]


def test_many_descriptors_and_base_offsets_run_live_and_in_replay() -> None:
    """All of them are enumerated in both modes; PASS on a GPU that agrees, and as recorded."""
    live, replay = Suite(Settings("sm_90", "live"), Obedient()), Suite(Settings("sm_90", "replay"))
    live.__dict__["workshop"] = Workshop([wgmma(TF32)])
    waiting = {Case(name, new, 0) for name in FULL for new in more(wgmma(name))}
    assert len(waiting) == 3 * 3 * 2 + 18 * (4 + 3)
    for suite in (live, replay):
        assert waiting <= {case for case in suite.cases() if case.mnemonic in FULL}
    outputs = 0
    for case in sorted(waiting, key=lambda case: case.id):
        if case.mnemonic == TF32:
            outcome = live.run(case)
            assert outcome.verdict == "PASS", outcome.text
            again = replay.run(case)
            assert (again.verdict, again.outputs) == ("REPLAYED", outcome.outputs), again.text
            outputs += outcome.outputs
    assert outputs == (4 * 208 + 3 * 72) * 64 * 64


def test_every_class_is_recorded() -> None:
    """The recordings in the tree hold exactly `classes`; none waits."""
    for mnemonic in FULL:
        ins, recording = wgmma(mnemonic), recordings.read(mnemonic, "sm_90")
        assert recording is not None
        names = {name for name, _ in recording.cases} - set(LEVEL_2)
        assert names == set(WARPGROUP.classes(ins))
        assert set(WARPGROUP.every_class(ins)) == names > set(more(ins))


@pytest.mark.parametrize("mnemonic", [F16, TF32, FP8, INT8])
def test_what_descriptors_and_base_offsets_ask(mnemonic: str) -> None:
    """208 different pairs; every base_offset but 0, at starts on and off the phase, and nothing outside the image."""
    ins, pairs, bases = wgmma(mnemonic), 0, Counter[tuple[bool, int]]()
    for name in more(ins):
        inputs = WARPGROUP.inputs(ins, name, 0, WARPGROUP.samples(ins, name))
        mode, majors = described(name)
        assert (int(inputs["trans_a"][0]), int(inputs["trans_b"][0])) == majors
        for operand in "ab":
            base, start = field(inputs[operand], 49, 3), field(inputs[operand], 0, 14) * 16
            if name.startswith("baseoffset"):
                bases.update(zip((start % SWIZZLES[MODES[mode]].period == 0).tolist(), base.tolist(), strict=True))
            else:
                assert not base.any()
        if name.startswith("many"):
            pairs += len(set(zip(inputs["a"].tolist(), inputs["b"].tolist(), strict=True)))
        assert WARPGROUP.model(ins, {key: array[:8] for key, array in inputs.items()}).shape[0] == 8
    assert pairs == (0 if mnemonic == F16 else 4 * 208)
    assert {base for _, base in bases} == set(range(1, 8))
    assert min(sum(n for (on, _), n in bases.items() if on == phase) for phase in (True, False)) > 100


# ---- wrong use


@pytest.mark.parametrize(
    ("mnemonic", "shapes"),
    [
        (PREFIX + "m64n12k16.f32.f16.f16", "M 64, N 8 to 256 in steps of 8, K 16"),
        (PREFIX + "m64n264k16.f32.f16.f16", "M 64, N 8 to 256 in steps of 8, K 16"),
        (PREFIX + "m128n64k8.f32.tf32.tf32", "M 64, N 8 to 256 in steps of 8, K 8"),
        (PREFIX + "m64n40k32.s32.s8.s8", "M 64, N 8, 16, 24, 32, 48, 64, 80, 96, .*, 240, 256, K 32"),
        ("wgmma.mma_async.sp.sync.aligned.m64n12k32.f32.f16.f16", "M 64, N 8 to 256 in steps of 8, K 32"),
        ("mma.sync.aligned.m16n8k64.row.col.f32.bf16.bf16.f32", "m8n8k4, m16n8k8, m16n8k16|m16n8k8, m16n8k16"),
    ],
)
def test_a_wrong_shape_is_told_the_right_ones(mnemonic: str, shapes: str) -> None:
    """N = 12 and others: the call, spellings that exist, and the shapes of this one."""
    with pytest.raises(
        InstructionError, match=f"no such instruction; nearest: .*; the same spelling exists for ({shapes})$"
    ):
        tcsim.instruction(mnemonic, arch="sm_90a")


def test_a_wrong_word_is_not_told_shapes() -> None:
    """Where another word is wrong too, no shape is right."""
    with pytest.raises(InstructionError) as caught:
        tcsim.instruction(PREFIX + "m64n12k16.f32.f16.f33", arch="sm_90a")
    assert "same spelling" not in str(caught.value)


def test_wrong_descriptors_and_transposes_are_named() -> None:
    """Unaligned start, SBO and LBO that are no multiples of 16, bits of no field, transposes of types without them."""
    good = MatrixDescriptor(0, 128, 256).encode()
    memory, c = np.zeros(1 << 14, np.uint8), np.zeros((128, 32), np.uint32)
    tries: list[tuple[Any, str]] = [
        (
            lambda: MatrixDescriptor(start_address=1000).encode(),
            "start_address=1000: valid are multiples of 16 from 0 to",
        ),
        (
            lambda: MatrixDescriptor(stride_byte_offset=100).encode(),
            "stride_byte_offset=100: valid are multiples of 16",
        ),
        (lambda: MatrixDescriptor(leading_byte_offset=8).encode(), "leading_byte_offset=8: valid are multiples of 16"),
        (lambda: MatrixDescriptor(base_offset=8).encode(), r"base_offset=8: valid are from 0 to 7 \(bits 51:49\)"),
        (lambda: MatrixDescriptor.for_tile(64, 16, "f16", start_address=512), "valid: multiples of 1024 bytes"),
        (lambda: MatrixDescriptor.for_tile(64, 8, "tf32", major="MN"), "only 16-bit elements can be MN-major"),
        (
            lambda: wgmma(F16).execute(memory, good | 3 << 14, good, c),
            "a: descriptor .*: bits 0xc000 belong to no field",
        ),
        (lambda: wgmma(F16).execute(memory, good, good | 1 << 48, c), "b: descriptor .*: bits 0x1000000000000 belong"),
    ]
    for mnemonic, types in ((TF32, "tf32"), (FP8, "e4m3 and e5m2"), (INT8, "s8 and u8")):
        for name in ("trans_a", "trans_b"):
            text = rf"{name}=1; valid: 0 \({types} must be K-major: only 16-bit elements can be MN-major\)"
            tries.append((lambda m=mnemonic, n=name: wgmma(m).execute(memory, good, good, c, **{n: 1}), text))
    tries.append(
        (lambda: wgmma(INT8).execute(memory, good, good, c, scale_a=-1), r"valid: 1 \(s8 and u8 have no imm-scale\)")
    )
    for call, text in tries:
        with pytest.raises(OperandError, match=text):
            call()
    assert wgmma(F16).execute(memory, good, good, c, trans_a=1, trans_b=1).shape == (128, 32)


@pytest.mark.parametrize(("mnemonic", "own"), [(F16, (1, 1, 0, 0)), (TF32, (1, 1)), (FP8, (1, 1)), (INT8, ())])
def test_the_assembler_takes_transposes_of_16_bit_types_only(mnemonic: str, own: tuple[int, ...]) -> None:
    """With its own immediates the probe assembles; with transposes that are not its own it does not: tf32 is never MN-major."""
    row = catalog.rows()[mnemonic]
    name = kernel_name(row, "tried")
    head = f".version {probe.ptx_version([row], 'sm_90a')}\n.target sm_90a\n.address_size 64\n"
    text = warpgroup.BODY.kernel(row, name, "_".join(["ss", *map(str, own)]))
    assert assemble(head + text, "sm_90a").cubin
    (line,) = (line for line in text.splitlines() if mnemonic in line)
    with pytest.raises(AssembleError, match="Arguments mismatch"):
        assemble(head + text.replace(line, line.replace(";", ", 1, 1;")), "sm_90a")


@pytest.mark.parametrize(("swizzle", "rows"), [("128B", 8), ("64B", 4), ("32B", 2)])
def test_a_base_offset_puts_the_pattern_where_the_tile_starts(swizzle: str, rows: int) -> None:
    """With the row of the pattern as base_offset, a tile reads as at a multiple of the period, further on."""
    k = SWIZZLES[swizzle].span // 2
    plain = MatrixDescriptor(1024, 0, 8 * SWIZZLES[swizzle].span, swizzle=swizzle)
    for row in range(1, rows):
        shifted = replace(plain, start_address=1024 + 128 * row, base_offset=row)
        assert not shifted.check(64, k, "f16").messages
        np.testing.assert_array_equal(plain.addresses(64, k, "f16") + 128 * row, shifted.addresses(64, k, "f16"))
        (message,) = replace(shifted, base_offset=0).check(64, k, "f16").messages
        assert f"the start address is {128 * row} bytes past a multiple of {128 * rows}" in message
