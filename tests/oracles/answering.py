"""What every script that asks another project has in common: jobs in, answers out, through NumPy files.

The scripts run in processes of their own and import the other project, NumPy and this module, never tcsim.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

Job = dict[str, Any]
Arrays = dict[str, Any]


def main(distribution: str, answer: Callable[[Job, Arrays], Arrays]) -> None:
    """Answer the jobs of the file argv[1] into the file argv[2], with the version of the distribution that answered."""
    with np.load(sys.argv[1]) as request:
        arrays = dict(request)
    said: Arrays = {"version": np.array(version(distribution))}
    for i, job in enumerate(json.loads(arrays.pop("jobs").tobytes())):
        given = {name.removeprefix(f"{i}."): array for name, array in arrays.items() if name.startswith(f"{i}.")}
        said |= {f"{i}.{name}": np.asarray(array) for name, array in answer(job, given).items()}
    np.savez(sys.argv[2], **said)
