"""gfloat: decode, round and encode numbers and blocks. Run by tests/oracles/asking.py."""

from __future__ import annotations

import numpy as np
from answering import Arrays, Job, main
from gfloat import RoundMode, decode_block, decode_float, decode_ndarray, encode_block, encode_ndarray, round_ndarray
from gfloat import formats as known

FORMATS = {
    "f16": known.format_info_binary16,
    "bf16": known.format_info_bfloat16,
    "f32": known.format_info_binary32,
    "e4m3": known.format_info_ocp_e4m3,
    "e5m2": known.format_info_ocp_e5m2,
    "e3m2": known.format_info_ocp_e3m2,
    "e2m3": known.format_info_ocp_e2m3,
    "e2m1": known.format_info_ocp_e2m1,
    "ue8m0": known.format_info_ocp_e8m0,
}
BLOCKS = {
    "e4m3": known.format_info_mxfp8_e4m3,
    "e5m2": known.format_info_mxfp8_e5m2,
    "e3m2": known.format_info_mxfp6_e3m2,
    "e2m3": known.format_info_mxfp6_e2m3,
    "e2m1": known.format_info_mxfp4_e2m1,
}
ROUNDINGS = {
    "rne": RoundMode.TiesToEven,
    "rna": RoundMode.TiesToAway,
    "rz": RoundMode.TowardZero,
    "rm": RoundMode.TowardNegative,
    "rp": RoundMode.TowardPositive,
}


def answer(job: Job, given: Arrays) -> Arrays:
    """One job."""
    info = FORMATS[job["format"]]
    match job["do"]:
        case "decode":
            return {"values": decode_ndarray(info, given["codes"].astype(np.int64))}
        case "fields":
            parts = [decode_float(info, int(code)) for code in given["codes"]]
            return {
                "sign": [p.signbit for p in parts],
                "exponent": [p.expval for p in parts],
                "significand": [p.fsignificand for p in parts],
                "kind": [p.fclass.name for p in parts],
            }
        case "round":
            rounded = round_ndarray(info, given["values"], ROUNDINGS[job["rounding"]], job["saturate"])
            return {"codes": encode_ndarray(info, rounded)}
        case "decode block":
            return {"values": [list(decode_block(BLOCKS[job["format"]], block)) for block in given["codes"].tolist()]}
        case "encode block":
            pairs = zip(given["scales"].tolist(), given["values"].tolist(), strict=True)
            return {"codes": [list(encode_block(BLOCKS[job["format"]], scale, values)) for scale, values in pairs]}
    raise ValueError(f"no such job: {job}")


if __name__ == "__main__":
    main("gfloat", answer)
