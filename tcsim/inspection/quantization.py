"""What quantising an array costs: errors, saturation, numbers flushed to zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, listing
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import Format
from tcsim.numbers.formats import format as find_format
from tcsim.numbers.quantize import (
    ScaleFormat,
    ScaleMode,
    dequantize_mx,
    dequantize_nvfp4,
    quantize,
    quantize_mx,
    quantize_nvfp4,
)
from tcsim.numbers.rounding import RoundingName

Blocks = Literal["none", "mx", "nvfp4"]


@dataclass(frozen=True)
class Quantization:
    """Codes, scale factors of blocks if there are any, and how far the numbers that they stand for are off."""

    format: str
    blocks: str
    rounding: str
    codes: npt.NDArray[Any]
    scales: npt.NDArray[Any] | None
    tensor_scale: float | None
    count: int
    exact: int  # numbers that are their codes
    to_zero: int  # numbers that became zero and were not
    beyond: int  # of formats without blocks: numbers larger than the format's largest
    not_finite: int  # infinities and NaN given; they count in no error
    largest_error: float
    rms_error: float
    largest_relative_error: float  # of numbers that are not zero

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON: the figures, without the arrays."""
        kept = {name: value for name, value in vars(self).items() if name not in ("codes", "scales")}
        return kept | {"shape": list(self.codes.shape)}

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What is written to a file."""
        found = {"codes": self.codes}
        if self.scales is not None:
            found["scales"] = self.scales
        if self.tensor_scale is not None:
            found["tensor_scale"] = np.asarray(self.tensor_scale, np.float32)
        return found


SCALES: dict[Blocks, tuple[str, ...]] = {"none": (), "mx": get_args(ScaleMode), "nvfp4": get_args(ScaleFormat)}
"""What `scale` may be, the default first."""


def quantization(
    x: Any,
    format: str,
    rounding: RoundingName | Literal["rs"] = "rne",
    saturate: bool = True,
    blocks: Blocks = "none",
    axis: int = -1,
    scale: str | None = None,
    square: bool = False,
    seed: int | None = None,
) -> Quantization:
    """Quantise an array and measure it; with `blocks` as MX or NVFP4, along `axis`.

    scale: how the factors of MX blocks are chosen, or the format of those of NVFP4. square: NVFP4 blocks of 16 x 16. seed: of the
    random bits of rounding "rs", which blocks of NVFP4 have too.

    Raises what `tcsim.quantize`, `quantize_mx` and `quantize_nvfp4` raise; OperandError for a rounding, a scale or a format that
    blocks do not have.

    >>> found = quantization(np.float32([0.1, 1.0, 1000.0]), "e4m3")
    >>> found.exact, found.beyond, found.largest_error
    (1, 1, 552.0)
    """
    kind = find_format(format)
    scales, tensor_scale = None, None
    _check(kind, rounding, blocks, scale, square, seed)
    chosen: Any = scale or next(iter(SCALES[blocks]), None)
    random = None
    if rounding == "rs":
        bits = 13 if kind.name == "f16" else 16
        random = np.random.default_rng(seed).integers(0, 1 << bits, np.shape(x), dtype=np.uint32)
    if blocks == "mx":
        codes, scales = quantize_mx(x, kind, axis=axis, scale=chosen)
        back = dequantize_mx(codes, scales, kind, axis=axis)
    elif blocks == "nvfp4":
        codes, scales, found = quantize_nvfp4(x, axis=axis, square=square, random=random, scale=chosen)
        tensor_scale = float(found)
        back = dequantize_nvfp4(codes, scales, found, axis=axis, scale=chosen)
    else:
        codes = quantize(x, kind, rounding, saturate, random=random)
        back = np.asarray(decode(codes, kind), np.float64)
    given = np.asarray(x).astype(np.float64)
    finite = np.isfinite(given) & np.isfinite(back)
    error = np.abs(back[finite] - given[finite])
    size = np.abs(given[finite])
    relative = error[size > 0] / size[size > 0]
    return Quantization(
        kind.name, blocks, rounding, codes, scales, tensor_scale, given.size,
        int((back[finite] == given[finite]).sum()),
        int(((back == 0) & (given != 0) & finite).sum()),
        int((np.isfinite(given) & (np.abs(given) > kind.largest)).sum()) if blocks == "none" else 0,
        int((~np.isfinite(given)).sum()),
        float(error.max(initial=0)), float(np.sqrt((error**2).mean())) if error.size else 0.0,
        float(relative.max(initial=0)),
    )  # fmt: skip


def _check(kind: Format, rounding: str, blocks: Blocks, scale: str | None, square: bool, seed: int | None) -> None:
    """Raise OperandError for what does not go together."""
    valid = ("rne", "rs") if blocks == "nvfp4" else ("rne",)
    if blocks != "none" and rounding not in valid:
        raise OperandError(f"blocks {blocks}: rounding={rounding!r}; valid: {listing(valid)}, and any for blocks none")
    if blocks == "nvfp4" and kind.name != "e2m1":
        raise OperandError(f"NVFP4 blocks hold e2m1, not {kind.name}; valid: e2m1")
    if scale is not None and scale not in SCALES[blocks]:
        raise OperandError(
            f"blocks {blocks}: scale={scale!r}; valid: {listing(SCALES[blocks]) or 'none, it has no scale factors'}"
        )
    if square and blocks != "nvfp4":
        raise OperandError(f"blocks {blocks}: blocks of 16 x 16 are NVFP4's; valid: blocks nvfp4")
    if seed is not None and rounding != "rs":
        raise OperandError(
            f"seed={seed} with rounding={rounding!r}: only stochastic rounding takes random bits; valid: rounding rs"
        )
