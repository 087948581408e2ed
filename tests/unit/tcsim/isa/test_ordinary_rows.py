"""Reductions over a warp, barriers of a CTA, cache policies and hints, ranks, parameter addresses: rows, and what they compute."""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from conformance.isa import testbench_of
from hwkernels.device.toolchain import find_toolchains
from hwkernels.probes import body_of, probe
from tcsim import catalog
from tcsim.core.errors import OperandError
from tcsim.core.targets import ARCHS
from tcsim.core.versions import PTX_ISA
from tcsim.isa.barrier_cta import CtaBarrier, CtaBarrierError
from tcsim.isa.createpolicy import PRIORITIES
from tests.support.extent import part
from tests.support.ordinary_inventory import INVENTORY, accepted, candidates

FAMILIES = (
    "redux.sync", "barrier.cta", "bar.warp.sync", "createpolicy", "getctarank", "discard", "applypriority", "cvta.param",
)  # fmt: skip
WORDS = st.lists(st.integers(0, 0xFFFF_FFFF), min_size=32, max_size=32)


def on(mnemonic: str, arch: str = "sm_90") -> Any:
    """An instruction."""
    return tcsim.instruction(mnemonic, arch=arch)


def inventory() -> dict[tuple[str, str, str], tuple[tuple[str, ...], str, bool]]:
    """Targets, version and whether it is documented, by family, mnemonic and list of operands."""
    lines = [line for line in INVENTORY.read_text().splitlines() if not line.startswith("#")]
    found = {
        (line["family"], line["mnemonic"], line["extra"]): (
            tuple(line["targets"].split()), line["min_ptx_isa"], line["documented"] == "1",
        )
        for line in csv.DictReader(lines)
    }  # fmt: skip
    assert len(found) == len(lines) - 1
    return found


def test_the_rows_are_the_inventory() -> None:
    """Exactly the spellings and lists of operands that ptxas accepts, each with its targets and version."""
    own = {
        (row.family, row.mnemonic, form.name): (form.targets, form.ptx_version, form.documented)
        for row in catalog.rows().values()
        if row.family in FAMILIES
        for form in row.forms
    }
    assert own == inventory()
    assert Counter(family for family, _, _ in own) == {
        "redux.sync": 17, "barrier.cta": 108, "bar.warp.sync": 1, "createpolicy": 49, "getctarank": 4, "discard": 2,
        "applypriority": 2, "cvta.param": 6,
    }  # fmt: skip


@pytest.mark.parametrize("target", ["sm_75", "sm_89", "sm_90a", "sm_103a", "sm_121a"])
def test_ptxas_still_accepts_what_the_inventory_says(target: str) -> None:
    """All candidates tried anew, on one target of each kind."""
    if not any(one.version.startswith("13.5") for one in find_toolchains()):
        pytest.skip("the inventory is that of ptxas 13.5")
    tried = [one for one in candidates() if one.family in FAMILIES]
    found = {(one.family, one.mnemonic, one.extra) for one in accepted(tried, target, PTX_ISA[-1])}
    assert found == {key for key, (targets, _, _) in inventory().items() if target in targets}
    assert len(tried) == 795 and found


@pytest.mark.parametrize(
    ("family", "arch"), part(itertools.product(FAMILIES, ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]), 14)
)
def test_probes_hold_what_the_lowering_claims(family: str, arch: str) -> None:
    """Every row of the family assembles, and its machine code has the claimed opcodes."""
    instructions = [on(row.mnemonic, arch) for row in catalog.on_arch(arch, family)]
    made = probe.build(instructions, instructions[0].targets[-1]) if instructions else {}
    assert all(getattr(item, "complaint", item) == "" for item in made.values()), made
    assert len(made) == len(instructions) and bool(made) == (
        arch in {ARCHS[n].name for n in ARCHS} and bool(instructions)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_inputs_kill_every_mutant(family: str) -> None:
    """The model's answer fits the probe's output, and no mutant answers as the model does in all classes of a row."""
    testbench, checked = testbench_of(family), 0
    for row in catalog.on_arch("sm_100" if family == "redux.sync" else "sm_90", family):
        instruction = on(row.mnemonic, "sm_100" if family == "redux.sync" else "sm_90")
        runs = []
        for name in testbench.every_class(instruction):
            inputs = testbench.inputs(instruction, name, 0, testbench.samples(instruction, name))
            model = testbench.model(instruction, inputs)
            assert body_of(row).plan(row, inputs).output == (model.shape, model.dtype)
            runs.append((inputs, model))
        applying = [mutant for mutant in testbench.mutants if mutant.applies(instruction)]
        assert applying, row.mnemonic
        for mutant in applying:
            assert any(not np.array_equal(mutant.run(instruction, inputs), model) for inputs, model in runs), (
                mutant.name
            )
            checked += 1
    assert checked


# ---- what they compute


@given(words=WORDS, mask=st.integers(1, 0xFFFF_FFFF))
def test_integer_reductions(words: list[int], mask: int) -> None:
    """Against Python's own integers."""
    own = [word for lane, word in enumerate(words) if mask >> lane & 1]
    signed = [word - (word >> 31 << 32) for word in own]
    bits = {"and": 0xFFFF_FFFF, "or": 0, "xor": 0}
    for word in own:
        bits = {"and": bits["and"] & word, "or": bits["or"] | word, "xor": bits["xor"] ^ word}
    wanted = {"add.u32": sum(own), "add.s32": sum(signed), "min.u32": min(own), "max.u32": max(own)}
    wanted |= {"min.s32": min(signed), "max.s32": max(signed)} | {f"{op}.b32": value for op, value in bits.items()}
    for name, value in wanted.items():
        assert int(on(f"redux.sync.{name}").execute(np.array(words, np.uint32), mask)) == value % (1 << 32), name


@given(words=WORDS, mask=st.integers(1, 0xFFFF_FFFF))
def test_float_reductions(words: list[int], mask: int) -> None:
    """Against a search through the values; -0 is below +0; NaNs count alone or with .NaN."""
    for op, absolute, nan in ((op, a, n) for op in ("min", "max") for a in ("", ".abs") for n in ("", ".NaN")):
        own = [word & 0x7FFF_FFFF if absolute else word for lane, word in enumerate(words) if mask >> lane & 1]
        numbers = [word for word in own if word & 0x7FFF_FFFF <= 0x7F80_0000]
        pick = {"min": min, "max": max}[op]
        want = 0x7FFF_FFFF
        if numbers and not (nan and len(numbers) < len(own)):
            want = pick(numbers, key=lambda word: (float(np.uint32(word).view(np.float32)), -(word >> 31)))
        found = on(f"redux.sync.{op}{absolute}{nan}.f32", "sm_100").execute(np.array(words, np.uint32), mask)
        assert int(found) == want, (op, absolute, nan)


def test_a_barrier_ends_its_phase_with_the_last_warp() -> None:
    """As many threads as were said; predicates are reduced over all of them; wrong use is named."""
    sync, arrive, red = (on(name) for name in ("bar.sync", "barrier.arrive", "barrier.cta.red.and.aligned.pred"))
    barrier = sync.execute(arrive.execute(CtaBarrier(), 96), 96)
    assert (barrier.phase, barrier.present) == (0, 64)
    assert sync.execute(barrier, 96).phase == 1
    done = red.execute(red.execute(CtaBarrier(), 64, True), 64, np.arange(32) != 7)
    assert (done.reduced("popc"), done.reduced("and"), done.reduced("or")) == (63, 0, 1)
    for threads, words in ((96, "valid: 64"), (33, "multiples of 32"), (0, "multiples of 32"), (1056, "up to 1024")):
        with pytest.raises(CtaBarrierError, match=words):
            sync.execute(sync.execute(CtaBarrier(), 64), threads)
    with pytest.raises(CtaBarrierError, match=r"red\.and meets arrivals without predicates"):
        red.execute(sync.execute(CtaBarrier(), 64), 64, True)


def test_policies_are_those_that_cutlass_has() -> None:
    """The constants of CUTLASS (cute/arch/copy_sm90_desc.hpp, CacheHintSm90) are fractional policies of all accesses."""
    for priority, value in (
        ("evict_normal", 0x16F0 << 48),
        ("evict_first", 0x12F0 << 48),
        ("evict_last", 0x14F0 << 48),
    ):
        assert int(on(f"createpolicy.fractional.L2::{priority}.b64").execute()) == value
    for fraction, field in (
        (1, 15),
        (0.5, 7),
        (0.9375, 14),
        (0.125, 1),
        (0.1, 1),
        (0.0625, 0),
    ):  # as ptxas folds constants
        assert int(on("createpolicy.fractional.L2::evict_last.b64").execute(fraction)) >> 52 & 15 == field
    assert len({int(on(f"createpolicy.fractional.L2::{one}.b64").execute()) for one in PRIORITIES}) == 4
    for wrong in (0, 1.5, -1, float("nan")):
        with pytest.raises(OperandError, match="above 0 and up to 1"):
            on("createpolicy.fractional.L2::evict_last.b64").execute(wrong)


def test_an_order_that_means_something() -> None:
    """Primary and secondary priority are not the same spelling turned round."""
    first = "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64"
    other = "createpolicy.fractional.L2::evict_unchanged.L2::evict_first.b64"
    assert on(first.replace(".b64", "").replace("fractional", "fractional.b64")).mnemonic == first
    assert int(on(first).execute()) != int(on(other).execute())


def test_a_policy_of_a_range() -> None:
    """Blocks of 4096 bytes up to 512 KiB in all, larger ones beyond; 127 blocks at most are primary."""
    policy = on("createpolicy.range.L2::evict_last.b64")
    for address, primary, total, want in [
        (0x3000, 0x2000, 0x8_0000, (0, 3, 2)), (0x3001, 0x2000, 0x8_0000, (0, 3, 3)), (0, 0x8_0000, 0x8_0000, (0, 0, 127)),
        (0x4000, 0x2000, 0x8_1000, (1, 2, 1)), (0xFF000, 0x1000, 0x10000, (0, 0x7F, 1)),
    ]:  # fmt: skip
        bits = int(policy.execute(address, primary, total))
        assert (bits >> 52 & 15, bits >> 44 & 127, bits >> 37 & 127) == want, (address, primary, total)
        assert bits >> 56 == 0x1C and bits & (1 << 37) - 1 == 0
    assert int(policy.execute(0x3000, 0, 0)) == 0x18 << 56
    with pytest.raises(OperandError, match="primary <= total"):
        policy.execute(0, 2, 1)
