"""A campaign over two workers of a Dask cluster, NumPy in the place of the GPU: `python -m conformance.campaign run LEDGER --dask ADDRESS`."""

from __future__ import annotations

from pathlib import Path

import dask
from distributed import LocalCluster

from conformance.campaign import ledger
from conformance.campaign.__main__ import main
from conformance.campaign.campaign import verified

SUBJECTS = "mma.sync.aligned.m16n8k8.row.col.f32.f16,wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16"


def test_a_campaign_over_two_workers(tmp_path: Path) -> None:
    """Every span becomes a line that a CPU finds again; a second run has nothing to do."""
    path = tmp_path / "ledger.jsonl"
    options = ["run", str(path), "--outputs", "6e4", "--span", "8192", "--only", SUBJECTS, "--cpu", "--dask"]
    with (
        dask.config.set({"distributed.worker.daemon": False}),  # a worker starts the process that has the GPU
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        assert main([*options, cluster.scheduler_address]) == 0
        lines = ledger.read(path)
        assert len(lines) == 16 and sum(line.outputs for line in lines) == 121_472
        assert not any(line.mismatches for line in lines)
        assert main([*options, cluster.scheduler_address]) == 0
    assert ledger.read(path) == lines
    assert all(verified(line) for line in lines)
    assert main(["verify", str(path)]) == 1  # no GPU compared anything
