"""`python -m conformance.isa.mbarrier.limits OUT`: what the lanes of a warp may tell one mbarrier in one instruction, asked of a GPU.

The model says: their bytes, or their arrivals, are one number, which faults where a single lane's would: 2**20 bytes, a transaction
count beyond 2**20 - 1, or more arrivals than are pending. Each question is a launch at one side of such a border. It runs in a process
of its own, since a fault loses the context, at most 30 s. Writes OUT/mbarrier_limits.json: of every question what the model predicts and
what the hardware did, a fault or the 64 bits of the object afterwards. Exit 1 if one differs. `--predict` asks the model alone, `--keep`
writes the recording of what is in OUT: which launches faulted.

A load of an object gives what memory held before, 0, because the hardware keeps it elsewhere (`conformance.isa.mbarrier.held`). So only
the faults are recorded.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import tcsim.ptx
from hwkernels.device.driver import Context, Launch, device_info
from hwkernels.device.errors import CudaError
from hwkernels.device.toolchain import assemble, find_toolchains
from tcsim.core.files import write_file

TARGET, THREADS, SECONDS = "sm_90a", 64, 30
MOST = (1 << 20) - 1
_FILL = 0xA5
NAME = "mbarrier_limits.json"
RECORDING = Path(__file__).parents[2] / "recordings" / "sm_90" / "mbarrier-limits.json"
"""Which of the launches faulted on an H200; null: no answer."""

KINDS = {
    "expect_tx": "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s], %n;",
    "complete_tx": "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%s], %n;",
    "arrive": "mbarrier.arrive.shared::cta.b64 %state, [%s], %n;",
    "arrive_drop": "mbarrier.arrive_drop.shared::cta.b64 %state, [%s], %n;",
    "arrive.expect_tx": "mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%s], %n;",
}
"""The instruction that the lanes execute together, by what it tells."""


@dataclass(frozen=True)
class Question:
    """One instruction of some threads at one barrier, each with a number of its own."""

    kind: str
    numbers: tuple[int, ...]  # of the first threads; 0: the thread does not execute it
    expected: int = 64  # arrivals that the barrier waits for
    bytes: int = 0  # that were expected before; negative: that were complete

    @property
    def name(self) -> str:
        """What is asked, in one line."""
        told = [number for number in self.numbers if number]
        before = f", {self.bytes} bytes before" if self.bytes else ""
        return (
            f"{self.kind}: {len(told)} lanes, {sum(told)} in all, largest {max(told)}; {self.expected} arrivals{before}"
        )

    @property
    def inputs(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Of the kernel: a number for each thread, and what comes before."""
        numbers = np.zeros(THREADS, np.uint32)
        numbers[: len(self.numbers)] = self.numbers
        return numbers, np.array([self.expected, max(self.bytes, 0), max(-self.bytes, 0)], np.uint32)


def ptx(kind: str) -> str:
    """The module that asks questions of a kind: numbers, what comes before, and 16 bytes for the object and a mark."""
    return f""".version 8.3
.target {TARGET}
.address_size 64
.visible .entry ask(.param .u64 numbers, .param .u64 before, .param .u64 out) .reqntid {THREADS}, 1, 1
{{
    .reg .pred %p, %on; .reg .b32 %t, %s, %n, %r<4>; .reg .b64 %a, %b, %out, %state, %object;
    .shared .align 8 .b8 barrier[8];
    mov.u32 %t, %tid.x; mov.u32 %s, barrier; setp.eq.u32 %p, %t, 0;
    ld.param.u64 %a, [numbers]; ld.param.u64 %b, [before]; ld.param.u64 %out, [out];
    mad.wide.u32 %a, %t, 4, %a; ld.global.u32 %n, [%a]; setp.ne.u32 %on, %n, 0;
    ld.global.u32 %r1, [%b]; ld.global.u32 %r2, [%b+4]; ld.global.u32 %r3, [%b+8];
    @%p mbarrier.init.shared::cta.b64 [%s], %r1;
    @%p mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s], %r2;
    @%p mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%s], %r3;
    bar.sync 0;
    @%on {KINDS[kind]}
    bar.sync 0;
    ld.volatile.shared.u64 %object, [%s];
    @%p st.global.u64 [%out], %object;
    @%p st.global.u64 [%out+8], 1;
    ret;
}}
"""


def spread(total: int, lanes: int) -> tuple[int, ...]:
    """A number for each of some lanes, as equal as can be, that add up to a total."""
    return tuple(total // lanes + (lane < total % lanes) for lane in range(lanes))


def _questions() -> Iterator[Question]:
    for kind in ("expect_tx", "complete_tx"):
        sign = 1 if kind == "expect_tx" else -1
        for lanes in (1, 2, 3, 5, 8, 16, 31, 32):
            for total in (MOST, MOST + 1, MOST + lanes + 1):
                yield Question(kind, spread(total, lanes))
        for lanes in (1, 32):
            for total in (MOST - 1000, MOST - 999):  # with what was told before
                yield Question(kind, spread(total, lanes), bytes=sign * 1000)
        for lanes in (2, 32):  # more than 2**20 at once, though the count stays within its range
            for total in (MOST, MOST + 1, MOST + 500):
                yield Question(kind, spread(total, lanes), bytes=-sign * 1000)
        for each in (MOST // 32, MOST // 32 + 1):  # two warps, each with half the lanes or all
            yield Question(kind, (each,) * 16 + (0,) * 16 + (each,) * 16)
            yield Question(kind, (each,) * 64)
    for kind in ("arrive", "arrive_drop"):
        for lanes in (1, 2, 5, 20, 31, 32):
            for total in (40, 41):
                yield Question(kind, spread(total, lanes), 40)
        for expected in (31, 32, 33):
            yield Question(kind, (1,) * 32, expected)
        for expected in (32, 48, 63, 64, 65):  # two warps, one after the other
            yield Question(kind, (1,) * 64, expected)
    for each in (MOST // 32, MOST // 32 + 1):
        yield Question("arrive.expect_tx", (each,) * 32)
        yield Question("arrive.expect_tx", (each,) * 31 + (0,))
    for expected in (31, 32, 33):
        yield Question("arrive.expect_tx", (16,) * 32, expected)


@cache
def questions() -> dict[str, Question]:
    """Every question by its name."""
    return {f"{number:03}: {own.name}": own for number, own in enumerate(_questions())}


def predicted(question: Question) -> dict[str, Any]:
    """What the model says: a fault, or the object."""
    memory = tcsim.ptx.Memory()
    pointers = [memory.allocate(array.view(np.uint8)) for array in question.inputs]
    out = memory.allocate(np.full(16, _FILL, np.uint8))
    run = tcsim.ptx.parse(ptx(question.kind)).kernel().launch(memory, [*pointers, out], block=(THREADS, 1, 1))
    if run.completed:
        return {"fault": False, "object": f"{int(memory.read(out, 8).view(np.uint64)[0]):#018x}"}
    return {"fault": True, "why": run.hazards[0].message}


def hardware(question: Question, cubin: bytes) -> dict[str, Any]:
    """What a GPU does: a fault, or the object."""
    launch = Launch(cubin, "ask", question.inputs, (((2,), np.uint64),), block=(THREADS, 1, 1))
    try:
        with Context(0) as context:
            (found,) = context.run(launch)
    except CudaError as error:
        return {"fault": True, "why": str(error)}
    if found[1] != 1:
        return {"fault": None, "why": f"the mark is {int(found[1]):#x}: the kernel did not come to its end"}
    return {"fault": False, "object": f"{int(found[0]):#018x}"}


def ask(workers: int) -> dict[str, dict[str, Any]]:
    """What the GPU does, by question; each in a new process."""
    cubins = {kind: assemble(ptx(kind), TARGET, allow_notes=True).cubin for kind in KINDS}
    found: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        waiting = {name: pool.submit(hardware, own, cubins[own.kind]) for name, own in questions().items()}
        for name, future in waiting.items():
            try:
                found[name] = future.result(timeout=SECONDS)
            except TimeoutError:
                found[name] = {"fault": None, "why": f"no answer in {SECONDS} s"}
            except Exception as error:  # the process died
                found[name] = {"fault": None, "why": f"{type(error).__name__}: {error}"}
    return found


def agrees(model: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether both fault, or neither does and the objects are the same."""
    return found.get("fault") == model["fault"] and found.get("object") == model.get("object")


def keep(folder: Path) -> Path:
    """Write the recording of the answers in a folder."""
    found = json.loads((folder / NAME).read_text(encoding="utf-8"))
    faults = {name: row["hardware"]["fault"] for name, row in found.pop("questions").items()}
    write_file(RECORDING, json.dumps(found | {"faults": faults}, indent=1) + "\n")
    return RECORDING


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, write, count; 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m conformance.isa.mbarrier.limits", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--predict", action="store_true", help="ask the model alone")
    parser.add_argument("--keep", action="store_true", help="ask nobody: write the recording of what is there")
    given = parser.parse_args(arguments)
    if given.keep:
        print(keep(given.folder))
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    model = {name: predicted(own) for name, own in questions().items()}
    found = {} if given.predict else ask(given.workers)
    rows = {
        name: {"predicted": model[name]}
        | ({"hardware": found[name], "agrees": agrees(model[name], found[name])} if found else {})
        for name in model
    }
    header: dict[str, Any] = {"date": datetime.date.today().isoformat(), "target": TARGET}
    if found:
        gpu = device_info()
        header |= {"gpu": gpu.name, "driver": gpu.driver_version, "assembler": find_toolchains()[0].version}
    path = given.folder / NAME
    write_file(path, json.dumps(header | {"questions": rows}, indent=1) + "\n")
    wrong = [name for name, row in rows.items() if row.get("agrees") is False]
    for name in wrong:
        print(f"{name}\n  model {rows[name]['predicted']}\n  hardware {rows[name]['hardware']}")
    faults = sum(row["fault"] for row in model.values())
    print(f"{len(rows)} questions: the model predicts {faults} faults; asked {len(found)}, {len(wrong)} differ; {path}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
