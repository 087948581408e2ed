"""What libraries answered, as kept in the tree: of each case a sample of the output, a digest of all of it, and how it was made.

`python -m conformance.explain.recorded FOLDER` packs what `conformance.explain.record` wrote: at most `KEPT` outputs of each case.
`python -m conformance.explain.recorded` asks `tcsim.explain` about the recorded products, a line each; --match chooses by a regular expression.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.explain import inputs
from conformance.explain.products import LIBRARIES, Product, products
from conformance.suite import files
from tcsim.explanation import Explanation, explain, filter_orders

PATH = files.ROOT / "sm_90" / "explain" / "products.npz"
KEPT = 1024  # outputs of a case
_SIDE = 32


@dataclass(frozen=True)
class Case:
    """A recorded output."""

    name: str  # product, way and kind of inputs
    product: Product
    about: dict[str, Any]  # kernels, versions, digests
    outputs: inputs.Array  # (batch, rows, columns) of the output's type

    def operands(self) -> dict[str, Any]:
        """What `tcsim.explain` is given.

        Raises RecordingError if the generator makes other operands than were multiplied.
        """
        given = inputs.operands(self.product, self.about["kind"])
        if inputs.digest(given) != self.about["inputs"]:
            raise files.RecordingError(f"{self.name}: the operands are not those of the recording")
        rows, columns = kept(self.product)
        chosen: dict[str, Any] = {"a": given["a"][:, rows], "b": given["b"][:, :, columns], "observed": self.outputs}
        if "c" in given:
            whole = self.product.c == "matrix"
            chosen["c"] = given["c"][:, rows][:, :, columns] if whole else given["c"][columns]
        if "scale_a" in given:
            each = self.product.scales == "rows"
            chosen["scale_a"] = given["scale_a"][rows] if each else given["scale_a"]
            chosen["scale_b"] = given["scale_b"][:, columns] if each else given["scale_b"]
        return chosen

    def explained(self) -> Explanation:
        """The answer; of a convolution, that of the first order of K which reproduces every output, or of K as it is."""
        orders = [*filter_orders(self.product.shape[2], 9)] if "image" in self.product.options else []
        found = self.in_order(np.arange(self.product.shape[2]))
        for _, places in orders[1:]:
            if found.verdict != "not explained":
                break
            other = self.in_order(places)
            found = other if other.verdict != "not explained" else found
        return found

    def in_order(self, places: npt.NDArray[np.int64]) -> Explanation:
        """The answer for places of K in another order."""
        given = self.operands()
        given |= {"a": given["a"][..., places], "b": given["b"][..., places, :]}
        return explain(**given, alpha=self.product.alpha, beta=self.product.beta)


def kept(product: Product) -> tuple[Any, Any]:
    """The rows and columns that the tree has, of those that the recorder took."""
    rows, columns = inputs.sample(product)
    side = _SIDE if product.batch == 1 else _SIDE // 2
    few = rows[:side]
    return few, columns[: max(side, side * side // len(few))]


@cache
def cases() -> dict[str, Case]:
    """Every recorded case by its name.

    Raises RecordingError for a damaged file.
    """
    header, arrays = files.read_arrays(PATH)
    by_id = {item.id: item for item in products()}
    found = {}
    for about in header["cases"]:
        name, product = about["name"], by_id[about["product"]]
        found[name] = Case(name, product, about, arrays[name].view(inputs.DTYPES[product.formats[2]]))
    return found


def _taken(folder: Path) -> Iterator[tuple[str, dict[str, Any], inputs.Array]]:
    for library in LIBRARIES:
        with zipfile.ZipFile(folder / f"{library}.zip") as archive:
            for item in archive.namelist():
                if item.endswith(".json"):
                    name = item.removesuffix(".json")
                    yield name, json.loads(archive.read(item)), np.load(io.BytesIO(archive.read(f"{name}.npy")))


def pack(folder: Path) -> None:
    """Write the file of the tree."""
    by_id = {item.id: item for item in products()}
    listed, arrays = [], {}
    for name, about, taken in _taken(folder):
        product = by_id[about["product"]]
        rows, columns = kept(product)
        listed.append(
            {"name": name}
            | {key: value for key, value in about.items() if key not in ("options", "library", "call", "formats")}
        )
        arrays[name] = taken[:, : len(rows), : len(columns)]
    files.write_arrays(PATH, {"schema": files.SCHEMA, "cases": listed}, arrays, None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack a folder, or ask about what is packed."""
    parser = argparse.ArgumentParser(prog="python -m conformance.explain.recorded")
    parser.add_argument("folder", type=Path, nargs="?", help="what the recorder wrote")
    parser.add_argument("--match", default="", help="cases whose names match")
    options = parser.parse_args(arguments)
    if options.folder is not None:
        pack(options.folder)
        print(f"{PATH}: {PATH.stat().st_size:,} bytes")
        return 0
    counts: Counter[str] = Counter()
    for name, case in cases().items():
        if re.search(options.match, name):
            start = time.process_time()
            found = case.explained()
            counts[found.verdict] += 1
            best = [*found.classes, *found.nearest][:1]
            spent = f"{time.process_time() - start:.1f} s"
            said = f"{found.verdict} ({len(found.classes)}), {found.matching} of {found.compared}, {spent}"
            print(f"{name}: {said}: {best[0] if best else ''}", flush=True)
    print(f"{counts.total()} cases: {dict(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
