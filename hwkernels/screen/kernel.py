"""Probes that stay on their multiprocessor, compare there, and, to test the screening itself, flip a bit on one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwkernels.device.driver import Launch
from hwkernels.device.toolchain import assemble
from hwkernels.probes import body_of
from hwkernels.probes.probe import kernel_name, ptx_version
from hwkernels.screen.vectors import Vectors
from tcsim.model.row import Row

_PARAMETERS = ("screen_found", "screen_places")
"""Addresses: records of wrong results; of each block its multiprocessor, and how many of its results were wrong."""
_SCALARS = ("screen_samples", "screen_steps")
SLOTS = 32
"""Wrong results of a block that are recorded; all are counted."""
WORDS = 3
"""Of a record before the bits that differ: the sample, the thread of the block, the step."""
BLOCK = 512
"""Threads of a block whose warps each take a sample: four warps on each of a multiprocessor's four tensor cores."""
_WARPGROUP = 128
_STORE = re.compile(r"^ *st\.global\.[a-z](\d+) (\[[^\]]*\]), (%\w+);\n", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """A bit that is flipped in the first register of d, in the kernels' own code: what a broken multiprocessor would do."""

    multiprocessor: int
    bit: int  # of 32

    def ptx(self, register: str, size: int) -> str:
        """Before the register is compared."""
        return (
            f"    setp.eq.u32 %screen_test, %screen_sm, {self.multiprocessor};\n"
            f"    @%screen_test xor.b{size} {register}, {register}, {1 << self.bit};\n"
        )


def screening(text: str, agent: int, fault: Fault | None = None) -> str:
    """A probe's entry point that takes all samples in turn, many times, and compares in the place of storing.

    agent: threads that share a sample, 32 or 128. Agent i of a block begins with sample i, so that each of a multiprocessor's tensor cores gets
    every sample. d holds what is right. After the addresses of the probe come those of `screen_found`, (blocks, SLOTS, WORDS + registers), and
    `screen_places`, (blocks, 2), both zero before; after its other parameters the number of samples, and of steps.

    >>> text = ".visible .entry f(.param .u64 d, .param .u32 n)\\n{\\n    st.global.u32 [%a+0], %d0;\\n    ret;\\n}\\n"
    >>> print(screening(text, 32).splitlines()[0])
    .visible .entry f(.param .u64 d, .param .u64 screen_found, .param .u64 screen_places, .param .u32 n, .param .u32 screen_samples, .param .u32 screen_steps)
    """
    before, entry, listed, opening, body = re.split(r"(\.entry \w+\()([^)]*)(\)[^{]*\{\n)", text, maxsplit=1)
    parameters = [item.strip() for item in listed.split(",")]
    pointers = sum(".u64" in item for item in parameters)
    parameters[pointers:pointers] = [f".param .u64 {name}" for name in _PARAMETERS]
    parameters += [f".param .u32 {name}" for name in _SCALARS]
    own = {"%ctaid.x": "%screen_sample", "%ntid.x": str(agent), "%tid.x": "%screen_lane"}
    for name, register in own.items():
        body = body.replace(name, register)
    words = sum(int(bits) for bits, _, _ in _STORE.findall(body)) // 32
    if not words:
        raise ValueError("the kernel stores no register")
    compared, planted = iter(range(words)), iter([fault] if fault else [])

    def comparison(store: re.Match[str]) -> str:
        size, address, register = int(store[1]), store[2], store[3]
        first = "".join(own.ptx(register, size) for own in planted)  # before the first of them
        right = [f"%screen_d{next(compared)}" for _ in range(size // 32)]
        loaded = right[0] if size == 32 else "%screen_long"
        halves = f"    mov.b64 {{{', '.join(right)}}}, %screen_long;\n" if size == 64 else ""
        found = f"    ld.global.b{size} {loaded}, {address};\n    xor.b{size} {loaded}, {loaded}, {register};\n"
        return first + found + halves + "".join(f"    or.b32 %screen_any, %screen_any, {name};\n" for name in right)

    body = _STORE.sub(comparison, body)
    body = body.replace("    ret;\n", _record(words))
    return "".join([before, entry, ", ".join(parameters), opening, _head(agent, words), body])


def _head(agent: int, words: int) -> str:
    """Where the block runs, and the beginning of the loop."""
    return f"""    .reg .u32 %screen_sm, %screen_block, %screen_thread, %screen_lane, %screen_agent, %screen_samples, %screen_steps;
    .reg .u32 %screen_step, %screen_sample, %screen_any, %screen_slot;
    .reg .b32 %screen_d<{words}>;
    .reg .b64 %screen_long;
    .reg .u64 %screen_place, %screen_found;
    .reg .pred %screen_test;
    mov.u32 %screen_sm, %smid;
    mov.u32 %screen_block, %ctaid.x;
    mov.u32 %screen_thread, %tid.x;
    and.b32 %screen_lane, %screen_thread, {agent - 1};
    shr.u32 %screen_agent, %screen_thread, {agent.bit_length() - 1};
    ld.param.u32 %screen_samples, [screen_samples];
    ld.param.u32 %screen_steps, [screen_steps];
    ld.param.u64 %screen_found, [screen_found];
    ld.param.u64 %screen_place, [screen_places];
    mad.wide.u32 %screen_place, %screen_block, 8, %screen_place;
    st.global.u32 [%screen_place], %screen_sm;
    mov.u32 %screen_step, 0;
screen_again:
    add.u32 %screen_sample, %screen_step, %screen_agent;
    rem.u32 %screen_sample, %screen_sample, %screen_samples;
    mov.u32 %screen_any, 0;
"""


def _record(words: int) -> str:
    """In the place of `ret`: count and record what is wrong, and go on with the next sample."""
    stores = "".join(f"    st.global.u32 [%screen_long+{4 * (WORDS + i)}], %screen_d{i};\n" for i in range(words))
    return f"""    setp.eq.u32 %screen_test, %screen_any, 0;
    @%screen_test bra screen_next;
    atom.global.add.u32 %screen_slot, [%screen_place+4], 1;
    setp.ge.u32 %screen_test, %screen_slot, {SLOTS};
    @%screen_test bra screen_next;
    mad.lo.u32 %screen_slot, %screen_block, {SLOTS}, %screen_slot;
    mad.wide.u32 %screen_long, %screen_slot, {4 * (WORDS + words)}, %screen_found;
    st.global.u32 [%screen_long], %screen_sample;
    st.global.u32 [%screen_long+4], %screen_thread;
    st.global.u32 [%screen_long+8], %screen_step;
{stores}screen_next:
    bar.sync 0;
    add.u32 %screen_step, %screen_step, 1;
    setp.lt.u32 %screen_test, %screen_step, %screen_steps;
    @%screen_test bra screen_again;
    ret;
"""


def chained(text: str, given: Vectors) -> str:
    """A probe whose instruction runs as often as its vectors say, on its own result.

    A wgmma accumulates in place; the d of others becomes their c.
    """
    name = given.instruction.mnemonic
    (line,) = (line for line in text.splitlines(keepends=True) if line.lstrip().startswith(f"{name} "))
    return text.replace(line, line + line.replace("%c", "%d") * (given.chain - 1))


def assembled(batches: Sequence[Vectors], target: str, fault: Fault | None = None) -> bytes:
    """The machine code of the marked probes of all batches. Raises ToolchainError, AssembleError."""
    rows = [own.instruction.row for own in batches]
    head = f".version {ptx_version(rows, target)}\n.target {target}\n.address_size 64\n"
    kernels = (screening(kernel_of(own, target), agent_of(own.instruction.row), fault) for own in batches)
    return assemble(head + "".join(kernels), target).cubin


def kernel_of(given: Vectors, target: str) -> str:
    """The probe that a batch needs."""
    row, variant = given.instruction.row, variant_of(given)
    return chained(body_of(row).kernel_on(row, kernel_name(row, variant), variant, target), given)


def agent_of(row: Row) -> int:
    """Threads that execute the instruction together."""
    return _WARPGROUP if row.family.startswith("wgmma") else 32


def variant_of(given: Vectors) -> str:
    """The form of the probe that a batch needs."""
    row = given.instruction.row
    return body_of(row).plan(row, given.inputs).variant


def launch_of(given: Vectors, cubin: bytes, blocks: int, repeats: int, shared_bytes: int) -> Launch:
    """A block for each multiprocessor, which stays alone there: it takes all the shared memory. repeats: how often each agent takes every sample."""
    row = given.instruction.row
    plan = body_of(row).plan(row, given.inputs)
    samples, _, registers = given.expected.shape
    agent = agent_of(row)
    return Launch(
        cubin=cubin, kernel=kernel_name(row, plan.variant), inputs=(*plan.inputs, given.expected),
        outputs=(((blocks, SLOTS, WORDS + registers), np.uint32), ((blocks, 2), np.uint32)),
        scalars=(*plan.scalars, np.uint32(samples), np.uint32(samples * repeats)), grid=(blocks, 1, 1),
        block=(BLOCK if agent < _WARPGROUP else agent, 1, 1), shared_bytes=max(shared_bytes, plan.shared_bytes), poison=0,
    )  # fmt: skip
