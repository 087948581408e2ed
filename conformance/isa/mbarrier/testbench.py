"""mbarrier under test: random programs of operations on one barrier, by one thread and by several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from conformance.comparison import Comparison, Expected, Place, compare_moved
from conformance.isa.mbarrier.mutants import MUTANTS
from conformance.isa.mbarrier.programs import programs, run
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Testbench
from hwkernels.probes import mbarrier as probe
from tcsim.isa.mbarrier.semantics import BarrierInstruction
from tcsim.model.form import Form

OF_FORM = {
    "": "program",
    "state": "state",
    "sink": "sink",
    "state+count": "counted",
    "sink+count": "sinkcounted",
    "hint": "hinted",
    "report": "reported",
    "report+value.b8": "valued",
    "report;hint": "reportedhinted",
    "report+value.b8;hint": "valuedhinted",
}
"""The input class that runs a list of operands."""
_WORDS = ("what it returned", "complete parities", "state, low word", "state, high word")
_LOW_WORD = 2
_NAMES = ("the instruction", "init", "arrive", "arrive.noComplete", "expect_tx", "complete_tx", "arrive_drop", "inval",
          "init.layout::v1")  # fmt: skip


def form_of(instruction: BarrierInstruction, name: str) -> Form:
    """The list of operands that an input class uses: its own; of threads and tokens, the first that will do."""
    for form in instruction.forms:
        if OF_FORM[form.name] == name or name == "threads" or (name == "tokens" and "state" in form.results):
            return form
    raise ValueError(f"{instruction!r} has no input class {name!r}")


class BarrierTestbench(Testbench):
    """Programs in, what each step saw out."""

    count = 32  # programs
    mutants = MUTANTS

    def classes(self, instruction: BarrierInstruction) -> list[str]:
        """One for each list of operands; several threads and the bits of states where they can be."""
        names = [OF_FORM[form.name] for form in instruction.forms]
        if instruction.row.arrives:
            names.append("threads")
            if instruction.arch.number >= 90 and any("state" in form.results for form in instruction.forms):
                names.append("tokens")
        return names

    def inputs(self, instruction: BarrierInstruction, name: str, seed: int, samples: int) -> Inputs:
        """program uint32 (samples, steps, 4), form uint32 (samples,): which of the row's lists of operands."""
        form = form_of(instruction, name)
        stream = Stream(instruction.mnemonic, name, seed)
        made = programs(instruction, form, name == "threads", name == "tokens", samples, stream)
        place = instruction.row.forms.index(form)
        return {"program": made, "form": np.full(samples, place, np.uint32)}

    def model(self, instruction: BarrierInstruction, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """What each step saw: uint32 (samples, steps, 4)."""
        return run(instruction, instruction.row.forms[int(inputs["form"][0])], inputs["program"])

    def compare(self, instruction: BarrierInstruction, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Word by word; words that a step leaves zero are compared and not counted.

        The low word of a state is not a part of it: see tcsim/memory/mbarrier_bits.py.
        """
        program = inputs["program"]
        seen = (program[..., 3] & probe.OBSERVE != 0).sum() + (program[..., 3] & probe.RAW_STATE != 0).sum()
        returned = np.isin(program[..., 0], [probe.ROW, probe.NO_COMPLETE]).sum()
        counted = np.broadcast_to(np.arange(model.shape[-1]) != _LOW_WORD, model.shape)

        def explain(place: Place) -> Expected:
            sample, step, word = place
            steps = zip(program[sample, : step + 1].tolist(), model[sample, : step + 1].tolist(), strict=True)
            steps_seen = [
                f"step {number}: {_NAMES[operation]} by {lanes} lanes, value {value}: returned {result}, complete {tests:#04b}"
                for number, ((operation, lanes, value, _), (result, tests, *_rest)) in enumerate(steps)
            ]
            source = f"{_NAMES[int(program[sample, step, 0])]}: {_WORDS[word]}"
            return Expected({"sample": sample, "step": step}, source, tuple(steps_seen))

        found = compare_moved(instruction, hardware, model, explain, "#x", counted)
        return replace(found, outputs=int(seen + returned))
