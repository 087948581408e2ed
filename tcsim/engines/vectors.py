"""What compiled loops ask of LLVM itself: vectors of full width, the bits of a number, shifts of 32 bits."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic


@intrinsic
def widest(context: Any) -> Any:
    """Vectors of 512 bits where the CPU has them: LLVM prefers 256, which takes up to twice the time here."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), build


def _reinterpreted(source: Any, target: Any) -> Any:
    @intrinsic
    def view(context: Any, value: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), build

    return view


f64_of, bits64 = _reinterpreted(types.int64, types.float64), _reinterpreted(types.float64, types.int64)
f32_of, bits32 = _reinterpreted(types.int32, types.float32), _reinterpreted(types.float32, types.int32)


def _shift(name: str) -> Any:
    @intrinsic
    def shift(context: Any, value: Any, by: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, name)(*arguments)

        return types.int32(types.int32, types.int32), build

    return shift


left, right = _shift("shl"), _shift("lshr")
"""Shifts of 32 bits by fewer than 32; those of numba have 64."""
