"""Values to codes and codes to values, for whole arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import as_array
from tcsim.core.errors import FormatError, listing
from tcsim.numbers.formats import FORMATS, INFINITY, NAN, Format
from tcsim.numbers.formats import format as find_format
from tcsim.numbers.rounding import RoundingName, find_rounding, round_narrow

FLOAT_DTYPES: dict[np.dtype, str] = {
    np.dtype(np.float16): "f16",
    np.dtype(np.float32): "f32",
    np.dtype(np.float64): "f64",
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(ml_dtypes.float8_e4m3fn): "e4m3",
    np.dtype(ml_dtypes.float8_e5m2): "e5m2",
    np.dtype(ml_dtypes.float8_e8m0fnu): "ue8m0",
    np.dtype(ml_dtypes.float6_e3m2fn): "e3m2",
    np.dtype(ml_dtypes.float6_e2m3fn): "e2m3",
    np.dtype(ml_dtypes.float4_e2m1fn): "e2m1",
}
"""NumPy and ml_dtypes float types whose bytes are codes of a format."""

SIGNED_DTYPES: dict[np.dtype, tuple[str, ...]] = {
    np.dtype(np.int8): ("s8",),
    np.dtype(np.int32): ("s32",),
    np.dtype(ml_dtypes.int4): ("s4",),
    np.dtype(ml_dtypes.uint4): ("u4",),
}
"""Integer types, beside the unsigned container itself, whose bytes are codes of a format."""


def as_codes(x: Any, format: str | Format, what: str = "codes") -> npt.NDArray[Any]:
    """Take an array of codes, or of NumPy or ml_dtypes values of exactly that format, as codes.

    Raises FormatError for another dtype or for a code with bits outside the format; nothing is converted.

    >>> tcsim.as_codes(np.float16([1.0]), "f16")
    array([15360], dtype=uint16)
    """
    target = find_format(format)
    array = as_array(x, what, FormatError)
    dtype = array.dtype
    if dtype == target.dtype:
        narrow = target.bits < (target.container_bits if target.kind != "float" else min(target.container_bits, 7))
        if narrow or target.zero_bits:
            check_codes(array, target, what)
        return array
    alias = FLOAT_DTYPES.get(dtype)
    if alias == target.name or (alias == "f32" and target.name == "tf32"):
        return array.view(target.dtype)
    if target.name in SIGNED_DTYPES.get(dtype, ()):
        raw = np.ascontiguousarray(array).view(target.dtype).reshape(array.shape)
        return raw & target.dtype.type(target.code_mask)
    if target.kind == "bit" and dtype == np.bool_:
        return array.astype(target.dtype)
    exact = [str(d) for d, name in FLOAT_DTYPES.items() if name == target.name]
    exact += [str(d) for d, names in SIGNED_DTYPES.items() if target.name in names]
    hint = f" (or convert with tcsim.encode(x, {target.name!r}))" if target.kind != "bit" else ""
    raise FormatError(
        f"{what}: dtype {dtype} does not hold codes of {target.name}; valid: {listing([str(target.dtype), *exact])}{hint}"
    )


def check_codes(codes: npt.NDArray[Any], format: Format, what: str) -> None:
    """Check that no code sets a bit that the format does not have.

    Raises FormatError, which names the first such code and `what` it is in.
    """
    excess = codes & format.dtype.type(~format.code_mask & ((1 << format.container_bits) - 1)) != 0
    if not excess.any():
        return
    bad = int(codes[excess].flat[0])
    if format.zero_bits:
        rule = f"bits {format.zero_bits:#x} of a code must be 0"
    else:
        rule = f"which has {format.bits} bits: valid codes are 0 to {format.code_mask:#x}"
    raise FormatError(f"{what}: {bad:#x} is not a code of {format.name}, {rule}")


def negated(codes: npt.NDArray[Any], format: Format) -> npt.NDArray[Any]:
    """Codes with their sign bits flipped, those of zeros and NaN too.

    >>> decode(negated(encode([1.0, 0.0], "f16"), FORMATS["f16"]), "f16").tolist()
    [-1.0, -0.0]
    """
    return np.asarray(codes ^ format.dtype.type(1 << (format.sign_shift + format.ignored_low_bits)))


def as_scale_codes(x: Any, format: str | Format, what: str = "codes") -> npt.NDArray[Any]:
    """As `as_codes`, except that an array of signed e4m3 counts as ue4m3, whose top bit the hardware ignores.

    >>> tcsim.numbers.codec.as_scale_codes(tcsim.encode([1.0], "e4m3"), "ue4m3")
    array([56], dtype=uint8)
    """
    target, array = find_format(format), as_array(x, what, FormatError)
    signed = target.name == "ue4m3" and FLOAT_DTYPES.get(array.dtype) == "e4m3"
    return as_codes(array.view(np.uint8) if signed else array, target, what)


def decode(codes: Any, format: str | Format) -> npt.NDArray[Any]:
    """Codes to values: float64 for float formats (exact for all of them), int64 for integer formats.

    Python integers, alone or in lists, are codes too: they have no width of their own.

    Raises FormatError for an unknown format or a code that the format does not have.

    >>> tcsim.decode(np.uint8([0x38, 0x7E, 0x01]), "e4m3")
    array([1.000000e+00, 4.480000e+02, 1.953125e-03])
    >>> float(tcsim.decode(0x3C00, "f16"))
    1.0
    """
    target = find_format(format)
    raw = as_codes(_of_python(codes, target), target)
    if target.kind == "float":
        return target.values(np.ascontiguousarray(raw)).reshape(raw.shape)
    wide = raw.astype(np.int64)
    if not target.signed:
        return wide
    half = np.int64(1 << (target.bits - 1))
    if target.sign_magnitude:
        return np.where(wide & half, -(wide ^ half), wide)
    return (wide ^ half) - half


def _of_python(codes: Any, target: Format) -> Any:
    """Python integers as codes in the container of a format; anything else as it is."""
    if isinstance(codes, np.ndarray | np.generic):
        return codes
    as_array(codes, "codes", FormatError)
    given = np.asarray(codes, object)
    if not all(type(code) is int for code in given.flat):
        return codes
    limit = (1 << target.container_bits) - 1
    wrong = [code for code in given.flat if not 0 <= code <= limit]
    if wrong:
        raise FormatError(f"codes: {wrong[0]:#x} is not a code of {target.name}; valid codes are 0 to {limit:#x}")
    return given.astype(target.dtype)


def encode(x: Any, format: str | Format, rounding: RoundingName = "rne", saturate: bool = False) -> npt.NDArray[Any]:
    """Values to codes, rounding each value once.

    `x` is any real array (integers up to 2**53 in magnitude, floats up to 64 bits). Out of range: what IEEE 754 says
    for the rounding mode; a format without infinity gives NaN (e4m3) or, if it has no NaN either (e3m2, e2m3, e2m1), its
    largest number; `saturate=True` gives the largest number always, infinities included. NaN becomes the NaN that the
    tensor cores write. Integer formats take integral values in range only, or clamp them with `saturate=True`.
    `rounding` is rne (PTX calls it rn), rz, rm, rp or rna.

    Raises FormatError for an unknown format or rounding, and for a NaN or out-of-range integer that has no code.

    >>> [hex(code) for code in tcsim.encode([1.0, 500.0, -0.0], "e4m3")]
    ['0x38', '0x7f', '0x80']
    >>> int(tcsim.encode(500.0, "e4m3", saturate=True))
    126
    """
    target = find_format(format)
    rounding = find_rounding(rounding)
    array = as_array(x, f"encode to {target.name}", FormatError)
    real = array.dtype.kind in "iub" or (array.dtype.kind == "f" and array.dtype.itemsize <= 8)
    if not real and array.dtype not in FLOAT_DTYPES:
        raise FormatError(
            f"encode to {target.name}: dtype {array.dtype} is not real, or wider than 64 bits, and part of it would be lost; "
            "valid: integers, and floats of up to 64 bits"
        )
    if target.kind != "float":
        return _encode_integer(array, target, saturate)
    if array.dtype.kind in "iu" and array.size and (array > 2**53).any() | (array < -(2**53)).any():
        raise FormatError(f"encode to {target.name}: integers beyond 2**53 would be rounded twice; pass float64")
    source = FORMATS["f64"]
    parts = source.fields(np.ascontiguousarray(_as_float64(array)).view(np.uint64).reshape(array.shape))
    zeros = np.zeros_like(parts.significand)
    finite = np.where(parts.kind >= INFINITY, zeros, parts.significand)
    codes = round_narrow(parts.sign, finite, parts.exponent - source.fraction_bits, target, rounding, saturate)
    codes = np.where(parts.kind == INFINITY, _infinity_codes(parts.sign, target, saturate), codes)
    is_nan = parts.kind == NAN
    codes = codes << np.uint64(target.ignored_low_bits)
    if is_nan.any():
        if target.canonical_nan is None:
            raise FormatError(
                f"encode: NaN has no code in {target.name}; formats with NaN: "
                + listing(f.name for f in FORMATS.values() if f.canonical_nan is not None)
            )
        codes = np.where(is_nan, np.uint64(target.canonical_nan), codes)
    return codes.astype(target.dtype)


def _as_float64(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return array.astype(np.float64)


def _infinity_codes(sign: npt.NDArray[np.uint8], target: Format, saturate: bool) -> npt.NDArray[np.uint64]:
    magnitude = target.largest_code if saturate or target.nan == "none" else target.largest_code + 1
    if not target.signed:
        return np.where(sign == 1, np.uint64(target.largest_code + 1), np.uint64(magnitude))
    return np.uint64(magnitude) | (sign.astype(np.uint64) << np.uint64(target.sign_shift))


def _encode_integer(array: npt.NDArray[Any], target: Format, saturate: bool) -> npt.NDArray[Any]:
    low, high = target.limits
    if array.dtype.kind == "b" or array.dtype in FLOAT_DTYPES:
        array = _as_float64(array)
    if array.dtype.kind == "f" and not (np.isfinite(array) & (np.trunc(array) == array)).all():
        raise FormatError(f"encode to {target.name}: every value must be integral")
    clamped = np.clip(array, low, high)
    if not saturate and (clamped != array).any():
        bad = array[clamped != array].flat[0]
        raise FormatError(f"encode: {bad} is outside {target.name}, {low} to {high}; saturate=True clamps")
    wide = clamped.astype(np.int64)
    if target.sign_magnitude:
        wide = abs(wide) | (wide < 0).astype(np.int64) << target.sign_shift
    return (wide & target.code_mask).astype(target.dtype)
