"""The parameters of a launch: Python values to the bytes that a kernel reads with ld.param."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcsim.core.errors import TcsimError, shortened
from tcsim.ptx.compile.compiled import layout
from tcsim.ptx.text.syntax import Function, Variable, without_middle
from tcsim.tma.map import TensorMap

MAP_BYTES = 128


class LaunchError(TcsimError):
    """A launch that cannot be: parameters that do not fit, or beyond the arch's limits. Raised before anything runs.

    `line` and `column` are those of the PTX text if it is an instruction that does not fit, else 0. A long message loses its middle.

    >>> len(str(LaunchError("k" * 5000 + ": no parameter")))
    1000
    """

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(without_middle(message))
        self.line, self.column = line, column


def refuse(name: str, *complaints: tuple[Any, str]) -> None:
    """Raise LaunchError with the first complaint that holds about the launch of a kernel.

    >>> refuse("k", (False, "grid"), (True, "block=0"))
    Traceback (most recent call last):
    tcsim.ptx.launch.parameters.LaunchError: k: block=0
    """
    for holds, complaint in complaints:
        if holds:
            raise LaunchError(f"{name}: {complaint}")


def whole(value: Any, least: int | None = 0) -> bool:
    """Whether a value is an integer, of Python or NumPy, from `least` on.

    >>> whole(np.uint8(3)), whole(True), whole(-1), whole(-1, None)
    (True, False, False, True)
    """
    integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return integer and (least is None or int(value) >= least)


def image_of(function: Function, params: Sequence[Any]) -> bytes:
    """The bytes of an entry's parameter space.

    Raises LaunchError if there are too few or too many parameters, or one does not fit its declaration.
    """
    if isinstance(params, (str, bytes, bytearray, memoryview)) or not hasattr(params, "__len__"):
        kind = type(params).__name__
        raise LaunchError(f"{function.name}: params is a {kind}; valid: a sequence, one value for each parameter")
    places, size = layout(function.params)
    if len(params) != len(function.params):
        declared = ", ".join(f"{own.name} ({declaration(own)})" for own in function.params) or "none"
        raise LaunchError(f"{function.name}: {len(params)} parameters; valid: {len(function.params)}: {declared}")
    image = bytearray(size)
    for number, (variable, value) in enumerate(zip(function.params, params, strict=True)):
        what = f"{function.name}: parameter {number}, {variable.name} ({declaration(variable)})"
        data, start = _bytes_of(variable, value, what), places[variable.name]
        image[start : start + len(data)] = data
    return bytes(image)


def declaration(variable: Variable) -> str:
    """How a parameter is declared, in short.

    >>> declaration(Variable("a", "param", "b8", 128, 64))
    '.b8[128]'
    """
    return f".{variable.type}" + (f"[{variable.count}]" if variable.count != 1 else "")


def _bytes_of(variable: Variable, value: Any, what: str) -> bytes:
    size, alone = variable.size, variable.count == 1
    if isinstance(value, (bytes, bytearray, memoryview)) or (isinstance(value, np.ndarray) and value.dtype == np.uint8):
        data = bytes(value) if not isinstance(value, np.ndarray) else value.tobytes()
        if len(data) != size:
            raise LaunchError(f"{what} is {len(data)} bytes; valid: {size} bytes")
        return data
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], TensorMap):
        return _map(value[0], value[1], size, what)
    if not alone:
        pair = ", or (TensorMap, pointer)" if size == MAP_BYTES else ""
        raise LaunchError(f"{what} is a {type(value).__name__}; valid: {size} bytes{pair}")
    if isinstance(value, np.generic):
        return _numpy(variable, value, what)
    if isinstance(value, float):
        return _float(variable, value, what)
    if isinstance(value, int):
        return _integer(variable, int(value), what)
    raise LaunchError(f"{what} is a {type(value).__name__}; valid: {_valid(variable)}")


def _map(tensor_map: TensorMap, pointer: Any, size: int, what: str) -> bytes:
    if size != MAP_BYTES:
        raise LaunchError(f"{what} is a tensor map; valid: {size} bytes; a map needs a parameter of {MAP_BYTES}")
    if not whole(pointer, None):
        raise LaunchError(f"{what}: the pointer of a tensor map is {shortened(pointer)}; valid: an integer")
    try:
        return bytes(tensor_map.encode(int(pointer)))
    except TcsimError as error:
        raise LaunchError(f"{what}: {error}") from None


def _numpy(variable: Variable, value: np.generic, what: str) -> bytes:
    kind = "f" if variable.type.startswith(("f", "bf")) else "b" if variable.type[0] == "b" else "i"
    given = "i" if value.dtype.kind in "iub" else "f"
    if value.dtype.itemsize != variable.size or kind not in ("b", given):
        shown = f"a numpy.{value.dtype.name} of {8 * value.dtype.itemsize} bits"
        raise LaunchError(f"{what} is {shown}; valid: {_valid(variable)}")
    return value.tobytes()


def _float(variable: Variable, value: float, what: str) -> bytes:
    if variable.type not in ("f32", "f64"):
        raise LaunchError(f"{what} is the float {value!r}; valid: {_valid(variable)}")
    try:
        return struct.pack("<f" if variable.type == "f32" else "<d", value)
    except OverflowError:
        raise LaunchError(f"{what} is {value!r}, beyond f32; valid: up to 3.4028235e38, inf, nan") from None


def _integer(variable: Variable, value: int, what: str) -> bytes:
    bits = 8 * variable.size
    if variable.type.startswith(("f", "bf")):
        raise LaunchError(f"{what} is the integer {shortened(value)}; valid: {_valid(variable)}")
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise LaunchError(f"{what} is {shortened(value)}; valid: {-(1 << (bits - 1))} to {(1 << bits) - 1}")
    return (value & ((1 << bits) - 1)).to_bytes(variable.size, "little")


def _valid(variable: Variable) -> str:
    """What a parameter of one element takes."""
    bits = 8 * variable.size
    if variable.type in ("f32", "f64"):
        return f"a float, a NumPy float of {bits} bits, or {variable.size} bytes"
    if variable.type.startswith(("f", "bf")):
        return f"a NumPy scalar of {bits} bits, or {variable.size} bytes"
    return f"an integer of {bits} bits, a NumPy scalar of {bits} bits, or {variable.size} bytes"
