"""Planted mistakes with block scales, and with tcgen05.mma."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import tcsim
from tests.support.planted import Planted, Random, codes


def _factors(random: Random, shape: tuple[int, ...], format: Any) -> Any:
    """Scale factors between 1/8 and 8."""
    return tcsim.encode(2.0 ** random.integers(-3, 4, shape), format.name)


def _scaled(mistake: str, wrong: Callable[[Any, Any], tuple[Any, Any] | None]) -> Any:
    """Matrices with scales; `wrong` changes (scale_a, scale_b). Two steps along K."""

    def plant(random: Random, ins: Any) -> Planted | None:
        if ins.row.family == "mma.sp.block_scale":
            return None
        m, n, k = ins.shape
        blocks, format = ins.blocks, ins.row.scale_a.format
        a, b = codes(random, (m, 2 * k), ins.formats["a"]), codes(random, (2 * k, n), ins.formats["b"])
        c = codes(random, (m, n), ins.formats["c"])
        scales = _factors(random, (m, 2 * blocks), format), _factors(random, (2 * blocks, n), format)
        changed = wrong(*scales)
        if changed is None:
            return None
        out = c
        for step in range(2):
            inner, own = slice(step * k, step * k + k), slice(step * blocks, step * blocks + blocks)
            out = ins.matmul(a[:, inner], b[inner], out, scale_a=changed[0][:, own], scale_b=changed[1][own])
        given = {"a": a, "b": b, "c": c, "scale_a": scales[0], "scale_b": scales[1]}
        return Planted(ins, {**given, "observed": out}, mistake)

    return plant


def _scale_selector(random: Random, ins: Any) -> Planted | None:
    """The right registers, another thread id for A's scales."""
    if ins.row.family == "mma.sp.block_scale":
        return None
    given = {x: ins.registers(x, codes(random, ins.operands[x].shape, ins.formats[x])) for x in "abc"}
    words = {}
    for side, threads in (("a", 2), ("b", 4)):
        shape = ins.scales[f"scale_{side}"].shape
        words[f"scale_{side}"] = sum(
            ins.scale_registers(side, _factors(random, shape, ins.row.scale_a.format), thread_id=thread)
            for thread in range(threads)
        )
    observed = ins.execute(**given, **words, thread_id_a=1)
    return Planted(ins, {**given, **words, "observed": observed}, "scale_a selector wrong")


SCALED = (
    _scaled("scale_a ignored", lambda a, b: (np.full_like(a, _one(a)), b)),
    _scaled("scale_b of another column", lambda a, b: (a, np.stack([b[:, i ^ 1] for i in range(b.shape[1])], axis=1))),
    _scaled("scale_a of another row", lambda a, b: (np.concatenate([a[8:], a[:8]]), b)),
    _scaled("scale_a of another block", lambda a, b: (np.ascontiguousarray(a[:, ::-1]), b)),
    _scale_selector,
)


def _one(scales: Any) -> int:
    """The code of 1 in the format of power-of-two scales: ue8m0 has them in steps of one code, ue4m3 of eight."""
    return 0x7F if np.ptp(scales) <= 6 else 0x38


def _tensor(mistake: str, change: Callable[[Random, Any, Any, dict[str, Any]], dict[str, Any] | None]) -> Any:
    """tcgen05.mma through matmul: what is given, and the result of changed arguments."""

    def plant(random: Random, ins: Any) -> Planted | None:
        kind = ins.row.kind.name
        if kind not in _DESCRIPTORS or ins.row.sparse or ins.row.weight_stationary or ins.row.lookup:
            return None
        options = dict(_DESCRIPTORS[kind])
        if ins.row.block == 16:
            options["scale_format"] = "ue4m3"
        m = 128 if ins.row.ashift or ins.row.block else 64
        desc = tcsim.InstructionDescriptor(kind=kind, m=m * ins.row.cta_group, n=32, arch=ins.arch.name, **options)
        shapes, formats = ins.shapes(desc), ins.formats(desc)
        given: dict[str, Any] = {x: codes(random, shapes[x], formats[x]) for x in "abc"}
        for name in ("scale_a", "scale_b"):
            if name in shapes:
                given[name] = _factors(random, shapes[name], formats["scale"])
        try:
            changed = change(random, ins, desc, given)
            if changed is None:
                return None
            observed = ins.matmul(**{**given, "idesc": desc, **changed})
        except tcsim.TcsimError:
            return None
        return Planted(ins, {**given, "idesc": desc, "observed": observed}, mistake)

    return plant


_DESCRIPTORS: dict[str, dict[str, Any]] = {
    "f16": {"a_format": "f16"},
    "tf32": {},
    "f8f6f4": {"a_format": "e4m3", "b_format": "e5m2"},
    "i8": {"a_format": "s8"},
    "mxf8f6f4": {"a_format": "e4m3"},
    "mxf4": {},
    "mxf4nvf4": {"scale_format": "ue8m0"},
}

TENSOR = (
    _tensor("accumulator ignored", lambda r, i, d, g: {"c": np.zeros_like(g["c"])}),
    _tensor("a negated", lambda r, i, d, g: {"idesc": replace(d, negate_a=True)}),
    _tensor(
        "another descriptor", lambda r, i, d, g: {"idesc": _swapped_formats(d)} if d.kind in ("f16", "f8f6f4") else None
    ),
    _tensor("b transposed", lambda r, i, d, g: {"b": np.ascontiguousarray(g["b"].reshape(g["b"].shape[::-1]).T)}),
    _tensor(
        "scale_b of another column",
        lambda r, i, d, g: {"scale_b": g["scale_b"][:, np.arange(32) ^ 4]} if "scale_b" in g else None,
    ),
)


def _swapped_formats(desc: Any) -> Any:
    other = {"f16": "bf16", "e4m3": "e5m2", "e5m2": "e4m3"}
    return replace(desc, a_format=other[desc.a_format], b_format=other[desc.b_format])
