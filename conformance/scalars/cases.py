"""The spellings that are compared with a GPU, and what the model says of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.probes.scalar import Probe
from tcsim.isa.scalar.atomic import Atomic, atomics, combination
from tcsim.isa.scalar.catalog import scalars
from tcsim.isa.scalar.table import CONTAINERS

Codes = npt.NDArray[Any]
_TABLES = (0x96, 0xE8, 0xCA, 0x1B)  # of lop3: exclusive or, majority, choice, and one without symmetry
_CHUNK = 1 << 14  # inputs that the model takes at a time: they stay in a processor's cache
SPACES = ("", "global", "shared", "shared::cluster")  # of atomics: .shared::cta is .shared


@cache
def probes(target: str = "sm_90a") -> dict[str, Probe]:
    """Every spelling of a target by its name."""
    return {probe.name: probe for probe in _probes(target)}


def _probes(target: str) -> Iterator[Probe]:
    for item in scalars().values():
        if target in item.targets:
            for immediate in _TABLES if item.immediates else (None,):
                yield Probe(item, immediate)
    for own in atomics().values():
        if target in own.targets and own.type != "b128":  # which the questions ask about
            for space in own.spaces:
                if space in SPACES:
                    for stem in ("atom",) if own.returns_only else ("atom", "red"):
                        yield Probe(own, None, space, stem)


def expected(probe: Probe, inputs: Sequence[Codes]) -> list[Codes]:
    """What the model computes: an array for each result, predicates as bytes."""
    total = len(inputs[0])
    parts = [_part(probe, [codes[at : at + _CHUNK] for codes in inputs]) for at in range(0, total, _CHUNK)]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _part(probe: Probe, given: list[Codes]) -> list[Codes]:
    item = probe.item
    if isinstance(item, Atomic):
        with np.errstate(all="ignore"):
            new = combination(item, probe.space)(*given)
        return [given[0], new] if probe.stem == "atom" else [new]
    sources: list[Any] = [
        codes != 0 if type == "pred" else codes for codes, type in zip(given, probe.sources, strict=True)
    ]
    for place in item.immediates:
        sources.insert(place, probe.immediate)
    with np.errstate(all="ignore"):
        found = item.compute(*sources)
    every = found if isinstance(found, tuple) else (found,)
    types = (*item.results, *(("pred",) if item.writes_carry else ()))
    return [
        _as_stored(np.broadcast_to(codes, given[0].shape), own, wide)
        for codes, own, wide in zip(every, types, probe.results, strict=True)
    ]


def _as_stored(codes: Codes, own: str, wide: str) -> Codes:
    """Codes of a result as the kernel stores them: a small integer with its sign or zeros above, a predicate as a byte."""
    if own == "pred":
        return codes.astype(np.uint8)
    codes = np.ascontiguousarray(codes).astype(CONTAINERS[own], copy=False)
    if own != wide and own[0] == "s":
        return codes.view(f"i{codes.dtype.itemsize}").astype(np.int32).view(np.uint32)
    return codes.astype(CONTAINERS[wide], copy=False)


def digest(results: Sequence[Codes], count: int | None = None) -> str:
    """Eight hexadecimal digits of the first results."""
    found = hashlib.sha256()
    for codes in results:
        found.update(np.ascontiguousarray(codes[:count]).tobytes())
    return found.hexdigest()[:8]


def mismatches(
    probe: Probe, inputs: Sequence[Codes], hardware: Sequence[Codes], model: Sequence[Codes]
) -> tuple[int, str]:
    """How many results differ, and the first of them in words."""
    wrong = np.zeros(len(inputs[0]), bool)
    for one, other in zip(hardware, model, strict=True):
        wrong |= one != other
    count = int(wrong.sum())
    if not count:
        return 0, ""
    at = int(np.argmax(wrong))
    sources = " ".join(f"{int(codes[at]):#x}" for codes in inputs)
    answers = [" ".join(f"{int(codes[at]):#x}" for codes in own) for own in (hardware, model)]
    return count, f"{sources} -> hardware {answers[0]} model {answers[1]}"
