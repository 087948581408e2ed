"""Campaigns: with --outputs, very many outputs of each arithmetic, made and compared on the GPU. With -n, one worker a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.campaign.campaign import Campaign, CampaignError, run
from conformance.campaign.ledger import Line
from conformance.campaign.shrink import smallest
from conformance.campaign.subject import Subject
from conformance.campaign.tasks import Question
from conformance.suite.cases import Outcome, Suite
from hwkernels.device.driver import call, device_info
from hwkernels.device.worker import GpuWorker


@pytest.fixture(scope="module")
def device() -> Iterator[GpuWorker]:
    """A process with the GPU of this worker of pytest-xdist: the first worker the first GPU, and round again."""
    call("cuInit", 0)
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with GpuWorker(number % int(call("cuDeviceGetCount")), "conformance.campaign.on_gpu:open_executor") as worker:
        yield worker


def test_campaign(
    campaign: Subject, suite: Suite, device: GpuWorker, pytestconfig: pytest.Config, conclude: Any
) -> None:
    """Compare what the ledger lacks, and show the smallest case of a mismatch."""
    option = pytestconfig.getoption
    asked = Campaign(
        campaign, suite.settings.seed, int(option("--outputs")), option("--ledger"), device_info(device.device).name
    )
    try:
        conclude(
            campaign.family, campaign.mnemonic, outcome_of(campaign, suite.settings.seed, run(asked, device), device)
        )
    except CampaignError as error:
        conclude(campaign.family, campaign.mnemonic, Outcome("HANG", how=str(error)))


def outcome_of(subject: Subject, seed: int, lines: list[Line], device: GpuWorker) -> Outcome:
    """The verdict on all lines of a campaign."""
    outputs, wrong = sum(line.outputs for line in lines), sum(line.mismatches for line in lines)
    places = [place for line in lines for place in line.places]
    if not wrong:
        return Outcome("PASS", outputs, 0, lines[0].gpu)
    case = smallest(subject, seed, places[0], lambda arrays: device.run(Question(subject, arrays), 60.0)[0])
    text = "\n".join(case.lines()) if case else "the first mismatch did not happen again"
    return Outcome("FAIL", outputs, wrong, lines[0].gpu, text)
