"""What each chip generation multiplies, and with which steps: read from the registry, for those who come from another one.

Nothing here is a fact of its own. Formats come from rows, kinds and steps from lowerings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tcsim import catalog
from tcsim.arithmetic.steps import Arithmetic, BitDot, DotAdd, IntegerDot, Lowering, ScaledDotAdd, Step
from tcsim.core.targets import ARCHS
from tcsim.inspection.listing import archs_of, formats_of
from tcsim.isa.tcgen05.mma_rows import MultiplyRow
from tcsim.model.row import Row
from tcsim.numbers.formats import FORMATS


@dataclass(frozen=True)
class Generation:
    """What one arch multiplies."""

    arch: str
    families: dict[str, int]  # family that multiplies -> spellings on this arch
    kinds: dict[str, dict[str, tuple[str, ...]]]  # what runs -> input format -> families that run it so, with shapes


@dataclass(frozen=True)
class StepUse:
    """One kind of fused dot-add step, and who uses it."""

    users: tuple[str, ...]  # families
    archs: tuple[str, ...]
    inputs: tuple[str, ...]  # formats of A and B
    products: tuple[int, ...]  # of a step, in every size that occurs
    fraction_bits: int  # F
    group: int  # products that are summed before they are scaled, or 0
    scaled: bool  # by block scales
    results: tuple[str, ...]  # formats that the sum is rounded to
    emulated: bool  # on the unit of wider inputs


_SAME_UNIT = {"mxf4nvf4": "mxf4"}
"""Classes of arithmetic that differ in their scales alone."""


def _is_product(step: Step) -> bool:
    fma = isinstance(step, Arithmetic) and step.op == "fma"
    return fma or isinstance(step, DotAdd | ScaledDotAdd | IntegerDot | BitDot)


def _multiplies() -> Iterator[tuple[Row, str, Lowering]]:
    """Every spelling that multiplies matrices, on every arch."""
    for row in catalog.rows().values():
        if row.dropped:
            continue
        for arch in archs_of(row.targets):
            lowering = catalog.family(row.family).lowering(row, ARCHS[arch])
            if inputs_of(row) and any(_is_product(step) for step in lowering.steps):
                yield row, arch, lowering


def inputs_of(row: Row) -> tuple[str, ...]:
    """The formats that A and B may have, in the order of `tcsim.FORMATS`.

    >>> inputs_of(catalog.rows()["tcgen05.mma.cta_group::1.kind::f16"])
    ('f16', 'bf16')
    """
    if isinstance(row, MultiplyRow):
        own = set(row.kind.ab_formats)
    else:
        formats = formats_of(row)
        own = {formats[name] for name in "ab" if name in formats}
    return tuple(name for name in FORMATS if name in own)


def generations() -> tuple[Generation, ...]:
    """All archs, oldest first.

    >>> volta = generations()[0]
    >>> volta.arch, volta.families["mma.sync"], volta.kinds["native"]["f16"]
    ('sm_70', 12, ('mma.sync',))
    """
    families: dict[str, dict[str, int]] = {arch: {} for arch in ARCHS}
    shapes: dict[tuple[str, str, str, str], dict[str, None]] = defaultdict(dict)  # in order; arch, kind, format, family
    for row, arch, lowering in _multiplies():
        families[arch][row.family] = families[arch].get(row.family, 0) + 1
        for name in inputs_of(row):
            shapes[arch, lowering.kind, name, row.family]["m{}n{}k{}".format(*row.shape)] = None
    kinds: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {arch: {} for arch in ARCHS}
    for arch, kind, name, family in shapes:
        native = shapes.get((arch, "native", name, family), {})
        label = family if kind in _NATIVE or not native else _part(family, shapes[arch, kind, name, family], native)
        users = kinds[arch].setdefault(kind, {})
        users[name] = (*users.get(name, ()), label)
    return tuple(
        Generation(
            arch,
            families[arch],
            {kind: {name: users[name] for name in FORMATS if name in users} for kind, users in kinds[arch].items()},
        )
        for arch in ARCHS
    )


_NATIVE = ("native", "split")


def _part(family: str, own: Iterable[str], native: Iterable[str]) -> str:
    """Which part of a family is meant: the shapes that are not native."""
    different = [shape for shape in own if shape not in native]
    return f"{family} {' '.join(different)}" if different else f"some {family}"


def step_uses() -> tuple[StepUse, ...]:
    """Every kind of fused dot-add step. Instructions that are split into others of their kind are left out.

    Of tcgen05.mma, whose result format comes with a descriptor, only the f32 result is seen.

    >>> [use.products for use in step_uses() if "wgmma" in use.users and "tf32" in use.inputs]
    [(8,)]
    """
    found: dict[tuple[str, int, int, bool, bool, str], _Uses] = defaultdict(_Uses)
    for row, arch, lowering in _multiplies():
        if lowering.kind == "split":
            continue
        for step in lowering.steps:
            if isinstance(step, DotAdd | ScaledDotAdd):
                group = step.group if isinstance(step, ScaledDotAdd) else 0
                arithmetic = _SAME_UNIT.get(row.arithmetic, row.arithmetic)
                issuer, scaled = row.family.partition(".")[0], isinstance(step, ScaledDotAdd)
                emulated = lowering.kind == "emulated"
                uses = found[issuer, step.unit.fraction_bits, group, scaled, emulated, arithmetic]
                uses.families[row.family] = uses.archs[arch] = uses.results[step.unit.output] = None
                uses.inputs.update(inputs_of(row))
                uses.products.add(len(step.k))
    return tuple(
        StepUse(
            users=tuple(uses.families),
            archs=tuple(arch for arch in ARCHS if arch in uses.archs),
            inputs=tuple(name for name in FORMATS if name in uses.inputs),
            products=tuple(sorted(uses.products)),
            fraction_bits=fraction_bits,
            group=group,
            scaled=scaled,
            results=tuple(uses.results),
            emulated=emulated,
        )
        for (_, fraction_bits, group, scaled, emulated, _), uses in found.items()
    )


@dataclass
class _Uses:
    """What is collected of one kind of step; the dicts are sets in order."""

    families: dict[str, None] = field(default_factory=dict)
    archs: dict[str, None] = field(default_factory=dict)
    results: dict[str, None] = field(default_factory=dict)
    inputs: set[str] = field(default_factory=set)
    products: set[int] = field(default_factory=set)
