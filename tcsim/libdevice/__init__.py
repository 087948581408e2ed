"""CUDA's f32 mathematics as nvcc compiles it for sm_90 by default, exact to the bit, on NumPy arrays.

>>> import tcsim.libdevice as libdevice
>>> [hex(code) for code in libdevice.exp(np.array([1, -1], np.float32)).view(np.uint32)]
['0x402df854', '0x3ebc5ab3']
"""

from tcsim.libdevice.functions import FUNCTIONS, Function, FunctionError

exp, exp2, exp10, expm1 = (FUNCTIONS[name] for name in ("exp", "exp2", "exp10", "expm1"))
log, log2, log10, log1p = (FUNCTIONS[name] for name in ("log", "log2", "log10", "log1p"))
sin, cos, tan, asin, acos, atan, atan2 = (
    FUNCTIONS[name] for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")
)
sinh, cosh, tanh, asinh, acosh, atanh = (
    FUNCTIONS[name] for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
)
erf, erfc, erfinv, lgamma = (FUNCTIONS[name] for name in ("erf", "erfc", "erfinv", "lgamma"))
pow, rsqrt, sqrt, cbrt, hypot = (FUNCTIONS[name] for name in ("pow", "rsqrt", "sqrt", "cbrt", "hypot"))
reciprocal, divide, fmod, remainder = (FUNCTIONS[name] for name in ("reciprocal", "divide", "fmod", "remainder"))

__all__ = [
    "FUNCTIONS", "Function", "FunctionError", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "divide", "erf",
    "erfc", "erfinv", "exp", "exp2", "exp10", "expm1", "fmod", "hypot", "lgamma", "log", "log1p", "log2", "log10", "pow", "reciprocal", "remainder", "rsqrt", "sin",
    "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip
