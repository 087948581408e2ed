"""Screening by two workers of a Dask cluster: `python -m hwkernels.screen --dask ADDRESS`. The GPU is one that says what a launch would find."""

from __future__ import annotations

import json
import os
from pathlib import Path

import dask
import pytest
from distributed import LocalCluster

import tcsim
from hwkernels.screen.cluster import over_cluster
from hwkernels.screen.kernel import Fault
from hwkernels.screen.run import Report, main, screen
from hwkernels.screen.vectors import vectors
from tests.unit.hwkernels.screen.test_screen import MNEMONICS, Gpu


def screened_here() -> list[Report]:
    """A worker with a planted fault, by its own name."""
    report = Report("GPU 0", 5, host=str(os.getpid()))
    screen(Gpu(Fault(3, os.getpid() % 32)), [vectors(tcsim.instruction(MNEMONICS[0], arch="sm_90"), 1)], b"-", report)
    return [report]


def test_two_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each worker screens once and its report comes back; without a GPU it is one of status 2, and the others are asked all the same."""
    with (
        dask.config.set({"distributed.worker.daemon": False}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        found = over_cluster(cluster.scheduler_address, screened_here)
        reports = [report for _, answer in found if isinstance(answer, list) for report in answer]
        assert len({report.host for report in reports}) == 2
        assert all(set(report.by_bit) == {int(report.host) % 32} and report.status == 1 for report in reports)
        path = tmp_path / "reports.json"
        assert main(["--dask", cluster.scheduler_address, "--json", str(path)]) == 2
    written = json.loads(path.read_text())
    assert len({report["host"] for report in written}) == 2 and all(report["status"] == 2 for report in written)
    assert capsys.readouterr().out.count("not wholly screened") == 2
