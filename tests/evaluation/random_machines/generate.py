"""Random machines: every key of the vocabulary varied, in plausible and in implausible combinations, from a seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .formats import FORMATS
from .machine import Machine, Signature, Truth

WIDE = ("f16", "bf16", "tf32")
EIGHT = ("e4m3", "e5m2")
SMALL = ("e2m3", "e3m2", "e2m1")
_CONTAINERS = (("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32"))


def random_machines(count: int, seed: int = 0) -> Iterator[Machine]:
    """Machines 0 to count - 1 of a seed."""
    return (random_machine(index, seed) for index in range(count))


def random_machine(index: int, seed: int = 0) -> Machine:
    """One machine, the same for the same arguments. Two of three are plausible: their keys look like a chip's."""
    rng = np.random.default_rng((seed, index))
    plausible = index % 3 != 2
    signature = _signature(rng)
    return Machine(signature, _truth(rng, signature, plausible))


def _pick(rng: np.random.Generator, choices: tuple, weights: tuple[float, ...] | None = None):  # type: ignore[no-untyped-def, type-arg]
    probabilities = None if weights is None else np.array(weights) / sum(weights)
    return choices[int(rng.choice(len(choices), p=probabilities))]


def _signature(rng: np.random.Generator) -> Signature:
    kind = _pick(rng, ("wide", "eight", "mixed", "scaled"), (4, 3, 2, 2))
    k = int(_pick(rng, (4, 8, 16, 32, 64), (2, 3, 3, 3, 1)))
    c, d = _pick(rng, _CONTAINERS, (6, 3, 0.7, 0.7))
    scale = None
    if kind == "wide":
        a = b = _pick(rng, WIDE)
    elif kind == "eight":
        a, b = _pick(rng, EIGHT), _pick(rng, EIGHT)
    else:
        a, b = _pick(rng, EIGHT + SMALL), _pick(rng, EIGHT + SMALL)
    if kind == "scaled":
        width = int(_pick(rng, (16, 32)))
        k, c, d = max(width, int(_pick(rng, (16, 32, 64)))), "f32", "f32"
        scale = (_pick(rng, ("ue8m0", "ue4m3")), width)
        if scale[0] == "ue4m3" or rng.random() < 0.5:
            a = b = "e2m1"
    return Signature(k, a, b, c, d, scale)


def _steps(rng: np.random.Generator, k: int, plausible: bool, run: int) -> tuple[tuple[int, ...], ...]:
    """A partition of 0 .. k-1 in order; `run` neighbours always stay together."""
    runs = k // run
    kinds = ("all", "chunks", "pairs", "single", "strided", "backwards", "random")
    kind = _pick(rng, kinds, (4, 6, 3, 1, 0.5, 0.2, 0) if plausible else (1, 2, 1, 1, 2, 2, 3))
    size = 1 << int(rng.integers(0, max(runs.bit_length() - 1, 1)))
    order = np.arange(runs)
    if kind == "all" or runs == 1:
        groups = [order]
    elif kind in ("chunks", "single", "backwards"):
        groups = np.split(order, runs // (1 if kind == "single" else size))
        groups = groups[::-1] if kind == "backwards" else groups
    elif kind == "pairs":
        groups = [order[order % 4 < 2], order[order % 4 >= 2]]
    elif kind == "strided":
        groups = [order[i::size] for i in range(size)]
    else:
        cuts = sorted({int(x) for x in rng.integers(1, runs, int(rng.integers(1, 4)))})
        groups = np.split(rng.permutation(order), cuts)
    return tuple(tuple(run * int(g) + i for g in sorted(group) for i in range(run)) for group in groups if len(group))


def _truth(rng: np.random.Generator, signature: Signature, plausible: bool) -> Truth:
    form = FORMATS[signature.d]
    full = form.fraction_bits + 1
    scaled: str | tuple[str, int] | None = None
    if signature.scale is not None:
        name, width = signature.scale
        scaled = "product" if name == "ue8m0" and rng.random() < 0.5 else ("group", int(_pick(rng, (8, 16), (1, 3))))
        if max(signature.a, signature.b) > "e4" or "e4m3" in (signature.a, signature.b):
            scaled = "product"  # an exact sum of products of 8-bit formats is wider than any adder known
    run = scaled[1] if isinstance(scaled, tuple) else 1
    if plausible:
        fraction_bits = _pick(rng, (13, 23, 24, 25, 35, None, int(rng.integers(8, 41))), (2, 2, 3, 4, 1, 1, 4))
    else:
        fraction_bits = _pick(rng, (int(rng.integers(8, 41)), None), (5, 1))
    steps = _steps(rng, signature.k, plausible, run)
    width_of_sum = 2 + int(np.ceil(np.log2(max(len(s) for s in steps) + 1)))
    near = form.lowest - width_of_sum
    floor = _pick(rng, (None, near, near + int(rng.integers(-8, 9))), (2, 3, 2))
    if not plausible and rng.random() < 0.4:
        floor = int(rng.integers(-160, 6) if signature.d == "f32" else rng.integers(-40, 6))
    significand = (
        full
        if rng.random() < (0.7 if plausible else 0.3)
        else int(rng.integers(8 if signature.d == "f32" else 6, full + 1))
    )
    if plausible and fraction_bits == 13 and signature.d == "f32":
        significand = 14
    narrow = {signature.a, signature.b} <= {*EIGHT, *SMALL}
    rare = 0.2 if plausible else 0.5
    rounding = ("rne", "rz") if (signature.d == "f16") == plausible else ("rz", "rne")
    return {
        "step": steps,
        "addend": "last" if signature.c == signature.d and rng.random() < (0.25 if plausible else 0.4) else "first",
        "fraction_bits": fraction_bits,
        "truncation": "down" if rng.random() < rare else "zero",
        "products": "normalised" if rng.random() < rare and run == 1 else "raw",
        "floor": floor,
        "significand": significand,
        "rounding": rounding[int(rng.random() < rare)],
        "overflow": "largest" if rng.random() < rare else "infinity",
        "subnormal_in": "zero" if rng.random() < rare else "kept",
        "subnormal_c": "zero" if rng.random() < rare else "kept",
        "subnormal_out": "zero" if rng.random() < rare else "kept",
        "zero": "ieee" if rng.random() < rare else "+0",
        "nan": _nan(rng, signature.d),
        "scaled": scaled,
        "as": "f16" if narrow and rng.random() < 0.35 else None,
    }


def _nan(rng: np.random.Generator, d: str) -> int:
    form = FORMATS[d]
    infinity = ((1 << form.exponent_bits) - 1) << form.fraction_bits
    quiet = 1 << (form.fraction_bits - 1)
    everything = (1 << (form.bits - 1)) - 1
    random = infinity | int(rng.integers(1, 1 << form.fraction_bits)) | int(rng.integers(2)) << (form.bits - 1)
    return int(
        _pick(rng, (everything, infinity | quiet, infinity | quiet | 1 << (form.bits - 1), random), (4, 1, 1, 1))
    )
