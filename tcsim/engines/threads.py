"""Work shared among threads: for compiled loops, which do not hold the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from threading import local

VARIABLE = "TCSIM_THREADS"
NAME = "tcsim-engine"


def count() -> int:
    """Threads that are used: the environment variable TCSIM_THREADS, or the processors that this process may use."""
    given = os.environ.get(VARIABLE, "")
    if given.isdigit() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_here = local()


def _mark() -> None:
    _here.sharing = True


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, NAME, initializer=_mark)


def share(loop: Callable[[int, int], None], size: int, least: int = 1) -> None:
    """Run loop(first, last) over ranges that together are 0 to `size`: at once if there is at most `least` for a thread, or inside another's loop."""
    worth = size // max(least, 1)  # parts that are worth a thread
    threads = min(count(), worth)
    if threads <= 1 or getattr(_here, "sharing", False):
        loop(0, size)
        return
    parts = min(worth, 4 * threads)
    ranges = [*pairwise(size * part // parts for part in range(parts + 1))]
    pool = _pool(os.getpid(), count())
    others = [pool.submit(loop, *own) for own in ranges[1:]]
    try:
        loop(*ranges[0])  # here meanwhile
    finally:
        for done in others:
            done.result()
