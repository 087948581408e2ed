"""The table of the functions: a row is called with arrays, and says what it computes and how that is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from types import FunctionType, MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import TcsimError
from tcsim.engines import choice
from tcsim.libdevice import error, exponential, gamma, hyperbolic, logarithm, power, quotient, trigonometric
from tcsim.libdevice.operations import Floats

_CHUNK = 1 << 14  # elements whose intermediate values stay in the cache
_START = 1 << 21  # elements of a function that NumPy computes before numba compiles it
_NAN = np.float32(np.nan)
_spent: Counter[str] = Counter()

ALL = "measured: NVIDIA H200, CUDA 13.0, all 2**32 inputs"
PAIRS = "measured: NVIDIA H200, CUDA 13.0, 2**20 pairs of special values and 2**27 at random"


class FunctionError(TcsimError):
    """Wrong use of a function: the message names it and what it takes."""


@dataclass(frozen=True, eq=False)
class Function:
    """A function of CUDA's f32 mathematics: called with f32 arrays (two broadcast), it returns an f32 array; NaN is 0x7fffffff.

    Raises FunctionError for another dtype, and where the number of operands or the engine is wrong.

    >>> from tcsim.libdevice import tanh
    >>> tanh(np.array([0.5, 100], np.float32))
    array([0.4621172, 1.       ], dtype=float32)
    >>> print(tanh.cuda, "-", tanh.evidence)
    tanhf(x) - measured: NVIDIA H200, CUDA 13.0, all 2**32 inputs
    """

    name: str
    cuda: str  # as CUDA C++ spells it
    program: Callable[..., Any]  # its steps, over `tcsim.libdevice.operations`
    evidence: str = ALL

    def __call__(self, *operands: npt.NDArray[np.float32] | np.float32, engine: str | None = None) -> Floats:
        """The results, by NumPy or numba (`engine`; None: numba where it is there and worth its start)."""
        number = cast("FunctionType", self.program).__code__.co_argcount
        arrays = [np.asarray(operand) for operand in operands]
        if len(arrays) != number or any(array.dtype != np.float32 for array in arrays):
            given = ", ".join(str(array.dtype) for array in arrays)
            raise FunctionError(f"libdevice.{self.name}({given}); valid: {number} of float32")
        arrays = list(np.broadcast_arrays(*arrays))
        flat = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
        out = np.empty(flat[0].size, np.float32)
        if self._compiled(out.size, engine or choice.asked()):
            from tcsim.libdevice import compiled  # numba, which is not always there

            compiled.run(cast("FunctionType", self.program), out, *flat)
        else:
            with np.errstate(all="ignore"):
                for first in range(0, out.size, _CHUNK):
                    part = self.program(*(operand[first : first + _CHUNK] for operand in flat))
                    part[np.isnan(part)] = _NAN
                    out[first : first + _CHUNK] = part
                    out[first : first + _CHUNK].view(np.uint32)[np.isnan(part)] = 0x7FFFFFFF
        return out.reshape(arrays[0].shape)

    def _compiled(self, size: int, engine: object) -> bool:
        if engine == "numpy":
            return False
        if engine == "numba":
            return True
        _spent[self.name] += size
        return _spent[self.name] > _START and find_spec("numba") is not None


def _rows(module: Any, *rows: tuple[str, str] | tuple[str, str, str]) -> dict[str, Function]:
    return {name: Function(name, cuda, getattr(module, name), *rest) for name, cuda, *rest in rows}


FUNCTIONS = MappingProxyType(
    _rows(exponential, ("exp", "expf(x)"), ("exp2", "exp2f(x)"), ("exp10", "exp10f(x)"), ("expm1", "expm1f(x)"))
    | _rows(logarithm, ("log", "logf(x)"), ("log2", "log2f(x)"), ("log10", "log10f(x)"), ("log1p", "log1pf(x)"))
    | _rows(trigonometric, ("sin", "sinf(x)"), ("cos", "cosf(x)"), ("tan", "tanf(x)"), ("asin", "asinf(x)"), ("acos", "acosf(x)"),
            ("atan", "atanf(x)"), ("atan2", "atan2f(y, x)", PAIRS))
    | _rows(hyperbolic, ("sinh", "sinhf(x)"), ("cosh", "coshf(x)"), ("tanh", "tanhf(x)"), ("asinh", "asinhf(x)"), ("acosh", "acoshf(x)"),
            ("atanh", "atanhf(x)"))
    | _rows(error, ("erf", "erff(x)"), ("erfc", "erfcf(x)"), ("erfinv", "erfinvf(x)"))
    | _rows(gamma, ("lgamma", "lgammaf(x)"))
    | _rows(power, ("pow", "powf(x, y)", PAIRS), ("rsqrt", "rsqrtf(x)"), ("sqrt", "sqrtf(x)"), ("cbrt", "cbrtf(x)"), ("hypot", "hypotf(x, y)", PAIRS))
    | _rows(quotient, ("reciprocal", "1 / x"), ("divide", "x / y", PAIRS), ("fmod", "fmodf(x, y)", PAIRS), ("remainder", "remainderf(x, y)", PAIRS))
)  # fmt: skip
"""Every function by its name."""
