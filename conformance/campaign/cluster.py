"""Campaigns over many machines: spans go to the workers of an executor, a Dask cluster's among others, and lines come back to one ledger.

    python -m conformance.campaign run LEDGER --outputs 1e10 --dask tcp://scheduler:8786

Any `concurrent.futures.Executor` will do. A process of it has one GPU, the first that it sees: the cluster chooses by CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from functools import cache
from threading import Lock

from conformance.campaign import ledger
from conformance.campaign.campaign import Campaign, CampaignError, done
from conformance.campaign.ledger import Line
from conformance.campaign.tasks import Task
from hwkernels.device.driver import device_info
from hwkernels.device.worker import GpuWorker

ON_GPU = "conformance.campaign.on_gpu:open_executor"
_ONE_AT_A_TIME = Lock()


@cache
def _device(opens: str) -> GpuWorker:
    """The one of this process."""
    return GpuWorker(0, opens)


def answered(task: Task, opens: str, gpu: str) -> Line:
    """Do a task on the GPU of this process. opens: the executor of its `GpuWorker`. Raises CampaignError, also where it is not the campaign's GPU."""
    if opens == ON_GPU and (own := device_info(0).name) != gpu:
        raise CampaignError(f"{task.kernel}: this worker has an {own}; the campaign is of an {gpu}")
    with _ONE_AT_A_TIME:
        return done(task, _device(opens), gpu)


def run_over(
    pool: Executor,
    campaigns: Sequence[Campaign],
    opens: str,
    progress: Callable[[Line], None] = lambda line: None,
) -> list[str]:
    """Compare what is left of all campaigns; each line is in the ledger when it arrives. Returns what could not be compared.

    A span whose worker is lost or that hangs twice is left out: the next run does it. Raises LedgerError.
    """
    failed, futures = [], {}
    for campaign in campaigns:
        ledger.repair(campaign.path)
        for task in campaign.tasks():
            futures[pool.submit(answered, task, opens, campaign.gpu)] = task, campaign.path
    for future in as_completed(futures):
        task, path = futures[future]
        try:
            line = future.result()
        except CampaignError as error:
            failed.append(str(error))
            continue
        except Exception as error:  # the cluster's: a worker that was lost, a scheduler that was closed
            failed.append(f"{task.kernel}: {type(error).__name__}: {error}")
            continue
        ledger.append(path, line)
        progress(line)
    return failed
