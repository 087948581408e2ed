"""Golden answers of the PTX machine: bytes that launches leave, generated source, and hazards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache, partial

from tcsim.ptx import Kernel, Limits, Memory, Run, parse
from tcsim.ptx.compile.pieces import first_piece
from tests.evaluation.golden.kind import Entry, Schedule, Scope, facts_of, hazards_of
from tests.evaluation.golden.launching import ALONE, Maker, each
from tests.hazards import test_planted as planted
from tests.hazards.bugs.table import BUGS
from tests.hazards.layouts.table import KERNELS as LAYOUTS
from tests.hazards.layouts.table import MISTAKES
from tests.hazards.layouts.table import Kernel as Layout
from tests.hazards.matrix.mutants import Mutant
from tests.hazards.matrix.subjects import Subject, subjects
from tests.hazards.matrix.verdicts import MORE, SLOWER, every
from tests.hazards.test_bugs import ran as ran_bug
from tests.kernels.corpora.gemm.products import Case, arch_of, multiplied
from tests.kernels.corpora.gemm.whole import share

ORDERS: tuple[Schedule, ...] = ("late", "early", 7)
"""Schedules of planted kernels."""
EVERY_MUTANT = 25
"""One of this many mutants of the hazard matrix."""
VARIANTS = {"plain": (False, False, False), "watched": (True, False, False), "stepped": (True, True, False), "traced": (True, False, True)}  # fmt: skip
"""Ways to compile a kernel: watched, stepped, traced."""


# --- launches


def launches(scope: Scope) -> Iterator[Entry]:
    """What every launch leaves in memory under each schedule, with the check and, once, without."""
    for name, make in each():
        for schedule in scope.schedules:
            yield f"{name} {schedule}", partial(_left, make, schedule)
        yield f"{name} late unchecked", partial(_left, make, "late", check=False)
    for case, target, schedule in share():
        yield f"gemm {case.id} {target} {schedule}", partial(_product, case, target, schedule)


def _left(make: Maker, schedule: Schedule, check: bool = True) -> str:
    own = make(schedule)
    run = own.run(check=check)
    return "\n".join(
        [*facts_of(run), *(f"{name}: {len(data)} bytes {_digest(data)}" for name, data in own.left().items())]
    )


def _product(case: Case, target: str, schedule: Schedule) -> str:
    own = multiplied(case, arch_of(target), schedule, limits=ALONE)
    return "\n".join([*facts_of(own.run), f"{own.wrong} of {own.compared} bytes wrong"])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- sources


def sources(scope: Scope) -> Iterator[Entry]:
    """The Python of every kernel of the corpora and of the planted ones, as it is compiled in each way, with its pieces."""
    for name, make in each():
        for variant in VARIANTS:
            yield f"{name} {variant}", partial(_recorded_source, make, variant)
    for name, text in _texts().items():
        for variant in VARIANTS:
            yield f"{name} {variant}", partial(_text_source, text, variant)


def _recorded_source(make: Maker, variant: str) -> str:
    own = make("late")
    return _source(own.kernel, own.memory, own.arch, variant)


def _text_source(text: Callable[[], str], variant: str) -> str:
    module = parse(text())
    return "\n".join(
        _source(module.kernel(name), Memory(), module.kernel(name).target, variant) for name in module.kernels
    )


def _source(kernel: Kernel, memory: Memory, arch: str, variant: str) -> str:
    program = kernel.compiled(memory, arch.rstrip("af"), *VARIANTS[variant])
    for block in range(len(program.blocks)):
        first_piece(program, block)
    lines = (" ".join(str(item.line) if item else "-" for item in own) for own in program.lines)
    return "\n".join(
        f"{block.text}\n# lines {of}; {block.gathers} lanes, {block.size} instructions"
        for block, of in zip(program.sources, lines, strict=True)
    )


def _texts() -> dict[str, Callable[[], str]]:
    """Right kernels that are planted in, by name, and what gives their text."""
    found: dict[str, Callable[[], str]] = {f"planted {own.name}": partial(str, own.source) for own in planted.KERNELS}
    found |= {f"bug {own.mark}": partial(str, own.kernel.source) for own in BUGS}
    found |= {f"layout {name}": partial(_text_of_layout, own) for name, own in LAYOUTS.items()}
    return found | {f"matrix {name}": partial(_text_of_subject, own) for name, own in subjects().items()}


def _text_of_layout(own: Layout) -> str:
    return own.run().text


def _text_of_subject(own: Subject) -> str:
    return own.compiled.ptx


# --- hazards


def hazards(scope: Scope) -> Iterator[Entry]:
    """All that the check says: of planted defects and the right kernels, of bugs, mistakes of layout, a part of the matrix, and the corpora."""
    for kernel in planted.KERNELS:
        for schedule in ORDERS:
            yield f"planted {kernel.name} right {schedule}", _said(planted.ran, kernel, kernel.source, schedule)
            for defect in kernel.defects:
                run = _said(planted.ran, kernel, kernel.without(defect), schedule)
                yield f"planted {kernel.name} {defect} {schedule}", run
    for bug in BUGS:
        for schedule in ORDERS:
            for what, text in (("wrong", bug.kernel.without(bug.mark)), ("right", bug.kernel.source)):
                run = _said(ran_bug, text, bug.before, bug.kernel.threads, bug.kernel.blocks, schedule)
                yield f"bug {bug.mark} {what} {schedule}", run
    for name, layout in LAYOUTS.items():
        yield f"layout {name} right", _said(layout.run)
    for mistake in MISTAKES:
        yield f"layout {mistake.kernel} {mistake.field}={mistake.value}", _said(mistake.wrong.run)
    for name, make in each():
        yield f"corpora {name}", _said(_all_of, make)
    for case, target, order in share():
        yield f"gemm {case.id} {target} {order}", partial(_hazards_of_product, case, target, order)
    for name, subject in subjects().items():
        for place in range(PLACES):
            yield f"matrix {name} part {place}", partial(_hazards_of_mutants, subject, place)


PLACES = 2
"""Entries that the chosen mutants of a kernel are divided into."""


def _said(function: Callable[..., Run], *arguments: object) -> Callable[[], str]:
    return lambda: hazards_of(function(*arguments))


def _all_of(make: Maker) -> Run:
    return make("late").run(origins=True, races=True)


def _hazards_of_product(case: Case, target: str, schedule: Schedule) -> str:
    own = multiplied(case, arch_of(target), schedule, check=True, origins=True, races=True, limits=ALONE)
    return hazards_of(own.run)


def _hazards_of_mutants(subject: Subject, place: int) -> str:
    """What is said of one mutant in `EVERY_MUTANT`, those of one place."""
    mutants = every(subject)[::EVERY_MUTANT][place::PLACES]
    return "\n\n".join(_hazards_of_mutant(subject, own) for own in mutants)


@cache
def _instructions(subject: Subject) -> int:
    return subject.ran(parse(subject.compiled.ptx), "late", subject.laid_out()).run.instructions


def _hazards_of_mutant(subject: Subject, mutant: Mutant) -> str:
    limits = Limits(instructions=_instructions(subject) * SLOWER + MORE, processes=1)
    head = f"line {mutant.line} {mutant.kind}: {mutant.what}"
    try:
        own = subject.ran(parse(mutant.text), "late", subject.laid_out(), limits=limits)
    except ValueError as error:
        return f"{head}\nrefused: {error}"
    return f"{head}\n{hazards_of(own.run)}"
