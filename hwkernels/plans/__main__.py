"""`python -m hwkernels.plans`."""

from __future__ import annotations

from hwkernels.plans.command import main

if __name__ == "__main__":
    raise SystemExit(main())
