"""elect.sync under test: masks in, the elected lane and every lane's predicate out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.elect import ABSENT
from tcsim.isa.elect import LANES, ElectLane

Words = npt.NDArray[np.uint32]
_CLASSES = {"": ("full", "masks", "single"), "sink": ("sinkfull", "sinkmasks", "sinksingle")}
"""The input classes of each list of operands."""


def stored(inputs: Inputs, lane: Array, elected: Array, sink: bool) -> Words:
    """What the lanes store (samples, 32, 2): lane uint32 (samples, 32), elected bool (samples, 32)."""
    members = inputs["membermask"] >> np.arange(LANES, dtype=np.uint32) & 1
    words = np.stack([np.full_like(lane, ABSENT) if sink else lane, elected.astype(np.uint32)], axis=-1)
    return np.where(members[..., None] != 0, words, ABSENT).astype(np.uint32)


def _elected(name: str, mistake: str, choose: Callable[[Array], Array]) -> Mutant:
    """A mistaken choice: members (samples, 32) of 0 and 1 -> lane (samples,)."""

    def run(instruction: ElectLane, given: Inputs) -> Array:
        members = given["membermask"] >> np.arange(LANES, dtype=np.uint32) & 1
        lane = np.broadcast_to(np.asarray(choose(members), np.uint32)[:, None], members.shape)
        return stored(given, lane, np.arange(LANES) == lane, sink_of(instruction, given))

    return Mutant(name, mistake, lambda item: True, run)


def sink_of(instruction: ElectLane, inputs: Inputs) -> bool:
    """Whether the inputs are for the list of operands with a sink."""
    return instruction.forms[int(inputs["form"][0])].name == "sink"


def _everyone(instruction: ElectLane, given: Inputs) -> Array:
    lane, _ = instruction.execute(given["membermask"][:, 0])
    members = given["membermask"] >> np.arange(LANES, dtype=np.uint32) & 1
    return stored(given, np.broadcast_to(lane[:, None], members.shape), members != 0, sink_of(instruction, given))


class LaneElectionTestbench(Testbench):
    """Masks in, lanes out."""

    count = 64  # masks
    mutants = (
        _elected(
            "highest lane", "the highest member is elected", lambda members: LANES - 1 - members[:, ::-1].argmax(axis=1)
        ),
        _elected("lane zero", "lane 0 is elected, member or not", lambda members: np.zeros(len(members), np.uint32)),
        Mutant("everyone elected", "the predicate is true for all members", lambda item: True, _everyone),
    )

    def classes(self, instruction: ElectLane) -> list[str]:
        """All lanes, random masks, one lane; with the lane and with a sink."""
        return [name for form in instruction.forms for name in _CLASSES[form.name]]

    def inputs(self, instruction: ElectLane, name: str, seed: int, samples: int) -> Inputs:
        """membermask uint32 (samples, 1), form (samples,)."""
        stream = Stream(instruction.mnemonic, name, seed)
        kind = name.removeprefix("sink")
        if kind == "full":
            masks = np.full((samples, 1), 0xFFFF_FFFF, np.uint32)
        elif kind == "single":
            masks = (np.uint64(1) << stream.below(LANES, (samples, 1)).astype(np.uint64)).astype(np.uint32)
        else:  # some dense, some sparse; never empty
            words = stream.words((samples, 3)).astype(np.uint32)
            sparse = words[:, 1] & words[:, 2] & (words[:, 0] >> np.uint32(7))
            masks = np.where(stream.chance(1, 2, (samples,)), words[:, 0], sparse)[:, None]
            masks = np.where(masks == 0, np.uint32(1 << 19), masks)
        form = next(place for place, form in enumerate(instruction.forms) if name in _CLASSES[form.name])
        return {"membermask": masks, "form": np.full(samples, form, np.uint32)}

    def model(self, instruction: ElectLane, inputs: Inputs) -> Words:
        """Lane and predicate of each lane: uint32 (samples, 32, 2)."""
        lane, elected = instruction.execute(inputs["membermask"][:, 0])
        return stored(inputs, np.broadcast_to(lane[:, None], elected.shape), elected, sink_of(instruction, inputs))

    def explain(self, instruction: ElectLane, inputs: Inputs, place: Place) -> Expected:
        """One of the two words of a lane."""
        sample, lane, word = place
        mask = f"membermask {int(inputs['membermask'][sample, 0]):#010x}"
        source = f"{('elected lane', 'predicate')[word]}, {mask}"
        return Expected({"sample": sample, "lane": lane}, source, ("the lowest member",))


TESTBENCHES = {"elect.sync": LaneElectionTestbench()}
