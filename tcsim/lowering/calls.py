"""Calls of instructions' functions while code is recorded: each is recorded once, a long one as a function that all its calls share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tcsim.lowering.llvm import Function
from tcsim.lowering.traced import Node, Traced, Untraceable, constants

_SMALL = 12
"""Operations of a function that is written out where it is called."""


class Calls:
    """The functions that some code calls."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Function | None, Any]] = {}
        self._kept: list[Any] = []  # functions, whose ids are keys

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function gives for arrays that are recorded and others that are known. Raises Untraceable."""
        key = (id(function), *(_key(own) for own in args))
        if key not in self._known:
            self._kept.append(function)
            self._known[key] = self._recorded(function, args)
        own, made = self._known[key]
        if own is None:
            return function(*args)
        nodes = tuple(node for arg in args if isinstance(arg, Traced) for node in arg.nodes.flat)
        places = iter(range(len(own.results)))
        found = [_called(own, nodes, places, result) for result in (made if isinstance(made, tuple) else (made,))]
        return tuple(found) if isinstance(made, tuple) else found[0]

    def _recorded(self, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Function | None, Any]:
        given, params = [], list[str]()
        for arg in args:
            if not isinstance(arg, Traced):
                given.append(arg)
                continue
            nodes: Any = np.empty(arg.shape, object)
            for place in np.ndindex(arg.shape):
                nodes[place] = Node("param", arg.nodes[place].type, (), len(params))
                params.append(nodes[place].type)
            given.append(Traced(nodes, arg.dtype))
        try:
            made = function(*given)
        except Exception as error:  # whatever NumPy code makes of arrays without values
            raise Untraceable(f"{error}") from None
        results = [
            node
            for own in (made if isinstance(made, tuple) else (made,))
            for node in (own.nodes if isinstance(own, Traced) else constants(own, np.asarray(own).dtype)).flat
        ]
        if _size(results) <= _SMALL:
            return None, made
        return Function(f"f{len(self._known)}", tuple(params), tuple(results)), made


def _key(arg: Any) -> Any:
    if isinstance(arg, Traced):
        return arg.dtype, arg.shape
    array = np.asarray(arg)
    return type(arg), array.dtype, array.shape, array.tobytes()


def _called(own: Function, nodes: tuple[Node, ...], places: Any, result: Any) -> Traced:
    array = result.nodes if isinstance(result, Traced) else np.asarray(result)
    found = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        number = next(places)
        found[place] = Node("call", own.results[number].type, nodes, (own, number))
    return Traced(found, result.dtype)


def _size(results: list[Node]) -> int:
    seen, left = set[int](), list(results)
    while left:
        node = left.pop()
        if id(node) not in seen and node.op not in ("const", "param"):
            seen.add(id(node))
            left += node.args
    return len(seen)
