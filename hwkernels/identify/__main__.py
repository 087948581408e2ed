"""`python -m hwkernels.identify`."""

from __future__ import annotations

from hwkernels.identify.run import main

if __name__ == "__main__":
    raise SystemExit(main())
