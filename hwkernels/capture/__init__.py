"""Record the launches of a program on a GPU, to run them anywhere: `tcsim exec launch.npz`.

    with hwkernels.capture.capture("folder") as session:
        kernel[grid](x, y, n)
    print(*session.lines(), sep="\\n")

The same from a shell, for a whole script: `python -m hwkernels.capture script.py -o folder`. docs/exec.md says what is recorded of which
launcher, and what cannot be.
"""

from __future__ import annotations

from hwkernels.capture.hooks import capture
from hwkernels.capture.session import Session

__all__ = ["Session", "capture"]
