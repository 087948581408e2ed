"""Random machines and machines outside the vocabulary, whose author had not read the solver: some here, all with `tox -e identify`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from long_matrices import WHOLE

from tcsim.identification.machine import Signature
from tcsim.identification.solver import identify
from tests.random_machines import Machine, agrees, outside_machines, random_machines

MACHINES = list(random_machines(200, seed=1)) if WHOLE else list(random_machines(4, seed=1))[3:]


class Asked:
    """A machine of which only its signature and its answers are seen."""

    def __init__(self, machine: Any) -> None:
        own = machine.signature
        self._machine = machine
        self.signature = Signature(own.k, own.a, own.b, own.c, own.d, tuple(own.scale) if own.scale else None)

    def dot(self, *operands: Any) -> Any:
        """Its answers."""
        return self._machine.dot(*(x for x in operands if x is not None))


@pytest.mark.parametrize("machine", MACHINES, ids=map(str, range(len(MACHINES))))
def test_a_random_machine_is_identified(machine: Machine) -> None:
    """Key by key as its truth, or not observable where no input shows the key."""
    found = identify(Asked(machine))
    assert not found.outside, (machine.truth, *found.lines())
    assert found.asked <= 100_000
    assert agrees(machine.signature, machine.truth, found.keys), (machine.truth, found.keys)


if WHOLE:

    @pytest.mark.parametrize("name", list(outside_machines()))
    def test_a_machine_outside_the_vocabulary_is_refused(name: str) -> None:
        """With a case that its nearest hypothesis answers differently."""
        with np.errstate(all="ignore"):
            found = identify(Asked(outside_machines()[name]))
        assert found.outside and found.mismatch is not None
        assert found.mismatch.answer != found.mismatch.predicted
