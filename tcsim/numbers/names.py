"""Number formats by the names that others have for them."""

from __future__ import annotations

from types import MappingProxyType

TYPES: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        format: tuple(names.split())
        for format, names in {
            "f16": "fp16 float16 half __half half_t float16_t",
            "bf16": "bfloat16 bfloat bfloat16_t __nv_bfloat16 nv_bfloat16",
            "f32": "fp32 float32 float single",
            "tf32": "tfloat32 tf32_t tfloat32_t",
            "f64": "fp64 float64 double",
            "e4m3": "float8_e4m3 float8_e4m3fn float8_e4m3_t float_e4m3_t fp8e4m3 fp8_e4m3 fp8e4nv e4m3fn __nv_fp8_e4m3",
            "e5m2": "float8_e5m2 float8_e5m2_t float_e5m2_t fp8e5m2 fp8_e5m2 fp8e5 __nv_fp8_e5m2",
            "e2m1": "fp4 float4 float4_e2m1 float4_e2m1fn float_e2m1_t fp4_e2m1",
            "e3m2": "float6_e3m2 float6_e3m2fn float_e3m2_t",
            "e2m3": "float6_e2m3 float6_e2m3fn float_e2m3_t",
            "s8": "int8 i8 int8_t char",
            "u8": "uint8 uint8_t",
            "s4": "int4 i4",
            "u4": "uint4",
            "s32": "int32 i32 int",
            "b1": "binary bit bits bool u1 uint1",
            "ue8m0": "e8m0 e8m0fnu",
        }.items()
        for names in [names]
    }
)
"""Formats, and what else they are called."""

_SCALED = {
    "nvfp4": ("e2m1", "ue4m3", "nvfp4"), "mxfp4": ("e2m1", "ue8m0", "mx"), "mxfp6": ("e3m2 e2m3", "ue8m0", "mx"), "mxfp8": ("e4m3 e5m2", "ue8m0", "mx"),
    "mxint8": ("s8", "ue8m0", "mx"),
}  # fmt: skip
_SEVERAL = {
    "fp8": "e4m3 e5m2",
    "float8": "e4m3 e5m2",
    "f8": "e4m3 e5m2",
    "fp6": "e3m2 e2m3",
    "float6": "e3m2 e2m3",
    "f6": "e3m2 e2m3",
    "f4": "e2m1",
}


def meant(name: str) -> str:
    """What a name that is not a format's means, as a sentence; empty where nobody is known to say it.

    >>> meant("fp8"), meant("nvfp4"), meant("half"), meant("f17")
    ('fp8 is e4m3 or e5m2', 'nvfp4 is e2m1 with scale factors of ue4m3: tcsim quantize --type e2m1 --blocks nvfp4', 'half is f16', '')
    """
    low = name.lower()
    if low in _SCALED:
        formats, scale, blocks = _SCALED[low]
        first, *_ = own = formats.split()
        return f"{low} is {' or '.join(own)} with scale factors of {scale}: tcsim quantize --type {first} --blocks {blocks}"
    if low in _SEVERAL:
        return f"{low} is {' or '.join(_SEVERAL[low].split())}"
    return next((f"{low} is {format}" for format, names in TYPES.items() if low == format or low in names), "")
