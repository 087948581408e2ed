"""Random machines and machines outside the vocabulary, whose author had not read the solver: some here, all with `tox -e identify`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwkernels.identification import machine as hypotheses
from hwkernels.identification.answers import answer, predicted
from hwkernels.identification.order import Order
from hwkernels.identification.proof import alike
from hwkernels.identification.questions import Questions
from hwkernels.identification.search import CHOICES
from hwkernels.identification.solver import LIMIT, identify
from tests.evaluation.identify_everything import Asked
from tests.evaluation.random_machines import Machine, agrees, inputs, outside_machines, random_machine, random_machines
from tests.support.extent import WHOLE

CHANGES: tuple[dict[str, Any], ...] = (
    {"fraction_bits": 12},
    {"fraction_bits": None},
    {"truncation": "down", "floor": -20},
    {"products": "normalised"},
    {"significand": 9, "rounding": "rne"},
    {"overflow": "largest", "subnormal_out": "zero"},
    {"subnormal_in": "zero", "subnormal_c": "zero"},
    {"zero": "ieee"},
)
MACHINES = list(random_machines(200, seed=1)) if WHOLE else list(random_machines(4, seed=1))[3:]


@pytest.mark.parametrize("machine", MACHINES, ids=map(str, range(len(MACHINES))))
def test_a_random_machine_is_identified(machine: Machine) -> None:
    """Key by key as its truth, or not observable where no input shows the key; an open key's value has to explain every answer too."""
    found = identify(Asked(machine))
    assert not found.outside, (machine.truth, *found.lines())
    assert found.asked <= LIMIT
    assert agrees(machine.signature, machine.truth, found.answer), (machine.truth, found.keys)


@pytest.mark.parametrize("name", list(outside_machines()) if WHOLE else ["Random", "Remembering", "StickyShift"])
def test_a_machine_outside_the_vocabulary_is_refused(name: str) -> None:
    """With a case that its nearest hypothesis answers differently, or another answer to the same question."""
    with np.errstate(all="ignore"):
        found = identify(Asked(outside_machines()[name]))
    assert found.outside and found.mismatch is not None
    assert found.mismatch.answer != found.mismatch.predicted
    told = {"Random": "a lone power of two", "Remembering": "two answers"}
    assert told.get(name, "") in found.reason


def test_cancelling_powers_show_the_order_of_the_steps() -> None:
    """The steps in their order, the first two perhaps as one; nothing where the formats do not reach; never another order."""
    shown = hidden = 0
    for number in range(200 if WHOLE else 60):
        machine = random_machine(number, seed=1)
        asked, steps = Asked(machine), [set(step) for step in machine.truth["step"]]
        with np.errstate(all="ignore"):
            found = [set(step) for step in Order(asked, Questions(asked.signature, 1)).chained()]
        both = [set.union(*steps[:2]), *steps[2:]]
        assert len(found) == 1 or found in (steps, both), (number, found, machine.truth)
        shown += len(steps) > 2 and len(found) > 1
        hidden += len(steps) > 2 and len(found) == 1
    assert shown >= 20 and shown > 3 * hidden, (shown, hidden)


def test_a_borrow_shows_the_order_of_the_steps() -> None:
    """All steps in their order, or nothing; where c comes first and results are as long as c, always."""
    shown = 0
    for number in range(200 if WHOLE else 60):
        machine = random_machine(number, seed=1)
        asked, steps = Asked(machine), [set(step) for step in machine.truth["step"]]
        with np.errstate(all="ignore"):
            found = [set(step) for step in Order(asked, Questions(asked.signature, 1)).borrowed()]
        assert len(found) == 1 or found == steps, (number, found, machine.truth)
        shown += len(found) > 1
        if len(steps) > 1 and (machine.truth["addend"], asked.signature.c) == ("first", asked.signature.d):
            hidden = machine.truth["floor"] is not None and machine.truth["floor"] > -20
            assert len(found) > 1 or hidden, (number, machine.truth)
    assert shown >= 20, shown


def test_hypotheses_answer_as_machines_of_another_author() -> None:
    """A random machine and others with one key changed, computed together and alone: each as the machine that was written without this one."""
    compared = 0
    for number in range(24):
        machine = random_machine(number, seed=5)
        x = inputs(machine.signature, 200, seed=number)
        truths = [machine.truth, *(machine.truth | change for change in CHANGES)]
        owns = [hypotheses.Machine(**{"widened" if k == "as" else k: v for k, v in t.items()}) for t in truths]
        batch = hypotheses.Batch(Asked(machine).signature, *x)
        found = predicted(owns, batch)
        for truth, own, row in zip(truths, owns, found, strict=True):
            np.testing.assert_array_equal(row, Machine(machine.signature, truth).dot(*x), str(truth))
            np.testing.assert_array_equal(row, answer(own, batch))
            compared += len(row)
    assert compared == 24 * 200 * (1 + len(CHANGES))


def test_what_is_proven_alike_answers_alike() -> None:
    """A key of a random machine changed: where the solver has a proof, the independent machines agree on inputs made to tell them apart."""
    proven = refuted = 0
    for number in range(400 if WHOLE else 60):
        machine = random_machine(number, seed=3)
        asked = Asked(machine)
        x = inputs(machine.signature, 1000, seed=number)
        expected = None
        for key, values in {**CHOICES, "floor": (None, -133, -126, -20, 0), "as": (None, "f16")}.items():
            for value in values[:: 7 if key == "fraction_bits" else 1]:
                truth = machine.truth | {key: value}
                one, other = (
                    hypotheses.Machine(**{"widened" if name == "as" else name: v for name, v in t.items()})
                    for t in (machine.truth, truth)
                )
                if value == machine.truth[key] or not alike(asked.signature, one, other):
                    continue
                expected = machine.dot(*x) if expected is None else expected
                proven += 1
                refuted += not np.array_equal(Machine(machine.signature, truth).dot(*x), expected)
    assert proven >= 100 and not refuted, (proven, refuted)
