"""The codes behind each output of a call, for every kind of multiply: together they give what the call gives."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa.tcgen05.mma_inputs import Described
from conformance.stimuli.stream import Stream
from tcsim.arithmetic.steps import DotAdd
from tcsim.inspection.outputs import example_arrays, output_problem, outputs_of
from tcsim.inspection.problems import described, run_call
from tcsim.inspection.products import formats_of, results
from tcsim.inspection.random_inputs import random_codes, random_products
from tcsim.inspection.smallest_example import smallest_example
from tcsim.inspection.trace_steps import trace_steps
from tcsim.isa.mma.sparse_operand import SparseOperand
from tcsim.isa.tcgen05.described import DescribedMultiply

MX4 = "mma.sync.aligned.kind::mxf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0"
REGISTERS = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90"),
    ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    ("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_90"),
    (MX4, "sm_120"),
    ("mma.sp::ordered_metadata.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k64.row.col.f32.e4m3.e4m3.f32.ue8m0", "sm_120"),
    ("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32", "sm_80"),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "sm_90"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", "sm_90"),
)  # fmt: skip
TENSOR_MEMORY = (
    ("tcgen05.mma.cta_group::1.kind::f16", {"a_format": "bf16"}),
    ("tcgen05.mma.cta_group::1.kind::f16", {"a_format": "f16", "negate_a": True}),
    ("tcgen05.mma.cta_group::1.kind::tf32.ashift", {}),
    ("tcgen05.mma.sp.cta_group::1.kind::f16", {"a_format": "bf16", "sparse": True, "negate_b": True}),
    ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", {"scale_format": "ue4m3"}),
    ("tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale", {"a_format": "e4m3", "sparse": True}),
)  # fmt: skip


def matrices(item: Any, batch: int) -> dict[str, Any]:
    """Random inputs of `matmul`, several of A and one of each other."""
    stream, (m, n, k) = np.random.default_rng(4), item.shape
    formats = formats_of(item)
    kept = item.operands["a"].shape[1]
    shapes = {"a": (batch, m, kept), "b": (k, n), "c": (m, n)}
    if "scale_a" in formats:
        shapes |= {"scale_a": (m, item.blocks), "scale_b": (item.blocks, n)}
    given = {name: random_codes(formats[name], shape, stream) for name, shape in shapes.items()}
    if isinstance(item, SparseOperand):
        groups = stream.choice(np.array(item.sparsity.valid, np.uint8), (m, item.sparsity.groups))
        given["metadata"] = item.sparsity.positions_of(groups)
    return given


def all_and_some(item: Any, arrays: dict[str, Any], want: Any) -> int:
    """All outputs of a call, and two of them traced."""
    outputs = outputs_of(item, arrays)
    assert outputs.shape == want.shape
    np.testing.assert_array_equal(results(item, outputs.products()), want.reshape(-1))
    batch, (m, n) = want.size // (want.shape[-1] * want.shape[-2]), want.shape[-2:]
    for row, column in ((0, 1), (m - 1, n - 1)):
        steps = trace_steps(item, *output_problem(item, arrays, (row, column), batch=batch - 1))
        assert steps[-1].result is not None
        assert int(steps[-1].result.hex, 16) == int(want.reshape(batch, m, n)[-1, row, column])
    return int(want.size)


@pytest.mark.parametrize(("mnemonic", "arch"), REGISTERS)
def test_outputs_of_matrices_and_of_registers(mnemonic: str, arch: str) -> None:
    item: Any = tcsim.instruction(mnemonic, arch=arch)
    arrays = matrices(item, 2)
    compared = all_and_some(item, arrays, run_call(item, arrays)[1]["d"])
    if hasattr(item, "fetch"):  # wgmma takes its operands from memory: below
        assert compared == 2 * 64 * 8
        return
    registers: dict[str, Any] = {name: item.registers(name, arrays[name]) for name in "abc"}
    if "metadata" in arrays:
        registers["metadata"] = item.encode_metadata(arrays["metadata"])
    if "scale_a" in arrays:
        registers |= {f"scale_{side}": item.scale_registers(side, arrays[f"scale_{side}"], 0, 0) for side in "ab"}
    call, d = run_call(item, registers)
    assert call == "execute"
    compared += all_and_some(item, registers, item.matrix("d", d["d"]))
    assert compared == 4 * item.shape[0] * item.shape[1]


@pytest.mark.parametrize("signs", [{}, {"scale_a": -1}, {"scale_b": -1, "scale_d": 0}])
@pytest.mark.parametrize("sparse", [False, True])
def test_outputs_behind_descriptors(sparse: bool, signs: dict[str, int]) -> None:
    """wgmma: signs are turned, and C does not count where it is not read."""
    name = f"wgmma.mma_async{'.sp' * sparse}.sync.aligned.m64n8k{32 if sparse else 16}.f32.f16.f16"
    item: Any = tcsim.instruction(name, arch="sm_90a")
    given = matrices(item, 1)
    tile = tcsim.MatrixDescriptor.for_tile(8, item.shape[2], "f16", swizzle="NONE")
    arrays = {
        "smem": tile.image(np.ascontiguousarray(given["b"].T)), "b": np.uint64(tile.descriptor.encode()),
        "a": item.registers("a", given["a"][0]), "c": item.registers("c", given["c"]), **signs,
    }  # fmt: skip
    if sparse:
        arrays["metadata"] = item.encode_metadata(given["metadata"])
    call, d = run_call(item, arrays)
    assert call == "execute" and all_and_some(item, arrays, item.matrix("d", d["d"])) == 512


@pytest.mark.parametrize(("mnemonic", "fields"), TENSOR_MEMORY)
def test_outputs_with_an_instruction_descriptor(mnemonic: str, fields: dict[str, Any]) -> None:
    """tcgen05.mma: what `matmul` gives for the same descriptor."""
    item: Any = tcsim.instruction(mnemonic, arch="sm_100")
    desc = tcsim.InstructionDescriptor(kind=item.row.kind.name, m=128, n=16, **fields)
    arrays = {name: x[0] for name, x in Described(item, desc).make("uniform", Stream("outputs", mnemonic), 1).items()}
    want = item.matmul(**arrays, idesc=desc)
    given = {**arrays, "idesc": np.uint32(desc.encode())}
    bound = described(item, given)
    assert isinstance(bound, DescribedMultiply)
    assert all_and_some(bound, given, want) == 128 * 16


def with_fewer_bits(item: Any) -> Any:
    """A model whose dot-adds keep 10 bits below the largest exponent, in place of another arch."""
    steps = tuple(
        replace(step, unit=replace(step.unit, fraction_bits=10)) if isinstance(step, DotAdd) else step
        for step in item.lowering.steps
    )
    other = copy(item)
    other.__dict__["lowering"] = replace(item.lowering, steps=steps)
    return other


@pytest.mark.parametrize("mnemonic", [REGISTERS[1][0], MX4, REGISTERS[4][0], *dict(TENSOR_MEMORY)])
def test_an_example_survives_as_a_file(mnemonic: str) -> None:
    """The smallest example of two models that differ, as inputs of matmul: the output (0, 0) differs in the same way."""
    fields = dict(TENSOR_MEMORY).get(mnemonic)
    arch = "sm_100" if fields is not None else dict(REGISTERS)[mnemonic]
    item: Any = tcsim.instruction(mnemonic, arch=arch)
    if fields is not None:
        desc = tcsim.InstructionDescriptor(kind=item.row.kind.name, m=128, n=16, **fields)
        item = described(item, {"idesc": desc.encode()})
    pair = {"right": item, "wrong": with_fewer_bits(item)}
    problems = random_products(item, 256, 9)
    found = [results(one, problems) for one in pair.values()]
    where = np.flatnonzero(found[0] != found[1])
    assert where.size
    example = smallest_example(("right", "wrong"), pair, problems[int(where[0]) : int(where[0]) + 1], None)
    assert len(example.products) <= 3 and example.results["right"] != example.results["wrong"]
    for name, codes in example.codes.scales.items():
        unit = int(tcsim.encode(1.0, formats_of(item)[name]))
        for place in np.flatnonzero(codes.reshape(-1) != unit):  # it has to be another one
            simpler = example.codes.changed(name, int(place), unit)
            assert results(pair["right"], simpler) == results(pair["wrong"], simpler)
    arrays = example_arrays(item, example.codes)
    if fields is not None:
        arrays.pop("scale_input_d", None)
        d = item.instruction.matmul(**{**arrays, "idesc": int(arrays["idesc"])})
    else:
        d = item.matmul(**arrays)
    assert int(d[0, 0]) == int(example.results["right"].hex, 16)
