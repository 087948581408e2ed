"""Scalar instructions that the assembler does not execute under their guard, beside what an H200 gave for every spelling of them."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np
import pytest

from tcsim.isa.scalar.catalog import scalars
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.ptx import Memory, parse

DIGESTS = {
    "abs f32": (1, "63d509e78bf1d3bc"),
    "neg f32": (1, "972159b4a1cb8d53"),
    "set bf16": (440, "bbb5cc3000c31b16"),
    "set f16": (496, "f4e9941cc1c00eb4"),
    "set f32": (384, "92f8572bdc3aa813"),
    "set s32": (240, "7dc869bfcd1e7bb4"),
    "set u32": (240, "7dc869bfcd1e7bb4"),
    "testp pred": (12, "52a755a158b52d4a"),
}
"""Of an H200 (ptxas 13.0.88): by opcode and type of the result the spellings, and 16 digits of what they gave for 256 threads, every second of them with a false guard."""
THREADS = 256


def test_every_spelling_gives_what_an_h200_gave():
    given = np.random.default_rng(1).integers(0, 256, (THREADS, 64), dtype=np.uint8)
    guard, found = np.arange(THREADS) % 2 == 0, defaultdict(list)
    for name, item in sorted(scalars().items()):
        if item.guarded is None or "sm_90a" not in item.targets:
            continue
        columns = []
        for place, type in enumerate((*item.sources, *item.results)):
            own = np.ascontiguousarray(given[:, 8 + 8 * place :][:, : CONTAINERS[type].itemsize])
            columns.append(own[:, 0] > 127 if type == "pred" else own.view(CONTAINERS[type])[:, 0])
        *sources, old = columns
        (type,) = item.results
        with np.errstate(all="ignore"):
            result = item.guarded(guard, old, *sources)
        found[f"{name.split('.')[0]} {type}"].append(result.astype(np.uint32 if type == "pred" else CONTAINERS[type]))
    digests = {
        key: (len(own), hashlib.sha256(np.concatenate(own).tobytes()).hexdigest()[:16]) for key, own in found.items()
    }
    assert digests == DIGESTS


@pytest.mark.parametrize(
    ("instruction", "wanted"),
    [
        ("@%p0 testp.finite.f32 %p1, %r0; selp.u32 %r1, 1, 0, %p1", [1, 1]),
        ("@!%p0 set.lt.u32.f32 %r1, %r0, %r1", [0, 7]),
        ("@%p0 set.lt.f32.f32 %r1, %r0, %r1", [0x40E00000, 0]),
        ("@%p0 set.eq.u32.u16 %r1, %h0, %h0", [7, 0xFFFFFFFF]),
    ],
)
def test_the_machine_does_not_keep_to_their_guards(instruction: str, wanted: list[int]):
    text = f""".version 8.0\n.target sm_90\n.address_size 64
    .visible .entry k(.param .u64 out) {{ .reg .pred %p<2>; .reg .b16 %h<1>; .reg .b32 %r<4>; .reg .b64 %d<2>;
    ld.param.u64 %d0, [out]; mov.u32 %r2, %tid.x; mul.wide.u32 %d1, %r2, 4; add.u64 %d0, %d0, %d1; setp.eq.u32 %p0, %r2, 1;
    setp.ne.u32 %p1, %r2, %r2; mov.u32 %r0, 0x3f800000; mov.u32 %r1, 7; cvt.u16.u32 %h0, %r1; {instruction}; st.global.u32 [%d0], %r1; ret; }}"""
    memory = Memory()
    out = memory.allocate(8)
    parse(text).kernel().launch(memory, [out], block=(2, 1, 1), check=False)
    assert memory.read(out, 8).view(np.uint32).tolist() == wanted
