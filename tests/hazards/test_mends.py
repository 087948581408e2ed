"""Steps along k and mends: what is wrong is named, a mend only if the launch is right with it, and what is right is clean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tcsim.ptx import Hazard, Memory, Run, parse
from tcsim.ptx.hazards.hazard import merged
from tests.hazards.layouts.table import KERNELS, Kernel
from tests.hazards.layouts.tensor_memory import Tensor
from tests.hazards.layouts.warpgroups import Warpgroup
from tests.hazards.layouts.warps import Warp
from tests.hazards.layouts.wide import LANES_OF_A, LANES_OF_B, Wide
from tests.support.ptx_copies import text

SCHEDULES: tuple[str | int, ...] = ("late", "early", 1, 2, 3)
LAYOUT = ("FRAGMENT_LAYOUT", "K_ADVANCE", "DESC_", "SWIZZLE_", "OPERANDS_", "IDESC_", "TMEM_COLUMN", "SCALE_")

STEPS: dict[str, tuple[Kernel | Wide, tuple[str, str], tuple[tuple[int, int], ...]]] = {
    "mma.sync, padded": (Warp(), ("step_a", "step_b"), ((0, 0), (1, 1), (4, 4))),
    "mma.sync, swizzled": (Warp("cp.async", pitch=64, swizzle=(1, 3)), ("step_a", "step_b"), ((0, 0), (1, 1), (4, 4))),
    "mma.sync, B by rows": (Warp("cvt", b_rows=True), ("step_a", "step_b"), ((0, 0), (1, 8))),
    "mma.sync, plain loads": (Warp(read="ld"), ("step_a", "step_b"), ((0, 0), (1, 1))),
    "mma.sync, ldmatrix of several tiles": (Wide(), ("step_a", "step_b"), ((0, 0), (1, 1), (4, 4))),
    "wgmma, TMA": (Warpgroup(), ("advance_a", "advance_b"), ((0, 0), (16, 16), (48, 48), (64, 64), (128, 128), (512, 512))),
    "wgmma, st.shared": (Warpgroup(fill="st"), ("advance_a", "advance_b"), ((0, 0), (16, 16), (64, 64), (512, 512))),
    "wgmma, A in registers": (Warpgroup(registers=True), ("load_advance", "advance_b"), ((0, 0), (1, 16), (4, 64))),
    "tcgen05.mma, TMA": (Tensor(), ("advance_a", "advance_b"), ((0, 0), (16, 16), (64, 64), (512, 512))),
    "tcgen05.mma, A in Tensor Memory": (Tensor(a_in_tmem=True), ("columns", "advance_b"), ((0, 0), (4, 16))),
}  # fmt: skip
"""Kernels, the fields that say by how much A and B go on, and wrong values of both."""


def layouts(run: Run) -> list[Any]:
    """What is said of operands."""
    return [own for own in run.hazards if own.name.startswith(LAYOUT)]


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_along_k_that_both_operands_take_wrong_is_named_first(name: str, schedule: str | int) -> None:
    """Taken twice, too small or too large; and the step is named: by how many k or bytes, and how many a product takes."""
    right, fields, values = STEPS[name]
    run = right.run(schedule=schedule)
    assert run.completed and not run.errors
    named = 0
    for pair in values:
        run = replace(right, **dict(zip(fields, pair, strict=True))).run(schedule=schedule)  # type: ignore[arg-type]
        first = run.errors[0]
        assert first.name == "K_ADVANCE", (pair, [str(own) for own in run.errors])
        assert "each product takes 16" in first.message or "instead of 32" in first.message, first.message
        named += 1
    assert named == len(values) >= 2


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_operand_that_goes_too_far_is_named_with_the_step_and_the_start(schedule: str | int) -> None:
    """Not with the start of another product's tile, and before what it reads that is not there yet."""
    named = 0
    for field, begin in (("advance_a", 1024), ("advance_b", 9216)):
        for step in (64, 128, 512, 1024):
            run = replace(Warpgroup(), **{field: step}).run(schedule=schedule)
            found = [own for own in run.errors if own.name == "K_ADVANCE"]
            assert run.errors[: len(found)] == found and len(found) >= 2
            for product, own in enumerate(found[:2], 1):
                if "mend" in own.detail:
                    assert f"start address {begin + 32 * product} instead of {begin + step * product}" in own.message
                    named += 1
    assert named >= 8


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "kernel",
    [
        Wide(),
        Wide(order=(1, 0)),
        Wide(order=(0, 1, 0, 1), accumulators=4),
        Wide(accumulators=2),
        Wide(order=(0, 0, 1), order_b=(0, 1, 0)),
        Wide(order=(0, 0, 1, 1), order_b=(0, 1, 0, 1)),
        Wide(order=(1, 0, 0), order_b=(0, 1, 0)),
        Wide(order=(0, 1, 0, 1)),
    ],
    ids=str,
)
def test_slices_that_are_taken_again_for_a_reason_are_clean(kernel: Wide, schedule: str | int) -> None:
    """Into other accumulators, in another order, as numbers in two parts (high and low), or all of them twice."""
    run = kernel.run(schedule=schedule)
    assert run.completed and not layouts(run), [str(own) for own in layouts(run)]


def test_a_tile_that_is_taken_twice_from_global_memory() -> None:
    """Both go on in the tile, and not from tile to tile."""
    run, right = Wide(further=0).launched()
    assert not right and {own.name for own in run.errors} == {"K_ADVANCE"}
    assert "again, for the same sum" in run.errors[0].message


def direct(step_a: int, step_b: int, products: int) -> Run:
    """mma.sync on registers that come straight from global memory; bytes by which A and B go on."""
    body = (
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; shr.u32 %r2, %r0, 2; and.b32 %r3, %r0, 3; shl.b32 %r3, %r3, 2; mul.lo.u32 %r4, %r2, 128;"
        " add.u32 %r4, %r4, %r3; cvt.u64.u32 %rd4, %r4; add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd4;\n"
        + "".join(f"mov.f32 %f{own}, 0f00000000;" for own in range(1, 5))
    )
    for place in range(products):
        for number, at in enumerate((0, 1024, 16, 1040)):
            body += f"ld.global.u32 %r{10 + number}, [%rd1+{at + step_a * place}];\n"
        for number, at in enumerate((0, 16)):
            body += f"ld.global.u32 %r{14 + number}, [%rd2+{at + step_b * place}];\n"
        body += "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f1, %f2, %f3, %f4};\n"
    memory = Memory()
    arrays = [memory.allocate(rows * 128) for rows in (16, 8)]
    kernel = parse(text(".param .u64 a, .param .u64 b", body)).kernel()
    return kernel.launch(memory, arrays, block=(32, 1, 1), origins=True)


def test_registers_that_no_shared_memory_feeds() -> None:
    """Slices that are taken again, and elements that are; all of the row, and a part of it once, are right."""
    for step, products in ((0, 4), (0, 2), (16, 4)):
        assert [own.name for own in direct(step, step, products).errors] == ["K_ADVANCE"] * (products - 1)
    for products in (1, 2, 4):
        assert not direct(32, 32, products).hazards


WRONG: dict[str, tuple[Wide, dict[str, Any] | None]] = {
    "B with the lanes of A": (Wide(lanes_b=LANES_OF_A), None),
    "B with the lanes of A and .trans": (Wide(lanes_b=LANES_OF_A, trans_b=".trans"), None),
    "A with the lanes of B": (Wide(lanes_a=LANES_OF_B), {"the 8 x 8 matrices in the other order": {"lanes_a": LANES_OF_A}}),
    "B with .trans": (Wide(trans_b=".trans"), {"ldmatrix without .trans": {"trans_b": ""}}),
    "A with .trans": (Wide(trans_a=".trans"), {"ldmatrix without .trans": {"trans_a": ""}}),
    "another swizzle": (Wide(load_a=(0, 3), load_b=(0, 3)), {"exchanged by address bits 7 to 8": {"load_a": (1, 3), "load_b": (1, 3)}}),
    "no swizzle": (Wide(load_a=(0, 0), load_b=(0, 0)), {"exchanged by address bits 7 to 8": {"load_a": (1, 3), "load_b": (1, 3)}}),
    "another swizzle of A": (Wide(load_a=(0, 3)), {"exchanged by address bits 7 to 8": {"load_a": (1, 3)}}),

    "a step too large": (Wide(step_a=4), {"its first element read from byte": {"step_a": 2}}),
}  # fmt: skip
"""Wrong kernels: words of the mend that is named and what it means, or None where no single change mends them."""


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_mend_is_named_only_if_the_launch_is_right_with_it(name: str, schedule: str | int) -> None:
    """Every result is compared: with each mend that is named it is A times B."""
    kernel, mends = WRONG[name]
    run, right = kernel.launched(schedule=schedule)
    found = layouts(run)
    assert not right and found, "a wrong kernel is not clean"
    named = {own.detail["mend"] for own in found if "mend" in own.detail}
    if mends is None:
        assert not named and not any(": with " in own.message for own in found)
        return
    assert named and all(any(words in mend for words in mends) for mend in named), named
    for change in mends.values():
        run, right = replace(kernel, **change).launched(schedule=schedule)
        assert right and not run.hazards


def test_what_is_wrong_is_said_without_a_mend_too() -> None:
    """And stays in the detail where there is one."""
    found = layouts(Wide(lanes_b=LANES_OF_A).run())
    assert "does not take A and B through k together" in found[0].message and "mend" not in found[0].detail
    found = layouts(Wide(load_a=(0, 3)).run())
    assert "pieces of its rows are exchanged" in found[0].detail["found"] and ": right with " in found[0].message


def test_a_mend_that_not_every_block_needs_is_none() -> None:
    """What is found in some of the clusters would be broken in the others."""
    detail = {"operand": "a", "found": "what is wrong", "mend": "a change"}
    own = Hazard("DESC_START", "what is wrong: with a change", 7, detail=detail)
    (every,) = merged([own] * 4, clusters=4)
    assert every.message == own.message and every.detail == detail and every.count == 4
    (some,) = merged([own] * 3, clusters=4)
    assert (some.message, some.detail) == ("what is wrong", {"operand": "a"})
    other = Hazard("K_ADVANCE", "no mend", 9, detail={"operand": "ab"})
    assert [item.message for item in merged([own, other])] == ["what is wrong", "no mend"]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("schedule", SCHEDULES[1:])
def test_right_kernels_are_silent_in_every_order(kernel: Kernel, schedule: str | int) -> None:
    run = kernel.run(schedule=schedule)
    assert run.completed and not run.errors, [str(own) for own in run.errors]
