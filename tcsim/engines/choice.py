"""Which engine computes: the one that is asked for, or for large work the fastest that is there, or NumPy.

Engines have names: NumPy's and numba's are ours, others come from the entry point group `tcsim.engines` of installed packages,
whose objects are `Engine`s. The bits do not depend on the choice.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from math import prod
from time import thread_time
from typing import TYPE_CHECKING, TypeVar

from tcsim.core.errors import listing
from tcsim.engines.contract import (
    Accumulators,
    Codes,
    Engine,
    EngineError,
    EngineWarning,
    Matrices,
    Stored,
    Words,
    Work,
)
from tcsim.engines.reference import ENGINE as NUMPY

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tcsim.engines"
_TIMED = 1 << 18
"""Products of a call that says how long NumPy takes for them."""

Found = TypeVar("Found")

_asked: ContextVar[str | Engine | None] = ContextVar("tcsim.engine", default=None)
_NOMINAL = 3e8
"""Products that NumPy computes in a second, where it has not computed such ones yet."""
_slowness: dict[Work, float] = {}
"""How many times longer than that NumPy took for products of a kind."""
_spent: Counter[str] = Counter()
"""Products that each engine could have computed until now, while it had not started: such that NumPy computes at its nominal speed."""
_given_up: set[str] = set()
"""Engines that failed where nobody had asked for them."""


@cache
def _entries() -> dict[str, EntryPoint]:
    from importlib.metadata import EntryPoint, entry_points  # 15 ms, which a look-up does without

    ours = EntryPoint("numba", "tcsim.engines.compiled:ENGINE", GROUP)
    return {entry.name: entry for entry in (*entry_points(group=GROUP), ours)}


@cache
def _loaded(name: str) -> Engine:
    """An installed engine. Raises EngineError if its package cannot be imported."""
    if name == NUMPY.name:
        return NUMPY
    try:
        found = _entries()[name].load()
    except Exception as error:  # whatever somebody's package raises
        raise EngineError(f"the engine {name} cannot be loaded: {error}") from error
    if not isinstance(found, Engine):
        raise EngineError(f"the engine {name} is {type(found).__name__}; valid: a tcsim.engines.contract.Engine")
    return found


def names() -> tuple[str, ...]:
    """The engines that are installed, whether they can be used here or not.

    >>> names()[0]
    'numpy'
    """
    return (NUMPY.name, *sorted(set(_entries()) - {NUMPY.name}))


def find(name: str) -> Engine:
    """An engine by its name.

    Raises EngineError for a name that no installed package has, or one that cannot be loaded.

    >>> find("numpy").missing()
    ''
    """
    if not isinstance(name, str) or name not in names():
        raise EngineError(f"engine={name!r}; valid: {listing(names())}, or None for an automatic choice")
    return _loaded(name)


@contextmanager
def using(engine: str | Engine | None) -> Iterator[None]:
    """All multiplications inside are computed by this engine; None: the choice is automatic.

    Raises EngineError for a name that does not exist.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> a, b, c = np.ones((16, 8), np.float16), np.ones((8, 8), np.float16), np.zeros((16, 8), np.float32)
    >>> with using("numpy"):
    ...     d = mma.matmul(a, b, c)
    >>> bool((d == mma.matmul(a, b, c, engine="numpy")).all())
    True
    """
    if engine is not None and not isinstance(engine, Engine):
        find(engine)
    before = _asked.set(engine)
    try:
        yield
    finally:
        _asked.reset(before)


def asked() -> str | Engine | None:
    """The engine of `using`, or that of the environment variable TCSIM_ENGINE; None: the choice is automatic."""
    return _asked.get() or os.environ.get("TCSIM_ENGINE") or None


def multiply(work: Work, matrices: Matrices, order: Sequence[int] = (0,), engine: str | Engine | None = None) -> Codes:
    """D (T, M, N) of the instructions along K in this order, by the engine, that of `using`, that of TCSIM_ENGINE, or a choice.

    Raises EngineError if the engine that was asked for is not there, does not work, or does not compute this.
    """
    products = len(order) * work.kept * matrices.c.size
    return _by_one(work, matrices, products, engine, lambda one: one.multiply(work, matrices, order))


def accumulate(work: Work, matrices: Matrices, order: Sequence[int], held: Accumulators) -> None:
    """D of `multiply` into the registers that hold C, by the engine that `multiply` would take; of the C of `matrices` only the shape counts.

    Raises as `multiply` does.
    """
    products = len(order) * work.kept * matrices.c.size
    _by_one(work, matrices, products, None, lambda one: one.accumulate(work, matrices, order, held))


def execute(work: Work, stored: Stored, engine: str | Engine | None = None) -> Words | None:
    """The words (T, words) of D of one instruction, by the engine that `multiply` would take; None where they are in its registers.

    Raises as `multiply` does.
    """
    products = work.kept * prod(stored.shape)
    found = _by_one(work, stored, products, engine, lambda one: one.execute(work, stored))
    if stored.into is None or found is None:
        return found
    stored.into.put(found)
    return None


def _by_one(
    work: Work, given: Matrices | Stored, products: int, engine: str | Engine | None, run: Callable[[Engine], Found]
) -> Found:
    """The result of an engine: of the one that is asked for, or of the first that works."""
    wanted = engine if engine is not None else asked()
    if wanted is not None:
        found = wanted if isinstance(wanted, Engine) else find(wanted)
        why_not = found.missing() or found.takes(work)
        if why_not:
            raise EngineError(
                f"engine={found.name!r}: {why_not}; valid: engine='numpy', or None for an automatic choice"
            )
        return run(found)
    for candidate in _worth(work, given, products):
        try:
            return run(candidate)
        except EngineError as error:
            _give_up(candidate.name, error)
    began = thread_time()
    result = run(NUMPY)
    if products >= _TIMED:
        _slowness[work] = (thread_time() - began) * _NOMINAL / products
    return result


def _worth(work: Work, given: Matrices | Stored, products: int) -> Iterator[Engine]:
    """The engines that are there and would be faster than NumPy, the fastest for large work first.

    An engine starts once it could have computed, in this process, what NumPy computes in the time that starting takes.
    """
    candidates = [found for found in map(_candidate, names()) if found is not None and products >= found.least]
    for found in sorted(candidates, key=lambda one: -one.least):
        if found.missing() or found.takes(work) or not found.worth(work, given):
            continue
        _spent[found.name] += int(products * _slowness.get(work, 1.0))
        if _spent[found.name] >= found.start:
            yield found


def started(name: str) -> Engine:
    """An engine that somebody has started by name: from now on it is chosen wherever it is faster. Raises as `find` does."""
    found = find(name)
    _spent[name] = max(_spent[name], found.start)
    return found


def _candidate(name: str) -> Engine | None:
    if name == NUMPY.name or name in _given_up:
        return None
    try:
        return _loaded(name)
    except EngineError as error:
        _give_up(name, error)
        return None


def _give_up(name: str, error: EngineError) -> None:
    """Do not choose the engine again, and say so once."""
    _given_up.add(name)
    warnings.warn(f"{error}; not used from now on: the results are the same", EngineWarning, stacklevel=2)
