"""Every recorded launch, counted: how often each counter is what an H200 counted. `python -m tests.kernels.counters` writes the expected numbers."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from tcsim.ptx.counters.machine import Code, Machine
from tests.kernels import counters
from tests.support.extent import part as share

PARTS = 16
LAUNCHES = 277
RECORDED = json.loads(counters.RESULTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("part", share(range(PARTS), 8))
def test_recorded_launches_are_counted_as_the_results_say(part):
    wanted, count = counters.measured(), 0
    for name, fields in islice(counters.recorded().items(), part, None, PARTS):
        found = counters.compared(counters.profiled(fields, name), name, wanted[name])
        assert {key: list(own) for key, own in found.different.items()} == RECORDED["different"].get(name, {}), name
        count += 1
    assert count == len(range(part, LAUNCHES, PARTS))


def test_what_is_said_of_all_follows_from_what_differs():
    wanted, different = counters.measured(), RECORDED["different"]
    assert RECORDED["launches"] == RECORDED["machine"]["launches"] == len(wanted) == LAUNCHES
    for counter, (equal, total, above, *_) in RECORDED["counters"].items():
        wrong = [own[counter] for own in different.values() if counter in own]
        known = [name for name in wanted if counter not in RECORDED["unknown"].get(name, ())]
        own = [name for name in known if wanted[name][counter] or counter in different.get(name, {})]
        assert (equal, total, above) == (len(own) - len(wrong), len(own), sum(model > gpu for gpu, model in wrong))


def test_counters_are_as_often_the_hardwares_as_the_page_promises():
    for part, least in ((RECORDED, 0.95), (RECORDED["machine"], 0.96)):
        for name in (
            "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
            "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
        ):
            equal, total, *_ = part["counters"][name]
            assert equal >= least * total
    for counter, (equal, total, above, sure, of, least) in RECORDED["machine"]["counters"].items():
        assert above == 0 and sure == of <= total and least >= 90, counter  # what differs is doubted, and a lower bound
        assert equal >= 0.97 * total or "shared" in counter, counter
    assert all(map(RECORDED["machine"]["doubts"].get, RECORDED["machine"]["different"]))
    bytes_, launches, *_ = RECORDED["counters"]["l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"]
    assert bytes_ == launches == 48


def test_machine_instructions_are_executed_as_often_as_the_page_promises():
    machine, gpu, total = RECORDED["machine"], counters.by_instruction(), counters.measured()
    said, totals, left_out = machine["by instruction"], machine["instructions"], machine["undecided"]
    assert gpu.keys() == total.keys() > set(left_out) and totals["launches"] == LAUNCHES - len(left_out) == 270
    assert said["known"] + said["unknown"] == sum(len(own) for name, own in gpu.items() if name not in left_out)
    assert totals["equal"] >= 0.7 * totals["launches"]
    assert said["equal"] == said["known"] - sum(said["wrong"].values()) >= 0.99 * said["known"]
    assert sum(sum(own) == total[name][counters.EXECUTED] for name, own in gpu.items()) == 230  # the others poll


def test_machine_instructions_beside_the_gpus():
    code = [
        (Code(0, "LDG", "", 1), 4),
        (Code(16, "EXIT", "", 2), 3),
        (Code(32, "BRA", "", 2), 7),
        (Code(48, "NOP", "", 2), 0),
    ]
    assert counters.instructions(Machine(tuple(code), frozenset([32])), [4, 4, 9]) == (1, 2, 1)
