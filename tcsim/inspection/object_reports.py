"""What notebooks show of answers and of state: launches and their hazards, barriers, memories, bank conflicts, formats, explanations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.core.errors import OperandError
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.diagnosis.error_map import ErrorMap
from tcsim.diagnosis.report import Diagnosis
from tcsim.diagnosis.where import ranges
from tcsim.explanation.report import Explanation
from tcsim.inspection.descriptor_fields import fields_of
from tcsim.inspection.diagnosis_view import diagnosis_report, map_parts
from tcsim.inspection.report import Facts, Lines, Mark, Report, table
from tcsim.layouts.banks import BANKS, BankConflicts
from tcsim.memory.mbarrier import MBarrier
from tcsim.memory.tensor_memory import TensorMemory
from tcsim.numbers.formats import Format
from tcsim.ptx.hazards.hazard import HAZARDS, Hazard
from tcsim.ptx.kernel import Kernel, Module, Run

MOST_PHASES = 64
"""Phases of an access, or of a batch of them, that are shown."""


def run_report(run: Run) -> Report:
    """What a launch did: its hazards, what is inexact, what it wrote."""
    ended = "completed" if run.completed else "not completed"
    parts: list[Any] = [
        Facts((("launch", f"{ended}, {run.instructions:,} instructions"), ("arch", run.arch))),
        _hazards(run),
    ]
    if run.inexact:
        rows = run.inexact.most_common()
        parts.append(table(("instruction", "threads"), rows, "Bits that are not known exactly", right=(1,)))
    if run.output:
        parts.append(Lines(tuple(run.output.splitlines()), "Output"))
    return Report(run.kernel, tuple(parts))


def _hazards(run: Run) -> Any:
    if not run.hazards:
        return Lines((_and("no hazards", run.sampled),), style="" if run.sampled else "good")
    text = run.text.splitlines()
    rows, marks = [], []
    for number, item in enumerate(run.hazards):
        line = text[item.line - 1].strip() if item.line and item.line <= len(text) else ""
        rows.append((item.severity, item.name, item.line or "", item.count, line, item.message))
        marks.append((Mark(f"h{number}", str(item)),) * 6)
    head = ("severity", "hazard", "line", "times", "PTX", "message")
    return table(head, rows, _and("Hazards", run.sampled), right=(2, 3), marks=tuple(marks))


def _and(*said: str) -> str:
    return "; ".join(filter(None, said))


def hazard_report(item: Hazard) -> Report:
    """One hazard with its rule."""
    rule = HAZARDS[item.name]
    shown = (
        ("severity", rule.severity), ("message", item.message), ("line", item.line), ("other line", item.other_line),
        ("source", item.source), ("other source", item.other_source), ("block", item.block), ("thread", item.thread),
        ("times", item.count), ("rule", rule.sentence), ("section", f"{rule.section}, {rule.source}"),
    )  # fmt: skip
    return Report(item.name, (Facts(tuple((name, str(value)) for name, value in shown if value is not None)),))


def module_report(module: Module) -> Report:
    """The entries of a module."""
    kernels = [module.kernel(name) for name in module.kernels]
    rows = [(own.name, own.target, ", ".join(f"{x.type} {x.name}" for x in own.params)) for own in kernels]
    return Report("PTX module", (table(("kernel", "target", "parameters"), rows),))


def kernel_report(kernel: Kernel) -> Report:
    """An entry's parameters."""
    rows = [(own.name, own.type, own.size, own.align) for own in kernel.params]
    head = Facts((("target", kernel.target), ("dynamic shared memory", "yes" if kernel.dynamic_smem else "no")))
    return Report(kernel.name, (head, table(("parameter", "type", "bytes", "alignment"), rows, right=(2, 3))))


def barrier_report(barrier: MBarrier) -> Report:
    """What a barrier waits for."""
    facts = (
        ("phase", f"{barrier.phase} completed, parity of the next: {barrier.parity}"),
        ("arrivals", f"{barrier.pending} of {barrier.expected} pending"), ("bytes", f"{barrier.tx_count} expected"),
    )  # fmt: skip
    return Report(repr(barrier), (Facts(facts),))


def tensor_memory_report(memory: TensorMemory) -> Report:
    """Which columns are allocated, and which cells were written."""
    written = np.logical_or.reduce(memory.written.reshape(-1, *memory.written.shape[-3:]))
    rows = []
    for cta, owned in enumerate(memory.owned):
        cells = written[cta]
        lanes, columns = (_said(np.flatnonzero(cells.any(axis=axis))) for axis in (1, 0))
        rows.append((cta, _said(np.flatnonzero(owned)), columns, lanes, f"{int(cells.sum()):,}"))
    head = ("CTA", "allocated columns", "written columns", "written lanes", "cells")
    return Report(f"Tensor Memory: {memory.LANES} lanes x {memory.columns} columns", (table(head, rows, right=(0, 4)),))


def _said(places: Any) -> str:
    return ranges(places) if len(places) else "none"


def conflicts_report(found: BankConflicts) -> Report:
    """The words that each bank delivers, phase by phase."""
    words = found.words.reshape(-1, BANKS)[:MOST_PHASES]
    degrees = found.degrees.reshape(-1)[:MOST_PHASES]
    rows, marks = [], []
    for phase, (own, degree) in enumerate(zip(words, degrees, strict=True)):
        rows.append((f"{phase} ({degree})", *map(int, own)))
        line = [Mark(f"p{phase}", f"phase {phase}: {degree} wavefronts")]
        for bank, count in enumerate(own):
            said = f"phase {phase}, bank {bank}: {count} words"
            line.append(Mark(f"p{phase}b{bank}", said, f"p{phase}"))
        marks.append(tuple(line))
    facts = (
        ("wavefronts", str(found.wavefronts)),
        ("without conflicts", str(found.ideal)),
        ("worst", str(found.degree)),
    )
    grid = table(
        ("phase", *map(str, range(BANKS))), rows, "Different words of each bank", grid=True, marks=tuple(marks)
    )
    return Report("Bank conflicts", (Facts(facts), grid))


def format_report(format: Format) -> Report:
    """Bits, range and special values of a format."""
    facts = [("kind", format.kind), ("bits", f"{format.bits}, in {format.container_bits}")]
    if format.kind == "float":
        facts += [
            ("fields", f"sign {int(format.signed)}, exponent {format.exponent_bits}, fraction {format.fraction_bits}"),
            ("bias", str(format.bias)), ("largest", repr(format.largest)),
            ("smallest normal", f"2^{format.minimum_exponent}"), ("infinity", "yes" if format.infinity else "no"), ("NaN", format.nan),
        ]  # fmt: skip
    elif format.kind == "integer":
        facts.append(("range", "{} to {}".format(*format.limits)))
    if format.source:
        facts.append(("source", format.source))
    return Report(format.name, (Facts(tuple(facts)),))


def explanation_report(found: Explanation) -> Report:
    """Which orders of summation give a product's bits."""
    good = found.verdict == "explained"
    return Report("", (Lines(tuple(found.lines()), style="good" if good else "", wrap=True),))


def named_diagnosis(found: Diagnosis) -> Report:
    """A diagnosis, with its map."""
    return diagnosis_report("Diagnosis", found)


def errors_report(errors: ErrorMap) -> Report:
    """A map of errors alone."""
    return Report("Errors", tuple(map_parts(errors)))


def descriptor_report(descriptor: MatrixDescriptor) -> Report:
    """The fields of a descriptor; of one that cannot be encoded, why."""
    try:
        value, found = descriptor.encode(), fields_of(descriptor)
    except OperandError as error:
        return Report("MatrixDescriptor", (Lines((str(error),), style="bad", wrap=True),))
    rows = [(f"{own.high}:{own.low}", own.name, own.value, own.meaning) for own in found]
    return Report(f"{value:#018x}", (table(("bits", "field", "value", "meaning"), rows),))
