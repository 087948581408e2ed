"""Golden reports of `tcsim.diagnose`: of each kind of wrong and of right kernels one case."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import tcsim
from tests.evaluation.golden.kind import Entry, Scope, as_json
from tests.evaluation.second_wrong_kernels.__main__ import ask
from tests.evaluation.second_wrong_kernels.cases import EVERY, make
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.wrong_kernels.__main__ import KINDS
from tests.evaluation.wrong_kernels.cases import TARGETS, Case, Kind, case

SEED = 0


def reports(scope: Scope) -> Iterator[Entry]:
    """What is said of the case of each kind that is asked for: the lines, then the data."""
    for number, kind in list(enumerate(KINDS))[:: scope.reports]:
        yield f"first {kind.name}", partial(_first, kind, number)
    for name, kind in list(EVERY.items())[:: scope.reports]:
        yield f"second {name}", partial(_second, kind)


def _first(kind: Kind, number: int) -> str:
    own = _case(kind, number)
    if own is None:
        return "no case"
    found = tcsim.diagnose(own.instruction, **own.arguments)
    return "\n".join([own.target.mnemonic, *found.lines(), as_json(found.as_dict())])


def _case(kind: Kind, number: int) -> Case | None:
    """The first instruction, from the kind's own on, and the first seed that make one."""
    targets = [target for target in TARGETS if target.family in kind.families]
    made = (case(kind, targets[(number + turn) % len(targets)], SEED + turn) for turn in range(8))
    return next((own for own in made if own is not None), None)


def _second(kind: type[Kernel]) -> str:
    told = ask(made := make(kind, SEED))
    lines = told.pop("lines")
    del told["seconds"]
    return "\n".join([made.problem.arithmetic.mnemonic, *lines, as_json(told)])
