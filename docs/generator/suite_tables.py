"""Tables of what the registry and the conformance suite hold: evidence, options, families, input classes, mutants."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import tcsim
from conformance import conftest
from conformance.isa import testbench_of
from conformance.stimuli import classes as inputs
from conformance.suite import packs, recordings
from generator.markdown import NOTICE, arch_ranges, code, table
from tcsim import catalog
from tcsim.core.evidence import LEVELS, Evidence
from tcsim.core.targets import ARCHS, TARGETS, Arch
from tcsim.model.family import Family
from tcsim.model.row import Row


def evidence_levels() -> str:
    """The levels, strongest first."""
    return table(("level", "meaning"), [(f"**{level}**", meaning) for level, meaning in LEVELS.items()])


def evidence_counts() -> str:
    """Instructions by arch and level."""
    rows = []
    for arch in ARCHS.values():
        levels = Counter(evidence_of(row, arch).level for row in catalog.on_arch(arch.name))
        counts = (levels[level] or "" for level in LEVELS)
        rows.append((code(arch.name), arch.generation, arch.example, levels.total(), *counts))
    return table(("arch", "generation", "example", "instructions", *LEVELS), rows, (3, 4, 5, 6, 7))


def evidence_of(row: Row, arch: Arch) -> Evidence:
    """The evidence of a row on an arch."""
    return catalog.family(row.family).evidence(row, arch)


class _Options:
    """Stands for pytest's parser and takes down the options."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def getgroup(self, *_: str) -> _Options:
        return self

    def addoption(self, name: str, help: str = "", **_: object) -> None:
        self.rows.append((code(name), help))


def options() -> str:
    """The options of the conformance suite."""
    recorder = _Options()
    conftest.pytest_addoption(recorder)  # type: ignore[arg-type]
    return table(("option", "meaning"), recorder.rows)


def _recorded_arch() -> str:
    """The arch with the most measured instructions."""

    def measured(arch: Arch) -> int:
        return sum(evidence_of(row, arch).level == "measured" for row in catalog.on_arch(arch.name))

    return max(ARCHS.values(), key=measured).name


def _instructions(arch: str) -> Iterator[tuple[Family[Any], Any]]:
    for row in catalog.on_arch(arch):
        yield catalog.family(row.family), tcsim.instruction(row.mnemonic, arch=arch)


def families() -> str:
    """What the registry holds: families whose names begin alike share a line."""
    groups: dict[str, list[Family[Any]]] = defaultdict(list)
    for family in catalog.families():
        groups[family.name.partition(".")[0]].append(family)
    rows, known = [], packs.names("sm_90", recordings.ROOT)
    for members in groups.values():
        own = [row for family in members for row in family.rows() if not row.dropped]
        archs = {TARGETS[target].arch for row in own for target in row.targets}
        here = [row for row in own if "sm_90" in {TARGETS[target].arch for target in row.targets}]
        recorded = sum(recordings.path_of(row.mnemonic, "sm_90").stem in known for row in here)
        pages = ", ".join(f"[{family.name}](reference/{family.name}.md)" for family in members)
        rows.append((pages, f"{len(own):,}", arch_ranges(archs), f"{recorded:,} of {len(here):,}" if here else ""))
    return table(("family", "instructions", "archs", "recorded on an sm_90 GPU"), rows, (1, 3))


def evidence_totals() -> str:
    """How many pairs of an instruction and an arch have each level."""
    levels = Counter(evidence_of(row, arch).level for arch in ARCHS.values() for row in catalog.on_arch(arch.name))
    rows = [(f"*{level}*", meaning, f"{levels[level]:,}") for level, meaning in LEVELS.items()]
    return table(("level", "meaning", "instructions x archs"), rows, (2,))


def reference_index() -> str:
    """docs/reference/README.md: a page for each family."""
    lines = [f"- [{family.name}]({family.name}.md)" for family in catalog.families()]
    lines += ["- [Number formats](formats.md)", "- [Archs and targets](targets.md)"]
    title = "# Reference: every instruction\n\nA page for each family: spellings, targets, operands, layouts, steps, evidence."
    return f"{NOTICE}\n\n{title}\n\n" + "\n".join(lines) + "\n"


def input_classes() -> str:
    """The input classes, and how many instructions of the measured arch have them; then those of single families."""
    arch = _recorded_arch()
    used: Counter[str] = Counter()
    others: dict[str, Counter[str]] = defaultdict(Counter)
    waiting: dict[str, Counter[str]] = defaultdict(Counter)
    for family, instruction in _instructions(arch):
        testbench = testbench_of(family.name)
        for name in testbench.classes(instruction):
            (used if name in inputs.CLASSES else others[family.name])[name] += 1
        waiting[family.name].update(testbench.unrecorded(instruction))
    rows = [
        (code(name), ", ".join(item.kinds), used[name], " ".join((item.make.__doc__ or "").split()))
        for name, item in inputs.CLASSES.items()
    ]
    text = table(("class", "multiplicands", f"instructions on {arch}", "what it holds"), rows, (2,))
    more = _by_family("Classes that one family has for itself:", others)
    return "\n\n".join([text, *more, *_by_family("Classes that no recording holds yet; they run live:", waiting)])


def _by_family(title: str, counts: dict[str, Counter[str]]) -> list[str]:
    """A list of the classes of each family, or nothing."""
    lines = [
        f"- {family}: " + ", ".join(f"{code(name)} ({n})" for name, n in own.items())
        for family, own in counts.items()
        if own
    ]
    return [title, "\n".join(lines)] if lines else []


def mutants() -> str:
    """The mutants, and to how many instructions of the measured arch each applies."""
    arch = _recorded_arch()
    used: Counter[tuple[str, str]] = Counter()
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for family, instruction in _instructions(arch):
        for mutant in testbench_of(family.name).mutants:
            key = (mutant.name, mutant.mistake)
            used[key] += mutant.applies(instruction)
            if family.name not in names[key]:
                names[key].append(family.name)
    rows = [(name, mistake, ", ".join(own), used[name, mistake]) for (name, mistake), own in names.items()]
    return table(("mutant", "its mistake", "families", f"applies to, of {arch}"), rows, (3,))
