"""Kernels that are right: other orders of summation, epilogues and output formats, references in wider arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

import tcsim
from tcsim.catalog import on_arch
from tcsim.numbers.codec import decode, encode
from tests.evaluation.wrong_kernels.cases import Kind, Plant, Scene
from tests.evaluation.wrong_kernels.results import DENSE, is_float, made_of


def _numbers(scene: Scene) -> tuple[Any, Any, Any]:
    """A, B and C as they are multiplied: dense and scaled."""
    formats, own, machine = scene.machine.formats, scene.operands, scene.machine
    a, b, c = (decode(x, formats[name]).astype(np.float64) for x, name in ((own.a, "a"), (own.b, "b"), (own.c, "c")))
    if machine.sparsity is not None:
        columns = replace(machine.sparsity, rows=len(a), k=2 * a.shape[1]).columns(own.positions)
        dense = np.zeros((len(a), b.shape[0]))
        np.put_along_axis(dense, columns, a, axis=1)
        a = dense
    if machine.blocks:
        a = a * np.repeat(decode(own.scale_a, formats["scale"]).astype(np.float64), machine.block, axis=1)
        b = b * np.repeat(decode(own.scale_b, formats["scale"]).astype(np.float64), machine.block, axis=0)
    return a, b, c


def _computed(scene: Scene, make: Callable[[Any, Any, Any], Any]) -> Plant | None:
    """What a reference gives of the numbers."""
    if not is_float(scene):
        return None
    return Plant(scene.kernel(), frozenset(), observed=lambda d: encode(make(*_numbers(scene)), "f32"))


def _reference() -> Callable[[Scene], Plant | None]:
    return lambda scene: _computed(scene, lambda a, b, c: a @ b + c)


def _numpy(scene: Scene) -> Plant | None:
    """Another library's order."""
    single = np.float32
    return _computed(scene, lambda a, b, c: a.astype(single) @ b.astype(single) + c.astype(single))


def _chain(fused: bool) -> Callable[[Scene], Plant | None]:
    """f32 multiply and add, one k after another; C first if fused, else last."""

    def chain(a: Any, b: Any, c: Any) -> Any:
        total = (c if fused else 0 * c).astype(np.float32)
        for k in range(a.shape[1]):
            term = a[:, k, None] * b[k]
            total = (total + (term if fused else term.astype(np.float32))).astype(np.float32)
        return total if fused else (total + c).astype(np.float32)

    return lambda scene: _computed(scene, chain)


def _other_step(scene: Scene) -> Plant | None:
    """The product in an instruction of half the K."""
    k = scene.machine.shape[2]
    mnemonic = scene.target.mnemonic.replace(f"k{k}.", f"k{k // 2}.")
    if not any(row.mnemonic == mnemonic for row in on_arch(scene.instruction.arch.name, "mma.sync")):
        return None
    own, other = scene.operands, tcsim.instruction(mnemonic, arch=scene.target.arch)
    return Plant(scene.kernel(), frozenset(), observed=lambda d: tcsim.gemm(own.a, own.b, own.c, instruction=other))


DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def _given(name: str, make: Callable[[Scene], Plant | None]) -> Callable[[Scene], Plant | None]:
    """The output tensor is of a narrower format, rounded to nearest even."""

    def plant(scene: Scene) -> Plant | None:
        made = make(scene) if is_float(scene) else None
        if made is None:
            return None
        before = made.observed

        def handed(d: Any) -> Any:
            wide = d if before is None else before(d)
            return encode(decode(wide, "f32"), name).view(DTYPES[name])

        return replace(made, observed=handed)

    return plant


def _promoted(scene: Scene) -> Plant | None:
    """Every K tile from zero, the parts added in f32."""
    count = scene.shape[2] // scene.tile.bk
    return Plant(scene.kernel(splits=count), frozenset()) if is_float(scene) else None


CORRECT = (
    Kind("right", made_of(), correct=True),
    *(Kind(f"split K, {splits}", made_of(splits=splits), correct=True) for splits in (2, 3, 4)),
    Kind("split K, 4, C last", made_of(splits=4, start="zero", c_late=1.0), correct=True),
    Kind("split K, 4, added from the last", made_of(splits=4, kept=lambda n: range(n)[::-1]), correct=True),
    Kind("split K, 2, tiles in turn", made_of(splits=2, in_turn=True), correct=True),
    Kind("split K, 3, tiles in turn, C last", made_of(splits=3, in_turn=True, start="zero", c_late=1.0), correct=True),
    Kind("promoted every K tile", _promoted, correct=True),
    Kind("K tiles descending", made_of(tiles=lambda count: range(count)[::-1]), correct=True),
    Kind(
        "K tiles in pairs exchanged",
        made_of(tiles=lambda count: [t ^ 1 if t ^ 1 < count else t for t in range(count)]),
        correct=True,
    ),
    Kind("even K tiles first", made_of(tiles=lambda count: [*range(0, count, 2), *range(1, count, 2)]), correct=True),
    Kind("first K tile last", made_of(tiles=lambda count: [*range(1, count), 0]), correct=True),
    Kind("c added in the epilogue", made_of(start="zero", c_late=1.0), correct=True),
    Kind("f64 reference", _reference(), correct=True),
    Kind("f32 chain", _chain(fused=True), correct=True),
    Kind("f32 chain, not fused, C last", _chain(fused=False), correct=True),
    Kind("NumPy's product in f32", _numpy, correct=True),
    Kind("steps of another K", _other_step, ("mma.sync",), correct=True),
    *(
        Kind(f"{name} output{said}", _given(name, make), correct=True)
        for name in ("bf16", "f16", "e4m3", "e5m2")
        for said, make in (
            ("", made_of()),
            (" of a split K", made_of(splits=2)),
            (" with c in the epilogue", made_of(start="zero", c_late=1.0)),
            (" of an f64 reference", _reference()),
        )
    ),
    Kind("right, ragged", made_of(), DENSE, correct=True, ragged=True),
    Kind("split K, ragged", made_of(splits=2), DENSE, correct=True, ragged=True),
    Kind("f64 reference, ragged", _reference(), DENSE, correct=True, ragged=True),
    Kind("bf16 output, ragged", _given("bf16", made_of()), DENSE, correct=True, ragged=True),
)
