"""Writes the parts of the documentation that restate the code, so that they cannot disagree with it.

    python docs/generate.py            write
    python docs/generate.py --check    change nothing; exit status 1 if something would change

Pages under docs/reference/ and pictures under docs/figures/ are written whole. In the other pages, what stands between `<!-- generated: NAME -->` and
`<!-- end of NAME -->` is replaced by `TABLES[NAME]()`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import tcsim
from conformance import conftest, inputs, recordings
from conformance.exercises import AsksMore, exercise_of
from tcsim import registry
from tcsim.block_scaling import BlockScaling
from tcsim.evidence import LEVELS, Evidence
from tcsim.families import mma_lowering, mma_sync
from tcsim.registry import Family, Row
from tcsim.steps import Arithmetic, BitDot, DotAdd, IntegerAdd, IntegerDot, ScaledDotAdd, Step, Widen, runs
from tcsim.targets import ARCHS, TARGETS, Arch, since, suffixed_since

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))  # where this file is loaded by its path

import drawings  # noqa: E402
import generation_tables  # noqa: E402

NOTICE = "<!-- Written by docs/generate.py from the code. Do not edit. -->"

CLASSES_OF_ARITHMETIC = {
    "quad_pair": "f16 m8n8k4",
    "half": "f16, bf16",
    "tf32": "tf32",
    "fp8": "e4m3, e5m2",
    "f6f4": "e3m2, e2m3, e2m1",
    "f64": "f64",
    "int8": "s8, u8",
    "int4": "s4, u4",
    "b1": "b1",
}
"""What the `arithmetic` of the rows of mma.sync stands for, for readers."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    """A Markdown table; the columns whose indices are in `numbers` are right-aligned."""
    lines = [" | ".join(head), " | ".join("---:" if place in numbers else "---" for place in range(len(head)))]
    lines += [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def code(text: object) -> str:
    """Text in backticks."""
    return f"`{text}`"


def arch_ranges(names: Iterable[str]) -> str:
    """Archs in ascending order, runs of neighbours joined: "sm_80 to sm_89, sm_120"."""
    order = list(ARCHS)
    places = sorted({order.index(name) for name in names})
    parts = []
    while places:
        last = 0
        while last + 1 < len(places) and places[last + 1] == places[0] + last + 1:
            last += 1
        run, places = places[: last + 1], places[last + 1 :]
        names_of_run = [order[place] for place in run]
        parts.append(f"{names_of_run[0]} to {names_of_run[-1]}" if len(run) > 2 else ", ".join(names_of_run))
    return ", ".join(parts)


def target_text(targets: Sequence[str]) -> str:
    """The targets of a row in few words."""
    for arch in ARCHS:
        if set(targets) == set(since(arch)):
            return f"{arch} and later"
        if set(targets) == set(suffixed_since(arch)):
            return f"f and a targets of {arch} and later"
    return ", ".join(targets)


# --- steps in words


def short_runs(k: tuple[int, ...]) -> str:
    """Indices as ranges; of more than four ranges the middle ones are left out."""
    parts = runs(k).split(",")
    return ",".join(parts if len(parts) <= 4 else [*parts[:2], "...", parts[-1]])


@singledispatch
def step_text(step: Step) -> str:
    """One step of a lowering in one line."""
    return repr(step)


@step_text.register
def _(step: Widen) -> str:
    return f"a, b widened to {step.format}"


@step_text.register
def _(step: DotAdd) -> str:
    unit = step.unit
    constants = f"F = {unit.fraction_bits}, floor {unit.floor}"
    result = f"{unit.output} {unit.rounding.upper()}"
    return f"{step.result} = dot-add of k {short_runs(step.k)} and {step.addend} ({constants}) to {result}"


@step_text.register
def _(step: ScaledDotAdd) -> str:
    unit, terms = step.unit, f"groups of {step.group} products" if step.group else "products"
    constants = f"F = {unit.fraction_bits}, floor {unit.floor}"
    result = f"{unit.output} {unit.rounding.upper()}"
    return f"{step.result} = dot-add of scaled {terms} of k {short_runs(step.k)} and {step.addend} ({constants}) to {result}"


@step_text.register
def _(step: Arithmetic) -> str:
    return f"{step.result} = {step.op}({', '.join(step.arguments)}) in {step.format} {step.rounding.upper()}"


@step_text.register
def _(step: IntegerDot) -> str:
    end = "clamped to s32 once" if step.saturate else "mod 2^32"
    addend = "" if step.addend == "+0" else f" + {step.addend}"
    return f"{step.result} = integer dot{addend}, {end}"


@step_text.register
def _(step: IntegerAdd) -> str:
    return f"{step.result} = acc + c, {'clamped to s32' if step.saturate else 'mod 2^32'}"


@step_text.register
def _(step: BitDot) -> str:
    return f"{step.result} = c + popc(a {step.op} b) mod 2^32"


def steps_text(steps: Sequence[Step], separator: str = "; ") -> str:
    """A whole lowering; a chain of fused multiply-adds from c is told as such."""
    if not steps:
        return "none: it moves data"
    first = steps[0]
    chain = isinstance(first, Arithmetic) and all(isinstance(step, Arithmetic) and step.op == "fma" for step in steps)
    if chain and isinstance(first, Arithmetic) and first.arguments[2] == "c":
        lines = [
            "acc = c",
            f"acc = fma(a[k], b[k], acc) in {first.format} {first.rounding.upper()} for k = 0 to K - 1",
            "d = acc",
        ]
        return separator.join(lines)
    return separator.join(step_text(step) for step in steps)


# --- tables inside hand-written pages


def _floor(unit: mma_lowering.Unit, result: str) -> str:
    """The floor of a unit for a result format; in parentheses if no product is small enough to show it."""
    rows = [
        tcsim.instruction(row.mnemonic, arch=arch)
        for arch in unit.archs
        for row in registry.on_arch(arch, mma_sync.NAME)
        if row.arithmetic in unit.arithmetics and row.operands["d"].format.name == result
    ]
    if not rows:
        return ""
    value = unit.floor_f16 if result == "f16" else unit.floor_f32
    return str(value) if any(inputs.floor_matters(inputs.Problem(row, 1)) for row in rows) else f"({value})"


def units() -> str:
    """The constants of the dot-add units that mma.sync uses."""
    head = ("arch", "inputs", "L", "F", "f32 result", "floor, f32 result", "floor, f16 result")
    rows = []
    for unit in mma_lowering.UNITS:
        kinds = "; ".join(CLASSES_OF_ARITHMETIC[name] for name in unit.arithmetics if name in CLASSES_OF_ARITHMETIC)
        if not kinds:
            continue
        output = {"f32": "RZ, 24 bits", "e8m13": "RZ, 14 bits"}[unit.f32_output]
        archs, floors = arch_ranges(unit.archs), (_floor(unit, "f32"), _floor(unit, "f16"))
        rows.append((archs, kinds, unit.length or "K", unit.fraction_bits, output, *floors))
    return table(head, rows, (2, 3, 5, 6))


def lowerings() -> str:
    """What each class of inputs runs on, by arch: the shape with the largest K speaks for the others."""
    found: dict[tuple[str, str, str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, kinds in CLASSES_OF_ARITHMETIC.items():
        for arch in ARCHS.values():
            by_result: dict[str, Row] = {}
            for row in registry.on_arch(arch.name, mma_sync.NAME):
                if row.arithmetic == name and not {"rounding", "saturate"} & set(row.modifiers):
                    by_result[_label(row)] = row
            for result, row in by_result.items():
                lowering = mma_sync.lowering(row, arch)
                steps = steps_text(lowering.steps, "<br>")
                found[kinds, result, lowering.kind, steps]["m{}n{}k{}".format(*row.shape)].append(arch.name)
    rows = []
    for (kinds, result, kind, steps), shapes in found.items():
        archs = arch_ranges(arch for own in shapes.values() for arch in own)
        rows.append((kinds, result, archs, ", ".join(shapes), kind, steps))
    return table(("inputs", "result", "arch", "shape shown", "kind", "steps"), rows)


def evidence_levels() -> str:
    """The levels, strongest first."""
    return table(("level", "meaning"), [(f"**{level}**", meaning) for level, meaning in LEVELS.items()])


def evidence_counts() -> str:
    """Instructions by arch and level."""
    rows = []
    for arch in ARCHS.values():
        levels = Counter(evidence_of(row, arch).level for row in registry.on_arch(arch.name))
        counts = (levels[level] or "" for level in LEVELS)
        rows.append((code(arch.name), arch.generation, arch.example, levels.total(), *counts))
    return table(("arch", "generation", "example", "instructions", *LEVELS), rows, (3, 4, 5, 6, 7))


def evidence_of(row: Row, arch: Arch) -> Evidence:
    """The evidence of a row on an arch."""
    return registry.family(row.family).evidence(row, arch)


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
        return sum(evidence_of(row, arch).level == "measured" for row in registry.on_arch(arch.name))

    return max(ARCHS.values(), key=measured).name


def _instructions(arch: str) -> Iterator[tuple[Family, Any]]:
    for row in registry.on_arch(arch):
        yield registry.family(row.family), tcsim.instruction(row.mnemonic, arch=arch)


def families() -> str:
    """What the registry holds: families whose names begin alike share a line."""
    groups: dict[str, list[Family]] = defaultdict(list)
    for family in registry.families():
        groups[family.name.partition(".")[0]].append(family)
    rows = []
    for members in groups.values():
        own = [row for family in members for row in family.rows() if not row.dropped]
        archs = {TARGETS[target].arch for row in own for target in row.targets}
        here = [row for row in own if "sm_90" in {TARGETS[target].arch for target in row.targets}]
        recorded = sum(recordings.path_of(row.mnemonic, "sm_90").exists() for row in here)
        pages = ", ".join(f"[{family.name}](docs/reference/{family.name}.md)" for family in members)
        rows.append((pages, f"{len(own):,}", arch_ranges(archs), f"{recorded:,} of {len(here):,}" if here else ""))
    return table(("family", "instructions", "archs", "recorded on an sm_90 GPU"), rows, (1, 3))


def evidence_totals() -> str:
    """How many pairs of an instruction and an arch have each level."""
    levels = Counter(evidence_of(row, arch).level for arch in ARCHS.values() for row in registry.on_arch(arch.name))
    rows = [(f"*{level}*", meaning, f"{levels[level]:,}") for level, meaning in LEVELS.items()]
    return table(("level", "meaning", "instructions x archs"), rows, (2,))


def reference_pages() -> str:
    """The index of docs/reference/."""
    lines = [f"- [{family.name}](reference/{family.name}.md)" for family in registry.families()]
    lines += ["- [Number formats](reference/formats.md)", "- [Archs and targets](reference/targets.md)"]
    return "\n".join(lines)


def input_classes() -> str:
    """The input classes, and how many instructions of the measured arch have them; then those of single families."""
    arch = _recorded_arch()
    used: Counter[str] = Counter()
    others: dict[str, Counter[str]] = defaultdict(Counter)
    waiting: dict[str, Counter[str]] = defaultdict(Counter)
    for family, instruction in _instructions(arch):
        exercise = exercise_of(family.name)
        for name in exercise.classes(instruction):
            (used if name in inputs.CLASSES else others[family.name])[name] += 1
        if isinstance(exercise, AsksMore):
            waiting[family.name].update(exercise.unrecorded(instruction))
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
        f"- {family}: " + ", ".join(f"{code(name)} ({n})" for name, n in own.items()) for family, own in counts.items()
    ]
    return [title, "\n".join(lines)] if lines else []


def wrong_models() -> str:
    """The wrong models, and to how many instructions of the measured arch each applies."""
    arch = _recorded_arch()
    used: Counter[tuple[str, str]] = Counter()
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for family, instruction in _instructions(arch):
        for model in exercise_of(family.name).wrong_models:
            key = (model.name, model.mistake)
            used[key] += model.applies(instruction)
            if family.name not in names[key]:
                names[key].append(family.name)
    rows = [(name, mistake, ", ".join(own), used[name, mistake]) for (name, mistake), own in names.items()]
    return table(("wrong model", "its mistake", "families", f"applies to, of {arch}"), rows, (3,))


TABLES: dict[str, Callable[[], str]] = {
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
    "input classes": input_classes,
    "wrong models": wrong_models,
}
"""What can be generated inside a page, by name."""

_GENERATED = re.compile(r"(<!-- generated: (?P<name>[^>]+?) -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL)


def refresh(page: str) -> str:
    """A page with its generated parts replaced. Raises KeyError for a name that is not in `TABLES`."""
    return _GENERATED.sub(lambda match: f"{match[1]}\n{TABLES[match['name']]()}\n\n{match[3]}", page)


# --- reference pages

FORMATS_INTRODUCTION = """\
One row per number format (`tcsim.FORMATS`). A *code* is the bit pattern of one value; an array of codes has the
unsigned dtype of the container. "NaN written" is the NaN that `tcsim.encode` writes, and the tensor core too where a
result has this format.
"""

TARGETS_INTRODUCTION = """\
An *arch* is a chip generation, as `--arch` and `tcsim.instruction(..., arch=)` take it. It runs the code of all its
*targets*. The PTX versions were found by trying every version with ptxas 12.9.86 (sm_70, sm_72) and 13.5.37 (the
others). Where nothing is known of an arch's arithmetic, the last column names the arch that it is taken from.
"""

FAMILY_INTRODUCTION = """\
Every spelling of {name} in the registry: {count}, of which {dropped} assemble to nothing. A section holds the spellings
of one shape, one class of inputs and the same layouts: first their targets, then who holds which element, then what
runs.

- *Layouts* are CuTe's `(thread, value)` layouts `shape:stride` ([fragments](../fragments.md)). The index is `m + M*k`
  for A, `n + N*k` for B, `m + M*n` for C and D.
- *Steps* name `a`, `b`, `c`, the result `d` and intermediate results. The dot-add is the fused step of
  [numerics](../numerics.md), F and floor are its constants; RNE, RZ, RM and RP are roundings.
- *Machine code* is what ptxas must emit for one instruction; the conformance suite checks it.
- *Evidence* is explained in [evidence](../evidence.md). Numbers in brackets are the sources:

"""


def formats_page() -> str:
    """Every number format."""
    rows = [
        (
            code(f.name), f.kind, f.bits, f.container_bits, f.exponent_bits or "", f.fraction_bits or "", f.bias or "",
            "yes" if f.signed else "no", "yes" if f.infinity else "no",
            {"ieee": "yes", "all_ones": "all ones only", "none": "no"}[f.nan], f"{f.largest:.10g}",
            "" if f.canonical_nan is None else f"`{f.canonical_nan:#x}`", f.source,
        )
        for f in tcsim.FORMATS.values()
    ]  # fmt: skip
    head = (
        "format", "kind", "bits", "container bits", "exponent bits", "fraction bits", "bias", "sign", "infinity", "NaN",
        "largest", "NaN written", "source",
    )  # fmt: skip
    return f"# Number formats\n\n{NOTICE}\n\n{FORMATS_INTRODUCTION}\n{table(head, rows, (2, 3, 4, 5, 6))}\n"


def targets_page() -> str:
    """Every arch and its targets."""
    rows = []
    for arch in ARCHS.values():
        own = [f"{code(t.name)} ({t.ptx_version})" for t in TARGETS.values() if t.arch == arch.name]
        stands_in = "" if arch.relative == arch.name else arch.relative
        rows.append((code(arch.name), arch.generation, arch.example, ", ".join(own), stands_in))
    head = ("arch", "generation", "example", "targets (lowest PTX `.version`)", "arithmetic taken from")
    return f"# Archs and targets\n\n{NOTICE}\n\n{TARGETS_INTRODUCTION}\n{table(head, rows)}\n"


class _Sources:
    """Numbers the sources of evidence of a page in the order of their first use."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def cite(self, evidence: Evidence, arch: Arch) -> str:
        """Level and source number; an inference says from what instead."""
        if evidence.level == "inferred":
            return f"inferred, {evidence.source.partition(':')[0].replace(arch.name, 'this arch')}"
        if str(evidence) not in self.texts:
            self.texts.append(str(evidence))
        return f"{evidence.level} [{self.texts.index(str(evidence)) + 1}]"


def _kind(row: Row) -> str:
    """ ".kind::f8f6f4" of newer spellings, or nothing."""
    found = re.search(r"\.kind::\w+", row.mnemonic)
    return found[0] if found else ""


def _label(row: Row) -> str:
    """What tells a row from others of its section: the result's format and the modifiers."""
    return " ".join(_features(row).values())


def _features(row: Row) -> dict[str, str]:
    result = {"d": row.operands["d"].format.name} if "d" in row.operands else {}
    return result | {name: code(value) for name, value in row.modifiers.items() if value}


def _common_label(rows: Sequence[Row], section: Sequence[Row]) -> str:
    """The features that these rows of a section share and others of the section do not."""
    all_features = [_features(row) for row in section]
    shared = set.intersection(*(set(_features(row).items()) for row in rows))
    telling = [item for item in _features(rows[0]).items() if item in shared]
    return " ".join(text for name, text in telling if any(other.get(name) != text for other in all_features)) or "all"


def _instruction_table(rows: Sequence[Row]) -> str:
    cells = [
        (code(row.mnemonic), target_text(row.targets), row.ptx_version, "yes" if row.documented else "no",
         f"none: {row.dropped}" if row.dropped else "")
        for row in rows
    ]  # fmt: skip
    head = ["mnemonic", "targets", "PTX ISA", "in the manual", "effect"]
    if not any(row.dropped for row in rows):
        head, cells = head[:4], [cell[:4] for cell in cells]  # type: ignore[misc]
    return table(head, cells)


def _fragment_table(rows: Sequence[Row]) -> str:
    formats: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        for name, operand in row.operands.items():
            size = f"{operand.ptx_registers} x `{operand.register_type}`"
            accumulator = name in ("c", "d") and "c" in row.operands
            title = "C, D" if accumulator else name.upper() if len(name) == 1 else name
            shape = "{} x {}".format(*operand.shape)
            key = (title, shape, size, code(operand.layout))
            if operand.format.name not in formats[key]:
                formats[key].append(operand.format.name)
        if isinstance(row.facts, BlockScaling):
            for scales in (row.facts.a, row.facts.b):
                key = (scales.name, "{} x {}".format(*scales.shape), "1 x `.b32`", code(scales.layout))
                if scales.format.name not in formats[key]:
                    formats[key].append(scales.format.name)
    cells = [(name, ", ".join(formats[key]), *rest) for key in sorted(formats) for name, *rest in [key]]
    return table(("operand", "formats", "rows x columns", "registers of a lane", "layout"), cells)


def _lowering_table(family: Family, rows: Sequence[Row], sources: _Sources) -> str:
    evidence: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    opcodes: dict[tuple[str, str], list[str]] = defaultdict(list)
    members: dict[tuple[str, str], list[Row]] = defaultdict(list)
    real = [row for row in rows if not row.dropped]
    for row in real:
        for arch in ARCHS.values():
            if not any(TARGETS[target].arch == arch.name for target in row.targets):
                continue
            lowering = family.lowering(row, arch)
            key = (str(lowering.kind), steps_text(lowering.steps, "<br>"))
            if row not in members[key]:
                members[key].append(row)
            if arch.name not in (archs := evidence[key][sources.cite(family.evidence(row, arch), arch)]):
                archs.append(arch.name)
            text = " + ".join(f"{times} {code(opcode)}" for opcode, times in lowering.opcodes) or lowering.note
            if text not in opcodes[key]:
                opcodes[key].append(text)
    cells = []
    for key, levels in evidence.items():
        archs_text = "<br>".join(f"{arch_ranges(names)}: {level}" for level, names in levels.items())
        machine = opcodes[key][0] + (f" and {len(opcodes[key]) - 1} like it" if len(opcodes[key]) > 1 else "")
        cells.append((_common_label(members[key], real), *key, machine, archs_text))
    return table(("rows", "kind", "steps", "machine code of one instruction", "arch: evidence"), cells)


def family_page(family: Family) -> str:
    """Every row of a family: targets, fragments, lowering, evidence."""
    sections: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in family.rows():
        layouts = tuple(str(row.operands[name].layout) for name in "ab" if name in row.operands)
        sections[row.shape, row.arithmetic, _kind(row), layouts, row.modifiers.get("shape")].append(row)
    sources, body, titles = _Sources(), [], Counter[str]()
    for rows in sections.values():
        kinds = CLASSES_OF_ARITHMETIC.get(rows[0].arithmetic, rows[0].arithmetic)
        shape = "".join(f"{letter}{extent}" for letter, extent in zip("mnk", rows[0].shape, strict=False) if extent)
        if "shape" in rows[0].modifiers:  # a shape of data movement, which is no M, N and K
            shape = rows[0].modifiers["shape"].removeprefix(".") + rows[0].modifiers.get("count", "")
        title = f"{shape}, {kinds}" if shape else kinds
        if kind := _kind(rows[0]):
            title += f", {kind}"
        if rows[0].arithmetic == "quad_pair":
            title = title.replace(" m8n8k4", "")
            title += f", {'.'.join(re.findall(r'row|col', rows[0].mnemonic))}"
        titles[title] += 1
        body += [
            f"## {title}" + (f" ({titles[title]})" if titles[title] > 1 else ""),
            _instruction_table(rows),
            *([_fragment_table(rows)] if rows[0].operands else []),
            _lowering_table(family, rows, sources),
        ]
    count = sum(len(rows) for rows in sections.values())
    dropped = sum(bool(row.dropped) for rows in sections.values() for row in rows)
    intro = FAMILY_INTRODUCTION.format(name=family.name, count=count, dropped=dropped)
    cited = "\n".join(f"  {number}. {text}" for number, text in enumerate(sources.texts, 1))
    return "\n\n".join([f"# {family.name}", NOTICE, f"{intro}{cited}", *body]) + "\n"


# --- writing


def pages() -> dict[Path, str]:
    """Every page that holds generated text, and every picture, as it should read."""
    found = {
        ROOT / "docs/reference/formats.md": formats_page(),
        ROOT / "docs/reference/targets.md": targets_page(),
    }
    for name, draw in drawings.FIGURES.items():
        found[ROOT / "docs/figures" / name] = draw()
    for family in registry.families():
        found[ROOT / f"docs/reference/{family.name}.md"] = family_page(family)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        if _GENERATED.search(text):
            found[path] = refresh(text)
    return found


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
    changed = outdated()
    if not arguments:
        texts = pages()
        for path in changed:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(texts[ROOT / path], encoding="utf-8")
    for path in changed:
        print(f"{'out of date' if arguments else 'wrote'}: {path}")
    return 1 if arguments and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
