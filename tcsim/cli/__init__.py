"""The command line `tcsim`: one module for each subcommand. It needs the extra `cli`; `import tcsim` does not import it."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys

NEEDED = ("typer", "rich")
COLLECT_AFTER = 50_000
"""Objects made before Python looks for garbage among them. What a lookup makes it keeps: looking costs a twentieth of it."""
LOOK_UPS = frozenset(
    ["list", "show", "where", "what", "map", "picture", "inputs", "descriptor", "idesc", "tensormap", "tmem", "swizzle", "mbarrier", "number", "plan"]
)  # fmt: skip
"""Subcommands that multiply no large matrices: they do without the threads of NumPy's BLAS, which take 50 ms to start."""
MISSING = (
    "tcsim: the command line needs {names}, which the extra `cli` brings: pip install 'tcsim[cli]'\n"
    "The library works without it: import tcsim"
)


def main() -> None:
    """Run the command line; exit status 2 after a wrong argument, 1 after a check that found something."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        print(MISSING.format(names=" and ".join(absent)), file=sys.stderr)
        raise SystemExit(2)
    gc.set_threshold(COLLECT_AFTER)
    if LOOK_UPS.intersection(sys.argv[1:2]):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tcsim.cli.app import app  # it needs what was just looked for

    app(prog_name="tcsim")
