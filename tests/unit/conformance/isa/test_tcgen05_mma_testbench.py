"""What the conformance cases of tcgen05.mma can see: mutants, mismatches, traces."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from conformance.isa.tcgen05 import TENSOR_MEMORY
from conformance.isa.tcgen05.memory_models import operands_of
from conformance.isa.tcgen05.mma_mutants import MUTANTS
from conformance.testbench import Mutant
from tcsim.isa.tcgen05.described import DescribedMultiply
from tcsim.trace import show_code, trace
from tests.support.tensor_multiply_cases import instruction, plain


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_contradicted(mutant: Mutant) -> None:
    """Of seven instructions where it could show, each has a case with another answer."""
    items = [item for item in plain("sm_100") if mutant.applies(item)]
    items = items or [item for item in plain("sm_107") if mutant.applies(item)]
    first = {
        "addend last": ("cancellation",), "lanes all written": ("desclanes",), "negations ignored": ("shapes",),
        "floor-1": ("floor", "tiny"), "floor+1": ("floor", "tiny"),
    }.get(mutant.name, ())  # fmt: skip
    for item in items[:: -(-len(items) // 7)]:
        names = TENSOR_MEMORY.classes(item)
        for name in sorted(names, key=lambda name: name not in first):
            given_ = TENSOR_MEMORY.inputs(item, name, 0, 2)
            if not np.array_equal(mutant.run(item, given_), TENSOR_MEMORY.model(item, given_)):
                break
        else:
            pytest.fail(f"{item.mnemonic}: no case contradicts {mutant.name!r}")
    assert items


def test_a_difference_is_shown() -> None:
    item = instruction("tcgen05.mma.cta_group::1.kind::f16")
    given_ = TENSOR_MEMORY.inputs(item, "desc", 0, 2)
    model = TENSOR_MEMORY.model(item, given_)
    hardware = model.copy()
    hardware[1, 0, 3, 2] ^= 1
    hardware[0, 0, 127, 100] ^= 0x80000000
    found = TENSOR_MEMORY.compare(item, given_, hardware, model)
    assert (found.outputs, found.mismatches) == (model.size, 2)
    assert "outside D" in found.first[0].line() and "lane 127 column 100" in found.first[0].line()
    assert "of D" in found.first[1].line()
    assert any("d_format" in line for line in found.first[1].trace())
    assert any(line.startswith("step 1: fused dot-add of k 0-15") for line in found.first[1].trace())
    assert not any(line.startswith("step ") for line in found.first[0].trace())


def test_a_trace_ends_with_the_result() -> None:
    """Of an element of D of every family, kind and operand form: the codes as `execute` reads them, and what comes of them."""
    traced = 0
    for turn, item in enumerate(plain("sm_100")):
        for name in TENSOR_MEMORY.classes(item)[:6]:
            given_ = TENSOR_MEMORY.inputs(item, name, turn, 1)
            operands = operands_of(item, given_, 0)
            bound = DescribedMultiply(item, item.descriptor(operands["idesc"]), operands.get("scale_input_d") or 0)
            row, column = (turn * 37 + 5) % bound.desc.m, (turn * 11 + 3) % bound.desc.n
            codes = item.operands_of(row, column, **operands)
            lines = trace(bound, **codes)
            operands.pop("disable_output_lane", None)
            after = item.execute(**operands)
            layout, base = item.layout("d", operands["idesc"]), operands["d"]
            cta, lane, place, _ = layout.where(row, column)
            word = int(after.read(lane + (base >> 16), place + (base & 0xFFFF), cta=cta))
            assert lines[-1].startswith(f"  d = {show_code(word, bound.formats['d'])} ("), (item.mnemonic, name)
            traced += 1
    assert traced > 200
    with pytest.raises(tcsim.OperandError, match=r"no element \(999, 0\) of D; valid: 0 to"):
        item.operands_of(999, 0, **operands)
