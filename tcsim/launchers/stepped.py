"""A launch as plain data, to be stepped through: its arrays have their names in the session."""

from __future__ import annotations

from typing import Any

from tcsim.core.errors import OperandError
from tcsim.launchers.job import Job, prepared
from tcsim.ptx import Session


def session(job: Job, **options: Any) -> Session:
    """A session that stands before the launch's first instruction; options: those of `Kernel.session` that a launch does not have.

    Raises what `tcsim.launchers.job.execute` raises, and OperandError where the launch that comes before did not complete.
    """
    own = prepared(job)
    if own.before is not None and not own.before.completed:
        said = own.before.cause or "it did not complete"
        raise OperandError(f"{job.before_kernel}, which comes before, did not complete: {said}")
    made = own.kernel.session(own.memory, own.params, **own.options, **options)
    for region in job.regions:
        kind, address = region.elements, own.addresses[region.name]
        if kind.bits < 8:  # several elements in a byte: the bytes have the name
            made.name(region.name, address, (len(region.before),), "u8")
        elif len(region.before):
            made.name(region.name, address, region.shape or (1,), kind.format or kind.dtype)
    return made
