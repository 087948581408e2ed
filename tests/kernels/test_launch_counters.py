"""Every recorded launch, counted: how often each counter is what an H200 counted. `python -m tests.kernels.counters` writes the expected numbers."""

from __future__ import annotations

import json

from tests.kernels import counters


def test_recorded_launches_are_counted_as_the_results_say():
    found = counters.results()
    recorded = json.loads(counters.RESULTS.read_text(encoding="utf-8"))
    assert found == {name: recorded[name] for name in found}
    assert found["launches"] == 277
    for part, least in ((found, 0.95), (recorded["machine"], 0.96)):
        for name in (
            "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
            "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
        ):
            equal, total, _ = part["counters"][name]
            assert equal >= least * total
    for name, (_, _, above) in recorded["machine"]["counters"].items():
        assert above <= 5, name
