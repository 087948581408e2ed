"""Measured picks: the choices that were fastest for a product on a GPU, as data. `hwkernels.bench.tune` writes them, `plan_gemm` reads them.

A file of picks is `picks.json` beside this module, or the one that $HWKERNELS_PICKS names. A pick never changes a result: it may not
contain `promote`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from hwkernels.gemm.build import Build
from hwkernels.gemm.tiles import Shape
from hwkernels.gemm.tuning import Tuning
from tcsim.core.files import write_file
from tcsim.core.texts import parsed_json

PICKS = Path(__file__).with_name("picks.json")
VARIABLE = "HWKERNELS_PICKS"
_FIELDS = tuple(item.name for item in fields(Tuning) if item.name != "promote")


@dataclass(frozen=True)
class Product:
    """What a pick is for: a kernel with K-major operands, on chips of one arch with one number of multiprocessors."""

    kernel: str
    arch: int  # 90 for sm_90
    multiprocessors: int
    a: str  # formats
    b: str
    out: str
    m: int
    n: int
    k: int


def product_of(build: Build, shape: Shape, arch: int, multiprocessors: int) -> Product:
    """The product that a build computes."""
    return Product(build.kernel, arch, multiprocessors, build.a, build.b, build.out, shape.m, shape.n, shape.k)


def picked(build: Build, shape: Shape, arch: int, multiprocessors: int) -> Tuning:
    """The pick for exactly this product; no choice at all (`Tuning()`) where none was measured, or an operand is MN-major."""
    if build.a_mn_major or build.b_mn_major:
        return Tuning()
    return load_picks(place()).get(product_of(build, shape, arch, multiprocessors), Tuning())


def place() -> Path:
    """The file that is read."""
    return Path(os.environ.get(VARIABLE) or PICKS)


@cache
def load_picks(path: Path) -> dict[Product, Tuning]:
    """The picks of a file; none if it does not exist. Read once in a process.

    Raises ValueError for a pick that could change a result, or has a field that no Tuning has.
    """
    if not path.is_file():
        return {}
    return {product: tuning for product, tuning, _ in from_json(parsed_json(path.read_bytes(), path.name))}


def from_json(data: Mapping[str, Any]) -> list[tuple[Product, Tuning, dict[str, Any]]]:
    """Products, picks, and how each was measured. Raises as `load_picks` does.

    >>> row = dict(kernel="sm90_wgmma_persistent", arch=90, multiprocessors=132, a="f16", b="f16", out="f16", m=1, n=2, k=3)
    >>> from_json({"picks": [row | {"tuning": {"cluster": [2, 1]}, "measured": {}}]})[0][1].cluster
    (2, 1)
    """
    found = []
    for row in data["picks"]:
        tuning = dict(row["tuning"])
        wrong = set(tuning) - set(_FIELDS)
        if wrong:
            raise ValueError(f"a pick fixes {', '.join(sorted(wrong))}; valid: {', '.join(_FIELDS)}")
        if tuning.get("cluster") is not None:
            m, n = tuning["cluster"]
            tuning["cluster"] = (m, n)
        product = Product(**{item.name: row[item.name] for item in fields(Product)})
        found.append((product, Tuning(**tuning), dict(row["measured"])))
    return found


def to_json(picks: Mapping[Product, tuple[Tuning, Mapping[str, Any]]]) -> dict[str, Any]:
    """What is written to a file: a row for each product, with how it was measured."""
    rows = []
    for product, (tuning, measured) in picks.items():
        chosen = {name: value for name in _FIELDS if (value := getattr(tuning, name)) is not None}
        rows.append(asdict(product) | {"tuning": chosen, "measured": dict(measured)})
    return {"picks": rows}


def merge(path: Path, picks: Mapping[Product, tuple[Tuning, Mapping[str, Any]]]) -> None:
    """Write picks into a file, beside those that it has for other products."""
    kept: dict[Product, tuple[Tuning, Mapping[str, Any]]] = {}
    if path.is_file():
        kept = {product: (tuning, how) for product, tuning, how in from_json(parsed_json(path.read_bytes(), path.name))}
    write_file(path, json.dumps(to_json(kept | dict(picks)), indent=1) + "\n")
    load_picks.cache_clear()
