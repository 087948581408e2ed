"""What tells the rows of a family's page apart: sections, and labels within one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from generator.markdown import code
from tcsim.model.row import Row


def kind_of(row: Row) -> str:
    """ ".kind::f8f6f4" of newer spellings, or nothing."""
    found = re.search(r"\.kind::\w+", row.mnemonic)
    return found[0] if found else ""


def section_of(row: Row) -> tuple[object, ...]:
    """What the rows of a section share: M, K and the layouts of A and B, or the shape of data movement; arithmetic; kind."""
    if "shape" in row.modifiers:
        return row.modifiers["shape"], row.arithmetic, kind_of(row)
    layouts = tuple(str(row.operands[name].layout) for name in "ab" if name in row.operands)
    return row.shape[::2], row.arithmetic, kind_of(row), layouts


def shapes_text(rows: Sequence[Row]) -> str:
    """The shapes of a section: "m64n8k16 to m64n256k16", "16x64b.x1 to .x128", or nothing."""
    if "shape" in rows[0].modifiers:  # a shape of data movement, which is not M, N and K
        counts = list(dict.fromkeys(row.modifiers.get("count", "") for row in rows))
        shape = rows[0].modifiers["shape"].removeprefix(".")
        return f"{shape}{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{shape}{counts[0]}"
    shapes = sorted({row.shape for row in rows})
    texts = ["".join(f"{letter}{x}" for letter, x in zip("mnk", shape, strict=False) if x) for shape in shapes]
    return f"{texts[0]} to {texts[-1]}" if len(texts) > 1 else texts[0]


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
