"""What tells the rows of a family's page apart: sections, and labels within one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from generator.markdown import code
from tcsim.registry import Row


def kind_of(row: Row) -> str:
    """ ".kind::f8f6f4" of newer spellings, or nothing."""
    found = re.search(r"\.kind::\w+", row.mnemonic)
    return found[0] if found else ""


def label(row: Row) -> str:
    """What tells a row from others of its section: the result's format and the modifiers."""
    return " ".join(features(row).values())


def features(row: Row) -> dict[str, str]:
    """The result's format and the modifiers, by name."""
    result = {"d": row.operands["d"].format.name} if "d" in row.operands else {}
    return result | {name: code(value) for name, value in row.modifiers.items() if value}


def common_label(rows: Sequence[Row], section: Sequence[Row]) -> str:
    """The features that these rows of a section share and others of the section do not."""
    all_features = [features(row) for row in section]
    shared = set.intersection(*(set(features(row).items()) for row in rows))
    telling = [item for item in features(rows[0]).items() if item in shared]
    return " ".join(text for name, text in telling if any(other.get(name) != text for other in all_features)) or "all"
