"""`python -m conformance.isa.mbarrier.shortfall OUT`: what an mbarrier does that expects other bytes than its copies bring, asked of a GPU.

A phase ends when no arrival is pending and the transaction count is zero. If fewer bytes are expected than come, the count is zero on the way, or is
never: that depends on the portions in which the copies tell their bytes, which the PTX manual does not say. An H200 tells up to 64 bytes, or more, at
once, and not always in the same portions: the phase may end early where 64 divides what is expected, and never ends elsewhere. Each question is a
launch of its own: one thread expects the bytes and arrives, copies bring theirs, and after a while it asks whether the phase under way has ended, and
the next one; `mbarrier.inval` then writes the object into memory, with what is left of the count. No wait is without an end. Writes
OUT/mbarrier_shortfall.json; `--keep` makes the objects the recording.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from hwkernels.device.driver import Context, Launch, device_info
from hwkernels.device.errors import CudaError
from hwkernels.device.toolchain import assemble, find_toolchains
from tcsim.core.files import write_file
from tcsim.memory import mbarrier_bits

TARGET, THREADS, BLOCKS, SECONDS = "sm_90a", 64, 2, 30
NAME = "mbarrier_shortfall.json"
RECORDING = Path(__file__).parents[2] / "recordings" / "sm_90" / "mbarrier-shortfall.json"

_SEND = "@%on st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
_COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_BETWEEN = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
KINDS = {
    "st.async.b32": (4, _SEND + ".b32 [%to], %t, [%there];"),
    "st.async.b32, peer": (4, _SEND + ".b32 [%to], %t, [%there];"),
    "st.async.v4, peer": (16, _SEND + ".v4.b32 [%to], {%t, %t, %t, %t}, [%there];"),
    "bulk of each": (16, f"@%on {_COPY} [%to], [%from], 16, [%there];"),
    "bulk": (16, f"@%p {_COPY} [%r], [%a], %bytes, [%there];"),
    "bulk, peer": (16, f"@%p {_BETWEEN} [%r], [region], %bytes, [%there];"),
}
"""What brings the bytes: how many each of the first threads brings, and the instruction. "bulk": one copy brings them all. To the block's own shared
memory, or that of its peer, which does the same. (Without a cluster st.async is an illegal instruction on an H200.)"""
QUESTIONS = tuple(
    (kind, units, expected)
    for kind, units, several in (
        ("st.async.b32", 1, (4, 8, 0)), ("st.async.b32", 32, (128, 132, 124, 112, 64, 16, 0)),
        ("st.async.b32, peer", 2, (8, 4)), ("st.async.b32, peer", 32, (128, 124, 120, 112, 96, 64, 32, 16, 4, 0)),
        ("st.async.b32, peer", 64, (256, 252, 240, 192, 160, 128, 124, 64, 0)),
        ("st.async.v4, peer", 1, (16, 8, 0)), ("st.async.v4, peer", 2, (32, 16)), ("st.async.v4, peer", 8, (128, 112, 64, 16)),
        ("st.async.v4, peer", 32, (512, 496, 480, 448, 384, 256, 128, 64, 16, 0)),
        ("bulk of each", 2, (32, 16)), ("bulk of each", 32, (512, 496, 256, 16)),
        ("bulk", 1, (16, 0)), ("bulk", 8, (128, 112, 64, 32, 16)), ("bulk", 16, (256, 240, 192, 128, 64, 16)),
        ("bulk", 64, (1024, 1008, 896, 768, 512, 256, 128, 64, 16, 1040)), ("bulk", 128, (2048, 2032, 1024, 512, 128)),
        ("bulk, peer", 16, (256, 240, 192, 128, 64, 32, 16)), ("bulk, peer", 64, (1024, 896, 512, 256, 128, 64)),
    )
    for expected in several
)  # fmt: skip
"""What brings the bytes, how many units of it, and the bytes expected."""


def ptx(kind: str) -> str:
    """The kernel of a kind: units, bytes expected; two answers, and the object."""
    return f""".version 8.3
.target {TARGET}
.address_size 64
.visible .entry ask(.param .u64 numbers, .param .u64 source, .param .u64 out) .reqntid {THREADS}, 1, 1 .reqnctapercluster {BLOCKS}, 1, 1
{{
    .reg .pred %p, %on, %done, %next; .reg .b32 %t, %s, %r, %to, %units, %bytes, %expected, %n, %first, %second, %there; .reg .b64 %a, %from, %out, %object;
    .shared .align 128 .b8 region[2048]; .shared .align 8 .b8 barrier[8];
    mov.u32 %t, %tid.x; mov.u32 %s, barrier; mov.u32 %r, region; setp.eq.u32 %p, %t, 0;
    ld.param.u64 %a, [numbers]; ld.global.u32 %units, [%a]; ld.global.u32 %expected, [%a+4];
    mov.u32 %n, %cluster_ctarank; xor.b32 %n, %n, {1 if ", peer" in kind else 0}; mapa.shared::cluster.u32 %there, %s, %n; mapa.shared::cluster.u32 %r, %r, %n;
    ld.param.u64 %a, [source]; ld.param.u64 %out, [out]; setp.lt.u32 %on, %t, %units;
    mad.lo.u32 %to, %t, {KINDS[kind][0]}, %r; mad.wide.u32 %from, %t, 16, %a; mul.lo.u32 %bytes, %units, 16;
    @%p mbarrier.init.shared::cta.b64 [%s], 1;
    @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], %expected;
    barrier.cluster.arrive; barrier.cluster.wait;
    {KINDS[kind][1]}
    @!%p bra END;
    mov.u32 %n, 0;
    WAIT:
    nanosleep.u32 100; add.u32 %n, %n, 1; setp.lt.u32 %on, %n, 1000;
    @%on bra WAIT;
    mbarrier.test_wait.parity.shared::cta.b64 %done, [%s], 0;
    selp.u32 %first, 1, 0, %done; selp.u32 %second, 1, 0, %done;
    @!%done bra ASKED;
    mbarrier.test_wait.parity.shared::cta.b64 %next, [%s], 1;
    selp.u32 %second, 1, 0, %next;
    ASKED:
    mbarrier.inval.shared::cta.b64 [%s];
    ld.volatile.shared.u64 %object, [%s];
    mov.u32 %n, %cluster_ctarank; setp.ne.u32 %p, %n, 0;
    @%p bra END;
    cvt.u64.u32 %a, %first; st.global.u64 [%out], %a; cvt.u64.u32 %a, %second; st.global.u64 [%out+8], %a; st.global.u64 [%out+16], %object;
    END:
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
}}
"""


def brought(kind: str, units: int) -> int:
    """The bytes that come."""
    return KINDS[kind][0] * units


def name_of(kind: str, units: int, expected: int) -> str:
    """A question in one line."""
    return f"{kind}: {brought(kind, units)} bytes of {units} units, {expected} expected"


def hardware(kind: str, units: int, expected: int, cubin: bytes) -> dict[str, Any]:
    """What a GPU does: whether the phase ended, and what the object says then."""
    numbers, source = np.array([units, expected], np.uint32), np.zeros(4096, np.uint8)
    launch = Launch(cubin, "ask", (numbers, source), (((3,), np.uint64),), grid=(BLOCKS, 1, 1), block=(THREADS, 1, 1))
    try:
        with Context(0) as context:
            (found,) = context.run(launch)
    except CudaError as error:
        return {"fault": str(error)}
    fields = mbarrier_bits.unpack(int(found[2]), "sm_90")
    return {
        "ended": bool(found[0]),
        "object": f"{int(found[2]):#018x}",
        "fields": {key: int(own) for key, own in fields.items()},
    }


def ask(workers: int) -> dict[str, dict[str, Any]]:
    """What the GPU does, by question; each in a new process, since a fault loses the context."""
    cubins = {kind: assemble(ptx(kind), TARGET, allow_notes=True).cubin for kind in KINDS}
    found: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        waiting = {own: pool.submit(hardware, *own, cubins[own[0]]) for own in QUESTIONS}
        for (kind, units, expected), future in waiting.items():
            name = name_of(kind, units, expected)
            try:
                found[name] = future.result(timeout=SECONDS)
            except TimeoutError:
                found[name] = {"fault": f"no answer in {SECONDS} s"}
            except Exception as error:  # the process died
                found[name] = {"fault": f"{type(error).__name__}: {error}"}
            print(f"{name}: {found[name]}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask and write, or keep."""
    parser = argparse.ArgumentParser(prog="python -m conformance.isa.mbarrier.shortfall", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--keep", action="store_true", help="ask nobody: make what is there the recording")
    given = parser.parse_args(arguments)
    if given.keep:
        found = json.loads((given.folder / NAME).read_text(encoding="utf-8"))
        objects = {name: row.get("object", row.get("fault")) for name, row in found.pop("answers").items()}
        write_file(RECORDING, json.dumps(found | {"objects": objects}, indent=1) + "\n")
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    answers = ask(given.workers)
    gpu = device_info()
    header = {"gpu": gpu.name, "driver": gpu.driver_version, "assembler": find_toolchains()[0].version}
    found = header | {"date": datetime.date.today().isoformat(), "target": TARGET, "answers": answers}
    write_file(given.folder / NAME, json.dumps(found, indent=1) + "\n")
    return int(not answers)


if __name__ == "__main__":
    sys.exit(main())
