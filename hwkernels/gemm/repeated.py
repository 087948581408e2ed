"""A product whose shapes, formats and strides have been seen: all but the addresses is known, and a call costs a few microseconds."""

from __future__ import annotations

import struct
import threading
from collections.abc import Hashable
from typing import Any

import numpy as np

from hwkernels.device.array_protocols import read_array
from hwkernels.device.device_arrays import is_torch, new_output
from hwkernels.device.driver import TENSOR_MAP_BYTES
from hwkernels.device.plan import Plan

_ONE, _FOUR = struct.Struct("<Q"), struct.Struct("<4Q")  # addresses; those of the Problem come first in it
MOST = 1024  # products that are remembered; then all are forgotten
_UNIT = 16  # bytes: whether an address is a multiple of them decides what can be read there

Facts = tuple[Hashable, int]


def facts_of(value: Any, name: str) -> Facts | None:
    """What decides how an operand on the GPU is read, and its address; None for one of the host.

    Raises OperandTypeError for what cannot be read.
    """
    if is_torch(value):
        if not value.is_cuda:
            return None
        address = value.data_ptr()
        return (value.dtype, value.shape, value.stride(), address % _UNIT), address
    found = read_array(value, name)
    if found.host is not None:
        return None
    return (found.dtype, found.shape, found.strides, found.read_only, found.address % _UNIT), found.address


class Repeated:
    """The launch of a plan, into which other addresses are put."""

    def __init__(self, plan: Plan) -> None:
        self._shape, self._format = (plan.shape.m, plan.shape.n), plan.build.out
        self._launch = plan.launches[0]
        self._launch.keep = None  # the operands of the first call are not held
        *maps, problem = self._launch.parameters
        self._leading = int(problem["ldd"].item())
        self._problem = problem.view(np.uint8).data
        self._maps = [
            (place, own.data)  # its first 8 bytes are the address
            for place, own in zip((0, 1, 3), maps, strict=False)
            if own.size == TENSOR_MAP_BYTES and own.any()
        ]
        self._lock = threading.Lock()

    def output(self, like: Any) -> tuple[Any, int]:
        """A new one, torch's if `like` is, and its address."""
        made = new_output(like, self._shape, self._leading, self._format)
        return made, made.data_ptr() if is_torch(made) else made.address

    def __call__(self, addresses: tuple[int, int, int, int], stream: int) -> None:
        """Launch on other operands: a, b, c (0 if there is none) and d. Raises CudaError."""
        with self._lock:
            _FOUR.pack_into(self._problem, 0, *addresses)
            for place, own in self._maps:
                _ONE.pack_into(own, 0, addresses[place])
            self._launch(stream)


_KNOWN: dict[Hashable, Repeated] = {}


def find(key: Hashable) -> Repeated | None:
    """The launch of a product, if it is known."""
    return _KNOWN.get(key)


def remember(key: Hashable, plan: Plan) -> None:
    """Keep the launch of a plan, if it is all that the plan does: one that repacks or compresses operands is not kept."""
    if len(plan.launches) == 1 and not plan.build.row.sparse:
        if len(_KNOWN) >= MOST:
            _KNOWN.clear()
        _KNOWN[key] = Repeated(plan)


forget = _KNOWN.clear
"""Forget all products: their launches belong to the context in which they were made."""
