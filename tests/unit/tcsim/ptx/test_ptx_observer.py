"""An observer is told what a cluster does, in order and at the right line; without one nothing is compiled differently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcsim.ptx import Memory, parse
from tcsim.ptx.machine.events import EVENTS
from tcsim.ptx.observer import Observer

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry told(.param .u64 from, .param .u64 to)
{
  .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<9>;
  .shared .align 128 .b8 tile[256]; .shared .align 8 .b64 full;
  ld.param.u64 %d1, [from]; ld.param.u64 %d2, [to];
  mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;
  @%p1 bra MADE;
  mbarrier.init.shared.b64 [full], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1], 128, [full];
MADE:
  bar.sync 0;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p2, [full], 0;
  @!%p2 bra WAIT;
  shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2;
  ld.shared.u32 %r4, [%r3];
  shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1;
  st.shared.u32 [%r3+128], %r5;
  fence.proxy.async.shared::cta;
  bar.warp.sync -1;
  @%p1 bra DONE;
  cp.async.bulk.global.shared::cta.bulk_group [%d2], [tile], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
DONE:
  membar.cta;
  ret;
}
"""


class Recorder(Observer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def __getattribute__(self, name: str) -> Any:
        if name in ("hazards", "events") or name.startswith("_") or not hasattr(Observer, name):
            return super().__getattribute__(name)

        def told(*given: Any, **named: Any) -> None:
            block = next((own for own in given if hasattr(own, "here")), None)
            if name in EVENTS:  # the last parameter of `accessed` is told of stores alone
                count = len(EVENTS[name].parameters.replace(",", " ").split()) - (
                    name == "accessed" and given[1] != "write"
                )
                assert (len(given), named) == (count, {}), name
            self.events.append((name, block.here.line if block is not None and block.here is not None else 0))

        return told


@pytest.mark.parametrize("schedule", ["late", "early"])
def test_what_is_told(schedule: str) -> None:
    """Every event of a copy in and a copy out, with the line of the instruction that the block executes."""
    memory, recorder = Memory(), Recorder()
    words = np.arange(32, dtype=np.uint32)
    source, target = memory.allocate(words.view(np.uint8)), memory.allocate(256)
    kernel = parse(PTX).kernel()
    run = kernel.launch(memory, [source, target], block=(32, 1, 1), schedule=schedule, observe=lambda cluster: recorder)
    assert run.completed and not run.hazards
    assert memory.read(target + 128, 128).view(np.uint32).tolist() == (words ^ 1).tolist()
    lines = {text.split()[0]: number for number, text in enumerate(PTX.splitlines(), 1) if text.startswith("  ")}
    found = [(name, line) for name, line in recorder.events if line in lines.values()]

    def at(name: str, opcode: str) -> int:
        place = (name, lines[opcode + ";" if opcode + ";" in lines else opcode])
        assert found.count(place) == 1, (place, found)
        return found.index(place)

    order = [
        at("signalled", "mbarrier.init.shared.b64"), at("performed", "mbarrier.arrive.expect_tx.shared.b64"), at("arrived", "bar.sync"),
        at("performed", "mbarrier.try_wait.parity.shared.b64"), at("exchanged", "shfl.sync.bfly.b32"), at("accessed", "st.shared.u32"),
        at("performed", "fence.proxy.async.shared::cta"), at("met", "bar.warp.sync"),
        at("performed", "cp.async.bulk.global.shared::cta.bulk_group"), at("grouped", "cp.async.bulk.commit_group"),
        at("grouped", "cp.async.bulk.wait_group.read"), at("fenced", "membar.cta"),
    ]  # fmt: skip
    assert order == sorted(order)
    names = [name for name, _ in recorder.events]
    assert names.count("issued") == names.count("fetched") == names.count("landing") == names.count("landed") == 2
    assert names.index("landing") < names.index("accessed", names.index("landed")) and names[-1] == "ended"
    assert names.count("passed") == 1 and "exited" in names


def test_what_an_observer_keeps_under_the_name_of_an_event_is_no_method() -> None:
    class Counts(Observer):
        def __init__(self) -> None:
            self.loaded, self.put = 0, dict[str, int]()

        def accessed(self, *given: Any, **named: Any) -> None:
            self.loaded += 1

    counts, memory = Counts(), Memory()
    pointers = [memory.allocate(256), memory.allocate(256)]
    run = parse(PTX).kernel().launch(memory, pointers, block=(32, 1, 1), observe=lambda cluster: counts)
    assert run.completed and not run.hazards and counts.loaded > 0


def test_nothing_is_compiled_for_an_observer_that_is_not_there() -> None:
    kernel, memory = parse(PTX).kernel(), Memory()
    assert "tell.here" not in kernel.compiled(memory, "sm_90").source
    assert kernel.compiled(memory, "sm_90", True).source.count("tell.here") == 18
