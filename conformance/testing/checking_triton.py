"""What the marker `tcsim` does: what a test launches with Triton runs on the model, and fails the test for what is wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from conformance.testing.checking import require, written
from conformance.testing.launching import LaunchFailure
from tcsim.core.errors import OperandError, shortened
from tcsim.launchers.check import of_session
from tcsim.launchers.check import page as timeline_of
from tcsim.launchers.launched import LaunchFailed
from tcsim.launchers.triton_session import triton


@contextmanager
def checked_triton(
    file: str, arch: str | None = None, severity: str = "error", allow: Iterable[str] = (), page: Path | None = None,
    told: Callable[[str], None] = lambda sampled: None, **options: Any,
) -> Iterator[None]:  # fmt: skip
    """What Triton launches inside runs on the model. Raises LaunchFailure at the end for what was wrong, or if nothing was launched.

    page: where the timeline of a block goes then. told: is called with `Check.sampled`.
    """
    if arch is None:
        raise OperandError("the marker tcsim needs arch=: what Triton compiles for, as sm_90")
    with triton(arch, log=None, timeline=page is not None, **options) as session:
        try:
            yield
        except LaunchFailed as error:
            shown = of_session(session, file).shown
            if page is not None and shown is not None:
                error.add_note(f"timeline: {written(page, timeline_of(shown))}")
            raise
    if not session.launches:
        raise LaunchFailure(f"{shortened(file)}: the marker tcsim, and Triton launched nothing")
    found = of_session(session, file)
    told(found.sampled)
    require(found, severity, allow, page, partial(timeline_of, found.shown) if found.shown is not None else None)
