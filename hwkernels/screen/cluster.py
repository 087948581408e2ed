"""Screening of many hosts: each worker of a Dask cluster does the same, and says what it found."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

Found = TypeVar("Found")


def over_cluster(address: str, here: Callable[[], Found]) -> list[tuple[str, Found | Exception]]:
    """What `here` returned or raised on each worker, once on each, and the worker's address. A worker that is lost has the error that the cluster gives.

    address: of the scheduler. Raises OSError where none answers, ModuleNotFoundError without Dask.
    """
    distributed = import_module("distributed")  # of the extra `cluster`
    with distributed.Client(address) as client:
        workers = sorted(client.nthreads())
        futures = [client.submit(here, workers=[own], allow_other_workers=False, pure=False) for own in workers]
        return [(own, _answer(future)) for own, future in zip(workers, futures, strict=True)]


def _answer(future: Any) -> Any:
    try:
        return future.result()
    except Exception as error:  # of the worker, or of the cluster
        return error
