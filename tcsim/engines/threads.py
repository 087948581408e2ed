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
    threads = min(count(), size // max(least, 1))
    if threads <= 1 or getattr(_here, "sharing", False):
        loop(0, size)
        return
    parts = min(size, 4 * threads)
    ends = [size * part // parts for part in range(parts + 1)]
    pool = _pool(os.getpid(), count())
    for done in [pool.submit(loop, first, last) for first, last in pairwise(ends)]:
        done.result()
