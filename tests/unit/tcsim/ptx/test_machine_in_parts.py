"""Single rules of the reader, the compiler and the machine, each on the few numbers that decide it."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcsim.core.errors import OperandError
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access
from tcsim.ptx import Hazard, LaunchError, Limits, Memory, PtxError, parse
from tcsim.ptx.launch.processes import _merge
from tcsim.ptx.launch.watched import shared_marks
from tcsim.ptx.machine.accesses import Accesses
from tcsim.ptx.machine.faults import Unbatchable, stop_for
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.independence import Independence
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.octets import Octets
from tcsim.ptx.machine.polling import MOST_POLLED, Polled
from tcsim.ptx.machine.reach import Reach
from tcsim.ptx.machine.register_file import RegisterFile
from tcsim.ptx.machine.reports import Reports
from tcsim.ptx.machine.turns import Place
from tcsim.ptx.machine.warps import Warps
from tcsim.ptx.text.operands import DEEPEST, constant

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def test_choices_do_not_make_room_for_parentheses() -> None:
    """However many choices stand before them, parentheses may lie as deep in each other as without."""
    for before in ("1", "(1 ? 1 : 2)", "(1 ? 1 : 2)+(0 ? 1 : 2)"):
        assert constant(f"{before}+{'(' * (DEEPEST - 1)}1{')' * (DEEPEST - 1)}") in (2, 4)
        with pytest.raises(PtxError):
            constant(f"{before}+{'(' * DEEPEST}1{')' * DEEPEST}")


def test_accesses_that_are_noted() -> None:
    """As many as may be are noted; of one more nothing is kept."""
    polled = Polled()
    polled.note(np.zeros(MOST_POLLED, np.uint64))
    assert not polled.many and polled.pieces.tolist() == [0]
    polled.note(np.zeros(1, np.uint64))
    assert polled.many


@pytest.mark.parametrize(("negated", "found"), [(False, [0, 0, 1, 0]), (True, [0, 1, 0, 0]), (None, [0, 1, 1, 0])])
def test_who_executes(negated: bool | None, found: list[int]) -> None:
    """The threads of the mask whose predicate holds, or does not where it is negated; all of them without one."""
    predicate = None if negated is None else SimpleNamespace(name="%p")
    site: Any = SimpleNamespace(item=SimpleNamespace(predicate=predicate, negated=bool(negated)), numbers={"%p": 0})
    block: Any = SimpleNamespace(registers=[np.array([True, False, True, False])])
    mask, threads, events = np.array([False, True, True, False]), None, None
    reports = Reports(block, threads, events)  # type: ignore[arg-type]
    assert reports._executing(site, mask).tolist() == [bool(own) for own in found]


@pytest.mark.parametrize(("factor", "inexact"), [(1.0, False), (1.0 + 2.0**-12, True)])
def test_a_product_on_its_way_to_a_sum(factor: float, inexact: bool) -> None:
    """A product that is moved before it is added may be fused with the sum: the result says so where the bits differ."""
    text = f"""{HEAD}.visible .entry k(.param .u64 at, .param .f32 factor)
{{
  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .f32 %f<9>; .reg .b64 %d<4>;
  ld.param.u64 %d0, [at]; ld.param.f32 %f0, [factor];
  mov.u32 %r0, %tid.x;
  mov.f32 %f1, 0f3F800001;
  mul.f32 %f2, %f0, %f1;
  mov.f32 %f3, %f2;
  mov.f32 %f2, 0f00000000;
  setp.eq.u32 %p0, %r0, 77;
  @%p0 mov.f32 %f3, %f0;
  add.f32 %f4, %f3, 0fBF800000;
  st.global.f32 [%d0], %f4;
  ret;
}}"""
    memory = Memory()
    at = memory.allocate(4)
    run = parse(text).kernel().launch(memory, [at, np.float32(factor)], (1, 1, 1), (1, 1, 1))
    product = np.float32(factor) * np.float32(1 + 2.0**-23)
    exact = {np.float32(product + np.float32(-1)), np.float32(factor * (1 + 2.0**-23) - 1)}
    assert memory.read(at, 4).view(np.float32)[0] in exact
    assert bool(run.inexact) == (len(exact) > 1) == inexact


def launched(body: str, threads: int) -> tuple[Any, list[int]]:
    """A kernel whose threads each store %r1, and those words."""
    text = f"""{HEAD}.visible .entry k(.param .u64 at, .param .u64 all)
{{
  .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %d<4>;
  ld.param.u64 %d0, [at]; ld.param.u64 %d1, [all];
  mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %d0, %d2;
  mov.u32 %r1, 0;
  {body}
  st.global.u32 [%d2], %r1;
  ret;
}}"""
    memory = Memory()
    at, everyone = memory.allocate(4 * threads), memory.allocate(4)
    run = parse(text).kernel().launch(memory, [at, everyone], (1, 1, 1), (threads, 1, 1))
    assert run.completed
    return run, memory.read(at, 4 * threads).view(np.uint32).tolist()


def test_lanes_that_are_gone_do_not_vote() -> None:
    """Half a warp has ended and is named in the mask all the same: all of the others agree."""
    body = "setp.ge.u32 %p0, %r0, 16; @%p0 ret; setp.lt.u32 %p1, %r0, 16; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r1, 1, 2, %p2;"
    assert launched(body, 32)[1] == [1] * 16 + [0] * 16


@pytest.mark.parametrize(("threads", "depends"), [(1, False), (2, True)])
def test_whose_exchange_comes_first(threads: int, depends: bool) -> None:
    """What an exchange leaves and returns depends on the order of the threads, if there are two."""
    run, _ = launched("atom.global.exch.b32 %r1, [%d1], %r0;", threads)
    assert bool(run.inexact) == depends


def test_where_a_hazard_is() -> None:
    assert str(Hazard("TRAP", "a thread executed trap", line=7)) == "TRAP: a thread executed trap (line 7)"
    found = str(Hazard("TRAP", "a thread executed trap", line=7, block=(0, 1, 0), thread=33))
    assert found == "TRAP: a thread executed trap (line 7, block (0, 1, 0), warp 1 lane 1)"


def test_places_of_the_blocks_of_a_batch() -> None:
    """Shared memory is each block's own, also by a generic address; global memory is one for all."""
    own: Any = SimpleNamespace(threads=SimpleNamespace(batch=2, width=4))
    threads, place = np.array([1, 5]), np.full(2, 64, np.uint64)
    window = place + np.uint64(SHARED_WINDOW)
    apart = [
        len(set(Accesses._apart(own, *given, threads).tolist()))
        for given in (("shared", place), ("", window), ("", place), ("global", place))
    ]
    assert apart == [2, 2, 1, 1]


@pytest.mark.parametrize("batch", [1, 2])
def test_registers_take_a_row_each(batch: int) -> None:
    """Of the matrix of their type, in order; nothing between them."""
    file = RegisterFile([np.dtype(own) for own in ("u4", "u8", "u4", "u4", "u8")], 32 * batch)
    assert file.row.tolist() == [0, 0, 1, 2, 1]
    assert [len(own) for own in file.matrix] == [3, 2, 3, 3, 2]


@pytest.mark.parametrize(
    "some", [slice(None), slice(40, None), slice(0, None, 2), [*range(700), *range(800, 1500), 1900]]
)
def test_many_registers_of_many_threads_at_once(some: Any) -> None:
    """Of all threads, of ranges of them, and of such that lie apart; others are not touched."""
    file = RegisterFile([np.dtype(np.uint32)] * 70, 2048)
    matrix = file.matrix[0]
    matrix[:] = np.arange(matrix.size, dtype=np.uint32).reshape(matrix.shape)
    numbers = np.random.default_rng(3).permutation(70)[:60]
    threads = None if some == slice(None) else np.arange(2048)[some]
    found, want = file.gather(numbers, threads), matrix[numbers].T[some]
    assert found.shape == want.shape and (found == want).all()
    expected = matrix.copy()
    expected.T[np.arange(2048)[some][:, None], numbers] = ~want
    file.scatter(numbers, threads, ~found)
    assert (matrix == expected).all()


def test_what_ends_a_launch_says_what_was_wrong() -> None:
    """Errors of the model in their own words; others are tcsim's own, with their place."""
    assert stop_for(OperandError("no such lane")).detail == "no such lane"
    try:
        raise KeyError("a")
    except KeyError as error:
        stop = stop_for(error)
    assert stop.name == "INTERNAL_ERROR" and re.search(r"KeyError: 'a' \(test_machine_in_parts.py:\d+\)", stop.detail)


@pytest.mark.parametrize(
    ("adds", "together"), [(None, True), (np.array([True, True]), True), (np.array([True, False]), False)]
)
def test_products_that_are_summed_in_one_go(adds: Any, together: bool) -> None:
    """The second adds to what the first leaves, in all its warpgroups."""
    bound = SimpleNamespace(model=SimpleNamespace(mnemonic="m"), results=[("d", np.arange(4))])
    before, after = (
        SimpleNamespace(
            pending=SimpleNamespace(chain=len, accumulator=7, adds=own), bound=bound, replicated=False, threads=np.arange(128), followers=[]
        )
        for own in (None, adds)
    )  # fmt: skip
    assert Flight.continues(after, before) is together  # type: ignore[arg-type]


def test_what_the_blocks_of_a_batch_wrote() -> None:
    """Memory hears of the bytes that some block wrote, the first block's among them, and of no others."""
    memory = Memory()
    at, heard = memory.allocate(16), []
    segment = memory.segment(at)
    assert segment is not None
    own = Independence(memory, 1 << 20)
    own.write(np.array([at, at + 8], np.uint64), 4, np.array([0, 1]))
    memory.wrote = lambda *given: heard.append(given)  # type: ignore[method-assign]
    own.end(undo=False)
    ((where, place, mask),) = heard
    assert where is segment and place.start == 0
    assert np.flatnonzero(mask).tolist() == [0, 1, 2, 3, 8, 9, 10, 11]


@pytest.mark.parametrize(
    ("operation", "operands", "bits"), [("inc", [100, 100, 100], 0b11), ("add", [1, 1, 1], 0b11), ("add", [2, 2, 2], 0b1111), ("xor", [2, 4, 4], 0b110)]
)  # fmt: skip
def test_bits_that_depend_on_who_comes_first(operation: str, operands: list[int], bits: int) -> None:
    """Three threads that count from 4: the last of them finds 4, 5 or 6, or up to 8 where each adds 2."""
    place = Place(operations={operation}, operands=operands, start=4, round={(0, own) for own in range(3)})
    assert place._varying(32) == bits


def test_one_thread_comes_first() -> None:
    """Whatever it does, and whoever needs what was there before."""
    place = Place(operations={"or"}, operands=[5], start=2, round={(0, 0)}, needed=-1, changes=True)
    place.end(32)
    assert not place.open
    place = Place(operations={"or"}, operands=[5, 8], start=2, round={(0, 0), (0, 1)}, needed=-1, changes=True)
    place.end(32)
    assert place.open


def octets(batch: int = 2, width: int = 32) -> Octets:
    """Of a batch of blocks."""
    threads: Any = SimpleNamespace(batch=batch, width=width, block_of=lambda own: own // width)
    return Octets(None, threads, None, None, None)  # type: ignore[arg-type]


def test_the_blocks_of_an_access() -> None:
    """By the thread of each entry, whether one CTA is named for all of them, one for each, or none."""
    threads, address = np.arange(64), np.zeros(3, np.int64)
    who = np.array([1, 40, 2])
    for cta in (None, np.int64(0), np.zeros(1, np.int64), np.zeros(3, np.int64)):
        found = octets().block_of(Access("shared", address, 4, cta=cta, thread=who), threads)
        assert found.tolist() == [0, 1, 0]
    with pytest.raises(Unbatchable):
        octets().block_of(Access("shared", address, 4, cta=np.zeros((2, 1), np.int64), thread=who), threads)


def test_compiled_code_may_run_where_nobody_hears_of_accesses() -> None:
    """And memory is looked at again where it has changed."""
    memory, looked = Memory(), []
    events: Any = SimpleNamespace(accessed=[], loaded=[], stored=[], shuffled=[], exchanged=[])
    shared = Segment(0, np.zeros(64, np.uint8))
    spaces: Any = SimpleNamespace(shared=shared, shared_stride=64, polled=None, independence=None, memory=memory)
    threads: Any = SimpleNamespace(shared_bytes=64, rank=0, width=32, batch=1)
    reach = Reach(threads, spaces, events)
    reach._look = lambda: looked.append(1)  # type: ignore[method-assign]
    assert reach.begin() and reach.begin() and len(looked) == 1
    memory.allocate(4)
    assert reach.begin() and len(looked) == 2
    events.loaded.append(print)
    assert not reach.begin()


def test_marks_of_segments_lie_beside_each_other() -> None:
    """In one piece of memory, each from a multiple of 16 on."""
    memory = Memory()
    segments = [memory.segment(memory.allocate(size)) for size in (5, 100, 16)]
    found = [own.store.ctypes.data for own in shared_marks([own for own in segments if own is not None]).values()]
    assert np.diff(found).tolist() == [-(-len(own.store) // 16) * 16 for own in segments[:2] if own is not None]


def test_a_grid_of_more_blocks_than_a_gpu_takes() -> None:
    kernel = parse(f"{HEAD}.visible .entry k() {{ ret; }}").kernel()
    with pytest.raises(LaunchError):
        kernel.launch(Memory(), [], (2**31, 1, 1), (1, 1, 1), limits=Limits(instructions=1))


@pytest.mark.parametrize(
    ("first", "told"), [("bar.sync 1, 64;", False), ("barrier.cta.red.popc.u32 %r1, 1, 64, %p1;", True)]
)
def test_who_comes_first_says_whether_a_barrier_reduces(first: str, told: bool) -> None:
    """Threads that ask for the number of predicates get it if those do that came to the barrier first."""
    body = f"setp.lt.u32 %p1, %r0, 40; setp.ge.u32 %p0, %r0, 32; @%p0 bra R; {first} bra E; R: barrier.cta.red.popc.u32 %r1, 1, 64, %p1; E:"
    assert set(launched(body, 64)[1][32:]) == ({40} if told else {0})


def test_the_last_access_to_shared_memory_ends_inside_it() -> None:
    """A matrix whose last row begins inside and ends behind the end is out of range."""
    body = ".shared .align 16 .b8 sh[{0}]; mov.u32 %r2, sh; and.b32 %r3, %r0, 7; mul.lo.u32 %r3, %r3, 16; add.u32 %r2, %r2, %r3; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r1}}, [%r2];"
    for size, inside in ((128, True), (120, False)):
        text = f"{HEAD}.visible .entry k() {{ .reg .b32 %r<4>; mov.u32 %r0, %tid.x; {body.format(size)} ret; }}"
        run = parse(text).kernel().launch(Memory(), [], (1, 1, 1), (32, 1, 1))
        assert run.completed is inside and ("SMEM_OUT_OF_RANGE" in [own.name for own in run.hazards]) is not inside


def test_a_half_of_a_packed_sum_meets_a_single_one() -> None:
    """One thread adds two numbers at an address, another one at its second half: the order of the two shows there."""
    text = f"""{HEAD.replace("sm_80", "sm_90")}.visible .entry k(.param .u64 at)
{{
  .reg .pred %p; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %d<4>;
  ld.param.u64 %d0, [at]; mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0;
  mov.u32 %r1, 0x2E66AAAA; mov.b16 %h1, 0x3555;
  @%p red.global.add.noftz.f16x2 [%d0], %r1;
  @!%p red.global.add.noftz.f16 [%d0+PLACE], %h1;
  ret;
}}"""
    for place, depends in ((2, True), (6, False)):
        memory = Memory()
        at = memory.allocate(np.frombuffer(np.full(4, 1.2, np.float16).tobytes(), np.uint8))
        run = parse(text.replace("PLACE", str(place))).kernel().launch(memory, [at], (1, 1, 1), (2, 1, 1))
        assert run.completed and bool(run.inexact) is depends


def test_processes_say_why_blocks_ran_alone() -> None:
    """The first that knows why says it, whether that is the process that began or one that it forked."""
    for reasons, found in ((["", "b"], "b"), (["a", ""], "a"), (["a", "b"], "a"), (["", ""], "")):
        grid, *others = (
            SimpleNamespace(
                instructions=1, hazards=[], inexact=Counter(), batch=2, alone=own, output=[], checked=[], ended=1, observed=1, tally=None, written=[]
            )
            for own in reasons
        )  # fmt: skip
        _merge(grid, others)  # type: ignore[arg-type]
        assert (grid.alone, grid.ended, grid.observed) == (found, 2, 2)


def test_a_print_without_a_format() -> None:
    """vprintf of nothing returns -1."""
    text = f"""{HEAD}.extern .func (.param .b32 n) vprintf(.param .b64 f, .param .b64 v);
.visible .entry k(.param .u64 at) {{
  .reg .b32 %r; .reg .b64 %d<2>; ld.param.u64 %d0, [at]; mov.u64 %d1, 0;
  {{ .param .b64 f; .param .b64 v; .param .b32 n; st.param.b64 [f], %d1; st.param.b64 [v], %d1; call (n), vprintf, (f, v); ld.param.b32 %r, [n]; }}
  st.global.u32 [%d0], %r; ret; }}"""
    memory = Memory()
    at = memory.allocate(4)
    run = parse(text).kernel().launch(memory, [at])
    assert run.completed and run.output == "" and memory.read(at, 4).tolist() == [255] * 4


def test_who_goes_on_where_members_are_missing() -> None:
    """Lanes whose members are all there; the others wait. If all are, or have ended, nobody does."""
    threads: Any = SimpleNamespace(
        alive=np.arange(32) < 30, mask=lambda w: w, each=lambda own: np.broadcast_to(own, 32)
    )
    own: Any = SimpleNamespace(
        threads=threads,
        ballot=lambda flags: np.full(32, sum(1 << int(lane) for lane in np.flatnonzero(flags)), np.uint32),
        _members=lambda asked, mask: None,
    )
    members = np.where(np.arange(32) < 16, 0xFFFF, 0xFFFF0000).astype(np.uint32)
    there = np.arange(32) < 20
    (rest, waits), (go, here) = Warps.missing(own, members, there, 7) or ()
    assert np.flatnonzero(go).tolist() == list(range(16)) and here == 7
    assert np.flatnonzero(rest).tolist() == [16, 17, 18, 19] and waits.kind == "lanes"
    assert Warps.missing(own, members, threads.alive, 7) is None
    ((rest, _),) = Warps.missing(own, members, there & (np.arange(32) > 0), 7) or ()
    assert np.flatnonzero(rest).tolist() == list(range(1, 20))
