"""The tables of docs/generations.md, from `tcsim.inspection.generations`; `docs/generate.py` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tcsim.core.targets import ARCHS
from tcsim.inspection.generations import Generation, generations, step_uses
from tcsim.numbers.formats import FORMATS

Content = tuple[Sequence[str], list[tuple[object, ...]]]
_KINDS = (("emulated", "emulated"), ("cuda cores", "CUDA cores"))


def by_arch(ranges: Callable[[Iterable[str]], str]) -> Content:
    """Generation by generation: who multiplies what, natively or not. Archs that are alike share a line."""
    lines: dict[tuple[object, ...], list[str]] = {}
    for own in generations():
        lines.setdefault((ARCHS[own.arch].generation, *_cells(own)), []).append(own.arch)
    head = ("arch", "generation", "instructions that multiply", "inputs on tensor cores", "emulated, or without")
    return head, [(ranges(archs), *cells) for cells, archs in lines.items()]


def _cells(own: Generation) -> tuple[str, ...]:
    families = ", ".join(f"{name} ({count})" for name, count in own.families.items())
    on_tensor_cores = {name for kind in ("native", "split") for name in own.kinds.get(kind, {})}
    native = [name for name in FORMATS if name in on_tensor_cores]
    others = []
    for kind, said in _KINDS:
        users: dict[tuple[str, ...], list[str]] = {}
        for name, families_of in own.kinds.get(kind, {}).items():
            users.setdefault(families_of, []).append(name)
        others += [f"{', '.join(names)} of {', '.join(by)}: {said}" for by, names in users.items()]
    return families, ", ".join(native), "<br>".join(others)


def by_step(ranges: Callable[[Iterable[str]], str]) -> Content:
    """Every kind of dot-add step."""
    rows: list[tuple[object, ...]] = []
    for use in step_uses():
        inputs = ", ".join(use.inputs) + (", widened to f16" if use.emulated else "")
        products = ", ".join(map(str, use.products))
        if use.scaled:
            products += f" in groups of {use.group}, scaled" if use.group else ", each scaled"
        results = ", ".join(_RESULTS[name] for name in sorted(use.results))
        rows.append((ranges(use.archs), ", ".join(use.users), inputs, products, use.fraction_bits, results))
    head = ("arch", "instructions", "inputs", "products of a step", "F", "rounding of the result")
    return head, rows


_RESULTS = {"e8m13": "f32 RZ to 14 bits", "f16": "f16 RNE", "f32": "f32 RZ"}
