"""Golden transcripts of the stepper: fixed commands, over the wrong kernels of the documentation and recorded launches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tcsim.inspection.stepping import Console
from tcsim.launchers.recording import Recording
from tcsim.launchers.stepped import session
from tests.evaluation.golden.kind import Entry, Scope, as_json, chosen
from tests.evaluation.golden.launching import ALONE
from tests.kernels.corpora.replay import ARCH, launches
from tests.support.stepped_kernels import NAMES, Launched

RECORDED = (
    "cuda_wmma_naive_sm75", "triton_softmax", "triton_matmul_desc_sm90", "cuda_async_ring_sm_80", "cuda_multicast_sm_90a", "cuda_ring_sm_90a",
    "cuda_secondary_sm_90a", "cuda_specialised_sm_90a", "cuda_recursion_sm_90a", "cuda_early_exit_sm_80", "cute_matmul_sm_90a", "gluon_warp_specialised_sm_90a",
    "gemm_sm90_wgmma_basic_f16_f16_72x40x96_sm_90a", "triton_0001_matmul",
)  # fmt: skip
MARKS = (
    "bar.sync",
    "barrier.sync",
    "mbarrier.",
    "cp.async",
    "wgmma.mma_async",
    "mma.sync",
    "ldmatrix",
    "st.shared",
    "st.global",
    "bra",
)
"""What the places are at which a session of a recorded launch stops and looks, where there is one."""
LOOK = (
    "where",
    "list 3",
    "reg {register}",
    "mbarriers",
    "groups",
    "shared 1024 16",
    "shared 1024 128 swizzle 128B",
    "hazards",
)
OWN = {
    "transposed": ("why c[0, 1]", "why c[3, 2]", "memory b"),
    "late": ("why c[0, 1]", "groups", "run hazard", "hazards"),
    "swizzled": (
        "why c[9, 1]", "expand 1.1.1", "why 1024", "why 41 %f1 0", "why 60 %rd11 3", "memory b", "tile 1024 2 8 f16 pitch 128 swizzle 128B",
        "tile descriptor 0x4000004000000040 8 16 f16", "tmem 0 2 as f32",
    ),
}  # fmt: skip
REFUSED = (
    "foo", "step x", "run nowhere", "reg", "fragment 3 a", "why z[0]", "expand 1", "delete 9", "memory d", "shared 0 99999999", "tile 0 1 2 f99",
    "reg %r1 warp", "break if %f0 0 = 3", "back -1x",
)  # fmt: skip


def stepping(scope: Scope) -> Iterator[Entry]:
    """What every command of a script answers, as lines and as data."""
    for name in NAMES:
        for wrong in (True, False):
            yield f"{name} {'wrong' if wrong else 'mended'}", partial(_documented, name, wrong)
    recorded = dict(launches())
    for name in chosen(tuple(recorded), RECORDED):
        yield name, partial(_recorded, recorded[name])


def _documented(name: str, wrong: bool) -> str:
    own = Launched(name, wrong)
    return _transcript(Console(own.session()), (*_script(own.ptx), *OWN[name], *REFUSED, "help", "quit"))


def _recorded(own: Recording) -> str:
    console = Console(session(own.job(ARCH, "late", ALONE)))
    changed = [buffer for buffer in own.buffers if (buffer.before != buffer.after).any()]
    ends = []
    for buffer in changed[:2]:
        row = "0, " * max(0, len(buffer.shape) - 1)
        ends += [f"why {buffer.name}[{row}0]", f"why {buffer.name}[{row}7]", "expand 1", "expand 1.1"]
    return _transcript(console, (*_script(own.ptx.decode()), *ends, "quit"))


def _script(text: str) -> Iterator[str]:
    """On to each mark and around, back, and to the end."""
    lines = text.splitlines()
    register = next(iter(re.findall(r"%r\d+\b", text)), "%r1")
    look = [own.format(register=register) for own in LOOK]
    yield from ("where", "step", "step 3 warp 1", "source", *look, "memory")
    for mark in MARKS:
        at = next((number for number, line in enumerate(lines, 1) if re.match(rf"\s*(@!?%\w+\s+)?{mark}", line)), None)
        if at is not None:
            yield from (f"run {at}", *look, f"fragment {at} a", f"fragment {at} d", "step 2", "restart")
    yield from (
        f"break if {register} 0 == 3",
        "break",
        "run",
        "back 2",
        "goto 3",
        "delete 1",
        "run hazard",
        "restart",
        "run",
        *look,
        "memory",
    )


def _transcript(console: Console, commands: tuple[str, ...]) -> str:
    told: list[str] = []
    for command in commands:
        own = console.answer(command)
        told += [f"(tcsim) {command}{'  # refused' if own.failed else ''}", *own.lines, as_json(own.data)]
    return "\n".join(told)
