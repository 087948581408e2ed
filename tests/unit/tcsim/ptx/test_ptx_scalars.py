"""Scalar instructions and atomics in kernels: what the machine makes of a spelling is what its row says."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tcsim.ptx
from conformance.scalars import cases
from conformance.scalars.inputs import inputs
from hwkernels.probes.scalar import BLOCK, Probe, module
from tcsim.core.errors import TcsimError

MOST = 8 * BLOCK
EVERY = 29
FORMS = (
    "|",
    "/3",
    "addc",
    "subc",
    "madc",
    "add.cc",
    "sub.cc",
    "mad.lo.cc",
    "cvt.sat.s8",
    "cvt.rni.s16",
    "cvt.u8",
    "cvt.s8.s32",
    "lop3",
    "atom.",
    "red.",
)


def chosen() -> list[str]:
    """Some spellings of every kind, and those that the compiler writes in a way of their own."""
    names = list(cases.probes())
    own = [name for name in names if name.startswith(FORMS[2:]) or name.endswith(FORMS[:2])]
    return sorted(
        {
            *names[::EVERY],
            *own[::7],
            *(name for name in own if name.startswith(("addc", "subc", "add.cc", "lop3", "cvt.s8.s32"))),
        }
    )


@cache
def given(types: tuple[str, ...]) -> list[np.ndarray[Any, Any]]:
    """Inputs of some types."""
    return [codes[:MOST].copy() for codes in inputs(types)]


def run(probe: Probe) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
    """What a kernel gives, and what the row says."""
    codes = [column[: BLOCK * probe.count] for column in given(probe.sources)]
    wanted = cases.expected(probe, codes)
    memory = tcsim.ptx.Memory()
    pointers = [memory.allocate(np.ascontiguousarray(column).view(np.uint8)) for column in codes]
    results = [memory.allocate(column.nbytes) for column in wanted]
    kernel = tcsim.ptx.parse(module([probe], "sm_90a", "9.4")).kernel("k0")
    done = kernel.launch(memory, [*pointers, *results], grid=(1, 1, 1), block=(BLOCK, 1, 1))
    assert done.completed, done.hazards
    return [memory.read(at, own.nbytes).view(own.dtype) for at, own in zip(results, wanted, strict=True)], wanted


@pytest.mark.parametrize("name", chosen())
def test_in_a_kernel(name: str) -> None:
    """Bit for bit."""
    found, wanted = run(cases.probes()[name])
    assert len(found) == len(wanted) > 0
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(own, other)


def text(line: str, target: str = "sm_90a") -> str:
    """A kernel of one instruction."""
    return "\n".join(
        [
            ".version 9.4", f".target {target}", ".address_size 64", ".visible .entry k() {", ".reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f<4>; .reg .pred %p<4>;",
            line, "ret; }",
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "target", "words"),
    [
        ("add.rn.f32x2 %d0, %d1, %d2;", "sm_90a", "sm_90a does not have this instruction; valid: sm_100,"),
        ("min.f32 %f0, %f1, %f2, %f3;", "sm_90a", "valid: sm_100,"),
        ("add.u8x4 %r0, %r1, %r2;", "sm_100a", "valid: sm_107f, sm_107a"),
        ("max.relu.s32 %r0, %r1, %r2;", "sm_80", "valid: sm_90,"),
        ("add.u32 %r0, %r1;", "sm_90a", "1 sources; valid: 2"),
        ("add.u32 %r0|%p0, %r1, %r2;", "sm_90a", "one destination, not two"),
        ("setp.lt.f16x2 %p0, %r1, %r2;", "sm_90a", "two destinations"),
        ("lop3.b32 %r0, %r1, %r2, %r3, %r1;", "sm_90a", "source 4 is an immediate"),
        (
            "red.shared.add.noftz.v2.f16 [%r0], {%r1, %r2};",
            "sm_90a",
            "'red.shared.add.noftz.v2.f16' is not known: .shared beside .v2",
        ),
        ("red.global.exch.b32 [%d0], %r1;", "sm_90a", "'red.global.exch.b32' is not known"),
        (
            "atom.global.add.f16 %r0, [%d0], %r1;",
            "sm_90a",
            "'atom.global.add.f16' is not known: no operation add.f16; nearest",
        ),
    ],
)
def test_wrong_use(line: str, target: str, words: str) -> None:
    """What does not fit is an error that names the line before anything runs."""
    with pytest.raises(TcsimError) as caught:
        tcsim.ptx.parse(text(line, target)).kernel().launch(tcsim.ptx.Memory(), [])
    assert words in str(caught.value)
    assert "line 6" in str(caught.value)
