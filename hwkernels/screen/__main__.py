"""`python -m hwkernels.screen`."""

from __future__ import annotations

from hwkernels.screen.run import main

if __name__ == "__main__":
    raise SystemExit(main())
