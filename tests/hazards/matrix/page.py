"""`python -m tests.hazards.matrix.page [--verdicts FILE] [--device FILE]`: docs/hazard-matrix.md, from what was found.

--verdicts and --device take what the matrix and `tests.hazards.matrix_on_gpu` wrote into tests/data first.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcsim.ptx import HAZARDS
from tests.corpora.pack import ROOT
from tests.hazards.matrix.subjects import subjects
from tests.hazards.matrix.verdicts import CHANGED, EQUIVALENT, NAMED, REFUSED, SILENT, VERDICTS, Verdict

FOUND = ROOT / "tests" / "data" / "hazard_matrix.xz"
DEVICE = ROOT / "tests" / "data" / "hazard_matrix_h200.xz"
PAGE = ROOT / "docs" / "hazard-matrix.md"
MARKS = ("<!-- what was found: mutation matrix -->", "<!-- end of what was found -->")
TOOLS = ("racecheck", "synccheck", "memcheck")


@dataclass(frozen=True)
class Reason:
    """Why a mutant that the tool cannot decide is what it is."""

    kernel: str  # patterns
    what: str
    why: str


REASONS = (
    Reason(
        "wgmma_cluster|tcgen05_", r"^delete: 'mbarrier\.init",
        "The launch does nothing else with this mbarrier: its ring has more slots, or its grid more tiles, than the product needs.",
    ),
)  # fmt: skip
"""The mutants that are argued by hand."""


def keep(given: Path, to: Path) -> None:
    """Bring a file of JSON into the tree; the same content gives the same bytes."""
    text = json.dumps(json.loads(given.read_text(encoding="utf-8")), sort_keys=True, separators=(",", ":"))
    to.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def read(path: Path) -> Any:
    """A file of JSON; None if there is none."""
    return json.loads(lzma.decompress(path.read_bytes())) if path.is_file() else None


def verdicts() -> list[Verdict]:
    """What was found of every mutant."""
    return [Verdict(**{**own, "names": tuple(own["names"])}) for own in read(FOUND) or []]


def reason(own: Verdict) -> str:
    """Why a silent mutant is one, as argued by hand; empty for no reason."""
    return next(
        (why.why for why in REASONS if re.search(why.kernel, own.subject) and re.search(why.what, own.what)), ""
    )


def did(answer: Any) -> str:
    """What a GPU did, in a word."""
    if isinstance(answer, str):
        return answer.split(":")[0]
    return "other bits" if answer else "same bits"


def table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """A table of Markdown: the first column is text, the others are numbers."""
    head = list(heads)
    yield f"| {' | '.join(head)} |"
    yield f"| --- {'| ---: ' * (len(head) - 1)}|"
    yield from (f"| {' | '.join(str(own) for own in row)} |" for row in rows)


def _counted(found: list[Verdict], key: Callable[[Verdict], str], device: dict[str, Any]) -> Iterator[list[Any]]:
    for name in [*dict.fromkeys(map(key, found)), "all"]:
        own = [each for each in found if name == "all" or key(each) == name]
        counts = Counter(each.verdict for each in own)
        ran = Counter(did(device[each.key]["gpu"]) for each in own if each.key in device)
        yield [
            name, len(own), *(counts[each] for each in (NAMED, CHANGED, EQUIVALENT, SILENT, REFUSED)), sum(ran[each] for each in GPU),
            *(ran[each] for each in GPU),
        ]  # fmt: skip


GPU = ("same bits", "other bits", "hang", "fault")
HEADS = ("mutants", "named", "other bits", "equivalent", "silent", "refused", "run on H200", *GPU)


def _names(found: list[Verdict]) -> Iterator[list[Any]]:
    counts = Counter(name for own in found for name in own.names if own.verdict == NAMED)
    for name, count in counts.most_common():
        yield [f"`{name}`", HAZARDS[name].severity, count]


def _crossed(found: list[Verdict], device: dict[str, Any]) -> Iterator[list[Any]]:
    """By what we say, what the GPU did."""
    for verdict in VERDICTS:
        ran = Counter(did(device[own.key]["gpu"]) for own in found if own.verdict == verdict and own.key in device)
        yield [verdict, sum(ran[each] for each in GPU), *(ran[each] for each in GPU)]


def _compared(found: list[Verdict], device: dict[str, Any]) -> Iterator[list[Any]]:
    """By what we say, what the tools of compute-sanitizer say."""
    for verdict in ("the original", NAMED, CHANGED, EQUIVALENT):
        keys = (
            [key for key in device if key.endswith(" original")]
            if verdict == "the original"
            else [own.key for own in found if own.verdict == verdict]
        )
        row: list[Any] = [verdict]
        for tool in TOOLS:
            said = [device[key][tool] for key in keys if tool in device.get(key, {})]
            numbers = [int(own) for own in said if own.isdigit()]
            row += [len(numbers), sum(own > 0 for own in numbers)]
        yield row


def lines() -> Iterator[str]:
    """The generated part of the page."""
    found, report = verdicts(), read(DEVICE) or {"mutants": {}}
    device = report["mutants"]
    generations = {name: own.generation for name, own in subjects().items()}
    yield "### By kind of mutant\n"
    yield from table(("kind", *HEADS), _counted(sorted(found, key=lambda own: own.kind), lambda own: own.kind, device))
    yield "\n### By kernel\n"
    rows = _counted(found, lambda own: f"{generations[own.subject]} {own.subject}", device)
    yield from table(("kernel", *HEADS), rows)
    yield "\n### The hazards by name\n"
    yield "A mutant may have several.\n"
    yield from table(("name", "severity", "mutants"), _names(found))
    if device:
        yield f"\n### What the GPU does with them\n\n{report['device']}, driver {report['driver']}, {report['assembler']}; {report['times']} launches of each.\n"
        yield from table(("our verdict", "run", *GPU), _crossed(found, device))
        yield f"\n### compute-sanitizer\n\n{report['device']}, driver {report['driver']}; a sample of the mutants, and the kernels themselves.\n"
        heads = [f"{tool}: {what}" for tool in TOOLS for what in ("launched", "with errors")]
        yield from table(("our verdict", *heads), _compared(found, device))
        yield "\n### Where the GPU contradicts\n"
        yield "No hazard and the same bits on the model; other bits, a hang or a fault on the GPU, or errors of a tool.\n"
        yield from table(("mutant", "on the GPU"), _against(found, device, report["times"]))
    yield "\n### Silent mutants, argued by hand\n"
    yield from table(
        ("mutant", "why"), ([_told(own), reason(own) or "not explained"] for own in found if own.verdict == SILENT)
    )


def _told(own: Verdict) -> str:
    return f"{own.subject}, line {own.line}: {own.what}".replace("|", "\\|")


def _against(found: list[Verdict], device: dict[str, Any], times: int) -> Iterator[list[str]]:
    for own in found:
        answer = device.get(own.key, {}).get("gpu", "not run")
        if own.verdict not in (EQUIVALENT, SILENT):
            continue
        if did(answer) in GPU[1:]:
            yield [_told(own), f"{answer} of {times} launches with other bits" if isinstance(answer, int) else answer]
        errors = {tool: device.get(own.key, {}).get(tool, "0") for tool in TOOLS}
        yield from ([_told(own), f"{tool}: errors"] for tool, said in errors.items() if said.isdigit() and int(said))


def page() -> str:
    """The page with what is generated renewed."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    return before + MARKS[0] + "\n\n" + "\n".join(lines()) + "\n\n" + MARKS[1] + rest.split(MARKS[1])[1]


def main() -> int:
    """Write the page; the exit status says whether a silent mutant has no reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.hazards.matrix.page", description=__doc__)
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--device", type=Path)
    given = parser.parse_args()
    for path, to in ((given.verdicts, FOUND), (given.device, DEVICE)):
        if path:
            keep(path, to)
    PAGE.write_text(page(), encoding="utf-8")
    bad = [own for own in verdicts() if own.verdict == SILENT and not reason(own)]
    for own in bad:
        print(own.key)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
