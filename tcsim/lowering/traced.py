"""Arrays that record what is computed of them: the NumPy code of an instruction, called with them, says how to compute it elementwise.

A `Traced` stands for an array with one entry for each thread. It has the shape that the array would have for one thread, and holds a `Node` for each
of its elements; what NumPy makes of arrays it makes of nodes. Code that has to look at values is not traced: `Untraceable` is raised, and the
code runs in NumPy as before. Of questions whether something holds anywhere (`any`) the answer is yes, whether it holds everywhere (`all`) no:
instructions ask them to save work, and give the same without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

Nodes = Any
"""An array of objects: nodes."""


class Untraceable(Exception):
    """Code asks for something that is not known of arrays that are only recorded."""


class Node:
    """A value of one thread: an operation on others. type: kind and bytes, as "u4"; extra: what the operation has besides, a constant its bits."""

    __slots__ = ("args", "extra", "op", "type")

    def __init__(self, op: str, type: str, args: tuple[Node, ...] = (), extra: Any = None) -> None:
        self.op, self.type, self.args, self.extra = op, type, args, extra


def type_of(dtype: np.dtype[Any]) -> str:
    """A node's type. Raises Untraceable for what no machine register holds."""
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        raise Untraceable(f"values of {dtype}")
    return f"{dtype.kind}{dtype.itemsize}"


def constants(values: Any, dtype: np.dtype[Any]) -> Nodes:
    """Known values as nodes."""
    array = np.asarray(values).astype(dtype, copy=False)
    type, bits = type_of(dtype), np.ascontiguousarray(array).view(f"u{dtype.itemsize}").reshape(array.shape)
    found = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        found[place] = Node("const", type, (), int(bits[place]))
    return found


def each(op: str, dtype: np.dtype[Any], *operands: Nodes, extra: Any = None) -> Traced:
    """An operation on each element; operands broadcast."""
    type = type_of(dtype)
    found = np.frompyfunc(lambda *args: Node(op, type, args, extra), len(operands), 1)(*operands)
    return Traced(found, dtype)


class Somewhere:
    """Whether something holds in any thread: taken to be so."""

    def __bool__(self) -> bool:
        return True


class Traced(NDArrayOperatorsMixin):
    """An array that is recorded; `register`: the number of the register that it was read from."""

    def __init__(self, nodes: Any, dtype: Any, register: int | None = None) -> None:
        self.dtype, self.register = np.dtype(dtype), register
        self.nodes: Nodes = nodes if isinstance(nodes, np.ndarray) else np.asarray(nodes, object)

    # --- as an array

    @property
    def shape(self) -> tuple[int, ...]:
        """For one thread."""
        return self.nodes.shape

    @property
    def ndim(self) -> int:
        """Of `shape`."""
        return self.nodes.ndim

    @property
    def size(self) -> int:
        """Of `shape`."""
        return self.nodes.size

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Traced]:
        return (self[place] for place in range(len(self)))

    def __bool__(self) -> bool:
        raise Untraceable("a condition on values")

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise Untraceable("the values themselves")

    def __getitem__(self, key: Any) -> Traced:
        parts = key if isinstance(key, tuple) else (key,)
        if not all(own is None or own is Ellipsis or isinstance(own, (int, np.integer, slice)) for own in parts):
            raise Untraceable("elements that values choose")
        return Traced(self.nodes[key], self.dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise Untraceable("elements that are replaced")

    def reshape(self, *shape: Any) -> Traced:
        """As NumPy's."""
        return Traced(self.nodes.reshape(*shape), self.dtype, self.register)

    def copy(self) -> Traced:
        """As NumPy's."""
        return self

    def astype(self, dtype: Any, copy: bool = True) -> Traced:
        """As NumPy's."""
        to = np.dtype(dtype)
        return self if to == self.dtype else Traced(each("cast", to, self.nodes).nodes, to)

    def view(self, dtype: Any) -> Traced:
        """As NumPy's: parts of elements are further elements of the last axis."""
        to, own, wide = np.dtype(dtype), self.dtype.itemsize, np.dtype(dtype).itemsize
        if to == self.dtype:
            return self
        if own == wide:
            return Traced(each("bits", to, self.nodes).nodes, to, self.register)
        whole, part = max(own, wide), min(own, wide)
        times, kind = whole // part, np.dtype(f"u{part}")
        if own > wide:
            bits = self.view(f"u{own}")
            parts = [(bits >> bits.dtype.type(8 * part * place)).astype(kind).nodes for place in range(times)]
            return Traced(np.stack(parts, -1).reshape(*self.shape[:-1], -1), kind).view(to)
        if not self.shape or self.shape[-1] % times:
            raise Untraceable("parts that are not a whole number of values")
        bits = Traced(self.nodes.reshape(*self.shape[:-1], -1, times), self.dtype).view(kind)
        joined = bits[..., 0].astype(f"u{whole}")
        for place in range(1, times):
            joined = joined | bits[..., place].astype(f"u{whole}") << np.dtype(f"u{whole}").type(8 * part * place)
        return joined.view(to)

    def any(self, *given: Any, **named: Any) -> Any:
        """Whether it holds in any thread."""
        return Somewhere()

    def all(self, *given: Any, **named: Any) -> bool:
        """Whether it holds in all threads: not known, so that nothing follows from it."""
        return False

    def sum(self, axis: int | None = None) -> Traced:
        """As NumPy's."""
        return _sum(self, axis)

    # --- as NumPy sees it

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **named: Any) -> Any:
        if method == "reduce" and ufunc.nin == 2 and len(inputs) == 1:
            return _reduced(ufunc, inputs[0], **named)
        if ufunc.__name__ == "frexp":
            return None, _exponent(inputs[0])
        if method != "__call__" or named or ufunc.nout != 1:
            raise Untraceable(f"{ufunc.__name__}.{method}")
        found = _ufunc(ufunc, inputs)
        return found if out is None else found.astype(out[0].dtype)

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        known = _FUNCTIONS.get(function.__name__)
        if known is None:
            raise Untraceable(f"np.{function.__name__}")
        return known(*args, **named)


Operand = Traced | npt.NDArray[Any] | np.generic | int | float


def dtype_of(value: Any) -> Any:
    """As NumPy's promotion takes it: numbers of Python have no width."""
    if isinstance(value, (Traced, np.ndarray, np.generic)):
        return value.dtype
    return type(value) if type(value) in (int, float) else np.asarray(value).dtype


def traced(value: Any, dtype: Any) -> Traced:
    """A value as a dtype."""
    if isinstance(value, Traced):
        return value.astype(dtype)
    return Traced(constants(value, np.dtype(dtype)), dtype)


def _common(*values: Any) -> np.dtype[Any]:
    """What NumPy promotes them to."""
    kinds = [dtype_of(own) for own in values]
    return np.dtype(np.result_type(*(own if isinstance(own, np.dtype) else own(0) for own in kinds)))


# --- ufuncs

_SAME = {
    "add": "add", "subtract": "sub", "multiply": "mul", "true_divide": "div", "divide": "div", "floor_divide": "floordiv", "minimum": "min",
    "maximum": "max", "fmin": "min", "fmax": "max", "negative": "neg", "absolute": "abs", "fabs": "abs", "rint": "rint", "trunc": "trunc",
    "floor": "floor", "ceil": "ceil", "sqrt": "sqrt", "copysign": "copysign", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
    "invert": "not", "left_shift": "shl", "right_shift": "shr",
}  # fmt: skip
"""Operations whose operands have the type of the result."""
_LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not"}
_COMPARED = {"equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}
_BOOL = np.dtype(bool)


def _ufunc(ufunc: np.ufunc, inputs: Sequence[Any]) -> Traced:
    name = ufunc.__name__
    if name == "power":
        if not isinstance(inputs[1], int) or inputs[1] != 2:
            raise Untraceable("powers")
        return inputs[0] * inputs[0]
    if name == "nextafter":
        return _neighbour(*inputs)
    if name == "ldexp":
        return _scaled(*inputs)
    if name == "positive":
        return inputs[0]
    kinds = tuple(dtype_of(own) for own in inputs)
    *own, out = ufunc.resolve_dtypes((*kinds, None))
    given = [traced(value, dtype).nodes for value, dtype in zip(inputs, own, strict=True)]
    if name in _LOGICAL:
        return each(_LOGICAL[name], _BOOL, *(traced(value, _BOOL).nodes for value in inputs))
    if name in _COMPARED:
        return each(_COMPARED[name], _BOOL, *given)
    if name in _SAME:
        return each(_SAME[name], np.dtype(out), *given)
    special = _SPECIAL.get(name)
    if special is None:
        raise Untraceable(f"np.{name}")
    return special(Traced(given[0], own[0]))


def _sign(value: Traced) -> Traced:
    one, zero = value.dtype.type(1), value.dtype.type(0)
    return _where(value > zero, one, _where(value < zero, -one, value))


def _nan(value: Traced) -> Traced:
    return each("ne", _BOOL, value.nodes, value.nodes)


def _infinite(value: Traced) -> Traced:
    return np.abs(value) == value.dtype.type(np.inf)


def _finite(value: Traced) -> Traced:
    return np.abs(value) < value.dtype.type(np.inf)


def _signbit(value: Traced) -> Traced:
    return value.view(f"i{value.dtype.itemsize}") < 0


def _neighbour(value: Traced, toward: Any) -> Traced:
    """The next number towards an infinity."""
    if isinstance(toward, Traced) or not np.isinf(toward):
        raise Untraceable("the next number towards any other")
    one = 1 if toward > 0 else -1
    bits = value.view(f"i{value.dtype.itemsize}")
    next_bits = _where(value == 0, bits.dtype.type(1), _where(bits >= 0, bits + one, bits - one)).view(value.dtype)
    tiny: Any = np.copysign(next_bits, value.dtype.type(one))
    return _where(_nan(value) | (value == toward), value, _where(value == 0, tiny, next_bits))


def _scaled(value: Any, power: Any) -> Any:
    """Times a power of two: the largest factors first are those beyond what one number holds, so that only the last product rounds."""
    if dtype_of(value) != np.float64:
        raise Untraceable("ldexp of other numbers than f64")
    rest, factors = traced(power, np.int64), []
    for _ in range(3):
        part: Any = np.clip(rest, -1022, 1022)
        rest = rest - part
        factors.append((part + 1023 << 52).view(np.float64))
    for factor in reversed(factors):
        value = value * factor
    return value


def _count(value: Traced) -> Traced:
    size: Any = np.abs(value) if value.dtype.kind == "i" else value
    return each("popcount", value.dtype, size.nodes).astype(np.uint8)


_SPECIAL: dict[str, Callable[[Traced], Traced]] = {
    "sign": _sign, "isnan": _nan, "isinf": _infinite, "isfinite": _finite, "signbit": _signbit, "bitwise_count": _count,
}  # fmt: skip

# --- functions


def _where(condition: Any, one: Any, other: Any) -> Traced:
    dtype = _common(one, other)
    return each("select", dtype, traced(condition, _BOOL).nodes, traced(one, dtype).nodes, traced(other, dtype).nodes)


def _clip(value: Any, low: Any, high: Any) -> Traced:
    if dtype_of(value).kind == "f":
        value = _where(_nan(value) | (value > low), value, value.dtype.type(low))
        return _where(_nan(value) | (value < high), value, value.dtype.type(high))
    found: Traced = np.minimum(np.maximum(value, low), high)
    return found


def _zeros_like(value: Traced, dtype: Any = None) -> Any:
    return np.zeros(value.shape, dtype or value.dtype)


def _full_like(value: Traced, fill: Any, dtype: Any = None) -> Any:
    if isinstance(fill, Traced):
        return _broadcast_to(fill, value.shape)
    return np.full(value.shape, fill, dtype or value.dtype)


def _broadcast_arrays(*values: Any) -> list[Traced]:
    shape = np.broadcast_shapes(*(np.shape(own) for own in values))
    return [_broadcast_to(own, shape) for own in values]


def _broadcast_to(value: Any, shape: Any) -> Traced:
    own = traced(value, value.dtype)
    return Traced(np.broadcast_to(own.nodes, shape), own.dtype)


def _joined(way: Callable[..., Any]) -> Callable[..., Traced]:
    def join(values: Sequence[Any], axis: int = 0) -> Traced:
        dtype = _common(*values)
        return Traced(way([traced(own, dtype).nodes for own in values], axis=axis), dtype)

    return join


def _moved(way: Callable[..., Any]) -> Callable[..., Traced]:
    return lambda value, *given, **named: Traced(way(value.nodes, *given, **named), value.dtype)


def _sum(value: Traced, axis: int | None = None, **named: Any) -> Traced:
    if value.dtype.kind in "bui" and value.dtype.itemsize < 8:
        value = value.astype(np.int64 if value.dtype.kind in "bi" else np.uint64)
    return _reduced(np.add, value, axis, **named)


def _reduced(ufunc: np.ufunc, value: Traced, axis: int | None = 0, **named: Any) -> Traced:
    """A ufunc over an axis that is not that of the threads."""
    if any(own is not None for own in named.values()) or axis is None or value.ndim < 2:
        raise Untraceable(f"{ufunc.__name__} over threads")
    total, *parts = (Traced(own, value.dtype) for own in np.moveaxis(value.nodes, axis, 0))
    for part in parts:
        total = _ufunc(ufunc, (total, part))
    return total


def _exponent(value: Traced) -> Traced:
    """Of numbers as 0.5 to 1 times a power of two: the power."""
    wide = value.astype(np.float64)
    tiny = np.abs(wide) < 2.0**-1022
    field = _where(tiny, wide * 2.0**54, wide).view(np.int64) >> 52 & 0x7FF
    found: Traced = _where(wide == 0, 0, field - 1022 - _where(tiny, 54, 0))
    return found.astype(np.int32)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": _where, "clip": _clip, "zeros_like": _zeros_like, "full_like": _full_like, "broadcast_arrays": _broadcast_arrays,
    "broadcast_to": _broadcast_to, "stack": _joined(np.stack), "concatenate": _joined(np.concatenate), "moveaxis": _moved(np.moveaxis),
    "swapaxes": _moved(np.swapaxes), "reshape": _moved(np.reshape), "repeat": _moved(np.repeat), "sum": _sum, "shape": lambda value: value.shape, "ndim": lambda value: value.ndim,
    "ascontiguousarray": lambda value: value, "any": lambda *given, **named: Somewhere(), "all": lambda *given, **named: False,
    "count_nonzero": lambda *given, **named: Somewhere(), "copy": lambda value: value,
    "ones_like": lambda value, dtype=None: np.ones(value.shape, dtype or value.dtype),
}  # fmt: skip


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of floating-point numbers, rounded once to the nearest: what NumPy does not have."""
    dtype = _common(a, b, c)
    return each("fma", dtype, *(traced(own, dtype).nodes for own in (a, b, c)))


def asarray(value: Any, dtype: Any = None) -> Any:
    """What `np.asarray` is, of recorded arrays too."""
    if not isinstance(value, Traced):
        return np.asarray(value, dtype)
    return value if dtype is None else value.astype(dtype)


def contiguous(value: Any) -> Any:
    """What `np.ascontiguousarray` is, of recorded arrays too."""
    return value if isinstance(value, Traced) else np.ascontiguousarray(value)


def entries(table: npt.NDArray[Any], index: Any) -> Any:
    """The entries of a table at some indices, along its first axis: what `table[index]` is, of recorded indices too.

    >>> entries(np.array([3, 5, 7]), np.array([2, 0])).tolist()
    [7, 3]
    """
    if not isinstance(index, Traced):
        return table[index]
    rows = np.ascontiguousarray(table.reshape(len(table), -1))
    each_index, found = index.astype(np.int64).nodes, np.empty((*index.shape, rows.shape[1]), object)
    type = type_of(table.dtype)
    for place in np.ndindex(index.shape):
        for column in range(rows.shape[1]):
            found[(*place, column)] = Node("entry", type, (each_index[place],), (rows, column))
    return Traced(found.reshape(*index.shape, *table.shape[1:]), table.dtype)
