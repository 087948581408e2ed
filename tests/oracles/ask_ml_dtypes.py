"""ml_dtypes, and NumPy for float16: decode codes, and encode values by a cast. Run by tests/oracles/asking.py."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from answering import Arrays, Job, main

DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "s4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
}


def answer(job: Job, given: Arrays) -> Arrays:
    """One job."""
    dtype = np.dtype(DTYPES[job["format"]])
    with np.errstate(all="ignore"):
        if job["do"] == "decode":
            return {"values": given["codes"].view(dtype).astype(np.float64)}
        return {"codes": given["values"].astype(dtype).view(f"u{dtype.itemsize}")}


if __name__ == "__main__":
    main("ml_dtypes", answer)
