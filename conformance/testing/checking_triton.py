"""What the marker `tcsim` does: what a test launches with Triton runs on the model, and fails the test for what is wrong in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from conformance.testing.checking import require
from conformance.testing.launching import LaunchFailure
from tcsim.core.errors import OperandError, shortened
from tcsim.launchers.check import of_session
from tcsim.launchers.triton_session import triton


@contextmanager
def checked_triton(
    file: str, arch: str | None = None, severity: str = "error", allow: Iterable[str] = (), **options: Any
) -> Iterator[None]:
    """What Triton launches inside runs on the model. Raises LaunchFailure at the end for what was wrong, or if nothing was launched."""
    if arch is None:
        raise OperandError("the marker tcsim needs arch=: what Triton compiles for, as sm_90")
    with triton(arch, log=None, **options) as session:
        yield
    if not session.launches:
        raise LaunchFailure(f"{shortened(file)}: the marker tcsim, and Triton launched nothing")
    require(of_session(session, file), severity, allow)
