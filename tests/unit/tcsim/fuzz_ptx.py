"""Texts of PTX for fuzzing: real kernels changed in a few places, and hostile pieces; and what is done with each.

A text is read, and each of its kernels is compiled and run for a moment. PtxError, LaunchError or a Run with hazards: nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from tcsim.ptx import HAZARDS, Limits, Memory, parse
from tcsim.ptx.text.spellings import refusal

LAUNCHES = Path(__file__).parents[2] / "data" / "launches"
LARGEST = 10_000  # characters of a kernel that is changed
TOKEN = re.compile(r"[\w$%.]+|[^\w\s]")
HOSTILE = (
    "{" * 70, "[" * 9, "(" * 3000, "!" * 3000, "|" * 3000, "-" * 3000, "/*", "//", '"', "\0", "0f", "0x", "9" * 5000, "0" * 90, "%r" + "1" * 5000,
    ".reg .b32 %z<1048576>;", ".reg .b32 %z<99999999999>;", ".local .b8 big[1073741824];", ".shared .b8 big[49153];", ".global .b8 big[1<<62];",
    "1<<63", "((((1", "__class__", "__import__", "import", "lambda", "None", "r0", "M", "w", "k0", "exec", "%\u0661", "\u00e9", "\ud800", "{}", "[]", "[%rd1", "%tid.x",
    "@%p1", "bra", "ret;", "exit;", "trap;", "bar.sync 0;", "call f, ();", "brx.idx %r1, ts;", ".loc 1 1 1", ".align 3", "_", ";", "::", ".v4", ".v8", "%clock64",
    "st.global.u32 [%rd1], %r1;", "ld.shared.b128 %r1, [0];", "atom.global.add.f32 %f1, [%rd1], %f1;", "mbarrier.init.shared.b64 [0], 1;",
    "wgmma.wait_group.sync.aligned 0;", "cp.async.wait_all;", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "shfl.sync.idx.b32 %r1, %r1, 0, 31, -1;",
    "ld.param.u64 %rd1, [%rd1+99999999999];", "alloca.u64 %rd1, %rd1;", "mov.b64 {%r1, %r2}, %rd1;", "\n" * 2000, "\t" * 2000, "a:" * 500, "{.reg .b32 a;}" * 60,
)  # fmt: skip
"""Pieces that are put into texts: deep, long, unended, names of generated source, statements that fault."""


@cache
def kernels() -> tuple[str, ...]:
    """Texts of recorded launches that are not long. Tables that are built once are built before the first of them."""
    refusal("a.spelling.that.does.not.exist")
    found = []
    for path in sorted(LAUNCHES.glob("*.npz")):
        with np.load(path) as file:
            found.append(str(file["ptx"]))
    return tuple(text for text in found if len(text) <= LARGEST)


def inputs(drawn: bytes) -> Iterator[str]:
    """Kernels with tokens deleted, doubled, swapped or replaced by others or by hostile pieces; some cut."""
    source = iter(drawn)
    while (first := next(source, None)) is not None:
        text = kernels()[first % len(kernels())]
        tokens = [(match.start(), match.end()) for match in TOKEN.finditer(text)]
        for _ in range(1 + next(source, 0) % 2):
            kind, a, b, c = (next(source, 0) for _ in range(4))
            start, end = tokens[(a << 8 | b) % len(tokens)]
            word = text[start:end]
            other = text[slice(*tokens[(b << 8 | c) % len(tokens)])]
            alike = [own for own in tokens[(c * 7) % len(tokens) :][:200] if text[own[0] : own[0] + 1] == word[:1]]
            same = text[slice(*alike[c % len(alike)])] if alike else other
            new = (
                same, same, same, same, same, same, "", word + " " + word, other, HOSTILE[c % len(HOSTILE)], word + HOSTILE[c % len(HOSTILE)],
                HOSTILE[c % len(HOSTILE)] + " " + word, word[::-1], str(c), f"%r{c}", word.rpartition(".")[0], word + "." + other,
            )[kind % 17]  # fmt: skip
            text = text[:start] + new + text[end:]
            if kind > 250:
                text = text[: start + c]
            tokens = [(match.start(), match.end()) for match in TOKEN.finditer(text)] or [(0, 0)]
        yield text


def call(text: str) -> object:
    """Read a text, and run every kernel of it for a moment."""
    module = parse(text)
    for name in module.kernels:
        kernel, memory = module.kernel(name), Memory()
        pointer = memory.allocate(1 << 12)
        values = [pointer if own.size == 8 else bytes(own.size) for own in kernel.params]
        limits = Limits(instructions=500, seconds=5.0)
        run = kernel.launch(memory, values, block=(64, 1, 1), arch="sm_90", limits=limits)
        assert run.completed or run.hazards
        assert all(found.name in HAZARDS for found in run.hazards)
    return module
