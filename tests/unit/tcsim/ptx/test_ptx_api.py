"""Memory, modules, runs and hazards: what `tcsim.ptx` promises to programs that call it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcsim.core.errors import OperandError
from tcsim.ptx import HAZARDS, Hazard, LaunchError, Limits, Memory, PtxError, Run, parse
from tcsim.ptx.hazards.hazard import merged

ROOT = Path(__file__).resolve().parents[4]
HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"


def ran(body: str, threads: int = 64, before: str = "", memory: Memory | None = None, **options: Any) -> Run:
    text = f'{HEAD}.file 1 "a.cu"\n{before}\n.visible .entry k(.param .u64 p)\n{{\n{BEGIN}\n{body}\nret;\n}}\n'
    memory = memory or Memory()
    return parse(text).kernel().launch(memory, [memory.allocate(4096)], block=(threads, 1, 1), **options)


BEGIN = (
    ".reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x;"
)


# --- memory


def test_memory_is_mapped_at_any_address_and_neighbours_touch() -> None:
    memory = Memory()
    memory.map(0x1003, bytes(range(7)))
    memory.map(0x100A, np.arange(7, 20, dtype=np.uint8))
    memory.map(0x1002, b"\xff")
    assert memory.read(0x1002, 21).tolist() == [255, *range(20)]
    memory.write(0x1008, b"abcdef")
    assert memory.read(0x1007, 8).tobytes() == b"\x04abcdef\x0b"
    for address, data in ((0x1003, b"x"), (0x1016, b"x"), (0x1001, b"xyz"), (0x0FF0, bytes(0x100))):
        with pytest.raises(OperandError, match="overlaps"):
            memory.map(address, data)
    assert memory.read(0x1002, 1).tolist() == [255]


def test_memory_copies_what_it_is_given_and_gives() -> None:
    data = np.zeros(4, np.uint8)
    memory = Memory()
    memory.map(0x1000, data)
    data[:] = 1
    memory.read(0x1000, 4)[:] = 2
    assert memory.read(0x1000, 4).tolist() == [0] * 4


def aligned(size: int) -> Any:
    """Zero bytes at a multiple of 16."""
    data = np.zeros(size + 16, np.uint8)
    return data[-data.ctypes.data % 16 :][:size]


@pytest.mark.parametrize("processes", [1, 2])
def test_shared_memory_is_the_arrays_own(processes: int) -> None:
    data = aligned(4 * 64 + 3)  # the last word is not whole
    memory = Memory()
    pointer = memory.share(data)
    text = f"{HEAD}.visible .entry k(.param .u64 p) {{ {BEGIN} mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 32, %r1;"
    text += "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], %r1; ret; }"
    kernel = parse(text).kernel()
    run = kernel.launch(memory, [pointer], (2, 1, 1), (32, 1, 1), limits=Limits(processes=processes))
    assert run.completed and pointer == data.ctypes.data
    assert data[:256].view(np.uint32).tolist() == list(range(64)) and not data[256:].any()
    beyond = kernel.launch(memory, [pointer], (3, 1, 1), (32, 1, 1))
    assert [item.name for item in beyond.hazards] == ["GMEM_UNMAPPED"] and not data[256:].any()
    data[:] = 9
    assert memory.read(pointer, len(data)).tolist() == [9] * len(data)
    memory.release(pointer)
    with pytest.raises(OperandError, match="nothing is mapped"):
        memory.read(pointer, 1)


@pytest.mark.parametrize("wrong", [aligned(32)[1:], aligned(32)[::2], aligned(32).view(np.uint16), bytes(32)])
def test_what_cannot_be_shared(wrong: Any) -> None:
    with pytest.raises(OperandError, match=r"Memory.share: valid: .* at a multiple of 16"):
        Memory().share(wrong)


def test_allocations_are_aligned_and_apart() -> None:
    memory = Memory()
    memory.map(memory.allocate(1) + 512, b"in the way")
    found = [memory.allocate(size) for size in (0, 1, 511, 512, 513)] + [memory.allocate(b"abc")]
    assert all(address % 512 == 0 for address in found) and len(set(found)) == len(found)
    assert memory.read(found[-1], 3).tobytes() == b"abc" and not memory.read(found[3], 512).any()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda m: m.map(0, b"a"), "from 1"),
        (lambda m: m.map(-1, b"a"), "from 1"),
        (lambda m: m.map(1.5, b"a"), "integers"),
        (lambda m: m.map(1 << 60, b"a"), "valid"),
        (lambda m: m.map(0x1000, "text"), "valid: bytes"),
        (lambda m: m.map(0x1000, np.zeros(2)), "uint8"),
        (lambda m: m.map(0x1000, np.zeros((2, 2), np.uint8)), "one dimension"),
        (lambda m: m.allocate(-1), "valid: 0"),
        (lambda m: m.allocate(1 << 50), "valid: 0"),
        (lambda m: m.allocate("x"), "valid: bytes"),
        (lambda m: m.read(0x1000, 4), "nothing is mapped"),
        (lambda m: m.read(0x1000, -1), "integers from 0"),
        (lambda m: m.write(0x1000, b"a"), "nothing is mapped"),
        (lambda m: m.symbol("module", "x"), "tcsim.ptx.parse"),
        (lambda m: m.symbol(parse(HEAD + ".global .b32 abc;"), "abd"), "nearest: abc"),
    ],
)
def test_wrong_use_of_memory(call: Any, expected: str) -> None:
    with pytest.raises(OperandError, match=re.escape(expected)):
        call(Memory())


def test_a_modules_variables_live_in_the_memory_they_first_ran_in() -> None:
    text = HEAD + ".global .b32 count = 5;\n.const .b32 step[2] = {3, 4};\n.visible .entry k() { .reg .b32 %r<3>;" + (
        "ld.global.u32 %r0, [count]; ld.const.u32 %r1, [step+4]; add.u32 %r0, %r0, %r1; st.global.u32 [count], %r0; ret; }"
    )  # fmt: skip
    module, memory, other = parse(text), Memory(), Memory()
    for _ in range(3):
        assert module.kernel().launch(memory, []).completed
    module.kernel().launch(other, [])
    assert memory.read(memory.symbol(module, "count"), 4).view(np.uint32)[0] == 5 + 3 * 4
    assert other.read(other.symbol(module, "count"), 4).view(np.uint32)[0] == 9
    memory.write(memory.symbol(module, "count"), bytes(4))
    module.kernel().launch(memory, [])
    assert memory.read(memory.symbol(module, "count"), 4).view(np.uint32)[0] == 4


def test_a_kernel_says_what_it_is() -> None:
    module = parse(
        HEAD
        + ".extern .shared .b8 s[];\n.entry a(.param .u32 x) { .reg .b32 %r; mov.b32 %r, s; ret; }\n.entry b() { ret; }"
    )
    a, b = module.kernel("a"), module.kernel("b")
    assert (a.name, a.target, a.dynamic_smem, b.dynamic_smem) == ("a", "sm_90", True, False)
    assert [(own.name, own.type, own.size) for own in a.params] == [("x", "u32", 4)] and b.params == ()


# --- hazards

FAULTS = {  # name: statements, options, thread
    "TRAP": ("setp.eq.u32 %p1, %r1, 7; @%p1 trap;", {}, 7),
    "GMEM_UNMAPPED": ("mov.u64 %rd2, 64; ld.global.u32 %r2, [%rd2];", {}, 0),
    "ADDRESS_MISALIGNED": ("ld.global.u32 %r2, [%rd1+2];", {}, 0),
    "SMEM_OUT_OF_RANGE": ("mov.u32 %r2, 300000; ld.shared.u32 %r2, [%r2];", {}, 0),
    "LOCAL_OUT_OF_RANGE": (".local .b8 x[64]; mov.u64 %rd2, x; ld.local.u32 %r2, [%rd2+4096];", {}, 0),
    "PARAM_OUT_OF_RANGE": ("mov.u64 %rd2, 4096; ld.param.u32 %r2, [%rd2];", {}, 0),
    "STACK_OVERFLOW": ("mov.u64 %rd2, 100000; alloca.u64 %rd3, %rd2;", {}, 0),
    "LIMIT": ("L: add.u32 %r2, %r2, 1; bra L;", {"limits": Limits(instructions=1000)}, None),
    "DEADLOCK": ("setp.eq.u32 %p1, %r1, 7; @%p1 bra L; bar.sync 0, 96; L:", {}, None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_the_kernel_does_wrong_is_a_hazard(name: str) -> None:
    body, options, thread = FAULTS[name]
    memory = Memory()
    run = ran(f"st.global.u32 [%rd1+64], 77;\n.loc 1 42 5\n{body}", memory=memory, grid=(3, 1, 1), **options)
    *causes, found = run.hazards
    assert [own.name for own in causes] == (["BARRIER_COUNT"] if name == "DEADLOCK" else [])
    assert not run.completed and (found.name, found.severity, found.count) == (name, "error", 1)
    assert found.block == (0, 0, 0) and (thread is None or found.thread == thread)
    if thread is not None:
        assert (found.line, found.source) == (11, "a.cu:42")
    assert found.as_dict()["name"] == name and json.dumps(found.as_dict()) and name in str(found)
    assert memory.read(0x7000_0000_0000 + 64, 4).view(np.uint32)[0] == 77  # memory as it was when it stopped


def test_every_name_that_the_machine_raises_is_in_the_table() -> None:
    pattern = re.compile(r"\b(?:Stop|MemoryFault)\(\s*\"([A-Z_]+)\"")
    used = {
        name
        for path in (ROOT / "tcsim" / "ptx").rglob("*.py")
        for name in pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert {"TRAP", "LIMIT", "GMEM_UNMAPPED", "INVALID_PC"} <= used <= set(HAZARDS)
    for rule in HAZARDS.values():
        assert (
            rule.severity in ("error", "strict", "repaired", "perf")
            and rule.sentence.endswith(".")
            and rule.section
            and rule.source
        )


def test_hazards_of_one_place_are_one() -> None:
    found = merged([Hazard("TRAP", "a", 1), Hazard("TRAP", "b", 2), Hazard("TRAP", "c", 1), Hazard("TRAP", "d", 1, 5)])
    assert [(own.message, own.count) for own in found] == [("a", 2), ("b", 1), ("d", 1)]


def test_a_launch_tells_how_far_it_is() -> None:
    told: list[tuple[int, int, int]] = []
    run = ran("", grid=(5, 1, 1), progress=lambda *how_far: told.append(how_far))
    assert told and {total for _, total, _ in told} == {5}
    assert [ended for ended, _, _ in told] == sorted(ended for ended, _, _ in told) and told[-1][0] >= 4
    assert 0 < told[0][2] <= told[-1][2] == run.instructions  # blocks of one batch end together


def test_blocks_of_a_cooperative_launch_wait_for_each_other() -> None:
    """Each waits until all have come, in a loop that also writes: so nothing shows that it only spins."""
    body = """atom.global.add.u32 %r2, [%rd1], 1;
        WAIT: add.u32 %r3, %r3, 1; st.global.u32 [%rd1 + 8], %r3; ld.volatile.global.u32 %r2, [%rd1];
        setp.lt.u32 %p1, %r2, 6; @%p1 bra WAIT;"""
    run = ran(body, 1, grid=(6, 1, 1), cooperative=True, limits=Limits(instructions=200_000, processes=2))
    assert run.completed and not run.hazards and run.instructions < 200_000
    assert [own.name for own in ran(body, 1, grid=(6, 1, 1), limits=Limits(instructions=200_000)).hazards] == ["LIMIT"]


def test_runs_repeat() -> None:
    """The same inputs, schedule and version: the same memory, hazards in the same order, the same counts."""
    body = "atom.global.add.f32 %f1, [%rd1], 0f3DCCCCCD; ex2.approx.f32 %f2, %f1; st.global.f32 [%rd1+8], %f2; ld.global.u32 %r2, [%rd1+1];"
    found = []
    for _ in range(3):
        memory = Memory()
        run = ran(body, memory=memory, schedule=5)
        found.append(
            (
                [own.as_dict() for own in run.hazards],
                run.inexact,
                run.instructions,
                memory.read(0x7000_0000_0000, 64).tobytes(),
            )
        )
    assert found[0] == found[1] == found[2] and found[0][0]


# --- limits


@pytest.mark.parametrize(
    ("body", "limits", "which"),
    [
        ("L: add.u32 %r2, %r2, 1; bra L;", Limits(instructions=500), "instructions"),
        ("L: add.u32 %r2, %r2, 1; bra L;", Limits(seconds=0.05), "seconds"),
        (".local .b8 x[4096]; mov.u64 %rd2, x;", Limits(memory=200_000), "memory"),
        ("mov.u64 %rd2, 8192; alloca.u64 %rd3, %rd2;", Limits(memory=200_000), "memory"),
    ],
)
def test_limits_end_a_run(body: str, limits: Limits, which: str) -> None:
    run = ran(body, limits=limits)
    assert not run.completed and [(own.name, own.detail) for own in run.hazards] == [("LIMIT", {"limit": which})]


def test_limits_of_texts_and_variables() -> None:
    text = HEAD + ".global .b8 x[1000];\n.entry k() { { { ret; } } }"
    assert parse(text, Limits(characters=len(text), nesting=3)).kernels == ("k",)
    with pytest.raises(PtxError, match=f"valid: up to {len(text) - 1}"):
        parse(text, Limits(characters=len(text) - 1))
    with pytest.raises(PtxError, match="deeper than 2"):
        parse(text, Limits(nesting=2))
    with pytest.raises(LaunchError, match="variables have 1000 bytes; valid: up to 999"):
        parse(text).kernel().launch(Memory(), [], limits=Limits(memory=999))


def test_generated_source_has_no_text_of_the_module() -> None:
    """Names that would mean something to Python are names of registers, labels and variables here."""
    body = """
  .reg .b32 import, __class__, lambda, M, w, R, np, exec; .reg .pred if;
  mov.b32 import, 1; mov.b32 __class__, 2; add.u32 lambda, import, __class__; mov.b32 M, lambda; mov.b32 w, M; mov.b32 R, w; mov.b32 np, R;
  setp.eq.u32 if, np, 3; @!if trap; bra while; while: mov.b32 exec, np; st.global.u32 [%rd1], exec;
"""
    text = f"{HEAD}.visible .entry __init__(.param .u64 p)\n{{\n{BEGIN}\n{body}\nret;\n}}\n"
    memory = Memory()
    kernel = parse(text).kernel("__init__")
    assert kernel.launch(memory, [memory.allocate(64)]).completed
    source = kernel.compiled(memory, "sm_90").source
    words = set(re.findall(r"[A-Za-z_]\w*", source))
    assert not words & {"import", "__class__", "lambda", "exec", "while", "__init__", "tid"}
    assert memory.read(0x7000_0000_0000, 4).view(np.uint32)[0] == 3
