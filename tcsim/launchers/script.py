"""A script for Triton or CuTe DSL, run from beginning to end on the model of an arch."""

from __future__ import annotations

import ast
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tcsim.launchers.check import Check, Shown, of_session
from tcsim.launchers.cute_session import cute
from tcsim.launchers.launched import LaunchFailed
from tcsim.launchers.session import Session
from tcsim.launchers.triton_session import triton
from tcsim.launchers.witnesses import ORDERS, Search
from tcsim.ptx import Run

TORCH = "the script launched no kernel of its own; tcsim.torch.emulate runs what torch itself computes as another GPU does (docs/torch.md)"
"""Of a script that uses torch and launches nothing."""


def run_script(path: str, arguments: Sequence[str], arch: str, **options: Any) -> tuple[int, Session]:
    """Run a script as `python path arguments` does; the exit status, and its launches.

    A script that imports cutlass itself is one for CuTe DSL, any other one for Triton and Gluon.

    options: as `tcsim.launchers.triton` takes them. The status is the script's own, or 1 if it is 0 and a launch had a hazard that
    is an error. A launch that stops with one ends the script.

    Raises FileNotFoundError if there is no script, what `tcsim.launchers.triton` or `tcsim.launchers.cute` raises, and what the script raises.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(path)
    launcher = cute if "cutlass" in imported(path) else triton
    with launcher(arch, **options) as session, started_with(path, arguments):
        status = 0
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            if isinstance(stop.code, str):
                session.say(stop.code)
        except LaunchFailed as error:
            lines = [own.lineno for own in traceback.extract_tb(error.__traceback__) if own.filename == path]
            cause = error.launched.run.cause
            session.say(
                f"{path}:{lines[-1] if lines else 0}: {error.launched.kernel} stopped"
                + (f": {cause.name}" if cause else "")
            )
            status = 1
        if not session.launches and "torch" in imported(path):
            session.say(TORCH)
    return status or int(any(not own.clean for own in session.launches)), session


def imported(path: str) -> set[str]:
    """The packages that a script imports, in whatever function; none of a text that is not Python."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (SyntaxError, ValueError):
        return set()
    names = [own.name for item in ast.walk(tree) if isinstance(item, ast.Import) for own in item.names]
    names += [item.module or "" for item in ast.walk(tree) if isinstance(item, ast.ImportFrom) and not item.level]
    return {name.partition(".")[0] for name in names}


def check_script(
    path: str,
    arguments: Sequence[str],
    arch: str,
    schedules: Sequence[str | int] = ("late",),
    orders: int = ORDERS,
    **options: Any,
) -> Check:
    """Run a script under each schedule, and check what it launches; for witnesses of errors run up to `orders` launches more.

    options: as `run_script` takes them.
    With timeline=True the check has the launch to show. Raises what `run_script` raises.
    """
    launches: list[tuple[str | int, Run, dict[str, Any]]] = []
    shown: list[tuple[bool, Shown]] = []
    status, search = 0, Search(orders)
    for schedule in schedules:
        own, session = run_script(path, arguments, arch, schedule=schedule, witnesses=orders > 0, says=False, **options)
        found = of_session(session, search=search)
        launches += found.launches
        if found.shown is not None and session.shown is not None:
            shown.append((session.shown[1].hazard_block is None, found.shown))
        unclean = any(not item.clean for item in session.launches)
        status = status or (0 if own == 1 and unclean else own)
    first = min(shown, key=lambda item: item[0], default=(True, None))[1]
    return Check(path, tuple(schedules), tuple(launches), (), status, first, search.found, options.get("races", False))


@contextmanager
def started_with(path: str, arguments: Sequence[str]) -> Iterator[None]:
    """The command line and the search path of a script."""
    before = sys.argv, list(sys.path)
    sys.argv, sys.path[:0] = [path, *arguments], [str(Path(path).resolve().parent)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before[0], before[1]
