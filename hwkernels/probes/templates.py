"""The kernels that stand as PTX files beside their probes: what in them depends on the row is filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template


@cache
def _lines(name: str) -> tuple[str, ...]:
    text = Path(__file__).with_name(f"{name}.ptx").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if not line.lstrip().startswith("//"))


def filled(name: str, values: Mapping[str, object], blocks: Mapping[str, Sequence[str]]) -> str:
    """A kernel from its template: `$name` in a line is a value, alone in a line a block of lines. Lines of comments are left out."""
    found: list[str] = []
    for line in _lines(name):
        word = line.strip()
        if word.startswith("$") and word[1:] in blocks:
            indent = line[: -len(word)]
            found += (indent + own for own in blocks[word[1:]])
        else:
            found.append(Template(line).substitute(values) if "$" in line else line)
    return "\n" + "\n".join(found) + "\n"


def pointers(parameters: Sequence[str]) -> list[str]:
    """Parameters that are addresses into registers %base_name, as global ones."""
    return [
        line
        for name in parameters
        for line in (f"ld.param.u64 %base_{name}, [{name}];", f"cvta.to.global.u64 %base_{name}, %base_{name};")
    ]
