"""Counters of launches: they do not depend on batches, processes or the check, and add up."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from tcsim.core.errors import OperandError
from tcsim.inspection.counters_view import facts
from tcsim.launchers.profile import Profile, compared
from tcsim.layouts.banks import INACTIVE
from tcsim.layouts.coalescing import (
    atomic_pass,
    by_pass,
    bypassing_sectors,
    copy_passes,
    data_passes,
    sectors,
    tag_passes,
)
from tcsim.ptx import Limits, Memory, parse

TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data)
{
  .reg .pred %p; .reg .b32 %r<12>; .reg .b64 %d<6>; .shared .align 16 .b8 tile[8192];
  ld.param.u64 %d0, [data]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, tile;
  mad.lo.u32 %r3, %r1, 64, %r0; mul.wide.u32 %d1, %r3, 16; add.u64 %d2, %d0, %d1;
  mad.lo.u32 %r4, %r0, 8, %r2;
  setp.lt.u32 %p, %r0, %r1;
  @%p ld.global.b32 %r5, [%d2];
  @%p bra OTHER;
  st.shared.b32 [%r4], %r0;
OTHER:
  bar.sync 0;
  atom.shared.add.u32 %r6, [tile], %r0;
  add.u32 %r6, %r6, %r6;
  red.global.add.u32 [%d0], %r0;
  ret;
}
"""
GRID, BLOCK = 24, 64


def counted(**options):
    memory = Memory()
    run = (
        parse(TEXT)
        .kernel()
        .launch(memory, [memory.allocate(1 << 16)], (GRID, 1, 1), (BLOCK, 1, 1), counters=True, **options)
    )
    assert run.completed and run.counters is not None
    return run


def test_they_are_those_of_the_accesses():
    counters = counted(check=False).counters
    shared = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_"
    warps = [(block, range(first, first + 32)) for block in range(GRID) for first in (0, 32)]
    storing = [[8 * lane for lane in lanes if lane >= block] for block, lanes in warps]
    ways = [
        max((sum(address // 4 % 32 == bank for address in own) for bank in range(32)), default=0) for own in storing
    ]
    assert counters[f"{shared}st.sum"] == sum(ways) and counters[f"{shared}atom.sum"] == 32 * len(warps)
    loading = [[lane for lane in lanes if lane < block] for block, lanes in warps]
    assert counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == sum(bool(own) for own in loading)
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == sum(
        len({lane // 2 for lane in own}) for own in loading
    )
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"] == 32 * len(warps)
    lines = {line: own for line, _, own in counters.by_line()}
    assert lines[15]["ptx__inst_executed.sum"] == 2 * GRID and lines[13]["ptx__thread_inst_executed.sum"] == sum(
        map(len, storing)
    )


def test_they_do_not_depend_on_how_it_ran():
    wanted = counted(check=False)
    assert wanted.batch > 1
    ways = (
        {},
        {"check": "sample"},
        {"limits": Limits(processes=3)},
        {"limits": Limits(batch=1)},
        {"observe": None, "origins": True},
    )
    for options in ways:
        found = counted(**options)
        assert dict(found.counters) == dict(wanted.counters), options
        assert found.counters.by_line() == wanted.counters.by_line()
        assert all((found.counters.of_block(name) == wanted.counters.of_block(name)).all() for name in wanted.counters)


def test_blocks_add_up_and_all_of_it_can_be_kept():
    counters = counted(check=False).counters
    for name, value in counters.items():
        if name != "ptx__thread_inst_executed.sum":
            assert counters.of_block(name).sum() == value, name
    assert dict(pickle.loads(pickle.dumps(counters))) == dict(counters)


def test_what_is_not_known_is_missing():
    text = TEXT.replace("ld.global.b32 %r5, [%d2]", "red.shared.max.u64 [%r2], %d2")
    memory = Memory()
    counters = (
        parse(text)
        .kernel()
        .launch(memory, [memory.allocate(1 << 16)], (4, 1, 1), (64, 1, 1), check=False, counters=True)
        .counters
    )
    assert counters.unknown["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum"] == ("atom.shared.extreme",)
    assert "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum" not in counters


def test_copies_that_pass_by_l1_ask_l2_for_about_as_much_and_raise_stores():
    text = TEXT.replace("ld.global.b32 %r5, [%d2]", "cp.async.cg.shared.global [%r2], [%d2], 16")
    memory = Memory()
    launch = parse(text).kernel().launch
    counters = launch(memory, [memory.allocate(1 << 16)], (4, 1, 1), (64, 1, 1), check=False, counters=True).counters
    assert counters.exactness("lts__t_sectors_srcunit_tex.sum") == "approximate" and not counters.unknown
    shared = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
    assert counters.exactness(shared) == "approximate" and counted(check=False).counters.exactness(shared) == "exact"
    with pytest.raises(OperandError, match="no 'wavefronts'"):
        counters.exactness("wavefronts")


WAITS = """.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b32 got) vprintf (.param .b64 text, .param .b64 arguments);
.visible .entry k(.param .u64 data)
{
  .reg .pred %p, %q; .reg .b32 %r<12>; .reg .b64 %d<6>; .shared .b32 s;
  ld.param.u64 %d0, [data]; mov.u32 %r3, 0; mov.u32 %r9, 0;
LOCK:
  atom.global.cas.b32 %r1, [%d0], 0, 1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra HELD;
  st.shared.u32 [s], %r1;
  atom.global.exch.b32 %r2, [%d0], 0;
  mov.u32 %r3, 1;
HELD:
  setp.eq.u32 %q, %r3, 0;
  @%q bra LOCK;
COUNT:
  ld.global.u32 %r4, [%d0+4];
  atom.global.add.u32 %r5, [%d0+8], 1;
  add.u32 %r9, %r9, 1;
  setp.lt.u32 %p, %r5, 4;
  @%p bra NEXT;
  ld.shared.u32 %r6, [s];
NEXT:
  setp.lt.u32 %q, %r9, 4;
  @%q bra COUNT;
  ret;
}
"""


def test_what_the_order_of_threads_decides_is_doubted():
    def counters(text):
        memory = Memory()
        own = parse(text).kernel()
        return own.launch(memory, [memory.allocate(64)], block=(64, 1, 1), check=False, counters=True).counters

    own = counters(WAITS)
    assert sorted(own.undecided) == [*range(10, 16), 17, 18]
    assert ("varies", "line 10 and 7 more: executed as often as the order of threads decides") in facts(own)
    stores, loads = (f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{kind}.sum" for kind in ("st", "ld"))
    assert (
        own.doubts[stores] == own.doubts["l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum"] == ("order of threads",)
    )
    assert own.exactness(stores) == "approximate" and own.exactness(loads) == "exact" and loads not in own.doubts
    taken = counters(WAITS.replace("atom.global.add.u32 %r5, [%d0+8], 1", "atom.global.or.b32 %r5, [%d0+8], 1"))
    assert loads in taken.doubts and taken.undecided.keys() - own.undecided.keys() == {25}
    again = counters(WAITS.replace("atom.global.cas.b32 %r1, [%d0], 0, 1", "ld.global.u32 %r1, [%d0]"))
    assert not again.undecided and not again.doubts


def test_functions_of_the_driver_count_what_nobody_knows():
    memory = Memory()
    call = "{ .param .b64 a; .param .b64 b; .param .b32 c;\n st.param.b64 [a], %d0; st.param.b64 [b], 0; call.uni (c), vprintf, (a, b); }\n  ret;"
    own = parse(WAITS.replace("ret;", call)).kernel()
    found = own.launch(memory, [memory.allocate(64)], block=(64, 1, 1), check=False, counters=True).counters
    assert found.doubts["smsp__pipe_tensor_cycles_active.sum"] == ("vprintf",)
    assert found.doubts["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == ("vprintf",)


def test_a_profile_is_compared_with_an_earlier_one(tmp_path):
    own = Profile("k.ptx", counted(check=False), (GRID, 1, 1), (BLOCK, 1, 1))
    data = own.as_dict()
    before = tmp_path / "before.json"
    before.write_text(json.dumps(data | {"counters": data["counters"] | {"ptx__inst_executed.sum": 1}}))
    (part,) = compared(data, str(before)).parts
    assert [row[0] for row in part.rows] == ["bound, cycles", "ptx__inst_executed.sum"]
    with pytest.raises(OperandError, match="is not an answer of tcsim profile"):
        compared(data, str(tmp_path / "none.json"))


# --- the rules on their own, against sets


def test_global_rules_against_sets():
    random = np.random.Generator(np.random.PCG64(4))
    for _ in range(300):
        width = int(random.choice([1, 2, 4, 8, 16]))
        rows = random.integers(0, int(random.choice([64, 2048, 30000])), 32) * 16 // width * width
        rows = np.where(random.random(32) < 0.8, rows, INACTIVE)
        active = [int(own) for own in rows if own != INACTIVE]
        if not active:
            continue
        lines: dict[int, list[int]] = {}
        for own in active:
            line = own // 128
            of_set = lines.setdefault((line & 0b10110101).bit_count() % 2 * 2 + (line & 0b01101111).bit_count() % 2, [])
            if line not in of_set:
                of_set.append(line)
        assert tag_passes(rows[None], width)[0] == max(map(len, lines.values()))
        turn = {line: place for own in lines.values() for place, line in enumerate(own)}
        each = 32 // max(1, width // 4)
        groups: dict[tuple[int, int], list[int]] = {}
        for lane, own in enumerate(rows.tolist()):
            if own != INACTIVE:
                groups.setdefault((lane // each, turn[own // 128]), []).extend(
                    range(own // 4, own // 4 + max(1, width // 4))
                )

        def most(words):
            return max(np.bincount(np.array(list(words)) % 32))

        assert data_passes(rows[None], width)[0] == sum(most(set(words)) for words in groups.values())
        if width >= 4:
            assert copy_passes(rows[None], rows[None], width)[0] == sum(most(words) for words in groups.values())
        assert sectors(rows[None], width)[0] == len({own // 32 for own in active})
        for unit in (128, 64):
            turn = one_after_the_other(rows.tolist(), width, unit)
            assert atomic_pass(rows[None], width, unit)[0].tolist() == [turn.get(lane, INACTIVE) for lane in range(32)]
            for piece in (unit, 32):
                touched = {(turn[lane], rows[lane] // piece) for lane in turn}
                assert by_pass(rows[None], width, unit, piece)[0] == len(touched)


def one_after_the_other(rows, width, unit):
    """The pass of each lane of an atomic: lanes of a set stand in a queue for each place of a line, and only its head is served."""
    found, queues = {}, {}
    for lane, own in enumerate(rows):
        if own != INACTIVE:
            line = own // 128
            of_set = (line & 0b10110101).bit_count() % 2 * 2 + (line & 0b01101111).bit_count() % 2
            queues.setdefault(of_set, {}).setdefault(own % 128 // width, []).append(lane)
    for places in queues.values():
        turn = 0
        while heads := [queue[0] for queue in places.values() if queue]:
            for lane in heads:
                if rows[lane] // unit == rows[min(heads)] // unit:
                    found[lane] = turn
                    places[rows[lane] % 128 // width].pop(0)
            turn += 1
    return found


def test_bypassing_copies_count_pairs_of_a_line_and_a_sector():
    lanes = np.arange(32)[None] * 16
    assert bypassing_sectors(lanes, lanes)[0] == 16 and bypassing_sectors(lanes, lanes * 4)[0] == 32
    assert bypassing_sectors(lanes, lanes * 0)[0] == 1  # the last lane's


@pytest.mark.parametrize("loads", [False, True])
def test_lanes_that_leave_a_loop_early_wait_where_it_ends(loads):
    """As on the GPU, where nothing in the loop can wait for them."""
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data) {{
  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<4>;
  ld.param.u64 %d0, [data]; mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, 40; mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1;
AGAIN:
  add.u64 %d2, %d2, 4; {"ld.global.u32 %r2, [%d2]; sub.u32 %r1, %r1, %r2;" if loads else ""}
  sub.u32 %r1, %r1, 1; setp.gt.s32 %p, %r1, 0;
  @%p bra AGAIN;
  add.u64 %d2, %d0, %d1;
  st.global.u32 [%d2], %r1;
  ret; }}"""
    memory = Memory()
    run = (
        parse(text)
        .kernel()
        .launch(memory, [memory.allocate(1 << 13)], (4, 1, 1), (32, 1, 1), check=False, counters=True)
    )
    assert run.completed and run.counters is not None
    assert run.counters["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == 4
