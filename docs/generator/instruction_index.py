"""The index of all rows (`tcsim.isa.index`): what it should say, made from the catalog."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from tcsim import catalog, isa
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.descriptors.kinds import KINDS
from tcsim.inspection.listing import archs_of, formats_of
from tcsim.model.family import Family
from tcsim.model.row import Row


def index_data() -> dict[str, Any]:
    """The file's contents: texts that recur stand once, and rows count them."""
    families, targets, formats, evidence = catalog.families(), _Table(), _Table(), _Table()
    homes = _modules()
    rows = []
    for number, family in enumerate(families):
        for row in family.rows():
            if not row.dropped:
                kinds = " ".join(f"{name}={','.join(own)}" for name, own in _formats(row).items())
                levels = "".join(family.evidence(row, ARCHS[arch]).level[0] for arch in archs_of(row.targets))
                places = targets.place(row.targets), formats.place(kinds)
                rows.append([row.mnemonic, number, *places, _opcodes(family, row), evidence.place(levels)])
    return {
        "families": {family.name: [homes[family.name], list(family.words)] for family in families},
        "targets": [list(item) for item in targets.items],
        "formats": formats.items,
        "evidence": evidence.items,
        "rows": rows,
        "dropped": [row.mnemonic for family in families for row in family.rows() if row.dropped],
    }


class _Table:
    """Values in the order in which they came, each once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._places: dict[Any, int] = {}

    def place(self, item: Any) -> int:
        """Where a value stands."""
        if item not in self._places:
            self._places[item] = len(self.items)
            self.items.append(item)
        return self._places[item]


def _modules() -> dict[str, str]:
    """The first module that has each family."""
    found: dict[str, str] = {}
    for item in pkgutil.walk_packages(isa.__path__, f"{isa.__name__}."):
        for value in vars(import_module(item.name)).values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Family):
                    found.setdefault(each.name, item.name)
    return found


def _formats(row: Row) -> dict[str, Iterable[str]]:
    """The formats of each operand; of tcgen05.mma, those that the kind's descriptor may name."""
    found: dict[str, Iterable[str]] = {name: (own,) for name, own in formats_of(row).items()}
    words = (word.removeprefix("kind::") for word in row.mnemonic.split(".") if word.startswith("kind::"))
    kind = next((KINDS[word] for word in words if word in KINDS), None)
    if kind is not None and not row.operands:  # its descriptor says them
        found |= {"d": tuple(kind.d_formats), "a": tuple(kind.ab_formats), "b": tuple(kind.ab_formats)}
        if kind.scale_formats:
            found["scale"] = tuple(kind.scale_formats)
    return found


def _opcodes(family: Family[Any], row: Row) -> str:
    archs = dict.fromkeys(TARGETS[target].arch for target in row.targets)
    named = (name for arch in archs for name in dict(family.lowering(row, ARCHS[arch]).opcodes))
    return " ".join(dict.fromkeys(name for name in named if not name.startswith("_")))
