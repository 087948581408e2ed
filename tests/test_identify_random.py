"""Random machines and machines outside the vocabulary, whose author had not read the solver: some here, all with `tox -e identify`."""

from __future__ import annotations

import numpy as np
import pytest
from long_matrices import WHOLE

from tcsim.identification.solver import LIMIT, identify
from tests.identify_everything import Asked
from tests.random_machines import Machine, agrees, outside_machines, random_machines

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
