"""Writes the parts of the documentation that restate the code, so that they cannot disagree with it.

    python docs/generate.py            write
    python docs/generate.py --check    change nothing; exit status 1 if something would change

Pages under docs/reference/ and docs/tables/ and pictures under docs/figures/ are written whole. In the other pages, what stands between `<!-- generated: NAME -->` and
`<!-- end of NAME -->` is replaced by `TABLES[NAME]()`. The modules of docs/generator/ make the tables and the pages.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from generator import campaign_tables, corpora_tables, counter_tables, generation_tables, measured_speeds, mutant_tables
from generator.conversion_tables import conversions
from generator.drawings import FIGURES
from generator.engine_tables import engines
from generator.family_page import family_page
from generator.hazard_tables import hazards
from generator.import_graph import floors_table, layers_table
from generator.instruction_index import index_data
from generator.markdown import arch_ranges, table
from generator.numerics_tables import lowerings, units
from generator.reference_tables import formats_page, targets_page
from generator.special_tables import special_functions
from generator.suite_tables import (
    evidence_counts,
    evidence_levels,
    evidence_totals,
    families,
    input_classes,
    mutants,
    options,
    reference_pages,
)
from generator.table_pages import TABLE_PAGES
from generator.tensor_map_tables import tensor_map_bits, tensor_types

from tcsim import catalog
from tcsim.isa import index

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "tcsim/isa" / index.FILE

TABLES: dict[str, Callable[[], str]] = {
    "layers": layers_table,
    "floors": floors_table,
    "families": families,
    "generations": lambda: table(*generation_tables.by_arch(arch_ranges)),
    "steps of generations": lambda: table(*generation_tables.by_step(arch_ranges), (4,)),
    "reference pages": reference_pages,
    "units": units,
    "lowerings": lowerings,
    "evidence levels": evidence_levels,
    "evidence counts": evidence_counts,
    "evidence totals": evidence_totals,
    "options": options,
    "special functions": special_functions,
    "conversions": conversions,
    "engines": engines,
    "input classes": input_classes,
    "mutants": mutants,
    "mutants by family": mutant_tables.named,
    "source mutants": mutant_tables.total,
    "source mutants by family": mutant_tables.by_family,
    "source mutants by module": mutant_tables.by_module,
    "survivors": mutant_tables.survivors,
    "tensor map bits": tensor_map_bits,
    "tensor types": tensor_types,
    "hazards": hazards,
    "campaign": campaign_tables.campaign,
    "campaign by family": campaign_tables.by_family,
    "counter rules": counter_tables.rules,
    "counted launches": counter_tables.launches,
    "profiled ladder": counter_tables.ladder,
    "recorded launches": corpora_tables.total,
    "launches": corpora_tables.launches,
    "third party": corpora_tables.third_party,
    "third party differences": corpora_tables.third_party_differences,
    "measured machine": measured_speeds.machine,
    "persistent, cold": lambda: measured_speeds.persistent("cold"),
    "persistent, sustained": lambda: measured_speeds.persistent("sustained"),
    "ladder": lambda: measured_speeds.by_kernel("h200-ladder"),
    "large": lambda: measured_speeds.by_kernel("h200-large"),
    "sparse": lambda: measured_speeds.by_kernel("h200-sparse"),
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
    }
    for name, page in TABLE_PAGES.items():
        found[ROOT / f"docs/tables/{name}.md"] = page.markdown()
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
