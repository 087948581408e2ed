"""`python -m tests.hazards.matrix.page [--verdicts FILE] [--device FILE]`: docs/reference/tables/hazard-matrix.md, from what was found.

--verdicts takes what the matrix wrote into tests/data first, --device adds what `tests.hazards.matrix_on_gpu` wrote.
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
from tests.hazards.matrix.subjects import subjects
from tests.hazards.matrix.verdicts import CHANGED, EQUIVALENT, NAMED, REFUSED, SILENT, VERDICTS, Verdict
from tests.kernels.corpora.pack import ROOT

FOUND = ROOT / "tests" / "data" / "hazard_matrix.xz"
DEVICE = ROOT / "tests" / "data" / "hazard_matrix_h200.xz"
PAGE = ROOT / "docs" / "reference" / "tables" / "hazard-matrix.md"
TEXT = """<!-- Written by `python -m tests.hazards.matrix.page`. Do not edit. -->

# The mutation matrix

How far can a verdict of [the check](../../hazards.md) be trusted? Kernels that are right are changed in one place at a time. Each fence, commit, wait, arrival and barrier that the launch executes is
deleted, and moved past the next instruction that synchronises or accesses shared or Tensor Memory. Waits get another depth or parity, mbarriers and named barriers another count, `expect_tx` 16 bytes more or less,
descriptors another field, addresses 16 bytes or a column more. Each mutant runs under three schedules of asynchronous work:

- **named**: the run reports a hazard, a deadlock or a fault;
- **other bits**: no hazard, and the same wrong bits under every schedule: the synchronisation is right, a descriptor or an address is wrong;
- **equivalent**: no hazard, the same bits, and every pair of conflicting accesses to a word of shared or Tensor Memory is the same as in the original, in the same order;
- **silent**: none of these. Each is argued by hand, or it is a gap of the check;
- **refused**: the machine does not take the PTX, or the values.

*Equivalent* is decided from what ran (`tests/hazards/matrix/history.py`): if no hazard is named and the pairs are those of the original, no order of execution that the rules allow can give different bits. It says nothing of
inputs that take another path. A barrier that others make redundant is the usual case.

The kernels are those of `hwkernels` for sm_80 to sm_120, and of Triton, Gluon, CuTe DSL and nvcc from [the corpora](../../corpora.md). On an H200 each mutant was launched 20 times, and some under compute-sanitizer. A
race may leave the same bits in 20 launches, and a mutant that is wrong only in theory always does. Mutants for sm_100 and sm_120 have not run on hardware.

```console
$ python -m tests.hazards.matrix --kernel gluon_wgmma --jobs 2     # a kernel; without --kernel all of them
$ python -m tests.hazards.matrix --jobs 2 --out verdicts.json && python -m tests.hazards.matrix.page --verdicts verdicts.json
$ python -m tests.hazards.matrix_on_gpu --out FOLDER               # on a GPU; --missing: only what this page lacks
```

- Four mutants of `wgmma_sparse` (lines 135, 151 and 159: another number of arrivals for a barrier that says that a slot is free) hung once each on an H200, in runs where many others hang, and kept
  their bits in thousands of later launches (`python -m tests.hazards.hangs_on_gpu`). What stopped those four launches is not known; the tables have the runs that ended.
- `tcgen05.dealloc` is not an access to Tensor Memory: `tcgen05.fence` between the last `tcgen05.ld` and it counts as redundant.
- Verdicts of descriptors are those of one instruction of a kernel. A start address 16 bytes off looks like an advance along k, and is not named.
- racecheck names two pairs in `wgmma_sparse` itself, because it does not know that a lane waits for the words that wgmma reads; the check has `WARP_SYNC_COLLECTIVE` there, which is not an error. It names one
  pair in every mutant of `gluon_roles`: warp 0 writes what the other warps are to do, they read it, and `bar.sync 1` is between.
"""
TOOLS = ("racecheck", "synccheck", "memcheck")


@dataclass(frozen=True)
class Reason:
    """Why a mutant that the tool cannot decide is what it is."""

    kernel: str  # patterns
    what: str
    why: str


REASONS = (
    Reason(
        "^triton_scaled_100$", r"^delete: '@%p\d+ mbarrier\.inval",
        "mbarrier.inval frees the object's bytes for another use, and there is none: the epilogue stays in the first 12 KiB of shared memory, and the object is 24 KiB into it. A write there would be MBAR_OVERWRITTEN.",
    ),
    Reason(
        "^triton_roles_100$", r"^column \+1: '@%p83 tcgen05\.st",
        "The zeros that it stores are not read: the first tcgen05.mma of each tile takes no accumulator (enable-input-d is false), and writes all its columns.",
    ),
)  # fmt: skip
"""The mutants that are argued by hand."""


def keep(found: Any, to: Path) -> None:
    """Bring plain data into the tree; the same content gives the same bytes."""
    text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    to.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def joined(earlier: Any, later: Any) -> Any:
    """What a GPU did, with what a later run on the same host adds; the later run alone if GPU, driver or assembler are others.

    >>> first = {"device": "H200", "mutants": {"a": {"gpu": 0}, "b": {"gpu": 3}}}
    >>> joined(first, {"device": "H200", "mutants": {"a": {"gpu": "not run", "memcheck": "0"}}})["mutants"]["a"]
    {'gpu': 0, 'memcheck': '0'}
    """
    if earlier is None or any(earlier[key] != later[key] for key in later if key != "mutants"):
        return later
    found = dict(earlier["mutants"])
    for key, own in later["mutants"].items():
        new = {name: said for name, said in own.items() if name != "gpu" or said != "not run" or key not in found}
        found[key] = found.get(key, {}) | new
    return later | {"mutants": found}


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


def _errors(device: dict[str, Any], key: str, tool: str) -> int | None:
    """The errors that a tool named in a mutant; None if it said nothing, or names some in the kernel itself."""
    own, original = (device.get(name, {}).get(tool, "") for name in (key, f"{key.split()[0]} original"))
    return int(own) if own.isdigit() and original in ("", "0") else None


def _by_kind(found: list[Verdict], device: dict[str, Any]) -> Iterator[list[Any]]:
    """By kind of mutant, how many each tool was asked about and in how many it names an error, beside our verdict."""
    for kind in [*sorted({own.kind for own in found}), "all"]:
        row: list[Any] = [kind]
        for tool in TOOLS:
            asked = [own for own in found if kind in (own.kind, "all") and _errors(device, own.key, tool) is not None]
            errors = [own for own in asked if _errors(device, own.key, tool)]
            row += [len(asked), sum(own.verdict == NAMED for own in asked), len(errors)]
        yield row


def _kinds(found: list[Verdict], generations: dict[str, str]) -> Iterator[list[Any]]:
    """By kernel, the mutants of each kind: those that delete or change, and those that move."""
    kinds = sorted({own.kind.removesuffix(" moved") for own in found})
    yield ["kernel", *kinds]
    for name in dict.fromkeys(own.subject for own in found):
        counts = Counter(own.kind for own in found if own.subject == name)
        cells = [" + ".join(str(counts[each]) for each in (kind, f"{kind} moved") if counts[each]) for kind in kinds]
        yield [f"{generations[name]} {name}", *cells]


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
    yield "## By kind of mutant\n"
    yield from table(("kind", *HEADS), _counted(sorted(found, key=lambda own: own.kind), lambda own: own.kind, device))
    yield "\n## By kernel\n"
    rows = _counted(found, lambda own: f"{generations[own.subject]} {own.subject}", device)
    yield from table(("kernel", *HEADS), rows)
    heads, *kinds = _kinds(found, generations)
    yield "\n## What is changed, by kernel\n"
    yield "Mutants that delete or change + mutants that move; nothing where the launch executes no such instruction, or nothing to move it past.\n"
    yield from table(heads, kinds)
    yield "\n## The hazards by name\n"
    yield "A mutant may have several.\n"
    yield from table(("name", "severity", "mutants"), _names(found))
    if device:
        yield f"\n## What the GPU does with them\n\n{report['device']}, driver {report['driver']}, {report['assembler']}; {report['times']} launches of each.\n"
        yield from table(("our verdict", "run", *GPU), _crossed(found, device))
        yield f"\n## compute-sanitizer\n\n{report['device']}, driver {report['driver']}; a sample of the mutants, and the kernels themselves.\n"
        heads = [f"{tool}: {what}" for tool in TOOLS for what in ("launched", "with errors")]
        yield from table(("our verdict", *heads), _compared(found, device))
        yield "\nBy kind of mutant, without those of kernels in which the tool names something itself:\n"
        heads = ["kind", *(f"{tool}: {what}" for tool in TOOLS for what in ("launched", "named by us", "with errors"))]
        yield from table(heads, _by_kind(found, device))
        yield "\nWhat the tools name in the kernels themselves:\n"
        yield from table(("kernel", "tool", "what it says"), _themselves(device))
        yield "\n## Where the GPU contradicts\n"
        yield "No hazard and the same bits on the model; other bits, a hang or a fault on the GPU, or errors of a tool.\n"
        yield from table(("mutant", "on the GPU"), _against(found, device, report["times"]))
    yield "\n## Silent mutants, argued by hand\n"
    yield from table(
        ("mutant", "why"), ([_told(own), reason(own) or "not explained"] for own in found if own.verdict == SILENT)
    )


def _themselves(device: dict[str, Any]) -> Iterator[list[str]]:
    for key, own in sorted(device.items()):
        for tool in TOOLS if key.endswith(" original") else ():
            if own.get(tool, "0") != "0":
                yield [key.split()[0], tool, re.sub(r"\bm\d+_\d+_", "", own.get(f"{tool} said", own[tool]))]


def _told(own: Verdict) -> str:
    return f"{own.subject}, line {own.line}: {own.what}".replace("|", "\\|")


def _against(found: list[Verdict], device: dict[str, Any], times: int) -> Iterator[list[str]]:
    for own in found:
        answer = device.get(own.key, {}).get("gpu", "not run")
        if own.verdict not in (EQUIVALENT, SILENT):
            continue
        if did(answer) in GPU[1:]:
            yield [_told(own), f"{answer} of {times} launches with other bits" if isinstance(answer, int) else answer]
        yield from ([_told(own), f"{tool}: errors"] for tool in TOOLS if _errors(device, own.key, tool))


def page() -> str:
    """The whole page."""
    return TEXT + "\n" + "\n".join(lines()) + "\n"


def main() -> int:
    """Write the page; the exit status says whether a silent mutant has no reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.hazards.matrix.page", description=__doc__)
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--device", type=Path)
    given = parser.parse_args()
    if given.verdicts:
        keep(json.loads(given.verdicts.read_text(encoding="utf-8")), FOUND)
    if given.device:
        keep(joined(read(DEVICE), json.loads(given.device.read_text(encoding="utf-8"))), DEVICE)
    PAGE.write_text(page(), encoding="utf-8")
    bad = [own for own in verdicts() if own.verdict == SILENT and not reason(own)]
    for own in bad:
        print(own.key)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
