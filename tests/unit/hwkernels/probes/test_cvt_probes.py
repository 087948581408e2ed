"""Probes and testbenches of cvt: machine code, launches, input classes, mutants, what a mismatch says.

Like the tests of the assemblers these need ptxas 13.5 or later (12.9 for sm_70 and sm_72) and nvdisasm, and fail
without them.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from conformance.isa import testbench_of
from conformance.stimuli import classes as conformance_inputs
from hwkernels.device import sass
from hwkernels.device.toolchain import assemble
from hwkernels.probes import body_of, probe
from hwkernels.probes.probe import Probe
from tcsim import catalog
from tcsim.core.targets import TARGETS
from tcsim.isa.cvt.semantics import Convert

COUNTS = {
    "sm_70": 48, "sm_72": 52, "sm_75": 56, "sm_80": 89, "sm_86": 89, "sm_87": 89, "sm_88": 89, "sm_89": 101, "sm_90": 116,
    "sm_90a": 116, "sm_100": 120, "sm_100f": 197, "sm_100a": 231, "sm_103": 120, "sm_103f": 197, "sm_103a": 231,
    "sm_107": 120, "sm_107f": 482, "sm_107a": 524, "sm_110": 120, "sm_110f": 197, "sm_110a": 213, "sm_120": 120,
    "sm_120f": 197, "sm_120a": 213, "sm_121": 120, "sm_121f": 197, "sm_121a": 213,
}  # fmt: skip
UNREAD = ("sm_70", "sm_72")  # no nvdisasm wheel reads their code; ptxas 12.9 still makes it
CONVERTERS = ("F2", "I2", "HADD2", "FSETP")
TESTBENCH = testbench_of("cvt")
E4M3 = "cvt.rn.satfinite.e4m3x2.f32"


def instructions(name: str) -> list[Convert]:
    """The instructions of an arch or a target."""
    return [tcsim.instruction(row.mnemonic, arch=name) for row in catalog.on_arch(name, "cvt")]


# ---- machine code


@pytest.mark.parametrize("target", COUNTS)
def test_every_probe_converts_as_claimed_and_nothing_else(target: str) -> None:
    """One module assembles without a note; over it all, the machine's converters are exactly the claimed ones."""
    items = [item for item in instructions(target) if target in item.row.targets]
    assert len(items) == COUNTS[target]
    assembly = assemble(probe.emit([item.row for item in items], target), target)
    assert assembly.notes == ()
    if target in UNREAD:
        with pytest.raises(sass.SassError):
            sass.disassemble(assembly.cubin)
        return
    functions = sass.disassemble(assembly.cubin)
    assert [(item.mnemonic, text) for item in items if (text := probe.opcode_complaint(item, functions))] == []
    found = Counter(
        line.opcode for kernel in functions for line in kernel.instructions if line.opcode.startswith(CONVERTERS)
    )
    claimed = Counter[str]()
    for item in items:
        for opcode, times in item.lowering.opcodes:
            claimed[opcode] += times * len(body_of(item.row).variants(item.row))
    assert found == claimed


def test_all_targets_are_covered() -> None:
    """4,657 instructions on 28 targets; three kinds of rows claim no opcode, and say why."""
    assert set(COUNTS) == set(TARGETS)
    assert sum(COUNTS.values()) == 4_657
    silent = {
        item.mnemonic: item for name in ("sm_75", "sm_90") for item in instructions(name) if not item.lowering.opcodes
    }
    assert set(silent) == {f"cvt.{r}.satfinite.f16.f32" for r in ("rn", "rz")} | {"cvt.f32.bf16"}
    assert all(item.lowering.note for item in silent.values())


def test_kernels_have_names_of_their_own() -> None:
    """One entry point for each row, two for the row with two operand forms."""
    rows = [row for row in catalog.rows().values() if row.family == "cvt"]
    names = [probe.kernel_name(row, variant) for row in rows for variant in body_of(row).variants(row)]
    assert len(set(names)) == len(names) == 525


# ---- the text and the launch


def test_a_launch_is_one_thread_per_element() -> None:
    """Inputs in the order of the parameters, and an output that the model's answer fits."""
    for mnemonic, arch in (
        (E4M3, "sm_90"),
        ("cvt.f64.bf16", "sm_90"),
        ("cvt.rs.satfinite.e2m1x4.f32", "sm_100a"),
        ("cvt.rn.scaled::n2::ue8m0.bf16x2.e4m3x2", "sm_100f"),
        ("cvt.pack.sat.s4.s32.b32", "sm_90"),
    ):
        item = tcsim.instruction(mnemonic, arch=arch)
        name = TESTBENCH.classes(item)[0]
        given = TESTBENCH.inputs(item, name, 0, 300)
        launch = Probe(item, arch, b"code", "ptxas 13.0.0", "", "0" * 64).launch(given, repeat=2)
        assert (launch.grid, launch.block, launch.repeat) == ((3, 1, 1), (128, 1, 1), 2)
        assert launch.scalars == (np.uint32(300),)
        assert [array.tobytes() for array in launch.inputs] == [array.tobytes() for array in given.values()]
        ((shape, dtype),) = launch.outputs
        model = TESTBENCH.model(item, given)
        assert (shape, dtype) == (model.shape, model.dtype)
        target = next(t for t in item.row.targets if TARGETS[t].arch == item.arch.name)
        text = probe.emit(item.row, target)
        head = re.search(rf"entry {launch.kernel}\(([^)]*)\)", text)
        assert head is not None
        assert [word.split()[-1] for word in head[1].split(", ")] == [*given, "d", "threads"]
        assert len(re.findall(rf"^    {re.escape(mnemonic)} ", text, re.MULTILINE)) == 1


def test_the_width_of_the_source_chooses_the_operand_form() -> None:
    """The one row with two forms has two kernels."""
    item = tcsim.instruction("cvt.rn.f16.u8", arch="sm_90")
    assert TESTBENCH.classes(item) == ["exhaustive", "bytes"]
    made = Probe(item, "sm_90", b"code", "ptxas 13.0.0", "", "0" * 64)
    kernels = [made.launch(TESTBENCH.inputs(item, name, 0, 256)).kernel for name in ("exhaustive", "bytes")]
    assert kernels == ["probe_cvt_rn_f16_u8", "probe_cvt_rn_f16_u8__b8"]
    text = probe.emit(item.row, "sm_90")
    assert [kernel in text for kernel in kernels] == [True, True]
    assert ".reg .b8 %a;" in text


# ---- input classes


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_input_classes(arch: str) -> None:
    """Pure functions of their arguments, of the operands' own dtypes, and the model agrees with itself."""
    outputs = 0
    for item in instructions(arch):
        names = TESTBENCH.classes(item)
        assert all(re.fullmatch("[a-z]+", name) for name in names)
        for name in names:
            given = TESTBENCH.inputs(item, name, 0, 200)
            assert list(given) == [operand for operand in item.registers if operand != "d"]
            assert conformance_inputs.digest(TESTBENCH.inputs(item, name, 0, 200)) == conformance_inputs.digest(given)
            answer = TESTBENCH.model(item, given)
            comparison = TESTBENCH.compare(item, given, answer, answer)
            assert (comparison.mismatches, tuple(comparison.first)) == (0, ())
            outputs += comparison.outputs
    assert outputs > 15_000


def test_exhaustive_is_exhaustive() -> None:
    """Every code of a 16-bit source; of two packed ones every code in both halves; of bytes every pair."""
    for mnemonic in ("cvt.f32.f16", "cvt.rn.satfinite.e4m3x2.f16x2", "cvt.rn.f16x2.e5m2x2"):
        item = tcsim.instruction(mnemonic, arch="sm_90")
        count = TESTBENCH.samples(item, "exhaustive")
        assert count == 1 << 16
        codes = TESTBENCH.inputs(item, "exhaustive", 0, count)["a"]
        assert len(np.unique(codes & 0xFFFF)) == 1 << 16
        if codes.dtype == np.uint32:
            assert len(np.unique(codes >> 16)) == 1 << 16


@pytest.mark.parametrize(
    ("mnemonics", "least"),
    [
        (("cvt.rn.f16.f32", "cvt.rz.f16.f32"), 0.95),
        (("cvt.rn.bf16.f32", "cvt.rz.bf16.f32"), 0.95),
        (("cvt.rn.tf32.f32", "cvt.rz.tf32.f32"), 0.95),
        (("cvt.rni.s8.f32", "cvt.rzi.s8.f32"), 0.6),
        ((E4M3,), 0.45),
    ],
)
def test_every_stretch_of_the_edges_is_dense(mnemonics: tuple[str, ...], least: float) -> None:
    """Any 2,048 of many samples: most lie within 5,000 units of where a rounding changes its answer, both signs alike."""
    items = [tcsim.instruction(name, arch="sm_90") for name in mnemonics]
    count = 1 << 18
    given = TESTBENCH.inputs(items[0], "edges", 0, count)
    code = given["a"].astype(np.int64)
    magnitude = code & 0x7FFFFFFF
    below, above = (np.clip(magnitude + step, 0, 0x7F800000).astype(np.uint32) for step in (-5_000, 5_000))
    near = np.zeros(count, bool)
    for item in items:
        ends = [item.execute(**dict.fromkeys(given, end)) for end in (below, above)]
        near |= ends[0] != ends[1]
    assert near.reshape(-1, 2_048).mean(1).min() > least
    negative = (code >> 31 & 1).reshape(-1, 2_048).mean(1)
    assert 0.4 < negative.min() <= negative.max() < 0.6
    assert len(np.unique(code[: 1 << 13])) > 2_000


def test_the_edges_hold_every_boundary() -> None:
    """Every midpoint of both signs, exact and one unit to both sides, in each operand; nearly all by default."""
    item = tcsim.instruction(E4M3, arch="sm_90")
    values = tcsim.decode(np.arange(0x7F, dtype=np.uint8), "e4m3")
    middles = ((values[1:] + values[:-1]) / 2).astype(np.float32).view(np.uint32).astype(np.int64)
    wanted = {int(middle + offset) | sign for middle in middles for offset in (-1, 0, 1) for sign in (0, 1 << 31)}
    for count, missing in ((TESTBENCH.samples(item, "edges"), 0.02), (TESTBENCH.samples(item, "edges") + 64, 0)):
        for codes in TESTBENCH.inputs(item, "edges", 0, count).values():
            assert len(wanted - set(codes.tolist())) <= missing * len(wanted)


def test_more_samples_than_by_default() -> None:
    """A row has 4,194,304 edges of its own; the first ones are those of fewer samples."""
    item = tcsim.instruction("cvt.rn.satfinite.f16.f32", arch="sm_90")
    many, default = (TESTBENCH.inputs(item, "edges", 0, count)["a"] for count in (1 << 22, 1 << 13))
    assert many.shape == (1 << 22,)
    assert len(np.unique(many[::64])) > 1 << 15
    assert np.array_equal(many[: 1 << 13], default)


# ---- mutants


def kill(items: list[Convert]) -> tuple[set[str], int]:
    """The names of the mutants that apply to some of the instructions, and how many were told from the right one."""
    names, pairs = set(), 0
    for item in items:
        alive = [mutant for mutant in TESTBENCH.mutants if mutant.applies(item)]
        names |= {mutant.name for mutant in alive}
        pairs += len(alive)
        for name in TESTBENCH.classes(item):
            if not alive:
                break
            given = TESTBENCH.inputs(item, name, 0, TESTBENCH.samples(item, name))
            right = TESTBENCH.model(item, given)
            for mutant in list(alive):
                wrong = mutant.run(item, given)
                assert (wrong.shape, wrong.dtype) == (right.shape, right.dtype)
                if not np.array_equal(wrong, right):
                    alive.remove(mutant)
                    comparison = TESTBENCH.compare(item, given, wrong, right)
                    assert comparison.mismatches
                    assert 0 < len(comparison.first) <= 5
        assert not alive, (item.mnemonic, [mutant.name for mutant in alive])
    return names, pairs


def test_the_default_cases_of_sm_90_kill_every_mutant() -> None:
    """Each one that applies to an instruction answers differently somewhere: 920 pairs."""
    names, pairs = kill(instructions("sm_90"))
    assert pairs == 920
    assert {
        "ties away",
        "ties to even",
        "truncated",
        "largest one code low",
        "satfinite ignored",
        "relu ignored",
    } <= names
    assert {"fields swapped", "NaN is zero", "NaN sign kept", "subnormal results flushed", "-0 lost"} <= names


def test_the_default_cases_of_other_archs_kill_every_mutant() -> None:
    """A fifth of what sm_90 does not have; together all the mistakes that have a name."""
    own = {item.mnemonic for item in instructions("sm_90")}
    names, pairs = kill([item for item in instructions("sm_107") if item.mnemonic not in own][::5])
    assert pairs > 500
    every = [mutant.name for mutant in TESTBENCH.mutants]
    assert len(set(every)) == len(every) >= 40
    for item in instructions("sm_90"):
        names |= {mutant.name for mutant in TESTBENCH.mutants if mutant.applies(item)}
    assert names == set(every)


# ---- what a mismatch says


def first_mismatch(mnemonic: str, arch: str, spoil: Any) -> tuple[str, list[str], int]:
    """The line and the trace of spoilt results, and how many elements differ."""
    item = tcsim.instruction(mnemonic, arch=arch)
    given = TESTBENCH.inputs(item, "uniform", 0, 9)
    model = TESTBENCH.model(item, given)
    hardware: npt.NDArray[Any] = model.copy()
    spoil(hardware)
    comparison = TESTBENCH.compare(item, given, hardware, model)
    return comparison.first[0].line(), comparison.first[0].trace(), comparison.mismatches


def test_a_wrong_element_is_named_and_explained() -> None:
    """Operands, both results, and how the model came to its own."""

    def upper(hardware: Any) -> None:
        hardware[3] ^= 0x0100

    line, steps, mismatches = first_mismatch(E4M3, "sm_90", upper)
    assert re.fullmatch(
        r"MISMATCH sample 3 element 0: a=0x[0-9a-f]{8} b=0x[0-9a-f]{8} hardware 0x[0-9a-f]{4} model 0x[0-9a-f]{4}", line
    )
    assert mismatches == 1
    assert steps[0] == f"{E4M3} on sm_90: native, F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C"
    assert steps[1].startswith("d[15:8]: 0x")
    assert steps[2].startswith("d[7:0]: 0x")

    def both(hardware: Any) -> None:
        hardware[5] ^= 0x0180

    line, _, mismatches = first_mismatch(E4M3, "sm_90", both)
    assert " element 0 1: " in line
    assert mismatches == 2


def test_a_wrong_bit_above_the_fields_counts() -> None:
    """In a register that the fields do not fill, and in a result of one element."""

    def above(hardware: Any) -> None:
        hardware[0] ^= 1 << 31

    line, _, mismatches = first_mismatch("cvt.rna.tf32.f32", "sm_90", above)
    assert line.startswith("MISMATCH sample 0: a=0x")
    assert mismatches == 1
    assert first_mismatch("cvt.pack.sat.s4.s32.b32", "sm_90", above)[2] == 1


def test_results_of_another_shape_are_refused() -> None:
    """A hardware result that does not fit is not a mismatch."""
    item = tcsim.instruction(E4M3, arch="sm_90")
    given = TESTBENCH.inputs(item, "uniform", 0, 4)
    model = TESTBENCH.model(item, given)
    with pytest.raises(ValueError, match=r"the hardware's result has shape \(3,\), the model's \(4,\)"):
        TESTBENCH.compare(item, given, model[:3], model)
