"""Devices of campaigns that go wrong, for tests: what a `GpuWorker`'s child executes tasks with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.campaign import on_cpu
from conformance.campaign.tasks import Question, Task

ONCE = "CAMPAIGN_TEST_FOLDER"


def _first_time(name: str) -> bool:
    """Whether this is the first process that asks."""
    path = Path(os.environ[ONCE], name)
    if path.exists():
        return False
    path.touch()
    return True


def troubled(ordinal: int) -> Callable[[Task | Question], list[Any]]:
    """Once a task that never ends, once a process that dies, as after an illegal instruction; everything else is done."""

    def execute(task: Task | Question) -> list[Any]:
        if isinstance(task, Task) and task.first == 32 and _first_time("hung"):
            time.sleep(600)
        if isinstance(task, Task) and task.first == 64 and _first_time("died"):
            os._exit(1)
        return on_cpu.execute(task)

    return execute
