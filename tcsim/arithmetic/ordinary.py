"""The ordinary IEEE operations of an instruction's steps on codes of any formats: by the fast code where it knows the formats.

`tcsim.arithmetic.floating` computes in f16, bf16 and f32, `tcsim.arithmetic.double` the fma of f64. Whatever else there is,
`tcsim.numbers.ieee` computes in integers; its functions take the same arguments and give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic import double, floating
from tcsim.numbers import ieee
from tcsim.numbers.formats import Format
from tcsim.numbers.rounding import Rounding

Codes = npt.NDArray[Any]
Operation = Literal["fma", "add", "mul", "convert"]

_EXACT: dict[str, Callable[..., Codes]] = {
    "fma": ieee.fma,
    "add": ieee.add,
    "mul": ieee.multiply,
    "convert": ieee.convert,
}
_FAST: dict[str, Callable[..., Codes]] = {"fma": floating.fma, "add": floating.add, "mul": floating.multiply}


def compute(
    op: Operation,
    operands: tuple[Codes, ...],
    formats: tuple[Format, ...],
    out: Format,
    rounding: Rounding = "rne",
    nan_order: str = "",
) -> Codes:
    """fma (x * y + z), add (x + y), mul (x * y) or convert (x), with one rounding: codes of `out`.

    Operands are read in their own formats, exactly, and broadcast. `nan_order`, of an fma: see `tcsim.numbers.ieee.fma`.

    >>> half, one = np.uint16([0x3800]), np.uint32([0x3F800000])
    >>> [hex(code) for code in compute("add", (half, one), (FORMATS["f16"], FORMATS["f32"]), FORMATS["f32"])]
    ['0x3fc00000']
    """
    names = {format.name for format in formats}
    if op == "fma" and names == {"f64"} and out.name == "f64":
        x, y, z = operands
        return double.fma(x, y, z, rounding, nan_order)
    if not nan_order and all(format.kind == "float" and format.bits <= 32 for format in formats):
        if op == "convert" and out.name in ("f16", "bf16", "f32") and rounding == "rne":
            value = formats[0].values(operands[0])
            return floating.rounded(value, np.zeros_like(value), out.name, rounding)
        if op != "convert" and out.name == "f32" and rounding != "rna":
            return _FAST[op](*map(_as_f32, operands, formats), "f32", rounding)
        if op != "convert" and out.name in ("f16", "bf16") and names == {out.name} and rounding == "rne":
            return _FAST[op](*operands, out.name)
    options = {"nan_order": nan_order} if nan_order else {}
    return _EXACT[op](*operands, formats, out, rounding, **options)


def _as_f32(codes: Codes, format: Format) -> Codes:
    """Codes of at most 32 bits as those of f32, which has all their values."""
    return codes if format.name == "f32" else format.values(codes).astype(np.float32).view(np.uint32)
