"""TVM: the instructions of its PTX table as it writes them, a share of each family. Run by tests/oracles/asking.py.

Its table and what writes a statement are modules that need nothing of TVM; TVM itself is not imported.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from types import ModuleType

from answering import Arrays, Job, main
from inline_assembly import statements

DISTRIBUTION = "apache-tvm"


def every(most: int) -> Iterator[tuple[str, list[str], str]]:
    """Template, constraints and target of up to `most` spellings of each family."""
    package = ModuleType("ptx")
    package.__path__ = [str(distribution(DISTRIBUTION).locate_file("tvm/backend/cuda/ptx"))]
    sys.modules["ptx"] = package
    table, render = importlib.import_module("ptx.table"), importlib.import_module("ptx.render")
    for entry in table.TABLE.values():
        found = table.variants(entry)
        if len(found) > most:
            found = random.Random(entry.name).sample(found, most)
        for tokens in found:
            types, numbers = next(iter(table.dtype_combos(entry, tokens))), next(iter(table.imm_combos(entry)))
            predicated = next(iter(table.pred_forms(entry)))
            _, _, text = render.render_variant(entry, tokens, predicated, types, numbers)
            for template, constraints in statements(text):
                yield template, constraints, entry.cert_arch or "sm_90"


def answer(job: Job, given: Arrays) -> Arrays:
    """All of them, as JSON."""
    return {"statements": json.dumps(list(every(job["most"])))}


main(DISTRIBUTION, answer)
