"""Who hears of what happens in a cluster: of each kind of event the methods of those who subscribed. An event that nobody wants costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Hearing = tuple[Callable[..., None], ...]
"""Who hears of an event, in the order in which they subscribed."""


class Events:
    """The events of a cluster, named and described as the methods of `tcsim.ptx.machine.observer.Observer`.

    >>> events, heard = Events(), []
    >>> events.subscribe(type("Exits", (), {"exited": lambda self, block, mask: heard.append(mask)})())
    >>> for hear in events.exited:
    ...     hear(None, "all")
    >>> heard, events.passed
    (['all'], ())
    """

    executing: Hearing
    shuffled: Hearing
    asking: Hearing
    asked: Hearing
    loaded: Hearing
    stored: Hearing
    looked: Hearing
    put: Hearing
    accessed: Hearing
    performed: Hearing
    incomplete: Hearing
    issued: Hearing
    fetching: Hearing
    fetched: Hearing
    landing: Hearing
    delivering: Hearing
    delivered: Hearing
    landed: Hearing
    grouped: Hearing
    tracking: Hearing
    following: Hearing
    followed: Hearing
    needed: Hearing
    touched: Hearing
    moved: Hearing
    signalled: Hearing
    arrived: Hearing
    passed: Hearing
    met: Hearing
    exchanged: Hearing
    fenced: Hearing
    granted: Hearing
    given: Hearing
    exited: Hearing
    ended: Hearing

    def __init__(self) -> None:
        for kind in KINDS:
            setattr(self, kind, ())

    def subscribe(self, observer: Any, silent: type | None = None) -> None:
        """Let an observer hear of the events that it has methods for, but for those that it has from a class in which they do nothing."""
        for kind in KINDS:
            method = getattr(observer, kind, None)
            if method is not None and getattr(method, "__func__", None) is not getattr(silent, kind, method):
                setattr(self, kind, (*getattr(self, kind), method))


KINDS = tuple(Events.__annotations__)
"""All events."""
