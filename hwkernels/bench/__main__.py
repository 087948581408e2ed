"""`python -m hwkernels.bench`."""

from __future__ import annotations

from hwkernels.bench.run import main

if __name__ == "__main__":
    raise SystemExit(main())
