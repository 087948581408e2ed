"""Triton's driver replaced for a while: scripts compile for an arch and run on the model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import nan
from typing import Any, TextIO

from tcsim.core.errors import OperandError
from tcsim.launchers.session import Session
from tcsim.ptx import Limits

SUPPORTED = ("3.7", "3.8", "3.9")  # whose driver interface was read, and which the tests ran with: tox -e triton
_BENCHMARKS = ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton")


@contextmanager
def triton(
    arch: str, *, schedule: str | int = "late", limits: Limits | None = None, multiprocessors: int | None = None,
    check: bool | str = True, cuda: bool = True, save: str | os.PathLike[str] | None = None, log: TextIO | None = sys.stderr,
    timeline: bool = False, races: bool = False, witnesses: bool = False, counters: bool = False, says: bool = True,
) -> Iterator[Session]:  # fmt: skip
    """Run what Triton and Gluon launch on the model of an arch; tensors are CPU tensors, or NumPy arrays as `HostArray`.

    arch: an arch or a target, "sm_90" or "sm_90a": Triton compiles for the arch's own instructions. schedule, limits, check:
    as `tcsim.ptx.Kernel.launch` takes them. multiprocessors: what the device says it has; those of a well-known GPU of the arch if left
    out. cuda: whether torch, where it is installed, takes "cuda" for the CPU (`tcsim.launchers.torch_cuda`). save: a folder that gets
    a recorded launch (`tcsim.launchers.recording`) of each, which `tcsim exec` runs again. log: where a line for each launch goes.
    timeline: whether the session keeps the launch whose timeline `tcsim.launchers.check.of_session` is to show. witnesses: whether it keeps those with errors, of
    which that looks for an order of completion that changes an array. races, counters: as `tcsim.ptx.Kernel.launch` takes them.
    says: whether the log gets what is wrong with each launch.

    The session that it yields has `launches`, one for each, with `.run` (hazards, inexact), `.seconds` and `.line()`.

    Raises OperandError without a Triton that is supported, TargetError for another arch; and while it is active LaunchFailed for a
    launch that stops with a hazard.
    """
    check_version()
    session = Session(
        arch, schedule, limits, multiprocessors, save, log, check, timeline, races, witnesses, counters, says
    )
    # Triton and torch are extras: whether they are there is asked above
    from tcsim.launchers.triton_driver import Compiler, Driver, backends, runtime, testing

    stand_in: AbstractContextManager[Any] = nullcontext()
    if cuda and find_spec("torch") is not None:
        from tcsim.launchers.torch_cuda import cpu_for_cuda  # as above

        stand_in = cpu_for_cuda(session.arch, session.multiprocessors)
    former, active = dict(backends.backends), runtime.driver._active
    measured = {name: getattr(testing, name) for name in _BENCHMARKS if hasattr(testing, name)}
    backends.backends["nvidia"] = backends.Backend(Compiler, Driver)
    once = benchmark(session)
    runtime.driver.set_active(Driver(session, once))
    for name in measured:
        setattr(testing, name, once)
    try:
        with stand_in:
            yield session
    finally:
        for name, function in measured.items():
            setattr(testing, name, function)
        runtime.driver._active = active
        backends.backends.update(former)
        session.say(session.summary())


def check_version() -> None:
    """Raise OperandError if there is no Triton, or one whose driver interface may be another."""
    try:
        found = version("triton")
    except PackageNotFoundError:
        raise OperandError("tcsim.launchers.triton needs Triton: pip install 'tcsim[triton]'") from None
    if not found.startswith(tuple(f"{own}." for own in SUPPORTED)):
        raise OperandError(f"tcsim.launchers.triton: Triton {found}; valid: {', '.join(SUPPORTED)}")


def benchmark(session: Session) -> Callable[..., Any]:
    """What stands for triton.testing.do_bench and its relatives."""

    def once(
        fn: Callable[[], Any], *options: Any, quantiles: Any = None, return_mode: str = "mean", **more: Any
    ) -> Any:
        """Call a function once; NaN for every time."""
        fn()
        session.say("do_bench: called once, nothing measured: NaN")
        if quantiles is not None:
            return [nan] * len(quantiles) if len(quantiles) > 1 else nan
        return [nan] if return_mode == "all" else nan

    return once
