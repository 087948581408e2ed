"""`python -m hwkernels.capture SCRIPT [ARGUMENT ...] -o FOLDER`: run a script, and record its launches.

Each launch becomes FOLDER/NUMBER_KERNEL.npz, which `tcsim exec` runs anywhere. The exit status is the script's, or 1 if nothing was recorded.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from hwkernels.capture.hooks import HOOKS, capture
from hwkernels.capture.session import MAX_BYTES, MAX_LAUNCHES


def main(arguments: list[str]) -> int:
    """Run and record."""
    parser = argparse.ArgumentParser(prog="python -m hwkernels.capture", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES, help="of the memory of a launch (%(default)s)")
    parser.add_argument("--max-launches", type=int, default=MAX_LAUNCHES, help="that are recorded (%(default)s)")
    parser.add_argument(
        "--kernel", action="append", default=[], help="only kernels whose name contains this; may be repeated"
    )
    parser.add_argument(
        "--launcher", action="append", choices=tuple(HOOKS), help="only launches through this; may be repeated"
    )
    parser.add_argument("script", type=Path)
    parser.add_argument("argument", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    if not given.script.is_file():
        parser.error(f"no script {str(given.script)!r}")
    status = 0
    launchers = tuple(given.launcher or HOOKS)
    old_arguments, old_path = sys.argv, sys.path[:]
    with capture(given.out, given.max_bytes, given.max_launches, given.kernel, launchers=launchers) as session:
        sys.argv = [str(given.script), *given.argument]
        sys.path.insert(0, str(given.script.resolve().parent))
        try:
            runpy.run_path(str(given.script), run_name="__main__")
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        finally:
            sys.argv, sys.path[:] = old_arguments, old_path
            print(*session.lines(), sep="\n", file=sys.stderr)
    return status or int(not session.files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
