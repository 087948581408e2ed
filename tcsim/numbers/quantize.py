"""Arrays of numbers to codes of narrow formats, alone or with block scale factors, and back.

Every element is rounded once, by the same engine that models `cvt`. Sources: OCP Microscaling Formats Specification
1.0, section 6.3 (MX); torchao, mx_formats (the names of the scale modes, CEIL and EVEN); arXiv 2506.08027 (RCEIL); arXiv
2509.25149 and NVIDIA TransformerEngine, core_nvfp4.cuh (NVFP4, its blocks of 16 x 16).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import as_array, integer, is_name, is_number
from tcsim.core.errors import FormatError, OperandError, listing
from tcsim.numbers.codec import FLOAT_DTYPES, as_codes, as_scale_codes, decode
from tcsim.numbers.conversion import Codes, Conversion, convert, nan_code
from tcsim.numbers.formats import FORMATS, Format
from tcsim.numbers.formats import format as find_format
from tcsim.numbers.rounding import Rounding, RoundingName, find_rounding

MX_FORMATS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
"""Element formats of MX blocks."""

MX_BLOCKS = (32, 16)
"""Elements that share a ue8m0 scale factor: 32 by the MX specification; .scale_vec::4X takes 16 too."""

NVFP4_BLOCK = 16
"""Elements of an NVFP4 block."""

ScaleMode = Literal["floor", "rceil", "ceil", "even"]
ScaleFormat = Literal["e4m3", "ue5m3"]
"""torchao's ScaleCalculationMode."""
_F32_MAX = np.float32(FORMATS["f32"].largest)


# --- one number, one code


def quantize(
    x: Any,
    format: str | Format,
    rounding: RoundingName | Literal["rs"] = "rne",
    saturate: bool = True,
    random: Any = None,
) -> Codes:
    """Numbers to codes, each rounded once: what `cvt` with `.satfinite` writes, for any format and rounding.

    `x` is any real array; the result has its shape and the format's unsigned dtype. Infinities and numbers out of range
    become the largest number of their sign; with `saturate=False` what IEEE 754 says of overflow: infinity, or in its
    place the NaN of a format without infinity. Formats with neither, and integers, clamp always. NaN becomes the NaN
    that `cvt` writes; in formats without NaN the largest number, in integers 0. Integers are rounded to whole numbers.

    `rounding="rs"` is stochastic, as `cvt.rs` does it: `random` holds, for each number, an integer below 2**16 (f16: 2**13)
    that is added right below the last place; the carry out of it rounds. It is for floats and broadcasts to the shape of `x`.

    Raises FormatError for an unknown format or rounding, for b1, for x that is not real or has integers beyond 2**53,
    and for a negative number in a format without sign.

    >>> [hex(code) for code in tcsim.quantize([1.06, -1000.0, np.nan], "e4m3")]
    ['0x38', '0xfe', '0x7f']
    >>> tcsim.decode(tcsim.quantize([2.5, 3.5, 9.0], "e2m1"), "e2m1")
    array([2., 4., 6.])
    """
    target = find_format(format)
    call = f'tcsim.quantize(x, "{target.name}")'
    stochastic = rounding == "rs"
    direction: Rounding = "rne" if rounding == "rs" else find_rounding(rounding)
    if target.kind == "bit":
        valid = listing(name for name, row in FORMATS.items() if row.kind != "bit")
        raise FormatError(f"{call}: {target.name} holds bits, not numbers; valid: {valid}")
    array = _real(x, call)
    if target.kind == "float" and not target.signed and (array < 0).any():
        bad = array[array < 0].flat[0]
        raise FormatError(f"{call}: {bad} is negative, and {target.name} has no sign; valid: 0 and above, NaN")
    name = FLOAT_DTYPES.get(array.dtype, "f64")
    source = FORMATS[name]
    codes = np.ascontiguousarray(array if name != "f64" else array.astype(np.float64)).view(source.dtype).reshape(-1)
    bits, drawn = 0, None
    if stochastic or random is not None:
        bits = 13 if target.name == "f16" else 16
        drawn = _drawn(random, bits, target, stochastic, array.shape, call)
    conversion = Conversion(source, target, direction, saturate, random_bits=bits, nan=nan_code(target))
    return convert(codes, conversion, random=drawn).reshape(array.shape)


def _drawn(
    random: Any, bits: int, target: Format, stochastic: bool, shape: tuple[int, ...], call: str
) -> npt.NDArray[np.uint64]:
    """Random bits (n,), one number for each of an array.

    Raises OperandError unless they go with the rounding, fit in `bits`, and broadcast to the shape.
    """
    if not stochastic or random is None or target.kind != "float":
        raise OperandError(
            f"{call}: random bits go with rounding='rs' and a float format, and rounding='rs' needs them"
        )
    array = as_array(random, f"{call}: random")
    if array.dtype.kind not in "iu" or (array.size and (array.min() < 0 or array.max() >= 1 << bits)):
        raise OperandError(f"{call}: random is {array.dtype}; valid: integers from 0 to {(1 << bits) - 1}")
    try:
        return np.broadcast_to(array, shape).reshape(-1).astype(np.uint64)
    except ValueError:
        raise OperandError(f"{call}: random has shape {array.shape}; valid: {shape}") from None


def _real(x: Any, call: str) -> npt.NDArray[Any]:
    """An array of real numbers that float64 holds exactly.

    Raises FormatError for anything else.
    """
    array = as_array(x, f"{call}: x", FormatError)
    if array.dtype.kind in "iu" and array.size and ((array > 2**53) | (array < -(2**53))).any():
        raise FormatError(f"{call}: integers beyond 2**53 would be rounded twice; valid: float64")
    if array.dtype.kind not in "iub" and array.dtype not in FLOAT_DTYPES:
        valid = listing(["integers", *map(str, FLOAT_DTYPES)])
        raise FormatError(f"{call}: x is {array.dtype}; valid: {valid}")
    return array


# --- MX -------------------------------------------------------------------------------------------------------------


def quantize_mx(
    x: Any, format: str | Format, axis: int = -1, block: int = 32, scale: ScaleMode = "floor"
) -> tuple[Codes, npt.NDArray[np.uint8]]:
    """Numbers to MX blocks: codes of the shape of `x`, and one ue8m0 scale factor for each `block` of them along `axis`.

    `scale` is one of torchao's modes. With the block's largest magnitude amax and the format's largest number L, the factor
    is 2^(p - floor(log2 L)), and p is
    - "floor": floor(log2 amax), the rule of the OCP document. Elements saturate where amax / factor is above L: of e4m3 and
      e2m1 between 448 and 512, and 6 and 8, so that they lose up to an eighth and a quarter.
    - "ceil": ceil(log2 amax).
    - "even": floor(log2 m), m being amax rounded, ties up, to as many fraction bits as the elements have.

    and with "rceil", the choice of NVIDIA's training recipe, the factor is the smallest power of two with which no element
    saturates: what `cvt.rp.satfinite.ue8m0x2.f32` gives for amax / L.

    Each element is divided by its scale factor, exactly, then rounded to nearest even and saturated. A block of zeros has
    scale 0x00; one with an infinity 0xfe; one with a NaN 0xff, which makes all of it NaN.

    Raises FormatError for another format or x that is not real, OperandError for another block size, an axis that does
    not exist, or one whose length is not a multiple of the block.

    >>> codes, scales = tcsim.quantize_mx(np.arange(32.0), "e2m1")
    >>> [hex(scale) for scale in scales]
    ['0x81']
    >>> tcsim.dequantize_mx(codes, scales, "e2m1")[-4:]
    array([24., 24., 24., 24.])
    """
    target = find_format(format)
    call = f'tcsim.quantize_mx(x, "{target.name}")'
    _check_mx(target, block, call)
    if not is_name(scale, get_args(ScaleMode)):
        raise OperandError(f"{call}: scale={scale!r}; valid: {listing(map(repr, get_args(ScaleMode)))}")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        blocks = _split(_real(x, call).astype(np.float64), axis, block, call)
    factors = _mx_scales(np.abs(blocks).max(-1), target, scale)
    conversion = Conversion(FORMATS["f64"], target, saturate=True, scale="divide", nan=nan_code(target))
    codes = convert(blocks.view(np.uint64), conversion, factors[..., None])
    return _join(codes, axis), np.ascontiguousarray(np.moveaxis(factors, -1, axis))


def dequantize_mx(
    codes: Any, scales: Any, format: str | Format, axis: int = -1, block: int = 32
) -> npt.NDArray[np.float64]:
    """MX blocks to the numbers they stand for, exactly: the inverse of `quantize_mx` on its results.

    Raises FormatError for another format or dtype, OperandError for another block size or for `scales` of another
    shape than one per block.

    >>> codes, scales = tcsim.quantize_mx(np.full(32, 3.0), "e4m3")
    >>> float(tcsim.dequantize_mx(codes, scales, "e4m3").mean())
    3.0
    """
    target = find_format(format)
    call = f'tcsim.dequantize_mx(codes, scales, "{target.name}")'
    _check_mx(target, block, call)
    values = _split(decode(as_codes(codes, target), target), axis, block, call)
    factors = _factors(decode(as_codes(scales, "ue8m0", "scales"), "ue8m0"), values, axis, call)
    return _join(values * factors, axis)


def _check_mx(target: Format, block: int, call: str) -> None:
    if target.name not in MX_FORMATS:
        raise FormatError(f"{call}: MX blocks do not hold {target.name}; valid: {listing(MX_FORMATS)}")
    if not is_number(block, MX_BLOCKS):
        raise OperandError(f"{call}: block={block!r}; valid: {listing(MX_BLOCKS)}")


def _mx_scales(largest: npt.NDArray[np.float64], target: Format, mode: ScaleMode) -> npt.NDArray[np.uint8]:
    """The ue8m0 codes for the largest magnitudes of blocks."""
    significand, exponent = np.frexp(largest)
    limit, limit_exponent = np.frexp(target.largest)
    power = exponent.astype(np.int64) - int(limit_exponent)
    if mode == "rceil":
        power = power + (significand > limit)
    elif mode == "ceil":
        power = power + (significand > 0.5)
    elif mode == "even":
        power = power + (significand >= 1 - 2.0 ** -(target.fraction_bits + 2))  # rounds up to the next power of two
    scale = FORMATS["ue8m0"]
    codes = np.clip(power + scale.bias, 0, scale.largest_code)
    codes = np.where(largest == 0, 0, np.where(np.isinf(largest), scale.largest_code, codes))
    return np.where(np.isnan(largest), scale.largest_code + 1, codes).astype(np.uint8)


# --- NVFP4 ----------------------------------------------------------------------------------------------------------


def quantize_nvfp4(
    x: Any, axis: int = -1, square: bool = False, random: Any = None, scale: ScaleFormat = "e4m3"
) -> tuple[Codes, npt.NDArray[np.uint8], np.float32]:
    """Numbers to NVFP4: e2m1 codes of the shape of `x`, a ue4m3 scale factor for each 16 of them, one f32 for the tensor.

    The recipe is that of NVIDIA TransformerEngine, operation by operation in f32. With amax the largest magnitude of
    the tensor: encode = 448 * 6 / amax, at most the largest f32, and 1 if amax is 0 or infinite; the tensor's scale is
    1 / encode. A block whose largest magnitude is m has the scale e4m3(m * (encode * (1 / 6))); its elements are
    e2m1(x * (1 / (that scale * the tensor's scale))), the reciprocal being at most the largest f32. Both roundings are
    to nearest even and saturate. An element stands for code * block scale * tensor scale.

    `square=True` takes blocks of 16 x 16, as that recipe does for weights: m is the largest magnitude of such a block in the
    last two dimensions, and each of its 16 lines along `axis` gets the same factor, so that the transpose has the same
    codes. `random`, integers below 2**16 for each number, rounds the elements as `cvt.rs` does. `scale="ue5m3"` takes scale factors
    of that format, as TransformerEngine does from CUDA 13.4 on: 114688 stands for 448 above.

    `x` is rounded to f32 first. A block of zeros has scale 0x00; one with a NaN 0x7f, which makes all of it NaN (there
    TransformerEngine ignores the NaN).

    Raises FormatError for x that is not real, OperandError for an axis that does not exist or whose length is
    not a multiple of 16, or another scale.

    >>> codes, scales, tensor_scale = tcsim.quantize_nvfp4(np.arange(16.0))
    >>> hex(scales[0]), float(tensor_scale)
    ('0x7e', 0.005580357275903225)
    >>> tcsim.dequantize_nvfp4(codes, scales, tensor_scale)[12:].round(3)
    array([10., 15., 15., 15.])
    """
    call = "tcsim.quantize_nvfp4(x)"
    factor = _scale_format(scale, call)
    array = _real(x, call)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        blocks = _split(array.astype(np.float32), axis, NVFP4_BLOCK, call)
        largest = np.abs(blocks).max(-1)
        if square:
            largest = _of_squares(largest, array.shape, axis, call)
        e2m1 = FORMATS["e2m1"]
        amax = np.fmax.reduce(largest, axis=None, initial=np.float32(0))
        encode = np.minimum(np.float32(factor.largest * e2m1.largest) / amax, _F32_MAX)
        if amax == 0 or encode == 0:
            encode = np.float32(1)
        tensor_scale = np.float32(1) / encode
        wanted = np.minimum(largest * (encode * (np.float32(1) / np.float32(e2m1.largest))), _F32_MAX)
        scales = quantize(wanted, factor)
        decoded = decode(scales, factor).astype(np.float32) * tensor_scale
        inverse = np.minimum(np.float32(1) / decoded, _F32_MAX)
        if random is None:
            codes = quantize(blocks * inverse[..., None], e2m1)
        else:
            drawn = _split(np.broadcast_to(random, array.shape), axis, NVFP4_BLOCK, call)
            codes = quantize(blocks * inverse[..., None], e2m1, "rs", random=drawn)
    return _join(codes, axis), np.ascontiguousarray(np.moveaxis(scales, -1, axis)), tensor_scale


def dequantize_nvfp4(
    codes: Any, scales: Any, tensor_scale: Any, axis: int = -1, scale: ScaleFormat = "e4m3"
) -> npt.NDArray[np.float64]:
    """NVFP4 blocks to the numbers they stand for, exactly: code * block scale * tensor scale.

    Raises FormatError for another dtype, OperandError for `scales` of another shape than one per block of 16, or another scale.

    >>> codes, scales, tensor_scale = tcsim.quantize_nvfp4(np.full(16, 3.0))
    >>> float(tcsim.dequantize_nvfp4(codes, scales, tensor_scale)[0].round(6))
    3.0
    """
    call = "tcsim.dequantize_nvfp4(codes, scales, tensor_scale)"
    values = _split(decode(as_codes(codes, "e2m1"), "e2m1"), axis, NVFP4_BLOCK, call)
    kind = "ue4m3" if _scale_format(scale, call).name == "e4m3" else "ue5m3"
    factors = _factors(decode(as_scale_codes(scales, kind, "scales"), kind), values, axis, call)
    return _join(values * factors * np.float64(np.float32(tensor_scale)), axis)


def _scale_format(scale: str, call: str) -> Format:
    if not is_name(scale, get_args(ScaleFormat)):
        raise OperandError(f"{call}: scale={scale!r}; valid: {listing(map(repr, get_args(ScaleFormat)))}")
    return FORMATS[scale]


def _of_squares(
    largest: npt.NDArray[np.float32], shape: tuple[int, ...], axis: int, call: str
) -> npt.NDArray[np.float32]:
    """The largest magnitudes (..., blocks) of lines, made those of blocks of 16 lines next to each other.

    Raises OperandError unless the axis is one of the last two, and the other's length a multiple of 16.
    """
    last = [place % len(shape) for place in (-2, -1)] if len(shape) > 1 else []
    if axis % len(shape) not in last or largest.shape[-2] % NVFP4_BLOCK:
        raise OperandError(
            f"{call}: square=True, axis={axis} of an array of shape {shape}; valid: one of the last two axes, both of them "
            f"multiples of {NVFP4_BLOCK}"
        )
    lines = largest.reshape(*largest.shape[:-2], -1, NVFP4_BLOCK, largest.shape[-1])
    return np.broadcast_to(lines.max(-2, keepdims=True), lines.shape).reshape(largest.shape)


# --- blocks ---------------------------------------------------------------------------------------------------------


def _split(array: npt.NDArray[Any], axis: int, block: int, call: str) -> npt.NDArray[Any]:
    """The axis moved to the end and split into blocks: (..., blocks, block)."""
    axis = integer(axis, f"{call}: axis")
    if not -array.ndim <= axis < array.ndim:
        raise OperandError(f"{call}: axis={axis} of an array of shape {array.shape}; valid: {_axes(array.ndim)}")
    moved = np.moveaxis(array, axis, -1)
    length = moved.shape[-1]
    if length % block:
        raise OperandError(
            f"{call}: axis {axis} of shape {array.shape} has {length} elements; valid: multiples of {block}"
        )
    return np.ascontiguousarray(moved).reshape(*moved.shape[:-1], length // block, block)


def _axes(dimensions: int) -> str:
    return f"{-dimensions} to {dimensions - 1}" if dimensions else "none, it has no axis"


def _join(blocks: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    """The inverse of `_split`."""
    flat = blocks.reshape(*blocks.shape[:-2], blocks.shape[-2] * blocks.shape[-1])
    return np.ascontiguousarray(np.moveaxis(flat, -1, axis))


def _factors(
    scales: npt.NDArray[np.float64], values: npt.NDArray[Any], axis: int, call: str
) -> npt.NDArray[np.float64]:
    """The scale factors of blocks, ready to be multiplied with them: (..., blocks, 1)."""
    want = np.moveaxis(np.empty(values.shape[:-1], np.bool_), -1, axis).shape
    if scales.shape != want:
        raise OperandError(f"{call}: scales have shape {scales.shape}; valid: {want}, one for each block")
    return np.moveaxis(scales, axis, -1)[..., None]
