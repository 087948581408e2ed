"""`python -m conformance.isa.mbarrier.held OUT`: where an mbarrier object is, asked of a GPU with plain loads, which the PTX manual does not allow.

An H200 keeps the objects of 32 barriers beside shared memory. `mbarrier.init` makes one there, and the 8 bytes in memory stay as they were:
loads, through the cluster window too, see the old ones, and stores do not change the object. `mbarrier.inval` writes the object into memory;
so does making room for the 33rd. An object that is not kept is read from memory when it is used next. Each question is a kernel of
one thread, in a process of its own. Writes OUT/mbarrier_held.json; `--keep` makes it the recording.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from hwkernels.device.driver import Context, Launch, device_info
from hwkernels.device.toolchain import assemble, find_toolchains
from tcsim.core.files import write_file

TARGET, WORDS = "sm_90a", 6
NAME = "mbarrier_held.json"
RECORDING = Path(__file__).parents[2] / "recordings" / "sm_90" / "mbarrier-held.json"
FILL = 0x1122334455667788

_LOAD = "ld.volatile.shared.u64 %o{}, [%s];"
_INIT, _ARRIVE, _INVAL = (
    "mbarrier.init.shared.b64 [%s], 96;", "mbarrier.arrive.shared.b64 %o{}, [%s];", "mbarrier.inval.shared.b64 [%s];",
)  # fmt: skip
_FILL = f"mov.b64 %g, {FILL}; st.volatile.shared.u64 [%s], %g;"


def _many(count: int) -> str:
    """Make `count` objects and count those that have reached memory, in %o0; %o1 and %o2 are the first word and the last."""
    return (
        f"mov.u32 %n, 0; A: mad.lo.u32 %m, %n, 8, %s; mbarrier.init.shared.b64 [%m], 96; add.u32 %n, %n, 1; setp.lt.u32 %p, %n, {count}; @%p bra A;"
        "mov.u32 %n, 0; mov.u32 %t, 0; B: mad.lo.u32 %m, %n, 8, %s; ld.volatile.shared.u64 %g, [%m]; setp.ne.u64 %p, %g, 0; @%p add.u32 %t, %t, 1;"
        f"add.u32 %n, %n, 1; setp.lt.u32 %p, %n, {count}; @%p bra B; cvt.u64.u32 %o0, %t;"
        + _LOAD.format(1) + f"ld.volatile.shared.u64 %o2, [%s+{8 * (count - 1)}];"
    )  # fmt: skip


QUESTIONS = {
    "init": _INIT + _LOAD.format(0) + "membar.cta; fence.proxy.async; nanosleep.u32 10000;" + _LOAD.format(1),
    "fill, init": _FILL + _INIT + _LOAD.format(0),
    "init, arrive, inval": _INIT + _ARRIVE.format(0) + _LOAD.format(1) + _INVAL + _LOAD.format(2),
    "init, inval, init": _INIT + _INVAL + "mbarrier.init.shared.b64 [%s], 5;" + _LOAD.format(0) + _INVAL + _LOAD.format(1),
    "init, store, arrive, inval": _INIT + _FILL + _ARRIVE.format(0) + _LOAD.format(1) + _INVAL + _LOAD.format(2),
    "an object stored": "mov.b64 %g, 0x7ffd0000001fff40; st.volatile.shared.u64 [%s], %g;" + _ARRIVE.format(0) + _LOAD.format(1) + _ARRIVE.format(2) + _INVAL + _LOAD.format(3),
    "a phase": "mbarrier.init.shared.b64 [%s], 1;" + _ARRIVE.format(0) + _INVAL + _LOAD.format(1),
    "through the cluster": _INIT + "mapa.shared::cluster.u32 %m, %s, 0; ld.volatile.shared::cluster.u64 %o0, [%m];",
    **{f"{count} objects": _many(count) for count in (31, 32, 33, 64, 1024)},
}  # fmt: skip
"""What the one thread does, and which words it stores: %o0 to %o5."""


def ptx(body: str) -> str:
    """The kernel of a question."""
    stores = "".join(f"st.global.u64 [%out+{8 * number}], %o{number};" for number in range(WORDS))
    clear = "".join(f"mov.b64 %o{number}, 0;" for number in range(WORDS))
    return f""".version 8.3
.target {TARGET}
.address_size 64
.visible .entry ask(.param .u64 out) .reqntid 1, 1, 1
{{
    .reg .pred %p; .reg .b32 %s, %n, %m, %t; .reg .b64 %out, %g, %o<{WORDS}>;
    .shared .align 16 .b8 region[8192];
    mov.u32 %s, region; ld.param.u64 %out, [out]; {clear}
    {body} {stores} ret;
}}
"""


def answer(name: str) -> list[str]:
    """What a GPU says to a question."""
    launch = Launch(
        assemble(ptx(QUESTIONS[name]), TARGET, allow_notes=True).cubin,
        "ask",
        (),
        (((WORDS,), np.uint64),),
        block=(1, 1, 1),
    )
    with Context(0) as context:
        (found,) = context.run(launch)
    return [f"{int(word):#x}" for word in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask and write, or keep."""
    parser = argparse.ArgumentParser(prog="python -m conformance.isa.mbarrier.held", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", action="store_true", help="ask nobody: make what is there the recording")
    given = parser.parse_args(arguments)
    if given.keep:
        write_file(RECORDING, (given.folder / NAME).read_bytes())
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    answers: dict[str, Any] = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for name, future in [(name, pool.submit(answer, name)) for name in QUESTIONS]:
            try:
                answers[name] = future.result()
            except Exception as error:  # a fault, or the process died: the others are asked all the same
                answers[name] = f"{type(error).__name__}: {error}"
    gpu = device_info()
    header = {"gpu": gpu.name, "driver": gpu.driver_version, "assembler": find_toolchains()[0].version}
    found = header | {"date": datetime.date.today().isoformat(), "answers": answers}
    write_file(given.folder / NAME, json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return int(any(isinstance(own, str) for own in answers.values()))


if __name__ == "__main__":
    sys.exit(main())
