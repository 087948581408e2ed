"""Writes the parts of the documentation that restate the code, so that they cannot disagree with it.

    python docs/generate.py            write
    python docs/generate.py --check    change nothing; exit status 1 if something would change

Pages under docs/reference/ and docs/reference/tables/ and pictures under docs/figures/ are written whole. In the other pages, what stands between `<!-- generated: NAME -->` and
`<!-- end of NAME -->` is replaced by `TABLES[NAME]()`. The modules of docs/generator/ make the tables and the pages.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from generator import corpora_tables
from generator.drawings import FIGURES
from generator.family_page import family_page
from generator.instruction_index import index_data
from generator.numerics_tables import units
from generator.reference_tables import formats_page, targets_page
from generator.suite_tables import evidence_levels, evidence_totals, options, reference_index
from generator.table_pages import TABLE_PAGES, tables_index

from tcsim import catalog
from tcsim.isa import index

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "tcsim/isa" / index.FILE

TABLES: dict[str, Callable[[], str]] = {
    "units": units,
    "evidence levels": evidence_levels,
    "evidence totals": evidence_totals,
    "options": options,
    "recorded launches": corpora_tables.total,
}
"""What can be generated inside a page, by name."""

_GENERATED = re.compile(r"(<!-- generated: (?P<name>[^>]+?) -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL)


def refresh(page: str) -> str:
    """A page with its generated parts replaced. Raises KeyError for a name that is not in `TABLES`."""
    return _GENERATED.sub(lambda match: f"{match[1]}\n{TABLES[match['name']]()}\n\n{match[3]}", page)


def pages() -> dict[Path, str]:
    """Every page that holds generated text, and every picture, as it should read."""
    found = {
        ROOT / "docs/reference/formats.md": formats_page(),
        ROOT / "docs/reference/targets.md": targets_page(),
        ROOT / "docs/reference/README.md": reference_index(),
        ROOT / "docs/reference/tables/README.md": tables_index(),
    }
    for name, page in TABLE_PAGES.items():
        found[ROOT / f"docs/reference/tables/{name}.md"] = page.markdown()
    for name, draw in FIGURES.items():
        found[ROOT / "docs/figures" / name] = draw()
    for family in catalog.families():
        found[ROOT / f"docs/reference/{family.name}.md"] = family_page(family)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        if _GENERATED.search(text):
            found[path] = refresh(text)
    return found


def index_is_current() -> bool:
    """Whether the index of all rows says what they say."""
    return INDEX.exists() and json.loads(lzma.decompress(INDEX.read_bytes())) == json.loads(json.dumps(index_data()))


def outdated() -> list[Path]:
    """The pages that do not read as they should, relative to the root of the project."""
    return [
        path.relative_to(ROOT)
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main(arguments: Sequence[str]) -> int:
    """Write or check; say what changed."""
    if list(arguments) not in ([], ["--check"]):
        print("usage: python docs/generate.py [--check]", file=sys.stderr)
        return 2
    changed, stale = outdated(), not index_is_current()
    if not arguments:
        texts = pages()
        if stale:
            INDEX.write_bytes(index.packed(index_data()))
        for path in changed:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(texts[ROOT / path], encoding="utf-8")
    for path in [*changed, *([INDEX.relative_to(ROOT)] if stale else [])]:
        print(f"{'out of date' if arguments else 'wrote'}: {path}")
    return 1 if arguments and (changed or stale) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
